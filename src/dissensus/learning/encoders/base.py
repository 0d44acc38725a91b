"""The base class of encoders, which turn an input into a vector and are independent of annotations and losses.

`CrowdClassifier.fit` copies the encoder, and calls `fit` (vocabulary, scale, sizes), `prepare` (inputs as columns,
once) and `module` (initial weights). The results of `fit` are attributes whose names end in `_`: plain values and NumPy
arrays, which are saved. Weights belong to the module only. The module is an ordinary `nn.Module` that can be used on
its own: `forward(**batch)` returns one row per item, and `branch` maps it to (B, `width`).
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
    """A trainable map from an input to a vector."""

    input_kind: ClassVar[str]  # the kind of X in words, such as "texts"
    averages_inputs: ClassVar[bool] = False  # True if mixup may average inputs; else it averages the vectors
    learning_rate: ClassVar[float] = 1e-3  # default learning rate
    is_linear: ClassVar[bool] = False  # True for a linear model, to which objective `auto` adds no networks

    def make_pool_encoders(self) -> list[Encoder]:
        """Return encoders without weights that objective `auto` may use instead, or none if this one must be trained.

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
        """Return the network with initial weights; its forward(**batch) maps the columns of `prepare` to (B, …)."""

    def branch(self) -> nn.Module:
        """Return the layers of one task between the module and its last layer, from (B, …) to (B, `width`)."""
        return nn.Identity()

    @property
    @abstractmethod
    def width(self) -> int:
        """Length of the vectors after a branch; available after `fit`."""


encoders: Registry[type[Encoder]] = Registry(
    "encoder", "list encoders", "dissensus.learning.encoders", "dissensus.encoders"
)
"""Registry from name to encoder; other packages add entries by the entry-point group `dissensus.encoders`."""


def size_param(default: Any, text: str, must: str, *, least: int = 1, most: float = np.inf) -> Any:
    """Declare a keyword whose value is a list of `least` to `most` whole numbers, each at least 1."""

    def check(values: Any) -> bool:
        found = np.asarray(values)
        return found.ndim == 1 and least <= found.size <= most and all(is_whole_number(n) and n >= 1 for n in values)

    return param(default, text, check=check, must=must)
