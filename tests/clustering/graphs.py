"""Small tables and parameters that the clustering tests share, and what is true of them by brute force."""

from itertools import product

import numpy as np
from hypothesis import strategies as st

from benchmarks.clustering.drawn import draw
from dissensus import Annotations
from dissensus.clustering.model import ClusterParams
from tables import KINDS


def some_params(K: int, L: int, P: int, seed: int, concentration: float = 1.0) -> ClusterParams:
    rng = np.random.default_rng(seed)
    theta = rng.dirichlet(np.full(P, concentration), (K, L)) + 1e-3
    return ClusterParams(
        rng.dirichlet(np.full(K, 2.0)), rng.dirichlet(np.full(L, 2.0)), theta / theta.sum(axis=2, keepdims=True)
    )


def clustered(kind: str = "hard", seed: int = 0, redundancy: int = 12) -> Annotations:
    """120 items in 3 clusters by 30 annotators in 2, 4 classes, with weights or probabilities that leave it so."""
    drawn = draw(
        120, 30, 4, item_clusters=3, annotator_clusters=2, redundancy=redundancy, concentration=0.2, seed=seed
    ).annotations
    rng, extra = np.random.default_rng(seed), {}
    if "weight" in KINDS[kind]:
        extra["weight"] = rng.uniform(0.5, 1.5, len(drawn))
    if "proba" in KINDS[kind]:
        extra["proba"] = 0.7 * np.eye(4)[drawn.label] + 0.3 * rng.dirichlet(np.ones(4), len(drawn))
    label = None if "proba" in extra else drawn.label
    return Annotations.from_arrays(drawn.item, drawn.annotator, label, classes=4, **extra)


@st.composite
def trees(draw, max_nodes: int = 8) -> Annotations:
    """A table whose items and annotators, joined where one labelled the other, form a tree."""
    n = draw(st.integers(2, max_nodes))
    is_item, edges = [True], []
    for node in range(1, n):
        parent = draw(st.integers(0, node - 1))
        is_item.append(not is_item[parent])
        edges.append((node, parent) if is_item[node] else (parent, node))
    P = draw(st.integers(1, 4))
    item, annotator, label, weight = [], [], [], []
    for i, j in edges:
        for _ in range(draw(st.integers(1, 3))):
            item.append(i)
            annotator.append(j)
            label.append(draw(st.integers(0, P - 1)))
            weight.append(draw(st.sampled_from([0.0, 0.5, 1.0, 2.0])))
    extra = {"weight": weight} if draw(st.booleans()) else {}
    nodes = np.arange(n)
    return Annotations.from_arrays(
        item, annotator, label, classes=P,
        items=nodes[np.array(is_item)], annotators=nodes[~np.array(is_item)], **extra,
    )  # fmt: skip


def log_joint(table: Annotations, params: ClusterParams, w, z) -> float:
    """log P(labels, w, z | parameters), row by row."""
    total = np.log(params.psi[list(w)]).sum() + np.log(params.omega[list(z)]).sum()
    for row in range(len(table)):
        shares = np.eye(table.n_classes)[table.label[row]] if table.proba is None else table.proba[row]
        weight = 1.0 if table.weight is None else table.weight[row]
        total += weight * (shares @ np.log(params.theta[w[table.item[row]], z[table.annotator[row]]]))
    return float(total)


def brute_force(table: Annotations, params: ClusterParams):
    """Log evidence, marginals of items and annotators, expected counts (K, L, P): by summing over all clusterings."""
    K, L, P = params.theta.shape
    states = list(product(product(range(K), repeat=table.n_items), product(range(L), repeat=table.n_annotators)))
    logs = np.array([log_joint(table, params, w, z) for w, z in states])
    evidence = np.logaddexp.reduce(logs)
    of_item, of_annotator = np.zeros((table.n_items, K)), np.zeros((table.n_annotators, L))
    counts = np.zeros((K, L, P))
    for (w, z), chance in zip(states, np.exp(logs - evidence), strict=True):
        of_item[np.arange(table.n_items), list(w)] += chance
        of_annotator[np.arange(table.n_annotators), list(z)] += chance
        for row in range(len(table)):
            shares = np.eye(P)[table.label[row]] if table.proba is None else table.proba[row]
            weight = 1.0 if table.weight is None else table.weight[row]
            counts[w[table.item[row]], z[table.annotator[row]]] += chance * weight * shares
    return evidence, of_item, of_annotator, counts
