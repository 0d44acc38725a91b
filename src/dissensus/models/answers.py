"""The contract of methods whose answers are no classes with probabilities: numbers, rankings, sets and objects."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np

from dissensus.common.arrays import unmasked
from dissensus.common.types import FloatArray, IntArray
from dissensus.exceptions import DataError
from dissensus.models.base import Aggregator
from dissensus.models.dependence import CANDIDATES, DEFAULT, PRIOR_SD, Calibration, most_probable
from dissensus.table.annotations import Annotations


class AnswerModel(Aggregator, ABC):
    """A method that says itself what its answers are."""

    frames: ClassVar[tuple[str, ...]] = ("items", "annotators")  # what `to_frame` makes
    takes_earlier: ClassVar = False

    @abstractmethod
    def answers_for(self, table: Annotations) -> dict[str, Any]:
        """The results with one row per item, for the items of another table."""

    @abstractmethod
    def about_answers(self, gold: Any = None) -> dict[str, Any]:
        """What a summary says of the answers; with known answers (I,) also how good they are."""


def dependence_by(fit: Callable[[float], float]) -> Calibration:
    """ρ with which known answers are most probable, by their log probability `fit(ρ)`; drawn to the default."""
    return most_probable([fit(float(rho)) - (np.log(rho / DEFAULT) / PRIOR_SD) ** 2 / 2 for rho in CANDIDATES])


def about_confidence(model: Any, gold: IntArray | None) -> dict[str, Any]:
    """How sure answers with a `confidence_` are, and how many are right."""
    from dissensus.evaluation import bootstrap

    about: dict[str, Any] = {"mean_confidence": float(model.confidence_.mean()), "dependence": model.dependence_}
    if gold is not None and (gold >= 0).any():
        right = bootstrap((model.predict() == model.classes_[gold])[gold >= 0])
        bounds = {"accuracy_low": right.low, "accuracy_high": right.high}
        about["gold"] = {"items": int((gold >= 0).sum()), "accuracy": right.value, **bounds}
    return about


def check_values(gold: Any, table: Annotations) -> FloatArray | None:
    """`gold` as floats (I,), NaN where unknown; None where nothing is known."""
    if gold is None:
        return None
    values = unmasked(gold, np.nan)
    if values.shape != (table.n_items,) or values.dtype.kind not in "iuf":
        raise DataError(
            f"gold must hold one number per item, {table.n_items} in all, NaN where unknown; got {values.dtype} of "
            f"shape {values.shape}. `table.gold_values(item, value)` makes it from names."
        )
    values = values.astype(np.float64)
    return values if np.isfinite(values).any() else None
