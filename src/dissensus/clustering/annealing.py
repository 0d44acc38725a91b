"""The joint model by simulated annealing (Algorithm 2, Weerasooriya et al. 2021).

At step t all blocks are drawn at temperature T(t), and the best state is kept. The paper's schedule 1 / (t + 1) is
cold after ten steps, before clusters have formed; by default the first half of the steps is at T = 1, where steps
sample from the posterior, and T then falls to 0.1 in equal ratios.

`proposal="conditional"` draws each block from its exact tempered conditional, with nothing to reject:

    Θ_kl ~ Dir(1 + (α−1+n_kl) / T)   ψ ~ Dir(1 + (γ−1+N) / T)   Ω ~ Dir(1 + (τ−1+M) / T)
    w_i ~ softmax_k((log ψ_k + Σ_j log Θ_{k, z_j, y_ij}) / T)   z_j likewise

and ends at T = 0, where each block is set to its most probable value, until ℓ no longer rises.

`proposal="prior"`, presumably the paper's: Θ_kl, ψ, Ω from their priors, clusters uniformly, accepted with
probability min(1, exp(δ / T)), δ the difference of ℓ (section 4.1.1):

    δΘ_kl = Σ_p (α−1+n_klp) log(new / old)   δψ = Σ_k (γ−1+N_k) log(new / old)   δΩ likewise
    δw_i = log ψ_new / ψ_old + Σ_j log Θ_{new, z_j, y_ij} / Θ_{old, z_j, y_ij}   δz_j likewise

The paper's δψ and δΩ omit N and M, so that ψ and Ω would not depend on the clusters at all.

On simulated tables whose clusters overlap, the adjusted Rand index of items is 0.50, of `pgm-bp` 0.52, of the paper's
schedule 0.27 and of prior proposals 0.15 (`benchmarks/clustering/README.md`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from scipy.special import softmax

from dissensus.clustering import model
from dissensus.clustering.base import ClusteringRun, Clusters, JointClustering, clusterings, has_converged
from dissensus.clustering.exceptions import BadSchedule
from dissensus.clustering.model import ClusterCounts, ClusterParams, LabelGraph, Priors
from dissensus.clustering.start import VoteMixture
from dissensus.common.parameters import param
from dissensus.common.types import FloatArray, IntArray, OnStep
from dissensus.compute.engines.local import Threads

Proposal = Literal["conditional", "prior"]
Schedule = Literal["plateau", "inverse"] | Sequence[float]

FINAL_TEMPERATURE = 0.1  # Last temperature of the schedule "plateau".
MIN_GAMMA_DRAW = 1e-300  # smaller draws would make a probability 0


class AnnealingState:
    """Parameters, hard clusters and counts at one step."""

    def __init__(self, edges: LabelGraph, params: ClusterParams, item: IntArray, annotator: IntArray, priors: Priors):
        self.edges, self.params, self.item, self.annotator, self.priors = edges, params, item, annotator, priors
        self.recount()

    def recount(self) -> None:
        """Recompute the labels and sizes of the clusters."""
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
        self.recount()

    def metropolis_step(self, temperature: float, rng: np.random.Generator) -> None:
        """Propose all values from the prior; accept each by the difference that it makes to ℓ."""
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
        self.recount()


def log_posterior(counts: ClusterCounts, params: ClusterParams, priors: Priors) -> float:
    """Return ℓ of a hard clustering with these counts (Eq. 3, Weerasooriya et al. 2021)."""
    return model.log_prior(params, priors) + float(
        (counts.labels * np.log(params.theta)).sum()
        + counts.items @ np.log(params.psi)
        + counts.annotators @ np.log(params.omega)
    )


def delta_theta(counts: ClusterCounts, old: FloatArray, new: FloatArray, priors: Priors) -> FloatArray:
    """Return (K, L) the difference of ℓ for each Θ_kl alone."""
    return np.asarray(((priors.alpha - 1 + counts.labels) * np.log(new / old)).sum(axis=2))


def delta_shares(sizes: FloatArray, old: FloatArray, new: FloatArray, prior: float) -> float:
    """Return δψ or δΩ: Σ (prior − 1 + size of the cluster) log(new / old). The paper omits the sizes."""
    return float((prior - 1 + sizes) @ np.log(new / old))


def _draw_dirichlet(rng: np.random.Generator, concentration: FloatArray) -> FloatArray:
    """Draw from Dirichlet distributions along the last axis; no probability is 0."""
    gamma = np.maximum(rng.standard_gamma(concentration), MIN_GAMMA_DRAW)
    return np.asarray(gamma / gamma.sum(axis=-1, keepdims=True))


def _draw_acceptance(delta: Any, temperature: float, rng: np.random.Generator) -> Any:
    """Draw whether a change of ℓ by delta is accepted: always if ℓ rises, else with probability exp(δ / T)."""
    with np.errstate(divide="ignore", over="ignore"):
        return np.log(rng.random(np.shape(delta))) * temperature < delta


def _propose_clusters(logs: FloatArray, current: IntArray, temperature: float, rng: np.random.Generator) -> IntArray:
    """Propose one cluster per node, uniformly; return the clusters after accepting or rejecting it."""
    new, rows = rng.integers(logs.shape[1], size=current.size), np.arange(current.size)
    return np.where(_draw_acceptance(logs[rows, new] - logs[rows, current], temperature, rng), new, current)


def _draw_clusters(logs: FloatArray, coldness: float, rng: np.random.Generator) -> IntArray:
    """Draw (n,) columns with probability ∝ exp(coldness · logs), or return the arg max for infinite coldness."""
    uniform = rng.random(len(logs))
    if np.isinf(coldness):
        return np.asarray(logs.argmax(axis=1))
    cumulative = np.cumsum(np.exp(coldness * (logs - logs.max(axis=1, keepdims=True))), axis=1)
    return np.asarray((cumulative[:, :-1] <= uniform[:, None] * cumulative[:, -1:]).sum(axis=1))


@clusterings.register(
    "pgm-annealing",
    summary="items and annotators in clusters; simulated annealing",
    cite="Weerasooriya et al. 2021",
    annotators=True,
)
class PGMAnnealing(JointClustering):
    """Items and annotators in clusters, by simulated annealing.

    `item_clusters_` and `annotator_clusters_` are conditional probabilities given all else in the best state;
    `item_cluster_` and `annotator_cluster_` are that state.

    >>> from dissensus.table.simulate import simulate
    >>> table = simulate(80, 8, 3, seed=1).annotations
    >>> PGMAnnealing(item_clusters=3, annotator_clusters=2, sweeps=50).fit(table).item_cluster_.shape
    (80,)
    """

    proposal: Proposal = param("conditional", "distribution that new values are drawn from: the exact one, or priors")
    schedule: Schedule = param(
        "plateau",
        "temperature at each step: 1 for half of the steps, then down to 0.1 in equal ratios; or 1 / (t + 1), the "
        "paper's; or a sequence of temperatures",
    )
    sweeps: int = param(400, "steps of a named schedule", low=1)
    max_iter: int = param(200, 'steps at temperature 0 at most, with which proposal="conditional" ends', low=1)
    tol: float = param(1e-7, "stop when a step at temperature 0 gains at most this share of ℓ", low=0)

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
            raise BadSchedule(temperatures=str(self.schedule))
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

        def keep_best() -> None:
            nonlocal best, top
            value = state.log_posterior()
            if value > top:
                best, top = (state.params, state.item, state.annotator), value
            trace.append(top)
            on_step(len(trace), top)

        step = state.gibbs_step if self.proposal == "conditional" else state.metropolis_step
        for temperature in self.temperatures():
            step(temperature, rng)
            keep_best()
        converged = True
        if self.proposal == "conditional":
            state.params, state.item, state.annotator = best
            state.recount()
            begin, converged = len(trace), False
            while not converged and len(trace) - begin < self.max_iter:
                state.gibbs_step(0.0, rng)
                keep_best()
                converged = has_converged(trace[begin:], self.tol)
        params, item, annotator = best
        of_item = softmax(model.cluster_logits(edges, edges.items, params, annotator), axis=1)
        of_annotator = softmax(model.cluster_logits(edges, edges.annotators, params, item), axis=1)
        return ClusteringRun(params, Clusters(of_item, of_annotator, item, annotator), trace, converged)
