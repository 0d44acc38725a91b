"""Read and write CSV and TSV files.

All cells are read as text, so that 007 stays 007. Only empty cells are missing values, because a class may be named NA,
None or null.
"""

from __future__ import annotations

import csv
import re
from functools import partial
from itertools import chain, dropwhile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from dissensus.exceptions import UnreadableFile
from dissensus.table import exceptions as errors
from dissensus.table.find_columns import ColumnNames, columns_to_read
from dissensus.table.io.files import BinaryFile, open_bytes, report_read_errors
from dissensus.table.io.readers import Reader, readers
from dissensus.table.names import is_text_type

_QUOTED_CHARACTERS = r'[",\r\n]'  # Cells with one of these characters are quoted.
_FIRST_CHUNK, _LAST_CHUNK = 2**22, 2**31 - 1  # bytes; a row must fit into a chunk, and Arrow stores its size in 32 bits
_QUOTED_REST = re.compile(rb'(?:[^"]|"")*"(?!")')  # the rest of a quoted cell, up to the closing quote


def read(path: Path, columns: ColumnNames | None, delimiters: str = ",;\t") -> pa.Table:
    """Return the required columns as text; the delimiter is the most frequent one in the header."""
    with report_read_errors(path):
        delimiter, available = _read_header(path, delimiters)
        required = columns_to_read(columns, available)
        try:
            table = _parse_file(path, delimiter, required)
        except pa.ArrowInvalid as error:
            raise _explain_error(path, delimiter, required, error) from error
        _check_quotes_closed(path, delimiter)
        return table


def write(table: pa.Table, file: BinaryFile) -> None:
    """Write a table as CSV with a header and exact floats; text is quoted only if a cell requires it."""
    import pyarrow.compute as pc
    import pyarrow.csv as pacsv

    header = [
        '"' + name.replace('"', '""') + '"' if re.search(_QUOTED_CHARACTERS, name) else name
        for name in table.column_names
    ]
    file.write((",".join(header) + "\n").encode())
    plain = [c.cast(c.type.value_type) if pa.types.is_dictionary(c.type) else c for c in table.columns]
    table = pa.table(plain, names=table.column_names)
    text = [column for column in table.columns if is_text_type(column.type)]
    quote = any(
        pc.any(pc.match_substring_regex(column, _QUOTED_CHARACTERS)).as_py() for column in text
    )  # Either all text columns are quoted or none.
    options = pacsv.WriteOptions(include_header=False, quoting_style="needed" if quote else "none")
    pacsv.write_csv(table, file, options)


def _read_header(path: Path, delimiters: str) -> tuple[str, list[str]]:
    with open_bytes(path) as file:
        lines = (line.decode("utf-8-sig") for line in dropwhile(bytes.isspace, file))
        first = next(lines, None)
        if first is None:
            raise errors.EmptyFile(location=str(path), needs="a header and rows")
        delimiter = max(delimiters, key=first.count)
        try:
            return delimiter, next(csv.reader(chain([first], lines), delimiter=delimiter))
        except csv.Error as error:
            raise errors.NotAHeader(path=path, reason=str(error)) from error


def _parse_file(path: Path, delimiter: str, required: list[str], use_threads: bool = True) -> Any:
    import pyarrow.csv as pacsv

    chunk = _FIRST_CHUNK
    while True:
        with open_bytes(path, for_arrow=True) as file:
            try:
                return pacsv.read_csv(
                    file,
                    pacsv.ReadOptions(use_threads=use_threads, block_size=chunk),
                    pacsv.ParseOptions(delimiter=delimiter, newlines_in_values=True),
                    pacsv.ConvertOptions(
                        include_columns=required,
                        column_types=dict.fromkeys(required, pa.string()),
                        null_values=[""],
                        strings_can_be_null=True,
                    ),
                )
            except pa.ArrowInvalid as error:
                if "straddling" not in str(error) or chunk == _LAST_CHUNK:
                    raise
        chunk = min(16 * chunk, _LAST_CHUNK)  # A row was longer than the chunk, so the next one is larger.


def _explain_error(path: Path, delimiter: str, required: list[str], error: pa.ArrowInvalid) -> UnreadableFile:
    """Convert an error of Arrow to ours; read the file again in one thread, because only then Arrow names the row."""
    try:
        _parse_file(path, delimiter, required, use_threads=False)
    except pa.ArrowInvalid as error_with_row:
        error = error_with_row
    reason = str(error)
    row_match = re.search(r"Row #(\d+)", reason)
    where = f"row {int(row_match[1]):,} (the header is row 1)" if row_match else "a row"
    if "UTF8" in reason:
        return errors.NotUtf8(path=path, position=f" in {where}")
    if fields := re.search(r"Expected (\d+) columns, got (\d+):(.*)", reason, re.DOTALL):
        return errors.WrongNumberOfFields(
            path=path, location=where, n=int(fields[2]), n_first=int(fields[1]), delimiter=delimiter,
            open_quote="\n" in fields[3].strip(),
        )  # fmt: skip
    if "Empty CSV" in reason:  # The header has no line end.
        return errors.EmptyFile(location=str(path), needs="at least one row")
    if "straddling" in reason:
        return errors.RowTooLong(path=path)
    return errors.DamagedFile(path=path, reason=reason[:200].rstrip("."))


def _check_quotes_closed(path: Path, delimiter: str) -> None:
    """Raise if a quote is never closed, because Arrow would read the following rows as one cell.

    All quotes are closed if their number is even and each quote opens a cell, closes a cell or is doubled. Otherwise,
    each row is inspected.
    """
    openers = np.frombuffer((delimiter + '\r\n"').encode(), np.uint8)  # bytes that precede an opening quote
    n_quotes, plain, last = 0, True, ord("\n")
    with open_bytes(path) as file:
        while chunk := file.read(_FIRST_CHUNK):
            if b'"' in chunk:
                cells = np.frombuffer(chunk, np.uint8)
                quotes = np.flatnonzero(cells == ord('"'))
                left = np.where(quotes > 0, cells[quotes - 1], last)
                right = np.append(cells, ord("\n"))[quotes + 1]  # The end of a chunk is treated like a line end.
                opens = (np.arange(quotes.size) + n_quotes) % 2 == 0
                plain = plain and bool(np.isin(np.where(opens, left, right), openers).all())
                n_quotes += quotes.size
            last = chunk[-1]
    if n_quotes and not (plain and n_quotes % 2 == 0):
        _check_each_row(path, delimiter.encode())


def _check_each_row(path: Path, delimiter: bytes) -> None:
    """Raise if a row of several lines ends inside a quoted cell, or has text after a closing quote."""
    ends = (b"", delimiter, b"\r", b"\n")
    opened = 0  # first line of the row with an open quote; 0 outside of quoted cells
    with open_bytes(path) as file:
        for number, line in enumerate(file, start=1):
            line, at = line.removeprefix(b"\xef\xbb\xbf") if number == 1 else line, 0
            first = opened or number
            while opened or at < len(line):
                if opened or line[at : at + 1] == b'"':
                    closing = _QUOTED_REST.match(line, at if opened else at + 1)
                    if closing is None:  # The cell continues on the next line.
                        opened = first
                        break
                    opened, at = 0, closing.end()
                    if line[at : at + 1] not in ends:
                        if number > first:
                            raise errors.UnclosedQuote(path=path, line=first)
                        break
                else:
                    at = line.find(delimiter, at) % (
                        len(line) + 1
                    )  # Without a delimiter, find returns −1, and the cell ends with the line.
                at += 1
    if opened and opened < number:
        raise errors.UnclosedQuote(path=path, line=opened)


readers.register("csv", summary="text with commas, semicolons or tabs", place=10)(Reader(read, (".csv", ".txt"), write))
readers.register("tsv", summary="text with tabs", place=20)(Reader(partial(read, delimiters="\t"), (".tsv", ".tab")))
