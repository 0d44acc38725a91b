"""One pass of a model whose annotators either copy the truth or draw a label of their own, fused.

A row of annotator a with label y is as probable as `copy_a·[c = y] + spam_a[y]` where the class is c. All classes but
one share the factor `spam_a[y]`, which therefore comes out of the pass altogether (it is the same for all rows of a
cell (a, y), so its logarithm is added once per cell, not here). What is left of a row is one multiplication:

For every item i:   q_i(c) ∝ π_c Π_{rows of i with y = c} ratio_a[y],      ratio_a[y] = 1 + copy_a / spam_a[y]
then for its rows:  hits_a[y] += q_i(y)

O(1) for a row and O(K) for an item. How many of a cell's labels were copied is hits · copy / (copy + spam): the second
factor is the cell's again. The readable form is `em.e_step` with the model's `log_votes`; a test holds them together.

`cells` (A, K, 2) [annotator, given, ratio or hits]: what is fetched first is what is added to later. `sweep` multiplies
ratios (at least 1 and at most `RATIO`) and divides by the largest before it overflows; places in `cells` are unsigned,
as numba would ask of each signed one whether it counts from the end (a pass took 1.6 times as long). `sweep_logs` is
for weighted rows, whose cells hold log ratio. A probabilistic row comes in as one weighted row per class.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dissensus.common.jit import compiled
from dissensus.common.types import FloatArray, IntArray

LARGE = 1e150  # a product is brought back to 1 beyond this
RATIO = 1e120  # largest ratio: one more of them after LARGE still is a number
RATIOS, HITS = 0, 1  # the halves of a cell


@compiled
def sweep(
    start: int,
    stop: int,
    item_ptr: IntArray,
    annotator: IntArray,
    label: IntArray,
    cells: FloatArray,
    prior: FloatArray,
    prior_counts: FloatArray,
    gold: Any,
    posterior: Any,
) -> float:
    """Walk items start … stop − 1; returns Σ log Σ_c π_c Π ratio. `gold` (I,) and `posterior` (I, K) may be None."""
    K = prior.size
    q, flat, width = np.empty(K), cells.reshape(-1), np.uint64(2 * K)
    evidence, product = 0.0, 1.0
    for i in range(start, stop):
        first, end = item_ptr[i], item_ptr[i + 1]
        known = -1
        if gold is not None:
            known = gold[i]
        if known >= 0:  # a product over its own class only: the others could make it vanish
            value = prior[known]
            for row in range(first, end):
                if label[row] == known:
                    value *= cells[annotator[row], known, RATIOS]
                    if value > LARGE:
                        evidence += np.log(value)
                        value = 1.0
            evidence += np.log(value)
            q[:] = 0.0
            q[known] = 1.0
        else:
            for k in range(K):
                q[k] = prior[k]
            for row in range(first, end):
                y = np.uint64(label[row])
                value = q[y] * flat[np.uint64(annotator[row]) * width + y + y]
                q[y] = value
                if value > LARGE:
                    evidence += np.log(value)
                    for k in range(K):
                        q[k] /= value
            total = 0.0
            for k in range(K):
                total += q[k]
            scale = 1.0 / total
            for k in range(K):
                q[k] *= scale
            product *= total  # one logarithm for many items: totals are at least 1
            if product > LARGE:
                evidence += np.log(product)
                product = 1.0
        for k in range(K):
            prior_counts[k] += q[k]
        if posterior is not None:
            for k in range(K):
                posterior[i, k] = q[k]
        for row in range(first, end):
            y = np.uint64(label[row])
            flat[np.uint64(annotator[row]) * width + y + y + np.uint64(HITS)] += q[y]
    return float(evidence + np.log(product))


@compiled
def sweep_logs(
    start: int,
    stop: int,
    item_ptr: IntArray,
    annotator: IntArray,
    label: IntArray,
    weight: FloatArray,
    cells: FloatArray,
    prior: FloatArray,
    prior_counts: FloatArray,
    gold: Any,
    posterior: Any,
) -> float:
    """The same walk where a row counts `weight` times: cells hold log ratio."""
    K = prior.size
    log_prior, q = np.log(prior), np.empty(K)
    evidence = 0.0
    for i in range(start, stop):
        for k in range(K):
            q[k] = log_prior[k]
        for row in range(item_ptr[i], item_ptr[i + 1]):
            q[label[row]] += weight[row] * cells[annotator[row], label[row], RATIOS]
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
            cells[annotator[row], label[row], HITS] += weight[row] * q[label[row]]
    return evidence
