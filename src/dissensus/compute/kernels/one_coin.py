"""One EM pass of a model with one accuracy per annotator, fused: normalise an item, add its soft hits.

With wrong = (1 − p)/(K − 1) and ratio = p / wrong of an annotator, for every item i

    q_i(c) ∝ π_c Π_{rows of i with y = c} ratio_a      (E step; the factor Π wrong_a is common to all classes)
    hits_a += q_i(y)  for its rows                      (M step's sums)

so a row touches one class, not K: one multiplication, one addition. The common factor's share of the log evidence,
Σ_a n_a log wrong_a, depends on no item and is left to the caller.

Items of up to `safe` rows are multiplied; beyond that, and with weights, logarithms are added, which costs K
exponentials per item and no more per row. `safe` comes from the largest ratio, so that no product leaves the range of a
double. Renormalising long products on the way would not do: a class that a thousand rows deny has become zero by then,
and the next two thousand, who all give it, could not bring it back.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dissensus.common.jit import compiled
from dissensus.common.types import FloatArray, IntArray

RANGE = 200 * np.log(10)  # products stay within e^±RANGE: with a prior above 1e-50 a sum of them is no subnormal number


def safe_rows(log_ratio: FloatArray) -> int:
    """How many ratios may be multiplied."""
    largest = float(np.abs(log_ratio).max(initial=0))
    return int(min(RANGE / max(largest, 1e-9), 2**31))


@compiled
def sweep(
    start: int,
    stop: int,
    item_ptr: IntArray,
    annotator: IntArray,
    label: IntArray,
    weight: Any,
    log_ratio: FloatArray,
    cells: FloatArray,
    safe: int,
    prior: FloatArray,
    prior_counts: FloatArray,
    gold: Any,
    posterior: Any,
) -> float:
    """Walk items start … stop − 1; returns their log evidence, less the common factor.

    `cells` (A, 2): ratio, and the hits that are added to. `weight` (N,), `gold` (I,) and `posterior` (I, K) may be
    None.
    """
    K = prior.size
    q, log_prior, sums = np.empty(K), np.log(prior), np.zeros(K)
    evidence, product = 0.0, 1.0
    for i in range(start, stop):
        first, end = np.uintp(item_ptr[i]), np.uintp(item_ptr[i + 1])  # unsigned: no index need be checked for its sign
        known = -1
        if gold is not None:
            known = gold[i]
        multiply = known < 0 and end - first <= np.uintp(safe)
        if weight is not None:
            multiply = False
        total = 0.0
        if multiply:
            for k in range(K):
                q[k] = prior[k]
            for row in range(first, end):
                q[np.uintp(label[row])] *= cells[np.uintp(annotator[row]), 0]
            for k in range(K):
                total += q[k]
            product *= total  # one logarithm for many items
            if product < 1e-50 or product > 1e50:
                evidence += np.log(product)
                product = 1.0
        else:
            for k in range(K):
                q[k] = log_prior[k]
            for row in range(first, end):
                w = 1.0
                if weight is not None:
                    w = weight[row]
                q[np.uintp(label[row])] += w * log_ratio[np.uintp(annotator[row])]
            if known >= 0:  # its class is known, however many annotators deny it
                evidence += q[known]
                q[:] = 0.0
                q[known] = total = 1.0
            else:
                top = q.max()
                for k in range(K):
                    q[k] = np.exp(q[k] - top)
                    total += q[k]
                evidence += np.log(total) + top
        scale = 1.0 / total
        for k in range(K):
            q[k] *= scale
            sums[k] += q[k]
        if posterior is not None:
            for k in range(K):
                posterior[i, k] = q[k]
        for row in range(first, end):
            w = 1.0
            if weight is not None:
                w = weight[row]
            cells[np.uintp(annotator[row]), 1] += w * q[np.uintp(label[row])]
    for k in range(K):
        prior_counts[k] += sums[k]
    return float(evidence + np.log(product))
