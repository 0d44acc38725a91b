"""Crowd layer: after the softmax p(x), one small layer per annotator that says what label that annotator would give.

    scores of annotator j:   matrix W_j p      vector w_j ∘ p      bias p + b_j      …-bias W_j p + b_j, w_j ∘ p + b_j
    loss_i = −Σ_{annotations (j, y, v) of i} v · log P_j(y | x_i)  [ − log p(gold_i | x_i) where it is known ]

(Rodrigues & Pereira 2018, section 4; the loss runs over the labels that were given, and over nothing else.) W_j [given,
true] starts at the identity, w_j at one, b_j at zero. Afterwards the layer is left aside and p(x) predicts.

How scores s become P_j, `link`:
- `softmax`: softmax(s). The paper's: no softmax in the layer, one in the loss. As p ≤ 1, P_j starts far from sharp: at
  the identity, certainty about the class is e/(e + K − 1) about the label, 0.28 with 8 classes. W_j has to grow first.
- `normalize`: s / Σ s, with W_j and b_j not negative; the columns of W_j are then confusions up to scale, and the
  identity says that the annotator is always right. The default: p(x) is a probability to work with (log loss against
  gold of new items on digits-crowd, labelme and sentiment_polarity: 0.16, 0.71, 0.73; of `softmax` 0.26, 2.21, 1.33).
- `softmax-twice`: softmax(softmax(s)): a softmax in the layer and another in the loss. Even flatter.

Only the annotations of a batch are computed, and the gradients of W, w, b hold only the rows of their annotators, which
are marked `row_sparse` for `rows.RowAdam`: a step costs the same for sixty annotators as for a hundred thousand.

An annotator who was not there, or had no labels, has the mean parameters of all, weighted by their labels.
"""

from __future__ import annotations

import math
from typing import Any, Literal, Self

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from dissensus.common.parameters import param
from dissensus.common.types import FloatArray, IntArray
from dissensus.learning.batches import Batch, Columns
from dissensus.learning.losses import label_log_likelihood, log_softmax, weighted_sum
from dissensus.learning.objectives.base import AnnotatorObjective, Branch, HeadWithMain, objectives
from dissensus.learning.objectives.labels import annotation_rows
from dissensus.learning.rows import RowEmbedding, rows_or_mean, touched_rows
from dissensus.table.annotations import Annotations

Kind = Literal["matrix", "vector", "bias", "vector-bias", "matrix-bias"]
Link = Literal["softmax", "normalize", "softmax-twice"]

MIN_ENTRY = 1e-6  # of W_j and b_j under `normalize`: a label thought impossible costs 14 nats, not infinity
TINY = 1e-30  # stands for 0 in logarithms, 69 nats; processors are slow with numbers that float32 hardly holds


class CrowdLayer(nn.Module):
    """log P(class) of items → log P(label) of annotations; keywords as in `CrowdLayerObjective`."""

    def __init__(
        self,
        n_annotators: int,
        n_classes: int,
        kind: Kind = "matrix",
        link: Link = "normalize",
        trainable: bool = True,
        start: float = 1.0,
    ):
        super().__init__()
        CrowdLayerObjective(kind=kind, link=link, trainable=trainable, start=start).check_parameters()
        self.n_classes, self.matrix, self.link = n_classes, kind.startswith("matrix"), link
        first = torch.eye(n_classes).reshape(1, -1) if self.matrix else torch.ones(1, n_classes)
        tables = {"weight": start * first, "bias": torch.zeros(1, n_classes)}
        self.tables = nn.ModuleDict()  # embeddings, because DDP takes no other layer's gradients to be of few rows
        for name in {"bias": ["bias"], "vector": ["weight"], "matrix": ["weight"]}.get(kind, ["weight", "bias"]):
            self.tables[name] = RowEmbedding(tables[name].repeat(n_annotators, 1)).requires_grad_(trainable)

    @property
    def weight(self) -> nn.Parameter | None:
        """(A, K·K) [given, true], or (A, K); None where there is only a bias."""
        return self._table("weight")

    @property
    def bias(self) -> nn.Parameter | None:
        """(A, K), or None."""
        return self._table("bias")

    def _table(self, name: str) -> nn.Parameter | None:
        return self.tables[name].weight if name in self.tables else None  # type: ignore[return-value]

    def forward(self, log_p: Tensor, row: Tensor, annotator: Tensor) -> Tensor:
        """(n, K) log P(label) of n annotations: by `annotator` (n,), of the item in row `row` (n,) of log_p (B, K)."""
        weight, bias = (self.tables[name](annotator) if name in self.tables else None for name in ("weight", "bias"))
        return self.given(log_p.index_select(0, row), weight, bias)

    def given(self, log_p: Tensor, weight: Tensor | None, bias: Tensor | None) -> Tensor:
        """(n, K) log P(label) by log_p (n, K) and rows of the two tables, (n, …) each; 1 in place of n is spread."""
        if weight is None:
            assert bias is not None
            weight = torch.ones_like(bias)
        if self.matrix:
            w, log_p = weight.reshape(-1, self.n_classes, self.n_classes), log_p.unsqueeze(1)  # (n, K, K), (n, 1, K)
        else:
            w, log_p = weight.unsqueeze(2), log_p.unsqueeze(2)  # (n, K, 1) both
        if self.link == "normalize":
            if bias is not None:  # one more column, of something that is always there
                w = torch.cat([w, bias.unsqueeze(2)], dim=2)
                log_p = functional.pad(log_p, (0, 1))
            return functional.log_softmax(log_mix(w, log_p), dim=1)
        scores = (w * log_p.exp()).sum(dim=2)  # (n, K); no matmul, which autocast would do in half precision
        if bias is not None:
            scores = scores + bias
        return functional.log_softmax(scores.softmax(dim=1) if self.link == "softmax-twice" else scores, dim=1)

    @torch.no_grad()
    def after_step(self) -> None:
        """Clip the rows that the last step moved to what `link` allows; called before gradients are cleared."""
        for weights in self.parameters():
            if self.link == "normalize" and weights.grad is not None:
                rows, _ = touched_rows(weights)
                weights.index_copy_(0, rows, weights.index_select(0, rows).clamp_(min=MIN_ENTRY))

    def rows_of(self, annotators: Tensor, totals: Tensor) -> tuple[Tensor | None, Tensor | None]:
        """Rows of the two tables for these codes (J,); −1, and who has no labels by `totals` (A,), gets the mean."""
        weight, bias = (
            None if table is None else rows_or_mean(table, annotators, totals) for table in (self.weight, self.bias)
        )
        return weight, bias


def log_mix(w: Tensor, log_p: Tensor) -> Tensor:
    """Log Σ_k w_k p_k over the last axis, w ≥ 0.

    Value and gradients are those of the formula also where p is below what a float holds and where w is 0: an item that
    the network is sure about in the wrong way still teaches it, and the zeros of the identity can grow. ∂/∂w = p/Σ is
    kept at 1/MIN_ENTRY at most.
    """
    mix = torch.logsumexp(log_p + w.detach().clamp(min=TINY).log(), dim=-1)  # ∂/∂log p = w p/Σ
    slope = (log_p - mix.unsqueeze(-1).clamp(min=math.log(MIN_ENTRY))).exp().detach()
    through = (w * slope).sum(dim=-1)
    return mix + (through - through.detach())  # adds zero, and the gradient for w


@objectives.register(
    "crowd-layer", summary="the labels of every annotator, by a layer of its own", cite="Rodrigues & Pereira 2018"
)
class CrowdLayerObjective(AnnotatorObjective):
    """Learning from the labels as they were given."""

    monitor = "accuracy"  # cross entropy to noisy votes grows as the network sees through them

    kind: Kind = param("matrix", "what an annotator has")
    link: Link = param("normalize", "how scores become probabilities of labels")
    trainable: bool = param(True, "False: annotators stay as they start, all alike")
    start: float = param(1.0, "W_j starts at so many times the identity, w_j at so many times one", above=0)

    def fit(self, table: Annotations, gold: IntArray | None, seed: int) -> Self:
        """Count the labels of every annotator; the labels themselves are the targets."""
        self.count_labels(table, gold, "crowd-layer")
        return self

    def targets(self) -> Columns:
        """The rows of the table (`annotator`, `label` or `proba`, `weight`), and `gold` (I,) where any is known."""
        return Columns(annotations=annotation_rows(self._table), **self.known_classes())

    def head(self, branch: Branch, width: int) -> HeadWithMain:
        """The classes first, so that they start as they would alone; then `crowd`, which explains labels by them."""
        main = super().head(branch, width)
        layer = CrowdLayer(len(self.labels_given_), self.n_classes_, **self.get_params(deep=False))
        return HeadWithMain(main, crowd=layer)

    def loss(self, head: Any, z: Tensor, targets: Batch) -> Tensor:
        """−Σ v log P_j(y), of a probabilistic annotation its mean; −Σ log p(gold)."""
        log_p = log_softmax(self.logits(head, z))
        log_label = head.crowd(log_p, targets["row"], targets["annotator"])  # (n, K)
        loss = -weighted_sum(label_log_likelihood(log_label, targets), targets)
        if "gold" in targets:
            loss = loss + functional.nll_loss(log_p, targets["gold"], ignore_index=-1, reduction="sum")
        return loss

    def row_proba(
        self, head: Any, z: Tensor, row: Tensor, annotators: Tensor, features: Tensor | None = None
    ) -> Tensor:
        """(n, K) P_j(label | x) of pairs; −1 is the average annotator."""
        log_p, layer = log_softmax(self.logits(head, z)), head.crowd
        found: Tensor = layer.given(log_p.index_select(0, row), *layer.rows_of(annotators, self.totals(log_p.device)))
        return found.exp()

    @torch.no_grad()
    def confusion(self, head: Any) -> FloatArray:
        """(A, K, K) [annotator, true, given] P(label) of an item whose class is certain."""
        layer, K = head.crowd, self.n_classes_
        device = next(layer.parameters()).device
        tables = layer.rows_of(torch.arange(len(self.labels_given_), device=device), self.totals(device))
        sure = torch.eye(K, device=device).log()  # (K, K) 0 and −∞
        given = torch.stack([layer.given(sure[k : k + 1], *tables) for k in range(K)], dim=1).exp()
        return np.asarray(given.cpu().numpy())
