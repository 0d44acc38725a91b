"""Community BCC (Venanzi et al. 2014): annotators belong to communities whose members confuse classes alike.

    m_j ~ Cat(h)      Θ_j[c, :] | m_j = m ~ Dirichlet(α_m[c, :])      z_i ~ Cat(π)      y_ij | z_i = c ~ Cat(Θ_j[c, :])

So an annotator's matrix is drawn around its community's, and one with few labels is what its community is, once it is
clear which. With one community this is `hierarchical-dawid-skene`. What is believed of an annotator is a community and,
for each, a Dirichlet: m_j ~ Cat(ρ_j), Θ_j[c, :] | m ~ Dirichlet(γ_jm[c, :]). The bound on the log evidence (variational
Bayes) is raised in these beliefs, in π, h and α (empirical Bayes), and in q in turn:

E step  q_i(c) ∝ π_c Π_{j∈M_i} exp(E log Θ_j[c, y_ij]),   E log Θ_j[c, l] = Σ_m ρ_jm (ψ(γ_jm[c, l]) − ψ(Σ_l γ_jm[c, l]))
M step  n_j[c, l] = Σ_{i: y_ij = l} q_i(c)      γ_jm = α_m + n_j      π_c ∝ b_c + Σ_i q_i(c)
        ρ_jm ∝ h_m Π_c B(γ_jm[c, :]) / B(α_m[c, :])      h_m ∝ κ + Σ_j ρ_jm      B(γ) = Π_l Γ(γ_l) / Γ(Σ_l γ_l)
        ψ(α_m[c, l]) = ψ(Σ_l α_m[c, l]) + mean of E log Θ_j[c, l] under γ_jm, annotators weighing ρ_jm
        (fixed point, Minka 2000, with n0/M more annotators like `expected_pseudo`), then `quotients`
bound   Σ_i log Σ_c π_c Π_j exp(E log Θ_j[c, y_ij])
        + Σ_j (log Σ_m h_m Π_c B(γ_jm[c, :]) / B(α_m[c, :]) − n_j · E log Θ_j)
        + log p(π) + log p(h) + Σ_m log p(α_m)

| symbol | name | shape |
|---|---|---|
| n | counts | (A, K, K) [annotator, given, true] inside; γ and ρ are made of it |
| α | population, `community_concentration_` | (M, K, K), inside [community, given, true], outside [.., true, given] |
| ρ | membership, `community_posterior_` | (A, M) |
| h | share, `community_share_` | (M,) |
| b | `class_pseudo_` | (K,) as in `dawid-skene` |
| κ, n0 | `community_count`, `known` | numbers |

The paper has the softmax of normal scores where this has Dirichlets. Without a number of communities it is the M for
which Σ_j log Σ_m h_m Π_c B(γ_jm[c, :]) / B(α_m[c, :]), from the counts that a fit with one community leaves, is largest
after taking off ½ log A for each of the M(K² + 1) − 1 numbers that describe communities (Schwarz 1978).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from numbers import Integral
from typing import NamedTuple, Self

import numpy as np

from dissensus.common.types import FloatArray, IntArray, OnStep
from dissensus.compute.engines import in_memory
from dissensus.compute.engines.base import Engine
from dissensus.compute.engines.local import Threads, even
from dissensus.compute.kernels import community_bcc as kernels
from dissensus.exceptions import BadParameter
from dissensus.models.base import methods, reliability
from dissensus.models.em import Accelerate, EMAggregator, climb
from dissensus.models.methods.dawid_skene import (
    LARGEST,
    ConfusionPass,
    Confusions,
    DawidSkene,
    VotePass,
    class_pseudo,
    score,
    with_unseen,
)
from dissensus.models.methods.hierarchical_dawid_skene import (
    LEAST,
    _expected_logs,
    _log_normaliser,
    expected_log,
    expected_population,
    fixed_point,
)
from dissensus.table import names as naming
from dissensus.table.annotations import Annotations

MOST = 8  # communities that are looked for at most
MEMBERS = 4  # annotators that there must be for each community that is looked for
GRID = 2.0**16  # of what annotators are told apart by: coarser than any rounding, finer than any difference
LONGER = 2  # steps of `quotients` in one M step; more of them save no time
NEGLIGIBLE = 0.5  # nats, when numbers of communities are compared


@dataclass(frozen=True)
class Communities:
    """The parameters: π (K,), n (A, K, K) [annotator, given, true], α (M, K, K) [community, given, true], h (M,)."""

    prior: FloatArray
    counts: FloatArray
    population: FloatArray
    share: FloatArray

    def to_vector(self) -> FloatArray:
        """Roots of counts, which may be zero, and logarithms of the rest."""
        logs = [np.log(part).reshape(-1) for part in (self.prior, self.population, self.share)]
        return np.concatenate([np.sqrt(self.counts).reshape(-1), *logs])

    def from_vector(self, vector: FloatArray) -> Self:
        """Back from roots and logarithms, π and h normalised again."""
        A, K, M = self.counts.size, self.prior.size, self.share.size
        roots, logs = np.split(vector, [A])
        prior, alpha, share = np.split(np.exp(np.clip(logs, -40, 40)), [K, K + M * K * K])
        return type(self)(
            prior / prior.sum(),
            np.square(roots).reshape(self.counts.shape),
            np.maximum(alpha, LEAST).reshape(M, K, K),
            share / share.sum(),
        )


class Beliefs(NamedTuple):
    """Of all annotators: ρ (A, M), exp(E log Θ) (A, K, K), and sums over them."""

    membership: FloatArray
    confusion: FloatArray
    logs: FloatArray  # (M, K, K) Σ_j ρ_jm E log Θ_j under γ_jm
    wholes: FloatArray  # (M, K) Σ_j ρ_jm ψ(Σ_l γ_jm[c, l])
    evidence: float  # Σ_j log Σ_m h_m Π_c B(γ_jm[c, :]) / B(α_m[c, :])
    spent: float  # Σ_j n_j · E log Θ_j


@methods.register(
    "community-bcc",
    summary="annotators in communities that confuse classes alike; variational Bayes",
    cite="Venanzi et al. 2014",
)
class CommunityBCC(EMAggregator[Communities]):
    """Variational Dawid-Skene whose annotators belong to communities.

    Parameters
    ----------
    communities : int, optional
        How many; None: as many as the annotators' matrices speak for, at most 8.
    known : float
        Weight, in annotators, of an unknown one beside what the communities show, the same part for each.
    community_count, class_count, vote_count : float
        Pseudo-count of every community in h; those of the classes' shares, as in `dawid-skene`.
    max_iter, tol, accelerate
        Passes over the data at most, for one start; stop when a pass gains less than `tol` of the bound; "squarem" or
        None.
    restarts : int
        Number of starts, of which the best bound is kept. The first sorts the annotators into communities by how often
        they agree with the votes, the others at random.
    threads : int, optional
        Threads for the passes; None for all cores.
    seed : int or None
    """

    community_: IntArray
    community_posterior_: FloatArray
    community_confusion_: FloatArray
    community_concentration_: FloatArray
    community_share_: FloatArray
    confusion_: FloatArray
    confusion_size_: FloatArray

    class_pseudo_: FloatArray  # (K,) b

    def __init__(
        self,
        *,
        communities: int | None = None,
        known: float = 2.0,
        community_count: float = 1.0,
        class_count: float = 1.0,
        vote_count: float = 0.5,
        max_iter: int = 500,
        tol: float = 1e-7,
        accelerate: Accelerate = "squarem",
        restarts: int = 1,
        threads: int | None = None,
        seed: int | None = 0,
    ):
        self.communities = communities
        self.known = known
        self.community_count = community_count
        self.class_count = class_count
        self.vote_count = vote_count
        self.max_iter = max_iter
        self.tol = tol
        self.accelerate = accelerate
        self.restarts = restarts
        self.threads = threads
        self.seed = seed

    def _check_parameters(self) -> None:
        super()._check_parameters()
        if self.communities is not None and not (isinstance(self.communities, Integral) and self.communities >= 1):
            raise BadParameter(f"communities must be a whole number, at least 1, or None, got {self.communities!r}.")
        for keyword in ("known", "community_count", "class_count"):
            if not 1e-9 <= getattr(self, keyword) < np.inf:
                raise BadParameter(f"{keyword} must be at least 1e-09, got {getattr(self, keyword)}.")
        if not 0 <= self.vote_count <= LARGEST:
            raise BadParameter(f"vote_count must lie from 0 to {LARGEST:g}, got {self.vote_count}.")

    def _fit(self, table: Annotations, gold: IntArray | None, on_step: OnStep) -> None:
        K = table.n_classes
        with in_memory(table, gold, self.threads) as engine:
            pool, walk, one, passes = engine.pool, ConfusionPass(), self, 0
            if self.communities is None:
                one = self._with(1)
            params = one.run(partial(one._pass, engine, walk), partial(one.start, engine), on_step, engine.checkpoint)
            if self.communities is None and (number := self._how_many(params, table, pool)) > 1:
                passes, one = one.n_iter_, self._with(number)
                later = partial(_later, on_step, passes)
                params = one.run(partial(one._pass, engine, walk), partial(one.start, engine), later, engine.checkpoint)
            self.trace_ = np.append(one.trace_, one._pass(engine, walk, params)[0])  # the bound of what is returned
            self.n_iter_, self.converged_ = passes + one.n_iter_, one.converged_
            self.class_pseudo_ = one.class_pseudo_
            self._describe(params, beliefs(params, pool).membership)
            means = Confusions(params.prior, np.ascontiguousarray(self.confusion_.transpose(0, 2, 1)))
            self.posterior_ = np.empty((table.n_items, K))
            engine.sweep(walk, means, {"posterior": self.posterior_})
        self._judge(*self._agreement(table, self.posterior_))

    def _with(self, communities: int) -> Self:
        return type(self)(**(self.get_params(deep=False) | {"communities": communities}))

    def _pass(self, engine: Engine, walk: ConfusionPass, params: Communities) -> tuple[float, Communities]:
        """The bound at `params`, and the next ones."""
        believed = beliefs(params, engine.pool)
        sums = engine.sweep(walk, Confusions(params.prior, believed.confusion))
        bound = sums.evidence + believed.evidence - believed.spent + self._log_density(params)
        bound += float(self.class_pseudo_ @ np.log(params.prior))
        prior = sums.prior_counts + self.class_pseudo_
        after = Communities(prior / prior.sum(), sums.counts, params.population, params.share)
        return bound, self._learn(after, beliefs(after, engine.pool), engine.pool)

    def _learn(self, params: Communities, believed: Beliefs, pool: Threads) -> Communities:
        """With more probable α and h, while the counts stay as they are: EM's, and a few longer steps if they help."""
        alpha = fit_populations(believed.logs, believed.membership.sum(axis=0), self.known, params.population)
        best = self._with_shares(params, alpha, believed)
        believed = beliefs(best, pool)
        height = believed.evidence + self._log_density(best)
        for _ in range(LONGER):
            tried = self._with_shares(best, quotients(believed, self.known, best.population), believed)
            believed = beliefs(tried, pool)
            tried_height = believed.evidence + self._log_density(tried)
            if not tried_height > height:  # also where it is not a number
                break
            best, height = tried, tried_height
        return best

    def _with_shares(self, params: Communities, population: FloatArray, believed: Beliefs) -> Communities:
        share = believed.membership.sum(axis=0) + self.community_count
        return Communities(params.prior, params.counts, population, share / share.sum())

    def _how_many(self, alone: Communities, table: Annotations, pool: Threads) -> int:
        """The number of communities that the counts of a fit with one of them speak for."""
        K, busy = table.n_classes, int(np.count_nonzero(np.diff(table.annotator_ptr)))

        def crowd_pass(params: Communities) -> tuple[float, Communities]:
            believed = beliefs(params, pool)
            return believed.evidence + self._log_density(params), self._learn(params, believed, pool)

        best, found = 1, -np.inf
        for number in range(1, 1 + min(MOST, busy // MEMBERS)):
            first = self._with(number)._sorted(alone.prior, alone.counts, None)
            tol = NEGLIGIBLE / max(abs(crowd_pass(first)[0]), 1.0)
            done = climb(
                crowd_pass, first, max_iter=self.max_iter, tol=tol, accelerate="squarem", on_step=lambda *_: None
            )
            evidence = beliefs(done.params, pool).evidence - 0.5 * (number * (K * K + 1) - 1) * np.log(busy)
            if evidence <= found:
                break
            best, found = number, evidence
        return best

    def _describe(self, params: Communities, membership: FloatArray) -> None:
        """What is known of annotators and communities, the best community first."""
        alpha, counts = params.population.transpose(0, 2, 1), params.counts.transpose(0, 2, 1)  # [.., true, given]
        confusion = alpha / alpha.sum(axis=2, keepdims=True)
        order = np.lexsort((-params.share, -np.einsum("mkk,k->m", confusion, params.prior)))
        self.prior_ = params.prior
        self.community_concentration_ = np.ascontiguousarray(alpha[order])
        self.community_confusion_ = confusion[order]
        self.community_share_ = params.share[order]
        self.community_posterior_ = np.ascontiguousarray(membership[:, order])
        self.community_ = self.community_posterior_.argmax(axis=1)
        mean, square = np.zeros(counts.shape), np.zeros(counts.shape)
        for m, rho in enumerate(membership.T[:, :, None, None]):
            gamma = counts + alpha[m]
            total = gamma.sum(axis=2, keepdims=True)
            mean += rho * gamma / total
            square += rho * gamma * (gamma + 1) / (total * (total + 1))  # E Θ²
        self.confusion_ = mean
        self.confusion_size_ = mean * (1 - mean) / np.maximum(square - mean**2, 1e-300) - 1  # of a Beta like this

    def _score(self, table: Annotations, known: IntArray) -> FloatArray:
        return score(table, self.prior_, self._confusions(known), self.threads, "float64")

    def _confusions(self, known: IntArray) -> FloatArray:
        return with_unseen(self.confusion_, np.tensordot(self.community_share_, self.community_confusion_, 1), known)

    def _confusion_size(self) -> FloatArray:
        return self.confusion_size_

    def start(self, engine: Engine, rng: np.random.Generator | None) -> Communities:
        """The votes as q, and communities by `_sorted`."""
        votes = engine.once(VotePass())
        self.class_pseudo_ = class_pseudo(engine, votes.prior_counts, self.class_count, self.vote_count)
        prior = votes.prior_counts + self.class_pseudo_
        return self._sorted(prior / prior.sum(), votes.counts, rng)

    def _sorted(self, prior: FloatArray, counts: FloatArray, rng: np.random.Generator | None) -> Communities:
        """Communities of annotators who are right as often, by their counts; with `rng`, at random.

        Neither depends on the names or the order of annotators; who has the same figures is in the same community.
        """
        M, expected = self.communities or 1, expected_population(prior.size)
        hits, total = np.einsum("akk->a", counts), counts.sum(axis=(1, 2))
        if rng is None:
            figure = np.round(reliability(hits, total) * GRID)
            cuts = np.quantile(figure, np.arange(1, M) / M, method="lower")
            group: IntArray = (figure[:, None] > cuts).sum(axis=1)
        else:
            right, given = (np.round(number * GRID).astype(np.uint64) for number in (hits, total))
            draw = naming.mix(naming.mix(right ^ rng.integers(2**64, dtype=np.uint64)) ^ given)
            group = (draw % np.uint64(M)).astype(np.int64)
        logs = np.zeros((M, *expected.shape))
        np.add.at(logs, group, expected_log(counts + expected))
        members = np.bincount(group, minlength=M).astype(np.float64)
        alpha = fit_populations(logs, members, self.known, np.stack([expected] * M))
        share = members + self.community_count
        return Communities(prior, counts, alpha, share / share.sum())

    def _log_density(self, params: Communities) -> float:
        """Log priors of h and α, up to a constant."""
        alpha = params.population
        known = ((alpha - 1) * _expected_logs(alpha.shape[1])).sum() - _log_normaliser(alpha).sum()
        return float(self.known / len(alpha) * known + self.community_count * np.log(params.share).sum())

    # The readable form ------------------------------------------------------------------------------------------------

    def log_votes(self, table: Annotations, params: Communities) -> FloatArray:
        """(N, K) E log Θ_j[c, y]; of a probabilistic row, its mean under the row's distribution."""
        return DawidSkene().log_votes(table, Confusions(params.prior, readable_beliefs(params).confusion))

    def log_prior(self, params: Communities) -> FloatArray:
        """(K,) log π."""
        return np.asarray(np.log(params.prior))

    def log_penalty(self, params: Communities) -> float:
        """Minus the divergence of the beliefs from the communities, and the log priors of π, h and α."""
        believed = readable_beliefs(params)
        density = self._log_density(params) + float(self.class_pseudo_ @ np.log(params.prior))
        return believed.evidence - believed.spent + density


def beliefs(params: Communities, pool: Threads) -> Beliefs:
    """What is believed of the annotators, in threads."""
    A, M = len(params.counts), params.share.size
    parts = even(A, pool.threads)
    membership, confusion = np.empty((A, M)), np.empty_like(params.counts)
    logs, log_share = np.zeros((len(parts), *params.population.shape)), np.log(params.share)
    wholes = np.zeros((len(parts), M, params.prior.size))
    sums = pool.map(
        lambda part, start, stop: kernels.believe(
            start, stop, params.counts, params.population, log_share, membership, confusion, logs[part], wholes[part]
        ),
        parts,
    )
    evidence, spent = (sum(values) for values in zip(*sums, strict=True))
    return Beliefs(membership, confusion, logs.sum(axis=0), wholes.sum(axis=0), evidence, spent)


def readable_beliefs(params: Communities) -> Beliefs:
    """The same; makes an (M, A, K, K) array."""
    from scipy.special import psi

    alpha, counts = params.population, params.counts
    gamma = counts + alpha[:, None]  # [community, annotator, given, true]
    odds = np.log(params.share) + (_log_normaliser(gamma) - _log_normaliser(alpha)[:, None]).sum(axis=2).T
    evidence = np.logaddexp.reduce(odds, axis=1, keepdims=True)
    membership = np.exp(odds - evidence)
    logs = np.stack([expected_log(of_community) for of_community in gamma])
    mean = np.einsum("am,mayk->ayk", membership, logs)
    sums = np.einsum("am,mayk->myk", membership, logs)
    wholes = np.einsum("am,mak->mk", membership, psi(gamma.sum(axis=2)))
    return Beliefs(membership, np.exp(mean), sums, wholes, float(evidence.sum()), float((counts * mean).sum()))


def fit_populations(logs: FloatArray, members: FloatArray, known: float, population: FloatArray) -> FloatArray:
    """α (M, K, K) from Σ_j ρ_jm E log Θ_j and Σ_j ρ_jm (M,); what does not raise the bound is not taken.

    As in `hierarchical-dawid-skene`, for all communities at once, side by side; each has its part of the `known`.
    """
    M, K, _ = population.shape
    mean = (logs + known / M * _expected_logs(K)) / (members + known / M)[:, None, None]
    side_by_side, before = (part.transpose(1, 0, 2).reshape(K, M * K) for part in (mean, population))
    best = fixed_point(side_by_side, before)
    return np.ascontiguousarray(best.reshape(K, M, K).transpose(1, 0, 2))


def quotients(believed: Beliefs, known: float, population: FloatArray) -> FloatArray:
    """α (M, K, K) times what raises the bound over what lowers it (Minka 2000, eq. 55), given the counts.

    Small α, which the fixed point over E log Θ moves very slowly, get where they belong.
    """
    from scipy.special import psi

    size, members = population.sum(axis=1), believed.membership.sum(axis=0)[:, None]  # (M, K), (M, 1)
    pull = known / len(population) * (_expected_logs(population.shape[1]) + psi(size)[:, None] - psi(population))
    up = believed.logs + believed.wholes[:, None] - members[:, None] * psi(population) + np.maximum(pull, 0)
    down = (believed.wholes - members * psi(size))[:, None] + np.maximum(-pull, 0)
    return np.asarray(np.clip(population * up / np.maximum(down, 1e-300), LEAST, LARGEST))


def _later(on_step: OnStep, passes: int, step: int, bound: float) -> None:
    on_step(passes + step, bound)
