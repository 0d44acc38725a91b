"""BWA, Bayesian weighted averaging: votes weighted by each annotator's precision for each class.

Use it when annotators have few labels each. It takes a fraction of a second.

x_ijk is 1 if annotator j gave item i the label k, and 0 otherwise: a noisy measurement of the score z_ik.

    z_ik ~ N(μ_k, 1/λ)      x_ijk ~ N(z_ik, 1/v_jk)      v_jk ~ Gamma(1 + a/2, b_k/2)

Every pass raises Σ_jk (½(a + w_j) log v_jk − ½ v_jk (b_k + S_jk)) − ½ λ Σ_ik (z_ik − μ_k)² in turn:

    S_jk = Σ_{i∈M_j} w_ij (z_ik − x_ijk)²      v_jk = (a + w_j)/(b_k + S_jk)      w_j = Σ_{i∈M_j} w_ij
    μ_k  = mean of z_ik over labelled items
    z_ik = (λ μ_k + Σ_{j∈M_i} w_ij v_jk x_ijk)/(λ + Σ_{j∈M_i} w_ij v_jk)
    b_k  = a · 4(1 − 1/K) · mean of z_ik(1 − z_ik) over labels, at the vote shares

A repeated label counts once, as in the authors' program; after two different labels x_ijk is 1 for both. For a
probabilistic row x_ijk is the probability of k. w_ij is the weight.

- `precision_` (A, K): v
- `class_mean_` (K,): μ
- `posterior_` (I, K): z_ik / Σ_k z_ik

Reliability is the agreement with the class of the largest score. `confusion_` is counted after the fit.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Annotated, Any

import numpy as np

from dissensus.common.parameters import param
from dissensus.common.types import FloatArray, IntArray, OnStep
from dissensus.compute.chunk import apply_gold
from dissensus.models.base import Aggregator, methods
from dissensus.models.matrices import default_pseudo_counts, estimate_matrices
from dissensus.models.votes import winning_shares
from dissensus.table.annotations import Annotations

MIN_VARIANCE = 1e-6  # smallest b/a, for tables in which all annotators agree
MAX_WEIGHT = 1e9  # limit of a and λ


@methods.register("bwa", summary="votes weighted by each annotator's precision for each class", cite="Li et al. 2019")
class BWA(Aggregator):
    """Estimate class scores by a Gaussian model of each class, with a precision per annotator and class.

    >>> table = Annotations.from_arrays([1, 1, 1, 2, 2, 2, 3, 3], [1, 2, 3, 1, 2, 3, 2, 3], list("aabaabab"))
    >>> BWA().fit(table).predict().tolist()
    ['a', 'a', 'a']
    """

    precision_labels: float = param(
        15.0, "a: labels of average precision that are added to those of each annotator", above=0, high=MAX_WEIGHT
    )
    class_mean_weight: float = param(
        1.0, "λ: weight of the class mean in the mean of each item", above=0, high=MAX_WEIGHT
    )
    max_iter: int = param(500, "passes over the data at most", low=1)
    tol: float = param(1e-3, "stop when no z changes by more than this share of it", low=0)

    precision_: Annotated[FloatArray, "A K real"]
    population_precision_: Annotated[FloatArray, "K real"]
    class_mean_: Annotated[FloatArray, "K real"]
    confusion_: Annotated[FloatArray, "A K K simplex"]
    population_confusion_: Annotated[FloatArray, "K K simplex"]

    def _fit(self, table: Annotations, gold: IntArray | None, on_step: OnStep) -> None:
        ratings, a = IndicatorLabels.from_table(table, self.items_.size), self.precision_labels
        informative = ratings.item_weights > 0 if gold is None else (ratings.item_weights > 0) | (gold >= 0)
        z: FloatArray = apply_gold(ratings.vote_shares(), gold)
        rate = a * np.maximum(
            4 * (1 - 1 / table.n_classes) * ratings.mean_over_labels(ratings.vote_shares()), MIN_VARIANCE
        )
        weight, change = ratings.annotator_weights[:, None], np.inf
        trace: list[float] = []
        self.converged_ = False
        while len(trace) < self.max_iter and not self.converged_:
            if informative.any():
                self.class_mean_ = z[informative].mean(axis=0)
            else:
                self.class_mean_ = np.full(table.n_classes, 1 / table.n_classes)
            errors = ratings.squared_errors(z)
            self.precision_ = (a + weight) / (rate + errors)
            scatter = self.class_mean_weight * np.square(z[informative] - self.class_mean_).sum()
            trace.append(float((0.5 * (a + weight) * (np.log(self.precision_) - 1)).sum() - 0.5 * scatter))
            on_step(len(trace), trace[-1])
            last, z = z, apply_gold(self._average(ratings, self.precision_), gold)
            change = float(np.abs(z - last).max(initial=0))
            self.converged_ = bool((np.abs(z - last) <= self.tol * np.abs(z)).all())
        self.trace_, self.n_iter_ = np.array(trace), len(trace)
        if not self.converged_:
            self._warn_unconverged("passes", "a score", change)
        self.population_precision_ = (a + weight.sum()) / (rate + errors.sum(axis=0))
        self.prior_ = self.class_mean_ / self.class_mean_.sum()
        self.posterior_ = normalise(z)
        once = count_ratings_once(table, self.items_.size)
        self._set_reliability(*self._count_agreement(once, self.posterior_))
        matrices = estimate_matrices(once, self.posterior_, default_pseudo_counts(table.n_classes))
        self.confusion_, self.population_confusion_ = matrices.confusion, matrices.population

    def _average(self, ratings: IndicatorLabels, precision: FloatArray) -> FloatArray:
        """Return z (I, K) for precisions (A, K)."""
        votes, weights = ratings.weighted_votes(precision)
        own = self.class_mean_weight
        return np.asarray((own * self.class_mean_ + votes) / (own + weights))

    def _count_agreement(self, table: Annotations, posterior: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the weight of labels that agree with the estimated class, and of all labels (A,)."""
        return super()._count_agreement(table, winning_shares(posterior))

    def _compute_posterior(self, table: Annotations, annotators: IntArray) -> FloatArray:
        everyone = np.concatenate([self.precision_, self.population_precision_[None]])  # code −1 takes the last row
        return normalise(self._average(IndicatorLabels.from_table(table, table.n_items), everyone[annotators]))


@dataclass(frozen=True)
class IndicatorLabels:
    """The ratings of a table, one per pair of item and annotator, as sparse entries.

    `pairs` (I, A) holds w_ij. The other fields have one entry per rating and class with x > 0.
    """

    pairs: Any
    n_classes: int
    item: IntArray
    annotator: IntArray
    label: IntArray
    weight: FloatArray  # w
    score: FloatArray  # x

    @classmethod
    def from_table(cls, table: Annotations, n_items: int) -> IndicatorLabels:
        """Return the ratings of a table; rows of items from `n_items` on, which are earlier counts, are not merged."""
        from scipy.sparse import csr_array

        I, A, K = table.n_items, table.n_annotators, table.n_classes
        item, rating = table.item, rating_of_row(table, n_items)
        first = np.flatnonzero(np.diff(rating, prepend=-1))
        heaviest = np.zeros(first.size)
        np.maximum.at(heaviest, rating, table.row_weights)
        score = table.row_weights / np.maximum(heaviest[rating], np.finfo(float).tiny)
        if table.proba is None:
            row, label = np.arange(len(table)), table.label.astype(np.int64)
        else:
            row, label = np.nonzero(table.proba)
            score = score[row] * table.proba[row, label]
        cell, entry = np.unique(rating[row] * np.int64(K) + label, return_inverse=True)
        highest = np.zeros(cell.size)
        np.maximum.at(highest, entry, score)
        owner = first[cell // K]
        pairs = csr_array((heaviest, (item[first], table.annotator[first])), (I, A))
        return cls(pairs, K, item[owner], table.annotator[owner], cell % K, heaviest[cell // K], highest)

    @cached_property
    def item_weights(self) -> FloatArray:
        """Return the weight of the ratings of each item (I,)."""
        return np.asarray(self.pairs.sum(axis=1), np.float64)

    @cached_property
    def annotator_weights(self) -> FloatArray:
        """Return the weight of the ratings of each annotator (A,)."""
        return np.asarray(self.pairs.sum(axis=0), np.float64)

    def _sum_by(self, owner: IntArray, size: int, values: FloatArray) -> FloatArray:
        """Return the sums of one value per entry by owner and class, (size, K)."""
        sums = np.bincount(owner.astype(np.int64) * self.n_classes + self.label, values, size * self.n_classes)
        return sums.reshape(size, self.n_classes).astype(np.float64)

    def vote_shares(self) -> FloatArray:
        """Return the weighted means of x (I, K), which are 1/K without ratings."""
        total = self.item_weights[:, None]
        votes = self._sum_by(self.item, len(total), self.weight * self.score)
        return np.where(total > 0, votes / np.where(total > 0, total, 1.0), 1 / self.n_classes)

    def mean_over_labels(self, z: FloatArray) -> FloatArray:
        """Return the mean of z (1 − z) over all ratings, (K,)."""
        return np.asarray(self.item_weights @ (z * (1 - z)) / max(self.item_weights.sum(), np.finfo(float).tiny))

    def squared_errors(self, z: FloatArray) -> FloatArray:
        """Return S (A, K), the weighted squares of z − x."""
        entries = self.weight * self.score * (self.score - 2 * z[self.item, self.label])
        errors = self.pairs.T @ np.square(z) + self._sum_by(self.annotator, self.annotator_weights.size, entries)
        return np.asarray(np.maximum(errors, 0.0))

    def weighted_votes(self, precision: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return Σ_j w v x and Σ_j w v of each item and class, (I, K), for precisions (A, K)."""
        entries = self.weight * self.score * precision[self.annotator, self.label]
        return self._sum_by(self.item, self.item_weights.size, entries), self.pairs @ precision


def rating_of_row(table: Annotations, n_items: int) -> IntArray:
    """Return the number of each row's rating (N,); rows of items from `n_items` on are ratings by themselves."""
    item, annotator = table.item, table.annotator
    return np.cumsum(np.append(True, (np.diff(item) != 0) | (np.diff(annotator) != 0) | (item[1:] >= n_items))) - 1


def count_ratings_once(table: Annotations, n_items: int) -> Annotations:
    """Return the table with weights by which the rows of a rating share the largest of their weights."""
    rating, weight = rating_of_row(table, n_items), table.row_weights
    heaviest = np.zeros(rating[-1] + 1)
    np.maximum.at(heaviest, rating, weight)
    total = np.maximum(np.bincount(rating, weight), np.finfo(float).tiny)
    return replace(table, weight=weight * (heaviest / total)[rating])


def normalise(z: FloatArray) -> FloatArray:
    """Return scores (I, K) as shares."""
    return np.asarray(z / z.sum(axis=1, keepdims=True))
