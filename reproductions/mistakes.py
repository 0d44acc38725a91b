"""How annotators err: false positives and negatives, over-used classes, and clusters of annotators who err alike.

    n_j[k, l] = Σ_i q_i(k) [j says l of i]                       labels of annotator j by class and by what was said
    false positive rate   Σ_{k≠c} n_j[k, c] / Σ_{k≠c,l} n_j[k, l]        of the class c
    false negative rate   Σ_{l≠c} n_j[c, l] / Σ_l n_j[c, l]
    over-use of c         (Σ_k n_j[k, c] − Σ_l n_j[c, l]) / Σ_kl n_j[k, l]

*Clusters of mistakes* (Platanios et al. 2020, section 4.4): v_j[i] = 1 where j errs on item i, agglomerative clustering
by the L1 distance of these vectors. The paper has sets where everyone labelled everything ("it is unclear how to
properly compute" it elsewhere). Here the distance is the mean of |v_j − v_j'| over the items that both labelled, the
same but for a factor there; and where two annotators share too few items, that of all their rates of confusion instead:

    d_jj' = ½ Σ_k π_k Σ_l |Θ_j[k, l] − Θ_j'[k, l]|        Θ_j = n_j, drawn to everyone's by one label, rows normalised

π are the shares of the classes. Linkage is complete: average linkage makes clusters of one of unusual mistakes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from dissensus.common.parameters import check_argument
from dissensus.common.types import BoolArray, FloatArray, IntArray
from dissensus.exceptions import DataError
from dissensus.models.confusion import soft_counts
from dissensus.table.annotations import Annotations

MIN_LABELS = 10  # from which an annotator has rates, and is in a cluster
MIN_SHARED_ITEMS = 10  # that two annotators must both have labelled, for their mistakes to be compared item by item
MAX_CLUSTERED = 400  # annotators, those with the most labels
CLUSTERS = 4  # as in Figure 2


@dataclass(frozen=True, eq=False)
class Mistakes:
    """What annotators get wrong, by a posterior. NaN and −1 where there are too few labels."""

    labels: IntArray  # (A,)
    error: FloatArray  # (A,) share of the labels that are wrong
    false_positive: FloatArray  # (A, K)
    false_negative: FloatArray  # (A, K)
    overused: IntArray  # (A,) class that is said too often by most; −1 where none is
    cluster: IntArray  # (A,) 0 is the largest
    by: Literal["items", "confusions"] | None  # what clusters are by; None where there are none


def mistakes(
    table: Annotations, posterior: FloatArray, *, clusters: int = CLUSTERS, least: int = MIN_LABELS
) -> Mistakes:
    """Measure how annotators err against a posterior (I, K); rows of zeros are items of which nothing is known.

    There are at most `clusters` clusters; an annotator is judged from `least` labels on.
    """
    posterior = np.asarray(posterior, np.float64)
    if posterior.shape != (table.n_items, table.n_classes):
        raise DataError(f"posterior must be {(table.n_items, table.n_classes)}, (I, K), got {posterior.shape}.")
    check_argument("clusters", clusters, int, low=1)
    check_argument("least", least, int, low=1)
    known = posterior.sum(axis=1) > 0
    table = table if known.all() else table.select(rows=known[table.item])
    labels = np.diff(table.annotator_ptr)
    enough = labels >= least
    counts = soft_counts(table, posterior)  # (A, K, K) [annotator, true, given]
    diagonal = np.diagonal(counts, axis1=1, axis2=2)
    true, said, total = counts.sum(axis=2), counts.sum(axis=1), counts.sum(axis=(1, 2))[:, None]
    over = said - true
    cluster, by = np.full(labels.size, -1), None
    if enough.any():
        busiest = np.argsort(np.where(enough, -labels, 1), kind="stable")[: min(enough.sum(), MAX_CLUSTERED)]
        who = np.sort(busiest)
        cluster[who], by = _clusters(table, posterior, who, counts, clusters)

    def share(part: FloatArray, of: FloatArray) -> FloatArray:
        with np.errstate(invalid="ignore", divide="ignore"):
            return np.where(enough[:, None] & (of > 1e-9), np.clip(part / of, 0, 1), np.nan)

    return Mistakes(
        labels,
        error=share(total - diagonal.sum(axis=1, keepdims=True), total)[:, 0],
        false_positive=share(said - diagonal, total - true),
        false_negative=share(true - diagonal, true),
        overused=np.where(enough & (over.max(axis=1, initial=0) > 0.5), over.argmax(axis=1), -1),  # half: no habit
        cluster=cluster,
        by=by,
    )


def mistake_distance(table: Annotations, truth: IntArray) -> tuple[FloatArray, IntArray]:
    """Count the items that two annotators share, and the share (A, A) of them on which one errs alone.

    Returns that share, NaN where nothing is shared, and the number (A, A) of shared items. `truth` (I,) are codes, −1
    unknown. Who labelled an item several times errs where more than half of it is wrong.
    """
    from scipy.sparse import csr_array

    seen = truth[table.item] >= 0
    wrong = (table.label != truth[table.item])[seen].astype(np.float64)
    at, shape = (table.annotator[seen], table.item[seen]), (table.n_annotators, table.n_items)
    given = csr_array((np.ones(wrong.size), at), shape)  # repeated pairs are summed up
    errs = csr_array((wrong, at), shape)
    given.sum_duplicates()
    errs.sum_duplicates()  # the same places in the same order
    errs.data = (errs.data > given.data / 2).astype(np.float64)
    given.data[:] = 1
    shared = (given @ given.T).toarray()
    alone = (errs @ given.T).toarray()  # errors of the first on shared items
    apart = alone + alone.T - 2 * (errs @ errs.T).toarray()  # |v − v'| = v + v' − 2 v v' of zeros and ones
    with np.errstate(invalid="ignore"):
        return np.where(shared > 0, apart / shared, np.nan), shared.astype(np.int64)


def confusion_distance(counts: FloatArray, everyone: FloatArray) -> FloatArray:
    """Return d_jj' (n, n) of counts (n, K, K) [annotator, true, given], given those of everyone (K, K)."""
    from scipy.spatial.distance import pdist, squareform

    theta = counts + everyone / np.maximum(everyone.sum(axis=1, keepdims=True), 1e-300)
    theta /= np.maximum(theta.sum(axis=2, keepdims=True), 1e-300)
    share = everyone.sum(axis=1) / everyone.sum()
    return np.asarray(squareform(pdist((theta * share[:, None] / 2).reshape(len(counts), -1), "cityblock")))


def _clusters(
    table: Annotations, posterior: FloatArray, who: IntArray, counts: FloatArray, n: int
) -> tuple[IntArray, Literal["items", "confusions"]]:
    """Number the clusters of `who`, the largest is 0; also say what they are by."""
    from scipy.cluster.hierarchy import fcluster, linkage
    from scipy.spatial.distance import squareform

    chosen: BoolArray = np.zeros(table.n_annotators, np.bool_)
    chosen[who] = True
    truth = np.where(posterior.sum(axis=1) > 0, posterior.argmax(axis=1), -1)
    distance, shared = mistake_distance(table.select(annotators=chosen), truth)
    by: Literal["items", "confusions"] = "items"
    np.fill_diagonal(distance, 0)
    close = squareform(distance, checks=False)
    if (squareform(shared, checks=False) < MIN_SHARED_ITEMS).any():
        by = "confusions"
        close = squareform(confusion_distance(counts[who], counts.sum(axis=0)), checks=False)
    if who.size == 1:
        return np.zeros(1, np.int64), by
    found = fcluster(linkage(close, "complete"), n, "maxclust")
    order = np.argsort(-np.bincount(found)[1:], kind="stable")
    return np.argsort(order)[found - 1], by
