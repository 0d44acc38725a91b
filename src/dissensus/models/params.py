"""The parameters of a model as a point that the EM driver can move, and as results with a row per annotator.

A field says in which space it is moved, so that no step of SQUAREM can leave the range of the parameter:

    @dataclass(frozen=True)
    class Coins(Params):
        prior: FloatArray = moved(SIMPLEX)
        coin: FloatArray = moved(SIMPLEX, "A 2")
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from functools import cache
from typing import Any, NamedTuple, Self

import numpy as np

from dissensus.common.types import FloatArray, IntArray

MIN_SQUARE = 1e-18  # smallest probability after a step
MAX_LOG = 40.0  # largest logarithm after a step: e^40 is of no use to any model


class Space(NamedTuple):
    """Coordinates without borders: the way there, and the way back."""

    there: Callable[[FloatArray], FloatArray]
    back: Callable[[FloatArray], FloatArray]
    range: str  # of `saving.RANGES`


def normalised(values: FloatArray) -> FloatArray:
    """Divide by the sums over the last axis."""
    return np.asarray(values / values.sum(axis=-1, keepdims=True))


def _exp(logs: FloatArray) -> FloatArray:
    return np.asarray(np.exp(np.clip(logs, -MAX_LOG, MAX_LOG)))


# Probabilities over the last axis. Roots are points of a sphere; in logarithms, tiny ones would drown the rest.
SIMPLEX = Space(np.sqrt, lambda roots: normalised(np.maximum(roots**2, MIN_SQUARE)), "simplex")
LOG_SIMPLEX = Space(np.log, lambda logs: normalised(_exp(logs)), "simplex")
# Numbers in [0, 1]: the share is the sine squared of an angle.
SHARE = Space(lambda share: np.arcsin(np.sqrt(share)), lambda angle: np.sin(angle) ** 2, "share")
# Counts, which may be zero.
COUNT = Space(np.sqrt, np.square, "count")


@cache
def positive(least: float) -> Space:
    """Numbers from `least` on, moved as logarithms."""
    return Space(np.log, lambda logs: np.maximum(_exp(logs), least), "count")


@cache
def real(most: float = np.inf) -> Space:
    """Any numbers; a step may not take them beyond ±`most`."""
    return Space(lambda values: values, lambda values: np.clip(values, -most, most), "real")


def moved(space: Space | None = None, axes: str = "") -> Any:
    """Declare a parameter with its axes, "A …" where it has a row per annotator; without a space it is never moved."""
    return field(metadata={"space": space, "axes": axes, "range": "real" if space is None else space.range})


@dataclass(frozen=True)
class Params:
    """Named arrays, declared with `moved`."""

    @property
    def by_annotator(self) -> tuple[str, ...]:
        """Names of the fields with a row per annotator."""
        return tuple(one.name for one in fields(self) if one.metadata["axes"].startswith("A"))

    def to_vector(self) -> FloatArray:
        """All that is moved, as one vector."""
        return np.concatenate([space.there(getattr(self, name)).reshape(-1) for name, space in self._spaces()])

    def from_vector(self, vector: FloatArray) -> Self:
        """The parameters at that point; what is not moved stays."""
        new, start = {}, 0
        for name, space in self._spaces():
            shape, size = getattr(self, name).shape, getattr(self, name).size
            new[name] = space.back(vector[start : start + size].reshape(shape))
            start += size
        return replace(self, **new)

    def take(self, annotators: IntArray) -> Self:
        """The parameters of these annotators."""
        return replace(self, **{name: getattr(self, name)[annotators] for name in self.by_annotator})

    def put(self, annotators: IntArray, new: Self) -> Self:
        """Copies in which these annotators have other parameters; all else is that of `new`."""
        rows = {}
        for name in self.by_annotator:
            rows[name] = getattr(self, name).copy()
            rows[name][annotators] = getattr(new, name)
        return replace(new, **rows)

    def _spaces(self) -> list[tuple[str, Space]]:
        return [(one.name, one.metadata["space"]) for one in fields(self) if one.metadata["space"] is not None]
