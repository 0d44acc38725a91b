"""Calibration of probabilities: of the items predicted with 80 %, 80 % should be right.

`gold` is known classes (I,) as codes, −1 where unknown, or the distribution of the votes (I, K); against votes, "right"
is the share of the votes for the predicted class. Ties between predicted classes count as a fair draw would on average.
scikit-learn's `calibration_curve` knows two classes and no ties, its `log_loss` clips probabilities of zero.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from scipy.sparse import csr_array

from dissensus.common.parameters import check_argument
from dissensus.common.types import FloatArray, IntArray
from dissensus.evaluation._check import check_distribution_pair, rows_with_gold
from dissensus.evaluation.exceptions import NoItems
from dissensus.evaluation.hard import probability_correct, tied_classes

BinWidth = Literal["width", "mass"]


@dataclass(frozen=True, eq=False)
class ReliabilityCurve:
    """Confidence and accuracy in each bin of confidence."""

    edges: FloatArray  # (bins+1,) bin b contains confidences in (edges[b], edges[b+1]]
    count: IntArray  # (bins,) items
    confidence: FloatArray  # (bins,) mean probability of the predicted class; NaN in an empty bin
    accuracy: FloatArray  # (bins,) share that is right; NaN in an empty bin

    @property
    def error(self) -> float:
        """Return the expected calibration error: the difference of the two, averaged over items."""
        some = self.count > 0
        gap = np.abs(self.accuracy[some] - self.confidence[some])
        return float((gap * self.count[some]).sum() / self.count.sum())  # Eq. 3, Guo et al. 2017


def reliability_curve(gold: Any, h: Any, *, bins: int = 15, equal: BinWidth = "width") -> ReliabilityCurve:
    """Return accuracy of the predicted class in bins of its confidence (Guo et al. 2017, section 2).

    Parameters
    ----------
    gold : (I,) int or (I, K)
        Known codes (−1 unknown), or the distribution of the votes.
    h : (I, K)
        Predicted distribution.
    equal : "width" or "mass"
        Bins of equal width on [0, 1], or with about the same number of items in each.

    >>> curve = reliability_curve([0, 1, 1], [[0.9, 0.1], [0.2, 0.8], [0.6, 0.4]], bins=2)
    >>> curve.count, curve.confidence.round(2), curve.accuracy.round(2), round(curve.error, 2)
    (array([0, 3]), array([ nan, 0.77]), array([ nan, 0.67]), 0.1)
    """
    check_argument("bins", bins, int, low=1)
    check_argument("equal", equal, BinWidth)
    confidence, right = _confidence_and_correctness(gold, h)
    places = np.linspace(0, 1, bins + 1)
    edges = places if equal == "width" else np.quantile(confidence, places)
    at = np.searchsorted(edges[1:-1], confidence)
    count = np.bincount(at, minlength=bins)
    with np.errstate(invalid="ignore"):  # An empty bin is NaN.
        means = (np.bincount(at, values, bins) / count for values in (confidence, right))
        return ReliabilityCurve(edges, count, *means)


def expected_calibration_error(gold: Any, h: Any, *, bins: int = 15, equal: BinWidth = "width") -> float:
    """Return Σ_b (items in b / items) |accuracy of b − confidence of b| (Guo et al. 2017, Eq. 3).

    Bins with few items bias it upwards: compare methods on the same items with the same bins (`reliability_curve`).

    >>> round(expected_calibration_error([0, 1, 1], [[0.9, 0.1], [0.2, 0.8], [0.6, 0.4]]), 2)
    0.3
    """
    return reliability_curve(gold, h, bins=bins, equal=equal).error


def log_loss(gold: Any, h: Any) -> float:
    """Return the mean of −log h[gold] over the items with known gold; infinite if a gold class has probability 0.

    >>> round(log_loss([0, 1], [[0.9, 0.1], [0.2, 0.8]]), 3)
    0.164
    """
    return float(log_loss_per_item(gold, h).mean())


def log_loss_per_item(gold: Any, h: Any) -> FloatArray:
    """Return (known items,) −log h[gold]."""
    gold, h = rows_with_gold(gold, h, "h")
    with np.errstate(divide="ignore"):
        return np.asarray(-np.log(h[np.arange(gold.size), gold]) + 0.0)  # Adding 0 turns −0 into 0.


def confidence_gaps_by_bin(gold: Any, h: Any, *, bins: int = 15) -> Any:
    """Return (known items, bins), sparse: correctness minus confidence of each item, in its bin of equal width.

    Σ_b |sum of column b| / items is the expected calibration error, so these sums suffice for a bootstrap.
    """
    confidence, right = _confidence_and_correctness(gold, h)
    at = np.searchsorted(np.linspace(0, 1, bins + 1)[1:-1], confidence)
    return csr_array((right - confidence, (np.arange(at.size), at)), shape=(at.size, bins))


def _confidence_and_correctness(gold: Any, h: Any) -> tuple[FloatArray, FloatArray]:
    """Return the probability of the predicted class of every known item, and the share to which it is right."""
    if np.ndim(gold) != 2:
        gold, h = rows_with_gold(gold, h, "h")
        return h.max(axis=1), probability_correct(gold, h)
    y, h = check_distribution_pair(gold, h)
    if len(h) == 0:
        raise NoItems
    best = tied_classes(h)
    return h.max(axis=1), (y * best).sum(axis=1) / best.sum(axis=1)
