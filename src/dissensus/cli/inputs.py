"""Read the inputs of trained models from files: one text, pair of texts, feature vector or image per item.

This module also selects the validation items of `dissensus train`: a share, the items of another file, or the items
that a column marks.
"""

from __future__ import annotations

import dataclasses
import json
import warnings
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dissensus.cli import exceptions as faults
from dissensus.cli import show
from dissensus.cli.evaluate import read_labels
from dissensus.cli.folder import SUMMARY
from dissensus.cli.source import Gold, Source
from dissensus.common.types import BoolArray, Names
from dissensus.messages import ParameterName, quote_name, quote_names
from dissensus.table import names as naming
from dissensus.table.annotations import Annotations
from dissensus.table.datasets.folder import read_array
from dissensus.table.exceptions import MissingFile
from dissensus.table.find_columns import guess_column
from dissensus.table.io import read_frame

if TYPE_CHECKING:
    from dissensus.cli.options import InputFiles

TEXT_COLUMNS = ("text", "sentence", "question", "prompt")
"""Names of the text column that are tried, in this order, without --text."""
SPLITS = (
    dict.fromkeys(("train", "training"), "train")
    | dict.fromkeys(("dev", "development", "val", "valid", "validation"), "dev")
    | dict.fromkeys(("test", "testing", ""), "test")
)
"""Value in the column of --split → name of the split."""


@dataclass(frozen=True)
class Inputs:
    """The kind and the columns of the inputs in a file; the folder of a model stores them for `predict`."""

    kind: str  # texts, pairs, positions, features or images
    columns: tuple[str, ...] = ()  # columns of a table; none for arrays

    @classmethod
    def choose(cls, files: InputFiles) -> tuple[Path, Inputs]:
        """Return the file that holds the inputs, and a description of them."""
        given = {name: file for name in ("features", "images", "items") if (file := getattr(files, name)) is not None}
        if len(given) > 1:
            first, second, *_ = given
            raise faults.OptionsConflict(option=ParameterName(first), other_option=f"--{second}")
        if not given:
            raise faults.NoInputs()
        if files.pair is not None and files.position is not None:
            raise faults.OptionsConflict(option=ParameterName("pair"), other_option="--position")
        ((kind, file),) = given.items()
        for name in ("text", "pair", "position"):
            if kind != "items" and getattr(files, name) is not None:
                raise faults.OptionNeeds(option=ParameterName(name), needed="--items ITEMS")
        if kind == "images" or (kind == "features" and _holds_arrays(file)):
            return file, cls(kind)
        columns = read_table(file).column_names
        if kind == "features":
            found = tuple(name for name in columns if name != guess_column("item", columns))
            if not found:
                raise faults.ColumnMissing(path=file, column="x", role="features", columns=quote_names(columns))
            return file, cls(kind, found)
        text = files.text or next((name for name in TEXT_COLUMNS if name in columns), None)
        if text is None:
            raise faults.ColumnMissing(path=file, column=TEXT_COLUMNS[0], role="--text", columns=quote_names(columns))
        if files.pair is not None:
            return file, cls("pairs", (text, files.pair))
        return file, cls("texts", (text,)) if files.position is None else cls("positions", (text, files.position))

    @classmethod
    def read_from_model(cls, model: Path) -> Inputs:
        """Return the description of the inputs from the folder of a model that `dissensus train` wrote."""
        try:
            facts = json.loads((model / SUMMARY).read_bytes())["inputs"]
            return cls(str(facts["kind"]), tuple(str(column) for column in facts["columns"]))
        except FileNotFoundError as error:
            if (model / "checkpoint").exists():
                raise faults.TrainingStopped(folder=model) from error
            if not model.exists():
                raise MissingFile(path=model) from error
            raise faults.NotWrittenBy(path=model, command="train") from error
        except (OSError, ValueError, LookupError, TypeError) as error:
            raise faults.NotWrittenBy(path=model / SUMMARY, command="train") from error

    def read(self, path: Path, item: str | None = None) -> tuple[Names, Any]:
        """Return the distinct names (n,) of items, as text or integers, and the n rows of inputs."""
        with show.show_progress(f"reading {path}"):
            names, X = self._read_arrays(path) if _holds_arrays(path) else self._read_table(path, item)
        if not len(names):
            raise faults.NoInputRows(path=path)
        if self.kind == "features" and X.dtype.kind == "f" and len(bad := np.argwhere(~np.isfinite(X))):
            row, *column = bad[0].tolist()
            raise faults.NotFinite(
                path=path,
                item=show.shorten(names[row]),
                value=float(X[tuple(bad[0])]),
                column=repr(self.columns[column[0]]) if self.columns else ", ".join(map(str, column)),
                number=len(bad),
            )
        return _deduplicate(names, X, path)

    def _read_arrays(self, path: Path) -> tuple[Names, Any]:
        if self.kind not in ("features", "images"):
            raise faults.OtherFormat(path=path, content=self.kind, expected="a table")
        names, x = read_array(path, "item"), read_array(path, "x")
        if len(names) != len(x):
            raise faults.UnequalArrays(path=path, items=len(names), rows=len(x))
        return names, x

    def _read_table(self, path: Path, item: str | None) -> tuple[Names, Any]:
        if not self.columns:
            raise faults.OtherFormat(path=path, content=self.kind, expected="an .npz file with arrays `item` and `x`")
        frame = read_frame(path)
        key = item or guess_column("item", frame.column_names) or "item"
        _check_columns(path, frame, {key: "item"} | dict.fromkeys(self.columns, "inputs"))
        names = naming.to_names(frame[key].combine_chunks())
        columns = {name: frame[name].to_pylist() for name in self.columns}
        if self.kind == "features":
            found = [
                _parse_numbers(path, name, ["nan" if cell in (None, "") else cell for cell in cells], float, "number")
                for name, cells in columns.items()
            ]
            return names, np.array(found, np.float32).T.copy()
        texts, *second = (["" if value is None else str(value) for value in cells] for cells in columns.values())
        if self.kind == "positions":
            second = [
                _parse_numbers(path, self.columns[1], columns[self.columns[1]], _parse_whole_number, "whole number")
            ]
        return names, list(zip(texts, *second, strict=True)) if second else texts


def _deduplicate(names: Names, X: Any, path: Path) -> tuple[Names, Any]:
    """Return each item once with its inputs; in a table of labels, the rows of an item must repeat the same inputs."""
    _, first, code, count = np.unique(names, return_index=True, return_inverse=True, return_counts=True)
    if (count == 1).all():
        return names, X
    for row, original in enumerate(first[code].tolist()):
        if row != original and not np.array_equal(X[row], X[original]):
            from dissensus.learning.exceptions import DifferentInputs  # imports torch

            raise DifferentInputs(path=path, item=repr(show.shorten(names[row])), n_rows=int(count[code[row]]))
    rows = np.sort(first)
    return names[rows], [X[row] for row in rows] if isinstance(X, list) else X[rows]


def align_inputs(table: Annotations, names: Names, X: Any, labels: Path) -> tuple[Annotations, Any]:
    """Return the table extended to all items with inputs, and the inputs in the order of its items."""
    from dissensus.learning.inputs import take_rows

    source = table.import_report
    names = match_name_type(table.items, names)
    at = naming.match_names(table.items, names, "items")
    if (at < 0).all():
        raise faults.NoCommonItems(items=table.n_items, labels=labels, item=show.shorten(table.items[0]))
    if missing := int((at < 0).sum()):
        item = show.shorten(table.items[at < 0][0])
        warnings.warn(faults.ItemsWithoutInputs(number=missing, items=at.size, labels=labels, item=item), stacklevel=2)
        table = table.select(items=at >= 0)
        at = at[at >= 0]
    order = np.argsort(names, kind="stable")
    place = np.argsort(order, kind="stable")  # position of each name in that order
    whole = Annotations.from_codes(
        place[at][table.item].astype(np.int32), table.annotator, table.label, names[order], table.annotators,
        table.classes, weight=table.weight, proba=table.proba, kind=table.kind,
    )  # fmt: skip
    return whole.with_import_report(source), take_rows(X, order)


def validation_by_share_or_file(
    text: str, table: Annotations, X: Any, source: Source
) -> tuple[BoolArray, BoolArray, Any]:
    """Read the option --validation.

    Return the mask (I,) of items not to train on, the mask (I,) of validation items, and the argument `validation` of
    `CrowdClassifier.fit`.
    """
    from dissensus.learning.inputs import take_rows

    none = np.zeros(table.n_items, np.bool_)
    with suppress(ValueError):
        return none, none, float(text)
    path = Path(text)
    if not path.exists():
        raise faults.BadValidation(text=text)
    other, gold = read_labels(dataclasses.replace(source, named=text), Gold(None, None, None))
    at = naming.match_names(match_name_type(table.items, other.items), table.items, "items")
    there = at >= 0
    if not there.any():
        raise faults.NoCommonItems(items=at.size, labels=path, item=show.shorten(other.items[0]))
    if missing := int((~there).sum()):
        item = show.shorten(other.items[~there][0])
        warnings.warn(faults.ItemsWithoutInputs(number=missing, items=at.size, labels=path, item=item), stacklevel=2)
    validation = np.isin(np.arange(table.n_items), at)
    if both := int((validation & (np.diff(table.item_ptr) > 0)).sum()):
        warnings.warn(faults.ValidationHasLabels(number=both, path=path, labels=source.file), stacklevel=2)
    labels = other.select(items=there) if gold is None else other.classes[gold[there]]
    return validation, validation, (take_rows(X, at[there]), labels)


def validation_by_column(column: str, file: Path, table: Annotations, X: Any) -> tuple[BoolArray, BoolArray, Any]:
    """Return the same as `validation_by_share_or_file`, from a column with train, dev or test for each item."""
    from dissensus.learning.inputs import take_rows

    if _holds_arrays(file):
        raise faults.OtherFormat(path=file, content="splits", expected="a column of a table")
    frame = read_table(file)
    key = guess_column("item", frame.column_names) or "item"
    _check_columns(file, frame, {key: "item", column: "--split"})
    names = match_name_type(table.items, naming.to_names(naming.to_column(frame[key].combine_chunks(), key)))
    words = [str(word or "").strip().lower() for word in frame[column].to_pylist()]
    words = [words[row] for row in naming.match_names(table.items, names, "items")]
    unknown = [word for word in words if word not in SPLITS]
    if unknown:
        raise faults.BadSplit(path=file, column=column, value=unknown[0])
    split = np.array([SPLITS[word] for word in words], object)
    train, validation, labelled = split == "train", split == "dev", np.diff(table.item_ptr) > 0
    if not (train & labelled).any():
        raise faults.NothingToTrain(path=file, column=column)
    validation &= labelled
    given = (take_rows(X, np.flatnonzero(validation)), table.select(items=validation)) if validation.any() else None
    return ~train, validation, given


def match_name_type(others: Names, names: Names) -> Names:
    """Return names converted to the type of `others`: text or integers."""
    if names.dtype.kind in "iu" and others.dtype.kind == "O":
        return np.array([str(name) for name in names.tolist()], object)
    if names.dtype.kind == "O" and others.dtype.kind in "iu":
        with suppress(ValueError):
            return np.array([int(name) for name in names.tolist()])
    return names


def parse_names(text: str, others: Names) -> Names:
    """Return the names in `A,B,…`, converted to the type of `others`."""
    return match_name_type(others, np.array([part for name in text.split(",") if (part := name.strip())], object))


def _holds_arrays(path: Path) -> bool:
    return path.suffix.lower() == ".npz"


def read_table(path: Path) -> Any:
    """Read a file as an Arrow table with all its columns."""
    with show.show_progress(f"reading {path}"):
        return read_frame(path)


def read_prices(path: Path, people: Names) -> dict[Any, float]:
    """Read the cost of a label of each annotator from a file with columns annotator and cost."""
    frame = read_table(path)
    key = guess_column("annotator", frame.column_names) or "annotator"
    _check_columns(path, frame, {key: "annotator", "cost": "cost"})
    names = match_name_type(people, naming.to_names(naming.to_column(frame[key], "annotator")))
    prices: dict[Any, float] = {}
    costs = _parse_numbers(path, "cost", frame["cost"].to_pylist(), float, "number")
    for name, price in zip(names.tolist(), costs, strict=True):
        if prices.setdefault(name, price) != price:
            raise faults.DifferentRows(path=path, name=quote_name(name))
    return prices


def _check_columns(path: Path, frame: Any, roles: dict[str, str]) -> None:
    """Raise ColumnMissing if a table lacks one of the columns; `roles` maps each column to its use."""
    for column, role in roles.items():
        if column not in frame.column_names:
            raise faults.ColumnMissing(path=path, column=column, role=role, columns=quote_names(frame.column_names))


def _parse_numbers(path: Path, name: str, values: list[Any], convert: Callable[[Any], Any], kind: str) -> list[Any]:
    """Convert the values of a column to numbers."""
    result = []
    for row, value in enumerate(values):
        try:
            result.append(convert(value))
        except (TypeError, ValueError):
            raise faults.NotNumber(path=path, column=name, row=row, value=value, kind=kind) from None
    return result


def _parse_whole_number(value: Any) -> int:
    if isinstance(value, int) or (isinstance(value, str) and value.strip().isdecimal()):
        return int(value)
    raise ValueError
