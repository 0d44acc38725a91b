"""Agreement of labels that are more or less alike: Krippendorff's α with any distance, and distances of sets.

    α = 1 − (n − 1) Σ'_i Σ_{pairs of ratings of i} δ / (m_i − 1)  /  Σ_{c,k} n_c n_k δ_ck

as in `agreement.krippendorff_alpha`, with a distance δ (K, K) of the distinct labels in place of squared differences.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from scipy.sparse import csr_array, hstack

from dissensus.common.parameters import check_argument
from dissensus.common.types import FloatArray
from dissensus.evaluation.intervals import Estimate, resampled_sums
from dissensus.evaluation.ratings import Ratings, ratio
from dissensus.exceptions import DataError
from dissensus.table.annotations import Annotations

SetDistance = Literal["jaccard", "masi"]


def set_distances(table: Annotations, distance: SetDistance = "jaccard") -> FloatArray:
    """(K, K) how far the sets of a table are from each other, 0 to 1.

    jaccard: 1 − |A ∩ B| / |A ∪ B|. masi (Passonneau 2006): 1 − |A ∩ B| / |A ∪ B| · m, m = 1 for equal sets, 2/3 where
    one holds the other, 1/3 where they overlap. Two empty sets are equal.
    """
    check_argument("distance", distance, SetDistance)
    ticked = table.options.ticked.astype(np.float64)
    size = ticked.sum(axis=1)
    both = ticked @ ticked.T
    either = size[:, None] + size - both
    alike = np.divide(both, either, out=np.ones_like(both), where=either > 0)
    if distance == "masi":
        within = (both == size[:, None]) | (both == size)
        alike *= np.where(both == either, 1, np.where(within, 2 / 3, 1 / 3))
    return np.asarray(1 - alike)


def distance_alpha(table: Annotations, distance: Any, level: float = 0.95, **bootstrap: Any) -> Estimate:
    """Krippendorff's α of labels whose distances are `distance` (K, K), symmetric, 0 on the diagonal.

    `bootstrap` as in `agreement`; `resamples=0`: no interval.
    """
    delta = np.asarray(distance, np.float64)
    if delta.shape != (table.n_classes,) * 2 or not np.allclose(delta, delta.T) or (np.diag(delta) != 0).any():
        raise DataError(
            f"distance must be symmetric, of shape {(table.n_classes,) * 2} and 0 on its diagonal, got {delta.shape}."
        )
    rows, shape = Ratings.of(table), (table.n_items, table.n_classes)
    m = np.bincount(rows.rated_item, minlength=table.n_items)
    votes = csr_array((rows.share, (rows.item, rows.label)), shape=shape)[m > 1]
    own = csr_array((rows.share, (rows.rating, rows.label)), shape=(rows.rated_item.size, table.n_classes))
    if not votes.shape[0]:
        raise DataError(f"no item of {table.n_items:,} has labels by two annotators; agreement cannot be measured.")
    itself = np.bincount(rows.rated_item, _within(own, delta), table.n_items)[m > 1]  # a rating of several labels
    apart = (_within(votes, delta) - itself) / (m[m > 1] - 1)
    sums = resampled_sums(hstack([csr_array(apart[:, None]), votes], format="csr"), **bootstrap)

    def alpha(found: FloatArray) -> FloatArray:
        counts = found[:, 1:]
        expected = np.einsum("bk,bk->b", counts @ delta, counts)
        return 1 - ratio((counts.sum(axis=1) - 1) * found[:, 0], expected)

    return sums.estimate(alpha, level)


def _within(rows: Any, delta: FloatArray) -> FloatArray:
    """(n,) Σ_{c,k} v_c v_k δ_ck of sparse rows (n, K)."""
    return np.asarray(rows.multiply(rows @ delta).sum(axis=1)).reshape(-1)
