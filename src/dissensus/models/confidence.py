"""The uncertainty of a model's results: effective labels, and intervals of reliability and confusion matrices."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dissensus.common.types import FloatArray
from dissensus.evaluation import Estimate
from dissensus.models.exceptions import CollectGoldLabels, EffectiveLabelCount, LevelOutOfRange, NoConfusionIntervals
from dissensus.models.tempering import CORRELATION_INTERVAL, MIN_GOLD, design_effect

if TYPE_CHECKING:
    from dissensus.models.base import Aggregator

CROWD_LABELS = 5  # labels of average quality that shrink each reliability, see `shrink_reliability`
MAX_EQUIVALENT_LABELS = 20  # largest number of gold labels that labels without gold are worth


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
    """Return the mean effective number of labels per item, or None if labels are treated as independent."""
    model._check_fitted()
    if not model.dependence_:
        return None
    n, items = model.item_total_, model.items_.size
    if isinstance(n, np.ndarray):
        n = n[n > 0]
        items = n.size
    else:  # the numbers per item are in a cluster, so use their mean
        n = np.array([model.total_.sum() / items])
    if not n.size or n.max() <= 1:  # the model was saved without items, or items have one label
        return None
    rhos = np.minimum(
        [model.dependence_, *model.dependence_interval_[::-1]], 1.0
    )  # a larger ρ would mean less evidence than one label
    value, low, high = (float((n / design_effect(n, rho)).mean()) for rho in rhos)
    return EffectiveLabels(value, low, high, labels=float(model.n_annotations_.sum() / items))


def advise_gold_labels(model: Aggregator) -> CollectGoldLabels | None:
    """Return advice to collect gold labels if ρ is the default, or None."""
    known = model.dependence_interval_ != list(CORRELATION_INTERVAL)
    if known or model.items_.size <= MIN_GOLD or mean_effective_labels(model) is None:
        return None
    return CollectGoldLabels(items=MIN_GOLD)


def reliability_interval(model: Aggregator, level: float = 0.95) -> FloatArray:
    """Return an interval of each annotator's reliability on similar items, (A, 2), from a Beta distribution.

    Its variance has two parts. The first is that of n gold labels and falls with n. The second does not fall: the
    classes are estimated from the crowd, and an annotator's errors on similar items are correlated. On held-out halves
    of public data sets, the second part equals the variance of `MAX_EQUIVALENT_LABELS` gold labels
    (`benchmarks/trust/people.py`).
    """
    model._check_fitted()
    return beta_interval(model.reliability_, equivalent_gold_labels(model.total_), level)


def confusion_interval(model: Aggregator, level: float = 0.95) -> FloatArray:
    """Return an interval of every entry of `confusion_`, (A, K, K, 2), from Beta distributions with these means."""
    model._check_fitted()
    support = model.confusion_support()
    if support is None:
        raise NoConfusionIntervals(method=type(model).__name__)
    return beta_interval(model.confusion_, support, level)  # type: ignore[attr-defined]


# Reliability


def shrink_reliability(hits: FloatArray, total: FloatArray) -> FloatArray:
    """Return each annotator's expected share of correct labels, shrunk to the crowd's mean, (A,).

    `CROWD_LABELS` labels of average quality are added to each annotator's own, so that three lucky labels do not make
    the best annotator. In simulated crowds of 2 to 20 classes this was closer to the truth than the share without
    shrinkage and than the diagonal of a smoothed confusion matrix, for annotators with few and with many labels.
    """
    average = hits.sum() / total.sum() if total.sum() > 0 else np.nan  # NaN if all weights are 0
    return np.asarray((hits + CROWD_LABELS * average) / (total + CROWD_LABELS))


def equivalent_gold_labels(total: FloatArray) -> FloatArray:
    """Return the number n of gold labels with the same evidence, (A,); their variance is m(1 − m)/(n + 1)."""
    return np.asarray(1 / (1 / (total + CROWD_LABELS + 1) + 1 / MAX_EQUIVALENT_LABELS) - 1)


def beta_interval(mean: FloatArray, size: FloatArray, level: float) -> FloatArray:
    """Return the central interval of Beta(mean·size, (1 − mean)·size), (…, 2); NaN for a mean of NaN."""
    from scipy.special import betaincinv

    if not 0 < level < 1:
        raise LevelOutOfRange(level=level)
    a, b = mean * size, (1 - mean) * size
    tails = (1 - level) / 2, (1 + level) / 2
    unseen = (a <= 0) | (b <= 0)  # half an observation keeps the interval from having no width
    a, b = (np.where(unseen, count + 0.5, count) for count in (a, b))
    with np.errstate(invalid="ignore"):
        ends = [betaincinv(a, b, tail) for tail in tails]
    return np.stack([np.minimum(ends[0], mean), np.maximum(ends[1], mean)], axis=-1)
