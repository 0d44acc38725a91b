"""CoNAL: confusions that all annotators have in common, and each one's own (Chu et al. 2021).

    ω_ij = sigmoid(u_jᵀ v_i / |u_j| |v_i|)        how much of what j says of i is common confusion
    P_j(· | x_i) = softmax(ω_ij W_0 p(x_i) + (1 − ω_ij) W_j p(x_i))
    loss_i = −Σ_{annotations (j, y, w) of i} w · log P_j(y | x_i)  [ − log p(gold_i | x_i) where it is known ]
             − apart · Σ_j |W_0 − W_j|_F

(Chu et al. 2021: common and individual noise adaptation layers, the auxiliary network that chooses between them, and
the term that keeps them apart.) W [given, true] all start at `start` times the identity. v_i is linear in what the last
layer of p reads of the item, u_j a vector per annotator. The last sum is over the annotators of the batch (the paper:
over all; a batch that has all of them is the paper's), once per item.

p(x) predicts. An annotator who was not there, or had no labels, has the mean u and W of all, weighted by labels.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from dissensus.common.parameters import param
from dissensus.learning.batches import Batch
from dissensus.learning.objectives.base import Branch, HeadWithMain, objectives
from dissensus.learning.objectives.crowd_layer import AnnotationsThroughP, CrowdLayer
from dissensus.learning.rows import RowEmbedding, rows_or_mean


class ConalHead(HeadWithMain):
    """`main` with the layers of each annotator (`crowd`), of all (`common`), and who takes which (`u`, `v`)."""

    crowd: CrowdLayer

    def __init__(self, main: nn.Module, width: int, crowd: CrowdLayer, size: int, start: float):
        super().__init__(main, crowd=crowd)
        K, A = crowd.n_classes, len(crowd.weight)  # type: ignore[arg-type]
        self.common = nn.Parameter(start * torch.eye(K).reshape(1, -1))
        self.u, self.v = RowEmbedding(torch.randn(A, size)), nn.Linear(width, size)

    def log_labels(self, v: Tensor, log_p: Tensor, row: Tensor, own: Tensor, u: Tensor) -> Tensor:
        """(n, K) log P of annotations of items `row` (n,) by rows of W (n, K·K) and u (n, size)."""
        omega = functional.cosine_similarity(u, self.v(v).index_select(0, row)).sigmoid().unsqueeze(1)
        weight = omega * self.common + (1 - omega) * own  # linear in W: one product for both
        return self.crowd.given(log_p.index_select(0, row), weight, None)


@objectives.register(
    "conal", summary="the labels of every annotator, by confusions in common and of their own", cite="Chu et al. 2021"
)
class CoNAL(AnnotationsThroughP):
    """Common and individual noise."""

    start: float = param(2.0, "multiple of the identity that W_0 and W_j start at", above=0)
    apart: float = param(1e-5, "weight of what keeps W_j from W_0, in the mean loss per item", low=0)
    size: int = param(20, "numbers of u and v", low=1)

    def head(self, branch: Branch, width: int) -> ConalHead:
        """The classes first, so that they start as they would alone."""
        main = super().head(branch, width)
        layer = CrowdLayer(len(self.labels_given_), self.n_classes_, "matrix", "softmax", True, self.start)
        return ConalHead(main, width, layer, self.size, self.start)

    def log_labels(self, head: Any, v: Tensor, log_p: Tensor, targets: Batch) -> Tensor:
        """(n, K) log P_j of annotations."""
        who = targets["annotator"]
        out: Tensor = head.log_labels(v, log_p, targets["row"], head.crowd.tables["weight"](who), head.u(who))
        return out

    def regulariser(self, head: Any, log_p: Tensor, targets: Batch) -> Tensor | None:
        """−apart · Σ_j |W_0 − W_j|."""
        if self.apart == 0:
            return None
        own: Tensor = head.crowd.tables["weight"](torch.unique(targets["annotator"]))
        apart: Tensor = torch.linalg.vector_norm(head.common - own, dim=1).sum()
        return -self.apart * apart

    def row_proba(
        self, head: Any, z: Tensor, row: Tensor, annotators: Tensor, features: Tensor | None = None
    ) -> Tensor:
        """(n, K) P_j(label | x) of pairs; −1 is the average annotator."""
        totals = self.totals(z.device)
        own, u = (rows_or_mean(table, annotators, totals) for table in (head.crowd.weight, head.u.weight))
        found: Tensor = head.log_labels(*self.read(head, z), row, own, u)
        return found.exp()
