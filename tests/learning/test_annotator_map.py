"""A map of annotators: where they stand, by what, and that names and not places decide."""

import sys
from types import ModuleType

import numpy as np
import pytest

from crowds import blobs
from dissensus.exceptions import BadParameter, MissingExtra
from dissensus.learning import LIA, CrowdClassifier
from dissensus.learning.annotator_map import (
    align_difficulty,
    align_posterior,
    annotator_map,
    competence_coordinates,
    project,
)
from dissensus.learning.exceptions import (
    ModelOfOtherTable,
    NoLabelsOfModel,
    TooFewForUMAP,
    WrongModel,
)
from dissensus.questions.annotator_errors import annotator_errors

SMALL = {"hidden": (6,), "steps": 40, "dropout": 0.0}


@pytest.fixture(scope="module")
def lia():
    table, X, _ = blobs(60)
    return LIA(**SMALL).fit(table, X), table


class Fake:
    """In the place of umap.UMAP: says what it was asked."""

    def __init__(self, **keywords):
        self.keywords = keywords

    def fit_transform(self, rows):
        return np.column_stack([np.full(len(rows), self.keywords["random_state"]), np.arange(len(rows))])


@pytest.fixture
def umap(monkeypatch):
    module = ModuleType("umap")
    module.UMAP = Fake
    monkeypatch.setitem(sys.modules, "umap", module)


def test_principal_components_are_scikit_learn_s():
    from sklearn.decomposition import PCA

    rows = np.random.default_rng(0).normal(size=(12, 5)) * [3, 2, 1, 1, 0.5]
    found, how = project(rows)
    other = PCA(2).fit_transform(rows)
    assert how == "PCA"
    np.testing.assert_allclose(np.abs(found), np.abs(other), atol=1e-9)
    np.testing.assert_allclose(project(rows[::-1])[0][::-1], found, atol=1e-9)  # no order decides what is up
    assert project(rows[:1])[0].tolist() == [[0, 0]]
    assert project(rows[:, :1])[0][:, 1].tolist() == [0] * 12


def test_umap_is_taken_where_it_is_there_and_there_are_enough(umap):
    rows = np.random.default_rng(0).normal(size=(16, 5))
    found, how = project(rows, seed=7)
    assert how == "UMAP"
    assert found[:, 0].tolist() == [7] * 16
    assert project(rows[:15])[1] == "PCA"
    assert project(rows[:15], projection="umap")[1] == "UMAP"
    assert project(rows, projection="pca")[1] == "PCA"
    with pytest.raises(TooFewForUMAP) as caught:
        project(rows[:3], projection="umap")
    assert caught.value.n_annotators == 3


def test_without_umap_there_is_another_map_or_one_sentence(monkeypatch):
    monkeypatch.setitem(sys.modules, "umap", None)
    rows = np.random.default_rng(0).normal(size=(20, 5))
    assert project(rows)[1] == "PCA"
    with pytest.raises(MissingExtra):
        project(rows, projection="umap")


def test_umap_itself_keeps_groups_together(monkeypatch):
    pytest.importorskip("umap")
    from umap import umap_

    for name in ("fast_knn_indices", "smooth_knn_dist", "compute_membership_strengths"):  # compiling them takes 11 s
        monkeypatch.setattr(umap_, name, getattr(umap_, name).py_func)
    rng = np.random.default_rng(0)
    group = np.arange(40) % 2
    rows = rng.normal(size=(40, 4)) + 12 * group[:, None]
    found, how = project(rows, projection="umap")
    assert how == "UMAP"
    assert np.array_equal(found, project(rows, projection="umap")[0])
    near = np.linalg.norm(found[:, None] - found, axis=2) + np.eye(40) * 1e9
    assert (group[near.argmin(axis=1)] == group).all()


def test_annotators_stand_by_their_embeddings_and_err_by_the_posterior(lia):
    model, table = lia
    found = annotator_map(model, table, min_labels=5)
    assert found.projection == "PCA"
    assert found.annotator.tolist() == list(range(7))
    np.testing.assert_allclose(found.position, project(competence_coordinates(model.classifier_))[0])
    expected = annotator_errors(table, model.posterior_, least=5)
    assert np.array_equal(found.mistakes.error_rate, expected.error_rate, equal_nan=True)
    assert np.array_equal(found.mistakes.cluster, expected.cluster)
    one = annotator_map(model.classifier_, table, min_labels=5)  # the classifier itself
    assert np.array_equal(one.position, found.position)


def test_a_part_of_the_table_in_another_order_of_classes_is_matched_by_name(lia):
    model, table = lia
    turned = table.with_classes(table.classes[::-1].copy())
    np.testing.assert_allclose(align_posterior(model, turned)[:, ::-1], model.posterior_)
    part = turned.select(items=table.items[5:40], annotators=table.annotators[[1, 4, 6]])
    np.testing.assert_allclose(align_difficulty(model, part), model.difficulty_[5:40])
    found = annotator_map(model, part, min_labels=1)
    rows = competence_coordinates(model.classifier_)[[1, 4, 6]]
    np.testing.assert_allclose(found.position, project(rows)[0])
    whole = annotator_errors(part, align_posterior(model, part), least=1)
    np.testing.assert_allclose(found.mistakes.error_rate, whole.error_rate)


def test_who_has_no_labels_has_no_place_and_of_many_the_busiest_are_there(lia):
    model, table = lia
    nobody = table.select(rows=table.annotator != 2)
    assert annotator_map(model, nobody).annotator.tolist() == [0, 1, 3, 4, 5, 6]
    found = annotator_map(model, table, max_annotators=3)
    labels = np.diff(table.annotator_ptr)
    assert found.n_labelled == 7
    assert sorted(labels[found.annotator]) == sorted(labels)[-3:]


def test_wrong_models_and_tables_are_named(lia):
    model, table = lia
    other, X, _ = blobs(60)
    soft = CrowdClassifier(objective="soft", epochs=1, device="cpu").fit(other, X)
    with pytest.raises(WrongModel):
        annotator_map(soft, table)
    with pytest.raises(WrongModel):
        annotator_map(LIA(), table)
    with pytest.raises(BadParameter):
        annotator_map(model, table, projection="tsne")
    items = np.array([f"z{i}" for i in range(60)], object)
    import dataclasses

    with pytest.raises(ModelOfOtherTable):
        annotator_map(model, dataclasses.replace(table, items=items))
    people = np.array([f"z{i}" for i in range(7)], object)
    with pytest.raises(NoLabelsOfModel):
        annotator_map(model, dataclasses.replace(table, annotators=people))
