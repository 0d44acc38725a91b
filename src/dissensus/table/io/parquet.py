"""Parquet. Only the columns needed are read."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from dissensus.table.io.columns import Columns, needed
from dissensus.table.io.files import BinaryFile, reading


def read(path: Path, columns: Columns | None) -> pa.Table:
    """The columns needed, with their types."""
    with reading(path), pq.ParquetFile(path) as file:
        return file.read(columns=needed(columns, file.schema_arrow.names))


def write(table: pa.Table, file: BinaryFile) -> None:
    """One file with its types."""
    pq.write_table(table, file)
