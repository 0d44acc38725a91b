"""Results as frames."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from dissensus.exceptions import BadParameter

Backend = Literal["pandas", "polars", "pyarrow"]


def as_frame(columns: Mapping[str, Any] | list[dict[str, Any]], backend: Backend | None = None) -> Any:
    """Columns by name, or a list of rows, as a frame: of pandas where pandas is installed, else an Arrow table."""
    import pyarrow as pa

    table = pa.Table.from_pylist(columns) if isinstance(columns, list) else pa.table(columns)
    if backend == "pyarrow":
        return table
    if backend == "polars":
        import polars as pl

        return pl.from_arrow(table)
    if backend not in (None, "pandas"):
        raise BadParameter(f"backend must be 'pandas', 'polars' or 'pyarrow', got {backend!r}.")
    try:
        return table.to_pandas()
    except ImportError:
        if backend == "pandas":
            raise
        return table
