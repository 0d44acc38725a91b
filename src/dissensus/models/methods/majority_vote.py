"""Majority vote: the share of the votes that a class got is its probability.

    p_i(c) = n_i(c) / Σ_c n_i(c)

Annotators all count the same; `reliability_` says how often each agrees with the vote.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import numpy as np

from dissensus.common.types import BoolArray, FloatArray, IntArray, OnStep
from dissensus.compute.engines import EngineChoice, place
from dissensus.compute.engines.base import Block, Engine, Pass, Rows, Size, Sums
from dissensus.compute.engines.local import Threads
from dissensus.compute.kernels import vote as kernels
from dissensus.evaluation.hard import TIE
from dissensus.models.base import Aggregator, methods
from dissensus.table import kernels as table_kernels
from dissensus.table.annotations import Annotations


@methods.register(
    "majority-vote", summary="each label is one vote; shares of the votes are the probabilities", cite="—"
)
class MajorityVote(Aggregator):
    """Shares of the votes; ties are broken by a draw keyed on seed and item name.

    >>> from dissensus import Annotations
    >>> table = Annotations.from_arrays(["a", "a", "a", "b"], [1, 2, 3, 1], ["cat", "cat", "dog", "dog"])
    >>> MajorityVote().fit(table).predict()
    array(['cat', 'dog'], dtype=object)
    """

    item_total_: FloatArray  # (I,) weight of the votes of each item
    _per_item = (*Aggregator._per_item, "item_total_")

    def __init__(self, *, engine: EngineChoice = "local", seed: int | None = 0):
        self.engine = engine
        self.seed = seed

    def _fit(self, table: Annotations, gold: IntArray | None, on_step: OnStep) -> None:
        with place(self, table, gold) as engine:
            total = engine.once(AgreementPass()).total
            votes = total.sum(axis=0)
            self.prior_ = votes / votes.sum() if votes.sum() > 0 else np.full(votes.size, 1 / votes.size)
            hits = self._conclude_on(engine, np.ones(engine.size.n_annotators), None)
        self._judge(hits, total.sum(axis=1))
        self.trace_, self.n_iter_, self.converged_ = np.empty(0), 1, True
        on_step(1, float("nan"))

    def _conclude_on(self, engine: Engine, skill: FloatArray, lean: FloatArray | None) -> FloatArray:
        """Set the posterior that skills (A,) and `prior_` make; returns (A,) the weight of labels right by it."""
        K = engine.size.n_classes
        self.posterior_, self.item_total_ = engine.per_item("posterior", K), engine.per_item("item_total")
        out = {"posterior": self.posterior_, "item_total": self.item_total_}
        return engine.sweep(SharePass(), Skilled(skill, self.prior_, lean), out).hits

    def _update(
        self, table: Annotations, item: IntArray, annotator: IntArray, old: BoolArray, gold: IntArray | None
    ) -> FloatArray:
        votes = self.posterior_[item] * self.item_total_[item, None]
        posterior = self._more_votes(table, item, votes, self.item_total_[item], table.votes())
        if gold is not None:
            posterior[gold >= 0] = np.eye(table.n_classes)[gold[gold >= 0]]
        return posterior

    def _more_votes(
        self, table: Annotations, item: IntArray, before: FloatArray, weight: FloatArray, new: FloatArray
    ) -> FloatArray:
        """Shares of the votes of before (I, K) and the new ones; `weight` (I,) is what those of before weigh."""
        of_all = self.prior_ * self.item_total_.sum() + new.sum(axis=0)
        if of_all.sum() > 0:
            self.prior_ = of_all / of_all.sum()
        self.item_total_ = self.item_total_.copy()
        self.item_total_[item] = weight + table.votes().sum(axis=1)
        return self._shares(before + new)

    def _score(self, table: Annotations, known: IntArray) -> FloatArray:
        return self._shares(table.votes())

    def _label_proba(self, posterior: FloatArray, item: IntArray, annotator: IntArray) -> FloatArray:
        """The item's votes and one more, shared as all votes are: whoever labels next is like those before."""
        total = np.append(self.item_total_, 0.0)[item][:, None]  # −1, unseen, takes the last
        return np.asarray((posterior * total + self.prior_) / (total + 1))

    def _shares(self, votes: FloatArray) -> FloatArray:
        total = votes.sum(axis=1, keepdims=True)
        return np.where(total > 0, votes / np.where(total > 0, total, 1), self.prior_)


@dataclass(frozen=True)
class Agreement(Sums):
    """What is known before any model: whose labels agree with the votes."""

    by_annotator: ClassVar = ("hits", "total")
    hits: FloatArray  # (A, K) [annotator, given] weight of the labels that are right by the shares of the votes
    total: FloatArray  # (A, K) weight of all labels
    classes: FloatArray  # (2, K) items of each class by the shares of the votes: without annotations, with some


@dataclass(frozen=True)
class AgreementPass(Pass[None, Agreement, Any]):
    """Agreement with the shares of the votes; with `rng` drawn from Dirichlet(1 + votes)."""

    with_gold: bool = True
    rng: np.random.Generator | None = None

    @property
    def in_order(self) -> bool:
        """One generator draws item by item."""
        return self.rng is not None

    def open(self, params: None, size: Size, workers: int, pool: Threads) -> list[Any]:
        """The three sums for each worker."""
        A, K = size.n_annotators, size.n_classes
        return [(np.zeros((A, K)), np.zeros((A, K)), np.zeros((2, K))) for _ in range(workers)]

    def walk(self, block: Block, buffer: Any, out: Mapping[str, Any]) -> None:
        """`kernels.vote.agreement`."""
        rows, gold = block.rows, block.gold if self.with_gold else None
        drawn = None
        if self.rng is not None:
            drawn = draw_shares(votes_of(rows, buffer[2].shape[1]), gold, self.rng)
        kernels.agreement(
            block.start, block.stop, rows.item_ptr, rows.annotator, rows.label, rows.weight, gold, drawn, *buffer
        )

    def close(self, buffers: list[Any], pool: Threads) -> Agreement:
        """The sums of all workers."""
        return Agreement(*(sum(part) for part in zip(*buffers, strict=True)))

    def on_torch(self, params: None, data: Any, out: Mapping[str, Any]) -> Agreement:
        """The same in torch."""
        from dissensus.compute.kernels import on_torch

        draw = None if self.rng is None else partial(draw_shares, rng=self.rng)
        return Agreement(*on_torch.agreement(data, draw, self.with_gold))


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
        """The parameters and hits for each worker."""
        return [(params, np.zeros(size.n_annotators)) for _ in range(workers)]

    def walk(self, block: Block, buffer: Any, out: Mapping[str, Any]) -> None:
        """`kernels.vote.shares`."""
        params, hits = buffer
        rows = block.rows
        kernels.shares(
            block.start, block.stop, rows.item_ptr, rows.annotator, rows.label, rows.weight,
            params.skill, params.prior, params.lean, block.gold, TIE, hits, out["posterior"], out["item_total"],
        )  # fmt: skip

    def close(self, buffers: list[Any], pool: Threads) -> Hits:
        """The sums of all workers."""
        return Hits(sum(hits for _, hits in buffers))

    def on_torch(self, params: Skilled, data: Any, out: Mapping[str, Any]) -> Hits:
        """The same in torch."""
        from dissensus.compute.kernels import on_torch

        return Hits(on_torch.shares(data, params.skill, params.prior, params.lean, TIE, out))


def votes_of(rows: Rows, n_classes: int) -> FloatArray:
    """(I, K) summed weight of the labels of each item."""
    return table_kernels.votes(rows.item_ptr, rows.label, rows.weight, None, n_classes)


def draw_shares(votes: FloatArray, gold: IntArray | None, rng: np.random.Generator) -> FloatArray:
    """(I, K) a draw from Dirichlet(1 + votes) for every item; known classes have all."""
    posterior = rng.standard_gamma(votes + 1)
    posterior /= posterior.sum(axis=1, keepdims=True)
    if gold is not None:
        posterior[gold >= 0] = np.eye(votes.shape[1])[gold[gold >= 0]]
    return posterior
