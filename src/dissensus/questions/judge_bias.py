"""Estimate biases of LLM judges: effects of position, length and model family that the truth does not explain.

    excess_ij = s_ij − mean of s_kj over items k with the same truth        s_ij = [j gives item i the second class]

over items with gold; with more than two classes, s_ij = [j errs]. The effect of a column is the difference between the
excess of items with one value and the excess of the other items. Columns may also describe rows, for example a position
that differs between judges. For a column of numbers, the effect is the slope per standard deviation. Intervals treat
the rows of an item as dependent. A judge prefers its own family if its excess is larger on answers by systems of this
family (`questions.panel_review.find_model_family`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import stdtrit

from dissensus.common.types import BoolArray, FloatArray, IntArray
from dissensus.evaluation import Estimate
from dissensus.questions.panel_review import find_model_family
from dissensus.table.annotations import Annotations

MIN_ITEMS_PER_SIDE = 10  # minimum number of items on each side of a comparison
MAX_COMPARED_VALUES = 8  # maximum number of compared values of a column of names; they are the most frequent ones


@dataclass(frozen=True)
class JudgeBias:
    """An increase in how often judges give the second class (or err) that the truth does not explain."""

    column: str
    value: str  # "" for a column of numbers
    judge: str  # "" for all judges together
    items: int
    excess: Estimate


def estimate_judge_biases(
    table: Annotations, truth: FloatArray, known: IntArray, columns: Mapping[str, Sequence[Any]]
) -> Iterator[JudgeBias]:
    """Yield the effects on the judges of columns that describe items (I,) or rows (N,), estimated on gold items.

    `truth` (I, K) marks the gold class of the items `known`.
    """
    K = table.n_classes
    if table.kind == "numbers":
        return
    rows = np.flatnonzero(np.isin(table.item, known))
    item, judge = table.item[rows], table.annotator[rows]
    second = table.label[rows] == 1 if K == 2 else truth[item, table.label[rows]] == 0
    stratum = judge.astype(np.int64) * K + truth[item, :K].argmax(axis=1)
    excess = second - (np.bincount(stratum, second) / np.maximum(np.bincount(stratum), 1))[stratum]
    for name, column in columns.items():
        values: Any = np.array(list(column), object)
        values = values[rows] if values.size == len(table) != table.n_items else values[item]
        numbers = _to_numbers(values)
        if numbers is not None and np.unique(numbers[~np.isnan(numbers)]).size > 2:
            yield from _effect_of_numbers(name, numbers, excess, item)
        else:
            yield from _effects_of_values(name, values, excess, item, judge, table)


def _effect_of_numbers(name: str, numbers: FloatArray, excess: FloatArray, item: IntArray) -> Iterator[JudgeBias]:
    """Yield the effect of an increase of the numbers by one standard deviation."""
    present = ~np.isnan(numbers)
    n_items = np.unique(item[present]).size
    if n_items >= 2 * MIN_ITEMS_PER_SIDE:
        x = numbers[present] / numbers[present].std()
        yield JudgeBias(name, "", "", n_items, _estimate_slope(x, excess[present], item[present]))


def _effects_of_values(
    name: str, values: Any, excess: FloatArray, item: IntArray, judge: IntArray, table: Annotations
) -> Iterator[JudgeBias]:
    """Yield the effect of each frequent value, and of values that name the family of a judge."""
    texts = np.array(["" if value is None else str(value) for value in values], object)
    distinct, count = np.unique(texts[texts != ""], return_counts=True)
    for value in distinct[np.argsort(-count, kind="stable")][:MAX_COMPARED_VALUES]:
        has_value = texts == value
        if _has_enough_items(item, has_value) and not (distinct.size == 2 and value == distinct[0]):
            slope = _estimate_slope(has_value * 1.0, excess, item)
            yield JudgeBias(name, str(value), "", np.unique(item[has_value]).size, slope)
    families = {str(value): find_model_family(value) for value in distinct}
    family = np.array([families.get(text, "") for text in texts], object)
    for code in np.unique(judge):
        by_judge, own = judge == code, find_model_family(table.annotators[code])
        same = family[by_judge] == own
        if _has_enough_items(item[by_judge], same):
            slope = _estimate_slope(same * 1.0, excess[by_judge], item[by_judge])
            n_items = np.unique(item[by_judge][same]).size
            yield JudgeBias(name, own, str(table.annotators[code]), n_items, slope)


def _has_enough_items(item: IntArray, mask: BoolArray) -> bool:
    """Return whether both sides of a comparison have enough items."""
    return min(np.unique(item[mask]).size, np.unique(item[~mask]).size) >= MIN_ITEMS_PER_SIDE


def _to_numbers(values: Any) -> FloatArray | None:
    try:
        return np.array([np.nan if value in (None, "") else float(value) for value in values])
    except (TypeError, ValueError):
        return None


def _estimate_slope(x: FloatArray, y: FloatArray, item: IntArray) -> Estimate:
    """Return the slope of y on x over rows; if x is 0 or 1, the slope is the difference of two means.

    The interval treats the rows of an item as dependent (Liang & Zeger 1986).
    """
    x = x - x.mean()
    slope = float(x @ y / (x @ x))
    item_sums = np.bincount(item, x * (y - y.mean() - slope * x))
    n = np.unique(item).size
    half_width = float(stdtrit(n - 2, 0.975) * np.sqrt(item_sums @ item_sums * n / (n - 1)) / (x @ x))
    return Estimate(slope, slope - half_width, slope + half_width)
