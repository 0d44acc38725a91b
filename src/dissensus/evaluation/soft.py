"""Predicted distributions `h` against the distribution of the votes `y`, both (I, K); one value per item, in nats.

Take `.mean()` for a score, or hand the values to `bootstrap` or `paired_bootstrap`; `soft_scores` gives all means.
Where `y` has a class at zero, KL(h‖y) is infinite: it is computed against y smoothed, (y + ε) / (1 + K ε), with a
stated ε. An item without votes has no `y`; leave it out.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from scipy.special import entr, rel_entr, xlogy

from dissensus.common.parameters import check_argument
from dissensus.common.types import FloatArray
from dissensus.evaluation._check import distributions, pair, positions_of

EPSILON = 1e-3  # of the smoothed votes


def cross_entropy(y: Any, h: Any) -> FloatArray:
    """(I,) −Σ_k y_k log h_k; infinite where a class with votes is given no probability.

    >>> cross_entropy([[0.75, 0.25]], [[0.9, 0.1]]).round(3)
    array([0.655])
    """
    return np.asarray(-xlogy(*pair(y, h)).sum(axis=1) + 0.0)  # no −0


def kl_divergence(y: Any, h: Any, *, epsilon: float = 0.0) -> FloatArray:
    """(I,) KL(y‖h) = Σ_k y_k log(y_k / h_k), votes against prediction; with `epsilon`, of the smoothed votes.

    >>> kl_divergence([[0.75, 0.25]], [[0.9, 0.1]]).round(3)
    array([0.092])
    """
    y, h = pair(y, h)
    return np.asarray(rel_entr(_smoothed(y, epsilon), h).sum(axis=1))


def inverse_kl_divergence(y: Any, h: Any, *, epsilon: float = EPSILON) -> FloatArray:
    """(I,) KL(h‖y) = Σ_k h_k log(h_k / y_k), with y smoothed by `epsilon`: (y + ε) / (1 + K ε).

    >>> inverse_kl_divergence([[1, 0]], [[0.9, 0.1]]).round(3)
    array([0.367])
    """
    y, h = pair(y, h)
    return np.asarray(rel_entr(h, _smoothed(y, epsilon)).sum(axis=1))


def jensen_shannon(y: Any, h: Any) -> FloatArray:
    """(I,) ½ KL(y‖m) + ½ KL(h‖m), m = (y + h) / 2; from 0 to log 2. Its root is a metric (Endres & Schindelin 2003).

    >>> jensen_shannon([[1, 0], [0.5, 0.5]], [[0, 1], [0.5, 0.5]]).round(3)
    array([0.693, 0.   ])
    """
    y, h = pair(y, h)
    middle = (y + h) / 2
    found = (rel_entr(y, middle) + rel_entr(h, middle)).sum(axis=1) / 2
    return np.asarray(np.maximum(found, 0))  # rounding may go below


def total_variation(y: Any, h: Any) -> FloatArray:
    """(I,) ½ Σ_k |y_k − h_k|, from 0 to 1.

    >>> total_variation([[0.75, 0.25]], [[0.5, 0.5]])
    array([0.25])
    """
    return manhattan(y, h) / 2


def manhattan(y: Any, h: Any) -> FloatArray:
    """(I,) Σ_k |y_k − h_k|, from 0 to 2.

    >>> manhattan([[0.75, 0.25]], [[0.5, 0.5]])
    array([0.5])
    """
    y, h = pair(y, h)
    return np.asarray(np.abs(y - h).sum(axis=1))


def wasserstein(y: Any, h: Any, *, positions: Any = None) -> FloatArray:
    """(I,) earth mover's distance between distributions over ordered classes, Σ_k |Y_k − H_k| (x_{k+1} − x_k).

    Y and H are cumulated. `positions` (K,) are the places x of the classes on a line, in any order; left out, 0, 1, …,
    K − 1.

    >>> wasserstein([[1, 0, 0]], [[0, 0, 1]]), wasserstein([[1, 0, 0]], [[0, 0, 1]], positions=[0, 1, 10])
    (array([2.]), array([10.]))
    """
    y, h = pair(y, h)
    place = positions_of(positions, y.shape[1])
    order = np.argsort(place)
    ahead = np.abs(np.cumsum((y - h)[:, order], axis=1)[:, :-1])  # (I, K-1)
    return np.asarray(ahead @ np.diff(place[order]))


def brier(y: Any, h: Any) -> FloatArray:
    """(I,) Σ_k (y_k − h_k)², from 0 to 2 (Brier 1950); of two classes, twice the score over one of them.

    >>> brier([[1, 0]], [[0.5, 0.5]])
    array([0.5])
    """
    y, h = pair(y, h)
    return np.asarray(((y - h) ** 2).sum(axis=1))


def entropy(y: Any) -> FloatArray:
    """(I,) −Σ_k y_k log y_k, from 0 to log K: how much the votes on an item differ.

    >>> entropy([[1, 0], [0.5, 0.5]]).round(3)
    array([0.   , 0.693])
    """
    return np.asarray(entr(distributions(y, "y")).sum(axis=1))


def entropy_correlation(y: Any, h: Any) -> float:
    """Pearson's correlation over items of the entropies of y and h: whether the model is unsure where people differ.

    One of the soft measures of Uma et al. (2021, "Learning from disagreement"). NaN where either entropy is constant.

    >>> round(entropy_correlation([[1, 0], [0.5, 0.5], [0.2, 0.8]], [[0.9, 0.1], [0.6, 0.4], [0.1, 0.9]]), 3)
    0.715
    """
    y, h = pair(y, h)
    first, second = (values - values.mean() for values in (entropy(y), entropy(h)))
    scale = np.sqrt((first @ first) * (second @ second))
    tiny = 1e-12 * max(first.size, 1)
    return float(first @ second / scale) if scale > tiny * tiny else float("nan")


MEASURES: dict[str, Callable[[Any, Any], FloatArray]] = {
    one.__name__: one
    for one in (
        cross_entropy, kl_divergence, inverse_kl_divergence, jensen_shannon, total_variation, manhattan, brier
    )
}  # fmt: skip
"""Name → measure that is a mean over items and needs no order of the classes; the lower the better."""


def soft_scores(y: Any, h: Any, *, epsilon: float = EPSILON) -> dict[str, float]:
    """The mean of each measure over items, by name. Wasserstein is left out: it needs classes that have an order.

    >>> round(soft_scores([[1, 0], [0.5, 0.5]], [[0.9, 0.1], [0.6, 0.4]])["manhattan"], 3)
    0.2
    """
    measures = MEASURES | {"inverse_kl_divergence": partial(inverse_kl_divergence, epsilon=epsilon)}
    means = {name: float(measure(y, h).mean()) for name, measure in measures.items()}
    return means | {"entropy_correlation": entropy_correlation(y, h)}


def _smoothed(y: FloatArray, epsilon: float) -> FloatArray:
    check_argument("epsilon", epsilon, float, low=0)
    return np.asarray((y + epsilon) / (1 + y.shape[1] * epsilon))
