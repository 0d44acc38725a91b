"""Checks of the arrays that come in; each error is one sentence that says what is wrong and where."""

from __future__ import annotations

from typing import Any

import numpy as np

from dissensus.common.types import FloatArray, IntArray
from dissensus.exceptions import BadParameter, DataError

ROUNDING = 1e-4  # by how much a distribution's sum may differ from one


def known_codes(gold: Any, predicted: Any, n_classes: int | None = None) -> tuple[IntArray, IntArray, int]:
    """Gold and predicted codes of the items whose gold is known (not −1), and the number of classes."""
    gold, predicted = integers(gold, "gold"), integers(predicted, "predicted")
    if gold.shape != predicted.shape:
        raise DataError(f"gold has {gold.size:,} items, predicted has {predicted.size:,}; they must be equally many.")
    keep = np.flatnonzero(gold >= 0)
    if keep.size == 0:
        raise DataError(f"none of the {gold.size:,} items has a known gold label; there is nothing to compare with.")
    most = int(max(gold.max(), predicted[keep].max())) + 1
    if n_classes is None:
        n_classes = most
    elif most > n_classes:
        raise DataError(f"a code is {most - 1}, but codes of {n_classes} classes run from 0 to {n_classes - 1}.")
    bad = keep[predicted[keep] < 0]
    if bad.size:
        raise DataError(
            f"predicted: item {bad[0]} has code {predicted[bad[0]]}, but its gold is known; predict a class."
        )
    return gold[keep], predicted[keep], n_classes


def integers(values: Any, name: str) -> IntArray:
    """`values` as a vector of integers; −1 is the lowest."""
    array = np.asarray(values)
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise DataError(f"{name} must be a vector of integer codes, got {array.dtype} of shape {array.shape}.")
    if array.size and array.min() < -1:
        raise DataError(f"{name}: item {array.argmin()} has code {array.min()}; codes start at 0, and −1 is unknown.")
    return array.astype(np.int64)


def numbers(values: Any, name: str) -> FloatArray:
    """`values` as a vector of finite floats."""
    array = np.asarray(values)
    if array.ndim != 1 or array.dtype.kind not in "iufb":
        raise DataError(f"{name} must be a vector of numbers, got {array.dtype} of shape {array.shape}.")
    array = array.astype(np.float64)
    bad = np.flatnonzero(~np.isfinite(array))
    if bad.size:
        raise DataError(
            f"{name}: {bad.size:,} of {array.size:,} values are not finite; first at {bad[0]}: {array[bad[0]]}."
        )
    return array


def distributions(values: Any, name: str) -> FloatArray:
    """`values` (I, K) as floats, every row a distribution."""
    array = np.asarray(values)
    if array.ndim != 2 or array.dtype.kind not in "iufb":
        raise DataError(f"{name} must be an items × classes matrix, got {array.dtype} of shape {array.shape}.")
    array = array.astype(np.float64)
    with np.errstate(invalid="ignore"):
        good = (array >= 0).all(axis=1) & (np.abs(array.sum(axis=1) - 1) <= ROUNDING)
    if not good.all():
        row = int(np.flatnonzero(~good)[0])
        raise DataError(
            f"{name}: {int((~good).sum()):,} of {good.size:,} rows are no distribution; first row {row}: it sums to "
            f"{array[row].sum():.6g} and its least entry is {array[row].min(initial=np.inf):.6g}."
        )
    return array


def known_rows(gold: Any, values: Any, name: str) -> tuple[IntArray, FloatArray]:
    """Codes of the items whose gold is known (not −1), and their rows of distributions `values` (I, K)."""
    gold, array = integers(gold, "gold"), distributions(values, name)
    if gold.size != len(array):
        raise DataError(f"gold has {gold.size:,} items, {name} has {len(array):,}; they must be equally many.")
    codes, _, _ = known_codes(gold, np.maximum(gold, 0), array.shape[1])
    return codes, array[gold >= 0]


def pair(y: Any, h: Any) -> tuple[FloatArray, FloatArray]:
    """Votes `y` and prediction `h`, both (I, K) distributions."""
    y, h = distributions(y, "y"), distributions(h, "h")
    if y.shape != h.shape:
        raise DataError(f"y has shape {y.shape} and h {h.shape}; they must be equal.")
    return y, h


def whole(value: Any, name: str, least: int) -> int:
    """`value` as an integer of at least `least`."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
        raise BadParameter(f"{name} must be an integer of at least {least}, got {value!r}.")
    return int(value)
