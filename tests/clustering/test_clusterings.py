"""What every clustering promises. A new one joins by being registered."""

import inspect
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.metrics import adjusted_rand_score

import dissensus
from benchmarks.clustering.drawn import draw
from clustering.graphs import clustered
from dissensus import Annotations, clusterings, methods
from dissensus.clustering import PGMBP
from dissensus.clustering.exceptions import ClusteringNotConverged, GoldForClusters, TooManyClusters
from dissensus.exceptions import BadParameter, ConvergenceWarning, UnknownClass, UnknownName
from dissensus.models.exceptions import NoEarlierCounts
from dissensus.testing.clusterings import check_clustering
from refused import refused
from strategies import tables

every = pytest.mark.parametrize("name", list(clusterings))
SHORT = {"pgm-annealing": {"sweeps": 60}}


def make(name, K=3, L=2, **keywords):
    sizes = {"n_clusters": K} if name == "fmm" else {"item_clusters": K, "annotator_clusters": L}
    return clusterings[name](**{"restarts": 2} | SHORT.get(name, {}) | sizes | keywords)


def fit(name, table, **keywords):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return make(name, **keywords).fit(table)


def results(model):
    return {key: value for key, value in vars(model).items() if key.endswith("_") and isinstance(value, np.ndarray)}


def assert_same(one, other):
    a, b = results(one), results(other)
    assert a.keys() == b.keys()
    for key in a:
        np.testing.assert_array_equal(a[key], b[key], err_msg=key)


@pytest.mark.parametrize("name", list(clusterings))
def test_every_clustering_keeps_the_contract(name):
    check_clustering(name)


def test_they_are_no_methods_of_aggregation():
    assert {"fmm", "pgm-bp", "pgm-annealing"} <= set(clusterings)
    assert not set(clusterings) & set(methods)
    with refused(UnknownName, name="pgm-pb"):
        clusterings["pgm-pb"]


@every
def test_threads_change_no_bit_in_a_large_table(name):
    table = draw(9000, 50, 4, item_clusters=3, annotator_clusters=2, redundancy=5, seed=0).annotations
    one, two = (fit(name, table, threads=threads, max_iter=4, restarts=1) for threads in (1, 2))
    assert_same(one, two)


@every
def test_saved_and_loaded_model_is_the_same(name, tmp_path):
    table = clustered()
    model = fit(name, table)
    dissensus.save(model, tmp_path)
    loaded = dissensus.load(tmp_path)
    assert type(loaded) is type(model)
    assert loaded.get_params() == model.get_params()
    assert_same(model, loaded)
    np.testing.assert_array_equal(loaded.predict_proba(table), model.predict_proba(table))
    np.testing.assert_array_equal(loaded.clusters_.item, model.clusters_.item)


@every
def test_keywords_are_stored_untouched_and_cloned(name):
    model = make(name, seed=7)
    assert vars(model).keys() == inspect.signature(type(model)).parameters.keys()
    assert clone(model).get_params() == model.get_params()


@every
def test_new_items_and_unseen_annotators_are_scored(name):
    table = clustered()
    model = fit(name, table)
    new = Annotations.from_arrays([1, 1, 2], [0, 4711, 3], [0, 0, 3], items=[1, 2, 3], classes=4)
    found = model.predict_clusters(new)
    z = np.vstack([model.annotator_clusters_[0], model.omega_, model.annotator_clusters_[3]])
    theta = model.labels_of_clusters_
    first = model.psi_ * (theta[:, :, 0] @ z[0]) * (theta[:, :, 0] @ z[1])
    np.testing.assert_allclose(found[0], first / first.sum())
    second = model.psi_ * (theta[:, :, 3] @ z[2])
    np.testing.assert_allclose(found[1], second / second.sum())
    np.testing.assert_allclose(found[2], model.psi_)
    proba = model.predict_proba(new)
    np.testing.assert_allclose(proba.sum(axis=1), 1)
    np.testing.assert_allclose(proba[2], model.prior_)
    with pytest.raises(UnknownClass):
        model.predict(Annotations.from_arrays([1, 1], [0, 1], [0, 99]))


@every
def test_annotations_are_predicted_for_seen_and_unseen(name):
    model = fit(name, clustered())
    table = Annotations.from_arrays([0, 5, 999], [1, 4711, 2], [0, 1, 2], classes=4)
    found = model.predict_annotations(table)
    w = [model.item_clusters_[0], model.item_clusters_[5], model.psi_]
    z = [model.annotator_clusters_[1], model.omega_, model.annotator_clusters_[2]]
    for row in range(3):
        np.testing.assert_allclose(found[row], np.einsum("k,l,klp->p", w[row], z[row], model.labels_of_clusters_))


@every
def test_the_fitted_table_is_scored_like_the_fit(name):
    table = clustered()
    model = fit(name, table)
    assert (model.predict_clusters(table).argmax(axis=1) == model.item_cluster_).mean() > 0.97


@every
def test_too_many_clusters_are_one_clear_error(name):
    table = Annotations.from_arrays([0, 0, 1, 2], [0, 1, 1, 1], [0, 1, 1, 1], items=np.arange(9))
    keyword = "n_clusters" if name == "fmm" else "item_clusters"
    with refused(TooManyClusters, name=keyword, clusters=4, available=3, nodes="items"):
        make(name, K=4).fit(table)
    if name != "fmm":
        with refused(TooManyClusters, name="annotator_clusters", clusters=3, available=2, nodes="annotators"):
            make(name, K=2, L=3).fit(table)


@every
@pytest.mark.parametrize(
    ("keyword", "value"),
    [
        ("alpha", 1.0),
        ("gamma", np.nan),
        ("restarts", 0),
        ("max_iter", 2.5),
        ("tol", -1),
        ("snap", "firm"),
        ("seed", -1),
        ("K", 0),
    ],
)
def test_wrong_keywords_are_one_clear_error(name, keyword, value):
    parameter = "n_clusters" if name == "fmm" else "item_clusters"
    with refused(BadParameter, name=parameter if keyword == "K" else keyword):
        make(name, **{keyword: value}).fit(clustered())


@pytest.mark.parametrize(
    ("name", "keyword", "value"),
    [
        ("pgm-bp", "tau", 0.5),
        ("pgm-bp", "rounds", 0),
        ("pgm-bp", "damping", 1.0),
        ("pgm-bp", "round_tol", -1),
        ("pgm-bp", "annotator_clusters", 1.5),
        ("fmm", "accelerate", "warp"),
    ],
)
def test_wrong_keywords_of_one_are_named(name, keyword, value):
    with refused(BadParameter, name=keyword):
        clusterings[name](**{keyword: value}).fit(clustered())


@every
def test_gold_earlier_counts_and_updates_are_refused(name):
    table = clustered()
    with refused(GoldForClusters, clustering=type(make(name)).__name__):
        make(name).fit(table, gold=np.zeros(table.n_items, int))
    with pytest.raises(NoEarlierCounts):
        make(name).fit(table, earlier={0: np.eye(4)})
    with pytest.raises(BadParameter):
        fit(name, table).partial_fit(table)


@every
def test_clusters_that_empty_leave_numbers(name):
    # one kind of item and of annotator, and more clusters asked for than there can be
    table = Annotations.from_arrays(
        np.repeat(np.arange(30), 4), np.tile(np.arange(4), 30), np.zeros(120, int), classes=3
    )
    model = fit(name, table, K=6, L=4)
    for value in results(model).values():
        if value.dtype.kind == "f":
            assert np.isfinite(value).all()
    assert (model.psi_ > 0).all()
    assert (model.labels_of_clusters_ > 0).all()


@every
@settings(max_examples=25)
@given(data=st.data())
def test_any_table_works(name, data):
    table = data.draw(tables())
    K = data.draw(st.integers(1, int((np.diff(table.item_ptr) > 0).sum())))
    L = data.draw(st.integers(1, int((np.diff(table.annotator_ptr) > 0).sum())))
    model = fit(name, table, K=K, L=L)
    np.testing.assert_allclose(model.posterior_.sum(axis=1), 1, atol=1e-9)
    assert np.isfinite(model.trace_).all()
    np.testing.assert_allclose(model.predict_proba(table).sum(axis=1), 1, atol=1e-9)


def test_known_clusters_of_items_and_annotators_are_found():
    for seed in range(3):
        drawn = draw(500, 80, 8, item_clusters=4, annotator_clusters=3, redundancy=10, concentration=0.2, seed=seed)
        model = make("pgm-bp", K=4, L=3, restarts=4)
        model.fit(drawn.annotations)
        assert adjusted_rand_score(drawn.item_cluster, model.item_cluster_) > 0.95
        assert adjusted_rand_score(drawn.annotator_cluster, model.annotator_cluster_) > 0.95


def test_without_a_number_item_clusters_are_the_classes():
    sim = dissensus.table.simulate.simulate(1000, 60, 3, redundancy=6, seed=2)
    model = fit("pgm-bp", sim.annotations, K=None, L=3)
    assert model.item_clusters_.shape == (1000, 3)
    vote = methods["majority-vote"]().fit(sim.annotations)
    assert (model.item_cluster_ == sim.truth).mean() > (vote.predict() == sim.truth).mean() + 0.01


def test_stopping_early_is_a_warning():
    with pytest.warns(ClusteringNotConverged) as caught:
        PGMBP(item_clusters=3, annotator_clusters=2, max_iter=2, tol=0).fit(clustered())
    warning = caught[0].message
    assert (warning.clustering, warning.passes, warning.tol) == ("PGMBP", 2, 0)
