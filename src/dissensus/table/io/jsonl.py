"""JSON lines, or one JSON array of records, plain or packed; the exports of annotation tools are such records too.

A file that is one object over several lines is one record: some exports hold all their records in such an object.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Any

import pyarrow as pa

from dissensus.exceptions import UnreadableFile
from dissensus.table.find_columns import Columns, needed
from dissensus.table.io.files import BinaryFile, open_bytes, reading
from dissensus.table.io.formats import JSON_SUFFIXES, Format, add
from dissensus.table.names import to_column

Record = dict[str, Any]
N_RECORDS_FOR_COLUMNS = 1000  # the first ones, which say which columns there are


def read(path: Path, columns: Columns | None) -> pa.Table:
    """Read the fields needed of every record; a field that a record lacks is missing there."""
    rows = records(path)
    first = list(islice(rows, N_RECORDS_FOR_COLUMNS))
    wanted = needed(columns, list(dict.fromkeys(key for record in first for key in record)))
    values: dict[str, list[Any]] = {name: [] for name in wanted}
    for record in chain(first, rows):
        for name in wanted:
            values[name].append(record.get(name))
    return pa.table({name: _column(column, name) for name, column in values.items()})


def records(path: Path) -> Iterator[Record]:
    """Yield the records of a file; anything else in it raises, with its line."""
    with reading(path), open_bytes(path) as file:
        yield from parse(file, str(path))


def parse(file: BinaryFile, where: str) -> Iterator[Record]:
    """Yield the records of an open file, which errors call `where`."""
    first = True
    for number, line in enumerate(file, start=1):
        line = line.removeprefix(b"\xef\xbb\xbf") if number == 1 else line  # a byte order mark
        if not line.strip():
            continue
        if first and line.lstrip()[:1] == b"[":  # the whole file is one array
            for position, record in enumerate(_loads(line + file.read(), where, number)):
                yield _checked(record, f"{where}: record {position:,} (from 0)")
            return
        if (first and line.strip() == b"{") or (first and line.lstrip()[:1] == b"{" and not _is_whole(line)):
            yield _checked(_loads(line + file.read(), where, number), where)
            return
        first = False
        yield _checked(_loads(line.rstrip(), where, number), f"{where}: line {number:,}")


def _is_whole(line: bytes) -> bool:
    """False where an object goes on after its first line."""
    try:
        json.loads(line)
    except json.JSONDecodeError as error:
        return bool(error.doc[error.pos :].strip())
    except (ValueError, RecursionError):
        pass
    return True


def _loads(text: bytes, where: str, number: int) -> Any:
    """Parse JSON that begins in line `number`."""
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        at = f"line {number + error.lineno - 1:,} is not JSON ({error.msg}, column {error.colno:,})"
        raise UnreadableFile(f"{where}: {at}; mend that line.") from error
    except RecursionError as error:
        raise UnreadableFile(f"{where}: line {number:,} is nested too deeply to be a record.") from error
    except UnicodeDecodeError:
        raise
    except ValueError as error:  # a number of more digits than Python reads
        said = str(error).partition(";")[0].partition(" for ")[0]
        raise UnreadableFile(
            f"{where}: a number from line {number:,} on is too long ({said}); make it text."
        ) from error


def _checked(record: Any, where: str) -> Record:
    if not isinstance(record, dict):
        raise UnreadableFile(f"{where} holds {str(record)[:40]!r}; expected an object: {{…}}.")
    return record


def _column(values: list[Any], name: str) -> Any:
    try:
        return pa.array(values)
    except (pa.ArrowException, OverflowError, UnicodeEncodeError):
        return to_column(values, name)  # says which kinds are mixed, and where


def write(table: pa.Table, file: BinaryFile) -> None:
    """Write one object per row; NaN and infinity, for which JSON has no word, are null."""
    for batch in table.to_batches():
        for record in batch.to_pylist():
            file.write((dumps(record) + "\n").encode())


def dumps(value: Any, indent: int | None = None) -> str:
    """Write `value` as JSON in plain UTF-8; NaN and infinity are null, floats are written in full."""
    return json.dumps(_plain(value), indent=indent, ensure_ascii=False, allow_nan=False)


def _plain(value: Any) -> Any:
    if is_dataclass(value):
        value = {field.name: getattr(value, field.name) for field in fields(value)}
    if isinstance(value, dict):
        return {str(key): _plain(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(entry) for entry in value]
    if hasattr(value, "tolist"):  # NumPy
        return _plain(value.tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


# after the exports, whose records it would take too
add(Format("jsonl", JSON_SUFFIXES, read, write, claims=lambda record: True, summary="one record a line", place=80))
