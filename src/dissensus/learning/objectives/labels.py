"""Target labels or target distributions of items, which are gold or come from votes or an aggregation method.

A gold label always replaces votes. Items with neither gold labels nor votes are not used for training.
"""

from __future__ import annotations

import copy
from typing import Any

import numpy as np

from dissensus.common.types import BoolArray, FloatArray, IntArray
from dissensus.learning.exceptions import GoldNeeded, NoLabelledItems, ZeroProbability
from dissensus.messages import quote_name
from dissensus.models.base import Aggregator, arg_max, methods
from dissensus.table.annotations import Annotations

GOLD = "gold"
VOTE_KINDS = ("normalized", "softmax", "smoothed")
"""Names of the soft labels that are computed from the votes of an item alone."""


def vote_weight(table: Annotations) -> FloatArray:
    """Return the total weight (I,) of each item's votes."""
    return np.asarray(table.votes().sum(axis=1))


def fit_aggregator(table: Annotations, gold: IntArray | None, labels: str | Aggregator, seed: int) -> Aggregator:
    """Return an aggregation method that is fitted with this seed; `labels` is its name, or an object that is copied."""
    if isinstance(labels, Aggregator):
        return copy.deepcopy(labels).fit(table, gold=gold)
    method: Any = methods[labels]
    fitted: Aggregator = method(seed=seed).fit(table, gold=gold)
    return fitted


def hard_labels(table: Annotations, gold: IntArray | None, labels: str | Aggregator, seed: int) -> IntArray:
    """Return class codes (I,), which are gold labels or, without gold, the labels of a method; −1 is unknown."""
    if labels == GOLD:
        if gold is None:
            raise GoldNeeded()
        return np.asarray(gold, np.int64)
    voted = vote_weight(table) > 0
    found = np.full(table.n_items, -1)
    if voted.any():
        model = fit_aggregator(table, gold, labels, seed)
        winner = arg_max(model.posterior_, table.items, table.classes, model.tie_seed_)
        found = np.where(voted, winner, -1)
    return found if gold is None else np.where(gold >= 0, gold, found)


def soft_labels(table: Annotations, gold: IntArray | None, labels: str | Aggregator, seed: int) -> FloatArray:
    """Return soft labels or a method's posterior (I, K) as float32, with uniform rows for items without votes."""
    if isinstance(labels, str) and labels in VOTE_KINDS:
        shares = table.soft_labels(labels)  # type: ignore[arg-type]
        # A softmax of a hundred votes contains e^-100, which float32 rounds to 0.
        least = 0 if labels == "normalized" else np.finfo(np.float32).tiny
        return np.maximum(shares, least).astype(np.float32)
    target = np.full((table.n_items, table.n_classes), 1 / table.n_classes, np.float32)
    voted = vote_weight(table) > 0
    if voted.any():
        target[voted] = fit_aggregator(table, gold, labels, seed).posterior_[voted]
    return target


def check_positive(target: FloatArray, rows: BoolArray, table: Annotations) -> None:
    """Raise ZeroProbability if a target (I, K) has a zero in these rows, for which inverse KL is infinite."""
    bad = np.argwhere((target <= 0) & rows[:, None])
    if bad.size:
        i, k = bad[0]
        n_others = np.unique(bad[:, 0]).size - 1
        raise ZeroProbability(item=quote_name(table.items[i]), label=quote_name(table.classes[k]), n_others=n_others)


def check_train_mask(train_mask: BoolArray) -> BoolArray:
    """Return the mask (I,) of training items after checking that there are some; raise NoLabelledItems otherwise."""
    if not train_mask.any():
        raise NoLabelledItems(n_items=train_mask.size)
    return train_mask
