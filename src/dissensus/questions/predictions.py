"""Read predictions of any model and align them to a table.

A file or frame has one row per item, or one per item and annotator (a column `annotator`), with a label, with one
probability per class (columns `p_CLASS`, or named like the classes), or with both: then the label is the answer, and
the probabilities are its confidence. Names are compared as text: 7 and "7" are the same item.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import nullcontext
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from dissensus.common.types import BoolArray, FloatArray, IntArray, Names
from dissensus.evaluation.hard import tied_classes
from dissensus.messages import quote_names
from dissensus.questions.exceptions import (
    NoPredictedColumn,
    NoPredictionRows,
    PredictionShapeMismatch,
    RepeatedPrediction,
)
from dissensus.table import names as naming
from dissensus.table.annotations import Annotations
from dissensus.table.find_columns import column_names, guess_column, missing_column_error, to_arrow
from dissensus.table.io import read_frame
from dissensus.table.io.files import name_file_in_errors
from dissensus.table.names import encode_proba

PREDICTED = ("predicted", "prediction", "predicted_label", "pred", "label", "answer")
"""Column names of the predicted label, in the order in which they are tried."""
PROBABILITY = "p_"  # prefix of columns of probabilities


@dataclass(frozen=True, eq=False)
class Predictions:
    """Labels, probabilities or both, one row for each item, or for each item and annotator. All names are text."""

    item: Names  # (n,)
    classes: Names  # (C,)
    label: IntArray | None = None  # (n,) code into classes
    proba: FloatArray | None = None  # (n, C)
    annotator: Names | None = None  # (n,)

    @classmethod
    def read(cls, source: Any, table: Annotations, predicted: str | None = None) -> Predictions:
        """Read a file, a frame, or an array (I,) of names or (I, K) of probabilities, in the order of `table.items`.

        `predicted` names the column of the label.
        """
        if isinstance(source, Predictions):
            return source
        if isinstance(source, np.ndarray | list):
            return cls._of_array(np.asarray(source), table)
        path = Path(source) if isinstance(source, str | PathLike) else None
        frame = source if path is None else read_frame(path)
        with name_file_in_errors(path) if path is not None else nullcontext():
            return cls._of_frame(frame, _text(table.classes), predicted)

    @classmethod
    def _of_array(cls, array: Any, table: Annotations) -> Predictions:
        if len(array) != table.n_items or array.ndim not in (1, 2):
            raise PredictionShapeMismatch(shape=array.shape, items=table.n_items)
        items = _text(table.items)
        if array.ndim == 1:
            return cls(items, *_coded(array, "predictions"))
        _, proba = encode_proba(array, table.classes)
        return cls(items, _text(table.classes), proba=proba)

    @classmethod
    def _of_frame(cls, frame: Any, known: Names, predicted: str | None) -> Predictions:
        there = column_names(frame)
        item, annotator = (guess_column(role, there) for role in ("item", "annotator"))
        if item is None:
            raise missing_column_error("item", there)
        if predicted is not None and predicted not in there:
            raise missing_column_error("label", there, predicted)
        small = {name.strip().lower(): name for name in reversed(there)}
        label = predicted or next((small[name] for name in PREDICTED if name in small), None)
        by_class = {name.removeprefix(PROBABILITY): name for name in there if name.startswith(PROBABILITY)}
        if not by_class and label is None:
            by_class = {name: name for name in there if name in set(known) - {item, annotator}}
        if not by_class and label is None:
            raise NoPredictedColumn(columns=quote_names(there))
        data = to_arrow(frame, [name for name in (item, annotator, label, *by_class.values()) if name is not None])
        names = {}
        for role, column in (("item", item), ("annotator", annotator)):
            if column is not None:
                texts, at = _coded(data[column], column)
                names[role] = texts[at]
        if not len(names["item"]):
            raise NoPredictionRows()
        classes, codes = (np.empty(0, object), None) if label is None else _coded(data[label], label)
        if not by_class:
            return cls(**names, classes=classes, label=codes)
        every = _with(np.array(list(by_class), object), classes)
        columns, proba = encode_proba({name: data[column] for name, column in by_class.items()}, None)
        codes = None if codes is None else naming.match_names(classes, every, "classes")[codes]
        return cls(**names, classes=every, label=codes, proba=_padded(proba, _text(columns), every))


@dataclass(frozen=True, eq=False)
class AlignedPredictions:
    """Predictions in the order of a table's items, rows and classes; zero if missing."""

    has_item: BoolArray  # (I,) True for predicted items
    has_row: BoolArray  # (N,) True for predicted rows
    answer_shares: FloatArray  # (I, K) the answer; 1/t for each of t tied classes
    proba: FloatArray | None  # (I, K)
    row_answers: FloatArray  # (N, K) the answer for each annotator, or its probability
    row_proba: FloatArray | None  # (N, K)

    @classmethod
    def align(cls, given: Predictions, table: Annotations) -> AlignedPredictions:
        """Align predictions to a table whose names are text and whose classes include all predicted ones."""
        at = naming.match_names(given.classes, table.classes, "classes")
        label = None if given.label is None else np.eye(table.n_classes)[at[given.label]]
        proba = None if given.proba is None else _padded(given.proba, given.classes, table.classes)
        answer: Any = proba if label is None else label  # (n, K)
        confidence: Any = label if proba is None else proba
        item = naming.match_names(given.item, table.items, "items")
        if given.annotator is None:
            place = _place(item, table.n_items, given.item)
            best, whole, rows = (
                _rows_at(answer, place),
                None if proba is None else _rows_at(proba, place),
                place[table.item],
            )
        else:
            best, whole = (_means(values, item, table.n_items) for values in (answer, confidence))
            annotator = naming.match_names(given.annotator, table.annotators, "annotators")
            here = (item >= 0) & (annotator >= 0)
            pairs, row = np.unique(_pair(table.item, table.annotator, table), return_inverse=True)
            found = np.where(here, naming.match_names(_pair(item, annotator, table), pairs, "pairs"), -1)
            rows = _place(found, pairs.size, given.item)[row]
        there = np.asarray(best.any(axis=1))
        choice = tied_classes(best) & there[:, None]
        choice = choice / np.maximum(choice.sum(axis=1, keepdims=True), 1)
        row_proba = None if proba is None else _rows_at(proba, rows)
        return cls(there, rows >= 0, choice, whole, _rows_at(answer, rows), row_proba)

    @property
    def calibrated_proba(self) -> FloatArray | None:
        """Return the probabilities (I, K) if they were given; shares of predicted labels do not count."""
        return None if self.row_proba is None else self.proba


def with_text_names(table: Annotations, predictions: Iterable[Predictions]) -> Annotations:
    """Return the table with names as text, and the classes that predictions add to its own."""
    classes = _text(table.classes)
    for one in predictions:
        classes = _with(classes, one.classes)
    proba = None if table.proba is None else _padded(table.proba, _text(table.classes), classes)
    items, annotators = _text(table.items), _text(table.annotators)  # codes stay as they are
    return replace(table, items=items, annotators=annotators, classes=classes, proba=proba)


def _text(names: Any) -> Names:
    return np.array([str(name) for name in names.tolist()], object)


def _coded(column: Any, what: str) -> tuple[Names, IntArray]:
    names, codes = naming.encode_column(naming.to_column(column, what), what)
    return _text(names), codes


def _with(names: Names, more: Names) -> Names:
    """Return names, followed by new names of `more`."""
    return np.concatenate([names, more[naming.match_names(more, names, "classes") < 0]]) if more.size else names


def _padded(proba: FloatArray, classes: Names, every: Names) -> FloatArray:
    """Return probabilities (n, C) over more classes."""
    found = np.zeros((len(proba), every.size))
    found[:, naming.match_names(classes, every, "classes")] = proba
    return found


def _pair(item: IntArray, annotator: IntArray, table: Annotations) -> IntArray:
    """Return one number for each item and annotator (n,)."""
    return np.asarray(item * np.int64(table.n_annotators) + annotator)


def _place(at: IntArray, n: int, item: Names) -> IntArray:
    """Return the row that predicts each of n things (n,), −1 if none; raise if two do. `at` (rows,) or −1."""
    count = np.bincount(at[at >= 0], minlength=n)
    if (count > 1).any():
        first = int((at == int((count > 1).argmax())).argmax())
        raise RepeatedPrediction(item=item[first], n=int(count.max()))
    place = np.full(n, -1)
    place[at[at >= 0]] = np.flatnonzero(at >= 0)
    return place


def _rows_at(values: FloatArray, place: IntArray) -> FloatArray:
    """Return the rows of `values` at `place`, zeros where it is −1."""
    return np.where(place[:, None] >= 0, values[place], 0.0)


def _means(values: FloatArray, item: IntArray, n: int) -> FloatArray:
    """Return the means of rows (rows, K) over each item (n, K)."""
    here = np.flatnonzero(item >= 0)
    sums = csr_array((np.ones(here.size), (item[here], here)), shape=(n, len(values))) @ values
    return np.asarray(sums / np.maximum(np.bincount(item[here], minlength=n), 1)[:, None])
