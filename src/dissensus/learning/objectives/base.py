"""How annotations supervise a network. An objective knows nothing of what the inputs are.

`fit` looks at the table (and gold, where there is any) and says which items teach; `targets` are columns with one
entry per item; `head` makes the layers after the encoder; `loss` sums over the items of a batch. A sum, not a mean:
parts of a batch may then be added up, on one device or several, and the trainer divides by the items of the whole
batch once.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import Any, ClassVar, Self

import numpy as np
import torch
from torch import Tensor, nn

from dissensus.common.parameters import Parameters
from dissensus.common.registry import Registry
from dissensus.common.types import BoolArray, FloatArray, IntArray
from dissensus.learning.batches import Batch, Columns
from dissensus.table.annotations import Annotations

Branch = Callable[[], nn.Module]
Walk = Callable[[], Iterator[tuple[Tensor, Batch]]]
"""→ the encoder's output and the targets of all items that teach, some at a time."""


class Objective(Parameters, ABC):
    """Annotations → a loss, and what the network then says of classes and annotators."""

    models_annotators: ClassVar[bool] = False
    has_posterior: ClassVar[bool] = False
    describes_annotators: ClassVar[bool] = False  # whether it has a use for features of annotators
    monitor: ClassVar[str] = "cross-entropy"  # what tells on validation items when to stop

    n_classes_: int
    teaches_: BoolArray  # (I,) items that have something to teach; the others are predicted only
    annotator_features_: FloatArray | None = None  # (A, F) set before `head`, where it `describes_annotators`

    @abstractmethod
    def fit(self, table: Annotations, gold: IntArray | None, seed: int) -> Self:
        """Learn what the targets are; `gold` (I,) class codes, −1 unknown. Sets `n_classes_` and `teaches_`."""

    def learns_distributions(self) -> bool:
        """Whether what it teaches of an item is the mean of its probabilistic rows, and nothing of annotators."""
        return False

    def __getstate__(self) -> dict[str, Any]:
        """Without what `fit` keeps for `targets` alone: a process that trains gets targets, no table."""
        return {name: value for name, value in vars(self).items() if not name.startswith("_")}

    @abstractmethod
    def targets(self) -> Columns:
        """What the loss needs of every item, in the order of the table's items; after `fit`."""

    def head(self, branch: Branch, width: int) -> nn.Module:
        """The layers after the encoder; `branch()` makes what a task has for itself, (B, …) → (B, `width`)."""
        return nn.Sequential(branch(), nn.Linear(width, self.n_classes_))

    def logits(self, head: nn.Module, z: Tensor) -> Tensor:
        """(B, K) unnormalised log P(class) by the encoder's output `z`."""
        out: Tensor = head(z)
        return out

    def item_vectors(self, head: nn.Module, z: Tensor) -> Tensor:
        """(B, D) what the last layer reads of an item: the encoder's output after the branch."""
        assert isinstance(head, nn.Sequential)
        out: Tensor = head[0](z)
        return out

    @abstractmethod
    def loss(self, head: nn.Module, z: Tensor, targets: Batch) -> Tensor:
        """The sum over the batch's items of their losses, in nats where not said otherwise."""

    def begins(self, epoch: int, epochs: int) -> bool:
        """Whether there is anything to be done before that epoch."""
        return False

    def begin_epoch(self, head: nn.Module, epoch: int, epochs: int, walk: Walk) -> None:
        """What is to be done before epoch `epoch` (from 0) of `epochs`, without gradients: an E step, for instance.

        What it finds belongs into the head's state dict: a run that goes on within an epoch does not ask again.
        """

    def log_posterior(self, head: nn.Module, z: Tensor, targets: Batch) -> Tensor:
        """(B, K) unnormalised log P(class | x, annotations).

        By an objective that `has_posterior`; for the others `learning.posterior` finds it.
        """
        raise NotImplementedError

    def label_proba(self, head: nn.Module, z: Tensor, annotators: Tensor, features: Tensor | None = None) -> Tensor:
        """(B, len(annotators), K) P(label | x, annotator); codes of annotators, −1 for one who was not there.

        `features` (len(annotators), F), to an objective that `describes_annotators`: what is known of them.
        """
        raise NotImplementedError

    def row_proba(
        self, head: nn.Module, z: Tensor, row: Tensor, annotators: Tensor, features: Tensor | None = None
    ) -> Tensor:
        """(n, K) P(label | x, annotator) of n pairs: the item in row `row` (n,) of z (B, …), and `annotators` (n,).

        −1 is one who was not there; `features` (n, F) as for `label_proba`. Here by `label_proba`, one annotator after
        another; an objective that can takes all pairs at once.
        """
        if not len(row):
            return z.new_zeros(0, self.n_classes_)
        key = annotators[:, None] if features is None else torch.cat([annotators[:, None], features], dim=1)
        _, who = torch.unique(key, dim=0, return_inverse=True)
        order = torch.argsort(who)
        parts = []
        for at in torch.split(order, torch.bincount(who).tolist()):  # the pairs of one annotator
            own = None if features is None else features[at[:1]]
            parts.append(self.label_proba(head, z[row[at]], annotators[at[:1]], own)[:, 0])
        found = torch.cat(parts)
        out = torch.empty_like(found)
        out[order] = found
        return out


objectives: Registry[type[Objective]] = Registry("objective", "train --help", "dissensus.learning.objectives")
"""Name → objective."""


def as_tensor(values: FloatArray | IntArray | BoolArray, kind: torch.dtype | None = None) -> Tensor:
    """A tensor that owns its memory, so that a read-only array stays as it is."""
    return torch.as_tensor(np.array(values), dtype=kind)
