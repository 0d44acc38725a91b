"""What a pass over the annotations cannot do without, measured on this machine.

- `bandwidth`: bytes per second of a triad a = b + s·c over arrays far larger than any cache.
- `gathers_and_scatters`: for every annotation, in the order of the table, fetch the K numbers of its (annotator, label)
  cell (and multiply them) and, for its item, add K numbers to a cell; nothing is normalised. Θ and counts lie side by
  side, as in our kernel, and every thread has its own. The loop runs with and without asking for cells ahead of time,
  and the faster counts.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import numba
import numpy as np

from dissensus.compute.kernels.vector import add_to_counts, multiply_cells, prefetch_cells

TRIAD_NUMBERS = 2**25  # numbers per array: 268 MB each
REPEATS = 5
PREFETCH_ROWS = (0, 16)  # annotations between asking for a cell and using it; 0: do not ask


@numba.njit(nogil=True)
def _triad(a: Any, b: Any, c: Any, start: int, stop: int) -> None:
    for n in range(start, stop):
        a[n] = b[n] + 0.5 * c[n]


def _make_pass(n_classes: int) -> Any:
    """Compile the loop for this number of classes."""

    @numba.njit(nogil=True)
    def run_pass(item_ptr, annotator, label, cells, start, stop, gather, scatter, ahead):
        ones, q = np.ones((1, n_classes)), np.ones(n_classes)
        end = item_ptr[stop]
        for i in range(start, stop):
            first, last = item_ptr[i], item_ptr[i + 1]
            if ahead:
                prefetch_cells(n_classes, cells, annotator, label, min(first + ahead, end), min(last + ahead, end))
            if gather:
                multiply_cells(n_classes, cells, annotator, label, first, last, ones, 0, q)
            if scatter:
                add_to_counts(n_classes, cells, annotator, label, first, last, q)
        return q.sum()

    return run_pass


def _fastest(work: Callable[[int], object], threads: int) -> float:
    """Fastest time in seconds of `work(thread)` on all threads at once."""
    best = np.inf
    with ThreadPoolExecutor(threads) as pool:
        for _ in range(REPEATS):
            begin = time.perf_counter()
            list(pool.map(work, range(threads)))
            best = min(best, time.perf_counter() - begin)
    return best


def bandwidth(threads: int) -> float:
    """Bytes per second, reads and writes counted once each."""
    a, b, c = np.zeros(TRIAD_NUMBERS), np.ones(TRIAD_NUMBERS), np.ones(TRIAD_NUMBERS)
    _triad(a, b, c, 0, 1)
    edges = np.linspace(0, TRIAD_NUMBERS, threads + 1).astype(int)
    return 3 * a.nbytes / _fastest(lambda t: _triad(a, b, c, edges[t], edges[t + 1]), threads)


def gathers_and_scatters(table: Any, threads: int) -> dict[str, float]:
    """Seconds of the gathers alone, of the scatters alone and of both, over the rows of a table."""
    A, K = table.n_annotators, table.n_classes
    cells = [np.ones(A * K * 2 * K) for _ in range(threads)]
    edges = np.searchsorted(table.item_ptr, np.linspace(0, table.n_annotations, threads + 1))
    edges[-1] = table.n_items
    walk = _make_pass(K)
    walk(table.item_ptr, table.annotator, table.label, cells[0], 0, 1, True, True, 0)

    def seconds(gather: bool, scatter: bool) -> float:
        def work(t: int, ahead: int) -> None:
            walk(
                table.item_ptr, table.annotator, table.label, cells[t], edges[t], edges[t + 1], gather, scatter, ahead
            )  # fmt: skip

        return min(_fastest(partial(work, ahead=ahead), threads) for ahead in PREFETCH_ROWS)

    return {"gather": seconds(True, False), "scatter": seconds(False, True), "both": seconds(True, True)}


def streamed_bytes(table: Any) -> int:
    """Bytes of the table that every pass reads: annotator and label of a row, the offset of an item."""
    return int(table.annotator.nbytes + table.label.nbytes + table.item_ptr.nbytes)
