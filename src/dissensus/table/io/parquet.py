"""Parquet. Only the columns needed are read."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from dissensus.table.find_columns import ColumnNames, columns_to_read
from dissensus.table.io.files import BinaryFile, report_read_errors
from dissensus.table.io.readers import Reader, readers


def read(path: Path, columns: ColumnNames | None) -> pa.Table:
    """Read the columns needed, with their types."""
    import pyarrow.parquet as pq

    with report_read_errors(path), pq.ParquetFile(path) as file:
        table = file.read(columns=columns_to_read(columns, file.schema_arrow.names))
        table.validate(full=True)  # offsets of a damaged file may point anywhere
        return table


def write(table: pa.Table, file: BinaryFile) -> None:
    """Write one file, with the types of the columns."""
    import pyarrow.parquet as pq

    pq.write_table(table, file)


readers.register("parquet", summary="tables with types, by column", place=30)(
    Reader(read, (".parquet", ".pq"), write, b"PAR1")
)
