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

The weight of a row multiplies its logarithm; a probabilistic row counts as one weighted row per class. All labels of
one pair are one *edge* of the graph between items and annotators and make up its *bag*. Edges with the same bag share a
factor F[k, l] = Π_{labels p of the bag} Θ[k, l, p]^weight, stored as F / max F and log max F.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

import numpy as np
from scipy.sparse import csr_array, eye_array, vstack

from dissensus.common.arrays import group_offsets, is_first_of_pair
from dissensus.common.types import FloatArray, IntArray
from dissensus.compute.engines.local import Threads, balanced_ranges, even_ranges
from dissensus.compute.kernels import clustering as kernels
from dissensus.compute.rows import expand_rows
from dissensus.models import params
from dissensus.table.annotations import Annotations

S = TypeVar("S")
T = TypeVar("T")

EDGES_PER_RANGE = 20_000  # sums are in the order of parts, for any number of threads
MAX_RANGES = 32
MAX_CACHED_FACTORS = 2**24  # numbers in the factors of all bags; more are computed on each use
MIN_LOG_FACTOR = -200.0  # lower limit of log F − log max F, so that products do not underflow


@dataclass(frozen=True)
class ClusterParams(params.Params):
    """ψ (K,), Ω (L,), Θ (K, L, P)."""

    psi: FloatArray = params.em_parameter(params.SIMPLEX)
    omega: FloatArray = params.em_parameter(params.SIMPLEX)
    theta: FloatArray = params.em_parameter(params.SIMPLEX)


class Priors(NamedTuple):
    """Symmetric Dirichlet parameters of Θ, ψ and Ω; above 1, so that no cluster's probability is zero."""

    alpha: float = 2.0
    gamma: float = 2.0
    tau: float = 2.0


class ClusterCounts(NamedTuple):
    """Counts of labels (K, L, P), items (K,) and annotators (L,) of the clusters; soft or hard."""

    labels: FloatArray
    items: FloatArray
    annotators: FloatArray


class NodeRange(NamedTuple):
    """Nodes start … stop − 1, which one thread processes, and the bags of their edges."""

    number: int
    start: int
    stop: int
    bags: IntArray  # different bags
    edge: IntArray  # edges of these nodes, sorted by bag
    ptr: IntArray  # edges of bags[b] are edge[ptr[b] : ptr[b + 1]]


class GraphNodes:
    """One end of every edge: all items, or all annotators. `axes` are those of Θ as [label, other end, own]."""

    def __init__(
        self, of_edge: IntArray, of_row: IntArray, other: IntArray, bag: IntArray, n: int, axes: tuple[int, int, int]
    ):
        self.size, self.axes = n, axes
        self.ptr, self.row_ptr = group_offsets(of_edge, n), group_offsets(of_row, n)
        self.edge = _group_rows(of_edge)  # Edges of node n are edge[ptr[n] : ptr[n + 1]].
        self.row = _group_rows(of_row)
        self.other = other[self.row]  # Node at the other end of each row.
        self.bag = np.empty(bag.size, np.int32)  # (E,) index among the bags of its part
        self.parts = []
        parts = max(1, min(MAX_RANGES, bag.size // EDGES_PER_RANGE))
        for number, (start, stop) in enumerate(balanced_ranges(self.ptr, parts)):
            edge = self.edge[self.ptr[start] : self.ptr[stop]]
            bags, self.bag[edge] = np.unique(bag[edge], return_inverse=True)
            ptr, by_bag = group_offsets(self.bag[edge], bags.size), edge[_group_rows(self.bag[edge])]
            self.parts.append(NodeRange(number, start, stop, bags, by_bag, ptr))


def _group_rows(codes: IntArray) -> IntArray:
    """Return row numbers grouped by code, in order within each."""
    return np.argsort(codes, kind="stable").astype(np.int32)


class LabelGraph:
    """The graph: one edge per (item, annotator) pair, sorted by item; `bag` is the index of its labels in `bags`."""

    def __init__(self, table: Annotations):
        rows = expand_rows(table)
        self.n_classes = table.n_classes
        self.row_item = np.repeat(np.arange(table.n_items, dtype=np.int32), np.diff(rows.item_ptr))
        self.row_annotator, self.row_label = rows.annotator, rows.label.astype(np.int64)
        self.row_weight = np.ones(rows.label.size) if rows.weight is None else rows.weight
        first = np.flatnonzero(is_first_of_pair(self.row_item, rows.annotator))
        self.item, self.annotator = self.row_item[first], rows.annotator[first]
        # Bags are sparse (B, P): weights of the labels of each bag.
        self.bag, self.bags = _find_bags(self, np.append(first, self.row_item.size))
        item, annotator = self.row_item, self.row_annotator
        self.items = GraphNodes(self.item, item, annotator, self.bag, table.n_items, (2, 1, 0))
        self.annotators = GraphNodes(self.annotator, annotator, item, self.bag, table.n_annotators, (2, 0, 1))

    @property
    def size(self) -> int:
        """Return the number of edges."""
        return self.item.size


def _find_bags(edges: LabelGraph, cuts: IntArray) -> tuple[IntArray, Any]:
    """Return the index of each edge's bag, and the different bags; edge e has the rows cuts[e]:cuts[e+1]."""
    lengths, n_classes = np.diff(cuts), edges.n_classes
    if (lengths == 1).all() and (edges.row_weight == 1).all():  # Usually every bag holds a single label.
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


def map_node_ranges(pool: Threads, parts: Sequence[S], work: Callable[[S], T]) -> list[T]:
    """Return the results of `work` for every part in order, computed in threads."""
    shared = pool.map(
        lambda _, first, last: [work(part) for part in parts[first:last]],
        even_ranges(len(parts), min(pool.threads, len(parts))),
    )
    return [result for some in shared for result in some]


class EdgeFactors:
    """F / max F of the bags of each part of nodes, with axes (bags, other end, own)."""

    def __init__(self, edges: LabelGraph, nodes: GraphNodes, theta: FloatArray):
        self.nodes, self.bags, self.log_theta = nodes, edges.bags, np.log(theta).transpose(nodes.axes)
        cells = sum(part.bags.size for part in nodes.parts) * self.log_theta[0].size
        self._kept = [self._compute_factors(part) for part in nodes.parts] if cells <= MAX_CACHED_FACTORS else None

    def _compute_factors(self, part: NodeRange) -> tuple[FloatArray, float]:
        P, other, own = self.log_theta.shape
        logs = (self.bags[part.bags] @ self.log_theta.reshape(P, -1)).reshape(-1, other, own)
        tops = logs.max(axis=(1, 2))
        return np.exp(np.maximum(logs - tops[:, None, None], MIN_LOG_FACTOR)), float(tops @ np.diff(part.ptr))

    def in_range(self, part: NodeRange) -> tuple[FloatArray, float]:
        """Return F / max F (bags of the part, other, own), and Σ log max F over the part's edges."""
        return self._compute_factors(part) if self._kept is None else self._kept[part.number]

    def run_round(
        self,
        prior: FloatArray,
        incoming: FloatArray,
        outgoing: FloatArray,
        belief: FloatArray,
        pair: FloatArray,
        pool: Threads,
        damping: float = 0.0,
    ) -> tuple[float, float, float]:
        """Run one round of belief propagation at all nodes; see `kernels.sweep`."""
        nodes = self.nodes

        def sweep_part(part: NodeRange) -> Any:
            return kernels.propagate_beliefs(
                part.start, part.stop, nodes.ptr, nodes.edge, nodes.bag, self.in_range(part)[0], prior, incoming,
                outgoing, belief, pair, damping,
            )  # fmt: skip

        norms, pairs, change = (
            sum(values) for values in zip(*map_node_ranges(pool, nodes.parts, sweep_part), strict=True)
        )
        return norms, pairs, change


# Equations ------------------------------------------------------------------------------------------------------------


def log_prior(params: ClusterParams, priors: Priors) -> float:
    """Return the log density of the parameters, up to a constant."""
    return float(
        (priors.alpha - 1) * np.log(params.theta).sum()
        + (priors.gamma - 1) * np.log(params.psi).sum()
        + (priors.tau - 1) * np.log(params.omega).sum()
    )


def m_step(counts: ClusterCounts, priors: Priors) -> ClusterParams:
    """Return the parameters of highest expected log posterior: the M step (section 4.1.3)."""
    return normalise_params(
        counts.items + (priors.gamma - 1), counts.annotators + (priors.tau - 1), counts.labels + (priors.alpha - 1)
    )


def normalise_params(psi: FloatArray, omega: FloatArray, theta: FloatArray) -> ClusterParams:
    """Return parameters from positive numbers (K,), (L,), (K, L, P), each distribution normalised."""
    return ClusterParams(psi / psi.sum(), omega / omega.sum(), theta / theta.sum(axis=2, keepdims=True))


def hard_counts(edges: LabelGraph, of_item: IntArray, of_annotator: IntArray, K: int, L: int) -> ClusterCounts:
    """Return the counts of a hard clustering."""
    P = edges.n_classes
    cell = (of_item[edges.row_item] * L + of_annotator[edges.row_annotator]) * P + edges.row_label
    labels = np.bincount(cell, edges.row_weight, K * L * P).astype(np.float64).reshape(K, L, P)
    sizes = (np.bincount(cluster, minlength=n) for cluster, n in ((of_item, K), (of_annotator, L)))
    return ClusterCounts(labels, *(size.astype(np.float64) for size in sizes))


def expected_label_counts(
    edges: LabelGraph,
    factors: EdgeFactors,
    to_item: FloatArray,
    to_annotator: FloatArray,
    pair: FloatArray,
    pool: Threads,
) -> FloatArray:
    """Return (K, L, P) labels of edges with beliefs b_e(k, l) = ν_e(k) F_e[k, l] μ_e(l) / pair_e; `factors` of items.

    `to_annotator` is ν (E, K), `to_item` μ (E, L). F is the same for all edges of a bag, so only their sum of
    ν_e(k) μ_e(l) / pair_e is needed.
    """
    share, (E, L) = to_annotator / pair[:, None], to_item.shape

    def counts(part: NodeRange) -> FloatArray:
        beliefs, _ = factors.in_range(part)
        sums = [csr_array((to_item[part.edge, l], part.edge, part.ptr), shape=(part.bags.size, E)) for l in range(L)]
        beliefs = beliefs * np.stack([one @ share for one in sums], axis=1)  # (bags, L, K)
        return np.asarray(edges.bags[part.bags].T @ beliefs.reshape(part.bags.size, -1))

    total = sum(map_node_ranges(pool, edges.items.parts, counts), np.zeros((edges.n_classes, 1)))
    return np.ascontiguousarray(total.reshape(edges.n_classes, L, -1).transpose(2, 1, 0))


def population_labels(params: ClusterParams) -> FloatArray:
    """Return (K, P) Σ_l Ω_l Θ_kl: the labels that a population of annotators gives to items of each cluster."""
    return np.asarray(np.einsum("l,klp->kp", params.omega, params.theta))


def cluster_logits(edges: LabelGraph, nodes: GraphNodes, params: ClusterParams, cluster: IntArray) -> FloatArray:
    """Return log probabilities of the clusters of each node, up to a constant, given the `cluster` of the other ends.

    For items (I, K) log ψ_k + Σ_j log Θ_{k, z_j, y_ij}, for annotators (A, L) log Ω_l + Σ_i log Θ_{w_i, l, y_ij}.
    """
    shares, log_theta = params.psi if nodes is edges.items else params.omega, np.log(params.theta).transpose(nodes.axes)
    P, other, own = log_theta.shape
    column = edges.row_label[nodes.row] * other + cluster[nodes.other]
    given = csr_array((edges.row_weight[nodes.row], column, nodes.row_ptr), shape=(nodes.size, P * other))
    return np.asarray(given @ log_theta.reshape(-1, own) + np.log(shares))
