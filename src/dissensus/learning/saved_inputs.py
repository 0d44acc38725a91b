"""Conversion of prepared inputs to a tree that is stored in a model's file, and back."""

from __future__ import annotations

from typing import Any

from dissensus.learning.batches import BatchColumns, MappedRows, PaddedSequences, RaggedColumn

COLUMN_CLASSES = {kind.__name__: kind for kind in (PaddedSequences, RaggedColumn)}


def pack_columns(columns: BatchColumns) -> dict[str, Any]:
    """Return prepared inputs as plain values and tensors, which include the content of memory-mapped files."""
    stored: dict[str, Any] = {}
    for name, column in columns.columns.items():
        if isinstance(column, RaggedColumn):
            stored[name] = {"kind": type(column).__name__, **vars(column)}
        else:
            stored[name] = column.to("cpu") if isinstance(column, MappedRows) else column
    return stored


def unpack_columns(stored: dict[str, Any]) -> BatchColumns:
    """Return prepared inputs, given the result of `pack_columns`."""
    return BatchColumns(
        **{
            name: COLUMN_CLASSES[column.pop("kind")](**column) if isinstance(column, dict) else column
            for name, column in stored.items()
        }
    )
