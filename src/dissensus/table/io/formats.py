"""The formats of files: how each is known, read and written.

A format is one file in this folder, and on no list: `FORMATS` imports all files when it is first asked. See
docs/contributing/reader.md.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from dissensus.common.registry import Registry, guarded
from dissensus.exceptions import UnreadableFile
from dissensus.table.find_columns import Columns
from dissensus.table.io.files import PACKED_SUFFIXES, BinaryFile, is_zip, members, open_bytes, reading

JSON_SUFFIXES = (".jsonl", ".ndjson", ".json")
NOTE = b"dissensus: note"  # in the metadata of what a format reads: a sentence for the account of it


@dataclass(frozen=True)
class Format:
    """One format. That of an annotation tool has `collect`, which gives its answers; its `read` gives its items."""

    name: str
    suffixes: tuple[str, ...]
    read: Callable[[Path, Columns | None], pa.Table]
    write: Callable[[pa.Table, BinaryFile], None] | None = None
    first_bytes: bytes = b""  # how such a file begins, where the suffix says nothing
    claims: Callable[[dict[str, Any]], bool] | None = None  # JSON only: True where a file's first record is of it
    collect: Callable[[Sequence[Path], Columns, str | None, str | None], Any] | None = None  # of one file, or several
    summary: str = ""
    place: int = 50  # in lists; of several formats that claim a record, the first reads it


FORMATS: Registry[Format] = Registry("format", "", "dissensus.table.io", "dissensus.readers")


def add(one: Format) -> None:
    """Enter a format."""
    FORMATS.register(one.name, summary=one.summary, place=one.place)(one)


def detect(path: Path) -> Format:
    """Find the format of a file by its suffix, else by how it begins; JSON always by its first record."""
    suffix = unpacked_suffix(path)
    if suffix in JSON_SUFFIXES:
        return _json_format(path)
    known = next((one for one in FORMATS.values() if suffix in one.suffixes), None)
    return known or _by_content(path)


def suffix_of(path: Path) -> str:
    """The suffix in lower case, without .gz."""
    return Path(path.name.lower().removesuffix(".gz")).suffix


def unpacked_suffix(path: Path) -> str:
    """The suffix in lower case, without that of a packer; of a zip of one file, that file's."""
    with reading(path):
        if is_zip(path) and len(names := members(path)) == 1:
            return Path(names[0].lower()).suffix
    suffix = path.suffix.lower()
    return Path(path.stem.lower()).suffix if suffix in PACKED_SUFFIXES else suffix


def _by_content(path: Path) -> Format:
    with reading(path):
        if is_zip(path) and len(names := members(path)) != 1:
            return _by_members(path, names)
        with open_bytes(path) as file:
            start = file.read(4096)
    if start.lstrip()[:1] in (b"{", b"["):
        return _json_format(path)
    for one in FORMATS.values():
        if one.first_bytes and start.startswith(one.first_bytes):
            return one
    if b"\0" in start:
        raise UnreadableFile(f"{path} is of no known format; say which: format=, one of {', '.join(FORMATS)}.")
    return FORMATS["csv"]


def _by_members(path: Path, names: list[str]) -> Format:
    """The format of a zip of several files: a spreadsheet, a log of Inspect, or doccano's files per annotator."""
    if "header.json" in names or any(name.startswith("_journal/") for name in names):
        return FORMATS["inspect"]
    if "xl/workbook.xml" in names or {"mimetype", "content.xml"} <= set(names):
        return FORMATS["spreadsheet"]
    if any(Path(name.lower()).suffix in JSON_SUFFIXES for name in names):
        return FORMATS["doccano"]
    raise UnreadableFile(
        f"{path} is a zip of {len(names):,} files and no table; unpack it, and name one of them or their folder."
    )


def _json_format(path: Path) -> Format:
    from dissensus.table.io.jsonl import records  # which enters its format here

    first = next(records(path), None)
    if first is None:
        raise UnreadableFile(f"{path} is empty; a table needs at least one record.")
    if first and all(isinstance(value, dict) and "annotations" not in value for value in first.values()):
        raise UnreadableFile(
            f"{path} is one object of objects without annotations, which is not read yet; write a table with a row per "
            "label: item, annotator and label; if it describes the annotators, give it as a table with a column "
            "annotator."
        )
    for _, entry in FORMATS.entries():
        with guarded(entry):
            if entry.value.claims and entry.value.claims(first):
                return entry.value
    return FORMATS["jsonl"]
