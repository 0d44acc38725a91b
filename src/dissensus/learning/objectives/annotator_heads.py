"""Heads per annotator, in which a last layer for each annotator predicts the annotator's label (Davani et al. 2022).

    P_j(· | x) = softmax((W_0 + W_j) v + b_0 + b_j)        v: shared output of the encoder after a branch
    loss_i = Σ_{annotations (j, y, w) of i} w · [ −log P_j(y | x_i) + penalty/2 · ((|W_j|² + |b_j|²)/n_j + |W_0|²/n) ]

This is the multi-task model of Davani et al. 2022, with one head per annotator and a loss over the given labels. W_0
and b_0 are a common head. As in the paper, `shared=False` drops the common head; annotators with few labels then have
poor heads. n_j is the weight of j's labels and n is the weight of all labels. A pass over the table therefore adds
penalty/2 times each square once, independent of the batches, and the heads of annotators with few labels stay near the
common head. If all W_j are 0 and vectors are constant, this is logistic regression on [x, one-hot annotator].

The prediction for an item is the mean of P_j over all annotators with labels. With `average="mode"`, it is the share of
annotators for whom a class is the most probable one, which is the paper's majority vote of heads. An unknown annotator
is treated as a random annotator, whose distribution is the mean of P_j. A gold label is treated as the label of an
annotator with mean parameters (weighted by labels), and trains only the shared layers.
"""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from dissensus.common.parameters import param
from dissensus.learning.batches import Batch
from dissensus.learning.losses import hard_loss, label_log_likelihood, log_softmax, weighted_sum
from dissensus.learning.objectives.base import AnnotatorObjective, AnnotatorVectors, Branch, as_tensor, objectives
from dissensus.learning.rows import RowEmbedding

AnnotatorAverage = Literal["mean", "mode"]
MAX_LOGITS_AT_ONCE = 2**22  # maximum items × annotators × K that are computed at once
MIN_SHARE = 1e-30  # minimum share, so that its logarithm is finite


class LinearHeads(AnnotatorVectors):
    """Linear layer per annotator, with W_j and b_j in rows (A, K · (D + 1))."""

    labels: Tensor  # (A,) total weight of each annotator's labels

    def __init__(self, branch: nn.Module, width: int, objective: AnnotatorHeads):
        super().__init__()
        self.branch, self.n_classes = branch, objective.n_classes_
        self.common = nn.Linear(width, self.n_classes) if objective.shared else None
        size = (len(objective.label_totals_), self.n_classes * (width + 1))
        bound = 0.0 if objective.shared else width**-0.5  # default of nn.Linear
        self.table = RowEmbedding(torch.empty(size).uniform_(-bound, bound))
        self.add_features(None, size[1])
        self.register_buffer("labels", as_tensor(objective.label_totals_), persistent=False)

    def shared_penalty(self) -> Tensor | float:
        """Return |W_0|²."""
        return 0.0 if self.common is None else self.common.weight.square().sum()

    def _combined_layers(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Return weights (n, K, D) and biases (n, K), with the common layer added."""
        both = rows.reshape(len(rows), self.n_classes, -1)
        weight, bias = both[..., :-1], both[..., -1]
        return (weight, bias) if self.common is None else (weight + self.common.weight, bias + self.common.bias)

    def pair_logits(self, v: Tensor, rows: Tensor) -> Tensor:
        """Return logits (n, K) of n pairs with vectors v (n, D) and annotators' rows (n, E)."""
        weight, bias = self._combined_layers(rows)
        out: Tensor = (weight * v.unsqueeze(1)).sum(dim=2) + bias
        return out

    def all_pair_logits(self, v: Tensor, rows: Tensor) -> Tensor:
        """Return logits (B, J, K) of all pairs of vectors v (B, D) and annotators' rows (J, E)."""
        weight, bias = self._combined_layers(rows)
        return torch.einsum("bd,jkd->bjk", v, weight) + bias

    def mean_label_proba(self, v: Tensor, average: AnnotatorAverage) -> Tensor:
        """Return the mean distribution (B, K) of annotators with labels, or the shares of their classes."""
        codes = torch.nonzero(self.labels)[:, 0]
        total = torch.zeros((), device=v.device)
        for chunk in torch.split(codes, max(MAX_LOGITS_AT_ONCE // max(v.numel(), 1), 1)):
            proba = log_softmax(self.all_pair_logits(v, self.rows_or_average(chunk, self.labels))).exp()  # (B, J, K)
            if average == "mode":
                proba = functional.one_hot(proba.argmax(dim=2), proba.shape[2]).to(proba.dtype)
            total = total + proba.sum(dim=1)
        return total / len(codes)


@objectives.register(
    "annotator-heads",
    summary="the label of each annotator, through a last layer per annotator",
    cite="Davani et al. 2022",
)
class AnnotatorHeads(AnnotatorObjective):
    """A last layer per annotator."""

    predicts_votes = True
    shared: bool = param(
        True,
        "add a common head to the head of each annotator; False: no common head, as Davani et al.",
    )
    average: AnnotatorAverage = param(
        "mean", "over annotators: of their distributions, or of their most probable classes"
    )
    penalty: float = param(2.0, "L2 penalty on the weights of annotators and on the common weights", low=0)

    def head(self, branch: Branch, width: int) -> LinearHeads:
        return LinearHeads(branch(), width, self)

    def loss(self, head: Any, z: Tensor, targets: Batch) -> Tensor:
        items, codes = head.branch(z), targets["annotator"]
        v = items.index_select(0, targets["row"])
        loss = -label_log_likelihood(log_softmax(head.pair_logits(v, head.fitted_rows(codes))), targets)
        if self.penalty > 0:
            own = head.table(codes).square().sum(dim=1) / head.labels.index_select(0, codes)
            loss = loss + self.penalty / 2 * (own + head.shared_penalty() / head.labels.sum())
        total = weighted_sum(loss, targets)
        if "gold" in targets:
            average = head.rows_or_average(torch.full((1,), -1, device=z.device), head.labels)
            average = average.detach()  # Gold labels do not train the annotators' rows.
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
        """Return P_j(label | x) (n, K) of pairs; an unknown annotator without features gets the mean."""
        v = head.branch(z)
        found = log_softmax(
            head.pair_logits(v.index_select(0, row), head.rows_or_average(annotators, head.labels, features))
        ).exp()
        unseen = head.find_unseen(annotators, head.labels, features)
        if not unseen.any():
            return found
        return torch.where(unseen[:, None], head.mean_label_proba(v, "mean")[row], found)
