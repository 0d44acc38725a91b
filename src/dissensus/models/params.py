"""The parameters of a model, which the EM driver extrapolates and which are stored as results.

Each field declares a transform to unconstrained coordinates, so that an extrapolation cannot leave its range:

    @dataclass(frozen=True)
    class Coins(Params):
        prior: FloatArray = em_parameter(SIMPLEX)
        coin: FloatArray = em_parameter(SIMPLEX, "A 2")
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from functools import cache
from typing import Any, NamedTuple, Self

import numpy as np

from dissensus.common.types import FloatArray, IntArray

MIN_EXTRAPOLATED_PROBABILITY = 1e-18  # minimum probability after an extrapolation
MAX_EXTRAPOLATED_LOG = 40.0  # maximum logarithm after an extrapolation; no model needs values above e^40


class Transform(NamedTuple):
    """A transform to unconstrained coordinates, and its inverse."""

    forward: Callable[[FloatArray], FloatArray]
    inverse: Callable[[FloatArray], FloatArray]
    range: str  # name of the values' range in `saving.RANGES`


def normalise_last_axis(values: FloatArray) -> FloatArray:
    """Return the values divided by their sums over the last axis."""
    return np.asarray(values / values.sum(axis=-1, keepdims=True))


def _exp(logs: FloatArray) -> FloatArray:
    return np.asarray(np.exp(np.clip(logs, -MAX_EXTRAPOLATED_LOG, MAX_EXTRAPOLATED_LOG)))


# SIMPLEX is for probabilities over the last axis. It uses square roots, because tiny probabilities would dominate logs.
SIMPLEX = Transform(
    np.sqrt, lambda roots: normalise_last_axis(np.maximum(roots**2, MIN_EXTRAPOLATED_PROBABILITY)), "simplex"
)
LOG_SIMPLEX = Transform(np.log, lambda logs: normalise_last_axis(_exp(logs)), "simplex")
# SHARE is for numbers in [0, 1], which are squared sines of angles.
SHARE = Transform(lambda share: np.arcsin(np.sqrt(share)), lambda angle: np.sin(angle) ** 2, "share")
# COUNT uses square roots, because counts may be zero.
COUNT = Transform(np.sqrt, np.square, "count")


@cache
def positive_transform(least: float) -> Transform:
    """Return the logarithmic transform for numbers that are at least `least`."""
    return Transform(np.log, lambda logs: np.maximum(_exp(logs), least), "count")


@cache
def real_transform(most: float = np.inf) -> Transform:
    """Return the identity transform for real numbers; its inverse clips them to ±`most`."""
    return Transform(lambda values: values, lambda values: np.clip(values, -most, most), "real")


def em_parameter(transform: Transform | None = None, axes: str = "") -> Any:
    """Declare a parameter and its axes ("A …" if it has one row per annotator); without a transform it is constant."""
    range_ = "real" if transform is None else transform.range
    return field(metadata={"transform": transform, "axes": axes, "range": range_})


@dataclass(frozen=True)
class Params:
    """Base class for the parameters of a model; the fields are arrays declared with `em_parameter`."""

    @property
    def by_annotator(self) -> tuple[str, ...]:
        """The names of the fields with one row per annotator."""
        return tuple(f.name for f in fields(self) if f.metadata["axes"].startswith("A"))

    def to_vector(self) -> FloatArray:
        """Return one unconstrained vector of all parameters that are not constant."""
        return np.concatenate([to.forward(getattr(self, name)).reshape(-1) for name, to in self._transforms()])

    def from_vector(self, vector: FloatArray) -> Self:
        """Return parameters from an unconstrained vector; constant parameters do not change."""
        new, start = {}, 0
        for name, to in self._transforms():
            shape, size = getattr(self, name).shape, getattr(self, name).size
            new[name] = to.inverse(vector[start : start + size].reshape(shape))
            start += size
        return replace(self, **new)

    def select_annotators(self, annotators: IntArray) -> Self:
        """Return the parameters of these annotators."""
        return replace(self, **{name: getattr(self, name)[annotators] for name in self.by_annotator})

    def replace_annotators(self, annotators: IntArray, new: Self) -> Self:
        """Return `new` for all annotators of `self`; only `annotators` take rows of `new`, the others keep theirs."""
        rows = {}
        for name in self.by_annotator:
            rows[name] = getattr(self, name).copy()
            rows[name][annotators] = getattr(new, name)
        return replace(new, **rows)

    def _transforms(self) -> list[tuple[str, Transform]]:
        return [(f.name, f.metadata["transform"]) for f in fields(self) if f.metadata["transform"] is not None]
