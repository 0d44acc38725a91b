"""Ratings of a table, each of which is the distribution over classes of one annotator for one item."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal, NamedTuple

import numpy as np
from scipy.sparse import csr_array, diags_array, hstack

from dissensus.common.arrays import concatenate_ranges
from dissensus.common.parameters import check_argument
from dissensus.common.types import FloatArray, IntArray
from dissensus.evaluation._check import check_class_values
from dissensus.evaluation.exceptions import ClassNameNotNumeric, RepeatedClassPosition, WeightsIgnored
from dissensus.table.annotations import Annotations

Scale = Literal["nominal", "ordinal", "interval"]
MAX_PAIRS_PER_CHUNK = 2**22  # pairs of labels of the same item that are compared at a time
N_FIXED_COLUMNS = 6  # columns of `agreement_statistics` before the columns per class


@dataclass(frozen=True, eq=False)
class Ratings:
    """Ratings as rows (item, annotator, label, share); the shares of one rating sum to one.

    Labels of the same item by the same annotator share one rating, so that no annotator agrees with themselves. A
    probabilistic label has one row per class. Each vote without an annotator id is a rating. Rows of weight 0 are
    excluded; other weights are ignored with a warning.
    """

    item: IntArray  # (R,)
    annotator: IntArray  # (R,)
    rating: IntArray  # (R,) index of the rating
    label: IntArray  # (R,)
    share: FloatArray  # (R,)

    @classmethod
    def from_table(cls, table: Annotations) -> Ratings:
        """Return the ratings of a table."""
        if table.weight is not None:
            if table.weight.size and (table.weight[table.weight > 0] != table.weight.max()).any():
                warnings.warn(WeightsIgnored(), stacklevel=5)
            table = table.select(rows=table.weight > 0)
        rating = table.rating_codes
        share = 1 / np.bincount(rating)[rating] if len(table) else np.empty(0)
        if table.proba is None:
            return cls(table.item, table.annotator, rating, table.label, share)
        row, label = np.nonzero(table.proba)
        part = table.proba[row, label]
        part = part / np.bincount(row, part)[row]  # Rounding errors accumulate in sums.
        return cls(table.item[row], table.annotator[row], rating[row], label, share[row] * part)

    @property
    def rated_item(self) -> IntArray:
        """Return the item of each rating."""
        return self.item[np.unique(self.rating, return_index=True)[1]]


def agreement_statistics(table: Annotations, scale: Scale, place: FloatArray) -> Any:
    """Return a sparse array (I, columns) of the statistics of each item from which agreement is computed.

    For an item with m ratings p_a (distributions over the classes) and votes v = Σ_a p_a, the columns are:

    0        1
    1        1 if m ≥ 2, otherwise 0
    2        number of agreeing ordered pairs of ratings by different annotators
    3        number of all such pairs
    4        share of agreeing pairs
    5        disagreement of the pairs / (m − 1), which is (x_c − x_k)² on an interval scale, otherwise 0 or 1
    6 …      v_c / m, one column per class
    6+K …    v_c if m ≥ 2
    6+2K …   v_c / m if m ≥ 2
    6+3K …   on an ordinal scale, number of pairs with classes (c, k) or (k, c) / (m − 1), for the K (K − 1) / 2 pairs c
    < k
    """
    rows, (I, K) = Ratings.from_table(table), (table.n_items, table.n_classes)
    label = rows.label
    if scale == "ordinal":  # Codes are in the order of the classes.
        label = np.argsort(np.argsort(place, kind="stable"))[label]
    item = rows.rated_item
    m = np.bincount(item, minlength=I)
    votes = csr_array((rows.share, (rows.item, label)), shape=(I, K))
    own = csr_array((rows.share, (rows.rating, label)), shape=(item.size, K))
    agree = votes.power(2).sum(axis=1) - np.bincount(item, own.power(2).sum(axis=1), I)
    others = np.maximum(m - 1, 1)
    pairs = m * (m - 1.0)
    apart = pairs - agree
    if scale == "interval":  # Σ_{a≠b} (x_a − x_b)², computed from moments
        mean = own @ place
        apart = 2.0 * (others * (votes @ place**2) - ((votes @ place) ** 2 - np.bincount(item, mean**2, I)))
    several = m > 1
    fixed = [several, agree, pairs, agree / np.maximum(pairs, 1), apart / others]
    columns = [
        csr_array(np.stack([m > 0, *(np.where(several, one, 0.0) for one in fixed)], axis=1)),
        diags_array(1 / np.maximum(m, 1)) @ votes,
        diags_array(several * 1.0) @ votes,
        diags_array(several / np.maximum(m, 1)) @ votes,
    ]
    if scale == "ordinal":
        of_item = csr_array((np.ones(item.size), (item, np.arange(item.size))), shape=(I, item.size))
        both = _column_pair_products(votes) - of_item @ _column_pair_products(own)
        columns.append(diags_array(np.where(several, 2 / others, 0.0)) @ both)
    return hstack(columns, format="csr")


def _column_pair_products(rows: Any) -> Any:
    """Return the products of columns c < k of sparse rows (n, K), as a sparse array (n, K (K − 1) / 2)."""
    n, K = rows.shape
    rows.sort_indices()
    later = np.repeat(rows.indptr[1:], np.diff(rows.indptr)) - np.arange(rows.nnz) - 1
    left = np.repeat(np.arange(rows.nnz), later)
    right = concatenate_ranges(np.arange(rows.nnz) + 1, later)
    c, k = rows.indices[left].astype(np.int64), rows.indices[right]
    row = np.repeat(np.arange(n), np.diff(rows.indptr))[left]
    column = c * (2 * K - c - 1) // 2 + k - c - 1
    return csr_array((rows.data[left] * rows.data[right], (row, column)), shape=(n, K * (K - 1) // 2))


class LabelPairs(NamedTuple):
    """Counts of pairs of labels that two annotators gave to the same item."""

    first_annotator: IntArray  # (P,) annotator codes, first < second
    second_annotator: IntArray  # (P,)
    shared: FloatArray  # (P,) items that both have labelled
    pair: IntArray  # (E,) index of the pair of annotators
    mine: IntArray  # (E,) label of the first
    theirs: IntArray  # (E,) label of the second
    weight: FloatArray  # (E,) count

    def weighted_sums(self, values: Any) -> FloatArray:
        """Return the sums (P,) of values (E,) times weights for each pair of annotators."""
        return np.bincount(self.pair, self.weight * values, self.first_annotator.size).astype(np.float64)


def iterate_label_pairs(ratings: Ratings, n_annotators: int, n_classes: int, min_shared: int) -> Iterator[LabelPairs]:
    """Yield the label pairs of all pairs of annotators that share at least `min_shared` items, in chunks of annotators.

    No array of annotators × annotators or items × annotators is built.
    """
    A, K = n_annotators, n_classes
    per_item = np.bincount(ratings.item)
    code = ratings.annotator.astype(np.int64) * K + ratings.label
    given = csr_array((ratings.share, (code, ratings.item)), shape=(A * K, per_item.size))
    work = np.cumsum(np.bincount(ratings.annotator, per_item[ratings.item], A))
    cuts = np.searchsorted(
        work, np.arange(MAX_PAIRS_PER_CHUNK, work[-1] + MAX_PAIRS_PER_CHUNK, MAX_PAIRS_PER_CHUNK), side="right"
    )
    for start, stop in pairwise(np.unique([0, *cuts, A]).tolist()):
        found = (given[start * K : stop * K] @ given[start * K :].T).tocoo()
        (a, c), (b, k) = (divmod(one.astype(np.int64) + start * K, K) for one in (found.row, found.col))
        later = b > a
        pairs, at = np.unique(a[later] * A + b[later], return_inverse=True)
        shared = np.rint(np.bincount(at, found.data[later], pairs.size))
        many = shared >= min_shared
        kept, place = many[at], np.cumsum(many) - 1
        entries = (one[later][kept] for one in (c, k, found.data))
        yield LabelPairs(pairs[many] // A, pairs[many] % A, shared[many], place[at[kept]], *entries)


def class_positions_on_scale(table: Annotations, scale: Scale, values: Any) -> FloatArray:
    """Return the positions (K,) of the classes: `values`, by default class names as numbers, or codes if ordinal."""
    check_argument("scale", scale, Scale)
    K = table.n_classes
    if values is not None:
        place = check_class_values(values, K, "values")
        if scale == "ordinal" and np.unique(place).size < K:
            raise RepeatedClassPosition
    elif scale == "interval":
        place = np.array([_class_name_as_number(name) for name in table.classes])
    else:
        place = np.arange(K, dtype=np.float64)
    if K < 2:
        return np.zeros(K)
    centred = place - place.mean()  # Centring keeps precision in sums of squares and does not change the coefficients.
    return np.asarray(centred / (np.ptp(place) or 1.0))


def _class_name_as_number(name: Any) -> float:
    with suppress(ValueError):
        if np.isfinite(value := float(name)):
            return value
    raise ClassNameNotNumeric(name=str(name)[:40])


def safe_ratio(part: FloatArray, total: FloatArray) -> FloatArray:
    """Return `part` / `total`, or NaN if `total` is zero up to rounding."""
    nonzero = np.abs(total) > 1e-12
    return np.where(nonzero, part / np.where(nonzero, total, 1), np.nan)
