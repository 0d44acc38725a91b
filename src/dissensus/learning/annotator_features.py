"""Encode features of annotators (age, trust, country, …) as numbers r_j for a network.

A column of numbers becomes two columns, the standardised number and a flag that is 1 if the number is missing. A column
of texts (or booleans) becomes one column per level, and "missing" is a level. Levels with fewer than
`MIN_ANNOTATORS_PER_LEVEL` annotators are merged. All columns are centred on the annotators of `fit`, so r = 0 describes
the average annotator. Annotators without a row in the frame also get 0, as do levels that were not in `fit` or are too
rare even when they are merged.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import narwhals as nw
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dissensus.common.types import FloatArray, IntArray, Names
from dissensus.learning import exceptions as faults
from dissensus.learning.inputs import match_names
from dissensus.messages import quote_name
from dissensus.table import names as naming
from dissensus.table.find_columns import guess_column, missing_column_error, to_arrow

MIN_ANNOTATORS_PER_LEVEL = 5  # minimum number of annotators for a level to have its own column
ANNOTATOR_COLUMN = "annotator"

Levels = dict[str | None, int]
"""Index of each level among the columns of its feature; the level None is "missing"."""

AnnotatorCodes = tuple[IntArray, FloatArray | None]
"""Codes of annotators, −1 for unknown annotators, and their features if they are given in a frame."""


def is_frame(value: Any) -> bool:
    """Return True for a frame (pandas, polars, Arrow, DuckDB, mapping of columns), False for a list of names."""
    return isinstance(value, Mapping) or isinstance(
        nw.from_native(value, pass_through=True), nw.DataFrame | nw.LazyFrame
    )


def match_annotators(annotators: Any, fitted: Names, encoding: AnnotatorFeatures | None) -> AnnotatorCodes:
    """Return codes among the `fitted` annotators, given names (None: all) or a frame, and the features of a frame."""
    if not is_frame(annotators):
        return match_names(annotators, fitted, "annotators"), None
    if encoding is None:
        raise faults.FittedWithoutFeatures()
    names, features = encoding.encode(annotators)
    return naming.match_names(names, fitted, "annotators"), features


@dataclass(frozen=True, eq=False)
class AnnotatorFeatures:
    """Encoding of a frame of annotators as features; `fit` computes it."""

    columns: dict[str, Levels | None]  # None for a column of numbers
    mean: FloatArray  # (F,)
    scale: FloatArray  # (F,)

    @classmethod
    def fit(cls, frame: Any, annotators: Names) -> Self:
        """Compute levels, means and scales from the rows of these annotators (A,)."""
        arrow = _read_frame(frame)
        names, rows = _read_names(arrow), {name: values for name, values in arrow.items() if name != ANNOTATOR_COLUMN}
        if not rows:
            raise faults.NoAnnotatorFeatures()
        distinct, counts = np.unique(names, return_counts=True)
        if (counts > 1).any():
            name = distinct[counts > 1][0]
            raise faults.RepeatedRow(argument="annotators", name=quote_name(name), n_rows=int(counts.max()))
        at = naming.match_names(annotators, names, "annotators")
        if (at < 0).all():
            name, other = quote_name(annotators[0]), quote_name(names[0])
            raise faults.NoCommonAnnotators(n_annotators=annotators.size, name=name, frame_name=other)
        there = pa.array(
            at[at >= 0]
        )  # The table's order is used, so that the result does not depend on the order of the frame.
        columns = {name: _find_levels(values.take(there), name) for name, values in rows.items()}
        raw = np.hstack([_encode_column(rows[name].take(there), levels, name) for name, levels in columns.items()])
        widths = [[True, False] if levels is None else [False] * _count_columns(levels) for levels in columns.values()]
        is_number = np.concatenate(widths).astype(bool)  # Flags of missing values are centred and not scaled.
        known = ~np.isnan(raw)
        total = np.maximum(known.sum(axis=0), 1)
        mean = np.where(known, raw, 0).sum(axis=0) / total
        spread = np.sqrt((np.where(known, raw - mean, 0) ** 2).sum(axis=0) / total)
        return cls(columns, mean, np.where(is_number & (spread > 0), spread, 1.0))

    def encode(self, frame: Any) -> tuple[Names, FloatArray]:
        """Return the names (rows,) and the features (rows, F) in a frame that has the columns of `fit`."""
        arrow = _read_frame(frame)
        for name in self.columns:
            if name not in arrow:
                raise faults.MissingFeature(column=name, columns=tuple(arrow))
        raw = np.hstack([_encode_column(arrow[name], levels, name) for name, levels in self.columns.items()])
        return _read_names(arrow), np.nan_to_num((raw - self.mean) / self.scale, nan=0.0)

    def compute_features(self, frame: Any, annotators: Names) -> FloatArray:
        """Return features (A, F) of these annotators, with zeros for annotators without a row in the frame."""
        names, features = self.encode(frame)
        at = naming.match_names(annotators, names, "annotators")
        return np.where(at[:, None] >= 0, features[at], 0.0)


def _read_frame(frame: Any) -> dict[str, Any]:
    """Return the columns of any frame as Arrow arrays; the column of annotators is renamed to `annotator`."""
    if isinstance(frame, Mapping):
        columns = {str(name): naming.to_column(values, str(name)) for name, values in frame.items()}
        lengths = {name: len(values) for name, values in columns.items()}
        if len(set(lengths.values())) > 1:
            raise faults.ArgumentLengthsDiffer(argument="annotators", lengths=lengths)
        frame = pa.table(columns)
    if not is_frame(frame):
        raise faults.NotAFrame(type_name=type(frame).__name__)
    there = list(nw.from_native(frame).collect_schema().names())
    own = guess_column(ANNOTATOR_COLUMN, there)
    if own is None:
        raise missing_column_error(ANNOTATOR_COLUMN, there)
    return {ANNOTATOR_COLUMN if name == own else name: values for name, values in to_arrow(frame, there).items()}


def _read_names(arrow: dict[str, Any]) -> Names:
    """Return the names of the annotators; raise an error if one is missing."""
    column = naming.to_column(arrow[ANNOTATOR_COLUMN], ANNOTATOR_COLUMN)
    if naming.missing_rows(column).any():
        raise faults.AnnotatorNameMissing(argument="annotators", row=int(np.argmax(naming.missing_rows(column))))
    return naming.to_names(column)


def _find_levels(values: Any, name: str) -> Levels | None:
    """Return the column index of each level of a column of texts, or None for a column of numbers."""
    if _is_number_type(values.type):
        return None
    counts = Counter(_read_texts(values, name))
    own = sorted(level for level, n in counts.items() if n >= MIN_ANNOTATORS_PER_LEVEL and level is not None)
    levels: Levels = {level: place for place, level in enumerate(own)}
    rare = [level for level, n in counts.items() if n < MIN_ANNOTATORS_PER_LEVEL and level is not None]
    if sum(counts[level] for level in rare) >= MIN_ANNOTATORS_PER_LEVEL:
        levels |= dict.fromkeys(sorted(rare), len(own))
    if counts[None] >= MIN_ANNOTATORS_PER_LEVEL:
        levels[None] = _count_columns(levels)
    return levels


def _encode_column(values: Any, levels: Levels | None, name: str) -> FloatArray:
    """Encode one feature as columns (rows, columns), with NaN for missing values and levels without a column."""
    if levels is None:
        if not _is_number_type(values.type):
            raise faults.ColumnTypeDiffers(column=name, expected="numbers", actual=str(values.type))
        numbers = np.asarray(pc.cast(values, pa.float64()).fill_null(np.nan))
        if np.isinf(numbers).any():
            raise faults.InfiniteFeature(column=name, row=int(np.argmax(np.isinf(numbers))))
        return np.column_stack([numbers, np.isnan(numbers)])
    if _is_number_type(values.type):
        raise faults.ColumnTypeDiffers(column=name, expected="texts", actual=str(values.type))
    place = np.array([levels.get(level, -1) for level in _read_texts(values, name)], np.int64)
    return np.where(place[:, None] >= 0, place[:, None] == np.arange(_count_columns(levels)), np.nan)


def _read_texts(values: Any, name: str) -> list[str | None]:
    """Return the values of a column as texts, with None for missing and blank values."""
    kind = values.type
    nested = pa.types.is_nested(kind) or pa.types.is_binary(kind) or pa.types.is_large_binary(kind)
    if nested or pa.types.is_temporal(kind):
        raise faults.UnsupportedColumn(column=name, kind=str(kind))
    return [None if value is None or not str(value).strip() else str(value) for value in values.to_pylist()]


def _is_number_type(kind: Any) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))


def _count_columns(levels: Levels) -> int:
    return len(set(levels.values()))
