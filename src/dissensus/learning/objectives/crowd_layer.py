"""Crowd layer: after the softmax p(x), one small layer per annotator that says what label that annotator would give.

    scores of annotator j:   matrix W_j p      vector w_j ∘ p      bias p + b_j      …-bias W_j p + b_j, w_j ∘ p + b_j
    loss_i = −Σ_{annotations (j, y, v) of i} v · log P_j(y | x_i)  [ − log p(gold_i | x_i) where it is known ]

(Rodrigues & Pereira 2018, section 4; the loss runs over the labels that were given, and over nothing else.) W_j [given,
true] starts at the identity, w_j at one, b_j at zero. Afterwards the layer is left aside and p(x) predicts.

How scores s become P_j, `link`:
- `softmax`: softmax(s). The paper's: no softmax in the layer, one in the loss. As p ≤ 1, P_j starts far from sharp: at
  the identity, certainty about the class is e/(e + K − 1) about the label, 0.28 with 8 classes. W_j has to grow first.
- `normalize`: s / Σ s, with W_j and b_j not negative; the columns of W_j are then confusions up to scale, and the
  identity says that the annotator is always right.
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

from dissensus.common.types import FloatArray, IntArray
from dissensus.exceptions import BadParameter, DataError
from dissensus.learning.batches import Batch, Columns
from dissensus.learning.losses import log_softmax
from dissensus.learning.objectives.base import Branch, Objective, as_tensor, objectives
from dissensus.learning.objectives.labels import annotation_rows, vote_weight
from dissensus.learning.rows import touched_rows
from dissensus.table.annotations import Annotations

Kind = Literal["matrix", "vector", "bias", "vector-bias", "matrix-bias"]
Link = Literal["softmax", "normalize", "softmax-twice"]

KINDS = ("matrix", "vector", "bias", "vector-bias", "matrix-bias")
LINKS = ("softmax", "normalize", "softmax-twice")
FLOOR = 1e-6
"""The least that an entry becomes under `normalize`: a label thought impossible costs 14 nats, not infinity."""
NOTHING = 1e-30
"""What stands for 0 in logarithms, 69 nats; not less, as processors are slow with numbers that float32 hardly holds."""


class CrowdLayer(nn.Module):
    """log P(class) of items → log P(label) of annotations.

    Parameters
    ----------
    n_annotators, n_classes : int
    kind, link : str
        See the module.
    trainable : bool
        False: the layer stays as it starts.
    start : float
        W_j starts at so many times the identity, w_j at so many times one.
    """

    def __init__(
        self,
        n_annotators: int,
        n_classes: int,
        kind: Kind = "matrix",
        link: Link = "softmax",
        trainable: bool = True,
        start: float = 1.0,
    ):
        super().__init__()
        if not 0 < start < math.inf:
            raise BadParameter(f"start must be above 0, got {start}.")
        for keyword, value, known in (("kind", kind, KINDS), ("link", link, LINKS)):
            if value not in known:
                raise BadParameter(f"{keyword} must be one of {', '.join(map(repr, known))}, got {value!r}.")
        self.n_classes, self.matrix, self.link = n_classes, kind.startswith("matrix"), link
        first = torch.eye(n_classes).reshape(1, -1) if self.matrix else torch.ones(1, n_classes)
        tables = {"weight": start * first, "bias": torch.zeros(1, n_classes)}
        self.tables = nn.ModuleDict()  # embeddings, because DDP takes no other layer's gradients to be of few rows
        for name in {"bias": ["bias"], "vector": ["weight"], "matrix": ["weight"]}.get(kind, ["weight", "bias"]):
            rows = tables[name].repeat(n_annotators, 1)
            self.tables[name] = nn.Embedding(
                n_annotators, rows.shape[1], sparse=True, _weight=rows, _freeze=not trainable
            )
        self._mark()

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

    def _mark(self) -> None:
        for param in self.parameters():
            param.row_sparse = True  # type: ignore[attr-defined]  # read by whoever makes the optimiser

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)  # type: ignore[no-untyped-call]  # torch's has no types
        self._mark()  # a copy of a parameter has lost it

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
        """Put the rows that the last gradients moved back to where `link` allows them; before those are cleared."""
        for param in self.parameters():
            if self.link == "normalize" and param.grad is not None:
                rows, _ = touched_rows(param)
                param.index_copy_(0, rows, param.index_select(0, rows).clamp_(min=FLOOR))

    def rows_of(self, annotators: Tensor, totals: Tensor) -> tuple[Tensor | None, Tensor | None]:
        """Rows of the two tables for these codes (J,); −1, and who has no labels by `totals` (A,), gets the mean."""
        known = (annotators >= 0) & (totals[annotators] > 0)
        share = (totals / totals.sum()).unsqueeze(1)

        def rows(table: Tensor | None) -> Tensor | None:
            return None if table is None else torch.where(known[:, None], table[annotators], (share * table).sum(dim=0))

        return rows(self.weight), rows(self.bias)


def log_mix(w: Tensor, log_p: Tensor) -> Tensor:
    """Log Σ_k w_k p_k over the last axis, w ≥ 0.

    Value and gradients are those of the formula also where p is below what a float holds and where w is 0: an item that
    the network is sure about in the wrong way still teaches it, and the zeros of the identity can grow. ∂/∂w = p/Σ is
    kept at 1/FLOOR at most.
    """
    mix = torch.logsumexp(log_p + w.detach().clamp(min=NOTHING).log(), dim=-1)  # ∂/∂log p = w p/Σ
    slope = (log_p - mix.unsqueeze(-1).clamp(min=math.log(FLOOR))).exp().detach()
    through = (w * slope).sum(dim=-1)
    return mix + (through - through.detach())  # adds zero, and the gradient for w


class CrowdHead(nn.Module):
    """The head that predicts, and the layer that explains the labels by it."""

    def __init__(self, main: nn.Module, crowd: CrowdLayer):
        super().__init__()
        self.main, self.crowd = main, crowd

    def forward(self, z: Tensor) -> Tensor:
        """(B, K) logits of the classes."""
        out: Tensor = self.main(z)
        return out


@objectives.register(
    "crowd-layer", summary="the labels of every annotator, by a layer of its own", cite="Rodrigues & Pereira 2018"
)
class CrowdLayerObjective(Objective):
    """Learning from the labels as they were given.

    Parameters
    ----------
    kind : "matrix", "vector", "bias", "vector-bias" or "matrix-bias"
        What an annotator has.
    link : "softmax", "normalize" or "softmax-twice"
        How scores become probabilities of labels.
    trainable : bool
        False: annotators stay as they start, all alike.
    start : float
        How many times the identity (or one) an annotator's parameters are at first.
    """

    models_annotators = True
    monitor = "accuracy"  # cross entropy to noisy votes grows as the network sees through them

    def __init__(self, *, kind: Kind = "matrix", link: Link = "softmax", trainable: bool = True, start: float = 1.0):
        self.kind: Kind = kind
        self.link: Link = link
        self.trainable = trainable
        self.start = start

    def fit(self, table: Annotations, gold: IntArray | None, seed: int) -> Self:
        """Count the labels of every annotator; the labels themselves are the targets."""
        CrowdLayer(0, 1, self.kind, self.link, self.trainable, self.start)  # keywords are checked there
        self.n_classes_ = table.n_classes
        voted = vote_weight(table) > 0
        if not voted.any():
            raise DataError(
                "crowd-layer learns from annotations, and there are none; take objective 'hard' for gold alone."
            )
        self.teaches_ = voted if gold is None else voted | (gold >= 0)
        self.labels_given_ = np.bincount(table.annotator, table.weight, table.n_annotators).astype(np.float32)  # (A,)
        self._table, self._gold = table, gold
        return self

    def targets(self) -> Columns:
        """The rows of the table (`annotator`, `label` or `proba`, `weight`), and `gold` (I,) where any is known."""
        known = {} if self._gold is None else {"gold": as_tensor(self._gold, torch.int64)}
        return Columns(annotations=annotation_rows(self._table), **known)

    def head(self, branch: Branch, width: int) -> CrowdHead:
        """The classes first, so that they start as they would alone; then the annotators."""
        main = super().head(branch, width)
        return CrowdHead(
            main, CrowdLayer(len(self.labels_given_), self.n_classes_, self.kind, self.link, self.trainable, self.start)
        )

    def item_vectors(self, head: nn.Module, z: Tensor) -> Tensor:
        """(B, D) that of the head that predicts."""
        assert isinstance(head, CrowdHead)
        return super().item_vectors(head.main, z)

    def loss(self, head: nn.Module, z: Tensor, targets: Batch) -> Tensor:
        """−Σ v log P_j(y), of a probabilistic annotation its mean; −Σ log p(gold)."""
        log_p = log_softmax(self.logits(head, z))
        log_label = _layer(head)(log_p, targets["row"], targets["annotator"])  # (n, K)
        if "proba" in targets:
            fits = torch.where(targets["proba"] > 0, targets["proba"] * log_label, 0).sum(dim=1)
        else:
            fits = log_label.gather(1, targets["label"].unsqueeze(1)).squeeze(1)
        loss = -(fits * targets["weight"] if "weight" in targets else fits).sum()
        if "gold" in targets:
            loss = loss + functional.nll_loss(log_p, targets["gold"], ignore_index=-1, reduction="sum")
        return loss

    def label_proba(self, head: nn.Module, z: Tensor, annotators: Tensor, features: Tensor | None = None) -> Tensor:
        """(B, J, K) P_j(label | x); −1 is the average annotator."""
        log_p, layer = log_softmax(self.logits(head, z)), _layer(head)
        weight, bias = layer.rows_of(annotators, self._totals(log_p.device))
        one_by_one = [
            layer.given(log_p, *(None if table is None else table[j : j + 1] for table in (weight, bias)))
            for j in range(len(annotators))
        ]
        return torch.stack(one_by_one, dim=1).exp()

    def row_proba(
        self, head: nn.Module, z: Tensor, row: Tensor, annotators: Tensor, features: Tensor | None = None
    ) -> Tensor:
        """(n, K) P_j(label | x) of pairs; −1 is the average annotator."""
        log_p, layer = log_softmax(self.logits(head, z)), _layer(head)
        return layer.given(log_p.index_select(0, row), *layer.rows_of(annotators, self._totals(log_p.device))).exp()

    @torch.no_grad()
    def confusion(self, head: nn.Module) -> FloatArray:
        """(A, K, K) [annotator, true, given] what the layer says of an item whose class is certain."""
        layer, K = _layer(head), self.n_classes_
        device = next(layer.parameters()).device
        tables = layer.rows_of(torch.arange(len(self.labels_given_), device=device), self._totals(device))
        sure = torch.eye(K, device=device).log()  # (K, K) 0 and −∞
        given = torch.stack([layer.given(sure[k : k + 1], *tables) for k in range(K)], dim=1).exp()
        return np.asarray(given.cpu().numpy())

    def _totals(self, device: torch.device) -> Tensor:
        return as_tensor(self.labels_given_).to(device)


def _layer(head: nn.Module) -> CrowdLayer:
    layer: CrowdLayer = head.crowd  # type: ignore[assignment]  # a CrowdHead
    return layer
