"""What only the report needs, loaded on use."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from dissensus.exceptions import MissingExtra


def need(module: str) -> Any:
    """A module of the `report` extra."""
    try:
        return import_module(module)
    except ImportError as error:
        raise MissingExtra(
            f"the report needs {error.name or module}, which is not installed: pip install 'dissensus[report]'."
        ) from error
