"""Hierarchical Dawid-Skene: confusion matrices whose common prior is learnt from all annotators.

Use it like `dawid-skene` when annotators have few labels each or classes are very uneven.

Row c of every confusion matrix is drawn from one Dirichlet distribution, whose parameters α_c describe the whole crowd:

    z_i ~ Cat(π)      y_ij | z_i = c ~ Cat(Θ_j[c, :])      Θ_j[c, :] ~ Dirichlet(α_c)

So an annotator with three labels stays close to the average of the crowd, and an annotator with three hundred labels is
estimated from its own labels. A point estimate of Θ would fail, because in the most probable crowd all annotators are
the same.
Variational Bayes gives each Θ_j[c, :] the posterior Dirichlet(γ_j[c, :]) and raises a bound on the log evidence:

    E step  q_i(c) ∝ π_c Π_{j∈M_i} exp(E log Θ_j[c, y_ij]),      E log Θ_j[c, l] = ψ(γ_j[c, l]) − ψ(Σ_l γ_j[c, l])
    M step  γ_j[c, l] = α_c[l] + Σ_{i: y_ij = l} q_i(c)          π_c ∝ b_c + Σ_i q_i(c)
            ψ(α_c[l]) = ψ(Σ_l α_c[l]) + mean_j E log Θ_j[c, l]   (fixed point, Minka 2000)
    bound   Σ_i log Σ_c π_c Π_j exp(E log Θ_j[c, y_ij]) − Σ_jc KL(Dir(γ_j[c, :]) ‖ Dir(α_c)) + log p(π) + log p(α)

- `concentration_` (A, K, K) [annotator, true, given]: γ; `confusion_` is the mean of Θ
- `population_` (K, K) [true, given]: α
- `prior_` (K,): π, the class shares; b are the pseudo-counts of `dawid-skene`; ψ is the digamma function

The mean over j includes `prior_annotators` annotators of unknown quality, so that a table with one annotator has a
prior too. Each pass also takes Minka's quotient steps for α, without which cifar10h needed 500 passes instead of 19.

The returned posterior uses the mean of Θ_j. exp(E log Θ_j) is smaller where labels are few and makes the posterior
overconfident (log loss on labelme 1.77 instead of 1.04).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.special import gammaln, psi

from dissensus.models.confusion import (
    ClassParams,
    ConfusionModel,
    Engine,
    ExpectedCounts,
    FloatArray,
    P,
    em_parameter,
    methods,
    param,
)
from dissensus.models.dirichlet import MIN_ALPHA, expected_log, kl_divergence, mean_log_density, update_alpha
from dissensus.models.em import cached_by_params
from dissensus.models.matrices import MAX_PSEUDO_COUNT, MIN_PSEUDO_COUNT, class_pseudo_counts, default_pseudo_counts
from dissensus.models.params import LOG_SIMPLEX, positive_transform

QUOTIENT_STEPS = 2  # quotient steps per M step
NEGLIGIBLE_COUNT = 1e-9  # counts below this value are ignored in the update of α


@dataclass(frozen=True)
class HierarchicalParams(ClassParams):
    """Parameters of the EM: π (K,), γ (A, K, K) [annotator, true, given], α (K, K) [true, given]."""

    prior: FloatArray = em_parameter(LOG_SIMPLEX)
    concentration: FloatArray = em_parameter(positive_transform(MIN_ALPHA), "A K K")
    population: FloatArray = em_parameter(positive_transform(MIN_ALPHA), "K K")


class CrowdPriorModel(ConfusionModel[P]):
    """Base class for methods that learn the prior of confusion matrices from the whole crowd."""

    prior_annotators: float = param(
        2.0, "number of annotators of unknown quality that are added to the crowd", low=MIN_PSEUDO_COUNT
    )
    class_count: float = param(1.0, "pseudo-count of every class", low=MIN_PSEUDO_COUNT)
    vote_count: float = param(
        0.5, "pseudo-items per annotator, with classes by the vote shares", low=0, high=MAX_PSEUDO_COUNT
    )

    def prepare(self, votes: ExpectedCounts, engine: Engine) -> None:
        self.class_pseudo_counts_ = class_pseudo_counts(engine, votes, self.class_count, self.vote_count)


@methods.register(
    "hierarchical-dawid-skene",
    summary="confusion matrices that share a prior learnt from the whole crowd",
    cite="Paun et al. 2018",
)
class HierarchicalDawidSkene(CrowdPriorModel[HierarchicalParams]):
    """Estimate confusion matrices with a prior learnt from all annotators, by variational Bayes."""

    Params = HierarchicalParams
    concentration_: FloatArray
    population_: FloatArray

    def initial_params(self, prior: FloatArray) -> HierarchicalParams:
        """Return the parameters of a crowd of unknown quality."""
        return HierarchicalParams(prior, np.empty((0, 0, 0)), expected_population(prior.size))

    @cached_by_params
    def expected_logs(self, params: HierarchicalParams) -> FloatArray:
        """Return E log Θ (A, K, K)."""
        return expected_log(params.concentration)

    def label_likelihood(self, params: HierarchicalParams) -> FloatArray:
        """Return exp(E log Θ) (A, K, K)."""
        return np.exp(self.expected_logs(params))

    def expected_label_likelihood(self, params: HierarchicalParams) -> FloatArray:
        """Return E Θ (A, K, K)."""
        return np.asarray(params.concentration / params.concentration.sum(axis=2, keepdims=True))

    def update_hyperparameters(self, label_counts: FloatArray, params: HierarchicalParams) -> HierarchicalParams:
        """Return parameters with a more probable α for these counts."""
        logs = expected_log(label_counts + params.population).sum(axis=0)
        weight = len(label_counts) + self.prior_annotators
        shape = update_alpha(
            (logs + self.prior_annotators * unknown_expected_log(params.prior.size)) / weight, params.population
        )
        return replace(params, population=improve_population(shape, label_counts, self.prior_annotators))

    def m_step(self, label_counts: FloatArray, label_totals: FloatArray, params: Any) -> HierarchicalParams:
        """Return γ = α + n."""
        return HierarchicalParams(params.prior, label_counts + params.population, params.population)

    def log_prior(self, params: HierarchicalParams) -> float:
        """Return the log prior of α minus the divergences of γ from α, up to a constant."""
        alpha = params.population
        density = mean_log_density(alpha, unknown_expected_log(len(alpha))).sum()
        return float(
            self.prior_annotators * density - kl_divergence(params.concentration, alpha, self.expected_logs(params))
        )

    def population_params(self, params: HierarchicalParams) -> HierarchicalParams:
        return self.m_step(np.zeros_like(params.concentration[:1]), np.empty(0), params)

    def confusion_support(self) -> FloatArray:
        """Return the number of labels and pseudo-counts behind each row of Θ (A, K, 1)."""
        return np.asarray(self.concentration_.sum(axis=2, keepdims=True))


def improve_population(population: FloatArray, counts: FloatArray, prior_annotators: float) -> FloatArray:
    """Return a more probable α (K, K) [true, given] for counts n (A, K, K) [annotator, true, given].

    With γ = α + n the bound is Σ_j log B(α_c + n_jc)/B(α_c) plus a term of the prior. Its gradient in α_c[l] is a
    difference of two positive sums, whose quotient gives a step (Minka 2000, eq. 55). Only nonzero counts matter, so
    steps are fast. They are useful for small α, for which the fixed point over E log Θ is very slow.
    """
    counted = np.nonzero(counts > NEGLIGIBLE_COUNT)
    cell = counted[1] * counts.shape[2] + counted[2]
    positive_counts, total = counts[counted], counts.sum(axis=2)  # (A, K) number of labels per true class
    logs, shape = unknown_expected_log(counts.shape[1]), population.shape

    def sum_cells(values: FloatArray) -> FloatArray:
        return np.asarray(np.bincount(cell, values, population.size).reshape(shape), float)

    def row_bound(alpha: FloatArray) -> FloatArray:
        """Return the contribution of every row to the bound (K,), up to a constant."""
        size, at = alpha.sum(axis=1), alpha.reshape(-1)[cell]
        labels = sum_cells(gammaln(at + positive_counts) - gammaln(at)).sum(axis=1)
        totals = (gammaln(size + total) - gammaln(size)).sum(axis=0)
        return np.asarray(labels - totals + prior_annotators * mean_log_density(alpha, logs))

    best, best_value = population, row_bound(population)
    for _ in range(QUOTIENT_STEPS):
        size, at = best.sum(axis=1), best.reshape(-1)[cell]
        pull = prior_annotators * (logs + psi(size)[:, None] - psi(best))
        up = sum_cells(psi(at + positive_counts) - psi(at)) + np.maximum(pull, 0)
        down = (psi(size + total) - psi(size)).sum(axis=0)[:, None] + np.maximum(-pull, 0)
        alpha = np.maximum(best * up / np.maximum(down, 1e-300), MIN_ALPHA)
        value = row_bound(alpha)
        better = value > best_value
        best, best_value = np.where(better[:, None], alpha, best), np.where(better, value, best_value)
    return np.asarray(best)


def expected_population(n_classes: int) -> FloatArray:
    """Return α for a crowd of unknown quality, (K, K) [true, given]."""
    return np.asarray(np.maximum(default_pseudo_counts(n_classes), MIN_ALPHA))


def unknown_expected_log(n_classes: int) -> FloatArray:
    """Return E log Θ for an annotator from a crowd of unknown quality, (K, K) [true, given]."""
    return expected_log(expected_population(n_classes))
