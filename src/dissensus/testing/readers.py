"""Conformance suite for readers, which reads valid and damaged files of their format."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from dissensus.exceptions import DataError, DissensusWarning
from dissensus.table.annotations import Annotations
from dissensus.table.find_columns import ColumnNames
from dissensus.table.io import read, read_frame, write_frame
from dissensus.table.io.readers import detect_format, readers


def check_reader(name: str, path: str | Path) -> None:
    r"""Check a reader with a small file of its format; raise AssertionError with a description of the fault.

    >>> with TemporaryDirectory() as folder:
    ...     path = Path(folder) / "labels.csv"
    ...     _ = path.write_text("item,annotator,label\na,ann,x\na,bob,y\nb,ann,x\n")
    ...     check_reader("csv", path)
    """
    path, entry = Path(path), readers.entry(name)
    reader = entry.value
    assert entry.summary, f"{name}: register it with a summary"
    assert reader.suffixes or reader.matches_record or reader.first_bytes, f"{name}: nothing recognises its files"
    assert detect_format(path) == name, f"{path.name} is taken for {detect_format(path)}, not for {name}"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DissensusWarning)
        table = read(path)
        _check_report(name, table)
        assert _list_rows(read(path)) == _list_rows(table), f"{name}: reading the file again gives other rows"
        frame = read_frame(path)
        assert "item" in frame.column_names or reader.collect is None, f"{name}: its items have no column 'item'"
        if reader.collect is None:
            _check_columns(name, path, frame)
        if reader.write is not None:
            _check_written(name, path.suffix, frame)
        _check_damaged(name, path)


def _list_rows(table: Any) -> list[Any]:
    tables = table if isinstance(table, dict) else {"": table}
    return [(question, one.to_arrow().to_pylist()) for question, one in tables.items()]


def _check_report(name: str, table: Any) -> None:
    """Check that the import report accounts for every row."""
    tables: list[Annotations] = list(table.values()) if isinstance(table, dict) else [table]
    for one in tables:
        assert one.import_report is not None, f"{name}: the table has no import report"
        assert one.import_report.format.endswith(name), (
            f"{name}: the report names the format {one.import_report.format}"
        )
        assert len(one) > 0, f"{name}: the table has no rows"
    source = tables[0].import_report
    if source is not None and tables[0].kind != "spans":  # a span is several rows
        n = sum(map(len, tables))
        assert n == source.n_used, (
            f"{name}: the report counts {source.n_used} of {source.n_rows} rows, the table has {n}"
        )


def _check_columns(name: str, path: Path, frame: Any) -> None:
    """Check that a reader can read only the named columns, and returns the same values as for the whole file."""
    item, annotator, label = ColumnNames().resolve(frame.column_names).values()
    content = readers[name].read(path, ColumnNames(item, annotator, label))
    part = content[0] if isinstance(content, tuple) else content
    assert {item, annotator, label} <= set(part.column_names), f"{name}: a column that was asked for is missing"
    for column in part.column_names:
        assert part[column].to_pylist() == frame[column].to_pylist(), f"{name}: column {column!r} read alone differs"
    try:
        readers[name].read(path, ColumnNames(annotator="no such column"))
    except DataError:
        return
    raise AssertionError(f"{name}: a missing column is not an error; call columns_to_read")


def _check_written(name: str, suffix: str, frame: Any) -> None:
    with TemporaryDirectory() as folder:
        path = Path(folder) / f"written{suffix}"
        write_frame(frame, path, format=name)
        again = read_frame(path)
    assert again.to_pylist() == frame.to_pylist(), f"{name}: a table that is written reads back differently"


def _remove_each_entry(whole: bytes) -> list[bytes]:
    """Return copies of a JSON file, each without one entry of its last record; for other formats, return none."""
    try:
        records = json.loads(whole)
    except ValueError:
        return []
    last = records[-1] if isinstance(records, list) and records else records
    if not isinstance(last, dict):
        return []
    others = records[:-1] if isinstance(records, list) else []
    return [
        json.dumps([*others, {name: value for name, value in last.items() if name != missing}]).encode()
        for missing in last
    ]


def _check_damaged(name: str, path: Path) -> None:
    """Check that every damaged file raises one DataError that names the file, or is read as a table."""
    whole = path.read_bytes()
    damaged = [whole[:size] for size in np.linspace(0, len(whole) - 1, 10).astype(int).tolist()]
    with TemporaryDirectory() as folder:
        copy = Path(folder) / path.name
        for content in [*damaged, *_remove_each_entry(whole)]:
            copy.write_bytes(content)
            try:
                read(copy, format=name)
            except DataError as error:
                message = str(error)
                if path.name not in message:
                    raise AssertionError(f"{name}: the error of a damaged file does not name it: {message}") from error
