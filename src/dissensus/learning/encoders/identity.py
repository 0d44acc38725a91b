"""Features as they are: with an objective's last layer on top, (multinomial) logistic regression."""

from __future__ import annotations

import torch
from torch import nn

from dissensus.learning.encoders.base import encoders
from dissensus.learning.encoders.mlp import Scaled


@encoders.register("identity", summary="features as they are: a linear model", cite="")
class Identity(Scaled):
    """No layers.

    Parameters
    ----------
    scale : bool
        Centre features and divide them by their standard deviation over the training items.
    """

    learning_rate = 1e-2  # a convex problem

    def __init__(self, *, scale: bool = True):
        self.scale = scale

    @property
    def width(self) -> int:
        """As many as there are features."""
        return self.center_.size

    def module(self) -> nn.Module:
        """`x` itself."""
        return Same()


class Same(nn.Module):
    """(B, D) → (B, D)."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """`x`."""
        return x
