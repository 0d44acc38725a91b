"""Closest: the label of each item that is nearest to all others, weighted by annotator.

Use it for objects with a distance, such as boxes, texts or trees, when one of the given labels is a good enough answer.

The true object t of item i is one of its labels, and labels near t are more likely. δ is the distance of two labels,
and σ_j is the error of annotator j, the mean distance of its labels from the truth:

    P(y_ij | t) ∝ exp(−δ(y_ij, t) / σ_j)

σ_j is estimated with the leave-one-out posterior q_i⁻ʲ, which ignores j's own label, until it converges. n_j is the
number of j's labels, and `crowd_labels` labels of the average error σ are added:

    q_i(t)   ∝ exp(−Σ_j δ(y_ij, t) / σ_j)                      over the distinct labels t of item i
    q_i⁻ʲ(t) ∝ exp(−Σ_{k≠j} δ(y_ik, t) / σ_k)                  over the labels of the other annotators
    σ_j      = (`crowd_labels` σ + Σ_i Σ_t q_i⁻ʲ(t) δ(y_ij, t)) / (`crowd_labels` + n_j)

The answer is the label with the largest q. `confidence_` is its tempered probability (`models.tempering`),
`expected_distance_` is Σ_t q_i(t) δ(answer, t), and `error_` (A,) is σ. `reliability_` is 1 − σ_j / (mean distance of
labels of different items), or 0 if that is negative.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import numpy as np

from dissensus.common.arrays import concatenate_ranges
from dissensus.common.parameters import param
from dissensus.common.types import FloatArray, IntArray, Names, OnStep
from dissensus.evaluation.distances import ObjectDistance, pair_distances
from dissensus.models.answers import AnswerModel, summarise_confidence
from dissensus.models.base import check_gold, methods
from dissensus.models.exceptions import GoldNotUsed, NoClassProbabilities, TooManyDistances
from dissensus.models.fitting import check_label_type
from dissensus.models.tempering import DEPENDENCE, DependenceChoice, design_effect
from dissensus.table import names as naming
from dissensus.table.annotations import Annotations

MIN_ERROR_SCALE = 1e-9  # lower limit of σ, which is 0 if all labels are the same
N_CHANCE_PAIRS = 5_000  # number of pairs of labels of different items; they give the distance by chance
MAX_DISTANCES = 50_000_000  # maximum number of distances in memory; a row has one per label of its item


@dataclass(frozen=True, eq=False)
class CandidateLabels:
    """The distinct labels of each item, called candidates, and the distances of the item's rows from them."""

    item: IntArray  # (C,) item of each candidate
    label: IntArray  # (C,) class code of each candidate
    row: IntArray  # (E,) row of each distance
    candidate: IntArray  # (E,) candidate of each distance
    distance: FloatArray  # (E,) distance of the row's label from the candidate
    row_candidate: IntArray  # (N,) candidate that equals the row's label
    n_rows: IntArray  # (C,) number of rows with this label


@methods.register(
    "closest", summary="objects with a distance: the label nearest to all others, by annotators' distances",
    cite="Braylan & Lease 2020",
)  # fmt: skip
class Closest(AnswerModel):
    """Choose the label of each item that is nearest to all others, for objects with a distance."""

    distance: Any = param(
        "words", "distance of two labels, by words, characters or boxes, or a function of two labels",
        check=lambda value: callable(value) or value in ("words", "characters", "boxes"),
        must="must be 'words', 'characters', 'boxes', or a function of two labels",
    )  # fmt: skip
    crowd_labels: float = param(
        5.0, "number of labels of average distance that are added to those of each annotator", above=0
    )
    max_iter: int = param(100, "largest number of rounds", low=1)
    tol: float = param(1e-4, "stop when no σ changes by more than this share", low=0)
    dependence: DependenceChoice = DEPENDENCE

    kinds: ClassVar = ("objects",)
    missing_results: ClassVar = ("prior_",)

    error_: Annotated[FloatArray, "A real"]  # σ of each annotator
    population_error_: Annotated[float, "number"]
    answer_names_: Annotated[Names, "I names"]  # the empty string for items without labels
    confidence_: Annotated[FloatArray, "I share"]
    expected_distance_: Annotated[FloatArray, "I real"]
    posterior_: Annotated[FloatArray, "I 1 share"]
    item_total_: Annotated[FloatArray, "I count"]

    def _check_gold(self, gold: Any, table: Any) -> None:
        if check_gold(gold, table) is not None:
            raise GoldNotUsed(method=type(self).__name__)

    def _fit(self, table: Annotations, gold: IntArray | None, on_step: OnStep) -> None:
        weight = table.row_weights
        candidates = find_candidates(table, self.distance)
        counted = weight * (np.diff(table.item_ptr) > 1)[table.item]  # a single label cannot be compared
        n = np.bincount(table.annotator, counted, table.n_annotators)
        overall = max(float(candidates.distance.mean()), MIN_ERROR_SCALE)
        error, trace = np.full(table.n_annotators, overall), []
        for step in range(1, self.max_iter + 1):
            distances = counted * expected_distances(candidates, table, weight, error)
            overall = max(float(distances.sum() / max(counted.sum(), MIN_ERROR_SCALE)), MIN_ERROR_SCALE)
            sums = np.bincount(table.annotator, distances, table.n_annotators)
            new = (self.crowd_labels * overall + sums) / (self.crowd_labels + n)
            change, error = float(np.abs(new / error - 1).max(initial=0)), new
            trace.append(-overall)
            on_step(step, trace[-1])
            if change <= self.tol:
                break
        self.trace_, self.n_iter_, self.converged_ = np.array(trace), len(trace), change <= self.tol
        if not self.converged_:
            self._warn_unconverged("rounds", "a distance", change)
        self.error_, self.population_error_ = error, overall
        self.item_total_ = np.bincount(table.item, weight, table.n_items).astype(np.float64)
        self.answer_names_, self.confidence_, self.expected_distance_ = self._choose_answers(
            table, weight, error, candidates
        )
        self.posterior_ = self.confidence_[:, None]  # P(answer); the contract requires a posterior
        self.total_ = np.bincount(table.annotator, weight, table.n_annotators).astype(np.float64)
        self.reliability_ = np.clip(1 - error / self._chance_distance(table), 0, 1)
        self.hits_ = self.reliability_ * self.total_

    def predict(self, table: Annotations | None = None) -> Names:
        """Return the label of each item that is nearest to all others (I,), empty for items without labels."""
        self._check_fitted()
        return self.answer_names_ if table is None else self.predict_answers(table)["answer_names_"]

    def predict_answers(self, table: Annotations) -> dict[str, Any]:
        self._check_fitted()
        check_label_type(self, table)
        annotators = naming.match_names(table.annotators, self.annotators_, "annotators")
        error = np.where(annotators < 0, self.population_error_, self.error_[annotators])
        weight = table.row_weights
        answers = self._choose_answers(table, weight, error, find_candidates(table, self.distance))
        return dict(zip(("answer_names_", "confidence_", "expected_distance_"), answers, strict=True))

    def predict_proba(self, table: Annotations | None = None) -> FloatArray:
        """Raise an error: objects have no class probabilities."""
        raise NoClassProbabilities(labels="objects", instead="confidence_")

    predict_annotations = predict_proba

    def _frame_columns(self, kind: str) -> dict[str, Any]:
        if kind == "items":
            columns = {"item": self.items_, "label": self.answer_names_, "confidence": self.confidence_}
            return columns | {"expected_distance": self.expected_distance_}
        return super()._frame_columns(kind) | {"error": self.error_}

    def summarise_answers(self, gold: IntArray | None = None) -> dict[str, Any]:
        return summarise_confidence(self, gold)

    def _choose_answers(
        self, table: Annotations, weight: FloatArray, error: FloatArray, candidates: CandidateLabels
    ) -> tuple[Names, FloatArray, FloatArray]:
        total = np.bincount(table.item, weight, table.n_items)
        score = candidate_scores(candidates, table, weight, error)
        score = score / design_effect(total, self.dependence_)[candidates.item]
        q = softmax_by_group(score, candidates.item, table.n_items)
        best = np.zeros(table.n_items, np.int64)
        # The last candidate of an item has the largest q; ties go to the first name.
        order = np.lexsort((-candidates.label, q, candidates.item))
        best[candidates.item[order]] = order
        labelled = total > 0
        label = np.full(table.n_items, "", object)
        label[labelled] = [str(name) for name in table.classes[candidates.label[best[labelled]]]]
        confidence = np.where(labelled, q[best] if q.size else 0.0, 0.0)
        to_answer = pair_distances(
            table.classes, candidates.label, candidates.label[best[candidates.item]], self.distance
        )
        return label, confidence, np.asarray(np.bincount(candidates.item, q * to_answer, table.n_items), np.float64)

    def _chance_distance(self, table: Annotations) -> float:
        """Return the mean distance between labels of different items."""
        rng = np.random.default_rng(0)
        left, right = rng.integers(0, max(len(table), 1), (2, N_CHANCE_PAIRS))
        apart = table.item[left] != table.item[right]
        if not apart.any():
            return np.inf
        pairs = table.label[left[apart]], table.label[right[apart]]
        return max(float(pair_distances(table.classes, *pairs, self.distance).mean()), MIN_ERROR_SCALE)


def find_candidates(table: Annotations, distance: ObjectDistance | Callable[[Any, Any], float]) -> CandidateLabels:
    """Return the distinct labels of every item and their distances from its rows; each distance is computed once."""
    K = max(table.n_classes, 1)
    pairs, own = np.unique(table.item.astype(np.int64) * K + table.label, return_inverse=True)
    item, label = pairs // K, pairs % K
    per_item = np.bincount(item, minlength=table.n_items)
    first = np.cumsum(per_item) - per_item
    entries = int(per_item[table.item].sum())
    if entries > MAX_DISTANCES:
        raise TooManyDistances(distances=entries, max_distances=MAX_DISTANCES)
    row = np.repeat(np.arange(len(table)), per_item[table.item])
    candidate = concatenate_ranges(first[table.item], per_item[table.item])
    ends = np.sort(np.stack([table.label[row].astype(np.int64), label[candidate]]), axis=0)
    code, index = np.unique(ends[0] * K + ends[1], return_inverse=True)
    left, right = code // K, code % K
    apart = np.zeros(code.size)
    apart[left != right] = pair_distances(table.classes, left[left != right], right[left != right], distance)
    return CandidateLabels(item, label, row, candidate, apart[index], own, np.bincount(own, minlength=item.size))


def candidate_scores(
    candidates: CandidateLabels, table: Annotations, weight: FloatArray, error: FloatArray
) -> FloatArray:
    """Return the score −Σ_j δ(y_ij, t) / σ_j of each candidate (C,)."""
    given = weight[candidates.row] * candidates.distance / error[table.annotator[candidates.row]]
    return np.asarray(-np.bincount(candidates.candidate, given, candidates.item.size))


def expected_distances(
    candidates: CandidateLabels, table: Annotations, weight: FloatArray, error: FloatArray
) -> FloatArray:
    """Return each row's expected distance (N,) from the truth, estimated from the item's other rows; 0 without any."""
    given = weight[candidates.row] * candidates.distance / error[table.annotator[candidates.row]]
    others = candidates.n_rows[candidates.candidate] > (
        candidates.row_candidate[candidates.row] == candidates.candidate
    )
    score = np.where(others, candidate_scores(candidates, table, weight, error)[candidates.candidate] + given, -np.inf)
    q = softmax_by_group(score, candidates.row, len(table))
    return np.asarray(np.bincount(candidates.row, q * candidates.distance, len(table)), np.float64)


def softmax_by_group(score: FloatArray, group: IntArray, n: int) -> FloatArray:
    """Return the softmax of scores within groups, or 0 where all scores of a group are −inf."""
    most = np.full(n, -np.inf)
    np.maximum.at(most, group, score)
    most[~np.isfinite(most)] = 0
    exponential = np.exp(score - most[group])
    total = np.bincount(group, exponential, n)
    return np.asarray(np.divide(exponential, total[group], out=np.zeros_like(exponential), where=total[group] > 0))
