"""Validation items, on which a network is scored against gold labels or votes after every epoch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from scipy.special import softmax
from torch import Tensor, nn

from dissensus.common.exceptions import OutOfRange
from dissensus.common.parameters import check_argument
from dissensus.common.types import BoolArray, FloatArray, IntArray, Names
from dissensus.evaluation import cross_entropy, macro_f1
from dissensus.evaluation.exceptions import NoGoldLabels
from dissensus.learning import exceptions as faults
from dissensus.learning import inputs as input_data
from dissensus.learning.batches import Batch, BatchColumns
from dissensus.learning.logistic import MIN_PROBABILITY
from dissensus.learning.losses import label_log_likelihood
from dissensus.learning.network import Network
from dissensus.learning.objectives.labels import vote_weight
from dissensus.messages import ParameterName, quote_name
from dissensus.table import names as naming
from dissensus.table.annotations import Annotations

ALLOWED_VALIDATION = "be a share between 0 and 1, or (X, labels)"


@dataclass(frozen=True)
class Validation:
    """Function that computes the metrics of a network on validation items."""

    columns: BatchColumns
    rows: IntArray  # (V,) indices into the columns
    truth: FloatArray  # (V, K)
    at_once: int  # maximum number of items that are predicted at once
    labels: BatchColumns | None = None  # annotations of the items, from which cross entropy is computed

    def __call__(self, network: nn.Module) -> dict[str, float]:
        """Return cross entropy, accuracy and macro F1 for gold or votes; each class with the most votes is correct.

        If there are `labels`, cross entropy is −Σ v log P_j(y | x) / Σ v, where each label is predicted for its
        annotator.
        """
        assert isinstance(network, Network)
        proba = softmax(
            network.apply_in_batches(network.logits, self.columns, rows=self.rows, at_once=self.at_once), axis=1
        )
        best = proba.argmax(axis=1)
        right = self.truth[np.arange(len(best)), best] == self.truth.max(axis=1)
        loss = float(cross_entropy(self.truth, proba).mean())

        def likelihood(inputs: Batch, targets: Batch) -> Tensor:
            z = network.encoder(**inputs)
            proba = network.objective.pair_label_proba(network.head, z, targets["row"], targets["annotator"])
            found = label_log_likelihood(proba.clamp(min=MIN_PROBABILITY).log(), targets)
            weight = targets.get("weight", torch.ones_like(found))
            return torch.stack([weight, weight * found], dim=1)

        if self.labels is not None:
            asked = network.apply_in_batches(
                likelihood, self.columns, self.labels, rows=self.rows, at_once=self.at_once
            )
            weight, found = asked.sum(axis=0)
            loss = -float(found / max(weight, MIN_PROBABILITY))
        gold = np.where(right, best, self.truth.argmax(axis=1))
        return {"cross-entropy": loss, "accuracy": float(right.mean()), "macro-f1": macro_f1(gold, best)}


def hold_out(share: float, table: Annotations, train_mask: BoolArray, seed: int) -> BoolArray:
    """Return a mask (I,) of held-out training items; the choice depends on the seed and the items' names."""
    check_argument("validation", share, float, above=0, below=1, must=f"must {ALLOWED_VALIDATION}")
    among, held = np.flatnonzero(train_mask), np.zeros(table.n_items, np.bool_)
    held[among[shuffle_by_name(table.items[among], seed)[: max(round(share * among.size), 1)]]] = True
    return held


def assign_stratified_folds(
    table: Annotations, truth: FloatArray, train_mask: BoolArray, folds: int, seed: int
) -> IntArray:
    """Assign training items to folds with equal class shares, and return the fold (I,) of each item, −1 for others.

    The folds depend on the seed and the items' names, but not on the order of items. The class of an item is its most
    frequent label, or the first of tied labels.
    """
    among, fold = np.flatnonzero(train_mask), np.full(table.n_items, -1)
    drawn = among[shuffle_by_name(table.items[among], seed)]
    fold[drawn[np.argsort(truth[drawn].argmax(axis=1), kind="stable")]] = np.arange(among.size) % folds
    return fold


def shuffle_by_name(names: Names, seed: int) -> IntArray:
    """Return the indices (n,) of names in a random order that depends only on the seed and the names."""
    return np.argsort(naming.scramble_integers(naming.hash_names(names) ^ np.uint64(seed)), kind="stable")


def target_distributions(table: Annotations, gold: IntArray | None) -> FloatArray:
    """Return the target (I, K) of each item, which is its one-hot gold label or, without gold, its vote shares."""
    truth = table.soft_labels()
    if gold is not None:
        truth[gold >= 0] = np.eye(table.n_classes)[gold[gold >= 0]]
    return truth


def read_validation(validation: Any, classes: Names) -> tuple[Any, FloatArray]:
    """Return inputs and targets (V, K) of labelled items from (X, labels); labels are names, codes or a table."""
    try:
        X, labels = validation
    except (TypeError, ValueError):
        raise OutOfRange(name=ParameterName("validation"), allowed=ALLOWED_VALIDATION, value=validation) from None
    if isinstance(labels, Annotations):
        X, labels = input_data.align_rows(X, labels), labels.with_classes(classes)
        truth = np.where(vote_weight(labels)[:, None] > 0, labels.soft_labels(), 0.0)
    else:
        truth = encode_one_hot(labels, classes)
    input_data.check_row_count(X, len(truth), "labels", "validation")
    known = np.flatnonzero(truth.sum(axis=1) > 0)
    if not known.size:
        raise NoGoldLabels(items=len(truth))
    return X if known.size == len(truth) else input_data.take_rows(X, known), truth[known]


def encode_one_hot(labels: Any, classes: Names) -> FloatArray:
    """Return one-hot rows (n, K) of labels given as names (always if classes are integers) or codes; −1 gives zeros."""
    array = np.asarray(labels)
    if array.dtype.kind in "iu" and classes.dtype.kind not in "iu":
        codes = array.astype(np.int64)
    else:
        column = naming.to_names(naming.to_column(labels, "labels"))
        codes = naming.match_names(column, classes, "labels")
        bad = column[(codes < 0) & (column != -1)]
        if bad.size:
            raise faults.UnknownLabel(label=quote_name(bad[0]), n_classes=classes.size)
    input_data.check_codes(codes, classes.size, "labels")
    return np.vstack([np.eye(classes.size), np.zeros(classes.size)])[codes]  # A code of −1 selects the last row.
