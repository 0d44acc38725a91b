"""Modules that only an optional extra installs, imported on use."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from dissensus.exceptions import MissingExtra


def need(module: str, who: str, extra: str) -> Any:
    """Import `module`; where it is not installed, MissingExtra says who needs it and which extra brings it.

    >>> need("json", "the report needs", "report").dumps(1)
    '1'
    """
    try:
        return import_module(module)
    except ImportError as error:
        raise MissingExtra(
            f"{who} {error.name or module}, which is not installed: pip install 'dissensus[{extra}]'."
        ) from error
