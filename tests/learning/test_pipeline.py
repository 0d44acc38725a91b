"""Snap, train any network, project: scikit-learn pipelines with a CrowdClassifier as the step that learns."""

import numpy as np
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler

from clustering.graphs import clustered
from dissensus import Annotations
from dissensus.clustering import FMM, PGMBP, DistributionClassifier, Projector, snap
from dissensus.evaluation import kl_divergence
from dissensus.exceptions import DataError
from dissensus.learning import CrowdClassifier
from dissensus.learning.encoders import TextCNN
from dissensus.learning.exceptions import (
    DistributionsNeeded,
    FeatureNotFinite,
    RowCountDiffers,
    SoftObjectiveNeeded,
)
from dissensus.learning.objectives import Soft
from faults import raised

WORDS = ("red", "green", "blue", "pink")
SMALL = TextCNN(dimensions=6, windows=(1, 2), channels=5, dropout=0.0, word_dropout=0.0)


def quick(**keywords):
    return CrowdClassifier(**{"objective": "soft", "epochs": 2, "batch_size": 32, "device": "cpu", **keywords})


def course(model):
    return [entry["cross-entropy"] for entry in model.history_]


@pytest.fixture(scope="module")
def fitted():
    """A clustering, and a text and two features for each of its items that tell the cluster."""
    model = PGMBP(item_clusters=3, annotator_clusters=2, restarts=2).fit(clustered())
    texts = [f"a {WORDS[k]} thing number {i % 7}" for i, k in enumerate(model.clusters_.item)]
    X = np.column_stack([model.clusters_.item, np.arange(len(texts)) % 7]).astype(float)
    return model, texts, X


@pytest.mark.parametrize(("encoder", "texts"), [(SMALL, True), ("identity", False)])
def test_a_pipeline_is_snap_then_fit_then_project_by_hand(fitted, encoder, texts):
    model, words, X = fitted
    X, y = words if texts else X, snap(model)
    steps = [("learn", DistributionClassifier(quick(encoder=encoder))), ("project", Projector(model))]
    pipeline = Pipeline(steps).fit(X, y)
    table = Annotations.from_arrays(np.arange(len(y)), np.zeros(len(y), int), proba=y)
    alone = quick(encoder=encoder).fit(table, X)
    raw = alone.predict_proba(X[:20])
    np.testing.assert_array_equal(pipeline["learn"].transform(X[:20]), raw)
    np.testing.assert_array_equal(pipeline.predict_proba(X[:20]), Projector(model).fit_transform(raw))
    np.testing.assert_array_equal(pipeline.predict(X[:20]), Projector(model).fit().predict(raw))
    np.testing.assert_array_equal(pipeline.classes_, model.classes_)
    copy = clone(pipeline)
    assert copy["learn"].classifier is not pipeline["learn"].classifier
    np.testing.assert_array_equal(copy.fit(X, y).predict_proba(X[:20]), pipeline.predict_proba(X[:20]))


def test_texts_are_learnt_from_distributions(fitted):
    model, texts, _ = fitted
    pipeline = make_pipeline(
        DistributionClassifier(quick(encoder=SMALL, epochs=30, learning_rate=0.02)), Projector(model)
    )
    predicted = pipeline.fit(texts, snap(model)).predict_proba([f"a {word} thing" for word in WORDS[:3]])
    order = [int(np.flatnonzero(model.clusters_.item == k)[0]) for k in range(3)]
    np.testing.assert_allclose(predicted, snap(model)[order])


def test_columns_are_in_the_order_of_classes():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(40, 3)), rng.dirichlet(np.ones(3), 40)
    named = quick(encoder="identity").fit_distributions(X, y, classes=["z", "a", "m"])
    assert named.classes_.tolist() == ["z", "a", "m"]
    np.testing.assert_array_equal(
        named.predict_proba(X), quick(encoder="identity").fit_distributions(X, y).predict_proba(X)
    )
    with pytest.raises(DataError):
        quick(encoder="identity").fit_distributions(X, y, classes=["z", "a"])


def test_one_distribution_per_item_is_as_good_as_the_votes_that_make_it(fitted):
    """PD is the network fitted to the table itself."""
    table = clustered()
    X = np.random.default_rng(1).normal(size=(table.n_items, 4))
    votes = quick(encoder="identity").fit(table, X)
    shares = quick(encoder="identity").fit_distributions(X, table.soft_labels(), classes=table.classes)
    np.testing.assert_array_equal(votes.predict_proba(X), shares.predict_proba(X))


def test_validation_may_be_distributions(fitted):
    table = clustered()
    X = np.random.default_rng(1).normal(size=(table.n_items, 4))
    train, dev = (table.select(items=part) for part in (np.arange(table.n_items) < 60, np.arange(table.n_items) >= 60))
    one = quick(encoder="identity").fit(train, X[:60], validation=(X[60:], dev))
    two = quick(encoder="identity").fit_distributions(
        X[:60], train.soft_labels(), classes=table.classes, validation=(X[60:], dev.soft_labels())
    )
    assert course(one) == course(two)
    step = DistributionClassifier(quick(encoder="identity"))
    by_pipeline = Pipeline([("learn", step), ("project", Projector(FMM(n_clusters=2).fit(train)))])
    by_pipeline.fit(X[:60], train.soft_labels(), learn__validation=(X[60:], dev.soft_labels()))
    assert course(by_pipeline["learn"].classifier_) == course(two)


def test_searches_reach_the_network_through_the_pipeline(fitted):
    model, texts, _ = fitted
    pipeline = Pipeline([("learn", DistributionClassifier(quick(encoder=SMALL))), ("project", Projector(model))])
    pipeline = clone(pipeline).set_params(learn__classifier__encoder__channels=3, project__how="soft")
    assert (pipeline["learn"].classifier.encoder.channels, SMALL.channels) == (3, 5)
    search = GridSearchCV(
        pipeline, {"learn__classifier__epochs": [1, 20], "learn__classifier__learning_rate": [0.02]}, cv=2,
        scoring=lambda fitted, X, y: -kl_divergence(y, fitted.predict_proba(X)).mean(), error_score="raise",
    )  # fmt: skip
    search.fit(texts, snap(model))
    assert search.best_params_["learn__classifier__epochs"] == 20
    linear = make_pipeline(StandardScaler(), DistributionClassifier(LogisticRegression())).set_params(
        distributionclassifier__classifier__C=3
    )
    assert linear[1].classifier.C == 3
    assert linear.get_params()["distributionclassifier__classifier__C"] == 3


def test_sparse_features_are_learnt_from_as_dense_ones_are(fitted):
    model, _, X = fitted
    y = snap(model)
    for kind in (sparse.csr_matrix, sparse.coo_array):
        dense, thin = (DistributionClassifier(quick(encoder="mlp")).fit(rows, y) for rows in (X, kind(X)))
        np.testing.assert_array_equal(thin.predict_proba(kind(X)), dense.predict_proba(X))
        table = clustered().select(rows=np.arange(clustered().n_annotations) > 30)  # some items do not teach
        one, other = (quick(encoder="mlp").fit(table, rows, validation=0.2) for rows in (X, kind(X)))
        np.testing.assert_array_equal(one.proba_, other.proba_)
    with raised(FeatureNotFinite, row=1, column=0):
        quick(encoder="mlp").fit_distributions(sparse.csr_array([[1.0], [np.nan]]), np.eye(2))


def test_as_the_last_step_a_network_predicts_names(fitted):
    model, texts, _ = fitted
    step = DistributionClassifier(quick(encoder=SMALL), classes=model.classes_)
    pipeline = Pipeline([("learn", step)]).fit(texts, snap(model))
    proba = pipeline.predict_proba(texts[:9])
    np.testing.assert_array_equal(pipeline.classes_, model.classes_)
    np.testing.assert_array_equal(pipeline.predict(texts[:9]), model.classes_[proba.argmax(axis=1)])
    np.testing.assert_array_equal(
        proba, DistributionClassifier(quick(encoder=SMALL)).fit(texts, snap(model)).transform(texts[:9])
    )


@pytest.mark.parametrize("objective", ["crowd-layer", "lia", "hard", "soft-task", Soft(labels="dawid-skene")])
def test_only_an_objective_that_learns_from_distributions_will_do(objective):
    with pytest.raises(SoftObjectiveNeeded):
        quick(encoder="identity", objective=objective).fit_distributions(np.zeros((2, 1)), np.eye(2))


def test_what_is_no_distribution_per_row_is_named():
    model, X = quick(encoder="identity"), np.zeros((3, 1))
    with raised(DistributionsNeeded, argument="y", shape=(3,)):
        model.fit_distributions(X, [0, 1, 0])
    with raised(RowCountDiffers, argument="y", n_rows=3, n_entries=2):
        model.fit_distributions(X, np.eye(2))
    with raised(RowCountDiffers, argument="validation", n_rows=3, n_entries=2):
        model.fit_distributions(X[:2], np.eye(2), validation=(X, np.eye(2)))
    with pytest.raises(DataError):
        DistributionClassifier(model).fit(["a", "b", "c"], np.eye(2))
