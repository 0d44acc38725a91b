"""Tables drawn from the joint model of item and annotator clusters, of which the clusters are known."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dissensus.clustering.model import ClusterParams
from dissensus.common.types import IntArray
from dissensus.exceptions import BadParameter
from dissensus.table.annotations import Annotations


@dataclass(frozen=True, eq=False)
class Drawn:
    """A table drawn from the model, with its clusters and parameters."""

    annotations: Annotations
    item_cluster: IntArray  # (I,)
    annotator_cluster: IntArray  # (A,)
    params: ClusterParams


def draw(
    n_items: int,
    n_annotators: int,
    n_classes: int,
    *,
    item_clusters: int,
    annotator_clusters: int,
    redundancy: int = 10,
    concentration: float = 1.0,
    params: ClusterParams | None = None,
    seed: int = 0,
) -> Drawn:
    """Draw annotations from known clusters; each item gets `redundancy` different annotators at random.

    Θ_kl ~ Dirichlet(`concentration`), clusters of about equal size, unless `params` says otherwise.
    """
    if not 1 <= redundancy <= n_annotators:
        raise BadParameter(f"redundancy must lie from 1 to the {n_annotators} annotators, got {redundancy}.")
    rng = np.random.default_rng(seed)
    K, L = item_clusters, annotator_clusters
    if params is None:
        theta = rng.dirichlet(np.full(n_classes, concentration), (K, L)) + 1e-12
        params = ClusterParams(np.full(K, 1 / K), np.full(L, 1 / L), theta / theta.sum(axis=2, keepdims=True))
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
