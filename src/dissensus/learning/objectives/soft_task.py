"""Soft labels as a second task, where one head predicts the label and another the votes (Fornaciari et al. 2021).

    loss_i = −log Q(y_i | x_i) + weight · D(P_i, R(· | x_i))

Q is the main head, which predicts the class. R is the auxiliary head, which has its own layers after the shared
encoder. y_i is gold, or silver from `labels`, as in `hard`. P_i is the soft label of the votes even if the item has
gold, because the second task is to learn from disagreement. The main loss is in nats (section 2 of the paper). D has
base 2, and is KL(P‖R) (Eq. 1), KL(R‖P) (Eq. 2) or −Σ P log2 R (Eq. 4, whose minus sign is missing in the paper). The
paper adds the two losses with weight 1. If the weight is 0, there is no second head, and the objective is `hard`.
"""

from __future__ import annotations

from typing import Any, Self

import torch
from torch import Tensor

from dissensus.common.parameters import param
from dissensus.common.types import IntArray
from dissensus.learning.batches import Batch, BatchColumns
from dissensus.learning.losses import DIVERGENCES, Divergence
from dissensus.learning.objectives.base import Branch, MultiPartHead, as_tensor, objectives
from dissensus.learning.objectives.hard import Hard
from dissensus.learning.objectives.labels import check_positive, check_train_mask, hard_labels, soft_labels, vote_weight
from dissensus.models.base import Aggregator
from dissensus.table.annotations import Annotations


@objectives.register(
    "soft-task", summary="one label per item, and the soft label as a second task", cite="Fornaciari et al. 2021"
)
class SoftTask(Hard):
    """A main head for the label, and an auxiliary head for the soft label."""

    soft: str | Aggregator = param("softmax", 'soft labels, as in `Soft`; the paper has "softmax"')
    divergence: Divergence = param("inverse-kl", 'auxiliary loss; "inverse-kl" needs soft labels without zeros')
    weight: float = param(1.0, "weight of the auxiliary loss", low=0)

    def fit(self, table: Annotations, gold: IntArray | None, seed: int) -> Self:
        self.check_parameters()
        self.n_classes_ = table.n_classes
        label = hard_labels(table, gold, self.labels, seed)
        voted = (vote_weight(table) > 0) & (self.weight > 0)  # True for items with a soft label
        self.train_mask_ = check_train_mask((label >= 0) | voted)
        soft = soft_labels(table, None, self.soft, seed)
        if self.divergence == "inverse-kl":
            check_positive(soft, voted, table)
        self._targets = BatchColumns(
            label=as_tensor(label, torch.int64), soft=as_tensor(soft), voted=as_tensor(voted, torch.float32)
        )
        return self

    def head(self, branch: Branch, width: int) -> MultiPartHead:
        """Return the main head, initialised as in `hard`, with the `auxiliary` head unless its weight is 0."""
        main = super().head(branch, width)
        return MultiPartHead(main, auxiliary=super().head(branch, width) if self.weight > 0 else None)

    def loss(self, head: Any, z: Tensor, targets: Batch) -> Tensor:
        loss = super().loss(head, z, targets)
        if head.auxiliary is None:
            return loss
        bits = DIVERGENCES[self.divergence](targets["soft"], head.auxiliary(z), 2.0)
        return loss + self.weight * (targets["voted"] * bits).sum()
