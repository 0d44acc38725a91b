"""Loops over the ratings of each item: what agreement coefficients need of an item, and what each pair shares.

A rating is a distribution over the classes by one annotator, in rows (rating, label, share) that sum to one; almost
always it is one row with share 1. Rows stand in the order (item, rating).
"""

from __future__ import annotations

import numpy as np

from dissensus.common.jit import compiled
from dissensus.common.types import BoolArray, FloatArray, IntArray

FIXED = 6  # statistics before those that have one entry per class; see `statistics`


@compiled
def statistics(
    item_ptr: IntArray,
    rating: IntArray,
    label: IntArray,
    share: FloatArray,
    place: FloatArray,
    scale: int,
    n_classes: int,
    ptr: IntArray,
    column: IntArray,
    value: FloatArray,
) -> int:
    """Fill the sparse statistics (ptr, column, value) of all items; returns how many entries there are.

    Of an item with m ratings p_a and votes v = Σ_a p_a, columns:

    0       1, and 1: 1 where m ≥ 2
    2, 3    pairs of ratings (ordered, of different raters) that agree, and all of them; 4: the share of the first
    5       disagreement of those pairs / (m − 1): (x_c − x_k)² if scale is 1 (interval), else whether they differ
    6 …     v_c / m, one column per class
    6+K …   v_c where m ≥ 2
    6+2K …  pairs that are (c, k) or (k, c), c < k, / (m − 1), if scale is 2 (ordinal): K (K − 1) / 2 columns
    """
    votes, own = np.zeros(n_classes), np.zeros(n_classes)
    both = np.zeros((n_classes, n_classes) if scale == 2 else (0, 0))  # Σ_a p_ac p_ak
    seen, own_seen = np.empty(n_classes, np.int64), np.empty(n_classes, np.int64)
    at = 0
    ptr[0] = 0
    for i in range(item_ptr.size - 1):
        row, end = item_ptr[i], item_ptr[i + 1]
        m, n_seen = 0, 0
        agree, middle, middles, spread = 0.0, 0.0, 0.0, 0.0
        while row < end:  # one rating
            this, n_own = rating[row], 0
            while row < end and rating[row] == this:
                c = label[row]
                if votes[c] == 0.0:
                    seen[n_seen] = c
                    n_seen += 1
                if own[c] == 0.0:
                    own_seen[n_own] = c
                    n_own += 1
                own[c] += share[row]
                votes[c] += share[row]
                row += 1
            mean = 0.0
            for j in range(n_own):
                c = own_seen[j]
                agree -= own[c] * own[c]
                mean += own[c] * place[c]
                spread += own[c] * place[c] * place[c]
                if scale == 2:
                    for l in range(n_own):
                        both[c, own_seen[l]] += own[c] * own[own_seen[l]]
            middle += mean
            middles += mean * mean
            for j in range(n_own):
                own[own_seen[j]] = 0.0
            m += 1
        if m > 0:
            column[at], value[at] = 0, 1.0
            at += 1
            for j in range(n_seen):
                c = seen[j]
                agree += votes[c] * votes[c]
                column[at], value[at] = FIXED + c, votes[c] / m
                at += 1
        if m > 1:
            pairs = float(m) * (m - 1)
            apart = pairs - agree
            if scale == 1:  # Σ_{a≠b} (x_a − x_b)², in moments
                apart = 2.0 * ((m - 1) * spread - (middle * middle - middles))
            column[at], value[at] = 1, 1.0
            column[at + 1], value[at + 1] = 2, agree
            column[at + 2], value[at + 2] = 3, pairs
            column[at + 3], value[at + 3] = 4, agree / pairs
            column[at + 4], value[at + 4] = 5, apart / (m - 1)
            at += 5
            for j in range(n_seen):
                column[at], value[at] = FIXED + n_classes + seen[j], votes[seen[j]]
                at += 1
            if scale == 2:
                for j in range(n_seen):
                    for l in range(j):
                        c, k = min(seen[j], seen[l]), max(seen[j], seen[l])
                        column[at] = FIXED + 2 * n_classes + c * (2 * n_classes - c - 1) // 2 + k - c - 1
                        value[at] = 2.0 * (votes[c] * votes[k] - both[c, k]) / (m - 1)
                        at += 1
        for j in range(n_seen):
            votes[seen[j]] = 0.0
            if scale == 2:
                for l in range(n_seen):
                    both[seen[j], seen[l]] = 0.0
        ptr[i + 1] = at
    return at


@compiled
def shared_items(
    item_ptr: IntArray,
    item: IntArray,
    annotator: IntArray,
    starts: BoolArray,
    annotator_ptr: IntArray,
    by_annotator: IntArray,
    least: int,
) -> IntArray:
    """(A,) how many later annotators each annotator shares at least `least` items with."""
    n = annotator_ptr.size - 1
    shared, touched, kept = np.zeros(n, np.int64), np.empty(n, np.int64), np.zeros(n, np.int64)
    for a in range(n):
        for j in range(_count(a, item_ptr, item, annotator, starts, annotator_ptr, by_annotator, shared, touched)):
            kept[a] += shared[touched[j]] >= least
            shared[touched[j]] = 0
    return kept


@compiled
def pair_sums(
    item_ptr: IntArray,
    item: IntArray,
    annotator: IntArray,
    label: IntArray,
    share: FloatArray,
    starts: BoolArray,
    annotator_ptr: IntArray,
    by_annotator: IntArray,
    distance: FloatArray,
    least: int,
    pair_ptr: IntArray,
    second: IntArray,
    sums: FloatArray,
) -> None:
    """Fill `second` (P,) and `sums` (P, 5), sorted by pair: items, agreement, disagreement, its squares, it by chance.

    Pairs of annotator a stand at pair_ptr[a] … pair_ptr[a+1] − 1. `starts` marks the first row of each rating.
    """
    n, K = annotator_ptr.size - 1, distance.shape[0]
    shared, touched, slot = np.zeros(n, np.int64), np.empty(n, np.int64), np.full(n, -1, np.int64)
    most = 0
    for a in range(n):
        most = max(most, pair_ptr[a + 1] - pair_ptr[a])
    mine, theirs = np.empty((most, K)), np.empty((most, K))
    for a in range(n):
        first = pair_ptr[a]
        kept = pair_ptr[a + 1] - first
        if kept == 0:
            continue
        n_touched = _count(a, item_ptr, item, annotator, starts, annotator_ptr, by_annotator, shared, touched)
        others = np.sort(touched[:n_touched])
        to = first
        for b in others:
            if shared[b] >= least:
                second[to], slot[b] = b, to
                sums[to, 0] = shared[b]
                to += 1
            shared[b] = 0
        mine[:kept], theirs[:kept] = 0.0, 0.0
        for j in range(annotator_ptr[a], annotator_ptr[a + 1]):
            row = by_annotator[j]
            c, i = label[row], item[row]
            for other in range(item_ptr[i], item_ptr[i + 1]):
                to = slot[annotator[other]]
                if to >= 0:
                    k, weight = label[other], share[row] * share[other]
                    sums[to, 1] += weight * (c == k)
                    sums[to, 2] += weight * distance[c, k]
                    sums[to, 3] += weight * distance[c, k] ** 2
                    mine[to - first, c] += weight
                    theirs[to - first, k] += weight
        for p in range(kept):
            chance = 0.0
            for c in range(K):
                if mine[p, c] > 0.0:
                    for k in range(K):
                        chance += mine[p, c] * theirs[p, k] * distance[c, k]
            sums[first + p, 4] = chance / sums[first + p, 0]
        for to in range(first, first + kept):
            slot[second[to]] = -1


@compiled
def _count(
    a: int,
    item_ptr: IntArray,
    item: IntArray,
    annotator: IntArray,
    starts: BoolArray,
    annotator_ptr: IntArray,
    by_annotator: IntArray,
    shared: IntArray,
    touched: IntArray,
) -> int:
    """Add to `shared` (A,) how many items annotator a shares with each later one; returns how many are `touched`."""
    n_touched = 0
    for j in range(annotator_ptr[a], annotator_ptr[a + 1]):
        row = by_annotator[j]
        if starts[row]:
            for other in range(row + 1, item_ptr[item[row] + 1]):  # rows of an item are sorted by annotator
                b = annotator[other]
                if starts[other] and b > a:
                    if shared[b] == 0:
                        touched[n_touched] = b
                        n_touched += 1
                    shared[b] += 1
    return n_touched
