"""Snorkel's independent generative model: every source has an accuracy and a propensity, how often it labels at all.

    P(Λ, Y) ∝ Π_ij exp(θ_j [Λ_ij = Y_i] + η_j [Λ_ij ≠ ∅])        Λ_ij = ∅: annotator j gave item i no label

The factor graph of Ratner et al. 2017 without correlations; Ratner et al. 2016 write it by its probabilities. With Y
summed over π (uniform there) it factorises, and the two weights of a source are one probability each:

    P(Λ_ij = l | Y_i) = β_j a_j if l = Y_i,  β_j (1 − a_j)/(K − 1) for each other class,  1 − β_j for ∅
    a_j = e^θ/(e^θ + K − 1)        β_j = e^η (e^θ + K − 1)/(1 + e^η (e^θ + K − 1))

1 − β_j does not depend on Y_i: not labelling says nothing about the class, β cancels from the posterior and from the
likelihood of a, and its own maximum is the share of the items that j labelled. What is left is the model of `one-coin`
and its passes are used; the prior is Snorkel's, an L2 penalty on the weights instead of a Beta's pseudo-counts.
Objective, up to a constant (β's part):

    Σ_i log Σ_c π_c Π_{j: Λ_ij ≠ ∅} P(Λ_ij | Y_i = c, Λ_ij ≠ ∅) − l2/2 Σ_j (θ_j − θ0)²

E step as in `one-coin`. M step: θ − θ0 = logit a − logit a0, so a_j = σ(x) with x the only root of

    h_j − n_j σ(x) − l2 (x − logit a0)                      h_j = Σ_i q_i(Λ_ij), of n_j labels the right ones

| symbol | name | shape |
|---|---|---|
| q | posterior | (I, K) |
| π | prior | (K,) |
| a, 1 − a | coin | (A, 2) [right, wrong] |
| β | propensity | (A,) |
| a0 | initial_accuracy | |
"""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Real
from typing import Any, Literal

import numpy as np

from dissensus.common.types import BoolArray, FloatArray, IntArray, OnStep
from dissensus.compute.engines import EngineChoice
from dissensus.exceptions import BadParameter
from dissensus.models.base import methods
from dissensus.models.em import Accelerate, EMAggregator
from dissensus.models.methods.dawid_skene import LARGEST, SMALLEST
from dissensus.models.methods.one_coin import Coins, OneCoin
from dissensus.table.annotations import Annotations

FURTHEST = 40.0  # logit beyond which 1 − a is nothing to a double
NEAR = 1e-13  # a shorter step ends Newton's method


@methods.register(
    "snorkel", summary="an accuracy and a propensity per source, by marginal likelihood", cite="Ratner et al. 2017"
)
class Snorkel(OneCoin):
    """The independent generative label model of data programming, MAP.

    Parameters
    ----------
    initial_accuracy : float
        Accuracy a source is thought to have before it is seen, and where the penalty is zero.
    l2 : float
        Strength of the penalty on the accuracy weights; about 0.025 in the first library.
    class_balance : "uniform", "learned" or a list
        Shares π of the classes: all alike, learnt, or these, in the order of the table's classes.
    class_count : float
        Pseudo-count of every class where π is learnt.
    max_iter, tol, accelerate, restarts
        Passes over the data at most; stop when a pass gains less than `tol` of the objective; "squarem" or None;
        number of starts (the first is majority vote, the others near it), of which the best objective is kept.
    threads : int, optional
        Threads for the passes; None for all cores.
    seed : int or None
    """

    class_prior: Literal["uniform", "learned"] = "uniform"  # one-coin's keyword; here it is class_balance
    engine: EngineChoice = "local"  # the propensity is of the rows of a table in memory

    def __init__(
        self,
        *,
        initial_accuracy: float = 0.7,
        l2: float = 0.25,
        class_balance: Literal["uniform", "learned"] | Sequence[float] = "uniform",
        class_count: float = 1.0,
        max_iter: int = 500,
        tol: float = 1e-7,
        accelerate: Accelerate = "squarem",
        restarts: int = 1,
        threads: int | None = None,
        seed: int | None = 0,
    ):
        self.initial_accuracy = initial_accuracy
        self.l2 = l2
        self.class_balance = class_balance
        self.class_count = class_count
        self.max_iter = max_iter
        self.tol = tol
        self.accelerate = accelerate
        self.restarts = restarts
        self.threads = threads
        self.seed = seed

    def _check_parameters(self) -> None:
        EMAggregator._check_parameters(self)
        for keyword in ("l2", "class_count"):
            if not SMALLEST <= getattr(self, keyword) <= LARGEST:
                value = getattr(self, keyword)
                raise BadParameter(f"{keyword} must lie from {SMALLEST:g} to {LARGEST:g}, got {value}.")
        if not 0 < self.initial_accuracy < 1:
            raise BadParameter(f"initial_accuracy must lie between 0 and 1, got {self.initial_accuracy}.")
        check_balance(self.class_balance, ("uniform", "learned"))

    def _fit(self, table: Annotations, gold: IntArray | None, on_step: OnStep) -> None:
        super()._fit(table, gold, on_step)
        self.propensity_ = propensity(table, self.items_.size)

    def _confusion_size(self) -> FloatArray:
        of_penalty = self.l2 / (self.initial_accuracy * (1 - self.initial_accuracy))  # labels that bend as much
        return np.asarray(self.total_ + of_penalty)[:, None, None]

    def _newcomer(self) -> dict[str, Any]:
        return super()._newcomer() | {"propensity_": 0.0}

    def _update(
        self, table: Annotations, item: IntArray, annotator: IntArray, old: BoolArray, gold: IntArray | None
    ) -> FloatArray:
        posterior = super()._update(table, item, annotator, old, gold)
        if self.class_balance == "learned":
            self.prior_ = self._learned(self.class_counts_)
        n_items = self.items_.size
        labelled = self.propensity_ * (n_items - np.count_nonzero(~old))
        labelled[annotator] += propensity(table, table.n_items) * table.n_items
        self.propensity_ = np.minimum(labelled / n_items, 1)  # an item that it labelled again may count twice
        return posterior

    def _fixed_prior(self, labels: FloatArray) -> FloatArray | None:
        """(K,) π where it is not learnt."""
        K = labels.size
        if isinstance(self.class_balance, str):
            return None if self.class_balance == "learned" else np.full(K, 1 / K)
        return given_shares(self.class_balance, K)

    def _coin(self, hits: FloatArray, total: FloatArray) -> FloatArray:
        """(A, 2) [right, wrong] from hits and totals (A,)."""
        x = penalised_logit(hits, total, self._initial_logit(), self.l2)
        return np.stack([sigmoid(x), sigmoid(-x)], axis=1)

    def _initial_logit(self) -> float:
        return float(np.log(self.initial_accuracy) - np.log1p(-self.initial_accuracy))

    def log_penalty(self, params: Coins) -> float:
        """The penalty on the weights, negative, and where π is learnt the log density of its Dirichlet."""
        logit = np.log(params.coin[:, 0]) - np.log(params.coin[:, 1])
        weights = self.l2 / 2 * float(((logit - self._initial_logit()) ** 2).sum())
        return (
            self.class_count * float(np.log(params.prior).sum()) if self.class_balance == "learned" else 0
        ) - weights


def check_balance(balance: object, words: tuple[str, ...]) -> None:
    """Raise BadParameter unless `balance` is one of the words or a list of positive numbers."""
    if isinstance(balance, str):
        valid = balance in words
    else:
        shares = balance if isinstance(balance, (list, tuple)) else []
        valid = len(shares) > 0 and all(isinstance(share, Real) and 0 < float(share) < np.inf for share in shares)
    if not valid:
        choice = ", ".join(repr(word) for word in words)
        raise BadParameter(f"class_balance must be {choice} or a list of positive shares, got {balance!r}.")


def given_shares(balance: Sequence[float], n_classes: int) -> FloatArray:
    """(K,) the shares that the caller gave, summing to one."""
    if len(balance) != n_classes:
        raise BadParameter(f"class_balance has {len(balance)} shares and the table has {n_classes} classes.")
    shares = np.array(balance, float)
    return np.asarray(shares / shares.sum())


def propensity(table: Annotations, n_items: int) -> FloatArray:
    """(A,) share of the first `n_items` that each annotator labelled; a second label of the same item adds nothing."""
    rows = int(table.item_ptr[n_items])  # beyond are items that stand for what was known before
    item, annotator = table.item[:rows], table.annotator[:rows]
    first = np.ones(rows, bool)
    first[1:] = (np.diff(item) != 0) | (np.diff(annotator) != 0)  # rows stand in this order
    return np.bincount(annotator[first], minlength=table.n_annotators) / n_items


def penalised_logit(hits: FloatArray, total: FloatArray, centre: float, l2: float) -> FloatArray:
    """(A,) the root x of hits − total σ(x) − l2 (x − centre): Newton's method between bounds that close in."""
    hits = np.clip(hits, 0, total)  # a rounding error outside, of one who is always right
    with np.errstate(divide="ignore", invalid="ignore"):
        alone = np.nan_to_num(np.log(hits) - np.log(total - hits), nan=centre)  # the root without penalty
    alone = np.clip(alone, -FURTHEST, FURTHEST)
    low, high = np.minimum(alone, centre), np.maximum(alone, centre)  # the root lies between both opinions
    x = (low + high) / 2
    for _ in range(100):
        right = sigmoid(x)
        slope = hits - total * right - l2 * (x - centre)
        low, high = np.where(slope >= 0, x, low), np.where(slope <= 0, x, high)
        step = x + slope / (total * right * (1 - right) + l2)
        after = np.where((step >= low) & (step <= high), step, (low + high) / 2)
        moved = np.abs(after - x).max(initial=0)
        x = after
        if moved < NEAR * FURTHEST:
            break
    return np.asarray(x)


def sigmoid(x: FloatArray) -> FloatArray:
    """1/(1 + e^−x)."""
    return np.asarray(1 / (1 + np.exp(-x)))
