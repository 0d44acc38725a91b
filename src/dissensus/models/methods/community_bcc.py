"""Community BCC: annotators belong to communities whose members make similar mistakes.

Use it when many annotators have few labels each, or when the types of annotators are the question.

Annotator j belongs to community m_j, and its confusion matrix Θ_j is drawn around the matrix of that community:

    m_j ~ Cat(h)      Θ_j[c, :] | m_j = m ~ Dirichlet(α_m[c, :])      z_i ~ Cat(π)      y_ij | z_i = c ~ Cat(Θ_j[c, :])

With one community this is `hierarchical-dawid-skene`. Variational Bayes gives every annotator a distribution ρ_j over
communities, and a Dirichlet γ_jm for its matrix in each community. Each step raises a bound on the log evidence:

    E step  q_i(c) ∝ π_c Π_{j∈M_i} exp(E log Θ_j[c, y_ij])
            E log Θ_j[c, l] = Σ_m ρ_jm (ψ(γ_jm[c, l]) − ψ(Σ_l γ_jm[c, l]))
    M step  n_j[c, l] = Σ_{i: y_ij = l} q_i(c)      γ_jm = α_m + n_j      π_c ∝ b_c + Σ_i q_i(c)
            ρ_jm ∝ h_m Π_c B(γ_jm[c, :]) / B(α_m[c, :])      h_m ∝ κ + Σ_j ρ_jm      B(γ) = Π_l Γ(γ_l) / Γ(Σ_l γ_l)
            ψ(α_m[c, l]) = ψ(Σ_l α_m[c, l]) + mean of E log Θ_j[c, l] under γ_jm, weighted by ρ_jm   (Minka 2000)
    bound   Σ_i log Σ_c π_c Π_j exp(E log Θ_j[c, y_ij])
            + Σ_j (log Σ_m h_m Π_c B(γ_jm[c, :]) / B(α_m[c, :]) − Σ_cl n_j[c, l] E log Θ_j[c, l])
            + log p(π) + log p(h) + Σ_m log p(α_m)

- `community_posterior_` (A, M): ρ; `community_` (A,) is the most probable community of each annotator
- `community_share_` (M,): h, the share of annotators in each community
- `community_concentration_` (M, K, K) [community, true, given]: α
- `counts_` (A, K, K) [annotator, true, given]: n, from which γ and ρ follow
- `prior_` (K,): π; b are the pseudo-counts of `dawid-skene`; κ is `community_count`; ψ is the digamma function

`prior_annotators` annotators of unknown quality are divided among the communities. If you do not set the number of
communities M, it is the number that maximises Σ_j log Σ_m h_m Π_c B(γ_jm[c, :]) / B(α_m[c, :]) minus ½ log A for each
of the M(K² + 1) − 1 parameters (Schwarz 1978), with the counts of a fit with one community. M is at most eight, and
communities have at least four annotators on average.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, NamedTuple

import numpy as np
from scipy.special import psi

from dissensus.common.types import IntArray, OnStep
from dissensus.compute.engines.local import Threads, even_ranges
from dissensus.models.confidence import shrink_reliability
from dissensus.models.confusion import ClassParams, Engine, FloatArray, em_parameter, methods, param
from dissensus.models.dirichlet import MIN_ALPHA, expected_log, log_normaliser, mean_log_density, update_alpha
from dissensus.models.em import cached_by_params, run_em
from dissensus.models.matrices import MAX_PSEUDO_COUNT, MIN_PSEUDO_COUNT
from dissensus.models.methods.hierarchical_dawid_skene import CrowdPriorModel, expected_population, unknown_expected_log
from dissensus.models.methods.mace import KEY_STEPS_PER_LABEL, draw_keys_by_counts
from dissensus.models.params import COUNT, LOG_SIMPLEX, positive_transform

MAX_COMMUNITIES = 8  # maximum number of communities that is tried
MIN_MEAN_MEMBERS = 4  # minimum mean number of annotators per community
QUOTIENT_STEPS = 2  # number of quotient steps per M step; more steps save no time
MIN_PARAMETERS_FOR_KERNEL = 5_000  # minimum number of parameters for a compiled loop
CRITERION_TOLERANCE_NATS = 0.5  # tolerance in comparisons of numbers of communities, in nats


@dataclass(frozen=True)
class CommunityParams(ClassParams):
    """Parameters of the EM: class shares, expected label counts, and the prior and share of each community."""

    prior: FloatArray = em_parameter(LOG_SIMPLEX)  # (K,) π
    counts: FloatArray = em_parameter(COUNT, "A K K")  # [annotator, true, given] n
    # This is α [community, true, given].
    community_concentration: FloatArray = em_parameter(positive_transform(MIN_ALPHA), "C K K")
    community_share: FloatArray = em_parameter(LOG_SIMPLEX, "C")  # h


class AnnotatorPosteriors(NamedTuple):
    """Posteriors of all annotators, and sums over annotators that the next step needs."""

    membership: FloatArray  # (A, M) ρ
    confusion: FloatArray  # (A, K, K) exp(E log Θ)
    log_sums: FloatArray  # (M, K, K) Σ_j ρ_jm E log Θ_j under γ_jm
    total_digammas: FloatArray  # (M, K) Σ_j ρ_jm ψ(Σ_l γ_jm[c, l])
    evidence: float  # Σ_j log Σ_m h_m Π_c B(γ_jm[c, :]) / B(α_m[c, :])
    expected_log_likelihood: float  # Σ_j n_j · E log Θ_j


@methods.register(
    "community-bcc",
    summary="annotators in communities with similar mistakes; variational Bayes",
    cite="Venanzi et al. 2014",
    costly=True,
)
class CommunityBCC(CrowdPriorModel[CommunityParams]):
    """Estimate confusion matrices of annotators who belong to communities, by variational Bayes."""

    communities: int | None = param(None, "number of communities; estimated if None", low=1)
    community_count: float = param(1.0, "pseudo-count of every community", low=MIN_PSEUDO_COUNT)

    Params = CommunityParams
    counts_: FloatArray
    community_concentration_: FloatArray
    community_share_: FloatArray
    community_confusion_: Annotated[FloatArray, "C K K simplex"]
    community_posterior_: Annotated[FloatArray, "A C simplex"]
    community_: Annotated[IntArray, "A code:C"]

    def _run_em(self, engine: Engine, on_step: OnStep) -> CommunityParams:
        """Run EM with `communities`, or, if it is None, with one community and then with the number that fits best."""
        self._pool = engine.pool  # threads that compute the posteriors of annotators
        params = self._fit_communities(self.communities or 1, engine, on_step)
        passes = self.n_iter_
        if self.communities is None and (number := self._choose_n_communities(params)) > 1:
            params = self._fit_communities(number, engine, lambda step, bound: on_step(passes + step, bound))
            self.n_iter_ += passes
        del self._pool
        return sort_communities(params)

    def _fit_communities(self, communities: int, engine: Engine, on_step: OnStep) -> CommunityParams:
        initialise = partial(self.initialise, engine, communities=communities)
        return self.run_restarts(partial(self.em_step, engine, self.e_step_pass()), initialise, on_step)

    def initialise(self, engine: Engine, rng: np.random.Generator | None, communities: int = 0) -> CommunityParams:
        """Return parameters from the vote shares; annotators are grouped by accuracy or, with `rng`, at random."""
        votes = self.vote_counts(engine)
        number = communities or self.communities or 1
        return self._group_annotators(self.class_shares(votes.class_counts), votes.label_counts, rng, number)

    def _group_annotators(
        self, prior: FloatArray, counts: FloatArray, rng: np.random.Generator | None, M: int
    ) -> CommunityParams:
        """Return M communities of annotators with similar accuracy or, with `rng`, of random annotators.

        Annotators with equal counts are put into the same community, so neither names nor order matter.
        """
        expected = expected_population(prior.size)
        hits, total = np.einsum("akk->a", counts), counts.sum(axis=(1, 2))
        if rng is None:
            figure = np.round(shrink_reliability(hits, total) * KEY_STEPS_PER_LABEL)
            cuts = np.quantile(figure, np.arange(1, M) / M, method="lower")
            group: IntArray = (figure[:, None] > cuts).sum(axis=1)
        else:
            group = (draw_keys_by_counts(rng, hits, total) % np.uint64(M)).astype(np.int64)
        logs = np.zeros((M, *expected.shape))
        np.add.at(logs, group, expected_log(counts + expected))
        members = np.bincount(group, minlength=M).astype(np.float64)
        alpha = fixed_point_step(logs, members, self.prior_annotators, np.stack([expected] * M))
        share = members + self.community_count
        return CommunityParams(prior, counts, alpha, share / share.sum())

    @cached_by_params
    def annotator_posteriors(self, params: CommunityParams) -> AnnotatorPosteriors:
        A, M, K = len(params.counts), params.community_share.size, params.prior.size
        if A * M * K * K < MIN_PARAMETERS_FOR_KERNEL:
            return readable_annotator_posteriors(params)
        from dissensus.compute.kernels import community_bcc as kernels

        membership, confusion = np.empty((A, M)), np.empty_like(params.counts)
        pool = vars(self).get("_pool") or Threads(1)
        given = params.counts, params.community_concentration, np.log(params.community_share)
        sums, (log_sums, total_digammas) = pool.sum_over_ranges(
            lambda start, stop, *out: kernels.update_posteriors(start, stop, *given, membership, confusion, *out),
            even_ranges(A, pool.threads), (M, K, K), (M, K),
        )  # fmt: skip
        evidence, expected = np.sum(sums, axis=0)
        return AnnotatorPosteriors(membership, confusion, log_sums, total_digammas, float(evidence), float(expected))

    def label_likelihood(self, params: CommunityParams) -> FloatArray:
        """Return exp(E log Θ) (A, K, K)."""
        return self.annotator_posteriors(params).confusion

    def expected_label_likelihood(self, params: CommunityParams) -> FloatArray:
        """Return E Θ (A, K, K)."""
        return self._confusion_moments(params)[0]

    def m_step(self, label_counts: FloatArray, label_totals: FloatArray, params: CommunityParams) -> CommunityParams:
        return params if params.counts is label_counts else replace(params, counts=label_counts)

    def update_hyperparameters(self, label_counts: FloatArray, params: CommunityParams) -> CommunityParams:
        """Return `params` with more probable α and h, by a fixed-point step and, if they help, a few longer steps."""
        params = replace(params, counts=label_counts)
        posteriors = self.annotator_posteriors(params)
        members = posteriors.membership.sum(axis=0)
        alpha = fixed_point_step(posteriors.log_sums, members, self.prior_annotators, params.community_concentration)
        best = self._update_community_shares(params, alpha, posteriors)
        for _ in range(QUOTIENT_STEPS):
            posteriors = self.annotator_posteriors(best)
            tried = self._update_community_shares(
                best, quotient_step(posteriors, self.prior_annotators, best.community_concentration), posteriors
            )
            if not self._log_evidence(tried) > self._log_evidence(best):  # the loop also ends if the value is NaN
                break
            best = tried
        return best

    def _update_community_shares(
        self, params: CommunityParams, concentration: FloatArray, posteriors: AnnotatorPosteriors
    ) -> CommunityParams:
        share = posteriors.membership.sum(axis=0) + self.community_count
        return replace(params, community_concentration=concentration, community_share=share / share.sum())

    def _log_evidence(self, params: CommunityParams) -> float:
        """Return the log evidence of the counts plus the log priors of h and α, up to a constant."""
        alpha = params.community_concentration
        log_density = mean_log_density(alpha, unknown_expected_log(alpha.shape[1])).sum()
        density = (
            self.prior_annotators / len(alpha) * log_density
            + self.community_count * np.log(params.community_share).sum()
        )
        return float(self.annotator_posteriors(params).evidence + density)

    def log_prior(self, params: CommunityParams) -> float:
        """Return the log priors of h and α minus the divergence of annotators' posteriors from communities."""
        return self._log_evidence(params) - self.annotator_posteriors(params).expected_log_likelihood

    def population_params(self, params: CommunityParams) -> CommunityParams:
        """Return the parameters of an annotator without labels."""
        return replace(params, counts=np.zeros_like(params.counts[:1]))

    def _choose_n_communities(self, single: CommunityParams) -> int:
        """Return the number of communities with the best criterion, given a fit with one community."""
        K, busy = single.prior.size, int(np.count_nonzero(self.n_annotations_))

        def crowd_pass(params: CommunityParams) -> tuple[float, CommunityParams]:
            return self._log_evidence(params), self.update_hyperparameters(single.counts, params)

        best, best_evidence = 1, -np.inf
        for number in range(1, 1 + min(MAX_COMMUNITIES, busy // MIN_MEAN_MEMBERS)):
            first = self._group_annotators(single.prior, single.counts, None, number)
            tol = CRITERION_TOLERANCE_NATS / max(abs(self._log_evidence(first)), 1.0)
            done = run_em(crowd_pass, first, max_iter=self.max_iter, tol=tol, accelerate="squarem")
            parameters = number * (K * K + 1) - 1
            evidence = self.annotator_posteriors(done.params).evidence - 0.5 * parameters * np.log(busy)
            if evidence <= best_evidence:
                break
            best, best_evidence = number, evidence
        return best

    def _confusion_moments(self, params: CommunityParams) -> tuple[FloatArray, FloatArray]:
        """Return E Θ and E Θ², (A, K, K)."""
        mean, square = np.zeros_like(params.counts), np.zeros_like(params.counts)
        for alpha, rho in zip(
            params.community_concentration, self.annotator_posteriors(params).membership.T, strict=True
        ):
            gamma, weight = params.counts + alpha, rho[:, None, None]
            total = gamma.sum(axis=2, keepdims=True)
            mean += weight * gamma / total
            square += weight * gamma * (gamma + 1) / (total * (total + 1))
        return mean, square

    def set_derived_results(self) -> None:
        """Set the memberships, and the confusion matrices of communities."""
        alpha = self.community_concentration_
        self.community_confusion_ = alpha / alpha.sum(axis=2, keepdims=True)
        self.community_posterior_ = self.annotator_posteriors(self._params()).membership
        self.community_ = self.community_posterior_.argmax(axis=1)

    def confusion_support(self) -> FloatArray:
        """Return the support (A, K, K) of the Beta distributions that have the mean and variance of each entry."""
        mean, square = self._confusion_moments(self._params())
        return np.asarray(mean * (1 - mean) / np.maximum(square - mean**2, 1e-300) - 1)


def sort_communities(params: CommunityParams) -> CommunityParams:
    """Return the parameters with communities sorted by accuracy, the best first."""
    alpha, share = params.community_concentration, params.community_share
    right = np.einsum("mkk,k->m", alpha / alpha.sum(axis=2, keepdims=True), params.prior)
    order = np.lexsort((-share, -right))
    return replace(params, community_concentration=np.ascontiguousarray(alpha[order]), community_share=share[order])


def readable_annotator_posteriors(params: CommunityParams) -> AnnotatorPosteriors:
    """Compute `CommunityBCC.annotator_posteriors` in a readable form, which needs an array (M, A, K, K)."""
    alpha, counts = params.community_concentration, params.counts
    gamma = counts + alpha[:, None]  # [community, annotator, true, given]
    odds = np.log(params.community_share) + (log_normaliser(gamma) - log_normaliser(alpha)[:, None]).sum(axis=2).T
    evidence = np.logaddexp.reduce(odds, axis=1, keepdims=True)
    membership = np.exp(odds - evidence)
    logs = expected_log(gamma)
    mean = np.einsum("am,maky->aky", membership, logs)
    sums = np.einsum("am,maky->mky", membership, logs)
    wholes = np.einsum("am,mak->mk", membership, psi(gamma.sum(axis=3)))
    return AnnotatorPosteriors(
        membership, np.exp(mean), sums, wholes, float(evidence.sum()), float((counts * mean).sum())
    )


def fixed_point_step(logs: FloatArray, members: FloatArray, prior_annotators: float, alpha: FloatArray) -> FloatArray:
    """Return α (M, K, K) after a fixed-point step from Σ_j ρ_jm E log Θ_j and the member counts Σ_j ρ_jm (M,).

    The step is that of `hierarchical-dawid-skene` for all communities at once, each with an equal part of
    `prior_annotators`. Steps that do not raise the bound are rejected.
    """
    part = prior_annotators / len(alpha)
    return update_alpha((logs + part * unknown_expected_log(alpha.shape[1])) / (members + part)[:, None, None], alpha)


def quotient_step(posteriors: AnnotatorPosteriors, prior_annotators: float, alpha: FloatArray) -> FloatArray:
    """Return α (M, K, K) times the quotient of the gradient's positive and negative parts (Minka 2000, eq. 55).

    These steps are useful for small α, for which the fixed point over E log Θ is very slow.
    """
    size, members = alpha.sum(axis=2), posteriors.membership.sum(axis=0)[:, None]  # (M, K), (M, 1)
    pull = prior_annotators / len(alpha) * (unknown_expected_log(alpha.shape[1]) + psi(size)[:, :, None] - psi(alpha))
    up = (
        posteriors.log_sums
        + posteriors.total_digammas[:, :, None]
        - members[:, :, None] * psi(alpha)
        + np.maximum(pull, 0)
    )
    down = (posteriors.total_digammas - members * psi(size))[:, :, None] + np.maximum(-pull, 0)
    return np.asarray(np.clip(alpha * up / np.maximum(down, 1e-300), MIN_ALPHA, MAX_PSEUDO_COUNT))
