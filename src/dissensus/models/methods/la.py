"""LA, lightweight aggregation: items one after another, in votes weighted by the accuracies learnt so far.

Use it as a baseline for labels that arrive as a stream: two passes, and one number per annotator to keep.

In the first pass the class m_i of each item has the most votes (tied classes share it; gold classes are set), and then
its labels count towards the accuracies, which start at a_j = r/(r + w):

    v_i(c) = Σ_{rows of i with y = c} a_j      c_j ← c_j + m_i(y)      t_j ← t_j + 1      a_j = (r + c_j)/(r + w + t_j)

The second pass gives each label the weight s_j = K a_j − 1. A negative weight counts for all other classes:

    q_i(c) ∝ Σ_{rows of i with y = c} max(s_j, 0) + Σ_{rows of i with y ≠ c} max(−s_j, 0)

- `accuracy_` (A,): a
- r = `right_count`, w = `wrong_count`; the paper has 1 for both
- `evidence_` (I,): the sum of the right side over classes

Gold items come first, the others in an order drawn by `seed` and their labels. Items with like labels share a place, so
neither names nor row order matter. `partial_fit` continues with new rows.
"""

from __future__ import annotations

from typing import Annotated, Any

import numpy as np

from dissensus.common.arrays import group_offsets
from dissensus.common.parameters import param
from dissensus.common.types import BoolArray, FloatArray, IntArray, OnStep
from dissensus.compute import chunk as chunks
from dissensus.compute.kernels.la import weigh_in_order
from dissensus.compute.rows import Rows, expand_rows
from dissensus.models.base import Aggregator, methods
from dissensus.models.coins import Coins
from dissensus.models.incremental import updated_copy
from dissensus.models.item_keys import item_keys
from dissensus.models.matrices import PSEUDO_COUNT_LIMITS
from dissensus.models.votes import winning_shares
from dissensus.table.annotations import Annotations


@methods.register(
    "la", summary="votes weighted by accuracies learnt item by item, in two passes", cite="Yang et al. 2024"
)
class LA(Aggregator):
    """Estimate the items one after another, each with the accuracies that the items before it gave.

    >>> table = Annotations.from_arrays([1, 1, 1, 2, 2, 2, 3, 3], [1, 2, 3, 1, 2, 3, 2, 3], list("aabaabab"))
    >>> LA().fit(table).accuracy_.round(2)
    array([0.75, 0.8 , 0.2 ])
    """

    right_count: float = param(1.0, "pseudo-count of right labels of each annotator", **PSEUDO_COUNT_LIMITS)
    wrong_count: float = param(1.0, "pseudo-count of wrong labels of each annotator", **PSEUDO_COUNT_LIMITS)

    accuracy_: Annotated[FloatArray, "A share"]
    population_accuracy_: Annotated[float, "number"]
    right_: Annotated[FloatArray, "A count"]  # r + c
    counted_: Annotated[FloatArray, "A count"]  # r + w + t
    evidence_: Annotated[FloatArray, "I count"]

    @property
    def confusion_(self) -> FloatArray:
        """Confusion matrices (A, K, K): the accuracy on the diagonal, computed on access."""
        return self.annotator_confusions(np.arange(self.accuracy_.size))

    def _fit(self, table: Annotations, gold: IntArray | None, on_step: OnStep) -> None:
        rows = expand_rows(table)
        self.right_, self.counted_ = self._first_pass(table, rows, gold)
        self._set_accuracies()
        on_step(1, float("nan"))
        votes = self._votes(rows, self._weights(np.arange(table.n_annotators)))
        self.evidence_, total = votes.sum(axis=1), votes.sum(axis=0)
        self.prior_ = total / total.sum() if total.sum() > 0 else np.full(total.size, 1 / total.size)
        self.posterior_ = chunks.apply_gold(self._shares(votes), gold)
        self._set_reliability(*self._count_agreement(table, self.posterior_))
        on_step(2, float("nan"))
        self.trace_, self.n_iter_, self.converged_ = np.empty(0), 2, True

    def _first_pass(self, table: Annotations, rows: Rows, gold: IntArray | None) -> tuple[FloatArray, FloatArray]:
        """Return r + c and r + w + t of each annotator (A,) after a pass over all items with rows."""
        order, group = processing_order(rows, table, gold, self.tie_seed_)
        right = np.full(table.n_annotators, self.right_count)
        total = np.full(table.n_annotators, self.right_count + self.wrong_count)
        weight = np.ones(rows.label.size) if rows.weight is None else np.asarray(rows.weight, np.float64)
        truth = np.full(table.n_items, -1) if gold is None else gold
        outcome = np.empty((int(np.diff(group).max(initial=0)), table.n_classes))
        short = rows.label.size < chunks.MIN_KERNEL_ROWS
        run: Any = weigh_in_order.__wrapped__ if short else weigh_in_order
        run(order, group, (rows.item_ptr, rows.annotator, rows.label, weight), truth, right, total, outcome)
        return right, total

    def _set_accuracies(self) -> None:
        self.accuracy_ = self.right_ / self.counted_
        right, wrong = self.right_count, self.wrong_count
        labelled = self.right_.size * np.array([right, right + wrong])  # pseudo-counts in the sums
        hits, total = np.array([self.right_.sum(), self.counted_.sum()]) - labelled
        self.population_accuracy_ = float((hits + right) / (total + right + wrong))

    def _weights(self, annotators: IntArray) -> FloatArray:
        """Return s of annotators by code, −1 if unseen; the only class of a table has the weight a."""
        accuracy = np.append(self.accuracy_, self.population_accuracy_)[annotators]
        return accuracy * self.classes_.size - 1 if self.classes_.size > 1 else accuracy

    def _votes(self, rows: Rows, skill: FloatArray) -> FloatArray:
        """Return the right side of q (I, K); items whose labels all have weight 0 get plain votes."""
        I, K = rows.n_items, self.classes_.size
        item = np.repeat(np.arange(I), np.diff(rows.item_ptr))
        weight = np.ones(item.size) if rows.weight is None else rows.weight
        weighted = weight * skill[rows.annotator]
        cell = item * K + rows.label
        votes = np.bincount(cell, weighted, I * K).reshape(I, K).astype(np.float64)
        votes += np.bincount(item, np.maximum(-weighted, 0), I)[:, None]
        plain = np.bincount(cell, weight, I * K).reshape(I, K)
        return np.where(votes.max(axis=1, keepdims=True, initial=0) > 0, np.maximum(votes, 0), plain)

    def _shares(self, votes: FloatArray) -> FloatArray:
        """Return votes as shares (I, K), or the prior for items without votes."""
        total = votes.sum(axis=1, keepdims=True)
        return np.where(total > 0, votes / np.where(total > 0, total, 1.0), self.prior_)

    def _compute_posterior(self, table: Annotations, annotators: IntArray) -> FloatArray:
        return self._shares(self._votes(expand_rows(table), self._weights(annotators)))

    def _count_agreement(self, table: Annotations, posterior: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the weight of labels that agree with the estimated class, and of all labels (A,)."""
        return super()._count_agreement(table, winning_shares(posterior))

    def _unseen_annotator_values(self) -> dict[str, Any]:
        total = self.right_count + self.wrong_count
        return {"right_": self.right_count, "counted_": total, "accuracy_": self.population_accuracy_}

    def _partial_update(
        self, table: Annotations, item: IntArray, annotator: IntArray, old: BoolArray, gold: IntArray | None
    ) -> FloatArray:
        """Return the posterior (I, K) of a new table's items; add the votes, then count towards the accuracies."""
        before = self.posterior_[item] * self.evidence_[item][:, None]
        votes = before + self._votes(expand_rows(table), self._weights(annotator))
        total = self.prior_ * self.evidence_.sum() + (votes - before).sum(axis=0)
        self.evidence_ = updated_copy(self.evidence_, item, votes.sum(axis=1))
        if total.sum() > 0:
            self.prior_ = total / total.sum()
        posterior = chunks.apply_gold(self._shares(votes), gold)
        hits, counted = self._count_agreement(table, posterior)
        self.right_ = updated_copy(self.right_, annotator, self.right_[annotator] + hits)
        self.counted_ = updated_copy(self.counted_, annotator, self.counted_[annotator] + counted)
        self._set_accuracies()
        return np.asarray(posterior)

    def annotator_confusions(self, annotators: IntArray) -> FloatArray:
        right = np.append(self.accuracy_, self.population_accuracy_)[annotators]
        coin = np.stack([right, 1 - right], axis=1)
        return Coins(self.prior_, coin).label_likelihood().to_matrices(self.classes_.size)

    def confusion_support(self) -> FloatArray:
        return np.asarray(self.counted_)[:, None, None]


def processing_order(rows: Rows, table: Annotations, gold: IntArray | None, seed: int) -> tuple[IntArray, IntArray]:
    """Return the items with rows in the order of the first pass, and the offsets of groups that share a place."""
    keys = item_keys(rows, table.votes(), table.n_annotators, seed)
    late = np.ones(keys.size, dtype=bool) if gold is None else gold < 0
    order = np.lexsort((keys, late))
    order = order[np.diff(rows.item_ptr)[order] > 0]
    new = np.append(True, (np.diff(keys[order]) != 0) | (np.diff(late[order]) != 0))[: order.size]
    return order, group_offsets(np.cumsum(new) - 1, int(new.sum()))
