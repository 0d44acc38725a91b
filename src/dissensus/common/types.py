"""Array types. In shapes, N is the number of annotations, I items, A annotators, K classes and D features."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

IntArray: TypeAlias = NDArray[np.signedinteger[Any]]
FloatArray: TypeAlias = NDArray[np.floating[Any]]
BoolArray: TypeAlias = NDArray[np.bool_]
ByteArray: TypeAlias = NDArray[np.uint8]
Names: TypeAlias = NDArray[Any]
"""Names of items, annotators or classes, with dtype int64, float64, bool, or object with `str` values."""

OnStep: TypeAlias = Callable[[int, float], None]
"""Called after every pass over the data with (pass number, objective)."""
