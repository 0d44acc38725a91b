"""A map of items: whose vectors, by what, how far classes are apart, and that names and not places decide."""

import dataclasses

import numpy as np
import pytest
import torch

from crowds import blobs
from dissensus.exceptions import BadParameter
from dissensus.features.exceptions import NoFeatureInputs
from dissensus.learning import LIA, CrowdClassifier
from dissensus.learning.annotator_map import project
from dissensus.learning.encoders import MLP, Identity
from dissensus.learning.exceptions import (
    CodesOutOfRange,
    RowCountDiffers,
    WrongModel,
    WrongShape,
)
from dissensus.learning.latent_map import find_neighbours, item_map, item_vectors, measure_separation, project_items
from dissensus.learning.objectives import objectives
from dissensus.models.exceptions import ModelNotFitted
from faults import raised
from learning.tables import fitted


def small(table, X, objective="soft", **keywords):
    usual = {"encoder": MLP(hidden=(8,), dropout=0.0), "epochs": 8, "device": "cpu"}
    return CrowdClassifier(**usual | {"objective": objective} | keywords).fit(table, X)


@pytest.fixture(scope="module")
def crowd():
    table, X, truth = blobs(60)
    return small(table, X), table, X, truth


# Vectors --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["soft", "crowd-layer", "soft-task", "lia"])
def test_the_last_layer_makes_logits_of_an_item_s_vector(name):
    objective, head, z, _ = fitted(objectives[name]())
    main = next((getattr(head, part) for part in ("main", "truth") if hasattr(head, part)), head)
    vectors = objective.item_vectors(head, z)
    assert vectors.shape == (len(z), 9)
    torch.testing.assert_close(main[1](vectors), objective.logits(head, z))


def test_vectors_are_the_network_s(crowd):
    model, _, X, _ = crowd
    vectors = item_vectors(model, X)
    assert vectors.shape == (60, 8)
    last = model.network_.head[1]
    logits = vectors @ last.weight.detach().double().numpy().T + last.bias.detach().double().numpy()
    proba = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(proba, model.predict_proba(X), atol=1e-6)


# The map --------------------------------------------------------------------------------------------------------------


def test_items_of_a_class_stand_together(crowd):
    model, table, X, _ = crowd
    found = item_map(model, X, table=table)
    assert (found.projection, found.n_rows, found.vector_length) == ("t-SNE", 60, 8)
    assert found.item.tolist() == list(range(60))
    votes = table.votes()
    sure = np.sort(votes, axis=1)[:, -1] > np.sort(votes, axis=1)[:, -2]
    assert found.class_code[sure].tolist() == votes.argmax(axis=1)[sure].tolist()
    assert found.separation.mean > 0.6 > 0.5 > found.separation.chance
    assert 0.5 < found.kept_neighbours <= 1


def test_the_same_seed_makes_the_same_map(crowd):
    model, table, X, _ = crowd
    first = item_map(model, X, table=table, seed=3)
    assert np.array_equal(item_map(model, X, table=table, seed=3).position, first.position)
    few = item_map(model, X, table=table, max_items=20, seed=3)
    assert len(few.item) == 20
    assert few.n_rows == 60
    assert item_map(model, X, table=table, max_items=20, seed=4).item.tolist() != few.item.tolist()


def test_classes_are_those_given_else_the_majority_s_else_the_model_s(crowd):
    model, table, X, truth = crowd
    assert item_map(model, X, table=table, codes=truth, max_items=12).class_code.max() <= 2
    given = item_map(model, X, codes=truth)
    assert given.class_code.tolist() == truth.tolist()
    assert item_map(model, X).class_code.tolist() == model.predict_proba(X).argmax(axis=1).tolist()
    silent = table.select(rows=table.item != 7)
    found = item_map(model, X, table=silent)
    assert found.class_code[7] == -1
    assert np.isnan(found.separation.same_class_share[7])


def test_a_few_items_stand_by_their_principal_components(crowd):
    model, _, X, _ = crowd
    found = item_map(model, X[:9])
    assert found.projection == "PCA"
    assert found.separation.n_neighbours == 8
    vectors = item_vectors(model, X[:9])
    expected = project(vectors / np.abs(vectors).max())[0]
    np.testing.assert_allclose(np.abs(found.position), np.abs(expected), atol=1e-5)
    one = item_map(model, X[:1])
    assert one.position.tolist() == [[0, 0]]
    assert np.isnan([one.kept_neighbours, one.separation.mean]).all()


def test_equal_vectors_have_one_place_and_perplexity_fits_few():
    rows = np.random.default_rng(0).normal(size=(12, 3))
    rows = np.concatenate([rows, rows[:5]])
    place, how = project_items(rows)
    assert how == "t-SNE"
    assert np.isfinite(place).all()
    assert np.array_equal(place[12:], place[:5])
    assert project_items(np.ones((40, 3)))[1] == "PCA"


def test_t_sne_is_scikit_learn_s():
    from sklearn.manifold import TSNE

    rows = np.random.default_rng(0).normal(size=(40, 4))
    order = np.lexsort(rows.T[::-1])
    expected = TSNE(perplexity=13, init="pca", random_state=5, n_jobs=1).fit_transform(rows[order])
    np.testing.assert_allclose(project_items(rows, seed=5)[0][order], expected, atol=1e-3)


def test_separation_by_a_loop():
    rng = np.random.default_rng(1)
    vectors, code = rng.normal(size=(30, 3)), rng.integers(-1, 4, 30)
    code[code == 2] = 0  # a class that nobody has
    near = find_neighbours(vectors, 4)
    found = measure_separation(near, code, 5)
    for i in range(30):
        far = np.linalg.norm(vectors - vectors[i], axis=1)
        others = [j for j in np.argsort(far) if j != i][:4]
        assert sorted(near[i]) == sorted(others)
        same = np.mean([code[j] == code[i] for j in others])
        assert np.isnan(found.same_class_share[i]) if code[i] < 0 else found.same_class_share[i] == pytest.approx(same)
    for k in range(5):
        assert found.class_counts[k] == np.count_nonzero(code == k)
    assert found.mean == pytest.approx(np.mean([s for s in found.same_class_share if not np.isnan(s)]))
    chance = [(found.class_counts[c] - 1) / 29 for c in code if c >= 0]
    assert found.chance == pytest.approx(np.mean(chance))


def test_vectors_that_say_nothing_are_separated_by_chance():
    rng = np.random.default_rng(0)
    found = measure_separation(find_neighbours(rng.normal(size=(800, 5))), rng.choice(3, 800, p=[0.7, 0.2, 0.1]), 3)
    assert found.mean == pytest.approx(found.chance, abs=0.03)


def test_what_is_kept_is_the_share_of_neighbours_by_a_loop(crowd):
    model, table, X, _ = crowd
    found = item_map(model, X, table=table)
    vectors = item_vectors(model, X)
    before, after = (
        find_neighbours(np.round(vectors / np.abs(vectors).max(), 6), 10),
        find_neighbours(found.position, 10),
    )
    assert found.kept_neighbours == pytest.approx(
        np.mean([len(set(a) & set(b)) / 10 for a, b in zip(before, after, strict=True)])
    )


def test_every_model_has_a_map_and_what_is_none_is_named(crowd):
    _, table, X, _ = crowd
    lia = LIA(hidden=(6,), steps=10).fit(table, X)
    assert item_map(lia, X, max_items=9).vector_length == item_vectors(lia.classifier_, X).shape[1]
    linear = small(table, X, "crowd-layer", encoder=Identity(scale=False), epochs=1)
    np.testing.assert_allclose(item_vectors(linear, X), X, rtol=1e-6)  # nothing between the input and the last layer
    with raised(WrongModel, actual="dict"):
        item_map({}, X)
    with raised(ModelNotFitted, method="CrowdClassifier"):
        item_map(CrowdClassifier(), X)


def test_wrong_keywords_and_sizes_are_named(crowd):
    model, table, X, truth = crowd
    with raised(RowCountDiffers, n_rows=10, n_entries=60):
        item_map(model, X[:10], table=table)
    with pytest.raises(NoFeatureInputs):
        item_map(model, X[:0])
    with raised(WrongShape, argument="codes", expected=(60,), type_name="float64", shape=(60,)):
        item_map(model, X, codes=truth / 2)
    with raised(CodesOutOfRange, argument="codes", highest=2, high=3):
        item_map(model, X, codes=truth + 1)
    with raised(BadParameter, keyword="max_items"):
        item_map(model, X, max_items=0)
    with raised(BadParameter, keyword="seed"):
        item_map(model, X, seed=-1)


def test_names_of_classes_and_annotators_change_nothing(crowd):
    model, table, X, _ = crowd
    votes = table.votes()
    sure = np.sort(votes, axis=1)[:, -1] > np.sort(votes, axis=1)[:, -2]  # of a tie names decide
    named = dataclasses.replace(table, annotators=np.array([f"z{j}" for j in range(7)], object))
    other = dataclasses.replace(named, classes=np.array(["x", "y", "z"], object))
    first, again = item_map(model, X, table=table), item_map(model, X, table=other)
    assert np.array_equal(first.position, again.position)
    assert np.array_equal(first.class_code[sure], again.class_code[sure])
