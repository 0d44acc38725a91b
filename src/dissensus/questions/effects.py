"""What judges react to besides the truth: position, length, and answers of their own family.

    excess_ij = s_ij − mean of s_kj over items k of the same truth        s_ij = [j says the second class of item i]

over items with gold; of more than two classes, s_ij = [j errs]. Its difference between items with one value of a column
and the others, or its slope per standard deviation of a column of numbers, is what the column does to the judges beyond
the truth. A judge prefers itself where its excess is larger on answers whose system is of its family
(`questions.panel.family`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dissensus.common.types import FloatArray, IntArray
from dissensus.evaluation import Estimate
from dissensus.questions.panel import family
from dissensus.table.annotations import Annotations

MIN_ITEMS = 10  # on either side of a comparison
MAX_VALUES = 8  # of a column of names, the most frequent first


@dataclass(frozen=True)
class Effect:
    """How much more often judges say so because of something that is not the truth."""

    column: str
    value: str  # "" for a column of numbers
    judge: str  # "" for all together
    items: int
    excess: Estimate


def item_effects(
    table: Annotations, truth: FloatArray, known: IntArray, columns: Mapping[str, Sequence[Any]], level: float = 0.95
) -> Iterator[Effect]:
    """Effects of columns (I,) of the items on what judges say, by known items; truth (I, K)."""
    K = table.n_classes
    if table.kind == "numbers":
        return
    rows = np.flatnonzero(np.isin(table.item, known))
    item = table.item[rows]
    said = table.label[rows] == 1 if K == 2 else truth[item, table.label[rows]] == 0
    stratum = table.annotator[rows].astype(np.int64) * K + truth[item, :K].argmax(axis=1)
    excess = said - (np.bincount(stratum, said) / np.maximum(np.bincount(stratum), 1))[stratum]
    n = np.bincount(item, minlength=table.n_items)
    mean = np.bincount(item, excess, table.n_items) / np.maximum(n, 1)
    some = np.flatnonzero(n)
    for name, given in columns.items():
        values: Any = np.array(list(given), object)[some]
        numbers = _numbers(values)
        if numbers is not None and np.unique(numbers).size > 2:
            there = ~np.isnan(numbers)
            if there.sum() >= 2 * MIN_ITEMS and numbers[there].std() > 0:
                x = (numbers[there] - numbers[there].mean()) / numbers[there].std()
                yield Effect(name, "", "", int(there.sum()), _slope(x, mean[some][there], level))
            continue
        texts = np.array(["" if one is None else str(one) for one in values], object)
        kinds, count = np.unique(texts[texts != ""], return_counts=True)
        for value in kinds[np.argsort(-count, kind="stable")][:MAX_VALUES]:
            own = texts == value
            if min(own.sum(), (~own).sum()) >= MIN_ITEMS and not (kinds.size == 2 and value == kinds[0]):
                yield Effect(
                    name, str(value), "", int(own.sum()), _apart(mean[some][own], mean[some][~own], level)
                )  # fmt: skip
        makers = {str(value): family(value) for value in kinds}
        maker = np.array([makers.get(one, "") for one in texts], object)
        of_item = np.full(table.n_items, "", object)
        of_item[some] = maker
        for judge, judged in enumerate(table.annotators):
            mine = np.flatnonzero(table.annotator[rows] == judge)
            same = of_item[item[mine]] == family(judged)
            if min(same.sum(), (~same).sum()) >= MIN_ITEMS:
                yield Effect(
                    name, family(judged), str(judged), int(same.sum()),
                    _apart(excess[mine][same], excess[mine][~same], level),
                )  # fmt: skip


def _numbers(values: Any) -> FloatArray | None:
    try:
        return np.array([np.nan if one in (None, "") else float(one) for one in values])
    except (TypeError, ValueError):
        return None


def _apart(one: FloatArray, other: FloatArray, level: float) -> Estimate:
    """Difference of two means, with Welch's standard error."""
    error = np.sqrt(one.var(ddof=1) / one.size + other.var(ddof=1) / other.size)
    return _around(float(one.mean() - other.mean()), float(error), min(one.size, other.size) - 1, level)


def _slope(x: FloatArray, y: FloatArray, level: float) -> Estimate:
    slope = float(x @ (y - y.mean()) / (x @ x))
    left = y - y.mean() - slope * x
    return _around(slope, float(np.sqrt((left**2 * x**2).sum()) / (x @ x)), x.size - 2, level)


def _around(value: float, error: float, freedom: int, level: float) -> Estimate:
    from scipy.stats import t

    half = float(t.ppf((1 + level) / 2, freedom)) * error
    return Estimate(value, value - half, value + half, level)
