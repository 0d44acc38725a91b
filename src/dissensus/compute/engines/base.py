"""The base classes of passes and engines."""

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
from dissensus.table.annotations import Annotations, SizeProperties

if TYPE_CHECKING:
    from dissensus.compute.engines.local import Threads


@dataclass(frozen=True)
class TableSize:
    """The size of a table, which a pass knows before it processes a chunk."""

    n_items: int
    n_annotators: int
    n_classes: int
    n_rows: int
    weighted: bool

    @property
    def is_short(self) -> bool:
        """Whether the table is so short that passes use the array form instead of loading a kernel."""
        return self.n_rows < chunks.MIN_KERNEL_ROWS


@dataclass(frozen=True)
class Sums:
    """The sums that a pass computes; `+` adds the sums of two parts of a table."""

    by_annotator: ClassVar[tuple[str, ...]] = ()
    """The names of the fields with one entry per annotator. Parameters have this attribute too, so that a worker
    receives only the entries of its annotators."""

    def __add__(self, other: Self) -> Self:
        return type(self)(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(self)))


class RemoteTable(ABC, SizeProperties):
    """A table whose rows are not in the memory of this process, with the names and sizes of an `Annotations`."""

    location: ClassVar[str]  # where the rows are stored, such as "on a disk"
    engine: ClassVar[str]  # name of the engine that processes the table
    n_annotations: Any
    annotations_per_annotator: IntArray
    weighted: bool

    def size(self) -> TableSize:
        """Return the size of the table."""
        return TableSize(self.n_items, self.n_annotators, self.n_classes, self.n_annotations, self.weighted)

    @abstractmethod
    def load_all_rows(self) -> Rows:
        """Load all rows into memory."""

    def to_annotations(self) -> Annotations:
        """Load the table into memory; its items are named by their indices."""
        rows, items = self.load_all_rows(), np.arange(self.n_items)
        return Annotations(rows.annotator, rows.label, rows.item_ptr, items, self.annotators, self.classes, rows.weight)


P = TypeVar("P", contravariant=True)
S = TypeVar("S", bound=Sums, covariant=True)


@dataclass
class Worker:
    """The state of one worker during a pass: its parameters and its sums so far."""

    params: Any
    size: TableSize
    sums: list[Any]


class Pass(Generic[P, S]):
    """One pass over the items, from parameters to sums and optional outputs per item.

    A pass has two forms. `array_form` uses whole-array operations; it is used for short tables and with torch, and
    tests use it as reference. `kernel` is a compiled loop. A pass contains settings and buffers but no annotations, so
    it can be sent to the process that stores them. An engine opens workers, lets each worker process chunks, and closes
    the workers.
    """

    sums_type: ClassVar[type[Any]]
    outputs: ClassVar[tuple[str, ...]] = ("posterior",)  # outputs per item that the pass can write
    sequential: bool = False  # True if chunks must be processed in order, as in a pass that draws random numbers

    def __getstate__(self) -> dict[str, Any]:
        return {
            name: value for name, value in vars(self).items() if name != "cells"
        }  # buffers are not sent to other processes

    def array_form(self, chunk: Chunk, params: Any) -> tuple[Any, ...]:
        """Return the sums over a chunk, followed by the `outputs` of its items."""
        raise NotImplementedError

    def kernel(self, chunk: Chunk, worker: Worker, out: Mapping[str, Any]) -> None:
        """Process a chunk: add to the worker's sums, and write the outputs to the arrays `out`, one row per item."""
        raise NotImplementedError

    def initial_sums(self, size: TableSize) -> list[Any]:
        """Return the initial sums of a worker."""
        raise NotImplementedError

    def create_workers(self, params: P, size: TableSize, workers: int, pool: Threads) -> list[Worker]:
        """Create `workers` worker states."""
        return [Worker(params, size, [] if size.is_short else self.initial_sums(size)) for _ in range(workers)]

    def process(self, chunk: Chunk, worker: Worker, out: Mapping[str, Any]) -> None:
        """Process a chunk with the array form or the kernel, depending on the table's size."""
        if not worker.size.is_short:
            self.kernel(chunk, worker, out)
            return
        found = self.array_form(chunk, worker.params)
        sums, written = found[: -len(self.outputs)], found[-len(self.outputs) :]
        for name, values in zip(self.outputs, written, strict=True):
            if name in out:
                out[name][:] = values
        worker.sums = [old + new for old, new in zip(worker.sums or [0.0] * len(sums), sums, strict=True)]

    def sum_workers(self, workers: list[Worker], pool: Threads) -> S:
        """Add up and return the sums of all workers."""
        return self.sums_type(*map(sum, zip(*(worker.sums for worker in workers), strict=True)))  # type: ignore[no-any-return]

    def on_torch(self, params: P, data: Any, out: Mapping[str, Any]) -> S:
        """Run the array form over a table in torch; `data` is a `kernels.on_torch.DeviceTable`."""
        return self.sums_type(*data.sum_chunks(partial(self.array_form, params=params), self.outputs, out))  # type: ignore[no-any-return]


class Engine(ABC):
    """An engine stores a table and runs passes over it; `annotations_per_annotator` has the shape (A,)."""

    checkpoint: Any = None  # storage of the EM driver's state between passes, such as `disk.RunFolder`

    def __init__(self, size: TableSize, annotations_per_annotator: IntArray, pool: Threads, gold: IntArray | None):
        self.size, self.annotations_per_annotator, self.pool, self.gold = size, annotations_per_annotator, pool, gold
        self._cached: dict[Any, Sums] = {}

    @abstractmethod
    def run(self, pass_: Pass[P, S], params: P, out: Mapping[str, Any] | None = None) -> S:
        """Run one pass over all items and write the requested outputs to `out`, which `allocate` returned."""

    @abstractmethod
    def has_labels(self) -> BoolArray:
        """Return a mask of the items that have annotations, (I,)."""

    def run_cached(self, key: Any, pass_: Pass[Any, S]) -> S:
        """Return the sums of a pass without parameters, which are cached and must not be modified."""
        if key not in self._cached:
            self._cached[key] = self.run(pass_, None)
        return self._cached[key]  # type: ignore[return-value]  # the key identifies the pass

    @abstractmethod
    def select_rows(self, keep: BoolArray) -> Rows:
        """Load the rows of the items that the mask `keep` (I,) selects."""

    def allocate(self, name: str, *shape: int) -> FloatArray:
        """Return storage for an output that has one entry of this shape for each item."""
        return np.empty((self.size.n_items, *shape))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.pool.__exit__()
