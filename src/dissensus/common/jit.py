"""Compile kernels when they are first called; they run without the GIL and are cached on disk."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import cache, cached_property, update_wrapper
from typing import Any

from dissensus.common.exceptions import NoCodeCache


def lazy_jit(function: Callable[..., Any]) -> Kernel:
    """Compile `function` when it is first called; until then, numba (0.3 s) is not imported."""
    return Kernel(function)


@cache
def _warn_once() -> None:
    warnings.warn(NoCodeCache(), stacklevel=4)


class Kernel:
    """A function that numba compiles when it is first called, alone or inside another kernel."""

    def __init__(self, function: Callable[..., Any]):
        update_wrapper(self, function)

    @cached_property
    def dispatcher(self) -> Any:
        """Return the compiled function, which is cached next to the source or in the user's cache folder.

        If neither folder is writable, as in a container with a read-only disk, every process compiles it again.
        """
        import numba

        try:
            return numba.njit(nogil=True, cache=True)(self.__wrapped__)
        except RuntimeError:  # numba: "cannot cache function …: no locator available"
            _warn_once()
            return numba.njit(nogil=True)(self.__wrapped__)

    def __call__(self, *arguments: Any) -> Any:
        """Run the compiled function."""
        return self.dispatcher(*arguments)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.dispatcher, name)  # One of these is `_numba_type_`, by which kernels call each other.

    def __reduce__(self) -> Any:
        return self.dispatcher.__reduce__()
