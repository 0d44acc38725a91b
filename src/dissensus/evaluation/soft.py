"""Predicted distributions `h` against the distribution of the votes `y`, both (I, K); one value per item, in nats.

Take `.mean()` for a score, or hand the values to `bootstrap` or `paired_bootstrap`; `soft_scores` gives all means.
Where `y` has a class at zero, KL(h‖y) is infinite: it is computed against y smoothed, (y + ε) / (1 + K ε), with a
stated ε. An item without votes has no `y`; leave it out.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dissensus.common.types import FloatArray
from dissensus.evaluation._check import distributions, numbers, pair
from dissensus.exceptions import BadParameter, DataError

EPSILON = 1e-3  # of the smoothed votes


def cross_entropy(y: Any, h: Any) -> FloatArray:
    """(I,) −Σ_k y_k log h_k; infinite where a class with votes is given no probability."""
    y, h = pair(y, h)
    return _cross_entropy(y, h)


def kl_divergence(y: Any, h: Any, *, epsilon: float = 0.0) -> FloatArray:
    """(I,) KL(y‖h) = Σ_k y_k log(y_k / h_k), votes against prediction; with `epsilon`, of the smoothed votes."""
    y, h = pair(y, h)
    y = _smoothed(y, epsilon)
    return _divergence(y, h)


def inverse_kl_divergence(y: Any, h: Any, *, epsilon: float = EPSILON) -> FloatArray:
    """(I,) KL(h‖y) = Σ_k h_k log(h_k / y_k), with y smoothed by `epsilon`: (y + ε) / (1 + K ε)."""
    y, h = pair(y, h)
    return _divergence(h, _smoothed(y, epsilon))


def jensen_shannon(y: Any, h: Any) -> FloatArray:
    """(I,) ½ KL(y‖m) + ½ KL(h‖m), m = (y + h) / 2; from 0 to log 2. Its root is a metric (Endres & Schindelin 2003)."""
    y, h = pair(y, h)
    middle = (y + h) / 2
    return np.maximum((_divergence(y, middle) + _divergence(h, middle)) / 2, 0)  # rounding may go below


def total_variation(y: Any, h: Any) -> FloatArray:
    """(I,) ½ Σ_k |y_k − h_k|, from 0 to 1."""
    return manhattan(y, h) / 2


def manhattan(y: Any, h: Any) -> FloatArray:
    """(I,) Σ_k |y_k − h_k|, from 0 to 2."""
    y, h = pair(y, h)
    return np.asarray(np.abs(y - h).sum(axis=1))


def wasserstein(y: Any, h: Any, *, positions: Any = None) -> FloatArray:
    """(I,) earth mover's distance between distributions over ordered classes, Σ_k |Y_k − H_k| (x_{k+1} − x_k).

    Y and H are cumulated. `positions` (K,) are the places x of the classes on a line, in any order; left out, 0, 1, …,
    K − 1.
    """
    y, h = pair(y, h)
    K = y.shape[1]
    place = np.arange(K, dtype=np.float64) if positions is None else numbers(positions, "positions")
    if place.size != K:
        raise DataError(f"positions has {place.size} values for {K} classes.")
    order = np.argsort(place)
    ahead = np.abs(np.cumsum((y - h)[:, order], axis=1)[:, :-1])  # (I, K-1)
    return np.asarray(ahead @ np.diff(place[order]))


def brier(y: Any, h: Any) -> FloatArray:
    """(I,) Σ_k (y_k − h_k)², from 0 to 2 (Brier 1950); of two classes, twice the score over one of them."""
    y, h = pair(y, h)
    return np.asarray(((y - h) ** 2).sum(axis=1))


def entropy(y: Any) -> FloatArray:
    """(I,) −Σ_k y_k log y_k, from 0 to log K: how much the votes on an item differ."""
    y = distributions(y, "y")
    return _cross_entropy(y, y)


def entropy_correlation(y: Any, h: Any) -> float:
    """Pearson's correlation over items of the entropies of y and h: whether the model is unsure where people differ.

    One of the soft measures of Uma et al. (2021, "Learning from disagreement"). NaN where either entropy is constant.
    """
    y, h = pair(y, h)
    first, second = _cross_entropy(y, y), _cross_entropy(h, h)
    first, second = first - first.mean(), second - second.mean()
    scale = np.sqrt((first**2).sum() * (second**2).sum())
    tiny = 1e-12 * max(first.size, 1)
    return float((first * second).sum() / scale) if scale > tiny * tiny else float("nan")


def soft_scores(y: Any, h: Any, *, epsilon: float = EPSILON) -> dict[str, float]:
    """The mean of each measure over items, by name. Wasserstein is left out: it needs classes that have an order."""
    return {
        "cross_entropy": float(cross_entropy(y, h).mean()),
        "kl_divergence": float(kl_divergence(y, h).mean()),
        "inverse_kl_divergence": float(inverse_kl_divergence(y, h, epsilon=epsilon).mean()),
        "jensen_shannon": float(jensen_shannon(y, h).mean()),
        "total_variation": float(total_variation(y, h).mean()),
        "manhattan": float(manhattan(y, h).mean()),
        "brier": float(brier(y, h).mean()),
        "entropy_correlation": entropy_correlation(y, h),
    }


def _smoothed(y: FloatArray, epsilon: float) -> FloatArray:
    if not 0 <= epsilon < np.inf:
        raise BadParameter(f"epsilon must be 0 or more, got {epsilon}.")
    return np.asarray((y + epsilon) / (1 + y.shape[1] * epsilon))


def _cross_entropy(p: FloatArray, q: FloatArray) -> FloatArray:
    """(I,) −Σ p log q, where 0 log 0 = 0."""
    with np.errstate(divide="ignore"):
        log = np.log(np.where(p > 0, q, 1.0))
    return np.asarray(-(p * log).sum(axis=1) + 0.0)  # no −0


def _divergence(p: FloatArray, q: FloatArray) -> FloatArray:
    """(I,) KL(p‖q)."""
    with np.errstate(divide="ignore"):
        log = np.log(np.where(p > 0, p, 1.0)) - np.log(np.where(p > 0, q, 1.0))
    return np.asarray((p * log).sum(axis=1))
