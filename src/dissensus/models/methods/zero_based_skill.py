"""Zero-based skill: Wawa repeated, with skills that move towards the agreement with the last vote.

Use it like `wawa`, when skills and votes should agree with each other.

    m_i = equal shares of the classes with the largest Σ_{rows of i with y = c} w s_j, or 1 for the gold class
    a_j = Σ_{rows of j} w m_i(y) / n_j        n_j = Σ_{rows of j} w
    s_j ← s_j + r_t (a_j − s_j)               s_j = 1/K at first

w is the weight of a row, y its label, and r_t = `learning_rate` · `decay`^⌊t / `decay_every`⌋ the rate of step t.

- m: outcome of the vote, shared by tied classes
- `skill_` (A,): s
- a (A,): agreement with the vote

Both steps raise F(s, m) = Σ_j n_j (s_j a_j − s_j²/2), which is `trace_`: the vote maximises it over m, and in s_j it is
a parabola with its maximum at a_j. So the skills cannot cycle, and once no vote changes they converge to the agreement.
"""

from __future__ import annotations

import numpy as np

from dissensus.common.parameters import param
from dissensus.common.types import FloatArray, IntArray, OnStep
from dissensus.models.base import methods
from dissensus.models.methods.wawa import Wawa
from dissensus.models.votes import SkilledVote
from dissensus.table.annotations import Annotations


@methods.register(
    "zero-based-skill",
    summary="wawa repeated with a learning rate until skills and votes agree",
    cite="Ustalov et al. 2024",
)
class ZeroBasedSkill(Wawa):
    """Repeat weighted votes, with skills that move towards the agreement with the vote."""

    learning_rate: float = param(
        1.0, "share of the distance to the agreement with the vote by which skills move", above=0, high=1
    )
    decay: float = param(0.5, "factor of the rate every `decay_every` steps", above=0, high=1)
    decay_every: int = param(20, "steps between two decays of the rate", low=1)
    max_iter: int = param(100, "largest number of votes", low=1)
    tol: float = param(
        1e-5, "stop when the distance of every skill from the agreement with the vote is at most this", low=0
    )

    def _fit(self, table: Annotations, gold: IntArray | None, on_step: OnStep) -> None:
        with self._open_engine(table, gold) as engine:
            vote = SkilledVote(engine)
            skill = np.full(table.n_annotators, 1 / table.n_classes)
            trace: list[float] = []
            gap, self.converged_ = np.inf, False
            while len(trace) < self.max_iter and not self.converged_:
                hits = vote(skill).hits
                trace.append(skill_objective(skill, hits, vote.total))
                on_step(len(trace), trace[-1])
                # Annotators without labels move to the agreement of the crowd.
                step = vote.annotator_agreement(hits) - skill
                gap = float(np.abs(step).max(initial=0))
                self.converged_ = gap <= self.tol
                if not self.converged_:
                    skill = skill + self.learning_rate * self.decay ** (len(trace) // self.decay_every) * step
            hits = self._set_vote_results(vote, skill)
        # The last entry is the objective of the returned skills.
        self.trace_ = np.array([*trace, skill_objective(skill, hits, vote.total)])
        self.n_iter_ = len(trace)
        if not self.converged_:
            self._warn_unconverged("votes", "a skill", float(gap))


def skill_objective(skill: FloatArray, hits: FloatArray, total: FloatArray) -> float:
    """Return the objective F; `hits` (A,) is the weight n·a of labels that agree with the vote."""
    return float(skill @ hits - (total * skill**2).sum() / 2)
