"""Wawa, worker agreement with aggregate: an annotator's vote weighs as much as it agrees with the majority.

    m_i(c) = 1/T_i for the T_i classes with the most votes of item i, 0 for the others; known classes: 1
    s_j    = Σ_{rows of j} w m_i(y) / Σ_{rows of j} w
    q_i(c) = Σ_{rows of i with y = c} w s_j / Σ_{rows of i} w s_j        tied classes: ∝ that times 1 + EDGE · v_c

| symbol | name | shape |
|---|---|---|
| m | outcome of the vote | (I, K), never made |
| s | skill | (A,) |
| w | weight of a row | (N,), 1 where the table has none |
| q | posterior | (I, K) |
| v | prior, the classes' shares of all weighted votes | (K,) |

Tied classes share the outcome m: s is the agreement expected of a fair draw, and neither names nor order decide. In the
answer q a tie goes to the class that more votes of the whole crowd are for, which is right more often than a draw where
classes are uneven (plank_pos: two annotators of equal skill) and as often where they are even; classes that tie in that
too are left to the draw. EDGE is too little to be seen, or to decide what is no tie. Rows of
j are those on items with other annotators, or of known class: alone one agrees with oneself, and where all are equally
good a single such label would decide every tie (plank_pos: two annotators, and one item with one label). If everyone is
alone everywhere, all rows count. A probabilistic row counts in parts, as one row per class.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from dissensus.common.types import BoolArray, FloatArray, IntArray, OnStep
from dissensus.compute.engines import in_memory, place
from dissensus.compute.engines.base import Block, Engine, Pass, Rows, Size, Sums
from dissensus.compute.engines.local import Threads
from dissensus.compute.kernels import vote as kernels
from dissensus.evaluation.hard import TIE
from dissensus.models.base import methods
from dissensus.models.methods.majority_vote import MajorityVote
from dissensus.models.methods.one_coin import leaning
from dissensus.table.annotations import Annotations

EDGE = 1e-6  # how much a tie leans to the class with more votes elsewhere; above TIE, so that it is one no longer


@methods.register(
    "wawa", summary="a vote weighs as much as its annotator agrees with the majority", cite="Ustalov et al. 2024"
)
class Wawa(MajorityVote):
    """Majority vote, then once more with every annotator weighed by its agreement with the first.

    >>> table = Annotations.from_arrays([1, 1, 1, 2, 2, 2, 3, 3], [1, 2, 3, 1, 2, 3, 2, 3], list("aabaabab"))
    >>> Wawa().fit(table).skill_.round(2)
    array([1.  , 0.83, 0.17])
    """

    skill_: FloatArray
    population_skill_: float

    def _fit(self, table: Annotations, gold: IntArray | None, on_step: OnStep) -> None:
        with place(self, table, gold) as engine:
            vote = SkilledVote(engine)
            self._conclude(vote, vote.agreement(vote.first.hits))
        self.trace_, self.n_iter_, self.converged_ = np.empty(0), 1, True
        on_step(1, float("nan"))

    def _conclude(self, vote: SkilledVote, skill: FloatArray) -> FloatArray:
        """Set the results that follow from the skills; returns the agreement with the last vote, (A,) summed weight."""
        sums = vote(skill)
        self.skill_ = skill
        self.population_skill_ = vote.population(vote.total * skill)
        K = vote.engine.size.n_classes
        total = float(sums.votes.sum())
        self.prior_ = sums.votes / total if total > 0 else np.full(K, 1 / K)
        self._conclude_on(vote.engine, skill, leaning(self.prior_, EDGE))
        self._judge(sums.hits, vote.total)
        return sums.hits

    def _newcomer(self) -> dict[str, Any]:
        return {"skill_": self.population_skill_}

    def _update(
        self, table: Annotations, item: IntArray, annotator: IntArray, old: BoolArray, gold: IntArray | None
    ) -> FloatArray:
        """New votes weigh by the skills, those of before by the population's; then the skills by all agreement."""
        skill, total = self.skill_[annotator], self.total_[annotator]
        new = skilled_votes(table, skill)
        weight = self.item_total_[item]
        before = self.posterior_[item] * (weight * self.population_skill_)[:, None]
        posterior = self._more_votes(table, item, before, weight, new)
        if gold is not None:
            posterior[gold >= 0] = np.eye(table.n_classes)[gold[gold >= 0]]
        agreed, more = self._agreement(table, posterior)
        weights = np.maximum(total + more, np.finfo(float).tiny)
        self.skill_ = self.skill_.copy()
        self.skill_[annotator] = np.where(total + more > 0, (skill * total + agreed) / weights, skill)
        return posterior

    def _agreement(self, table: Annotations, posterior: FloatArray) -> tuple[FloatArray, FloatArray]:
        """With the outcome of the vote, in which ties are ties whatever they lean to."""
        tied = posterior >= posterior.max(axis=1, keepdims=True, initial=0) * (1 - EDGE)
        return super()._agreement(table, tied / tied.sum(axis=1, keepdims=True))

    def _shares(self, votes: FloatArray) -> FloatArray:
        """Shares of the votes, ties leaning to the class with more votes elsewhere; without votes the prior."""
        shares = super()._shares(votes)
        kernels.lean_on_ties(votes, leaning(self.prior_, EDGE), TIE, shares)
        return shares

    def _score(self, table: Annotations, known: IntArray) -> FloatArray:
        return self._shares(skilled_votes(table, np.append(self.skill_, self.population_skill_)[known]))


def judged_items(table: Annotations, gold: IntArray | None) -> BoolArray:
    """(I,) which items can tell about their annotators: those of several, or of known class; all if there are none."""
    judged = np.zeros(table.n_items, np.bool_)
    some = np.flatnonzero(np.diff(table.item_ptr))
    judged[some] = table.annotator[table.item_ptr[some]] != table.annotator[table.item_ptr[some + 1] - 1]  # in order
    if gold is not None:
        judged |= gold >= 0
    return judged if judged.any() else ~judged


def judged_labels(table: Annotations, rows: Rows, gold: IntArray | None) -> FloatArray:
    """(A,) weight of each annotator's labels on `judged_items`."""
    weight = np.repeat(judged_items(table, gold), np.diff(rows.item_ptr)).astype(float)
    if rows.weight is not None:
        weight *= rows.weight
    return np.asarray(np.bincount(rows.annotator, weight, table.n_annotators), np.float64)


def skilled_votes(table: Annotations, skill: FloatArray) -> FloatArray:
    """(I, K) sums of weight · skill (A,) of the labels of each item."""
    votes = np.empty((table.n_items, table.n_classes))
    with in_memory(table, None, None) as engine:
        engine.sweep(SkillPass(), skill, {"votes": votes})
    return votes


@dataclass(frozen=True)
class Outcome(Sums):
    """What a vote tells about its annotators."""

    by_annotator: ClassVar = ("hits", "total")
    hits: FloatArray  # (A,) weight of each annotator's labels that agree with the outcome
    total: FloatArray  # (A,) weight of all its labels on items that can tell
    votes: FloatArray  # (K,) sums of all votes
    judged: int  # items that can tell


@dataclass(frozen=True)
class SkillPass(Pass[FloatArray, Outcome, Any]):
    """A vote in which annotators have skills (A,); may write `votes`. `alone`: all items tell about annotators."""

    alone: bool = False

    def open(self, params: FloatArray, size: Size, workers: int, pool: Threads) -> list[Any]:
        """Skills and the sums of each worker."""
        A, K = size.n_annotators, size.n_classes
        return [(params, np.zeros(A), np.zeros(A), np.zeros(K), np.zeros(1, np.int64)) for _ in range(workers)]

    def walk(self, block: Block, buffer: Any, out: Mapping[str, Any]) -> None:
        """`kernels.vote.skilled_vote`."""
        skill, hits, total, sums, judged = buffer
        rows = block.rows
        judged[0] += kernels.skilled_vote(
            block.start, block.stop, rows.item_ptr, rows.annotator, rows.label, rows.weight,
            skill, block.gold, self.alone, TIE, hits, total, sums, out.get("votes"),
        )  # fmt: skip

    def close(self, buffers: list[Any], pool: Threads) -> Outcome:
        """The sums of all workers."""
        _, hits, total, votes, judged = (list(part) for part in zip(*buffers, strict=True))
        return Outcome(sum(hits), sum(total), sum(votes), int(sum(judged)[0]))

    def on_torch(self, params: FloatArray, data: Any, out: Mapping[str, Any]) -> Outcome:
        """The same in torch."""
        from dissensus.compute.kernels import on_torch

        return Outcome(*on_torch.skilled_vote(data, params, self.alone, TIE))


class SkilledVote:
    """Votes over the items of one table, again and again with other skills."""

    def __init__(self, engine: Engine):
        self.engine, self.walk = engine, SkillPass()
        self.first = self(np.ones(engine.size.n_annotators))  # all count the same
        if self.first.judged == 0:  # everyone is alone everywhere
            self.walk = SkillPass(alone=True)
            self.first = self(np.ones(engine.size.n_annotators))
        self.total = self.first.total

    def __call__(self, skill: FloatArray) -> Outcome:
        """The vote with these skills (A,)."""
        return self.engine.sweep(self.walk, skill)

    def agreement(self, hits: FloatArray) -> FloatArray:
        """(A,) the share of each annotator's labels that agree; the population's for one without labels."""
        own = self.total > 0
        return np.where(own, hits / np.where(own, self.total, 1), self.population(hits))

    def population(self, hits: FloatArray) -> float:
        """The share of all labels that agree."""
        return float(hits.sum() / max(self.total.sum(), np.finfo(float).tiny))
