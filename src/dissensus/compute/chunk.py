"""Chunks of items with their rows, and sums over them by whole-array operations.

Kernels loop over a `Chunk`, and the array form of a pass uses its sums. The array form is the readable form of the
pass: it is used for short tables and with torch, and tests compare the kernels with it. The arrays are NumPy arrays or
torch tensors (`kernels.on_torch.TorchChunk`). Most operations have the same name in both libraries; `Chunk` defines the
others.

A pass of the confusion family is described by two constants:

| source | origin of the posterior q_i | | layout | label likelihood and label counts |
|---|---|---|---|---|
| LIKELIHOOD | class shares and label likelihood | | FULL | (A, K, K) [annotator, true, given] |
| VOTES | the item's vote shares, uniform without votes | | DIAGONAL | odds (A, 1, K) [annotator, –, given] |
| POSTERIOR | an array (I, K) that the caller passes | | COIN | odds (A, 1, 1) |
| ALL_ONES | 1 for every class, so that labels are counted | | | |

In the layouts DIAGONAL and COIN a label changes only the odds of the class that it names. The likelihood is these odds
if true = given and 1 otherwise, times a factor that is the same for all classes. The label counts are the expected
numbers of right labels.
"""

from __future__ import annotations

import sys
from functools import cached_property
from typing import Any

import numpy as np

from dissensus.compute.rows import Rows

LIKELIHOOD, VOTES, POSTERIOR, ALL_ONES = range(4)
FULL, DIAGONAL, COIN = range(3)
MIN_KERNEL_ROWS = 20_000  # minimum number of rows for kernels, because loading numba takes 1 s


class Chunk:
    """Items start … stop − 1 of some rows, with their gold labels, and sums over the rows.

    Item 0 of the rows is item `first` of the table. The sums are over all rows, because array forms always process
    whole chunks; only kernels process ranges.
    """

    def __init__(
        self, rows: tuple[Any, ...], gold: Any, n_annotators: int, n_classes: int, first: int = 0,
        start: int = 0, stop: int | None = None,
    ):  # fmt: skip
        self.rows = rows
        self.item_ptr, self.annotator, self.label, self.weight = rows
        self.gold, self.n_annotators, self.n_classes, self.first = gold, n_annotators, n_classes, first
        self.n_items = len(self.item_ptr) - 1
        self.start, self.stop = start, self.n_items if stop is None else stop

    def select_item_values(self, values: Any) -> Any:
        """Return the rows of an array for this chunk's items; the array has a row per item of the table or chunk."""
        if values is None or len(values) == self.n_items:
            return self.to_backend(values)
        return self.to_backend(values[self.first : self.first + self.n_items])

    def to_backend(self, values: Any) -> Any:
        """Convert a NumPy array, or None, to the array library of this chunk."""
        return values

    def to_numpy(self, values: Any) -> Any:
        """Convert an array of this chunk's library, or None, to NumPy."""
        return values

    @cached_property
    def rows_per_item(self) -> Any:
        """The number of rows of each item, (items,)."""
        return self.item_ptr[1:] - self.item_ptr[:-1]

    @cached_property
    def item(self) -> Any:
        """The item of each row, counted from the first item of the chunk, (rows,)."""
        return np.repeat(np.arange(self.n_items), self.rows_per_item)

    @cached_property
    def annotator_label(self) -> Any:
        """The index annotator·K + label of each row, (rows,)."""
        return self.annotator.astype(np.int64) * self.n_classes + self.label

    @cached_property
    def item_label(self) -> Any:
        """The flat index item·K + label of each row in an (items, K) array, (rows,)."""
        return self.item * self.n_classes + self.label

    def zeros(self, *shape: int) -> Any:
        """Return an array of zeros in double precision."""
        return np.zeros(shape)

    def row_weights(self) -> Any:
        """Return the weight of each row, (rows,)."""
        return np.ones(self.label.size) if self.weight is None else self.weight

    def apply_weights(self, values: Any) -> Any:
        """Return values (rows,) or (rows, K) multiplied by the weights of the rows."""
        if self.weight is None:
            return values
        return values * (self.weight if values.ndim == 1 else self.weight[:, None])

    def sum_by_item(self, values: Any) -> Any:
        """Return the sums of values (rows, K) by item, (items, K)."""
        sums, has_rows = self.zeros(self.n_items, values.shape[1]), self.rows_per_item > 0
        if has_rows.any():  # `reduceat` is wrong for an item without rows
            sums[has_rows] = np.add.reduceat(values, self.item_ptr[:-1][has_rows], axis=0)
        return sums

    def scatter_sum(self, place: Any, values: Any, size: int) -> Any:
        """Return the sums of values (rows,) or (rows, K) by index `place` (rows,), with `size` entries."""
        if values.ndim == 2:
            return np.stack([self.scatter_sum(place, column, size) for column in values.T], axis=1)
        return np.bincount(place, values, size).astype(np.float64, copy=False)

    def votes(self, values: Any) -> Any:
        """Return the sums of values (rows,) by item and label, (items, K)."""
        return self.scatter_sum(self.item_label, values, self.n_items * self.n_classes).reshape(self.n_items, -1)


def array_library(values: Any) -> Any:
    """Return the library of an array, NumPy or torch."""
    return np if isinstance(values, np.ndarray) else sys.modules["torch"]


def build_label_matrix(rows: Rows, n_annotators: int, n_classes: int) -> Any:
    """Return the weights of each item's labels as a sparse matrix (I, A·K) with columns annotator·K + label."""
    from scipy.sparse import csr_array

    chunk = Chunk(rows.arrays, None, n_annotators, n_classes)
    return csr_array(
        (chunk.row_weights(), chunk.annotator_label, rows.item_ptr), (rows.n_items, n_annotators * n_classes)
    )


def vote_shares(chunk: Chunk, gold: Any) -> Any:
    """Return the vote shares (I, K); they are uniform for items without votes, and 1 for gold classes."""
    votes, xp = chunk.votes(chunk.row_weights()), array_library(chunk.label)
    total = votes.sum(1)[:, None]
    return apply_gold(xp.where(total > 0, votes / xp.where(total > 0, total, 1.0), 1 / chunk.n_classes), gold)


def apply_gold(posterior: Any, gold: Any) -> Any:
    """Return the posterior (I, K) with probability 1 for the class of each gold item."""
    return _replace_gold_items(posterior, gold, 0.0, 1.0)


def normalise_log_joint(log_joint: Any, gold: Any) -> tuple[Any, Any]:
    """Normalise log joint probabilities (I, K), given gold; return the posterior (I, K) and log evidence (I,)."""
    xp, log_joint = array_library(log_joint), _replace_gold_items(log_joint, gold, -np.inf)
    top = xp.amax(log_joint, 1)[:, None]
    q = xp.exp(log_joint - top)
    total = q.sum(1)[:, None]
    return q / total, (top + xp.log(total))[:, 0]


def _replace_gold_items(values: Any, gold: Any, elsewhere: float, at_gold: float | None = None) -> Any:
    """Set the values (I, K) of gold items: `at_gold` for the gold class (unchanged if None), `elsewhere` for others."""
    if gold is None:
        return values
    has_gold = gold >= 0
    gold_entries = has_gold, gold[has_gold]
    gold_values = values[gold_entries] if at_gold is None else at_gold
    values = array_library(values).where(has_gold[:, None], elsewhere, values)
    values[gold_entries] = gold_values
    return values
