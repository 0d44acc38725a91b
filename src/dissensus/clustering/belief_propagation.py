"""Fit the joint model by EM with loopy belief propagation (Algorithm 3, Weerasooriya et al. 2021).

In the E step, one round (section 4.1.4) updates the messages; F_e[k, l] is the factor of edge e = (i, j):

    m_e(k) = Σ_l F_e[k, l] μ_e(l)    w_i(k) ∝ ψ_k Π_e m_e(k)    ν_e(k) ∝ w_i(k) / m_e(k)
    n_e(l) = Σ_k F_e[k, l] ν_e(k)    z_j(l) ∝ Ω_l Π_e n_e(l)    μ_e(l) ∝ z_j(l) / n_e(l)

Rounds end if Σ KL(w new ‖ w) + Σ KL(z new ‖ z) (Eq. 5) is small, or after ten rounds; the next E step starts from the
last messages. The M step is `model.m_step`. It uses the belief of each pair, b_e(k, l) ∝ ν_e(k) F_e[k, l] μ_e(l),
instead of w_ik z_jl, which makes EM exact on a tree.

The objective is the log prior plus the Bethe approximation of the log evidence at the messages of the last round:

    Σ_i log Σ_k ψ_k Π_e m_e(k) + Σ_j log Σ_l Ω_l Π_e n_e(l) − Σ_e log Σ_kl ν_e(k) F_e[k, l] μ_e(l) + log p(Θ, ψ, Ω)

The objective is exact on a tree; on a graph with loops, it may decrease.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from dissensus.clustering import model
from dissensus.clustering.base import ClusteringRun, Clusters, JointClustering, clusterings, has_converged
from dissensus.clustering.model import ClusterCounts, ClusterParams, EdgeFactors, LabelGraph
from dissensus.clustering.start import VoteMixture
from dissensus.common.parameters import param
from dissensus.common.types import OnStep
from dissensus.compute.engines.local import Threads


class BeliefMessages:
    """Messages and beliefs of one graph; every E step starts from the messages of the previous one."""

    def __init__(self, edges: LabelGraph, params: ClusterParams, damping: float, pool: Threads):
        self.edges, self.damping, self.pool = edges, damping, pool
        E = edges.size
        self.to_item = np.tile(params.omega, (E, 1))  # μ
        self.to_annotator = np.tile(params.psi, (E, 1))  # ν
        self.of_item = np.tile(params.psi, (edges.items.size, 1))
        self.of_annotator = np.tile(params.omega, (edges.annotators.size, 1))
        self.pair = np.empty(E)  # Σ_kl ν F μ

    def propagate(self, params: ClusterParams, rounds: int, tol: float) -> float:
        """Pass messages until beliefs change by at most `tol` per node; return the Bethe log evidence."""
        edges, pool = self.edges, self.pool
        for_items = self.for_items = EdgeFactors(edges, edges.items, params.theta)
        for_annotators = EdgeFactors(edges, edges.annotators, params.theta)
        scale = sum(for_items.range_factors(part)[1] for part in edges.items.parts)
        enough, evidence = tol * (edges.items.size + edges.annotators.size), 0.0
        for _ in range(rounds):
            items, pairs, change = for_items.run_round(
                params.psi, self.to_item, self.to_annotator, self.of_item, self.pair, pool, self.damping
            )
            annotators, _, more = for_annotators.run_round(
                params.omega, self.to_annotator, self.to_item, self.of_annotator, self.pair, pool, self.damping
            )
            evidence = items + annotators - pairs + scale
            if change + more <= enough:
                break
        return evidence

    def expected_counts(self) -> ClusterCounts:
        """Return the expected counts under the beliefs of pairs."""
        labels = model.expected_label_counts(
            self.edges, self.for_items, self.to_item, self.to_annotator, self.pair, self.pool
        )
        return ClusterCounts(labels, self.of_item.sum(axis=0), self.of_annotator.sum(axis=0))


@clusterings.register(
    "pgm-bp",
    summary="clusters of items and annotators; EM with belief propagation",
    cite="Weerasooriya et al. 2021",
    annotators=True,
)
class PGMBP(JointClustering):
    """Clusters of items and annotators, fitted by EM with belief propagation.

    >>> from dissensus.table.simulate import simulate
    >>> model = PGMBP(item_clusters=3, annotator_clusters=2).fit(simulate(80, 8, 3, seed=1).annotations)
    >>> model.item_clusters_.shape, model.annotator_clusters_.shape
    ((80, 3), (8, 2))
    """

    messages: ClassVar[type[BeliefMessages]] = BeliefMessages

    rounds: int = param(10, "maximum number of rounds of messages in one E step", low=1)
    round_tol: float = param(1e-3, "an E step ends if beliefs change by less than this, in nats per node", low=0)
    damping: float = param(
        0.0,
        "share of a message that is kept in the next round",
        low=0,
        below=1,
        must="must lie from 0 to below 1",
    )

    def _run(
        self,
        edges: LabelGraph,
        votes: VoteMixture,
        number: int,
        rng: np.random.Generator,
        pool: Threads,
        on_step: OnStep,
    ) -> ClusteringRun:
        priors, params = self._priors(), self._initial_state(edges, votes, number, rng).params
        messages, trace = self.messages(edges, params, self.damping, pool), list[float]()
        while True:
            trace.append(messages.propagate(params, self.rounds, self.round_tol) + model.log_prior(params, priors))
            on_step(len(trace), trace[-1])
            converged = has_converged(trace, self.tol)
            if converged or len(trace) >= self.max_iter:
                break
            params = model.m_step(messages.expected_counts(), priors)
        w, z = messages.of_item, messages.of_annotator
        return ClusteringRun(params, Clusters(w, z, w.argmax(axis=1), z.argmax(axis=1)), trace, converged)
