"""Features as they are: with an objective's last layer on top, (multinomial) logistic regression."""

from __future__ import annotations

from torch import Tensor, nn

from dissensus.learning.encoders.base import encoders
from dissensus.learning.encoders.mlp import Scaled


@encoders.register("identity", summary="features as they are: a linear model", cite="")
class Identity(Scaled):
    """No layers."""

    learning_rate = 1e-2  # a convex problem

    @property
    def width(self) -> int:
        return self.center_.size

    def module(self) -> nn.Module:
        return Same()


class Same(nn.Module):
    """(B, D) → (B, D)."""

    def forward(self, x: Tensor) -> Tensor:
        return x
