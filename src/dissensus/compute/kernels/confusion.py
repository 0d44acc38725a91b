"""The pass of the confusion family: posteriors of items and expected label counts, computed in one loop.

For every item i:   q_i(c) ∝ π_i(c) Π_{rows of i} L[a, y, c]      (E step)
then for its rows:  counts[a, y, c] += q_i(c)                       (sums of the M step)

The pass reads the rows once, and makes no (N, K) or (I, K) array unless the posterior is requested. It is the only
E step in numba. `compile_pass` compiles it for one source of q and one layout of the likelihood, see `compute.chunk`;
its readable form, with which tests compare it, is `models.confusion.e_step`.

`cells` (A, given, 2, true) stores the likelihood and the counts of an annotator and label next to each other, so that
both are in one cache line; with separate arrays, a pass over 10M rows took 1.6 times as long.

Likelihoods are multiplied instead of adding their logarithms, so no exponential per item and class is needed. Up to
`MAX_VECTOR_CLASSES` classes, K numbers are multiplied at a time and prefetched (`kernels.vector`). A product of `chunk`
rows stays in the range of a double; for items with more rows, the logarithms of such products are added. The factor L^w
of a single weighted row may underflow, so the pass of a table with weights has `logs` set and cells with logarithms. A
probabilistic row is stored as one weighted row per class, which is equivalent: Σ_l p_l log L[l, c].
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from dissensus.common.jit import lazy_jit
from dissensus.common.types import FloatArray
from dissensus.compute.chunk import ALL_ONES, COIN, FULL, LIKELIHOOD, POSTERIOR, VOTES
from dissensus.compute.kernels.items import normalise_item
from dissensus.compute.kernels.vector import add_to_counts, multiply_cells, normalise_and_add, prefetch_cells

PREFETCHED_ROWS = 16  # number of rows by which a cell is prefetched before it is used
MAX_VECTOR_CLASSES = 32  # maximum number of classes for vector code; longer vectors need too much code
MAX_LOG_PRODUCT = 200 * np.log(10)  # maximum |log product|; sums over classes stay normal with priors above 1e-50
SMALL_PRODUCT, LARGE_PRODUCT = 1e-50, 1e50  # products between these limits can be multiplied once more


def chunk_rows(table: FloatArray) -> int:
    """Return how many likelihoods or odds can be multiplied without leaving the range of a double."""
    largest = max(abs(np.log(table.max(initial=1))), abs(np.log(table.min(initial=1))))
    return int(min(MAX_LOG_PRODUCT / max(largest, 1e-9), 2**31))


@cache
def compile_pass(n_classes: int, source: int, layout: int, logs: bool) -> Any:
    """Return the compiled pass; `n_classes` is 0 if the number of classes is not compiled into the code.

    The pass is one function, because Dawid-Skene was slower with a pass that was split into shorter functions.
    """
    model, votes, given_q, ones = (source == kind for kind in (LIKELIHOOD, VOTES, POSTERIOR, ALL_ONES))
    full, coin, vector = layout == FULL, layout == COIN, n_classes > 0

    @lazy_jit
    def process_items(
        start, stop, item_ptr, annotator, label, weight, prior, given, chunk, gold, cells, prior_counts, posterior
    ):
        """Process items start … stop − 1, add to the counts and `prior_counts` (K,), and return the log evidence.

        `prior` is (1, K) or (I, K), and `cells` is flat. `given` (I, K), `weight` (N,), `gold` (I,) and `posterior`
        (I, K) are empty arrays if unused, because None would be another type and compiled again.
        """
        K = n_classes if vector else prior_counts.size
        q, sums, log_q = np.empty(K), np.zeros(K), np.empty(K)
        evidence, product = 0.0, 1.0
        per_item, last_row = prior.shape[0] > 1, item_ptr[stop]
        has_gold, keep = gold.size > 0 and not ones, posterior.shape[0] > 0
        classes, two = np.uintp(K), np.uintp(2)  # unsigned, so that numba does not check the sign of indices
        for i in range(start, stop):
            first, end = item_ptr[i], item_ptr[i + 1]
            own_prior = i if per_item else 0
            gold_class = gold[i] if has_gold else -1
            if gold_class >= 0:  # the class of a gold item is known; a product of likelihoods could underflow
                if model:
                    evidence += np.log(prior[own_prior, gold_class])
                    for row in range(np.uintp(first), np.uintp(end)):
                        a, y = np.uintp(annotator[row]), np.uintp(label[row])
                        w = weight[row] if logs else 1.0
                        value = 0.0 if logs else 1.0
                        if full:
                            value = cells[(a * classes + y) * two * classes + np.uintp(gold_class)]
                        elif y == np.uintp(gold_class):
                            value = cells[two * a if coin else two * (a * classes + y)]
                        evidence += w * value if logs else np.log(value)
                for k in range(K):
                    q[k] = 0.0
                q[gold_class] = 1.0
                sums[gold_class] += 1.0
            elif not model:
                total = 0.0
                if votes:
                    q[:] = 0.0
                    for row in range(np.uintp(first), np.uintp(end)):
                        w = weight[row] if logs else 1.0
                        q[np.uintp(label[row])] += w
                        total += w
                for k in range(K):
                    if votes:
                        q[k] = q[k] / total if total > 0 else 1.0 / K
                    else:
                        q[k] = given[i, k] if given_q else 1.0
                    sums[k] += q[k]
            elif logs:
                for k in range(K):
                    q[k] = np.log(prior[own_prior, k])
                for row in range(np.uintp(first), np.uintp(end)):
                    a, y = np.uintp(annotator[row]), np.uintp(label[row])
                    w = weight[row] if logs else 1.0
                    if full:
                        at = (a * classes + y) * two * classes
                        for k in range(K):
                            q[k] += w * cells[at + np.uintp(k)]
                    else:
                        q[y] += w * cells[two * a if coin else two * (a * classes + y)]
                evidence += normalise_item(q, -1, q)
                for k in range(K):
                    sums[k] += q[k]
            else:
                if full and vector:
                    upto = min(end + PREFETCHED_ROWS, last_row)
                    prefetch_cells(n_classes, cells, annotator, label, min(first + PREFETCHED_ROWS, upto), upto)
                done = min(first + chunk, end)
                if full and vector:
                    multiply_cells(n_classes, cells, annotator, label, first, done, prior, own_prior, q)
                else:
                    for k in range(K):
                        q[k] = prior[own_prior, k]
                    multiply_rows(full, coin, cells, annotator, label, first, done, q)
                if done < end:  # a product below the range of a double may grow again
                    for k in range(K):
                        log_q[k] = np.log(q[k])
                    while done < end:
                        upto = min(done + chunk, end)
                        for k in range(K):
                            q[k] = 1.0
                        multiply_rows(full, coin, cells, annotator, label, done, upto, q)
                        for k in range(K):
                            log_q[k] += np.log(q[k])
                        done = upto
                    top = log_q.max()
                    for k in range(K):
                        q[k] = np.exp(log_q[k] - top)
                    evidence += top
                if vector:
                    total = normalise_and_add(n_classes, q, sums)
                else:
                    total = 0.0
                    for k in range(K):
                        total += q[k]
                    scale = 1.0 / total
                    for k in range(K):
                        q[k] *= scale
                        sums[k] += q[k]
                product *= total  # so that many items need only one logarithm
                if product < SMALL_PRODUCT or product > LARGE_PRODUCT:
                    evidence += np.log(product)
                    product = 1.0
            if keep:
                for k in range(K):
                    posterior[i, k] = q[k]
            if full and vector and not logs:
                add_to_counts(n_classes, cells, annotator, label, first, end, q)
            else:
                for row in range(np.uintp(first), np.uintp(end)):
                    a, y = np.uintp(annotator[row]), np.uintp(label[row])
                    w = weight[row] if logs else 1.0
                    if full:
                        at = ((a * classes + y) * two + np.uintp(1)) * classes
                        for k in range(K):
                            cells[at + np.uintp(k)] += w * q[k]
                    else:
                        cells[(two * a if coin else two * (a * classes + y)) + np.uintp(1)] += w * q[y]
        for k in range(K):
            prior_counts[k] += sums[k]
        return evidence + np.log(product)

    return process_items


@lazy_jit
def multiply_rows(full, coin, cells, annotator, label, first, end, q):
    """Multiply `q` (K,) by the likelihoods or odds of rows first … end − 1."""
    classes, two = np.uintp(q.size), np.uintp(2)
    for row in range(np.uintp(first), np.uintp(end)):
        a, y = np.uintp(annotator[row]), np.uintp(label[row])
        if full:
            at = (a * classes + y) * two * classes
            for k in range(q.size):
                q[k] *= cells[at + np.uintp(k)]
        else:
            q[y] *= cells[two * a if coin else two * (a * classes + y)]


@lazy_jit
def load_cells(start, stop, table, cells, logs):
    """Copy the likelihoods of annotators start … stop − 1 from `table` (A, true, given) to `cells`; reset counts."""
    workers, _, n_given, _, n_true = cells.shape
    for a in range(start, stop):
        for t in range(workers):
            for y in range(n_given):
                for k in range(n_true):
                    cells[t, a, y, 0, k] = np.log(table[a, k, y]) if logs else table[a, k, y]
                    cells[t, a, y, 1, k] = 0.0


@lazy_jit
def collect_counts(start, stop, cells, counts):
    """Write the counts of annotators start … stop − 1, summed over workers, to `counts` (A, true, given)."""
    workers, _, n_given, _, n_true = cells.shape
    for a in range(start, stop):
        for y in range(n_given):
            for k in range(n_true):
                count = 0.0
                for t in range(workers):
                    count += cells[t, a, y, 1, k]
                counts[a, k, y] = count
