"""A pass, and what an engine is: see the package."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Self, TypeVar

import numpy as np

from dissensus.common.arrays import ReadOnlyArrays
from dissensus.common.types import BoolArray, FloatArray, IntArray
from dissensus.compute import readable
from dissensus.table.annotations import Annotations, Named

if TYPE_CHECKING:
    from dissensus.compute.engines.local import Threads


@dataclass(frozen=True)
class Rows(ReadOnlyArrays):
    """Annotations as the kernels take them: hard labels, perhaps weighted."""

    item_ptr: IntArray
    annotator: IntArray
    label: IntArray
    weight: FloatArray | None

    @property
    def n_items(self) -> int:
        """I, the number of items."""
        return int(self.item_ptr.size) - 1

    @property
    def arrays(self) -> tuple[IntArray, IntArray, IntArray, FloatArray | None]:
        """All four, as one argument of a kernel."""
        return self.item_ptr, self.annotator, self.label, self.weight

    def select(self, keep: BoolArray) -> Rows:
        """The rows of the items (I,) to keep."""
        lengths = np.diff(self.item_ptr)
        own = np.repeat(keep, lengths)
        ptr = np.concatenate([[0], np.cumsum(lengths[keep])])
        return Rows(ptr, self.annotator[own], self.label[own], None if self.weight is None else self.weight[own])

    def between(self, start: int, stop: int) -> Rows:
        """The rows of items start … stop − 1, their offsets counted from the first."""
        ptr = self.item_ptr[start : stop + 1]
        own = slice(int(ptr[0]), int(ptr[-1]))
        weight = None if self.weight is None else self.weight[own]
        return Rows(ptr - ptr[0], self.annotator[own], self.label[own], weight)


def join_rows(parts: list[Rows]) -> Rows:
    """Rows of several ranges of items, one after the other; the offsets of each begin at 0."""
    starts = np.cumsum([0, *(part.annotator.size for part in parts)])
    ptr = [part.item_ptr[:-1] + start for part, start in zip(parts, starts, strict=False)]
    weights = [part.weight for part in parts if part.weight is not None]
    return Rows(
        np.concatenate([*ptr, starts[-1:]]),
        np.concatenate([part.annotator for part in parts]),
        np.concatenate([part.label for part in parts]),
        np.concatenate(weights) if weights else None,
    )


def hard_rows(table: Annotations) -> Rows:
    """The rows of a table; a probabilistic row becomes one row per class, weighted by its probability."""
    if table.proba is None:
        return Rows(table.item_ptr, table.annotator, table.label, table.weight)
    row, label = np.nonzero(table.proba)
    weight = table.proba[row, label] * (1.0 if table.weight is None else table.weight[row])
    ptr = np.concatenate([[0], np.cumsum(np.count_nonzero(table.proba, axis=1))])[table.item_ptr]
    return Rows(ptr, table.annotator[row], label.astype(table.label.dtype), weight)


@dataclass(frozen=True)
class Size:
    """How much there is, and of which kind: all that a pass may know before it sees a block."""

    n_items: int
    n_annotators: int
    n_classes: int
    n_rows: int
    weighted: bool


@dataclass(frozen=True)
class Block:
    """Items start … stop − 1 of these arrays; item 0 of the arrays is item `offset` of the whole table."""

    start: int
    stop: int
    rows: Rows
    gold: IntArray | None
    offset: int = 0

    def of(self, values: Any) -> Any:
        """The part of an array over all items that these arrays are about; what is no longer than that is it."""
        n = self.rows.n_items
        return values if len(values) == n else values[self.offset : self.offset + n]


@dataclass(frozen=True)
class Sums:
    """What a pass adds up over items. Two parts of the table: `one + other`."""

    by_annotator: ClassVar[tuple[str, ...]] = ()
    """Fields with an entry per annotator; parameters have the same, so that a worker needs those of its own only."""

    def __add__(self, other: Self) -> Self:
        return type(self)(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(self)))


class TableElsewhere(ABC, Named):
    """A table whose rows are not in memory here: the names and sizes of an `Annotations`."""

    where: ClassVar[str]  # as in "… on a disk takes no …"
    engine: ClassVar[str]  # that can walk it
    n_annotations: Any
    per_annotator: IntArray
    weighted: bool

    def size(self) -> Size:
        """What a pass may know of it."""
        return Size(self.n_items, self.n_annotators, self.n_classes, self.n_annotations, self.weighted)

    @abstractmethod
    def all_rows(self) -> Rows:
        """Every row, in memory."""

    def in_memory(self) -> Annotations:
        """The table itself, its items named by their numbers."""
        rows, items = self.all_rows(), np.arange(self.n_items)
        return Annotations(rows.annotator, rows.label, rows.item_ptr, items, self.annotators, self.classes, rows.weight)


P = TypeVar("P", contravariant=True)
S = TypeVar("S", bound=Sums, covariant=True)


@dataclass
class Worker:
    """What one worker of a pass holds: what the walk reads of the parameters, and what it has added up so far."""

    params: Any
    size: Size
    sums: list[Any]
    short: bool


class Pass(Generic[P, S]):
    """One walk over the items, as a model states it: parameters in, sums out, perhaps something written per item.

    The walk has two forms: `kernel`, and `over` whole arrays, for short tables and torch, to which tests hold the
    other. A pass holds settings and buffers, never annotations, so that it can be sent to where they are. A worker is
    opened with the parameters, walks any number of blocks and is closed; sums of several workers are added.
    """

    adds: ClassVar[type[Any]]  # its sums
    writes: ClassVar[tuple[str, ...]] = ("posterior",)  # what it can write per item

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "cells"}  # settings travel, buffers do not

    @property
    def in_order(self) -> bool:
        """Whether blocks must come one after the other, from the first item to the last (a walk that draws)."""
        return False

    def over(self, part: readable.Part, params: Any) -> tuple[Any, ...]:
        """Walk the items of a part: the sums, then all of `writes`, over its items."""
        raise NotImplementedError

    def kernel(self, block: Block, worker: Worker, out: Mapping[str, Any]) -> None:
        """Walk a block, add to the worker's sums; `out` holds arrays over the block's items, to be written."""
        raise NotImplementedError

    def zeros(self, size: Size) -> list[Any]:
        """The sums of a worker that has walked nothing."""
        raise NotImplementedError

    def open(self, params: P, size: Size, workers: int, pool: Threads) -> list[Worker]:
        """So many workers."""
        short = size.n_rows < readable.MIN_KERNEL_ROWS
        return [Worker(params, size, [] if short else self.zeros(size), short) for _ in range(workers)]

    def walk(self, block: Block, worker: Worker, out: Mapping[str, Any]) -> None:
        """Walk a block in the form that suits the table's size."""
        if not worker.short:
            self.kernel(block, worker, out)
            return
        size = worker.size
        part = readable.Part(block.rows.arrays, block.gold, size.n_annotators, size.n_classes, block.offset)
        found = self.over(part, worker.params)
        sums = found[: -len(self.writes)]
        for name, values in zip(self.writes, found[-len(self.writes) :], strict=True):
            if name in out:
                out[name][:] = values
        worker.sums = [one + other for one, other in zip(worker.sums or [0.0] * len(sums), sums, strict=True)]

    def close(self, workers: list[Worker], pool: Threads) -> S:
        """What all workers have added up."""
        return self.adds(*map(sum, zip(*(worker.sums for worker in workers), strict=True)))  # type: ignore[no-any-return]

    def on_torch(self, params: P, data: Any, out: Mapping[str, Any]) -> S:
        """The same over `data`, a `kernels.on_torch.Data`."""
        return self.adds(*data.sums(partial(self.over, params=params), self.writes, out))  # type: ignore[no-any-return]


class Engine(ABC):
    """A table, placed where passes over it run; `per_annotator` (A,) are the annotations of each annotator."""

    checkpoint: Any = None  # where a driver leaves its state between passes, such as `disk.RunFolder`

    def __init__(self, size: Size, per_annotator: IntArray, pool: Threads, gold: IntArray | None):
        self.size, self.per_annotator, self.pool, self.gold = size, per_annotator, pool, gold
        self._once: dict[Any, Sums] = {}

    @abstractmethod
    def sweep(self, walk: Pass[P, S], params: P, out: Mapping[str, Any] | None = None) -> S:
        """One pass over all items at `params`; `out` names arrays over all items, from `per_item`, to be written."""

    @abstractmethod
    def labelled(self) -> BoolArray:
        """(I,) which items have annotations."""

    def once(self, key: Any, walk: Pass[Any, S]) -> S:
        """The sums of a pass without parameters, made when first asked for. Not to be written into."""
        if key not in self._once:
            self._once[key] = self.sweep(walk, None)
        return self._once[key]  # type: ignore[return-value]  # what this very pass gave

    @abstractmethod
    def rows_of(self, keep: BoolArray) -> Rows:
        """The rows of the items (I,) to keep, in memory."""

    def per_item(self, name: str, *shape: int) -> Any:
        """A result with one entry of this shape per item, to be written by a pass."""
        return np.empty((self.size.n_items, *shape))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.pool.__exit__()
