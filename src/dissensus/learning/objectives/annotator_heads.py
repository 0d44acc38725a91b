"""Heads per annotator: the label of each annotator, predicted by a last layer of their own (Davani et al. 2022).

    P_j(· | x) = softmax((W_0 + W_j) v + b_0 + b_j)        v: the encoder's output after a branch, shared by all
    loss_i = Σ_{annotations (j, y, w) of i} w · [ −log P_j(y | x_i) + penalty/2 · ((|W_j|² + |b_j|²)/n_j + |W_0|²/n) ]

(Davani et al. 2022, their multi-task model: one head per annotator, the loss over the given labels.) W_0, b_0 are a
common head; `shared=False` drops it, as in the paper, and annotators with few labels then have poor heads. n_j is the
weight of j's labels and n that of all, so a pass over the table adds penalty/2 times each square once, for any batches:
annotators with few labels stay near the common head. With all W_j = 0 and fixed vectors this is logistic regression on
[x, one-hot annotator].

The prediction for an item is the mean of P_j over all annotators with labels, or the share of them with each most
probable class (`average="mode"`, the paper's majority vote of heads). An unknown annotator is one of them, drawn at
random: that mean. Known gold is the label of an annotator with the mean parameters, weighted by labels; it trains the
shared layers only.
"""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from dissensus.common.parameters import param
from dissensus.learning.batches import Batch
from dissensus.learning.losses import hard_loss, label_log_likelihood, log_softmax, weighted_sum
from dissensus.learning.objectives.base import AnnotatorObjective, AnnotatorRows, Branch, as_tensor, objectives
from dissensus.learning.rows import RowEmbedding

Average = Literal["mean", "mode"]
MAX_NUMBERS = 2**22  # items × annotators × K that are computed at once
MIN_SHARE = 1e-30  # replaces a share of 0 in logarithms


class LinearHeads(AnnotatorRows):
    """A linear layer per annotator: rows (A, K · (D + 1)) hold W_j and b_j."""

    labels: Tensor  # (A,) weight of the labels that each annotator gave

    def __init__(self, branch: nn.Module, width: int, objective: AnnotatorHeads):
        super().__init__()
        self.branch, self.n_classes = branch, objective.n_classes_
        self.common = nn.Linear(width, self.n_classes) if objective.shared else None
        size = (len(objective.label_totals_), self.n_classes * (width + 1))
        bound = 0.0 if objective.shared else width**-0.5  # the default of nn.Linear
        self.table = RowEmbedding(torch.empty(size).uniform_(-bound, bound))
        self.add_features(None, size[1])
        self.register_buffer("labels", as_tensor(objective.label_totals_), persistent=False)

    def shared_penalty(self) -> Tensor | float:
        """|W_0|²."""
        return 0.0 if self.common is None else self.common.weight.square().sum()

    def _combined_layers(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Return weights (n, K, D) and biases (n, K), with the common layer added."""
        both = rows.reshape(len(rows), self.n_classes, -1)
        weight, bias = both[..., :-1], both[..., -1]
        return (weight, bias) if self.common is None else (weight + self.common.weight, bias + self.common.bias)

    def pair_logits(self, v: Tensor, rows: Tensor) -> Tensor:
        """Return logits (n, K) of n pairs, v (n, D) and rows (n, E)."""
        weight, bias = self._combined_layers(rows)
        out: Tensor = (weight * v.unsqueeze(1)).sum(dim=2) + bias
        return out

    def all_pair_logits(self, v: Tensor, rows: Tensor) -> Tensor:
        """Return logits (B, J, K) of all pairs of v (B, D) and rows (J, E)."""
        weight, bias = self._combined_layers(rows)
        return torch.einsum("bd,jkd->bjk", v, weight) + bias

    def mean_label_proba(self, v: Tensor, average: Average) -> Tensor:
        """Return the mean over annotators with labels of their distributions (B, K), or the shares of their classes."""
        who = torch.nonzero(self.labels)[:, 0]
        total = torch.zeros((), device=v.device)
        for some in torch.split(who, max(MAX_NUMBERS // max(v.numel(), 1), 1)):
            said = log_softmax(self.all_pair_logits(v, self.rows_or_average(some, self.labels))).exp()  # (B, some, K)
            if average == "mode":
                said = functional.one_hot(said.argmax(dim=2), said.shape[2]).to(said.dtype)
            total = total + said.sum(dim=1)
        return total / len(who)


@objectives.register(
    "annotator-heads", summary="what each annotator would say, by a last layer of their own", cite="Davani et al. 2022"
)
class AnnotatorHeads(AnnotatorObjective):
    """A head per annotator."""

    predicts_votes = True
    shared: bool = param(True, "heads are a common one and each annotator's difference; False: each its own, as Davani")
    average: Average = param("mean", "over annotators: of their distributions, or of their most probable classes")
    penalty: float = param(2.0, "L2 penalty on the weights of annotators and on the common ones", low=0)

    def head(self, branch: Branch, width: int) -> LinearHeads:
        return LinearHeads(branch(), width, self)

    def loss(self, head: Any, z: Tensor, targets: Batch) -> Tensor:
        items, who = head.branch(z), targets["annotator"]
        v = items.index_select(0, targets["row"])
        loss = -label_log_likelihood(log_softmax(head.pair_logits(v, head.fitted_rows(who))), targets)
        if self.penalty > 0:
            own = head.table(who).square().sum(dim=1) / head.labels.index_select(0, who)
            loss = loss + self.penalty / 2 * (own + head.shared_penalty() / head.labels.sum())
        total = weighted_sum(loss, targets)
        if "gold" in targets:
            average = head.rows_or_average(torch.full((1,), -1, device=z.device), head.labels)
            average = average.detach()  # else every row gets a gradient
            total = total + hard_loss(head.all_pair_logits(items, average)[:, 0], targets["gold"])
        return total

    def item_vectors(self, head: Any, z: Tensor) -> Tensor:
        out: Tensor = head.branch(z)
        return out

    def logits(self, head: Any, z: Tensor) -> Tensor:
        out: Tensor = head.mean_label_proba(head.branch(z), self.average)
        return out.clamp(min=MIN_SHARE).log()

    def pair_label_proba(
        self, head: Any, z: Tensor, row: Tensor, annotators: Tensor, features: Tensor | None = None
    ) -> Tensor:
        """Return P_j(label | x) (n, K) of pairs; the mean over all annotators for −1 without known features."""
        v = head.branch(z)
        found = log_softmax(
            head.pair_logits(v.index_select(0, row), head.rows_or_average(annotators, head.labels, features))
        ).exp()
        stranger = head.find_unseen(annotators, head.labels, features)
        if not stranger.any():
            return found
        return torch.where(stranger[:, None], head.mean_label_proba(v, "mean")[row], found)
