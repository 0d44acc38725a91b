"""The family of votes: the probability of a class is its share of the votes, which may be weighted by skill.

    v_i(c) = Σ_{rows of i with y = c} w s_j        q_i(c) = v_i(c) / Σ_c v_i(c)

s_j is 1 in `majority-vote`; `wawa` and `zero-based-skill` estimate it from the annotator's agreement with the outcome.
`VotePass` runs a vote with given skills.

*Likelihoods of further labels.* A vote share is not the probability that a class is correct. The class with the most
votes is the most probable one if all annotators are equally accurate and all errors equally likely, so likelihoods use
this model: q_i(c) ∝ exp(λ v_i(c)) with λ = log p (K − 1) / (1 − p). EM estimates p, the accuracy of a vote. With
skills, each annotator's λ is multiplied by the skill.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import numpy as np

from dissensus.common.arrays import TIE_TOLERANCE
from dissensus.common.types import BoolArray, FloatArray, IntArray
from dissensus.compute import chunk as chunks
from dissensus.compute.chunk import Chunk
from dissensus.compute.engines import ENGINE, EngineChoice
from dissensus.compute.engines.base import Engine, Pass, Sums, TableSize, Worker
from dissensus.compute.kernels import vote as kernels
from dissensus.compute.rows import expand_rows
from dissensus.models.base import Aggregator, Likelihoods
from dissensus.models.incremental import updated_copy
from dissensus.table.annotations import Annotations

ACCURACY_TOL, MAX_ACCURACY_STEPS = 1e-5, 500  # EM for the accuracy of a vote
INITIAL_ACCURACY = 0.8  # accuracy of a vote at the start of EM


class VoteModel(Aggregator):
    """Base class for methods whose posterior is the vote shares."""

    engine: EngineChoice = ENGINE

    item_total_: Annotated[FloatArray, "I count"]

    def _run_final_vote(self, engine: Engine, skill: FloatArray, votes: FloatArray) -> FloatArray:
        """Set prior and posterior, given skills (A,) and all votes (K,); return the weight of agreeing labels, (A,)."""
        K, total = engine.size.n_classes, float(votes.sum())
        self.prior_ = votes / total if total > 0 else np.full(K, 1 / K)
        self.posterior_, self.item_total_ = engine.allocate("posterior", K), engine.allocate("item_total")
        out = {"posterior": self.posterior_, "item_total": self.item_total_}
        return engine.run(VotePass(True, self.prior_, self._tie_break_weights()), skill, out).hits

    def _tie_break_weights(self) -> FloatArray | None:
        """Return the class weights (K,) that break ties, or None."""
        return None

    def _annotator_skills(self, annotators: IntArray) -> FloatArray:
        """Return the skill of annotators, given by code; −1 stands for an unseen annotator."""
        return np.ones(annotators.size)

    def _population_skill(self) -> float:
        """Return the mean skill of the fitted annotators."""
        return 1.0

    def _partial_update(
        self, table: Annotations, item: IntArray, annotator: IntArray, old: BoolArray, gold: IntArray | None
    ) -> FloatArray:
        """Add new votes, weighted by skill, to the fitted votes, which have the population's mean skill."""
        new, weight = self._count_weighted_votes(table, annotator), self.item_total_[item]
        before = self.posterior_[item] * (weight * self._population_skill())[:, None]
        total = self.prior_ * self.item_total_.sum() + new.sum(axis=0)
        if total.sum() > 0:
            self.prior_ = total / total.sum()
        self.item_total_ = updated_copy(self.item_total_, item, weight + table.votes().sum(axis=1))
        return np.asarray(
            chunks.apply_gold(kernels.vote_posterior(before + new, self.prior_, self._tie_break_weights()), gold)
        )

    def _compute_posterior(self, table: Annotations, annotators: IntArray) -> FloatArray:
        return np.asarray(
            kernels.vote_posterior(
                self._count_weighted_votes(table, annotators), self.prior_, self._tie_break_weights()
            )
        )

    def _count_weighted_votes(self, table: Annotations, annotators: IntArray) -> FloatArray:
        """Return the weighted votes (I, K) of a table; `annotators` are codes, −1 if unseen."""
        return np.asarray(
            kernels.sum_skilled_votes(expand_rows(table), self._annotator_skills(annotators), table.n_classes)
        )

    def _label_probabilities(self, posterior: FloatArray, item: IntArray, annotator: IntArray) -> FloatArray:
        """Return P(label | item), (N, K), from the item's votes and one added vote distributed like all votes."""
        total = np.append(self.item_total_, 0.0)[item][:, None]  # code −1 selects the last entry
        return np.asarray((posterior * total + self.prior_) / (total + 1))

    def likelihoods(self) -> Likelihoods:
        """Return the likelihoods under the model in which the vote is optimal; see the module's docstring."""
        K = self.classes_.size
        if K == 1:
            return Likelihoods(self.posterior_, lambda _, annotators: np.ones((1, annotators.size, 1, 1)), True)
        votes = self.posterior_ * self.item_total_[:, None]
        total, right = float(votes.sum()), INITIAL_ACCURACY
        for _ in range(MAX_ACCURACY_STEPS):
            scale = np.log(right * (K - 1) / (1 - right))
            belief = np.exp(scale * (votes - votes.max(axis=1, keepdims=True)))
            belief /= belief.sum(axis=1, keepdims=True)
            before, right = right, max((float((belief * votes).sum()) + 1) / (total + 2), 1 / K + 1e-3)
            if abs(right - before) < ACCURACY_TOL:
                break
        empty = self.item_total_ == 0
        belief[empty] = self.posterior_[empty]

        def matrices_of(_: IntArray, annotators: IntArray) -> FloatArray:
            skill = self._annotator_skills(annotators) / (self._population_skill() or 1.0)
            wrong = np.exp(-scale * skill)[:, None, None]  # likelihood of a wrong label relative to a right one
            matrices = np.where(np.eye(K, dtype=bool), 1.0, wrong) / (1 + (K - 1) * wrong)
            return np.asarray(matrices[None])

        return Likelihoods(belief, matrices_of, True)


@dataclass(frozen=True)
class VoteSums(Sums):
    """The sums of a vote: the annotators' agreement with the outcome, and the votes."""

    by_annotator: ClassVar = ("hits", "total")
    hits: FloatArray  # (A,) weight of each annotator's labels that agree with the outcome
    total: FloatArray  # (A,) weight of all labels on informative items
    votes: FloatArray  # (K,) sums of all votes


@dataclass(frozen=True, eq=False)
class VotePass(Pass[FloatArray, VoteSums]):
    """A vote in which annotators have skills (A,); see `kernels.vote`.

    With `count_single`, items with one annotator also count for skills. With a `prior` (K,), the outcome is the vote
    shares, ties are broken by the class weights `tie_break` (K,), and the outputs are `posterior` and `item_total`.
    """

    count_single: bool = False
    prior: FloatArray | None = None
    tie_break: FloatArray | None = None

    sums_type, outputs = VoteSums, ("posterior", "item_total")

    def initial_sums(self, size: TableSize) -> list[Any]:
        """Return zero hits, totals and votes."""
        return [*np.zeros((2, size.n_annotators)), np.zeros(size.n_classes)]

    def array_form(self, chunk: Chunk, params: FloatArray) -> tuple[Any, ...]:
        """Run `kernels.vote.vote_arrays`; with a prior, also return the weight of each item's rows."""
        own = None if self.prior is None else chunk.sum_by_item(chunk.row_weights()[:, None])[:, 0]
        return *kernels.vote_arrays(
            chunk,
            chunk.to_backend(params),
            self.count_single,
            chunk.to_backend(self.prior),
            chunk.to_backend(self.tie_break),
        ), own

    def kernel(self, chunk: Chunk, worker: Worker, out: Mapping[str, Any]) -> None:
        """Run `kernels.vote.vote_items` over the chunk."""
        none, K = np.empty(0), worker.size.n_classes
        prior, lean = (none if values is None else values for values in (self.prior, self.tie_break))
        kernels.vote_items(
            chunk.start, chunk.stop, chunk.rows, worker.params, chunk.gold, self.count_single, prior, lean,
            *worker.sums, out.get("posterior", np.empty((0, K))), out.get("item_total", none),
        )  # fmt: skip


class SkilledVote:
    """Votes over the items of one table, which can be repeated with different skills."""

    def __init__(self, engine: Engine):
        self.engine, self.pass_ = engine, VotePass()
        self.first_vote = self(np.ones(engine.size.n_annotators))  # all skills are equal
        if not self.first_vote.total.any():  # no item has two annotators
            self.pass_ = VotePass(count_single=True)
            self.first_vote = self(np.ones(engine.size.n_annotators))
        self.total = self.first_vote.total

    def __call__(self, skill: FloatArray) -> VoteSums:
        """Run a vote with these skills (A,) and return its sums."""
        return self.engine.run(self.pass_, skill)

    def annotator_agreement(self, hits: FloatArray) -> FloatArray:
        """Return each annotator's share of agreeing labels, (A,); without labels, the population's share is used."""
        own = self.total > 0
        return np.where(own, hits / np.where(own, self.total, 1), self.population_agreement(hits))

    def population_agreement(self, hits: FloatArray) -> float:
        """Return the share of all labels that agree with the outcome."""
        return float(hits.sum() / max(self.total.sum(), np.finfo(float).tiny))


def winning_shares(posterior: FloatArray) -> FloatArray:
    """Return 1 for the most probable class of each item and 0 for the others, (I, K); tied classes share the 1."""
    tied = posterior >= posterior.max(axis=1, keepdims=True, initial=0) * (1 - TIE_TOLERANCE)
    return np.asarray(tied / tied.sum(axis=1, keepdims=True))
