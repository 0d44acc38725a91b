"""Corrected means against loops, the package of PPI's authors, and what is simulated."""

import numpy as np
import pytest
from scipy.special import ndtri

from dissensus.evaluation.exceptions import TooFewKnownItems
from dissensus.evaluation.ppi import (
    compare_sample_to_rest,
    corrected_difference,
    corrected_mean,
    estimate_tuned_mean,
    labels_needed,
    rogan_gladen,
)
from refused import refused


def drawn(seed=0, n=60, others=700, rate=0.3, noise=0.2):
    """Truth, and what imperfect judges say of it: known and other items."""
    rng = np.random.default_rng(seed)
    truth = rng.random(n + others) < rate
    said = np.clip(np.where(truth, 0.75, 0.2) + rng.normal(0, noise, truth.size), 0, 1)
    return truth[:n] * 1.0, said[:n], said[n:]


def test_the_tuned_mean_is_that_of_the_equations():
    y, f, others = drawn(n=23, others=31)
    n, N = len(y), len(others)
    cov = sum((a - y.mean()) * (b - f.mean()) for a, b in zip(y, f, strict=True)) / n
    whole = [*f, *others]
    var = sum((b - np.mean(whole)) ** 2 for b in whole) / (n + N - 1)
    lam = cov / ((1 + n / N) * var)
    value = lam * sum(others) / N + sum(a - lam * b for a, b in zip(y, f, strict=True)) / n
    spread = np.var(y - lam * f) / n + lam**2 * np.var(others) / N
    assert 0 < lam < 1
    np.testing.assert_allclose(estimate_tuned_mean(y, f, others), (value, np.sqrt(spread), lam), rtol=1e-12)


PACKAGE = {
    0.05: (0.28116734, 0.22609130, 0.33624337),
    0.3: (0.27684623, 0.18902128, 0.36467118),
    2.0: (0.28561516, 0.17305886, 0.39817146),
}
"""Noise → estimate and bounds by ppi-python 0.2.3: `ppi_mean_pointestimate` and `ppi_mean_ci(alpha=0.05)`."""


@pytest.mark.parametrize("noise", PACKAGE)
def test_it_is_that_of_the_authors_package(noise):
    value, error, _ = estimate_tuned_mean(*drawn(noise=noise))
    ours = value + np.array([0, -1, 1]) * ndtri(0.975) * error
    np.testing.assert_allclose(ours, PACKAGE[noise], rtol=0, atol=1e-6)


@pytest.mark.parametrize("noise", [0.05, 0.3])
def test_intervals_cover_and_are_narrower_than_those_of_the_human_labels(noise):
    found = [corrected_mean(*drawn(seed, noise=noise), rate=True) for seed in range(200)]
    covered = np.mean([one.low <= 0.3 <= one.high for one in found])
    assert 0.92 <= covered <= 0.985
    assert np.mean([one.high - one.low for one in found]) < np.mean([one.human.high - one.human.low for one in found])


def test_judges_that_know_nothing_cost_next_to_nothing():
    rng = np.random.default_rng(1)
    y = rng.random(100) < 0.4
    one = corrected_mean(y, rng.random(100), rng.random(900), rate=True)
    assert one.high - one.low < 1.05 * (one.human.high - one.human.low)
    assert one.labels_saved < 10


def test_no_positive_among_the_known_leaves_room_for_some():
    f = np.full(50, 0.01)
    one = corrected_mean(np.zeros(50), f, np.full(500, 0.01), rate=True)
    assert (one.value, one.low) == (0, pytest.approx(0, abs=1e-12))
    assert 0.05 < one.high < 0.1
    assert one.weight == 0


def test_with_all_items_known_it_is_the_human_labels():
    y, f, _ = drawn()
    one = corrected_mean(y, f, [], rate=True)
    assert one.value == one.human.value
    np.testing.assert_allclose([one.low, one.high], [one.human.low, one.human.high], atol=1e-3)


def test_too_few_known_items_are_an_error():
    with refused(TooFewKnownItems, gold_items=4, required=5):
        corrected_mean(np.ones(4), np.ones(4), np.ones(9))


def test_rogan_gladen_undoes_known_errors():
    rng = np.random.default_rng(0)
    truth = rng.random(20_000) < 0.2
    said = np.where(truth, rng.random(truth.size) < 0.7, rng.random(truth.size) < 0.3)
    one = rogan_gladen(truth[:2000], said[:2000], said[2000:])
    assert one.low < 0.2 < one.high
    assert abs(said.mean() - 0.2) > (one.high - one.low) / 2  # what was said is off by more than that
    assert np.isnan(rogan_gladen([1, 0, 1, 0], [0, 1, 0, 1], []).value)  # says the contrary
    assert np.isnan(rogan_gladen([1, 1], [1, 1], [1]).value)  # no specificity is known


def test_the_interval_of_a_difference_is_wider_than_either():
    one, other = (corrected_mean(*drawn(seed), rate=True) for seed in (1, 2))
    apart = corrected_difference(one, other)
    assert apart.value == one.value - other.value
    assert apart.high - apart.low > max(one.high - one.low, other.high - other.low)
    assert corrected_difference(other, one).low == pytest.approx(-apart.high)


@pytest.mark.parametrize("rate", [True, False])
def test_the_planned_number_of_labels_gives_the_planned_width(rate):
    y, f, _others = drawn(n=3000, others=0, noise=0.3)
    first = corrected_mean(y[:100], f[:100], f[100:], rate=rate)
    width = 0.06
    n = labels_needed(first, 3000, width, rate=rate)
    then = corrected_mean(y[:n], f[:n], f[n:], rate=rate)
    assert 300 < n < 1500
    assert then.high - then.low == pytest.approx(width, rel=0.15)
    assert labels_needed(first, 3000, 0.01, rate=rate) is None  # 3,000 items themselves vary more
    good = corrected_mean(*drawn(n=150, others=450, noise=0.1))
    share = (1 - 150 / good.effective_labels) / (
        1 - 150 / 600
    )  # of the variance that judges explain: Var = (1 − s)/n + s/600
    spread = (good.human.high - good.human.low) ** 2 * 150  # of one label, times what a width is of a variance
    n = labels_needed(good, 600, 0.08, rate=False)
    assert spread * ((1 - share) / n + share / 600) == pytest.approx(0.08**2, rel=0.02)
    assert labels_needed(first, 3000, first.high - first.low, rate=rate) == pytest.approx(100, rel=0.15)


def chosen_by_doubt(seed, items=1500, n=150):
    """Known items drawn with a probability that grows with doubt, in which judges err more: y, f, others and π."""
    rng = np.random.default_rng(seed)
    doubt = rng.random(items)
    truth = rng.random(items) < 0.1 + 0.4 * doubt  # 0.3 on average
    said = np.where(rng.random(items) < 0.5 * doubt, ~truth, truth) * 0.8 + 0.1
    pi = np.where(doubt > 0.6, 3.0, 1.0)
    pi *= n / pi.sum()
    known = rng.random(items) < pi
    return truth[known] * 1.0, said[known], said[~known], pi[known]


def test_gold_with_known_probabilities_is_weighted_by_their_inverse():
    y, f, others, pi = chosen_by_doubt(0)
    M = y.size + others.size
    pi_scaled = pi * sum(1 / p for p in pi) / M
    w = [1 / (p * M) for p in pi_scaled]
    mean_y, mean_f = (sum(a * b for a, b in zip(w, one, strict=True)) for one in (y, f))
    part = [(1 - p) * a * a for p, a in zip(pi_scaled, w, strict=True)]
    lam = sum(d * (a - mean_y) * (b - mean_f) for d, a, b in zip(part, y, f, strict=True))
    lam /= sum(d * (b - mean_f) ** 2 for d, b in zip(part, f, strict=True))
    value = lam * np.mean([*f, *others]) + sum(a * (b - lam * c) for a, b, c in zip(w, y, f, strict=True))
    one = corrected_mean(y, f, others, probability=pi)
    assert 0 < lam < 1
    assert one.weight == pytest.approx(lam)
    assert one.value == pytest.approx(value)
    assert one.human.value == pytest.approx(mean_y)
    assert corrected_mean(y, f, others, probability=10 * pi).value == pytest.approx(value)  # relative ones will do


def test_weighted_intervals_cover_where_unweighted_ones_do_not():
    drawn_often = [chosen_by_doubt(seed) for seed in range(300)]
    for rate in (True, False):
        found = [corrected_mean(y, f, o, rate=rate, probability=pi) for y, f, o, pi in drawn_often]
        assert 0.92 <= np.mean([one.low <= 0.3 <= one.high for one in found]) <= 0.98
        careless = [corrected_mean(y, f, o, rate=rate) for y, f, o, _ in drawn_often]
        assert np.mean([one.low <= 0.3 <= one.high for one in careless]) < 0.85


def test_equal_probabilities_change_next_to_nothing():
    y, f, others = drawn(n=150, others=1200)
    one, other = (corrected_mean(y, f, others, rate=True, probability=p) for p in (None, np.full(150, 0.1)))
    np.testing.assert_allclose([one.value, one.low, one.high], [other.value, other.low, other.high], atol=0.006)


def test_a_draw_at_random_is_seldom_taken_for_a_choice():
    rng = np.random.default_rng(0)
    x = np.column_stack([rng.random(800), rng.random(800) < 0.1, np.ones(800)])
    p = [compare_sample_to_rest(x, rng.permutation(800)[:60])[0] for _ in range(400)]
    assert np.mean(np.array(p) < 0.01) < 0.03
    low = np.argsort(x[:, 0] + rng.random(800))[:60]
    p, column, gap = compare_sample_to_rest(x, low)
    assert (p < 1e-6, column, gap < -0.5) == (True, 0, True)
    assert compare_sample_to_rest(x, np.arange(800))[0] == 1  # all are known


def test_events_that_came_by_chance_bias_the_mean_less():
    rng = np.random.default_rng(0)
    ours, theirs = [], []
    for _ in range(600):
        truth = rng.random(500) < 0.05
        said = np.where(truth, rng.choice([0.9, 0.1], 500, p=[0.7, 0.3]), 0.02)
        drawn = truth[:150] * 1.0, said[:150], said[150:]
        ours.append(estimate_tuned_mean(*drawn, used=2)[0])
        theirs.append(estimate_tuned_mean(*drawn)[0])
    assert abs(np.mean(ours) - 0.05) < 0.8 * abs(np.mean(theirs) - 0.05)
