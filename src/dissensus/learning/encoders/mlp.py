"""A multilayer perceptron over given features: the base model of [U] for LabelMe (4 × 128 ReLU, dropout 0.2).

Features are centred and scaled by what the training items show, so that their units do not matter.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Literal, Self

import numpy as np
import torch
from torch import nn

from dissensus.common.types import FloatArray
from dissensus.exceptions import BadParameter, DataError
from dissensus.learning.batches import Columns, Mapped
from dissensus.learning.encoders.base import Encoder, encoders
from dissensus.learning.inputs import Picked, blocks, in_file, vectors

FLAT = 1e-7  # a feature that varies less, relative to its size, is constant


class Scaled(Encoder):
    """Features (I, D), centred and scaled."""

    takes = "features, items × columns"
    mixes = True

    scale: bool | Literal["max"]
    center_: FloatArray
    spread_: FloatArray

    def fit(self, X: Any) -> Self:
        """Mean and standard deviation of every feature; a constant one is only centred. Or its largest size."""
        x = vectors(X)
        if self.scale not in (True, False, "max"):
            raise BadParameter(f"scale must be True, False or 'max', got {self.scale!r}.")
        if self.scale == "max":
            largest = np.max([np.abs(block).max(axis=0) for block in blocks(x)], axis=0).astype(np.float64)
            self.center_, self.spread_ = np.zeros(x.shape[1]), np.where(largest > 0, largest, 1.0)
            return self
        if not self.scale:
            self.center_, self.spread_ = np.zeros(x.shape[1]), np.ones(x.shape[1])
            return self
        self.center_ = sum(block.sum(axis=0, dtype=np.float64) for block in blocks(x)) / len(x)
        spread = np.sqrt(sum(np.square(block - self.center_).sum(axis=0) for block in blocks(x)) / len(x))
        self.spread_ = np.where(spread > FLAT * np.maximum(np.abs(self.center_), 1), spread, 1.0)
        return self

    def prepare(self, X: Any) -> Columns:
        """One column, `x`; features that are mapped from a file stay there."""
        x = vectors(X)
        if x.shape[1] != self.center_.size:
            raise DataError(f"X has {x.shape[1]} features, the model was fitted to {self.center_.size}.")
        if in_file(x):
            return Columns(x=mapped(x, self.center_, self.spread_))
        return Columns(x=torch.from_numpy(((x - self.center_) / self.spread_).astype(np.float32)))


def mapped(x: Any, center: FloatArray, spread: FloatArray) -> Mapped:
    """The column of features that are mapped from a file: all rows of a table there, or some."""
    array, picked = (x.array, x.at) if isinstance(x, Picked) else (x, None)
    whole = array
    while isinstance(whole.base, np.memmap):  # only the first one says where in the file it begins
        whole = whole.base
    offset = whole.offset + array.ctypes.data - whole.ctypes.data
    return Mapped(str(array.filename), array.dtype, offset, array.shape, picked, center, spread)


@encoders.register("mlp", summary="fully connected layers over features", cite="")
class MLP(Scaled):
    """Fully connected layers with ReLU and dropout.

    Parameters
    ----------
    hidden : sequence of int
        Widths of the layers.
    dropout : float
        Share of values set to zero after each layer while training.
    scale : bool or "max"
        Centre features and divide them by their standard deviation over the training items; "max": divide each by its
        largest absolute value there, as the program of Platanios et al. (2020) does.
    """

    def __init__(
        self,
        *,
        hidden: Sequence[int] = (128, 128, 128, 128),
        dropout: float = 0.2,
        scale: bool | Literal["max"] = True,
    ):
        self.hidden, self.dropout, self.scale = hidden, dropout, scale

    @property
    def width(self) -> int:
        """Of the last layer."""
        return self.hidden[-1]

    def module(self) -> nn.Module:
        """`MLPModule` of the features' size."""
        if np.ndim(self.hidden) != 1 or min(self.hidden, default=0) < 1 or not 0 <= self.dropout < 1:
            raise BadParameter(
                f"mlp: hidden must be widths of layers and dropout below 1, got {self.hidden} and {self.dropout}."
            )
        return MLPModule(self.center_.size, self.hidden, self.dropout)


class MLPModule(nn.Module):
    """(B, D) → (B, hidden[-1])."""

    def __init__(self, features: int, hidden: Sequence[int], dropout: float):
        super().__init__()
        sizes = [features, *hidden]
        layers = [part for a, b in pairwise(sizes) for part in (nn.Linear(a, b), nn.ReLU(), nn.Dropout(dropout))]
        self.layers = nn.Sequential(*layers)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The last layer's values."""
        out: torch.Tensor = self.layers(x)
        return out
