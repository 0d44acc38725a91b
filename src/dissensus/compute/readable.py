"""The pass of the confusion family in NumPy: the form to read, the oracle of the kernels, and the pass of short tables.

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

`kernels.confusion` and `kernels.on_torch` are the same without arrays of (N, K) numbers. They cost a second to load,
numba's own import above all: a table of fewer than MIN_KERNEL_ROWS rows is walked here.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dissensus.common.types import FloatArray, IntArray
from dissensus.compute.engines.base import Rows

LIKELIHOOD, VOTES, GIVEN, ONES = range(4)
FULL, OWN, COIN = range(3)
MIN_KERNEL_ROWS = 20_000


def confusion_pass(
    rows: Rows,
    size: tuple[int, int],
    source: int,
    shape: int,
    table: FloatArray | None = None,
    prior: FloatArray | None = None,
    given: FloatArray | None = None,
    gold: IntArray | None = None,
) -> tuple[float, FloatArray, FloatArray, FloatArray]:
    """Log evidence, classes (K,), counts (A, true, given) and posterior (I, K); `size` is annotators and classes."""
    (A, K), I = size, rows.item_ptr.size - 1
    item = np.repeat(np.arange(I), np.diff(rows.item_ptr))
    own = item * K + rows.label  # place of a row's label in an array (I, K)
    cell = rows.annotator if shape == COIN else rows.annotator.astype(np.int64) * K + rows.label
    weight = np.ones(item.size) if rows.weight is None else rows.weight
    evidence = 0.0
    if source == LIKELIHOOD and table is not None and prior is not None:
        logs = np.log(np.swapaxes(table, 1, 2)).reshape(-1, table.shape[1])  # [annotator and given, true]
        joint = np.log(np.broadcast_to(prior, (I, K)))
        if shape == FULL:
            joint = joint + sum_by_item(logs[cell] * weight[:, None], rows.item_ptr)
        else:
            joint = joint + np.bincount(own, weight * logs[cell, 0], I * K).reshape(I, K)
        q, logs = posterior_of(joint, gold)
        evidence = float(logs.sum())
    elif source == VOTES:
        votes = np.bincount(own, weight, I * K).reshape(I, K)
        total = votes.sum(axis=1, keepdims=True)
        q = np.where(total > 0, votes / np.where(total > 0, total, 1), 1 / K)
    else:
        q = np.ones((I, K)) if given is None else np.array(given)
    q = with_known(q, None if source == ONES else gold)
    if shape == FULL:
        flat = [np.bincount(cell, weight * q[item, k], A * K) for k in range(K)]  # (true, annotator and given)
        counts = np.stack(flat).reshape(K, A, K).transpose(1, 0, 2)
    else:
        counts = np.bincount(cell, weight * q.reshape(-1)[own], A * (K if shape == OWN else 1)).reshape(A, 1, -1)
    return evidence, q.sum(axis=0), np.ascontiguousarray(counts, np.float64), q


def sum_by_item(values: FloatArray, item_ptr: IntArray) -> FloatArray:
    """(I, K) sums of values (N, K) over the rows of each item; `reduceat` is wrong for an item without rows."""
    sums, busy = np.zeros((item_ptr.size - 1, values.shape[1])), np.diff(item_ptr) > 0
    if busy.any():
        sums[busy] = np.add.reduceat(values, item_ptr[:-1][busy], axis=0)
    return sums


def label_matrix(rows: Rows, n_annotators: int, n_classes: int) -> Any:
    """Sparse (I, A·K) weight of the labels of each item, in the column annotator·K + label."""
    from scipy.sparse import csr_array

    column = rows.annotator.astype(np.int64) * n_classes + rows.label
    weight = np.ones(column.size) if rows.weight is None else rows.weight
    return csr_array((weight, column, rows.item_ptr), (rows.item_ptr.size - 1, n_annotators * n_classes))


def with_known(posterior: FloatArray, gold: IntArray | None) -> FloatArray:
    """A posterior (I, K) with the known classes in it."""
    if gold is not None:
        posterior[gold >= 0] = np.eye(posterior.shape[1])[gold[gold >= 0]]
    return posterior


def posterior_of(joint: FloatArray, gold: IntArray | None) -> tuple[FloatArray, FloatArray]:
    """(I, K) posterior by log joint probabilities (I, K) and known classes, and (I,) log evidence."""
    if gold is not None:
        joint = np.where((gold[:, None] >= 0) & (np.arange(joint.shape[1]) != gold[:, None]), -np.inf, joint)
    top = joint.max(axis=1, keepdims=True, initial=-np.inf)
    q = np.exp(joint - top)
    total = q.sum(axis=1, keepdims=True)
    return q / total, (top + np.log(total))[:, 0]
