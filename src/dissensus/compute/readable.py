"""The passes as operations on whole arrays: the form to read, the oracle of the numba kernels, short tables and torch.

The pass of the confusion family is here, those of votes and abilities are in `kernels.vote` and `kernels.glad`.

For every item i:   q_i(c) ∝ π_i(c) Π_{rows of i} L[a, c, y]      (E step)
then for its rows:  counts[a, c, y] += q_i(c)                       (sums of the M step)

| source | q_i comes from | | shape | table and counts |
|---|---|---|---|---|
| LIKELIHOOD | the table, as above | | FULL | L (A, K, K) [annotator, true, given] |
| VOTES | shares of the item's votes, uniform without votes | | OWN | odds (A, 1, K) [annotator, –, given] |
| GIVEN | an array (I, K), whatever it holds | | COIN | odds (A, 1, 1) |
| ONES | 1 for every class: the counts are those of the labels | | | |

In OWN and COIN a label speaks for its own class alone: L[a, c, y] = odds if c = y, else 1, times a factor that all
classes share and that the caller adds to the evidence; a cell's count is how much of its labels is right.

Arrays are NumPy's, or tensors of torch (`kernels.on_torch`): both libraries give their operations the same names, and
what they do differently is in `Part`. `kernels.confusion` makes no arrays of (N, K) numbers, but costs a second to
load, numba's own import above all: a table of fewer than MIN_KERNEL_ROWS rows is walked here.
"""

from __future__ import annotations

import sys
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from dissensus.compute.engines.base import Rows

LIKELIHOOD, VOTES, GIVEN, ONES = range(4)
FULL, OWN, COIN = range(3)
MIN_KERNEL_ROWS = 20_000


def library(values: Any) -> Any:
    """The module whose array it is: NumPy or torch."""
    return np if isinstance(values, np.ndarray) else sys.modules["torch"]


class Part:
    """Items and their rows, with sums over both. NumPy's arrays here; `kernels.on_torch.Part` has tensors.

    `rows` are as `Rows.arrays`; the first item is item `first` of the whole table.
    """

    def __init__(self, rows: tuple[Any, ...], gold: Any, n_annotators: int, n_classes: int, first: int = 0):
        self.ptr, self.annotator, self.label, self.weight = rows
        self.gold, self.n_annotators, self.n_classes, self.n_items = gold, n_annotators, n_classes, len(self.ptr) - 1
        self.items = slice(first, first + self.n_items)

    @cached_property
    def lengths(self) -> Any:
        """(items,) rows of each item."""
        return self.ptr[1:] - self.ptr[:-1]

    def of_items(self, values: Any) -> Any:
        """What an array over all items of the table, or over these, has of these; None stays None."""
        return self.put(values if values is None or len(values) == self.n_items else values[self.items])

    def put(self, values: Any) -> Any:
        """An array of NumPy's as the others here are; None stays None."""
        return values

    def array(self, values: Any) -> Any:
        """The same as an array of NumPy's."""
        return values

    @cached_property
    def item(self) -> Any:
        """(rows,) the item of each row, counted from the first here."""
        return np.repeat(np.arange(self.n_items), self.lengths)

    @cached_property
    def cell(self) -> Any:
        """(rows,) annotator·K + label."""
        return self.annotator.astype(np.int64) * self.n_classes + self.label

    @cached_property
    def own(self) -> Any:
        """(rows,) item·K + label: where an (items, K) array has the entry of a row."""
        return self.item * self.n_classes + self.label

    def zeros(self, *shape: int) -> Any:
        """Sums, in double precision."""
        return np.zeros(shape)

    def ones(self) -> Any:
        """(rows,) the weight of each row."""
        return np.ones(self.label.size) if self.weight is None else self.weight

    def weighed(self, values: Any) -> Any:
        """Values (rows,) or (rows, K), times the weights of the rows."""
        if self.weight is None:
            return values
        return values * (self.weight if values.ndim == 1 else self.weight[:, None])

    def by_item(self, values: Any) -> Any:
        """(items, K) sums of values (rows, K); `reduceat` is wrong for an item without rows."""
        sums, busy = self.zeros(self.n_items, values.shape[1]), self.lengths > 0
        if busy.any():
            sums[busy] = np.add.reduceat(values, self.ptr[:-1][busy], axis=0)
        return sums

    def add(self, at: Any, values: Any, size: int) -> Any:
        """(size,) or (size, K) sums of values (rows,) or (rows, K), each to its place `at` (rows,)."""
        if values.ndim == 2:
            return np.stack([self.add(at, column, size) for column in values.T], axis=1)
        return np.bincount(at, values, size).astype(np.float64, copy=False)

    def votes(self, values: Any) -> Any:
        """(items, K) sums of values (rows,), each to the entry of its own label."""
        return self.add(self.own, values, self.n_items * self.n_classes).reshape(self.n_items, self.n_classes)


def confusion_pass(
    part: Part, source: int, shape: int, table: Any = None, prior: Any = None, given: Any = None
) -> tuple[Any, Any, Any, Any]:
    """Log evidence, classes (K,), counts (A, true, given) and posterior (I, K)."""
    A, K, xp = part.n_annotators, part.n_classes, library(part.label)
    cell = part.annotator if shape == COIN else part.cell
    evidence: Any = 0.0
    if source == LIKELIHOOD:
        logs = xp.log(xp.swapaxes(table, 1, 2)).reshape(-1, table.shape[1])  # [annotator and given, true]
        of_row = part.weighed(logs[cell] if shape == FULL else logs[:, 0][cell])
        votes = part.by_item(of_row) if shape == FULL else part.votes(of_row)
        q, evidence = posterior_of(xp.log(prior) + votes, part.gold)
        evidence = evidence.sum()
    elif source == VOTES:
        votes = part.votes(part.ones())
        total = votes.sum(1)[:, None]
        q = with_known(xp.where(total > 0, votes / xp.where(total > 0, total, 1.0), 1 / K), part.gold)
    else:
        q = part.zeros(part.n_items, K) + 1 if source == ONES else with_known(given, part.gold)
    n_true, n_given = K if shape == FULL else 1, 1 if shape == COIN else K
    of_row = q[part.item] if shape == FULL else q.reshape(-1)[part.own]
    counts = part.add(cell, part.weighed(of_row), A * n_given).reshape(A, n_given, n_true)
    labels = xp.swapaxes(counts, 1, 2).reshape(-1).reshape(A, n_true, n_given)  # contiguous
    return evidence, q.sum(0), labels, q


def label_matrix(rows: Rows, n_annotators: int, n_classes: int) -> Any:
    """Sparse (I, A·K) weight of the labels of each item, in the column annotator·K + label."""
    from scipy.sparse import csr_array

    part = Part(rows.arrays, None, n_annotators, n_classes)
    return csr_array((part.ones(), part.cell, rows.item_ptr), (rows.n_items, n_annotators * n_classes))


def with_known(posterior: Any, gold: Any) -> Any:
    """A posterior (I, K) with the known classes in it."""
    return _held(posterior, gold, 0.0, 1.0)


def posterior_of(joint: Any, gold: Any) -> tuple[Any, Any]:
    """(I, K) posterior by log joint probabilities (I, K) and known classes, and (I,) log evidence."""
    xp, joint = library(joint), _held(joint, gold, -np.inf)
    top = xp.amax(joint, 1)[:, None]
    q = xp.exp(joint - top)
    total = q.sum(1)[:, None]
    return q / total, (top + xp.log(total))[:, 0]


def _held(values: Any, gold: Any, others: float, own: float | None = None) -> Any:
    """Values (I, K); items of known class have `own` (or what it was) at that class, and `others` elsewhere."""
    if gold is None:
        return values
    known = gold >= 0
    at = known, gold[known]
    kept = values[at] if own is None else own
    values = library(values).where(known[:, None], others, values)
    values[at] = kept
    return values
