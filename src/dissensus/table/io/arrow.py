"""Arrow IPC files and streams, and Feather (version 2), which is the same thing."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from dissensus.table.find_columns import Columns, columns_to_read
from dissensus.table.io.files import reading
from dissensus.table.io.readers import Reader, readers

MAGIC = b"ARROW1"  # the first bytes of a file; a stream, as Hugging Face writes it, begins otherwise


def read(path: Path, columns: Columns | None) -> pa.Table:
    """Read the columns needed, with their types; the file is mapped into memory, not copied."""
    with reading(path):
        source = pa.memory_map(str(path))
        is_file = source.read(len(MAGIC)) == MAGIC
        source.seek(0)
        reader = pa.ipc.open_file(source) if is_file else pa.ipc.open_stream(source)
        table = reader.read_all().select(columns_to_read(columns, reader.schema.names))
        table.validate(full=True)  # offsets of a damaged file may point anywhere
        return table


readers.register("arrow", summary="Arrow files and streams, Feather", place=40)(
    Reader(read, (".arrow", ".feather", ".ipc"), first_bytes=MAGIC)
)
