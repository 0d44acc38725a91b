"""Checks of input arrays; an error states what is wrong and in which row."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dissensus.common.arrays import fill_masked
from dissensus.common.types import FloatArray, IntArray
from dissensus.evaluation import exceptions as errors
from dissensus.messages import ParameterName

SUM_TOLERANCE = 1e-4  # largest difference between the sum of a distribution and 1
NUMERIC_DTYPE_KINDS = "iufb"  # NumPy's kinds of numbers


def select_codes_with_gold(gold: Any, predicted: Any, n_classes: int | None = None) -> tuple[IntArray, IntArray, int]:
    """Return gold and predicted codes of the items with a gold label (not −1), and the number of classes."""
    gold, predicted = check_integers(gold, "gold"), check_integers(predicted, "predicted")
    check_lengths(gold, predicted, "gold", "predicted")
    known = np.flatnonzero(gold >= 0)
    if known.size == 0:
        raise errors.NoGoldLabels(items=gold.size)
    largest = int(max(gold.max(), predicted[known].max()))
    n_classes = largest + 1 if n_classes is None else n_classes
    if largest >= n_classes:
        name = "gold" if gold.max() == largest else "predicted"
        row = int((gold if name == "gold" else np.where(gold >= 0, predicted, -1)).argmax())
        raise errors.CodeOutOfRange(name=ParameterName(name), row=row, code=largest, n_classes=n_classes)
    missing = known[predicted[known] < 0]
    if missing.size:
        raise errors.CodeOutOfRange(name=ParameterName("predicted"), row=int(missing[0]), code=-1, n_classes=n_classes)
    return gold[known], predicted[known], n_classes


def select_rows_with_gold(gold: Any, values: Any, name: str) -> tuple[IntArray, FloatArray]:
    """Return the gold codes of items with a gold label (not −1), and the rows of `values` (I, K) of these items."""
    gold, rows = check_integers(gold, "gold"), check_distributions(values, name)
    check_lengths(gold, rows, "gold", name)
    codes, _, _ = select_codes_with_gold(gold, np.maximum(gold, 0), rows.shape[1])
    return codes, rows[gold >= 0]


def check_integers(values: Any, name: str) -> IntArray:
    """Return `values` as a vector of integers; raise if one is less than −1."""
    array = _check_array(values, name, "iu", 1, "codes")
    if array.size and array.min() < -1:
        raise errors.NegativeCode(name=ParameterName(name), row=int(array.argmin()), code=int(array.min()))
    return array.astype(np.int64)


def check_numbers(values: Any, name: str) -> FloatArray:
    """Return `values` as a vector of finite floats."""
    array = _check_array(values, name, NUMERIC_DTYPE_KINDS, 1, "numbers").astype(np.float64)
    check_finite(array, name)
    return array


def check_finite(array: FloatArray, name: str) -> None:
    """Raise NotFinite if a row holds NaN or infinity."""
    bad = np.flatnonzero(~np.isfinite(array.reshape(len(array), -1)).all(axis=1))
    if bad.size:
        raise errors.RowsNotFinite(name=ParameterName(name), count=bad.size, rows=len(array), first_row=int(bad[0]))


def check_class_values(values: Any, n_classes: int, name: str) -> FloatArray:
    """Return `values` (K,) as floats; raise unless there is one value for each class."""
    array = check_numbers(values, name)
    if array.size != n_classes:
        raise errors.NotOnePerClass(name=ParameterName(name), values=array.size, n_classes=n_classes)
    return array


def class_positions(values: Any, n_classes: int) -> FloatArray:
    """Return the positions (K,) of the classes on a line, which are `values` or by default 0, 1, …, K − 1."""
    return (
        np.arange(n_classes, dtype=np.float64) if values is None else check_class_values(values, n_classes, "positions")
    )


def check_distributions(values: Any, name: str, tolerance: float = SUM_TOLERANCE) -> FloatArray:
    """Return `values` (I, K) as floats; raise unless every row is a probability distribution."""
    array = _check_array(values, name, NUMERIC_DTYPE_KINDS, 2, "distributions").astype(np.float64)
    with np.errstate(invalid="ignore"):
        good = (array >= 0).all(axis=1) & (np.abs(array.sum(axis=1) - 1) <= tolerance)
    if not good.all():
        row = int(np.flatnonzero(~good)[0])
        total, least = float(array[row].sum()), float(array[row].min(initial=np.inf))
        raise errors.RowsNotDistributions(
            name=ParameterName(name),
            count=int((~good).sum()),
            rows=good.size,
            first_row=row,
            total=total,
            smallest=least,
        )
    return array


def check_distribution_pair(y: Any, h: Any) -> tuple[FloatArray, FloatArray]:
    """Return the votes `y` and the prediction `h` as checked distributions (I, K)."""
    y, h = check_distributions(y, "y"), check_distributions(h, "h")
    if y.shape != h.shape:
        first, second = ParameterName("y"), ParameterName("h")
        raise errors.DifferentShapes(first_name=first, second_name=second, first_shape=y.shape, second_shape=h.shape)
    return y, h


def check_lengths(first: Any, second: Any, first_name: str, second_name: str) -> None:
    """Raise DifferentLengths if two arrays have different numbers of items."""
    if len(first) != len(second):
        raise errors.DifferentLengths(
            first_name=ParameterName(first_name),
            second_name=ParameterName(second_name),
            first_length=len(first),
            second_length=len(second),
        )


def _check_array(values: Any, name: str, kinds: str, ndim: int, content: errors.Content) -> NDArray[Any]:
    try:
        array = fill_masked(values, -1 if kinds == "iu" else np.nan)
    except ValueError:
        raise errors.UnevenRows(name=ParameterName(name)) from None
    if array.ndim != ndim or array.dtype.kind not in kinds:
        raise errors.WrongArrayType(
            name=ParameterName(name), content=content, dtype=str(array.dtype), shape=array.shape
        )
    return array
