"""Message passing between items and annotators, and the calibration of the final vote.

An edge connects an item with an annotator who labelled it. Its answer a is −1 or 1, or a signed weight. Edges are
sorted by item. Only the item's message x of each edge is stored. The annotator's message y is computed when it is
needed from Y − a·h and Q − |a·h|, where Y = Σ a·h and Q = Σ |a·h| over the annotator's edges, and h = x/(1 + |x|).
Therefore a pass reads every edge only once.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dissensus.common.jit import lazy_jit
from dissensus.common.types import FloatArray, IntArray

MAX_AGREEMENT = 0.99  # maximum share Y/Q, which corresponds to an accuracy of 0.995
MAX_SERIES_ARGUMENT = 0.03  # maximum argument for which five terms of the series are exact
RELATIVE_ROUNDING_ERROR = 1e-12  # maximum rounding error, relative to an annotator's sums


@lazy_jit
def log_odds(share):
    """Return half the log odds of the accuracy (1 + share)/2; the share is limited to `MAX_AGREEMENT`."""
    return float(np.arctanh(min(max(share, -MAX_AGREEMENT), MAX_AGREEMENT)))


def annotator_odds(edge_sums: FloatArray, crowd: float, labels: float) -> FloatArray:
    """Return, for each annotator, the share Y/Q with the crowd's labels added, and half its log odds, (A, 2)."""
    own, size = edge_sums[:, 0] + labels * crowd, edge_sums[:, 1] + labels
    share = np.divide(own, size, out=np.full(len(edge_sums), crowd), where=edge_sums[:, 1] > 0)
    return np.stack([share, np.arctanh(np.clip(share, -MAX_AGREEMENT, MAX_AGREEMENT))], axis=1)


@lazy_jit
def _nearby_log_odds(share, near, odds):
    """Return `log_odds` of a share from the log odds of a nearby share.

    artanh x = artanh y + artanh((x − y)/(1 − x·y)). Leaving out one of many items changes a share little, so a few
    terms of the series are exact and no logarithm is needed.
    """
    if abs(share) < MAX_AGREEMENT and abs(near) < MAX_AGREEMENT:
        u = (share - near) / (1 - share * near)
        if abs(u) < MAX_SERIES_ARGUMENT:
            v = u * u
            return odds + u * (1 + v * (1 / 3 + v * (1 / 5 + v * (1 / 7 + v / 9))))  # the next term is below 2e-16
    return log_odds(share)


@lazy_jit
def update_messages(start, stop, item_ptr, annotator, answer, message, edge_sums, odds, crowd, labels, sums):
    """Update the messages x of items start … stop − 1 in `message` (E,), and add their Y and Q to `sums` (A, 2).

    `edge_sums` (A, 2) are Y and Q of the last pass, including gold items; `odds` (A, 2) are their `annotator_odds`.
    The message of an annotator is the log odds of (Y − a·h + labels·crowd)/(Q − |a·h| + labels).
    """
    for i in range(start, stop):
        # With unsigned indices, numba does not check signs.
        first, end = np.uintp(item_ptr[i]), np.uintp(item_ptr[i + 1])
        total = 0.0
        for e in range(first, end):
            j, a = np.uintp(annotator[e]), float(answer[e])
            own = a * message[e] / (1 + abs(message[e]))
            y, others = crowd, edge_sums[j, 1] - abs(own)
            if others > RELATIVE_ROUNDING_ERROR * edge_sums[j, 1]:
                y = (edge_sums[j, 0] - own + labels * crowd) / (others + labels)
            y = _nearby_log_odds(y, odds[j, 0], odds[j, 1])
            message[e] = y
            total += a * y
        for e in range(first, end):
            j, a = np.uintp(annotator[e]), float(answer[e])
            x = total - a * message[e]
            message[e] = x
            own = a * x / (1 + abs(x))
            sums[j, 0] += own
            sums[j, 1] += abs(own)


@lazy_jit
def likelihood_slope(start, stop, answer, message, beta, kappa):
    """Return the derivative of Σ |a| log(1 + κ·sign(a)·tanh(β x / 2)) by β, over edges start … stop − 1."""
    out = 0.0
    for e in range(start, stop):
        a, x = float(answer[e]), message[e]
        if x != 0.0:
            p = 1 / (1 + np.exp(-beta * x))  # tanh(β x / 2) = 2 p − 1, which needs only one exponential
            k = kappa if a > 0.0 else -kappa
            out += abs(a) * k * x * 2 * p * (1 - p) / (1 + k * (2 * p - 1))
    return out


def update_messages_numpy(
    item: IntArray,
    annotator: IntArray,
    answer: Any,
    message: FloatArray,
    edge_sums: FloatArray,
    crowd: float,
    labels: float,
) -> tuple[FloatArray, FloatArray]:
    """Run `update_messages` for all edges in NumPy; return the new messages (E,) and the sums (A, 2)."""
    own = answer * message / (1 + np.abs(message))
    Y, Q = edge_sums[annotator].T
    others = Q - np.abs(own)
    has_others = others > RELATIVE_ROUNDING_ERROR * Q
    y = np.divide(Y - own + labels * crowd, others + labels, out=np.full(item.size, crowd), where=has_others)
    y = np.arctanh(np.clip(y, -MAX_AGREEMENT, MAX_AGREEMENT))
    message = np.bincount(item, answer * y)[item] - answer * y
    own = answer * message / (1 + np.abs(message))
    sums = (np.bincount(annotator, part, len(edge_sums)) for part in (own, np.abs(own)))
    return message, np.stack([*sums], axis=1).astype(np.float64)


def likelihood_slope_numpy(answer: Any, message: FloatArray, beta: float, kappa: float) -> float:
    """Return `likelihood_slope` over all edges, computed in NumPy."""
    from scipy.special import expit

    p, k = expit(beta * message), np.where(answer > 0, kappa, -kappa)
    return float((np.abs(answer) * k * message * 2 * p * (1 - p) / (1 + k * (2 * p - 1))).sum())


def pair_agreement(item: IntArray, answer: Any) -> tuple[float, float]:
    """Return Σ a·a' and Σ |a·a'| over all ordered pairs of edges of the same item."""
    squares = float(np.square(answer, dtype=np.float64).sum())
    total, size = (np.square(np.bincount(item, part)).sum() for part in (answer, np.abs(answer)))
    return float(total - squares), float(size - squares)
