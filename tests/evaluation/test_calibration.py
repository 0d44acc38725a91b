from __future__ import annotations

import numpy as np
import pytest
from sklearn.calibration import calibration_curve
from sklearn.metrics import log_loss as sklearn_log_loss

from dissensus import evaluation as ev
from dissensus.evaluation.exceptions import DifferentLengths, NoGoldLabels, NoItems
from dissensus.exceptions import BadParameter
from refused import refused


@pytest.fixture(params=[(500, 3), (60, 7)])
def predicted(request):
    I, K = request.param
    rng = np.random.default_rng(I)
    return rng.integers(-1, K, I), rng.dirichlet(np.full(K, 0.5), I)


@pytest.mark.parametrize(("bins", "equal", "strategy"), [(15, "width", "uniform"), (4, "mass", "quantile")])
def test_curve_is_scikit_learn_s(predicted, bins, equal, strategy):
    gold, h = predicted
    known = gold >= 0
    right, sure = h[known].argmax(axis=1) == gold[known], h[known].max(axis=1)
    share, confidence = calibration_curve(right, sure, n_bins=bins, strategy=strategy)
    curve = ev.reliability_curve(gold, h, bins=bins, equal=equal)
    some = curve.count > 0
    assert curve.accuracy[some] == pytest.approx(share)
    assert curve.confidence[some] == pytest.approx(confidence)
    assert curve.count.sum() == known.sum()
    assert np.isnan(curve.accuracy[~some]).all()


def test_error_is_the_mean_gap_by_a_literal_loop(predicted):
    gold, h = predicted
    for bins in (1, 10):
        total, n = 0.0, (gold >= 0).sum()
        for b in range(bins):
            inside = [i for i in range(len(h)) if gold[i] >= 0 and b / bins < h[i].max() <= (b + 1) / bins]
            if inside:
                right = sum(h[i].argmax() == gold[i] for i in inside) / len(inside)
                total += abs(right - sum(h[i].max() for i in inside) / len(inside)) * len(inside) / n
        assert ev.expected_calibration_error(gold, h, bins=bins) == pytest.approx(total)


def test_against_votes_right_is_the_share_of_the_votes():
    y = [[0.75, 0.25], [0.5, 0.5], [0.2, 0.8]]
    h = [[0.9, 0.1], [0.1, 0.9], [0.5, 0.5]]
    curve = ev.reliability_curve(y, h, bins=1)
    assert curve.confidence == pytest.approx([(0.9 + 0.9 + 0.5) / 3])
    assert curve.accuracy == pytest.approx([(0.75 + 0.5 + 0.5) / 3])  # the tie counts half of each
    one_hot = np.eye(2)[[0, 1, 1]]
    assert ev.expected_calibration_error(one_hot, h) == pytest.approx(ev.expected_calibration_error([0, 1, 1], h))


def test_calibrated_predictions_have_a_small_error_and_overconfident_ones_a_large():
    rng = np.random.default_rng(0)
    h = rng.dirichlet(np.ones(3), 20_000)
    gold = (rng.random(20_000)[:, None] > h.cumsum(axis=1)).sum(axis=1)
    assert ev.expected_calibration_error(gold, h) < 0.02
    sharp = h**3 / (h**3).sum(axis=1, keepdims=True)
    assert ev.expected_calibration_error(gold, sharp) > 0.15


def test_log_loss_is_scikit_learn_s_over_the_known(predicted):
    gold, h = predicted
    known = gold >= 0
    expected = sklearn_log_loss(gold[known], h[known], labels=range(h.shape[1]))
    assert ev.log_loss(gold, h) == pytest.approx(expected)
    assert ev.log_loss([0], [[0.0, 1.0]]) == np.inf
    assert ev.log_loss([1], [[0.0, 1.0]]) == 0


def test_bad_input_is_refused():
    with refused(BadParameter, name="bins"):
        ev.reliability_curve([0], [[1.0, 0.0]], bins=0)
    with refused(BadParameter, name="equal"):
        ev.reliability_curve([0], [[1.0, 0.0]], equal="size")
    with refused(DifferentLengths, first_name="gold", second_name="h", first_length=2, second_length=1):
        ev.log_loss([0, 1], [[1.0, 0.0]])
    with refused(NoGoldLabels, items=1):
        ev.expected_calibration_error([-1], [[1.0, 0.0]])
    with refused(NoItems):
        ev.reliability_curve(np.empty((0, 2)), np.empty((0, 2)))
