from __future__ import annotations

import numpy as np
import pytest
from scipy import stats
from scipy.spatial.distance import jensenshannon

from dissensus import evaluation as ev
from dissensus.evaluation.exceptions import DifferentShapes, NotOnePerClass, RowsNotDistributions, WrongArrayType
from dissensus.exceptions import BadParameter
from refused import refused


@pytest.fixture(params=[(40, 3), (5, 9), (13, 2)])
def pair(request):
    """Votes with zeros, some unanimous, and predictions without zeros."""
    I, K = request.param
    rng = np.random.default_rng(K)
    votes = rng.multinomial(4, rng.dirichlet(np.full(K, 0.5)), I) + 0.0
    votes[0] = 4 * np.eye(K)[1]
    return votes / 4, rng.dirichlet(np.ones(K), I)


def by_row(function, y, h):
    return [function(a, b) for a, b in zip(y, h, strict=True)]


def test_kl_both_ways_is_scipy_s(pair):
    y, h = pair
    assert ev.kl_divergence(y, h) == pytest.approx(by_row(stats.entropy, y, h))
    smooth = (y + 0.02) / (1 + 0.02 * y.shape[1])
    assert ev.inverse_kl_divergence(y, h, epsilon=0.02) == pytest.approx(by_row(stats.entropy, h, smooth))
    assert ev.kl_divergence(y, h, epsilon=0.02) == pytest.approx(by_row(stats.entropy, smooth, h))
    assert np.isinf(ev.inverse_kl_divergence(y, h, epsilon=0)[0])


def test_cross_entropy_is_kl_plus_entropy(pair):
    y, h = pair
    expected = [-sum(a * np.log(b) for a, b in zip(p, q, strict=True) if a > 0) for p, q in zip(y, h, strict=True)]
    assert ev.cross_entropy(y, h) == pytest.approx(expected)
    assert ev.cross_entropy(y, h) == pytest.approx(ev.kl_divergence(y, h) + [stats.entropy(row) for row in y])
    assert ev.entropy(y) == pytest.approx([stats.entropy(row) for row in y])


def test_a_class_with_votes_and_no_probability_costs_infinitely_much():
    assert ev.cross_entropy([[0.5, 0.5]], [[1.0, 0.0]]).tolist() == [np.inf]
    assert ev.kl_divergence([[0.5, 0.5]], [[1.0, 0.0]]).tolist() == [np.inf]
    assert ev.cross_entropy([[1.0, 0.0]], [[1.0, 0.0]]).tolist() == [0.0]
    assert not np.signbit(ev.cross_entropy([[1.0, 0.0]], [[1.0, 0.0]])[0])


def test_jensen_shannon_is_the_square_of_scipy_s(pair):
    y, h = pair
    assert ev.jensen_shannon(y, h) == pytest.approx(np.square(by_row(jensenshannon, y, h)))
    assert ev.jensen_shannon([[1.0, 0.0]], [[0.0, 1.0]]) == pytest.approx([np.log(2)])
    assert (ev.jensen_shannon(h, h) >= 0).all()


def test_manhattan_total_variation_and_brier_are_sums_over_classes(pair):
    y, h = pair
    gap = [[a - b for a, b in zip(p, q, strict=True)] for p, q in zip(y, h, strict=True)]
    assert ev.manhattan(y, h) == pytest.approx([sum(map(abs, row)) for row in gap])
    assert ev.total_variation(y, h) == pytest.approx([sum(map(abs, row)) / 2 for row in gap])
    assert ev.brier(y, h) == pytest.approx([sum(g * g for g in row) for row in gap])


def test_brier_of_two_classes_is_twice_scikit_learn_s():
    from sklearn.metrics import brier_score_loss

    rng = np.random.default_rng(0)
    p, gold = rng.random(31), rng.integers(0, 2, 31)
    ours = ev.brier(np.eye(2)[gold], np.column_stack([1 - p, p])).mean()
    assert ours == pytest.approx(2 * brier_score_loss(gold, p))


def test_wasserstein_is_scipy_s_whatever_the_places(pair):
    y, h = pair
    K = y.shape[1]
    even = range(K)
    assert ev.wasserstein(y, h) == pytest.approx(
        by_row(lambda p, q: stats.wasserstein_distance(even, even, p, q), y, h)
    )
    place = np.random.default_rng(1).normal(size=K)  # in no order
    expected = by_row(lambda p, q: stats.wasserstein_distance(place, place, p, q), y, h)
    assert ev.wasserstein(y, h, positions=place) == pytest.approx(expected)


def test_entropy_correlation_is_pearson_s(pair):
    y, h = pair
    expected = stats.pearsonr([stats.entropy(row) for row in y], [stats.entropy(row) for row in h]).statistic
    assert ev.entropy_correlation(y, h) == pytest.approx(expected)
    assert np.isnan(ev.entropy_correlation(y, np.full_like(h, 1 / h.shape[1])))


def test_all_scores_are_means_of_the_same(pair):
    y, h = pair
    scores = ev.soft_scores(y, h, epsilon=0.1)
    assert scores["inverse_kl_divergence"] == pytest.approx(ev.inverse_kl_divergence(y, h, epsilon=0.1).mean())
    for name in ("cross_entropy", "kl_divergence", "jensen_shannon", "total_variation", "manhattan", "brier"):
        assert scores[name] == pytest.approx(getattr(ev, name)(y, h).mean())
    assert scores["entropy_correlation"] == pytest.approx(ev.entropy_correlation(y, h))


@pytest.mark.parametrize(
    ("y", "h", "error", "facts"),
    [
        (
            [[0.5, 0.4]],
            [[0.5, 0.5]],
            RowsNotDistributions,
            {"name": "y", "count": 1, "rows": 1, "first_row": 0, "total": 0.9},
        ),
        ([[0.5, 0.5]], [[1.5, -0.5]], RowsNotDistributions, {"name": "h", "smallest": -0.5}),
        ([[0.5, 0.5]], [[np.nan, 1.0]], RowsNotDistributions, {"name": "h", "count": 1}),
        ([[0.5, 0.5]], [[0.2, 0.3, 0.5]], DifferentShapes, {"first_shape": (1, 2), "second_shape": (1, 3)}),
        ([0.5, 0.5], [[0.5, 0.5]], WrongArrayType, {"name": "y", "content": "distributions"}),
    ],
)
def test_what_is_no_distribution_is_refused(y, h, error, facts):
    for metric in (ev.cross_entropy, ev.kl_divergence, ev.jensen_shannon, ev.brier, ev.entropy_correlation):
        with refused(error, **facts):
            metric(y, h)


def test_bad_parameters_are_refused():
    with refused(BadParameter, name="epsilon"):
        ev.inverse_kl_divergence([[1.0, 0.0]], [[1.0, 0.0]], epsilon=-1)
    with refused(NotOnePerClass, name="positions", values=3, n_classes=2):
        ev.wasserstein([[1.0, 0.0]], [[1.0, 0.0]], positions=[1, 2, 3])
