"""A finite mixture of multinomials over the votes of items, fitted by exact EM.

It is the joint model with a single annotator cluster:

    ψ ~ Dir(γ)   Θ_k ~ Dir(α)   w_i ~ Cat(ψ)   votes of i | w_i = k ~ Mult(Θ_k)

E step  q_i(k) ∝ ψ_k Π_p Θ_kp^{n_ip}      M step  ψ_k ∝ γ−1 + Σ_i q_i(k)      Θ_kp ∝ α−1 + Σ_i q_i(k) n_ip
"""

from __future__ import annotations

import numpy as np

from dissensus.clustering.base import Clustering, ClusteringRun, Clusters, check_enough_nodes, clusterings
from dissensus.clustering.model import LabelGraph
from dissensus.clustering.start import VoteMixture
from dissensus.common.parameters import param
from dissensus.common.types import OnStep
from dissensus.compute.engines.local import Threads
from dissensus.models.em import Accelerate, run_em


@clusterings.register(
    "fmm", summary="clusters of items with similar votes; exact EM", cite="Weerasooriya et al. 2021", annotators=False
)
class FMM(Clustering):
    """Clusters of items with similar distributions of votes.

    >>> from dissensus.table.simulate import simulate
    >>> FMM(n_clusters=3).fit(simulate(80, 8, 3, seed=1).annotations).item_clusters_.shape
    (80, 3)
    """

    n_clusters: int = param(10, "number of item clusters", low=1)
    tol: float = param(1e-7, "stop if a pass raises the objective by at most this share", low=0)
    accelerate: Accelerate = param("squarem", "extrapolation of EM, see `models.em`; None for plain EM")

    def _check_size(self, edges: LabelGraph) -> None:
        check_enough_nodes("n_clusters", self.n_clusters, edges.items.ptr, "items")

    def _run(
        self,
        edges: LabelGraph,
        votes: VoteMixture,
        number: int,
        rng: np.random.Generator,
        pool: Threads,
        on_step: OnStep,
    ) -> ClusteringRun:
        first = votes.draw_params(self.n_clusters, rng)
        done = run_em(
            votes.em_step, first, max_iter=self.max_iter, tol=self.tol, accelerate=self.accelerate, on_step=on_step
        )
        A, (objective, _) = edges.annotators.size, votes.em_step(done.params)
        of_item = votes.posterior(done.params)
        clusters = Clusters(of_item, np.ones((A, 1)), of_item.argmax(axis=1), np.zeros(A, np.int64))
        return ClusteringRun(done.params, clusters, [*done.trace, objective], done.converged)
