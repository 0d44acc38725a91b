"""Read Excel (.xlsx, .xlsb, .xls) and OpenDocument (.ods) files.

The first sheet is read; its first row is the header.
"""

from __future__ import annotations

import zipfile
from collections.abc import Sequence
from datetime import date, time
from pathlib import Path
from typing import Any

import pyarrow as pa

from dissensus.common.extras import import_extra
from dissensus.table import exceptions as errors
from dissensus.table.find_columns import ColumnNames, columns_to_read
from dissensus.table.io.files import MAX_UNPACKED_RATIO, is_zip, max_unpacked_size, report_read_errors
from dissensus.table.io.readers import Reader, readers
from dissensus.table.notes import Note, OtherSheetsIgnored

SPREADSHEET_SUFFIXES = (".xlsx", ".xlsm", ".xlsb", ".xls", ".ods")
MAX_SHEETS_NAMED = 5


def matches_zip(names: Sequence[str]) -> bool:
    """Return True if these are the files inside an Excel or OpenDocument file."""
    return "xl/workbook.xml" in names or {"mimetype", "content.xml"} <= set(names)


def read(path: Path, columns: ColumnNames | None) -> pa.Table | tuple[pa.Table, Note]:
    """Return the required columns as text, as in CSV: the number 7 becomes "7", and empty cells are missing."""
    import_extra("python_calamine", f"reading {path.name} needs", "excel")
    import python_calamine

    with report_read_errors(path):
        if is_zip(path):
            with zipfile.ZipFile(path) as archive:
                size = sum(entry.file_size for entry in archive.infolist())
            if size > max_unpacked_size(path):
                raise errors.UnpacksTooLarge(path=path, ratio=MAX_UNPACKED_RATIO)
        book = python_calamine.CalamineWorkbook.from_path(str(path))
        if not book.sheet_names:
            raise errors.EmptyFile(location=str(path), needs="a header and rows")
        rows = book.get_sheet_by_index(0).to_python()
        if not rows:
            raise errors.EmptyFile(location=f"{path}: sheet {book.sheet_names[0]!r}", needs="a header and rows")
    header = [_cell_text(cell) or "" for cell in rows[0]]
    cells = [row for row in rows[1:] if any(cell != "" for cell in row)]
    required = columns_to_read(columns, header)
    table = pa.table(
        {name: pa.array([_cell_text(row[header.index(name)]) for row in cells], pa.string()) for name in required}
    )
    if others := book.sheet_names[1:]:
        return table, OtherSheetsIgnored(
            sheet=book.sheet_names[0], other_sheets=", ".join(map(repr, others[:MAX_SHEETS_NAMED]))
        )
    return table


def _cell_text(cell: Any) -> str | None:
    """Return the text of a cell, without decimal point for whole numbers; None if it is empty."""
    if cell is None or cell == "":
        return None
    if isinstance(cell, float) and cell.is_integer():
        return str(int(cell))
    return cell.isoformat() if isinstance(cell, date | time) else str(cell)


readers.register("spreadsheet", summary="the first sheet of Excel and OpenDocument files", place=47)(
    Reader(read, SPREADSHEET_SUFFIXES, matches_zip=matches_zip)
)
