"""Calibration of probabilities: 80 % of the items that are predicted with a probability of 80 % should be right.

`gold` holds class codes (I,), with −1 for items without a gold label, or the distributions (I, K) of the votes. With
votes, the correctness of a prediction is the share of votes for the predicted class. If several classes are equally
probable, the correctness is the average over a fair draw among them. scikit-learn's `calibration_curve` supports only
two classes and no ties, and its `log_loss` clips probabilities of zero.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from scipy.sparse import csr_array

from dissensus.common.parameters import check_argument
from dissensus.common.types import FloatArray, IntArray
from dissensus.evaluation._check import check_distribution_pair, select_rows_with_gold
from dissensus.evaluation.exceptions import NoItems
from dissensus.evaluation.hard import find_tied_classes, probability_correct

BinningRule = Literal["width", "mass"]


@dataclass(frozen=True, eq=False)
class ReliabilityCurve:
    """Confidence and accuracy in each bin of confidence."""

    edges: FloatArray  # (bins+1,) bin b contains confidences in (edges[b], edges[b+1]]
    count: IntArray  # (bins,) items
    confidence: FloatArray  # (bins,) mean probability of the predicted class; NaN in an empty bin
    accuracy: FloatArray  # (bins,) share of correct predictions; NaN in an empty bin

    @property
    def error(self) -> float:
        """Return the expected calibration error, the absolute gap of confidence and accuracy averaged over items."""
        some = self.count > 0
        gap = np.abs(self.accuracy[some] - self.confidence[some])
        return float((gap * self.count[some]).sum() / self.count.sum())  # Eq. 3, Guo et al. 2017


def reliability_curve(gold: Any, h: Any, *, bins: int = 15, equal: BinningRule = "width") -> ReliabilityCurve:
    """Return the accuracy of predictions in each bin of confidence (Guo et al. 2017, section 2).

    Parameters
    ----------
    gold : (I,) int or (I, K)
        Class codes (−1 for items without a gold label), or the distributions of the votes.
    h : (I, K)
        Predicted distribution.
    equal : "width" or "mass"
        "width" for bins of equal width on [0, 1], "mass" for bins with about the same number of items.

    >>> curve = reliability_curve([0, 1, 1], [[0.9, 0.1], [0.2, 0.8], [0.6, 0.4]], bins=2)
    >>> curve.count, curve.confidence.round(2), curve.accuracy.round(2), round(curve.error, 2)
    (array([0, 3]), array([ nan, 0.77]), array([ nan, 0.67]), 0.1)
    """
    check_argument("bins", bins, int, low=1)
    check_argument("equal", equal, BinningRule)
    confidence, right = _confidence_and_correctness(gold, h)
    places = np.linspace(0, 1, bins + 1)
    edges = places if equal == "width" else np.quantile(confidence, places)
    at = np.searchsorted(edges[1:-1], confidence)
    count = np.bincount(at, minlength=bins)
    with np.errstate(invalid="ignore"):  # The mean of an empty bin is NaN.
        means = (np.bincount(at, values, bins) / count for values in (confidence, right))
        return ReliabilityCurve(edges, count, *means)


def expected_calibration_error(gold: Any, h: Any, *, bins: int = 15, equal: BinningRule = "width") -> float:
    """Return the absolute gap of accuracy and confidence per bin, averaged over items (Guo et al. 2017, Eq. 3).

    Bins with few items bias the error upwards, so compare methods on the same items and bins (`reliability_curve`).

    >>> round(expected_calibration_error([0, 1, 1], [[0.9, 0.1], [0.2, 0.8], [0.6, 0.4]]), 2)
    0.3
    """
    return reliability_curve(gold, h, bins=bins, equal=equal).error


def log_loss(gold: Any, h: Any) -> float:
    """Return the mean of −log h[gold] over the items with a gold label; infinite if a gold class has probability 0.

    >>> round(log_loss([0, 1], [[0.9, 0.1], [0.2, 0.8]]), 3)
    0.164
    """
    return float(log_loss_per_item(gold, h).mean())


def log_loss_per_item(gold: Any, h: Any) -> FloatArray:
    """Return −log h[gold] of each item with a gold label."""
    gold, h = select_rows_with_gold(gold, h, "h")
    with np.errstate(divide="ignore"):
        return np.asarray(-np.log(h[np.arange(gold.size), gold]) + 0.0)  # Adding 0 turns −0 into 0.


def confidence_gaps_by_bin(gold: Any, h: Any, *, bins: int = 15) -> Any:
    """Return correctness minus confidence of each item with a gold label, in the column of its bin of equal width.

    The result is a sparse array (items with a gold label, bins). The expected calibration error is Σ_b |sum of column
    b| / items, so the column sums suffice for a bootstrap.
    """
    confidence, right = _confidence_and_correctness(gold, h)
    at = np.searchsorted(np.linspace(0, 1, bins + 1)[1:-1], confidence)
    return csr_array((right - confidence, (np.arange(at.size), at)), shape=(at.size, bins))


def _confidence_and_correctness(gold: Any, h: Any) -> tuple[FloatArray, FloatArray]:
    """Return confidence and correctness (0 to 1) of the predicted class of every item with a gold label."""
    if np.ndim(gold) != 2:
        gold, h = select_rows_with_gold(gold, h, "h")
        return h.max(axis=1), probability_correct(gold, h)
    y, h = check_distribution_pair(gold, h)
    if len(h) == 0:
        raise NoItems
    best = find_tied_classes(h)
    return h.max(axis=1), (y * best).sum(axis=1) / best.sum(axis=1)
