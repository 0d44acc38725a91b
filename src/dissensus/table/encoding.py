"""Check the columns of a table, and turn them into names and codes, or into numbers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any
from warnings import catch_warnings

import numpy as np
import pyarrow as pa

from dissensus.common.arrays import unmasked
from dissensus.common.types import BoolArray, FloatArray, IntArray, Names
from dissensus.exceptions import BadParameter, DataError, MissingColumn
from dissensus.table import names as naming

MIN_WEIGHT, MAX_WEIGHT = 1e-9, 1e9


def encode_names(column: Any, what: str, all_names: Any) -> tuple[Names, IntArray]:
    """Return the sorted names, or `all_names` where given, and the code of every row."""
    found, codes = naming.encode(column, what)
    if all_names is None:
        return found, codes
    everything, _ = naming.encode(naming.to_column(all_names, f"{what}s"), f"{what}s")
    place = naming.match(found, everything, f"{what}s")
    if (place < 0).any():
        raise DataError(
            f"{what} {naming.shown(found[place < 0][0])} has annotations and is not in the list of {what}s given."
        )
    return everything, place[codes] if codes.size else codes


def encode_labels(column: Any, classes: Any, abstain: Any) -> tuple[Names, IntArray, BoolArray | None]:
    """Return the classes, the label codes of the rows that stay, and which rows stay (None: all).

    None, NaN and "" in `abstain` mean a missing label.
    """
    import pyarrow.compute as pc

    keep: BoolArray | None = None
    if answers := as_list(abstain):
        column = naming.to_array(column, "label")
        named = [one for one in answers if one is not None and one == one and str(one).strip()]  # NaN ≠ NaN
        keep = ~naming.missing_rows(column) if len(named) < len(answers) else np.ones(len(column), np.bool_)
        if named:
            values = naming.declared(named, column, "abstain")
            with suppress(pa.ArrowInvalid, pa.ArrowTypeError):  # of another kind than the labels: none of them occurs
                keep &= ~np.asarray(pc.is_in(column, value_set=pa.array(values, column.type)))
        column = naming.to_column(column.take(np.flatnonzero(keep)), "label")  # integers again, without missing ones
    found, codes = naming.encode(column, "label")
    if classes is None:
        return found, codes, keep
    names = naming.declared(classes, column, "classes")
    if found.dtype.kind in "iu" and names.dtype == object:  # integer labels are codes into declared text classes
        place = np.where((found >= 0) & (found < names.size), found, -1)
    else:
        place = naming.match(found, names, "classes")
    if (place < 0).any():
        kept = None if keep is None else np.flatnonzero(keep)
        raise naming.unknown_label(place[codes] < 0, found[codes], names.size, kept)
    return names, place[codes] if codes.size else codes, keep


def as_list(answers: Any) -> list[Any]:
    """Put one answer, or several, into a list."""
    if answers is None or isinstance(answers, str | bytes | int | float):
        return [answers]
    found = list(answers) if naming.is_listing(answers) else [answers]
    if not all(answer is None or np.isscalar(answer) for answer in found):
        raise BadParameter(f"abstain must be a label or a list of labels, got {naming.shown(answers)}.")
    return found


def encode_proba(proba: Any, classes: Iterable[Any] | int | None) -> tuple[Names, FloatArray]:
    """Return the classes and (N, K) distributions, from a matrix or from class → column; each row divided by its sum.

    A sum more than 1e-4 from one is an error.
    """
    if isinstance(proba, Mapping):
        classes = list(proba) if classes is None else range(classes) if isinstance(classes, int) else list(classes)
        if not classes:
            raise DataError("proba names no class; give class → probabilities.")
        try:
            proba = np.column_stack([floats(proba[name], f"p_{name}") for name in classes])
        except KeyError as error:
            known = sorted(map(str, proba))
            raise MissingColumn(f"no column of probabilities for class {error}; there are {known}.") from None
    try:
        proba = unmasked(proba, np.nan)
        if proba.dtype.kind == "c":
            raise TypeError("complex ones")
        proba = np.array(proba, np.float64)
    except (TypeError, ValueError, OverflowError) as error:
        raise DataError(f"proba must hold numbers ({error}).") from None
    if proba.ndim != 2:
        raise DataError(f"proba must have one row per annotation and one column per class, got shape {proba.shape}.")
    names = naming.declared(proba.shape[1] if classes is None else classes, np.empty(0), "classes")
    if names.size != proba.shape[1]:
        raise DataError(f"proba has {proba.shape[1]} columns for {names.size} classes.")
    negative = ~np.isfinite(proba).all(axis=1) | (proba < 0).any(axis=1)
    if negative.any():
        raise DataError(naming.bad_rows("proba", negative, "rows hold a negative or missing probability", proba))
    total = proba.sum(axis=1)
    bad = np.abs(total - 1) > 1e-4
    if bad.any():
        said = naming.bad_rows("proba", bad, "rows do not sum to one", proba)
        raise DataError(f"{said} It sums to {total[bad][0]:.6g}; divide each row by its sum.")
    return names, np.asarray(proba / total[:, None])


def check_weight(values: Any) -> FloatArray:
    """(N,) weights, none negative or missing."""
    weight = floats(values, "weight")
    bad = ~np.isfinite(weight) | (weight < 0)
    if bad.any():
        raise DataError(naming.bad_rows("weight", bad, "rows are negative or missing", weight))
    bad = (weight > 0) & ((weight < MIN_WEIGHT) | (weight > MAX_WEIGHT))  # products of a few are out of range
    if bad.any():
        problem = f"rows are neither 0 nor from {MIN_WEIGHT:g} to {MAX_WEIGHT:g}"
        raise DataError(f"{naming.bad_rows('weight', bad, problem, weight)} Divide all by their mean.")
    return weight


def floats(values: Any, column: str) -> FloatArray:
    """Turn a column of numbers, or of text that spells numbers, into floats; missing is NaN, as what a mask hides."""
    if isinstance(values, pa.Array):
        values = values.to_numpy(zero_copy_only=False)
    elif hasattr(values, "to_numpy"):  # chunks of Arrow, pandas, polars
        values = values.to_numpy()
    try:
        numbers = unmasked(values, np.nan)
        if numbers.dtype.kind == "c":
            raise TypeError
        numbers = numbers.astype(np.float64, copy=False)
    except (TypeError, ValueError, OverflowError):
        for row, value in enumerate(values if naming.is_listing(values) else ()):
            if not _is_number(value):
                raise DataError(
                    f"column '{column}': row {row} (from 0) holds {naming.shown(value)}, which is no number."
                ) from None
        raise DataError(f"column '{column}' holds no numbers, but {naming.shown(values)}.") from None
    if numbers.ndim != 1:
        raise DataError(f"column '{column}': expected one number per row, got shape {numbers.shape}.")
    return numbers


def _is_number(value: Any) -> bool:
    if value is None or value is np.ma.masked:
        return True
    try:
        return not np.iscomplexobj(value) and np.ndim(value) == 0 and isinstance(float(value), float)
    except (TypeError, ValueError, OverflowError):
        return False


def encode_matrix(matrix: Any, missing: Any, items: Any, annotators: Any, numbers: bool) -> dict[str, Any]:
    """The columns of an items × annotators matrix, and the names of both; see `Annotations.from_matrix`."""
    if hasattr(matrix, "columns"):
        columns = matrix.column_names if isinstance(matrix, pa.Table) else list(matrix.columns)
        annotators = columns if annotators is None else annotators
        items = list(matrix.index) if items is None and hasattr(matrix, "index") else items
        if any(isinstance(name, tuple) for name in (*annotators, *(() if items is None else items))):
            raise DataError("the frame's rows or columns are named on several levels; give them one.")
    try:
        if isinstance(matrix, list):  # which may hold np.ma.masked
            with catch_warnings(action="ignore", category=UserWarning):
                matrix = np.ma.asarray(matrix)
        hidden = np.ma.getmaskarray(matrix) if np.ma.isMaskedArray(matrix) else np.False_
        matrix = np.asarray(matrix)
    except ValueError as error:
        raise DataError(f"expected an items × annotators matrix ({error}).") from None
    if matrix.ndim != 2:
        raise DataError(f"expected an items × annotators matrix, got shape {matrix.shape}.")
    if missing is ...:
        missing = None if numbers else -1
    empty = hidden | np.False_ if missing is None else hidden | (matrix == missing)
    if matrix.dtype.kind in "fO":
        empty = empty | (matrix != matrix) | (matrix == np.array(None))  # NaN differs from itself
    names = []
    for what, given, n in (("items", items, matrix.shape[0]), ("annotators", annotators, matrix.shape[1])):
        names.append(np.arange(n) if given is None else np.asarray(given))
        if len(names[-1]) != n or len(set(names[-1].tolist())) != n:
            raise DataError(f"{what}: expected {n:,} different names for a matrix of shape {matrix.shape}.")
    i, a = np.nonzero(~np.asarray(empty, bool))
    columns = {"item": names[0][i], "annotator": names[1][a], "label": matrix[i, a]}
    return columns | {"items": names[0], "annotators": names[1]}
