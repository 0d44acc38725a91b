"""Base class for encoders, which turn inputs into vectors and are independent of annotations and losses.

`CrowdClassifier.fit` copies the encoder, and calls `fit` (which finds vocabulary, scale or sizes), `prepare` (which
returns the inputs as columns) and `module` (which returns the network with initial weights). The results of `fit` are
attributes whose names end in `_`; they are plain values and NumPy arrays, and are saved. Weights belong to the module
only. The module is an ordinary `nn.Module` that can be used alone. Its `forward(**batch)` returns one row per item,
which the result of `branch` maps to (B, `width`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar, Self

import numpy as np
from torch import nn

from dissensus.common.parameters import Parameters, is_whole_number, param
from dissensus.common.registry import Registry
from dissensus.learning.batches import BatchColumns


class Encoder(Parameters, ABC):
    """Trainable function from inputs to vectors."""

    input_kind: ClassVar[str]  # name for the kind of X, such as "texts"
    averages_inputs: ClassVar[bool] = False  # True if mixup may average inputs instead of vectors
    learning_rate: ClassVar[float] = 1e-3  # default learning rate
    is_linear: ClassVar[bool] = False  # True for a linear model, to which objective `auto` adds no networks

    def make_pool_encoders(self) -> list[Encoder]:
        """Return encoders without weights that objective `auto` may use instead; the list is empty if there are none.

        The first encoder is the default, and `auto` chooses among them by held-out items.
        """
        return []

    def fit(self, X: Any) -> Self:
        """Check the keywords, and compute from X what `prepare` needs; X itself is not stored."""
        self.check_parameters()
        return self

    @abstractmethod
    def prepare(self, X: Any) -> BatchColumns:
        """Return inputs as columns, one entry per row of X; raise DataError for inputs that cannot be used."""

    @abstractmethod
    def module(self) -> nn.Module:
        """Return the network with initial weights; forward(**batch) maps a batch of the prepared columns to (B, …)."""

    def branch(self) -> nn.Module:
        """Return the layers of one task between the module and the last layer, which map (B, …) to (B, `width`)."""
        return nn.Identity()

    @property
    @abstractmethod
    def width(self) -> int:
        """Length of the vectors after a branch; available after `fit`."""


encoders: Registry[type[Encoder]] = Registry(
    "encoder", "list encoders", "dissensus.learning.encoders", "dissensus.encoders"
)
"""Registry of encoders by name; other packages add encoders through the entry-point group `dissensus.encoders`."""


def size_param(default: Any, text: str, must: str, *, least: int = 1, most: float = np.inf) -> Any:
    """Declare a keyword whose value is a list of whole numbers ≥ 1, with a length from `least` to `most`."""

    def check(values: Any) -> bool:
        found = np.asarray(values)
        return found.ndim == 1 and least <= found.size <= most and all(is_whole_number(n) and n >= 1 for n in values)

    return param(default, text, check=check, must=must)
