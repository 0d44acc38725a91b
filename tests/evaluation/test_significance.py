from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from dissensus import evaluation as ev
from dissensus.evaluation.exceptions import DifferentLengths, RowsNotFinite
from dissensus.exceptions import BadParameter
from refused import refused


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
    with refused(DifferentLengths, first_name="first", second_name="second", first_length=2, second_length=1):
        ev.paired_bootstrap([0, 1], [1])
    with refused(RowsNotFinite, name="second", count=1, rows=2, first_row=1):
        ev.paired_bootstrap([0, 1], [1, np.nan])
    with refused(BadParameter, name="resamples"):
        ev.paired_bootstrap([1], [1], resamples=0)
