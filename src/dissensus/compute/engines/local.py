"""The engine for arrays in memory, which processes ranges of items in threads.

The kernels release the GIL, so threads run in parallel.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any, TypeVar

import numpy as np

from dissensus.common.types import BoolArray, IntArray
from dissensus.compute.chunk import Chunk
from dissensus.compute.engines.base import Engine, P, Pass, S, TableSize
from dissensus.compute.exceptions import TooFewThreads
from dissensus.compute.rows import Rows

T = TypeVar("T")

MIN_THREAD_ROWS = 20_000  # minimum number of rows per thread; with fewer rows a thread does not save time


def thread_count(threads: int | None, rows: int) -> int:
    """Return the number of threads to use for a number of rows, at most `threads`; None means all cores."""
    if threads is None:
        threads = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    elif threads < 1:
        raise TooFewThreads(threads=threads)
    return max(1, min(threads, rows // MIN_THREAD_ROWS))


def balanced_ranges(ptr: IntArray, parts: int) -> list[tuple[int, int]]:
    """Return ranges of items with about equal numbers of rows."""
    cuts = np.searchsorted(ptr, np.linspace(0, ptr[-1], parts + 1)[1:-1])
    edges = [0, *(int(c) for c in cuts), ptr.size - 1]
    return list(pairwise(edges))


def range_starts(ptr: IntArray, rows: int) -> list[int]:
    """Return the first items of ranges with about `rows` rows each, followed by the number of items."""
    return [int(item) for item in np.unique(balanced_ranges(ptr, -(-int(ptr[-1]) // rows)))]


def even_ranges(n: int, parts: int) -> list[tuple[int, int]]:
    """Return `parts` ranges of about equal length that cover 0 … n − 1."""
    edges = [n * part // parts for part in range(parts + 1)]
    return list(pairwise(edges))


class Threads:
    """A pool of threads for one fit."""

    def __init__(self, threads: int):
        self.threads = threads
        self._pool = ThreadPoolExecutor(threads - 1) if threads > 1 else None

    def map(self, work: Callable[[int, int, int], T], ranges: list[tuple[int, int]]) -> list[T]:
        """Return `work(number, start, stop)` for each range, in order; the calling thread processes the first range."""
        if self._pool is None or len(ranges) == 1:
            return [work(number, *bounds) for number, bounds in enumerate(ranges)]
        rest = [self._pool.submit(work, number, *bounds) for number, bounds in enumerate(ranges[1:], 1)]
        return [work(0, *ranges[0]), *(future.result() for future in rest)]

    def sum_over_ranges(
        self, work: Callable[..., T], ranges: list[tuple[int, int]], *shapes: tuple[int, ...]
    ) -> tuple[list[T], list[Any]]:
        """Run `work(start, stop, *sums)` for each range, with separate sums; return the results and the total sums."""
        own = [[np.zeros(shape) for shape in shapes] for _ in ranges]
        found = self.map(lambda number, start, stop: work(start, stop, *own[number]), ranges)
        return found, [sum(parts) for parts in zip(*own, strict=True)]

    def __enter__(self) -> Threads:
        return self

    def __exit__(self, *_: object) -> None:
        if self._pool is not None:
            self._pool.shutdown()


class LocalEngine(Engine):
    """The engine for rows in memory, which runs passes in the threads of a pool."""

    def __init__(self, rows: Rows, n_annotators: int, n_classes: int, pool: Threads, gold: IntArray | None):
        size = TableSize(rows.n_items, n_annotators, n_classes, rows.annotator.size, rows.weight is not None)
        super().__init__(size, np.bincount(rows.annotator, minlength=n_annotators), pool, gold)
        self.rows = rows
        self.whole_chunk = Chunk(rows.arrays, gold, n_annotators, n_classes)  # caches indices for all passes

    def run(self, pass_: Pass[P, S], params: P, out: Mapping[str, Any] | None = None) -> S:
        """Run one pass; each thread processes one range of items."""
        size, written = self.size, out or {}
        sequential = pass_.sequential or self.pool.threads == 1
        ranges = [(0, size.n_items)] if sequential else balanced_ranges(self.rows.item_ptr, self.pool.threads)
        workers = pass_.create_workers(params, size, len(ranges), self.pool)

        def work(number: int, start: int, stop: int) -> None:
            chunk = Chunk(self.rows.arrays, self.gold, size.n_annotators, size.n_classes, 0, start, stop)
            pass_.process(chunk, workers[number], written)

        if len(ranges) == 1:
            pass_.process(self.whole_chunk, workers[0], written)
        else:
            self.pool.map(work, ranges)
        return pass_.sum_workers(workers, self.pool)

    def select_rows(self, keep: BoolArray) -> Rows:
        """Return the rows of the selected items."""
        return self.rows.select_items(keep)

    def has_labels(self) -> BoolArray:
        """Return a mask of the items that have annotations, (I,)."""
        return np.diff(self.rows.item_ptr) > 0
