"""Whom to ask next by what a network has learnt: Q_ij of LIA, one matrix per annotator of other classifiers."""

import numpy as np
import pytest

pytest.importorskip("torch", reason="needs the `learning` extra")

from dissensus import Annotations, recommend
from dissensus.exceptions import DataError
from dissensus.learning import LIA, CrowdClassifier
from dissensus.learning.encoders import MLP
from dissensus.table.simulate import simulate


@pytest.fixture(scope="module")
def table():
    return simulate(30, 6, 3, redundancy=2, seed=4).annotations


def entropy(p):
    return -(p * np.log(np.maximum(p, 1e-300))).sum()


def test_lia_is_asked_with_the_confusion_of_each_pair(table):
    model = LIA(steps=40, seed=0).fit(table)
    found = recommend(model, table, budget=200, capacity=None, per_item=1, settled=None)
    assert len(found) == 30
    for item, annotator, about_item in zip(found.items, found.annotators, found.about_item, strict=True):
        q, theta = model.posterior_[item], model.confusion([item], [annotator])[0, 0]
        joint = q[:, None] * theta
        assert about_item == pytest.approx(entropy(q) + entropy(joint.sum(axis=0)) - entropy(joint), abs=1e-6)
    assert len(recommend(model, table, budget=17)) == 17


def test_items_that_lia_was_not_fitted_to_are_refused(table):
    model = LIA(steps=20, seed=0).fit(table)
    more = Annotations.from_arrays(table.item, table.annotator, table.label, 3, items=np.arange(31))
    with pytest.raises(DataError):
        recommend(model, more, budget=5)


def test_a_classifier_is_asked_with_the_confusion_of_each_annotator(table):
    X = np.random.default_rng(0).normal(size=(30, 4)).astype(np.float32)
    model = CrowdClassifier(encoder="mlp", objective="crowd-layer", epochs=2, seed=0, device="cpu").fit(table, X)
    found = recommend(model, table, budget=5, per_item=1)
    assert len(found) == 5
    q, theta = model.posterior_[found.items[0]], model.confusion_[found.annotators[0]]
    joint = q[:, None] * theta
    expected = entropy(q) + entropy(joint.sum(axis=0)) - entropy(joint)
    assert found.about_item[0] == pytest.approx(expected, abs=1e-9)
    assert found.gain[0] > expected


def test_nobody_to_ask_is_nothing_to_ask(table):
    assert len(recommend(LIA(steps=5).fit(table), table, budget=5, annotators=[])) == 0


def test_asking_about_an_item_does_not_look_at_the_features_of_others(table, monkeypatch):
    """Every label that is chosen asks for one item twice; all of them would be looked at each time."""
    model = LIA(steps=5).fit(table, np.random.default_rng(0).normal(size=(30, 2)))
    rows, prepare = [], MLP.prepare
    monkeypatch.setattr(MLP, "prepare", lambda self, X: rows.append(len(X)) or prepare(self, X))
    found = recommend(model, table, budget=10)
    assert len(found) == 10
    assert rows[0] == 30
    assert set(rows[1:]) == {1}
