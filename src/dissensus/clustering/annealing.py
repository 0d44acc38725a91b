"""Fit the joint model by simulated annealing (Algorithm 2, Weerasooriya et al. 2021).

At step t, all blocks of parameters and clusters are drawn at temperature T(t); the best state is kept. The paper's
schedule 1 / (t + 1) is cold after ten steps, before clusters have formed. By default, the first half of the steps is at
T = 1, where steps sample from the posterior; T then falls to 0.1 in equal ratios.

`proposal="conditional"` draws each block from its exact tempered conditional distribution, so no draw is rejected:

    Θ_kl ~ Dir(1 + (α−1+n_kl) / T)   ψ ~ Dir(1 + (γ−1+N) / T)   Ω ~ Dir(1 + (τ−1+M) / T)
    w_i ~ softmax_k((log ψ_k + Σ_j log Θ_{k, z_j, y_ij}) / T)   z_j likewise

The last steps are at T = 0: each block is set to its most probable value, until ℓ no longer rises.

`proposal="prior"`, which is presumably the paper's, draws Θ_kl, ψ and Ω from their priors and clusters uniformly. A
draw is accepted with probability min(1, exp(δ / T)), where δ is the difference of ℓ (section 4.1.1):

    δΘ_kl = Σ_p (α−1+n_klp) log(new / old)   δψ = Σ_k (γ−1+N_k) log(new / old)   δΩ likewise
    δw_i = log ψ_new / ψ_old + Σ_j log Θ_{new, z_j, y_ij} / Θ_{old, z_j, y_ij}   δz_j likewise

The paper's δψ and δΩ omit N and M, so that ψ and Ω would not depend on the clusters at all.

On simulated tables with overlapping clusters, the adjusted Rand index of items is 0.50; it is 0.52 with `pgm-bp`, 0.27
with the paper's schedule and 0.15 with prior proposals (`benchmarks/clustering/README.md`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from scipy.special import softmax

from dissensus.clustering import model
from dissensus.clustering.base import ClusteringRun, Clusters, JointClustering, clusterings, has_converged
from dissensus.clustering.exceptions import InvalidTemperatureSchedule
from dissensus.clustering.model import ClusterCounts, ClusterParams, ClusterPriors, LabelGraph
from dissensus.clustering.start import VoteMixture
from dissensus.common.parameters import param
from dissensus.common.types import FloatArray, IntArray, OnStep
from dissensus.compute.engines.local import Threads

ProposalDistribution = Literal["conditional", "prior"]
TemperatureSchedule = Literal["plateau", "inverse"] | Sequence[float]

FINAL_TEMPERATURE = 0.1  # last temperature of the schedule "plateau"
MIN_GAMMA_DRAW = 1e-300  # lower limit of gamma draws, so that no probability is 0


class AnnealingState:
    """The parameters, hard clusters and counts at one step."""

    def __init__(
        self, edges: LabelGraph, params: ClusterParams, item: IntArray, annotator: IntArray, priors: ClusterPriors
    ):
        self.edges, self.params, self.item, self.annotator, self.priors = edges, params, item, annotator, priors
        self.recompute_counts()

    def recompute_counts(self) -> None:
        """Recompute the label counts and sizes of the clusters."""
        sizes = self.params.psi.size, self.params.omega.size
        self.counts = model.hard_counts(self.edges, self.item, self.annotator, *sizes)

    def log_posterior(self) -> float:
        """Return the log posterior ℓ of this state."""
        return log_posterior(self.counts, self.params, self.priors)

    def gibbs_step(self, temperature: float, rng: np.random.Generator) -> None:
        """Take one step of tempered Gibbs sampling; at temperature 0, one step of coordinate ascent."""
        edges, cold = self.edges, np.inf if temperature == 0 else 1 / temperature
        if temperature == 0:
            self.params = model.m_step(self.counts, self.priors)
        else:
            self.params = ClusterParams(
                _draw_dirichlet(rng, 1 + (self.priors.gamma - 1 + self.counts.items) * cold),
                _draw_dirichlet(rng, 1 + (self.priors.tau - 1 + self.counts.annotators) * cold),
                _draw_dirichlet(rng, 1 + (self.priors.alpha - 1 + self.counts.labels) * cold),
            )
        self.item = _draw_clusters(model.cluster_logits(edges, edges.items, self.params, self.annotator), cold, rng)
        self.annotator = _draw_clusters(
            model.cluster_logits(edges, edges.annotators, self.params, self.item), cold, rng
        )
        self.recompute_counts()

    def metropolis_step(self, temperature: float, rng: np.random.Generator) -> None:
        """Propose all values from the prior, and accept or reject each according to its change of ℓ."""
        edges, priors, now = self.edges, self.priors, self.params
        theta = _draw_dirichlet(rng, np.full(now.theta.shape, priors.alpha))
        accepted = _draw_acceptance(delta_theta(self.counts, now.theta, theta, priors), temperature, rng)
        now = ClusterParams(now.psi, now.omega, np.where(accepted[:, :, None], theta, now.theta))
        psi = _draw_dirichlet(rng, np.full(now.psi.shape, priors.gamma))
        if _draw_acceptance(delta_shares(self.counts.items, now.psi, psi, priors.gamma), temperature, rng):
            now = ClusterParams(psi, now.omega, now.theta)
        omega = _draw_dirichlet(rng, np.full(now.omega.shape, priors.tau))
        if _draw_acceptance(delta_shares(self.counts.annotators, now.omega, omega, priors.tau), temperature, rng):
            now = ClusterParams(now.psi, omega, now.theta)
        self.params = now
        self.item = _propose_clusters(
            model.cluster_logits(edges, edges.items, now, self.annotator), self.item, temperature, rng
        )
        logs = model.cluster_logits(edges, edges.annotators, now, self.item)
        self.annotator = _propose_clusters(logs, self.annotator, temperature, rng)
        self.recompute_counts()


def log_posterior(counts: ClusterCounts, params: ClusterParams, priors: ClusterPriors) -> float:
    """Return the log posterior ℓ of a hard clustering with these counts (Eq. 3, Weerasooriya et al. 2021)."""
    return model.log_prior(params, priors) + float(
        (counts.labels * np.log(params.theta)).sum()
        + counts.items @ np.log(params.psi)
        + counts.annotators @ np.log(params.omega)
    )


def delta_theta(counts: ClusterCounts, old: FloatArray, new: FloatArray, priors: ClusterPriors) -> FloatArray:
    """Return the change of ℓ (K, L) if only Θ_kl changes, for each k and l."""
    return np.asarray(((priors.alpha - 1 + counts.labels) * np.log(new / old)).sum(axis=2))


def delta_shares(sizes: FloatArray, old: FloatArray, new: FloatArray, prior: float) -> float:
    """Return δψ or δΩ, which is Σ (prior − 1 + cluster size) log(new / old); the paper omits the cluster sizes."""
    return float((prior - 1 + sizes) @ np.log(new / old))


def _draw_dirichlet(rng: np.random.Generator, concentration: FloatArray) -> FloatArray:
    """Draw from Dirichlet distributions along the last axis, without probabilities of 0."""
    gamma = np.maximum(rng.standard_gamma(concentration), MIN_GAMMA_DRAW)
    return np.asarray(gamma / gamma.sum(axis=-1, keepdims=True))


def _draw_acceptance(delta: Any, temperature: float, rng: np.random.Generator) -> Any:
    """Draw whether a change of ℓ by δ is accepted: always if δ > 0, otherwise with probability exp(δ / T)."""
    with np.errstate(divide="ignore", over="ignore"):
        return np.log(rng.random(np.shape(delta))) * temperature < delta


def _propose_clusters(logs: FloatArray, current: IntArray, temperature: float, rng: np.random.Generator) -> IntArray:
    """Propose a uniformly drawn cluster for each node; return the clusters after accepting or rejecting them."""
    new, rows = rng.integers(logs.shape[1], size=current.size), np.arange(current.size)
    return np.where(_draw_acceptance(logs[rows, new] - logs[rows, current], temperature, rng), new, current)


def _draw_clusters(logs: FloatArray, coldness: float, rng: np.random.Generator) -> IntArray:
    """Draw one column per row (n,) with probability ∝ exp(coldness · logs); infinite coldness gives the maximum."""
    uniform = rng.random(len(logs))
    if np.isinf(coldness):
        return np.asarray(logs.argmax(axis=1))
    cumulative = np.cumsum(np.exp(coldness * (logs - logs.max(axis=1, keepdims=True))), axis=1)
    return np.asarray((cumulative[:, :-1] <= uniform[:, None] * cumulative[:, -1:]).sum(axis=1))


@clusterings.register(
    "pgm-annealing",
    summary="clusters of items and annotators; simulated annealing",
    cite="Weerasooriya et al. 2021",
    annotators=True,
)
class PGMAnnealing(JointClustering):
    """Clusters of items and annotators, fitted by simulated annealing.

    `item_cluster_` and `annotator_cluster_` are the clusters in the best state. `item_clusters_` and
    `annotator_clusters_` are the probabilities of each cluster given everything else in the best state.

    >>> from dissensus.table.simulate import simulate
    >>> table = simulate(80, 8, 3, seed=1).annotations
    >>> PGMAnnealing(item_clusters=3, annotator_clusters=2, sweeps=50).fit(table).item_cluster_.shape
    (80,)
    """

    proposal: ProposalDistribution = param(
        "conditional", "distribution of new values: the exact conditional distribution, or the prior"
    )
    schedule: TemperatureSchedule = param(
        "plateau",
        "temperature at each step: 1 for half of the steps, then falling to 0.1 in equal ratios; or 1 / (t + 1), the "
        "paper's; or a sequence of temperatures",
    )
    sweeps: int = param(400, "number of steps of a named schedule", low=1)
    max_iter: int = param(200, 'maximum number of final steps at temperature 0, for proposal="conditional"', low=1)
    tol: float = param(1e-7, "stop if a step at temperature 0 raises ℓ by at most this share", low=0)

    def temperatures(self) -> FloatArray:
        """Return the temperature of every step."""
        steps = np.arange(self.sweeps)
        if self.schedule == "inverse":
            return np.asarray(1 / (steps + 1.0))
        if self.schedule == "plateau":
            flat = self.sweeps // 2
            return np.asarray(FINAL_TEMPERATURE ** (np.maximum(steps - flat + 1, 0) / (self.sweeps - flat)))
        listed = np.asarray(self.schedule, np.float64)
        if listed.ndim != 1 or listed.size == 0 or not (np.isfinite(listed) & (listed > 0)).all():
            raise InvalidTemperatureSchedule(temperatures=str(self.schedule))
        return listed

    def _run(
        self,
        edges: LabelGraph,
        votes: VoteMixture,
        number: int,
        rng: np.random.Generator,
        pool: Threads,
        on_step: OnStep,
    ) -> ClusteringRun:
        first = self._initial_state(edges, votes, number, rng)
        state = AnnealingState(edges, first.params, first.item, first.annotator, self._priors())
        best, top, trace = (state.params, state.item, state.annotator), state.log_posterior(), list[float]()

        def keep_best_state() -> None:
            nonlocal best, top
            value = state.log_posterior()
            if value > top:
                best, top = (state.params, state.item, state.annotator), value
            trace.append(top)
            on_step(len(trace), top)

        step = state.gibbs_step if self.proposal == "conditional" else state.metropolis_step
        for temperature in self.temperatures():
            step(temperature, rng)
            keep_best_state()
        converged = True
        if self.proposal == "conditional":
            state.params, state.item, state.annotator = best
            state.recompute_counts()
            begin, converged = len(trace), False
            while not converged and len(trace) - begin < self.max_iter:
                state.gibbs_step(0.0, rng)
                keep_best_state()
                converged = has_converged(trace[begin:], self.tol)
        params, item, annotator = best
        of_item = softmax(model.cluster_logits(edges, edges.items, params, annotator), axis=1)
        of_annotator = softmax(model.cluster_logits(edges, edges.annotators, params, item), axis=1)
        return ClusteringRun(params, Clusters(of_item, of_annotator, item, annotator), trace, converged)
