"""LDL-NM, one network for labels and label distributions of items and annotators (Weerasooriya et al. 2021, section 5).

The input is an item i, for which the encoder's output is x_i, and an annotator a. The annotator's label is y.

    z_I = W_I x_i     z_A = W_A onehot(a)     z_P = φ(W_P φ([z_I, z_A]))     z_E = φ(W_E z_P + z_P)          (Eqs. 6, 7)
    ŷ = softmax(W_y z_E)     ŷ_I = softmax(W_yI z_E)     ŷ_A = softmax(W_yA z_E)                                 (Eq. 8)
    loss = Σ over annotations  −log ŷ[y] + KL(y_I ‖ ŷ_I) + KL(y_A ‖ ŷ_A)                                         (Eq. 9)

y_I are the shares of the item's labels and y_A are the shares of the annotator's labels, both in the table of the fit.
φ(v) = v / (1 + |v|) is softsign (the paper's 1/|1 + v| is a misprint). [ , ] is concatenation or a sum. All matrices
except W_A have a bias, and all are initially orthogonal. A step uses all annotations of its items, each with its own
loss.

The prediction for an item is the mean of ŷ_I over all annotators with labels. With `average="mode"`, it is the share of
annotators for whom a class is the most probable one. Eq. 12 of the paper predicts with a network that differs from Eq.
7, because it has a sum and no W_P; here the trained network of Eq. 7 predicts. W_P φ([z_I, z_A]) is the sum of a term
of the item and a term of the annotator, so that a pair needs a single small product. Annotations of the predicted item
are not used, except by Algorithm 4, which is in `learning/unknown_annotators.py`.

The prediction for an unseen annotator is the mean of ŷ over all annotators, which predicts labels better (by 0.02 to
0.03 nats in `benchmarks/learning/perspectives.py`) than ŷ for the mean embedding. With features r_a of annotators,
z_A = u_a + W r_a, where u_a is the row of W_A. For an annotator with features but without labels, u is the mean
weighted by labels.

With `room`, layers are larger than the sizes. The weights of unused units are 0, get no gradient and stay 0, so that
the predictions do not change. Networks of different sizes then have one shape and can be trained together
(`stacked.py`).

On the jobs sets and `popquorn_offensiveness`, LDL-NM is worse than soft labels and worse than the annotators' own label
shares (`benchmarks/learning/README.md`). The accuracies near 0.9 in the paper use the test labels.

| symbol | name | shape |
|---|---|---|
| W_A | `LDLNMHead.table` | (A, J_A) |
| y_A | `LDLNMHead.shares` | (A, K) |
| z_I, z_A, z_E | z_item, z_annotator, z_pair | (…, J_I), (…, J_A), (…, J_P) |
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, Self

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import dropout, one_hot, pad, softsign

from dissensus.common.parameters import is_whole_number, param
from dissensus.common.types import FloatArray, IntArray
from dissensus.learning.batches import Batch, BatchColumns
from dissensus.learning.exceptions import EmbeddingSizesDiffer, LayerRoomTooSmall
from dissensus.learning.losses import kl, label_log_likelihood, log_softmax, weighted_sum
from dissensus.learning.objectives.base import (
    AnnotatorObjective,
    AnnotatorVectors,
    Branch,
    as_tensor,
    make_annotation_column,
    objectives,
)
from dissensus.learning.rows import RowEmbedding
from dissensus.table.annotations import Annotations

Combine = Literal["concatenate", "sum"]
AnnotatorAverage = Literal["mean", "mode"]
MAX_UNITS_AT_ONCE = 2**22  # maximum items × annotators × units that are computed at once, so that they fit into a cache
MIN_SHARE = 1e-30  # minimum share, so that its logarithm is finite


class LDLNMHead(AnnotatorVectors):
    """Network after an encoder with outputs of length `width`."""

    shares: Tensor  # (A, K) shares of each annotator's labels
    labels: Tensor  # (A,) total weight of each annotator's labels
    labelled: Tensor  # codes of the annotators with labels
    per_item: Tensor  # mean total weight of an item's labels

    def __init__(self, branch: nn.Module, width: int, objective: LDLNMObjective):
        super().__init__()
        item, annotator, pair = objective.sizes()
        labels, K = as_tensor(objective.label_totals_), objective.n_classes_
        self.branch, self.rate = branch, objective.dropout
        self.item = _make_layer(width, item)
        self.table = RowEmbedding(_make_orthogonal(len(labels), annotator))
        both = _make_orthogonal(pair, item if objective.combine == "sum" else item + annotator)  # W_P
        self.item_to_pair = _make_layer(item, pair, both[:, :item])
        self.annotator_to_pair: nn.Linear | None = None
        if objective.combine == "concatenate":
            self.annotator_to_pair = _make_layer(annotator, pair, both[:, item:], bias=False)
        self.residual = _make_layer(pair, pair)
        self.to_label, self.to_item, self.to_annotator = (_make_layer(pair, K) for _ in range(3))
        self.add_features(objective.annotator_features_, annotator)
        shares = as_tensor(objective.annotator_shares_, torch.float32)
        self.register_buffer("shares", shares, persistent=False)
        self.register_buffer("labels", labels, persistent=False)
        self.register_buffer("per_item", torch.tensor(objective.per_item_), persistent=False)
        self.register_buffer("labelled", torch.nonzero(labels)[:, 0], persistent=False)

    def z_item(self, z: Tensor) -> Tensor:
        """Return z_I (B, J_I) for the encoder's output."""
        out: Tensor = self.item(self.branch(z))
        return out

    def average_over_annotators(self, z_item: Tensor, answer: Callable[[Tensor], Tensor]) -> Tensor:
        """Return the mean (B, …) over all annotators with labels of `answer`, a function of z_E (B, n, J_P)."""
        at_once = max(MAX_UNITS_AT_ONCE // max(len(z_item) * self.residual.in_features, 1), 1)
        parts = torch.split(self.fitted_rows(self.labelled), at_once)
        total: Tensor = sum(answer(self.z_pairs(z_item, part)).sum(dim=1) for part in parts)  # type: ignore[assignment]
        return total / len(self.labelled)

    def z_pair(self, z_item: Tensor, z_annotator: Tensor, row: Tensor | None = None) -> Tensor:
        """Return z_E (n, J_P) for n pairs of item and annotator.

        `z_item` is (n, J_I), or (B, J_I) if `row` (n,) gives the item of each pair; `z_annotator` is (n, J_A).
        """
        if self.annotator_to_pair is None:
            z_item = z_item if row is None else z_item.index_select(0, row)
            return self._apply_residual(self.item_to_pair(softsign(z_item + z_annotator)))
        item = self.item_to_pair(softsign(z_item))
        item = item if row is None else item.index_select(0, row)
        return self._apply_residual(item + self.annotator_to_pair(softsign(z_annotator)))

    def z_pairs(self, z_item: Tensor, z_annotator: Tensor) -> Tensor:
        """Return z_E (B, n, J_P) for all pairs of B items (B, J_I) and n annotators (n, J_A)."""
        if self.annotator_to_pair is None:
            return self._apply_residual(self.item_to_pair(softsign(z_item.unsqueeze(1) + z_annotator)))
        return self._apply_residual(
            self.item_to_pair(softsign(z_item)).unsqueeze(1) + self.annotator_to_pair(softsign(z_annotator))
        )

    def _apply_residual(self, z: Tensor) -> Tensor:
        z = dropout(softsign(z), self.rate, self.training)
        return dropout(softsign(self.residual(z) + z), self.rate, self.training)

    def make_room(self, items: int, annotators: int) -> None:
        """Pad the layers with zeros to the shapes that belong to z_I and z_A with these lengths."""
        assert self.annotator_to_pair is not None
        pairs, rows = items + annotators, self.table.weight.detach()
        self.table = RowEmbedding(pad(rows, (0, annotators - rows.shape[1])))
        _pad_layer(self.item, self.item.in_features, items)
        _pad_layer(self.item_to_pair, items, pairs)
        _pad_layer(self.annotator_to_pair, annotators, pairs)
        _pad_layer(self.residual, pairs, pairs)
        for last in (self.to_label, self.to_item, self.to_annotator):
            _pad_layer(last, pairs, last.out_features)
        if self.feature_layer is not None:
            _pad_layer(self.feature_layer, self.feature_layer.in_features, annotators)


def _make_orthogonal(rows: int, columns: int) -> Tensor:
    return nn.init.orthogonal_(torch.empty(rows, columns))


def _make_layer(inputs: int, outputs: int, start: Tensor | None = None, *, bias: bool = True) -> nn.Linear:
    """Return a layer with W = `start` (outputs, inputs), by default orthogonal, and biases of 0."""
    # On "meta", no random weights are drawn, which would change the weights that are drawn later.
    layer = nn.Linear(inputs, outputs, bias=bias, device="meta").to_empty(device="cpu")
    with torch.no_grad():
        layer.weight.copy_(_make_orthogonal(outputs, inputs) if start is None else start)
        if bias:
            layer.bias.zero_()
    return layer


def _pad_layer(layer: nn.Linear, inputs: int, outputs: int) -> None:
    columns, rows = inputs - layer.in_features, outputs - layer.out_features
    layer.weight = nn.Parameter(pad(layer.weight.detach(), (0, columns, 0, rows)))
    if layer.bias is not None:
        layer.bias = nn.Parameter(pad(layer.bias.detach(), (0, rows)))
    layer.in_features, layer.out_features = inputs, outputs


@objectives.register(
    "ldl-nm",
    summary="one network for the label and the distributions of the item and the annotator",
    cite="Weerasooriya et al. 2021",
)
class LDLNMObjective(AnnotatorObjective):
    """Label distributions of items and annotators, trained together with each label.

    A gold label replaces an item's votes in y_I. Items without annotations are not used for training, even if they have
    gold labels.
    """

    uses_annotator_features = True

    item_size: int = param(10, "J_I, length of z_I; from 3 to 20 in the paper", low=1)
    annotator_size: int = param(10, "J_A, length of z_A; from 3 to 20 in the paper", low=1)
    pair_size: int | None = param(None, "J_P, length of z_P; None: J_I + J_A, or J_I for a sum", low=1)
    combine: Combine = param("concatenate", "how z_I and z_A are combined; a sum needs annotator_size = item_size")
    dropout: float = param(0.5, "dropout of z_P and z_E", low=0, below=1)
    average: AnnotatorAverage = param(
        "mean", "over annotators: of their distributions, or of their most probable classes"
    )
    room: tuple[int, int] | None = param(
        None,
        "numbers of units, including unused ones, of the layers of items and annotators; None: J_I and J_A",
        check=lambda room: (
            room is None or (isinstance(room, tuple | list) and [*map(is_whole_number, room)] == [True, True])
        ),
        must="must be two whole numbers, for items and for annotators, or None",
    )

    search: tuple[int, ...] | None = param(
        None,
        "sizes to try for items and for annotators, chosen by development items (`learning/size_search.py`)",
        check=lambda sizes: sizes is None or (len(sizes) > 0 and all(is_whole_number(n) and n > 0 for n in sizes)),
        must="must be whole numbers of at least 1, or None",
    )

    def check_parameters(self) -> None:
        """Check the keywords, and that the sizes are consistent."""
        super().check_parameters()
        if self.combine == "sum" and self.item_size != self.annotator_size:
            raise EmbeddingSizesDiffer(item_size=self.item_size, annotator_size=self.annotator_size)
        if self.room is not None and not self._fits_room(*self.room):
            raise LayerRoomTooSmall(room=tuple(self.room), item_size=self.item_size, annotator_size=self.annotator_size)

    def _fits_room(self, items: int, annotators: int) -> bool:
        plain = self.combine == "concatenate" and self.pair_size is None
        return plain and items >= self.item_size and annotators >= self.annotator_size

    def tune_keywords(self, model: Any, table: Annotations, X: Any, train_items: IntArray) -> Self:
        """Search for the sizes if `search` is set; encoder, epochs and learning rates are those of the model."""
        if self.search is None:
            return self
        from dissensus.learning.inputs import take_rows
        from dissensus.learning.size_search import search_sizes  # imports this module

        items = np.isin(np.arange(table.n_items), train_items)
        fixed = type(self)(**self.get_params(deep=False) | {"search": None})
        model = type(model)(**model.get_params(deep=False) | {"objective": fixed, "checkpoint": None, "log": None})
        found = search_sizes(
            table.select(items=items), take_rows(X, train_items), model=model, item_sizes=self.search,
            annotator_sizes=self.search, epochs=[model.epochs],
        )  # fmt: skip
        item, annotator, _ = found.best
        return type(self)(**fixed.get_params(deep=False) | {"item_size": item, "annotator_size": annotator})

    def sizes(self) -> tuple[int, int, int]:
        """Return (J_I, J_A, J_P)."""
        joined = self.item_size if self.combine == "sum" else self.item_size + self.annotator_size
        return self.item_size, self.annotator_size, self.pair_size or joined

    def fit(self, table: Annotations, gold: IntArray | None, seed: int) -> Self:
        """Compute the label shares of every item and every annotator."""
        weight = self.count_labels(table, None, "ldl-nm")
        self.per_item_ = float(weight[self.train_mask_].mean())
        self.annotator_shares_ = _label_shares(table)
        self._votes = table.soft_labels()
        if gold is not None:
            self._votes = np.where((gold >= 0)[:, None], np.eye(table.n_classes)[gold], self._votes)
        return self

    def targets(self) -> BatchColumns:
        """Return the rows of the table, and y_I (I, K) as `votes`."""
        return BatchColumns(
            annotations=make_annotation_column(self._table), votes=as_tensor(self._votes, torch.float32)
        )

    def head(self, branch: Branch, width: int) -> LDLNMHead:
        """Return the head with orthogonal layers, padded to `room` if it is set."""
        head = LDLNMHead(branch(), width, self)
        if self.room is not None:
            head.make_room(*self.room)
        return head

    def loss(self, head: LDLNMHead, z: Tensor, targets: Batch) -> Tensor:
        """Return Eq. 9 summed over the batch's annotations, divided by the mean number of annotations per item."""
        row, annotator = targets["row"], targets["annotator"]
        z_pair = head.z_pair(head.z_item(z), head.fitted_rows(annotator), row)
        loss = -label_log_likelihood(log_softmax(head.to_label(z_pair)), targets)
        loss = loss + kl(targets["votes"].index_select(0, row), head.to_item(z_pair))
        loss = loss + kl(head.shares.index_select(0, annotator), head.to_annotator(z_pair))
        return weighted_sum(loss, targets) / head.per_item

    def item_vectors(self, head: LDLNMHead, z: Tensor) -> Tensor:
        """Return the mean of z_E (B, J_P) over all annotators with labels."""
        return head.average_over_annotators(head.z_item(z), lambda z_pairs: z_pairs)

    def logits(self, head: LDLNMHead, z: Tensor) -> Tensor:
        """Return the logarithm (B, K) of the prediction, the mean of ŷ_I or the shares of most probable classes."""

        def answer(z_pairs: Tensor) -> Tensor:
            logits = head.to_item(z_pairs)  # (B, n, K)
            if self.average == "mean":
                return log_softmax(logits).exp()
            return one_hot(logits.argmax(dim=2), self.n_classes_).float()

        return head.average_over_annotators(head.z_item(z), answer).clamp(min=MIN_SHARE).log()

    def pair_label_proba(
        self, head: LDLNMHead, z: Tensor, row: Tensor, annotators: Tensor, features: Tensor | None = None
    ) -> Tensor:
        """Return ŷ (n, K) of pairs; an unknown annotator without features gets the mean over all annotators."""
        z_item, z_annotator = head.z_item(z), head.rows_or_average(annotators, head.labels, features)
        proba = log_softmax(head.to_label(head.z_pair(z_item, z_annotator, row))).exp()
        unseen = head.find_unseen(annotators, head.labels, features)
        if not unseen.any():
            return proba
        mean = head.average_over_annotators(z_item, lambda z_pairs: log_softmax(head.to_label(z_pairs)).exp())
        return torch.where(unseen[:, None], mean[row], proba)


def label_counts(table: Annotations) -> FloatArray:
    """Return the weight (A, K) of each annotator's labels of each class."""
    A, K = table.n_annotators, table.n_classes
    if table.proba is None:
        cell = table.annotator * np.int64(K) + table.label
        return np.bincount(cell, table.weight, A * K).reshape(A, K).astype(np.float64)
    weight = table.row_weights
    return np.stack([np.bincount(table.annotator, weight * table.proba[:, k], A) for k in range(K)], axis=1)


def _label_shares(table: Annotations) -> FloatArray:
    """Return the class shares (A, K) of each annotator's labels, which are uniform for annotators without labels."""
    count = label_counts(table)
    total = count.sum(axis=1, keepdims=True)
    return np.where(total > 0, count / np.where(total > 0, total, 1), 1 / table.n_classes)
