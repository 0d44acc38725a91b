"""annot-mix, which trains on mixtures of two annotations with their items and annotators (Herde et al. 2024).

    P(· | x, a) = Σ_c p_c(x) C(x, a)[c, ·]        C(x, a) = softmax by rows of f([v(x), e(a)])
    x̃ = λ x + (1 − λ) x'     ã = λ a + (1 − λ) a'     ỹ = λ y + (1 − λ) y'     λ ~ Beta(α, α), α: `annotation_mixup`
    loss = −Σ_{annotations} Σ_k ỹ_k log P(k | x̃, ã)

In the paper, p is the classifier, C is the annotator model, and the third line extends mixup to annotators. The partner
of each annotation is another annotation of the same batch. a is one-hot and e is linear, so e(ã) is a mixture of two
vectors. v is linear in the input of p's last layer, to which C passes no gradient. f has dropout and one hidden layer.
Its last bias is log(η (K − 1) / (1 − η)) on the diagonal, so that all annotators are initially right with probability
η. Without mixtures (`annotation_mixup=None`), this is a crowd layer whose matrices depend on the item and share f.

The gold label of an annotated item trains p(x̃) once per annotation of the item; these losses have a total weight of
one. `CrowdClassifier` trains on mixtures. The method `loss`, for training loops of users, does not use mixtures. If
features r_j of annotators are given, e_j = u_j + W r_j. Predictions are p(x). An annotator who is unseen or has no
labels gets the mean of all e, weighted by labels.

On LabelMe, 81.3 % of the test items are predicted correctly, compared with 82.5 % for `crowd-layer`
(`benchmarks/learning/README.md`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self

import torch
from torch import Tensor, nn
from torch.nn import functional

from dissensus.common.parameters import param
from dissensus.common.types import IntArray
from dissensus.learning.batches import Batch
from dissensus.learning.exceptions import DoubleMixup
from dissensus.learning.losses import label_log_likelihood, log_softmax, weighted_sum
from dissensus.learning.network import BatchMixture, Network, TrainingData
from dissensus.learning.objectives.base import AnnotatorVectors, Branch, objectives
from dissensus.learning.objectives.crowd_layer import LabelsThroughClasses
from dissensus.learning.rows import RowEmbedding
from dissensus.table.annotations import Annotations

if TYPE_CHECKING:
    from dissensus.learning.run import TrainingRun

INITIAL_SPREAD = 0.1  # initial standard deviation of annotators' vectors


class AnnotMixHead(AnnotatorVectors):
    """Head in which `main` predicts the class, and `item`, `table` and `mixed` give the confusion matrix of a pair."""

    def __init__(self, main: nn.Module, width: int, objective: AnnotMix):
        super().__init__()
        size, K = objective.size, objective.n_classes_
        self.main, self.n_classes = main, K
        self.item = nn.Linear(width, size)
        self.table = RowEmbedding(torch.randn(len(objective.label_totals_), size) * INITIAL_SPREAD)
        self.add_features(objective.annotator_features_, size)
        last = nn.Linear(size, K * K)
        eta = objective.first_accuracy
        with torch.no_grad():
            last.bias.copy_(math.log(eta * max(K - 1, 1) / (1 - eta)) * torch.eye(K).flatten())
        self.mixed = nn.Sequential(nn.Dropout(objective.dropout), nn.Linear(2 * size, size), nn.ReLU(), last)

    def forward(self, z: Tensor) -> Tensor:
        """Return the logits (B, K) of the classes."""
        out: Tensor = self.main(z)
        return out

    def log_label_proba(self, v: Tensor, log_p: Tensor, e: Tensor) -> Tensor:
        """Return log P(label) (n, K) of pairs, given v (n, D) and log_p (n, K) of items and e (n, size)."""
        K = self.n_classes
        confusion = self.mixed(torch.cat([self.item(v.detach()), e], dim=1)).reshape(-1, K, K)  # [true, given]
        return torch.logsumexp(log_p.unsqueeze(2) + log_softmax(confusion), dim=1)


@objectives.register(
    "annot-mix", summary="each annotator's labels, trained on mixtures of annotations", cite="Herde et al. 2024"
)
class AnnotMix(LabelsThroughClasses):
    """Confusion matrices per item and annotator, trained with mixup of annotations."""

    uses_annotator_features = True

    annotation_mixup: float | None = param(1.0, "α of the mixtures; None: no mixtures", above=0)
    first_accuracy: float = param(0.9, "η, the initial probability that an annotator is right", above=0, below=1)
    size: int = param(32, "length of the vectors of items and annotators", low=1)
    dropout: float = param(0.5, "dropout of the vectors of items and annotators", low=0, below=1)

    def fit(self, table: Annotations, gold: IntArray | None, seed: int) -> Self:
        """Count the labels; items without annotations are not used for training, because annotations are mixed."""
        self.train_mask_ = self.count_labels(table, gold, "annot-mix") > 0
        return self

    def adapt_run(self, run: TrainingRun) -> TrainingRun:
        """Return the run with mixtures of annotations as training data."""
        if self.annotation_mixup is None:
            return run
        if run.data.mixup is not None:
            raise DoubleMixup(mixup=run.data.mixup)
        network = MixingNetwork(run.network.encoder, run.network.head, self, mixes_inputs=run.network.mixes_inputs)
        data = AnnotationData(run.data.inputs, run.data.targets, alpha=self.annotation_mixup)
        return replace(run, network=network, data=data)

    def head(self, branch: Branch, width: int) -> Any:
        """Return the head; layers of the classes are initialised first, so that their initial weights are as usual."""
        return AnnotMixHead(super().head(branch, width), width, self)

    def log_label_proba(self, head: Any, v: Tensor, log_p: Tensor, targets: Batch) -> Tensor:
        """Return log P(label) (n, K) of annotations."""
        v, log_p = (values.index_select(0, targets["row"]) for values in (v, log_p))
        out: Tensor = head.log_label_proba(v, log_p, head.fitted_rows(targets["annotator"]))
        return out

    def mixed_loss(self, head: Any, z: Tensor, targets: Batch, weight: Tensor, partner: Tensor) -> Tensor:
        """Return the weighted sum of −λ log P(y | x̃, ã) − (1 − λ) log P(y' | x̃, ã), and that for gold labels."""
        e = head.fitted_rows(targets["annotator"])
        v, log_p = self.encode_items(head, z)
        log_label = head.log_label_proba(v, log_p, weight[:, None] * e + (1 - weight[:, None]) * e[partner])
        rows: Batch = {name: targets[name] for name in ("label", "proba", "weight") if name in targets}
        partners = {name: value[partner] for name, value in rows.items()}
        loss = torch.zeros((), device=z.device)
        for share, part in ((weight, rows), (1 - weight, partners)):
            loss = loss - weighted_sum(share * label_log_likelihood(log_label, part), part)
        if "gold" in targets:
            row = targets["row"]
            gold = targets["gold"].index_select(0, row)  # (n,) gold class of each annotation's item
            labels = torch.bincount(row, minlength=len(targets["gold"])).index_select(0, row)
            for share, classes, times in ((weight, gold, labels), (1 - weight, gold[partner], labels[partner])):
                each = functional.nll_loss(log_p, classes, ignore_index=-1, reduction="none")
                loss = loss + (share * each / times).sum()
        return loss

    def pair_label_proba(
        self, head: Any, z: Tensor, row: Tensor, annotators: Tensor, features: Tensor | None = None
    ) -> Tensor:
        """Return P(label | x, annotator) (n, K) of pairs; code −1 is the average annotator, or has `features`."""
        e = head.rows_or_average(annotators, self.label_totals(z.device), features)
        log_proba: Tensor = head.log_label_proba(
            *(values.index_select(0, row) for values in self.encode_items(head, z)), e
        )
        return log_proba.exp()


@dataclass(frozen=True)
class AnnotationData(TrainingData):
    """Training data whose batches include λ (n,) and the position of the partner (n,) for each annotation."""

    alpha: float = 1.0

    def take(self, rows: Tensor) -> tuple[Batch, Batch, BatchMixture | None]:
        """Return the arguments of `MixingNetwork.forward` for these items."""
        inputs, targets, _ = super().take(rows)
        n = len(targets["row"])
        weights = torch.distributions.Beta(self.alpha, self.alpha).sample((n,))
        return inputs, targets, (weights.to(rows.device), torch.randperm(n).to(rows.device), {})


class MixingNetwork(Network):
    """Network with one mixed input per annotation."""

    def forward(self, inputs: Batch, targets: Batch, mix: BatchMixture | None = None) -> Tensor:
        """Return the sum of the losses over mixed annotations."""
        if mix is None:
            return super().forward(inputs, targets)
        weight, partner, _ = mix

        def mixed(x: Tensor) -> Tensor:
            x = x.index_select(0, targets["row"])
            share = weight.reshape(-1, *[1] * (x.ndim - 1))
            return share * x + (1 - share) * x[partner]

        if self.mixes_inputs:
            z = self.encoder(**{name: mixed(x) for name, x in inputs.items()})
        else:
            z = mixed(self.encoder(**inputs))
        assert isinstance(self.objective, AnnotMix)
        return self.objective.mixed_loss(self.head, z, targets, weight, partner)
