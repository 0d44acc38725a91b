"""The annotations of a project, one row per id.

A row has the position of the first event with its id in the log. A correction replaces its values, and a removal sets
its label to −1. The rows of an item are found by an index, and by lists of rows that were added since it was built.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dissensus.common.arrays import group_offsets
from dissensus.common.types import FloatArray, IntArray, Names
from dissensus.serve.events import EVENT_KINDS, StoredEvent, current_event
from dissensus.serve.store import ROW_COLUMNS

ITEM, ANNOTATOR, LABEL = range(3)  # kinds of names in the store
REMOVED_LABEL = -1  # label of a row that was removed


class NameList:
    """A list of names that finds names by code and codes by name."""

    def __init__(self, names: Iterable[str] = ()):
        self.texts: list[str] = []
        self.codes: dict[str, int] = {}
        self._ordered: tuple[IntArray, tuple[Names, IntArray, IntArray]] | None = None
        self.extend(names)

    def __len__(self) -> int:
        return len(self.texts)

    def extend(self, names: Iterable[str]) -> None:
        """Append new names."""
        for name in names:
            self.codes[name] = len(self.texts)
            self.texts.append(name)

    def sort_used(self, used: IntArray) -> tuple[Names, IntArray, IntArray]:
        """Sort the names of the codes `used`; return them, their codes, and the rank of every code, −1 if unused."""
        if self._ordered is not None and np.array_equal(used, self._ordered[0]):
            _, (names, codes, rank) = self._ordered
            return names, codes, np.append(rank, np.full(len(self.texts) - rank.size, -1))
        texts = pa.array(self.texts, pa.string()).take(pa.array(used))
        order = np.asarray(pc.sort_indices(texts))  # Arrow sorts without holding the lock of the interpreter.
        codes, rank = used[order], np.full(len(self.texts), -1, np.int64)
        rank[codes] = np.arange(codes.size)
        names = np.array(texts.take(pa.array(order)).to_pylist(), object)
        self._ordered = used, (names, codes, rank)  # Most fits have no new names, so the result is kept.
        return names, codes, rank


class RowArrays(NamedTuple):
    """Rows as arrays with one entry per row."""

    first_seq: Any  # number of the first event with the row's id, increasing
    item: Any
    annotator: Any
    label: Any  # REMOVED if the row was removed
    at: Any  # seconds since 1970, float

    def select_counting(self) -> RowArrays:
        """Return copies of the rows that were not removed."""
        keep = self.label != REMOVED_LABEL
        whole = bool(keep.all())
        return RowArrays(*(column.copy() if whole else column[keep] for column in self))


COLUMN_TYPES = (np.int64, np.int32, np.int32, np.int32, np.float64)


def build_rows(found: Any, corrected: Iterable[StoredEvent]) -> RowArrays:
    """Build the rows of a log from its `ROW_COLUMNS` and from all events of ids that have several events."""
    column = dict(zip(ROW_COLUMNS, found.T, strict=True))
    _, at = np.unique(column["first"], return_index=True)
    label = np.where(column["kind"] == EVENT_KINDS.index("removal"), REMOVED_LABEL, column["label"])[at]
    parts = (column["first"][at], column["item"][at], column["annotator"][at], label, column["at"][at])
    rows = RowArrays(*(part.astype(kind) for part, kind in zip(parts, COLUMN_TYPES, strict=True)))
    for first, group in groupby(sorted(corrected, key=attrgetter("first_seq", "seq")), key=attrgetter("first_seq")):
        place = int(np.searchsorted(rows.first_seq, first))
        for values, value in zip(rows, row_values(current_event(group)), strict=True):
            values[place] = value
    return rows


def row_values(event: StoredEvent) -> tuple[int, int, int, int, float]:
    """Return the values of a row whose current event is this one."""
    removed = EVENT_KINDS[event.kind] == "removal"
    return event.first_seq, event.item, event.annotator, REMOVED_LABEL if removed else event.label, event.at


class AnnotationRows:
    """The rows of a project, which can be added and replaced."""

    def __init__(self, columns: RowArrays):
        self.size = columns.first_seq.size
        self._columns = columns
        item = columns.item
        self._order = np.argsort(item, kind="stable")[np.count_nonzero(item < 0) :].astype(np.int32)
        self._ptr = group_offsets(np.sort(item[item >= 0]), int(item.max(initial=-1)) + 1)
        self._changed: dict[int, list[int]] = {}  # item → its rows, if some were added since the index was built

    def columns(self) -> RowArrays:
        """Return all rows; the arrays change with later events."""
        return RowArrays(*(column[: self.size] for column in self._columns))

    def _rows_of(self, item: int) -> list[int]:
        """Return the current and former rows of an item."""
        if item in self._changed or item >= self._ptr.size - 1:
            return self._changed.get(item, [])
        row_numbers: list[int] = self._order[self._ptr[item] : self._ptr[item + 1]].tolist()
        return row_numbers

    def rows_of_item(self, item: int) -> list[int]:
        """Return the current rows of an item."""
        columns = self._columns
        rows = self._rows_of(item)
        return [row for row in rows if columns.item[row] == item and columns.label[row] != REMOVED_LABEL]

    def has_label(self, item: int, annotator: int) -> bool:
        """Return True if an annotator has labelled an item."""
        return any(self._columns.annotator[row] == annotator for row in self.rows_of_item(item))

    def last_label_times(self, column: str, size: int) -> FloatArray:
        """Return the (size,) time of the last label by the codes of a column, 0 without labels."""
        columns, found = self.columns(), np.zeros(size)
        counts = columns.label != REMOVED_LABEL
        np.maximum.at(found, getattr(columns, column)[counts], columns.at[counts])
        return found

    def put_row(self, values: tuple[int, int, int, int, float]) -> list[tuple[int, int, int]]:
        """Add or replace a row; return (item, annotator, ±1) for the label that was added or removed."""
        row = int(np.searchsorted(self._columns.first_seq[: self.size], values[0]))
        _, item, annotator, label, _ = values
        changes = []
        if row == self.size:
            if self.size == self._columns.first_seq.size:
                n_new = max(1024, self.size // 8)
                self._columns = RowArrays(*(np.concatenate([c, np.empty(n_new, c.dtype)]) for c in self._columns))
            self.size += 1
        elif self._columns.label[row] != REMOVED_LABEL:
            changes.append((int(self._columns.item[row]), int(self._columns.annotator[row]), -1))
        for column, value in zip(self._columns, values, strict=True):
            column[row] = value
        if item >= 0 and row not in (known := self._rows_of(item)):
            self._changed[item] = sorted([*known, row])
        if label != REMOVED_LABEL:
            changes.append((item, annotator, 1))
        return changes
