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
pair are one *edge* of the graph between items and annotators; they make up its *bag*. Edges with the same bag share a
factor F[k, l] = Π_{labels p of the bag} Θ[k, l, p]^weight, held up to a constant: F / max F, and log max F beside it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

import numpy as np
from scipy.sparse import csr_array, eye_array, vstack

from dissensus.common.arrays import group_starts, pair_starts
from dissensus.common.types import FloatArray, IntArray
from dissensus.compute.engines.local import Threads, balanced, even
from dissensus.compute.kernels import clustering as kernels
from dissensus.compute.rows import expand_rows
from dissensus.models import params
from dissensus.table.annotations import Annotations

S = TypeVar("S")
T = TypeVar("T")

EDGES_PER_PART = 20_000  # the parts, not the threads, decide the order of sums
MAX_PARTS = 32
MAX_CELLS = 2**24  # numbers in the factors of all bags; where there would be more, they are made when they are used
MIN_LOG_FACTOR = -200.0  # log F − log max F of one edge goes no lower: the product of a few cannot underflow


@dataclass(frozen=True)
class Params(params.Params):
    """ψ (K,), Ω (L,), Θ (K, L, P)."""

    psi: FloatArray = params.em_parameter(params.SIMPLEX)
    omega: FloatArray = params.em_parameter(params.SIMPLEX)
    theta: FloatArray = params.em_parameter(params.SIMPLEX)


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


class Part(NamedTuple):
    """Nodes start … stop − 1, which one thread walks, and the bags of their edges."""

    number: int
    start: int
    stop: int
    bags: IntArray  # the different bags
    edge: IntArray  # the edges of these nodes, sorted by bag
    ptr: IntArray  # edges of bags[b]: edge[ptr[b] : ptr[b + 1]]


class Nodes:
    """One end of every edge: all items, or all annotators. `axes` are those of Θ as [label, other end, own]."""

    def __init__(
        self, of_edge: IntArray, of_row: IntArray, other: IntArray, bag: IntArray, n: int, axes: tuple[int, int, int]
    ):
        self.size, self.axes = n, axes
        self.ptr, self.row_ptr = group_starts(of_edge, n), group_starts(of_row, n)
        self.edge = _grouped(of_edge)  # edges of node n: edge[ptr[n] : ptr[n + 1]]
        self.row = _grouped(of_row)
        self.other = other[self.row]  # node at the other end of each row
        self.bag = np.empty(bag.size, np.int32)  # (E,) number among the bags of its part
        self.parts = []
        parts = max(1, min(MAX_PARTS, bag.size // EDGES_PER_PART))
        for number, (start, stop) in enumerate(balanced(self.ptr, parts)):
            edge = self.edge[self.ptr[start] : self.ptr[stop]]
            bags, self.bag[edge] = np.unique(bag[edge], return_inverse=True)
            ptr, by_bag = group_starts(self.bag[edge], bags.size), edge[_grouped(self.bag[edge])]
            self.parts.append(Part(number, start, stop, bags, by_bag, ptr))


def _grouped(codes: IntArray) -> IntArray:
    """Row numbers grouped by code, in order within each."""
    return np.argsort(codes, kind="stable").astype(np.int32)


class Edges:
    """The graph: one edge per (item, annotator) pair, sorted by item; `bag` says which labels it carries."""

    def __init__(self, table: Annotations):
        rows = expand_rows(table)
        self.n_classes = table.n_classes
        self.row_item = np.repeat(np.arange(table.n_items, dtype=np.int32), np.diff(rows.item_ptr))
        self.row_annotator, self.row_label = rows.annotator, rows.label.astype(np.int64)
        self.row_weight = np.ones(rows.label.size) if rows.weight is None else rows.weight
        first = np.flatnonzero(pair_starts(self.row_item, rows.annotator))
        self.item, self.annotator = self.row_item[first], rows.annotator[first]
        # bags (B, P), sparse: weights of the labels of each bag
        self.bag, self.bags = _bags(self, np.append(first, self.row_item.size))
        item, annotator = self.row_item, self.row_annotator
        self.items = Nodes(self.item, item, annotator, self.bag, table.n_items, (2, 1, 0))
        self.annotators = Nodes(self.annotator, annotator, item, self.bag, table.n_annotators, (2, 0, 1))

    @property
    def size(self) -> int:
        """How many edges there are."""
        return self.item.size


def _bags(edges: Edges, cuts: IntArray) -> tuple[IntArray, Any]:
    """Number the different bags; edge e has the rows cuts[e]:cuts[e+1]."""
    lengths, n_classes = np.diff(cuts), edges.n_classes
    if (lengths == 1).all() and (edges.row_weight == 1).all():  # the usual case: a bag is a label
        return edges.row_label.astype(np.int32), eye_array(n_classes, format="csr")
    bag = np.empty(lengths.size, np.int32)
    bags = [csr_array((0, n_classes))]
    for length in np.unique(lengths):
        chosen = np.flatnonzero(lengths == length)
        rows = cuts[chosen][:, None] + np.arange(length)
        contents = np.hstack([edges.row_label[rows], edges.row_weight[rows]])
        different, at = np.unique(contents, axis=0, return_inverse=True)
        bag[chosen] = at.reshape(-1) + sum(one.shape[0] for one in bags)
        label, weight = different[:, :length].astype(np.int64), different[:, length:]
        ptr = np.arange(len(different) + 1) * length
        bags.append(csr_array((weight.reshape(-1), label.reshape(-1), ptr), shape=(len(different), n_classes)))
    return bag, vstack(bags, format="csr")


def in_parts(pool: Threads, parts: Sequence[S], work: Callable[[S], T]) -> list[T]:
    """Call `work` with every part, in threads; return the results in order."""
    shared = pool.map(
        lambda _, first, last: [work(part) for part in parts[first:last]],
        even(len(parts), min(pool.threads, len(parts))),
    )
    return [result for some in shared for result in some]


class Factors:
    """F / max F of the bags of each part of some nodes, as those nodes read them: (bags, other end, own)."""

    def __init__(self, edges: Edges, nodes: Nodes, theta: FloatArray):
        self.nodes, self.bags, self.log_theta = nodes, edges.bags, np.log(theta).transpose(nodes.axes)
        cells = sum(part.bags.size for part in nodes.parts) * self.log_theta[0].size
        self._kept = [self._make(part) for part in nodes.parts] if cells <= MAX_CELLS else None

    def _make(self, part: Part) -> tuple[FloatArray, float]:
        P, other, own = self.log_theta.shape
        logs = (self.bags[part.bags] @ self.log_theta.reshape(P, -1)).reshape(-1, other, own)
        tops = logs.max(axis=(1, 2))
        return np.exp(np.maximum(logs - tops[:, None, None], MIN_LOG_FACTOR)), float(tops @ np.diff(part.ptr))

    def of(self, part: Part) -> tuple[FloatArray, float]:
        """(bags of the part, other, own), and Σ log max F over the part's edges."""
        return self._make(part) if self._kept is None else self._kept[part.number]

    def sweep(
        self,
        prior: FloatArray,
        incoming: FloatArray,
        outgoing: FloatArray,
        belief: FloatArray,
        pair: FloatArray,
        pool: Threads,
        damping: float = 0.0,
    ) -> tuple[float, float, float]:
        """One round of belief propagation at all nodes; see `kernels.sweep`."""
        nodes = self.nodes

        def walk(part: Part) -> Any:
            return kernels.sweep(
                part.start, part.stop, nodes.ptr, nodes.edge, nodes.bag, self.of(part)[0], prior, incoming, outgoing,
                belief, pair, damping,
            )  # fmt: skip

        norms, pairs, change = (sum(values) for values in zip(*in_parts(pool, nodes.parts, walk), strict=True))
        return norms, pairs, change


# Equations ------------------------------------------------------------------------------------------------------------


def log_prior(params: Params, priors: Priors) -> float:
    """Log density of the parameters, up to a constant."""
    return float(
        (priors.alpha - 1) * np.log(params.theta).sum()
        + (priors.gamma - 1) * np.log(params.psi).sum()
        + (priors.tau - 1) * np.log(params.omega).sum()
    )


def maximise(counts: Counts, priors: Priors) -> Params:
    """The M step (section 4.1.3): the parameters of highest expected log posterior."""
    return in_proportion(
        counts.items + (priors.gamma - 1), counts.annotators + (priors.tau - 1), counts.labels + (priors.alpha - 1)
    )


def in_proportion(psi: FloatArray, omega: FloatArray, theta: FloatArray) -> Params:
    """Make parameters of positive numbers (K,), (L,), (K, L, P): each distribution sums to 1."""
    return Params(psi / psi.sum(), omega / omega.sum(), theta / theta.sum(axis=2, keepdims=True))


def hard_counts(edges: Edges, of_item: IntArray, of_annotator: IntArray, K: int, L: int) -> Counts:
    """Counts of a hard clustering."""
    P = edges.n_classes
    cell = (of_item[edges.row_item] * L + of_annotator[edges.row_annotator]) * P + edges.row_label
    labels = np.bincount(cell, edges.row_weight, K * L * P).astype(np.float64).reshape(K, L, P)
    sizes = (np.bincount(cluster, minlength=n) for cluster, n in ((of_item, K), (of_annotator, L)))
    return Counts(labels, *(size.astype(np.float64) for size in sizes))


def pair_counts(
    edges: Edges, factors: Factors, to_item: FloatArray, to_annotator: FloatArray, pair: FloatArray, pool: Threads
) -> FloatArray:
    """(K, L, P) labels of edges with the beliefs b_e(k, l) = ν_e(k) F_e[k, l] μ_e(l) / pair_e; `factors` of items.

    `to_annotator` is ν (E, K), `to_item` μ (E, L). F is the same for all edges of a bag, so that Σ_e ν_e(k) μ_e(l) /
    pair_e over those is all that is needed of them.
    """
    share, (E, L) = to_annotator / pair[:, None], to_item.shape

    def counts(part: Part) -> FloatArray:
        beliefs, _ = factors.of(part)
        sums = [csr_array((to_item[part.edge, l], part.edge, part.ptr), shape=(part.bags.size, E)) for l in range(L)]
        beliefs = beliefs * np.stack([one @ share for one in sums], axis=1)  # (bags, L, K)
        return np.asarray(edges.bags[part.bags].T @ beliefs.reshape(part.bags.size, -1))

    total = sum(in_parts(pool, edges.items.parts, counts), np.zeros((edges.n_classes, 1)))
    return np.ascontiguousarray(total.reshape(edges.n_classes, L, -1).transpose(2, 1, 0))


def of_clusters(params: Params) -> FloatArray:
    """(K, P) the labels that a population of annotators gives to an item of each cluster: Σ_l Ω_l Θ_kl."""
    return np.asarray(np.einsum("l,klp->kp", params.omega, params.theta))


def logits(edges: Edges, nodes: Nodes, params: Params, cluster: IntArray) -> FloatArray:
    """Log probabilities of the clusters of each node, up to a constant; `cluster` holds those of the other ends.

    Of items (I, K) log ψ_k + Σ_j log Θ_{k, z_j, y_ij}, of annotators (A, L) log Ω_l + Σ_i log Θ_{w_i, l, y_ij}.
    """
    shares, log_theta = params.psi if nodes is edges.items else params.omega, np.log(params.theta).transpose(nodes.axes)
    P, other, own = log_theta.shape
    column = edges.row_label[nodes.row] * other + cluster[nodes.other]
    given = csr_array((edges.row_weight[nodes.row], column, nodes.row_ptr), shape=(nodes.size, P * other))
    return np.asarray(given @ log_theta.reshape(-1, own) + np.log(shares))
