"""Whether two methods differ by more than chance, on the same items or in two samples. The tests are SciPy's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from dissensus.common.parameters import check_argument
from dissensus.common.types import FloatArray
from dissensus.evaluation._check import numbers
from dissensus.evaluation.intervals import Estimate, bootstrap_sums
from dissensus.exceptions import DataError

Alternative = Literal["two-sided", "less", "greater"]

EXACT_BELOW = 25  # items on which two methods differ, below which chi-square is not to be trusted


@dataclass(frozen=True)
class Test:
    """The outcome of a test: its statistic, and the chance of one as extreme if there were no difference."""

    __test__ = False  # not for pytest to collect

    statistic: float
    p_value: float


@dataclass(frozen=True)
class Difference:
    """The mean of `first − second` over items with its interval, and the chance of one as large if there were none."""

    mean: Estimate
    p_value: float


def paired_bootstrap(
    first: Any, second: Any, *, level: float = 0.95, resamples: int = 1000, **bootstrap: Any
) -> Difference:
    """Test whether the means of `first` and `second` over items differ.

    Parameters
    ----------
    first, second : (I,)
        Scores of the same items by two methods: right or not, log loss, held-out log-likelihood, ….
    level, resamples, **bootstrap
        `level`, `resamples`, `seed` and `on_step` as in `bootstrap`.

    Returns
    -------
    Difference
        `p_value` is two-sided: the share of resamples whose mean lies at least as far from the mean found as that lies
        from 0, the one found counted among them (Efron & Tibshirani 1993, chapter 16: resampling under the null
        hypothesis, by shifting). It cannot be below 1 / (resamples + 1).

    >>> found = paired_bootstrap(np.repeat([1, 0], [80, 20]), np.repeat([1, 0], [70, 30]))
    >>> print(found.mean, round(found.p_value, 3))
    0.100 (95 % interval 0.050 to 0.170) 0.004
    """
    check_argument("resamples", resamples, int, low=1)
    first, second = _paired(first, second)
    sums = bootstrap_sums(first - second, resamples=resamples, **bootstrap)
    slack = 1e-12 * first.size * np.abs(first - second).max()  # sums of equal terms may differ in the last digit
    extreme = int((np.abs(sums.resampled - sums.whole) >= np.abs(sums.whole) - slack).sum())
    return Difference(sums.means(first.size, level)[0], (1 + extreme) / (1 + resamples))


def mcnemar(first: Any, second: Any, *, exact: bool | None = None, correction: bool = True) -> Test:
    """McNemar's test (1947): whether, of the items that only one of two methods gets right, both get half.

    Parameters
    ----------
    first, second : (I,) bool
        Whether each method is right, on the same items.
    exact : bool, optional
        True: the binomial test; its statistic is the smaller of the two counts. False: chi-square with one degree of
        freedom. Left out: exact where the methods differ on fewer than 25 items.
    correction : bool
        Continuity correction of chi-square (Edwards 1948).

    >>> round(mcnemar(np.repeat([1, 0], [80, 20]), np.repeat([1, 0], [70, 30])).p_value, 4)
    0.002
    """
    first, second = _paired(first, second)
    if not (np.isin(first, (0, 1)).all() and np.isin(second, (0, 1)).all()):
        raise DataError("first and second must say of every item whether it is right: True or False, 1 or 0.")
    only_first, only_second = int((first > second).sum()), int((second > first).sum())
    n = only_first + only_second
    if exact is None:
        exact = n < EXACT_BELOW
    if n == 0:
        return Test(0.0, 1.0)
    from scipy.stats import binomtest, chi2

    if exact:
        return Test(float(min(only_first, only_second)), float(binomtest(only_first, n, 0.5).pvalue))
    statistic = (abs(only_first - only_second) - (1 if correction else 0)) ** 2 / n
    return Test(statistic, float(chi2.sf(statistic, 1)))


def _paired(first: Any, second: Any) -> tuple[FloatArray, FloatArray]:
    first, second = numbers(first, "first"), numbers(second, "second")
    if first.size != second.size:
        raise DataError(f"first has {first.size:,} items, second has {second.size:,}; they must be the same items.")
    return first, second


def mann_whitney(x: Any, y: Any, *, alternative: Alternative = "two-sided") -> Test:
    """Mann-Whitney's U of two independent samples (m,), (n,): whether one tends to be larger; through SciPy.

    The statistic is U of `x`; U / (m n) is the chance that a value of `x` exceeds one of `y`, ties counting half.

    >>> round(mann_whitney([1, 2, 3, 4], [3, 4, 5, 6, 7]).p_value, 3)
    0.064
    """
    check_argument("alternative", alternative, Alternative)
    x, y = numbers(x, "x"), numbers(y, "y")
    if x.size == 0 or y.size == 0:
        raise DataError(f"x has {x.size} values and y {y.size}; both need some.")
    from scipy.stats import mannwhitneyu

    found = mannwhitneyu(x, y, alternative=alternative)
    return Test(float(found.statistic), float(found.pvalue))


def holm(p_values: dict[str, float]) -> dict[str, float]:
    """Correct p-values for their number by Holm's method (1979)."""
    result, largest = {}, 0.0
    for rank, name in enumerate(sorted(p_values, key=p_values.__getitem__)):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[name]))
        result[name] = largest
    return result
