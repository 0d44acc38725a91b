"""The disk engine, which maps chunks into memory and stores results and checkpoints in a folder.

A chunk is a range of items with about `Disk.block_rows` rows. It is mapped into memory while it is processed, so a
pass needs memory for one chunk per thread, the parameters and the counts, regardless of the table's length. Results
with one entry per item are written to `<name>.npy`, chunk by chunk.

Each fit has its own folder next to that of the codes, named after the method and a hash of its keywords and gold
labels. After every pass the EM driver's state is replaced there atomically, so a fit that was killed continues after
its last complete pass. The state is removed when the results have been written, and a later fit starts again.
"""

from __future__ import annotations

import os
import weakref
import zipfile
import zlib
from collections.abc import Mapping
from contextlib import suppress
from itertools import count
from typing import Any

import numpy as np

from dissensus.common.atomic import FolderLock, open_atomically
from dissensus.common.types import BoolArray, FloatArray, IntArray
from dissensus.compute.chunk import Chunk
from dissensus.compute.engines.base import Engine, P, Pass, S
from dissensus.compute.engines.coding import CodedTable
from dissensus.compute.engines.local import Threads, even_ranges
from dissensus.compute.rows import Rows, join_rows

CHECKPOINT_FILE = "state.npz"
ROWS_PER_RESULT_FILE = 10_000_000  # number of annotations per Parquet file of results


class RunFolder:
    """The folder of one fit, which contains its checkpoint."""

    def __init__(self, model: Any, coded: CodedTable, gold: IntArray | None):
        keywords = {k: v for k, v in model.get_params(deep=False).items() if k not in ("engine", "threads")}
        key = repr((sorted(keywords.items()), coded.meta, None if gold is None else zlib.crc32(gold.tobytes())))
        name = f"{type(model).__name__}-{zlib.crc32(key.encode()):08x}"
        for number in count(1):  # another process may run the same fit in the first folder
            self.path = coded.folder.parent / (name if number == 1 else f"{name}-{number}")
            self.path.mkdir(exist_ok=True)
            self._lock = FolderLock(self.path)
            if self._lock.got:
                break

    def load(self) -> dict[str, Any] | None:
        """Load the state after the last complete pass; return None if there is none."""
        damage = suppress(OSError, ValueError, zipfile.BadZipFile)
        with damage, (self.path / CHECKPOINT_FILE).open("rb") as file, np.load(file) as stored:
            return {name: stored[name] for name in stored.files}
        return None

    def save(self, state: Mapping[str, Any]) -> None:
        """Save the state, which replaces the last one atomically."""
        with open_atomically(self.path / CHECKPOINT_FILE) as file:
            np.savez(file, **state)

    def remove_checkpoint(self) -> None:
        """Remove the state, so that a later fit starts again."""
        (self.path / CHECKPOINT_FILE).unlink(missing_ok=True)


def store_results(model: Any, coded: CodedTable, gold: IntArray | None) -> None:
    """Write the frame of items as Parquet files, and the results with one row per item as arrays on the disk."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    if isinstance(model.posterior_, np.ndarray):  # the table was fitted in memory
        run = RunFolder(model, coded, gold)
        for key in model._per_item_results():
            stored = ItemArrayFile(run, key.removesuffix("_"), getattr(model, key).shape)
            stored.write(0, getattr(model, key))
            setattr(model, key, stored)
    run = model.posterior_.run
    folder = run.path / "items"
    folder.mkdir(exist_ok=True)
    difficulty = getattr(model, "difficulty_", None)
    for number, (first, stop) in enumerate(coded.item_ranges(ROWS_PER_RESULT_FILE)):
        posterior = model.posterior_.to_array()[first:stop]  # a new memory map releases the pages of earlier parts
        hard = None if difficulty is None else difficulty[first:stop]
        columns = model.item_columns(np.asarray(coded.items[first:stop]), posterior, hard)
        with open_atomically(folder / f"part-{number:05d}.parquet") as file:
            pq.write_table(pa.table(columns), file)
    for key, value in list(vars(model).items()):
        if isinstance(value, ItemArrayFile):
            setattr(model, key, value.to_array())
    model.items_path_ = str(folder)
    run.remove_checkpoint()


class ItemArrayFile:
    """A file in NumPy's format with one entry per item, which is written and read in ranges of items."""

    def __init__(self, run: RunFolder, name: str, shape: tuple[int, ...]):
        self.run, self.shape = run, shape
        path = run.path / f"{name}.npy"
        path.unlink(missing_ok=True)  # create a new file, because an earlier fit may have mapped the old one
        self._start = np.lib.format.open_memmap(path, "w+", np.float64, shape).offset
        self._file = path.open("r+b")
        weakref.finalize(self, self._file.close)
        self._each = 8 * int(np.prod(shape[1:]))

    def write(self, first: int, values: FloatArray) -> None:
        """Write entries, beginning with entry `first`."""
        os.pwrite(self._file.fileno(), np.ascontiguousarray(values).data, self._start + first * self._each)

    def to_array(self) -> FloatArray:
        """Return the file as a read-only memory-mapped array."""
        if not self.shape[0]:
            return np.empty(self.shape)
        return np.asarray(np.memmap(self._file, np.float64, "r", self._start, self.shape))


class DiskEngine(Engine):
    """The engine for a table on a disk."""

    def __init__(self, coded: CodedTable, block_rows: int, pool: Threads, gold: IntArray | None, run: RunFolder):
        super().__init__(coded.size(), coded.annotations_per_annotator, pool, gold)
        self.coded, self.chunks = coded, coded.item_ranges(block_rows)
        self.run_folder = self.checkpoint = run

    def run(self, pass_: Pass[P, S], params: P, out: Mapping[str, Any] | None = None) -> S:
        """Run one pass; each thread processes some of the chunks, in order."""
        n_workers = 1 if pass_.sequential else min(self.pool.threads, len(self.chunks))
        workers = pass_.create_workers(params, self.size, n_workers, self.pool)

        def work(number: int, start: int, stop: int) -> None:
            for first, end in self.chunks[start:stop]:
                self._process(pass_, workers[number], first, end, out or {})

        self.pool.map(work, even_ranges(len(self.chunks), n_workers))
        return pass_.sum_workers(workers, self.pool)

    def _process(self, pass_: Pass[P, S], worker: Any, first: int, end: int, out: Mapping[str, Any]) -> None:
        gold = None if self.gold is None else self.gold[first:end]
        arrays = {
            name: np.empty((end - first, *result.shape[1:])) if isinstance(result, ItemArrayFile) else result[first:end]
            for name, result in out.items()
        }
        rows, size = self.coded.map_item_rows(first, end), self.size
        pass_.process(Chunk(rows.arrays, gold, size.n_annotators, size.n_classes, first), worker, arrays)
        for name, result in out.items():
            if isinstance(result, ItemArrayFile):
                result.write(first, arrays[name])

    def select_rows(self, keep: BoolArray) -> Rows:
        """Load the rows of the selected items."""
        return join_rows(
            [self.coded.map_item_rows(first, end).select_items(keep[first:end]) for first, end in self.chunks]
        )

    def has_labels(self) -> BoolArray:
        """Return a mask of the items that have annotations, (I,)."""
        return np.concatenate(
            [np.diff(self.coded.map_item_rows(first, end).item_ptr) > 0 for first, end in self.chunks]
        )

    def allocate(self, name: str, *shape: int) -> Any:
        """Return storage for an output in a file of the fit's folder."""
        return ItemArrayFile(self.run_folder, name, (self.size.n_items, *shape))
