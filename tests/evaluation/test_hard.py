from __future__ import annotations

import numpy as np
import pytest
from sklearn import metrics

from dissensus import evaluation as ev
from dissensus.evaluation.exceptions import (
    BadClassCodes,
    CodeOutOfRange,
    DifferentLengths,
    NegativeCode,
    NoGoldLabels,
    UnevenRows,
    WrongArrayType,
)
from refused import refused


@pytest.fixture(params=[(50, 3), (7, 11), (300, 2)])
def codes(request):
    """Gold with unknown entries and predictions; more classes than items once, and classes that never occur."""
    I, K = request.param
    rng = np.random.default_rng(I)
    gold = rng.integers(-1, K, I)
    predicted = np.where(rng.random(I) < 0.6, np.maximum(gold, 0), rng.integers(0, max(K - 1, 1), I))
    return gold, predicted, K


def test_scores_are_scikit_learn_s_over_the_known_items(codes):
    gold, predicted, K = codes
    g, p = gold[gold >= 0], predicted[gold >= 0]
    assert ev.accuracy(gold, predicted) == pytest.approx(metrics.accuracy_score(g, p))
    recalls = metrics.recall_score(g, p, labels=np.unique(g), average="macro")
    assert ev.balanced_accuracy(gold, predicted) == pytest.approx(recalls)
    assert ev.macro_f1(gold, predicted) == pytest.approx(metrics.f1_score(g, p, average="macro"))
    assert ev.micro_f1(gold, predicted) == pytest.approx(metrics.f1_score(g, p, average="micro"))
    expected = metrics.confusion_matrix(g, p, labels=range(K + 2))
    assert ev.confusion_matrix(gold, predicted, K + 2).tolist() == expected.tolist()
    assert set(ev.hard_scores(gold, predicted)) == {"accuracy", "balanced_accuracy", "macro_f1", "micro_f1"}


@pytest.mark.parametrize("classes", [[1], [1, 0], [0, 2, 13]])
def test_f1_over_chosen_classes_is_scikit_learn_s(codes, classes):
    gold, predicted, _ = codes
    g, p = gold[gold >= 0], predicted[gold >= 0]
    for average, ours in (("macro", ev.macro_f1), ("micro", ev.micro_f1)):
        theirs = metrics.f1_score(g, p, labels=classes, average=average, zero_division=0)
        assert ours(gold, predicted, classes=classes) == pytest.approx(theirs)


def test_ties_count_as_a_fair_draw_would_on_average():
    posterior = [[0.4, 0.4, 0.2], [0.2, 0.4, 0.4], [1 / 3, 1 / 3, 1 / 3], [0.0, 1.0, 0.0], [0.9, 0.1, 0.0]]
    gold = [0, 0, 2, 1, -1]
    assert ev.expected_accuracy(gold, posterior) == pytest.approx((1 / 2 + 0 + 1 / 3 + 1) / 4)
    rng = np.random.default_rng(0)  # by drawing
    best = np.isclose(posterior, np.max(posterior, axis=1, keepdims=True))
    drawn = np.where(best, rng.random((40_000, 5, 3)), 0).argmax(axis=2)[:, :4]
    assert ev.expected_accuracy(gold, posterior) == pytest.approx((drawn == gold[:4]).mean(), abs=0.01)


def test_a_nearly_tied_class_is_tied_and_a_less_probable_one_is_not():
    third = 0.1 + 0.1 + 0.1  # not 0.3
    assert ev.expected_accuracy([0], [[0.3, third, 0.4 - 1e-16]]) == 0
    assert ev.expected_accuracy([0], [[0.5 - 1e-14, 0.5 + 1e-14]]) == 0.5
    assert ev.expected_accuracy([0], [[0.49, 0.51]]) == 0
    assert ev.expected_accuracy([0], [[0.49, 0.51]], tie=0.1) == 0.5


@pytest.mark.parametrize(
    ("gold", "predicted", "error", "facts"),
    [
        ([0, 1], [0, 1, 1], DifferentLengths, {"first_name": "gold", "first_length": 2, "second_length": 3}),
        ([-1, -1], [0, 1], NoGoldLabels, {"items": 2}),
        ([0, -2], [0, 1], NegativeCode, {"name": "gold", "row": 1, "code": -2}),
        ([0, 1], [0, -1], CodeOutOfRange, {"name": "predicted", "row": 1, "code": -1}),
        ([0.5, 1.0], [0, 1], WrongArrayType, {"name": "gold", "content": "codes", "dtype": "float64", "shape": (2,)}),
        ([[0, 1]], [0, 1], WrongArrayType, {"dtype": "int64", "shape": (1, 2)}),
        ([[0, 1], [0]], [0, 1], UnevenRows, {"name": "gold"}),
    ],
)
def test_bad_codes_are_refused_in_one_sentence(gold, predicted, error, facts):
    with refused(error, **facts):
        ev.accuracy(gold, predicted)


def test_codes_beyond_the_classes_are_refused():
    with refused(CodeOutOfRange, name="gold", row=1, code=4, n_classes=3):
        ev.confusion_matrix([0, 4], [0, 1], 3)
    with refused(CodeOutOfRange, row=0, code=2, n_classes=2):
        ev.expected_accuracy([2], [[0.5, 0.5]])
    with refused(BadClassCodes, codes=(1, 1)):
        ev.macro_f1([0], [0], classes=[1, 1])
    with refused(DifferentLengths, second_name="posterior", first_length=2, second_length=1):
        ev.expected_accuracy([0, 1], [[0.5, 0.5]])


def test_an_unknown_item_may_be_predicted_as_anything():
    assert ev.accuracy([0, -1], [0, -1]) == 1
