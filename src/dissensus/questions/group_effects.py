"""Find groups of annotators that see items differently: which columns of metadata matter, and for which items.

For an item with n labels, n_g is the number of labels by group g, n_gk is the number of these that have class k, and T
= n − Σ_k n_k²/n. Then

    B_i = Σ_g Σ_k n_g (n_gk/n_g − n_k/n)² − T (groups present − 1)/(n − 1)                                          (4)

is the between-group sum of squares minus its mean over permutations of the labels among the item's annotators. The
observed Σ_i B_i is compared with its values when annotators are permuted among the groups, so that the labels of one
annotator stay together. `effect` is Σ_i B_i divided by its maximum. If a column of metadata matters (Holm 1979), the
items are ranked by the number of standard deviations by which B_i exceeds its mean over these permutations.
Permutations also show how many items would exceed their mean by this much by chance, which gives the false discovery
rate (Tusher et al. 2001).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Self, TypeVar

import numpy as np
from scipy.sparse import csr_array

from dissensus.common.arrays import sum_ranges
from dissensus.common.types import BoolArray, FloatArray, IntArray
from dissensus.compute.engines.local import Threads, balanced_ranges
from dissensus.evaluation.intervals import holm_correction
from dissensus.questions.exceptions import RepeatedAnnotator, UnequalMetadataColumns, UnknownAnnotators
from dissensus.table import names as naming
from dissensus.table.annotations import Annotations
from dissensus.table.find_columns import column_names, guess_column, missing_column_error, to_arrow

T = TypeVar("T")

FALSE_DISCOVERY_RATE = 0.05  # maximum expected share of false discoveries among the explained items
SIGNIFICANCE_LEVEL = 0.01  # maximum p-value of a significant column of metadata, after Holm's correction
MAX_DISTINCT_NUMBERS = 12  # maximum number of different numbers; a column with more is divided into quantiles
N_QUANTILES = 4  # number of groups into which a column of numbers is divided
PERMUTATIONS_PER_BATCH = 50  # number of permutations that are computed together
N_BATCHES = 4  # number of batches of permutations for the estimate of the false discovery rate
# Number of permutations with a larger value after which the test stops (Besag & Clifford 1991)
MAX_LARGER_PERMUTATIONS = 20
BINS_PER_SD = 100.0  # histogram bins per standard deviation of an item above its mean
MAX_HISTOGRAM_SD = 100  # range of the histogram in standard deviations
ROWS_PER_CHUNK = 2**14  # small enough for the temporary arrays of a chunk to fit into the processor's cache


@dataclass(frozen=True, eq=False)
class GroupEffect:
    """The difference between groups of annotators, which a metadata column defines, on the same items."""

    column: str
    groups: tuple[str, ...]
    labels: IntArray  # (G,) number of labels on items whose labels disagree
    reliability: FloatArray  # (G,) expected share of these labels that are correct, computed from the posterior
    effect: float  # share of the disagreement between groups beyond chance, from 0 to 1
    p_value: float  # p-value corrected for the number of columns
    significant: bool
    items: IntArray  # codes of the explained items, in descending order of the effect


def read_metadata_groups(
    metadata: Any, table: Annotations, missing_as_group: bool
) -> dict[str, tuple[tuple[str, ...], IntArray]]:
    """Return, for each column, the names of its groups and the group of each annotator (A,), −1 where unknown."""
    by_column = isinstance(metadata, Mapping)
    names = list(metadata) if by_column else column_names(metadata)
    key = guess_column("annotator", names)
    if key is None:
        raise missing_column_error("annotator", names)
    data = metadata if by_column else to_arrow(metadata, names)
    columns = {name: naming.to_column(data[name], name) for name in names}
    for name, column in columns.items():
        if len(column) != len(columns[key]):
            raise UnequalMetadataColumns(column=name, rows=len(column), key=key, expected=len(columns[key]))
    annotators, code = naming.encode_column(columns.pop(key), key)
    if annotators.size < code.size:
        repeated = annotators[np.flatnonzero(np.bincount(code) > 1)[0]]
        raise RepeatedAnnotator(annotator=repeated)
    position = naming.match_names(table.annotators, annotators, "annotators")
    known = position >= 0
    if not known.any():
        raise UnknownAnnotators(n=annotators.size, annotator=annotators[0], table_annotator=table.annotators[0])
    row = np.argsort(code)[position[known]]
    by_name = {}
    for name, column in columns.items():
        group = np.full(table.n_annotators, -1, np.int32)
        groups, group[known] = _sort_into_groups(column, row)
        if missing_as_group and (group < 0).any():
            group[group < 0] = len(groups)
            groups = (*groups, "(missing)")
        if 1 < len(groups) <= np.count_nonzero(group >= 0) / 2:
            by_name[str(name)] = groups, group
    return by_name


def _sort_into_groups(column: Any, rows: IntArray) -> tuple[tuple[str, ...], IntArray]:
    """Return the names of the groups in the chosen rows of a column, and the group of each row, −1 if missing."""
    missing = naming.missing_rows(column)[rows]
    values: Any = naming.to_names(column)[rows]
    group = np.full(rows.size, -1, np.int32)
    present = values[~missing]
    try:
        numbers = None if present.dtype.kind == "b" else np.array([float(value) for value in present])
    except ValueError:
        numbers = None
    if numbers is None or not np.isfinite(numbers).all():
        distinct, group[~missing] = np.unique(present, return_inverse=True)
        return tuple(map(str, distinct.tolist())), group
    distinct, rank = np.unique(numbers, return_inverse=True)
    names, part = [f"{value:g}" for value in distinct], np.arange(distinct.size)
    if distinct.size > MAX_DISTINCT_NUMBERS:
        edges = np.unique(np.quantile(numbers, np.arange(1, N_QUANTILES) / N_QUANTILES, method="inverted_cdf"))
        part = np.unique(np.searchsorted(edges, distinct), return_inverse=True)[
            1
        ]  # a value on an edge belongs to the lower quantile
        names = [f"{distinct[part == p][0]:g} … {distinct[part == p][-1]:g}" for p in range(part.max() + 1)]
    group[~missing] = part[rank]
    return tuple(names), group


class _GroupTest:
    """Permutation test of a column on items whose labels disagree, using the labels of annotators with a group."""

    def __init__(self, rows: Annotations, posterior: FloatArray, disagree: BoolArray, group: IntArray, n_groups: int):
        keep = (group[rows.annotator] >= 0) & disagree[rows.item]
        item_labels = np.unique(rows.item[keep] * np.int64(rows.n_classes) + rows.label[keep])
        keep &= (np.bincount(item_labels // rows.n_classes, minlength=rows.n_items) > 1)[
            rows.item
        ]  # the labels of annotators with a group also differ
        annotators, annotator = np.unique(rows.annotator[keep], return_inverse=True)
        self.item, index = np.unique(rows.item[keep], return_inverse=True)  # (J,) item codes
        self.group, self.n_groups = group[annotators], n_groups  # (annotators,)
        self.row_group = self.group[annotator]  # (M,)
        self.p_correct = posterior[rows.item[keep], rows.label[keep]]  # (M,)
        # One cell for each pair of item and label
        cells, cell = np.unique(index * rows.n_classes + rows.label[keep], return_inverse=True)
        self.counts = csr_array((np.ones(cell.size), (cell, annotator)), shape=(cells.size, annotators.size))
        # Pointers to the cells of each item
        self.ptr = np.searchsorted(cells, np.arange(self.item.size + 1) * rows.n_classes)
        self.n = np.bincount(index, minlength=self.item.size)  # (J,)
        self.within = self.n - sum_ranges(self.counts.sum(axis=1) ** 2, self.ptr) / self.n  # T of Eq. 4

    def explain_by_groups(self, groups: IntArray, start: int, end: int) -> tuple[FloatArray, FloatArray]:
        """Return Eq. 4 and its maximum (P, items) for items start … end − 1, given permuted groups (P, annotators)."""
        P, G = len(groups), self.n_groups
        membership = (groups.T[:, :, None] == np.arange(G)).reshape(-1, P * G).astype(np.float64)
        count = self.counts[self.ptr[start] : self.ptr[end]] @ membership
        ptr = self.ptr[start : end + 1] - self.ptr[start]
        size, squares = sum_ranges(count, ptr), sum_ranges(count**2, ptr)
        explained = (squares / np.maximum(size, 1)).reshape(-1, P, G).sum(axis=2).T
        present = (size > 0).reshape(-1, P, G).sum(axis=2).T
        n, within = self.n[start:end], self.within[start:end]
        by_chance = (present - 1) / (n - 1) * within
        zero = present <= 1
        between = np.where(zero, 0.0, explained - (n - within) - by_chance)
        return between, np.where(zero, 0.0, within - by_chance)

    def map_chunks(self, pool: Threads, work: Callable[[slice, FloatArray], T], groups: IntArray) -> list[T]:
        """Apply `work` to the values of Eq. 4 with permuted groups (P, annotators), one slice of items at a time."""
        chunks = balanced_ranges(self.ptr, max(pool.threads, self.row_group.size // ROWS_PER_CHUNK))
        return pool.map(
            lambda _, start, end: work(slice(start, end), self.explain_by_groups(groups, start, end)[0]), chunks
        )

    def permute_groups(self, number: int, seed: int) -> IntArray:
        """Return groups (PERMUTATIONS_PER_BATCH, annotators), permuted among annotators in draw `number`."""
        rng = np.random.default_rng([seed, number])
        return rng.permuted(np.tile(self.group, (PERMUTATIONS_PER_BATCH, 1)), axis=1)

    def test(self, permutations: int, seed: int, pool: Threads) -> Self:
        """Compute p-value and effect of the column, and mean and SD of each item over the permutations (J,)."""
        (observed,), (largest,) = self.explain_by_groups(self.group[None], 0, self.item.size)
        total, most = observed.sum(), largest.sum()
        bound = total - 1e-9 * max(1.0, most)  # tolerance for rounding errors if sums are computed in a different order
        moments = np.zeros((2, self.item.size))
        done = exceeded = 0

        def add_moments(items: slice, between: FloatArray) -> FloatArray:
            moments[:, items] += between.sum(axis=0), (between**2).sum(axis=0)
            return np.asarray(between.sum(axis=1))

        while done < permutations and exceeded < MAX_LARGER_PERMUTATIONS:
            groups = self.permute_groups(done // PERMUTATIONS_PER_BATCH, seed)[: permutations - done]
            exceeded += int((np.sum(self.map_chunks(pool, add_moments, groups), axis=0) >= bound).sum())
            done += len(groups)
        self.mean, squares = moments / done
        variance = squares - self.mean**2
        self.sd = np.sqrt(np.where(variance > 1e-9, variance, 0))
        self.z = np.divide(observed - self.mean, self.sd, out=np.zeros_like(self.mean), where=self.sd > 0)  # (J,)
        self.p_value, self.effect = (1 + exceeded) / (1 + done), float(total / most) if most > 0 else 0.0
        return self

    def find_explained_items(self, seed: int, pool: Threads) -> IntArray:
        """Return the explained items (indices into `item`) at the false discovery rate, in descending order of z."""
        n_bins = round(BINS_PER_SD * MAX_HISTOGRAM_SD)
        spread = np.where(self.sd > 0, self.sd, np.inf)

        def count_by_bin(items: slice, between: FloatArray) -> IntArray:
            z = (between - self.mean[items]) / spread[items]
            return np.bincount(_histogram_bin(z[z > 0], n_bins), minlength=n_bins)

        batches = (self.map_chunks(pool, count_by_bin, self.permute_groups(batch, seed)) for batch in range(N_BATCHES))
        histogram = np.sum([np.sum(batch, axis=0) for batch in batches], axis=0)
        # Expected number of items at least as far above
        by_chance = histogram[::-1].cumsum()[::-1] / (N_BATCHES * PERMUTATIONS_PER_BATCH)
        order = np.argsort(-self.z, kind="stable")
        above = order[self.z[order] > 0]
        false = by_chance[
            _histogram_bin(self.z[above], n_bins)
        ]  # expected number of false discoveries among the first 1, 2, … items
        accepted = np.flatnonzero(false <= FALSE_DISCOVERY_RATE * np.arange(1, false.size + 1))
        return np.asarray(above[: int(accepted[-1]) + 1 if accepted.size else 0])


def _histogram_bin(z: FloatArray, n_bins: int) -> IntArray:
    return np.asarray(np.minimum(z * BINS_PER_SD, n_bins - 1).astype(np.int64))


def find_group_effects(
    rows: Annotations, posterior: FloatArray, disagree: BoolArray, columns: Mapping[str, tuple[tuple[str, ...], Any]],
    permutations: int, seed: int, pool: Threads,
) -> tuple[tuple[GroupEffect, ...], IntArray]:  # fmt: skip
    """Return the effects of columns in ascending order of p-values, and the index of the effect for each item (I,).

    The index refers to the column that explains the item; it is −1 for items that no column explains.
    """
    permutations = max(permutations, math.ceil(len(columns) / SIGNIFICANCE_LEVEL))
    tests = {
        name: _GroupTest(rows, posterior, disagree, group, len(groups)).test(permutations, seed, pool)
        for name, (groups, group) in columns.items()
    }
    p_values = holm_correction({name: test.p_value for name, test in tests.items()})
    effects: list[GroupEffect] = []
    group_index, best = np.full(rows.n_items, -1, np.int32), np.zeros(rows.n_items)
    for name in sorted(tests, key=lambda name: (p_values[name], -tests[name].effect)):
        column, items = tests[name], np.empty(0, np.int64)
        if p_values[name] <= SIGNIFICANCE_LEVEL:
            explained = column.find_explained_items(seed, pool)
            items = column.item[explained]
            better = column.z[explained] > best[items]
            group_index[items[better]], best[items[better]] = len(effects), column.z[explained][better]
        groups = columns[name][0]
        labels = np.bincount(column.row_group, minlength=len(groups))
        with np.errstate(invalid="ignore"):
            # NaN for a group without labels
            reliability = np.bincount(column.row_group, column.p_correct, len(groups)) / labels
        significant = p_values[name] <= SIGNIFICANCE_LEVEL
        effects.append(
            GroupEffect(name, groups, labels, reliability, column.effect, p_values[name], significant, items)
        )
    return tuple(effects), group_index
