"""closest and rover: distances and passes against literal loops, recovery, and what they refuse."""

from __future__ import annotations

import numpy as np
import pytest

from dissensus import Annotations, load, save
from dissensus.evaluation.distances import pair_distances
from dissensus.exceptions import DataError
from dissensus.models.exceptions import GoldNotUsed
from dissensus.models.methods.closest import Closest, candidate_scores, expected_distances, find_candidates
from dissensus.models.methods.rover import Rover, vote_by_word
from dissensus.table.simulate import simulate_texts


@pytest.fixture(scope="module")
def drawn():
    return simulate_texts(150, 20, redundancy=5, spammers=3, seed=2)


def edits(a, b):
    """The edit distance, literally by its recursion."""
    if not a or not b:
        return len(a) + len(b)
    if a[0] == b[0]:
        return edits(a[1:], b[1:])
    return 1 + min(edits(a[1:], b), edits(a, b[1:]), edits(a[1:], b[1:]))


def error_rate(answers, drawn):
    both = [*answers, *drawn.truth]
    n = drawn.truth.size
    return pair_distances(both, np.arange(n), np.arange(n) + n, "words").mean()


def test_edit_distances_are_those_of_the_recursion():
    rng = np.random.default_rng(0)
    texts = [" ".join(rng.choice(list("abc"), rng.integers(0, 6))) for _ in range(12)]
    left, right = (one.reshape(-1) for one in np.indices((12, 12)))
    literal = [
        edits(texts[a].split(), texts[b].split()) / max(len(texts[a].split()), len(texts[b].split()), 1)
        for a, b in zip(left, right, strict=True)
    ]
    np.testing.assert_allclose(pair_distances(texts, left, right, "words"), literal)


@pytest.mark.parametrize(
    ("distance", "a", "b", "apart"),
    [
        ("characters", "kitten", "sitting", 3 / 7),
        ("boxes", "0, 0, 2, 2", "1, 1, 2, 2", 1 - 1 / 7),
        ("boxes", "[0, 0, 0, 0]", "0,0,0,0", 0),
        (lambda a, b: abs(len(a) - len(b)), "aa", "abcd", 2),
    ],
)
def test_other_distances(distance, a, b, apart):
    assert pair_distances([a, b], np.array([0]), np.array([1]), distance)[0] == pytest.approx(apart)


def test_no_distance_is_refused():
    with pytest.raises(DataError):
        pair_distances(["1, 2", "0, 0, 1, 1"], np.array([0]), np.array([1]), "boxes")
    with pytest.raises(DataError):
        pair_distances(["a", "b"], np.array([0]), np.array([1]), lambda a, b: -1)


def test_a_round_is_what_a_loop_makes_of_it():
    labels = ["a b c", "a b", "a b c", "x", "a y c", "p q", "p q r", "p"]
    items, annotators = [0, 0, 0, 0, 0, 1, 1, 1], [0, 1, 2, 3, 4, 0, 1, 3]
    table = Annotations.from_arrays(items, annotators, labels, kind="objects")
    weight, error = np.array([1, 2, 1, 1, 0.5, 1, 1, 3.0]), np.array([0.2, 0.3, 0.1, 0.9, 0.5])
    found = find_candidates(table, "words")

    def delta(x, y):
        return edits(x.split(), y.split()) / max(len(x.split()), len(y.split()))

    text = table.classes[table.label]
    for c in range(found.item.size):
        rows = np.flatnonzero(table.item == found.item[c])
        t = table.classes[found.label[c]]
        literal = -sum(weight[r] * delta(text[r], t) / error[table.annotator[r]] for r in rows)
        assert candidate_scores(found, table, weight, error)[c] == pytest.approx(literal)
    for r in range(len(table)):
        others = [k for k in np.flatnonzero(table.item == table.item[r]) if k != r]
        of = {
            t: sum(weight[k] * delta(text[k], t) / error[table.annotator[k]] for k in others)
            for t in {text[k] for k in others}
        }
        q = {t: np.exp(-cost) for t, cost in of.items()}
        literal = sum(q[t] * delta(text[r], t) for t in q) / sum(q.values())
        assert expected_distances(found, table, weight, error)[r] == pytest.approx(literal)


def test_truth_and_annotators_are_found_again(drawn):
    closest, rover = Closest().fit(drawn.annotations), Rover().fit(drawn.annotations)
    assert closest.converged_
    assert np.corrcoef(closest.error_, drawn.error)[0, 1] > 0.95
    spam = drawn.error == 1
    assert closest.reliability_[spam].max() < 0.2 < 0.5 < closest.reliability_[~spam].min()
    table = drawn.annotations
    texts = [[one.split() for one in table.classes[table.label[table.item == i]]] for i in range(150)]
    alike = [vote_by_word(one, np.ones(5))[0] for one in texts]
    found = error_rate(rover.predict(), drawn)
    assert found < 0.8 * error_rate(alike, drawn)
    assert found < 0.5 * error_rate(closest.predict(), drawn)
    assert error_rate(closest.predict(), drawn) < 0.6 * drawn.error.mean()
    right = closest.predict() == drawn.truth
    assert closest.confidence_[right].mean() > closest.confidence_[~right].mean()
    assert closest.expected_distance_[right].mean() < closest.expected_distance_[~right].mean()


def test_words_are_voted_on_one_by_one():
    texts = ["the cat sat", "a cat sat down", "the bat sat", "the cat sat down"]
    assert vote_by_word([one.split() for one in texts], np.ones(4))[0] in ("the cat sat", "the cat sat down")
    assert vote_by_word([one.split() for one in texts[:3]], np.ones(3))[0] == "the cat sat"
    assert vote_by_word([one.split() for one in texts[:3]], np.array([1, 5, 1.0]))[0] == "a cat sat down"
    assert vote_by_word([[], []], np.ones(2)) == ("", 1.0)


def test_order_and_names_change_nothing_and_items_without_labels_stay_empty():
    table = Annotations.from_arrays(
        [2, 1, 1, 1], ["z", "x", "y", "z"], ["t", "b", "a", "a"], kind="objects", items=[1, 2, 3]
    )
    model = Closest().fit(table)
    assert model.predict().tolist() == ["a", "t", ""]
    assert model.confidence_[2] == 0
    again = Closest().fit(
        Annotations.from_arrays([1, 1, 1, 2], ["q", "p", "r", "r"], ["a", "b", "a", "t"], kind="objects")
    )
    assert again.confidence_.tolist() == pytest.approx(model.confidence_[:2].tolist())
    assert model.predict(table.select(items=[1])).tolist() == ["a"]
    with pytest.raises(GoldNotUsed):
        Closest().fit(table, gold=np.array([0, -1, -1]))


@pytest.mark.parametrize("method", [Closest, Rover])
def test_a_model_is_kept(method, drawn, tmp_path):
    model = method().fit(drawn.annotations)
    save(model, tmp_path)
    some = drawn.annotations.select(items=drawn.annotations.items[:9])
    assert load(tmp_path).predict(some).tolist() == model.predict()[:9].tolist()
    assert model.to_frame("annotators", "pyarrow").column_names[-1] == "error"
