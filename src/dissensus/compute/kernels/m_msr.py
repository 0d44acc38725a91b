"""Trimmed means over pairs of annotators that share an item.

Each pair is stored in both directions; the pairs of annotator j have the indices ptr[j] … ptr[j+1] − 1.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dissensus.common.jit import lazy_jit
from dissensus.common.types import FloatArray

MIN_NONZERO = 1e-100  # minimum nonzero weight or skill; products of smaller numbers would underflow


@lazy_jit
def _sum_lowest(value, weight, n, part):
    """Return Σ weight·value over the smallest values, up to the total weight `part`; reorder the first n entries."""
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


@lazy_jit
def update_skills(start, stop, pairs, trim, given, out):
    """Write the trimmed mean of C / s, weighted by n s², of each of annotators start … stop − 1 to `out` (A,).

    s are the skills `given` (A,). The mean is weighted by the number of the annotator's labels on items without gold,
    and combined with the annotator's agreement with gold; see `models.methods.m_msr`.
    """
    ptr, second, count, skill, labels, known_labels, known_skill = pairs
    longest = 0
    for j in range(start, stop):
        longest = max(longest, ptr[j + 1] - ptr[j])
    value, weight = np.empty(longest), np.empty(longest)
    for j in range(start, stop):
        n, total = 0, 0.0
        for p in range(np.uintp(ptr[j]), np.uintp(ptr[j + 1])):
            s = given[np.uintp(second[p])]
            if abs(s) > MIN_NONZERO:
                value[n], weight[n] = skill[p] / s, count[p] * s * s
                total += weight[n]
                n += 1
        sums, size = known_labels[j] * known_skill[j], known_labels[j]
        if total > 0.0:
            kept = _sum_lowest(value, weight, n, (1 - trim) * total) - _sum_lowest(value, weight, n, trim * total)
            sums += labels[j] * kept / ((1 - 2 * trim) * total)
            size += labels[j]
        if size > 0.0:
            out[j] = sums / size


def update_skills_numpy(pairs: Any, trim: float, given: FloatArray, out: FloatArray) -> None:
    """Run `update_skills` for all annotators in NumPy, by sorting each annotator's pairs by value."""
    ptr, second, count, skill, labels, known_labels, known_skill = pairs
    A, s = ptr.size - 1, given[second]
    some = np.abs(s) > MIN_NONZERO
    first = np.repeat(np.arange(A), np.diff(ptr))[some]
    value, weight = skill[some] / s[some], count[some] * s[some] ** 2
    total = np.bincount(first, weight, A)
    order = np.lexsort((value, first))
    first, value, share = first[order], value[order], (weight / np.where(total > 0, total, 1)[first])[order]
    passed = np.cumsum(share)
    passed -= np.append(0, passed)[np.searchsorted(first, first)]  # (P,) cumulative share of the annotator's weight
    kept = np.clip(np.minimum(passed, 1 - trim) - np.maximum(passed - share, trim), 0, None)
    mean = np.bincount(first, kept * value, A) / (1 - 2 * trim)
    size = known_labels + np.where(total > 0, labels, 0)
    sums = known_labels * known_skill + np.where(total > 0, labels * mean, 0)
    np.divide(sums, size, out=out, where=size > 0)
