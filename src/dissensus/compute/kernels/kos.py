"""Messages between items and annotators: one pass, and what calibrates the final vote.

An edge is an item and an annotator who labelled it, with the annotator's answer a: −1 or 1, or a signed weight. Edges
stand in the order of items. Of the two messages of an edge only the item's, x, is kept. The annotator's, y, is made
when it is read: of Y − a·h and Q − |a·h|, where Y = Σ a·h and Q = Σ |a·h| over the annotator's edges and h is
x/(1 + |x|). So a pass is one walk over the edges.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dissensus.common.jit import compiled
from dissensus.common.types import FloatArray, IntArray

SURE = 0.99  # share from which an annotator is as good as perfect: right 199 times in 200
SERIES = 0.03  # argument up to which four terms after the first are exact
ROUNDING = 1e-12  # of what an annotator has heard: less than that from others is nothing


@compiled
def log_odds(share):
    """Half the log odds of being right, (1 + share)/2; no surer than `SURE`."""
    return float(np.arctanh(min(max(share, -SURE), SURE)))


def whole_odds(heard: FloatArray, crowd: float, labels: float) -> FloatArray:
    """(A, 2) the share of all that an annotator has heard, with the crowd's labels, and its log odds."""
    own, size = heard[:, 0] + labels * crowd, heard[:, 1] + labels
    share = np.divide(own, size, out=np.full(len(heard), crowd), where=heard[:, 1] > 0)
    return np.stack([share, np.arctanh(np.clip(share, -SURE, SURE))], axis=1)


@compiled
def _near_odds(share, near, odds):
    """`log_odds` of a share, given those of one nearby: artanh x = artanh y + artanh((x − y)/(1 − x·y)).

    One item of many moves a share a little, and a few terms of a series are then exact and cost no logarithm.
    """
    if abs(share) < SURE and abs(near) < SURE:
        u = (share - near) / (1 - share * near)
        if abs(u) < SERIES:
            v = u * u
            return odds + u * (1 + v * (1 / 3 + v * (1 / 5 + v * (1 / 7 + v / 9))))  # the next term is below 2e-16
    return log_odds(share)


@compiled
def sweep(start, stop, item_ptr, annotator, answer, message, heard, odds, crowd, labels, sums):
    """New `message` (E,) x of items start … stop − 1; their Y and Q are added to `sums` (A, 2).

    `heard` (A, 2) has Y and Q of the last pass, with items of known class, and `odds` (A, 2) what `whole_odds` makes of
    them. An annotator says the log odds of (Y − a·h + labels·crowd)/(Q − |a·h| + labels).
    """
    for i in range(start, stop):
        first, end = np.uintp(item_ptr[i]), np.uintp(item_ptr[i + 1])  # unsigned: no index need be checked for its sign
        total = 0.0
        for e in range(first, end):
            j, a = np.uintp(annotator[e]), float(answer[e])
            own = a * message[e] / (1 + abs(message[e]))
            y, others = crowd, heard[j, 1] - abs(own)
            if others > ROUNDING * heard[j, 1]:
                y = (heard[j, 0] - own + labels * crowd) / (others + labels)
            y = _near_odds(y, odds[j, 0], odds[j, 1])
            message[e] = y
            total += a * y
        for e in range(first, end):
            j, a = np.uintp(annotator[e]), float(answer[e])
            x = total - a * message[e]
            message[e] = x
            own = a * x / (1 + abs(x))
            sums[j, 0] += own
            sums[j, 1] += abs(own)


@compiled
def slope(start, stop, answer, message, beta, kappa):
    """Derivative by β of Σ |a| log(1 + κ·sign(a)·tanh(β x / 2)) over edges start … stop − 1."""
    out = 0.0
    for e in range(start, stop):
        a, x = float(answer[e]), message[e]
        if x != 0.0:
            p = 1 / (1 + np.exp(-beta * x))  # tanh(β x / 2) = 2 p − 1, by one exponential
            k = kappa if a > 0.0 else -kappa
            out += abs(a) * k * x * 2 * p * (1 - p) / (1 + k * (2 * p - 1))
    return out


def sweep_short(
    item: IntArray,
    annotator: IntArray,
    answer: Any,
    message: FloatArray,
    heard: FloatArray,
    crowd: float,
    labels: float,
) -> tuple[FloatArray, FloatArray]:
    """`sweep` over all edges in NumPy, given each edge's item (E,): the new messages and sums."""
    own = answer * message / (1 + np.abs(message))
    Y, Q = heard[annotator].T
    others = Q - np.abs(own)
    known = others > ROUNDING * Q
    y = np.divide(Y - own + labels * crowd, others + labels, out=np.full(item.size, crowd), where=known)
    y = np.arctanh(np.clip(y, -SURE, SURE))
    message = np.bincount(item, answer * y)[item] - answer * y
    own = answer * message / (1 + np.abs(message))
    sums = (np.bincount(annotator, part, len(heard)) for part in (own, np.abs(own)))
    return message, np.stack([*sums], axis=1).astype(np.float64)


def slope_short(answer: Any, message: FloatArray, beta: float, kappa: float) -> float:
    """`slope` over all edges in NumPy."""
    from scipy.special import expit

    p, k = expit(beta * message), np.where(answer > 0, kappa, -kappa)
    return float((np.abs(answer) * k * message * 2 * p * (1 - p) / (1 + k * (2 * p - 1))).sum())


def pair_agreement(item: IntArray, answer: Any) -> tuple[float, float]:
    """Σ a·a' and Σ |a·a'| over all ordered pairs of edges of the same item (E,)."""
    squares = float(np.square(answer, dtype=np.float64).sum())
    total, size = (np.square(np.bincount(item, part)).sum() for part in (answer, np.abs(answer)))
    return float(total - squares), float(size - squares)
