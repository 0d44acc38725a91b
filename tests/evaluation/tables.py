"""Small tables with disagreement in them."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from dissensus import Annotations
from strategies import columns


def matrix(I: int, A: int, K: int, seed: int, missing: float = 0.4) -> np.ndarray:
    """(I, A) labels of annotators who are right more often than not; −1 in cells that are empty at random."""
    rng = np.random.default_rng(seed)
    truth = rng.integers(0, K, I)
    given = np.where(rng.random((I, A)) < 0.6, truth[:, None], rng.integers(0, K, (I, A)))
    given[rng.random((I, A)) < missing] = -1
    return given


def any_tables() -> st.SearchStrategy[Annotations]:
    """Tables without weights: repeated pairs, empty items, hard labels or distributions."""

    def table(arguments: dict) -> Annotations:
        kept = {name: value for name, value in arguments.items() if name != "label" or "proba" not in arguments}
        return Annotations.from_arrays(**kept)

    return columns(weighted=False).map(table)
