"""What the others say about an item when an annotator, or two, and their friends are left out.

Rows are sorted by (item, annotator). Friends of annotator a: friends[friend_ptr[a] : friend_ptr[a + 1]], sorted.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dissensus.common.jit import compiled
from dissensus.common.types import FloatArray, IntArray


@compiled
def log_joint(
    start: int, stop: int, annotator: IntArray, label: IntArray, weight: Any, logs: FloatArray, out: FloatArray
) -> None:
    """Add to `out` (K,) the log likelihood of rows start … stop − 1; logs (A, K, K) [annotator, given, true]."""
    for row in range(start, stop):
        w = 1.0
        if weight is not None:
            w = weight[row]
        for c in range(out.size):
            out[c] += w * logs[annotator[row], label[row], c]


@compiled
def settle(log: FloatArray, out: FloatArray) -> None:
    """The distribution (K,) with these logarithms, up to a constant."""
    top = log[0]
    for c in range(1, log.size):
        top = max(top, log[c])
    total = 0.0
    for c in range(log.size):
        out[c] = np.exp(log[c] - top)
        total += out[c]
    for c in range(log.size):
        out[c] /= total


@compiled
def friendly(a: int, b: int, friend_ptr: IntArray, friends: IntArray) -> bool:
    """Whether b is a friend of a, or a itself."""
    low, high = friend_ptr[a], friend_ptr[a + 1]
    while low < high:
        middle = (low + high) // 2
        if friends[middle] < b:
            low = middle + 1
        else:
            high = middle
    return a == b or (low < friend_ptr[a + 1] and friends[low] == b)


@compiled
def without(
    a: int,
    start: int,
    stop: int,
    annotator: IntArray,
    label: IntArray,
    votes: Any,
    logs: FloatArray,
    friend_ptr: IntArray,
    friends: IntArray,
    log: FloatArray,
) -> int:
    """Add to `log` (K,) the rows start … stop − 1 of all but a and its friends; returns how many."""
    rows = 0
    for row in range(start, stop):
        if not friendly(a, annotator[row], friend_ptr, friends):
            log_joint(row, row + 1, annotator, label, votes, logs, log)
            rows += 1
    return rows


@compiled
def leave_out(
    b: int,
    a: int,
    start: int,
    stop: int,
    annotator: IntArray,
    label: IntArray,
    votes: Any,
    logs: FloatArray,
    friend_ptr: IntArray,
    friends: IntArray,
    log: FloatArray,
) -> None:
    """Take from `log` (K,), which is without a and its friends, the rows of b and b's friends.

    `start` is b's first row where b has no friends.
    """
    lonely = friend_ptr[b] == friend_ptr[b + 1]
    for row in range(start, stop):
        c = annotator[row]
        if lonely and c != b:
            break  # rows are sorted by annotator
        if friendly(b, c, friend_ptr, friends) and not friendly(a, c, friend_ptr, friends):
            w = 1.0
            if votes is not None:
                w = votes[row]
            for k in range(log.size):
                log[k] -= w * logs[c, label[row], k]


@compiled
def others(
    item_ptr: IntArray,
    annotator: IntArray,
    label: IntArray,
    weight: Any,
    votes: Any,
    log_prior: FloatArray,
    logs: FloatArray,
    friend_ptr: IntArray,
    friends: IntArray,
    counts: FloatArray,
    pseudo: Any,
    shares: Any,
    sums: FloatArray,
) -> None:
    """One walk over the rows of items that others have labelled too, with the posterior of these others.

    First walk (`pseudo` None): fill counts (A, K, K) [annotator, given, true] and sums (A, 3): weight, the others'
    belief in the label, its square. Second walk: with the counts of the first, pseudo (K, K) [given, true] and the
    annotators' own counts of the labels (A, K): fill sums (A, 3) with weight, gain, its square, the gain being
    log P(label | the others, the annotator's other rows) − log P(label | the annotator's other rows). A row counts by
    its `weight`; in what others say of an item, by `votes`.
    """
    K = log_prior.size
    log, q = np.empty(K), np.empty(K)
    total = np.zeros((counts.shape[0], K))  # (A, K) counts of each true class
    if pseudo is not None:
        for a in range(counts.shape[0]):
            for y in range(K):
                for c in range(K):
                    total[a, c] += counts[a, y, c] + pseudo[y, c]
    for i in range(item_ptr.size - 1):
        begin = item_ptr[i]
        while begin < item_ptr[i + 1]:
            a = annotator[begin]
            end = begin
            while end < item_ptr[i + 1] and annotator[end] == a:  # an annotator may have said more than one thing
                end += 1
            log[:] = log_prior
            rows = without(
                a, item_ptr[i], item_ptr[i + 1], annotator, label, votes, logs, friend_ptr, friends, log
            )  # fmt: skip
            settle(log, q)
            for row in range(begin, end):
                w = 1.0
                if weight is not None:
                    w = weight[row]
                if w > 0.0 and rows > 0:
                    y = label[row]
                    if pseudo is None:
                        for c in range(K):
                            counts[a, y, c] += w * q[c]
                        sums[a, 0] += w
                        sums[a, 1] += w * q[y]
                        sums[a, 2] += w * q[y] * q[y]
                    else:
                        expected, own = 0.0, 0.0
                        for c in range(K):
                            left = max(counts[a, y, c] - w * q[c], 0.0)
                            expected += q[c] * (left + pseudo[y, c]) / max(total[a, c] - w * q[c], 1e-300)
                        for k in range(K):
                            own += shares[a, k]
                        gain = np.log(expected) - np.log((shares[a, y] - w) / (own - w))
                        sums[a, 0] += w
                        sums[a, 1] += w * gain
                        sums[a, 2] += w * gain * gain
            begin = end


@compiled
def shares_of_friends(item_ptr: IntArray, annotator: IntArray, friend_ptr: IntArray, friends: IntArray) -> FloatArray:
    """(N,) one over the number of annotators of the item who are a row's own or friends of it."""
    out = np.ones(annotator.size)
    for i in range(item_ptr.size - 1):
        for row in range(item_ptr[i], item_ptr[i + 1]):
            a, together = annotator[row], 0
            for other in range(item_ptr[i], item_ptr[i + 1]):
                b = annotator[other]
                if other == item_ptr[i] or annotator[other - 1] != b:
                    together += friendly(a, b, friend_ptr, friends)
            out[row] = 1.0 / together
    return out


@compiled
def pair_agreement(
    first: int,
    stop: int,
    item_ptr: IntArray,
    item: IntArray,
    annotator: IntArray,
    label: IntArray,
    votes: Any,
    annotator_ptr: IntArray,
    by_annotator: IntArray,
    log_prior: FloatArray,
    logs: FloatArray,
    confusion: Any,
    friend_ptr: IntArray,
    friends: IntArray,
    least: int,
) -> tuple[IntArray, FloatArray]:
    """Pairs (P, 2) of annotators first … stop − 1 and later ones that share `least` items, and (P, 4) sums over those.

    The sums: items, agreements, those to be expected, and their variance, with the class of each item as all but the
    two and their friends see it; the last two are 0 without a confusion (A, K, K) [annotator, true, given]. Of an
    annotator's several rows of an item the first counts.
    """
    n, K = annotator_ptr.size - 1, log_prior.size
    shared, touched = np.zeros((n, 4)), np.empty(n, np.int64)
    by_most, log, q = np.empty(K), np.empty(K), np.empty(K)
    room = 1024
    pairs, sums = np.empty((room, 2), np.int64), np.empty((room, 4))
    found = 0
    for a in range(first, stop):
        n_touched = 0
        for j in range(annotator_ptr[a], annotator_ptr[a + 1]):
            row = by_annotator[j]
            start, end = item_ptr[item[row]], item_ptr[item[row] + 1]
            if row > start and annotator[row - 1] == a:
                continue
            if confusion is not None:
                by_most[:] = log_prior
                without(a, start, end, annotator, label, votes, logs, friend_ptr, friends, by_most)
            for other in range(row + 1, end):
                b = annotator[other]
                if b == annotator[other - 1]:
                    continue
                if shared[b, 0] == 0.0:
                    touched[n_touched] = b
                    n_touched += 1
                shared[b, 0] += 1.0
                shared[b, 1] += label[row] == label[other]
                if confusion is not None:
                    log[:] = by_most
                    of_b = start if friend_ptr[b + 1] > friend_ptr[b] else other
                    leave_out(b, a, of_b, end, annotator, label, votes, logs, friend_ptr, friends, log)
                    settle(log, q)
                    expected = 0.0
                    for c in range(K):
                        same = 0.0
                        for y in range(K):
                            same += confusion[a, c, y] * confusion[b, c, y]
                        expected += q[c] * same
                    shared[b, 2] += expected
                    shared[b, 3] += expected * (1.0 - expected)
        for t in range(n_touched):
            b = touched[t]
            if shared[b, 0] >= least:
                if found == room:
                    room *= 2
                    more_pairs, more_sums = np.empty((room, 2), np.int64), np.empty((room, 4))
                    more_pairs[:found], more_sums[:found] = pairs, sums
                    pairs, sums = more_pairs, more_sums
                pairs[found, 0], pairs[found, 1] = a, b
                sums[found] = shared[b]
                found += 1
            shared[b] = 0.0
    return pairs[:found], sums[:found]
