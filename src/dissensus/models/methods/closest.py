"""Closest: the label of each item that is nearest to all others, weighted by annotator.

Use it for objects with a distance, such as boxes, texts or trees, when one of the given labels will do.

The true object t of item i is one of its labels, and labels near it are more likely. δ is the distance of two labels
and σ_j the error of annotator j, the mean distance of its labels from the truth:

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

MIN_SCALE = 1e-9  # least σ: all labels of all items may be the same
CHANCE_PAIRS = 5_000  # pairs of labels of different items that are compared
MAX_DISTANCES = 50_000_000  # rows × distinct labels of their items


@dataclass(frozen=True, eq=False)
class CandidateLabels:
    """The distinct labels of all items, and the distances of each item's rows from them."""

    item: IntArray  # (C,)
    label: IntArray  # (C,) code of the class
    row: IntArray  # (E,) row of the table
    candidate: IntArray  # (E,) candidate of the same item
    distance: FloatArray  # (E,)
    row_candidate: IntArray  # (N,) candidate that a row gave
    n_rows: IntArray  # (C,) number of rows that gave it


@methods.register(
    "closest", summary="objects with a distance: the label nearest to all others, by annotators' distances",
    cite="Braylan & Lease 2020",
)  # fmt: skip
class Closest(AnswerModel):
    """Objects with a distance; in memory."""

    distance: Any = param(
        "words", "of two labels: words, characters, boxes, or a function",
        check=lambda value: callable(value) or value in ("words", "characters", "boxes"),
        must="must be 'words', 'characters', 'boxes', or a function of two labels",
    )  # fmt: skip
    crowd_labels: float = param(5.0, "labels of average distance that are added to those of each annotator", above=0)
    max_iter: int = param(100, "rounds at most", low=1)
    tol: float = param(1e-4, "change of any σ, as a share, that ends them", low=0)
    dependence: DependenceChoice = DEPENDENCE

    kinds: ClassVar = ("objects",)
    missing_results: ClassVar = ("prior_",)

    error_: Annotated[FloatArray, "A real"]  # σ
    population_error_: Annotated[float, "number"]
    answer_names_: Annotated[Names, "I names"]  # empty for items without labels
    confidence_: Annotated[FloatArray, "I share"]
    expected_distance_: Annotated[FloatArray, "I real"]
    posterior_: Annotated[FloatArray, "I 1 share"]
    item_total_: Annotated[FloatArray, "I count"]

    def _check_gold(self, gold: Any, table: Any) -> None:
        if check_gold(gold, table) is not None:
            raise GoldNotUsed(method=type(self).__name__)

    def _fit(self, table: Annotations, gold: IntArray | None, on_step: OnStep) -> None:
        weight = table.row_weights
        found = find_candidates(table, self.distance)
        counted = weight * (np.diff(table.item_ptr) > 1)[table.item]  # single labels have no others to compare with
        n = np.bincount(table.annotator, counted, table.n_annotators)
        overall = max(float(found.distance.mean()), MIN_SCALE)
        error, trace = np.full(table.n_annotators, overall), []
        for step in range(1, self.max_iter + 1):
            off = counted * expected_distances(found, table, weight, error)
            overall = max(float(off.sum() / max(counted.sum(), MIN_SCALE)), MIN_SCALE)
            sums = np.bincount(table.annotator, off, table.n_annotators)
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
        self.answer_names_, self.confidence_, self.expected_distance_ = self._answer(table, weight, error, found)
        self.posterior_ = self.confidence_[:, None]  # of the answer; the contract requires a posterior
        self.total_ = np.bincount(table.annotator, weight, table.n_annotators).astype(np.float64)
        self.reliability_ = np.clip(1 - error / self._chance(table), 0, 1)
        self.hits_ = self.reliability_ * self.total_

    def predict(self, table: Annotations | None = None) -> Names:
        """(I,) the label of each item that is nearest to all others; empty for items without labels."""
        self._check_fitted()
        return self.answer_names_ if table is None else self.predict_answers(table)["answer_names_"]

    def predict_answers(self, table: Annotations) -> dict[str, Any]:
        self._check_fitted()
        check_label_type(self, table)
        annotators = naming.match_names(table.annotators, self.annotators_, "annotators")
        error = np.where(annotators < 0, self.population_error_, self.error_[annotators])
        weight = table.row_weights
        found = self._answer(table, weight, error, find_candidates(table, self.distance))
        return dict(zip(("answer_names_", "confidence_", "expected_distance_"), found, strict=True))

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

    def _answer(
        self, table: Annotations, weight: FloatArray, error: FloatArray, found: CandidateLabels
    ) -> tuple[Names, FloatArray, FloatArray]:
        total = np.bincount(table.item, weight, table.n_items)
        score = candidate_scores(found, table, weight, error) / design_effect(total, self.dependence_)[found.item]
        q = softmax_by_group(score, found.item, table.n_items)
        best = np.zeros(table.n_items, np.int64)
        order = np.lexsort((-found.label, q, found.item))  # the last of an item is its best; ties: the first name
        best[found.item[order]] = order
        some = total > 0
        label = np.full(table.n_items, "", object)
        label[some] = [str(name) for name in table.classes[found.label[best[some]]]]
        confidence = np.where(some, q[best] if q.size else 0.0, 0.0)
        between = pair_distances(table.classes, found.label, found.label[best[found.item]], self.distance)  # (C,)
        return label, confidence, np.asarray(np.bincount(found.item, q * between, table.n_items), np.float64)

    def _chance(self, table: Annotations) -> float:
        """Return the mean distance of labels of different items."""
        rng = np.random.default_rng(0)
        left, right = rng.integers(0, max(len(table), 1), (2, CHANCE_PAIRS))
        apart = table.item[left] != table.item[right]
        if not apart.any():
            return np.inf
        pairs = table.label[left[apart]], table.label[right[apart]]
        return max(float(pair_distances(table.classes, *pairs, self.distance).mean()), MIN_SCALE)


def find_candidates(table: Annotations, distance: ObjectDistance | Callable[[Any, Any], float]) -> CandidateLabels:
    """Return the distinct labels of every item with their distances to its rows; each pair is compared once."""
    K = max(table.n_classes, 1)
    pairs, own = np.unique(table.item.astype(np.int64) * K + table.label, return_inverse=True)
    item, label = pairs // K, pairs % K
    per_item = np.bincount(item, minlength=table.n_items)
    first = np.cumsum(per_item) - per_item
    entries = int(per_item[table.item].sum())
    if entries > MAX_DISTANCES:
        raise TooManyDistances(distances=entries, most=MAX_DISTANCES)
    row = np.repeat(np.arange(len(table)), per_item[table.item])
    at = concatenate_ranges(first[table.item], per_item[table.item])
    ends = np.sort(np.stack([table.label[row].astype(np.int64), label[at]]), axis=0)
    code, place = np.unique(ends[0] * K + ends[1], return_inverse=True)
    left, right = code // K, code % K
    apart = np.zeros(code.size)
    apart[left != right] = pair_distances(table.classes, left[left != right], right[left != right], distance)
    return CandidateLabels(item, label, row, at, apart[place], own, np.bincount(own, minlength=item.size))


def candidate_scores(found: CandidateLabels, table: Annotations, weight: FloatArray, error: FloatArray) -> FloatArray:
    """(C,) −Σ_j δ(y_ij, t) / σ_j."""
    given = weight[found.row] * found.distance / error[table.annotator[found.row]]
    return np.asarray(-np.bincount(found.candidate, given, found.item.size))


def expected_distances(found: CandidateLabels, table: Annotations, weight: FloatArray, error: FloatArray) -> FloatArray:
    """(N,) expected distance of each row from the truth by all other rows; 0 without other rows."""
    own = weight[found.row] * found.distance / error[table.annotator[found.row]]
    others = found.n_rows[found.candidate] > (found.row_candidate[found.row] == found.candidate)
    score = np.where(others, candidate_scores(found, table, weight, error)[found.candidate] + own, -np.inf)
    q = softmax_by_group(score, found.row, len(table))
    return np.asarray(np.bincount(found.row, q * found.distance, len(table)), np.float64)


def softmax_by_group(score: FloatArray, group: IntArray, n: int) -> FloatArray:
    """Return the softmax of scores within groups, 0 if all scores of a group are −inf."""
    most = np.full(n, -np.inf)
    np.maximum.at(most, group, score)
    most[~np.isfinite(most)] = 0
    part = np.exp(score - most[group])
    total = np.bincount(group, part, n)
    return np.asarray(np.divide(part, total[group], out=np.zeros_like(part), where=total[group] > 0))
