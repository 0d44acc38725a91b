"""A paper's claims, judged by what was found here: a difference, its interval, and a word for it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

LEVEL = 0.95


@dataclass(frozen=True)
class Claim:
    """What a paper says, and what is to be said of it."""

    text: str
    verdict: str  # "holds", "does not hold", "the other way round", "cannot be told"
    why: str  # the figures


BySeed = Mapping[int, float]
"""Seed → value."""
Get = Callable[[str, str, str, str], BySeed | None]
"""Table, data, condition, metric → the values of all seeds that are there."""


@dataclass(frozen=True)
class Difference:
    """The mean of paired differences, with an interval by Student's t; of one pair, or none, there is none."""

    mean: float
    low: float
    high: float
    n: int

    def __str__(self) -> str:
        if self.n < 2:
            return f"{self.mean:+.3f} (one seed)"
        return f"{self.mean:+.3f} ({self.low:+.3f} to {self.high:+.3f}, {self.n} seeds)"


def paired(first: BySeed, second: BySeed, *, scale: float = 1.0) -> Difference:
    """First less second, of the seeds that both have: a run that was stopped, or a seed that failed, leaves gaps."""
    return mean_of([scale * first[seed] - scale * second[seed] for seed in sorted(first.keys() & second.keys())])


def ahead(
    get: Get, table: str, sets: Sequence[str], better: str, worse: str, metric: str, *, lower: bool = False
) -> dict[str, Difference]:
    """By how much a condition is better than another on each data set that has both; `lower`: where that is better."""
    found = {}
    for name in sets:
        mine, theirs = (get(table, name, condition, metric) for condition in (better, worse))
        if mine and theirs:
            found[name] = paired(theirs, mine) if lower else paired(mine, theirs)
    return found


def mean_of(values: Sequence[float] | np.ndarray[tuple[int], np.dtype[np.float64]]) -> Difference:
    """The mean, with an interval."""
    each = np.asarray(values, float)
    mean = float(each.mean()) if each.size else math.nan
    if each.size < 2:
        return Difference(mean, -math.inf, math.inf, each.size)
    half = float(stats.t.ppf((1 + LEVEL) / 2, each.size - 1) * each.std(ddof=1) / math.sqrt(each.size))
    return Difference(mean, mean - half, mean + half, each.size)


def judge(text: str, differences: dict[str, Difference]) -> Claim:
    """A claim that says that every one of these differences is above 0; those of no pair say nothing."""
    differences = {name: difference for name, difference in differences.items() if difference.n}
    if not differences:
        return Claim(text, "cannot be told", "nothing was run that it is about.")
    figures = "; ".join(f"{name} {difference}" for name, difference in differences.items())
    sure = [d for d in differences.values() if d.low > 0]
    against = [d for d in differences.values() if d.high < 0]
    if len(sure) == len(differences):
        verdict = "holds"
    elif len(against) == len(differences):
        verdict = "the other way round"
    elif against:
        verdict = f"does not hold: {len(sure)} for it, {len(against)} against it, of {len(differences)}"
    elif sure:
        verdict = f"holds in part: {len(sure)} of {len(differences)}"
    else:
        verdict = "cannot be told"
    return Claim(text, verdict, figures)
