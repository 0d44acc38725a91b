"""Read the predictions of any model and align them to a table.

A file or frame has one row per item or, with a column `annotator`, one row per item and annotator. It contains a label,
one probability per class (columns `p_CLASS`, or columns with the names of the classes), or both. If it contains both,
the label is the answer, and the probabilities are its confidence. Names are compared as text, so 7 and "7" are the same
item.
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
from dissensus.evaluation.hard import find_tied_classes
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

PREDICTION_COLUMNS = ("predicted", "prediction", "predicted_label", "pred", "label", "answer")
"""Possible column names of the predicted label, in the order in which they are tried."""
PROBABILITY_PREFIX = "p_"  # prefix of columns with the probability of a class


@dataclass(frozen=True, eq=False)
class Predictions:
    """Predicted labels, probabilities or both, one row per item or per item and annotator; all names are text."""

    item: Names  # (n,)
    classes: Names  # (C,)
    label: IntArray | None = None  # (n,) code into classes
    proba: FloatArray | None = None  # (n, C)
    annotator: Names | None = None  # (n,)

    @classmethod
    def read(cls, source: Any, table: Annotations, predicted: str | None = None) -> Predictions:
        """Read a file, a frame, or an array (I,) of names or (I, K) of probabilities, in the order of `table.items`.

        `predicted` is the name of the column with the predicted label.
        """
        if isinstance(source, Predictions):
            return source
        if isinstance(source, np.ndarray | list):
            return cls._from_array(np.asarray(source), table)
        path = Path(source) if isinstance(source, str | PathLike) else None
        frame = source if path is None else read_frame(path)
        with name_file_in_errors(path) if path is not None else nullcontext():
            return cls._from_frame(frame, _to_text(table.classes), predicted)

    @classmethod
    def _from_array(cls, array: Any, table: Annotations) -> Predictions:
        if len(array) != table.n_items or array.ndim not in (1, 2):
            raise PredictionShapeMismatch(shape=array.shape, items=table.n_items)
        items = _to_text(table.items)
        if array.ndim == 1:
            return cls(items, *_encode_text(array, "predictions"))
        _, proba = encode_proba(array, table.classes)
        return cls(items, _to_text(table.classes), proba=proba)

    @classmethod
    def _from_frame(cls, frame: Any, table_classes: Names, predicted: str | None) -> Predictions:
        columns = column_names(frame)
        item, annotator = (guess_column(role, columns) for role in ("item", "annotator"))
        if item is None:
            raise missing_column_error("item", columns)
        if predicted is not None and predicted not in columns:
            raise missing_column_error("label", columns, predicted)
        by_lower_case = {name.strip().lower(): name for name in reversed(columns)}
        label = predicted or next((by_lower_case[name] for name in PREDICTION_COLUMNS if name in by_lower_case), None)
        by_class = {
            name.removeprefix(PROBABILITY_PREFIX): name for name in columns if name.startswith(PROBABILITY_PREFIX)
        }
        if not by_class and label is None:
            by_class = {name: name for name in columns if name in set(table_classes) - {item, annotator}}
        if not by_class and label is None:
            raise NoPredictedColumn(columns=quote_names(columns))
        data = to_arrow(frame, [name for name in (item, annotator, label, *by_class.values()) if name is not None])
        names = {}
        for role, column in (("item", item), ("annotator", annotator)):
            if column is not None:
                texts, at = _encode_text(data[column], column)
                names[role] = texts[at]
        if not len(names["item"]):
            raise NoPredictionRows()
        classes, codes = (np.empty(0, object), None) if label is None else _encode_text(data[label], label)
        if not by_class:
            return cls(**names, classes=classes, label=codes)
        all_classes = _append_new_names(np.array(list(by_class), object), classes)
        probability_classes, proba = encode_proba({name: data[column] for name, column in by_class.items()}, None)
        codes = None if codes is None else naming.match_names(classes, all_classes, "classes")[codes]
        return cls(
            **names,
            classes=all_classes,
            label=codes,
            proba=_expand_classes(proba, _to_text(probability_classes), all_classes),
        )


@dataclass(frozen=True, eq=False)
class AlignedPredictions:
    """Predictions in the order of the items, rows and classes of a table; missing predictions are zeros."""

    has_item: BoolArray  # (I,) True for predicted items
    has_row: BoolArray  # (N,) True for predicted rows
    answer_shares: FloatArray  # (I, K) 1 for the answer, or 1/t for each of t tied classes
    proba: FloatArray | None  # (I, K)
    row_answers: FloatArray  # (N, K) predicted answer or probabilities for the annotator of each row
    row_proba: FloatArray | None  # (N, K)

    @classmethod
    def align(cls, predictions: Predictions, table: Annotations) -> AlignedPredictions:
        """Align predictions to a table whose names are text and whose classes include all predicted ones."""
        code = naming.match_names(predictions.classes, table.classes, "classes")
        label = None if predictions.label is None else np.eye(table.n_classes)[code[predictions.label]]
        proba = (
            None
            if predictions.proba is None
            else _expand_classes(predictions.proba, predictions.classes, table.classes)
        )
        answer: Any = proba if label is None else label  # (n, K)
        confidence: Any = label if proba is None else proba
        item = naming.match_names(predictions.item, table.items, "items")
        if predictions.annotator is None:
            row_of_item = _find_rows(item, table.n_items, predictions.item)
            best = _select_rows(answer, row_of_item)
            item_proba = None if proba is None else _select_rows(proba, row_of_item)
            rows = row_of_item[table.item]
        else:
            best, item_proba = (_average_by_item(values, item, table.n_items) for values in (answer, confidence))
            annotator = naming.match_names(predictions.annotator, table.annotators, "annotators")
            in_table = (item >= 0) & (annotator >= 0)
            pairs, row = np.unique(_encode_pairs(table.item, table.annotator, table), return_inverse=True)
            pair = np.where(in_table, naming.match_names(_encode_pairs(item, annotator, table), pairs, "pairs"), -1)
            rows = _find_rows(pair, pairs.size, predictions.item)[row]
        has_item = np.asarray(best.any(axis=1))
        tied = find_tied_classes(best) & has_item[:, None]
        answer_shares = tied / np.maximum(tied.sum(axis=1, keepdims=True), 1)
        row_proba = None if proba is None else _select_rows(proba, rows)
        return cls(has_item, rows >= 0, answer_shares, item_proba, _select_rows(answer, rows), row_proba)

    @property
    def calibrated_proba(self) -> FloatArray | None:
        """Return the probabilities (I, K), or None if the predictions contain only labels."""
        return None if self.row_proba is None else self.proba


def convert_names_to_text(table: Annotations, predictions: Iterable[Predictions]) -> Annotations:
    """Return a table whose names are text and whose classes include all predicted classes."""
    classes = _to_text(table.classes)
    for one in predictions:
        classes = _append_new_names(classes, one.classes)
    proba = None if table.proba is None else _expand_classes(table.proba, _to_text(table.classes), classes)
    items, annotators = _to_text(table.items), _to_text(table.annotators)  # the codes do not change
    return replace(table, items=items, annotators=annotators, classes=classes, proba=proba)


def _to_text(names: Any) -> Names:
    return np.array([str(name) for name in names.tolist()], object)


def _encode_text(column: Any, what: str) -> tuple[Names, IntArray]:
    names, codes = naming.encode_column(naming.to_column(column, what), what)
    return _to_text(names), codes


def _append_new_names(names: Names, more: Names) -> Names:
    """Return the names, followed by the names in `more` that are not among them."""
    return np.concatenate([names, more[naming.match_names(more, names, "classes") < 0]]) if more.size else names


def _expand_classes(proba: FloatArray, classes: Names, all_classes: Names) -> FloatArray:
    """Return the probabilities (n, C) with additional columns of zeros for the classes that they lack."""
    expanded = np.zeros((len(proba), all_classes.size))
    expanded[:, naming.match_names(classes, all_classes, "classes")] = proba
    return expanded


def _encode_pairs(item: IntArray, annotator: IntArray, table: Annotations) -> IntArray:
    """Return a code that identifies the item and annotator of each row (n,)."""
    return np.asarray(item * np.int64(table.n_annotators) + annotator)


def _find_rows(target: IntArray, n: int, item: Names) -> IntArray:
    """Return the row that predicts each of n targets (n,), or −1; raise an error if several rows predict a target.

    `target` (rows,) holds the target of each row, or −1.
    """
    count = np.bincount(target[target >= 0], minlength=n)
    if (count > 1).any():
        first = int((target == int((count > 1).argmax())).argmax())
        raise RepeatedPrediction(item=item[first], n=int(count.max()))
    row = np.full(n, -1)
    row[target[target >= 0]] = np.flatnonzero(target >= 0)
    return row


def _select_rows(values: FloatArray, row: IntArray) -> FloatArray:
    """Return the chosen rows of `values`, with zeros for row −1."""
    return np.where(row[:, None] >= 0, values[row], 0.0)


def _average_by_item(values: FloatArray, item: IntArray, n: int) -> FloatArray:
    """Return the mean of the rows (rows, K) of each item (n, K)."""
    rows = np.flatnonzero(item >= 0)
    sums = csr_array((np.ones(rows.size), (item[rows], rows)), shape=(n, len(values))) @ values
    return np.asarray(sums / np.maximum(np.bincount(item[rows], minlength=n), 1)[:, None])
