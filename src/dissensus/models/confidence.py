"""How confident a model's results are: effective labels, and intervals of reliabilities and confusion matrices."""

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

CROWD_LABELS = 5  # labels of average quality added to every annotator's own, see `reliability`
MAX_EQUIVALENT_LABELS = (
    20  # labels with known true class that any number of labels is worth; see `reliability_interval`
)


@dataclass(frozen=True)
class EffectiveLabels(Estimate):
    """The mean effective number of labels per item; its interval is that of ρ.

    This is not the number of independent judges in a panel, which follows from the correlation of their errors
    (`questions.panel_review`).
    """

    labels: float = np.nan  # mean number of labels per item

    def __str__(self) -> str:
        return str(EffectiveLabelCount(labels=self.labels, value=self.value, low=self.low, high=self.high))


def effective_labels(model: Aggregator) -> FloatArray:
    """(I,) effective number of labels of each item."""
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
    else:  # in a cluster: an item with the mean number of labels stands for all
        n = np.array([model.total_.sum() / items])
    if not n.size or n.max() <= 1:  # a model that was saved without its items, or one label per item
        return None
    rhos = np.minimum([model.dependence_, *model.dependence_interval_[::-1]], 1.0)  # beyond 1, less than one label
    value, low, high = (float((n / design_effect(n, rho)).mean()) for rho in rhos)
    return EffectiveLabels(value, low, high, labels=float(model.n_annotations_.sum() / items))


def advise_gold_labels(model: Aggregator) -> CollectGoldLabels | None:
    """Return advice to collect gold labels if nothing else determines ρ."""
    known = model.dependence_interval_ != list(CORRELATION_INTERVAL)
    if known or model.items_.size <= MIN_GOLD or mean_effective_labels(model) is None:
        return None
    return CollectGoldLabels(items=MIN_GOLD)


def reliability_interval(model: Aggregator, level: float = 0.95) -> FloatArray:
    """(A, 2) bounds of each annotator's reliability on items like these: of a Beta distribution.

    Its variance has two parts: that of n labels with a known true class, which falls with n, and one that does not: the
    true class is only the crowd's, and an annotator who errs on an item errs on others like it. By gold, on held-out
    halves of public sets, that part is as large as with `MAX_KNOWN_LABELS` labels (`benchmarks/trust/people.py`).
    """
    model._check_fitted()
    return beta_interval(model.reliability_, equivalent_gold_labels(model.total_), level)


def confusion_interval(model: Aggregator, level: float = 0.95) -> FloatArray:
    """(A, K, K, 2) bounds of every entry of `confusion_`, each Beta distributed with that mean."""
    model._check_fitted()
    support = model.confusion_support()
    if support is None:
        raise NoConfusionIntervals(method=type(model).__name__)
    return beta_interval(model.confusion_, support, level)  # type: ignore[attr-defined]


# Reliability


def shrink_reliability(hits: FloatArray, total: FloatArray) -> FloatArray:
    """(A,) how often an annotator is right: the share of its labels that are right by the posterior, shrunk.

    `CROWD_LABELS` labels of average quality are added to every annotator's own: three lucky labels make no one the
    best. Against the truth of simulated crowds (2 to 20 classes) this was closer than the diagonal of a smoothed
    confusion matrix and than the bare share, for annotators with few labels and with many.
    """
    average = hits.sum() / total.sum() if total.sum() > 0 else np.nan  # NaN if no label counts
    return np.asarray((hits + CROWD_LABELS * average) / (total + CROWD_LABELS))


def equivalent_gold_labels(total: FloatArray) -> FloatArray:
    """(A,) number of labels with known true class that carry the same evidence: n give variance m(1 − m)/(n + 1)."""
    return np.asarray(1 / (1 / (total + CROWD_LABELS + 1) + 1 / MAX_EQUIVALENT_LABELS) - 1)


def beta_interval(mean: FloatArray, size: FloatArray, level: float) -> FloatArray:
    """(…, 2) the central interval of Beta(mean·size, (1 − mean)·size); NaN where the mean is."""
    from scipy.special import betaincinv

    if not 0 < level < 1:
        raise LevelOutOfRange(level=level)
    a, b = mean * size, (1 - mean) * size
    tails = (1 - level) / 2, (1 + level) / 2
    unseen = (a <= 0) | (b <= 0)  # half an event of the kind that was not seen leaves room for doubt
    a, b = (np.where(unseen, count + 0.5, count) for count in (a, b))
    with np.errstate(invalid="ignore"):
        ends = [betaincinv(a, b, tail) for tail in tails]
    return np.stack([np.minimum(ends[0], mean), np.maximum(ends[1], mean)], axis=-1)
