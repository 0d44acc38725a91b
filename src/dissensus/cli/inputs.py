"""What a model learns from besides labels: texts, pairs, features or images, one per item, from files.

Also the items that `dissensus train` is judged by: a share, those of another file, or those that a column names.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dissensus.cli import show
from dissensus.cli.errors import say
from dissensus.cli.evaluate import read_labels
from dissensus.cli.folder import SUMMARY
from dissensus.cli.options import Gold, InputFiles, Source
from dissensus.common.types import BoolArray, Names
from dissensus.exceptions import BadParameter, DataError, MissingColumn, UnreadableFile
from dissensus.table import names as naming
from dissensus.table.annotations import Annotations
from dissensus.table.datasets.folder import read_array
from dissensus.table.find_columns import guess_column, listed
from dissensus.table.io import read_frame

TEXT_COLUMNS = ("text", "sentence", "question", "prompt")
"""Columns that are taken for the text where none is named."""
WORDS = (
    dict.fromkeys(("train", "training"), "teach")
    | dict.fromkeys(("dev", "development", "val", "valid", "validation"), "judge")
    | dict.fromkeys(("test", "testing", ""), "neither")
)
"""What a column may say of an item → whether the item teaches or judges."""


@dataclass(frozen=True)
class Inputs:
    """Which columns of a file are the inputs; a model's folder remembers it, so that `predict` need not be told."""

    kind: str  # texts, pairs, positions, features or images
    columns: tuple[str, ...] = ()  # of a table; none for arrays

    @classmethod
    def choose(cls, files: InputFiles) -> tuple[Path, Inputs]:
        """The file of the inputs and what to take from it."""
        given = {name: file for name in ("features", "images", "items") if (file := getattr(files, name)) is not None}
        if len(given) > 1:
            first, second, *_ = given
            raise BadParameter(f"--{first} and --{second} are two kinds of input; a model takes one.")
        if not given:
            raise BadParameter(
                "a model needs something to learn from besides labels: --items FILE with texts (it may be the file of "
                "the labels), --features FILE or --images FILE."
            )
        if files.pair is not None and files.position is not None:
            raise BadParameter("--pair and --position both name the second part of an input; give one.")
        ((kind, file),) = given.items()
        for name in ("text", "pair", "position"):
            if kind != "items" and getattr(files, name) is not None:
                raise BadParameter(f"--{name} names a column of --items; give that file.")
        if kind == "images" or (kind == "features" and _holds_arrays(file)):
            return file, cls(kind)
        columns = read_table(file).column_names
        if kind == "features":
            found = tuple(name for name in columns if name != guess_column("item", columns))
            if not found:
                raise UnreadableFile(f"{file} has no columns but {listed(columns)}; features are columns of numbers.")
            return file, cls(kind, found)
        text = files.text or next((name for name in TEXT_COLUMNS if name in columns), None)
        if text is None:
            raise MissingColumn(
                f"{file}: no column {TEXT_COLUMNS[0]!r} (nor {', '.join(TEXT_COLUMNS[1:])}); the columns are "
                f"{listed(columns)}. Name it: --text COLUMN."
            )
        if files.pair is not None:
            return file, cls("pairs", (text, files.pair))
        return file, cls("texts", (text,)) if files.position is None else cls("positions", (text, files.position))

    @classmethod
    def of_model(cls, model: Path) -> Inputs:
        """What the model in a folder of `dissensus train` takes."""
        if not model.is_dir():
            raise UnreadableFile(f"there is no folder {model}; give the one that `dissensus train` wrote.")
        try:
            facts = json.loads((model / SUMMARY).read_bytes())["inputs"]
            return cls(str(facts["kind"]), tuple(str(column) for column in facts["columns"]))
        except FileNotFoundError as error:
            if (model / "checkpoint").exists():
                raise UnreadableFile(
                    f"the training in {model} was stopped before its end; give the same `dissensus train` command "
                    "again, and it goes on."
                ) from error
            raise UnreadableFile(
                f"{model} holds no trained model; give a folder that `dissensus train` wrote."
            ) from error
        except (OSError, ValueError, LookupError, TypeError) as error:
            raise UnreadableFile(
                f"{model / SUMMARY} does not say what the model takes; give a folder that `dissensus train` wrote."
            ) from error

    def read(self, path: Path, item: str | None = None) -> tuple[Names, Any]:
        """Names of items (n,) as text or integers, each once, and their inputs (n rows)."""
        with show.waiting(f"reading {path}"):
            names, X = self._read_arrays(path) if _holds_arrays(path) else self._read_table(path, item)
        if not len(names):
            raise DataError(f"{path}: there is no row.")
        if self.kind == "features" and X.dtype.kind == "f" and len(bad := np.argwhere(~np.isfinite(X))):
            row, *column = bad[0].tolist()
            where = repr(self.columns[column[0]]) if self.columns else ", ".join(map(str, column))
            raise DataError(
                f"{path}: item {show.name(names[row])!r} has {X[tuple(bad[0])]} in column {where} "
                f"({show.count(len(bad), 'such value')}); leave those items out, or fill the gaps."
            )
        return _once(names, X, path)

    def _read_arrays(self, path: Path) -> tuple[Names, Any]:
        if self.kind not in ("features", "images"):
            raise BadParameter(f"{path} holds arrays; this model takes {self.kind}, from a table.")
        names, x = read_array(path, "item"), read_array(path, "x")
        if len(names) != len(x):
            raise DataError(f"{path}: {len(names):,} items and {len(x):,} rows of x; they must be equally many.")
        return names, x

    def _read_table(self, path: Path, item: str | None) -> tuple[Names, Any]:
        if not self.columns:
            what = "images are read" if self.kind == "images" else "the model was trained on features"
            raise BadParameter(f"{path}: {what} from an .npz file; give one with arrays `item` and `x`.")
        frame = read_frame(path)
        key = item or guess_column("item", frame.column_names)
        for column, role in ((key or "item", "item"), *((column, "inputs") for column in self.columns)):
            if column not in frame.column_names:
                raise MissingColumn(
                    f"{path}: no column {column!r} for {role}; the columns are {listed(frame.column_names)}."
                )
        names = naming.to_names(frame[key].combine_chunks())
        columns = {name: frame[name].to_pylist() for name in self.columns}
        if self.kind == "features":
            found = [
                _converted(path, name, ["nan" if cell in (None, "") else cell for cell in cells], float, "a number")
                for name, cells in columns.items()
            ]
            return names, np.array(found, np.float32).T.copy()
        texts, *second = (["" if value is None else str(value) for value in cells] for cells in columns.values())
        if self.kind == "positions":
            second = [_converted(path, self.columns[1], columns[self.columns[1]], _whole_number, "a whole number")]
        return names, list(zip(texts, *second, strict=True)) if second else texts


def _once(names: Names, X: Any, path: Path) -> tuple[Names, Any]:
    """Every item once; rows that say the same of one, as a table of its labels has them, are one."""
    _, first, code, count = np.unique(names, return_index=True, return_inverse=True, return_counts=True)
    if (count == 1).all():
        return names, X
    for row, of in enumerate(first[code].tolist()):
        if row != of and not np.array_equal(X[row], X[of]):
            from dissensus.learning.exceptions import DifferentInputs  # takes torch

            raise DifferentInputs(path=path, item=repr(show.name(names[row])), n_rows=int(count[code[row]]))
    rows = np.sort(first)
    return names[rows], [X[row] for row in rows] if isinstance(X, list) else X[rows]


def align_inputs(table: Annotations, names: Names, X: Any, labels: Path, file: Path) -> tuple[Annotations, Any]:
    """The table over all items that have inputs, labelled or not, and the inputs in its order."""
    from dissensus.learning.inputs import take

    source = table.source
    names = in_kind_of(table.items, names)
    at = naming.match(table.items, names, "items")
    if (at < 0).all():
        raise DataError(
            f"none of the {table.n_items:,} items of {labels} is in {file}, such as {show.name(table.items[0])!r} "
            f"(there, {show.name(names[0])!r}); is it the right file, and its column `item` the right one?"
        )
    if missing := int((at < 0).sum()):
        some = show.name(table.items[at < 0][0])
        say(f"warning: {missing:,} of {table.n_items:,} items are not in {file}, such as {some!r}; they are left out.")
        table = table.select(items=at >= 0)
        at = at[at >= 0]
    order = np.argsort(names, kind="stable")
    place = np.argsort(order, kind="stable")  # of each name in that order
    whole = Annotations.from_codes(
        place[at][table.item].astype(np.int32), table.annotator, table.label, names[order], table.annotators,
        table.classes, weight=table.weight, proba=table.proba, kind=table.kind,
    )  # fmt: skip
    return whole.with_source(source), take(X, order)


def judged_by_share_or_file(text: str, table: Annotations, X: Any, source: Source) -> tuple[BoolArray, BoolArray, Any]:
    """What --validation says: (I,) items that do not teach, (I,) that judge, and what `fit` takes for `validation`."""
    from dissensus.learning.inputs import take

    nobody = np.zeros(table.n_items, np.bool_)
    with suppress(ValueError):
        return nobody, nobody, float(text)
    path = Path(text)
    if not path.exists():
        raise BadParameter(f"--validation {text} is neither a share, such as 0.1, nor a file that is there.")
    other, gold = read_labels(dataclasses.replace(source, named=text), Gold(None, None, None))
    at = naming.match(in_kind_of(table.items, other.items), table.items, "items")
    there = at >= 0
    if not there.any():
        raise DataError(f"none of the {at.size:,} items of {path}, such as {show.name(other.items[0])!r}, has inputs.")
    if not there.all():
        some = show.name(other.items[~there][0])
        say(f"warning: {(~there).sum():,} items of {path}, such as {some!r}, have no inputs; they do not judge.")
    judge = np.isin(np.arange(table.n_items), at)
    if both := int((judge & (np.diff(table.item_ptr) > 0)).sum()):
        say(f"warning: {both:,} items of {path} have labels in {source.file} too; these do not teach.")
    labels = other.select(items=there) if gold is None else other.classes[gold[there]]
    return judge, judge, (take(X, at[there]), labels)


def judged_by_column(column: str, file: Path, table: Annotations, X: Any) -> tuple[BoolArray, BoolArray, Any]:
    """The same by a column of the file of inputs, which says train, dev or test of each item."""
    from dissensus.learning.inputs import take

    if _holds_arrays(file):
        raise BadParameter(f"--split {column} names a column of a table, and {file} holds arrays.")
    frame = read_table(file)
    there, key = frame.column_names, guess_column("item", frame.column_names)
    if column not in there or key is None:
        raise MissingColumn(f"{file}: no column {column!r} for --split; the columns are {listed(there)}.")
    names = in_kind_of(table.items, naming.to_names(naming.to_column(frame[key].combine_chunks(), key)))
    said = [str(word or "").strip().lower() for word in frame[column].to_pylist()]
    said = [said[row] for row in naming.match(table.items, names, "items")]
    strange = [word for word in said if word not in WORDS]
    if strange:
        raise DataError(f"{file}: column {column!r} says {strange[0]!r}; it may say train, dev or test.")
    part = np.array([WORDS[word] for word in said], object)
    judge, voted = part == "judge", np.diff(table.item_ptr) > 0
    if not ((part == "teach") & voted).any():
        raise DataError(f"{file}: column {column!r} says train of no item with labels; nothing would teach.")
    judge &= voted
    judges = (take(X, np.flatnonzero(judge)), table.select(items=judge)) if judge.any() else None
    return part != "teach", judge, judges


def in_kind_of(others: Names, names: Names) -> Names:
    """Names as text where others are text, as integers where others are."""
    if names.dtype.kind in "iu" and others.dtype.kind == "O":
        return np.array([str(name) for name in names.tolist()], object)
    if names.dtype.kind == "O" and others.dtype.kind in "iu":
        with suppress(ValueError):
            return np.array([int(name) for name in names.tolist()])
    return names


def split_names(text: str, others: Names) -> Names:
    """The names in `A,B,…`, of the same kind as others."""
    return in_kind_of(others, np.array([part for name in text.split(",") if (part := name.strip())], object))


def _holds_arrays(path: Path) -> bool:
    return path.suffix.lower() == ".npz"


def read_table(path: Path) -> Any:
    """All columns of a file, as an Arrow table."""
    with show.waiting(f"reading {path}"):
        return read_frame(path)


def read_prices(path: Path, people: Names) -> dict[Any, float]:
    """Annotator → cost of a label, from a file with columns annotator and cost."""
    frame = read_table(path)
    key = guess_column("annotator", frame.column_names)
    for column, role in ((key, "annotator"), ("cost", "cost")):
        if column not in frame.column_names:
            raise MissingColumn(f"{path}: no column {role!r}; the columns are {', '.join(frame.column_names)}.")
    names = in_kind_of(people, naming.to_names(naming.to_column(frame[key], "annotator")))
    prices: dict[Any, float] = {}
    for name, value in zip(names.tolist(), frame["cost"].to_pylist(), strict=True):
        try:
            price = float(value)
        except (TypeError, ValueError):
            raise DataError(f"{path}: the cost of annotator {naming.shown(name)} is {value!r}, not a number.") from None
        if prices.setdefault(name, price) != price:
            raise DataError(f"{path}: annotator {naming.shown(name)} has two costs, {prices[name]:g} and {price:g}.")
    return prices


def _converted(path: Path, name: str, values: list[Any], convert: Callable[[Any], Any], what: str) -> list[Any]:
    """The cells of a column as numbers; DataError names the first that is none."""
    result = []
    for row, value in enumerate(values):
        try:
            result.append(convert(value))
        except ValueError:
            raise DataError(f"{path}: column {name!r}, row {row} (from 0) is {value!r}, not {what}.") from None
    return result


def _whole_number(value: Any) -> int:
    if isinstance(value, int) or (isinstance(value, str) and value.strip().isdecimal()):
        return int(value)
    raise ValueError
