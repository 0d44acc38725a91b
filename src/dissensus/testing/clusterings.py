"""Conformance suite for clusterings: `check_clustering` raises AssertionError if one breaks the contract."""

from __future__ import annotations

import inspect
import pickle
import warnings
from collections.abc import Callable
from dataclasses import replace
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from dissensus import load, save
from dissensus.clustering.base import Clustering, cluster_count_keywords, clusterings
from dissensus.clustering.exceptions import GoldForClusters, TooManyClusters
from dissensus.exceptions import ConvergenceWarning, NotFitted, UnknownClass
from dissensus.models.base import methods
from dissensus.table.annotations import Annotations
from dissensus.table.simulate import simulate

N_ITEM_CLUSTERS, N_ANNOTATOR_CLUSTERS = 3, 2  # numbers of clusters of items and of annotators


def check_clustering(name: str, **keywords: Any) -> None:
    """Check a registered clustering; `keywords` override its defaults, for example to make it faster."""
    entry = clusterings.entry(name)
    assert entry.summary, "the registered summary is empty"
    assert isinstance(entry.facts.get("annotators"), bool), "register it with annotators=True or annotators=False"
    assert name not in methods, "a clustering and a method must have different names"
    assert issubclass(entry.value, Clustering), "a clustering is a subclass of Clustering"
    keywords = {"restarts": 2, **keywords}
    _check_parameters(name, keywords)
    for table in _example_tables():
        _check_results(_fit_quietly(name, table, keywords), table)
    _check_repetition(name, keywords)
    _check_new_tables(name, keywords)
    _check_refusals(name, keywords)


def _example_tables() -> list[Annotations]:
    """Return tables with plain, weighted and probabilistic labels; one item and one annotator have no labels."""
    drawn = simulate(60, 8, 4, redundancy=4, seed=1).annotations
    items, annotators = np.append(drawn.items, 999), np.append(drawn.annotators, 99)
    rows = drawn.items[drawn.item], drawn.annotators[drawn.annotator]
    plain = Annotations.from_arrays(
        *rows, drawn.classes[drawn.label], classes=drawn.classes, items=items, annotators=annotators
    )
    rng = np.random.default_rng(0)
    proba = 0.8 * np.eye(4)[plain.label] + 0.2 * rng.dirichlet(np.ones(4), len(plain))
    return [
        plain,
        replace(plain, weight=rng.uniform(0.5, 1.5, len(plain))),
        Annotations.from_arrays(*rows, None, proba=proba, classes=4, items=items, annotators=annotators),
    ]


def _create_clustering(
    name: str, keywords: dict[str, Any], K: int = N_ITEM_CLUSTERS, L: int = N_ANNOTATOR_CLUSTERS
) -> Clustering:
    return clusterings[name](**cluster_count_keywords(name, K, L), **keywords)


def _fit_quietly(name: str, table: Annotations, keywords: dict[str, Any]) -> Clustering:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return _create_clustering(name, keywords).fit(table)


def _array_results(model: Clustering) -> dict[str, Any]:
    return {key: value for key, value in vars(model).items() if key.endswith("_") and isinstance(value, np.ndarray)}


def _check_same(first: Clustering, second: Clustering, why: str) -> None:
    one, other = _array_results(first), _array_results(second)
    assert one.keys() == other.keys(), why
    for key in one:
        np.testing.assert_array_equal(one[key], other[key], err_msg=f"{key}: {why}")


def _check_refused(kind: type[Exception], call: Callable[[], Any]) -> None:
    try:
        call()
    except kind:
        return
    raise AssertionError(f"{kind.__name__} was not raised")


def _check_parameters(name: str, keywords: dict[str, Any]) -> None:
    model = _create_clustering(name, keywords | {"seed": 7})
    expected = inspect.signature(type(model)).parameters.keys()
    assert vars(model).keys() == expected, "__init__ must store the keywords and nothing else"
    assert model.get_params()["seed"] == 7, "__init__ must store keywords unchanged"


def _check_results(model: Clustering, table: Annotations) -> None:
    I, A, P = table.n_items, table.n_annotators, table.n_classes
    n_annotator_clusters = (
        N_ANNOTATOR_CLUSTERS if clusterings.entry(clusterings.get_name(type(model))).facts["annotators"] else 1
    )
    shapes = {
        "labels_of_clusters_": (N_ITEM_CLUSTERS, n_annotator_clusters, P),
        "item_clusters_": (I, N_ITEM_CLUSTERS),
        "annotator_clusters_": (A, n_annotator_clusters),
        "posterior_": (I, P),
        "psi_": (N_ITEM_CLUSTERS,),
        "omega_": (n_annotator_clusters,),
        "prior_": (P,),
    }
    for result, shape in shapes.items():
        value = getattr(model, result)
        assert value.shape == shape, f"{result} must have the shape {shape}, got {value.shape}"
        assert (value >= 0).all(), f"{result} must not be negative"
        np.testing.assert_allclose(value.sum(axis=-1), 1, err_msg=f"{result} must sum to 1")
    assert model.item_cluster_.shape == (I,)
    assert model.annotator_cluster_.shape == model.reliability_.shape == (A,)
    assert model.predict().shape == (I,)
    assert np.isfinite(model.trace_).all(), "the trace must be finite"
    assert isinstance(model.n_iter_, int)
    assert isinstance(model.converged_, bool)
    assert len(model.to_frame("items")) == I
    assert len(model.to_frame("annotators")) == A
    labels = np.einsum("l,klp->kp", model.omega_, model.labels_of_clusters_)
    silent = np.diff(table.item_ptr) == 0
    np.testing.assert_allclose(model.posterior_[~silent], labels[model.item_cluster_][~silent], err_msg="snapping")
    average = model.snap_items("soft")[~silent]
    np.testing.assert_allclose(average, (model.item_clusters_ @ labels)[~silent], err_msg="soft snapping")
    np.testing.assert_allclose(model.posterior_[silent], np.tile(model.prior_, (silent.sum(), 1)))


def _check_repetition(name: str, keywords: dict[str, Any]) -> None:
    """Check that results depend only on the table and the keywords."""
    table = _example_tables()[0]
    model = _fit_quietly(name, table, keywords)
    names = table.items[table.item], table.annotators[table.annotator], table.classes[table.label]
    order = np.random.default_rng(3).permutation(len(table))
    names_of_table: Any = {"classes": table.classes, "items": table.items, "annotators": table.annotators}
    shuffled = Annotations.from_arrays(*(column[order] for column in names), **names_of_table)
    _check_same(model, _fit_quietly(name, shuffled, keywords), "the order of rows must not change the results")
    _check_same(
        model, _fit_quietly(name, table, keywords | {"threads": 2}), "the number of threads must not change the results"
    )
    again = pickle.loads(pickle.dumps(model))
    _check_same(model, again, "a pickled model must have the same results")
    steps: list[int] = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        again.fit(_example_tables()[1]).fit(table, on_step=lambda step, objective: steps.append(step))
    _check_same(model, again, "a second fit must not use results of the first")
    assert steps == list(range(1, again.n_iter_ + 1)), "on_step must be called once for each of n_iter_ passes"
    with TemporaryDirectory() as folder:
        save(model, folder)
        loaded: Any = load(folder)
    assert type(loaded) is type(model)
    assert loaded.get_params() == model.get_params(), "a loaded model must have the same keywords"
    _check_same(model, loaded, "a loaded model must have the same results")


def _check_new_tables(name: str, keywords: dict[str, Any]) -> None:
    model = _fit_quietly(name, _example_tables()[0], keywords)
    item, annotator = model.items_[:2], model.annotators_[0]
    new = Annotations.from_arrays(
        [item[0], item[0], item[1]],
        [annotator, 4711, 4711],
        model.classes_[[0, 0, 1]],
        items=[*item, 555],
        classes=model.classes_,
    )
    weights = np.vstack([model.annotator_clusters_[0], model.omega_])
    first = model.psi_ * np.prod(model.labels_of_clusters_[:, :, 0] @ weights.T, axis=1)
    found = model.predict_clusters(new)
    np.testing.assert_allclose(found[0], first / first.sum(), err_msg="clusters of a new table")
    np.testing.assert_allclose(found[2], model.psi_, err_msg="an unlabelled item has the prior")
    proba = model.predict_proba(new)
    np.testing.assert_allclose(proba.sum(axis=1), 1)
    np.testing.assert_allclose(proba[2], model.prior_)
    np.testing.assert_allclose(model.predict_annotations(new).sum(axis=1), 1)
    _check_refused(UnknownClass, lambda: model.predict(Annotations.from_arrays([1, 1], [0, 1], [0, 99])))


def _check_refusals(name: str, keywords: dict[str, Any]) -> None:
    table = _example_tables()[0]
    _check_refused(TooManyClusters, lambda: _create_clustering(name, keywords, K=61).fit(table))
    _check_refused(
        GoldForClusters, lambda: _create_clustering(name, keywords).fit(table, gold=np.zeros(table.n_items, int))
    )
    model = _create_clustering(name, keywords)
    for call in (model.predict, model.predict_proba, model.predict_clusters, lambda: model.clusters_):
        _check_refused(NotFitted, call)
