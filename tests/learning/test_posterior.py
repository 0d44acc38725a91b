import numpy as np
import pytest

from dissensus import Annotations
from dissensus.learning import CrowdClassifier, out_of_fold
from dissensus.learning.posterior import combine_posterior


def labelled(truth, right, redundancy, seed, n_annotators=9):
    """A table of two classes in which annotator j is right with probability right[j]."""
    rng = np.random.default_rng(seed)
    item = np.repeat(np.arange(truth.size), redundancy)
    annotator = np.concatenate([rng.permutation(n_annotators)[:redundancy] for _ in truth])
    wrong = rng.random(item.size) >= np.broadcast_to(right, n_annotators)[annotator]
    return Annotations.from_codes(
        item, annotator, truth[item] ^ wrong, np.arange(truth.size), np.arange(n_annotators), np.arange(2)
    )


def share_right(proba, truth):
    return (proba.argmax(axis=1) == truth).mean()


@pytest.mark.parametrize("redundancy", [2, 3])
def test_good_features_are_not_outvoted_by_poor_annotators(redundancy):
    rng = np.random.default_rng(1)
    truth = rng.integers(2, size=300)
    X = (2.2 * np.eye(2)[truth] + rng.normal(size=(300, 2)) * 0.6).astype(np.float32)
    table = labelled(truth, [0.5, 0.5, 0.5, 0.7, 0.7, 0.7, 0.7, 0.7, 0.7], redundancy, seed=2)
    model = CrowdClassifier(encoder="identity", device="cpu", seed=0).fit(table, X)
    assert model.power_ > 1
    assert share_right(model.posterior_, truth) > share_right(model.proba_, truth) - 0.01
    assert (
        share_right(combine_posterior(table, model.proba_, None)[0].posterior, truth)
        < share_right(model.proba_, truth) - 0.1
    )
    found = out_of_fold(model, table, X, folds=3)
    assert share_right(found.posterior, truth) > share_right(found.proba, truth) - 0.02


@pytest.mark.parametrize("right", [0.65, 1.0])
def test_probabilities_of_classes_keep_their_power(right):
    rng = np.random.default_rng(3)
    first = rng.beta(1, 1, size=600)
    truth = (rng.random(600) >= first).astype(np.int64)
    found, power = combine_posterior(
        labelled(truth, right, 3, seed=4), np.stack([first, 1 - first], axis=1), None, True
    )
    assert power == 1
    assert share_right(found.posterior, truth) > 0.75


def test_gold_stays_known():
    truth = np.random.default_rng(5).integers(2, size=200)
    table = labelled(truth, 0.7, 2, seed=6)
    seen = np.where(np.eye(2)[truth] > 0, 0.6, 0.4)  # the class, through annotators
    found, power = combine_posterior(table, seen, np.where(np.arange(200) < 9, truth, -1), True)
    assert power > 1
    np.testing.assert_array_equal(found.posterior[:9], np.eye(2)[truth[:9]])
