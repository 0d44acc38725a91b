"""Intervals and tests by bootstrap over items (Efron & Tibshirani 1993), for functions of sums over items.

A mean, a ratio or an agreement coefficient is a function of sums of a few statistics per item. Therefore a resample
costs one pass over the items, and several statistics share the same resamples (`kernels.resample`).
`scipy.stats.bootstrap` copies the items for every resample, and its intervals for a share need whole numbers of trials.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.sparse import csr_array, issparse
from scipy.special import ndtri

from dissensus.common.parameters import check_argument
from dissensus.common.types import FloatArray, OnStep
from dissensus.compute.engines.local import thread_count
from dissensus.compute.kernels.resample import BLOCK_ITEMS, RESAMPLE_LANES, add_sums
from dissensus.evaluation._check import check_finite, check_lengths, check_numbers
from dissensus.evaluation.exceptions import MissingStatistic, NoItems, WrongArrayType
from dissensus.messages import ParameterName

Statistic = Callable[[FloatArray], FloatArray]
"""A function that maps sums over items (B, S) to one number per resample (B,)."""


@dataclass(frozen=True)
class Estimate:
    """A number with its interval; bounds are NaN if they are undefined or without resamples.

    >>> print(Estimate(0.8, 0.72, 0.88))
    0.800 (95 % interval 0.720 to 0.880)
    """

    value: float
    low: float
    high: float
    level: float = 0.95

    def __str__(self) -> str:
        return f"{self.value:.3f} ({100 * self.level:g} % interval {self.low:.3f} to {self.high:.3f})"


@dataclass(frozen=True, eq=False)
class BootstrapSums:
    """Sums of S statistics over all items, and over the items of each of B resamples."""

    whole: FloatArray  # (S,)
    resampled: FloatArray  # (B, S)

    def estimate(self, statistic: Statistic, level: float = 0.95, share_of: float = 0) -> Estimate:
        """Return `statistic` of the sums with its interval; see `percentile_interval` for `level` and `share_of`."""
        value = float(statistic(self.whole[None, :])[0])
        return percentile_interval(value, statistic(self.resampled), level, share_of)

    def means(self, n_items: int, level: float = 0.95) -> list[Estimate]:
        """Return the mean over items of each statistic."""
        columns = zip(self.whole / n_items, self.resampled.T / n_items, strict=True)
        return [percentile_interval(float(mean), resampled, level) for mean, resampled in columns]


def bootstrap(
    stats: Any,
    statistic: Statistic | None = None,
    *,
    level: float = 0.95,
    resamples: int = 1000,
    seed: int | None = 0,
    on_step: OnStep | None = None,
) -> Estimate:
    """Return a function of sums over items with its percentile interval by bootstrap over items.

    A share of 0 or 1 gets Wilson's interval, see `percentile_interval`.

    Parameters
    ----------
    stats : (I,) or (I, S)
        Statistics of each item.
    statistic : callable, optional
        Function that maps sums (B, S) to numbers (B,), such as `lambda s: s[:, 0] / s[:, 1]`. By default, the result
        is the mean of `stats`.
    level : float
        Share of the resamples inside the interval.
    resamples : int
        B, the number of resamples; 0 computes no interval.
    seed : int or None
        The same seed gives the same interval for any number of threads.
    on_step : callable, optional
        Called with (number of finished resamples, NaN).

    >>> right = np.repeat([1, 0], [80, 20])
    >>> print(bootstrap(right))
    0.800 (95 % interval 0.720 to 0.880)
    """
    table = np.asarray(stats)
    if statistic is None and table.ndim != 1:
        raise MissingStatistic(shape=table.shape)
    sums = bootstrap_sums(table, resamples=resamples, seed=seed, on_step=on_step)
    if statistic is not None:
        return sums.estimate(statistic, level)
    share = ((table == 0) | (table == 1)).all()
    return sums.estimate(lambda s: s[:, 0] / table.size, level, table.size if share else 0)


def bootstrap_sums(
    stats: Any, *, resamples: int = 1000, seed: int | None = 0, on_step: OnStep | None = None
) -> BootstrapSums:
    """Return the sums of statistics over all items and over the items of each resample.

    `stats` is (I,) or (I, S), dense or sparse (csr_array).

    >>> sums = bootstrap_sums([[1, 0], [1, 1], [0, 1]] * 50)
    >>> print(sums.estimate(lambda s: s[:, 0] / s[:, 1]))
    1.000 (95 % interval 0.811 to 1.222)
    >>> [str(mean) for mean in sums.means(150)]
    ['0.667 (95 % interval 0.587 to 0.747)', '0.667 (95 % interval 0.587 to 0.740)']
    """
    stats = stats if issparse(stats) else csr_array(_check_statistics(stats))
    check_argument("resamples", resamples, int, low=0)
    check_argument("seed", seed, int | None, low=0)
    (n_items, n_columns), batches = stats.shape, -(-resamples // RESAMPLE_LANES)
    total = np.bincount(stats.indices, stats.data, n_columns).astype(
        np.float64
    )  # bincount returns integers if there are no entries.
    ptr, column = (
        stats.indptr.astype(np.int64),
        stats.indices.astype(np.int32),
    )  # The kernel is compiled for these types.
    sizes = np.diff(np.append(np.arange(0, n_items, BLOCK_ITEMS), n_items))  # numbers of items per block

    def batch(child: np.random.SeedSequence) -> FloatArray:
        """Return (S, RESAMPLE_LANES) sums of one batch of resamples, whose own seed makes it independent of threads."""
        sums = np.zeros((n_columns, RESAMPLE_LANES))
        of_blocks, of_items = child.spawn(2)
        drawn = np.random.default_rng(of_blocks).multinomial(n_items, sizes / n_items, size=RESAMPLE_LANES)
        add_sums(ptr, column, stats.data, drawn, of_items.generate_state(RESAMPLE_LANES, np.uint64), sums)
        return sums

    pool, parts = ThreadPoolExecutor(thread_count(None, 10**9)), []
    try:
        for done, sums in enumerate(pool.map(batch, np.random.SeedSequence(seed).spawn(batches)), 1):
            parts.append(sums)
            if on_step is not None:
                on_step(min(done * RESAMPLE_LANES, resamples), float("nan"))
    finally:
        pool.shutdown(cancel_futures=True)  # An interrupt does not wait for the rest.
    resampled = np.concatenate(parts, axis=1).T[:resamples] if parts else np.empty((0, n_columns))
    return BootstrapSums(total, np.ascontiguousarray(resampled))


def _check_statistics(stats: Any) -> FloatArray:
    """Return statistics as (I, S) finite numbers."""
    table = np.asarray(stats)
    if table.ndim not in (1, 2) or table.dtype.kind not in "iufb":
        name = ParameterName("stats")
        raise WrongArrayType(name=name, content="statistics", dtype=str(table.dtype), shape=table.shape)
    if len(table) == 0:
        raise NoItems
    table = table.astype(np.float64).reshape(len(table), -1)
    check_finite(table, "stats")
    return table


def percentile_interval(value: float, resampled: Any, level: float = 0.95, share_of: float = 0) -> Estimate:
    """Return `value` with the interval that contains the share `level` of its resampled values (B,), ignoring NaN.

    If `value` is a share of `share_of` items and is 0 or 1, every resample has the same value; the interval is then
    Wilson's.
    """
    check_argument("level", level, float, above=0, below=1)
    known = np.asarray(resampled)[~np.isnan(resampled)]
    if known.size == 0 or np.isnan(value):
        return Estimate(value, float("nan"), float("nan"), level)
    low, high = np.quantile(known, [(1 - level) / 2, (1 + level) / 2])
    if share_of and value in (0.0, 1.0):
        low, high = wilson_interval(value, share_of, float(ndtri((1 + level) / 2)))
    return Estimate(value, float(low), float(high), level)


def wilson_interval(mean: Any, trials: Any, z: float) -> tuple[Any, Any]:
    """Return Wilson's bounds (1927) of a share of `trials`, which need not be whole, at z standard errors."""
    middle = (mean + z**2 / (2 * trials)) / (1 + z**2 / trials)
    half = z / (1 + z**2 / trials) * np.sqrt(np.maximum(mean * (1 - mean), 0) / trials + z**2 / (4 * trials**2))
    low, high = np.maximum(middle - half, 0.0), np.minimum(middle + half, 1.0)
    return np.minimum(low, mean), np.maximum(high, mean)  # Rounding may put a bound on the wrong side.


@dataclass(frozen=True)
class Difference:
    """The mean difference of two scores over items with its interval, and the p-value of a test for no difference."""

    mean: Estimate
    p_value: float


def paired_bootstrap(
    first: Any, second: Any, *, level: float = 0.95, resamples: int = 1000, **bootstrap: Any
) -> Difference:
    """Test whether the means of two scores over the same items differ.

    Parameters
    ----------
    first, second : (I,)
        Scores of two methods on the same items, such as correctness, log loss or held-out log-likelihood.
    level, resamples, **bootstrap
        `level`, `resamples`, `seed` and `on_step` as in `bootstrap`.

    Returns
    -------
    Difference
        The mean of `first − second`. The two-sided `p_value` is the share of resamples whose mean differs from the
        observed mean by at least the observed mean itself (Efron & Tibshirani 1993, chapter 16: resampling under the
        null hypothesis by shifting). The observed sample counts as a resample, so `p_value` is at least
        1 / (resamples + 1).

    >>> found = paired_bootstrap(np.repeat([1, 0], [80, 20]), np.repeat([1, 0], [70, 30]))
    >>> print(found.mean, round(found.p_value, 3))
    0.100 (95 % interval 0.050 to 0.170) 0.004
    """
    check_argument("resamples", resamples, int, low=1)
    first, second = check_numbers(first, "first"), check_numbers(second, "second")
    check_lengths(first, second, "first", "second")
    sums = bootstrap_sums(first - second, resamples=resamples, **bootstrap)
    slack = 1e-12 * first.size * np.abs(first - second).max()  # Sums of equal terms may differ in the last digit.
    extreme = int((np.abs(sums.resampled - sums.whole) >= np.abs(sums.whole) - slack).sum())
    return Difference(sums.means(first.size, level)[0], (1 + extreme) / (1 + resamples))


def holm_correction(p_values: dict[str, float]) -> dict[str, float]:
    """Return p-values corrected for their number by Holm's method (1979)."""
    result, largest = {}, 0.0
    for rank, name in enumerate(sorted(p_values, key=p_values.__getitem__)):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[name]))
        result[name] = largest
    return result
