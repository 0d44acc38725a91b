"""Dawid-Skene whose annotators share a prior that is learnt from all annotators.

    α_c: the prior of rows of confusion matrices in this crowd      Θ_j[c, :] ~ Dirichlet(α_c)
    z_i ~ Cat(π)      y_ij | z_i = c ~ Cat(Θ_j[c, :])

An annotator with three labels is close to the crowd's average, one with three hundred is estimated from its own labels.
A point estimate of Θ would not work: the most probable crowd is one in which all annotators are the same. So Θ_j has a
posterior, Dirichlet(γ_j), and the bound on the log evidence (variational Bayes) is raised in π, γ and α (empirical
Bayes) in turn:

E step  q_i(c) ∝ π_c Π_{j∈M_i} exp(E log Θ_j[c, y_ij]),      E log Θ_j[c, l] = ψ(γ_j[c, l]) − ψ(Σ_l γ_j[c, l])
M step  γ_j[c, l] = α_c[l] + Σ_{i: y_ij = l} q_i(c)          π_c ∝ b_c + Σ_i q_i(c)
        ψ(α_c[l]) = ψ(Σ_l α_c[l]) + mean_j E log Θ_j[c, l]    (fixed point, Minka 2000, with n0 annotators of
                                                              `expected_pseudo` added), then `improve_population`
bound   Σ_i log Σ_c π_c Π_j exp(E log Θ_j[c, y_ij]) − Σ_jc KL(Dir(γ_jc) ‖ Dir(α_c)) + log p(π) + log p(α)

The returned posterior uses the mean of each Θ_j, the probability of the observed label; exp(E log Θ) is smaller with
few labels, and made the posterior far overconfident (log loss on labelme 1.77 instead of 1.04).

The model is Paun et al.'s hierarchical Dawid-Skene (2018) with Dirichlet instead of logit-normal rows. γ is
`concentration_` (A, K, K) [annotator, true, given], α `population_` (K, K) [true, given].
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
from dissensus.models.dirichlet import MIN_ALPHA, divergence, expected_log, fixed_point, mean_log_density
from dissensus.models.em import cached_by_params
from dissensus.models.matrices import MAX_PSEUDO, MIN_PSEUDO, class_pseudo, expected_pseudo
from dissensus.models.params import LOG_SIMPLEX, positive

QUOTIENT_STEPS = 2  # steps per M step
NO_COUNT = 1e-9  # smaller counts do not inform α


@dataclass(frozen=True)
class Crowd(ClassParams):
    """The parameters: π (K,), γ (A, K, K) [annotator, true, given], α (K, K) [true, given]."""

    prior: FloatArray = em_parameter(LOG_SIMPLEX)
    concentration: FloatArray = em_parameter(positive(MIN_ALPHA), "A K K")
    population: FloatArray = em_parameter(positive(MIN_ALPHA), "K K")


class CrowdModel(ConfusionModel[P]):
    """A method that learns the prior of confusion matrices from the whole crowd."""

    known: float = param(2.0, "weight of an unknown annotator in the crowd's prior", low=MIN_PSEUDO)
    class_count: float = param(1.0, "pseudo-count of every class", low=MIN_PSEUDO)
    vote_count: float = param(0.5, "pseudo-items per annotator, of classes as voted", low=0, high=MAX_PSEUDO)

    def prepare(self, votes: ExpectedCounts, engine: Engine) -> None:
        self.class_pseudo_ = class_pseudo(engine, votes, self.class_count, self.vote_count)


@methods.register(
    "hierarchical-dawid-skene",
    summary="confusion matrices that share a prior learnt from the whole crowd",
    cite="Paun et al. 2018",
)
class HierarchicalDawidSkene(CrowdModel[Crowd]):
    """Variational Dawid-Skene with a learnt prior over confusion matrices."""

    Params = Crowd
    concentration_: FloatArray
    population_: FloatArray

    def initial_params(self, prior: FloatArray) -> Crowd:
        """Return the parameters of an unknown crowd."""
        return Crowd(prior, np.empty((0, 0, 0)), expected_population(prior.size))

    @cached_by_params
    def expected_logs(self, params: Crowd) -> FloatArray:
        """(A, K, K) E log Θ."""
        return expected_log(params.concentration)

    def label_likelihood(self, params: Crowd) -> FloatArray:
        """(A, K, K) Return exp(E log Θ)."""
        return np.exp(self.expected_logs(params))

    def expected_label_likelihood(self, params: Crowd) -> FloatArray:
        """(A, K, K) Return E Θ."""
        return np.asarray(params.concentration / params.concentration.sum(axis=2, keepdims=True))

    def update_hyperparameters(self, labels: FloatArray, params: Crowd) -> Crowd:
        """Return a more probable α for these counts."""
        logs, weight = expected_log(labels + params.population).sum(axis=0), len(labels) + self.known
        shape = fixed_point((logs + self.known * unknown_logs(params.prior.size)) / weight, params.population)
        return replace(params, population=improve_population(shape, labels, self.known))

    def m_step(self, labels: FloatArray, totals: FloatArray, params: Any) -> Crowd:
        """Return γ = α + n."""
        return Crowd(params.prior, labels + params.population, params.population)

    def log_prior(self, params: Crowd) -> float:
        """Return the log prior of α less the divergences of γ from α, up to a constant."""
        alpha = params.population
        known = mean_log_density(alpha, unknown_logs(len(alpha))).sum()
        return float(self.known * known - divergence(params.concentration, alpha, self.expected_logs(params)))

    def population_params(self, params: Crowd) -> Crowd:
        return self.m_step(np.zeros_like(params.concentration[:1]), np.empty(0), params)

    def confusion_support(self) -> FloatArray:
        """(A, K, 1) Return Σ_l γ."""
        return np.asarray(self.concentration_.sum(axis=2, keepdims=True))


def improve_population(population: FloatArray, counts: FloatArray, known: float) -> FloatArray:
    """Return a more probable α (K, K) [true, given] for counts n (A, K, K) [annotator, true, given].

    With γ = α + n the bound is Σ_j log B(α_c + n_jc)/B(α_c) plus the prior's part, and its gradient in α_c[l] a
    difference of two positive sums, whose quotient is a step (Minka 2000, eq. 55). Only nonzero counts matter, so steps
    are cheap; they move small α, for which the fixed point over E log Θ is very slow.
    """
    counted = np.nonzero(counts > NO_COUNT)
    cell = counted[1] * counts.shape[2] + counted[2]
    some, total = counts[counted], counts.sum(axis=2)  # total (A, K) of each true class
    logs, shape = unknown_logs(counts.shape[1]), population.shape

    def summed(values: FloatArray) -> FloatArray:
        return np.asarray(np.bincount(cell, values, population.size).reshape(shape), float)

    def fit(alpha: FloatArray) -> FloatArray:
        """(K,) the bound's part of every row, up to a constant."""
        size, at = alpha.sum(axis=1), alpha.reshape(-1)[cell]
        labels = summed(gammaln(at + some) - gammaln(at)).sum(axis=1)
        totals = (gammaln(size + total) - gammaln(size)).sum(axis=0)
        return np.asarray(labels - totals + known * mean_log_density(alpha, logs))

    best, found = population, fit(population)
    for _ in range(QUOTIENT_STEPS):
        size, at = best.sum(axis=1), best.reshape(-1)[cell]
        pull = known * (logs + psi(size)[:, None] - psi(best))
        up = summed(psi(at + some) - psi(at)) + np.maximum(pull, 0)
        down = (psi(size + total) - psi(size)).sum(axis=0)[:, None] + np.maximum(-pull, 0)
        alpha = np.maximum(best * up / np.maximum(down, 1e-300), MIN_ALPHA)
        value = fit(alpha)
        better = value > found
        best, found = np.where(better[:, None], alpha, best), np.where(better, value, found)
    return np.asarray(best)


def expected_population(n_classes: int) -> FloatArray:
    """(K, K) [true, given] the α of an unknown crowd."""
    return np.asarray(np.maximum(expected_pseudo(n_classes), MIN_ALPHA))


def unknown_logs(n_classes: int) -> FloatArray:
    """(K, K) [true, given] E log Θ of an annotator from an unknown crowd."""
    return expected_log(expected_population(n_classes))
