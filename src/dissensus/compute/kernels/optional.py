"""An array that may be None: weights of rows, known classes of items."""

from __future__ import annotations

from typing import Any

from dissensus.common.jit import compiled


@compiled
def entry(values: Any, at: Any, default: Any) -> Any:
    """`values[at]`, or the default where there are none; numba leaves out the other branch."""
    return default if values is None else values[at]
