"""Whether probabilities mean what they say: of the items predicted with 80 %, 80 % should be right.

`gold` is known classes (I,) as codes, −1 where unknown, or the distribution of the votes (I, K); against votes, "right"
is the share of the votes for the predicted class. Ties between predicted classes count as a fair draw would on average.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from scipy.sparse import csr_array

from dissensus.common.parameters import check_argument
from dissensus.common.types import FloatArray, IntArray
from dissensus.evaluation._check import known_rows, pair
from dissensus.evaluation.hard import hits, tied
from dissensus.exceptions import DataError

Equal = Literal["width", "mass"]


@dataclass(frozen=True, eq=False)
class ReliabilityCurve:
    """Confidence against accuracy, bin by bin."""

    edges: FloatArray  # (bins+1,) bin b holds confidences in (edges[b], edges[b+1]]
    count: IntArray  # (bins,) items
    confidence: FloatArray  # (bins,) mean probability of the predicted class; NaN where there is no item
    accuracy: FloatArray  # (bins,) share that is right; NaN where there is no item

    @property
    def error(self) -> float:
        """Expected calibration error: the gap between the two, averaged over items."""
        some = self.count > 0
        gap = np.abs(self.accuracy[some] - self.confidence[some])
        return float((gap * self.count[some]).sum() / self.count.sum())  # Eq. 3, Guo et al. 2017


def reliability_curve(gold: Any, h: Any, *, bins: int = 15, equal: Equal = "width") -> ReliabilityCurve:
    """Confidence against accuracy of the predicted class in bins of confidence (Guo et al. 2017, section 2).

    Parameters
    ----------
    gold : (I,) int or (I, K)
        Known codes (−1 unknown), or the distribution of the votes.
    h : (I, K)
        Predicted distribution.
    equal : "width" or "mass"
        Bins of one width on [0, 1], or (about) equally many items in each.

    >>> curve = reliability_curve([0, 1, 1], [[0.9, 0.1], [0.2, 0.8], [0.6, 0.4]], bins=2)
    >>> curve.count, curve.confidence.round(2), curve.accuracy.round(2), round(curve.error, 2)
    (array([0, 3]), array([ nan, 0.77]), array([ nan, 0.67]), 0.1)
    """
    check_argument("bins", bins, int, low=1)
    check_argument("equal", equal, Equal)
    confidence, right = _confidence(gold, h)
    places = np.linspace(0, 1, bins + 1)
    edges = places if equal == "width" else np.quantile(confidence, places)
    at = np.searchsorted(edges[1:-1], confidence)
    count = np.bincount(at, minlength=bins)
    with np.errstate(invalid="ignore"):  # 0 / 0 is the NaN of an empty bin
        means = (np.bincount(at, values, bins) / count for values in (confidence, right))
        return ReliabilityCurve(edges, count, *means)


def expected_calibration_error(gold: Any, h: Any, *, bins: int = 15, equal: Equal = "width") -> float:
    """Σ_b (items in b / items) |accuracy of b − confidence of b| (Guo et al. 2017, Eq. 3); see `reliability_curve`.

    It is biased upwards where bins hold few items: compare methods on the same items with the same bins.

    >>> round(expected_calibration_error([0, 1, 1], [[0.9, 0.1], [0.2, 0.8], [0.6, 0.4]]), 2)
    0.3
    """
    return reliability_curve(gold, h, bins=bins, equal=equal).error


def log_loss(gold: Any, h: Any) -> float:
    """Mean of −log h[gold] over the items with known gold; infinite where a gold class is given no probability.

    >>> round(log_loss([0, 1], [[0.9, 0.1], [0.2, 0.8]]), 3)
    0.164
    """
    return float(log_losses(gold, h).mean())


def log_losses(gold: Any, h: Any) -> FloatArray:
    """(known items,) −log h[gold]."""
    gold, h = known_rows(gold, h, "h")
    with np.errstate(divide="ignore"):
        return np.asarray(-np.log(h[np.arange(gold.size), gold]) + 0.0)  # no −0


def gaps(gold: Any, h: Any, *, bins: int = 15) -> Any:
    """(known items, bins) sparse: by how much an item is right above its confidence, in its bin of equal width.

    Σ_b |sum of column b| / items is the expected calibration error, so a bootstrap needs no more than these sums.
    """
    confidence, right = _confidence(gold, h)
    at = np.searchsorted(np.linspace(0, 1, bins + 1)[1:-1], confidence)
    return csr_array((right - confidence, (np.arange(at.size), at)), shape=(at.size, bins))


def _confidence(gold: Any, h: Any) -> tuple[FloatArray, FloatArray]:
    """Probability of the predicted class of every known item, and the share to which that class is right."""
    if np.ndim(gold) != 2:
        gold, h = known_rows(gold, h, "h")
        return h.max(axis=1), hits(gold, h)
    y, h = pair(gold, h)
    if len(h) == 0:
        raise DataError("there are no items; calibration needs some.")
    best = tied(h)
    return h.max(axis=1), (y * best).sum(axis=1) / best.sum(axis=1)
