"""The registry of readers, which recognise, read and write one file format each.

A reader is one file in this folder, or in another package, that registers a `Reader` in `readers`. See
docs/contributing/reader.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from dissensus.common.registry import Registry, skip_failing_plugin
from dissensus.table import exceptions as errors
from dissensus.table.find_columns import ColumnNames
from dissensus.table.io.files import (
    PACKED_SUFFIXES,
    BinaryFile,
    is_zip,
    list_zip_members,
    open_bytes,
    report_read_errors,
)
from dissensus.table.notes import Note

JSON_SUFFIXES = (".jsonl", ".ndjson", ".json")
MAX_BYTES_INSPECTED = 4096


@dataclass(frozen=True)
class Reader:
    """The functions that recognise, read and write one format.

    `read(path, columns)` returns the required columns, or all columns if `columns` is None, and may add a note for the
    import report. Only readers of annotation tools' exports have `collect`, which returns the answers; their `read`
    returns the items. `matches_record` checks the first record of a JSON file, and `matches_zip` checks the names of
    the files in a zip. `find_companions` returns which files of a folder a tool writes next to its results. Readers are
    tried in the order of their `place`; the first reader that recognises a file reads it.
    """

    read: Callable[[Path, ColumnNames | None], pa.Table | tuple[pa.Table, Note]]
    suffixes: tuple[str, ...] = ()
    write: Callable[[pa.Table, BinaryFile], None] | None = None
    first_bytes: bytes = b""  # identifies a file without a known suffix
    matches_record: Callable[[dict[str, Any]], bool] | None = None
    matches_zip: Callable[[Sequence[str]], bool] | None = None
    find_companions: Callable[[Sequence[str]], Iterable[str]] | None = None
    collect: Callable[[Sequence[Path], ColumnNames, str | None, str | None], Any] | None = None


readers: Registry[Reader] = Registry("format", "", "dissensus.table.io", "dissensus.readers")


def detect_format(path: Path) -> str:
    """Return the format of a file by its suffix or first bytes; for JSON, by its first record."""
    suffix = unpacked_suffix(path)
    if suffix in JSON_SUFFIXES:
        return _detect_json_format(path)
    return next((name for name, reader in readers.items() if suffix in reader.suffixes), "") or _detect_by_content(path)


def suffix_without_gz(path: Path) -> str:
    """Return the suffix in lower case, ignoring .gz."""
    return Path(path.name.lower().removesuffix(".gz")).suffix


def unpacked_suffix(path: Path) -> str:
    """Return the suffix in lower case without that of compression; for a zip of one file, the suffix of that file."""
    with report_read_errors(path):
        if is_zip(path) and len(names := list_zip_members(path)) == 1:
            return Path(names[0].lower()).suffix
    suffix = path.suffix.lower()
    return Path(path.stem.lower()).suffix if suffix in PACKED_SUFFIXES else suffix


def _detect_by_content(path: Path) -> str:
    with report_read_errors(path):
        if is_zip(path) and len(names := list_zip_members(path)) != 1:
            if found := _first_matching_format("matches_zip", names):
                return found
            raise errors.ZipOfSeveralFiles(path=path, names=tuple(names))
        with open_bytes(path) as file:
            start = file.read(MAX_BYTES_INSPECTED)
    if start.lstrip()[:1] in (b"{", b"["):
        return _detect_json_format(path)
    for name, reader in readers.items():
        if reader.first_bytes and start.startswith(reader.first_bytes):
            return name
    if b"\0" in start:
        raise errors.UnknownFormat(path=path, formats=", ".join(readers))
    return "csv"


def _detect_json_format(path: Path) -> str:
    from dissensus.table.io.jsonl import read_records  # imports this module

    record = next(read_records(path), None)
    if record is None:
        raise errors.EmptyFile(location=str(path), needs="at least one record")
    if record and all(isinstance(value, dict) and "annotations" not in value for value in record.values()):
        raise errors.JsonWithoutAnnotations(path=path)
    return _first_matching_format("matches_record", record)


def _first_matching_format(test: str, content: Any) -> str:
    """Return the first format whose reader recognises the content with the function `test`, or ""."""
    for name, entry in readers.entries():
        with skip_failing_plugin(entry):
            if (matches_record := getattr(entry.value, test)) and matches_record(content):
                return name
    return ""
