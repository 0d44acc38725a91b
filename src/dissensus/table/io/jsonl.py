"""JSON lines, or one JSON array of records, plain or packed; the exports of annotation tools are such records too.

A file that is one object over several lines is one record: some exports hold all their records in such an object.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator
from dataclasses import fields, is_dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Any

import pyarrow as pa

from dissensus.exceptions import DataError, UnreadableFile
from dissensus.table.find_columns import Columns, needed
from dissensus.table.io.files import BinaryFile, open_bytes, reading
from dissensus.table.io.formats import JSON_SUFFIXES, Format, add
from dissensus.table.names import shown, to_column

Record = dict[str, Any]
N_RECORDS_FOR_COLUMNS = 1000  # the first ones, which say which columns there are


def read(path: Path, columns: Columns | None) -> pa.Table:
    """Read the fields needed of every record; a field that a record lacks is missing there."""
    rows = records(path)
    first = list(islice(rows, N_RECORDS_FOR_COLUMNS))
    wanted = needed(columns, list(dict.fromkeys(key for record in first for key in record)))
    values: dict[str, Any] = {name: [] for name in wanted}
    for record in chain(first, rows):
        for name in wanted:
            values[name].append(record.get(name))
    for name, column in values.items():
        try:
            values[name] = pa.array(column)
        except (pa.ArrowException, OverflowError, UnicodeEncodeError):
            values[name] = to_column(column, name)  # says which kinds are mixed, and where
    return pa.table(values)


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
        if first and line.lstrip()[:1] == b"{" and _goes_on(line):
            yield _checked(_loads(line + file.read(), where, number), where)
            return
        first = False
        yield _checked(_loads(line.rstrip(), where, number), f"{where}: line {number:,}")


def _goes_on(line: bytes) -> bool:
    """True where an object goes on after its first line."""
    try:
        json.loads(line)
    except json.JSONDecodeError as error:
        return not error.doc[error.pos :].strip()
    except (ValueError, RecursionError):
        pass
    return False


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


def field(record: dict[str, Any], named: Any, usual: tuple[str, ...], role: str, where: str) -> Any:
    """Read the field that the caller named for a role, or the first usual one that is there; none raises."""
    keys = usual if named is None else (named,)
    if (value := first_of(record, keys)) is not None:
        return value
    raise DataError(f"{where} has no {' nor '.join(map(repr, keys))} for {role}; name the field: {role}=<field>.")


def first_of(record: dict[str, Any], keys: Iterable[str]) -> Any:
    """The first of these fields that a record has; None where it has none."""
    return next((record[key] for key in keys if record.get(key) is not None), None)


def check_once(seen: set[Any], name: Any, where: str, what: str) -> None:
    """Add a name to those seen; a DataError where it is there already."""
    if name in seen:
        raise DataError(f"{where} is there twice; {what} again.")
    seen.add(name)


def part(record: Any, key: str, kind: type[Any], where: str) -> Any:
    """The entry of a record, empty where it is missing or null; a DataError where it is of another kind."""
    value = record.get(key)
    if value is None:
        return kind()
    if not isinstance(value, kind):
        words: dict[Any, str] = {dict: "an object: {…}", list: "a list: […]", str: "text"}
        raise DataError(f"{where} has {shown(value)} as {key!r}; expected {words[kind]}.")
    return value


def objects(record: Any, key: str, where: str) -> list[dict[str, Any]]:
    """The entry of a record that is a list of objects; empty where it is missing or null."""
    entries = part(record, key, list, where)
    for entry in entries:
        if not isinstance(entry, dict):
            raise DataError(f"{where} has {shown(entry)} in {key!r}; expected an object: {{…}}.")
    return list(entries)


def span_of(record: Any, keys: tuple[str, str, str], where: str) -> tuple[int, int, str]:
    """The start, end and label of a span; a DataError where one of them is missing."""
    start, end, label = (record.get(key) for key in keys)
    if not (isinstance(start, int) and isinstance(end, int) and start >= 0 and isinstance(label, str | int)):
        raise DataError(f"{where} has the span {shown(record)}; expected whole numbers {keys[0]}, {keys[1]}, a label.")
    return start, end, str(label)


# after the exports, whose records it would take too
add(Format("jsonl", JSON_SUFFIXES, read, write, claims=lambda record: True, summary="one record a line", place=80))
