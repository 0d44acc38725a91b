"""What batches are gathered from: columns with one entry per item, prepared once, on the device where they fit.

A column is a tensor (one row per item), `Padded` (a sequence per item, cut together and padded to the longest of the
batch) or a `Bag` (any number of rows per item, side by side, with `row` saying whose they are: so an annotation costs
the same whoever gave it).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import torch
from torch import Tensor

Batch = dict[str, Tensor]


@dataclass(frozen=True)
class Padded:
    """Sequences of different lengths: sequence i is values[ptr[i]:ptr[i + 1]]; a batch is (B, longest, …)."""

    values: Tensor  # (T, …)
    ptr: Tensor  # (I + 1,)
    pad: float = 0
    shortest: int = 1  # a batch is at least so long: windows of a convolution must fit

    def __len__(self) -> int:
        return len(self.ptr) - 1

    def take(self, name: str, rows: Tensor) -> Batch:
        """The padded sequences of these rows."""
        start, length = self.ptr[rows], self.ptr[rows + 1] - self.ptr[rows]
        longest = max(int(length.max()) if len(rows) else 0, self.shortest)
        step = torch.arange(longest, device=rows.device)
        inside = step < length[:, None]  # (B, L)
        padded = self.values.new_full((len(rows), longest, *self.values.shape[1:]), self.pad)
        padded[inside] = self.values[(start[:, None] + step)[inside]]
        return {name: padded}

    def to(self, device: Any) -> Padded:
        """The same on another device."""
        return Padded(self.values.to(device), self.ptr.to(device), self.pad, self.shortest)

    @property
    def nbytes(self) -> int:
        """Bytes of the values."""
        return self.values.nbytes


@dataclass(frozen=True)
class Bag:
    """Any number of rows per item: those of item i are [ptr[i]:ptr[i + 1]] of every column."""

    columns: Mapping[str, Tensor]  # each (T, …)
    ptr: Tensor  # (I + 1,)

    def __len__(self) -> int:
        return len(self.ptr) - 1

    def take(self, name: str, rows: Tensor) -> Batch:
        """The rows of these items one after another, and `row`: the place in the batch of the item of each."""
        start, length = self.ptr[rows], self.ptr[rows + 1] - self.ptr[rows]
        row = torch.repeat_interleave(torch.arange(len(rows), device=rows.device), length)
        first = torch.cumsum(length, 0) - length  # where an item's rows begin in the batch
        at = start[row] + torch.arange(len(row), device=rows.device) - first[row]
        return {key: column[at] for key, column in self.columns.items()} | {"row": row}

    def to(self, device: Any) -> Bag:
        """The same on another device."""
        return Bag({key: column.to(device) for key, column in self.columns.items()}, self.ptr.to(device))

    @property
    def nbytes(self) -> int:
        """Bytes of all columns."""
        return sum(column.nbytes for column in self.columns.values())


class Columns:
    """Columns by name, all with one entry per item; `take(rows)` makes a batch."""

    def __init__(self, **columns: Tensor | Padded | Bag):
        self.columns = columns
        sizes = {len(column) for column in columns.values()}
        if len(sizes) != 1:
            raise ValueError(f"columns of {sorted(sizes)} items; they must be equally many.")
        self.n = sizes.pop()

    def __len__(self) -> int:
        return self.n

    @property
    def nbytes(self) -> int:
        """Bytes of all columns."""
        return sum(column.nbytes for column in self.columns.values())

    def to(self, device: Any) -> Self:
        """The same on another device."""
        return type(self)(**{name: column.to(device) for name, column in self.columns.items()})

    def take(self, rows: Tensor) -> Batch:
        """The batch of these items."""
        batch: Batch = {}
        for name, column in self.columns.items():
            batch |= {name: column[rows]} if isinstance(column, Tensor) else column.take(name, rows)
        return batch
