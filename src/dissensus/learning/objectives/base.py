"""Base classes for objectives, which supervise a network by annotations and are independent of the inputs.

`fit` reads the table and gold labels and chooses the training items. `targets` returns columns with one entry per item.
`head` makes the layers after the encoder. `loss` is the sum over the items of a batch and not the mean, so that the
losses of parts of a batch can be added on one or several devices; the trainer divides once by the number of items.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import Any, ClassVar, Self

import numpy as np
import torch
from torch import Tensor, nn

from dissensus.common.parameters import Parameters
from dissensus.common.registry import Registry
from dissensus.common.types import BoolArray, FloatArray, IntArray
from dissensus.learning.batches import Batch, BatchColumns, RaggedColumn
from dissensus.learning.exceptions import AnnotationsNeeded
from dissensus.learning.rows import RowEmbedding, take_rows_or_mean
from dissensus.table.annotations import Annotations

MAX_PAIR_ENTRIES = 2**22  # maximum items × annotators × K × K that `label_proba` computes at once

Branch = Callable[[], nn.Module]
BatchIterator = Callable[[], Iterator[tuple[Tensor, Batch]]]
"""Function that yields the encoder's output and the targets for batches of all training items."""


class Objective(Parameters, ABC):
    """Base class for objectives, which define a loss over annotations, and predictions of classes and labels.

    In all methods, the argument `head` is the module that the method `head` returned.
    """

    models_annotators: ClassVar[bool] = False
    has_posterior: ClassVar[bool] = False
    predicts_votes: Any = False  # True if `logits` predict votes instead of the class
    uses_annotator_features: ClassVar[bool] = False  # True if features of annotators can be used
    monitor: ClassVar[Any] = "cross-entropy"  # metric on validation items that chooses the epoch
    row_learning_rate: ClassVar[float] = 1e-3  # default learning rate of annotators' rows

    n_classes_: int
    train_mask_: BoolArray  # (I,) True for training items; other items are only predicted
    annotator_features_: FloatArray | None = None  # (A, F) set before `head`, if it `uses_annotator_features`
    _targets: BatchColumns

    @abstractmethod
    def fit(self, table: Annotations, gold: IntArray | None, seed: int) -> Self:
        """Prepare the targets for a table and gold codes (I,), −1 for unknown; set `n_classes_` and `train_mask_`."""

    def __getstate__(self) -> dict[str, Any]:
        """Return the state without private attributes, because training processes do not need the table."""
        return {name: value for name, value in vars(self).items() if not name.startswith("_")}

    def set_inputs(self, inputs: BatchColumns, train_items: IntArray, reuse: Any = None) -> None:
        """Use the prepared inputs of all items (called after `fit`); `reuse` is an objective with the same inputs."""

    def targets(self) -> BatchColumns:
        """Return the targets of the loss for every item, in the order of the table."""
        return self._targets

    def head(self, branch: Branch, width: int) -> nn.Module:
        """Return the layers after the encoder; `branch()` makes the layers of a task, from (B, …) to (B, `width`)."""
        return nn.Sequential(branch(), nn.Linear(width, self.n_classes_))

    def logits(self, head: Any, z: Tensor) -> Tensor:
        """Return unnormalised log P(class) (B, K) for the encoder's output `z`."""
        out: Tensor = head(z)
        return out

    def item_vectors(self, head: Any, z: Tensor) -> Tensor:
        """Return the input (B, D) of the last layer that predicts classes."""
        out: Tensor = getattr(head, "main", head)[0](z)
        return out

    def tune_keywords(self, model: Any, table: Annotations, X: Any, train_items: IntArray) -> Self:
        """Return this objective, or one whose keywords were found by a search on the training items."""
        return self

    def adapt_run(self, run: Any) -> Any:
        """Return the run of a `CrowdClassifier`, with changed batches or network if the objective needs them."""
        return run

    @abstractmethod
    def loss(self, head: Any, z: Tensor, targets: Batch) -> Tensor:
        """Return the sum of the losses of a batch, in nats by default."""

    def needs_begin_epoch(self, epoch: int, epochs: int) -> bool:
        """Return True if `begin_epoch` must be called before this epoch."""
        return False

    def begin_epoch(self, head: Any, epoch: int, epochs: int, iterate_batches: BatchIterator) -> None:
        """Prepare an epoch, counted from 0, without gradients; an example is an E step.

        Results must be stored in the head's state dict, because a run that continues within an epoch does not call this
        method again.
        """

    def log_posterior(self, head: Any, z: Tensor, targets: Batch) -> Tensor:
        """Return unnormalised log P(class | x, annotations) (B, K).

        Only objectives with `has_posterior` define this method; for others, `learning.posterior` computes the
        posterior.
        """
        raise NotImplementedError

    def pair_label_proba(
        self, head: Any, z: Tensor, row: Tensor, annotators: Tensor, features: Tensor | None = None
    ) -> Tensor:
        """Return P(label | x, annotator) (n, K) for n pairs of item and annotator.

        `row` (n,) is the row of each pair's item in z (B, …). `annotators` (n,) are codes, with −1 for unknown. If
        `uses_annotator_features`, `features` (n, F) describe the annotators.
        """
        raise NotImplementedError

    def label_proba(self, head: Any, z: Tensor, annotators: Tensor, features: Tensor | None = None) -> Tensor:
        """Return the result of `pair_label_proba` (B, J, K) for all pairs of B items and J annotators."""
        n, parts = len(z), [z.new_zeros(len(z), 0, self.n_classes_)]
        at_once = max(MAX_PAIR_ENTRIES // max(n * self.n_classes_**2, 1), 1)
        for at in torch.split(torch.arange(len(annotators), device=annotators.device), at_once):
            row = torch.arange(n, device=z.device).repeat_interleave(len(at))
            known = None if features is None else features[at].repeat(n, 1)
            found = self.pair_label_proba(head, z, row, annotators[at].repeat(n), known)
            parts.append(found.reshape(n, len(at), self.n_classes_))
        return torch.cat(parts, dim=1)


class MultiPartHead(nn.Module):
    """Head with several parts, of which `main` predicts the classes."""

    def __init__(self, main: nn.Module, **parts: nn.Module | None):
        super().__init__()
        self.main = main
        for name, part in parts.items():
            self.add_module(name, part)

    def forward(self, z: Tensor) -> Any:
        return self.main(z)


class AnnotatorVectors(nn.Module):
    """Vectors of annotators, which are u_j in `table` (A, E) or, with features r_j, u_j + W r_j; W is initially 0."""

    table: RowEmbedding
    features: Tensor

    def add_features(self, features: FloatArray | None, width: int) -> None:
        """Make W for features (A, F), or no W if there are no features."""
        self.feature_layer: nn.Linear | None = None  # W
        if features is not None:
            # The buffer is not in the state dict, because the model stores the features itself.
            self.register_buffer("features", as_tensor(features, torch.float32), persistent=False)
            self.feature_layer = nn.Linear(features.shape[1], width, bias=False)
            nn.init.zeros_(self.feature_layer.weight)

    def feature_effect(self, codes: Tensor) -> Tensor | None:
        """Return W r (n, E) of fitted annotators, or None if there are no features."""
        return None if self.feature_layer is None else self.feature_layer(self.features.index_select(0, codes))

    def fitted_rows(self, codes: Tensor) -> Tensor:
        """Return the vectors (n, E) of fitted annotators."""
        residual, effect = self.table(codes), self.feature_effect(codes)
        return torch.as_tensor(residual if effect is None else residual + effect)

    def find_unseen(self, codes: Tensor, totals: Tensor, features: Tensor | None = None) -> Tensor:
        """Return a mask (n,) of annotators with neither features nor labels (`totals` (A,) is 0)."""
        if self.feature_layer is None:
            return (codes < 0) | (totals[codes] == 0)
        return codes < 0 if features is None else torch.zeros_like(codes, dtype=torch.bool)

    def rows_or_average(self, codes: Tensor, totals: Tensor, features: Tensor | None = None) -> Tensor:
        """Return the vectors (n, E) of annotators, or the mean vector for annotators who are unknown or have no labels.

        The mean is weighted by `totals` (A,), the weight of each annotator's labels. `features` (n, F) replace
        the features of the fit.
        """
        rows = take_rows_or_mean(self.table.weight, codes, totals)
        if self.feature_layer is None:
            return rows
        if features is None:  # Fitted annotators without labels keep their features.
            mean = ((totals / totals.sum()).unsqueeze(1) * self.features).sum(dim=0)
            features = torch.where((codes >= 0)[:, None], self.features[codes], mean)
        feature_layer: Tensor = self.feature_layer(features)
        return rows + feature_layer


class AnnotatorObjective(Objective):
    """Base class for objectives that model annotators and are trained on every label."""

    models_annotators = True
    label_totals_: FloatArray  # (A,) total weight of each annotator's labels

    def fit(self, table: Annotations, gold: IntArray | None, seed: int) -> Self:
        """Count the labels of every annotator, and choose the training items."""
        self.count_labels(table, gold, objectives.get_name(type(self)))
        return self

    def targets(self) -> BatchColumns:
        """Return the table's rows (`annotator`, `label` or `proba`, `weight`), and any gold labels `gold` (I,)."""
        gold = {} if self._gold is None else {"gold": as_tensor(self._gold, torch.int64)}
        return BatchColumns(annotations=make_annotation_column(self._table), **gold)

    def count_labels(self, table: Annotations, gold: IntArray | None, name: str) -> FloatArray:
        """Check the keywords, set the common attributes, and return the total weight (I,) of each item's votes."""
        self.check_parameters()
        weight = np.asarray(table.votes().sum(axis=1))
        if not (weight > 0).any():
            raise AnnotationsNeeded(objective=name)
        self.n_classes_ = table.n_classes
        self.train_mask_ = weight > 0 if gold is None else (weight > 0) | (gold >= 0)
        self.label_totals_ = np.bincount(table.annotator, table.weight, table.n_annotators).astype(np.float32)
        self._table, self._gold = table, gold
        return weight

    def label_totals(self, device: torch.device) -> Tensor:
        """Return the total weight of each annotator's labels (A,) on a device."""
        return as_tensor(self.label_totals_).to(device)


objectives: Registry[type[Objective]] = Registry(
    "objective", "list objectives", "dissensus.learning.objectives", "dissensus.objectives"
)
"""Registry of objectives by name; other packages add some through the entry-point group `dissensus.objectives`."""


def as_tensor(values: FloatArray | IntArray | BoolArray, kind: torch.dtype | None = None) -> Tensor:
    """Return a tensor with a copy of the array, so that changes of the tensor leave a read-only array unchanged."""
    return torch.as_tensor(np.array(values), dtype=kind)


def make_annotation_column(table: Annotations) -> RaggedColumn:
    """Return the rows of a table as one column with `annotator`, `label` or `proba`, and any `weight`."""
    rows = {"annotator": as_tensor(table.annotator, torch.int64)}
    if table.proba is None:
        rows["label"] = as_tensor(table.label, torch.int64)
    else:
        rows["proba"] = as_tensor(table.proba, torch.float32)
    if table.weight is not None:
        rows["weight"] = as_tensor(table.weight, torch.float32)
    return RaggedColumn(rows, as_tensor(table.item_ptr, torch.int64))
