"""Dawid-Skene: one confusion matrix per annotator, estimated together with the true classes by EM.

Use it when annotators confuse different classes and have a few dozen labels each.

Annotator j gives item i the label y_ij. It depends on the item's true class z_i and on the annotator's confusion matrix
Θ_j:

    z_i ~ Cat(π)      y_ij | z_i = c ~ Cat(Θ_j[c, :])      Θ_j[c, :] ~ Dirichlet(1 + a[c, :])      π ~ Dirichlet(1 + b)

EM starts from the shares of the votes and returns the most probable parameters. M_i are the annotators of item i, and
the equations are 2.3 to 2.5 of the paper with pseudo-counts a and b:

    E step   q_i(c) ∝ π_c Π_{j∈M_i} Θ_j[c, y_ij]
    M step   Θ_j[c, l] ∝ a[c, l] + Σ_{i: y_ij = l} q_i(c)        π_c ∝ b_c + Σ_i q_i(c)

- `posterior_` (I, K): q, the probability of each class
- `prior_` (K,): π, the class shares
- `confusion_` (A, K, K) [annotator, true, given]: Θ
- `pseudo_counts_` (K, K) [true, given] and `class_pseudo_counts_` (K,): a and b

Without pseudo-counts an annotator with three labels would be trusted as much as one with three hundred. Therefore every
annotator starts with the pseudo-counts a of a typical annotator of this table. v_i(c) is the share of item i's votes
for class c, and N the number of labels:

    a[c, l] = `crowd_labels`·K√K · Σ_{rows with y_ij = l} v_i(c) / N  +  `smoothing` · (1 if l ≠ c, K − 1 if l = c)

The first term is the confusion matrix that the crowd would have if the vote shares were the truth. The second term
keeps rare mistakes possible and assumes an accuracy of one half. If a row of a has fewer than `least_labels`
pseudo-counts, as for a rare class, pseudo-counts of an annotator of unknown quality are added
(`matrices.default_pseudo_counts`).

With few labels per annotator, the most probable parameters would put all items into one class. The pseudo-counts b_c =
`class_count` + `vote_count`·A·mean_i v_i(c) keep π near the vote shares. All pseudo-counts are fixed before EM.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np

from dissensus.common.parameters import Parameters, param
from dissensus.models.confusion import (
    SIMPLEX,
    ClassParams,
    ConfusionModel,
    Engine,
    ExpectedCounts,
    FloatArray,
    em_parameter,
    methods,
)
from dissensus.models.matrices import (
    MAX_PSEUDO_COUNT,
    MIN_PSEUDO_COUNT,
    PSEUDO_COUNT_LIMITS,
    class_pseudo_counts,
    default_pseudo_counts,
    sum_logs,
)


@dataclass(frozen=True)
class DawidSkeneParams(ClassParams):
    """Parameters of the EM: π (K,) and Θ (A, K, K) [annotator, true, given]."""

    confusion: FloatArray = em_parameter(SIMPLEX, "A K K")


class CrowdPseudoCounts(Parameters):
    """Parameters and values of the pseudo-counts a and b."""

    crowd_labels: float = param(
        1.25, "pseudo-labels of a typical annotator per class, times √K", low=0, high=MAX_PSEUDO_COUNT
    )
    smoothing: float = param(0.15, "pseudo-count of every wrong label", **PSEUDO_COUNT_LIMITS)
    least_labels: float = param(2.0, "minimum sum of pseudo-counts in a row", low=0, high=MAX_PSEUDO_COUNT)
    class_count: float = param(1.0, "pseudo-count of every class", **PSEUDO_COUNT_LIMITS)
    vote_count: float = param(
        0.5, "pseudo-items per annotator, with classes by the vote shares", low=0, high=MAX_PSEUDO_COUNT
    )

    pseudo_counts_: Annotated[FloatArray, "K K count"]
    class_pseudo_counts_: Annotated[FloatArray, "K count"]

    def crowd_factor(self, votes: ExpectedCounts) -> float:
        """Return the factor by which the pseudo-counts from the votes are multiplied."""
        return 1.0

    def prepare(self, votes: ExpectedCounts, engine: Engine) -> None:
        factor = self.crowd_factor(votes)
        self.pseudo_counts_ = crowd_pseudo_counts(
            votes.label_counts, factor * self.crowd_labels, self.smoothing, self.least_labels
        )
        self.class_pseudo_counts_ = class_pseudo_counts(engine, votes, self.class_count, factor * self.vote_count)


@methods.register(
    "dawid-skene", summary="a confusion matrix per annotator, learnt with the truth by EM", cite="Dawid & Skene 1979"
)
class DawidSkene(CrowdPseudoCounts, ConfusionModel[DawidSkeneParams]):
    """Estimate class posteriors and confusion matrices by EM."""

    Params, counts_ = DawidSkeneParams, property(lambda self: self.label_counts_)
    confusion_: FloatArray
    population_confusion_: Annotated[FloatArray, "K K simplex"]

    def label_likelihood(self, params: DawidSkeneParams) -> FloatArray:
        return params.confusion

    def m_step(self, label_counts: FloatArray, label_totals: FloatArray, params: Any) -> DawidSkeneParams:
        """Return Θ by equation 2.3 of Dawid & Skene (1979), with pseudo-counts."""
        counts = label_counts + self.pseudo_counts_
        return DawidSkeneParams(params.prior, counts / counts.sum(axis=2, keepdims=True))

    def log_prior(self, params: DawidSkeneParams) -> float:
        return float((self.pseudo_counts_ * sum_logs(params.confusion)).sum())

    def confusion_support(self) -> FloatArray:
        """Return the number of labels and pseudo-counts behind each row of Θ (A, K, 1)."""
        return np.asarray((self.label_counts_ + self.pseudo_counts_).sum(axis=2, keepdims=True))

    def set_derived_results(self) -> None:
        """Set the confusion matrix of an unseen annotator."""
        self.population_confusion_ = self.population_params(self._params()).confusion[0]


def crowd_pseudo_counts(labels: FloatArray, crowd_labels: float, smoothing: float, least_labels: float) -> FloatArray:
    """Return the pseudo-counts a (K, K) [true, given], given label counts (A, K, K) under the vote shares."""
    K = labels.shape[1]
    crowd = labels.sum(axis=0)
    crowd *= crowd_labels * K**1.5 / max(crowd.sum(), MIN_PSEUDO_COUNT)
    crowd += np.where(np.eye(K, dtype=bool), max((K - 1) * smoothing, MIN_PSEUDO_COUNT), smoothing)
    unknown = default_pseudo_counts(K)
    missing = np.maximum(least_labels - crowd.sum(axis=1, keepdims=True), 0)
    return np.asarray(crowd + unknown / unknown.sum(axis=1, keepdims=True) * missing)
