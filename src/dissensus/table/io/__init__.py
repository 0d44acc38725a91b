"""Tables in and out: one file per format; `formats.FORMATS` knows them all."""

from __future__ import annotations

import gzip
from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext, suppress
from os import PathLike
from pathlib import Path
from typing import Any

import pyarrow as pa

from dissensus.common.atomic import atomic
from dissensus.common.types import IntArray, Names
from dissensus.exceptions import BadParameter, DataError
from dissensus.table.annotations import Annotations
from dissensus.table.encoding import as_list
from dissensus.table.find_columns import Columns, column_names, guess_column, no_column, to_arrow
from dissensus.table.io import hub
from dissensus.table.io.files import about
from dissensus.table.io.formats import FORMATS, detect, suffix_of
from dissensus.table.io.jsonl import dumps
from dissensus.table.questions import Questions

__all__ = ["atomic", "gold_codes", "gold_columns", "read", "read_frame", "read_gold", "write_frame", "write_json"]


def read(
    source: Any,
    *,
    format: str | None = None,  # noqa: A002 - the word that users know
    item: str | None = None,
    annotator: str | None = None,
    label: str | None = None,
    question: str | None = None,
    weight: str | None = None,
    proba: Mapping[Any, str] | Sequence[str] | None = None,
    classes: Iterable[Any] | int | None = None,
    abstain: Any = (),
) -> Annotations | Questions:
    """Read a table from a file, a frame or a Hugging Face dataset: one row per annotation.

    Parameters
    ----------
    source : path, frame or dataset
        A file of one of the formats in `table.io.formats.FORMATS`, plain or (text) gzipped; a pandas, polars or
        DuckDB frame or Arrow table; a `datasets.Dataset`.
    format : str, optional
        The file's format; found by suffix and content where left out.
    item, annotator, label, question, weight : str, optional
        Column names; found by the usual names (`task`, `worker`, `answer`, …) where left out. In the exports of
        annotation tools, `item` and `annotator` name fields of a record.
    proba : list of columns `p_<class>`, or class → column, optional
        A distribution over the classes instead of one label.
    classes, abstain
        As in `Annotations.from_arrays`. CSV holds text: there, classes and abstentions are text.

    Returns
    -------
    Annotations, or Questions (question → Annotations) where there is a column `question`.

    >>> import pyarrow as pa
    >>> read(pa.table({"task": [7, 7, 8], "worker": ["ann", "bob", "ann"], "label": ["cat", "dog", "cat"]}))
    Annotations: 3 annotations of 2 items by 2 annotators, 2 classes (cat, dog), 1.5 per item
    """
    columns = Columns(item, annotator, label, question, weight, proba)
    if not isinstance(source, str | PathLike):
        if not hub.is_dataset(source):
            return _build(source, columns, classes, abstain)
        frame, names = hub.read(source, columns)
        return _build(frame, columns, names if classes is None else classes, abstain)
    path = Path(source)
    found = FORMATS[format] if format else detect(path)
    if found.export:
        given = [role for role in ("label", "question", "weight", "proba") if getattr(columns, role) is not None]
        if given:
            raise BadParameter(f"{given[0]}= has no meaning for {found.name}, where it is fixed; leave it out.")
    with about(path):
        frame = found.read(path, columns)
        if found.export:
            columns, abstain = Columns(), [*as_list(abstain), None]
        return _build(frame, columns, classes, abstain)


def read_frame(path: str | Path) -> pa.Table:
    """Read all columns of a file, of any format that `read` knows; CSV as text, the others with their types."""
    path = Path(path)
    with about(path):
        return detect(path).read(path, None)


def read_gold(path: str | Path, table: Annotations, item: str | None = None, label: str | None = None) -> IntArray:
    """(I,) class codes of known labels, aligned with `table.items`; −1 where the file has no label for an item.

    The columns are found by name (`item` or its synonyms; `gold`, `label`, `truth`) where left out. Text, as CSV holds
    it, is taken for integers where the table's names are integers.
    """
    columns = gold_columns(path, item, label)
    with about(Path(path)):
        return gold_codes(table, *columns)


def gold_columns(path: str | Path, item: str | None = None, label: str | None = None) -> tuple[Any, Any]:
    """Read the columns of items and labels of a file of known labels, as Arrow arrays."""
    frame = read_frame(path)
    with about(Path(path)):
        item = item or guess_column("item", frame.column_names)
        label = label or guess_column("gold", frame.column_names)
        for role, column in (("item", item), ("label", label)):
            if column not in frame.column_names:
                raise no_column(role, frame.column_names, column)
        return frame[item], frame[label]


def gold_codes(table: Annotations, item: Any, label: Any) -> IntArray:
    """(I,) class codes of known labels, from the columns that `gold_columns` returns; −1 where none is known."""
    return table.gold_codes(_in_kind_of(item, table.items), _in_kind_of(label, table.classes))


def write_frame(
    columns: Any,
    path: str | Path,
    *,
    format: str | None = None,  # noqa: A002
    mode: int | None = None,
) -> None:
    """Write columns (name → array), an Arrow table or a frame as CSV, Parquet or JSON lines.

    The format is taken from the suffix (.csv, .parquet, .jsonl; text also with .gz) where left out. The file appears
    whole or not at all, and floats read back as the same bits. `mode`: the permissions of the file.
    """
    path = Path(path)
    suffix = suffix_of(path)
    writers = [one for one in FORMATS.values() if one.write]
    writer = next((one for one in writers if (one.name == format if format else suffix in one.suffixes)), None)
    if writer is None or writer.write is None:
        there = ", ".join(one.name for one in writers)
        raise BadParameter(f"cannot write {path} as {format or suffix or 'a file without suffix'}; there are {there}.")
    packed = path.suffix.lower() == ".gz"
    try:
        table = _to_table(columns)
        with (
            atomic(path, mode) as file,
            gzip.GzipFile("", "wb", 6, file, mtime=0) if packed else nullcontext(file) as target,
        ):
            writer.write(table, target)
    except pa.ArrowException as error:
        raise BadParameter(f"cannot write {path} as {writer.name}: {error}.") from error


def write_json(value: Any, path: str | Path) -> None:
    """Write a value as indented JSON, whole or not at all; NaN and infinity become null."""
    with atomic(path) as file:
        file.write((dumps(value, indent=2) + "\n").encode())


def _build(frame: Any, columns: Columns, classes: Any, abstain: Any) -> Annotations | Questions:
    found = columns.take(frame)
    if "question" in found and "proba" in found:
        raise BadParameter("proba= is for a single question; drop the column of questions, or read each by itself.")
    if len(found["item"]) == 0:
        raise DataError("there is no row; a table needs at least one annotation.")
    kind = Questions if "question" in found else Annotations
    return kind.from_arrays(**found, classes=classes, abstain=abstain)


def _to_table(columns: Any) -> pa.Table:
    if isinstance(columns, Mapping):
        return pa.table(columns)
    return columns if isinstance(columns, pa.Table) else pa.table(to_arrow(columns, column_names(columns)))


def _in_kind_of(column: Any, like: Names) -> Any:
    """Turn text into integers where `like` holds integers and all of the text spells integers."""
    if like.dtype.kind in "iu" and pa.types.is_string(column.type):
        with suppress(pa.ArrowInvalid):
            return column.cast(pa.int64())
    return column
