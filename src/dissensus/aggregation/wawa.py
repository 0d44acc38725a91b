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

from typing import Any

import numpy as np

from dissensus._types import BoolArray, FloatArray, IntArray, OnStep
from dissensus.aggregation.dawid_skene import Rows, hard_rows
from dissensus.aggregation.majority_vote import MajorityVote
from dissensus.aggregation.one_coin import leaning
from dissensus.annotations import Annotations
from dissensus.base import methods
from dissensus.evaluation.hard import TIE
from dissensus.kernels import vote as kernels

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
        vote = SkilledVote(table, gold)
        skill = vote.agreement(vote.hits(np.ones(table.n_annotators)))
        self._conclude(vote, skill)
        self.trace_, self.n_iter_, self.converged_ = np.empty(0), 1, True
        on_step(1, float("nan"))

    def _conclude(self, vote: SkilledVote, skill: FloatArray) -> FloatArray:
        """Set the results that follow from the skills; returns the agreement with the last vote, (A,) summed weight."""
        votes = np.empty((vote.rows.item_ptr.size - 1, vote.n_classes))
        hits = vote.hits(skill, votes)
        total = float(votes.sum())
        self.skill_ = skill
        self.population_skill_ = vote.population(vote.total * skill)
        self.prior_ = votes.sum(axis=0) / total if total > 0 else np.full(vote.n_classes, 1 / vote.n_classes)
        self.posterior_ = self._shares(votes)
        self.item_total_ = np.diff(vote.rows.item_ptr).astype(float)
        if vote.rows.weight is not None:
            self.item_total_ = np.add.reduceat(np.append(vote.rows.weight, 0.0), vote.rows.item_ptr[:-1])
            self.item_total_[np.diff(vote.rows.item_ptr) == 0] = 0.0
        if vote.gold is not None:
            known = vote.gold >= 0
            self.posterior_[known] = np.eye(vote.n_classes)[vote.gold[known]]
        self._judge(hits, vote.total)
        return hits

    def _newcomer(self) -> dict[str, Any]:
        return {"skill_": self.population_skill_}

    def _update(
        self, table: Annotations, item: IntArray, annotator: IntArray, old: BoolArray, gold: IntArray | None
    ) -> FloatArray:
        """New votes weigh by the skills, those of before by the population's; then the skills by all agreement."""
        vote, skill, total = SkilledVote(table, gold), self.skill_[annotator], self.total_[annotator]
        new = np.empty((table.n_items, table.n_classes))
        vote.hits(skill, new)
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
        votes = np.empty((table.n_items, table.n_classes))
        SkilledVote(table, None).hits(np.append(self.skill_, self.population_skill_)[known], votes)
        return self._shares(votes)


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


class SkilledVote:
    """Votes over the rows of one table, again and again with other skills."""

    def __init__(self, table: Annotations, gold: IntArray | None):
        self.rows: Rows = hard_rows(table)
        self.gold, self.n_classes = gold, table.n_classes
        self.judged = judged_items(table, gold)
        self.total = judged_labels(table, self.rows, gold)  # (A,)

    def hits(self, skill: FloatArray, votes: FloatArray | None = None) -> FloatArray:
        """(A,) weight of each annotator's labels that agree with the vote; `votes` (I, K) gets its sums."""
        rows = self.rows
        return np.asarray(
            kernels.skilled_vote(
                rows.item_ptr,
                rows.annotator,
                rows.label,
                rows.weight,
                skill,
                self.gold,
                self.judged,
                self.n_classes,
                TIE,
                votes,
            )
        )

    def agreement(self, hits: FloatArray) -> FloatArray:
        """(A,) the share of each annotator's labels that agree; the population's for one without labels."""
        own = self.total > 0
        return np.where(own, hits / np.where(own, self.total, 1), self.population(hits))

    def population(self, hits: FloatArray) -> float:
        """The share of all labels that agree."""
        return float(hits.sum() / max(self.total.sum(), np.finfo(float).tiny))
