"""Metrics of predicted distributions `h` against the distribution of the votes `y`, both (I, K); nats per item.

Use `.mean()` for a score, or pass the values to `bootstrap` or `paired_bootstrap`; `soft_scores` returns all means. If
`y` has a class of probability 0, KL(h‖y) is infinite: it is computed against y smoothed, (y + ε) / (1 + K ε). An item
without votes has no `y`; exclude it. SciPy's `wasserstein_distance` takes one item at a time, and its `jensenshannon`
returns NaN where rounding makes a divergence negative.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from scipy.special import entr, rel_entr, xlogy

from dissensus.common.parameters import check_argument
from dissensus.common.types import FloatArray
from dissensus.evaluation._check import check_distribution_pair, check_distributions, class_positions

SMOOTHING_EPSILON = 1e-3  # added to each class of smoothed votes


def cross_entropy(y: Any, h: Any) -> FloatArray:
    """Return (I,) −Σ_k y_k log h_k; infinite where a class with votes has probability 0.

    >>> cross_entropy([[0.75, 0.25]], [[0.9, 0.1]]).round(3)
    array([0.655])
    """
    return np.asarray(-xlogy(*check_distribution_pair(y, h)).sum(axis=1) + 0.0)  # Adding 0 turns −0 into 0.


def kl_divergence(y: Any, h: Any, *, epsilon: float = 0.0) -> FloatArray:
    """Return (I,) KL(y‖h) = Σ_k y_k log(y_k / h_k) of votes and prediction; with `epsilon`, of the smoothed votes.

    >>> kl_divergence([[0.75, 0.25]], [[0.9, 0.1]]).round(3)
    array([0.092])
    """
    y, h = check_distribution_pair(y, h)
    return np.asarray(rel_entr(_smooth_votes(y, epsilon), h).sum(axis=1))


def inverse_kl_divergence(y: Any, h: Any, *, epsilon: float = SMOOTHING_EPSILON) -> FloatArray:
    """Return (I,) KL(h‖y) = Σ_k h_k log(h_k / y_k), with y smoothed by `epsilon`: (y + ε) / (1 + K ε).

    >>> inverse_kl_divergence([[1, 0]], [[0.9, 0.1]]).round(3)
    array([0.367])
    """
    y, h = check_distribution_pair(y, h)
    return np.asarray(rel_entr(h, _smooth_votes(y, epsilon)).sum(axis=1))


def jensen_shannon(y: Any, h: Any) -> FloatArray:
    """Return (I,) ½ KL(y‖m) + ½ KL(h‖m), m = (y + h) / 2, from 0 to log 2.

    Its square root is a metric (Endres & Schindelin 2003).

    >>> jensen_shannon([[1, 0], [0.5, 0.5]], [[0, 1], [0.5, 0.5]]).round(3)
    array([0.693, 0.   ])
    """
    y, h = check_distribution_pair(y, h)
    middle = (y + h) / 2
    divergence = (rel_entr(y, middle) + rel_entr(h, middle)).sum(axis=1) / 2
    return np.asarray(np.maximum(divergence, 0))  # Rounding may make it negative.


def total_variation(y: Any, h: Any) -> FloatArray:
    """Return (I,) ½ Σ_k |y_k − h_k|, from 0 to 1.

    >>> total_variation([[0.75, 0.25]], [[0.5, 0.5]])
    array([0.25])
    """
    return manhattan(y, h) / 2


def manhattan(y: Any, h: Any) -> FloatArray:
    """Return (I,) Σ_k |y_k − h_k|, from 0 to 2.

    >>> manhattan([[0.75, 0.25]], [[0.5, 0.5]])
    array([0.5])
    """
    y, h = check_distribution_pair(y, h)
    return np.asarray(np.abs(y - h).sum(axis=1))


def wasserstein(y: Any, h: Any, *, positions: Any = None) -> FloatArray:
    """Return (I,) the earth mover's distance over ordered classes, Σ_k |Y_k − H_k| (x_{k+1} − x_k).

    Y and H are cumulative. `positions` (K,) are the positions x of the classes on a line, in any order; the default is
    0, 1, …, K − 1.

    >>> wasserstein([[1, 0, 0]], [[0, 0, 1]]), wasserstein([[1, 0, 0]], [[0, 0, 1]], positions=[0, 1, 10])
    (array([2.]), array([10.]))
    """
    y, h = check_distribution_pair(y, h)
    place = class_positions(positions, y.shape[1])
    order = np.argsort(place)
    moved_mass = np.abs(np.cumsum((y - h)[:, order], axis=1)[:, :-1])  # (I, K-1)
    return np.asarray(moved_mass @ np.diff(place[order]))


def brier(y: Any, h: Any) -> FloatArray:
    """Return (I,) Σ_k (y_k − h_k)², from 0 to 2 (Brier 1950); for two classes, twice the score over one of them.

    >>> brier([[1, 0]], [[0.5, 0.5]])
    array([0.5])
    """
    y, h = check_distribution_pair(y, h)
    return np.asarray(((y - h) ** 2).sum(axis=1))


def entropy(y: Any) -> FloatArray:
    """Return (I,) −Σ_k y_k log y_k, from 0 to log K: the disagreement of the votes on each item.

    >>> entropy([[1, 0], [0.5, 0.5]]).round(3)
    array([0.   , 0.693])
    """
    return np.asarray(entr(check_distributions(y, "y")).sum(axis=1))


def entropy_correlation(y: Any, h: Any) -> float:
    """Return Pearson's correlation over items of the entropies of y and h; NaN if either entropy is constant.

    It shows whether the model is uncertain where annotators differ (Uma et al. 2021, "Learning from disagreement").

    >>> round(entropy_correlation([[1, 0], [0.5, 0.5], [0.2, 0.8]], [[0.9, 0.1], [0.6, 0.4], [0.1, 0.9]]), 3)
    0.715
    """
    y, h = check_distribution_pair(y, h)
    first, second = (values - values.mean() for values in (entropy(y), entropy(h)))
    scale = np.sqrt((first @ first) * (second @ second))
    tiny = 1e-12 * max(first.size, 1)
    return float(first @ second / scale) if scale > tiny * tiny else float("nan")


DISTRIBUTION_MEASURES: dict[str, Callable[[Any, Any], FloatArray]] = {
    one.__name__: one
    for one in (
        cross_entropy, kl_divergence, inverse_kl_divergence, jensen_shannon, total_variation, manhattan, brier
    )
}  # fmt: skip
"""Name → measure that is a mean over items and needs no order of the classes; lower is better."""


def soft_scores(y: Any, h: Any, *, epsilon: float = SMOOTHING_EPSILON) -> dict[str, float]:
    """Return the mean of each measure over items, by name; without Wasserstein, which needs ordered classes.

    >>> round(soft_scores([[1, 0], [0.5, 0.5]], [[0.9, 0.1], [0.6, 0.4]])["manhattan"], 3)
    0.2
    """
    measures = DISTRIBUTION_MEASURES | {"inverse_kl_divergence": partial(inverse_kl_divergence, epsilon=epsilon)}
    means = {name: float(measure(y, h).mean()) for name, measure in measures.items()}
    return means | {"entropy_correlation": entropy_correlation(y, h)}


def _smooth_votes(y: FloatArray, epsilon: float) -> FloatArray:
    check_argument("epsilon", epsilon, float, low=0)
    return np.asarray((y + epsilon) / (1 + y.shape[1] * epsilon))
