"""Difficulty and competence of a fitted classifier, against LIA's own answers for every pair."""

import numpy as np
import pytest

from crowds import blobs
from dissensus import Annotations
from dissensus.learning import LIA, CrowdClassifier
from dissensus.learning import competence as module
from dissensus.learning.annotator_map import competence_coordinates
from dissensus.learning.competence import annotator_embeddings, sample_items
from dissensus.learning.objectives import LIAObjective

SMALL = {"hidden": (6,), "steps": 40, "dropout": 0.0}


@pytest.fixture(scope="module")
def lia():
    table, X, _ = blobs(40)
    return LIA(**SMALL).fit(table, X)


@pytest.mark.parametrize("keywords", [{}, {"difficulty": False}, {"annotator_size": None}, {"latent": 2}])
def test_they_are_means_over_all_pairs_of_a_small_table(keywords):
    table, X, _ = blobs(40)
    model = LIA(**SMALL | keywords).fit(table, X)
    classifier, q = model.classifier_, model.posterior_
    average = model.confusion(None, ["nobody"])  # (I, 1, K, K)
    for i in (0, 7, 31):
        expected = 1 - sum(q[i, k] * average[i, 0, k, k] for k in range(3))
        assert classifier.difficulty_[i] == pytest.approx(expected, abs=1e-6)
    pairs = model.confusion()
    order = sorted(range(40), key=lambda i: classifier.difficulty_[i])
    for j in range(table.n_annotators):
        right = [sum(q[i, k] * pairs[i, j, k, k] for k in range(3)) for i in order]
        expected = [np.mean(right), np.mean(right[:10]), np.mean(right[-10:])]
        np.testing.assert_allclose(classifier.competence_[j], expected, atol=1e-6)


def test_annotators_are_looked_at_in_parts(lia, monkeypatch):
    table, X, _ = blobs(40)
    monkeypatch.setattr(module, "MAX_CONFUSION_ENTRIES", 40 * 9 * 2)
    np.testing.assert_allclose(LIA(**SMALL).fit(table, X).competence_, lia.competence_, atol=1e-6)


def test_a_sample_of_many_items_stands_evenly_in_their_order(monkeypatch):
    rng = np.random.default_rng(0)
    difficulty, among = rng.random(1000), np.flatnonzero(rng.random(1000) < 0.9)
    found = sample_items(difficulty, among, 10, 2)
    assert found.size == module.MAX_SAMPLED_ITEMS
    assert np.isin(found, among).all()
    assert (np.diff(difficulty[found]) >= 0).all()
    rank = np.searchsorted(np.sort(difficulty[among]), difficulty[found])
    assert np.diff(rank).max() - np.diff(rank).min() <= 1
    assert rank[0] <= among.size / module.MAX_SAMPLED_ITEMS
    assert rank[-1] >= among.size * (1 - 1 / module.MAX_SAMPLED_ITEMS) - 1
    assert sorted(sample_items(difficulty, among[:50], 10, 2).tolist()) == among[:50].tolist()
    monkeypatch.setattr(module, "MAX_SAMPLED_ENTRIES", 10**6)
    assert sample_items(difficulty, among, 5000, 2).size == 50
    assert sample_items(difficulty, among, 10**6, 2).size == module.MIN_SAMPLED_ITEMS
    assert sample_items(difficulty, among[:5], 10**6, 2).size == 5


def test_who_gave_no_labels_is_an_average_annotator():
    table = Annotations.from_arrays([0, 0, 1, 1, 2], [0, 1, 0, 1, 1], [0, 1, 1, 1, 0], annotators=range(4))
    model = LIA(**SMALL).fit(table)
    nobody = model.competence(None, [99])[:, 0]
    np.testing.assert_allclose(model.competence_[2:, 0], nobody.mean(), rtol=1e-6)
    assert (np.abs(model.competence_[:2, 0] - nobody.mean()) > 1e-4).any()


def test_they_are_kept_shown_and_forgotten(tmp_path):
    table, X, _ = blobs(40)
    model = CrowdClassifier(objective=LIAObjective(rounds=2), epochs=4, device="cpu").fit(table, X)
    assert model.to_frame("items").column("difficulty").to_numpy() == pytest.approx(model.difficulty_)
    names = model.to_frame("annotators").column_names
    assert names[3:] == ["competence_all", "competence_easiest", "competence_hardest"]
    model.save(tmp_path)
    again = CrowdClassifier.load(tmp_path, device="cpu")
    assert np.array_equal(again.difficulty_, model.difficulty_)
    assert np.array_equal(again.competence_, model.competence_)
    assert np.array_equal(annotator_embeddings(again), annotator_embeddings(model))
    model.set_params(objective="soft").fit(table, X)
    assert model.difficulty_ is None
    assert model.competence_ is None
    assert "difficulty" not in model.to_frame("items").column_names


def test_coordinates_have_the_distances_of_what_competence_is_made_of(lia):
    model = lia.classifier_
    linear = model.network_.head.competence.linear.weight.detach().numpy()
    made = annotator_embeddings(model) @ linear.T  # V e_j
    found = competence_coordinates(model)
    for a in range(7):
        for b in range(7):
            assert np.linalg.norm(found[a] - found[b]) == pytest.approx(np.linalg.norm(made[a] - made[b]), abs=1e-5)
    table, X, _ = blobs(40)
    plain = LIA(**SMALL, annotator_size=None).fit(table, X)
    assert np.array_equal(competence_coordinates(plain.classifier_), plain.embedding_)
