"""The default objective, which chooses models by a proper score on held-out items.

If inputs are vectors (features, or texts embedded by a frozen model), a pool of models predicts the labels. It consists
of a linear model of the vote shares, and of small networks that are trained on the vote shares, on a method's
posteriors or under a crowd layer. Each of `folds` parts of the items is held out once, to choose the linear model's
penalty, the epoch of each network, and the weights w ≥ 0 in

    p(x) = softmax(w_0 (W x + b) + Σ_m w_m z_m(x))        z_m of a crowd layer: log T softmax(s · logits)

p(x) is the distribution of the label of a random annotator. A crowd layer separates the class from the errors of
annotators. T [given label, true class] is the distribution of labels given the class, and 1/s is a temperature
(`logistic.fit_vote_channel`). If the crowd layer's classes explain the votes of new items, its weight is large and the
predicted label is more accurate.

`learning.auto` trains the pool, and this module defines its head. With any other encoder, the head is that of `soft`,
and the epoch and the temperature that divides the logits are chosen by held-out items.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from dissensus.common.parameters import param
from dissensus.learning.encoders.mlp import MLPModule
from dissensus.learning.logistic import MIN_PROBABILITY, VoteChannel
from dissensus.learning.losses import Divergence
from dissensus.learning.objectives.base import Branch, objectives
from dissensus.learning.objectives.soft import Soft


class PoolMember(nn.Module):
    """Networks of one kind that map vectors (B, D) to mean logits (B, K), or through T if they predict classes."""

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

    def copy_weights(self, trained: Sequence[nn.Module], channel: VoteChannel | None) -> None:
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
    """Pool of models that maps vectors (B, D) to a weighted sum (B, K) of logits of all members."""

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


@objectives.register("auto", summary="models, weights and temperature chosen by held-out items", cite="")
class Auto(Soft):
    """Soft labels, with models, epochs and temperature chosen by held-out items."""

    # Three keywords of `Soft` are constants here.
    labels: ClassVar[Any] = "normalized"  # type: ignore[misc]
    divergence: ClassVar[Divergence] = "kl"  # type: ignore[misc]
    weight: ClassVar[Any] = "items"  # type: ignore[misc]
    folds: int = param(5, "number of folds of the items, each of which is held out once if there is a pool", low=2)

    members_: list[dict[str, Any]] | None = None  # keywords of the `PoolMember`s; None if there is no pool

    def head(self, branch: Branch, width: int) -> nn.Module:
        return super().head(branch, width) if self.members_ is None else PoolHead(width, self.n_classes_, self.members_)

    def item_vectors(self, head: Any, z: Tensor) -> Tensor:
        """Return the last layer's input (B, D); for a pool, it is the vectors and the networks' hidden layers."""
        if self.members_ is None:
            return super().item_vectors(head, z)
        return torch.cat([z, *(network[0](z) for member in head.members for network in member.networks)], dim=1)
