"""Aggregation methods, one module per method with its equations, parameters and fit.

A module that registers a class with `methods.register` is found without being listed here. `docs/methods/` has a page
for each method, which begins with the module's docstring.
"""

from typing import Any


def __getattr__(name: str) -> Any:
    """Return the method whose class has this name."""
    from dissensus.models.base import methods

    for _, entry in methods.entries():
        if entry.value.__name__ == name:
            return entry.value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
