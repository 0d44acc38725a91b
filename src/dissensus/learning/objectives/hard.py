"""Training on one label per item, which is its gold label or the label of any aggregation method.

    loss_i = −log Q(y_i | x_i)

y_i is the gold label or, without gold, the most probable class under the method `labels`. Ties are broken at random
depending on the seed and the item's name, as in `Aggregator.predict`. The method is fitted to all annotations and gold.
"""

from __future__ import annotations

from typing import Self

import torch
from torch import Tensor, nn

from dissensus.common.parameters import param
from dissensus.common.types import IntArray
from dissensus.learning.batches import Batch, BatchColumns
from dissensus.learning.losses import hard_loss
from dissensus.learning.objectives.base import Objective, as_tensor, objectives
from dissensus.learning.objectives.labels import check_train_mask, hard_labels
from dissensus.models.base import Aggregator
from dissensus.table.annotations import Annotations


@objectives.register("hard", summary="one label per item: gold, or the label of any aggregation method", cite="—")
class Hard(Objective):
    """Cross entropy of one label per item."""

    labels: str | Aggregator = param(
        "majority-vote", '"gold" (only items with gold labels), or a method, by name or with its keywords'
    )

    def fit(self, table: Annotations, gold: IntArray | None, seed: int) -> Self:
        self.n_classes_ = table.n_classes
        label = hard_labels(table, gold, self.labels, seed)
        self.train_mask_ = check_train_mask(label >= 0)
        self._targets = BatchColumns(label=as_tensor(label, torch.int64))  # A code of −1 is no label.
        return self

    def loss(self, head: nn.Module, z: Tensor, targets: Batch) -> Tensor:
        return hard_loss(self.logits(head, z), targets["label"])
