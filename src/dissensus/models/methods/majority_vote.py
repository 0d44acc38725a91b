"""Majority vote: the probability of a class is its share of the votes.

Use it as a baseline, or when annotators have one or two labels each, so that nothing can be learnt about them.

    q_i(c) = n_i(c) / Σ_c n_i(c)

n_i(c) is the number of labels c of item i. A label with a weight counts as that many votes, and a probabilistic
annotation is divided among the classes. All annotators count equally. An item without labels gets the shares of all
votes, `prior_`.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from dissensus.common.types import IntArray, OnStep
from dissensus.models.base import methods
from dissensus.models.confusion import label_totals
from dissensus.models.votes import VoteModel
from dissensus.table.annotations import Annotations


@methods.register(
    "majority-vote", summary="each label is one vote; the shares of the votes are the probabilities", cite="—"
)
class MajorityVote(VoteModel):
    """Take the shares of the votes as probabilities.

    Ties are broken by a random draw that depends on the seed and the item's name.

    >>> from dissensus import Annotations
    >>> table = Annotations.from_arrays(["a", "a", "a", "b"], [1, 2, 3, 1], ["cat", "cat", "dog", "dog"])
    >>> MajorityVote().fit(table).predict()
    array(['cat', 'dog'], dtype=object)
    """

    models_annotators: ClassVar = False

    def _fit(self, table: Annotations, gold: IntArray | None, on_step: OnStep) -> None:
        with self._open_engine(table, gold) as engine:
            total = label_totals(engine)[:, 0]
            hits = self._run_final_vote(engine, np.ones(engine.size.n_annotators), total.sum(axis=0))
        self._set_reliability(hits, total.sum(axis=1))
        self.trace_, self.n_iter_, self.converged_ = np.empty(0), 1, True
        on_step(1, float("nan"))
