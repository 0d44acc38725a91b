"""Read and write Parquet files."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from dissensus.table.find_columns import ColumnNames, columns_to_read
from dissensus.table.io.files import BinaryFile, report_read_errors
from dissensus.table.io.readers import Reader, readers


def read(path: Path, columns: ColumnNames | None) -> pa.Table:
    """Return the required columns with their types."""
    import pyarrow.parquet as pq

    with report_read_errors(path), pq.ParquetFile(path) as file:
        table = file.read(columns=columns_to_read(columns, file.schema_arrow.names))
        table.validate(full=True)  # Offsets in a damaged file may be invalid.
        return table


def write(table: pa.Table, file: BinaryFile) -> None:
    """Write a table as Parquet, with the types of its columns."""
    import pyarrow.parquet as pq

    pq.write_table(table, file)


readers.register("parquet", summary="tables with types, by column", place=30)(
    Reader(read, (".parquet", ".pq"), write, b"PAR1")
)
