"""Loops behind `questions.explain`: how improbable the labels of an item are."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from dissensus.common.jit import compiled
from dissensus.common.types import FloatArray, IntArray


@compiled
def two_classes(
    ptr: IntArray,
    weight: Any,
    chance: FloatArray,
    named_ptr: IntArray,
    named: IntArray,
    prior: FloatArray,
    shares: FloatArray,
) -> FloatArray:
    """(I,) log P(labels | two classes, each label of either).

    Of item i only the classes named[named_ptr[i] : named_ptr[i + 1]] explain labels; `chance` holds P(label | class)
    for every row, item by item, and every named class of its item. `shares` (the first class's, of two) lie evenly
    about a half, so that pairs need no order.
    """
    n_items = ptr.size - 1
    out, start = np.full(n_items, -np.inf), 0
    for i in range(n_items):
        classes = named[named_ptr[i] : named_ptr[i + 1]]
        n, within = classes.size, 0.0
        for c in classes:
            within += prior[c]
        for x in range(n):
            for y in range(x, n):
                # x = y: the other class is one that nobody named, which explains none of the labels
                c, d = classes[x], classes[y]
                of_c, of_d = prior[c], 1 - within if x == y else prior[d]
                pair = of_c * of_d / max(1 - of_c, 1e-12)
                if x != y:
                    pair += of_c * of_d / max(1 - of_d, 1e-12)
                if pair < 1e-300:
                    continue
                for s in range(shares.size):
                    both, product = math.log(pair / shares.size), 1.0
                    for row in range(ptr[i], ptr[i + 1]):
                        at = start + (row - ptr[i]) * n
                        p = (1 - shares[s]) * chance[at + x]
                        if x != y:
                            p += shares[s] * chance[at + y]
                        if weight is not None:
                            both += weight[row] * math.log(p)
                            continue
                        product *= p  # logarithms are slow
                        if product < 1e-200:
                            both += math.log(product)
                            product = 1.0
                    both += math.log(product)
                    low, high = min(both, out[i]), max(both, out[i])
                    out[i] = high + math.log1p(math.exp(low - high)) if low > -np.inf else high
        start += (ptr[i + 1] - ptr[i]) * n
    return out


@compiled
def tails(ptr: IntArray, label: IntArray, chance: FloatArray, shift: IntArray, size: int) -> FloatArray:
    """(I, 2) P(a larger sum than that of an item's own labels), P(a smaller one), each with half of P(the same).

    Row r adds shift[r, k] (N, K), 0 or more, with probability chance[r, k]; its own label is label[r]. The
    distribution of the sum is made by one convolution per row. No sum may exceed `size`.
    """
    out = np.empty((ptr.size - 1, 2))
    now, then = np.zeros(size + 1), np.zeros(size + 1)
    for i in range(ptr.size - 1):
        now[0] = 1.0
        length, own = 1, 0
        for row in range(ptr[i], ptr[i + 1]):
            widest = 0
            for k in range(chance.shape[1]):
                widest = max(widest, shift[row, k])
            for x in range(length + widest):
                then[x] = 0.0
            for k in range(chance.shape[1]):
                p, by = chance[row, k], shift[row, k]
                for x in range(length):
                    then[x + by] += p * now[x]
            length += widest
            own += shift[row, label[row]]
            now, then = then, now
        out[i, 0] = out[i, 1] = now[own] / 2
        for x in range(length):
            if x != own:
                out[i, 0 if x > own else 1] += now[x]
    return out
