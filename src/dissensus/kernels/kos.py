"""Messages between items and annotators: one pass, the final vote, and what calibrates it.

An edge is an item and an annotator who labelled it, with the annotator's answer a: −1 or 1, or a signed weight. Edges
stand in the order of items. Of the two messages of an edge only the item's, x, is kept. The annotator's, y, is made
when it is read: of Y − a·h and Q − |a·h|, where Y = Σ a·h and Q = Σ |a·h| over the annotator's edges and h is
x/(1 + |x|), or x itself. So a pass is one walk over the edges.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dissensus._types import FloatArray, IntArray
from dissensus.kernels.jit import compiled

SURE = 0.99  # share from which an annotator is as good as perfect: right 199 times in 200
ROUNDING = 1e-12  # of what an annotator has heard: less than that from others is nothing


@compiled
def log_odds(share: float) -> float:
    """Half the log odds of being right, (1 + share)/2; no surer than `SURE`."""
    return float(np.arctanh(min(max(share, -SURE), SURE)))


@compiled
def _heard(x: float, share: bool) -> float:
    """What an annotator makes of an item's message: h."""
    return x / (1 + abs(x)) if share else x


@compiled
def sweep(
    start: int,
    stop: int,
    item_ptr: IntArray,
    annotator: IntArray,
    answer: Any,
    message: FloatArray,
    heard: FloatArray,
    share: bool,
    scale: float,
    crowd: float,
    labels: float,
    sums: FloatArray,
) -> None:
    """New `message` (E,) x of items start … stop − 1; their Y and Q are added to `sums` (A, 2).

    `heard` (A, 2) has Y and Q of the last pass, with items of known class. An annotator says scale·(Y − a·h), or with
    `share` (Y − a·h + labels·crowd)/(Q − |a·h| + labels).
    """
    for i in range(start, stop):
        first, end = np.uintp(item_ptr[i]), np.uintp(item_ptr[i + 1])  # unsigned: no index need be checked for its sign
        total = 0.0
        for e in range(first, end):
            j, a = np.uintp(annotator[e]), float(answer[e])
            own = a * _heard(message[e], share)
            if share:
                y, others = crowd, heard[j, 1] - abs(own)
                if others > ROUNDING * heard[j, 1]:
                    y = (heard[j, 0] - own + labels * crowd) / (others + labels)
                y = log_odds(y)
            else:
                y = scale * (heard[j, 0] - own)
            message[e] = y
            total += a * y
        for e in range(first, end):
            j, a = np.uintp(annotator[e]), float(answer[e])
            x = total - a * message[e]
            message[e] = x
            own = a * _heard(x, share)
            sums[j, 0] += own
            sums[j, 1] += abs(own)


@compiled
def scores(item_ptr: IntArray, annotator: IntArray, answer: Any, weight: FloatArray) -> FloatArray:
    """(I,) Σ a·w over the edges of each item; `weight` (A,)."""
    out = np.zeros(item_ptr.size - 1)
    for i in range(out.size):
        for e in range(np.uintp(item_ptr[i]), np.uintp(item_ptr[i + 1])):
            out[i] += answer[e] * weight[np.uintp(annotator[e])]
    return out


@compiled
def pair_agreement(item_ptr: IntArray, answer: Any) -> tuple[float, float]:
    """Σ a·a' and Σ |a·a'| over all ordered pairs of edges of the same item."""
    agree, pairs = 0.0, 0.0
    for i in range(item_ptr.size - 1):
        total, size, squares = 0.0, 0.0, 0.0
        for e in range(item_ptr[i], item_ptr[i + 1]):
            a = float(answer[e])
            total += a
            size += abs(a)
            squares += a * a
        agree += total * total - squares
        pairs += size * size - squares
    return agree, pairs


@compiled
def slope(start: int, stop: int, answer: Any, message: FloatArray, beta: float, kappa: float) -> float:
    """Derivative by β of Σ |a| log(1 + κ·sign(a)·tanh(β x / 2)) over edges start … stop − 1."""
    out = 0.0
    for e in range(start, stop):
        a, x = float(answer[e]), message[e]
        if x != 0.0:
            p = 1 / (1 + np.exp(-beta * x))  # tanh(β x / 2) = 2 p − 1, by one exponential
            k = kappa if a > 0.0 else -kappa
            out += abs(a) * k * x * 2 * p * (1 - p) / (1 + k * (2 * p - 1))
    return out
