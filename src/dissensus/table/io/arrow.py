"""Read Arrow IPC files and streams, and Feather version 2, which is the same format."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from dissensus.table.find_columns import ColumnNames, columns_to_read
from dissensus.table.io.files import report_read_errors
from dissensus.table.io.readers import Reader, readers

FILE_MAGIC = b"ARROW1"  # first bytes of a file; streams, which Hugging Face writes, begin differently


def read(path: Path, columns: ColumnNames | None) -> pa.Table:
    """Return the required columns with their types; the file is mapped into memory."""
    with report_read_errors(path):
        source = pa.memory_map(str(path))
        is_file = source.read(len(FILE_MAGIC)) == FILE_MAGIC
        source.seek(0)
        reader = pa.ipc.open_file(source) if is_file else pa.ipc.open_stream(source)
        table = reader.read_all().select(columns_to_read(columns, reader.schema.names))
        table.validate(full=True)  # Offsets in a damaged file may be invalid.
        return table


readers.register("arrow", summary="Arrow files and streams, Feather", place=40)(
    Reader(read, (".arrow", ".feather", ".ipc"), first_bytes=FILE_MAGIC)
)
