"""Base classes for methods whose answers are numbers, rankings, sets, objects or spans instead of classes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Annotated, Any, ClassVar, Literal

import numpy as np

from dissensus.common.arrays import fill_masked
from dissensus.common.frames import columns_to_frame
from dissensus.common.types import FloatArray, IntArray, Names
from dissensus.models.base import Aggregator
from dissensus.models.exceptions import WrongGoldValuesShape
from dissensus.table.annotations import Annotations
from dissensus.table.spans import extract_spans


class AnswerModel(Aggregator, ABC):
    """Base class for methods whose answers are not classes, such as numbers or rankings."""

    frame_kinds: ClassVar[tuple[str, ...]] = ("items", "annotators")  # the kinds of frames that `to_frame` returns
    takes_earlier: ClassVar = False

    @abstractmethod
    def predict_answers(self, table: Annotations) -> dict[str, Any]:
        """Return the results with one row per item for the items of another table."""

    @abstractmethod
    def summarise_answers(self, gold: Any = None) -> dict[str, Any]:
        """Return a summary of the answers; it includes their accuracy if gold answers (I,) are passed."""


class SpanModel(Aggregator, ABC):
    """Base class for methods for spans, whose answers are legal tags of positions (see `table.spans`)."""

    kinds: ClassVar[tuple[str, ...]] = ("spans",)

    tags_: Annotated[IntArray, "I code:K"]  # index of each item's tag in `classes_`
    # This is the probability of the span that begins at the item, and NaN for other items.
    span_probability_: Annotated[FloatArray, "I share?"]

    @abstractmethod
    def predict_tags(self, table: Annotations) -> tuple[FloatArray, IntArray, FloatArray]:
        """Return the posterior (I, K), the tags (I,) and the probabilities of spans (I,) for a new table."""

    def predict_proba(self, table: Annotations | None = None) -> FloatArray:
        """Return P(tag of an item | all annotations of its sequence), (I, K); see `Aggregator.predict_proba`."""
        self._check_fitted()
        return self.posterior_ if table is None else self.predict_tags(table)[0]

    def predict(self, table: Annotations | None = None) -> Names:
        """Return the tag of each item, (I,)."""
        self._check_fitted()
        return self.classes_[self.tags_ if table is None else self.predict_tags(table)[1]]

    def spans(self, backend: Literal["pandas", "polars", "pyarrow"] | None = None) -> Any:
        """Return a frame of the spans with their document, start, end (exclusive), label and probability."""
        self._check_fitted()
        return columns_to_frame(
            extract_spans(np.asarray(self.items_), self.classes_, self.tags_, self.span_probability_), backend
        )

    def _frame_columns(self, kind: str) -> dict[str, Any]:
        if kind != "items":
            return super()._frame_columns(kind)
        q, tags = self.posterior_, self.tags_
        columns = {"item": self.items_, "label": self.classes_[tags], "confidence": q[np.arange(tags.size), tags]}
        return columns | {f"p_{name}": q[:, k] for k, name in enumerate(self.classes_)}


def summarise_confidence(model: Any, gold: IntArray | None) -> dict[str, Any]:
    """Return the mean of the model's `confidence_`, and the accuracy of its answers on gold items."""
    from dissensus.evaluation import bootstrap

    about: dict[str, Any] = {"mean_confidence": float(model.confidence_.mean()), "dependence": model.dependence_}
    if gold is not None and (gold >= 0).any():
        right = bootstrap((model.predict() == model.classes_[gold])[gold >= 0])
        bounds = {"accuracy_low": right.low, "accuracy_high": right.high}
        about["gold"] = {"items": int((gold >= 0).sum()), "accuracy": right.value, **bounds}
    return about


def check_gold_values(gold: Any, table: Annotations) -> FloatArray | None:
    """Return the gold values as floats (I,), NaN where unknown, or None if there are none."""
    if gold is None:
        return None
    values = fill_masked(gold, np.nan)
    if values.shape != (table.n_items,) or values.dtype.kind not in "iuf":
        raise WrongGoldValuesShape(n_items=table.n_items, dtype=str(values.dtype), shape=values.shape)
    values = values.astype(np.float64)
    return values if np.isfinite(values).any() else None
