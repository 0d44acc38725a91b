"""Dawid-Skene whose annotators share a learnt prior: what is normal here is learnt from everyone.

    α_c: what rows of confusion matrices look like in this crowd      Θ_j[c, :] ~ Dirichlet(α_c)
    z_i ~ Cat(π)      y_ij | z_i = c ~ Cat(Θ_j[c, :])

An annotator with three labels is close to the crowd's average, one with three hundred is itself. A point estimate of Θ
would not do: the most probable crowd is one in which all are alike. So Θ_j keeps a distribution, Dirichlet(γ_j), and
the bound on the log evidence (variational Bayes) is raised in π, γ and α (empirical Bayes) in turn:

E step  q_i(c) ∝ π_c Π_{j∈M_i} exp(E log Θ_j[c, y_ij]),      E log Θ_j[c, l] = ψ(γ_j[c, l]) − ψ(Σ_l γ_j[c, l])
M step  γ_j[c, l] = α_c[l] + Σ_{i: y_ij = l} q_i(c)          π_c ∝ b_c + Σ_i q_i(c)
        ψ(α_c[l]) = ψ(Σ_l α_c[l]) + mean_j E log Θ_j[c, l]    (fixed point, Minka 2000, with n0 more annotators like
                                                              `expected_pseudo`), then `polished`
bound   Σ_i log Σ_c π_c Π_j exp(E log Θ_j[c, y_ij]) − Σ_jc KL(Dir(γ_jc) ‖ Dir(α_c)) + log p(π) + log p(α)

What is returned as posterior takes the mean of each Θ_j, which is the chance of the label that was seen; exp(E log Θ)
is smaller where little is known, and made the posterior far too sure (log loss on labelme 1.77 against 1.04).

The model is Paun et al.'s hierarchical Dawid-Skene (2018) with Dirichlet instead of logit-normal rows. Inside, γ is
(A, K, K) [annotator, given, true] and α (K, K) [given, true].
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, Self

import numpy as np

from dissensus.common.types import BoolArray, FloatArray, IntArray, OnStep
from dissensus.compute.engines import EngineChoice, place
from dissensus.compute.engines.base import Engine
from dissensus.exceptions import BadParameter
from dissensus.models.base import methods
from dissensus.models.em import Accelerate, EMAggregator
from dissensus.models.incremental import settle
from dissensus.models.methods.dawid_skene import (
    LARGEST,
    ConfusionPass,
    Confusions,
    Counts,
    DawidSkene,
    VotePass,
    class_pseudo,
    expected_pseudo,
    score,
    soft_counts,
    with_unseen,
)
from dissensus.table.annotations import Annotations

LEAST = 0.05  # smallest α: ψ(0.05) = −20.5, so that exp(E log Θ) stays above 1e-18, see kernels.confusion
STEPS = 2  # of `polished` in one M step
NOTHING = 1e-9  # a count that says nothing of α
FIXED_POINTS = 5  # steps of the fixed point in one M step


@dataclass(frozen=True)
class Crowd:
    """The parameters: π (K,), γ (A, K, K) [annotator, given, true], α (K, K) [given, true]."""

    prior: FloatArray
    concentration: FloatArray
    population: FloatArray

    def to_vector(self) -> FloatArray:
        """Logarithms: all are positive."""
        return np.asarray(np.log(np.concatenate([part.reshape(-1) for part in self._parts()])))

    def from_vector(self, vector: FloatArray) -> Self:
        """Back from logarithms, π normalised again."""
        K, A = self.prior.size, self.concentration.shape[0]
        prior, rest, population = np.split(np.exp(np.clip(vector, -40, 40)), [K, K + A * K * K])
        return type(self)(
            prior / prior.sum(),
            np.maximum(rest, LEAST).reshape(self.concentration.shape),
            np.maximum(population, LEAST).reshape(K, K),
        )

    def _parts(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        return self.prior, self.concentration, self.population


@methods.register(
    "hierarchical-dawid-skene",
    summary="confusion matrices that share a prior learnt from the whole crowd",
    cite="Paun et al. 2018",
)
class HierarchicalDawidSkene(EMAggregator[Crowd]):
    """Variational Dawid-Skene with a learnt prior over confusion matrices.

    Parameters
    ----------
    known : float
        Weight, in annotators, of `expected_pseudo`, someone unknown, beside what the crowd itself shows.
    class_count, vote_count : float
        Pseudo-counts of the classes' shares, as in `dawid-skene`.
    max_iter, tol, accelerate, restarts, threads, engine, seed
        As in `dawid-skene`.
    """

    class_pseudo_: FloatArray  # (K,) b

    def __init__(
        self,
        *,
        known: float = 2.0,
        class_count: float = 1.0,
        vote_count: float = 0.5,
        max_iter: int = 500,
        tol: float = 1e-7,
        accelerate: Accelerate = "squarem",
        restarts: int = 1,
        threads: int | None = None,
        engine: EngineChoice = "local",
        seed: int | None = 0,
    ):
        self.known = known
        self.class_count = class_count
        self.vote_count = vote_count
        self.max_iter = max_iter
        self.tol = tol
        self.accelerate = accelerate
        self.restarts = restarts
        self.threads = threads
        self.engine = engine
        self.seed = seed

    def _check_parameters(self) -> None:
        super()._check_parameters()
        for keyword in ("known", "class_count"):
            if not 1e-9 <= getattr(self, keyword) < np.inf:
                raise BadParameter(f"{keyword} must be at least 1e-09, got {getattr(self, keyword)}.")
        if not 0 <= self.vote_count <= LARGEST:
            raise BadParameter(f"vote_count must lie from 0 to {LARGEST:g}, got {self.vote_count}.")

    def _fit(self, table: Annotations, gold: IntArray | None, on_step: OnStep) -> None:
        with place(self, table, gold) as engine:
            walk = ConfusionPass()

            def bound(params: Crowd) -> tuple[float, Counts]:
                sums = engine.sweep(walk, Confusions(params.prior, np.exp(expected_log(params.concentration))))
                return sums.evidence + self.log_penalty(params), sums

            def em_pass(params: Crowd) -> tuple[float, Crowd]:
                objective, sums = bound(params)
                return objective, self._maximise(sums.counts, sums.prior_counts, params.population)

            params = self.run(em_pass, partial(self.start, engine), on_step, engine.checkpoint)
            self.trace_ = np.append(self.trace_, bound(params)[0])  # the objective of what is returned
            gamma = params.concentration
            self.posterior_ = engine.per_item("posterior", engine.size.n_classes)
            means = Confusions(params.prior, gamma / gamma.sum(axis=1, keepdims=True))
            sums = engine.sweep(walk, means, {"posterior": self.posterior_})
        self.prior_, self.class_counts_ = params.prior, sums.prior_counts
        self.concentration_ = np.ascontiguousarray(gamma.transpose(0, 2, 1))  # [annotator, true, given]
        self.confusion_ = self.concentration_ / self.concentration_.sum(axis=2, keepdims=True)
        self.population_ = np.ascontiguousarray(params.population.T)  # [true, given]
        self._judge(np.einsum("akk->a", sums.counts), sums.counts.sum(axis=(1, 2)))

    def _score(self, table: Annotations, known: IntArray) -> FloatArray:
        return score(table, self.prior_, self._confusions(known), self.threads, "float64")

    def _confusions(self, known: IntArray) -> FloatArray:
        return with_unseen(self.confusion_, self.population_ / self.population_.sum(axis=1, keepdims=True), known)

    def _confusion_size(self) -> FloatArray:
        return np.asarray(self.concentration_.sum(axis=2, keepdims=True))

    def _newcomer(self) -> dict[str, Any]:
        return {
            "concentration_": self.population_,
            "confusion_": self.population_ / self.population_.sum(axis=1, keepdims=True),
        }

    def _update(
        self, table: Annotations, item: IntArray, annotator: IntArray, old: BoolArray, gold: IntArray | None
    ) -> FloatArray:
        """With the means of Θ, as the posterior that is returned; the population stays as it is."""
        before, earlier = self.posterior_[item], self.concentration_[annotator].transpose(0, 2, 1)

        def learn(posterior: FloatArray) -> FloatArray:
            gamma = earlier + soft_counts(table, posterior)
            return np.asarray(gamma / gamma.sum(axis=1, keepdims=True))

        def log_votes(confusion: FloatArray) -> FloatArray:
            return DawidSkene().log_votes(table, Confusions(self.prior_, confusion))

        first = earlier / earlier.sum(axis=1, keepdims=True)
        posterior, confusion = settle(table, before, gold, first, log_votes, learn)
        self.concentration_, self.confusion_ = self.concentration_.copy(), self.confusion_.copy()
        self.concentration_[annotator] += soft_counts(table, posterior).transpose(0, 2, 1)
        self.confusion_[annotator] = confusion.transpose(0, 2, 1)
        self._recount(posterior, before, old, self.class_pseudo_)
        return posterior

    def start(self, engine: Engine, rng: np.random.Generator | None) -> Crowd:
        """As `dawid-skene` starts, with a population of which nothing is known."""
        votes = engine.once(VotePass())
        self.class_pseudo_ = class_pseudo(engine, votes.prior_counts, self.class_count, self.vote_count)
        first = votes if rng is None else engine.sweep(VotePass(rng), None)
        return self._maximise(first.counts, first.prior_counts, expected_population(engine.size.n_classes))

    def _maximise(self, counts: FloatArray, prior_counts: FloatArray, population: FloatArray) -> Crowd:
        """π, α and the γ that go with it, each raising the bound."""
        prior = prior_counts + self.class_pseudo_
        logs = expected_log(counts + population).sum(axis=0)
        shape = self._fit_population(logs, counts.shape[0], population)
        population = polished(shape, counts, self.known)
        return Crowd(prior / prior.sum(), counts + population, population)

    def _fit_population(self, logs: FloatArray, n_annotators: int, population: FloatArray) -> FloatArray:
        """α (K, K) [given, true] from Σ_j E log Θ_j; what does not raise the bound is not taken."""
        weight = n_annotators + self.known
        return fixed_point((logs + self.known * _expected_logs(population.shape[0])) / weight, population)

    # The readable form ------------------------------------------------------------------------------------------------

    def m_step(self, table: Annotations, posterior: FloatArray, population: FloatArray | None = None) -> Crowd:
        """The M step from a posterior (I, K) and the α before it."""
        before = expected_population(table.n_classes) if population is None else population
        return self._maximise(soft_counts(table, posterior), posterior.sum(axis=0), before)

    def log_votes(self, table: Annotations, params: Crowd) -> FloatArray:
        """(N, K) E log Θ_j[c, y]; of a probabilistic row, its mean under the row's distribution."""
        logs = expected_log(params.concentration)
        votes = logs[table.annotator, table.label]
        if table.proba is not None:
            votes = np.einsum("ny,nyk->nk", table.proba, logs[table.annotator])
        return np.asarray(votes if table.weight is None else votes * table.weight[:, None])

    def log_prior(self, params: Crowd) -> FloatArray:
        """(K,) log π."""
        return np.asarray(np.log(params.prior))

    def log_penalty(self, params: Crowd) -> float:
        """Minus the divergences of γ from α, and the log priors of π and α, up to a constant."""
        gamma, alpha = params.concentration, params.population
        logs = expected_log(gamma)
        divergence = _log_normaliser(alpha).sum() * gamma.shape[0] - _log_normaliser(gamma).sum()
        divergence += ((gamma - alpha) * logs).sum()
        known = ((alpha - 1) * _expected_logs(alpha.shape[0])).sum() - _log_normaliser(alpha).sum()
        return float(self.known * known - divergence + self.class_pseudo_ @ np.log(params.prior))


def expected_log(concentration: FloatArray) -> FloatArray:
    """E log Θ under Dirichlet(γ): the same shape as γ (A, K, K) [annotator, given, true]."""
    from scipy.special import psi

    return np.asarray(psi(concentration) - psi(concentration.sum(axis=1, keepdims=True)))


def fixed_point(mean: FloatArray, population: FloatArray) -> FloatArray:
    """α (K, n) whose columns fit mean logarithms `mean` (K, n) better than those of `population` (Minka 2000)."""
    from scipy.special import psi

    best = population
    for _ in range(FIXED_POINTS):
        new = np.maximum(_inverse_psi(psi(best.sum(axis=0)) + mean), LEAST)
        # column by column: each class has its own α
        better = _dirichlet_fit(new, mean) > _dirichlet_fit(best, mean)
        best = np.where(better, new, best)
    return np.asarray(best)


def polished(population: FloatArray, counts: FloatArray, known: float) -> FloatArray:
    """A more probable α (K, K) [given, true] for counts n (A, K, K) [annotator, given, true].

    With γ = α + n the bound is Σ_j log B(α_c + n_jc)/B(α_c) and the prior's part, and its gradient in α_c[l] a
    difference of two positive sums, whose quotient is a step (Minka 2000, eq. 55). Only what was counted matters, so
    steps cost little; small α, which the fixed point over E log Θ moves very slowly, get where they belong.
    """
    from scipy.special import gammaln, psi

    counted = np.nonzero(counts > NOTHING)
    cell = counted[1] * counts.shape[2] + counted[2]
    some, total = counts[counted], counts.sum(axis=1)  # total (A, K) of each true class
    logs, shape = _expected_logs(counts.shape[1]), population.shape

    def summed(values: FloatArray) -> FloatArray:
        return np.asarray(np.bincount(cell, values, population.size).reshape(shape), float)

    def fit(alpha: FloatArray) -> FloatArray:
        """(K,) the bound's part of every column, up to a constant."""
        size, at = alpha.sum(axis=0), alpha.reshape(-1)[cell]
        seen = summed(gammaln(at + some) - gammaln(at)).sum(axis=0)
        return np.asarray(
            seen - (gammaln(size + total) - gammaln(size)).sum(axis=0) + known * _dirichlet_fit(alpha, logs)
        )

    best, found = population, fit(population)
    for _ in range(STEPS):
        size, at = best.sum(axis=0), best.reshape(-1)[cell]
        pull = known * (logs + psi(size) - psi(best))
        up = summed(psi(at + some) - psi(at)) + np.maximum(pull, 0)
        down = (psi(size + total) - psi(size)).sum(axis=0) + np.maximum(-pull, 0)
        alpha = np.maximum(best * up / np.maximum(down, 1e-300), LEAST)
        value = fit(alpha)
        better = value > found
        best, found = np.where(better, alpha, best), np.where(better, value, found)
    return np.asarray(best)


def expected_population(n_classes: int) -> FloatArray:
    """(K, K) [given, true] the α of a crowd of which nothing is known."""
    return np.asarray(np.maximum(expected_pseudo(n_classes), LEAST))


def _expected_logs(n_classes: int) -> FloatArray:
    """(K, K) E log Θ of an annotator of such a crowd."""
    return np.asarray(expected_log(expected_population(n_classes)[None])[0])


def _log_normaliser(concentration: FloatArray) -> Any:
    """Log of the Dirichlet's normaliser, Σ log Γ(γ_l) − log Γ(Σ γ_l), over the axis of given labels."""
    from scipy.special import gammaln

    given = concentration.ndim - 2
    return gammaln(concentration).sum(axis=given) - gammaln(concentration.sum(axis=given))


def _dirichlet_fit(alpha: FloatArray, mean: FloatArray) -> Any:
    """(K,) mean log density, per class, of rows whose mean logarithms are `mean` (K, K) [given, true]."""
    return ((alpha - 1) * mean).sum(axis=0) - _log_normaliser(alpha)


def _inverse_psi(value: FloatArray) -> FloatArray:
    """ψ⁻¹ by Newton's method from Minka's start (2000, appendix C)."""
    from scipy.special import polygamma, psi

    x = np.where(value >= -2.22, np.exp(value) + 0.5, -1 / np.minimum(value - psi(1.0), -1))
    for _ in range(5):
        x = x - (psi(x) - value) / polygamma(1, x)
    return np.asarray(x)
