"""Small helpers over arrays."""

from __future__ import annotations

import numpy as np

from dissensus.common.types import IntArray


def ranges(start: IntArray, length: IntArray) -> IntArray:
    """start[0] … start[0] + length[0] − 1, then start[1] …, in one array.

    >>> ranges(np.array([3, 7]), np.array([2, 3]))
    array([3, 4, 7, 8, 9])
    """
    return np.arange(length.sum()) + np.repeat(start - (np.cumsum(length) - length), length)
