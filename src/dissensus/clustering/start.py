"""Initial parameters of a run: first item clusters from the votes alone, then annotator clusters.

Each item cluster starts from one item. These items are drawn one after the other, with a probability proportional to
their number of labels times the squared Hellinger distance to the items drawn before (k-means++, Arthur & Vassilvitskii
2007); a few passes of `fmm` follow. Annotator clusters start from annotators, which are drawn in the same way by the
labels that they gave to each item cluster; a few hard steps follow.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import csr_array

from dissensus.clustering import model
from dissensus.clustering.model import ClusterCounts, ClusterParams, ClusterPriors, LabelGraph
from dissensus.common.types import FloatArray, IntArray
from dissensus.models.em import run_em

N_WARM_UP_PASSES = 20  # EM passes of the mixture model in a start
N_HARD_STEPS = 5  # hard steps of the annotators' clusters
N_PSEUDO_LABELS = 3.0  # labels with the crowd's shares that are added for a drawn annotator, per item cluster
ITEMS_PER_CHUNK = 2**15  # items that are processed at a time, which limits temporary arrays


class InitialState(NamedTuple):
    """Initial parameters, and the hard clusters from which they were computed."""

    params: ClusterParams
    item: IntArray
    annotator: IntArray


class VoteMixture:
    """The votes (I, P) of a table, and EM for a mixture of multinomials over them."""

    def __init__(self, votes: FloatArray, priors: ClusterPriors):
        self.votes, self.priors = votes, priors

    def responsibilities(self, at: slice, params: ClusterParams) -> tuple[FloatArray, float]:
        """Return P(cluster | votes) of some items (n, K), and the log evidence of these items."""
        logs = self.votes[at] @ np.log(params.theta[:, 0]).T + np.log(params.psi)
        top = logs.max(axis=1, keepdims=True)
        np.exp(logs - top, out=logs)
        total = logs.sum(axis=1, keepdims=True)
        logs /= total
        return logs, float((top + np.log(total)).sum())

    def em_step(self, params: ClusterParams) -> tuple[float, ClusterParams]:
        """Return the objective of the given parameters, and the parameters after one EM step."""
        objective = model.log_prior(params, self.priors)
        sizes, labels = np.zeros_like(params.psi), np.zeros_like(params.theta[:, 0])
        for some in self._item_slices():
            shares, evidence = self.responsibilities(some, params)
            objective += evidence
            sizes += shares.sum(axis=0)
            labels += shares.T @ self.votes[some]
        return objective, self._m_step(labels, sizes)

    def posterior(self, params: ClusterParams) -> FloatArray:
        """Return P(cluster | votes) of each item (I, K)."""
        return np.concatenate([self.responsibilities(some, params)[0] for some in self._item_slices()])

    def draw_params(self, K: int, rng: np.random.Generator) -> ClusterParams:
        """Return a mixture whose components are K distant items, each with one label of the crowd's shares added."""
        chosen = draw_distant_rows(self.votes, K, rng)
        total = self.votes.sum(axis=0)
        theta = self.votes[chosen] + total / max(total.sum(), 1e-300) + 1e-3
        return model.normalise_params(np.ones(K), np.ones(1), theta[:, None])

    def _m_step(self, labels: FloatArray, sizes: FloatArray) -> ClusterParams:
        return model.m_step(ClusterCounts(labels[:, None], sizes, np.ones(1)), self.priors)

    def _item_slices(self) -> list[slice]:
        return [slice(at, at + ITEMS_PER_CHUNK) for at in range(0, max(len(self.votes), 1), ITEMS_PER_CHUNK)]


def draw_distant_rows(counts: Any, n: int, rng: np.random.Generator) -> IntArray:
    """Draw n distant rows of dense or sparse counts, as the module docstring explains; return their numbers (n,)."""
    counts = csr_array(counts)
    total = np.asarray(counts.sum(axis=1))
    roots = counts.multiply(np.where(total > 0, 1 / np.maximum(total, 1e-300), 0)[:, None]).sqrt().tocsr()
    distance = np.ones(total.size)
    chosen: list[int] = []
    for _ in range(n):
        chance = np.cumsum(distance * total)
        if not chance[-1] > 0:  # All remaining rows have a distribution that was already drawn.
            chance = np.cumsum(total + 1e-300)
        at = int(np.searchsorted(chance, rng.random() * chance[-1], side="right").clip(0, total.size - 1))
        chosen.append(at)
        distance = np.minimum(distance, np.maximum(1 - roots @ roots[[at]].toarray()[0], 0))
        distance[at] = 0
    return np.array(chosen)


def make_start(
    edges: LabelGraph,
    votes: VoteMixture,
    K: int,
    L: int,
    by_class: bool,
    number: int,
    rng: np.random.Generator,
) -> InitialState:
    """Return a start of the joint model; with `by_class`, cluster k has the items with most votes for class k."""
    priors = votes.priors
    if by_class:
        shares = votes.votes + (rng.standard_gamma(1.0, votes.votes.shape) if number else 0.0)
        item = shares.argmax(axis=1)
    else:
        first, silent = votes.draw_params(K, rng), lambda step, objective: None
        mixture = run_em(votes.em_step, first, max_iter=N_WARM_UP_PASSES, tol=1e-5, accelerate=None, on_step=silent)
        item = votes.posterior(mixture.params).argmax(axis=1)
    annotator = np.zeros(edges.annotators.size, np.int64)
    counts = model.hard_counts(edges, item, annotator, K, 1)
    if L == 1:
        return InitialState(model.m_step(counts, priors), item, annotator)
    crowd = model.m_step(counts, priors).theta[:, 0]  # (K, P)
    column = item[edges.row_item] * edges.n_classes + edges.row_label
    shape = (edges.annotators.size, K * edges.n_classes)  # labels of each annotator by item cluster
    own = csr_array((edges.row_weight, (edges.row_annotator, column)), shape=shape)
    theta = np.stack(
        [own[j].toarray().reshape(K, -1) + N_PSEUDO_LABELS * crowd for j in draw_distant_rows(own, L, rng)], axis=1
    )  # (K, L, P)
    params = model.normalise_params(counts.items + priors.gamma - 1, np.ones(L), theta)
    for _ in range(N_HARD_STEPS):
        annotator = model.cluster_logits(edges, edges.annotators, params, item).argmax(axis=1)
        params = model.m_step(model.hard_counts(edges, item, annotator, K, L), priors)
    return InitialState(params, item, annotator)
