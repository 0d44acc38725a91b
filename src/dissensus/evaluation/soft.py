"""Metrics that compare predicted distributions `h` (I, K) with the distributions of the votes `y` (I, K), in nats.

Most functions return one value per item. Use `.mean()` for a score, or pass the values to `bootstrap` or
`paired_bootstrap`; `soft_scores` returns all means. KL(h‖y) is infinite if a class has no votes, so it is computed with
smoothed votes (y + ε) / (1 + K ε). Exclude items without votes. SciPy's `wasserstein_distance` takes one item at a
time, and its `jensenshannon` returns NaN if rounding makes a divergence negative.
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

SMOOTHING_EPSILON = 1e-3  # ε, which is added to each class to smooth votes


def cross_entropy(y: Any, h: Any) -> FloatArray:
    """Return −Σ_k y_k log h_k of each item (I,); infinite if a class with votes has probability 0.

    >>> cross_entropy([[0.75, 0.25]], [[0.9, 0.1]]).round(3)
    array([0.655])
    """
    return np.asarray(-xlogy(*check_distribution_pair(y, h)).sum(axis=1) + 0.0)  # Adding 0 turns −0 into 0.


def kl_divergence(y: Any, h: Any, *, epsilon: float = 0.0) -> FloatArray:
    """Return KL(y‖h) = Σ_k y_k log(y_k / h_k) of each item (I,); `epsilon` smooths the votes.

    >>> kl_divergence([[0.75, 0.25]], [[0.9, 0.1]]).round(3)
    array([0.092])
    """
    y, h = check_distribution_pair(y, h)
    return np.asarray(rel_entr(_smooth_votes(y, epsilon), h).sum(axis=1))


def inverse_kl_divergence(y: Any, h: Any, *, epsilon: float = SMOOTHING_EPSILON) -> FloatArray:
    """Return KL(h‖y) = Σ_k h_k log(h_k / y_k) of each item (I,), with votes smoothed to (y + ε) / (1 + K ε).

    >>> inverse_kl_divergence([[1, 0]], [[0.9, 0.1]]).round(3)
    array([0.367])
    """
    y, h = check_distribution_pair(y, h)
    return np.asarray(rel_entr(h, _smooth_votes(y, epsilon)).sum(axis=1))


def jensen_shannon(y: Any, h: Any) -> FloatArray:
    """Return ½ KL(y‖m) + ½ KL(h‖m) of each item (I,), where m = (y + h) / 2; from 0 to log 2.

    Its square root is a metric (Endres & Schindelin 2003).

    >>> jensen_shannon([[1, 0], [0.5, 0.5]], [[0, 1], [0.5, 0.5]]).round(3)
    array([0.693, 0.   ])
    """
    y, h = check_distribution_pair(y, h)
    middle = (y + h) / 2
    divergence = (rel_entr(y, middle) + rel_entr(h, middle)).sum(axis=1) / 2
    return np.asarray(np.maximum(divergence, 0))  # Rounding may make it negative.


def total_variation(y: Any, h: Any) -> FloatArray:
    """Return ½ Σ_k |y_k − h_k| of each item (I,), from 0 to 1.

    >>> total_variation([[0.75, 0.25]], [[0.5, 0.5]])
    array([0.25])
    """
    return manhattan(y, h) / 2


def manhattan(y: Any, h: Any) -> FloatArray:
    """Return Σ_k |y_k − h_k| of each item (I,), from 0 to 2.

    >>> manhattan([[0.75, 0.25]], [[0.5, 0.5]])
    array([0.5])
    """
    y, h = check_distribution_pair(y, h)
    return np.asarray(np.abs(y - h).sum(axis=1))


def wasserstein(y: Any, h: Any, *, positions: Any = None) -> FloatArray:
    """Return the earth mover's distance Σ_k |Y_k − H_k| (x_{k+1} − x_k) over ordered classes, of each item (I,).

    Y and H are the cumulative sums of y and h. `positions` (K,) are the positions x of the classes on a line, in any
    order, by default 0, 1, …, K − 1.

    >>> wasserstein([[1, 0, 0]], [[0, 0, 1]]), wasserstein([[1, 0, 0]], [[0, 0, 1]], positions=[0, 1, 10])
    (array([2.]), array([10.]))
    """
    y, h = check_distribution_pair(y, h)
    place = class_positions(positions, y.shape[1])
    order = np.argsort(place)
    moved_mass = np.abs(np.cumsum((y - h)[:, order], axis=1)[:, :-1])  # (I, K-1)
    return np.asarray(moved_mass @ np.diff(place[order]))


def brier(y: Any, h: Any) -> FloatArray:
    """Return Σ_k (y_k − h_k)² of each item (I,), from 0 to 2 (Brier 1950).

    For two classes, this is twice the squared error of one class.

    >>> brier([[1, 0]], [[0.5, 0.5]])
    array([0.5])
    """
    y, h = check_distribution_pair(y, h)
    return np.asarray(((y - h) ** 2).sum(axis=1))


def entropy(y: Any) -> FloatArray:
    """Return the entropy −Σ_k y_k log y_k of the votes for each item (I,), from 0 to log K.

    >>> entropy([[1, 0], [0.5, 0.5]]).round(3)
    array([0.   , 0.693])
    """
    return np.asarray(entr(check_distributions(y, "y")).sum(axis=1))


def entropy_correlation(y: Any, h: Any) -> float:
    """Return Pearson's correlation of the entropies of y and h over items; NaN if either entropy is constant.

    It shows whether the model is uncertain on items on which annotators disagree (Uma et al. 2021, "Learning from
    disagreement").

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
"""Name → measure per item that does not depend on the order of the classes; lower is better."""


def soft_scores(y: Any, h: Any, *, epsilon: float = SMOOTHING_EPSILON) -> dict[str, float]:
    """Return name → mean over items, for all measures except `wasserstein`, which needs ordered classes.

    >>> round(soft_scores([[1, 0], [0.5, 0.5]], [[0.9, 0.1], [0.6, 0.4]])["manhattan"], 3)
    0.2
    """
    measures = DISTRIBUTION_MEASURES | {"inverse_kl_divergence": partial(inverse_kl_divergence, epsilon=epsilon)}
    means = {name: float(measure(y, h).mean()) for name, measure in measures.items()}
    return means | {"entropy_correlation": entropy_correlation(y, h)}


def _smooth_votes(y: FloatArray, epsilon: float) -> FloatArray:
    check_argument("epsilon", epsilon, float, low=0)
    return np.asarray((y + epsilon) / (1 + y.shape[1] * epsilon))
