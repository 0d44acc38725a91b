"""The loops behind the table against NumPy."""

import subprocess
import sys

import numpy as np
import pytest

from dissensus import Annotations
from dissensus.common.arrays import group_offsets
from dissensus.table import kernels
from strategies import identical


@pytest.mark.parametrize("n", [0, 1, 7, 500])
def test_sort_rows_equals_lexsort(n):
    rng = np.random.default_rng(n)
    item, annotator, label = rng.integers(0, 9, n), rng.integers(0, 40, n), rng.integers(0, 5, n)
    item[: n // 2] = 3  # one item longer than an insertion sort is good for
    item, annotator, label = item.astype(np.int32), annotator.astype(np.int32), label.astype(np.int8)
    ptr = group_offsets(item, 9)
    order = np.lexsort((label, annotator, item))
    sorted_annotator, sorted_label = kernels.sort_rows(item, annotator, label, ptr, 5)
    np.testing.assert_array_equal(sorted_annotator, annotator[order])
    np.testing.assert_array_equal(sorted_label, label[order])
    assert np.array_equal(ptr, np.searchsorted(item[order], np.arange(10)))
    assert kernels.is_sorted(item[order], sorted_annotator, sorted_label)
    assert n < 7 or not kernels.is_sorted(item, annotator, label)


@pytest.mark.parametrize("n", [211, kernels.MIN_ROWS_TO_COMPILE])
def test_group_is_a_stable_sort(n):
    codes = np.random.default_rng(0).integers(0, 6, n).astype(np.int32)
    ptr = group_offsets(codes, 8)  # two codes that nobody has
    np.testing.assert_array_equal(np.diff(ptr), np.bincount(codes, minlength=8))
    np.testing.assert_array_equal(kernels.group_rows(codes, ptr), np.argsort(codes, kind="stable"))


@pytest.mark.parametrize("column", [0, 1, 2])
@pytest.mark.parametrize("row", [1, kernels.ROWS_PER_CHUNK, kernels.ROWS_PER_CHUNK + 1, 2 * kernels.ROWS_PER_CHUNK])
def test_one_row_out_of_order_is_seen_wherever_it_stands(column, row):
    rows = np.zeros((3, 2 * kernels.ROWS_PER_CHUNK + 1), np.int32)
    assert kernels.is_sorted(*rows)
    rows[column, row:] = -1
    assert not kernels.is_sorted(*rows)
    rows[:column, row:] = 1  # what comes before decides
    assert kernels.is_sorted(*rows) == (column > 0)


def test_a_table_is_the_same_whether_numpy_or_compiled_code_sorts_it(monkeypatch):
    columns = np.random.default_rng(0).integers(0, 30, (3, 5000))
    one = Annotations.from_arrays(*columns)
    monkeypatch.setattr(kernels, "MIN_ROWS_TO_COMPILE", 0)
    other = Annotations.from_arrays(*columns)
    assert identical(one, other)
    np.testing.assert_array_equal(one.by_annotator, other.by_annotator)


def test_a_small_table_needs_no_compiler():
    code = (
        "import sys; from dissensus.table.annotations import Annotations; import dissensus.table.io;"
        "table = Annotations.from_arrays([1, 0, 1], ['b', 'a', 'a'], [0, 1, 1]); table.by_annotator, table.item_ptr;"
        "heavy = 'numba scipy pyarrow.dataset pyarrow.parquet pyarrow.csv narwhals';"
        "print([name for name in heavy.split() if name in sys.modules])"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"
