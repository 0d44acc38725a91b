"""How the kernels are compiled: without the GIL, and kept on disk."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba

F = TypeVar("F", bound=Callable[..., Any])


def compiled(function: F) -> F:
    """`function`, compiled when first called; the code is kept beside the source, or in the user's cache folder.

    Where neither can be written to, such as in a container with a read-only disk, every process compiles anew.
    """
    try:
        return cast(F, numba.njit(nogil=True, cache=True)(function))
    except RuntimeError:  # numba: "cannot cache function …: no locator available"
        return cast(F, numba.njit(nogil=True)(function))
