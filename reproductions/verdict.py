"""Judge a paper's claims by what was found here: differences, their intervals, and a verdict.

A claim is about every one of its differences. That all of them are above 0 may be said where each interval is: no
correction is needed to say "and". That *some* are is said of those that Holm's correction leaves at p ≤ 0.05 among all
differences of the claim (Holm 1979): of twenty that are nothing, one interval is clear of 0 by chance.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

CONFIDENCE = 0.95


BySeed = Mapping[int, float]
"""Seed → value."""
Get = Callable[[str, str, str, str], BySeed | None]
"""Table, data, condition, metric → stored values by seed."""


@dataclass(frozen=True)
class Difference:
    """Mean of paired differences, with interval and p by Student's t; fewer than two pairs have neither."""

    mean: float
    low: float
    high: float
    n: int
    p: float = 1.0  # two-sided, that it is 0

    def __str__(self) -> str:
        if self.n < 2:
            return f"{self.mean:+.3f} (one seed)"
        return f"{self.mean:+.3f} ({self.low:+.3f} to {self.high:+.3f}, {self.n} seeds)"


@dataclass(frozen=True)
class Claim:
    """A paper's claim, and our verdict."""

    text: str
    verdict: str  # "holds", "does not hold", "the other way round", "cannot be told"
    differences: dict[str, Difference]


def paired(first: BySeed, second: BySeed, *, scale: float = 1.0) -> Difference:
    """Difference first − second over the seeds that both have: a stopped run or a failed seed leaves gaps."""
    return mean_of([scale * first[seed] - scale * second[seed] for seed in sorted(first.keys() & second.keys())])


def compare_conditions(
    get: Get, table: str, sets: Sequence[str], better: str, worse: str, metric: str,
    *, of: str = "", lower: bool = False, scale: float = 1.0,
) -> dict[str, Difference]:  # fmt: skip
    """Difference between two conditions on each data set that has both.

    The other one is of table `of`, where that is named; `lower`: where that is better.
    """
    found = {}
    for name in sets:
        mine, theirs = get(table, name, better, metric), get(of or table, name, worse, metric)
        if mine and theirs:
            found[name] = paired(*((theirs, mine) if lower else (mine, theirs)), scale=scale)
    return found


def within(text: str, differences: dict[str, Difference], margin: float) -> Claim:
    """Judge a claim that two things are the same: every interval is within the margin."""
    each = differences.values()
    if each and all(d.low > -margin and d.high < margin for d in each):
        verdict = "holds"
    elif any(d.low > margin or d.high < -margin for d in each):
        verdict = "does not hold"
    else:
        verdict = "cannot be told"
    return Claim(text, f"{verdict} (within {margin})", differences)


def mean_of(values: Sequence[float] | np.ndarray[tuple[int], np.dtype[np.float64]]) -> Difference:
    """Mean of values, with interval and p."""
    each = np.asarray(values, float)
    mean = float(each.mean()) if each.size else math.nan
    if each.size < 2:
        return Difference(mean, -math.inf, math.inf, each.size)
    error, freedom = float(each.std(ddof=1)) / math.sqrt(each.size), each.size - 1
    half = float(stats.t.ppf((1 + CONFIDENCE) / 2, freedom)) * error
    p = 2 * float(stats.t.sf(abs(mean) / error, freedom)) if error else float(mean == 0)
    return Difference(mean, mean - half, mean + half, each.size, p)


def significant(differences: Sequence[Difference]) -> list[bool]:
    """Holm test at 5 %: True where a difference is significant among all of these."""
    found, order = [False] * len(differences), sorted(range(len(differences)), key=lambda at: differences[at].p)
    for step, at in enumerate(order):
        if differences[at].p > (1 - CONFIDENCE) / (len(order) - step):
            break
        found[at] = True
    return found


def judge(text: str, differences: dict[str, Difference]) -> Claim:
    """Judge a claim that every difference is above 0; differences without a pair are left out."""
    differences = {name: difference for name, difference in differences.items() if difference.n}
    each = list(differences.values())
    sides = [d.mean > 0 for d, clear in zip(each, significant(each), strict=True) if clear]
    above, below, n = sum(sides), len(sides) - sum(sides), len(each)
    if each and all(d.low > 0 for d in each):
        verdict = "holds"
    elif each and all(d.high < 0 for d in each):
        verdict = "the other way round"
    elif below:
        verdict = f"does not hold: {above} for it, {below} against it, {n - above - below} undecided"
    elif above:
        verdict = f"holds in part: {above} of {n}, the others undecided"
    else:
        verdict = "cannot be told"
    return Claim(text, verdict, differences)
