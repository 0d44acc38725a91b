"""One column of a table at a time: checked, and turned into names and codes or into numbers."""

from __future__ import annotations

from contextlib import suppress
from numbers import Integral
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dissensus.common.types import BoolArray, FloatArray, IntArray, Names
from dissensus.exceptions import DataError
from dissensus.table import names as naming


def encode_names(column: Any, what: str, all_names: Any) -> tuple[Names, IntArray]:
    """Sorted names and the rows' codes; where `all_names` is given, those are the names."""
    found, codes = naming.encode(column, what)
    if all_names is None:
        return found, codes
    everything, _ = naming.encode(naming.to_column(all_names, f"{what}s"), f"{what}s")
    place = naming.match(found, everything, f"{what}s")
    if (place < 0).any():
        raise DataError(
            f"{what} {naming.shown(found[place < 0][0])} has annotations and is not in the list of {what}s given."
        )
    return everything, np.append(place, -1).astype(np.int32)[codes]


def as_list(answers: Any) -> list[Any]:
    """One answer, or several, as a list."""
    return [answers] if answers is None or isinstance(answers, str | bytes | int | float) else list(answers)


def encode_labels(column: Any, classes: Any, abstain: Any) -> tuple[Names, IntArray, BoolArray | None]:
    """Class names, label codes of the rows that stay, and which rows stay (None: all)."""
    keep: BoolArray | None = None
    answers = as_list(abstain)
    if answers:
        column = joined(column)
        gone = np.zeros(len(column), np.bool_)
        if any(answer is None or answer != answer for answer in answers):  # NaN differs from itself
            gone |= naming.missing_rows(column)
        named = [answer for answer in answers if answer is not None and answer == answer]
        if named:
            values = naming.declared(named, column, "abstain")
            labels = pa.array(column) if isinstance(column, np.ndarray) else column
            with suppress(pa.ArrowInvalid, pa.ArrowTypeError):  # of another kind than the labels: none of them occurs
                gone |= np.asarray(pc.is_in(labels, value_set=pa.array(values, labels.type)))
        keep = ~gone
        column = column.take(np.flatnonzero(keep))
        if not isinstance(column, np.ndarray):
            column = naming.to_column(column, "label")  # integers again, once the missing ones are gone
    found, codes = naming.encode(column, "label")
    if classes is None:
        return found, codes, keep
    names = naming.declared(classes, column, "classes")
    if found.dtype.kind in "iu" and names.dtype == object:  # integer labels are codes into declared text classes
        place = np.where((found >= 0) & (found < names.size), found, -1)
    else:
        place = naming.match(found, names, "classes")
    if (place < 0).any():
        row = int(np.flatnonzero(place[codes] < 0)[0])
        at = row if keep is None else int(np.flatnonzero(keep)[row])
        raise naming.unknown_label(
            "label", int((place[codes] < 0).sum()), codes.size, at, found[codes[row]], names.size
        )
    return names, place[codes] if codes.size else codes, keep


def check_proba(proba: Any, classes: Any) -> FloatArray:
    """(N, K) distributions, each divided by its sum; more than 1e-4 from one is an error."""
    proba = np.array(proba, np.float64)
    if proba.ndim != 2:
        raise DataError(f"proba must have one row per annotation and one column per class, got shape {proba.shape}.")
    if classes is not None:
        k = classes if isinstance(classes, Integral) else len(classes)
        if k != proba.shape[1]:
            raise DataError(f"proba has {proba.shape[1]} columns for {k} classes.")
    bad = np.flatnonzero(~np.isfinite(proba).all(axis=1) | (proba < 0).any(axis=1))
    if bad.size:
        raise DataError(
            f"proba: {bad.size:,} of {len(proba):,} rows hold a negative or missing probability; first at row {bad[0]} "
            f"(from 0): {proba[bad[0]].tolist()}."
        )
    total = proba.sum(axis=1)
    bad = np.flatnonzero(np.abs(total - 1) > 1e-4)
    if bad.size:
        raise DataError(
            f"proba: {bad.size:,} of {len(proba):,} rows do not sum to one; first at row {bad[0]} (from 0): "
            f"{proba[bad[0]].tolist()} sums to {total[bad[0]]:.6g}. Divide each row by its sum."
        )
    return np.asarray(proba / total[:, None])


def check_weight(values: Any) -> FloatArray:
    """(N,) weights, none negative or missing."""
    weight = floats(values, "weight")
    bad = np.flatnonzero(~np.isfinite(weight) | (weight < 0))
    if bad.size:
        raise DataError(
            f"weight: {bad.size:,} of {weight.size:,} rows are negative or missing; first at row {bad[0]} (from 0): "
            f"{weight[bad[0]]}."
        )
    return weight


def floats(values: Any, column: str) -> FloatArray:
    """A column of numbers, or of text that spells numbers, as files without types give it; missing is NaN."""
    if hasattr(values, "to_numpy"):  # Arrow, pandas, polars
        values = values.to_numpy()
    try:
        return np.asarray(values, np.float64)
    except (TypeError, ValueError):
        for row, value in enumerate(values):
            try:
                np.float64(value)
            except (TypeError, ValueError):
                raise DataError(
                    f"column '{column}': row {row} (from 0) holds {naming.shown(value)}, which is no number."
                ) from None
        raise


def joined(column: Any) -> Any:
    """A column in one piece, which can be taken from by row numbers."""
    return (
        column if isinstance(column, np.ndarray) or not hasattr(column, "combine_chunks") else column.combine_chunks()
    )
