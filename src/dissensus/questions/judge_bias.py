"""Effects on LLM judges besides the truth: position, length, and answers of their own family.

    excess_ij = s_ij − mean of s_kj over items k of the same truth        s_ij = [j gives item i the second class]

over items with gold; with more than two classes, s_ij = [j errs]. The effect of a column is the difference of the
excess between items (or rows: a position may differ between judges) with one value and the others, or its slope per
standard deviation of a column of numbers. Intervals treat the rows of an item as dependent. A judge prefers itself if
its excess is larger on answers whose system is of its family (`questions.panel_review.family`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import stdtrit

from dissensus.common.types import BoolArray, FloatArray, IntArray
from dissensus.evaluation import Estimate
from dissensus.questions.panel_review import model_family
from dissensus.table.annotations import Annotations

MIN_ITEMS = 10  # on either side of a comparison
MAX_VALUES = 8  # of a column of names, the most frequent first


@dataclass(frozen=True)
class JudgeBias:
    """How much more often judges give the second class (or err) for a reason other than the truth."""

    column: str
    value: str  # "" for a column of numbers
    judge: str  # "" for all together
    items: int
    excess: Estimate


def judge_biases(
    table: Annotations, truth: FloatArray, known: IntArray, columns: Mapping[str, Sequence[Any]]
) -> Iterator[JudgeBias]:
    """Yield the effects of columns of the items (I,) or rows (N,) on the judges, by known items; truth (I, K)."""
    K = table.n_classes
    if table.kind == "numbers":
        return
    rows = np.flatnonzero(np.isin(table.item, known))
    item, judge = table.item[rows], table.annotator[rows]
    second = table.label[rows] == 1 if K == 2 else truth[item, table.label[rows]] == 0
    stratum = judge.astype(np.int64) * K + truth[item, :K].argmax(axis=1)
    excess = second - (np.bincount(stratum, second) / np.maximum(np.bincount(stratum), 1))[stratum]
    for name, given in columns.items():
        values: Any = np.array(list(given), object)
        values = values[rows] if values.size == len(table) != table.n_items else values[item]
        numbers = _numbers(values)
        if numbers is not None and np.unique(numbers[~np.isnan(numbers)]).size > 2:
            there = ~np.isnan(numbers)
            if np.unique(item[there]).size >= 2 * MIN_ITEMS:
                x = numbers[there] / numbers[there].std()
                yield JudgeBias(name, "", "", np.unique(item[there]).size, _slope(x, excess[there], item[there]))
            continue
        texts = np.array(["" if one is None else str(one) for one in values], object)
        kinds, count = np.unique(texts[texts != ""], return_counts=True)
        for value in kinds[np.argsort(-count, kind="stable")][:MAX_VALUES]:
            own = texts == value
            if _enough(item, own) and not (kinds.size == 2 and value == kinds[0]):
                found = _slope(own * 1.0, excess, item)
                yield JudgeBias(name, str(value), "", np.unique(item[own]).size, found)
        makers = {str(value): model_family(value) for value in kinds}
        maker = np.array([makers.get(one, "") for one in texts], object)
        for at in np.unique(judge):
            mine, own = judge == at, model_family(table.annotators[at])
            same = maker[mine] == own
            if _enough(item[mine], same):
                found = _slope(same * 1.0, excess[mine], item[mine])
                yield JudgeBias(name, own, str(table.annotators[at]), np.unique(item[mine][same]).size, found)


def _enough(item: IntArray, own: BoolArray) -> bool:
    """Return whether both sides of a comparison have enough items."""
    return min(np.unique(item[own]).size, np.unique(item[~own]).size) >= MIN_ITEMS


def _numbers(values: Any) -> FloatArray | None:
    try:
        return np.array([np.nan if one in (None, "") else float(one) for one in values])
    except (TypeError, ValueError):
        return None


def _slope(x: FloatArray, y: FloatArray, item: IntArray) -> Estimate:
    """Return the slope of y on x over rows, the difference of two means if x is 0 or 1; rows of an item may depend."""
    x = x - x.mean()
    slope = float(x @ y / (x @ x))
    own = np.bincount(item, x * (y - y.mean() - slope * x))  # sums per item (Liang & Zeger 1986)
    n = np.unique(item).size
    half = float(stdtrit(n - 2, 0.975) * np.sqrt(own @ own * n / (n - 1)) / (x @ x))
    return Estimate(slope, slope - half, slope + half)
