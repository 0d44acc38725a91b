"""Sets of labels: what they hold, by votes and by gold, and how often."""

import numpy as np
import pytest

from crowds import blobs
from dissensus.exceptions import BadParameter
from dissensus.learning import CrowdClassifier
from dissensus.learning.conformal import find_threshold, make_label_sets
from dissensus.learning.exceptions import HeldOutItemsNeeded
from dissensus.learning.objectives import Auto
from faults import raised


def drawn(n, seed, K=4):
    """Probabilities and the shares of five votes drawn from others: the model is wrong."""
    rng = np.random.default_rng(seed)
    right = rng.dirichlet(np.full(K, 0.5), n)
    said = right**2 + 0.05
    votes = np.array([rng.multinomial(5, row) for row in right]) / 5
    return said / said.sum(axis=1, keepdims=True), votes


def test_the_threshold_is_that_of_a_loop_over_all():
    said, votes = drawn(40, 0)

    def inside(t):
        return sum(votes[i, k] for i in range(40) for k in range(4) if said[i, k] >= t)

    expected = max(t for t in said.ravel() if inside(t) >= 0.8 * 41 - 1e-9)
    assert find_threshold(said, votes, 0.8) == expected


def test_with_gold_it_is_the_quantile_of_split_conformal_prediction():
    rng = np.random.default_rng(0)
    said, _ = drawn(98, 0)
    gold = rng.integers(4, size=98)
    scores = np.sort(1 - said[np.arange(98), gold])
    assert find_threshold(said, np.eye(4)[gold], 0.9) == pytest.approx(
        1 - scores[89]
    )  # ⌈0.9 · 99⌉ = 90, not ⌈0.9 · 98⌉


def test_too_few_items_give_all_classes():
    said, votes = drawn(5, 0)
    assert find_threshold(said, votes, 0.9) == 0


def test_coverage_is_what_is_asked_for():
    """A model that is wrong about everything; 200 draws of 100 items that calibrate and 100 that do not."""
    found = []
    for seed in range(200):
        said, votes = drawn(200, seed)
        sets = make_label_sets(said[100:], np.arange(4), said[:100], votes[:100], 0.9)
        found.append((votes[100:] * sets.members).sum(axis=1).mean())
    assert 0.895 < np.mean(found) < 0.915


def test_coverage_is_reported_by_items_that_had_no_part():
    said, votes = drawn(2000, 1)
    sets = make_label_sets(said[:3], np.array(["a", "b", "c", "d"], object), said, votes, 0.9)
    assert sets.covered.low < 0.9 < sets.covered.high
    assert sets.n_held_out == 2000
    assert sets.to_lists() == [
        [name for name, p in zip("abcd", row, strict=True) if p >= sets.threshold] for row in said[:3]
    ]


@pytest.mark.parametrize("keywords", [{"objective": Auto(folds=2)}, {"objective": "soft"}])
def test_a_classifier_says_sets_before_and_after_it_was_saved(keywords, tmp_path):
    table, X, _ = blobs(120)
    model = CrowdClassifier(epochs=3, device="cpu", **keywords)
    model.fit(table, X, validation=0.3 if keywords["objective"] == "soft" else None)
    sets = model.predict_sets(X, coverage=0.8)
    n = 36 if keywords["objective"] == "soft" else 120
    assert (sets.members.shape, sets.n_held_out) == ((120, 3), n)
    np.testing.assert_array_equal(sets.members, model.predict_proba(X) >= sets.threshold)
    model.save(tmp_path)
    again = CrowdClassifier.load(tmp_path, device="cpu").predict_sets(X, coverage=0.8)
    np.testing.assert_array_equal(again.members, sets.members)
    with raised(BadParameter, keyword="coverage"):
        model.predict_sets(X, coverage=90)


def test_held_out_items_are_needed():
    table, X, _ = blobs(30)
    model = CrowdClassifier(objective="soft", epochs=1, device="cpu").fit(table, X)
    with pytest.raises(HeldOutItemsNeeded):
        model.predict_sets(X)


def test_few_items_that_are_all_covered_are_no_certainty():
    covered = make_label_sets(np.eye(2), np.arange(2), np.eye(2), np.eye(2), 0.9).covered
    assert (covered.value, covered.high) == (1, 1)
    assert 0.3 < covered.low < 0.4  # Wilson's; it was 1


def test_auto_of_too_few_items_says_how_many_it_takes():
    table, X, _ = blobs(120)
    few = np.arange(120) < 9
    model = CrowdClassifier(device="cpu").fit(table.select(items=few), X[few])
    with pytest.raises(HeldOutItemsNeeded):
        model.predict_sets(X)
