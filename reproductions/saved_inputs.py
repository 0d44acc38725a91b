"""Keep prepared inputs in the file of a model."""

from __future__ import annotations

from typing import Any

from dissensus.learning.batches import Bag, Columns, Mapped, Padded


def stored_columns(columns: Columns) -> dict[str, Any]:
    """Prepared inputs as plain values and tensors; those of a file are read, since the file may be gone."""
    stored: dict[str, Any] = {}
    for name, column in columns.columns.items():
        if isinstance(column, Bag):
            stored[name] = {"kind": type(column).__name__, **vars(column)}
        else:
            stored[name] = column.to("cpu") if isinstance(column, Mapped) else column
    return stored


def loaded_columns(stored: dict[str, Any]) -> Columns:
    """The columns that `stored_columns` stored."""
    kinds = {"Padded": Padded, "Bag": Bag}
    return Columns(
        **{
            name: kinds[column.pop("kind")](**column) if isinstance(column, dict) else column
            for name, column in stored.items()
        }
    )
