"""Minimax conditional entropy: a label depends on its annotator and on its item, class by class.

Use it when the effects of items and annotators differ between classes, and items have many labels.

An annotator effect σ_j and an item effect τ_i add up to the log odds of the labels:

    z_i ~ Cat(π)      P(y_ij = l | z_i = c) = softmax_l(σ_j[c, l] + τ_i[c, l])

The objective is the log evidence with quadratic penalties:

    Σ_i log Σ_c π_c Π_{j∈M_i} P(y_ij | c) − α/2 (Σ_j |σ_j − σ̄|² + n |σ̄ − σ0|²) − β/2 Σ_i |τ_i|²

This is the dual of the paper's problem: find the classes that minimise the conditional entropy of the labels, where the
entropy is the maximum that the observed labels allow.

    E step  q_i(c) ∝ π_c Π_{j∈M_i} P(y_ij | c)
    M step  raises Σ_i Σ_c q_i(c) Σ_j log P(y_ij | c) minus the penalties, first in τ, then in σ̄ and σ

- `annotator_effect_` (A, K, K) [annotator, true, given]: σ; `confusion_` is softmax(σ)
- `crowd_effect_` (K, K): σ̄, the mean over annotators, with n = `prior_annotators` of unknown quality and effect σ0
- `item_effect_`: τ of the cells `item_effect_cell_` = item·K + class with q ≥ 10⁻⁶; 0 for all others
- `prior_` (K,): π
- α = `gamma`·K², β = α · (annotations per annotator) / (annotations per item), but at least α

In the paper σ̄ = 0 and π is uniform (`centre="zero", class_prior="uniform"`). An annotator with few labels is then
assumed to guess, and if all annotators have few labels, nothing is learnt. Here σ̄ is the mean of the annotators, and π
= e/K + (1 − e) s lies between uniform shares and the vote shares s. e maximises the evidence minus a cost for e below 1
(`models.class_shares`), because an unconstrained π moves to one class.

τ is not stored during the fit: given q and σ it maximises a concave function of K numbers for each item and class,
which every pass solves (`kernels.mmce`). The objective never falls. After the fit, τ and q of fitted and new items
follow from their own labels, starting at τ = 0.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, ClassVar, Literal, NamedTuple

import numpy as np
from scipy.special import softmax

from dissensus.common.parameters import param
from dissensus.common.types import FloatArray, IntArray, OnStep
from dissensus.compute.chunk import apply_gold
from dissensus.compute.engines.local import Threads, balanced_ranges, thread_count
from dissensus.compute.kernels import mmce as kernels
from dissensus.compute.rows import Rows, expand_rows
from dissensus.models.base import methods
from dissensus.models.class_shares import INITIAL_UNIFORMITY, UniformClassPrior, fit_uniformity, nonuniform_cost
from dissensus.models.confusion import expected_label_counts
from dissensus.models.em import EMAggregator
from dissensus.models.matrices import MIN_PSEUDO_COUNT, default_pseudo_counts
from dissensus.models.params import em_parameter, real_transform
from dissensus.table.annotations import Annotations

INITIAL_UNIFORMITIES = {
    "votes": 0.0,
    "learned": INITIAL_UNIFORMITY,
    "uniform": 1.0,
}  # initial e of π for each `class_prior`
MAX_ITEM_ROUNDS = 100  # maximum number of updates of q and τ for one item; usually three to ten
PREDICTION_CHUNK_ROWS = 2**12  # number of rows predicted together, so that matrices fit into the cache
MIN_STORED_PROBABILITY = 1e-6  # minimum probability of a class for which an item's τ is stored
MAX_ROW_WEIGHT = 1e3  # maximum weight of a row; with larger weights the penalties have no effect
MAX_ANNOTATOR_EFFECT = 50.0  # maximum |σ| after an extrapolation


@dataclass(frozen=True)
class MMCEParams(UniformClassPrior):
    """Parameters of the EM: e and s of π, σ (A, K, K) [annotator, true, given], and q (I, K), from which τ follows.

    An extrapolation of σ and π keeps q. Without q it is computed, starting at τ = 0.
    """

    free_shares: FloatArray = em_parameter()
    effect: FloatArray = em_parameter(real_transform(MAX_ANNOTATOR_EFFECT), "A K K")
    posterior: FloatArray | None = em_parameter()

    def confusion(self) -> FloatArray:
        """Return P(label | class) on an item without an effect (A, K, K)."""
        return np.asarray(softmax(self.effect, axis=-1))


@methods.register(
    "mmce", summary="labels depend on annotator and item, class by class: regularised minimax conditional entropy",
    cite="Zhou et al. 2015", costly=True,
)  # fmt: skip
class MMCE(EMAggregator[MMCEParams]):
    """Estimate class posteriors with effects of annotators and items, by minimax conditional entropy.

    `MMCE(gamma=…, centre="zero", class_prior="uniform")` is the method of the paper. The default of gamma is 1/K².
    """

    gamma: float | None = param(None, "strength of the penalties; None for 1/K²", low=1e-6, high=1e6)
    centre: Literal["crowd", "zero"] = param("crowd", "centre of the annotator effects: their mean, or zero")
    prior_annotators: float = param(
        5.0, "number of annotators of unknown quality that are added to the mean", low=MIN_PSEUDO_COUNT
    )
    class_prior: Literal["learned", "votes", "uniform"] = param(
        "learned", "class shares π: the vote shares, uniform shares, or learnt between both"
    )
    class_count: float = param(1.0, "pseudo-count of every class in the shares of the votes", low=MIN_PSEUDO_COUNT)

    labels_depend_on_items: ClassVar = True
    annotator_effect_: Annotated[FloatArray, "A K K real"]
    crowd_effect_: Annotated[FloatArray, "K K real"]
    item_effect_: Annotated[FloatArray, "E K real"]
    item_effect_cell_: Annotated[IntArray, "E cell:I*K"]
    confusion_: Annotated[FloatArray, "A K K simplex"]
    population_confusion_: Annotated[FloatArray, "K K simplex"]
    difficulty_: Annotated[FloatArray, "I real"]
    item_penalty_: Annotated[float, "number"]

    def annotator_penalty(self, n_classes: int) -> float:
        """Return α, the penalty of σ."""
        return 1.0 if self.gamma is None else self.gamma * n_classes**2

    def item_penalty(self, table: Annotations, n_items: int) -> float:
        """Return β, the penalty of τ, for the first `n_items` items of the table."""
        items = np.count_nonzero(np.diff(table.item_ptr[: n_items + 1]))
        annotators = np.count_nonzero(np.diff(table.annotator_ptr))
        # The number of annotations cancels out.
        return self.annotator_penalty(table.n_classes) * max(items / annotators, 1.0)

    def _fit(self, table: Annotations, gold: IntArray | None, on_step: OnStep) -> None:
        unbounded, table = table, cap_weights(table)
        rows, I = expand_rows(table), self.items_.size  # further items of the table stand for earlier counts
        self.item_penalty_ = self.item_penalty(table, I)
        informative = np.diff(rows.item_ptr) > 0 if gold is None else (np.diff(rows.item_ptr) > 0) | (gold >= 0)
        cost = nonuniform_cost(np.ones(table.n_classes), informative.sum()) if self.class_prior == "learned" else 0.0
        with Threads(thread_count(self.threads, rows.annotator.size)) as pool:
            fused_pass = FusedPass(rows, pool, self.item_penalty_, gold, I)

            def em_step(params: MMCEParams) -> tuple[float, MMCEParams]:
                objective = fused_pass(params, 1) + self.log_prior(params) - cost * float(1 - params.uniformity[0])
                uniformity = params.uniformity
                if self.class_prior == "learned":
                    uniformity = np.array([fit_uniformity(params, fused_pass.posterior[informative].sum(axis=0), cost)])
                return objective, replace(
                    params,
                    uniformity=uniformity,
                    effect=self._step_effect(params.effect, fused_pass.sums),
                    posterior=fused_pass.posterior,
                )

            params = self.run_restarts(em_step, partial(self.initialise, table, gold), on_step)
            self.trace_ = np.append(self.trace_, em_step(params)[0])
            fused_pass(replace(params, posterior=None), MAX_ITEM_ROUNDS)
        self.posterior_, self.prior_, self.annotator_effect_ = fused_pass.posterior, params.prior, params.effect
        self.confusion_, self.crowd_effect_ = params.confusion(), self._mean_effect(params.effect)
        hits, total = self._count_agreement(unbounded, self.posterior_)
        self._set_reliability(hits, total)
        self.population_confusion_ = np.average(self.confusion_, axis=0, weights=total if total.any() else None)
        self._set_item_effects(rows)

    def _set_item_effects(self, rows: Rows) -> None:
        """Set τ of the fitted items, and their difficulty: how much τ raises an average annotator's P(error)."""
        I, K = self.items_.size, self.prior_.size
        q = self.posterior_[:I].reshape(-1)
        busy = np.repeat(np.diff(rows.item_ptr[: I + 1]) > 0, K)
        self.item_effect_cell_ = cell = np.flatnonzero((q >= MIN_STORED_PROBABILITY) & busy)
        self.item_effect_ = np.empty((cell.size, K), np.float32)
        kernels.compute_effects(
            cell, rows.arrays, self.confusion_, self.item_penalty_, self.posterior_, self.item_effect_
        )
        k, right = cell % K, np.diagonal(self.population_confusion_)
        here = softmax(np.log(self.population_confusion_[k]) + self.item_effect_, axis=1)[np.arange(cell.size), k]
        self.difficulty_ = np.bincount(cell // K, q[cell] * (right[k] - here), I).astype(np.float64)

    def _compute_posterior(self, table: Annotations, annotators: IntArray) -> FloatArray:
        rows = expand_rows(cap_weights(table))
        with Threads(thread_count(self.threads, rows.annotator.size)) as pool:
            fused_pass = FusedPass(rows, pool, self.item_penalty_, None, table.n_items)
            everyone = np.concatenate([self.annotator_effect_, np.log(self.population_confusion_)[None]])
            effect = everyone[annotators]  # −1 is unseen
            fused_pass(MMCEParams(np.zeros(1), self.prior_, self.prior_, effect, None), MAX_ITEM_ROUNDS)
        return fused_pass.posterior

    def _label_probabilities(self, posterior: FloatArray, item: IntArray, annotator: IntArray) -> FloatArray:
        everyone = self.annotator_confusions(np.append(np.arange(self.annotators_.size), -1))  # −1 is unseen
        K, cell = self.prior_.size, self.item_effect_cell_
        power = np.concatenate([np.exp(self.item_effect_, dtype=np.float64), np.ones((1, K))])
        place = np.full((self.items_.size + 1, K), cell.size)  # −1 is a new item, which has no effects
        place.reshape(-1)[cell] = np.arange(cell.size)
        expected = np.empty_like(posterior)
        for start in range(0, len(posterior), PREDICTION_CHUNK_ROWS):
            rows = slice(start, start + PREDICTION_CHUNK_ROWS)
            odds = everyone[annotator[rows]] * power[place[item[rows]]]  # (rows, K, K) [true, given]
            expected[rows] = np.einsum("nk,nky->ny", posterior[rows] / odds.sum(axis=2), odds)
        return expected

    def initialise(self, table: Annotations, gold: IntArray | None, rng: np.random.Generator | None) -> MMCEParams:
        """Return parameters with vote shares, or random shares near them, as q, and the best σ without item effects."""
        K = table.n_classes
        belief = table.soft_labels() if rng is None else rng.standard_gamma(table.votes() + 1)
        belief /= belief.sum(axis=1, keepdims=True)
        belief = apply_gold(belief, gold)
        counts = expected_label_counts(table, belief)
        sums = EffectSums(counts, np.repeat(counts.sum(axis=2, keepdims=True) / K, K, axis=2))
        shares = belief[np.diff(table.item_ptr) > 0].sum(axis=0) + self.class_count
        uniformity = np.array([INITIAL_UNIFORMITIES[self.class_prior]])
        return MMCEParams(
            uniformity, shares / shares.sum(), np.full(K, 1 / K), self._step_effect(np.zeros_like(counts), sums), belief
        )

    def _mean_effect(self, effect: FloatArray) -> FloatArray:
        """Return σ̄ (K, K)."""
        if self.centre == "zero":
            return np.zeros_like(effect[0])
        middle = effect.sum(axis=0) + self.prior_annotators * unknown_annotator_effect(effect.shape[1])
        return np.asarray(middle / (len(effect) + self.prior_annotators))

    def _step_effect(self, effect: FloatArray, sums: EffectSums) -> FloatArray:
        """Return σ (A, K, K) after a step common to all annotators and a step of each annotator."""
        alpha, centre = self.annotator_penalty(effect.shape[1]), self._mean_effect(effect)
        if self.centre == "crowd":
            # These are the sums of one annotator who gave all labels.
            seen, expected = (part.sum(axis=0, keepdims=True) for part in sums)
            centre = kernels.m_step(
                centre[None], seen, expected, self.prior_annotators * alpha, unknown_annotator_effect(len(centre))
            )[0]
        return np.asarray(kernels.m_step(effect, *sums, alpha, centre))

    def log_prior(self, params: MMCEParams) -> float:
        middle = self._mean_effect(params.effect)
        square = float(np.square(params.effect - middle).sum())
        if self.centre == "crowd":
            square += self.prior_annotators * float(np.square(middle - unknown_annotator_effect(len(middle))).sum())
        return -0.5 * self.annotator_penalty(params.prior.size) * square


def cap_weights(table: Annotations) -> Annotations:
    """Return the table with weights scaled down to at most `MAX_ROW_WEIGHT`."""
    if table.weight is None or table.weight.max(initial=0) <= MAX_ROW_WEIGHT:
        return table
    return replace(table, weight=table.weight * (MAX_ROW_WEIGHT / table.weight.max()))


def unknown_annotator_effect(n_classes: int) -> FloatArray:
    """Return the σ of an annotator of unknown quality (K, K), from `default_pseudo_counts`."""
    logs = np.log(default_pseudo_counts(n_classes))
    return np.asarray(logs - logs.mean(axis=1, keepdims=True))


class EffectSums(NamedTuple):
    """The sums that determine the next σ: observed and expected labels, (A, K, K) [annotator, true, given]."""

    observed: FloatArray
    expected: FloatArray


class FusedPass:
    """The E step and the sums of the M step, computed in one pass over the rows by several threads.

    `penalty` is β. Only the first `n_effect_items` items have effects.
    """

    posterior: FloatArray
    sums: EffectSums

    def __init__(self, rows: Rows, pool: Threads, penalty: float, gold: IntArray | None, n_effect_items: int):
        self.rows, self.pool, self.penalty, self.gold, self.special = rows, pool, penalty, gold, n_effect_items
        self.items = balanced_ranges(rows.item_ptr, pool.threads)

    def __call__(self, params: MMCEParams, rounds: int) -> float:
        """Compute the posterior and the sums for the next σ; return the log evidence minus β/2 Σ τ²."""
        rows, confusion, log_prior = self.rows, params.confusion(), np.log(params.prior)
        K = log_prior.size
        self.posterior = np.empty((rows.item_ptr.size - 1, K))
        log_confusion = np.ascontiguousarray(np.log(confusion).transpose(0, 2, 1))
        before = self.posterior if params.posterior is None else params.posterior
        parts, (counts, expected, plain) = self.pool.sum_over_ranges(
            lambda start, stop, *sums: kernels.process_items(
                start, stop, rows.arrays, confusion, log_confusion, log_prior, self.penalty, self.gold, self.special,
                rounds, params.posterior is None, before, self.posterior, *sums,
            ),
            self.items, confusion.shape, confusion.shape, confusion.shape[:2],
        )  # fmt: skip
        self.sums = EffectSums(counts, expected + plain[:, :, None] * confusion)
        return float(sum(parts))
