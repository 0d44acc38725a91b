"""Columns with one entry per item, from which batches are taken.

Columns are prepared once, and moved to the device if its memory is large enough. A column is one of

- a tensor with one row per item,
- `MappedRows`, which has one row per item in a file, and reads only the rows of a batch,
- a `RaggedColumn`, which has any number of rows per item, such as annotations,
- `PaddedSequences`, which has one sequence per item, padded to the longest sequence of the batch.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from dissensus.common.types import FloatArray, IntArray
from dissensus.learning.exceptions import ArgumentLengthsDiffer

Batch = dict[str, Tensor]
ROWS_PER_READ = 2**16  # maximum number of rows that are read from a file at once


class MappedRows:
    """Rows of a memory-mapped array, which are centred, scaled and converted to float32 when they are read.

    `row_index` selects rows; None selects all rows. Pickling stores only the location of the file, so that another
    process reads from the file the rows that it needs.
    """

    def __init__(self, array: Any, row_index: IntArray | None = None, center: Any = 0.0, spread: Any = 1.0):
        self.array, self.row_index, self.center, self.spread = array, row_index, center, spread
        self.shape, self.ndim = (len(array) if row_index is None else row_index.size, *array.shape[1:]), array.ndim

    def rescale(self, center: FloatArray, spread: FloatArray) -> MappedRows:
        """Return the rows after subtraction of `center` (D,) and division by `spread` (D,)."""
        return MappedRows(self.array, self.row_index, center, spread)

    def select_rows(self, at: IntArray) -> MappedRows:
        """Return a selection of the rows without reading them."""
        return MappedRows(self.array, at if self.row_index is None else self.row_index[at], self.center, self.spread)

    def __len__(self) -> int:
        return int(self.shape[0])

    def __getitem__(self, key: Any) -> Any:
        x = np.asarray(self.array[key if self.row_index is None else self.row_index[key]]).astype(np.float32)
        return ((x - self.center) / self.spread).astype(np.float32)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        return np.asarray(self[:], dtype)

    def __reduce__(self) -> Any:
        whole = self.array
        while isinstance(whole.base, np.memmap):  # Only the base array stores its offset in the file.
            whole = whole.base
        offset = whole.offset + self.array.ctypes.data - whole.ctypes.data
        where = (str(self.array.filename), self.array.dtype, "r", offset, self.array.shape)
        return _open_mapped, (where, self.row_index, self.center, self.spread)

    def take(self, name: str, rows: Tensor) -> Batch:
        """Read these rows into a batch."""
        return {name: torch.from_numpy(self[rows.cpu().numpy()]).to(rows.device)}

    def iterate_blocks(self) -> Iterator[Tensor]:
        """Yield all rows, `ROWS_PER_READ` at a time."""
        for start in range(0, max(len(self), 1), ROWS_PER_READ):
            yield torch.from_numpy(self[start : start + ROWS_PER_READ])

    def to(self, device: Any) -> Tensor:
        """Read all rows into the memory of a device."""
        return torch.cat([block.to(device) for block in self.iterate_blocks()])

    @property
    def nbytes(self) -> int:
        """Bytes of all rows in memory."""
        return 4 * len(self) * int(self.shape[1])


def _open_mapped(where: tuple[Any, ...], *how: Any) -> MappedRows:
    return MappedRows(np.memmap(*where), *how)


@dataclass(frozen=True)
class RaggedColumn:
    """Columns with any number of rows per item; those of item i are [ptr[i]:ptr[i + 1]] in every column."""

    columns: Mapping[str, Tensor]  # each (T, …)
    ptr: Tensor  # (I + 1,)

    def __len__(self) -> int:
        return len(self.ptr) - 1

    def take(self, name: str, rows: Tensor) -> Batch:
        """Return the concatenated rows of these items, and as `row` the position of each row's item in the batch."""
        start, length = self.ptr[rows], self.ptr[rows + 1] - self.ptr[rows]
        row = torch.repeat_interleave(torch.arange(len(rows), device=rows.device), length)
        first = torch.cumsum(length, 0) - length  # (B,) position of each item's first row in the batch
        at = start[row] + torch.arange(len(row), device=rows.device) - first[row]
        return {key: column[at] for key, column in self.columns.items()} | {"row": row}

    def to(self, device: Any) -> Self:
        """Return the same columns on another device."""
        rows = {key: column.to(device) for key, column in self.columns.items()}
        return replace(self, columns=rows, ptr=self.ptr.to(device))

    @property
    def nbytes(self) -> int:
        """Bytes of all columns."""
        return sum(column.nbytes for column in self.columns.values())


@dataclass(frozen=True)
class PaddedSequences(RaggedColumn):
    """One column of sequences of different lengths; a batch has shape (B, longest, …)."""

    pad: float = 0
    shortest: int = 1  # minimum length of a batch, so that the windows of a convolution fit

    def take(self, name: str, rows: Tensor) -> Batch:
        """Return the padded sequences of these rows."""
        (values,) = self.columns.values()
        start, length = self.ptr[rows], self.ptr[rows + 1] - self.ptr[rows]
        longest = max(int(length.max()) if len(rows) else 0, self.shortest)
        step = torch.arange(longest, device=rows.device)
        inside = step < length[:, None]  # (B, L)
        padded = values.new_full((len(rows), longest, *values.shape[1:]), self.pad)
        padded[inside] = values[(start[:, None] + step)[inside]]
        return {name: padded}


class BatchColumns:
    """Named columns with one entry per item each; `take(rows)` returns a batch."""

    def __init__(self, **columns: Tensor | MappedRows | RaggedColumn):
        self.columns = columns
        lengths = {name: len(column) for name, column in columns.items()}
        if len(set(lengths.values())) != 1:
            raise ArgumentLengthsDiffer(argument="BatchColumns", lengths=lengths)
        self.n = next(iter(lengths.values()))

    def __len__(self) -> int:
        return self.n

    @property
    def nbytes(self) -> int:
        """Bytes of all columns."""
        return sum(column.nbytes for column in self.columns.values())

    def to(self, device: Any) -> Self:
        """Return the same columns on another device."""
        return type(self)(**{name: column.to(device) for name, column in self.columns.items()})

    def iterate_tensors(self) -> Iterator[Tensor]:
        """Yield all tensors of the columns; columns in a file are read block by block."""
        for column in self.columns.values():
            if isinstance(column, RaggedColumn):
                yield from (column.ptr, *column.columns.values())
            else:
                yield from column.iterate_blocks() if isinstance(column, MappedRows) else [column]

    def take(self, rows: Tensor) -> Batch:
        """Return the batch of these items."""
        batch: Batch = {}
        for name, column in self.columns.items():
            batch |= {name: column[rows]} if isinstance(column, Tensor) else column.take(name, rows)
        return batch
