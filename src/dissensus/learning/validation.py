"""Items that a network is judged by after every epoch: against their gold or, where it is not known, their votes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from scipy.special import softmax
from torch import nn

from dissensus.common.parameters import is_number
from dissensus.common.types import BoolArray, FloatArray, IntArray, Names
from dissensus.evaluation import cross_entropy, macro_f1
from dissensus.exceptions import BadParameter, DataError, UnknownClass
from dissensus.learning import inputs as given
from dissensus.learning.batches import Columns
from dissensus.learning.network import Network
from dissensus.learning.objectives.labels import vote_weight
from dissensus.table import names as naming
from dissensus.table.annotations import Annotations


@dataclass(frozen=True)
class Held:
    """Validation items: their inputs (None: rows of the training inputs) and what is known of them."""

    X: Any
    truth: FloatArray  # (V, K) one-hot gold, or shares of the votes


@dataclass(frozen=True)
class Validation:
    """Metrics of a network on validation items."""

    columns: Columns
    rows: IntArray  # (V,) into the columns
    truth: FloatArray  # (V, K)
    at_once: int  # items at a time

    def __call__(self, network: nn.Module) -> dict[str, float]:
        """Cross entropy, accuracy and macro F1 against gold or votes (of tied votes, any)."""
        assert isinstance(network, Network)
        rows = torch.as_tensor(self.rows)
        proba = softmax(network.ask(network.logits, self.columns, rows=rows, at_once=self.at_once).numpy(), axis=1)
        best = proba.argmax(axis=1)
        right = self.truth[np.arange(len(best)), best] == self.truth.max(axis=1)
        gold = np.where(right, best, self.truth.argmax(axis=1))
        return {
            "cross-entropy": float(cross_entropy(self.truth, proba).mean()),
            "accuracy": float(right.mean()),
            "macro-f1": macro_f1(gold, best),
        }


def hold_out(
    validation: Any, table: Annotations, gold: IntArray | None, teaches: BoolArray, seed: int
) -> tuple[BoolArray, Held | None]:
    """(I,) the items held out of `table`, and what validation is against; `validation` as `fit` takes it."""
    none = np.zeros(table.n_items, np.bool_)
    if validation is None:
        return none, None
    if is_number(validation):
        if not 0 < validation < 1:
            raise BadParameter(f"validation must be a share between 0 and 1, or (X, labels), got {validation}.")
        among = np.flatnonzero(teaches)
        draw = naming.mix(naming.hashes(table.items[among]) ^ np.uint64(seed))  # names decide, not their order
        held = none.copy()
        held[among[np.argsort(draw, kind="stable")[: max(round(validation * among.size), 1)]]] = True
        truth = table.soft_labels()
        if gold is not None:
            truth[gold >= 0] = np.eye(table.n_classes)[gold[gold >= 0]]
        return held, Held(None, truth[held])
    try:
        X, labels = validation
    except (TypeError, ValueError):
        raise BadParameter("validation must be a share between 0 and 1, or (X, labels).") from None
    if isinstance(labels, Annotations):
        labels = labels.to_classes(table.classes)
        truth = np.where(vote_weight(labels)[:, None] > 0, labels.soft_labels(), 0.0)
    else:
        truth = one_hot(labels, table.classes)
    if given.rows(X) != len(truth):
        raise DataError(f"validation: {given.rows(X):,} rows of X for {len(truth):,} labels; give equally many.")
    known = np.flatnonzero(truth.sum(axis=1) > 0)
    if not known.size:
        raise DataError("validation: no item has a known class or a vote.")
    return none, Held(X if known.size == len(truth) else given.take(X, known), truth[known])


def one_hot(labels: Any, classes: Names) -> FloatArray:
    """(n, K) one-hot rows of class names, or of codes where the classes are no integers; zero where unknown (−1)."""
    array = np.asarray(labels)
    if array.dtype.kind in "iu" and classes.dtype.kind not in "iu":
        codes = array.astype(np.int64)
    else:
        column = naming.to_names(naming.to_column(labels, "labels"))
        codes = naming.match(column, classes, "labels")
        bad = column[(codes < 0) & (column != -1)]
        if bad.size:
            raise UnknownClass(
                f"labels: {naming.shown(bad[0])} is none of the {classes.size} classes that were fitted."
            )
    if codes.size and (codes.min() < -1 or codes.max() >= classes.size):
        raise UnknownClass(f"labels: codes run from −1 to {classes.size - 1}, got {codes.min()} to {codes.max()}.")
    truth = np.zeros((codes.size, classes.size))
    known = np.flatnonzero(codes >= 0)
    truth[known, codes[known]] = 1.0
    return truth
