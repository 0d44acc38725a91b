"""Crowd layer, with a small layer per annotator after the softmax p(x) that predicts the annotator's label.

    scores of annotator j:   matrix W_j p      vector w_j ∘ p      bias p + b_j      …-bias W_j p + b_j, w_j ∘ p + b_j
    loss_i = −Σ_{annotations (j, y, v) of i} v · log P_j(y | x_i)  [ − log p(gold_i | x_i) if gold is given ]

See Rodrigues & Pereira 2018, section 4. The loss is over the given labels only, and p(x) alone predicts new items.

`link` maps scores s to P_j:
- `normalize`: P_j = s / Σ s. All entries are positive by construction. The columns of W_j [given label, true class] are
  softmaxes of parameters θ_j, so that W_j is a confusion matrix and P_j = W_j p; w_j = exp θ_j and b_j = exp β_j. The
  initial θ_j is `start` times the identity, with which an annotator is right with probability
  η = e^start / (e^start + K − 1).
- `softmax`: P_j = softmax(s). As in the paper, the softmax is in the loss and not in the layer. The initial W_j is
  `start` times the identity, w_j is `start`, and b_j is 0. As p ≤ 1, the initial P_j is almost uniform. If W_j is the
  identity, a certain class gives its label the probability e/(e + K − 1), which is 0.28 for 8 classes.
- `softmax-twice`: P_j = softmax(softmax(s)). One softmax is in the layer and one in the loss, so P_j is even flatter.

`volume` (GeoCrowdNet, Ibrahim et al. 2023) is a penalty on classes, or annotators, that become similar. Per batch of B
items, the loss increases by

    − B · volume_weight · log det(Σ_i p_i p_iᵀ)  "classes" (F)        … log det(Σ_j W_jᵀ W_j)  "annotators" (W)

where j are the annotators of the batch (in the paper, all annotators).

The layer is a plain module with dense gradients that computes only the annotations of a batch. The trainer uses
row-sparse gradients (`rows.use_row_sparse`), so that the time of a step does not depend on the number of annotators.

An annotator who is unknown or has no labels gets the mean parameters of all annotators, weighted by labels.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from dissensus.common.parameters import param
from dissensus.learning.batches import Batch
from dissensus.learning.exceptions import VolumeWithoutMatrices
from dissensus.learning.losses import hard_loss, label_log_likelihood, log_softmax, weighted_sum
from dissensus.learning.objectives.base import AnnotatorObjective, Branch, MultiPartHead, objectives
from dissensus.learning.rows import RowEmbedding, take_rows_or_mean

Kind = Literal["matrix", "vector", "bias", "vector-bias", "matrix-bias"]
Link = Literal["normalize", "softmax", "softmax-twice"]
Volume = Literal["classes", "annotators"]

INITIAL_ACCURACY = 0.8  # initial η of every annotator, unless `start` is given
ROW_LEARNING_RATE = 1e-2  # learning rate of annotators' rows; 1e-3 is two points less accurate on LabelMe
VOLUME_DIAGONAL_OFFSET = (
    1e-6  # added to the diagonal, so that the volume is positive for fewer items or annotators than classes
)


class CrowdLayer(nn.Module):
    """Layer from log P(class) of items to log P(label) of annotations, with keywords of `CrowdLayerObjective`."""

    def __init__(
        self,
        n_annotators: int,
        n_classes: int,
        kind: Kind = "matrix",
        link: Link = "normalize",
        trainable: bool = True,
        start: float | None = None,
    ):
        super().__init__()
        CrowdLayerObjective(kind=kind, link=link, trainable=trainable, start=start).check_parameters()
        self.n_classes, self.matrix, self.link = n_classes, kind.startswith("matrix"), link
        first = torch.eye(n_classes).reshape(1, -1) if self.matrix else torch.ones(1, n_classes)
        bias = torch.zeros(1, n_classes)
        if link == "normalize":
            others = max(n_classes - 1, 1)
            if start is None:  # With this value, a softmax gives the right label the probability η.
                start = math.log(INITIAL_ACCURACY / (1 - INITIAL_ACCURACY) * others)
            bias += math.log(others / n_classes) - start  # A bias alone gives P = η p + (1 − η) / K.
        tables = {"weight": (1.0 if start is None else start) * first, "bias": bias}
        self.tables = nn.ModuleDict()  # DDP supports row-sparse gradients of embeddings only.
        for name in {"bias": ["bias"], "vector": ["weight"], "matrix": ["weight"]}.get(kind, ["weight", "bias"]):
            self.tables[name] = RowEmbedding(tables[name].repeat(n_annotators, 1)).requires_grad_(trainable)

    @property
    def weight(self) -> nn.Parameter | None:
        """W, or θ under `normalize`, as (A, K·K) [given label, true class] or (A, K); None if there is only a bias."""
        return self._get_rows("weight")

    @property
    def bias(self) -> nn.Parameter | None:
        """Biases b, or β under `normalize`, as (A, K); None if there are no biases."""
        return self._get_rows("bias")

    def _get_rows(self, name: str) -> nn.Parameter | None:
        return self.tables[name].weight if name in self.tables else None  # type: ignore[return-value]

    def forward(self, log_p: Tensor, row: Tensor, annotator: Tensor) -> Tensor:
        """Return log P(label) (n, K) of each `annotator` (n,) for the item in row `row` (n,) of log_p (B, K)."""
        weight, bias = (self.tables[name](annotator) if name in self.tables else None for name in ("weight", "bias"))
        return self.label_log_proba(log_p.index_select(0, row), weight, bias)

    def label_log_proba(self, log_p: Tensor, weight: Tensor | None, bias: Tensor | None) -> Tensor:
        """Return log P(label) (n, K), given log_p (n, K) and rows of both tables, n each or a single one."""
        if self.link == "normalize":
            log_scores = log_p
            if weight is not None and self.matrix:
                log_scores = torch.logsumexp(self.log_confusion(weight) + log_p.unsqueeze(1), dim=2)
            elif weight is not None:
                log_scores = weight + log_p
            return functional.log_softmax(log_scores if bias is None else torch.logaddexp(log_scores, bias), dim=1)
        scores = log_p.exp()
        if weight is not None and self.matrix:  # Autocast would compute a matmul in half precision.
            scores = (weight.reshape(-1, self.n_classes, self.n_classes) * scores.unsqueeze(1)).sum(dim=2)
        elif weight is not None:
            scores = weight * scores
        if bias is not None:
            scores = scores + bias
        return functional.log_softmax(scores.softmax(dim=1) if self.link == "softmax-twice" else scores, dim=1)

    def log_confusion(self, weight: Tensor) -> Tensor:
        """Return log W (n, K, K) [given label, true class] under `normalize`, given rows of θ (n, K·K)."""
        return functional.log_softmax(weight.reshape(-1, self.n_classes, self.n_classes), dim=1)

    def rows_or_average(self, annotators: Tensor, totals: Tensor) -> tuple[Tensor | None, Tensor | None]:
        """Return rows of both tables for codes (J,), with mean rows for unknown annotators and those without labels."""
        weight, bias = (
            None if table is None else take_rows_or_mean(table, annotators, totals)
            for table in (self.weight, self.bias)
        )
        return weight, bias


def log_volume(parts: Tensor) -> Tensor:
    """Return log det(Σ_n M_nᵀ M_n) of matrices M (n, …, K)."""
    flat = parts.reshape(-1, parts.shape[-1])
    gram = (flat.unsqueeze(2) * flat.unsqueeze(1)).sum(dim=0)  # Autocast would compute a matmul in half precision.
    if gram.device.type != "mps":  # "mps" lacks float64, which small volumes of similar classes need.
        gram = gram.double()
    return torch.logdet(gram + VOLUME_DIAGONAL_OFFSET * torch.eye(len(gram), device=gram.device)).to(parts.dtype)


class LabelsThroughClasses(AnnotatorObjective):
    """Base class for objectives that predict labels through P(class).

    The loss is −Σ v log P_j(y) − Σ log p(gold) + regulariser.
    """

    monitor = "accuracy"  # The cross entropy to noisy votes grows while the network learns the classes.
    row_learning_rate = ROW_LEARNING_RATE  # Annotators must be estimated before the network memorises labels.

    @abstractmethod
    def log_label_proba(self, head: Any, v: Tensor, log_p: Tensor, targets: Batch) -> Tensor:
        """Return log P_j (n, K) of annotations, given the last layer's input v (B, D) and log_p (B, K)."""

    def regularise(self, head: Any, log_p: Tensor, targets: Batch) -> Tensor | None:
        """Return a penalty that is added to the mean loss per item, or None."""
        return None

    def encode_items(self, head: Any, z: Tensor) -> tuple[Tensor, Tensor]:
        """Return the last layer's input v (B, D) and log p (B, K)."""
        v = self.item_vectors(head, z)
        return v, log_softmax(head.main[-1](v))

    def loss(self, head: Any, z: Tensor, targets: Batch) -> Tensor:
        v, log_p = self.encode_items(head, z)
        loss = -weighted_sum(label_log_likelihood(self.log_label_proba(head, v, log_p, targets), targets), targets)
        if "gold" in targets:
            loss = loss + hard_loss(log_p, targets["gold"])
        more = self.regularise(head, log_p, targets)
        return loss if more is None else loss + len(z) * more


@objectives.register(
    "crowd-layer", summary="a layer per annotator predicts the annotator's labels", cite="Rodrigues & Pereira 2018"
)
class CrowdLayerObjective(LabelsThroughClasses):
    """Labels predicted by one layer per annotator over P(class)."""

    kind: Kind = param("matrix", "parameters of an annotator")
    link: Link = param("normalize", 'how scores are converted to probabilities of labels; the paper uses "softmax"')
    trainable: bool = param(True, "False: all annotators keep the same initial parameters")
    start: float | None = param(
        None,
        "multiple of the identity that is the initial matrix; None: 1, or under `normalize` an accuracy of 80 %",
        above=0,
    )
    volume: Volume | None = param(
        None, "penalise classes or annotators that become similar (Ibrahim et al. 2023); annotators must have matrices"
    )
    volume_weight: float = param(
        0.1, "weight of the volume in the mean loss per item; p(x) collapses if it is too large", low=0
    )

    def check_parameters(self) -> None:
        """Check the keywords, and that annotators have matrices if `volume` is "annotators"."""
        super().check_parameters()
        if self.volume == "annotators" and (self.link != "normalize" or not self.kind.startswith("matrix")):
            raise VolumeWithoutMatrices(kind=self.kind, link=self.link)

    def head(self, branch: Branch, width: int) -> MultiPartHead:
        """Return the head; layers of the classes are initialised first, so that their initial weights are as usual."""
        main = super().head(branch, width)
        A, K = len(self.label_totals_), self.n_classes_
        return MultiPartHead(main, crowd=CrowdLayer(A, K, self.kind, self.link, self.trainable, self.start))

    @property
    def row_learning_rate(self) -> float:  # type: ignore[override]  # The rate depends on a keyword.
        """Learning rate of annotators' rows, which under a softmax is that of the other layers, as in the paper."""
        return ROW_LEARNING_RATE if self.link == "normalize" else 1e-3

    def log_label_proba(self, head: Any, v: Tensor, log_p: Tensor, targets: Batch) -> Tensor:
        out: Tensor = head.crowd(log_p, targets["row"], targets["annotator"])
        return out

    def regularise(self, head: Any, log_p: Tensor, targets: Batch) -> Tensor | None:
        if self.volume is None:
            return None
        parts = log_p
        if self.volume == "annotators":
            parts = head.crowd.log_confusion(head.crowd.tables["weight"](torch.unique(targets["annotator"])))
        return -self.volume_weight * log_volume(parts.exp())

    def pair_label_proba(
        self, head: Any, z: Tensor, row: Tensor, annotators: Tensor, features: Tensor | None = None
    ) -> Tensor:
        """Return P_j(label | x) (n, K) of pairs; code −1 is the average annotator."""
        (_, log_p), layer = self.encode_items(head, z), head.crowd
        log_proba: Tensor = layer.label_log_proba(
            log_p.index_select(0, row), *layer.rows_or_average(annotators, self.label_totals(log_p.device))
        )
        return log_proba.exp()
