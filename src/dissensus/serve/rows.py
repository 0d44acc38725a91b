"""The annotations of a project that count now, one row for each id, and what a table is made of.

A row keeps the place of its first event in the log; a correction replaces what is in it, a removal leaves it empty
(label −1). Rows of an item are found by an index that is made anew once in a while, and by a list of those added since.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dissensus.common.arrays import group_starts
from dissensus.common.types import FloatArray, IntArray, Names
from dissensus.serve.events import KINDS, Stored, winner
from dissensus.serve.store import ROW_COLUMNS

ITEM, ANNOTATOR, LABEL = range(3)  # what a name is of, in the store
REMOVED = -1  # the label of a row that does not count
MAX_UNINDEXED = 200_000  # rows since the index was made


class NameList:
    """Names by code, and codes by name."""

    def __init__(self, names: Iterable[str] = ()):
        self.texts: list[str] = []
        self.codes: dict[str, int] = {}
        self._ordered: tuple[IntArray, tuple[Names, IntArray, IntArray]] | None = None
        self.extend(names)

    def __len__(self) -> int:
        return len(self.texts)

    def extend(self, names: Iterable[str]) -> None:
        """Add names that are not there yet."""
        for name in names:
            self.codes[name] = len(self.texts)
            self.texts.append(name)

    def ordered(self, used: IntArray) -> tuple[Names, IntArray, IntArray]:
        """Some names in order, their codes, and the place of every code in them; −1 where it is not used."""
        if self._ordered is not None and np.array_equal(used, self._ordered[0]):
            _, (names, codes, rank) = self._ordered
            return names, codes, np.append(rank, np.full(len(self.texts) - rank.size, -1))
        texts = pa.array(self.texts, pa.string()).take(pa.array(used))
        order = np.asarray(pc.sort_indices(texts))  # Arrow sorts without holding up other threads
        codes, rank = used[order], np.full(len(self.texts), -1, np.int64)
        rank[codes] = np.arange(codes.size)
        names = np.array(texts.take(pa.array(order)).to_pylist(), object)
        self._ordered = used, (names, codes, rank)  # few fits are the first to see a name
        return names, codes, rank


class Columns(NamedTuple):
    """Rows as arrays, each of one entry a row."""

    first: Any  # seq of the first event with the row's id, rising
    item: Any
    annotator: Any
    label: Any  # REMOVED where the row does not count
    at: Any  # seconds, as floats

    def counting(self) -> Columns:
        """The rows that count."""
        keep = self.label != REMOVED
        whole = bool(keep.all())
        return Columns(*(column.copy() if whole else column[keep] for column in self))


TYPES = (np.int64, np.int32, np.int32, np.int32, np.float64)


def fold(found: Any, corrected: Iterable[Stored]) -> Columns:
    """What is left of a log: `found` are its numbers (`ROW_COLUMNS`), `corrected` all events of ids with several."""
    column = dict(zip(ROW_COLUMNS, found.T, strict=True))
    _, at = np.unique(column["first"], return_index=True)
    label = np.where(column["kind"] == KINDS.index("removal"), REMOVED, column["label"])[at]
    parts = (column["first"][at], column["item"][at], column["annotator"][at], label, column["at"][at])
    rows = Columns(*(part.astype(kind) for part, kind in zip(parts, TYPES, strict=True)))
    for first, group in groupby(sorted(corrected, key=attrgetter("first", "seq")), key=attrgetter("first")):
        place = int(np.searchsorted(rows.first, first))
        for values, value in zip(rows, content(winner(group)), strict=True):
            values[place] = value
    return rows


def content(event: Stored) -> tuple[int, int, int, int, float]:
    """What a row holds where this event counts."""
    removed = KINDS[event.kind] == "removal"
    return event.first, event.item, event.annotator, REMOVED if removed else event.label, event.at


class Rows:
    """Rows that can be added and replaced."""

    def __init__(self, columns: Columns):
        self.size = columns.first.size
        self._columns = columns
        self.index()

    def columns(self) -> Columns:
        """All rows; the arrays may change later."""
        return Columns(*(column[: self.size] for column in self._columns))

    def index(self) -> None:
        """Make the index of items anew."""
        item = self.columns().item
        n = int(item.max(initial=-1)) + 1
        self._order = np.argsort(item, kind="stable").astype(np.int32)
        self._order = self._order[np.count_nonzero(item < 0) :]
        self._ptr = group_starts(np.sort(item[item >= 0]), n)
        self._since: dict[int, list[int]] = {}
        self._n_since = 0

    def of_item(self, item: int) -> list[int]:
        """The rows of an item that count."""
        found: list[int] = []
        if item < self._ptr.size - 1:
            found = self._order[self._ptr[item] : self._ptr[item + 1]].tolist()
        if item in self._since:
            found = sorted({*found, *self._since[item]})
        columns = self._columns
        return [row for row in found if columns.item[row] == item and columns.label[row] != REMOVED]

    def has(self, item: int, annotator: int) -> bool:
        """True where somebody's label of an item counts."""
        return any(self._columns.annotator[row] == annotator for row in self.of_item(item))

    def last_at(self, column: str, size: int) -> FloatArray:
        """(size,) when the last label that counts was given, by the codes of a column; 0 where there is none."""
        columns, found = self.columns(), np.zeros(size)
        counts = columns.label != REMOVED
        np.maximum.at(found, getattr(columns, column)[counts], columns.at[counts])
        return found

    def put(self, values: tuple[int, int, int, int, float]) -> list[tuple[int, int, int]]:
        """Add a row, or replace what is in it; (item, annotator, ±1) for each row that counts now or did."""
        row = int(np.searchsorted(self._columns.first[: self.size], values[0]))
        changes, moved = [], True
        if row == self.size:
            if self.size == self._columns.first.size:
                more = max(1024, self.size // 8)
                self._columns = Columns(*(np.concatenate([c, np.empty(more, c.dtype)]) for c in self._columns))
            self.size += 1
        else:
            _, item, annotator, label, _ = (column[row] for column in self._columns)
            moved = bool(item != values[1])
            if label != REMOVED:
                changes.append((int(item), int(annotator), -1))
        for column, value in zip(self._columns, values, strict=True):
            column[row] = value
        if moved and values[1] >= 0:
            own = self._since.setdefault(values[1], [])
            if row not in own:
                own.append(row)
            self._n_since += 1
        if values[3] != REMOVED:
            changes.append((values[1], values[2], 1))
        if self._n_since > MAX_UNINDEXED:
            self.index()
        return changes
