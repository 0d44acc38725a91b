"""Annotator embeddings, which add vectors of annotators and of their labels to the item's vector (Deng et al. 2023).

    e_j  vector of annotator j      n_j = Σ_k s_jk N_k  mean of the label vectors N over j's labels
    α_a = (W_s v)ᵀ (W_a e_j)        α_n = (W_s v)ᵀ (W_n n_j)
    P_j(· | x) = softmax(W (v + α_a e_j + α_n n_j) + b)
    loss_i = −Σ_{annotations (j, y, w) of i} w · log P_j(y | x_i) [ + the penalty of `annotator_heads` on e, N and W ]

In section 3 of the paper, e is the annotator embedding, n is the annotation embedding, and α are their weights. v is
the encoder's output after a branch. The paper adds both embeddings to the first token of a text, before the
transformer. Here they are added after the encoder, so that any encoder can be used. s_jk are the shares of all labels
of j. If the label to be predicted were excluded from the shares, these would reveal it, because e_j identifies the
annotator. By default α_a = α_n = 1, because α overfits the training labels on vectors of a frozen encoder. In
`benchmarks.learning.whose_label`, this objective is worse than `annotator-heads`.

Items and unseen annotators are predicted as in `annotator_heads`. With features r_j of annotators, e_j = u_j + W_r r_j.

| symbol | name | shape |
|---|---|---|
| e | `EmbeddingHead.table` | (A, D) |
| N | `EmbeddingHead.label` | (K, D) |
| W_s, W_a, W_n | `item_projection`, `annotator_projection`, `label_projection` | (size, D) |
"""

from __future__ import annotations

from typing import ClassVar, Self

import torch
from torch import Tensor, nn

from dissensus.common.parameters import param
from dissensus.common.types import IntArray
from dissensus.learning.objectives.annotator_heads import AnnotatorHeads, LinearHeads
from dissensus.learning.objectives.base import Branch, as_tensor, objectives
from dissensus.learning.objectives.ldl_nm import label_counts
from dissensus.learning.rows import RowEmbedding
from dissensus.table.annotations import Annotations

INITIAL_SPREAD = 0.1  # initial standard deviation of the vectors of annotators and labels


class EmbeddingHead(LinearHeads):
    """Head whose rows (n, 2 D) contain e_j and n_j of an annotator."""

    label_counts: Tensor  # (A, K) weight of each annotator's labels of each class

    def __init__(self, branch: nn.Module, width: int, objective: AnnotatorEmbeddings):
        nn.Module.__init__(self)
        A, K = len(objective.label_totals_), objective.n_classes_
        self.branch, self.out = branch, nn.Linear(width, K)
        self.table = RowEmbedding(torch.randn(A, width) * INITIAL_SPREAD)
        self.label = nn.Parameter(torch.randn(K, width) * INITIAL_SPREAD)
        self.weighted = objective.weighted
        if self.weighted:
            self.item_projection, self.annotator_projection, self.label_projection = (
                nn.Linear(width, objective.size, bias=False) for _ in range(3)
            )
        self.add_features(objective.annotator_features_, width)
        self.register_buffer("labels", as_tensor(objective.label_totals_), persistent=False)
        self.register_buffer("label_counts", as_tensor(objective.label_counts_, torch.float32), persistent=False)

    def fitted_rows(self, codes: Tensor) -> Tensor:
        """Return rows (n, 2 D) of fitted annotators."""
        return torch.cat(
            [super().fitted_rows(codes), self._mean_label_vectors(self.label_counts.index_select(0, codes))], dim=1
        )

    def shared_penalty(self) -> Tensor:
        """Return |N|² + |W|²."""
        return self.label.square().sum() + self.out.weight.square().sum()

    def rows_or_average(self, codes: Tensor, totals: Tensor, features: Tensor | None = None) -> Tensor:
        """Return rows (n, 2 D) of annotators; an annotator without labels gets the label shares of all annotators."""
        has_labels = (codes >= 0) & (totals[codes] > 0)
        counts = torch.where(has_labels[:, None], self.label_counts[codes], self.label_counts.sum(dim=0))
        return torch.cat([super().rows_or_average(codes, totals, features), self._mean_label_vectors(counts)], dim=1)

    def _mean_label_vectors(self, counts: Tensor) -> Tensor:
        """Return Σ_k s_k N_k (n, D) for label counts (n, K)."""
        return counts / counts.sum(dim=1, keepdim=True) @ self.label

    def pair_logits(self, v: Tensor, rows: Tensor) -> Tensor:
        """Return logits (n, K) of n pairs."""
        e, n = rows.chunk(2, dim=-1)
        if not self.weighted:
            return torch.as_tensor(self.out(v + e + n))
        seen = self.item_projection(v)
        alpha_a = (seen * self.annotator_projection(e)).sum(dim=-1, keepdim=True)
        alpha_n = (seen * self.label_projection(n)).sum(dim=-1, keepdim=True)
        return torch.as_tensor(self.out(v + alpha_a * e + alpha_n * n))

    def all_pair_logits(self, v: Tensor, rows: Tensor) -> Tensor:
        """Return logits (B, J, K) of all pairs; W is linear, so items and annotators are multiplied separately."""
        e, n = rows.chunk(2, dim=-1)
        logits_e, logits_n = e @ self.out.weight.T, n @ self.out.weight.T  # (J, K)
        logits = self.out(v).unsqueeze(1)  # (B, 1, K)
        if not self.weighted:
            return torch.as_tensor(logits + logits_e + logits_n)
        seen = self.item_projection(v)
        alpha_a, alpha_n = (
            (seen @ self.annotator_projection(e).T).unsqueeze(2),
            (seen @ self.label_projection(n).T).unsqueeze(2),
        )
        return torch.as_tensor(logits + alpha_a * logits_e + alpha_n * logits_n)


@objectives.register(
    "annotator-embeddings", summary="the label of each annotator, through a vector that is added to the item's",
    cite="Deng et al. 2023",
)  # fmt: skip
class AnnotatorEmbeddings(AnnotatorHeads):
    """Vectors of annotators and of their labels, added to the item's vector."""

    uses_annotator_features = True

    shared: ClassVar[bool] = True  # type: ignore[misc]  # no keyword
    weighted: bool = param(
        False, "weight both vectors by α, which depends on the item, as Deng et al. do; False: α = 1"
    )
    size: int = param(16, "length of the vectors whose inner product is α", low=1)

    def fit(self, table: Annotations, gold: IntArray | None, seed: int) -> Self:
        """Count the labels of every annotator by class."""
        self.label_counts_ = label_counts(table)
        return super().fit(table, gold, seed)

    def head(self, branch: Branch, width: int) -> EmbeddingHead:
        """Return the head with all vectors and layers."""
        return EmbeddingHead(branch(), width, self)
