"""A finite mixture of multinomials over the votes of items: the joint model with one annotator cluster, by exact EM.

    ψ ~ Dir(γ)   Θ_k ~ Dir(α)   w_i ~ Cat(ψ)   votes of i | w_i = k ~ Mult(Θ_k)

E step  q_i(k) ∝ ψ_k Π_p Θ_kp^{n_ip}      M step  ψ_k ∝ γ−1 + Σ_i q_i(k)      Θ_kp ∝ α−1 + Σ_i q_i(k) n_ip
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dissensus.clustering.base import Clustering, Run, Snap, check_enough, check_whole
from dissensus.clustering.model import Edges, Params, Priors
from dissensus.clustering.start import StartKind, Votes
from dissensus.common.types import FloatArray, OnStep
from dissensus.compute.engines.local import Threads
from dissensus.exceptions import BadParameter
from dissensus.models.base import clusterings
from dissensus.models.em import Accelerate, climb
from dissensus.table.annotations import Annotations


@clusterings.register(
    "fmm", summary="items in clusters by their votes; exact EM", cite="Weerasooriya et al. 2021", annotators=False
)
class FMM(Clustering):
    """Items in clusters, by how their votes are distributed.

    Parameters
    ----------
    n_clusters : int
    alpha, gamma : float
        Dirichlet parameters of the clusters' label distributions and of their shares; above 1.
    restarts : int
        Number of starts, of which the best log posterior is kept.
    start : "votes" or "random"
        Around items drawn far apart, or random responsibilities. Which items are drawn depends on their names' order.
    snap : "hard" or "soft"
        Whether `posterior_` is that of the most probable cluster, or averaged.
    max_iter, tol, accelerate
        Passes over the data at most, for one start; stop when a pass gains less than `tol` of the objective; "squarem"
        or None.
    threads : int, optional
        Threads for the starts; None for all cores.
    seed : int or None
    """

    def __init__(
        self,
        *,
        n_clusters: int = 10,
        alpha: float = 2.0,
        gamma: float = 2.0,
        restarts: int = 4,
        start: StartKind = "votes",
        snap: Snap = "hard",
        max_iter: int = 500,
        tol: float = 1e-7,
        accelerate: Accelerate = "squarem",
        threads: int | None = None,
        seed: int | None = 0,
    ):
        self.n_clusters = n_clusters
        self.alpha = alpha
        self.gamma = gamma
        self.restarts = restarts
        self.start = start
        self.snap = snap
        self.max_iter = max_iter
        self.tol = tol
        self.accelerate = accelerate
        self.threads = threads
        self.seed = seed

    def _priors(self) -> Priors:
        return Priors(self.alpha, self.gamma)

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check_whole("n_clusters", self.n_clusters)
        if self.accelerate not in (None, "squarem"):
            raise BadParameter(f"accelerate must be None or 'squarem', got {self.accelerate!r}.")
        if self.start not in ("votes", "random"):
            raise BadParameter(f"start must be 'votes' or 'random', got {self.start!r}.")

    def _prepare(self, table: Annotations, edges: Edges) -> Votes:
        check_enough("n_clusters", self.n_clusters, edges.labelled().size, "items")
        return Votes(table.votes(), self._priors())

    def _run(
        self, edges: Edges, prepared: Any, number: int, rng: np.random.Generator, pool: Threads, on_step: OnStep
    ) -> Run:
        votes: Votes = prepared
        first = (votes.seeded if self.start == "votes" else votes.random)(self.n_clusters, rng)
        done = climb(
            votes.em_pass, first, max_iter=self.max_iter, tol=self.tol, accelerate=self.accelerate, on_step=on_step
        )
        objective, _ = votes.em_pass(done.params)
        of_item = votes.posterior(done.params)
        alone: FloatArray = np.ones((edges.n_annotators, 1))
        params = Params(done.params.psi, np.ones(1), done.params.theta[:, None].copy())
        return Run(
            params, of_item, alone, of_item.argmax(axis=1), np.zeros(edges.n_annotators, np.int64),
            [*done.trace, objective], done.converged, objective,
        )  # fmt: skip
