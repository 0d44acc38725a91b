"""How the kernels are compiled: when first called, without the GIL, and kept on disk."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import cache, cached_property, update_wrapper
from typing import Any

from dissensus.exceptions import DissensusWarning


def compiled(function: Callable[..., Any]) -> Kernel:
    """Compile `function` when it is first called; numba, which takes 0.3 s to import, is imported no sooner."""
    return Kernel(function)


@cache
def _say_once() -> None:
    said = "compiled code can be kept nowhere, so every process compiles for some seconds anew"
    warnings.warn(f"{said}; set NUMBA_CACHE_DIR to a folder that can be written to.", DissensusWarning, stacklevel=4)


class Kernel:
    """A function that numba compiles when it is called, or used inside another kernel."""

    def __init__(self, function: Callable[..., Any]):
        update_wrapper(self, function)

    @cached_property
    def dispatcher(self) -> Any:
        """What numba makes of the function; the code is kept beside the source, or in the user's cache folder.

        Where neither can be written to, such as in a container with a read-only disk, every process compiles anew.
        """
        import numba

        try:
            return numba.njit(nogil=True, cache=True)(self.__wrapped__)
        except RuntimeError:  # numba: "cannot cache function …: no locator available"
            _say_once()
            return numba.njit(nogil=True)(self.__wrapped__)

    def __call__(self, *arguments: Any) -> Any:
        """Run the compiled function."""
        return self.dispatcher(*arguments)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.dispatcher, name)  # also `_numba_type_`, by which a kernel may call another

    def __reduce__(self) -> Any:
        return self.dispatcher.__reduce__()
