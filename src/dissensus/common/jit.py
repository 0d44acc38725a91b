"""Compile kernels when they are first called, without the GIL, and cache them on disk."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import cache, cached_property, update_wrapper
from typing import Any

from dissensus.common.exceptions import NoCodeCache


def lazy_jit(function: Callable[..., Any]) -> Kernel:
    """Compile `function` when it is first called; importing numba takes 0.3 s and is put off until then."""
    return Kernel(function)


@cache
def _warn_once() -> None:
    warnings.warn(NoCodeCache(), stacklevel=4)


class Kernel:
    """A function that numba compiles when it is called or used inside another kernel."""

    def __init__(self, function: Callable[..., Any]):
        update_wrapper(self, function)

    @cached_property
    def dispatcher(self) -> Any:
        """The function compiled by numba; its code is cached next to the source or in the user's cache folder.

        If neither is writable, as in a container with a read-only disk, every process compiles anew.
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
        return getattr(self.dispatcher, name)  # includes `_numba_type_`, which lets one kernel call another

    def __reduce__(self) -> Any:
        return self.dispatcher.__reduce__()
