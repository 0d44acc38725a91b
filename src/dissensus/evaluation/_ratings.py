"""From the table to ratings: one distribution per item and annotator, in rows that sum to one."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from dissensus.common.types import BoolArray, FloatArray, IntArray
from dissensus.compute.kernels import ratings as kernels
from dissensus.evaluation._check import numbers
from dissensus.exceptions import BadParameter, DataError, DataWarning
from dissensus.table.annotations import ANONYMOUS, Annotations

Scale = Literal["nominal", "ordinal", "interval"]
SCALES: tuple[Scale, ...] = ("nominal", "interval", "ordinal")  # 0, 1, 2 in the kernel


@dataclass(frozen=True, eq=False)
class Ratings:
    """Rows (item, annotator, label, share); the shares of one rating sum to one.

    Labels of the same item by the same annotator are one rating, each label with its share of it, so that nobody agrees
    with themselves; a probabilistic label is its distribution. Votes without annotator ids are a rating each. Rows of
    weight 0 are left out; other weights are not used, with a warning.
    """

    item_ptr: IntArray  # (I+1,)
    item: IntArray  # (R,)
    annotator: IntArray  # (R,)
    rating: IntArray  # (R,) number of the rating
    label: IntArray  # (R,)
    share: FloatArray  # (R,)

    @classmethod
    def of(cls, table: Annotations) -> Ratings:
        """The ratings of a table."""
        if table.weight is not None:
            if table.weight.size and (table.weight[table.weight > 0] != table.weight.max()).any():
                warnings.warn("weights are not used: agreement counts every label once.", DataWarning, stacklevel=5)
            table = table.select(rows=table.weight > 0)
        new = np.ones(len(table), bool)
        if not (table.n_annotators == 1 and table.annotators[0] == ANONYMOUS):
            new[1:] = (np.diff(table.item) != 0) | (np.diff(table.annotator) != 0)
        rating = np.cumsum(new) - 1
        share = 1 / np.bincount(rating)[rating] if len(table) else np.empty(0)
        if table.proba is None:
            return cls(table.item_ptr, table.item, table.annotator, rating, table.label, share)
        row, label = np.nonzero(table.proba)
        part = table.proba[row, label]
        part = part / np.bincount(row, part)[row]  # sums may be off by rounding
        ptr = np.searchsorted(row, table.item_ptr)
        return cls(ptr, table.item[row], table.annotator[row], rating[row], label, share[row] * part)

    @property
    def starts(self) -> BoolArray:
        """(R,) the first row of each rating."""
        first = np.ones(self.rating.size, bool)
        first[1:] = np.diff(self.rating) != 0
        return first


def statistics(table: Annotations, scale: Scale, place: FloatArray) -> tuple[IntArray, IntArray, FloatArray, int]:
    """Sparse statistics of all items (ptr, column, value), and the number of columns; see the kernel."""
    ratings, K = Ratings.of(table), table.n_classes
    label = ratings.label
    if scale == "ordinal":  # classes in their order
        rank = np.empty(K, np.int64)
        rank[np.argsort(place, kind="stable")] = np.arange(K)
        label = rank[label]
    different = np.minimum(np.diff(ratings.item_ptr), K)
    room = int((6 + 2 * different).sum())
    columns = kernels.FIXED + 2 * K
    if scale == "ordinal":
        room += int((different * (different - 1) // 2).sum())
        columns += K * (K - 1) // 2
    ptr = np.empty(table.n_items + 1, np.int64)
    column, value = np.empty(room, np.int32), np.empty(room)
    used = kernels.statistics(
        ratings.item_ptr, ratings.rating, label, ratings.share, place, SCALES.index(scale), K, ptr, column, value
    )  # fmt: skip
    return ptr, column[:used], value[:used], columns


def places(table: Annotations, scale: Scale, values: Any) -> FloatArray:
    """(K,) where the classes lie: `values`, else on an interval scale their names as numbers, else 0, 1, …."""
    if scale not in SCALES:
        raise BadParameter(f"scale must be 'nominal', 'ordinal' or 'interval', got {scale!r}.")
    K = table.n_classes
    if values is not None:
        place = numbers(values, "values")
        if place.size != K:
            raise DataError(f"{place.size} values for {K} classes; give one each, in the order of table.classes.")
        if scale == "ordinal" and np.unique(place).size < K:
            raise DataError("two classes have the same value; on an ordinal scale each has its own place.")
    elif scale == "interval":
        place = np.empty(K)
        for k, name in enumerate(table.classes):
            try:
                place[k] = float(name)
            except ValueError:
                place[k] = np.nan
            if not np.isfinite(place[k]):
                raise DataError(
                    f"class {str(name)[:40]!r} is no number, which an interval scale needs; use scale 'ordinal' or "
                    "'nominal', or give values=[…]."
                )
    else:
        place = np.arange(K, dtype=np.float64)
    if K < 2:
        return np.zeros(K)
    centred = place - place.mean()  # the coefficients do not change, and sums of squares lose less
    return np.asarray(centred / (np.ptp(place) or 1.0))
