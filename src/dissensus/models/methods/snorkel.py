"""Snorkel: the independent generative label model, with an accuracy and a propensity to label per source.

Use it for labelling functions that abstain, as in weak supervision.

y_ij = ∅ if source j gave item i no label; [·] is 1 if the condition holds and 0 otherwise:

    P(y, z) ∝ Π_ij exp(θ_j [y_ij = z_i] + η_j [y_ij ≠ ∅])

This is the factor graph of Ratner et al. 2017 without correlations. It factorises, and the two weights θ_j and η_j of a
source correspond to two probabilities, its accuracy a_j and its propensity β_j to label:

    P(y_ij = l | z_i) = β_j a_j if l = z_i,  β_j (1 − a_j)/(K − 1) for each other class,  1 − β_j for ∅
    a_j = e^θ/(e^θ + K − 1)        β_j = e^η (e^θ + K − 1)/(1 + e^η (e^θ + K − 1))

An abstention carries no evidence about the class, so β_j is simply the share of the items that j labelled. The rest is
the model of `one-coin` with another prior, an L2 penalty on the weights. EM raises, up to a constant,

    Σ_i log Σ_c π_c Π_{j: y_ij ≠ ∅} P(y_ij | z_i = c, y_ij ≠ ∅) − `l2`/2 Σ_j (θ_j − θ0)²

The E step is that of `one-coin`. In the M step a_j = σ(x), with σ the logistic function, a0 = `initial_accuracy`, and x
the only root of

    h_j − n_j σ(x) − `l2` (x − logit a0)          h_j = Σ_i q_i(y_ij), the number of right labels among j's n_j labels

- `coin_` (A, 2) [right, wrong]: a and 1 − a; `accuracy_` is a
- `propensity_` (A,): β; repeated labels count once
- `prior_` (K,): π, uniform unless `class_balance` sets it
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

import numpy as np
from scipy.special import expit

from dissensus.common.arrays import is_first_of_pair
from dissensus.common.parameters import is_number, param
from dissensus.common.types import BoolArray, FloatArray, IntArray, OnStep
from dissensus.compute.engines import EngineChoice
from dissensus.models.coins import CoinModel, Coins
from dissensus.models.confusion import Engine, ExpectedCounts, methods
from dissensus.models.exceptions import WrongClassBalance
from dissensus.models.matrices import PSEUDO_COUNT_LIMITS
from dissensus.table.annotations import Annotations

MAX_LOGIT = 40.0  # upper limit of logits; above it 1 − a is 0 in double precision
ROOT_TOL = 1e-13  # relative step at which Newton's method ends


def is_class_balance(value: Any) -> bool:
    """Return whether a value is a list of positive shares."""
    return isinstance(value, list | tuple) and len(value) > 0 and all(is_number(share) and share > 0 for share in value)


@methods.register(
    "snorkel", summary="an accuracy and a propensity per source, by marginal likelihood", cite="Ratner et al. 2017"
)
class Snorkel(CoinModel):
    """Estimate accuracies and propensities of independent sources by EM."""

    initial_accuracy: float = param(0.7, "accuracy at which the penalty is zero", above=0, below=1)
    l2: float = param(0.25, "strength of the penalty on the weights", **PSEUDO_COUNT_LIMITS)
    class_balance: Literal["uniform", "learned"] | Sequence[float] = param(
        "uniform", "class shares: equal, learnt, or a list in the order of the classes", check=is_class_balance,
        must="must be 'uniform', 'learned' or a list of positive shares",
    )  # fmt: skip
    class_count: float = param(1.0, "pseudo-count of every class in a learnt π", **PSEUDO_COUNT_LIMITS)

    engine: EngineChoice = "local"  # not a parameter, because the propensity needs the rows in memory

    propensity_: Annotated[FloatArray, "A real"]

    def prepare(self, votes: ExpectedCounts, engine: Engine) -> None:
        K = votes.class_counts.size
        self.class_pseudo_counts_ = np.full(K, self.class_count)
        balance = [1.0] * K if self.class_balance == "uniform" else self.class_balance
        self.fixed_prior_ = None if isinstance(balance, str) else normalise_shares(balance, K)

    def m_step(self, label_counts: FloatArray, label_totals: FloatArray, params: Any) -> Coins:
        x = penalised_logit(label_counts[:, 0, 0], label_totals.sum(axis=(1, 2)), self._initial_logit(), self.l2)
        return Coins(params.prior, np.stack([expit(x), expit(-x)], axis=1))

    def log_prior(self, params: Coins) -> float:
        logit = np.log(params.coin[:, 0]) - np.log(params.coin[:, 1])
        return -self.l2 / 2 * float(((logit - self._initial_logit()) ** 2).sum())

    def confusion_support(self) -> FloatArray:
        """Return the number of labels plus the number of labels with the curvature of the penalty, (A, 1, 1)."""
        penalty_labels = self.l2 / (self.initial_accuracy * (1 - self.initial_accuracy))
        return np.asarray(self.label_totals_.sum(axis=2, keepdims=True) + penalty_labels)

    def _initial_logit(self) -> float:
        return float(np.log(self.initial_accuracy) - np.log1p(-self.initial_accuracy))

    def _fit(self, table: Annotations, gold: IntArray | None, on_step: OnStep) -> None:
        super()._fit(table, gold, on_step)
        self.propensity_ = label_propensity(table, self.items_.size)

    def _unseen_annotator_values(self) -> dict[str, Any]:
        return super()._unseen_annotator_values() | {"propensity_": 0.0}

    def _partial_update(
        self, table: Annotations, item: IntArray, annotator: IntArray, old: BoolArray, gold: IntArray | None
    ) -> FloatArray:
        posterior, n_items = super()._partial_update(table, item, annotator, old, gold), self.items_.size
        labelled = self.propensity_ * (n_items - np.count_nonzero(~old))
        labelled[annotator] += label_propensity(table, table.n_items) * table.n_items
        self.propensity_ = np.minimum(labelled / n_items, 1)  # an item that is labelled again may count twice
        return posterior


def normalise_shares(balance: Sequence[float], n_classes: int) -> FloatArray:
    """Return class shares (K,) that sum to one."""
    if len(balance) != n_classes:
        raise WrongClassBalance(shares=len(balance), n_classes=n_classes)
    shares = np.array(balance, float)
    return np.asarray(shares / shares.sum())


def label_propensity(table: Annotations, n_items: int) -> FloatArray:
    """Return the share of the first `n_items` items that each annotator labelled (A,)."""
    rows = int(table.item_ptr[n_items])  # later items represent earlier counts
    item, annotator = table.item[:rows], table.annotator[:rows]
    return np.bincount(annotator[is_first_of_pair(item, annotator)], minlength=table.n_annotators) / n_items


def penalised_logit(hits: FloatArray, total: FloatArray, centre: float, l2: float) -> FloatArray:
    """Return the root x (A,) of hits − total σ(x) − l2 (x − centre), by Newton's method with bounds."""
    hits = np.clip(hits, 0, total)  # rounding errors may exceed the limits
    with np.errstate(divide="ignore", invalid="ignore"):
        unpenalised = np.nan_to_num(np.log(hits) - np.log(total - hits), nan=centre)  # the root without penalty
    unpenalised = np.clip(unpenalised, -MAX_LOGIT, MAX_LOGIT)
    low, high = np.minimum(unpenalised, centre), np.maximum(unpenalised, centre)  # the root lies between both
    x = (low + high) / 2
    for _ in range(100):
        right = expit(x)
        slope = hits - total * right - l2 * (x - centre)
        low, high = np.where(slope >= 0, x, low), np.where(slope <= 0, x, high)
        step = x + slope / (total * right * (1 - right) + l2)
        after = np.where((step >= low) & (step <= high), step, (low + high) / 2)
        change = np.abs(after - x).max(initial=0)
        x = after
        if change < ROOT_TOL * MAX_LOGIT:
            break
    return np.asarray(x)
