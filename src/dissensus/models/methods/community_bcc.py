"""Community BCC (Venanzi et al. 2014): annotators belong to communities whose members make similar mistakes.

    m_j ~ Cat(h)      Θ_j[c, :] | m_j = m ~ Dirichlet(α_m[c, :])      z_i ~ Cat(π)      y_ij | z_i = c ~ Cat(Θ_j[c, :])

So an annotator's matrix is drawn around its community's, and an annotator with few labels has the matrix of its
community, once that is clear. With one community this is `hierarchical-dawid-skene`. The posterior of an annotator is a
distribution over communities and a Dirichlet for each: m_j ~ Cat(ρ_j), Θ_j[c, :] | m ~ Dirichlet(γ_jm[c, :]). The bound
on the log evidence (variational Bayes) is raised in these posteriors, in π, h and α (empirical Bayes), and in q:

E step  q_i(c) ∝ π_c Π_{j∈M_i} exp(E log Θ_j[c, y_ij]),   E log Θ_j[c, l] = Σ_m ρ_jm (ψ(γ_jm[c, l]) − ψ(Σ_l γ_jm[c, l]))
M step  n_j[c, l] = Σ_{i: y_ij = l} q_i(c)      γ_jm = α_m + n_j      π_c ∝ b_c + Σ_i q_i(c)
        ρ_jm ∝ h_m Π_c B(γ_jm[c, :]) / B(α_m[c, :])      h_m ∝ κ + Σ_j ρ_jm      B(γ) = Π_l Γ(γ_l) / Γ(Σ_l γ_l)
        ψ(α_m[c, l]) = ψ(Σ_l α_m[c, l]) + mean of E log Θ_j[c, l] under γ_jm, annotators weighing ρ_jm
        (fixed point, Minka 2000, with n0/M additional annotators like `expected_pseudo`), then `quotients`
bound   Σ_i log Σ_c π_c Π_j exp(E log Θ_j[c, y_ij])
        + Σ_j (log Σ_m h_m Π_c B(γ_jm[c, :]) / B(α_m[c, :]) − n_j · E log Θ_j)
        + log p(π) + log p(h) + Σ_m log p(α_m)

| symbol | name | shape |
|---|---|---|
| n | `counts_` | (A, K, K) [annotator, true, given]; γ and ρ are made of it |
| α | `community_concentration_` | (M, K, K) [community, true, given] |
| ρ | `community_posterior_` | (A, M) |
| h | `community_share_` | (M,) |
| b | `class_pseudo_` | (K,) as in `dawid-skene` |
| κ, n0 | `community_count`, `known` | numbers |

The paper uses the softmax of normal variables instead of Dirichlets. By default M maximises Σ_j log Σ_m h_m Π_c
B(γ_jm[c, :]) / B(α_m[c, :]), with the counts of a fit with one community, less ½ log A for each of the M(K² + 1) − 1
parameters of communities (Schwarz 1978).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, NamedTuple

import numpy as np
from scipy.special import psi

from dissensus.common.types import IntArray, OnStep
from dissensus.compute.engines.local import Threads, even
from dissensus.models.confidence import reliability
from dissensus.models.confusion import ClassParams, Engine, FloatArray, em_parameter, methods, param
from dissensus.models.dirichlet import MIN_ALPHA, expected_log, fixed_point, log_normaliser, mean_log_density
from dissensus.models.em import cached_by_params, run_em
from dissensus.models.matrices import MAX_PSEUDO, MIN_PSEUDO
from dissensus.models.methods.hierarchical_dawid_skene import CrowdModel, expected_population, unknown_logs
from dissensus.models.methods.mace import GRID, draw_by_counts
from dissensus.models.params import COUNT, LOG_SIMPLEX, positive

MAX_COMMUNITIES = 8  # largest number of communities tried
MIN_MEMBERS = 4  # least mean number of annotators per community
QUOTIENT_STEPS = 2  # steps per M step; more of them save no time
MIN_KERNEL_NUMBERS = 5_000  # least number of parameters for which a compiled loop is worth loading
NEGLIGIBLE_NATS = 0.5  # tolerance, in nats, when numbers of communities are compared


@dataclass(frozen=True)
class Communities(ClassParams):
    """The parameters: π (K,), n (A, K, K) [annotator, true, given], α (M, K, K) [community, true, given], h (M,)."""

    prior: FloatArray = em_parameter(LOG_SIMPLEX)
    counts: FloatArray = em_parameter(COUNT, "A K K")
    community_concentration: FloatArray = em_parameter(positive(MIN_ALPHA), "C K K")
    community_share: FloatArray = em_parameter(LOG_SIMPLEX, "C")


class Beliefs(NamedTuple):
    """Posteriors of all annotators: ρ (A, M), exp(E log Θ) (A, K, K), and sums over them."""

    membership: FloatArray
    confusion: FloatArray
    logs: FloatArray  # (M, K, K) Σ_j ρ_jm E log Θ_j under γ_jm
    wholes: FloatArray  # (M, K) Σ_j ρ_jm ψ(Σ_l γ_jm[c, l])
    evidence: float  # Σ_j log Σ_m h_m Π_c B(γ_jm[c, :]) / B(α_m[c, :])
    spent: float  # Σ_j n_j · E log Θ_j


@methods.register(
    "community-bcc",
    summary="annotators in communities with similar mistakes; variational Bayes",
    cite="Venanzi et al. 2014",
    costly=True,
)
class CommunityBCC(CrowdModel[Communities]):
    """Variational Dawid-Skene whose annotators belong to communities."""

    communities: int | None = param(None, "number of communities; None: estimated from the matrices", low=1)
    community_count: float = param(1.0, "pseudo-count of every community in h", low=MIN_PSEUDO)

    Params = Communities
    counts_: FloatArray
    community_concentration_: FloatArray
    community_share_: FloatArray
    community_confusion_: Annotated[FloatArray, "C K K simplex"]
    community_posterior_: Annotated[FloatArray, "A C simplex"]
    community_: Annotated[IntArray, "A code:C"]

    def _run_em(self, engine: Engine, on_step: OnStep) -> Communities:
        """Run EM with the given number of communities, or with one and then as many as its counts support."""
        self._pool = engine.pool  # threads that compute the beliefs about annotators
        params = self._run(self.communities or 1, engine, on_step)
        passes = self.n_iter_
        if self.communities is None and (number := self._estimate_number(params)) > 1:
            params = self._run(number, engine, lambda step, bound: on_step(passes + step, bound))
            self.n_iter_ += passes
        del self._pool
        return sort_communities(params)

    def _run(self, communities: int, engine: Engine, on_step: OnStep) -> Communities:
        initialise = partial(self.initialise, engine, communities=communities)
        return self.run(partial(self.em_step, engine, self.e_step_pass()), initialise, on_step)

    def initialise(self, engine: Engine, rng: np.random.Generator | None, communities: int = 0) -> Communities:
        """Return the votes as q, and communities by `_sorted`."""
        votes = self.vote_counts(engine)
        number = communities or self.communities or 1
        return self._sorted(self.class_shares(votes.classes), votes.labels, rng, number)

    def _sorted(self, prior: FloatArray, counts: FloatArray, rng: np.random.Generator | None, M: int) -> Communities:
        """Return M communities of annotators with similar accuracy, by their counts; random ones with `rng`.

        The result does not depend on the names or the order of annotators; equal counts give the same community.
        """
        expected = expected_population(prior.size)
        hits, total = np.einsum("akk->a", counts), counts.sum(axis=(1, 2))
        if rng is None:
            figure = np.round(reliability(hits, total) * GRID)
            cuts = np.quantile(figure, np.arange(1, M) / M, method="lower")
            group: IntArray = (figure[:, None] > cuts).sum(axis=1)
        else:
            group = (draw_by_counts(rng, hits, total) % np.uint64(M)).astype(np.int64)
        logs = np.zeros((M, *expected.shape))
        np.add.at(logs, group, expected_log(counts + expected))
        members = np.bincount(group, minlength=M).astype(np.float64)
        alpha = fit_populations(logs, members, self.known, np.stack([expected] * M))
        share = members + self.community_count
        return Communities(prior, counts, alpha, share / share.sum())

    @cached_by_params
    def beliefs(self, params: Communities) -> Beliefs:
        A, M, K = len(params.counts), params.community_share.size, params.prior.size
        if A * M * K * K < MIN_KERNEL_NUMBERS:
            return readable_beliefs(params)
        from dissensus.compute.kernels import community_bcc as kernels

        membership, confusion = np.empty((A, M)), np.empty_like(params.counts)
        pool = vars(self).get("_pool") or Threads(1)
        given = params.counts, params.community_concentration, np.log(params.community_share)
        found, (logs, wholes) = pool.sums(
            lambda start, stop, *sums: kernels.believe(start, stop, *given, membership, confusion, *sums),
            even(A, pool.threads), (M, K, K), (M, K),
        )  # fmt: skip
        evidence, spent = np.sum(found, axis=0)
        return Beliefs(membership, confusion, logs, wholes, float(evidence), float(spent))

    def label_likelihood(self, params: Communities) -> FloatArray:
        """Exp E log Θ."""
        return self.beliefs(params).confusion

    def expected_label_likelihood(self, params: Communities) -> FloatArray:
        """E Θ."""
        return self._moments(params)[0]

    def m_step(self, labels: FloatArray, totals: FloatArray, params: Communities) -> Communities:
        return params if params.counts is labels else replace(params, counts=labels)

    def update_hyperparameters(self, labels: FloatArray, params: Communities) -> Communities:
        """Return more probable α and h for these counts: those of EM, and of a few longer steps if they help."""
        params = replace(params, counts=labels)
        believed = self.beliefs(params)
        members = believed.membership.sum(axis=0)
        alpha = fit_populations(believed.logs, members, self.known, params.community_concentration)
        best = self._with_shares(params, alpha, believed)
        for _ in range(QUOTIENT_STEPS):
            believed = self.beliefs(best)
            tried = self._with_shares(best, quotients(believed, self.known, best.community_concentration), believed)
            if not self._log_evidence(tried) > self._log_evidence(best):  # also true for NaN
                break
            best = tried
        return best

    def _with_shares(self, params: Communities, concentration: FloatArray, believed: Beliefs) -> Communities:
        share = believed.membership.sum(axis=0) + self.community_count
        return replace(params, community_concentration=concentration, community_share=share / share.sum())

    def _log_evidence(self, params: Communities) -> float:
        """Return the log evidence of the counts plus the log priors of h and α, up to a constant."""
        alpha = params.community_concentration
        known = mean_log_density(alpha, unknown_logs(alpha.shape[1])).sum()
        density = self.known / len(alpha) * known + self.community_count * np.log(params.community_share).sum()
        return float(self.beliefs(params).evidence + density)

    def log_prior(self, params: Communities) -> float:
        """Return the log priors of h and α less the divergence of the beliefs from the communities."""
        return self._log_evidence(params) - self.beliefs(params).spent

    def population_params(self, params: Communities) -> Communities:
        """Return the parameters of an annotator without labels."""
        return replace(params, counts=np.zeros_like(params.counts[:1]))

    def _estimate_number(self, alone: Communities) -> int:
        """Return the number of communities estimated from the counts of a fit with one."""
        K, busy = alone.prior.size, int(np.count_nonzero(self.n_annotations_))

        def crowd_pass(params: Communities) -> tuple[float, Communities]:
            return self._log_evidence(params), self.update_hyperparameters(alone.counts, params)

        best, found = 1, -np.inf
        for number in range(1, 1 + min(MAX_COMMUNITIES, busy // MIN_MEMBERS)):
            first = self._sorted(alone.prior, alone.counts, None, number)
            tol = NEGLIGIBLE_NATS / max(abs(self._log_evidence(first)), 1.0)
            done = run_em(crowd_pass, first, max_iter=self.max_iter, tol=tol, accelerate="squarem")
            parameters = number * (K * K + 1) - 1
            evidence = self.beliefs(done.params).evidence - 0.5 * parameters * np.log(busy)
            if evidence <= found:
                break
            best, found = number, evidence
        return best

    def _moments(self, params: Communities) -> tuple[FloatArray, FloatArray]:
        """(A, K, K) E Θ and E Θ²."""
        mean, square = np.zeros_like(params.counts), np.zeros_like(params.counts)
        for alpha, rho in zip(params.community_concentration, self.beliefs(params).membership.T, strict=True):
            gamma, weight = params.counts + alpha, rho[:, None, None]
            total = gamma.sum(axis=2, keepdims=True)
            mean += weight * gamma / total
            square += weight * gamma * (gamma + 1) / (total * (total + 1))
        return mean, square

    def set_derived_results(self) -> None:
        """Set the memberships, and the confusion matrices of communities."""
        alpha = self.community_concentration_
        self.community_confusion_ = alpha / alpha.sum(axis=2, keepdims=True)
        self.community_posterior_ = self.beliefs(self._params()).membership
        self.community_ = self.community_posterior_.argmax(axis=1)

    def confusion_support(self) -> FloatArray:
        """(A, K, K) Return the support of the Beta with the mean and the variance of each entry."""
        mean, square = self._moments(self._params())
        return np.asarray(mean * (1 - mean) / np.maximum(square - mean**2, 1e-300) - 1)


def sort_communities(params: Communities) -> Communities:
    """Sort communities by accuracy, the best first."""
    alpha, share = params.community_concentration, params.community_share
    right = np.einsum("mkk,k->m", alpha / alpha.sum(axis=2, keepdims=True), params.prior)
    order = np.lexsort((-share, -right))
    return replace(params, community_concentration=np.ascontiguousarray(alpha[order]), community_share=share[order])


def readable_beliefs(params: Communities) -> Beliefs:
    """Return `CommunityBCC.beliefs` in its readable form, the oracle of the tests; makes an (M, A, K, K) array."""
    alpha, counts = params.community_concentration, params.counts
    gamma = counts + alpha[:, None]  # [community, annotator, true, given]
    odds = np.log(params.community_share) + (log_normaliser(gamma) - log_normaliser(alpha)[:, None]).sum(axis=2).T
    evidence = np.logaddexp.reduce(odds, axis=1, keepdims=True)
    membership = np.exp(odds - evidence)
    logs = expected_log(gamma)
    mean = np.einsum("am,maky->aky", membership, logs)
    sums = np.einsum("am,maky->mky", membership, logs)
    wholes = np.einsum("am,mak->mk", membership, psi(gamma.sum(axis=3)))
    return Beliefs(membership, np.exp(mean), sums, wholes, float(evidence.sum()), float((counts * mean).sum()))


def fit_populations(logs: FloatArray, members: FloatArray, known: float, alpha: FloatArray) -> FloatArray:
    """(M, K, K) α from Σ_j ρ_jm E log Θ_j and Σ_j ρ_jm (M,); steps that do not raise the bound are rejected.

    As in `hierarchical-dawid-skene`, for all communities at once; each has its part of `known`.
    """
    part = known / len(alpha)
    return fixed_point((logs + part * unknown_logs(alpha.shape[1])) / (members + part)[:, None, None], alpha)


def quotients(believed: Beliefs, known: float, alpha: FloatArray) -> FloatArray:
    """(M, K, K) α times the quotient of the gradient's positive and negative parts (Minka 2000, eq. 55).

    It moves small α, for which the fixed point over E log Θ is very slow.
    """
    size, members = alpha.sum(axis=2), believed.membership.sum(axis=0)[:, None]  # (M, K), (M, 1)
    pull = known / len(alpha) * (unknown_logs(alpha.shape[1]) + psi(size)[:, :, None] - psi(alpha))
    up = believed.logs + believed.wholes[:, :, None] - members[:, :, None] * psi(alpha) + np.maximum(pull, 0)
    down = (believed.wholes - members * psi(size))[:, :, None] + np.maximum(-pull, 0)
    return np.asarray(np.clip(alpha * up / np.maximum(down, 1e-300), MIN_ALPHA, MAX_PSEUDO))
