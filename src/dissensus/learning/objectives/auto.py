"""What the data choose, by a proper score on items that were held out: the default.

Over vectors (features, or texts as a pretrained model sees them) the answer is a pool: a linear model on the shares of
the votes, and small networks taught by the shares or by a method's posteriors. Each of `folds` parts of the items is
held out once. It says how strong the linear model's penalty is, when each network stops, and by which weights w ≥ 0 to
take them together:

    p(x) = softmax(w_0 (W x + b) + Σ_m w_m z_m(x))

`learning.auto` does this; here is the head that it fills. Any other encoder has the one head of `soft`, is stopped by
items that are held out, and its logits are divided by the temperature that these say.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from dissensus.common.parameters import param
from dissensus.learning.encoders.mlp import MLPModule
from dissensus.learning.losses import Divergence
from dissensus.learning.objectives.base import Branch, objectives
from dissensus.learning.objectives.soft import Soft


class Pool(nn.Module):
    """(B, D) vectors → (B, K) weighted logits of a linear model and of networks with these layers."""

    weights: Tensor

    def __init__(self, width: int, n_classes: int, layers: Sequence[Sequence[int]]):
        super().__init__()
        self.linear = nn.Linear(width, n_classes)
        self.networks = nn.ModuleList(
            nn.Sequential(MLPModule(width, hidden, 0.0), nn.Linear(hidden[-1], n_classes)) for hidden in layers
        )
        self.register_buffer("weights", torch.full((1 + len(layers),), 1 / (1 + len(layers))))

    def forward(self, z: Tensor) -> Tensor:
        """(B, K) logits."""
        out: Tensor = self.weights[0] * self.linear(z)
        for weight, network in zip(self.weights[1:], self.networks, strict=True):
            out = out + weight * network(z)
        return out


@objectives.register("auto", summary="soft labels; held-out items choose model, strength and temperature", cite="")
class Auto(Soft):
    """Soft labels, with all else chosen by held-out items."""

    labels: ClassVar[Any] = "normalized"  # type: ignore[misc]  # no keyword here, as the two below
    divergence: ClassVar[Divergence] = "kl"  # type: ignore[misc]
    weight: ClassVar[Any] = "items"  # type: ignore[misc]
    folds: int = param(5, "parts of the items, each held out once, where a model of vectors takes seconds", low=2)

    layers_: list[list[int]] | None = None  # of the pool's networks; None: the one head of `soft`

    def head(self, branch: Branch, width: int) -> nn.Module:
        """Make the pool, or a last layer."""
        return super().head(branch, width) if self.layers_ is None else Pool(width, self.n_classes_, self.layers_)

    def item_vectors(self, head: Any, z: Tensor) -> Tensor:
        """(B, D) what the last layers read: of a pool the vectors, then the hidden layers of its networks."""
        if self.layers_ is None:
            return super().item_vectors(head, z)
        return torch.cat([z, *(network[0](z) for network in head.networks)], dim=1)
