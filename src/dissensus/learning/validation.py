"""Items that a network is judged by after every epoch: against their gold or, where it is not known, their votes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from scipy.special import softmax
from torch import nn

from dissensus import names as naming
from dissensus._types import FloatArray, IntArray, Names
from dissensus.evaluation import cross_entropy, macro_f1
from dissensus.exceptions import UnknownClass
from dissensus.learning.batches import Columns
from dissensus.learning.network import Network


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
        device = next(iter(network.parameters())).device
        with torch.inference_mode():
            parts = [
                network.logits({name: value.to(device) for name, value in self.columns.take(rows).items()})
                for rows in torch.split(torch.as_tensor(self.rows), self.at_once)
            ]
        proba = softmax(torch.cat(parts).cpu().double().numpy(), axis=1)
        best = proba.argmax(axis=1)
        right = self.truth[np.arange(len(best)), best] == self.truth.max(axis=1)
        gold = np.where(right, best, self.truth.argmax(axis=1))
        return {
            "cross-entropy": float(cross_entropy(self.truth, proba).mean()),
            "accuracy": float(right.mean()),
            "macro-f1": macro_f1(gold, best),
        }


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
