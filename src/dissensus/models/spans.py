"""The contract of methods for spans: tags of places, and the spans that they say."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial
from typing import Annotated, Any, ClassVar, Literal

import numpy as np

from dissensus.common.frames import as_frame
from dissensus.common.types import FloatArray, IntArray, Names
from dissensus.models.base import Aggregator
from dissensus.table.annotations import Annotations
from dissensus.table.spans import spans_of


class SpanModel(Aggregator, ABC):
    """A method for spans: answers are tags of places, see `table.spans`, and none of them is illegal."""

    kinds: ClassVar[tuple[str, ...]] = ("spans",)

    tags_: Annotated[IntArray, "I code:K"]  # codes into classes_
    span_probability_: Annotated[FloatArray, "I share?"]  # of the span that begins at an item; NaN at other items

    @abstractmethod
    def answer(self, table: Annotations) -> tuple[FloatArray, IntArray, FloatArray]:
        """Posterior (I, K), tags (I,) and probabilities of their spans (I,) of a new table."""

    def predict_proba(self, table: Annotations | None = None) -> FloatArray:
        """(I, K) P(tag of item | all annotations of its sequence); see `Aggregator.predict_proba`."""
        self._check_fitted()
        return self.posterior_ if table is None else self.answer(table)[0]

    def predict(self, table: Annotations | None = None) -> Names:
        """(I,) the tags."""
        self._check_fitted()
        return self.classes_[self.tags_ if table is None else self.answer(table)[1]]

    def spans(self, backend: Literal["pandas", "polars", "pyarrow"] | None = None) -> Any:
        """The spans that the tags say: document, start, end (exclusive), label, probability of the whole span."""
        self._check_fitted()
        return as_frame(spans_of(np.asarray(self.items_), self.classes_, self.tags_, self.span_probability_), backend)

    @property
    def item_columns(self) -> Callable[[Names, FloatArray, FloatArray | None], dict[str, Any]]:
        """As `Aggregator.item_columns`; labels are the tags."""
        return partial(tag_columns, self.classes_, self.tags_)


def tag_columns(
    classes: Names, tags: IntArray, items: Names, posterior: FloatArray, difficulty: FloatArray | None
) -> dict[str, Any]:
    """The frame of all items of spans: name, tag, its probability, P(tag) of every tag."""
    columns = {"item": items, "label": classes[tags], "confidence": posterior[np.arange(items.size), tags]}
    return columns | {f"p_{name}": posterior[:, k] for k, name in enumerate(classes)}
