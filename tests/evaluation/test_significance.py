from __future__ import annotations

import numpy as np
import pytest
from scipy import stats
from statsmodels.stats.contingency_tables import mcnemar as statsmodels_mcnemar

from dissensus import evaluation as ev
from dissensus.exceptions import BadParameter, DataError


def right(n: int, seed: int, first: float, second: float) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return rng.random(n) < first, rng.random(n) < second


@pytest.mark.parametrize(("exact", "correction"), [(True, True), (False, True), (False, False)])
@pytest.mark.parametrize("n", [15, 230])
def test_mcnemar_is_that_of_statsmodels(exact, correction, n):
    a, b = right(n, n, 0.6, 0.75)
    table = [[(a & b).sum(), (a & ~b).sum()], [(~a & b).sum(), (~a & ~b).sum()]]
    theirs = statsmodels_mcnemar(table, exact=exact, correction=correction)
    ours = ev.mcnemar(a, b, exact=exact, correction=correction)
    assert (ours.statistic, ours.p_value) == pytest.approx((theirs.statistic, theirs.pvalue))


def test_mcnemar_is_exact_where_few_items_differ():
    few, many = right(30, 0, 0.6, 0.7), right(300, 0, 0.6, 0.7)
    assert ev.mcnemar(*few) == ev.mcnemar(*few, exact=True)
    assert ev.mcnemar(*many) == ev.mcnemar(*many, exact=False)
    assert ev.mcnemar([1, 0, 1], [1, 0, 1]) == ev.mcnemar([1], [1], exact=False) == ev.Test(0.0, 1.0)


def test_mann_whitney_is_scipy_s():
    rng = np.random.default_rng(0)
    x, y = rng.normal(0.4, size=17), rng.normal(size=29)
    for alternative in ("two-sided", "less", "greater"):
        theirs = stats.mannwhitneyu(x, y, alternative=alternative)
        assert ev.mann_whitney(x, y, alternative=alternative) == ev.Test(theirs.statistic, theirs.pvalue)
    chance = np.mean([(a > b) + (a == b) / 2 for a in x for b in y])
    assert ev.mann_whitney(x, y).statistic / (17 * 29) == pytest.approx(chance)


def test_paired_bootstrap_is_near_the_paired_t_test_on_many_items():
    rng = np.random.default_rng(1)
    for shift in (0.0, 0.05, 0.1):
        a, b = rng.normal(shift, size=900), rng.normal(size=900)
        ours, theirs = ev.paired_bootstrap(a, b, resamples=4000), stats.ttest_rel(a, b)
        assert ours.p_value == pytest.approx(theirs.pvalue, abs=0.03)
        assert ours.mean.value == pytest.approx((a - b).mean())
        interval = theirs.confidence_interval()
        assert (ours.mean.low, ours.mean.high) == pytest.approx((interval.low, interval.high), abs=0.01)


def test_paired_bootstrap_pairs_the_items():
    rng = np.random.default_rng(2)
    hard = rng.normal(scale=10, size=60)  # what both methods have in common
    assert ev.paired_bootstrap(hard + 0.2, hard + rng.normal(scale=0.1, size=60)).p_value == 1 / 1001


def test_p_values_are_uniform_where_there_is_no_difference():
    rng = np.random.default_rng(3)
    p = [ev.paired_bootstrap(*rng.normal(size=(2, 80)), resamples=200, seed=s).p_value for s in range(300)]
    assert stats.kstest(p, "uniform").pvalue > 0.01


def test_a_difference_as_large_counts_whatever_the_last_digit():
    d = np.random.default_rng(0).integers(-2, 3, 41)
    p = ev.paired_bootstrap(d, np.zeros(41)).p_value
    for scale in (0.1, 1 / 3, 1e-7):
        assert ev.paired_bootstrap(d * scale, np.zeros(41)).p_value == p


def test_equal_methods_are_not_told_apart():
    x = np.random.default_rng(0).random(50)
    same = ev.paired_bootstrap(x, x)
    assert (same.p_value, same.mean.low, same.mean.high) == (1.0, 0.0, 0.0)
    assert ev.paired_bootstrap(x + 0.1, x).p_value < 0.01


def test_bad_input_is_refused():
    for test in (ev.paired_bootstrap, ev.mcnemar):
        with pytest.raises(DataError, match="first has 2 items, second has 1; they must be the same items"):
            test([0, 1], [1])
    with pytest.raises(DataError, match="second: 1 of 2 values are not finite; first at 1: nan"):
        ev.paired_bootstrap([0, 1], [1, np.nan])
    with pytest.raises(DataError, match="True or False"):
        ev.mcnemar([0.5], [1])
    with pytest.raises(DataError, match="x has 0 values and y 1; both need some"):
        ev.mann_whitney([], [1])
    with pytest.raises(BadParameter, match="alternative must be"):
        ev.mann_whitney([1], [1], alternative="both")
    with pytest.raises(BadParameter, match="resamples must be a whole number, at least 1"):
        ev.paired_bootstrap([1], [1], resamples=0)
