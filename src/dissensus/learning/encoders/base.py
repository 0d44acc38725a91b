"""Encoders turn an input into a vector. An encoder knows nothing of annotations, annotators or losses.

`CrowdClassifier.fit` copies the encoder, calls `fit` (vocabulary, scale, sizes), `prepare` (inputs as columns, once)
and `module` (initial weights). The results of `fit` are attributes ending in `_`: plain values and NumPy arrays, which
are saved; weights belong to the module alone. The module is an ordinary `nn.Module` that can be used on its own:
`forward(**batch)` returns one row per item, and `branch` maps that to (B, `width`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar, Self

import numpy as np
from torch import nn

from dissensus.common.parameters import Parameters, is_whole, param
from dissensus.common.registry import Registry
from dissensus.learning.batches import BatchColumns


class Encoder(Parameters, ABC):
    """A map from x to a vector."""

    input_kind: ClassVar[str]  # the kind of X, in words, for tables and errors
    averages_inputs: ClassVar[bool] = False  # mixup may average inputs (else it averages the vectors)
    learning_rate: ClassVar[float] = 1e-3  # unless the user gives one
    is_linear: ClassVar[bool] = False  # a linear model is wanted: objective `auto` adds no networks

    def pool_encoders(self) -> list[Encoder]:
        """Return encoders without weights that objective `auto` may pool instead; none if this one has to be trained.

        The first is the default, and `auto` chooses among them by held-out items.
        """
        return []

    def fit(self, X: Any) -> Self:
        """Check the keywords and learn what is needed to `prepare` inputs; X is not kept."""
        self.check_parameters()
        return self

    @abstractmethod
    def prepare(self, X: Any) -> BatchColumns:
        """Turn inputs into columns, one entry per row of X; raise DataError for inputs that cannot be used."""

    @abstractmethod
    def module(self) -> nn.Module:
        """Return the network with initial weights: forward(**batch) with the columns of `prepare` → (B, …)."""

    def branch(self) -> nn.Module:
        """Return the layers of one task between the module and its last layer: (B, …) → (B, `width`)."""
        return nn.Identity()

    @property
    @abstractmethod
    def width(self) -> int:
        """Columns of the vectors after a branch; known after `fit`."""


encoders: Registry[type[Encoder]] = Registry(
    "encoder", "list encoders", "dissensus.learning.encoders", "dissensus.encoders"
)
"""Name → encoder; other packages add theirs by the entry-point group `dissensus.encoders`."""


def size_param(default: Any, text: str, must: str, *, least: int = 1, most: float = np.inf) -> Any:
    """Declare a keyword that holds `least` to `most` whole numbers, each at least 1."""

    def check(values: Any) -> bool:
        found = np.asarray(values)
        return found.ndim == 1 and least <= found.size <= most and all(is_whole(n) and n >= 1 for n in values)

    return param(default, text, check=check, must=must)
