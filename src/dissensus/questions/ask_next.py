"""What to ask about next if labels are no classes: the answers with the largest expected gain, greedily.

| kind | to ask about | gain of one more answer |
|---|---|---|
| numbers | an item | ½ log(1 + v E[a²]/σ²): v the variance of its value, a and σ those of a typical annotator |
| pairs | two things | ½ log(1 + c (V_ll + V_rr − 2 V_lr)): V the variance of scores, c the information in an answer |
| sets | an item | Σ over options, I(selected; option), of the crowd's hits and false selections |
| spans | a document | Σ over its places, I(tag; truth), of the crowd's confusions |
| objects | an item | `expected_distance_`: the expected distance of its answer to the truth |

All but the last in nats. c = (P(left) + P(right) − (P(left) − P(right))²) / 4, as the crowd answers; after each choice
V is updated. Every item is asked about once in a batch, by any annotator; a pair of things may be repeated. For grades
and classes, `questions.recommend` chooses annotators as well.
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
from dissensus.questions.exceptions import BudgetBelowOne, TooManyThings
from dissensus.questions.findings import AnswersToAsk, ComparisonsToAsk, NothingToAskNext
from dissensus.table.annotations import Annotations
from dissensus.table.kinds import PAIR_SEPARATOR

MAX_THINGS = 2_000  # things of which all pairs are examined
MIN_GAIN = 1e-6  # smaller gains count as none


@dataclass(frozen=True, eq=False, repr=False)
class Wanted(NotebookTable):
    """What to ask about, in this order; one entry each in every array."""

    kind: str
    items: Names  # (n,) items, documents of spans, or "A vs B"
    gain: FloatArray  # (n,)
    labels: FloatArray  # (n,) answers so far
    candidates: int  # to choose from
    total: float  # gain of all candidates together; of pairs, of the chosen ones

    def __len__(self) -> int:
        return int(self.items.size)

    def __repr__(self) -> str:
        return f"Wanted: {self.verdict()}"

    def verdict(self) -> str:
        """Return what to ask about, and its share of the gain of all candidates."""
        return str(self.finding())

    def finding(self) -> Message:
        """Return what to ask about, and its share of the gain of all candidates."""
        what = {"pairs": "pairs of things", "spans": "documents"}.get(self.kind, "items")
        if not len(self):
            return NothingToAskNext(candidates=self.candidates, what=what)
        if self.kind == "pairs":
            pairs = len({frozenset(str(one).split(PAIR_SEPARATOR)) for one in self.items})
            return ComparisonsToAsk(n=len(self), pairs=pairs, candidates=self.candidates)
        return AnswersToAsk(
            n=len(self), candidates=self.candidates, what=what, share=Share(self.gain.sum() / max(self.total, 1e-300)),
            gain="expected distance" if self.kind == "objects" else "information",
        )  # fmt: skip

    def to_frame(self, backend: Any = None) -> Any:
        """Return a frame with one row per answer to ask for, in this order."""
        head: dict[str, Any] = {"rank": np.arange(1, len(self) + 1)}
        if self.kind == "pairs":
            sides = [str(one).split(PAIR_SEPARATOR) for one in self.items]
            head |= {side: np.array([two[k] for two in sides], object) for k, side in enumerate(("left", "right"))}
        else:
            head["document" if self.kind == "spans" else "item"] = self.items
        return columns_to_frame(head | {"gain": self.gain, "labels": self.labels}, backend)


def ask_next(model: Any, table: Annotations, *, budget: float) -> Wanted:
    """Choose the answers to ask for next.

    Parameters
    ----------
    model : fitted to the table, which is of any kind but classes and grades
    table : Annotations
    budget : int
        Number of answers; of spans, number of readings of a document.

    >>> from dissensus import methods
    >>> from dissensus.table.simulate import simulate_kind
    >>> table = simulate_kind("pairs", 60, 5, n_things=6).annotations
    >>> len(ask_next(methods["bradley-terry"]().fit(table), table, budget=4))
    4
    """
    if budget < 1:
        raise BudgetBelowOne(budget=budget)
    names, gain, labels = FINDERS[table.kind](model, table, int(budget))
    if table.kind == "pairs":
        T = model.things_.size
        return Wanted("pairs", names, gain, labels, T * (T - 1) // 2, float(gain.sum()))
    order = np.lexsort((np.arange(gain.size), labels, -gain))[: int(budget)]
    order = order[gain[order] > MIN_GAIN]
    return Wanted(table.kind, names[order], gain[order], labels[order], names.size, float(gain.sum()))


Found = tuple[Names, FloatArray, FloatArray]


def _per_item(table: Annotations) -> FloatArray:
    return np.diff(table.item_ptr).astype(np.float64)


def _numbers(model: Any, table: Annotations, budget: int) -> Found:
    _, variance = model.latent_posterior(table, np.arange(table.n_annotators))
    v = np.minimum(variance * design_effect(model.item_total_, model.dependence_), model.theta_prior_[1])
    _, a, _, va, s2 = np.median(model.spread_, axis=0)
    return table.items, 0.5 * np.log1p(v * (a**2 + va) / s2), _per_item(table)


def _pairs(model: Any, table: Annotations, budget: int) -> Found:
    from dissensus.models.methods.bradley_terry import Comparisons

    T = model.things_.size
    if T > MAX_THINGS:
        raise TooManyThings(things=T, most=MAX_THINGS)
    left, right = np.triu_indices(T, 1)
    p = model.outcome_probabilities(Comparisons.without_answers(left, right, T), np.full(left.size, -1))
    information = ((p[:, 0] + p[:, 1]) - (p[:, 0] - p[:, 1]) ** 2) / 4
    V = model.score_variance_.copy()
    games = np.zeros((T, T))
    sides = table.alternatives
    np.add.at(games, (sides.left[table.item], sides.right[table.item]), table.row_weights)
    games += games.T
    chosen: list[str] = []
    gains, before = [], []
    for _ in range(budget):
        variance = np.diag(V)[left] + np.diag(V)[right] - 2 * V[left, right]
        gain = 0.5 * np.log1p(information * np.maximum(variance, 0))
        best = int(gain.argmax())
        if gain[best] <= MIN_GAIN:
            break
        one, other = left[best], right[best]
        away = V[:, one] - V[:, other]
        V -= np.outer(away, away) * (information[best] / (1 + information[best] * variance[best]))
        if len(chosen) % 2:
            one, other = other, one  # so that either side is left equally often
        chosen.append(f"{model.things_[one]}{PAIR_SEPARATOR}{model.things_[other]}")
        gains.append(float(gain[best]))
        before.append(float(games[one, other]))
    return np.array(chosen, object), np.array(gains), np.array(before)


def _sets(model: Any, table: Annotations, budget: int) -> Found:
    q, hit, miss = model.posterior_, model.population_hit_, model.population_false_tick_
    tick = q * hit + (1 - q) * miss
    noise = q * _binary(hit) + (1 - q) * _binary(miss)
    return table.items, (_binary(tick) - noise).sum(axis=1), _per_item(table)


def _binary(p: FloatArray) -> FloatArray:
    return np.asarray(entr(p) + entr(1 - p))


def _spans(model: Any, table: Annotations, budget: int) -> Found:
    q, crowd, where = model.posterior_, model.population_confusion_, table.sequences
    gain = entr(q @ crowd).sum(axis=1) - q @ entr(crowd).sum(axis=1)
    total = np.bincount(where.document, np.maximum(gain, 0), where.documents.size)
    readings = np.unique(where.document[table.item] * np.int64(table.n_annotators) + table.annotator)
    readers = np.bincount(readings // table.n_annotators, minlength=where.documents.size)
    return where.documents, np.asarray(total, np.float64), readers.astype(np.float64)


def _objects(model: Any, table: Annotations, budget: int) -> Found:
    unchecked = (_per_item(table) < 2) * max(float(model.population_error_), 0.0)  # one answer is unchecked
    return table.items, np.maximum(model.expected_distance_, unchecked), _per_item(table)


FINDERS: dict[str, Callable[[Any, Annotations, int], Found]] = {
    "numbers": _numbers, "pairs": _pairs, "sets": _sets, "spans": _spans, "objects": _objects,
}  # fmt: skip
