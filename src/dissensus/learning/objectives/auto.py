"""The default: models chosen by a proper score on held-out items.

Vectors (features, or texts embedded by a frozen model) get a pool: a linear model on the shares of the votes, and small
networks trained on the shares, on a method's posteriors or under a crowd layer. Each of `folds` parts of the items is
held out once. It chooses the linear model's penalty, the epoch of each network, and the weights w ≥ 0 of the pool:

    p(x) = softmax(w_0 (W x + b) + Σ_m w_m z_m(x))        z_m of a crowd layer: log T softmax(s · logits)

p(x) is the distribution of the label of an annotator drawn at random. A crowd layer separates the class from the errors
of annotators; T [given, true] is the distribution of labels given the class, and 1/s a temperature
(`logistic.channel`). If its classes explain the votes of new items it decides the label, which is then more accurate.

`learning.auto` trains the pool; this module has its head. Any other encoder has the head of `soft`; held-out items
choose its epoch and the temperature that divides its logits.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from dissensus.common.parameters import param
from dissensus.learning.encoders.mlp import MLPModule
from dissensus.learning.logistic import MIN_PROBABILITY, Channel
from dissensus.learning.losses import Divergence
from dissensus.learning.objectives.base import Branch, objectives
from dissensus.learning.objectives.soft import Soft


class PoolMember(nn.Module):
    """(B, D) vectors → (B, K) the mean logits of networks with these layers; of classes, log Σ_c T_yc p_c."""

    scale: Tensor
    labels: Tensor

    def __init__(self, width: int, n_classes: int, hidden: Sequence[int], networks: int, predicts_classes: bool):
        super().__init__()
        self.predicts_classes = predicts_classes
        self.networks = nn.ModuleList(
            nn.Sequential(MLPModule(width, hidden, 0.0), nn.Linear(hidden[-1], n_classes)) for _ in range(networks)
        )
        if predicts_classes:
            self.register_buffer("scale", torch.ones(()))
            self.register_buffer("labels", torch.eye(n_classes))  # T

    def copy_weights(self, trained: Sequence[nn.Module], channel: Channel | None) -> None:
        for place, network in zip(self.networks, trained, strict=True):
            place.load_state_dict(network.state_dict())
        if channel is not None:
            self.scale.fill_(channel.scale)
            self.labels.copy_(torch.as_tensor(channel.labels))

    def forward(self, z: Tensor) -> Tensor:
        logits = torch.stack([network(z) for network in self.networks]).mean(dim=0)
        if not self.predicts_classes:
            return logits
        return ((self.scale * logits).softmax(dim=1) @ self.labels.T).clamp(min=MIN_PROBABILITY).log()


class PoolHead(nn.Module):
    """(B, D) vectors → (B, K) weighted logits of a linear model and of members, each of some networks."""

    weights: Tensor

    def __init__(self, width: int, n_classes: int, members: Sequence[dict[str, Any]]):
        super().__init__()
        self.linear = nn.Linear(width, n_classes)
        self.members = nn.ModuleList(PoolMember(width, n_classes, **member) for member in members)
        self.register_buffer("weights", torch.full((1 + len(members),), 1 / (1 + len(members))))

    def forward(self, z: Tensor) -> Tensor:
        out: Tensor = self.weights[0] * self.linear(z)
        for weight, member in zip(self.weights[1:], self.members, strict=True):
            out = out + weight * member(z)
        return out


@objectives.register("auto", summary="held-out items choose among models, their weights and temperature", cite="")
class Auto(Soft):
    """Soft labels, with all other choices made by held-out items."""

    labels: ClassVar[Any] = "normalized"  # type: ignore[misc]  # no keyword here, as the two below
    divergence: ClassVar[Divergence] = "kl"  # type: ignore[misc]
    weight: ClassVar[Any] = "items"  # type: ignore[misc]
    folds: int = param(5, "parts of the items, each held out once, where a model of vectors takes seconds", low=2)

    members_: list[dict[str, Any]] | None = None  # keywords of the pool's `PoolMember`s; None: the one head of `soft`

    def head(self, branch: Branch, width: int) -> nn.Module:
        return super().head(branch, width) if self.members_ is None else PoolHead(width, self.n_classes_, self.members_)

    def item_vectors(self, head: Any, z: Tensor) -> Tensor:
        """Return the input of the last layers (B, D): for a pool, vectors and the hidden layers of its networks."""
        if self.members_ is None:
            return super().item_vectors(head, z)
        return torch.cat([z, *(network[0](z) for member in head.members for network in member.networks)], dim=1)
