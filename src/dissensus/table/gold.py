"""What is known of the items of a table: classes or numbers by the names of items, aligned with the table's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from dissensus.common.types import FloatArray, IntArray
from dissensus.exceptions import DataError, UnknownClass
from dissensus.table import kinds
from dissensus.table import names as naming
from dissensus.table.encoding import floats, joined

if TYPE_CHECKING:
    from dissensus.table.annotations import Annotations

Gold = TypeVar("Gold", IntArray, FloatArray)


def codes_of(table: Annotations, item: Any, label: Any) -> IntArray:
    """See `Annotations.gold_codes`."""
    item, label = joined(naming.to_column(item, "item")), joined(naming.to_column(label, "label"))
    rows = np.flatnonzero(~naming.missing_rows(label))
    label_names, label_code = naming.encode(naming.to_column(label.take(rows), "label"), "label")
    if table.kind == "sets":
        label_names, place = kinds.vocabulary("sets", label_names)
        label_code = place[label_code]
    known = naming.recode(label_code, label_names, table.classes, "gold labels")
    if (known < 0).any():
        problem = f"labels are none of the table's {table.n_classes} classes"
        said = naming.bad_rows("gold", known < 0, problem, label_names[label_code], rows)
        how = "table.including(labels)" if table.kind == "sets" else "classes=[…]"
        raise UnknownClass(f"{said} Declare all classes in making the table: {how}.")
    return _aligned(table, item, rows, known, np.full(table.n_items, -1, np.int32), "labels")


def values_of(table: Annotations, item: Any, value: Any) -> FloatArray:
    """See `Annotations.gold_values`."""
    item, value = joined(naming.to_column(item, "item")), joined(naming.to_column(value, "gold"))
    rows = np.flatnonzero(~naming.missing_rows(value))
    known = floats(value.take(rows), "gold")
    return _aligned(table, item, rows, known, np.full(table.n_items, np.nan), "numbers")


def _aligned(table: Annotations, item: Any, rows: IntArray, known: Gold, gold: Gold, what: str) -> Gold:
    """`gold` (I,) with what is known in these rows of a column of items; two for one item must be the same."""
    names, code = naming.encode(item.take(rows), "item")
    at = naming.recode(code, names, table.items, f"items of the gold {what}")
    here = at >= 0
    at, known, rows = at[here], known[here], rows[here]
    gold[at] = known
    if (gold[at] != known).any():
        row = int((gold[at] != known).argmax())
        raise DataError(
            f"gold: item {naming.shown(table.items[at[row]])} (row {rows[row]}, from 0) has two different {what}; "
            "keep one."
        )
    return gold
