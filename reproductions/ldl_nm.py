"""LDL-NM (Weerasooriya et al. 2021, section 5): the label, the item's labels and the annotator's, by one network.

For an item with the encoder's output x_i and an annotator a who labelled it y:

    z_I = W_I x_i     z_A = W_A onehot(a)     z_P = φ(W_P φ([z_I, z_A]))     z_E = φ(W_E z_P + z_P)          (Eqs. 6, 7)
    ŷ = softmax(W_y z_E)     ŷ_I = softmax(W_yI z_E)     ŷ_A = softmax(W_yA z_E)                                 (Eq. 8)
    loss = Σ over annotations  −log ŷ[y] + KL(y_I ‖ ŷ_I) + KL(y_A ‖ ŷ_A)                                         (Eq. 9)

y_I are the shares of the labels that the item got, y_A of those that the annotator gave, both in the table of the fit.
φ(v) = v / (1 + |v|), softsign (1/|1 + v| in the paper: a misprint). [ , ] is concatenation or a sum. All matrices but
W_A have a bias, and all start orthogonal. A step has all annotations of its items; a loss is per annotation.

What an item would be labelled is the mean of ŷ_I over the annotators who gave labels, or the share of them whose most
probable class it is (`average="mode"`). Eq. 12 of the paper has another network for this than Eq. 7 (without W_P, and a
sum); a network is to be asked what it was taught, so it is that of Eq. 7, for everybody. W_P φ([z_I, z_A]) is the sum
of what it makes of either, which is why asking everybody costs one small product per pair. No annotation of the item
asked about is read; Algorithm 4, which reads them, is in `reproductions/unknown_annotators.py`.

Who was not there is like everybody, each with the same chance: the mean of ŷ, which foretells labels better than the
ŷ of the mean embedding (`benchmarks/learning/perspectives.py`: by 0.02 to 0.03 nats). Where features r_a of annotators
are given, z_A = u_a + W r_a: u_a is the row of W_A, and who has features but no labels has the mean of u (weighted by
labels) and W r_a.

| symbol | name | shape |
|---|---|---|
| W_A | `LDLNMHead.table` | (A, J_A) |
| y_A | `LDLNMHead.given` | (A, K) |
| z_I, z_A, z_E | z_item, z_annotator, z_pair | (…, J_I), (…, J_A), (…, J_P) |
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, Self

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import dropout, one_hot, softsign

from dissensus.common.parameters import param
from dissensus.common.types import FloatArray, IntArray
from dissensus.exceptions import BadParameter
from dissensus.learning.batches import Batch, Columns
from dissensus.learning.losses import kl, label_log_likelihood, log_softmax, weighted_sum
from dissensus.learning.objectives.base import (
    AnnotatorObjective,
    AnnotatorRows,
    Branch,
    annotation_rows,
    as_tensor,
    objectives,
)
from dissensus.learning.rows import RowEmbedding
from dissensus.table.annotations import Annotations

Combine = Literal["concatenate", "sum"]
Average = Literal["mean", "mode"]
NUMBERS_AT_ONCE = 2**22  # of the pairs of a batch's items and annotators: more do not stay in a cache
MIN_SHARE = 1e-30  # stands for a share of 0 in logarithms


class LDLNMHead(AnnotatorRows):
    """The network after the encoder; `width` is the encoder's."""

    given: Tensor
    labels: Tensor
    who: Tensor
    per_item: Tensor

    def __init__(self, branch: nn.Module, width: int, objective: LDLNMObjective):
        super().__init__()
        item, annotator, pair = objective.sizes()
        labels, K = as_tensor(objective.labels_given_), objective.n_classes_
        self.branch, self.rate = branch, objective.dropout
        self.item = _layer(width, item)
        self.table = RowEmbedding(_orthogonal(len(labels), annotator))
        both = _orthogonal(pair, item if objective.combine == "sum" else item + annotator)  # W_P
        self.of_item = _layer(item, pair, both[:, :item])
        self.of_annotator: nn.Linear | None = None
        if objective.combine == "concatenate":
            self.of_annotator = _layer(annotator, pair, both[:, item:], bias=False)
        self.residual = _layer(pair, pair)
        self.to_label, self.to_item, self.to_annotator = (_layer(pair, K) for _ in range(3))
        self.describe(objective.annotator_features_, annotator)
        given = as_tensor(objective.annotator_shares_, torch.float32)
        self.register_buffer("given", given, persistent=False)
        self.register_buffer("labels", labels, persistent=False)
        self.register_buffer("per_item", torch.tensor(objective.per_item_), persistent=False)
        self.register_buffer("who", torch.nonzero(labels)[:, 0], persistent=False)

    def z_item(self, z: Tensor) -> Tensor:
        """(B, J_I) of the encoder's output."""
        out: Tensor = self.item(self.branch(z))
        return out

    def mean_of_everybody(self, z_item: Tensor, ask: Callable[[Tensor], Tensor]) -> Tensor:
        """(B, …) the mean over all who gave labels of `ask`, which maps z_E of some (B, some, J_P) to (B, some, …)."""
        at_once = max(NUMBERS_AT_ONCE // max(len(z_item) * self.residual.in_features, 1), 1)
        parts = torch.split(self.known_rows(self.who), at_once)
        total: Tensor = sum(ask(self.z_pairs(z_item, some)).sum(dim=1) for some in parts)  # type: ignore[assignment]
        return total / len(self.who)

    def z_pair(self, z_item: Tensor, z_annotator: Tensor, row: Tensor | None = None) -> Tensor:
        """(n, J_P) z_E of pairs: items (n, J_I) or, with `row` (n,), (B, J_I); annotators (n, J_A)."""
        if self.of_annotator is None:
            z_item = z_item if row is None else z_item.index_select(0, row)
            return self._through(self.of_item(softsign(z_item + z_annotator)))
        mine = self.of_item(softsign(z_item))
        mine = mine if row is None else mine.index_select(0, row)
        return self._through(mine + self.of_annotator(softsign(z_annotator)))

    def z_pairs(self, z_item: Tensor, z_annotator: Tensor) -> Tensor:
        """(B, n, J_P) z_E of all pairs of items (B, J_I) and annotators (n, J_A)."""
        if self.of_annotator is None:
            return self._through(self.of_item(softsign(z_item.unsqueeze(1) + z_annotator)))
        return self._through(self.of_item(softsign(z_item)).unsqueeze(1) + self.of_annotator(softsign(z_annotator)))

    def _through(self, z: Tensor) -> Tensor:
        z = dropout(softsign(z), self.rate, self.training)
        return dropout(softsign(self.residual(z) + z), self.rate, self.training)


def _orthogonal(rows: int, columns: int) -> Tensor:
    return nn.init.orthogonal_(torch.empty(rows, columns))


def _layer(inputs: int, outputs: int, start: Tensor | None = None, *, bias: bool = True) -> nn.Linear:
    """W (outputs, inputs), orthogonal unless given; biases are 0."""
    layer = nn.Linear(inputs, outputs, bias=bias, device="meta").to_empty(device="cpu")  # draws nothing
    with torch.no_grad():
        layer.weight.copy_(_orthogonal(outputs, inputs) if start is None else start)
        if bias:
            layer.bias.zero_()
    return layer


@objectives.register(
    "ldl-nm", summary="label, item's and annotator's distribution, by one network", cite="Weerasooriya et al. 2021"
)
class LDLNMObjective(AnnotatorObjective):
    """Label distributions of items and annotators, learnt together with each label.

    Known gold takes the place of an item's votes in y_I. Items without annotations have no annotator to learn about,
    and teach nothing, known or not.
    """

    describes_annotators = True

    item_size: int = param(10, "J_I, from 3 to 20 in the paper", low=1)
    annotator_size: int = param(10, "J_A, from 3 to 20 in the paper", low=1)
    pair_size: int | None = param(None, "J_P; None: J_I + J_A, or J_I where they are summed", low=1)
    combine: Combine = param("concatenate", "how z_I and z_A become one; a sum needs annotator_size = item_size")
    dropout: float = param(0.5, "dropout of z_P and z_E", low=0, below=1)
    average: Average = param("mean", "over annotators: of their distributions, or of their most probable classes")

    def check_parameters(self) -> None:
        """Also check that the sizes fit together."""
        super().check_parameters()
        if self.combine == "sum" and self.item_size != self.annotator_size:
            raise BadParameter(
                f"combine='sum' needs annotator_size = item_size, got {self.annotator_size} and {self.item_size}."
            )

    def sizes(self) -> tuple[int, int, int]:
        """(J_I, J_A, J_P)."""
        joined = self.item_size if self.combine == "sum" else self.item_size + self.annotator_size
        return self.item_size, self.annotator_size, self.pair_size or joined

    def fit(self, table: Annotations, gold: IntArray | None, seed: int) -> Self:
        """Count the shares of labels, by item and by annotator."""
        weight = self.count_labels(table, None, "ldl-nm")
        self.per_item_ = float(weight[self.teaches_].mean())
        self.annotator_shares_ = _shares(table)
        self._votes = table.soft_labels()
        if gold is not None:
            self._votes = np.where((gold >= 0)[:, None], np.eye(table.n_classes)[gold], self._votes)
        return self

    def targets(self) -> Columns:
        """The rows of the table, and `votes` (I, K): y_I."""
        return Columns(annotations=annotation_rows(self._table), votes=as_tensor(self._votes, torch.float32))

    def head(self, branch: Branch, width: int) -> LDLNMHead:
        """Make all layers, orthogonal."""
        return LDLNMHead(branch(), width, self)

    def loss(self, head: LDLNMHead, z: Tensor, targets: Batch) -> Tensor:
        """Eq. 9 over the batch's annotations, divided by the annotations of an item on average."""
        row, annotator = targets["row"], targets["annotator"]
        z_pair = head.z_pair(head.z_item(z), head.known_rows(annotator), row)
        loss = -label_log_likelihood(log_softmax(head.to_label(z_pair)), targets)
        loss = loss + kl(targets["votes"].index_select(0, row), head.to_item(z_pair))
        loss = loss + kl(head.given.index_select(0, annotator), head.to_annotator(z_pair))
        return weighted_sum(loss, targets) / head.per_item

    def item_vectors(self, head: LDLNMHead, z: Tensor) -> Tensor:
        """(B, J_P) the mean of z_E over all annotators who gave labels."""
        return head.mean_of_everybody(head.z_item(z), lambda z_pairs: z_pairs)

    def logits(self, head: LDLNMHead, z: Tensor) -> Tensor:
        """(B, K) log of the mean of ŷ_I over all annotators who gave labels, or of the shares of their classes."""

        def answer(z_pairs: Tensor) -> Tensor:
            said = head.to_item(z_pairs)  # (B, some, K)
            if self.average == "mean":
                return log_softmax(said).exp()
            return one_hot(said.argmax(dim=2), self.n_classes_).float()

        return head.mean_of_everybody(head.z_item(z), answer).clamp(min=MIN_SHARE).log()

    def row_proba(
        self, head: LDLNMHead, z: Tensor, row: Tensor, annotators: Tensor, features: Tensor | None = None
    ) -> Tensor:
        """(n, K) ŷ of pairs; of −1, where nothing is known of them, the mean of everybody's."""
        z_item, z_annotator = head.z_item(z), head.rows_of(annotators, head.labels, features)
        found = log_softmax(head.to_label(head.z_pair(z_item, z_annotator, row))).exp()
        stranger = head.strangers(annotators, head.labels, features)
        if not stranger.any():
            return found
        anybody = head.mean_of_everybody(z_item, lambda z_pairs: log_softmax(head.to_label(z_pairs)).exp())
        return torch.where(stranger[:, None], anybody[row], found)


def label_counts(table: Annotations) -> FloatArray:
    """(A, K) weight of each label that each annotator gave."""
    A, K = table.n_annotators, table.n_classes
    if table.proba is None:
        cell = table.annotator * np.int64(K) + table.label
        return np.bincount(cell, table.weight, A * K).reshape(A, K).astype(np.float64)
    weight = table.row_weights
    return np.stack([np.bincount(table.annotator, weight * table.proba[:, k], A) for k in range(K)], axis=1)


def _shares(table: Annotations) -> FloatArray:
    """(A, K) shares of the labels that each annotator gave; uniform where there are none."""
    count = label_counts(table)
    total = count.sum(axis=1, keepdims=True)
    return np.where(total > 0, count / np.where(total > 0, total, 1), 1 / table.n_classes)
