"""The rows of a table in the form that passes use: hard labels sorted by item, with optional weights."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dissensus.common.arrays import ReadOnlyArrays
from dissensus.common.types import BoolArray, FloatArray, IntArray
from dissensus.table.annotations import Annotations


@dataclass(frozen=True)
class Rows(ReadOnlyArrays):
    """Hard labels sorted by item, with optional weights."""

    item_ptr: IntArray
    annotator: IntArray
    label: IntArray
    weight: FloatArray | None

    @property
    def n_items(self) -> int:
        """The number of items."""
        return int(self.item_ptr.size) - 1

    @property
    def arrays(self) -> tuple[IntArray, IntArray, IntArray, FloatArray | None]:
        """The four arrays as a tuple, which kernels take as one argument."""
        return self.item_ptr, self.annotator, self.label, self.weight

    def select_items(self, keep: BoolArray) -> Rows:
        """Return the rows of the items that the mask `keep` (I,) selects."""
        lengths = np.diff(self.item_ptr)
        row_kept = np.repeat(keep, lengths)
        ptr = np.concatenate([[0], np.cumsum(lengths[keep])])
        weight = None if self.weight is None else self.weight[row_kept]
        return Rows(ptr, self.annotator[row_kept], self.label[row_kept], weight)

    def slice_items(self, start: int, stop: int) -> Rows:
        """Return the rows of items start … stop − 1, with offsets relative to the first row."""
        ptr = self.item_ptr[start : stop + 1]
        rows = slice(int(ptr[0]), int(ptr[-1]))
        weight = None if self.weight is None else self.weight[rows]
        return Rows(ptr - ptr[0], self.annotator[rows], self.label[rows], weight)


def join_rows(parts: list[Rows]) -> Rows:
    """Concatenate the rows of consecutive ranges of items; the offsets of each part begin at 0."""
    starts = np.cumsum([0, *(part.annotator.size for part in parts)])
    ptr = [part.item_ptr[:-1] + start for part, start in zip(parts, starts, strict=False)]
    weights = [part.weight for part in parts if part.weight is not None]
    return Rows(
        np.concatenate([*ptr, starts[-1:]]),
        np.concatenate([part.annotator for part in parts]),
        np.concatenate([part.label for part in parts]),
        np.concatenate(weights) if weights else None,
    )


def expand_rows(table: Annotations) -> Rows:
    """Return the rows of a table; a probabilistic row becomes one row per class, weighted by its probability."""
    if table.proba is None:
        return Rows(table.item_ptr, table.annotator, table.label, table.weight)
    row, label = np.nonzero(table.proba)
    weight = table.proba[row, label] * (1.0 if table.weight is None else table.weight[row])
    ptr = np.concatenate([[0], np.cumsum(np.count_nonzero(table.proba, axis=1))])[table.item_ptr]
    return Rows(ptr, table.annotator[row], label.astype(table.label.dtype), weight)
