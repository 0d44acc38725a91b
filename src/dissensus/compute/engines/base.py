"""What a pass is, and what an engine is; see the package."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Self, TypeVar

import numpy as np

from dissensus.common.types import BoolArray, FloatArray, IntArray
from dissensus.compute import chunk as chunks
from dissensus.compute.chunk import Chunk
from dissensus.compute.rows import Rows
from dissensus.table.annotations import Annotations, NamedSizes

if TYPE_CHECKING:
    from dissensus.compute.engines.local import Threads


@dataclass(frozen=True)
class TableSize:
    """The size of a table: all that a pass may know before it sees a chunk."""

    n_items: int
    n_annotators: int
    n_classes: int
    n_rows: int
    weighted: bool

    @property
    def is_short(self) -> bool:
        """Return whether passes use their array form, because loading a kernel would take longer than it saves."""
        return self.n_rows < chunks.MIN_KERNEL_ROWS


@dataclass(frozen=True)
class Sums:
    """Sums of a pass over items. The sums of two parts of a table are added with `+`."""

    by_annotator: ClassVar[tuple[str, ...]] = ()
    """Fields with an entry per annotator; parameters have the same, so that a worker gets those of its annotators."""

    def __add__(self, other: Self) -> Self:
        return type(self)(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(self)))


class RemoteTable(ABC, NamedSizes):
    """A table whose rows are not in the memory of this process: names and sizes as of `Annotations`."""

    location: ClassVar[str]  # place of the rows, such as "on a disk"
    engine: ClassVar[str]  # name of the engine that processes it
    n_annotations: Any
    annotations_per_annotator: IntArray
    weighted: bool

    def size(self) -> TableSize:
        """Return what a pass may know of the table."""
        return TableSize(self.n_items, self.n_annotators, self.n_classes, self.n_annotations, self.weighted)

    @abstractmethod
    def all_rows(self) -> Rows:
        """Return every row, in memory."""

    def to_annotations(self) -> Annotations:
        """Return the table in memory, its items named by their numbers."""
        rows, items = self.all_rows(), np.arange(self.n_items)
        return Annotations(rows.annotator, rows.label, rows.item_ptr, items, self.annotators, self.classes, rows.weight)


P = TypeVar("P", contravariant=True)
S = TypeVar("S", bound=Sums, covariant=True)


@dataclass
class Worker:
    """The state of one worker of a pass: what it reads of the parameters, and the sums so far."""

    params: Any
    size: TableSize
    sums: list[Any]


class Pass(Generic[P, S]):
    """One pass over the items, as a model states it: parameters in, sums out, perhaps results per item.

    A pass has two forms: `array_form` in whole-array operations, which is readable, runs short tables and torch, and is
    the oracle of the tests; and `kernel`, a compiled loop. It holds settings and buffers, never annotations, so that it
    can be sent to where they are. An engine opens workers, lets each process chunks, and closes them.
    """

    sums_type: ClassVar[type[Any]]
    outputs: ClassVar[tuple[str, ...]] = ("posterior",)  # results per item that it can write
    sequential: bool = False  # whether chunks must come in order, from the first item to the last (a pass that draws)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "cells"}  # buffers do not travel

    def array_form(self, chunk: Chunk, params: Any) -> tuple[Any, ...]:
        """Return the sums over a chunk, then all `outputs` of its items."""
        raise NotImplementedError

    def kernel(self, chunk: Chunk, worker: Worker, out: Mapping[str, Any]) -> None:
        """Process a chunk, add to the worker's sums; `out` holds arrays over the chunk's items to be written."""
        raise NotImplementedError

    def zeros(self, size: TableSize) -> list[Any]:
        """Return the sums of a worker that has processed nothing."""
        raise NotImplementedError

    def open(self, params: P, size: TableSize, workers: int, pool: Threads) -> list[Worker]:
        """Create `workers` worker states."""
        return [Worker(params, size, [] if size.is_short else self.zeros(size)) for _ in range(workers)]

    def process(self, chunk: Chunk, worker: Worker, out: Mapping[str, Any]) -> None:
        """Process a chunk in the form that suits the table's size."""
        if not worker.size.is_short:
            self.kernel(chunk, worker, out)
            return
        found = self.array_form(chunk, worker.params)
        sums, written = found[: -len(self.outputs)], found[-len(self.outputs) :]
        for name, values in zip(self.outputs, written, strict=True):
            if name in out:
                out[name][:] = values
        worker.sums = [old + new for old, new in zip(worker.sums or [0.0] * len(sums), sums, strict=True)]

    def close(self, workers: list[Worker], pool: Threads) -> S:
        """Return the sums of all workers."""
        return self.sums_type(*map(sum, zip(*(worker.sums for worker in workers), strict=True)))  # type: ignore[no-any-return]

    def on_torch(self, params: P, data: Any, out: Mapping[str, Any]) -> S:
        """Run the array form over tensors, a `kernels.on_torch.Data`."""
        return self.sums_type(*data.sum_chunks(partial(self.array_form, params=params), self.outputs, out))  # type: ignore[no-any-return]


class Engine(ABC):
    """A table where passes over it run; `annotations_per_annotator` (A,) counts the annotations of each annotator."""

    checkpoint: Any = None  # a driver saves its state there between passes, such as `disk.RunFolder`

    def __init__(self, size: TableSize, annotations_per_annotator: IntArray, pool: Threads, gold: IntArray | None):
        self.size, self.annotations_per_annotator, self.pool, self.gold = size, annotations_per_annotator, pool, gold
        self._cached: dict[Any, Sums] = {}

    @abstractmethod
    def run(self, pass_: Pass[P, S], params: P, out: Mapping[str, Any] | None = None) -> S:
        """Run one pass over all items; `out` names arrays over all items, made by `allocate`, to be written."""

    @abstractmethod
    def has_labels(self) -> BoolArray:
        """(I,) Return which items have annotations."""

    def run_cached(self, key: Any, pass_: Pass[Any, S]) -> S:
        """Return the sums of a pass without parameters, computed once; they must not be written into."""
        if key not in self._cached:
            self._cached[key] = self.run(pass_, None)
        return self._cached[key]  # type: ignore[return-value]  # what this very pass returned

    @abstractmethod
    def select_rows(self, keep: BoolArray) -> Rows:
        """Return the rows of the items (I,) to keep, in memory."""

    def allocate(self, name: str, *shape: int) -> FloatArray:
        """Return storage for a result with one entry of this shape per item, to be written by a pass."""
        return np.empty((self.size.n_items, *shape))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.pool.__exit__()
