"""What the data choose, by a proper score on items that were held out: the default.

Over vectors (features, or texts as a pretrained model sees them) the answer is a pool: a linear model on the shares of
the votes, and small networks taught by the shares, by a method's posteriors or under a crowd layer. Each of `folds`
parts of the items is held out once. It says how strong the linear model's penalty is, when each network stops, and by
which weights w ≥ 0 to take them together:

    p(x) = softmax(w_0 (W x + b) + Σ_m w_m z_m(x))        z_m of a crowd layer: log T softmax(s · logits)

p(x) is of the label that an annotator drawn at random would give. A crowd layer knows the class apart from what
annotators make of it; T [given, true] is what is said of a class, and 1/s how unsure of it to be (`logistic.channel`).
Where its classes explain the votes of new items it decides the label too, and the label is nearer to the truth.

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
from dissensus.learning.logistic import MIN_PROBABILITY, Channel
from dissensus.learning.losses import Divergence
from dissensus.learning.objectives.base import Branch, objectives
from dissensus.learning.objectives.soft import Soft


class PoolMember(nn.Module):
    """(B, D) vectors → (B, K) the mean logits of networks with these layers; of classes, log Σ_c T_yc p_c."""

    scale: Tensor
    labels: Tensor

    def __init__(self, width: int, n_classes: int, hidden: Sequence[int], networks: int, of_classes: bool):
        super().__init__()
        self.of_classes = of_classes
        self.networks = nn.ModuleList(
            nn.Sequential(MLPModule(width, hidden, 0.0), nn.Linear(hidden[-1], n_classes)) for _ in range(networks)
        )
        if of_classes:
            self.register_buffer("scale", torch.ones(()))
            self.register_buffer("labels", torch.eye(n_classes))  # T

    def fill(self, trained: Sequence[nn.Module], channel: Channel | None) -> None:
        for place, network in zip(self.networks, trained, strict=True):
            place.load_state_dict(network.state_dict())
        if channel is not None:
            self.scale.fill_(channel.scale)
            self.labels.copy_(torch.as_tensor(channel.labels))

    def forward(self, z: Tensor) -> Tensor:
        logits = torch.stack([network(z) for network in self.networks]).mean(dim=0)
        if not self.of_classes:
            return logits
        return ((self.scale * logits).softmax(dim=1) @ self.labels.T).clamp(min=MIN_PROBABILITY).log()


class Pool(nn.Module):
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
    """Soft labels, with all else chosen by held-out items."""

    labels: ClassVar[Any] = "normalized"  # type: ignore[misc]  # no keyword here, as the two below
    divergence: ClassVar[Divergence] = "kl"  # type: ignore[misc]
    weight: ClassVar[Any] = "items"  # type: ignore[misc]
    folds: int = param(5, "parts of the items, each held out once, where a model of vectors takes seconds", low=2)

    members_: list[dict[str, Any]] | None = None  # keywords of the pool's `PoolMember`s; None: the one head of `soft`

    def head(self, branch: Branch, width: int) -> nn.Module:
        return super().head(branch, width) if self.members_ is None else Pool(width, self.n_classes_, self.members_)

    def item_vectors(self, head: Any, z: Tensor) -> Tensor:
        """(B, D) what the last layers read: of a pool the vectors, then the hidden layers of its networks."""
        if self.members_ is None:
            return super().item_vectors(head, z)
        return torch.cat([z, *(network[0](z) for member in head.members for network in member.networks)], dim=1)
