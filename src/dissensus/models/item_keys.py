"""Keys of items for random draws that depend on the labels, not on names or on the order of rows.

The key of an item is a hash of its labels, in which an annotator is known by the number of its labels and by how many
agree with the votes, and a class by the number of its labels. Items that these numbers do not distinguish share a key
and all draws. Sums are of integers modulo 2⁶⁴, so that the order of rows cannot change a key.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dissensus.common.types import FloatArray, IntArray
from dissensus.compute.rows import Rows
from dissensus.models.votes import winning_shares
from dissensus.table import names as naming

WEIGHT_GRID = 2.0**20  # steps per label to which weights are rounded
MAX_KEY_WEIGHT = 2.0**40  # larger weights count as this one, so that a rounded weight fits into 64 bits


def item_keys(rows: Rows, votes: FloatArray, n_annotators: int, seed: int) -> Any:
    """Return a random 64-bit integer for each item (I,); `votes` (I, K) are the sums of weights by label."""
    label = rows.label.astype(np.int64)
    item = np.repeat(np.arange(rows.n_items), np.diff(rows.item_ptr))
    given = _round(np.ones(item.size) if rows.weight is None else rows.weight)
    with np.errstate(over="ignore"):
        agreed = given * _round(winning_shares(votes)[item, label])
    labels, hits = (_sum_integers(rows.annotator, values, n_annotators) for values in (given, agreed))
    annotator = _combine(naming.scramble_integers(labels ^ np.uint64(seed)), hits)
    row = _combine(annotator[rows.annotator], class_keys(label, given, votes.shape[1])[label])
    with np.errstate(over="ignore"):
        return naming.scramble_integers(_sum_integers(item, row * given, rows.n_items))


def class_keys(label: IntArray, given: Any, n_classes: int) -> Any:
    """Return a hash of the number of labels of each class, (K,), from rounded weights (N,)."""
    return naming.scramble_integers(_sum_integers(label, given, n_classes))


def cell_keys(keys: Any, votes: FloatArray) -> Any:
    """Return a random 64-bit integer for each item and class (I, K), from the item's key and the class's votes."""
    totals = naming.scramble_integers(_round(votes).sum(axis=0, dtype=np.uint64))
    return _combine(_combine(keys[:, None], totals), _round(votes))


def uniform_draws(keys: Any, n: int, number: int) -> FloatArray:
    """Return `n` uniform numbers in (0, 1) for each key, (…, n); `number` is that of the draw."""
    steps = naming.scramble_integers(np.arange(n, dtype=np.uint64) + np.uint64(number * n + 1))
    bits = naming.scramble_integers(keys[..., None] ^ steps) >> np.uint64(11)
    return np.asarray((bits.astype(np.float64) + 0.5) * 2.0**-53)


def _round(weight: FloatArray) -> Any:
    return np.rint(np.minimum(weight, MAX_KEY_WEIGHT) * WEIGHT_GRID).astype(np.uint64)


def _combine(first: Any, second: Any) -> Any:
    return naming.scramble_integers(naming.scramble_integers(first) ^ second)


def _sum_integers(owner: IntArray, values: Any, size: int) -> Any:
    """Return the sums of 64-bit integers by owner, (size,), modulo 2⁶⁴."""
    sums = np.zeros(size, np.uint64)
    np.add.at(sums, owner, values)
    return sums
