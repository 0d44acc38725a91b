"""Encoders, which turn inputs into vectors; each encoder has its own file and registers itself.

>>> encoders["mlp"](hidden=[16]).hidden
[16]
"""

from typing import Any

from dissensus.learning.encoders.base import Encoder, encoders

__all__ = ["Encoder", "encoders"]


def __getattr__(name: str) -> Any:
    """Return an encoder by the name of its class."""
    for _, entry in encoders.entries():
        if entry.value.__name__ == name:
            return entry.value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
