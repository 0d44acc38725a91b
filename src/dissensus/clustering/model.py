"""Equations of the joint model of item and annotator clusters (Weerasooriya et al. 2021).

    Θ_kl ~ Dir(α)   ψ ~ Dir(γ)   Ω ~ Dir(τ)   w_i ~ Cat(ψ)   z_j ~ Cat(Ω)   y_ij | w_i = k, z_j = l ~ Cat(Θ_kl)

The log posterior of a hard clustering is (Eq. 3; the paper omits a logarithm, and names items m and annotators n):

    ℓ = (α−1) Σ_klp log Θ_klp + (γ−1) Σ_k log ψ_k + Σ_i log ψ_{w_i} + (τ−1) Σ_l log Ω_l + Σ_j log Ω_{z_j}
        + Σ_{(i,j)} log Θ_{w_i, z_j, y_ij}
      = Σ_klp (α−1+n_klp) log Θ_klp + Σ_k (γ−1+N_k) log ψ_k + Σ_l (τ−1+M_l) log Ω_l

where n_klp is the number of labels p that annotators in cluster l gave to items in cluster k, and N_k and M_l are the
sizes of the clusters.

| symbol | name | shape |
|---|---|---|
| ψ, Ω, Θ | psi, omega, theta | (K,), (L,), (K, L, P): K item clusters, L annotator clusters, P classes |
| w, z | of_item, of_annotator | soft (I, K), (A, L); hard (I,), (A,) |
| n, N, M | ClusterCounts | (K, L, P), (K,), (L,) |

The weight of a row multiplies its logarithm; a probabilistic row counts as one weighted row per class. Each pair of an
item and an annotator is one *edge* of a graph, and the labels of the pair are the *bag* of the edge. Edges with the
same bag share a factor F[k, l] = Π_{labels p of the bag} Θ[k, l, p]^weight, which is stored as F / max F and log max F.
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

EDGES_PER_RANGE = 20_000  # Ranges do not depend on threads, so neither does the order of sums.
MAX_RANGES = 32
MAX_CACHED_FACTORS = 2**24  # numbers in the factors of all bags; larger factors are not cached
MIN_LOG_FACTOR = -200.0  # lower limit of log F − log max F, so that products do not underflow


@dataclass(frozen=True)
class ClusterParams(params.Params):
    """The parameters ψ (K,), Ω (L,) and Θ (K, L, P)."""

    psi: FloatArray = params.em_parameter(params.SIMPLEX)
    omega: FloatArray = params.em_parameter(params.SIMPLEX)
    theta: FloatArray = params.em_parameter(params.SIMPLEX)


class ClusterPriors(NamedTuple):
    """Symmetric Dirichlet parameters of Θ, ψ and Ω, which exceed 1 so that no cluster's probability is zero."""

    alpha: float = 2.0
    gamma: float = 2.0
    tau: float = 2.0


class ClusterCounts(NamedTuple):
    """Soft or hard counts of labels (K, L, P), items (K,) and annotators (L,) in each cluster."""

    labels: FloatArray
    items: FloatArray
    annotators: FloatArray


class NodeRange(NamedTuple):
    """Nodes start … stop − 1, which one thread processes, and the bags of their edges."""

    number: int
    start: int
    stop: int
    bags: IntArray  # distinct bags
    edge: IntArray  # edges of these nodes, sorted by bag
    ptr: IntArray  # edges of bags[b] are edge[ptr[b] : ptr[b + 1]]


class GraphNodes:
    """All items or all annotators as nodes of the graph; `axes` orders the axes of Θ: [label, other end, own end]."""

    def __init__(
        self, of_edge: IntArray, of_row: IntArray, other: IntArray, bag: IntArray, n: int, axes: tuple[int, int, int]
    ):
        self.size, self.axes = n, axes
        self.ptr, self.row_ptr = group_offsets(of_edge, n), group_offsets(of_row, n)
        self.edge = _group_rows(of_edge)  # Edges of node n are edge[ptr[n] : ptr[n + 1]].
        self.row = _group_rows(of_row)
        self.other = other[self.row]  # Node at the other end of each row.
        self.bag = np.empty(bag.size, np.int32)  # (E,) index among the bags of its range
        self.parts = []
        parts = max(1, min(MAX_RANGES, bag.size // EDGES_PER_RANGE))
        for number, (start, stop) in enumerate(balanced_ranges(self.ptr, parts)):
            edge = self.edge[self.ptr[start] : self.ptr[stop]]
            bags, self.bag[edge] = np.unique(bag[edge], return_inverse=True)
            ptr, by_bag = group_offsets(self.bag[edge], bags.size), edge[_group_rows(self.bag[edge])]
            self.parts.append(NodeRange(number, start, stop, bags, by_bag, ptr))


def _group_rows(codes: IntArray) -> IntArray:
    """Return row numbers grouped by code, in ascending order within each group."""
    return np.argsort(codes, kind="stable").astype(np.int32)


class LabelGraph:
    """The graph of items and annotators: one edge per pair, sorted by item; `bag` is its index in `bags`."""

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
    """Return the index of each edge's bag, and the distinct bags; edge e has the rows cuts[e]:cuts[e+1]."""
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
    """Return the results of `work` for all ranges in their order, computed in threads."""
    shared = pool.map(
        lambda _, first, last: [work(part) for part in parts[first:last]],
        even_ranges(len(parts), min(pool.threads, len(parts))),
    )
    return [result for some in shared for result in some]


class EdgeFactors:
    """F / max F of the bags of each range of nodes, with axes (bags, other end, own end)."""

    def __init__(self, edges: LabelGraph, nodes: GraphNodes, theta: FloatArray):
        self.nodes, self.bags, self.log_theta = nodes, edges.bags, np.log(theta).transpose(nodes.axes)
        cells = sum(part.bags.size for part in nodes.parts) * self.log_theta[0].size
        self._kept = [self._compute_factors(part) for part in nodes.parts] if cells <= MAX_CACHED_FACTORS else None

    def _compute_factors(self, part: NodeRange) -> tuple[FloatArray, float]:
        P, other, own = self.log_theta.shape
        logs = (self.bags[part.bags] @ self.log_theta.reshape(P, -1)).reshape(-1, other, own)
        tops = logs.max(axis=(1, 2))
        return np.exp(np.maximum(logs - tops[:, None, None], MIN_LOG_FACTOR)), float(tops @ np.diff(part.ptr))

    def range_factors(self, part: NodeRange) -> tuple[FloatArray, float]:
        """Return F / max F (bags of the range, other end, own end), and Σ log max F over the edges of the range."""
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
        """Run one round of belief propagation over all nodes; see `kernels.sweep`."""
        nodes = self.nodes

        def sweep_range(part: NodeRange) -> Any:
            return kernels.propagate_beliefs(
                part.start, part.stop, nodes.ptr, nodes.edge, nodes.bag, self.range_factors(part)[0], prior, incoming,
                outgoing, belief, pair, damping,
            )  # fmt: skip

        norms, pairs, change = (
            sum(values) for values in zip(*map_node_ranges(pool, nodes.parts, sweep_range), strict=True)
        )
        return norms, pairs, change


# Equations ------------------------------------------------------------------------------------------------------------


def log_prior(params: ClusterParams, priors: ClusterPriors) -> float:
    """Return the log prior density of the parameters, up to a constant."""
    return float(
        (priors.alpha - 1) * np.log(params.theta).sum()
        + (priors.gamma - 1) * np.log(params.psi).sum()
        + (priors.tau - 1) * np.log(params.omega).sum()
    )


def m_step(counts: ClusterCounts, priors: ClusterPriors) -> ClusterParams:
    """Return the parameters with the highest expected log posterior (section 4.1.3)."""
    return normalise_params(
        counts.items + (priors.gamma - 1), counts.annotators + (priors.tau - 1), counts.labels + (priors.alpha - 1)
    )


def normalise_params(psi: FloatArray, omega: FloatArray, theta: FloatArray) -> ClusterParams:
    """Return the parameters with each distribution normalised, from positive `psi`, `omega` and `theta`."""
    return ClusterParams(psi / psi.sum(), omega / omega.sum(), theta / theta.sum(axis=2, keepdims=True))


def hard_counts(edges: LabelGraph, of_item: IntArray, of_annotator: IntArray, K: int, L: int) -> ClusterCounts:
    """Return the counts of labels, items and annotators of a hard clustering."""
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
    """Return the expected label counts (K, L, P) under the beliefs b_e(k, l) = ν_e(k) F_e[k, l] μ_e(l) / pair_e.

    `to_annotator` is ν (E, K), `to_item` is μ (E, L), and `factors` are those of the items. F is the same for all edges
    of a bag, so only their sum of ν_e(k) μ_e(l) / pair_e is needed.
    """
    share, (E, L) = to_annotator / pair[:, None], to_item.shape

    def counts(part: NodeRange) -> FloatArray:
        beliefs, _ = factors.range_factors(part)
        sums = [csr_array((to_item[part.edge, l], part.edge, part.ptr), shape=(part.bags.size, E)) for l in range(L)]
        beliefs = beliefs * np.stack([one @ share for one in sums], axis=1)  # (bags, L, K)
        return np.asarray(edges.bags[part.bags].T @ beliefs.reshape(part.bags.size, -1))

    total = sum(map_node_ranges(pool, edges.items.parts, counts), np.zeros((edges.n_classes, 1)))
    return np.ascontiguousarray(total.reshape(edges.n_classes, L, -1).transpose(2, 1, 0))


def population_labels(params: ClusterParams) -> FloatArray:
    """Return Σ_l Ω_l Θ_kl (K, P), the label distribution of a population of annotators for each item cluster."""
    return np.asarray(np.einsum("l,klp->kp", params.omega, params.theta))


def cluster_logits(edges: LabelGraph, nodes: GraphNodes, params: ClusterParams, cluster: IntArray) -> FloatArray:
    """Return the log probability of each cluster of each node, up to a constant.

    `cluster` holds the clusters of the nodes at the other ends of its edges.

    The result is log ψ_k + Σ_j log Θ_{k, z_j, y_ij} (I, K) for items, and log Ω_l + Σ_i log Θ_{w_i, l, y_ij} (A, L) for
    annotators.
    """
    shares, log_theta = params.psi if nodes is edges.items else params.omega, np.log(params.theta).transpose(nodes.axes)
    P, other, own = log_theta.shape
    column = edges.row_label[nodes.row] * other + cluster[nodes.other]
    given = csr_array((edges.row_weight[nodes.row], column, nodes.row_ptr), shape=(nodes.size, P * other))
    return np.asarray(given @ log_theta.reshape(-1, own) + np.log(shares))
