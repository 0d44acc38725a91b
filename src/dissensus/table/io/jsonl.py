"""Read and write JSON lines and JSON arrays; helpers for the readers of JSON exports.

A file with one object over several lines is read as one record, because some exports hold all records in such an
object.
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

from dissensus.table import exceptions as errors
from dissensus.table.find_columns import ColumnNames, columns_to_read
from dissensus.table.io.files import BinaryFile, open_bytes, report_read_errors
from dissensus.table.io.readers import JSON_SUFFIXES, Reader, readers
from dissensus.table.names import to_column

Record = dict[str, Any]
EXPECTED_OBJECT = "an object: {…}"
N_RECORDS_FOR_COLUMNS = 1000  # number of records whose fields become columns


def read(path: Path, columns: ColumnNames | None) -> pa.Table:
    """Return the required fields of all records; a field that a record does not have is a missing value."""
    rows = read_records(path)
    first = list(islice(rows, N_RECORDS_FOR_COLUMNS))
    required = columns_to_read(columns, list(dict.fromkeys(key for record in first for key in record)))
    values: dict[str, Any] = {name: [] for name in required}
    for record in chain(first, rows):
        for name in required:
            values[name].append(record.get(name))
    for name, column in values.items():
        try:
            values[name] = pa.array(column)
        except (pa.ArrowException, OverflowError, UnicodeEncodeError):
            values[name] = to_column(column, name)  # This raises an error that names the mixed types and their rows.
    return pa.table(values)


def read_records(path: Path) -> Iterator[Record]:
    """Yield the records of a file; raise with the line number if the file contains anything else."""
    with report_read_errors(path), open_bytes(path) as file:
        yield from parse_records(file, str(path))


def parse_records(file: BinaryFile, where: str) -> Iterator[Record]:
    """Yield the records of an open file; `where` names the file in errors."""
    first = True
    for number, line in enumerate(file, start=1):
        line = line.removeprefix(b"\xef\xbb\xbf") if number == 1 else line  # The byte order mark is removed.
        if not line.strip():
            continue
        if first and line.lstrip()[:1] == b"[":  # The whole file is one array.
            for position, record in enumerate(_parse_json(line + file.read(), where, number)):
                yield _check_record(record, f"{where}: record {position:,} (from 0)")
            return
        if first and line.lstrip()[:1] == b"{" and _spans_several_lines(line):
            yield _check_record(_parse_json(line + file.read(), where, number), where)
            return
        first = False
        yield _check_record(_parse_json(line.rstrip(), where, number), f"{where}: line {number:,}")


def _spans_several_lines(line: bytes) -> bool:
    """Return True if a JSON object continues after this line."""
    try:
        json.loads(line)
    except json.JSONDecodeError as error:
        return not error.doc[error.pos :].strip()
    except (ValueError, RecursionError):
        pass
    return False


def _parse_json(text: bytes, where: str, number: int) -> Any:
    """Return the parsed JSON; `number` is the line at which it begins."""
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        line = number + error.lineno - 1
        raise errors.InvalidJson(location=where, line=line, reason=f"{error.msg}, column {error.colno:,}") from error
    except RecursionError as error:
        raise errors.InvalidJson(location=where, line=number, reason="nested too deeply") from error
    except UnicodeDecodeError:
        raise
    except ValueError as error:  # Python limits the number of digits.
        reason = str(error).partition(";")[0].partition(" for ")[0]
        raise errors.InvalidJson(location=where, line=number, reason=f"a number is too long: {reason}") from error


def _check_record(record: Any, where: str) -> Record:
    if not isinstance(record, dict):
        raise errors.NotARecord(location=where, value=str(record)[:40])
    return record


def write(table: pa.Table, file: BinaryFile) -> None:
    """Write one object per row; NaN and infinity become null, because JSON does not have them."""
    for batch in table.to_batches():
        for record in batch.to_pylist():
            file.write((dumps(record) + "\n").encode())


def dumps(value: Any, indent: int | None = None) -> str:
    """Return a value as JSON without ASCII escapes and with exact floats; NaN and infinity become null."""
    return json.dumps(_to_json_value(value), indent=indent, ensure_ascii=False, allow_nan=False)


def _to_json_value(value: Any) -> Any:
    if is_dataclass(value):
        value = {field.name: getattr(value, field.name) for field in fields(value)}
    if isinstance(value, dict):
        return {str(key): _to_json_value(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_to_json_value(entry) for entry in value]
    if hasattr(value, "tolist"):  # NumPy
        return _to_json_value(value.tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def require_field(record: dict[str, Any], chosen_field: Any, usual: tuple[str, ...], role: str, where: str) -> Any:
    """Return the value of the field chosen by the caller, or of the first usual field; raise if there is none."""
    keys = usual if chosen_field is None else (chosen_field,)
    if (value := get_first_present(record, keys)) is not None:
        return value
    raise errors.MissingField(location=where, names=tuple(keys), role=role)


def get_first_present(record: dict[str, Any], keys: Iterable[str]) -> Any:
    """Return the value of the first of these fields that exists, or None."""
    return next((record[key] for key in keys if record.get(key) is not None), None)


def check_unique(seen: set[Any], name: Any, where: str, what: str) -> None:
    """Add a name to the set `seen`; raise if it is already in it."""
    if name in seen:
        raise errors.DuplicateRecord(location=where, action=what)
    seen.add(name)


def get_entry(record: Any, key: str, kind: type[Any], where: str) -> Any:
    """Return an entry of a record, or an empty value if it is missing or null; raise if it has another type."""
    value = record.get(key)
    if value is None:
        return kind()
    if not isinstance(value, kind):
        words: dict[Any, str] = {dict: EXPECTED_OBJECT, list: "a list: […]", str: "text"}
        raise errors.UnexpectedValue(location=where, field=key, value=value, expected=words[kind])
    return value


def get_objects(record: Any, key: str, where: str) -> list[dict[str, Any]]:
    """Return an entry that is a list of objects, or an empty list if it is missing or null."""
    entries = get_entry(record, key, list, where)
    for entry in entries:
        if not isinstance(entry, dict):
            raise errors.UnexpectedValue(location=where, field=key, value=entry, expected=EXPECTED_OBJECT)
    return list(entries)


def parse_span(record: Any, keys: tuple[str, str, str], where: str) -> tuple[int, int, str]:
    """Return the start, end and label of a span; raise if one of them is missing or invalid."""
    start, end, label = (record.get(key) for key in keys)
    if not (isinstance(start, int) and isinstance(end, int) and start >= 0 and isinstance(label, str | int)):
        expected = f"whole numbers {keys[0]}, {keys[1]}, a label"
        raise errors.UnexpectedValue(location=where, field="span", value=record, expected=expected)
    return start, end, str(label)


# This reader is tried after the readers of exports, which are JSON too.
readers.register("jsonl", summary="one record a line", place=80)(
    Reader(read, JSON_SUFFIXES, write, matches_record=lambda record: True)
)
