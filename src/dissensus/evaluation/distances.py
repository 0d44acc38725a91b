"""Distances of sets, texts and boxes, and Krippendorff's α with any distance of labels.

    α = 1 − (n − 1) Σ'_i Σ_{pairs of ratings of i} δ / (m_i − 1)  /  Σ_{c,k} n_c n_k δ_ck

The symbols are those of `agreement.krippendorff_alpha`, but δ (K, K) is any distance of the distinct labels.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import numpy as np
from scipy.sparse import csr_array, hstack

from dissensus.common.jit import lazy_jit
from dissensus.common.parameters import check_argument
from dissensus.common.types import FloatArray, IntArray
from dissensus.evaluation.agreement import agreement, numeric_agreement
from dissensus.evaluation.exceptions import (
    BadBox,
    BadDistances,
    BadLabelDistance,
    NoSharedItems,
    TooManyLabelsForDistances,
)
from dissensus.evaluation.intervals import Estimate, bootstrap_sums
from dissensus.evaluation.ratings import Ratings, safe_ratio
from dissensus.evaluation.spans import span_agreement
from dissensus.table.annotations import Annotations

SetDistance = Literal["jaccard", "masi"]
ObjectDistance = Literal["words", "characters", "boxes"]
MAX_LABELS_COMPARED = 3_000  # distinct labels; the distances of all pairs are computed


def set_distances(table: Annotations, distance: SetDistance = "jaccard") -> FloatArray:
    """Return the distances (K, K) between the sets of a table, from 0 to 1.

    The Jaccard distance is 1 − |A ∩ B| / |A ∪ B|. The MASI distance (Passonneau 2006) is 1 − m |A ∩ B| / |A ∪ B|, where
    m is 1 for equal sets, 2/3 if one set contains the other, and 1/3 if they only overlap. Two empty sets are equal.
    """
    check_argument("distance", distance, SetDistance)
    selected = table.options.selected.astype(np.float64)
    size = selected.sum(axis=1)
    both = selected @ selected.T
    either = size[:, None] + size - both
    similarity = np.divide(both, either, out=np.ones_like(both), where=either > 0)
    if distance == "masi":
        subset = (both == size[:, None]) | (both == size)
        similarity *= np.where(both == either, 1, np.where(subset, 2 / 3, 1 / 3))
    return np.asarray(1 - similarity)


def agreement_for_label_type(
    table: Annotations, *, scale: Any = "nominal", values: Any = None, **bootstrap: Any
) -> Any:
    """Return the agreement coefficients for the table's label type; the arguments are those of `agreement`."""
    if table.kind == "spans":
        return span_agreement(table, **bootstrap)
    if table.kind == "numbers":
        return numeric_agreement(table, **bootstrap)
    if table.kind == "sets":
        distances = {"jaccard_alpha": set_distances(table), "masi_alpha": set_distances(table, "masi")}
    elif table.kind == "objects":
        distances = {"words_alpha": label_distance_matrix(table, "words")}
    else:
        return agreement(table, scale=scale, values=values, **bootstrap)
    return {name: distance_alpha(table, one, **bootstrap) for name, one in distances.items()}


def distance_alpha(table: Annotations, distance: Any, level: float = 0.95, **bootstrap: Any) -> Estimate:
    """Return Krippendorff's α with a distance matrix of the labels.

    `distance` (K, K) is symmetric with a zero diagonal. `bootstrap` is the same as in `agreement`; `resamples=0`
    computes no interval.
    """
    delta = np.asarray(distance, np.float64)
    if delta.shape != (table.n_classes,) * 2 or not np.allclose(delta, delta.T) or (np.diag(delta) != 0).any():
        raise BadDistances(labels=table.n_classes, shape=delta.shape)
    rows, shape = Ratings.from_table(table), (table.n_items, table.n_classes)
    m = np.bincount(rows.rated_item, minlength=table.n_items)
    votes = csr_array((rows.share, (rows.item, rows.label)), shape=shape)[m > 1]
    own = csr_array((rows.share, (rows.rating, rows.label)), shape=(rows.rated_item.size, table.n_classes))
    if not votes.shape[0]:
        raise NoSharedItems(count=table.n_items, units="items")
    # A rating of several labels does not disagree with itself.
    inner = np.bincount(rows.rated_item, _sum_pair_distances(own, delta), table.n_items)[m > 1]
    apart = (_sum_pair_distances(votes, delta) - inner) / (m[m > 1] - 1)
    sums = bootstrap_sums(hstack([csr_array(apart[:, None]), votes], format="csr"), **bootstrap)

    def alpha(found: FloatArray) -> FloatArray:
        counts = found[:, 1:]
        expected = np.einsum("bk,bk->b", counts @ delta, counts)
        return 1 - safe_ratio((counts.sum(axis=1) - 1) * found[:, 0], expected)

    return sums.estimate(alpha, level)


def _sum_pair_distances(rows: Any, delta: FloatArray) -> FloatArray:
    """Return Σ_{c,k} v_c v_k δ_ck (n,) for each sparse row v of an array (n, K)."""
    return np.asarray(rows.multiply(rows @ delta).sum(axis=1)).reshape(-1)


def pair_distances(
    labels: Any, left: IntArray, right: IntArray, distance: ObjectDistance | Callable[[Any, Any], float]
) -> FloatArray:
    """Return the distances (P,) between the labels at positions `left` (P,) and `right` (P,).

    "words" and "characters" are edit distances of texts (insert, delete or replace at a cost of 1), divided by the
    length of the longer text. "boxes" is 1 − intersection over union of boxes "x, y, width, height". A function of two
    labels must return a number of at least 0.
    """
    if callable(distance):
        found = np.array([float(distance(labels[a], labels[b])) for a, b in zip(left, right, strict=True)])
        bad = np.flatnonzero(~(np.isfinite(found) & (found >= 0)))
        if bad.size:
            first, second = (str(labels[codes[bad[0]]])[:40] for codes in (left, right))
            raise BadLabelDistance(first_label=first, second_label=second, distance=float(found[bad[0]]))
        return found
    check_argument("distance", distance, ObjectDistance)
    if distance == "boxes":
        boxes = np.array([_box_corners(one) for one in labels]).reshape(-1, 4)
        a, b = boxes[left], boxes[right]
        both = np.maximum(np.minimum(a[:, 2:], b[:, 2:]) - np.maximum(a[:, :2], b[:, :2]), 0).prod(axis=1)
        areas = (boxes[:, 2:] - boxes[:, :2]).prod(axis=1)
        either = areas[left] + areas[right] - both
        shared = np.divide(both, either, out=np.zeros_like(both), where=either > 0)
        return np.where((a == b).all(axis=1), 0, 1 - shared)
    parts = [str(one).split() if distance == "words" else list(str(one)) for one in labels]
    place = {part: code for code, part in enumerate(sorted({part for one in parts for part in one}))}
    codes = np.array([place[part] for one in parts for part in one], np.int64)
    start = np.cumsum([0, *map(len, parts)])
    found = np.empty(left.size)
    _edit_distances(codes, start, left.astype(np.int64), right.astype(np.int64), found)
    return found


def label_distance_matrix(table: Annotations, distance: ObjectDistance | Callable[[Any, Any], float]) -> FloatArray:
    """Return the distances (K, K) between all labels of a table; raise if K exceeds `MAX_LABELS_COMPARED`."""
    K = table.n_classes
    if K > MAX_LABELS_COMPARED:
        raise TooManyLabelsForDistances(labels=K)
    left, right = np.triu_indices(K, 1)
    found = np.zeros((K, K))
    found[left, right] = found[right, left] = pair_distances(table.classes, left, right, distance)
    return found


def _box_corners(label: Any) -> list[float]:
    try:
        x, y, width, height = (float(part) for part in str(label).strip("[]() ").split(","))
    except ValueError:
        raise BadBox(label=str(label)[:40]) from None
    return [x, y, x + width, y + height]


@lazy_jit
def _edit_distances(codes: IntArray, start: IntArray, left: IntArray, right: IntArray, out: FloatArray) -> None:
    """Write the edit distance of each pair of code sequences, divided by the longer length, into `out`."""
    longest = np.diff(start).max()
    row = np.empty(longest + 1, np.int64)
    for p in range(left.size):
        a, b = codes[start[left[p]] : start[left[p] + 1]], codes[start[right[p]] : start[right[p] + 1]]
        for k in range(b.size + 1):
            row[k] = k
        for i in range(a.size):
            corner, row[0] = row[0], i + 1
            for k in range(b.size):
                kept = corner if a[i] == b[k] else corner + 1
                corner = row[k + 1]
                row[k + 1] = min(kept, row[k + 1] + 1, row[k] + 1)
        out[p] = row[b.size] / max(a.size, b.size, 1)
