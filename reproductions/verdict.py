"""Test a paper's claims on our results: differences, their intervals, and a verdict.

A claim is about all of its differences. It holds if every interval is above 0; a conjunction needs no correction for
multiple tests. It holds *in part* if some differences are significant at p ≤ 0.05 after Holm's correction over all
differences of the claim (Holm 1979), because one in twenty intervals excludes 0 by chance.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

CONFIDENCE = 0.95


ValuesBySeed = Mapping[int, float]
"""Seed → value."""
GetValues = Callable[[str, str, str, str], ValuesBySeed | None]
"""Table, data, condition, metric → stored values by seed."""


@dataclass(frozen=True)
class PairedDifference:
    """Mean of paired differences, with interval and p by Student's t; fewer than two pairs have neither."""

    mean: float
    low: float
    high: float
    n: int
    p: float = 1.0  # Two-sided p-value of a difference of 0.

    def __str__(self) -> str:
        if self.n < 2:
            return f"{self.mean:+.3f} (one seed)"
        return f"{self.mean:+.3f} ({self.low:+.3f} to {self.high:+.3f}, {self.n} seeds)"


@dataclass(frozen=True)
class Claim:
    """A paper's claim, and our verdict."""

    text: str
    verdict: str  # "holds", "does not hold", "the opposite holds", "undecided"
    differences: dict[str, PairedDifference]


def paired(first: ValuesBySeed, second: ValuesBySeed, *, scale: float = 1.0) -> PairedDifference:
    """Return the difference first − second over the seeds that both have; failed seeds leave gaps."""
    return estimate_mean([scale * first[seed] - scale * second[seed] for seed in sorted(first.keys() & second.keys())])


def compare_conditions(
    get: GetValues, table: str, sets: Sequence[str], better: str, worse: str, metric: str,
    *, of: str = "", lower: bool = False, scale: float = 1.0,
) -> dict[str, PairedDifference]:  # fmt: skip
    """Return the difference between two conditions on each data set that has both.

    The condition `worse` is of table `of`, if it is given. With `lower`, lower values are better.
    """
    found = {}
    for name in sets:
        mine, theirs = get(table, name, better, metric), get(of or table, name, worse, metric)
        if mine and theirs:
            found[name] = paired(*((theirs, mine) if lower else (mine, theirs)), scale=scale)
    return found


def assess_equality(text: str, differences: dict[str, PairedDifference], margin: float) -> Claim:
    """Test a claim of equality: it holds if every interval is within the margin."""
    each = differences.values()
    if each and all(d.low > -margin and d.high < margin for d in each):
        verdict = "holds"
    elif any(d.low > margin or d.high < -margin for d in each):
        verdict = "does not hold"
    else:
        verdict = "undecided"
    return Claim(text, f"{verdict} (within {margin})", differences)


def estimate_mean(values: Sequence[float] | np.ndarray[tuple[int], np.dtype[np.float64]]) -> PairedDifference:
    """Return the mean of values, with interval and p-value."""
    each = np.asarray(values, float)
    mean = float(each.mean()) if each.size else math.nan
    if each.size < 2:
        return PairedDifference(mean, -math.inf, math.inf, each.size)
    error, freedom = float(each.std(ddof=1)) / math.sqrt(each.size), each.size - 1
    half = float(stats.t.ppf((1 + CONFIDENCE) / 2, freedom)) * error
    p = 2 * float(stats.t.sf(abs(mean) / error, freedom)) if error else float(mean == 0)
    return PairedDifference(mean, mean - half, mean + half, each.size, p)


def significant_by_holm(differences: Sequence[PairedDifference]) -> list[bool]:
    """Return True for each difference that is significant by Holm's test at 5 % over all of them."""
    found, order = [False] * len(differences), sorted(range(len(differences)), key=lambda at: differences[at].p)
    for step, at in enumerate(order):
        if differences[at].p > (1 - CONFIDENCE) / (len(order) - step):
            break
        found[at] = True
    return found


def assess(text: str, differences: dict[str, PairedDifference]) -> Claim:
    """Test a claim that every difference is above 0; differences without a pair are skipped."""
    differences = {name: difference for name, difference in differences.items() if difference.n}
    each = list(differences.values())
    sides = [d.mean > 0 for d, clear in zip(each, significant_by_holm(each), strict=True) if clear]
    above, below, n = sum(sides), len(sides) - sum(sides), len(each)
    if each and all(d.low > 0 for d in each):
        verdict = "holds"
    elif each and all(d.high < 0 for d in each):
        verdict = "the opposite holds"
    elif below:
        verdict = f"does not hold: {above} for it, {below} against it, {n - above - below} undecided"
    elif above:
        verdict = f"holds in part: {above} of {n}, the others undecided"
    else:
        verdict = "undecided"
    return Claim(text, verdict, differences)
