"""Class shares that are uniform unless the labels support other shares.

If items have few labels, EM assigns items with conflicting labels to the more frequent class, which makes that class
even more frequent. Therefore π is a mixture of uniform shares and free shares, and free shares have a cost:

    π_c = e u_c + (1 − e) s_c      log p(e, s) = Σ_c b_c log s_c − (1 − e) · cost      cost ∝ (Σ_c w_c − 1) log I

The cost has the form of Schwarz (1978), who uses half of (Σ_c w_c − 1) log I. If the shares are nearly uniform, e is
about min(1, cost / χ²), where χ² is the statistic of a test of uniform shares. The uniform shares are u_c ∝ w_c =
min(1, K v_c / `RARE_CLASS_FRACTION`), where v are the vote shares after one item has been spread over all classes. So a
class that almost no label names, such as a typing error or an unused class, gets almost no share.

M step  s_c ∝ b_c + n_c (1 − e) s_c / π_c        then e = argmax Σ_c n_c log π_c − (1 − e) · cost, which is concave

`UniformPriorDawidSkene` is Dawid-Skene with these shares, and with pseudo-counts for items with few labels. Only the
n − 1 other labels of an item can confirm a label, so `crowd_labels` and `vote_count` are multiplied by n / (n − 1): if
items have two labels, the crowd's pseudo-counts in every confusion matrix are doubled. A table with few items says
little about an annotator, so both are also multiplied by 1 + `SMALL_TABLE_ITEMS` / I, and `PRIOR_LABELS_PER_CLASS`
pseudo-labels per class shrink the crowd's matrix towards that of an unknown annotator. Tables with fewer than
`MIN_ITEMS_FOR_FULL_COST` items cannot show which annotators use a class too often, so their cost is reduced in
proportion.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated, Any, TypeVar

import numpy as np

from dissensus.common.parameters import param
from dissensus.common.types import FloatArray
from dissensus.compute.engines.base import Engine
from dissensus.models.confusion import ExpectedCounts
from dissensus.models.matrices import default_pseudo_counts
from dissensus.models.methods.dawid_skene import DawidSkene
from dissensus.models.params import SHARE, SIMPLEX, Params, em_parameter, normalise_last_axis
from dissensus.models.tempering import RARE_CLASS_FRACTION

INITIAL_UNIFORMITY = 0.5  # value of e at the start of EM
BISECTION_STEPS = 30  # number of bisection steps for e, which reach a precision of 1e-9
NONUNIFORM_COST_FACTOR = 0.35  # cost as a multiple of (Σ w − 1) log I, chosen in `benchmarks/trust`
MIN_ITEMS_FOR_FULL_COST = 50  # number of items below which the cost is reduced
PRIOR_LABELS_PER_CLASS = 3  # number of pseudo-labels per class that are added to the crowd's matrix
SMALL_TABLE_ITEMS = 5  # the crowd's pseudo-counts are multiplied by 1 + SMALL_TABLE_ITEMS / I
MIN_LABELS_PER_ITEM = 1.25  # minimum n in n / (n − 1), which is infinite for one label per item


@dataclass(frozen=True)
class UniformClassPrior(Params):
    """The parameters of π: the uniformity e (1,), the free shares s (K,) and the fixed uniform shares u (K,)."""

    uniformity: FloatArray = em_parameter(SHARE, "1")
    free_shares: FloatArray = em_parameter(SIMPLEX, "K")
    uniform_shares: FloatArray = em_parameter(axes="K")

    @property
    def prior(self) -> FloatArray:
        """The class shares π (K,)."""
        return np.asarray(self.free_shares + self.uniformity * (self.uniform_shares - self.free_shares))


U = TypeVar("U", bound=UniformClassPrior)


def uniform_weights(classes: FloatArray) -> FloatArray:
    """Return the weights w (K,) from the expected items of each class (K,) under the vote shares."""
    K = classes.size
    return np.asarray(np.minimum((K * classes + 1) / (classes.sum() + 1) / RARE_CLASS_FRACTION, 1))


def nonuniform_cost(weights: FloatArray, n_items: float) -> float:
    """Return (Σ w − 1) log I for the weights w (K,); a method multiplies it by its own factor."""
    return (float(weights.sum()) - 1) * float(np.log(max(n_items, 1)))


def fit_uniformity(params: UniformClassPrior, counts: FloatArray, cost: float) -> float:
    """Run the M step of the uniformity e, given expected item counts (K,); no free share may be zero."""
    shares, away = params.free_shares, params.uniform_shares - params.free_shares

    def slope(uniformity: float) -> float:
        return float((counts * away / (shares + uniformity * away)).sum()) + cost

    low, high = 0.0, 1.0
    if slope(high) >= 0 or slope(low) <= 0:
        return high if slope(high) >= 0 else low
    for _ in range(BISECTION_STEPS):  # bisection, because importing SciPy's root finder takes longer than a fit
        middle = (low + high) / 2
        low, high = (middle, high) if slope(middle) > 0 else (low, middle)
    return (low + high) / 2


def update_class_prior(params: U, counts: FloatArray, pseudo: FloatArray, cost: float) -> U:
    """Run the M step of the class shares, given expected item counts (K,) and pseudo-counts b (K,)."""
    free = (1 - params.uniformity) * params.free_shares / params.prior
    params = replace(params, free_shares=normalise_last_axis(pseudo + counts * free))
    return replace(params, uniformity=np.array([fit_uniformity(params, counts, cost)]))


def label_check_factor(n: float) -> float:
    """Return n / (n − 1), the factor of the crowd's pseudo-counts if items have n labels on average."""
    n = max(n, MIN_LABELS_PER_ITEM)
    return n / (n - 1)


@dataclass(frozen=True)
class UniformPriorConfusions(UniformClassPrior):
    """The parameters of π, and the confusion matrices Θ (A, K, K) [annotator, true, given]."""

    confusion: FloatArray = em_parameter(SIMPLEX, "A K K")


class UniformPriorDawidSkene(DawidSkene):
    """Dawid-Skene with class shares that are uniform unless the labels support other shares."""

    labels_per_item: float | None = param(None, "mean number of labels per item; None: that of the table", above=0)

    Params: Any = UniformPriorConfusions
    nonuniform_cost_: Annotated[float, "number"]
    shares_are_free = False  # True if the matrices belong to a pool of models with free shares

    def crowd_factor(self, votes: ExpectedCounts) -> float:
        items = max(float(votes.class_counts.sum()), 1.0)
        n = self.labels_per_item or float(votes.label_counts.sum()) / items
        return label_check_factor(n) * (1 + SMALL_TABLE_ITEMS / items)

    def prepare(self, votes: ExpectedCounts, engine: Engine) -> None:
        crowd = votes.label_counts.sum(axis=0, keepdims=True)
        given = crowd.sum(axis=2, keepdims=True)
        crowd += PRIOR_LABELS_PER_CLASS * normalise_last_axis(default_pseudo_counts(votes.class_counts.size))
        super().prepare(replace(votes, label_counts=crowd * given / (given + PRIOR_LABELS_PER_CLASS)), engine)
        weights, items = uniform_weights(votes.class_counts), float(votes.class_counts.sum())
        self.uniform_shares_ = normalise_last_axis(weights)
        self.nonuniform_cost_ = (
            NONUNIFORM_COST_FACTOR * min(items / MIN_ITEMS_FOR_FULL_COST, 1) * nonuniform_cost(weights, items)
        )

    def initial_params(self, prior: FloatArray) -> Any:
        return UniformPriorConfusions(np.array([INITIAL_UNIFORMITY]), prior, self.uniform_shares_, np.empty((0, 0, 0)))

    def update_class_shares(self, class_counts: FloatArray, params: Any) -> Any:
        if params is None:
            params = self.initial_params(self.class_shares(class_counts))
        if self.shares_are_free:
            return replace(params, free_shares=self.class_shares(class_counts))
        return update_class_prior(params, np.maximum(class_counts, 0), self.class_pseudo_counts_, self.nonuniform_cost_)

    def log_class_prior(self, params: Any) -> float:
        cost = self.nonuniform_cost_ * (1 - params.uniformity[0])
        return float(self.class_pseudo_counts_ @ np.log(params.free_shares) - cost)

    def m_step(self, label_counts: FloatArray, label_totals: FloatArray, params: Any) -> Any:
        return replace(params, confusion=super().m_step(label_counts, label_totals, params).confusion)

    def _set_params(self, params: Any) -> None:
        super()._set_params(params)
        self.prior_ = params.prior
