"""The joint model by EM, its E step by loopy belief propagation (Algorithm 3, Weerasooriya et al. 2021).

One round (section 4.1.4), F_e[k, l] the factor of edge e = (i, j):

    m_e(k) = Σ_l F_e[k, l] μ_e(l)    w_i(k) ∝ ψ_k Π_e m_e(k)    ν_e(k) ∝ w_i(k) / m_e(k)
    n_e(l) = Σ_k F_e[k, l] ν_e(k)    z_j(l) ∝ Ω_l Π_e n_e(l)    μ_e(l) ∝ z_j(l) / n_e(l)

until Σ KL(w new ‖ w) + Σ KL(z new ‖ z) (Eq. 5) is small, ten rounds at most; the next E step goes on from the messages
of the last. M step: `model.maximise`, Σ w_ik z_jl replaced by the belief of the pair, b_e(k, l) ∝ ν_e(k) F_e[k, l]
μ_e(l), with which EM is exact where the graph is a tree; `m_step="product"` as printed.

The objective is the Bethe approximation of the log evidence, at the messages of the last round, and the log prior:

    Σ_i log Σ_k ψ_k Π_e m_e(k) + Σ_j log Σ_l Ω_l Π_e n_e(l) − Σ_e log Σ_kl ν_e(k) F_e[k, l] μ_e(l) + log p(Θ, ψ, Ω)

Exact on a tree; on a graph with loops it may fall now and then.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from dissensus.clustering import model
from dissensus.clustering.base import Clustering, Run, Snap, check_enough, check_whole, stopped
from dissensus.clustering.model import Counts, Edges, Params, Priors
from dissensus.clustering.start import StartKind, Votes, start
from dissensus.common.types import FloatArray, OnStep
from dissensus.compute.engines.local import Threads
from dissensus.compute.kernels import clustering as kernels
from dissensus.exceptions import BadParameter
from dissensus.models.base import clusterings
from dissensus.table.annotations import Annotations

MStep = Literal["pairwise", "product"]


class Messages:
    """Messages and beliefs of one graph; they stay between E steps."""

    def __init__(self, edges: Edges, params: Params, damping: float, pool: Threads):
        self.edges, self.damping, self.pool = edges, damping, pool
        E = edges.size
        self.to_item = np.tile(params.omega, (E, 1))  # μ
        self.to_annotator = np.tile(params.psi, (E, 1))  # ν
        self.of_item = np.tile(params.psi, (edges.n_items, 1))
        self.of_annotator = np.tile(params.omega, (edges.n_annotators, 1))
        self.pair = np.empty(E)  # Σ_kl ν F μ

    def settle(self, params: Params, rounds: int, tol: float) -> float:
        """Rounds until beliefs change by at most `tol` per node; returns the Bethe log evidence."""
        edges = self.edges
        for_items, for_annotators = self.sides = model.sides(edges, params.theta)
        if for_items.tops.size:
            scale = float(for_items.tops @ np.bincount(edges.bag, minlength=for_items.tops.size))
        else:
            scale = _tops(edges, for_items.log_theta)
        enough, evidence = tol * (edges.n_items + edges.n_annotators), 0.0
        for _ in range(rounds):
            items, pairs, change = self._sweep(
                edges.item_parts, edges.item_ptr, edges.by_item, for_items, params.psi, self.to_item,
                self.to_annotator, self.of_item,
            )  # fmt: skip
            annotators, _, more = self._sweep(
                edges.annotator_parts, edges.annotator_ptr, edges.by_annotator, for_annotators, params.omega,
                self.to_annotator, self.to_item, self.of_annotator,
            )  # fmt: skip
            evidence = items + annotators - pairs + scale
            if change + more <= enough:
                break
        return evidence

    def _sweep(
        self,
        parts: list[tuple[int, int]],
        ptr: Any,
        order: Any,
        side: model.Side,
        prior: FloatArray,
        incoming: FloatArray,
        outgoing: FloatArray,
        belief: FloatArray,
    ) -> tuple[float, float, float]:
        edges = self.edges
        sums = model.in_parts(
            self.pool,
            parts,
            lambda _, first, last: kernels.sweep(
                first, last, ptr, order, edges.bag, *edges.bags, side.log_theta, side.tables, prior, incoming,
                outgoing, belief, self.pair, self.damping,
            ),
        )  # fmt: skip
        norms, pairs, change = (sum(values) for values in zip(*sums, strict=True))
        return norms, pairs, change

    def counts(self) -> Counts:
        """Expected counts by the beliefs of pairs."""
        edges, side = self.edges, self.sides[1]  # its factors are [k, l]
        labels = model.summed(
            edges,
            self.pool,
            (self.of_item.shape[1], self.of_annotator.shape[1]),
            lambda first, last, counts: kernels.pair_counts(
                first, last, edges.bag, *edges.bags, side.log_theta, side.tables, self.to_item, self.to_annotator,
                self.pair, counts,
            ),
        )  # fmt: skip
        return Counts(labels, self.of_item.sum(axis=0), self.of_annotator.sum(axis=0))


def _tops(edges: Edges, log_theta: FloatArray) -> float:
    """Σ_e log max F_e, where factors are not kept."""
    made, total = np.empty(log_theta.shape[1:]), 0.0
    for bag, often in zip(*np.unique(edges.bag, return_counts=True), strict=True):
        total += float(often) * kernels.fill(bag, *edges.bags, log_theta, made)
    return total


@clusterings.register(
    "pgm-bp",
    summary="items and annotators in clusters; EM with belief propagation",
    cite="Weerasooriya et al. 2021",
    annotators=True,
)
class PGMBP(Clustering):
    """Items and annotators in clusters, by EM with belief propagation.

    Parameters
    ----------
    item_clusters : int or None
        None: as many as there are classes, each started from the items that got most votes for one of them, so that
        only the annotators' clusters are free (as in `community-bcc`).
    annotator_clusters : int
    alpha, gamma, tau : float
        Dirichlet parameters of Θ, ψ and Ω; above 1.
    m_step : "pairwise" or "product"
        Counts by the belief of each pair, or by the product of both ends' beliefs, as printed.
    rounds, round_tol : int, float
        Rounds of messages in one E step at most; it stops when beliefs change by less than `round_tol` nats per node.
    damping : float
        Share of a message that is kept in the next round, from 0 to below 1.
    restarts : int
        Number of starts, of which the best objective is kept.
    start : "votes" or "random"
        Around items and annotators drawn far apart (see `clustering.start`), or random clusters. Which are drawn
        depends on the order of the names.
    snap : "hard" or "soft"
        Whether `posterior_` is that of the most probable cluster, or averaged.
    max_iter, tol
        E steps at most, for one start; stop when one changes the objective by less than `tol` of it.
    threads : int, optional
        None for all cores.
    seed : int or None
    """

    def __init__(
        self,
        *,
        item_clusters: int | None = 10,
        annotator_clusters: int = 5,
        alpha: float = 2.0,
        gamma: float = 2.0,
        tau: float = 2.0,
        m_step: MStep = "pairwise",
        rounds: int = 10,
        round_tol: float = 1e-3,
        damping: float = 0.0,
        restarts: int = 4,
        start: StartKind = "votes",
        snap: Snap = "hard",
        max_iter: int = 500,
        tol: float = 1e-6,
        threads: int | None = None,
        seed: int | None = 0,
    ):
        self.item_clusters = item_clusters
        self.annotator_clusters = annotator_clusters
        self.alpha = alpha
        self.gamma = gamma
        self.tau = tau
        self.m_step = m_step
        self.rounds = rounds
        self.round_tol = round_tol
        self.damping = damping
        self.restarts = restarts
        self.start = start
        self.snap = snap
        self.max_iter = max_iter
        self.tol = tol
        self.threads = threads
        self.seed = seed

    def _priors(self) -> Priors:
        return Priors(self.alpha, self.gamma, self.tau)

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check_clusters(self)
        check_whole("rounds", self.rounds)
        if self.m_step not in ("pairwise", "product"):
            raise BadParameter(f"m_step must be 'pairwise' or 'product', got {self.m_step!r}.")
        if not 0 <= self.damping < 1:
            raise BadParameter(f"damping must lie from 0 to below 1, got {self.damping}.")
        if not self.round_tol >= 0:
            raise BadParameter(f"round_tol must be 0 or more, got {self.round_tol}.")

    def _prepare(self, table: Annotations, edges: Edges) -> Votes:
        return joint_votes(self, table, edges)

    def _run(
        self, edges: Edges, prepared: Any, number: int, rng: np.random.Generator, pool: Threads, on_step: OnStep
    ) -> Run:
        K = self.item_clusters or edges.n_classes
        first = start(
            edges, prepared, K, self.annotator_clusters, self.start, self.item_clusters is None, number, rng, pool
        )
        priors, params = self._priors(), first.params
        messages, trace = Messages(edges, params, self.damping, pool), list[float]()
        while True:
            trace.append(messages.settle(params, self.rounds, self.round_tol) + model.log_prior(params, priors))
            on_step(len(trace), trace[-1])
            converged = stopped(trace, self.tol)
            if converged or len(trace) >= self.max_iter:
                break
            counts = (
                messages.counts()
                if self.m_step == "pairwise"
                else model.product_counts(edges, messages.of_item, messages.of_annotator, pool)
            )
            params = model.maximise(counts, priors)
        w, z = messages.of_item, messages.of_annotator
        return Run(params, w, z, w.argmax(axis=1), z.argmax(axis=1), trace, converged, trace[-1])


def check_clusters(method: Any) -> None:
    """Raise where the numbers of clusters, or the start, are none."""
    if method.item_clusters is not None:
        check_whole("item_clusters", method.item_clusters)
    check_whole("annotator_clusters", method.annotator_clusters)
    if method.start not in ("votes", "random"):
        raise BadParameter(f"start must be 'votes' or 'random', got {method.start!r}.")


def joint_votes(method: Any, table: Annotations, edges: Edges) -> Votes:
    """The votes of a table that is large enough for that many clusters."""
    if method.item_clusters is not None:
        check_enough("item_clusters", method.item_clusters, edges.labelled().size, "items")
    active = np.count_nonzero(np.diff(edges.annotator_ptr))
    check_enough("annotator_clusters", method.annotator_clusters, int(active), "annotators")
    return Votes(table.votes(), method._priors())
