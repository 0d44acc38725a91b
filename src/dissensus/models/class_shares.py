"""Class shares that are uniform unless the labels support other ones.

Where items have few labels, those whose labels differ go to the class that is more frequent, which makes it more
frequent still. So π lies between uniform shares and free ones, and leaving the uniform ones has a cost:

    π_c = e u_c + (1 − e) s_c      log p(e, s) = Σ_c b_c log s_c − (1 − e) · cost      cost ∝ (Σ_c w_c − 1) log I

as Schwarz (1978) has it, who would take half of that. Near uniform shares e is about cost / χ², at most 1, χ² the
statistic of a test of uniform shares. The uniform shares are over the classes that annotators name: u_c ∝ w_c = min(1,
K v_c / `RARE`), v the shares of the votes and of one item more that is every class equally. A class that almost no
label names (a typing error, or one that was declared and not used) is no sign of reluctance.

M step  s_c ∝ b_c + n_c (1 − e) s_c / π_c        then e = argmax Σ_c n_c log π_c − (1 − e) · cost, which is concave

`UniformPriorDawidSkene` is Dawid-Skene with these shares, and with pseudo-counts for few labels. A label is checked by
the n − 1 others of its item alone, so `crowd_labels` and `vote_count` are multiplied by n / (n − 1): where items have
two labels, the crowd counts twice in every matrix. Few items show little about an annotator, so they are also
multiplied by 1 + `PRIOR_ITEMS` / I, and what the crowd is like is drawn to an unknown annotator, by `PRIOR_LABELS` of
each class. Tables of fewer than `MIN_COST_ITEMS` items pay the cost in proportion: they cannot tell which annotators
name a class too often.
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
from dissensus.models.params import SHARE, SIMPLEX, Params, em_parameter, normalised
from dissensus.models.tempering import RARE_SHARE

INITIAL_UNIFORMITY = 0.5  # e at the start of EM
HALVINGS = 30  # of the interval that holds e: to 1e-9
NONUNIFORM_COST = 0.35  # times (Σ w − 1) log I; less gains less, more loses on rare classes (`benchmarks/trust`)
MIN_COST_ITEMS = 50  # items from which the whole cost is paid
PRIOR_LABELS = 3  # labels of each class, of an unknown annotator, in the crowd's matrix
PRIOR_ITEMS = 5  # items whose labels the crowd's part of every matrix is increased by
MIN_CHECKED_LABELS = 1.25  # least n in n / (n − 1), which has no limit with one label per item


@dataclass(frozen=True)
class UniformClassPrior(Params):
    """The parameters of π: e (1,), s (K,), and u (K,), which is fixed."""

    uniformity: FloatArray = em_parameter(SHARE, "1")
    free_shares: FloatArray = em_parameter(SIMPLEX, "K")
    uniform_shares: FloatArray = em_parameter(axes="K")

    @property
    def prior(self) -> FloatArray:
        """(K,) π."""
        return np.asarray(self.free_shares + self.uniformity * (self.uniform_shares - self.free_shares))


U = TypeVar("U", bound=UniformClassPrior)


def uniform_weights(classes: FloatArray) -> FloatArray:
    """(K,) w from items of each class (K,) by the votes."""
    K = classes.size
    return np.asarray(np.minimum((K * classes + 1) / (classes.sum() + 1) / RARE_SHARE, 1))


def nonuniform_cost(weights: FloatArray, n_items: float) -> float:
    """Return (Σ w − 1) log I, of which a method takes its share as the cost; `weights` (K,) are w."""
    return (float(weights.sum()) - 1) * float(np.log(max(n_items, 1)))


def fit_uniformity(params: UniformClassPrior, counts: FloatArray, cost: float) -> float:
    """Return the e of the M step, from `counts` (K,) of items; no s is zero."""
    shares, away = params.free_shares, params.uniform_shares - params.free_shares

    def slope(uniformity: float) -> float:
        return float((counts * away / (shares + uniformity * away)).sum()) + cost

    low, high = 0.0, 1.0
    if slope(high) >= 0 or slope(low) <= 0:
        return high if slope(high) >= 0 else low
    for _ in range(HALVINGS):  # the slope falls; SciPy's root finder takes longer to import than a fit does
        middle = (low + high) / 2
        low, high = (middle, high) if slope(middle) > 0 else (low, middle)
    return (low + high) / 2


def update_class_prior(params: U, counts: FloatArray, pseudo: FloatArray, cost: float) -> U:
    """Return the M step from `counts` (K,) of items, with `pseudo` (K,) b."""
    free = (1 - params.uniformity) * params.free_shares / params.prior
    params = replace(params, free_shares=normalised(pseudo + counts * free))
    return replace(params, uniformity=np.array([fit_uniformity(params, counts, cost)]))


def label_check_factor(n: float) -> float:
    """Return n / (n − 1), by which the crowd's part of matrices is increased if items have n labels on average."""
    n = max(n, MIN_CHECKED_LABELS)
    return n / (n - 1)


@dataclass(frozen=True)
class UniformPriorConfusions(UniformClassPrior):
    """The parameters: those of π, and Θ (A, K, K) [annotator, true, given]."""

    confusion: FloatArray = em_parameter(SIMPLEX, "A K K")


class UniformPriorDawidSkene(DawidSkene):
    """Dawid-Skene with class shares that are uniform unless the labels support other ones."""

    labels_per_item: float | None = param(None, "mean number of labels per item; None: that of the table", above=0)

    Params: Any = UniformPriorConfusions
    nonuniform_cost_: Annotated[float, "number"]
    shares_are_free = False  # True for matrices of a pool, whose models have free shares

    def crowd_factor(self, votes: ExpectedCounts) -> float:
        items = max(float(votes.class_counts.sum()), 1.0)
        n = self.labels_per_item or float(votes.label_counts.sum()) / items
        return label_check_factor(n) * (1 + PRIOR_ITEMS / items)

    def prepare(self, votes: ExpectedCounts, engine: Engine) -> None:
        crowd = votes.label_counts.sum(axis=0, keepdims=True)
        given = crowd.sum(axis=2, keepdims=True)
        crowd += PRIOR_LABELS * normalised(default_pseudo_counts(votes.class_counts.size))
        super().prepare(replace(votes, label_counts=crowd * given / (given + PRIOR_LABELS)), engine)
        weights, items = uniform_weights(votes.class_counts), float(votes.class_counts.sum())
        self.uniform_shares_ = normalised(weights)
        self.nonuniform_cost_ = NONUNIFORM_COST * min(items / MIN_COST_ITEMS, 1) * nonuniform_cost(weights, items)

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
