"""Counting sorts, which build and index a table.

NumPy sorts small tables, so that they do not wait for the compiler. Compiled loops sort large tables, for which they
are faster.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dissensus.common.jit import lazy_jit
from dissensus.common.types import IntArray

MIN_ROWS_TO_COMPILE = 2**17  # For fewer rows, NumPy is faster than loading the compiled code.
MAX_ROWS_FOR_INSERTION_SORT = 48  # Up to this number of rows per item, insertion sort is faster than np.sort.
ROWS_PER_CHUNK = 2**15  # The differences between rows of one chunk fit into the processor's cache.


def group_rows(codes: IntArray, ptr: IntArray) -> IntArray:
    """Return the row numbers sorted by code (stable counting sort); `ptr` holds the offset of each code."""
    order: IntArray = np.empty(codes.size, np.int32 if codes.size < 2**31 else np.int64)
    if codes.size < MIN_ROWS_TO_COMPILE:
        order[:] = np.argsort(codes, kind="stable")
    else:
        _fill_groups(codes, ptr[:-1].copy(), order)
    return order


@lazy_jit
def _fill_groups(codes: IntArray, fill: IntArray, order: IntArray) -> None:
    for row in range(codes.size):
        order[fill[codes[row]]] = row
        fill[codes[row]] += 1


def is_sorted(item: IntArray, annotator: IntArray, label: IntArray) -> bool:
    """Return True if the rows are sorted by (item, annotator, label)."""
    for start in range(0, item.size - 1, ROWS_PER_CHUNK):
        rows = slice(start, start + ROWS_PER_CHUNK + 1)
        tied: Any = True
        for codes in (item[rows], annotator[rows], label[rows]):
            if (tied & (codes[1:] < codes[:-1])).any():
                return False
            tied = tied & (codes[1:] == codes[:-1])
    return True


@lazy_jit
def sort_rows(
    item: IntArray, annotator: IntArray, label: IntArray, item_ptr: IntArray, n_classes: int
) -> tuple[IntArray, IntArray]:
    """Return the annotator and label codes sorted by (item, annotator, label).

    Rows are first distributed by item, then sorted within each item. This takes two passes over memory for any number
    of annotators.
    """
    fill = item_ptr[:-1].copy()
    annotators, labels = np.empty_like(annotator), np.empty_like(label)
    for row in range(item.size):
        to = fill[item[row]]
        fill[item[row]] += 1
        annotators[to] = annotator[row]
        labels[to] = label[row]
    for i in range(item_ptr.size - 1):
        start, stop = item_ptr[i], item_ptr[i + 1]
        if stop - start > MAX_ROWS_FOR_INSERTION_SORT:
            keys = np.empty(stop - start, np.int64)
            for row in range(start, stop):
                keys[row - start] = np.int64(annotators[row]) * n_classes + labels[row]
            keys.sort()
            for row in range(start, stop):
                annotators[row] = keys[row - start] // n_classes
                labels[row] = keys[row - start] % n_classes
        else:
            for row in range(start + 1, stop):
                a, y = annotators[row], labels[row]
                hole = row
                while hole > start and (
                    annotators[hole - 1] > a or (annotators[hole - 1] == a and labels[hole - 1] > y)
                ):
                    annotators[hole], labels[hole] = annotators[hole - 1], labels[hole - 1]
                    hole -= 1
                annotators[hole], labels[hole] = a, y
    return annotators, labels
