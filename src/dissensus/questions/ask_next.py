"""What to ask about next where labels are no classes: the answers that are expected to tell most, greedily.

| kind | to ask about | gain of one more answer |
|---|---|---|
| numbers | an item | ½ log(1 + v E[a²]/σ²): v the variance of its value, a and σ those of a typical annotator |
| pairs | two things | ½ log(1 + c (V_ll + V_rr − 2 V_lr)): V the variance of scores, c the information in an answer |
| sets | an item | Σ over options, I(tick; option), of the crowd's hits and false ticks |
| spans | a document | Σ over its places, I(tag; truth), of the crowd's confusions |
| objects | an item | `expected_distance_`: how far off its answer is expected to be |

All but the last in nats. c = (P(left) + P(right) − (P(left) − P(right))²) / 4, as the crowd answers; after each choice
V is what would then be known.
Every item is asked about once in a batch, whoever answers; a pair of things may come again. Of grades and classes,
`questions.recommend` says whom to ask as well.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import entr

from dissensus.common.formatting import percent
from dissensus.common.frames import as_frame
from dissensus.common.notebook import Shown
from dissensus.common.types import FloatArray, Names
from dissensus.exceptions import BadParameter
from dissensus.models.tempering import design_effect
from dissensus.table.annotations import Annotations
from dissensus.table.kinds import VERSUS

MAX_THINGS = 2_000  # all pairs of which are looked at
MIN_GAIN = 1e-6  # below, an answer tells nothing


@dataclass(frozen=True, eq=False, repr=False)
class Wanted(Shown):
    """What to ask about, the first first; one entry each in every array."""

    kind: str
    items: Names  # (n,) items, documents of spans, or "A vs B"
    gain: FloatArray  # (n,)
    labels: FloatArray  # (n,) how many answers there are so far
    candidates: int  # that there were to choose from
    total: float  # gain that all candidates have together; of pairs, of the first choice of each

    def __len__(self) -> int:
        return int(self.items.size)

    def __repr__(self) -> str:
        return f"Wanted: {self.verdict()}"

    def verdict(self) -> str:
        """Say what to ask about, and how much of what is open it is."""
        what = {"pairs": "pairs of things", "spans": "documents"}.get(self.kind, "items")
        if not len(self):
            return (
                f"Nothing is left to ask here: one more answer about any of {self.candidates:,} {what} tells nothing."
            )
        word = "expected distance" if self.kind == "objects" else "information"
        if self.kind == "pairs":
            distinct = len({frozenset(str(one).split(VERSUS)) for one in self.items})
            return f"Ask for {len(self):,} more comparisons, of {distinct:,} of {self.candidates:,} pairs of things."
        share = percent(float(self.gain.sum()) / max(self.total, 1e-300))
        said = f"Ask once more about {len(self):,} of {self.candidates:,} {what}, whoever answers"
        return f"{said}: they hold {share} of the {word} to be had."

    def to_frame(self, backend: Any = None) -> Any:
        """One row per answer to ask for, the first first."""
        head: dict[str, Any] = {"rank": np.arange(1, len(self) + 1)}
        if self.kind == "pairs":
            sides = [str(one).split(VERSUS) for one in self.items]
            head |= {side: np.array([two[k] for two in sides], object) for k, side in enumerate(("left", "right"))}
        else:
            head["document" if self.kind == "spans" else "item"] = self.items
        return as_frame(head | {"gain": self.gain, "labels": self.labels}, backend)


def ask_next(model: Any, table: Annotations, *, budget: float) -> Wanted:
    """Choose the answers to ask for next.

    Parameters
    ----------
    model : fitted to the table, which is of any kind but classes and grades
    table : Annotations
    budget : int
        How many answers; of spans, how many readings of a document.

    >>> from dissensus import methods
    >>> from dissensus.table.simulate import simulate_kind
    >>> table = simulate_kind("pairs", 60, 5, n_things=6).annotations
    >>> len(ask_next(methods["bradley-terry"]().fit(table), table, budget=4))
    4
    """
    if budget < 1:
        raise BadParameter(f"budget must be at least 1, got {budget:g}; of such labels every answer costs 1.")
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
    _, variance = model._posterior(table, np.arange(table.n_annotators))
    v = np.minimum(variance * design_effect(model.item_total_, model.dependence_), model.theta_prior_[1])
    _, a, _, va, s2 = np.median(model.spread_, axis=0)
    return table.items, 0.5 * np.log1p(v * (a**2 + va) / s2), _per_item(table)


def _pairs(model: Any, table: Annotations, budget: int) -> Found:
    from dissensus.models.methods.bradley_terry import Games

    T = model.things_.size
    if T > MAX_THINGS:
        raise BadParameter(f"{T:,} things have too many pairs to look at all; rank up to {MAX_THINGS:,} of them.")
    left, right = np.triu_indices(T, 1)
    p = model._outcomes(Games.unplayed(left, right, T), np.full(left.size, -1))
    information = ((p[:, 0] + p[:, 1]) - (p[:, 0] - p[:, 1]) ** 2) / 4
    V = model.score_variance_.copy()
    games = np.zeros((T, T))
    sides = table.sides
    np.add.at(games, (sides.left[table.item], sides.right[table.item]), table.row_weights)
    games += games.T
    asked: list[str] = []
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
        if len(asked) % 2:
            one, other = other, one  # either side stands left as often
        asked.append(f"{model.things_[one]}{VERSUS}{model.things_[other]}")
        gains.append(float(gain[best]))
        before.append(float(games[one, other]))
    return np.array(asked, object), np.array(gains), np.array(before)


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
    lonely = (_per_item(table) < 2) * max(float(model.population_error_), 0.0)  # one answer is not checked by anybody
    return table.items, np.maximum(model.expected_distance_, lonely), _per_item(table)


FINDERS: dict[str, Callable[[Any, Annotations, int], Found]] = {
    "numbers": _numbers, "pairs": _pairs, "sets": _sets, "spans": _spans, "objects": _objects,
}  # fmt: skip
