import pickle

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler

from benchmarks.clustering.drawn import draw
from clustering.graphs import clustered
from dissensus.clustering import FMM, PGMBP, DistributionClassifier, Projector, model, snap
from dissensus.clustering.exceptions import (
    ClassesInFit,
    KeywordsForFittedClustering,
    NotAClassifier,
    NotAClustering,
    StepNotFitted,
    WrongClassNames,
)
from dissensus.evaluation import kl_divergence
from dissensus.evaluation.exceptions import DifferentLengths, NotOnePerClass, RowsNotDistributions, WrongArrayType
from dissensus.exceptions import BadParameter, NotFitted
from refused import refused


@pytest.fixture(scope="module")
def fitted():
    return PGMBP(item_clusters=3, annotator_clusters=2, restarts=2).fit(clustered())


def test_snap_takes_a_fitted_clustering_or_a_table(fitted):
    np.testing.assert_array_equal(snap(fitted), fitted.posterior_)
    labels = model.population_labels(fitted.params_)
    np.testing.assert_allclose(snap(fitted, how="soft"), fitted.item_clusters_ @ labels)
    by_itself = snap(clustered(), method="fmm", n_clusters=3)
    np.testing.assert_array_equal(by_itself, FMM(n_clusters=3).fit(clustered()).posterior_)


def test_wrong_sources_are_one_clear_error(fitted):
    with refused(BadParameter, name="how"):
        snap(fitted, how="firm")
    with refused(KeywordsForFittedClustering, names=("n_clusters",)):
        snap(fitted, n_clusters=3)
    with refused(NotAClustering, got="str", or_table=True):
        snap("labels.csv")
    with pytest.raises(NotFitted):
        snap(FMM())


def test_projector_asks_all_annotator_clusters_together(fitted):
    h = np.random.default_rng(0).dirichlet(np.ones(4), 20)
    together = np.exp(12 * h @ np.log(model.population_labels(fitted.params_)).T) * fitted.psi_
    np.testing.assert_allclose(
        Projector(fitted).fit().predict_clusters(h), together / together.sum(axis=1, keepdims=True)
    )
    assert fitted.labels_per_item_ == 12


def test_snapped_labels_are_projected_onto_their_own_cluster(fitted):
    labels = model.population_labels(fitted.params_)
    np.testing.assert_allclose(Projector(fitted, size=50).fit_transform(labels), labels)


def test_projected_classes_are_named(fitted):
    h = np.random.default_rng(0).dirichlet(np.ones(4), 20)
    projector = Projector(fitted).fit()
    np.testing.assert_array_equal(projector.predict(h), fitted.classes_[projector.transform(h).argmax(axis=1)])


def test_projector_keeps_scikit_learns_manners(fitted):
    projector = Projector(fitted, how="soft", size=3.0)
    own = {"clustering": fitted, "how": "soft", "size": 3.0}
    assert projector.get_params(deep=False) == own
    copy = clone(projector)
    assert copy is not projector
    assert copy.get_params(deep=False) == own  # the clustering is learnt from annotations, not from rows
    assert projector.set_params(how="hard").how == "hard"
    h = np.full((2, 4), 0.25)
    with refused(StepNotFitted, step="Projector"):
        copy.transform(h)
    np.testing.assert_array_equal(
        pickle.loads(pickle.dumps(copy.fit())).transform(h), clone(copy).fit(h, None).transform(h)
    )


def test_what_is_no_distribution_is_one_clear_error(fitted):
    projector = Projector(fitted).fit()
    with refused(NotOnePerClass, name="X", values=3, n_classes=4):
        projector.transform(np.full((2, 3), 1 / 3))
    with refused(RowsNotDistributions, name="X", count=1, rows=2, first_row=1, total=2):
        projector.transform(np.array([[0.25] * 4, [0.5] * 4]))
    with refused(RowsNotDistributions, smallest=-0.5):
        projector.transform(np.array([[1.5, -0.5, 0, 0]]))
    with refused(NotAClustering, got="NoneType", or_table=False):
        Projector().fit()
    with pytest.raises(NotFitted):
        Projector(FMM()).fit()
    with refused(BadParameter, name="size"):
        Projector(fitted, size=0).fit()


def some_features(drawn, seed=0):
    """Features that tell the item's cluster, more or less."""
    rng = np.random.default_rng(seed)
    return np.eye(4)[drawn.item_cluster] + rng.normal(0, 0.5, (drawn.item_cluster.size, 4))


def test_snap_classify_project_is_a_pipeline():
    drawn = draw(600, 50, 5, item_clusters=4, annotator_clusters=2, redundancy=10, concentration=0.3, seed=4)
    X, table = some_features(drawn), drawn.annotations
    train = np.arange(600) < 400
    fitted = PGMBP(item_clusters=4, annotator_clusters=2).fit(table.select(items=train))
    pipeline = make_pipeline(StandardScaler(), DistributionClassifier(LogisticRegression()), Projector(fitted))
    assert isinstance(pipeline, Pipeline)
    predicted = pipeline.fit(X[train], snap(fitted)).transform(X[~train])
    assert predicted.shape == (200, 5)
    np.testing.assert_allclose(predicted.sum(axis=1), 1)
    truth = model.population_labels(drawn.params)[drawn.item_cluster[~train]]
    baseline = np.tile(table.select(items=train).soft_labels().mean(axis=0), (200, 1))
    assert kl_divergence(truth, predicted).mean() < 0.6 * kl_divergence(truth, baseline).mean()
    again = clone(pipeline).fit(X[train], snap(fitted)).transform(X[~train])
    np.testing.assert_array_equal(again, predicted)
    assert "Projector" in repr(pipeline)


def test_distributions_learn_from_soft_labels():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 2))
    y = np.zeros((200, 4))
    y[:, 1] = 1 / (1 + np.exp(-3 * X[:, 0]))
    y[:, 3] = 1 - y[:, 1]
    step = DistributionClassifier(LogisticRegression(C=1e6)).fit(X, y)
    np.testing.assert_allclose(step.transform(X), y, atol=0.02)  # classes 0 and 2 never occur
    assert (step.transform(X)[:, [0, 2]] == 0).all()
    with pytest.raises(NotFitted):
        clone(step).transform(X)
    with refused(DifferentLengths, first_name="X", second_name="y", first_length=199, second_length=200):
        DistributionClassifier(LogisticRegression()).fit(X[1:], y)
    with refused(WrongArrayType, name="y", content="distributions"):
        DistributionClassifier(LogisticRegression()).fit(X, y[:, 0])
    with refused(NotAClassifier, got="None"):
        DistributionClassifier().fit(X, y)


def soft_rows(n=60, seed=0):
    """Features, most of them 0, and distributions over three classes of which the second never occurs."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 4)) * (rng.random((n, 4)) < 0.5)
    share = 1 / (1 + np.exp(-3 * X[:, 0]))
    return X, np.column_stack([share, np.zeros(n), 1 - share])


@pytest.mark.parametrize("kind", [sparse.csr_matrix, sparse.csc_array, sparse.coo_array, sparse.coo_matrix])
def test_sparse_features_are_learnt_from_as_dense_ones_are(kind):
    X, y = soft_rows()
    dense, thin = (DistributionClassifier(LogisticRegression()).fit(rows, y) for rows in (X, kind(X)))
    np.testing.assert_allclose(thin.transform(kind(X)), dense.transform(X), rtol=1e-5)
    assert (thin.n_features_in_, thin.classifier_.n_features_in_) == (4, 4)
    with refused(DifferentLengths, first_length=59, second_length=60):
        DistributionClassifier(LogisticRegression()).fit(sparse.csr_array(X[1:]), y)


def test_a_frame_of_features_is_learnt_from_without_a_warning():
    X, y = soft_rows()
    frame = pd.DataFrame(X, columns=list("abcd"))
    found = DistributionClassifier(LogisticRegression()).fit(frame, y)
    expected = DistributionClassifier(LogisticRegression()).fit(X, y).transform(X)
    np.testing.assert_allclose(found.transform(frame), expected, rtol=1e-9)


@pytest.mark.parametrize(("classes", "names"), [(None, [0, 1, 2]), (("yes", "maybe", "no"), ["yes", "maybe", "no"])])
def test_as_the_last_step_of_a_pipeline_it_predicts_classes(classes, names):
    X, y = soft_rows()
    pipeline = clone(
        make_pipeline(StandardScaler(), DistributionClassifier(LogisticRegression(), classes=classes))
    ).fit(X, y)
    assert pipeline.classes_.tolist() == names
    proba = pipeline.predict_proba(X)
    assert proba.shape == (60, 3)
    assert pipeline.predict(X).tolist() == [names[k] for k in proba.argmax(axis=1)]
    assert (pipeline.predict(X) == pipeline.classes_[0]).sum() == (proba[:, 0] > 0.5).sum() > 0
    with pytest.raises(NotFitted):
        clone(pipeline[-1]).predict(X)


def test_names_of_classes_are_as_many_as_columns():
    X, y = soft_rows()
    with refused(WrongClassNames, names=2, columns=3):
        DistributionClassifier(LogisticRegression(), classes=["a", "b"]).fit(X, y)
    with refused(ClassesInFit):
        DistributionClassifier(LogisticRegression()).fit(X, y, classes=["a", "b", "c"])


def test_cross_validation_clones_the_whole_pipeline():
    drawn = draw(90, 30, 4, item_clusters=4, annotator_clusters=2, redundancy=6, concentration=0.3, seed=2)
    fitted = FMM(n_clusters=3).fit(drawn.annotations)
    pipeline = make_pipeline(DistributionClassifier(LogisticRegression()), Projector(fitted))
    scores = cross_val_score(
        pipeline, some_features(drawn), snap(fitted), cv=3,
        scoring=lambda model, X, y: -kl_divergence(y, model.transform(X)).mean(),
    )  # fmt: skip
    assert scores.shape == (3,)
    assert np.isfinite(scores).all()
