"""Prepared inputs in the file of a model."""

from __future__ import annotations

from typing import Any

from dissensus.learning.batches import Bag, Columns, Mapped, Padded

KINDS = {"Padded": Padded, "Bag": Bag}


def stored_columns(columns: Columns) -> dict[str, Any]:
    """Return prepared inputs as plain values and tensors; those in a file are read, as it may not exist later."""
    stored: dict[str, Any] = {}
    for name, column in columns.columns.items():
        if isinstance(column, Bag):
            stored[name] = {"kind": type(column).__name__, **vars(column)}
        else:
            stored[name] = column.to("cpu") if isinstance(column, Mapped) else column
    return stored


def loaded_columns(stored: dict[str, Any]) -> Columns:
    """Return the columns that `stored_columns` stored."""
    return Columns(
        **{
            name: KINDS[column.pop("kind")](**column) if isinstance(column, dict) else column
            for name, column in stored.items()
        }
    )
