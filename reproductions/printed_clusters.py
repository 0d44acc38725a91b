"""Clusters as Weerasooriya et al. 2021 print them: the M step of belief propagation, and Eq. 2.

`PrintedBP` takes the clusters of an item and of its annotator to be independent in the M step; on drawn tables it ends
where `pgm-bp` does. `PrintedProjector` asks whether one annotator cluster would have answered like a distribution.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.sparse import csr_array
from scipy.special import softmax

from dissensus.clustering import PGMBP, Projector
from dissensus.clustering.belief_propagation import BeliefMessages
from dissensus.clustering.model import ClusterCounts, ClusterParams, LabelGraph
from dissensus.clustering.snap import _check_columns
from dissensus.common.types import FloatArray


class PrintedMessages(BeliefMessages):
    """Messages whose counts are by the product of both ends' beliefs."""

    def expected_counts(self) -> ClusterCounts:
        """Return the expected counts, as printed."""
        return product_counts(self.edges, self.of_item, self.of_annotator)


class PrintedBP(PGMBP):
    """Items and annotators in clusters, by EM with belief propagation and the printed M step."""

    messages = PrintedMessages


class PrintedProjector(Projector):
    """Replace predicted distributions by the labels of the most similar clusters, by Eq. 2 as printed."""

    def predict_clusters(self, X: Any) -> FloatArray:
        """(n, K) P(cluster) of distributions (n, P)."""
        self._check_fitted()
        assert self.clustering is not None
        return projected(self.clustering.params_, _check_columns(X, self.n_features_in_), self._effective_size())


def product_counts(edges: LabelGraph, of_item: FloatArray, of_annotator: FloatArray) -> ClusterCounts:
    """Return the expected counts if the clusters of an item and its annotator are independent, as printed."""
    P, A, (I, K) = edges.n_classes, len(of_annotator), of_item.shape
    column = edges.row_annotator * np.int64(P) + edges.row_label
    given = csr_array((edges.row_weight, column, edges.items.row_ptr), shape=(I, A * P))
    by_annotator = (given.T @ of_item).reshape(A, P, K)
    labels = np.einsum("apk,al->klp", by_annotator, of_annotator, optimize=True)
    return ClusterCounts(labels, of_item.sum(axis=0), of_annotator.sum(axis=0))


def projected(params: ClusterParams, distributions: FloatArray, size: float) -> FloatArray:
    """(n, K) P(w = k) ∝ ψ_k Σ_l Ω_l exp(s Σ_p h_p log Θ_klp) of h (n, P): Eq. 2, read as s = `size` labels like h.

    So all labels are of one annotator cluster. What a population says of an item is a mixture over them: with a single
    annotator cluster with the labels of `population_labels`, this is P(w = k) ∝ ψ_k exp(s Σ_p h_p log Σ_l Ω_l Θ_klp).
    """
    logs = size * np.einsum("np,klp->nkl", distributions, np.log(params.theta), optimize=True)
    logs += np.log(params.psi)[:, None] + np.log(params.omega)
    return np.asarray(softmax(np.logaddexp.reduce(logs, axis=2), axis=1))
