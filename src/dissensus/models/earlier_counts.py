"""What is known of annotators from before a table: counts of their labels on items whose class was known.

Such counts say what so many labels on items of known class would say. So they become just that: one item of each class
whose class is known, with a row for every count, weighted by it. Every method that takes weights and known classes can
use them, and does not know about it. (Each class counts one item more in a learnt prior.)
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from dissensus.common.arrays import group_starts
from dissensus.common.types import FloatArray, IntArray
from dissensus.models.exceptions import BadEarlierCount, EarlierMatrixShape, EarlierShape
from dissensus.table import names as naming
from dissensus.table.annotations import Annotations

Earlier = Mapping[Any, Any] | FloatArray
"""Annotator → (K, K) counts [true, given], or (A, K, K) in the order of a table's annotators."""


def check_earlier(earlier: Earlier, table: Annotations) -> FloatArray:
    """(A, K, K) counts [annotator, true, given]; annotators that are not in the table are left out."""
    A, K = table.n_annotators, table.n_classes
    if isinstance(earlier, Mapping):
        counts = np.zeros((A, K, K))
        names, _ = naming.encode(naming.to_column(list(earlier), "earlier"), "earlier")
        at = dict(zip(names.tolist(), naming.match(names, table.annotators, "annotators").tolist(), strict=True))
        for name, matrix in earlier.items():
            array = np.asarray(matrix, float)
            if array.shape != (K, K):
                raise EarlierMatrixShape(annotator=naming.shown(name), shape=array.shape, n_classes=K)
            if at[name] >= 0:
                counts[at[name]] = array
    else:
        counts = np.asarray(earlier, float)
        if counts.shape != (A, K, K):
            raise EarlierShape(shape=counts.shape, expected=(A, K, K))
    bad = np.argwhere(~(np.isfinite(counts) & (counts >= 0)))
    if bad.size:
        a, c, k = bad[0]
        raise BadEarlierCount(
            annotator=naming.shown(table.annotators[a]),
            count=float(counts[a, c, k]),
            label=naming.shown(table.classes[k]),
            true=naming.shown(table.classes[c]),
        )
    return counts


def with_earlier(table: Annotations, gold: IntArray | None, counts: FloatArray) -> tuple[Annotations, IntArray]:
    """The table and its gold with one more item of each class at the end, labelled as `counts` (A, K, K) say."""
    true, annotator, label = np.nonzero(counts.transpose(1, 0, 2))  # in the order of the table's rows
    weight = table.row_weights
    proba = None if table.proba is None else np.concatenate([table.proba, np.eye(table.n_classes)[label]])
    names = np.empty(table.n_classes, object)
    names[:] = [f"known to be {name}" for name in table.classes]
    more = Annotations(
        np.concatenate([table.annotator, annotator.astype(np.int32)]),
        np.concatenate([table.label, label.astype(table.label.dtype)]),
        np.concatenate([table.item_ptr, table.item_ptr[-1] + group_starts(true, table.n_classes)[1:]]),
        np.concatenate([table.items.astype(object), names]),
        table.annotators,
        table.classes,
        np.concatenate([weight, counts[annotator, true, label]]),
        proba,
        table.kind,
    )
    before = np.full(table.n_items, -1, np.int32) if gold is None else gold
    return more, np.concatenate([before, np.arange(table.n_classes, dtype=np.int32)])
