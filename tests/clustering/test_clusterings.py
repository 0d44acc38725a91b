"""What every clustering promises. A new one joins by being registered."""

import inspect
import pickle
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
from dissensus.exceptions import BadParameter, ConvergenceWarning, DataError, NotFitted, UnknownClass, UnknownName
from dissensus.models.exceptions import NoEarlierCounts
from strategies import tables
from tables import KINDS, random_table

every = pytest.mark.parametrize("name", ["fmm", "pgm-bp"])


def make(name, K=3, L=2, **keywords):
    sizes = {"n_clusters": K} if name == "fmm" else {"item_clusters": K, "annotator_clusters": L}
    return clusterings[name](**{"restarts": 2} | sizes | keywords)


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


def test_they_are_no_methods_of_aggregation():
    assert {"fmm", "pgm-bp"} <= set(clusterings)
    assert not set(clusterings) & set(methods)
    with pytest.raises(UnknownName, match="no clustering 'pgm-pb'; did you mean 'pgm-bp'"):
        clusterings["pgm-pb"]


@every
@pytest.mark.parametrize("kind", KINDS)
def test_results_have_the_promised_shapes(name, kind):
    table = random_table(0, **KINDS[kind])
    I, A, P = table.n_items, table.n_annotators, table.n_classes
    model = fit(name, table)
    K, L = 3, 1 if name == "fmm" else 2
    assert model.labels_of_clusters_.shape == (K, L, P)
    assert model.item_clusters_.shape == (I, K)
    assert model.annotator_clusters_.shape == (A, L)
    for rows in (model.posterior_, model.item_clusters_, model.annotator_clusters_, model.labels_of_clusters_):
        np.testing.assert_allclose(rows.sum(axis=-1), 1)
        assert (rows >= 0).all()
    for row in (model.psi_, model.omega_, model.prior_):
        np.testing.assert_allclose(row.sum(), 1)
        assert (row > 0).all()
    assert model.posterior_.shape == (I, P)
    assert model.reliability_.shape == (A,)
    assert model.predict().shape == (I,)
    assert model.clusters_.item.shape == (I,)
    assert model.clusters_.annotator.shape == (A,)
    np.testing.assert_array_equal(model.clusters_.items, model.item_clusters_)
    assert model.trace_.ndim == 1
    assert isinstance(model.n_iter_, int)
    assert isinstance(model.converged_, bool)
    assert len(model.to_frame("items")) == I
    assert len(model.to_frame("annotators")) == A


@every
def test_row_order_and_threads_change_no_bit(name):
    table = clustered()
    columns = table.to_arrow().to_pydict()
    order = np.random.default_rng(3).permutation(len(table))
    shuffled = Annotations.from_arrays(
        *(np.array(columns[c])[order] for c in ("item", "annotator", "label")), classes=4
    )
    assert_same(fit(name, table), fit(name, shuffled))
    assert_same(fit(name, table, threads=1), fit(name, table, threads=2))


@every
def test_threads_change_no_bit_in_a_large_table(name):
    table = draw(9000, 50, 4, item_clusters=3, annotator_clusters=2, redundancy=5, seed=0).annotations
    one, two = (fit(name, table, threads=threads, max_iter=4, restarts=1) for threads in (1, 2))
    assert_same(one, two)


@every
def test_fitting_twice_equals_fitting_once_and_pickle_keeps_it(name):
    table = clustered()
    model = fit(name, table)
    again = pickle.loads(pickle.dumps(model)).fit(clustered(seed=5))
    assert_same(model, again.fit(table))
    assert_same(model, pickle.loads(pickle.dumps(model)))


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
def test_steps_are_reported(name):
    seen = []
    model = make(name).fit(clustered(), on_step=lambda step, objective: seen.append((step, objective)))
    assert [step for step, _ in seen] == list(range(1, model.n_iter_ + 1))
    assert np.isfinite([objective for _, objective in seen]).all()


@every
def test_snapped_labels_are_those_of_the_cluster(name):
    table = Annotations.concat([clustered(), Annotations.from_arrays([0], [0], [0], items=[0, 999], classes=4)])
    hard, soft = fit(name, table, snap="hard"), fit(name, table, snap="soft")
    labels = np.einsum("l,klp->kp", hard.omega_, hard.labels_of_clusters_)
    last = table.n_items - 1
    for i in range(last):
        np.testing.assert_allclose(hard.posterior_[i], labels[hard.item_cluster_[i]])
        np.testing.assert_allclose(soft.posterior_[i], soft.item_clusters_[i] @ labels)
    np.testing.assert_allclose(hard.posterior_[last], hard.psi_ @ labels)  # nobody has labelled it
    np.testing.assert_allclose(hard.posterior_[last], hard.prior_)


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
    with pytest.raises(UnknownClass, match="99"):
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
    with pytest.raises(BadParameter, match=f"{keyword}=4 is more than the 3 items with annotations; ask for fewer"):
        make(name, K=4).fit(table)
    if name != "fmm":
        with pytest.raises(BadParameter, match="annotator_clusters=3 is more than the 2 annotators with annotations"):
            make(name, K=2, L=3).fit(table)


@every
@pytest.mark.parametrize(
    ("keyword", "value", "message"),
    [
        ("alpha", 1.0, "alpha must be above 1"),
        ("gamma", np.nan, "gamma must be above 1"),
        ("restarts", 0, "restarts must be a whole number"),
        ("max_iter", 2.5, "max_iter must be a whole number"),
        ("tol", -1, "tol must be 0 or more"),
        ("snap", "firm", "snap must be 'hard' or 'soft'"),
        ("seed", -1, "seed must be a whole number, at least 0, or None"),
        ("K", 0, "clusters must be a whole number, at least 1, got 0"),
    ],
)
def test_wrong_keywords_are_one_clear_error(name, keyword, value, message):
    with pytest.raises(BadParameter, match=message):
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
    with pytest.raises(BadParameter, match=keyword):
        clusterings[name](**{keyword: value}).fit(clustered())


@every
def test_gold_earlier_counts_and_updates_are_refused(name):
    table = clustered()
    with pytest.raises(DataError, match="leave gold out"):
        make(name).fit(table, gold=np.zeros(table.n_items, int))
    with pytest.raises(NoEarlierCounts):
        make(name).fit(table, earlier={0: np.eye(4)})
    with pytest.raises(BadParameter, match="cannot be updated"):
        fit(name, table).partial_fit(table)
    for ask in ("predict", "predict_clusters", "predict_proba"):
        with pytest.raises(NotFitted, match="call fit"):
            getattr(make(name), ask)()
    with pytest.raises(NotFitted, match="call fit"):
        make(name).clusters_  # noqa: B018


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
    with pytest.warns(ConvergenceWarning, match="PGMBP stopped at its limit of 2 passes.*Raise max_iter or tol"):
        PGMBP(item_clusters=3, annotator_clusters=2, max_iter=2, tol=0).fit(clustered())
