"""The default: Dawid-Skene in which a group that copies has one vote.

Dawid & Skene's model, see `dawid-skene`, with two corrections of what it takes for granted. Labels of one item are not
independent given its class: the posterior is softened, see `models.dependence`. And labels that are copies say nothing
new: a group that copies (`models.copies` finds it, without gold) shares one label on every item,

    log q_i(c) = log π_c + Σ_j w_ij log Θ_j[c, y_ij] + const.        w_ij = 1 / members of j's group with a label on i

On tables of other engines, where nobody can be compared with everybody, it is Dawid-Skene.

Stacking the posteriors of 2 to 13 methods by how well they predict hidden labels was tried on 13 sets at 2, 5, 10 and
all labels: softened alike, no stack had less log loss than Dawid-Skene, and the most accurate gained 0.1 points.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from dissensus.common.types import IntArray, OnStep
from dissensus.models.base import methods
from dissensus.models.copies import find_copies
from dissensus.models.methods.dawid_skene import DawidSkene
from dissensus.table.annotations import Annotations


@methods.register(
    "consensus", summary="the default: Dawid-Skene in which a group that copies has one vote",
    cite="Dawid & Skene 1979", place=-1,
)  # fmt: skip
class Consensus(DawidSkene):
    """Dawid-Skene where copies count once."""

    copy_group_: IntArray  # (A,) number of the group that an annotator copies in; −1 where it copies nobody

    def _fit(self, table: Annotations, gold: IntArray | None, on_step: OnStep) -> None:
        self.copy_group_ = np.full(self.annotators_.size, -1)
        if isinstance(table, Annotations):
            n = self.items_.size  # items beyond stand for what was known before
            own = table if table.n_items == n else table.select(rows=table.item < n)
            for number, group in enumerate(find_copies(own).groups):
                self.copy_group_[list(group)] = number
            table = self._weigh(table, np.arange(table.n_annotators))
        super()._fit(table, gold, on_step)

    def _weigh(self, table: Annotations, known: IntArray) -> Annotations:
        return counted_once(table, np.append(self.copy_group_, -1)[known])  # −1, unseen, takes the last

    def _newcomer(self) -> dict[str, Any]:
        return super()._newcomer() | {"copy_group_": -1}


def counted_once(table: Annotations, group: IntArray) -> Annotations:
    """The table in which the members of a group (A,), −1 for none, share one label on every item."""
    if (group < 0).all():
        return table
    own = group[table.annotator]
    at = np.flatnonzero(own >= 0)
    key = table.item[at].astype(np.int64) * (group.max() + 1) + own[at]
    _, place, size = np.unique(key, return_inverse=True, return_counts=True)
    weight = np.ones(len(table)) if table.weight is None else table.weight.copy()
    weight[at] /= size[place]
    return dataclasses.replace(table, weight=weight)
