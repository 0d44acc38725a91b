"""CSV and TSV, plain or packed.

Everything is read as text, so that 007 stays 007; nothing is taken for missing but an empty field, so that a class may
be called NA, None or null.
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
from dissensus.table.find_columns import Columns, needed
from dissensus.table.io.files import BinaryFile, not_utf8, open_bytes, reading
from dissensus.table.io.formats import Format, add
from dissensus.table.names import is_text

_SPECIAL = r'[",\r\n]'  # a cell with one of these is quoted
_FIRST_BLOCK, _LAST_BLOCK = 2**22, 2**31 - 1  # bytes; a row must fit a block, which Arrow counts in 32 bits


def read(path: Path, columns: Columns | None, delimiters: str = ",;\t") -> pa.Table:
    """Read the columns needed, as text. The delimiter is the most frequent one in the header."""
    with reading(path):
        delimiter, there = _header(path, delimiters)
        wanted = needed(columns, there)
        try:
            table = _parse(path, delimiter, wanted)
        except pa.ArrowInvalid as error:
            raise _explained(path, delimiter, wanted, error) from error
        _check_quotes(path, delimiter)
        return table


def write(table: pa.Table, file: BinaryFile) -> None:
    """Write commas and a header; quote text only where some cell needs it; write floats in full."""
    import pyarrow.compute as pc
    import pyarrow.csv as pacsv

    header = ['"' + name.replace('"', '""') + '"' if re.search(_SPECIAL, name) else name for name in table.column_names]
    file.write((",".join(header) + "\n").encode())
    plain = [c.cast(c.type.value_type) if pa.types.is_dictionary(c.type) else c for c in table.columns]
    table = pa.table(plain, names=table.column_names)
    text = [column for column in table.columns if is_text(column.type)]
    quote = any(pc.any(pc.match_substring_regex(column, _SPECIAL)).as_py() for column in text)  # all text or none
    options = pacsv.WriteOptions(include_header=False, quoting_style="needed" if quote else "none")
    pacsv.write_csv(table, file, options)


def _header(path: Path, delimiters: str) -> tuple[str, list[str]]:
    with open_bytes(path) as file:
        lines = (line.decode("utf-8-sig") for line in dropwhile(bytes.isspace, file))
        first = next(lines, None)
        if first is None:
            raise UnreadableFile(f"{path} is empty; a table needs a header and rows.")
        delimiter = max(delimiters, key=first.count)
        try:
            return delimiter, next(csv.reader(chain([first], lines), delimiter=delimiter))
        except csv.Error as error:
            raise UnreadableFile(f"{path}: its first line is no header ({error}); is it a table of text?") from error


def _parse(path: Path, delimiter: str, wanted: list[str], use_threads: bool = True) -> Any:
    import pyarrow.csv as pacsv

    block = _FIRST_BLOCK
    while True:
        with open_bytes(path, for_arrow=True) as file:
            try:
                return pacsv.read_csv(
                    file,
                    pacsv.ReadOptions(use_threads=use_threads, block_size=block),
                    pacsv.ParseOptions(delimiter=delimiter, newlines_in_values=True),
                    pacsv.ConvertOptions(
                        include_columns=wanted,
                        column_types=dict.fromkeys(wanted, pa.string()),
                        null_values=[""],
                        strings_can_be_null=True,
                    ),
                )
            except pa.ArrowInvalid as error:
                if "straddling" not in str(error) or block == _LAST_BLOCK:
                    raise
        block = min(16 * block, _LAST_BLOCK)  # a row longer than the block


def _explained(path: Path, delimiter: str, wanted: list[str], error: pa.ArrowInvalid) -> UnreadableFile:
    """Make our error from Arrow's. Arrow names the row only when it reads on one thread, so it reads once more."""
    try:
        _parse(path, delimiter, wanted, use_threads=False)
    except pa.ArrowInvalid as again:
        error = again
    said = str(error)
    at = re.search(r"Row #(\d+)", said)
    where = f"row {int(at[1]):,} (the header is row 1)" if at else "a row"
    if "UTF8" in said:
        return not_utf8(path, f" in {where}")
    if fields := re.search(r"Expected (\d+) columns, got (\d+):(.*)", said, re.DOTALL):
        hint = "a quote may never be closed" if "\n" in fields[3].strip() else "quote a cell that holds the delimiter"
        return UnreadableFile(
            f"{path}: {where} has {fields[2]} fields, the header has {fields[1]} (separated by {delimiter!r}); "
            f"mend that row: {hint}."
        )
    if "Empty CSV" in said:  # a header without a line end
        return UnreadableFile(f"{path}: there is no row; a table needs at least one.")
    if "straddling" in said:
        return UnreadableFile(f"{path}: a row is longer than 2 GB; a quote may never be closed.")
    return UnreadableFile(f"{path} cannot be read: {said[:200]}.")


def _check_quotes(path: Path, delimiter: str) -> None:
    """Raise where a quote is never closed: Arrow reads what follows, rows and all, as one cell, also if not asked for.

    Where every quote opens a cell, closes one or stands in a pair, an even number of them says that all are closed;
    else each row is looked at.
    """
    before = np.frombuffer((delimiter + '\r\n"').encode(), np.uint8)  # what stands before a quote that opens a cell
    n_quotes, plain, last = 0, True, ord("\n")
    with open_bytes(path) as file:
        while block := file.read(_FIRST_BLOCK):
            if b'"' in block:
                cells = np.frombuffer(block, np.uint8)
                quotes = np.flatnonzero(cells == ord('"'))
                left = np.where(quotes > 0, cells[quotes - 1], last)
                right = np.append(cells, ord("\n"))[quotes + 1]  # at a block's end: taken for an end of line
                opens = (np.arange(quotes.size) + n_quotes) % 2 == 0
                neighbour = np.where(opens, left, right)
                plain = plain and bool(np.isin(neighbour, before).all())
                n_quotes += quotes.size
            last = block[-1]
    if n_quotes and not (plain and n_quotes % 2 == 0):
        _check_each_row(path, delimiter)


def _check_each_row(path: Path, delimiter: str) -> None:
    """Raise where a row over several lines ends inside a quoted cell, or has letters after a closing quote."""
    limit = csv.field_size_limit(_LAST_BLOCK)  # of a cell; it is one for the whole process
    try:
        with open_bytes(path) as file:
            lines = (line.decode("utf-8-sig", "replace") for line in file)
            rows, first = csv.reader(lines, delimiter=delimiter, strict=True), 1
            while True:
                try:
                    next(rows)
                except StopIteration:
                    return
                except csv.Error:
                    if rows.line_num > first:
                        said = f"a quote in line {first:,} is never closed, and the lines after it would be one cell"
                        raise UnreadableFile(f"{path}: {said}; mend it.") from None
                first = rows.line_num + 1
    finally:
        csv.field_size_limit(limit)


add(Format("csv", (".csv", ".txt"), read, write, summary="text with commas, semicolons or tabs", place=10))
add(Format("tsv", (".tsv", ".tab"), partial(read, delimiters="\t"), summary="text with tabs", place=20))
