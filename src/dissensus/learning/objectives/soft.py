"""Training on one distribution per item, which comes from the votes or is the posterior of a method.

    loss_i = v_i · D(P_i, Q(· | x_i))        D: KL(P‖Q), KL(Q‖P) or −Σ P log Q, in nats

P_i is a soft label of the votes (`Annotations.soft_labels`), or the posterior of an aggregation method that is fitted
with the classifier's seed. For a gold label P_i is one-hot. v_i is 1, or the total weight of the item's votes (1 for an
item with gold and without votes). The cross entropy to `normalized` labels, weighted by votes, is the sum of −log Q
over all annotations. KL(P‖Q) and cross entropy have the same gradients.
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
    "soft",
    summary="one distribution per item, from the votes or from the posterior of a method",
    cite="Peterson et al. 2019",
)
class Soft(Objective):
    """A divergence between the network's prediction and a soft label per item."""

    labels: str | Aggregator = param(
        "normalized", '"normalized", "softmax" or "smoothed" votes, or a method, by name or with its keywords'
    )
    divergence: Divergence = param("kl", '"inverse-kl" needs "softmax" or "smoothed" labels and no gold')
    weight: Literal["items", "votes"] = param("items", "weight of items: equal, or the total weight of an item's votes")

    def fit(self, table: Annotations, gold: IntArray | None, seed: int) -> Self:
        self.check_parameters()
        self.n_classes_ = table.n_classes
        votes = vote_weight(table)
        has_gold = np.zeros(table.n_items, bool) if gold is None else gold >= 0
        self.train_mask_ = check_train_mask((votes > 0) | has_gold)
        target = soft_labels(table, gold, self.labels, seed)
        if gold is not None:
            target[has_gold] = np.eye(table.n_classes, dtype=np.float32)[gold[has_gold]]
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
