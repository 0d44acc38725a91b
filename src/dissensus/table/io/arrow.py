"""Arrow IPC files and streams, and Feather (version 2), which is the same thing."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from dissensus.table.find_columns import Columns, needed
from dissensus.table.io.files import reading
from dissensus.table.io.formats import Format, add

MAGIC = b"ARROW1"  # a file begins so; a stream, as Hugging Face writes it, does not


def read(path: Path, columns: Columns | None) -> pa.Table:
    """Read the columns needed, with their types; the file is mapped into memory, not copied."""
    with reading(path):
        source = pa.memory_map(str(path))
        is_file = source.read(len(MAGIC)) == MAGIC
        source.seek(0)
        reader = pa.ipc.open_file(source) if is_file else pa.ipc.open_stream(source)
        wanted = needed(columns, reader.schema.names)
        table = reader.read_all().select(wanted)
        table.validate(full=True)  # of a damaged file, offsets may point anywhere
        return table


suffixes = (".arrow", ".feather", ".ipc")
add(Format("arrow", suffixes, read, first_bytes=MAGIC, summary="Arrow files and streams, Feather", place=40))
