"""Majority vote: the share of the votes that a class got is its probability.

    p_i(c) = n_i(c) / Σ_c n_i(c)

Annotators all count the same; `reliability_` says how often each agrees with the vote.
"""

from __future__ import annotations

import numpy as np

from dissensus._types import BoolArray, FloatArray, IntArray, OnStep
from dissensus.annotations import Annotations
from dissensus.base import Aggregator, methods


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

    def __init__(self, *, seed: int | None = 0):
        self.seed = seed

    def _fit(self, table: Annotations, gold: IntArray | None, on_step: OnStep) -> None:
        votes = table.votes()
        self.prior_ = (
            votes.sum(axis=0) / votes.sum() if votes.sum() > 0 else np.full(table.n_classes, 1 / table.n_classes)
        )
        self.posterior_, self.item_total_ = self._shares(votes), votes.sum(axis=1)
        if gold is not None:
            self.posterior_[gold >= 0] = np.eye(table.n_classes)[gold[gold >= 0]]
        hits, total = self._agreement(table, self.posterior_)
        self._judge(hits, total)
        self.trace_, self.n_iter_, self.converged_ = np.empty(0), 1, True
        on_step(1, float("nan"))

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
