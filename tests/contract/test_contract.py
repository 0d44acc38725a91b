"""What every method in the registry promises. A new method joins by being registered."""

import inspect
import pickle
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from sklearn.base import clone

import dissensus
from dissensus import Annotations, methods
from dissensus.base import arg_max
from dissensus.exceptions import BadParameter, ConvergenceWarning, DataError, NotFitted, UnknownClass, UnreadableFile
from dissensus.simulate import simulate
from strategies import tables

every_method = pytest.mark.parametrize("name", list(methods))

# (items, annotators, classes): all different, in more than one order
SHAPES = {"A<K": (40, 3, 5), "A>K": (31, 8, 4), "I<A": (6, 17, 3)}


def table_of(shape: str, seed: int = 0) -> Annotations:
    items, annotators, classes = SHAPES[shape]
    return simulate(items, annotators, classes, redundancy=min(3, annotators), seed=seed).annotations


def fit(name: str, table: Annotations, **keywords):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # tiny random tables may settle slowly
        return methods[name](**keywords).fit(table)


def results(model) -> dict[str, np.ndarray]:
    return {key: value for key, value in vars(model).items() if key.endswith("_") and isinstance(value, np.ndarray)}


def assert_same(one, other) -> None:
    a, b = results(one), results(other)
    assert a.keys() == b.keys()
    for key in a:
        np.testing.assert_array_equal(a[key], b[key], err_msg=key)


@every_method
@pytest.mark.parametrize("shape", SHAPES)
def test_results_have_the_promised_shapes(name, shape):
    table = table_of(shape)
    model = fit(name, table)
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


@every_method
def test_row_order_changes_no_bit(name):
    table = table_of("A>K")
    rng = np.random.default_rng(3)
    arrow = table.to_arrow().to_pydict()
    order = rng.permutation(len(table))
    shuffled = Annotations.from_arrays(*(np.array(arrow[c])[order] for c in ("item", "annotator", "label")))
    assert_same(fit(name, table), fit(name, shuffled))


@every_method
def test_row_order_changes_no_bit_with_weights(name):
    rng = np.random.default_rng(5)
    n = 90
    item, annotator, label = rng.integers(0, 11, n), rng.integers(0, 4, n), rng.integers(0, 3, n)
    weight = rng.choice([0.3, 0.7, 1.1], n)  # many rows agree in everything but the weight
    order = rng.permutation(n)
    one = Annotations.from_arrays(item, annotator, label, weight=weight)
    two = Annotations.from_arrays(item[order], annotator[order], label[order], weight=weight[order])
    assert_same(fit(name, one), fit(name, two))


@every_method
def test_renaming_permutes_the_results(name):
    table = table_of("A>K", seed=6)
    columns = [np.array(c) for c in table.to_arrow().to_pydict().values()]
    rng = np.random.default_rng(0)
    new = [rng.permutation(size) for size in (table.n_items, table.n_annotators, table.n_classes)]
    renamed = Annotations.from_arrays(*(names[column] for names, column in zip(new, columns, strict=True)))
    before, after = fit(name, table), fit(name, renamed)
    np.testing.assert_allclose(after.posterior_[np.ix_(new[0], new[2])], before.posterior_, atol=1e-8)
    np.testing.assert_allclose(after.reliability_[new[1]], before.reliability_, atol=1e-8)


@every_method
def test_fitting_twice_equals_fitting_once(name):
    table = table_of("A<K")
    model = fit(name, table)
    again = pickle.loads(pickle.dumps(model)).fit(table_of("A>K"))  # another table in between
    assert_same(model, again.fit(table))
    assert_same(model, pickle.loads(pickle.dumps(model)))


@every_method
def test_keywords_are_stored_untouched_and_cloned(name):
    method = methods[name]
    model = method(seed=7)
    assert model.get_params()["seed"] == 7
    assert vars(model).keys() == inspect.signature(method.__init__).parameters.keys() - {"self"}
    assert clone(model).get_params() == model.get_params()
    before = dict(model.get_params())
    fit(name, table_of("A>K"))
    assert model.get_params() == before


@every_method
def test_trace_never_falls(name):
    for seed in range(3):
        trace = fit(name, table_of("A<K", seed)).trace_
        assert (np.diff(trace) >= -1e-9 * np.abs(trace[1:])).all()


@every_method
def test_scoring_the_fitted_table_gives_its_posterior(name):
    table = table_of("A>K")
    model = fit(name, table)
    np.testing.assert_allclose(model.predict_proba(table), model.posterior_, atol=1e-9)
    np.testing.assert_array_equal(model.predict(table), model.predict())


@every_method
def test_new_items_and_unseen_annotators_are_scored(name):
    model = fit(name, table_of("A>K"))
    new = Annotations.from_arrays(["x", "x", "y"], [0, 1, 1], [0, 0, 3], items=["w", "x", "y"])
    scored = model.predict_proba(new)
    assert scored.shape == (3, 4)  # the fitted classes, not the two of the new table
    np.testing.assert_allclose(scored.sum(axis=1), 1)
    np.testing.assert_allclose(scored[0], model.prior_)
    unseen = Annotations.from_arrays(["x"], [4711], [2])
    assert model.predict(unseen).tolist() == [2]


@every_method
def test_unseen_class_is_an_error_that_names_it(name):
    model = fit(name, table_of("A>K"))
    with pytest.raises(UnknownClass, match="99"):
        model.predict(Annotations.from_arrays([1, 1], [0, 1], [0, 99]))


@every_method
def test_new_table_of_another_kind_of_names_is_an_error(name):
    model = fit(name, table_of("A>K"))
    with pytest.raises(DataError, match=r"annotators: .*integers.*text"):
        model.predict(Annotations.from_arrays([1], ["0"], [0]))


@every_method
@pytest.mark.parametrize(
    "columns",
    [
        ([1, 2, 3], [1, 1, 1], [0, 1, 0]),  # one annotator
        ([1, 1, 2], [1, 2, 1], [5, 5, 5]),  # one class
        ([1, 2, 3], [1, 2, 3], [0, 1, 0]),  # no overlap
        ([1], [1], [0]),  # one annotation
        ([1, 1, 1, 2], [1, 1, 1, 2], [0, 1, 1, 0]),  # a repeated pair
    ],
    ids=["one annotator", "one class", "no overlap", "one annotation", "repeated pair"],
)
def test_degenerate_tables_work(name, columns):
    model = fit(name, Annotations.from_arrays(*columns))
    assert np.isfinite(model.posterior_).all()
    assert np.isfinite(model.reliability_).all()


@every_method
def test_item_without_annotations_gets_the_prior(name):
    table = Annotations.from_arrays([1, 1, 2], [1, 2, 1], ["a", "a", "b"], items=[0, 1, 2], annotators=[1, 2, 3])
    model = fit(name, table)
    np.testing.assert_allclose(model.posterior_[0], model.prior_)
    assert np.isfinite(model.reliability_[2])


@every_method
def test_what_is_no_table_is_a_clear_error(name):
    for wrong in ("labels.csv", dissensus.Questions({})):
        with pytest.raises(DataError, match="one table of annotations, got"):
            methods[name]().fit(wrong)


@every_method
def test_empty_table_and_unfitted_model_are_clear_errors(name):
    empty = Annotations.from_arrays(["a"], ["x"], ["?"], abstain="?", classes=["yes", "no"])
    with pytest.raises(DataError, match="no annotations"):
        methods[name]().fit(empty)
    with pytest.raises(NotFitted, match="call fit"):
        methods[name]().predict()


@every_method
def test_a_negative_seed_is_one_clear_error(name):
    with pytest.raises(BadParameter, match=r"seed must .*-1"):
        methods[name](seed=-1).fit(table_of("A>K"))


@every_method
def test_known_gold_is_kept_and_checked(name):
    table = table_of("A>K")
    gold = np.full(table.n_items, -1)
    gold[:5] = [3, 2, 1, 0, 3]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model = methods[name]().fit(table, gold=gold)
    np.testing.assert_array_equal(model.predict()[:5], gold[:5])
    for bad in (gold[:-1], gold + 0.5, np.full(table.n_items, 4)):
        with pytest.raises(DataError, match="gold"):
            methods[name]().fit(table, gold=bad)


@every_method
def test_saved_and_loaded_model_is_the_same(name, tmp_path):
    sim = table_of("A>K")
    text = Annotations.from_arrays([f"ü{i}" for i in sim.item], [f"w {a}" for a in sim.annotator], sim.label)
    for number, table in enumerate((sim, text)):
        model = fit(name, table)
        dissensus.save(model, tmp_path / str(number))
        loaded = dissensus.load(tmp_path / str(number))
        assert loaded.get_params() == model.get_params()
        assert_same(model, loaded)
        np.testing.assert_array_equal(loaded.predict(table), model.predict(table))


@every_method
def test_keywords_that_are_numpy_numbers_are_saved(name, tmp_path):
    dissensus.save(fit(name, table_of("A>K"), seed=np.int64(3)), tmp_path)
    assert dissensus.load(tmp_path).seed == 3


@every_method
def test_damaged_model_is_one_clear_error(name, tmp_path):
    with pytest.raises(UnreadableFile, match="no fitted model"):
        dissensus.load(tmp_path)
    path = dissensus.save(fit(name, table_of("A>K")), tmp_path)
    whole = path.read_bytes()
    for part in (b"", b"junk", whole[: len(whole) // 2], whole[:-30]):
        path.write_bytes(part)
        with pytest.raises(UnreadableFile, match="damaged"):
            dissensus.load(tmp_path)


@every_method
@pytest.mark.parametrize("backend", ["pandas", "polars", "pyarrow"])
def test_frames_carry_the_names(name, backend):
    sim = table_of("A>K")
    table = Annotations.from_arrays(
        [f"i{i:03}" for i in sim.item], sim.annotator, np.array(["no", "so", "ja", "öh"])[sim.label]
    )
    model = fit(name, table)
    items = model.to_frame("items", backend)
    columns = items.column_names if backend == "pyarrow" else list(items.columns)
    modelled = ["difficulty"] if hasattr(model, "difficulty_") else []
    assert columns == ["item", "label", "confidence", *modelled, "p_ja", "p_no", "p_so", "p_öh"]
    assert items["label"].to_numpy().tolist() == model.predict().tolist()
    assert len(model.to_frame("annotators", backend)) == table.n_annotators
    if hasattr(model, "confusion_"):
        assert len(model.to_frame("confusions", backend)) == table.n_annotators * 16


@every_method
def test_steps_are_reported(name):
    seen = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model = methods[name]().fit(table_of("A>K"), on_step=lambda step, objective: seen.append(step))
    assert seen == list(range(1, model.n_iter_ + 1))


@every_method
@settings(max_examples=25, deadline=None)
@given(table=tables())
def test_any_table_works(name, table):
    model = fit(name, table)
    np.testing.assert_allclose(model.posterior_.sum(axis=1), 1, atol=1e-9)
    nothing_counts = table.weight is not None and table.weight.sum() == 0
    assert nothing_counts or np.isfinite(model.reliability_).all()
    np.testing.assert_allclose(model.predict_proba(table), model.posterior_, atol=1e-7)


def test_ties_are_broken_by_seed_and_name_not_by_order_of_rows_or_classes():
    items, even = np.arange(4000), np.full((4000, 2), 0.5)
    first, second = np.array(["a", "b"], object), np.array(["b", "a"], object)
    one = first[arg_max(even, items, first, 1)]
    assert abs((one == "a").mean() - 0.5) < 0.05  # neither class is favoured
    np.testing.assert_array_equal(one, second[arg_max(even, items, second, 1)])
    order = np.random.default_rng(0).permutation(4000)
    np.testing.assert_array_equal(first[arg_max(even, items[order], first, 1)], one[order])
    assert (one != first[arg_max(even, items, first, 2)]).any()


def test_ties_draw_only_among_the_tied():
    posterior = np.array([[0.4, 0.2, 0.4]] * 500)
    won = arg_max(posterior, np.array([f"i{i}" for i in range(500)], object), np.arange(3), 0)
    assert set(won) == {0, 2}
