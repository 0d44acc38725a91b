"""Recommend which answers to collect next, by expected gain, for labels that are not classes.

| label type | recommended | gain of one more answer |
|---|---|---|
| numbers | an item | ½ log(1 + v E[a²]/σ²); v is the variance of its value, a and σ belong to a typical annotator |
| pairs | two alternatives | ½ log(1 + c (V_ll + V_rr − 2 V_lr)); V is the covariance of scores, c is given below |
| sets | an item | Σ over options of I(selected; option), with the mean hits and false selections of annotators |
| spans | a document | Σ over positions of I(tag; truth), with the mean confusions of annotators |
| objects | an item | `expected_distance_`, the expected distance between its answer and the truth |

All gains except the last one are in nats. For a typical annotator, c = (P(left) + P(right) − (P(left) − P(right))²) /
4; V is updated after each choice. A batch contains each item at most once, for any annotator; a pair of alternatives
may be repeated. For grades and classes, `questions.recommend` also chooses the annotators.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import entr

from dissensus.common.formatting import Share
from dissensus.common.frames import columns_to_frame
from dissensus.common.notebook import NotebookTable
from dissensus.common.types import FloatArray, Names
from dissensus.messages import Message
from dissensus.models.tempering import design_effect
from dissensus.questions.exceptions import BudgetBelowOne, TooManyAlternatives
from dissensus.questions.findings import AnswersToCollect, ComparisonsToCollect, NoInformativeItem
from dissensus.table.annotations import Annotations
from dissensus.table.kinds import PAIR_SEPARATOR

MAX_ALTERNATIVES = 2_000  # maximum number of alternatives, because all their pairs are kept in memory
MIN_GAIN_IN_NATS = 1e-6  # nats; smaller gains are rounding errors
RECOMMENDED_UNITS = {
    "pairs": "pairs of alternatives",
    "spans": "documents",
}  # label type → noun for what is recommended; "items" for other types


@dataclass(frozen=True, eq=False, repr=False)
class RecommendedItems(NotebookTable):
    """Recommended items in the order of choice; every array has one entry per recommended answer."""

    kind: str
    items: Names  # (n,) names of items, of documents of spans, or of pairs as "A vs B"
    gain: FloatArray  # (n,)
    labels: FloatArray  # (n,) number of answers so far
    candidates: int  # number of items to choose from
    total_gain: float  # total gain of all candidates; for pairs, of the chosen ones

    def __len__(self) -> int:
        return int(self.items.size)

    def __repr__(self) -> str:
        return f"RecommendedItems: {self.verdict()}"

    def verdict(self) -> str:
        """Return the recommendation in one sentence."""
        return str(self.finding())

    def finding(self) -> Message:
        """Return a message with the recommended number of answers and their share of the total gain."""
        what = RECOMMENDED_UNITS.get(self.kind, "items")
        if not len(self):
            return NoInformativeItem(candidates=self.candidates, unit=what)
        if self.kind == "pairs":
            pairs = len({frozenset(str(name).split(PAIR_SEPARATOR)) for name in self.items})
            return ComparisonsToCollect(n=len(self), pairs=pairs, candidates=self.candidates)
        return AnswersToCollect(
            n=len(self), candidates=self.candidates, unit=what,
            share=Share(self.gain.sum() / max(self.total_gain, 1e-300)),
            gain="expected distance to the truth" if self.kind == "objects" else "expected information",
        )  # fmt: skip

    def to_frame(self, backend: Any = None) -> Any:
        """Return a frame with one row per recommended answer, in the order of choice."""
        columns: dict[str, Any] = {"rank": np.arange(1, len(self) + 1)}
        if self.kind == "pairs":
            sides = [str(name).split(PAIR_SEPARATOR) for name in self.items]
            columns |= {side: np.array([two[k] for two in sides], object) for k, side in enumerate(("left", "right"))}
        else:
            columns["document" if self.kind == "spans" else "item"] = self.items
        return columns_to_frame(columns | {"gain": self.gain, "labels": self.labels}, backend)


def recommend_items(model: Any, table: Annotations, *, budget: float) -> RecommendedItems:
    """Recommend the answers to collect next.

    Parameters
    ----------
    model : Aggregator
        A model fitted to the table.
    table : Annotations
        A table of any label type except classes and grades.
    budget : int
        Number of answers to collect. For spans, an answer is one annotator's labels of a document.

    Returns
    -------
    RecommendedItems
        The items, documents or pairs in the order of choice.

    >>> from dissensus import methods
    >>> from dissensus.table.simulate import simulate_kind
    >>> table = simulate_kind("pairs", 60, 5, n_things=6).annotations
    >>> len(recommend_items(methods["bradley-terry"]().fit(table), table, budget=4))
    4
    """
    if budget < 1:
        raise BudgetBelowOne(budget=budget)
    if table.kind == "pairs":
        n_alternatives = model.things_.size
        names, gain, labels = _choose_pairs(model, table, int(budget))
        n_pairs = n_alternatives * (n_alternatives - 1) // 2
        return RecommendedItems("pairs", names, gain, labels, n_pairs, float(gain.sum()))
    names, gain, labels = GAIN_FUNCTIONS[table.kind](model, table)
    order = np.lexsort((np.arange(gain.size), labels, -gain))[: int(budget)]
    order = order[gain[order] > MIN_GAIN_IN_NATS]
    return RecommendedItems(table.kind, names[order], gain[order], labels[order], names.size, float(gain.sum()))


ItemGains = tuple[Names, FloatArray, FloatArray]
"""Names of the items, gain of one more answer on each, and number of answers so far."""


def _choose_pairs(model: Any, table: Annotations, budget: int) -> ItemGains:
    """Choose pairs of alternatives one by one, and update the posterior covariance of scores after each choice."""
    from dissensus.models.methods.bradley_terry import Comparisons

    n_alternatives = model.things_.size
    if n_alternatives > MAX_ALTERNATIVES:
        raise TooManyAlternatives(alternatives=n_alternatives, max_alternatives=MAX_ALTERNATIVES)
    left, right = np.triu_indices(n_alternatives, 1)
    p = model.outcome_probabilities(Comparisons.without_answers(left, right, n_alternatives), np.full(left.size, -1))
    information = ((p[:, 0] + p[:, 1]) - (p[:, 0] - p[:, 1]) ** 2) / 4
    V = model.score_variance_.copy()
    n_compared = np.zeros((n_alternatives, n_alternatives))
    sides = table.alternatives
    np.add.at(n_compared, (sides.left_codes[table.item], sides.right_codes[table.item]), table.row_weights)
    n_compared += n_compared.T
    chosen: list[str] = []
    gains, labels = [], []
    for _ in range(budget):
        variance = np.diag(V)[left] + np.diag(V)[right] - 2 * V[left, right]
        gain = 0.5 * np.log1p(information * np.maximum(variance, 0))
        best = int(gain.argmax())
        if gain[best] <= MIN_GAIN_IN_NATS:
            break
        first, second = left[best], right[best]
        covariance = V[:, first] - V[:, second]
        V -= np.outer(covariance, covariance) * (information[best] / (1 + information[best] * variance[best]))
        if len(chosen) % 2:  # alternate the sides, so that neither alternative is always on the left
            first, second = second, first
        chosen.append(f"{model.things_[first]}{PAIR_SEPARATOR}{model.things_[second]}")
        gains.append(float(gain[best]))
        labels.append(float(n_compared[first, second]))
    return np.array(chosen, object), np.array(gains), np.array(labels)


def _compute_number_gains(model: Any, table: Annotations) -> ItemGains:
    _, variance = model.latent_posterior(table, np.arange(table.n_annotators))
    v = np.minimum(variance * design_effect(model.item_total_, model.dependence_), model.theta_prior_[1])
    _, a, _, va, s2 = np.median(model.spread_, axis=0)
    return table.items, 0.5 * np.log1p(v * (a**2 + va) / s2), _count_labels(table)


def _compute_set_gains(model: Any, table: Annotations) -> ItemGains:
    q, hit, false_selection = model.posterior_, model.population_hit_, model.population_false_tick_
    selected = q * hit + (1 - q) * false_selection
    noise = q * _binary_entropy(hit) + (1 - q) * _binary_entropy(false_selection)
    return table.items, (_binary_entropy(selected) - noise).sum(axis=1), _count_labels(table)


def _compute_span_gains(model: Any, table: Annotations) -> ItemGains:
    q, confusion, sequences = model.posterior_, model.population_confusion_, table.sequences
    gain = entr(q @ confusion).sum(axis=1) - q @ entr(confusion).sum(axis=1)
    total = np.bincount(sequences.document, np.maximum(gain, 0), sequences.documents.size)
    readings = np.unique(sequences.document[table.item] * np.int64(table.n_annotators) + table.annotator)
    readers = np.bincount(readings // table.n_annotators, minlength=sequences.documents.size)
    return sequences.documents, np.asarray(total, np.float64), readers.astype(np.float64)


def _compute_object_gains(model: Any, table: Annotations) -> ItemGains:
    labels = _count_labels(table)
    # A single answer is not confirmed by another one
    unchecked = (labels < 2) * max(float(model.population_error_), 0.0)
    return table.items, np.maximum(model.expected_distance_, unchecked), labels


def _count_labels(table: Annotations) -> FloatArray:
    return np.diff(table.item_ptr).astype(np.float64)


def _binary_entropy(p: FloatArray) -> FloatArray:
    return np.asarray(entr(p) + entr(1 - p))


GAIN_FUNCTIONS: dict[str, Callable[[Any, Annotations], ItemGains]] = {
    "numbers": _compute_number_gains, "sets": _compute_set_gains,
        "spans": _compute_span_gains, "objects": _compute_object_gains,
}  # fmt: skip
