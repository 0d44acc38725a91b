"""One file per method: its equations, its keywords and its M step. `dissensus.methods` finds them by itself."""

from typing import Any


def __getattr__(name: str) -> Any:
    """A method by the name of its class."""
    from dissensus.models.base import methods

    for _, entry in methods.entries():
        if entry.value.__name__ == name:
            return entry.value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
