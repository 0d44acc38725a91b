"""The family of votes: the share of the votes that a class got is its probability; a vote may weigh by a skill.

    v_i(c) = Σ_{rows of i with y = c} w s_j        q_i(c) = v_i(c) / Σ_c v_i(c)

s_j is 1 in `majority-vote`; `wawa` and `zero-based-skill` learn it from how often an annotator agrees with the outcome
of the vote. `SkillPass` is a vote with given skills, `SharePass` writes the shares.

*What annotators say next.* The share of the votes is no probability of being right. A vote is right to take the class
with the most votes if all annotators are equally good and err in any direction alike, and that model is asked instead:
q_i(c) ∝ exp(λ v_i(c)) with λ = log p (K − 1) / (1 − p), where p, how often a vote is right, is found by EM; where votes
weigh by skill, an annotator's λ does too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import numpy as np

from dissensus.common.arrays import TIE
from dissensus.common.types import BoolArray, FloatArray, IntArray
from dissensus.compute import readable
from dissensus.compute.engines import EngineChoice, in_memory
from dissensus.compute.engines.base import Block, Engine, Pass, Size, Sums
from dissensus.compute.engines.local import Threads
from dissensus.compute.kernels import vote as kernels
from dissensus.models.base import ENGINE, Aggregator, Likelihoods
from dissensus.models.incremental import written
from dissensus.models.matrices import leaning
from dissensus.table.annotations import Annotations

RIGHT_TOL, RIGHT_STEPS = 1e-5, 500  # of EM for how often a vote is right
FIRST_RIGHT = 0.8  # where it begins


class VoteModel(Aggregator):
    """Shares of the votes."""

    engine: EngineChoice = ENGINE

    item_total_: Annotated[FloatArray, "I count"]

    def _conclude_on(
        self, engine: Engine, skill: FloatArray, votes: FloatArray, lean: float | None = None
    ) -> FloatArray:
        """Set prior and posterior by skills (A,) and all votes (K,); returns (A,) the weight of labels right by it."""
        K, total = engine.size.n_classes, float(votes.sum())
        self.prior_ = votes / total if total > 0 else np.full(K, 1 / K)
        self.posterior_, self.item_total_ = engine.per_item("posterior", K), engine.per_item("item_total")
        out = {"posterior": self.posterior_, "item_total": self.item_total_}
        leaning_to = None if lean is None else leaning(self.prior_, lean)
        return engine.sweep(SharePass(), Skilled(skill, self.prior_, leaning_to), out).hits

    def _skills(self, known: IntArray) -> FloatArray:
        """(len(known),) how much a vote weighs, by code into `annotators_`, −1 unseen."""
        return np.ones(known.size)

    def _population_skill(self) -> float:
        """What the votes of before weigh, each."""
        return 1.0

    def _update(
        self, table: Annotations, item: IntArray, annotator: IntArray, old: BoolArray, gold: IntArray | None
    ) -> FloatArray:
        """New votes weigh by the skills, those of before by the population's."""
        new, weight = skilled_votes(table, self._skills(annotator)), self.item_total_[item]
        before = self.posterior_[item] * (weight * self._population_skill())[:, None]
        of_all = self.prior_ * self.item_total_.sum() + new.sum(axis=0)
        if of_all.sum() > 0:
            self.prior_ = of_all / of_all.sum()
        self.item_total_ = written(self.item_total_, item, weight + table.votes().sum(axis=1))
        return readable.with_known(self._shares(before + new), gold)

    def _score(self, table: Annotations, known: IntArray) -> FloatArray:
        return self._shares(skilled_votes(table, self._skills(known)))

    def _label_proba(self, posterior: FloatArray, item: IntArray, annotator: IntArray) -> FloatArray:
        """The item's votes and one more, shared as all votes are: whoever labels next is like those before."""
        total = np.append(self.item_total_, 0.0)[item][:, None]  # −1, unseen, takes the last
        return np.asarray((posterior * total + self.prior_) / (total + 1))

    def _shares(self, votes: FloatArray) -> FloatArray:
        total = votes.sum(axis=1, keepdims=True)
        return np.where(total > 0, votes / np.where(total > 0, total, 1), self.prior_)

    def likelihoods(self) -> Likelihoods:
        """The model under which the vote is right: see the module."""
        K = self.classes_.size
        if K == 1:
            return Likelihoods(self.posterior_, lambda _, annotators: np.ones((1, annotators.size, 1, 1)), True)
        votes = self.posterior_ * self.item_total_[:, None]
        total, right = float(votes.sum()), FIRST_RIGHT
        for _ in range(RIGHT_STEPS):
            scale = np.log(right * (K - 1) / (1 - right))
            belief = np.exp(scale * (votes - votes.max(axis=1, keepdims=True)))
            belief /= belief.sum(axis=1, keepdims=True)
            before, right = right, max((float((belief * votes).sum()) + 1) / (total + 2), 1 / K + 1e-3)
            if abs(right - before) < RIGHT_TOL:
                break
        empty = self.item_total_ == 0
        belief[empty] = self.posterior_[empty]

        def of(_: IntArray, annotators: IntArray) -> FloatArray:
            skill = self._skills(annotators) / (self._population_skill() or 1.0)
            wrong = np.exp(-scale * skill)[:, None, None]  # as likely, to a right label
            matrices = np.where(np.eye(K, dtype=bool), 1.0, wrong) / (1 + (K - 1) * wrong)
            return np.asarray(matrices[None])

        return Likelihoods(belief, of, True)


@dataclass(frozen=True)
class Skilled:
    """How much a vote of each annotator counts (A,), the prior (K,), and what ties lean to (K,), None: nothing."""

    by_annotator: ClassVar = ("skill",)
    skill: FloatArray
    prior: FloatArray
    lean: FloatArray | None = None


@dataclass(frozen=True)
class Hits(Sums):
    """(A,) weight of each annotator's labels that are right."""

    by_annotator: ClassVar = ("hits",)
    hits: FloatArray


class SharePass(Pass[Skilled, Hits, Any]):
    """Shares of the votes; writes `posterior` and `item_total`."""

    def open(self, params: Skilled, size: Size, workers: int, pool: Threads) -> list[Any]:
        """The parameters, whether the table is short, and hits for each worker."""
        short = size.n_rows < readable.MIN_KERNEL_ROWS
        return [(params, short, np.zeros(size.n_annotators)) for _ in range(workers)]

    def walk(self, block: Block, buffer: Any, out: Mapping[str, Any]) -> None:
        """`kernels.vote.shares`, or of a short table its readable form."""
        params, short, hits = buffer
        rows, lean = block.rows, np.empty(0) if params.lean is None else params.lean
        if short:
            ballot = kernels.Ballot(rows, params.skill, params.prior.size)
            right, out["posterior"][:] = ballot.shares(params.prior, lean, block.gold, TIE)
            hits += right
            out["item_total"][:] = ballot.total
            return
        kernels.shares(
            block.start, block.stop, rows.item_ptr, rows.annotator, rows.label, rows.weight, params.skill,
            params.prior, lean, block.gold, TIE, hits, out["posterior"], out["item_total"],
        )  # fmt: skip

    def close(self, buffers: list[Any], pool: Threads) -> Hits:
        """The sums of all workers."""
        return Hits(sum(hits for *_, hits in buffers))

    def on_torch(self, params: Skilled, data: Any, out: Mapping[str, Any]) -> Hits:
        """The same in torch."""
        from dissensus.compute.kernels import on_torch

        return Hits(on_torch.shares(data, params.skill, params.prior, params.lean, TIE, out))


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
        """Skills, whether the table is short, and the sums of each worker."""
        A, K, short = size.n_annotators, size.n_classes, size.n_rows < readable.MIN_KERNEL_ROWS
        return [(params, short, *np.zeros((2, A)), np.zeros(K), np.zeros(1, np.int64)) for _ in range(workers)]

    def walk(self, block: Block, buffer: Any, out: Mapping[str, Any]) -> None:
        """`kernels.vote.skilled_vote`, or of a short table its readable form."""
        skill, short, hits, total, sums, judged = buffer
        rows = block.rows
        if short:
            ballot = kernels.Ballot(rows, skill, sums.size)
            for whole, part in zip(buffer[2:], ballot.skilled_vote(block.gold, self.alone, TIE), strict=True):
                whole += part
            if "votes" in out:
                out["votes"][:] = ballot.votes
            return
        judged[0] += kernels.skilled_vote(
            block.start, block.stop, rows.item_ptr, rows.annotator, rows.label, rows.weight,
            skill, block.gold, self.alone, TIE, hits, total, sums, out.get("votes"),
        )  # fmt: skip

    def close(self, buffers: list[Any], pool: Threads) -> Outcome:
        """The sums of all workers."""
        _, _, hits, total, votes, judged = (list(part) for part in zip(*buffers, strict=True))
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
