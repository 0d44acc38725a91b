"""Who agrees with whom, and trimmed means over that: pairs of annotators that share an item, by annotator.

Only pairs that occur are kept, in both directions: annotator j's stand at ptr[j] … ptr[j+1] − 1. Every function runs
over a range of annotators, and no two ranges write to the same place.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dissensus.common.jit import compiled
from dissensus.common.types import BoolArray, FloatArray, IntArray

TINY = 1e-100  # weights and skills below are none: their products and quotients would leave the range of a double


@compiled
def _meet(
    j: int,
    item_ptr: IntArray,
    item: IntArray,
    annotator: IntArray,
    label: IntArray,
    weight: Any,
    annotator_ptr: IntArray,
    by_annotator: IntArray,
    shared: FloatArray,
    agreed: FloatArray,
    seen: BoolArray,
    met: IntArray,
) -> int:
    """Add to `shared` and `agreed` (A,) what j shares with everyone else; returns how many annotators are `met`."""
    n = 0
    for at in range(np.uintp(annotator_ptr[j]), np.uintp(annotator_ptr[j + 1])):
        row = np.uintp(by_annotator[at])
        i, y = np.uintp(item[row]), label[row]
        for other in range(np.uintp(item_ptr[i]), np.uintp(item_ptr[i + np.uintp(1)])):
            k = np.uintp(annotator[other])
            if k != np.uintp(j):
                if not seen[k]:
                    seen[k] = True
                    met[n] = k
                    n += 1
                w = 1.0
                if weight is not None:
                    w = weight[row] * weight[other]
                shared[k] += w
                if label[other] == y:
                    agreed[k] += w
    return n


@compiled
def pairs(
    start: int,
    stop: int,
    item_ptr: IntArray,
    item: IntArray,
    annotator: IntArray,
    label: IntArray,
    weight: Any,
    annotator_ptr: IntArray,
    by_annotator: IntArray,
    least: float,
    n_classes: int,
    ptr: IntArray,
    second: Any,
    count: Any,
    skill: Any,
) -> None:
    """Fill `second`, `count` n and `skill` C (P,) of annotators start … stop − 1; where None, ptr[j + 1]: how many.

    Pairs that share less than `least` are left out.
    """
    A = annotator_ptr.size - 1
    shared, agreed = np.zeros(A), np.zeros(A)
    seen, met = np.zeros(A, np.bool_), np.empty(A, np.int64)
    for j in range(start, stop):
        n = _meet(
            j, item_ptr, item, annotator, label, weight, annotator_ptr, by_annotator, shared, agreed, seen, met
        )  # fmt: skip
        kept = 0
        for m in range(n):
            k = met[m]
            if shared[k] >= least and shared[k] > TINY:
                if second is not None:
                    to = ptr[j] + kept
                    second[to] = k
                    count[to] = shared[k]
                    skill[to] = (n_classes * agreed[k] / shared[k] - 1) / (n_classes - 1)
                kept += 1
            shared[k] = agreed[k] = 0.0
            seen[k] = False
        if second is None:
            ptr[j + 1] = kept


@compiled
def _lowest(value: FloatArray, weight: FloatArray, n: int, part: float) -> float:
    """Σ weight·value of the smallest values, up to `part` of the weight; puts the first n of both in another order."""
    low, high, out = 0, n, 0.0
    while low < high:
        a, b, c = value[low], value[(low + high) // 2], value[high - 1]
        pivot = max(min(a, b), min(max(a, b), c))
        smaller, larger, at = low, high, low
        weighs, sums, equal = 0.0, 0.0, 0.0
        while at < larger:
            v, w = value[at], weight[at]
            if v < pivot:
                value[at], weight[at] = value[smaller], weight[smaller]
                value[smaller], weight[smaller] = v, w
                weighs += w
                sums += w * v
                smaller += 1
                at += 1
            elif v > pivot:
                larger -= 1
                value[at], weight[at] = value[larger], weight[larger]
                value[larger], weight[larger] = v, w
            else:
                equal += w
                at += 1
        if part < weighs:
            high = smaller
        elif part <= weighs + equal:
            return float(out + sums + (part - weighs) * pivot)
        else:
            out += sums + equal * pivot
            part -= weighs + equal
            low = larger
    return out


@compiled
def update(
    start: int,
    stop: int,
    ptr: IntArray,
    second: IntArray,
    count: FloatArray,
    skill: FloatArray,
    labels: FloatArray,
    known_labels: FloatArray,
    known_skill: FloatArray,
    trim: float,
    given: FloatArray,
    out: FloatArray,
) -> None:
    """`out` (A,) of annotators start … stop − 1: the trimmed mean of C / s with weights n s², s `given` (A,).

    It counts for the annotator's `labels` (A,) on items of unknown class, C with the truth, `known_skill`, for its
    `known_labels`.
    """
    longest = 0
    for j in range(start, stop):
        longest = max(longest, ptr[j + 1] - ptr[j])
    value, weight = np.empty(longest), np.empty(longest)
    for j in range(start, stop):
        n, total = 0, 0.0
        for p in range(np.uintp(ptr[j]), np.uintp(ptr[j + 1])):
            s = given[np.uintp(second[p])]
            if abs(s) > TINY:
                value[n], weight[n] = skill[p] / s, count[p] * s * s
                total += weight[n]
                n += 1
        sums, size = known_labels[j] * known_skill[j], known_labels[j]
        if total > 0.0:
            kept = _lowest(value, weight, n, (1 - trim) * total) - _lowest(value, weight, n, trim * total)
            sums += labels[j] * kept / ((1 - 2 * trim) * total)
            size += labels[j]
        if size > 0.0:
            out[j] = sums / size
