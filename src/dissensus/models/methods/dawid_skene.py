"""Dawid & Skene (1979): every annotator has a confusion matrix; truth and matrices are learnt together by EM.

    z_i ~ Cat(π)      y_ij | z_i = c ~ Cat(Θ_j[c, :])      Θ_j[c, :] ~ Dirichlet(1 + a[c, :])      π ~ Dirichlet(1 + b)

E step (Eq. 2.5, Dawid & Skene 1979):
    q_i(c) ∝ π_c Π_{j∈M_i} Θ_j[c, y_ij]
M step (Eqs. 2.3 and 2.4, ibid., with pseudo-counts):
    Θ_j[c, l] ∝ a[c, l] + Σ_{i: y_ij = l} q_i(c)        π_c ∝ b_c + Σ_i q_i(c)

| symbol | name | shape |
|---|---|---|
| q | posterior | (I, K) |
| π | prior | (K,) |
| Θ | confusion | (A, K, K) [annotator, true, given] |
| a | `pseudo_` | (K, K) [true, given] |
| b | `class_pseudo_` | (K,) |
| v | the shares of the votes | (I, K) |

Without pseudo-counts an annotator with three labels is trusted as much as one with three hundred, and the posterior is
far overconfident. So every annotator starts with labels of a typical member of this crowd, and a few of every class:

    a[c, l] = `crowd_labels`·K√K · Σ_{rows with y_ij = l} v_i(c) / N + `smoothing`·(1 where l ≠ c, K − 1 where l = c)

The first part has the shape of the crowd's own confusion if the shares of the votes were the truth; the second keeps
rare mistakes possible and assumes an accuracy of one half. The votes contain few labels of a rare class: a row with
fewer than `least_labels` pseudo-counts is filled up with those of an unknown annotator (`expected_pseudo`). All are
fixed before EM begins.

If annotators have few labels each, their matrices can explain any labels, and in the most probable crowd all items are
of one class. So pseudo-counts that grow with the number of matrices keep π near the shares of the votes:
b_c = `class_count` + `vote_count`·A·mean_i v_i(c).
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
from dissensus.models.matrices import MAX_PSEUDO, MIN_PSEUDO, PSEUDO, class_pseudo, expected_pseudo, log_sum


@dataclass(frozen=True)
class Confusions(ClassParams):
    """The parameters: π (K,) and Θ (A, K, K) [annotator, true, given]."""

    confusion: FloatArray = em_parameter(SIMPLEX, "A K K")


class CrowdPseudo(Parameters):
    """The keywords of a and b."""

    crowd_labels: float = param(1.25, "labels of the crowd per class, times √K", low=0, high=MAX_PSEUDO)
    smoothing: float = param(0.15, "pseudo-count of every wrong label", **PSEUDO)
    least_labels: float = param(2.0, "least pseudo-counts of a row", low=0, high=MAX_PSEUDO)
    class_count: float = param(1.0, "pseudo-count of every class", **PSEUDO)
    vote_count: float = param(0.5, "pseudo-items per annotator, of classes as voted", low=0, high=MAX_PSEUDO)

    pseudo_: Annotated[FloatArray, "K K count"]
    class_pseudo_: Annotated[FloatArray, "K count"]

    def crowd_factor(self, votes: ExpectedCounts) -> float:
        """Return the factor of the crowd's part."""
        return 1.0

    def prepare(self, votes: ExpectedCounts, engine: Engine) -> None:
        factor = self.crowd_factor(votes)
        self.pseudo_ = crowd_pseudo(votes.labels, factor * self.crowd_labels, self.smoothing, self.least_labels)
        self.class_pseudo_ = class_pseudo(engine, votes, self.class_count, factor * self.vote_count)


@methods.register(
    "dawid-skene", summary="a confusion matrix per annotator, learnt with the truth by EM", cite="Dawid & Skene 1979"
)
class DawidSkene(CrowdPseudo, ConfusionModel[Confusions]):
    """MAP Dawid-Skene."""

    Params, counts_ = Confusions, property(lambda self: self.labels_)
    confusion_: FloatArray
    population_confusion_: Annotated[FloatArray, "K K simplex"]

    def label_likelihood(self, params: Confusions) -> FloatArray:
        return params.confusion

    def m_step(self, labels: FloatArray, totals: FloatArray, params: Any) -> Confusions:
        """Return Θ by eq. 2.3, Dawid & Skene 1979, with pseudo-counts."""
        counts = labels + self.pseudo_
        return Confusions(params.prior, counts / counts.sum(axis=2, keepdims=True))

    def log_prior(self, params: Confusions) -> float:
        return float((self.pseudo_ * log_sum(params.confusion)).sum())

    def confusion_support(self) -> FloatArray:
        """(A, K, 1) Return labels and pseudo-counts of each row of Θ."""
        return np.asarray((self.labels_ + self.pseudo_).sum(axis=2, keepdims=True))

    def set_derived_results(self) -> None:
        """Set the matrix of an unseen annotator."""
        self.population_confusion_ = self.population_params(self._params()).confusion[0]


def crowd_pseudo(labels: FloatArray, crowd_labels: float, smoothing: float, least_labels: float) -> FloatArray:
    """(K, K) [true, given] pseudo-counts a; `labels` (A, K, K) are those of the votes."""
    K = labels.shape[1]
    crowd = labels.sum(axis=0)
    crowd *= crowd_labels * K**1.5 / max(crowd.sum(), MIN_PSEUDO)
    crowd += np.where(np.eye(K, dtype=bool), max((K - 1) * smoothing, MIN_PSEUDO), smoothing)
    unknown = expected_pseudo(K)
    missing = np.maximum(least_labels - crowd.sum(axis=1, keepdims=True), 0)
    return np.asarray(crowd + unknown / unknown.sum(axis=1, keepdims=True) * missing)
