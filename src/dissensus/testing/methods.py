"""Conformance suite for methods for classes, which uses small simulated tables.

    from dissensus.testing.methods import check_method

    def test_my_method():
        check_method(MyMethod)

The method must be registered, because models are saved under their method's name. `CHECKS` maps names to checks.
"""

from __future__ import annotations

import inspect
import pickle
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

import dissensus
from dissensus.common.types import FloatArray
from dissensus.exceptions import BadParameter, ConvergenceWarning, DataError, NotFitted, UnknownClass
from dissensus.models.base import Aggregator, methods
from dissensus.models.exceptions import (
    DamagedModel,
    GoldCodeOutOfRange,
    LevelOutOfRange,
    NoAnnotations,
    NoEarlierCounts,
    NoModel,
    NoPartialFit,
    NotATable,
    NotConverged,
    TooManyClasses,
    WrongGoldShape,
)
from dissensus.models.frames import arg_max
from dissensus.models.saving import load, save
from dissensus.table.annotations import Annotations
from dissensus.table.simulate import simulate

Method = type[Aggregator]
Check = Callable[[Method], None]
E = TypeVar("E", bound=BaseException)

CHECKS: dict[str, Check] = {}
"""The checks by name; each raises AssertionError if a method fails it."""

TABLE_SHAPES = {"A<K": (40, 3, 5), "A>K": (31, 8, 4), "I<A": (6, 17, 3)}
"""Numbers of items, annotators and classes of the simulated tables, which differ in their order."""

DEGENERATE_TABLES = (
    ([1, 2, 3], [1, 1, 1], [0, 1, 0]),  # one annotator for all items
    ([1, 1, 2], [1, 2, 1], [5, 5, 5]),  # one class for all labels
    ([1, 2, 3], [1, 2, 3], [0, 1, 0]),  # one label per item
    ([1], [1], [0]),  # a single annotation
    ([1, 1, 1, 2], [1, 1, 1, 2], [0, 1, 1, 0]),  # an annotator who labels an item repeatedly
)


def check_method(method: Method) -> None:
    """Run every check on a registered method for classes; the AssertionError names the check that fails."""
    for name, check in CHECKS.items():
        try:
            check(method)
        except AssertionError as error:
            raise AssertionError(f"{method.__name__}, {name}: {error}") from error


def _register_check(check: Check) -> Check:
    CHECKS[check.__name__.removeprefix("check_")] = check
    return check


# Tables, fits and comparisons -----------------------------------------------------------------------------------------


def is_binary(method: Method) -> bool:
    """Return whether a method supports two classes only."""
    entry = methods.find_entry(method)
    return entry is not None and bool(entry.facts.get("binary"))


def make_table(method: Method, shape: str, seed: int = 0) -> Annotations:
    """Simulate a table that the method supports; its sizes are `TABLE_SHAPES[shape]`."""
    items, annotators, classes = TABLE_SHAPES[shape]
    classes = 2 if is_binary(method) else classes
    return simulate(items, annotators, classes, redundancy=min(3, annotators), seed=seed).annotations


def fit_quietly(method: Method, table: Annotations, gold: Any = None, earlier: Any = None, **keywords: Any) -> Any:
    """Fit and ignore convergence warnings, because EM on small random tables may be slow."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return method(**keywords).fit(table, gold=gold, earlier=earlier)


def array_results(model: Any) -> dict[str, Any]:
    """Return the results of a model that are arrays, by name."""
    return {key: value for key, value in vars(model).items() if key.endswith("_") and isinstance(value, np.ndarray)}


def assert_same_results(first: Any, second: Any) -> None:
    """Raise AssertionError unless two models have exactly the same results."""
    before, after = array_results(first), array_results(second)
    assert before.keys() == after.keys(), f"results differ: {before.keys() ^ after.keys()}"
    for key, value in before.items():
        np.testing.assert_array_equal(value, after[key], err_msg=key)


@contextmanager
def expect_error(kind: type[E], **facts: Any) -> Iterator[list[E]]:
    """Raise AssertionError unless the block raises an error of this class with these facts; yield a list for it."""
    caught: list[E] = []
    try:
        yield caught
    except kind as error:
        caught.append(error)
    assert caught, f"{kind.__name__} was not raised"
    found = {name: getattr(caught[0], name) for name in facts}
    assert found == facts, f"{kind.__name__} has the facts {found}, not {facts}"


def values_out_of_range(declared: Any) -> list[float]:
    """Return values outside the declared limits of a keyword."""
    limits = [(declared.low, -1), (declared.above, 0), (declared.high, 1), (declared.below, 0)]
    return [limit + step for limit, step in limits if limit is not None]


# Results --------------------------------------------------------------------------------------------------------------


@_register_check
def check_shapes(method: Method) -> None:
    """Check the shapes and ranges of all results."""
    for shape in TABLE_SHAPES:
        table = make_table(method, shape)
        model = fit_quietly(method, table)
        I, A, K = table.n_items, table.n_annotators, table.n_classes
        assert model.posterior_.shape == (I, K)
        np.testing.assert_allclose(model.posterior_.sum(axis=1), 1)
        assert (model.posterior_ >= 0).all()
        assert model.reliability_.shape == (A,)
        assert ((model.reliability_ >= 0) & (model.reliability_ <= 1)).all()
        assert model.predict().shape == (I,)
        assert set(model.predict()) <= set(table.classes)
        assert model.predict_proba() is model.posterior_
        assert np.ndim(model.trace_) == 1
        assert isinstance(model.n_iter_, int)
        assert isinstance(model.converged_, bool)
        if hasattr(model, "prior_"):
            np.testing.assert_allclose(model.prior_.sum(), 1)
        if hasattr(model, "confusion_"):
            assert model.confusion_.shape == (A, K, K)
            np.testing.assert_allclose(model.confusion_.sum(axis=2), 1)
        for key, names in (("items_", table.items), ("annotators_", table.annotators), ("classes_", table.classes)):
            np.testing.assert_array_equal(getattr(model, key), names)


@_register_check
def check_row_order(method: Method) -> None:
    """Check that the order of rows does not change any bit of a result, with and without weights."""
    table, rng = make_table(method, "A>K"), np.random.default_rng(3)
    rows = [np.array(column) for column in table.to_arrow().to_pydict().values()]
    order = rng.permutation(len(table))
    shuffled = Annotations.from_arrays(*(column[order] for column in rows))
    assert_same_results(fit_quietly(method, table), fit_quietly(method, shuffled))
    n = 90
    rows = [rng.integers(0, high, n) for high in (11, 4, 2 if is_binary(method) else 3)]
    # Many rows have the same codes but different weights.
    weight, order = rng.choice([0.3, 0.7, 1.1], n), rng.permutation(n)
    table = Annotations.from_arrays(*rows, weight=weight)
    shuffled = Annotations.from_arrays(*(column[order] for column in rows), weight=weight[order])
    assert_same_results(fit_quietly(method, table), fit_quietly(method, shuffled))


@_register_check
def check_renaming(method: Method) -> None:
    """Check that new names of items, annotators and classes only permute the results."""
    table, rng = make_table(method, "A>K", seed=6), np.random.default_rng(0)
    columns = [np.array(column) for column in table.to_arrow().to_pydict().values()]
    new = [rng.permutation(size) for size in (table.n_items, table.n_annotators, table.n_classes)]
    renamed = Annotations.from_arrays(*(names[column] for names, column in zip(new, columns, strict=True)))
    before, after = fit_quietly(method, table), fit_quietly(method, renamed)
    np.testing.assert_allclose(after.posterior_[np.ix_(new[0], new[2])], before.posterior_, atol=1e-8)
    np.testing.assert_allclose(after.reliability_[new[1]], before.reliability_, atol=1e-8)


@_register_check
def check_refit(method: Method) -> None:
    """Check that a second fit gives the same results, even after a fit of a pickled model to another table."""
    table = make_table(method, "A<K")
    model = fit_quietly(method, table)
    assert_same_results(model, pickle.loads(pickle.dumps(model)))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        again = pickle.loads(pickle.dumps(model)).fit(make_table(method, "A>K")).fit(table)
    assert_same_results(model, again)


@_register_check
def check_keywords(method: Method) -> None:
    """Check that keywords are stored unchanged, and that `sklearn.base.clone` copies them."""
    from sklearn.base import clone

    model = method(seed=7)
    before = dict(model.get_params())
    assert before["seed"] == 7
    assert vars(model).keys() == inspect.signature(method).parameters.keys()
    assert clone(model).get_params() == before
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(make_table(method, "A>K"))
    assert model.get_params() == before


@_register_check
def check_trace(method: Method) -> None:
    """Check that the objective never decreases, and that every pass is reported to `on_step`."""
    for seed in range(3):
        trace = fit_quietly(method, make_table(method, "A<K", seed)).trace_
        assert (np.diff(trace) >= -1e-9 * np.abs(trace[1:])).all(), f"the objective decreases: {trace}"
    steps: list[int] = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model = method().fit(make_table(method, "A>K"), on_step=lambda step, objective: steps.append(step))
    assert steps == list(range(1, model.n_iter_ + 1)), f"reported steps: {steps}"


@_register_check
def check_frames(method: Method) -> None:
    """Check that frames have the names of the table."""
    table = make_table(method, "A>K")
    label = np.array(["no", "so", "ja", "öh"])[table.label]
    table = Annotations.from_arrays([f"i{i:03}" for i in table.item], table.annotator, label)
    model = fit_quietly(method, table)
    items = model.to_frame("items", "pyarrow")
    modelled = ["difficulty"] if hasattr(model, "difficulty_") else []
    assert items.column_names == ["item", "label", "confidence", *modelled, *(f"p_{name}" for name in table.classes)]
    assert items["label"].to_pylist() == model.predict().tolist()
    assert len(model.to_frame("annotators", "pyarrow")) == table.n_annotators
    if hasattr(model, "confusion_"):
        assert len(model.to_frame("confusions", "pyarrow")) == table.n_annotators * table.n_classes**2


@_register_check
def check_ties(method: Method) -> None:
    """Check that the draw that breaks ties depends only on the seed and the item's name."""
    pairs = [(f"i{item}", annotator, annotator) for item in range(40) for annotator in (0, 1)]
    model = fit_quietly(method, Annotations.from_arrays(*zip(*pairs, strict=True)))
    expected = arg_max(model.posterior_, model.items_, model.classes_, model.tie_seed_)
    np.testing.assert_array_equal(model.predict(), model.classes_[expected])


@_register_check
def check_intervals(method: Method) -> None:
    """Check that intervals contain the estimates and are wider at higher levels."""
    model = fit_quietly(method, make_table(method, "A>K"))
    low, high = model.reliability_interval().T
    assert (low < model.reliability_).all()
    assert (model.reliability_ < high).all()
    wide, narrow = (np.ptp(model.reliability_interval(level), axis=1) for level in (0.99, 0.5))
    assert (wide > narrow).all()
    frame = model.to_frame("annotators", "pyarrow")
    np.testing.assert_array_equal(frame["low"].to_numpy(), low)
    np.testing.assert_array_equal(frame["high"].to_numpy(), high)
    with expect_error(LevelOutOfRange, level=1.5):
        model.reliability_interval(1.5)
    if model.confusion_support() is not None:
        low, high = np.moveaxis(model.confusion_interval(), -1, 0)
        assert ((low <= model.confusion_) & (model.confusion_ <= high)).all()
        assert (low < high).mean() > 0.9


# Unusual tables ------------------------------------------------------------------------------------------------------


@_register_check
def check_degenerate_tables(method: Method) -> None:
    """Check that results are finite with one annotator, one class, one annotation or no overlap."""
    for columns in DEGENERATE_TABLES:
        model = fit_quietly(method, Annotations.from_arrays(*columns))
        assert np.isfinite(model.posterior_).all(), columns
        assert np.isfinite(model.reliability_).all(), columns


@_register_check
def check_empty_item(method: Method) -> None:
    """Check that an item without annotations gets the prior."""
    table = Annotations.from_arrays([1, 1, 2], [1, 2, 1], ["a", "a", "b"], items=[0, 1, 2], annotators=[1, 2, 3])
    model = fit_quietly(method, table)
    np.testing.assert_allclose(model.posterior_[0], model.prior_)
    assert np.isfinite(model.reliability_[2])


@_register_check
def check_long_item(method: Method) -> None:
    """Check that an item with thousands of labels neither underflows nor overflows."""
    rows = np.arange(5000)
    table = Annotations.from_arrays(0 * rows, rows % 11, rows % (2 if is_binary(method) else 3))
    for key, value in array_results(fit_quietly(method, table)).items():
        assert np.isfinite(value).all(), key


@_register_check
def check_wrong_arguments(method: Method) -> None:
    """Check the errors for an argument that is no table, an empty table, too many classes and an unfitted model."""
    model = fit_quietly(method, make_table(method, "A>K"))
    for wrong in ("labels.csv", dissensus.Questions({})):
        with expect_error(NotATable, caller="fit"):
            method().fit(wrong)
        with expect_error(NotATable, caller="partial_fit"):
            model.partial_fit(wrong)
    empty = Annotations.from_arrays(["a"], ["x"], ["?"], abstain="?", classes=["yes", "no"])
    with expect_error(NoAnnotations):
        method().fit(empty)
    with expect_error(NotFitted):
        method().predict()
    if is_binary(method):
        with expect_error(TooManyClasses, n_classes=4):
            method().fit(simulate(20, 5, 4, redundancy=3).annotations)


@_register_check
def check_keyword_limits(method: Method) -> None:
    """Check that a keyword outside its declared limits raises an error that names it."""
    table = make_table(method, "A>K")
    for keyword, declared in method.declared().items():
        for value in values_out_of_range(declared):
            with expect_error(BadParameter) as caught:
                method(**{keyword: value}).fit(table)
            message = str(caught[0])
            assert message.startswith(keyword), f"the error does not name {keyword}: {message}"
            assert str(value) in message, f"the error does not name {value}: {message}"


@_register_check
def check_convergence_warning(method: Method) -> None:
    """Check that a fit that stops at `max_iter` warns and is not `converged_`."""
    if "max_iter" not in method.declared():
        return
    limits = {"max_iter": 2, "tol": 0, "restarts": 1}
    keywords = {name: value for name, value in limits.items() if name in method.declared()}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model: Any = method(**keywords).fit(simulate(300, 9, 2 if is_binary(method) else 4, seed=4).annotations)
    found = [warning for warning in caught if isinstance(warning.message, NotConverged)]
    assert found, "no warning"
    assert all(warning.message.facts["max_iter"] == 2 for warning in found)  # type: ignore[union-attr]
    package = str(Path(dissensus.__file__).parent)
    assert not any(warning.filename.startswith(package) for warning in found), "not reported for the caller's line"
    assert not model.converged_
    assert model.n_iter_ == 2


# New tables, gold and earlier counts ----------------------------------------------------------------------------------


@_register_check
def check_new_tables(method: Method) -> None:
    """Check posteriors for the fitted table, new items and unseen annotators; unseen classes must be an error."""
    table = make_table(method, "A>K")
    model, last = fit_quietly(method, table), table.n_classes - 1
    np.testing.assert_allclose(model.predict_proba(table), model.posterior_, atol=1e-9)
    np.testing.assert_array_equal(model.predict(table), model.predict())
    new = Annotations.from_arrays(["x", "x", "y"], [0, 1, 1], [0, 0, last], items=["w", "x", "y"])
    scored = model.predict_proba(new)
    assert scored.shape == (3, last + 1)  # all fitted classes, although the new table has two
    np.testing.assert_allclose(scored.sum(axis=1), 1)
    np.testing.assert_allclose(scored[0], model.prior_)
    unseen = Annotations.from_arrays(["x"], [4711], [min(2, last)])
    assert model.predict(unseen).tolist() == [min(2, last)]
    with expect_error(UnknownClass):
        model.predict(Annotations.from_arrays([1, 1], [0, 1], [0, 99]))
    with expect_error(DataError):  # the names of fitted annotators are integers
        model.predict(Annotations.from_arrays([1], ["0"], [0]))


@_register_check
def check_predicted_annotations(method: Method) -> None:
    """Check predicted annotations for fitted and unseen items and annotators; rows must be independent."""
    table = make_table(method, "A>K")
    model = fit_quietly(method, table)
    expected = model.predict_annotations(table)
    assert expected.shape == (len(table), table.n_classes)
    np.testing.assert_allclose(expected.sum(axis=1), 1)
    assert (expected > 0).all()  # every label must have a probability above 0
    keep = np.isin(np.arange(table.n_items), np.random.default_rng(0).permutation(table.n_items)[:7])
    np.testing.assert_array_equal(model.predict_annotations(table.select(items=keep)), expected[keep[table.item]])
    late = table.select(annotators=table.annotators >= 3)  # gives the same annotators other codes
    np.testing.assert_array_equal(model.predict_annotations(late), expected[table.annotator >= 3])
    new = Annotations.from_arrays([999, int(table.items[0]), 999], [0, 999, 999], [0, 1, 1])
    np.testing.assert_allclose(model.predict_annotations(new).sum(axis=1), 1)


@_register_check
def check_gold(method: Method) -> None:
    """Check that gold classes are predicted, and that gold of a wrong shape, type or range is an error."""
    table = make_table(method, "A>K")
    gold = np.full(table.n_items, -1)
    gold[:5] = np.array([3, 2, 1, 0, 3]) % table.n_classes
    np.testing.assert_array_equal(fit_quietly(method, table, gold=gold).predict()[:5], gold[:5])
    wrong_gold: Any
    for wrong_gold, error in (
        (gold[:-1], WrongGoldShape),
        (gold + 0.5, WrongGoldShape),
        (0 * gold + table.n_classes, GoldCodeOutOfRange),
    ):
        with expect_error(error):
            method().fit(table, gold=wrong_gold)


def earlier_counts(table: Annotations, right: float, wrong: float) -> FloatArray:
    """Return the counts (K, K) [true, given] of an annotator with these numbers of right and wrong labels."""
    K = table.n_classes
    return np.where(np.eye(K, dtype=bool), right / K, wrong / (K * (K - 1)))


@_register_check
def check_earlier_counts(method: Method) -> None:
    """Check that earlier counts of annotators are used like labels on gold items."""
    table = make_table(method, "A>K")
    before = {int(annotator): earlier_counts(table, 900, 100) for annotator in table.annotators}
    before[int(table.annotators[2])] = earlier_counts(table, 50, 950)
    before[4711] = earlier_counts(table, 5, 5)  # an annotator that is not in the table
    if not method.takes_earlier:
        with expect_error(NoEarlierCounts):
            method().fit(table, earlier=before)
        return
    model = fit_quietly(method, table, earlier=before)
    array = np.array([before[int(annotator)] for annotator in table.annotators])
    assert_same_results(model, fit_quietly(method, table, earlier=array))
    assert model.posterior_.shape == (table.n_items, table.n_classes)
    np.testing.assert_array_equal(model.items_, table.items)
    assert model.reliability_.argmin() == 2
    assert model.reliability_[2] < 0.2
    assert np.delete(model.reliability_, 2).min() > 0.8
    np.testing.assert_array_equal(model.n_annotations_, np.diff(table.annotator_ptr))
    np.testing.assert_allclose(model.predict_proba(table), model.posterior_, atol=1e-9)


# Saving and updating --------------------------------------------------------------------------------------------------


@_register_check
def check_saving(method: Method) -> None:
    """Check that a loaded model equals the saved one, and that a damaged file is an error."""
    sim = make_table(method, "A>K")
    text = Annotations.from_arrays([f"ü{i}" for i in sim.item], [f"w {a}" for a in sim.annotator], sim.label)
    with tempfile.TemporaryDirectory() as folder:
        with expect_error(NoModel):
            load(folder)
        for table in (sim, text):
            model = fit_quietly(method, table)
            path = save(model, folder)
            loaded = load(folder)
            assert loaded.get_params() == model.get_params()
            assert_same_results(model, loaded)
            np.testing.assert_array_equal(loaded.predict(table), model.predict(table))
        whole = path.read_bytes()
        for part in (b"", b"junk", whole[: len(whole) // 2], whole[:-30]):
            path.write_bytes(part)
            with expect_error(DamagedModel):
                load(folder)
        save(fit_quietly(method, sim, seed=np.int64(3)), folder)  # keywords may be NumPy numbers
        assert load(folder).seed == 3


@_register_check
def check_updates(method: Method) -> None:
    """Check that `partial_fit` raises NoPartialFit or returns a model that can be saved and keeps its gold classes."""
    table = make_table(method, "A>K")
    model = fit_quietly(method, table)
    new = Annotations.from_arrays([900, 900, 3], [0, 77, 77], [0, 1, 1])
    if method._partial_update is Aggregator._partial_update:
        with expect_error(NoPartialFit):
            model.partial_fit(new)
        return
    model.partial_fit(new, gold=np.array([-1, 1]))  # gold of items 3 and 900
    assert model.predict()[-1] == 1
    with tempfile.TemporaryDirectory() as folder:
        save(model, Path(folder))
        assert_same_results(model, load(folder))
    assert model.predict_proba(Annotations.from_arrays([5], [77], [1])).shape == (1, table.n_classes)
    for use in (model.partial_fit, model.predict, model.predict_annotations):
        with expect_error(UnknownClass):
            use(Annotations.from_arrays([1], [0], [99]))
    with expect_error(DataError):  # the names of fitted items are integers
        model.partial_fit(Annotations.from_arrays(["x"], [0], [0]))
