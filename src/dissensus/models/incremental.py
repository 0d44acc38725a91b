"""New names for a fitted model: merged in order, with rows of its results put in for them.

What a model learns from the new rows is its own, see `ConfusionModel._update`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dissensus.common.types import BoolArray, IntArray, Names
from dissensus.table import names as naming


def merge(names: Names, more: Names, what: str) -> tuple[Names, IntArray, IntArray]:
    """Sorted names with others merged in: all names, where rows of the others must be put in, codes of `more`."""
    naming.match(more[:1], names[:1], what)  # an error where the kinds differ
    at = np.searchsorted(names, more)
    known = (at < names.size) & (names[np.minimum(at, names.size - 1)] == more) if names.size else at < 0
    new = np.flatnonzero(~known)
    if not new.size:
        return names, new, at
    codes = at + np.cumsum(~known) - ~known  # each new name before it moves it on by one
    return np.insert(names, at[new], more[new]), at[new], codes


def put_in(values: Any, at: IntArray, row: Any) -> Any:
    """`values` with `row` put in before each of the places `at` (as of the old array)."""
    return np.insert(values, at, row, axis=0) if at.size else values


def known_before(size: int, at: IntArray, codes: IntArray) -> BoolArray:
    """(len(codes),) whether a code is of a name that was there before, given where new ones were put in."""
    fresh = np.zeros(size, np.bool_)
    fresh[at + np.arange(at.size)] = True
    return ~fresh[codes]
