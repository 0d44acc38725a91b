"""Checks of the arrays that come in; each error is one sentence that says what is wrong and where."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dissensus.common.arrays import unmasked
from dissensus.common.types import FloatArray, IntArray
from dissensus.exceptions import DataError

ROUNDING = 1e-4  # by how much a distribution's sum may differ from one


def known_codes(gold: Any, predicted: Any, n_classes: int | None = None) -> tuple[IntArray, IntArray, int]:
    """Gold and predicted codes of the items whose gold is known (not −1), and the number of classes."""
    gold, predicted = integers(gold, "gold"), integers(predicted, "predicted")
    _check_sizes(gold, predicted, "predicted")
    keep = np.flatnonzero(gold >= 0)
    if keep.size == 0:
        raise DataError(f"none of the {gold.size:,} items has a known gold label; there is nothing to compare with.")
    most = int(max(gold.max(), predicted[keep].max())) + 1
    n_classes = most if n_classes is None else n_classes
    if most > n_classes:
        raise DataError(f"a code is {most - 1}, but codes of {n_classes} classes run from 0 to {n_classes - 1}.")
    bad = keep[predicted[keep] < 0]
    if bad.size:
        raise DataError(
            f"predicted: item {bad[0]} has code {predicted[bad[0]]}, but its gold is known; predict a class."
        )
    return gold[keep], predicted[keep], n_classes


def known_rows(gold: Any, values: Any, name: str) -> tuple[IntArray, FloatArray]:
    """Codes of the items whose gold is known (not −1), and their rows of distributions `values` (I, K)."""
    gold, array = integers(gold, "gold"), distributions(values, name)
    _check_sizes(gold, array, name)
    codes, _, _ = known_codes(gold, np.maximum(gold, 0), array.shape[1])
    return codes, array[gold >= 0]


def integers(values: Any, name: str) -> IntArray:
    """`values` as a vector of integers; −1 is the lowest."""
    array = _array(values, name, "iu", 1, "a vector of integer codes")
    if array.size and array.min() < -1:
        raise DataError(f"{name}: item {array.argmin()} has code {array.min()}; codes start at 0, and −1 is unknown.")
    return array.astype(np.int64)


def numbers(values: Any, name: str) -> FloatArray:
    """`values` as a vector of finite floats."""
    array = _array(values, name, "iufb", 1, "a vector of numbers").astype(np.float64)
    bad = np.flatnonzero(~np.isfinite(array))
    if bad.size:
        raise DataError(
            f"{name}: {bad.size:,} of {array.size:,} values are not finite; first at {bad[0]}: {array[bad[0]]}."
        )
    return array


def positions_of(values: Any, n_classes: int) -> FloatArray:
    """(K,) the places of the classes on a line: `values`, or 0, 1, …, K − 1."""
    place = np.arange(n_classes, dtype=np.float64) if values is None else numbers(values, "positions")
    if place.size != n_classes:
        raise DataError(f"positions has {place.size} values for {n_classes} classes.")
    return place


def distributions(values: Any, name: str) -> FloatArray:
    """`values` (I, K) as floats, every row a distribution."""
    array = _array(values, name, "iufb", 2, "an items × classes matrix").astype(np.float64)
    with np.errstate(invalid="ignore"):
        good = (array >= 0).all(axis=1) & (np.abs(array.sum(axis=1) - 1) <= ROUNDING)
    if not good.all():
        row = int(np.flatnonzero(~good)[0])
        raise DataError(
            f"{name}: {int((~good).sum()):,} of {good.size:,} rows are no distribution; first row {row}: it sums to "
            f"{array[row].sum():.6g} and its least entry is {array[row].min(initial=np.inf):.6g}."
        )
    return array


def pair(y: Any, h: Any) -> tuple[FloatArray, FloatArray]:
    """Votes `y` and prediction `h`, both (I, K) distributions."""
    y, h = distributions(y, "y"), distributions(h, "h")
    if y.shape != h.shape:
        raise DataError(f"y has shape {y.shape} and h {h.shape}; they must be equal.")
    return y, h


def _array(values: Any, name: str, kinds: str, ndim: int, what: str) -> NDArray[Any]:
    try:
        array = unmasked(values, -1 if kinds == "iu" else np.nan)
    except ValueError as error:  # rows of different lengths
        raise DataError(f"{name} must be {what} ({error}).") from None
    if array.ndim != ndim or array.dtype.kind not in kinds:
        raise DataError(f"{name} must be {what}, got {array.dtype} of shape {array.shape}.")
    return array


def _check_sizes(gold: IntArray, values: Any, name: str) -> None:
    if gold.size != len(values):
        raise DataError(f"gold has {gold.size:,} items, {name} has {len(values):,}; they must be equally many.")
