"""The uncertainty of a model's results: effective labels, and intervals for reliability and confusion matrices."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dissensus.common.types import FloatArray
from dissensus.evaluation import Estimate
from dissensus.models.exceptions import EffectiveLabelCount, GoldLabelsAdvice, LevelOutOfRange, NoConfusionIntervals
from dissensus.models.tempering import CORRELATION_INTERVAL, MIN_GOLD_ITEMS, design_effect

if TYPE_CHECKING:
    from dissensus.models.base import Aggregator

CROWD_PSEUDO_LABELS = 5  # number of pseudo-labels of average quality, see `shrink_reliability`
MAX_EQUIVALENT_LABELS = 20  # maximum number of gold labels that an annotator's labels count as


@dataclass(frozen=True)
class EffectiveLabels(Estimate):
    """The mean effective number of labels per item; its interval is that of ρ.

    The number of independent judges in a panel is a different quantity: it follows from the correlation of their errors
    (`questions.panel_review`).
    """

    labels: float = np.nan  # mean number of labels per item

    def __str__(self) -> str:
        return str(EffectiveLabelCount(labels=self.labels, value=self.value, low=self.low, high=self.high))


def effective_labels(model: Aggregator) -> FloatArray:
    """Return the effective number of labels of each item, (I,)."""
    total = np.asarray(model.item_total_)
    return np.asarray(total / design_effect(total, min(model.dependence_, 1.0)))


def mean_effective_labels(model: Aggregator) -> EffectiveLabels | None:
    """Return the mean effective number of labels per item, or None if the model treats labels as independent."""
    model._check_fitted()
    if not model.dependence_:
        return None
    n, items = model.item_total_, model.items_.size
    if isinstance(n, np.ndarray):
        n = n[n > 0]
        items = n.size
    else:  # the numbers per item are in a cluster, so their mean is used
        n = np.array([model.total_.sum() / items])
    if not n.size or n.max() <= 1:  # the model was saved without items, or items have one label
        return None
    # With a larger ρ, several labels would count as less than one.
    rhos = np.minimum([model.dependence_, *model.dependence_interval_[::-1]], 1.0)
    value, low, high = (float((n / design_effect(n, rho)).mean()) for rho in rhos)
    return EffectiveLabels(value, low, high, labels=float(model.n_annotations_.sum() / items))


def advise_gold_labels(model: Aggregator) -> GoldLabelsAdvice | None:
    """Return advice to collect gold labels if ρ is the default, or None."""
    known = model.dependence_interval_ != list(CORRELATION_INTERVAL)
    if known or model.items_.size <= MIN_GOLD_ITEMS or mean_effective_labels(model) is None:
        return None
    return GoldLabelsAdvice(items=MIN_GOLD_ITEMS)


def reliability_interval(model: Aggregator, level: float = 0.95) -> FloatArray:
    """Return an interval for each annotator's reliability on similar items, (A, 2), from a Beta distribution.

    The variance of the distribution has two parts. The first is the variance of n gold labels, which falls with n. The
    second does not fall, because classes are estimated from the crowd and an annotator's errors on similar items are
    correlated. On held-out halves
    of public data sets, the second part equals the variance of `MAX_EQUIVALENT_LABELS` gold labels
    (`benchmarks/trust/people.py`).
    """
    model._check_fitted()
    return beta_interval(model.reliability_, equivalent_gold_labels(model.total_), level)


def confusion_interval(model: Aggregator, level: float = 0.95) -> FloatArray:
    """Return an interval for every entry of `confusion_`, (A, K, K, 2), from Beta distributions with these means."""
    model._check_fitted()
    support = model.confusion_support()
    if support is None:
        raise NoConfusionIntervals(method=type(model).__name__)
    return beta_interval(model.confusion_, support, level)  # type: ignore[attr-defined]


# Reliability


def shrink_reliability(hits: FloatArray, total: FloatArray) -> FloatArray:
    """Return each annotator's expected share of correct labels, shrunk to the crowd's mean, (A,).

    `CROWD_PSEUDO_LABELS` labels of average quality are added to those of each annotator, so that three lucky labels do
    not make the best annotator. In simulated crowds of 2 to 20 classes this was closer to the truth than the share
    without shrinkage and than the diagonal of a smoothed confusion matrix, for annotators with few and with many
    labels.
    """
    average = hits.sum() / total.sum() if total.sum() > 0 else np.nan  # NaN if all weights are 0
    return np.asarray((hits + CROWD_PSEUDO_LABELS * average) / (total + CROWD_PSEUDO_LABELS))


def equivalent_gold_labels(total: FloatArray) -> FloatArray:
    """Return the number n of gold labels with equal evidence, (A,); a mean m then has the variance m(1 − m)/(n + 1)."""
    return np.asarray(1 / (1 / (total + CROWD_PSEUDO_LABELS + 1) + 1 / MAX_EQUIVALENT_LABELS) - 1)


def beta_interval(mean: FloatArray, size: FloatArray, level: float) -> FloatArray:
    """Return the central interval of Beta(mean·size, (1 − mean)·size), (…, 2); it is NaN if the mean is."""
    from scipy.special import betaincinv

    if not 0 < level < 1:
        raise LevelOutOfRange(level=level)
    a, b = mean * size, (1 - mean) * size
    tails = (1 - level) / 2, (1 + level) / 2
    unseen = (a <= 0) | (b <= 0)  # half an observation is added so that the interval has a width
    a, b = (np.where(unseen, count + 0.5, count) for count in (a, b))
    with np.errstate(invalid="ignore"):
        ends = [betaincinv(a, b, tail) for tail in tails]
    return np.stack([np.minimum(ends[0], mean), np.maximum(ends[1], mean)], axis=-1)
