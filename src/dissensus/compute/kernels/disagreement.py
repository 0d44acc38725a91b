"""Loops behind `questions.explain`: how improbable an item's labels are, and how they differ between groups."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from dissensus.common.jit import compiled
from dissensus.common.types import FloatArray, IntArray


@compiled
def _log_add(x: float, y: float) -> float:
    if x < y:
        x, y = y, x
    return x + math.log1p(math.exp(y - x)) if y > -np.inf else x


@compiled
def evidence(
    ptr: IntArray,
    annotator: IntArray,
    label: IntArray,
    weight: Any,
    counts: FloatArray,
    totals: FloatArray,
    own: FloatArray,
    best: IntArray,
    prior: FloatArray,
    slip: float,
    shares: FloatArray,
    out: FloatArray,
    start: int,
    end: int,
) -> None:
    """Log P(labels | one class) and log P(labels | two classes, each label of either) of every item, into out (I, 2).

    P(label | class) comes from counts (A, K, K) [annotator, true, given] and totals (A, K), in which row r of item i is
    counted with weight own[i, true]: without it. Classes that nobody named, but for the most probable, cannot be true.
    `shares` (the first class's, of two) lie evenly about a half, so that pairs need no order.
    """
    K = prior.size
    named, there = np.empty(K, np.int64), np.zeros(K, np.bool_)
    most = 0
    for i in range(start, end):
        most = max(most, ptr[i + 1] - ptr[i])
    chance = np.empty((min(K, most + 1), most))  # P(label of a row | named class)
    for i in range(start, end):
        first, last = ptr[i], ptr[i + 1]
        n, total = 1, 0.0
        named[0] = best[i]
        there[best[i]] = True
        for row in range(first, last):
            total += 1.0 if weight is None else weight[row]
            if not there[label[row]]:
                there[label[row]] = True
                named[n] = label[row]
                n += 1
        within = one = 0.0
        for x in range(n):
            c = named[x]
            there[c] = False
            within += prior[c]
            alone = math.log(prior[c])
            for row in range(first, last):
                w = 1.0 if weight is None else weight[row]
                mine, a = w * own[i, c], annotator[row]
                p = max(0.0, counts[a, c, label[row]] - mine) / (totals[a, c] - mine)
                p = (1 - slip) * p + slip / K
                chance[x, row - first] = p
                alone += w * math.log(p)
            one = alone if x == 0 else _log_add(one, alone)
        two = -np.inf
        for x in range(n):
            for y in range(x, n):
                # x = y: the other class is one that nobody named, which explains none of the labels
                of_x, of_y = prior[named[x]], 1 - within if x == y else prior[named[y]]
                pair = of_x * of_y / max(1 - of_x, 1e-12)
                if x != y:
                    pair += of_x * of_y / max(1 - of_y, 1e-12)
                if pair < 1e-300:
                    continue
                for s in range(shares.size):
                    both, product = math.log(pair), 1.0
                    for r in range(last - first):
                        p = (1 - shares[s]) * chance[x, r]
                        if x != y:
                            p += shares[s] * chance[y, r]
                        if weight is not None:
                            both += weight[first + r] * math.log(p)
                            continue
                        product *= p  # logarithms are slow
                        if product < 1e-200:
                            both += math.log(product)
                            product = 1.0
                    two = _log_add(two, both + math.log(product))
        out[i, 0] = one
        out[i, 1] = two - math.log(shares.size)


@compiled
def surprise(
    ptr: IntArray,
    annotator: IntArray,
    label: IntArray,
    weight: Any,
    counts: FloatArray,
    totals: FloatArray,
    own: FloatArray,
    best: IntArray,
    slip: float,
    steps: float,
    points: int,
    many: int,
    out: FloatArray,
    start: int,
    end: int,
) -> None:
    """What the labels of an item would be like if its class were best[i], into out (I, 4); see `evidence`.

    Share of pairs of its rows that differ, the same as expected, P(labels less probable than these) and P(more
    probable), each with half of P(as probable). The sum of −w log P over its n rows is rounded to a grid of `steps` √n
    points per standard deviation (fewer where that would be more than `points`); its distribution is then exact, one
    convolution per row. With more than `many` rows it is taken as normal.
    """
    K, most = totals.shape[1], 0
    for i in range(start, end):
        most = max(most, ptr[i + 1] - ptr[i])
    chance, cost, shift = np.empty((most, K)), np.empty((most, K)), np.empty(K, np.int64)
    given, expected = np.empty(K), np.empty(K)
    now, then = np.zeros(points + many + 1), np.zeros(points + many + 1)
    for i in range(start, end):
        first, n = ptr[i], ptr[i + 1] - ptr[i]
        if n < 2:
            out[i] = np.nan
            continue
        given[:] = 0
        expected[:] = 0
        total = squares = same_row = excess = variance = reach = 0.0
        for r in range(n):
            row = first + r
            w = 1.0 if weight is None else weight[row]
            a, c, y = annotator[row], best[i], label[row]
            mine = w * own[i, c]
            mean = square = 0.0
            low, high = np.inf, -np.inf
            for k in range(K):
                p = max(0.0, counts[a, c, k] - (mine if k == y else 0.0)) / (totals[a, c] - mine)
                p = (1 - slip) * p + slip / K
                x = -w * math.log(p)
                chance[r, k], cost[r, k] = p, x
                expected[k] += w * p
                same_row += w * w * p * p
                mean += p * x
                square += p * x * x
                low, high = min(low, x), max(high, x)
            total += w
            squares += w * w
            given[y] += w
            excess += cost[r, y] - mean
            variance += max(0.0, square - mean * mean)
            reach += high - low
            for k in range(K):
                cost[r, k] -= low
        pairs, same, alike = total * total - squares, 0.0, 0.0
        for k in range(K):
            same += given[k] * given[k]
            alike += expected[k] * expected[k]
        out[i, 0] = max(0.0, total * total - same) / pairs
        out[i, 1] = 1 - (alike - same_row) / pairs
        out[i, 2] = out[i, 3] = 0.5
        if reach < 1e-9 or variance < 1e-18:
            continue  # every label is as probable as any other
        if n > many:
            z = excess / math.sqrt(2 * variance)
            out[i, 2], out[i, 3] = math.erfc(z) / 2, math.erfc(-z) / 2
            continue
        grid = max(math.sqrt(variance / n) / steps, reach / points)  # small beside one row's part in the sum
        now[0] = 1.0
        size, seen = 1, 0
        for r in range(n):
            widest = 0
            for k in range(K):
                shift[k] = np.int64(cost[r, k] / grid + 0.5)
                widest = max(widest, shift[k])
            then[: size + widest] = 0
            for k in range(K):
                p, by = chance[r, k], shift[k]
                for x in range(size):
                    then[x + by] += p * now[x]
            size += widest
            seen += shift[label[first + r]]
            now, then = then, now
        above = below = 0.0
        for x in range(seen):
            below += now[x]
        for x in range(size - 1, seen, -1):
            above += now[x]
        out[i, 2] = above + now[seen] / 2
        out[i, 3] = below + now[seen] / 2


@compiled
def between(
    ptr: IntArray, annotator: IntArray, label: IntArray, group: IntArray, G: int, K: int, out: FloatArray, start: int
) -> None:
    """Between-group sum of squares of the items from `start`, less what chance gives it, and its most, into out."""
    count, size, squares = np.zeros((G, K), np.int64), np.zeros(G, np.int64), np.zeros(G, np.int64)
    total = np.zeros(K, np.int64)
    for at in range(out.shape[0]):
        first, last = ptr[start + at], ptr[start + at + 1]
        n, same = last - first, 0
        for row in range(first, last):
            g, k = np.uint32(group[annotator[row]]), np.uint32(label[row])
            squares[g] += 2 * count[g, k] + 1  # squares of the counts so far
            count[g, k] += 1
            size[g] += 1
            same += 2 * total[k] + 1
            total[k] += 1
        explained, there = 0.0, 0
        for each in range(G):
            if size[each] > 0:
                explained += squares[each] / size[each]
                there += 1
            size[each] = squares[each] = 0
        if n > G * K // 4:  # whichever is faster
            count[:] = 0
            total[:] = 0
        else:
            for row in range(first, last):
                count[group[annotator[row]], label[row]] = 0
                total[label[row]] = 0
        out[at] = 0
        if there > 1:
            within = n - same / n
            by_chance = (there - 1) / (n - 1) * within
            out[at, 0] = explained - same / n - by_chance
            out[at, 1] = within - by_chance


@compiled
def add_moments(
    ptr: IntArray,
    annotator: IntArray,
    label: IntArray,
    groups: IntArray,
    G: int,
    K: int,
    moments: FloatArray,
    sums: FloatArray,
    start: int,
    end: int,
) -> None:
    """Of P ways to deal out `groups` (P, A): statistic of every item and its square to moments (I, 2), sums to (P,)."""
    found = np.empty((end - start, 2))
    for p in range(groups.shape[0]):
        between(ptr, annotator, label, groups[p], G, K, found, start)
        for at in range(end - start):
            moments[start + at, 0] += found[at, 0]
            moments[start + at, 1] += found[at, 0] * found[at, 0]
            sums[p] += found[at, 0]


@compiled
def add_deviations(
    ptr: IntArray,
    annotator: IntArray,
    label: IntArray,
    groups: IntArray,
    G: int,
    K: int,
    mean: FloatArray,
    sd: FloatArray,
    per_unit: float,
    histogram: IntArray,
    start: int,
    end: int,
) -> None:
    """Of P ways to deal out `groups` (P, A): how often items lie so many standard deviations above their mean."""
    found = np.empty((end - start, 2))
    for p in range(groups.shape[0]):
        between(ptr, annotator, label, groups[p], G, K, found, start)
        for at in range(end - start):
            if sd[start + at] > 0:
                z = (found[at, 0] - mean[start + at]) / sd[start + at]
                if z > 0:
                    histogram[int(min(histogram.size - 1.0, z * per_unit))] += 1
