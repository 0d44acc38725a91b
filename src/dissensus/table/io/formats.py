"""The table of formats: how each is known, read and written. A new format is one file and one line here."""

from __future__ import annotations

import difflib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from dissensus.exceptions import UnknownName, UnreadableFile
from dissensus.table.io import arrow, delimited, doccano, jsonl, label_studio, parquet, prodigy
from dissensus.table.io.columns import Columns
from dissensus.table.io.files import BinaryFile, open_bytes, reading


@dataclass(frozen=True)
class Format:
    """One format. An export's `read` gives the columns item, annotator, label (question); a missing label is none."""

    name: str
    suffixes: tuple[str, ...]
    read: Callable[[Path, Columns | None], pa.Table]
    write: Callable[[pa.Table, BinaryFile], None] | None = None
    claims: Callable[[jsonl.Record], bool] | None = None  # JSON only: whether a file's first record is of this format
    export: bool = False


_JSON = (".jsonl", ".ndjson", ".json")
FORMATS: dict[str, Format] = {
    one.name: one
    for one in (
        Format("csv", (".csv", ".txt"), delimited.read, delimited.write),
        Format("tsv", (".tsv", ".tab"), delimited.read_tsv),
        Format("parquet", (".parquet", ".pq"), parquet.read, parquet.write),
        Format("arrow", (".arrow", ".feather", ".ipc"), arrow.read),
        Format("label-studio", _JSON, label_studio.read, claims=label_studio.claims, export=True),
        Format("prodigy", _JSON, prodigy.read, claims=prodigy.claims, export=True),
        Format("doccano", (*_JSON, ".zip"), doccano.read, claims=doccano.claims, export=True),
        Format("jsonl", _JSON, jsonl.read, jsonl.write, claims=lambda record: True),  # after those it is not
    )
}


def by_name(name: str) -> Format:
    """The format of that name; a wrong one is answered with the nearest right one."""
    if name not in FORMATS:
        near = difflib.get_close_matches(name, FORMATS, n=1)
        raise UnknownName(
            f"no format '{name}'; {f'did you mean {near[0]!r}? ' if near else ''}There are {', '.join(FORMATS)}."
        )
    return FORMATS[name]


def detect(path: Path) -> Format:
    """The format of a file, by its suffix, else by how it begins; JSON always by its first record."""
    suffix = suffix_of(path)
    if suffix in _JSON:
        return _json_format(path)
    known = next((one for one in FORMATS.values() if suffix in one.suffixes), None)
    return known or _by_content(path)


def suffix_of(path: Path) -> str:
    """The suffix in lower case, without .gz."""
    return Path(path.name.lower().removesuffix(".gz")).suffix


def _by_content(path: Path) -> Format:
    with reading(path), open_bytes(path) as file:
        start = file.read(4096)
    if start.startswith(b"PAR1"):
        return FORMATS["parquet"]
    if start.startswith(arrow.MAGIC):
        return FORMATS["arrow"]
    if start.lstrip()[:1] in (b"{", b"["):
        return _json_format(path)
    if b"\0" in start:
        raise UnreadableFile(f"{path} is of no known format; say which: format=, one of {', '.join(FORMATS)}.")
    return FORMATS["csv"]


def _json_format(path: Path) -> Format:
    first = next(jsonl.records(path), None)
    if first is None:
        raise UnreadableFile(f"{path} is empty; a table needs at least one record.")
    return next(one for one in FORMATS.values() if one.claims and one.claims(first))
