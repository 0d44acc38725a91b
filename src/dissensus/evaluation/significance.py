"""Whether two methods differ by more than chance on the same items."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from dissensus.common.parameters import check_argument
from dissensus.evaluation._check import numbers
from dissensus.evaluation.intervals import Estimate, bootstrap_sums
from dissensus.exceptions import DataError


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
    first, second = numbers(first, "first"), numbers(second, "second")
    if first.size != second.size:
        raise DataError(f"first has {first.size:,} items, second has {second.size:,}; they must be the same items.")
    sums = bootstrap_sums(first - second, resamples=resamples, **bootstrap)
    slack = 1e-12 * first.size * np.abs(first - second).max()  # sums of equal terms may differ in the last digit
    extreme = int((np.abs(sums.resampled - sums.whole) >= np.abs(sums.whole) - slack).sum())
    return Difference(sums.means(first.size, level)[0], (1 + extreme) / (1 + resamples))


def holm(p_values: dict[str, float]) -> dict[str, float]:
    """Correct p-values for their number by Holm's method (1979)."""
    result, largest = {}, 0.0
    for rank, name in enumerate(sorted(p_values, key=p_values.__getitem__)):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[name]))
        result[name] = largest
    return result
