"""CROWDLAB: its formulas as loops, and the figures of cleanlab on the same labels."""

import numpy as np
import pytest

from dissensus import Annotations
from dissensus.learning import crowdlab
from dissensus.learning.exceptions import NoItemWithTwoLabels, WeightedLabels, WrongShape
from faults import raised
from tables import random_table

# cleanlab 2.9.0, get_label_quality_multiannotator(labels, proba, return_weights=True), of `crowd()`
MODEL_WEIGHT = 1.559914527573012
WEIGHTS = [0.2002002, 0.22633745, 0.08127572, 1e-6, 0.48422497, 1e-6, 0.18765432, 0.24724725, 0.17227774]
CONFIDENCE = [0.59473707, 0.69865819, 0.66650379, 0.84764146, 0.64380465, 0.54848941]
LABELS = "212212200002201202012010202111111222211210202100100121222111"


def crowd():
    """60 items, 9 annotators (the last one shares no item), 3 classes, and a classifier's predictions."""
    rng = np.random.default_rng(7)
    truth, skill = rng.integers(0, 3, 60), rng.uniform(0.4, 0.95, 9)
    said = np.full((60, 9), -1)
    for i in range(60):
        for j in rng.permutation(9)[: rng.integers(1, 5)]:
            said[i, j] = truth[i] if rng.random() < skill[j] else rng.integers(0, 3)
    said[:, 8], said[3], said[3, 8] = -1, -1, 1
    said[(said < 0).all(axis=1), 0] = truth[(said < 0).all(axis=1)]
    proba = rng.dirichlet(np.ones(3), 60) * 0.5
    proba[np.arange(60), truth] += 0.5
    return Annotations.from_matrix(said, classes=3), proba


def test_figures_are_those_of_cleanlab():
    found = crowdlab(*crowd())
    assert "".join(map(str, found.label)) == LABELS
    assert found.model_weight == pytest.approx(MODEL_WEIGHT, rel=1e-12)
    np.testing.assert_allclose(found.annotator_weight, WEIGHTS, atol=1e-8)
    np.testing.assert_allclose(found.posterior[np.arange(6), found.label[:6]], CONFIDENCE, atol=1e-8)


def literal(table, proba, consensus):
    """(posterior, weights, model weight) by loops over labels, for a consensus."""
    labels = [
        [(table.annotator[n], table.label[n]) for n in np.flatnonzero(table.item == i)] for i in range(len(proba))
    ]
    several = [i for i, given in enumerate(labels) if len(given) > 1]
    K = table.n_classes
    agreed = np.mean([np.mean([y == consensus[i] for _, y in labels[i]]) for i in several])
    often = max(range(K), key=lambda k: (sum(consensus[i] == k for i in several), -k))
    base = np.mean([consensus[i] != often for i in several])
    weight = np.zeros(table.n_annotators)
    for j in range(table.n_annotators):
        pairs = []
        for given in labels:
            for at, (who, y) in enumerate(given):
                pairs += [y == other for place, (_, other) in enumerate(given) if place != at] if who == j else []
        weight[j] = max(1 - (1 - np.mean(pairs)) / base, 1e-6)
    wrong = np.mean([proba[i].argmax() != consensus[i] for i in several])
    model = max(1 - wrong / base, 1e-6) * np.sqrt(np.mean([len(given) for given in labels if given]))
    q = np.zeros_like(proba)
    for i, given in enumerate(labels):
        q[i] = model * proba[i]
        for j, y in given:
            for k in range(K):
                q[i, k] += weight[j] * (agreed if k == y else (1 - agreed) / (K - 1))
        q[i] /= model + sum(weight[j] for j, _ in given)
    return q, weight, model


def test_posterior_and_weights_are_the_literal_ones():
    table = random_table(1, n=60)
    proba = np.random.default_rng(0).dirichlet(np.ones(4) / 3, table.n_items)
    found = crowdlab(table, proba)
    votes = table.votes()
    first = [max(range(4), key=lambda k: (votes[i, k], proba[i, k])) for i in range(table.n_items)]
    second = literal(table, proba, first)[0].argmax(axis=1)
    q, weight, model = literal(table, proba, second)
    np.testing.assert_array_equal(found.label, second)
    np.testing.assert_allclose(found.posterior, q, rtol=1e-12)
    np.testing.assert_allclose(found.annotator_weight, weight, rtol=1e-12)
    assert found.model_weight == pytest.approx(model)
    empty = np.diff(table.item_ptr) == 0
    assert empty.any()
    np.testing.assert_allclose(found.posterior[empty], proba[empty])
    np.testing.assert_allclose(found.posterior.sum(axis=1), 1)


def test_what_cannot_be_done_is_said():
    table, proba = crowd()
    with raised(WrongShape, argument="proba", expected=(60, 3), shape=(60, 2)):
        crowdlab(table, proba[:, :2])
    with pytest.raises(WeightedLabels):
        crowdlab(random_table(0, weight=lambda rng, n: rng.random(n)), np.full((23, 4), 0.25))
    with pytest.raises(NoItemWithTwoLabels):
        crowdlab(Annotations.from_arrays([0, 1], [0, 0], [0, 1]), np.full((2, 2), 0.5))
