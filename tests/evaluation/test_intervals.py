from __future__ import annotations

import os
from itertools import pairwise

import numpy as np
import pytest
from scipy import stats

from dissensus import evaluation as ev
from dissensus.evaluation.exceptions import MissingStatistic, NoItems, RowsNotFinite, WrongArrayType
from dissensus.exceptions import BadParameter
from refused import refused


@pytest.mark.parametrize("I", [1, 7, 255, 256, 257, 700])  # around the block of the kernel
def test_a_resample_draws_as_many_items_as_there_are(I):
    counts = ev.bootstrap_sums(np.eye(I), resamples=130).resampled  # (B, I) how often each is drawn
    assert counts.shape == (130, I)
    assert (counts.sum(axis=1) == I).all()
    assert (counts >= 0).all()
    assert (counts == np.floor(counts)).all()


@pytest.mark.parametrize("I", [20, 300])
def test_draws_are_multinomial(I):
    counts = ev.bootstrap_sums(np.eye(I), resamples=4000, seed=3).resampled
    values = np.arange(6)
    seen = np.array([(counts == v).sum() for v in values[:-1]] + [(counts >= 5).sum()])
    law = stats.binom(I, 1 / I)
    expected = np.append(law.pmf(values[:-1]), law.sf(4)) * counts.size
    assert (np.abs(seen - expected) < 5 * np.sqrt(expected)).all()
    assert counts.mean(axis=0) == pytest.approx(np.ones(I), abs=5 / np.sqrt(4000))
    cov = np.cov(counts.T)
    off = cov[~np.eye(I, dtype=bool)]
    assert off.mean() == pytest.approx(-1 / I, abs=0.1 / I)
    assert np.abs(off + 1 / I).max() < 6 / np.sqrt(4000)  # none is tied to another
    lag = np.array([np.corrcoef(a, b)[0, 1] for a, b in pairwise(counts[:501])])
    assert abs(lag.mean()) < 4 / np.sqrt(500 * I)  # nor a resample to the next


def test_interval_is_scipy_s_percentile_bootstrap():
    x = np.random.default_rng(0).exponential(size=211)
    theirs = stats.bootstrap((x,), np.mean, method="percentile", n_resamples=20_000, rng=1).confidence_interval
    ours = ev.bootstrap(x, resamples=20_000)
    assert (ours.low, ours.high) == pytest.approx(theirs, abs=0.01)
    assert ours.value == pytest.approx(x.mean())
    narrow = ev.bootstrap(x, resamples=20_000, level=0.5)
    theirs = np.quantile(ev.bootstrap_sums(x, resamples=20_000).resampled[:, 0] / 211, [0.25, 0.75])
    assert (narrow.low, narrow.high, narrow.level) == (*theirs, 0.5)


def test_a_ratio_takes_both_sums_from_the_same_resample():
    rng = np.random.default_rng(0)
    size = rng.integers(1, 9, 150)
    right = rng.binomial(size, 0.7)
    ours = ev.bootstrap(np.column_stack([right, size]), lambda s: s[:, 0] / s[:, 1], resamples=5000)
    ratio = lambda a, b, axis: a.sum(axis=axis) / b.sum(axis=axis)  # noqa: E731
    theirs = stats.bootstrap(
        (right, size), ratio, paired=True, vectorized=True, method="percentile", n_resamples=5000, rng=1
    )
    assert (ours.low, ours.high) == pytest.approx(theirs.confidence_interval, abs=0.01)
    assert ours.value == right.sum() / size.sum()


def test_same_seed_same_bits_whatever_the_number_of_threads(monkeypatch):
    x = np.random.default_rng(0).normal(size=(1000, 3))
    several = ev.bootstrap_sums(x, resamples=200, seed=5).resampled
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0}, raising=False)
    one = ev.bootstrap_sums(x, resamples=200, seed=5).resampled
    assert np.array_equal(one, several)
    assert not np.array_equal(one, ev.bootstrap_sums(x, resamples=200, seed=6).resampled)
    longer = ev.bootstrap_sums(x, resamples=300, seed=5).resampled
    assert np.array_equal(longer[:200], one)


def test_interval_covers_the_truth_as_often_as_it_says():
    rng = np.random.default_rng(0)
    inside = 0
    for trial in range(400):
        estimate = ev.bootstrap(rng.random(120) < 0.7, resamples=300, seed=trial, level=0.9)
        inside += estimate.low <= 0.7 <= estimate.high
    assert 0.86 < inside / 400 < 0.94  # three standard errors are 0.045


def test_progress_is_told():
    steps = []
    ev.bootstrap(np.arange(10.0), resamples=150, on_step=lambda done, _: steps.append(done))
    assert steps == [64, 128, 150]


def test_undefined_resamples_are_left_out_and_no_resamples_give_no_interval():
    def sometimes(sums):
        value = sums[:, 0] / 20
        return np.where(value > 0.5, np.nan, value)

    x = np.repeat([0, 1], [12, 8])
    estimate = ev.bootstrap(x, sometimes)
    assert estimate.high <= 0.5
    none = ev.bootstrap(x, resamples=0)
    assert none.value == 0.4
    assert np.isnan([none.low, none.high]).all()
    assert str(ev.Estimate(0.5, 0.25, 0.75)) == "0.500 (95 % interval 0.250 to 0.750)"


@pytest.mark.parametrize(
    ("arguments", "keywords", "error", "facts"),
    [
        (([],), {}, NoItems, {}),
        (([1.0, np.inf, np.nan],), {}, RowsNotFinite, {"name": "stats", "count": 2, "rows": 3, "first_row": 1}),
        ((["a"],), {}, WrongArrayType, {"name": "stats", "content": "statistics"}),
        ((np.ones((3, 2)),), {}, MissingStatistic, {"shape": (3, 2)}),
        (([1.0],), {"resamples": -1}, BadParameter, {"name": "resamples", "value": -1}),
        (([1.0],), {"resamples": 1.5}, BadParameter, {"name": "resamples", "value": 1.5}),
        (([1.0],), {"seed": -1}, BadParameter, {"name": "seed", "value": -1}),
        (([1.0],), {"level": 1.0}, BadParameter, {"name": "level", "value": 1.0}),
    ],
)
def test_bad_input_is_refused(arguments, keywords, error, facts):
    with refused(error, **facts):
        ev.bootstrap(*arguments, **keywords)


def test_a_share_of_all_items_has_wilson_s_interval():
    found = ev.bootstrap(np.ones(4))
    low = stats.binomtest(4, 4).proportion_ci(method="wilson").low
    assert (found.value, found.low, found.high) == (1, pytest.approx(low), 1)
    assert {ev.bootstrap(np.ones(n), resamples=2).high for n in range(1, 99)} == {1}  # also beyond rounding
    assert ev.bootstrap(np.zeros(4)).high == pytest.approx(1 - low)
    assert ev.bootstrap(np.full(4, 0.5)).low == 0.5  # shares of ties, not of items
