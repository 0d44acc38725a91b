"""Excel (.xlsx, .xlsb, .xls) and OpenDocument (.ods): the first sheet, its first row being the header."""

from __future__ import annotations

import zipfile
from datetime import date, time
from pathlib import Path
from typing import Any

import pyarrow as pa

from dissensus.common.extras import need
from dissensus.exceptions import UnreadableFile
from dissensus.table.find_columns import Columns, needed
from dissensus.table.io.files import MAX_UNPACKED_RATIO, is_zip, max_unpacked, reading
from dissensus.table.io.formats import NOTE, Format, add

SUFFIXES = (".xlsx", ".xlsm", ".xlsb", ".xls", ".ods")


def read(path: Path, columns: Columns | None) -> pa.Table:
    """Read the columns needed as text, as in CSV: 7 for a cell of the number 7, nothing for an empty cell."""
    need("python_calamine", f"reading {path.name} needs", "excel")
    import python_calamine

    with reading(path):
        if is_zip(path):
            with zipfile.ZipFile(path) as archive:
                size = sum(one.file_size for one in archive.infolist())
            if size > max_unpacked(path):
                raise UnreadableFile(
                    f"{path} unpacks to more than {MAX_UNPACKED_RATIO} times its size; save it as CSV."
                )
        book = python_calamine.CalamineWorkbook.from_path(str(path))
        if not book.sheet_names:
            raise UnreadableFile(f"{path} holds no sheet; a table needs a header and rows.")
        rows = book.get_sheet_by_index(0).to_python()
        if not rows:
            raise UnreadableFile(f"{path}: sheet {book.sheet_names[0]!r} is empty; a table needs a header and rows.")
    there = [_text(cell) or "" for cell in rows[0]]
    cells = [row for row in rows[1:] if any(cell != "" for cell in row)]
    wanted = needed(columns, there)
    found = pa.table({name: pa.array([_text(row[there.index(name)]) for row in cells], pa.string()) for name in wanted})
    if others := book.sheet_names[1:]:
        said = f"Sheet {book.sheet_names[0]!r} was read; not read: {', '.join(map(repr, others[:5]))}."
        return found.replace_schema_metadata({NOTE: said})
    return found


def _text(cell: Any) -> str | None:
    """What a cell shows, near enough: whole numbers without a point, None where it is empty."""
    if cell is None or cell == "":
        return None
    if isinstance(cell, float) and cell.is_integer():
        return str(int(cell))
    return cell.isoformat() if isinstance(cell, date | time) else str(cell)


add(Format("spreadsheet", SUFFIXES, read, summary="the first sheet of Excel and OpenDocument files", place=47))
