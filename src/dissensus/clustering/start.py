"""Where a run starts: item clusters from the votes alone, then annotator clusters given those.

The items of the first clusters are drawn one after the other, each with a probability that grows with its distance
(squared Hellinger, times its labels) from those drawn before (k-means++, Arthur & Vassilvitskii 2007); a short `fmm`
follows. Annotators likewise, by the labels that they gave to each item cluster, with a few hard steps after it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Self

import numpy as np
from scipy.sparse import csr_array

from dissensus.clustering import model
from dissensus.clustering.model import Edges, Params, Priors
from dissensus.common.types import FloatArray, IntArray
from dissensus.models.em import climb

WARM_UP_PASSES = 20  # of the mixture, in a start
HARD_STEPS = 5  # of the annotators' clusters
PSEUDO_LABELS = 3.0  # like everybody's, that a drawn annotator is given for each item cluster
ITEMS_AT_ONCE = 2**15  # so that temporaries stay small

StartKind = Literal["votes", "random"]


class Start(NamedTuple):
    """Parameters, and the hard clusters that they were made from."""

    params: Params
    item: IntArray
    annotator: IntArray


@dataclass(frozen=True)
class Mixture:
    """ψ (K,) and the clusters' label distributions Θ (K, P)."""

    psi: FloatArray
    theta: FloatArray

    def to_vector(self) -> FloatArray:
        """Square roots, as in `dawid-skene`."""
        return np.asarray(np.sqrt(np.concatenate([self.psi, self.theta.reshape(-1)])))

    def from_vector(self, vector: FloatArray) -> Self:
        """Squares, normalised again."""
        squares = np.maximum(vector**2, 1e-18)
        psi, theta = squares[: self.psi.size], squares[self.psi.size :].reshape(self.theta.shape)
        return type(self)(psi / psi.sum(), theta / theta.sum(axis=1, keepdims=True))


class Votes:
    """The votes (I, P) of a table, and EM of a mixture of multinomials over them."""

    def __init__(self, votes: FloatArray, priors: Priors):
        self.votes, self.priors = votes, priors

    def responsibilities(self, at: slice, params: Mixture) -> tuple[FloatArray, float]:
        """(n, K) P(cluster | votes) of some items, and their log evidence."""
        logs = self.votes[at] @ np.log(params.theta).T + np.log(params.psi)
        top = logs.max(axis=1, keepdims=True)
        np.exp(logs - top, out=logs)
        total = logs.sum(axis=1, keepdims=True)
        logs /= total
        return logs, float((top + np.log(total)).sum())

    def em_pass(self, params: Mixture) -> tuple[float, Mixture]:
        """The objective of the parameters, and the parameters after one EM step."""
        alpha, gamma = self.priors.alpha - 1, self.priors.gamma - 1
        objective = float(alpha * np.log(params.theta).sum() + gamma * np.log(params.psi).sum())
        psi, theta = np.full_like(params.psi, gamma), np.full_like(params.theta, alpha)
        for at in range(0, len(self.votes), ITEMS_AT_ONCE):
            some = slice(at, at + ITEMS_AT_ONCE)
            shares, evidence = self.responsibilities(some, params)
            objective += evidence
            psi += shares.sum(axis=0)
            theta += shares.T @ self.votes[some]
        return objective, Mixture(psi / psi.sum(), theta / theta.sum(axis=1, keepdims=True))

    def posterior(self, params: Mixture) -> FloatArray:
        """(I, K) P(cluster | votes)."""
        parts = [
            self.responsibilities(slice(at, at + ITEMS_AT_ONCE), params)[0]
            for at in range(0, max(len(self.votes), 1), ITEMS_AT_ONCE)
        ]
        return np.concatenate(parts)

    def seeded(self, K: int, rng: np.random.Generator) -> Mixture:
        """A mixture around K items of the table, drawn far apart; each has the labels of one more average item."""
        chosen = spread(self.votes, K, rng)
        everybody = self.votes.sum(axis=0)
        theta = self.votes[chosen] + everybody / max(everybody.sum(), 1e-300) + 1e-3
        return Mixture(np.full(K, 1 / K), theta / theta.sum(axis=1, keepdims=True))

    def random(self, K: int, rng: np.random.Generator) -> Mixture:
        """One M step from random responsibilities."""
        shares = rng.dirichlet(np.ones(K), len(self.votes))
        psi, theta = shares.sum(axis=0) + self.priors.gamma - 1, shares.T @ self.votes + self.priors.alpha - 1
        return Mixture(psi / psi.sum(), theta / theta.sum(axis=1, keepdims=True))


def spread(counts: Any, n: int, rng: np.random.Generator) -> IntArray:
    """(n,) rows of counts, dense or sparse, that lie far apart; see the module."""
    counts = csr_array(counts)
    total = np.asarray(counts.sum(axis=1))
    roots = counts.multiply(np.where(total > 0, 1 / np.maximum(total, 1e-300), 0)[:, None]).sqrt().tocsr()
    distance = np.ones(total.size)
    chosen: list[int] = []
    for _ in range(n):
        chance = np.cumsum(distance * total)
        if not chance[-1] > 0:  # no other distributions are left
            chance = np.cumsum(total + 1e-300)
        at = int(np.searchsorted(chance, rng.random() * chance[-1], side="right").clip(0, total.size - 1))
        chosen.append(at)
        distance = np.minimum(distance, np.maximum(1 - roots @ roots[[at]].toarray()[0], 0))
        distance[at] = 0
    return np.array(chosen)


def start(
    edges: Edges,
    votes: Votes,
    K: int,
    L: int,
    kind: StartKind,
    by_class: bool,
    number: int,
    rng: np.random.Generator,
) -> Start:
    """A start of the joint model; `by_class`: cluster k is made of the items that got class k."""
    priors = votes.priors
    if kind == "random":
        of_item = rng.dirichlet(np.ones(K), edges.items.size)
        of_annotator = rng.dirichlet(np.ones(L), edges.annotators.size)
        params = model.maximise(model.product_counts(edges, of_item, of_annotator), priors)
        return Start(params, of_item.argmax(axis=1), of_annotator.argmax(axis=1))
    if by_class:
        shares = votes.votes + (rng.standard_gamma(1.0, votes.votes.shape) if number else 0.0)
        item = shares.argmax(axis=1)
    else:
        mixture = votes.seeded(K, rng)
        mixture = climb(
            votes.em_pass,
            mixture,
            max_iter=WARM_UP_PASSES,
            tol=1e-5,
            accelerate=None,
            on_step=lambda step, objective: None,
        ).params
        item = votes.posterior(mixture).argmax(axis=1)
    annotator = np.zeros(edges.annotators.size, np.int64)
    counts = model.hard_counts(edges, item, annotator, K, 1)
    if L == 1:
        return Start(model.maximise(counts, priors), item, annotator)
    everybody = model.maximise(counts, priors).theta[:, 0]  # (K, P)
    own = _own_counts(edges, item, K)
    theta = np.stack(
        [own[j].toarray().reshape(K, -1) + PSEUDO_LABELS * everybody for j in spread(own, L, rng)], axis=1
    )  # (K, L, P)
    psi = counts.items + priors.gamma - 1
    params = Params(psi / psi.sum(), np.full(L, 1 / L), theta / theta.sum(axis=2, keepdims=True))
    for _ in range(HARD_STEPS):
        annotator = model.logits(edges, edges.annotators, params, item).argmax(axis=1)
        params = model.maximise(model.hard_counts(edges, item, annotator, K, L), priors)
    return Start(params, item, annotator)


def _own_counts(edges: Edges, item: IntArray, K: int) -> Any:
    """(A, K·P) sparse: how often each annotator gave each label to items of each cluster."""
    column = item[edges.row_item] * edges.n_classes + edges.row_label
    shape = (edges.annotators.size, K * edges.n_classes)
    return csr_array((edges.row_weight, (edges.row_annotator, column)), shape=shape)
