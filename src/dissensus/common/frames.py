"""Convert results to frames."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from dissensus.common.parameters import check_argument

Backend = Literal["pandas", "polars", "pyarrow"]


def columns_to_frame(columns: Mapping[str, Any] | list[dict[str, Any]], backend: Backend | None = None) -> Any:
    """Return columns by name, or a list of rows, as a pandas frame, or as an Arrow table if pandas is not installed."""
    import pyarrow as pa

    table = pa.Table.from_pylist(columns) if isinstance(columns, list) else pa.table(columns)
    if backend == "pyarrow":
        return table
    if backend == "polars":
        import polars as pl

        return pl.from_arrow(table)
    check_argument("backend", backend, Backend | None)
    try:
        return table.to_pandas()
    except ImportError:
        if backend == "pandas":
            raise
        return table
