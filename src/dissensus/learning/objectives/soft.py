"""One distribution per item: the network predicts the votes, or the posterior of a method.

    loss_i = v_i · D(P_i, Q(· | x_i))        D: KL(P‖Q), KL(Q‖P) or −Σ P log Q, in nats

P_i is a soft label of the votes (`Annotations.soft_labels`) or the posterior of an aggregation method, which is fitted
with the classifier's seed; it is one-hot for a known class. v_i is 1, or the total weight of the item's votes (1 for a
known item without votes): cross entropy to `normalized` labels, weighted by votes, is the sum of −log Q over all
annotations. KL(P‖Q) and cross entropy have the same gradients.
"""

from __future__ import annotations

import math
from typing import Literal, Self

import numpy as np
import torch
from torch import Tensor, nn

from dissensus.common.parameters import param
from dissensus.common.types import IntArray
from dissensus.learning.batches import Batch, BatchColumns
from dissensus.learning.losses import DIVERGENCES, Divergence
from dissensus.learning.objectives.base import Objective, as_tensor, objectives
from dissensus.learning.objectives.labels import VOTE_KINDS, check_positive, check_train_mask, soft_labels, vote_weight
from dissensus.models.base import Aggregator
from dissensus.table.annotations import Annotations


@objectives.register(
    "soft", summary="one distribution per item: of the votes, or the posterior of a method", cite="Peterson et al. 2019"
)
class Soft(Objective):
    """Training on soft labels."""

    labels: str | Aggregator = param(
        "normalized", '"normalized", "softmax" or "smoothed" votes, or a method, by name or with its keywords'
    )
    divergence: Divergence = param("kl", '"inverse-kl" needs "softmax" or "smoothed" labels and no gold')
    weight: Literal["items", "votes"] = param("items", "every item counts equally, or by the weight of its votes")

    def fit(self, table: Annotations, gold: IntArray | None, seed: int) -> Self:
        self.check_parameters()
        self.n_classes_ = table.n_classes
        votes = vote_weight(table)
        known = np.zeros(table.n_items, bool) if gold is None else gold >= 0
        self.train_mask_ = check_train_mask((votes > 0) | known)
        target = soft_labels(table, gold, self.labels, seed)
        if gold is not None:
            target[known] = np.eye(table.n_classes, dtype=np.float32)[gold[known]]
        if self.divergence == "inverse-kl":
            check_positive(target, self.train_mask_, table)
        weight = np.where(votes > 0, votes, 1.0) if self.weight == "votes" else np.ones(table.n_items)
        weight = np.where(self.train_mask_, weight, 0.0)
        self._targets = BatchColumns(target=as_tensor(target), weight=as_tensor(weight, torch.float32))
        return self

    @property
    def predicts_votes(self) -> bool:
        return isinstance(self.labels, str) and self.labels in VOTE_KINDS

    def loss(self, head: nn.Module, z: Tensor, targets: Batch) -> Tensor:
        distance = DIVERGENCES[self.divergence](targets["target"], self.logits(head, z), math.e)
        return (targets["weight"] * distance).sum()
