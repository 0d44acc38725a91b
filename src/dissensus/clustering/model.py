"""The joint model of item and annotator clusters (Weerasooriya et al. 2021): one place for its equations.

    Θ_kl ~ Dir(α)   ψ ~ Dir(γ)   Ω ~ Dir(τ)   w_i ~ Cat(ψ)   z_j ~ Cat(Ω)   y_ij | w_i = k, z_j = l ~ Cat(Θ_kl)

Log posterior of a hard clustering (Eq. 3; the paper forgets a logarithm and names items m, annotators n):

    ℓ = (α−1) Σ_klp log Θ_klp + (γ−1) Σ_k log ψ_k + Σ_i log ψ_{w_i} + (τ−1) Σ_l log Ω_l + Σ_j log Ω_{z_j}
        + Σ_{(i,j)} log Θ_{w_i, z_j, y_ij}
      = Σ_klp (α−1+n_klp) log Θ_klp + Σ_k (γ−1+N_k) log ψ_k + Σ_l (τ−1+M_l) log Ω_l

with n_klp the labels p of items in cluster k by annotators in cluster l, N_k and M_l the sizes of the clusters.

| symbol | name | shape |
|---|---|---|
| ψ, Ω, Θ | psi, omega, theta | (K,), (L,), (K, L, P): K item clusters, L annotator clusters, P classes |
| w, z | of_item, of_annotator | soft (I, K), (A, L); hard (I,), (A,) |
| n, N, M | Counts | (K, L, P), (K,), (L,) |

A weighted row multiplies its logarithm; a probabilistic one counts as one weighted row per class. Several labels of one
pair are one *edge* of the graph between items and annotators, whose log Θ are summed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

import numpy as np

from dissensus.common.types import FloatArray, IntArray
from dissensus.compute.engines.base import hard_rows
from dissensus.compute.engines.local import Threads, balanced, even
from dissensus.compute.kernels import clustering as kernels
from dissensus.exceptions import BadParameter
from dissensus.table import kernels as table_kernels
from dissensus.table.annotations import Annotations

T = TypeVar("T")

PART = 20_000  # edges of a part; the parts, not the threads, decide the order of sums
MOST_PARTS = 32
MOST_CELLS = 2**24  # numbers in the factors of all bags; where there would be more, they are made on the way


@dataclass(frozen=True)
class Params:
    """ψ (K,), Ω (L,), Θ (K, L, P)."""

    psi: FloatArray
    omega: FloatArray
    theta: FloatArray


class Priors(NamedTuple):
    """Symmetric Dirichlet parameters of Θ, ψ and Ω; above 1, so that no cluster's probability falls to zero."""

    alpha: float = 2.0
    gamma: float = 2.0
    tau: float = 2.0


class Counts(NamedTuple):
    """Labels (K, L, P), items (K,) and annotators (L,) of the clusters; soft or hard."""

    labels: FloatArray
    items: FloatArray
    annotators: FloatArray


class Bags(NamedTuple):
    """The different sets of labels that edges carry: of bag b, label[ptr[b]:ptr[b+1]] and their weights."""

    ptr: IntArray
    label: IntArray
    weight: FloatArray


class Edges:
    """The graph: one edge per (item, annotator) pair, sorted by item; `bag` says which labels it carries."""

    def __init__(self, table: Annotations):
        rows = hard_rows(table)
        item = np.repeat(np.arange(table.n_items, dtype=np.int32), np.diff(rows.item_ptr))
        fresh = np.ones(item.size, np.bool_)
        fresh[1:] = (np.diff(item) != 0) | (np.diff(rows.annotator) != 0)
        first = np.flatnonzero(fresh)
        self.n_items, self.n_annotators, self.n_classes = table.n_items, table.n_annotators, table.n_classes
        self.item, self.annotator = item[first], rows.annotator[first]
        self.item_ptr = table_kernels.offsets(self.item, self.n_items)
        self.annotator_ptr = table_kernels.offsets(self.annotator, self.n_annotators)
        self.by_item = np.arange(first.size, dtype=np.int32)
        self.by_annotator = table_kernels.group(self.annotator, self.annotator_ptr)
        self.bag, self.bags = _bags(rows.label, rows.weight, np.append(first, item.size), table.n_classes)
        parts = max(1, min(MOST_PARTS, self.size // PART))
        self.item_parts = balanced(self.item_ptr, parts)
        self.annotator_parts = balanced(self.annotator_ptr, parts)
        self.parts = even(self.size, parts)

    @property
    def size(self) -> int:
        """How many edges there are."""
        return self.item.size

    def labelled(self) -> IntArray:
        """Items that have an edge."""
        return np.flatnonzero(np.diff(self.item_ptr))


def _bags(label: IntArray, weight: FloatArray | None, cuts: IntArray, n_classes: int) -> tuple[IntArray, Bags]:
    """Which bag each edge has, and the different bags; edge e has the rows cuts[e]:cuts[e+1]."""
    lengths = np.diff(cuts)
    if weight is None and (lengths == 1).all():  # the usual case: a bag is a label
        every = np.arange(n_classes + 1, dtype=np.int64)
        return label.astype(np.int32), Bags(every, every[:-1].copy(), np.ones(n_classes))
    weight = np.ones(label.size) if weight is None else weight
    bag = np.empty(lengths.size, np.int32)
    sizes, labels, weights, found = [], [], [], 0
    for length in np.unique(lengths):
        edges = np.flatnonzero(lengths == length)
        rows = cuts[edges][:, None] + np.arange(length)
        different, at = np.unique(np.hstack([label[rows], weight[rows]]), axis=0, return_inverse=True)
        bag[edges] = at.reshape(-1) + found
        found += len(different)
        sizes.append(np.full(len(different), length))
        labels.append(different[:, :length].reshape(-1))
        weights.append(different[:, length:].reshape(-1))
    ptr = np.concatenate([[0], np.cumsum(np.concatenate(sizes))]).astype(np.int64)
    return bag, Bags(ptr, np.concatenate(labels).astype(np.int64), np.concatenate(weights))


def in_parts(pool: Threads, parts: list[tuple[int, int]], work: Callable[[int, int, int], T]) -> list[T]:
    """`work(number, start, stop)` for every part, results in order; each thread takes as many parts as the others."""
    shared = pool.map(
        lambda _, first, last: [work(number, *parts[number]) for number in range(first, last)],
        even(len(parts), min(pool.threads, len(parts))),
    )
    return [result for some in shared for result in some]


class Side(NamedTuple):
    """Half of the graph: the factors as its nodes read them."""

    log_theta: FloatArray  # (P, other, own)
    tables: FloatArray  # (B, other, own), or empty
    tops: FloatArray  # (B,) log max F


def sides(edges: Edges, theta: FloatArray) -> tuple[Side, Side]:
    """The factors for items, and for annotators."""
    found = []
    bags = edges.bags.ptr.size - 1
    for logs in (np.log(theta).transpose(2, 1, 0), np.log(theta).transpose(2, 0, 1)):
        logs = np.ascontiguousarray(logs)
        kept = bags if bags * logs[0].size <= MOST_CELLS else 0
        tables, tops = np.empty((kept, *logs.shape[1:])), np.empty(kept)
        if kept:
            kernels.fill_all(*edges.bags, logs, tables, tops)
        found.append(Side(logs, tables, tops))
    return found[0], found[1]


# Equations ------------------------------------------------------------------------------------------------------------


def log_prior(params: Params, priors: Priors) -> float:
    """Log density of the parameters, up to a constant."""
    return float(
        (priors.alpha - 1) * np.log(params.theta).sum()
        + (priors.gamma - 1) * np.log(params.psi).sum()
        + (priors.tau - 1) * np.log(params.omega).sum()
    )


def log_posterior(counts: Counts, params: Params, priors: Priors) -> float:
    """ℓ of a hard clustering with these counts (Eq. 3)."""
    return log_prior(params, priors) + float(
        (counts.labels * np.log(params.theta)).sum()
        + counts.items @ np.log(params.psi)
        + counts.annotators @ np.log(params.omega)
    )


def maximise(counts: Counts, priors: Priors) -> Params:
    """The M step (section 4.1.3): the parameters of highest expected log posterior."""
    theta = counts.labels + (priors.alpha - 1)
    psi, omega = counts.items + (priors.gamma - 1), counts.annotators + (priors.tau - 1)
    return Params(psi / psi.sum(), omega / omega.sum(), theta / theta.sum(axis=2, keepdims=True))


def hard_counts(edges: Edges, of_item: IntArray, of_annotator: IntArray, K: int, L: int) -> Counts:
    """Counts of a hard clustering."""
    labels = np.zeros((K, L, edges.n_classes))
    kernels.hard_counts(edges.item, edges.annotator, edges.bag, *edges.bags, of_item, of_annotator, labels)
    sizes = (np.bincount(cluster, minlength=n) for cluster, n in ((of_item, K), (of_annotator, L)))
    return Counts(labels, *(size.astype(np.float64) for size in sizes))


def product_counts(edges: Edges, of_item: FloatArray, of_annotator: FloatArray, pool: Threads) -> Counts:
    """Expected counts where the clusters of an item and its annotator are taken to be independent, as printed."""
    K, L = of_item.shape[1], of_annotator.shape[1]
    labels = summed(
        edges,
        pool,
        (K, L),
        lambda start, stop, counts: kernels.product_counts(
            start, stop, edges.item, edges.annotator, edges.bag, *edges.bags, of_item, of_annotator, counts
        ),
    )
    return Counts(labels, of_item.sum(axis=0), of_annotator.sum(axis=0))


def summed(
    edges: Edges, pool: Threads, shape: tuple[int, int], add: Callable[[int, int, FloatArray], None]
) -> FloatArray:
    """(K, L, P) what `add(start, stop, counts)` adds over all edges; sums do not depend on the number of threads."""
    counts = np.zeros((len(edges.parts), edges.n_classes, *shape))
    in_parts(pool, edges.parts, lambda part, start, stop: add(start, stop, counts[part]))
    return np.ascontiguousarray(counts.sum(axis=0).transpose(1, 2, 0))


def of_clusters(params: Params) -> FloatArray:
    """(K, P) the labels that a population of annotators gives to an item of each cluster: Σ_l Ω_l Θ_kl."""
    return np.asarray(np.einsum("l,klp->kp", params.omega, params.theta))


def projected(params: Params, distributions: FloatArray, size: float) -> FloatArray:
    """(n, K) P(w = k) ∝ ψ_k Σ_l Ω_l exp(s Σ_p h_p log Θ_klp) of h (n, P): Eq. 2, read as s = `size` labels like h.

    So all labels are of one annotator cluster. What a population says of an item is a mixture over them: with a single
    annotator cluster that says what `of_clusters` does, this is P(w = k) ∝ ψ_k exp(s Σ_p h_p log Σ_l Ω_l Θ_klp).
    """
    logs = size * np.einsum("np,klp->nkl", distributions, np.log(params.theta), optimize=True)
    logs += np.log(params.psi)[:, None] + np.log(params.omega)
    of_cluster = np.logaddexp.reduce(logs, axis=2)
    return np.asarray(np.exp(of_cluster - np.logaddexp.reduce(of_cluster, axis=1, keepdims=True)))


# Differences of ℓ when one block changes (section 4.1.1) --------------------------------------------------------------


def delta_theta(counts: Counts, old: FloatArray, new: FloatArray, priors: Priors) -> FloatArray:
    """(K, L) δ of every Θ_kl by itself."""
    return np.asarray(((priors.alpha - 1 + counts.labels) * np.log(new / old)).sum(axis=2))


def delta_shares(sizes: FloatArray, old: FloatArray, new: FloatArray, prior: float) -> float:
    """δψ or δΩ: Σ (prior − 1 + size of the cluster) log(new / old). The paper leaves the sizes out."""
    return float((prior - 1 + sizes) @ np.log(new / old))


def item_logits(edges: Edges, params: Params, of_annotator: IntArray, pool: Threads) -> FloatArray:
    """(I, K) log ψ_k + Σ_j log Θ_{k, z_j, y_ij}; δw_i is a difference of two of its numbers."""
    out = np.empty((edges.n_items, params.psi.size))
    logs = np.ascontiguousarray(np.log(params.theta).transpose(2, 1, 0))
    in_parts(
        pool,
        edges.item_parts,
        lambda _, start, stop: kernels.logits(
            start, stop, edges.item_ptr, edges.by_item, edges.bag, *edges.bags, logs, np.log(params.psi),
            edges.annotator, of_annotator, out,
        ),
    )  # fmt: skip
    return out


def annotator_logits(edges: Edges, params: Params, of_item: IntArray, pool: Threads) -> FloatArray:
    """(A, L) log Ω_l + Σ_i log Θ_{w_i, l, y_ij}; δz_j is a difference of two of its numbers."""
    out = np.empty((edges.n_annotators, params.omega.size))
    logs = np.ascontiguousarray(np.log(params.theta).transpose(2, 0, 1))
    in_parts(
        pool,
        edges.annotator_parts,
        lambda _, start, stop: kernels.logits(
            start, stop, edges.annotator_ptr, edges.by_annotator, edges.bag, *edges.bags, logs, np.log(params.omega),
            edges.item, of_item, out,
        ),
    )  # fmt: skip
    return out


def softmax(logs: FloatArray) -> FloatArray:
    """Rows of probabilities."""
    shares = np.exp(logs - logs.max(axis=1, keepdims=True))
    return np.asarray(shares / shares.sum(axis=1, keepdims=True))


# Drawing from it ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Drawn:
    """A table drawn from the model, and what it was drawn from."""

    annotations: Annotations
    item_cluster: IntArray  # (I,)
    annotator_cluster: IntArray  # (A,)
    params: Params


def draw(
    n_items: int,
    n_annotators: int,
    n_classes: int,
    *,
    item_clusters: int,
    annotator_clusters: int,
    redundancy: int = 10,
    concentration: float = 1.0,
    params: Params | None = None,
    seed: int = 0,
) -> Drawn:
    """Annotations from known clusters: `redundancy` annotators of each item, all different, at random.

    Θ_kl ~ Dirichlet(`concentration`), clusters of about equal size, unless `params` says otherwise.
    """
    if not 1 <= redundancy <= n_annotators:
        raise BadParameter(f"redundancy must lie from 1 to the {n_annotators} annotators, got {redundancy}.")
    rng = np.random.default_rng(seed)
    K, L = item_clusters, annotator_clusters
    if params is None:
        theta = rng.dirichlet(np.full(n_classes, concentration), (K, L)) + 1e-12
        params = Params(np.full(K, 1 / K), np.full(L, 1 / L), theta / theta.sum(axis=2, keepdims=True))
    of_item = rng.choice(K, n_items, p=params.psi)
    of_annotator = rng.choice(L, n_annotators, p=params.omega)
    item = np.repeat(np.arange(n_items), redundancy)
    if redundancy > n_annotators / 3:
        annotator = rng.permuted(np.tile(np.arange(n_annotators), (n_items, 1)), axis=1)[:, :redundancy].reshape(-1)
    else:  # draw, and draw again where an annotator came twice
        chosen = rng.integers(n_annotators, size=(n_items, redundancy))
        again = np.arange(n_items)
        while again.size:
            ordered = np.sort(chosen[again], axis=1)
            again = again[(np.diff(ordered, axis=1) == 0).any(axis=1)]
            chosen[again] = rng.integers(n_annotators, size=(again.size, redundancy))
        annotator = chosen.reshape(-1)
    upto = np.cumsum(params.theta, axis=2)
    uniform = rng.random(item.size)
    label = np.zeros(item.size, np.int64)
    for p in range(n_classes - 1):
        label += uniform >= upto[of_item[item], of_annotator[annotator], p]
    table = Annotations.from_arrays(
        item, annotator, label, classes=n_classes, items=np.arange(n_items), annotators=np.arange(n_annotators)
    )
    return Drawn(table, of_item, of_annotator, params)
