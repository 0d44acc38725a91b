"""Wawa, worker agreement with aggregate: votes are weighted by the annotator's agreement with the majority.

Use it as a quick weighted vote that takes one pass and is easy to explain.

    m_i(c) = 1/T_i for the T_i classes with the most votes of item i, 0 for the others; 1 for the gold class
    s_j    = Σ_{rows of j} w m_i(y) / Σ_{rows of j} w
    q_i(c) = Σ_{rows of i with y = c} w s_j / Σ_{rows of i} w s_j

w is the weight of a row and y its label; a probabilistic row counts as one row per class. Rows of j are those on items
with other annotators or with gold, because a single annotator always agrees with itself. If there are no such rows, all
rows are used.

- m: outcome of the first vote, shared by tied classes
- `skill_` (A,): s
- `posterior_` (I, K): q

Tied classes share m, so neither names nor the order of rows matter. Ties in q go to the class with more votes in the
whole table, which is right more often than a random draw if classes are uneven. Remaining ties are broken by a draw.
"""

from __future__ import annotations

from typing import Annotated, Any

import numpy as np

from dissensus.common.types import BoolArray, FloatArray, IntArray, OnStep
from dissensus.models.base import methods
from dissensus.models.matrices import mix_uniform_and_vote_shares
from dissensus.models.votes import SkilledVote, VoteModel
from dissensus.table.annotations import Annotations

TIE_PREFERENCE = 1e-6  # relative preference for the class with more votes in the table; it only breaks ties


@methods.register(
    "wawa", summary="votes weighted by the annotator's agreement with the majority", cite="Ustalov et al. 2024"
)
class Wawa(VoteModel):
    """Weight votes by each annotator's agreement with a first, unweighted vote.

    >>> table = Annotations.from_arrays([1, 1, 1, 2, 2, 2, 3, 3], [1, 2, 3, 1, 2, 3, 2, 3], list("aabaabab"))
    >>> Wawa().fit(table).skill_.round(2)
    array([1.  , 0.83, 0.17])
    """

    skill_: Annotated[FloatArray, "A real"]
    population_skill_: Annotated[float, "number"]

    def _fit(self, table: Annotations, gold: IntArray | None, on_step: OnStep) -> None:
        with self._open_engine(table, gold) as engine:
            vote = SkilledVote(engine)
            self._set_vote_results(vote, vote.annotator_agreement(vote.first_vote.hits))
        self.trace_, self.n_iter_, self.converged_ = np.empty(0), 1, True
        on_step(1, float("nan"))

    def _set_vote_results(self, vote: SkilledVote, skill: FloatArray) -> FloatArray:
        """Set the results that follow from the skills; return the weight of labels that agree with the vote (A,)."""
        sums = vote(skill)
        self.skill_ = skill
        self.population_skill_ = vote.population_agreement(vote.total * skill)
        self._run_final_vote(vote.engine, skill, sums.votes)
        self._set_reliability(sums.hits, vote.total)
        return sums.hits

    def _annotator_skills(self, annotators: IntArray) -> FloatArray:
        return np.append(self.skill_, self.population_skill_)[annotators]  # −1 is an unseen annotator

    def _population_skill(self) -> float:
        return self.population_skill_

    def _unseen_annotator_values(self) -> dict[str, Any]:
        return {"skill_": self.population_skill_}

    def _partial_update(
        self, table: Annotations, item: IntArray, annotator: IntArray, old: BoolArray, gold: IntArray | None
    ) -> FloatArray:
        """Return the posterior (I, K) of a new table's items; add its votes and update the skills."""
        posterior = super()._partial_update(table, item, annotator, old, gold)
        skill, total = self.skill_[annotator], self.total_[annotator]
        agreed, added = self._count_agreement(table, posterior)
        weights = np.maximum(total + added, np.finfo(float).tiny)
        self.skill_ = self.skill_.copy()
        self.skill_[annotator] = np.where(total + added > 0, (skill * total + agreed) / weights, skill)
        return posterior

    def _count_agreement(self, table: Annotations, posterior: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the agreement with the vote and all labels (A,); tied classes share the outcome."""
        tied = posterior >= posterior.max(axis=1, keepdims=True, initial=0) * (1 - TIE_PREFERENCE)
        return super()._count_agreement(table, tied / tied.sum(axis=1, keepdims=True))

    def _tie_break_weights(self) -> FloatArray:
        return mix_uniform_and_vote_shares(self.prior_, TIE_PREFERENCE)
