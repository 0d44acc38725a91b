"""Items that `dissensus train` is judged by: a share, those of another file, or those that a column names."""

from __future__ import annotations

import dataclasses
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from dissensus.cli import show
from dissensus.cli.errors import say
from dissensus.cli.evaluate import read_labels
from dissensus.cli.inputs import in_kind_of, read_table
from dissensus.cli.options import Gold, Source
from dissensus.common.types import BoolArray
from dissensus.exceptions import BadParameter, DataError, MissingColumn
from dissensus.learning.inputs import take
from dissensus.table import names as naming
from dissensus.table.annotations import Annotations
from dissensus.table.find_columns import guess_column, listed

WORDS = {
    "teach": ("train", "training"),
    "judge": ("dev", "development", "val", "valid", "validation"),
    "neither": ("test", "testing"),
}
"""What a column may say of an item; an empty cell is neither."""


def by_share_or_file(text: str, table: Annotations, X: Any, source: Source) -> tuple[BoolArray, Any]:
    """What --validation says: (I,) items that do not teach, and what `fit` takes for `validation`."""
    nobody = np.zeros(table.n_items, np.bool_)
    with suppress(ValueError):
        return nobody, float(text)
    path = Path(text)
    if not path.exists():
        raise BadParameter(f"--validation {text} is neither a share, such as 0.1, nor a file that is there.")
    other, gold = read_labels(dataclasses.replace(source, named=text), Gold(None, None, None))
    at = naming.match(in_kind_of(table.items, other.items), table.items, "items")
    if (at < 0).all():
        raise DataError(f"none of the {at.size:,} items of {path}, such as {show.name(other.items[0])!r}, has inputs.")
    if (at < 0).any():
        some = show.name(other.items[at < 0][0])
        say(f"warning: {(at < 0).sum():,} items of {path}, such as {some!r}, have no inputs; they do not judge.")
    judge = np.isin(np.arange(table.n_items), at)
    both = int((judge & (np.diff(table.item_ptr) > 0)).sum())
    if both:
        say(f"warning: {both:,} items of {path} have labels in {source.file} too; these do not teach.")
    rows = take(X, at[at >= 0])
    labels = other.select(items=at >= 0) if gold is None else other.classes[gold[at >= 0]]
    return judge, (rows, labels)


def by_column(column: str, file: Path, table: Annotations, X: Any) -> tuple[BoolArray, Any]:
    """The same by a column of the file of inputs, which says train, dev or test of each item."""
    if file.suffix.lower() == ".npz":
        raise BadParameter(f"--split {column} names a column of a table, and {file} holds arrays.")
    frame = read_table(file)
    there, key = frame.column_names, guess_column("item", frame.column_names)
    if column not in there or key is None:
        raise MissingColumn(f"{file}: no column {column!r} for --split; the columns are {listed(there)}.")
    names = in_kind_of(table.items, naming.to_names(naming.to_column(frame[key].combine_chunks(), key)))
    said = np.array([str(word or "").strip().lower() for word in frame[column].to_pylist()], object)
    said = said[naming.match(table.items, names, "items")]
    known = {word: part for part, words in WORDS.items() for word in words} | {"": "neither"}
    strange = [word for word in dict.fromkeys(said.tolist()) if word not in known]
    if strange:
        raise DataError(f"{file}: column {column!r} says {strange[0]!r}; it may say train, dev or test.")
    part = np.array([known[word] for word in said.tolist()], object)
    judge, voted = part == "judge", np.diff(table.item_ptr) > 0
    if not ((part == "teach") & voted).any():
        raise DataError(f"{file}: column {column!r} says train of no item with labels; nothing would teach.")
    if not (judge & voted).any():
        return part != "teach", None
    return part != "teach", (take(X, np.flatnonzero(judge)), table.select(items=judge))
