"""Measure annotators' errors: false positives, false negatives, overused classes, and clusters of similar errors.

    n_j[k, l] = Σ_i q_i(k) [j's label of i is l]                 labels of annotator j by true class and given label
        false positive rate   Σ_{k≠c} n_j[k, c] / Σ_{k≠c,l} n_j[k, l]        of class c
    false negative rate   Σ_{l≠c} n_j[c, l] / Σ_l n_j[c, l]
    overuse of c          (Σ_k n_j[k, c] − Σ_l n_j[c, l]) / Σ_kl n_j[k, l]

*Clusters of errors* (Platanios et al. 2020, section 4.4): v_j[i] is 1 if annotator j errs on item i and 0 otherwise.
The paper uses agglomerative clustering with the L1 distance of these vectors. Its annotators labelled every item of the
data sets ("it is unclear how to properly compute" the distance otherwise). Here, the distance is the mean of |v_j −
v_j'| over the items that both annotators labelled; if all annotators label all items, it is proportional to the
distance of the paper. If two of the annotators share too few items, the distance between confusion rates is used for
all annotators:

    d_jj' = ½ Σ_k π_k Σ_l |Θ_j[k, l] − Θ_j'[k, l]|        Θ_j = n_j plus one label of the crowd, rows normalised

π are the shares of the classes. Complete linkage is used, because average linkage often makes clusters of one
annotator.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from dissensus.common.parameters import check_argument
from dissensus.common.types import BoolArray, FloatArray, IntArray
from dissensus.models.confusion import expected_label_counts
from dissensus.questions.exceptions import PosteriorShapeMismatch
from dissensus.table.annotations import Annotations

MIN_LABELS_PER_ANNOTATOR = 10  # minimum number of labels of an annotator for rates and a cluster
MIN_SHARED_ITEMS = 10  # minimum number of common items of two annotators for a comparison item by item
MAX_CLUSTERED_ANNOTATORS = 400  # maximum number of annotators that are clustered; they are those with the most labels
DEFAULT_N_CLUSTERS = 4  # number of clusters in Figure 2, Platanios et al. 2020


@dataclass(frozen=True, eq=False)
class AnnotatorErrors:
    """Errors of the annotators, measured with a posterior; NaN or −1 for annotators with too few labels."""

    n_labels: IntArray  # (A,)
    error_rate: FloatArray  # (A,) share of wrong labels
    false_positive: FloatArray  # (A, K)
    false_negative: FloatArray  # (A, K)
    overused_class: IntArray  # (A,) code of the class with the largest overuse, or −1
    cluster: IntArray  # (A,) number of the cluster; 0 is the largest cluster, −1 means no cluster
    distance_basis: Literal["items", "confusions"] | None  # None without clusters


def annotator_errors(
    table: Annotations,
    posterior: FloatArray,
    *,
    clusters: int = DEFAULT_N_CLUSTERS,
    least: int = MIN_LABELS_PER_ANNOTATOR,
) -> AnnotatorErrors:
    """Measure annotators' errors with a posterior (I, K), in which rows of zeros mark unknown items.

    `clusters` is the maximum number of clusters. Annotators with fewer than `least` labels have no rates and no
    cluster.

    >>> from dissensus.table.simulate import simulate
    >>> crowd = simulate(80, 8, 2, redundancy=5, seed=1)
    >>> annotator_errors(crowd.annotations, np.eye(2)[crowd.truth]).error_rate.shape
    (8,)
    """
    posterior = np.asarray(posterior, np.float64)
    if posterior.shape != (table.n_items, table.n_classes):
        raise PosteriorShapeMismatch(n_items=table.n_items, n_classes=table.n_classes, shape=posterior.shape)
    check_argument("clusters", clusters, int, low=1)
    check_argument("least", least, int, low=1)
    is_known = posterior.sum(axis=1) > 0
    table = table if is_known.all() else table.select(rows=is_known[table.item])
    labels = np.diff(table.annotator_ptr)
    enough = labels >= least
    counts = expected_label_counts(table, posterior)  # (A, K, K) [annotator, true, given]
    diagonal = np.diagonal(counts, axis1=1, axis2=2)
    true, used, total = counts.sum(axis=2), counts.sum(axis=1), counts.sum(axis=(1, 2))[:, None]
    excess = used - true
    cluster, by = np.full(labels.size, -1), None
    if enough.any():
        most = np.argsort(np.where(enough, -labels, 1), kind="stable")[: min(enough.sum(), MAX_CLUSTERED_ANNOTATORS)]
        annotators = np.sort(most)
        cluster[annotators], by = _cluster_annotators(table, posterior, annotators, counts, clusters)

    def safe_ratio(part: FloatArray, total: FloatArray) -> FloatArray:
        with np.errstate(invalid="ignore", divide="ignore"):
            return np.where(enough[:, None] & (total > 1e-9), np.clip(part / total, 0, 1), np.nan)

    return AnnotatorErrors(
        labels,
        error_rate=safe_ratio(total - diagonal.sum(axis=1, keepdims=True), total)[:, 0],
        false_positive=safe_ratio(used - diagonal, total - true),
        false_negative=safe_ratio(true - diagonal, true),
        overused_class=np.where(
            enough & (excess.max(axis=1, initial=0) > 0.5), excess.argmax(axis=1), -1
        ),  # the overuse exceeds half a label
        cluster=cluster,
        distance_basis=by,
    )


def error_distance(table: Annotations, truth: IntArray) -> tuple[FloatArray, IntArray]:
    """Return, for each pair of annotators, the share of their common items on which exactly one errs, and their number.

    Both results have the shape (A, A). The share is NaN without common items. `truth` (I,) holds class codes, −1 where
    unknown. An annotator with several labels of an item errs if more than half of them are wrong.
    """
    from scipy.sparse import csr_array

    known = truth[table.item] >= 0
    wrong = (table.label != truth[table.item])[known].astype(np.float64)
    at, shape = (table.annotator[known], table.item[known]), (table.n_annotators, table.n_items)
    given = csr_array((np.ones(wrong.size), at), shape)  # labels of the same item and annotator are summed
    errs = csr_array((wrong, at), shape)
    given.sum_duplicates()
    errs.sum_duplicates()  # both matrices then have the same pairs in the same order
    errs.data = (errs.data > given.data / 2).astype(np.float64)
    given.data[:] = 1
    shared = (given @ given.T).toarray()
    alone = (errs @ given.T).toarray()  # number of errors of the first annotator on common items
    different = alone + alone.T - 2 * (errs @ errs.T).toarray()  # |v − v'| = v + v' − 2 v v' if v and v' are 0 or 1
    with np.errstate(invalid="ignore"):
        return np.where(shared > 0, different / shared, np.nan), shared.astype(np.int64)


def confusion_distance(counts: FloatArray, total: FloatArray) -> FloatArray:
    """Return the distances d_jj' (n, n), given counts (n, K, K) [annotator, true, given] and their total (K, K)."""
    from scipy.spatial.distance import pdist, squareform

    theta = counts + total / np.maximum(total.sum(axis=1, keepdims=True), 1e-300)
    theta /= np.maximum(theta.sum(axis=2, keepdims=True), 1e-300)
    share = total.sum(axis=1) / total.sum()
    return np.asarray(squareform(pdist((theta * share[:, None] / 2).reshape(len(counts), -1), "cityblock")))


def _cluster_annotators(
    table: Annotations, posterior: FloatArray, annotators: IntArray, counts: FloatArray, n: int
) -> tuple[IntArray, Literal["items", "confusions"]]:
    """Return the cluster numbers of `annotators` (0 is the largest cluster) and the basis of the distances."""
    from scipy.cluster.hierarchy import fcluster, linkage
    from scipy.spatial.distance import squareform

    chosen: BoolArray = np.zeros(table.n_annotators, np.bool_)
    chosen[annotators] = True
    truth = np.where(posterior.sum(axis=1) > 0, posterior.argmax(axis=1), -1)
    distance, shared = error_distance(table.select(annotators=chosen), truth)
    by: Literal["items", "confusions"] = "items"
    np.fill_diagonal(distance, 0)
    close = squareform(distance, checks=False)
    if (squareform(shared, checks=False) < MIN_SHARED_ITEMS).any():
        by = "confusions"
        close = squareform(confusion_distance(counts[annotators], counts.sum(axis=0)), checks=False)
    if annotators.size == 1:
        return np.zeros(1, np.int64), by
    cluster = fcluster(linkage(close, "complete"), n, "maxclust")
    order = np.argsort(-np.bincount(cluster)[1:], kind="stable")
    return np.argsort(order)[cluster - 1], by
