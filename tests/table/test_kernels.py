"""The loops behind the table against NumPy."""

import numpy as np
import pytest

from dissensus.table import kernels


@pytest.mark.parametrize("n", [0, 1, 7, 500])
def test_sort_rows_equals_lexsort(n):
    rng = np.random.default_rng(n)
    item, annotator, label = rng.integers(0, 9, n), rng.integers(0, 40, n), rng.integers(0, 5, n)
    item[: n // 2] = 3  # one item longer than an insertion sort is good for
    item, annotator, label = item.astype(np.int32), annotator.astype(np.int32), label.astype(np.int8)
    ptr = kernels.offsets(item, 9)
    order = np.lexsort((label, annotator, item))
    sorted_annotator, sorted_label = kernels.sort_rows(item, annotator, label, ptr, 5)
    np.testing.assert_array_equal(sorted_annotator, annotator[order])
    np.testing.assert_array_equal(sorted_label, label[order])
    assert kernels.is_sorted(item[order], sorted_annotator, sorted_label)
    assert n < 7 or not kernels.is_sorted(item, annotator, label)


def test_group_is_a_stable_sort():
    codes = np.random.default_rng(0).integers(0, 6, 211).astype(np.int32)
    ptr = kernels.offsets(codes, 8)  # two codes that nobody has
    np.testing.assert_array_equal(np.diff(ptr), np.bincount(codes, minlength=8))
    np.testing.assert_array_equal(kernels.group(codes, ptr), np.argsort(codes, kind="stable"))
