"""Counts of annotators' labels on gold items that were collected before the current table.

Such counts carry the same evidence as labels on gold items. Therefore one gold item per class is added to the table,
with one row per count, weighted by the count. Every method that supports weights and gold can use them. If class shares
are learnt, these items count as well.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from dissensus.common.arrays import group_offsets
from dissensus.common.types import FloatArray, IntArray
from dissensus.messages import quote_name
from dissensus.models.exceptions import BadEarlierCount, WrongEarlierMatrixShape, WrongEarlierShape
from dissensus.table import names as naming
from dissensus.table.annotations import Annotations

EarlierCounts = Mapping[Any, Any] | FloatArray
"""Counts (K, K) [true, given] by annotator name, or (A, K, K) in the order of a table's annotators."""


def check_earlier_counts(earlier: EarlierCounts, table: Annotations) -> FloatArray:
    """Return the counts as (A, K, K) [annotator, true, given]; annotators that are not in the table are skipped."""
    A, K = table.n_annotators, table.n_classes
    if isinstance(earlier, Mapping):
        counts = np.zeros((A, K, K))
        names, _ = naming.encode_column(naming.to_column(list(earlier), "earlier"), "earlier")
        at = dict(zip(names.tolist(), naming.match_names(names, table.annotators, "annotators").tolist(), strict=True))
        for name, matrix in earlier.items():
            array = np.asarray(matrix, float)
            if array.shape != (K, K):
                raise WrongEarlierMatrixShape(annotator=quote_name(name), shape=array.shape, n_classes=K)
            if at[name] >= 0:
                counts[at[name]] = array
    else:
        counts = np.asarray(earlier, float)
        if counts.shape != (A, K, K):
            raise WrongEarlierShape(shape=counts.shape, expected=(A, K, K))
    bad = np.argwhere(~(np.isfinite(counts) & (counts >= 0)))
    if bad.size:
        a, c, k = bad[0]
        raise BadEarlierCount(
            annotator=quote_name(table.annotators[a]),
            count=float(counts[a, c, k]),
            label=quote_name(table.classes[k]),
            true=quote_name(table.classes[c]),
        )
    return counts


def add_earlier_items(table: Annotations, gold: IntArray | None, counts: FloatArray) -> tuple[Annotations, IntArray]:
    """Return the table and gold with one added gold item per class, whose labels are `counts` (A, K, K)."""
    true, annotator, label = np.nonzero(counts.transpose(1, 0, 2))  # sorted like the rows of the table
    weight = table.row_weights
    proba = None if table.proba is None else np.concatenate([table.proba, np.eye(table.n_classes)[label]])
    names = np.empty(table.n_classes, object)
    names[:] = [f"known to be {name}" for name in table.classes]
    extended = Annotations(
        np.concatenate([table.annotator, annotator.astype(np.int32)]),
        np.concatenate([table.label, label.astype(table.label.dtype)]),
        np.concatenate([table.item_ptr, table.item_ptr[-1] + group_offsets(true, table.n_classes)[1:]]),
        np.concatenate([table.items.astype(object), names]),
        table.annotators,
        table.classes,
        np.concatenate([weight, counts[annotator, true, label]]),
        proba,
        table.kind,
    )
    known = np.full(table.n_items, -1, np.int32) if gold is None else gold
    return extended, np.concatenate([known, np.arange(table.n_classes, dtype=np.int32)])
