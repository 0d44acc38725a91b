"""Groups of annotators that see items differently: which columns of their metadata matter, and for which items.

For an item with n labels, n_g of them by group g, n_gk of class k, and T = n − Σ_k n_k²/n:

    B_i = Σ_g Σ_k n_g (n_gk/n_g − n_k/n)² − T (groups there − 1)/(n − 1)                                            (4)

the between-group sum of squares less its mean if the labels are permuted among the item's annotators.
Σ_i B_i is compared with its values when annotators are permuted among the groups (the labels of one annotator move
together); `effect` is Σ_i B_i as a share of its maximum. If a column of metadata matters (Holm 1979), items are ranked
by the number of standard deviations of B_i above its own mean over these permutations. The number of items as far
above by chance, counted in permutations too, gives the false discovery rate (Tusher et al. 2001).
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

FALSE_DISCOVERIES = 0.05  # share of false discoveries among the items called a perspective
SIGNIFICANT = 0.01  # p-value of a column of metadata, after Holm
MAX_DISTINCT_NUMBERS = 12  # above which a column is cut into quantiles
QUANTILES = 4
BATCH = 50  # permutations at a time
BATCHES = 4  # batches by which the false discovery rate is estimated
MAX_BEATEN = 20  # larger values among permutations after which no more are needed (Besag & Clifford 1991)
STEPS_PER_SD = 100.0  # bins per standard deviation of the histogram of items above their mean
MAX_SD = 100  # standard deviations covered by the histogram
ROWS_AT_ONCE = 2**14  # rows per part, so that temporaries stay in the processor's cache


@dataclass(frozen=True, eq=False)
class GroupEffect:
    """How much groups of annotators, by one column of their metadata, differ in their labels of the same items."""

    column: str
    groups: tuple[str, ...]
    labels: IntArray  # (G,) rows on items whose labels disagree
    reliability: FloatArray  # (G,) share of these labels that are right by the posterior: errors may look like a view
    effect: float  # share of the disagreement that lies between groups, beyond chance: 0 none, 1 all
    p_value: float  # corrected for the number of columns
    significant: bool
    items: IntArray  # codes of the explained items, the strongest first


def read_metadata_groups(
    metadata: Any, table: Annotations, missing_as_group: bool
) -> dict[str, tuple[tuple[str, ...], IntArray]]:
    """Read metadata: column → names of its groups, and the group of each annotator of the table (A,), −1 unknown."""
    by_column = isinstance(metadata, Mapping)
    there = list(metadata) if by_column else column_names(metadata)
    key = guess_column("annotator", there)
    if key is None:
        raise missing_column_error("annotator", there)
    data = metadata if by_column else to_arrow(metadata, there)
    columns = {name: naming.to_column(data[name], name) for name in there}
    for name, column in columns.items():
        if len(column) != len(columns[key]):
            raise UnequalMetadataColumns(column=name, rows=len(column), key=key, expected=len(columns[key]))
    people, code = naming.encode_column(columns.pop(key), key)
    if people.size < code.size:
        twice = people[np.flatnonzero(np.bincount(code) > 1)[0]]
        raise RepeatedAnnotator(annotator=twice)
    at = naming.match_names(table.annotators, people, "annotators")
    known = at >= 0
    if not known.any():
        raise UnknownAnnotators(n=people.size, annotator=people[0], table_annotator=table.annotators[0])
    row = np.argsort(code)[at[known]]
    found = {}
    for name, column in columns.items():
        group = np.full(table.n_annotators, -1, np.int32)
        groups, group[known] = _sort_into_groups(column, row)
        if missing_as_group and (group < 0).any():
            group[group < 0] = len(groups)
            groups = (*groups, "(missing)")
        if 1 < len(groups) <= np.count_nonzero(group >= 0) / 2:
            found[str(name)] = groups, group
    return found


def _sort_into_groups(column: Any, rows: IntArray) -> tuple[tuple[str, ...], IntArray]:
    """Return the names of the groups in these rows of a column, and the group of each row, −1 if missing."""
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
    distinct, place = np.unique(numbers, return_inverse=True)
    names, part = [f"{value:g}" for value in distinct], np.arange(distinct.size)
    if distinct.size > MAX_DISTINCT_NUMBERS:
        edges = np.unique(np.quantile(numbers, np.arange(1, QUANTILES) / QUANTILES, method="inverted_cdf"))
        part = np.unique(np.searchsorted(edges, distinct), return_inverse=True)[1]  # a value on an edge belongs below
        names = [f"{distinct[part == p][0]:g} … {distinct[part == p][-1]:g}" for p in range(part.max() + 1)]
    group[~missing] = part[place]
    return tuple(names), group


class _Column:
    """Rows that can show a difference between groups: of items whose labels disagree, by annotators with a group."""

    def __init__(self, rows: Annotations, posterior: FloatArray, disagree: BoolArray, group: IntArray, n_groups: int):
        keep = (group[rows.annotator] >= 0) & disagree[rows.item]
        named = np.unique(rows.item[keep] * np.int64(rows.n_classes) + rows.label[keep])
        keep &= (np.bincount(named // rows.n_classes, minlength=rows.n_items) > 1)[rows.item]  # still differing labels
        people, annotator = np.unique(rows.annotator[keep], return_inverse=True)
        self.item, place = np.unique(rows.item[keep], return_inverse=True)  # (J,) code of each
        self.group, self.n_groups = group[people], n_groups  # (people,)
        self.of_row = self.group[annotator]  # (M,)
        self.right = posterior[rows.item[keep], rows.label[keep]]  # (M,) probability that the label is right
        cells, cell = np.unique(place * rows.n_classes + rows.label[keep], return_inverse=True)  # item and label
        self.counts = csr_array((np.ones(cell.size), (cell, annotator)), shape=(cells.size, people.size))
        self.ptr = np.searchsorted(cells, np.arange(self.item.size + 1) * rows.n_classes)  # cells of each item
        self.n = np.bincount(place, minlength=self.item.size)  # (J,)
        self.within = self.n - sum_ranges(self.counts.sum(axis=1) ** 2, self.ptr) / self.n  # T of Eq. 4

    def between(self, groups: IntArray, start: int, end: int) -> tuple[FloatArray, FloatArray]:
        """Return Eq. 4 and its maximum (P, items) of items start … end − 1 under P permuted groups (P, annotators)."""
        P, G = len(groups), self.n_groups
        dealt = (groups.T[:, :, None] == np.arange(G)).reshape(-1, P * G).astype(np.float64)
        count = self.counts[self.ptr[start] : self.ptr[end]] @ dealt
        ptr = self.ptr[start : end + 1] - self.ptr[start]
        size, squares = sum_ranges(count, ptr), sum_ranges(count**2, ptr)
        explained = (squares / np.maximum(size, 1)).reshape(-1, P, G).sum(axis=2).T
        there = (size > 0).reshape(-1, P, G).sum(axis=2).T
        n, within = self.n[start:end], self.within[start:end]
        by_chance = (there - 1) / (n - 1) * within
        found = (explained - (n - within) - by_chance, within - by_chance)
        return tuple(np.where(there > 1, one, 0.0) for one in found)  # type: ignore[return-value]

    def in_parts(self, pool: Threads, work: Callable[[slice, FloatArray], T], groups: IntArray) -> list[T]:
        """Apply `work` to Eq. 4 under P permuted groups, some items (a slice) at a time."""
        parts = balanced_ranges(self.ptr, max(pool.threads, self.of_row.size // ROWS_AT_ONCE))
        return pool.map(lambda _, start, end: work(slice(start, end), self.between(groups, start, end)[0]), parts)

    def permuted(self, number: int, seed: int) -> IntArray:
        """Return groups permuted among the annotators (BATCH, annotators), the same for the same batch number."""
        rng = np.random.default_rng([seed, number])
        return rng.permuted(np.tile(self.group, (BATCH, 1)), axis=1)

    def test(self, permutations: int, seed: int, pool: Threads) -> Self:
        """Compute p-value and effect of the column, and mean and SD of each item over permutations (J,)."""
        (found,), (most_of_items,) = self.between(self.group[None], 0, self.item.size)
        total, most = found.sum(), most_of_items.sum()
        least = total - 1e-9 * max(1.0, most)  # tolerance for the same sum in another order
        moments = np.zeros((2, self.item.size))
        done = beaten = 0

        def add(part: slice, found: FloatArray) -> FloatArray:
            moments[:, part] += found.sum(axis=0), (found**2).sum(axis=0)
            return np.asarray(found.sum(axis=1))

        while done < permutations and beaten < MAX_BEATEN:
            groups = self.permuted(done // BATCH, seed)[: permutations - done]
            beaten += int((np.sum(self.in_parts(pool, add, groups), axis=0) >= least).sum())
            done += len(groups)
        self.mean, squares = moments / done
        variance = squares - self.mean**2
        self.sd = np.sqrt(np.where(variance > 1e-9, variance, 0))
        self.z = np.divide(found - self.mean, self.sd, out=np.zeros_like(self.mean), where=self.sd > 0)  # (J,)
        self.p_value, self.effect = (1 + beaten) / (1 + done), float(total / most) if most > 0 else 0.0
        return self

    def explained(self, seed: int, pool: Threads) -> IntArray:
        """Return the items (indices into `item`) above the threshold of false discoveries, the best first."""
        steps = round(STEPS_PER_SD * MAX_SD)
        spread = np.where(self.sd > 0, self.sd, np.inf)

        def count(part: slice, found: FloatArray) -> IntArray:
            z = (found - self.mean[part]) / spread[part]
            return np.bincount(_step(z[z > 0], steps), minlength=steps)

        batches = (self.in_parts(pool, count, self.permuted(batch, seed)) for batch in range(BATCHES))
        histogram = np.sum([np.sum(one, axis=0) for one in batches], axis=0)
        by_chance = histogram[::-1].cumsum()[::-1] / (BATCHES * BATCH)  # items that lie so far above, or more
        order = np.argsort(-self.z, kind="stable")
        above = order[self.z[order] > 0]
        false = by_chance[_step(self.z[above], steps)]  # expected of the first 1, 2, …
        good = np.flatnonzero(false <= FALSE_DISCOVERIES * np.arange(1, false.size + 1))
        return np.asarray(above[: int(good[-1]) + 1 if good.size else 0])


def _step(z: FloatArray, steps: int) -> IntArray:
    return np.asarray(np.minimum(z * STEPS_PER_SD, steps - 1).astype(np.int64))


def find_group_effects(
    rows: Annotations, posterior: FloatArray, disagree: BoolArray, columns: Mapping[str, tuple[tuple[str, ...], Any]],
    permutations: int, seed: int, pool: Threads,
) -> tuple[tuple[GroupEffect, ...], IntArray]:  # fmt: skip
    """Return the effects of columns, the most significant first, and which one explains each item (I,), −1 if none."""
    permutations = max(permutations, math.ceil(len(columns) / SIGNIFICANT))
    tests = {
        name: _Column(rows, posterior, disagree, group, len(groups)).test(permutations, seed, pool)
        for name, (groups, group) in columns.items()
    }
    p_values = holm_correction({name: test.p_value for name, test in tests.items()})
    effects: list[GroupEffect] = []
    by_group, best = np.full(rows.n_items, -1, np.int32), np.zeros(rows.n_items)
    for name in sorted(tests, key=lambda name: (p_values[name], -tests[name].effect)):
        column, items = tests[name], np.empty(0, np.int64)
        if p_values[name] <= SIGNIFICANT:
            at = column.explained(seed, pool)
            items = column.item[at]
            better = column.z[at] > best[items]
            by_group[items[better]], best[items[better]] = len(effects), column.z[at][better]
        groups = columns[name][0]
        labels = np.bincount(column.of_row, minlength=len(groups))
        with np.errstate(invalid="ignore"):
            right = np.bincount(column.of_row, column.right, len(groups)) / labels  # NaN in a group without labels
        significant = p_values[name] <= SIGNIFICANT
        effects.append(GroupEffect(name, groups, labels, right, column.effect, p_values[name], significant, items))
    return tuple(effects), by_group
