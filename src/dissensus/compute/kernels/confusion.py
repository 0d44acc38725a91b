"""One EM pass of a model with a confusion matrix per annotator, fused: normalise an item, add its soft counts.

For every item i:   q_i(c) ∝ π_c Π_{rows of i} Θ_a[c, y]      (E step)
then for its rows:  counts_a[c, y] += q_i(c)                   (M step's sums)

in one walk over the rows; no (N, K) and no (I, K) array is made unless the posterior is asked for. The readable form of
the same pass is `em.e_step` with a model's `log_votes` and `m_step`; a test holds the two together.

`cells` (A, K, 2, K) [annotator, given, Θ or counts, true] keeps Θ and the counts of the same (annotator, given label)
side by side: what the E step fetches is what the M step adds to. Two walks:

- `sweep`, for hard rows and up to `MAX_VECTOR` classes: probabilities are multiplied, not their logarithms added, so
  there is no exponential per item and class; K numbers at a time, and fetched ahead (see `kernels.vector`). A product
  of 16 rows cannot underflow while Θ ≥ 1e-18; items with more rows add the logarithms of such products.
- `sweep_logs`, for weighted rows (Θ^w may underflow in one step) and for more classes. A probabilistic row comes in as
  one weighted row per class, which is the same thing: Σ_l p_l log Θ[c, l].
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from dissensus.common.jit import compiled
from dissensus.common.types import FloatArray, IntArray
from dissensus.compute.kernels.vector import ask, plus, settle, times

AHEAD = 16  # rows between asking for cells and using them
CHUNK = 16  # rows whose Θ are multiplied before a logarithm is taken
MAX_VECTOR = 32  # classes; a vector of more would be compiled into too much code


@cache
def sweep(n_classes: int) -> Any:
    """The compiled walk for this number of classes."""

    @compiled
    def sweep_items(  # type: ignore[no-untyped-def]
        start, stop, item_ptr, annotator, label, cells, prior, prior_counts, gold, posterior
    ):
        """Walk items start … stop − 1; returns their log evidence. `gold` (I,) and `posterior` (I, K) may be None."""
        cell = cells.reshape(-1)
        q, sums = np.empty(n_classes), np.zeros(n_classes)
        logs, ones = np.empty(n_classes), np.ones(n_classes)
        evidence, product = 0.0, 1.0
        end_of_rows = item_ptr[stop]
        for i in range(start, stop):
            first, end = item_ptr[i], item_ptr[i + 1]
            if gold is not None:
                if (
                    gold[i] >= 0
                ):  # its class is known, however many annotators deny it: no product, which could underflow
                    evidence += np.log(prior[gold[i]])
                    for row in range(first, end):
                        evidence += np.log(cells[annotator[row], label[row], 0, gold[i]])
                    q[:] = 0.0
                    q[gold[i]] = 1.0
                    sums[gold[i]] += 1.0
                    if posterior is not None:
                        posterior[i] = q
                    plus(n_classes, cell, annotator, label, first, end, q)
                    continue
            upto = min(end + AHEAD, end_of_rows)
            ask(n_classes, cell, annotator, label, min(first + AHEAD, upto), upto)
            done = min(first + CHUNK, end)
            times(n_classes, cell, annotator, label, first, done, prior, q)
            if done == end:
                total = settle(n_classes, q, sums)
                if total < 1e-100:
                    evidence += np.log(total)
                else:  # one logarithm for many items: totals are at most 1, and a product of two here at least 1e-200
                    product *= total
                    if product < 1e-100:
                        evidence += np.log(product)
                        product = 1.0
            else:  # many rows: a class may fall further behind than a double holds, and still win
                for k in range(n_classes):
                    logs[k] = np.log(q[k])
                while done < end:
                    upto = min(done + CHUNK, end)
                    times(n_classes, cell, annotator, label, done, upto, ones, q)
                    for k in range(n_classes):
                        logs[k] += np.log(q[k])
                    done = upto
                top = logs.max()
                for k in range(n_classes):
                    q[k] = np.exp(logs[k] - top)
                evidence += top + np.log(settle(n_classes, q, sums))
            if posterior is not None:
                for k in range(n_classes):
                    posterior[i, k] = q[k]
            plus(n_classes, cell, annotator, label, first, end, q)
        for k in range(n_classes):
            prior_counts[k] += sums[k]
        return evidence + np.log(product)

    return sweep_items


@compiled
def sweep_logs(
    start: int,
    stop: int,
    item_ptr: IntArray,
    annotator: IntArray,
    label: IntArray,
    weight: Any,
    cells: FloatArray,
    prior: FloatArray,
    prior_counts: FloatArray,
    gold: Any,
    posterior: Any,
) -> float:
    """The same walk in logarithms: cells hold log Θ instead of Θ; a row counts `weight` times (None: once)."""
    K = prior.size
    q = np.empty(K)
    evidence = 0.0
    for i in range(start, stop):
        for k in range(K):
            q[k] = np.log(prior[k])
        for row in range(item_ptr[i], item_ptr[i + 1]):
            w = 1.0
            if weight is not None:
                w = weight[row]
            for k in range(K):
                q[k] += w * cells[annotator[row], label[row], 0, k]
        if gold is not None:
            if gold[i] >= 0:
                for k in range(K):
                    if k != gold[i]:
                        q[k] = -np.inf
        top = q.max()
        total = 0.0
        for k in range(K):
            q[k] = np.exp(q[k] - top)
            total += q[k]
        evidence += np.log(total) + top
        for k in range(K):
            q[k] /= total
            prior_counts[k] += q[k]
        if posterior is not None:
            for k in range(K):
                posterior[i, k] = q[k]
        for row in range(item_ptr[i], item_ptr[i + 1]):
            w = 1.0
            if weight is not None:
                w = weight[row]
            for k in range(K):
                cells[annotator[row], label[row], 1, k] += w * q[k]
    return evidence


@compiled
def load(start: int, stop: int, confusion: FloatArray, cells: FloatArray, logs: bool) -> None:
    """Copy Θ (A, K, K) [annotator, given, true] of annotators start … stop − 1 to every worker's cells, counts zero."""
    workers, K = cells.shape[0], confusion.shape[1]
    for a in range(start, stop):
        for y in range(K):
            for t in range(workers):
                for k in range(K):
                    cells[t, a, y, 0, k] = np.log(confusion[a, y, k]) if logs else confusion[a, y, k]
                    cells[t, a, y, 1, k] = 0.0


@compiled
def log_density(start: int, stop: int, confusion: FloatArray, pseudo: FloatArray) -> float:
    """Σ pseudo[given, true] log Θ of annotators start … stop − 1, their part of the log prior density.

    One logarithm for many annotators: a product of their Θ is taken until it gets small.
    """
    K = confusion.shape[1]
    product, log_sum = np.ones((K, K)), np.zeros((K, K))
    for a in range(start, stop):
        for y in range(K):
            for k in range(K):
                product[y, k] *= confusion[a, y, k]
                if product[y, k] < 1e-200:
                    log_sum[y, k] += np.log(product[y, k])
                    product[y, k] = 1.0
    return float((pseudo * (log_sum + np.log(product))).sum())


@compiled
def collect(start: int, stop: int, cells: FloatArray, counts: FloatArray) -> None:
    """The counts of annotators start … stop − 1, summed over workers, into `counts` (A, K, K) [a, given, true]."""
    workers, K = cells.shape[0], counts.shape[1]
    for a in range(start, stop):
        for y in range(K):
            for k in range(K):
                count = 0.0
                for t in range(workers):
                    count += cells[t, a, y, 1, k]
                counts[a, y, k] = count


@compiled
def maximise(start: int, stop: int, counts: FloatArray, pseudo: FloatArray, confusion: FloatArray) -> None:
    """Θ_a[c, y] ∝_y pseudo[y, c] + counts_a[c, y], into `confusion` (A, K, K) [a, given, true]; may be `counts`."""
    K = confusion.shape[1]
    total = np.empty(K)
    for a in range(start, stop):
        total[:] = 0.0
        for y in range(K):
            for k in range(K):
                count = pseudo[y, k] + counts[a, y, k]
                confusion[a, y, k] = count
                total[k] += count
        for k in range(K):
            total[k] = 1.0 / total[k]
        for y in range(K):
            for k in range(K):
                confusion[a, y, k] *= total[k]


@compiled
def soft_counts(
    item_ptr: IntArray, annotator: IntArray, label: IntArray, weight: Any, posterior: FloatArray, n_annotators: int
) -> FloatArray:
    """(A, K, K) [annotator, given, true] how often, by the posterior, each annotator gave each label to each class."""
    K = posterior.shape[1]
    counts = np.zeros((n_annotators, K, K))
    for i in range(item_ptr.size - 1):
        for row in range(item_ptr[i], item_ptr[i + 1]):
            w = 1.0
            if weight is not None:
                w = weight[row]
            for k in range(K):
                counts[annotator[row], label[row], k] += w * posterior[i, k]
    return counts


@compiled
def vote_counts(
    start: int,
    stop: int,
    item_ptr: IntArray,
    annotator: IntArray,
    label: IntArray,
    weight: Any,
    gold: Any,
    counts: FloatArray,
    prior_counts: FloatArray,
) -> None:
    """`soft_counts` where the posterior is the item's own votes, without making it; and its sum over items, (K,)."""
    n_classes = prior_counts.size
    q = np.empty(n_classes)
    for i in range(start, stop):
        q[:] = 0.0
        total = 0.0
        for row in range(item_ptr[i], item_ptr[i + 1]):
            w = 1.0
            if weight is not None:
                w = weight[row]
            q[label[row]] += w
            total += w
        for k in range(n_classes):
            q[k] = q[k] / total if total > 0 else 1.0 / n_classes
        if gold is not None:
            if gold[i] >= 0:
                q[:] = 0.0
                q[gold[i]] = 1.0
        for k in range(n_classes):
            prior_counts[k] += q[k]
        for row in range(item_ptr[i], item_ptr[i + 1]):
            w = 1.0
            if weight is not None:
                w = weight[row]
            for k in range(n_classes):
                counts[annotator[row], label[row], k] += w * q[k]
