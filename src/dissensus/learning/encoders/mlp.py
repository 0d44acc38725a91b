"""Multilayer perceptron over features, by default the base model of Uma et al. 2021 for LabelMe (4 × 128, dropout 0.2).

Features are centred and scaled by their means and standard deviations over the training items, so that their units do
not matter.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Literal, Self

import numpy as np
import torch
from torch import nn

from dissensus.common.parameters import param
from dissensus.common.types import FloatArray
from dissensus.learning.batches import BatchColumns, MappedRows
from dissensus.learning.encoders.base import Encoder, encoders, size_param
from dissensus.learning.exceptions import FeatureCountDiffers
from dissensus.learning.inputs import column_names, iterate_blocks, reorder_columns, to_vectors

MIN_RELATIVE_SPREAD = 1e-7  # minimum standard deviation relative to the mean of a feature that is not constant


class ScaledFeatureEncoder(Encoder):
    """Base class for encoders of features (I, D), which are centred and scaled."""

    input_kind = "features, items × columns"
    averages_inputs = True

    scale: bool | Literal["all", "max"] = param(
        True,
        "centre features and divide them by their standard deviation over the training items; 'all': divide all "
        "features by one number; 'max': divide each by its largest absolute value, as the program of Platanios et al. "
        "(2020) does",
        check=lambda value: value in (True, False, "all", "max"),
        must="must be True, False, 'all' or 'max'",
    )
    hidden: Sequence[int] = ()
    dropout: float = 0.0

    center_: FloatArray
    spread_: FloatArray
    columns_: list[str] | None = None  # names of the features if `fit` was given a frame

    @property
    def width(self) -> int:
        return [self.center_.size, *self.hidden][-1]

    def module(self) -> nn.Module:
        return MLPModule(self.center_.size, self.hidden, self.dropout)

    def make_pool_encoders(self) -> list[Encoder]:
        """Return two encoders of the features themselves, with features scaled one by one or all by the same number."""
        scales = (True, "all") if self.scale is True else (self.scale,)
        return [encoders["identity"](scale=scale) for scale in scales]

    def fit(self, X: Any) -> Self:
        """Compute the mean and the scale of each feature (see `scale`); the scale of a constant feature is 1."""
        super().fit(X)
        x, self.columns_ = to_vectors(X), column_names(X)
        self.center_, self.spread_ = np.zeros(x.shape[1]), np.ones(x.shape[1])
        if self.scale == "max":
            largest = np.max([np.abs(block).max(axis=0) for block in iterate_blocks(x)], axis=0).astype(np.float64)
            self.spread_ = np.where(largest > 0, largest, 1.0)
        elif self.scale:
            self.center_ = sum(block.sum(axis=0, dtype=np.float64) for block in iterate_blocks(x)) / len(x)
            spread = np.sqrt(sum(np.square(block - self.center_).sum(axis=0) for block in iterate_blocks(x)) / len(x))
            varies = spread > MIN_RELATIVE_SPREAD * np.maximum(np.abs(self.center_), 1)
            self.spread_ = np.where(varies, spread, 1.0)
            if self.scale == "all" and varies.any():
                self.spread_ = np.full(spread.size, np.sqrt(np.square(spread).mean()))
        return self

    def prepare(self, X: Any) -> BatchColumns:
        """Return one column, `x`; columns of a frame are matched by name, and features in a file are read later."""
        x = to_vectors(reorder_columns(X, self.columns_))
        if x.shape[1] != self.center_.size:
            raise FeatureCountDiffers(n_features=x.shape[1], expected=self.center_.size)
        if isinstance(x, MappedRows):
            return BatchColumns(x=x.rescale(self.center_, self.spread_))
        return BatchColumns(x=torch.from_numpy(((x - self.center_) / self.spread_).astype(np.float32)))


@encoders.register("mlp", summary="fully connected layers over features", cite="")
class MLP(ScaledFeatureEncoder):
    """Fully connected layers with ReLU and dropout."""

    hidden: Sequence[int] = size_param((128, 128, 128, 128), "widths of the layers", "must be widths of layers")
    dropout: float = param(0.2, "share of values set to zero after each layer while training", low=0, below=1)


class MLPModule(nn.Module):
    """Fully connected layers that map (B, D) to (B, hidden[-1]); without layers, the output is the input."""

    def __init__(self, features: int, hidden: Sequence[int] = (), dropout: float = 0.0):
        super().__init__()
        widths = [features, *hidden]
        layers = [part for a, b in pairwise(widths) for part in (nn.Linear(a, b), nn.ReLU(), nn.Dropout(dropout))]
        self.layers = nn.Sequential(*layers)

    def forward(self, x: torch.Tensor) -> Any:
        return self.layers(x)
