"""What every method in the registry promises. A new method joins by being registered."""

import inspect
import math
import pickle
import re
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from sklearn.base import clone

import dissensus
from dissensus import Annotations, methods
from dissensus.exceptions import BadParameter, ConvergenceWarning, DataError, NotFitted, UnknownClass, UnreadableFile
from dissensus.models.base import Aggregator, arg_max, methods_for
from dissensus.table.simulate import simulate
from strategies import tables
from tables import random_table, two_who_differ, with_extremes

every_method = pytest.mark.parametrize("name", methods_for("classes"))

# (items, annotators, classes): all different, in more than one order
SHAPES = {"A<K": (40, 3, 5), "A>K": (31, 8, 4), "I<A": (6, 17, 3)}


def is_binary(name: str) -> bool:
    return bool(methods.entry(name).facts.get("binary"))


def table_of(name: str, shape: str, seed: int = 0) -> Annotations:
    """Simulated annotations that the method can take."""
    items, annotators, classes = SHAPES[shape]
    classes = 2 if is_binary(name) else classes
    return simulate(items, annotators, classes, redundancy=min(3, annotators), seed=seed).annotations


def fit(name: str, table: Annotations, **keywords):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # tiny random tables may settle slowly
        return methods[name](**keywords).fit(table)


def independent(name: str) -> dict[str, None]:
    """Keywords of a method that takes the labels of an item for independent."""
    return {"dependence": None} if "dependence" in methods[name].declared() else {}


def results(model) -> dict[str, np.ndarray]:
    return {key: value for key, value in vars(model).items() if key.endswith("_") and isinstance(value, np.ndarray)}


def assert_same(one, other) -> None:
    a, b = results(one), results(other)
    assert a.keys() == b.keys()
    for key in a:
        np.testing.assert_array_equal(a[key], b[key], err_msg=key)


@pytest.mark.parametrize("name", methods)
def test_one_fit_serves_all_kinds_of_labels(name):
    assert methods[name].fit is Aggregator.fit
    assert not methods[name].__abstractmethods__


@every_method
@pytest.mark.parametrize("shape", SHAPES)
def test_results_have_the_promised_shapes(name, shape):
    table = table_of(name, shape)
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
    table = table_of(name, "A>K")
    rng = np.random.default_rng(3)
    arrow = table.to_arrow().to_pydict()
    order = rng.permutation(len(table))
    shuffled = Annotations.from_arrays(*(np.array(arrow[c])[order] for c in ("item", "annotator", "label")))
    assert_same(fit(name, table), fit(name, shuffled))


@every_method
def test_row_order_changes_no_bit_with_weights(name):
    rng = np.random.default_rng(5)
    n = 90
    item, annotator, label = (
        rng.integers(0, 11, n),
        rng.integers(0, 4, n),
        rng.integers(0, 2 if is_binary(name) else 3, n),
    )
    weight = rng.choice([0.3, 0.7, 1.1], n)  # many rows agree in everything but the weight
    order = rng.permutation(n)
    one = Annotations.from_arrays(item, annotator, label, weight=weight)
    two = Annotations.from_arrays(item[order], annotator[order], label[order], weight=weight[order])
    assert_same(fit(name, one), fit(name, two))


@every_method
def test_renaming_permutes_the_results(name):
    table = table_of(name, "A>K", seed=6)
    columns = [np.array(c) for c in table.to_arrow().to_pydict().values()]
    rng = np.random.default_rng(0)
    new = [rng.permutation(size) for size in (table.n_items, table.n_annotators, table.n_classes)]
    renamed = Annotations.from_arrays(*(names[column] for names, column in zip(new, columns, strict=True)))
    before, after = fit(name, table), fit(name, renamed)
    np.testing.assert_allclose(after.posterior_[np.ix_(new[0], new[2])], before.posterior_, atol=1e-8)
    np.testing.assert_allclose(after.reliability_[new[1]], before.reliability_, atol=1e-8)


@every_method
def test_fitting_twice_equals_fitting_once(name):
    table = table_of(name, "A<K")
    model = fit(name, table)
    again = pickle.loads(pickle.dumps(model)).fit(table_of(name, "A>K"))  # another table in between
    assert_same(model, again.fit(table))
    assert_same(model, pickle.loads(pickle.dumps(model)))


@every_method
def test_keywords_are_stored_untouched_and_cloned(name):
    method = methods[name]
    model = method(seed=7)
    assert model.get_params()["seed"] == 7
    assert vars(model).keys() == inspect.signature(method).parameters.keys()
    assert clone(model).get_params() == model.get_params()
    before = dict(model.get_params())
    fit(name, table_of(name, "A>K"))
    assert model.get_params() == before


@every_method
def test_trace_never_falls(name):
    for seed in range(3):
        trace = fit(name, table_of(name, "A<K", seed)).trace_
        assert (np.diff(trace) >= -1e-9 * np.abs(trace[1:])).all()


@every_method
def test_scoring_the_fitted_table_gives_its_posterior(name):
    table = table_of(name, "A>K")
    model = fit(name, table)
    np.testing.assert_allclose(model.predict_proba(table), model.posterior_, atol=1e-9)
    np.testing.assert_array_equal(model.predict(table), model.predict())


@every_method
def test_new_items_and_unseen_annotators_are_scored(name):
    table = table_of(name, "A>K")
    model, last = fit(name, table), table.n_classes - 1
    new = Annotations.from_arrays(["x", "x", "y"], [0, 1, 1], [0, 0, last], items=["w", "x", "y"])
    scored = model.predict_proba(new)
    assert scored.shape == (3, last + 1)  # the fitted classes, not the two of the new table
    np.testing.assert_allclose(scored.sum(axis=1), 1)
    np.testing.assert_allclose(scored[0], model.prior_)
    unseen = Annotations.from_arrays(["x"], [4711], [min(2, last)])
    assert model.predict(unseen).tolist() == [min(2, last)]


@every_method
def test_unseen_class_is_an_error_that_names_it(name):
    model = fit(name, table_of(name, "A>K"))
    with pytest.raises(UnknownClass, match="99"):
        model.predict(Annotations.from_arrays([1, 1], [0, 1], [0, 99]))


@every_method
def test_new_table_of_another_kind_of_names_is_an_error(name):
    model = fit(name, table_of(name, "A>K"))
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
        with pytest.raises(DataError, match="partial_fit takes one table of annotations, got"):
            fit(name, table_of(name, "A>K")).partial_fit(wrong)


@every_method
def test_empty_table_and_unfitted_model_are_clear_errors(name):
    empty = Annotations.from_arrays(["a"], ["x"], ["?"], abstain="?", classes=["yes", "no"])
    with pytest.raises(DataError, match="no annotations"):
        methods[name]().fit(empty)
    with pytest.raises(NotFitted, match="call fit"):
        methods[name]().predict()


def test_binary_method_says_so_in_one_clear_error():
    for name in filter(is_binary, methods):
        with pytest.raises(DataError, match=f"{name} is for two classes and the table has 4, such as 0, 1, 2; take"):
            methods[name]().fit(simulate(20, 5, 4, redundancy=3).annotations)


BAD = {
    "seed": [-1], "max_iter": [0, 2.5], "tol": [-1.0, math.nan], "accelerate": ["anderson"], "restarts": [0],
    "threads": [0], "class_count": [0, -1], "vote_count": [-1], "known": [0],
    "dependence": [-1, math.inf, math.nan, "half", True],
}  # fmt: skip
"""Keyword → values that no method takes."""
BAD_OF = {
    "community-bcc": {"communities": [0, 2.5], "community_count": [0]},
    "dawid-skene": {"smoothing": [0.0, 1e308], "crowd_labels": [-1], "least_labels": [-1]},
    "glad": {"ability_sd": [0.0, math.inf], "easiness_sd": [-1.0, math.nan]},
    "kos": {"crowd_labels": [-1, math.inf]},
    "m-msr": {"trim": [-0.1, 0.5], "least": [-1], "right": [0.0], "wrong": [-1]},
    "mace": {"alpha": [0.0], "beta": [-1], "strategy_count": [math.inf], "class_prior": ["flat"]},
    "metal": {
        "overlap": [0.0], "smoothing": [0.0], "margin": [-1], "class_balance": ["learned", [0.5, -1]],
    },
    "mmce": {"gamma": [0.0, -1.0, math.nan], "centre": ["mean"], "class_prior": ["flat"]},
    "one-coin": {"right": [0.0], "wrong": [-1], "class_prior": ["flat"]},
    "snorkel": {
        "l2": [0.0], "initial_accuracy": [1, 0.0], "class_balance": ["flat", [], [1, 0], [1, "a"], 0.5],
    },
    "zero-based-skill": {"learning_rate": [0, 1.5], "decay": [0, 2], "decay_every": [0]},
}  # fmt: skip
BAD_OF["consensus"] = BAD_OF["dawid-skene"]


def out_of_range(declared):
    """Values that miss the declared limits of a number."""
    beside = [(declared.low, -1), (declared.above, 0), (declared.high, 1), (declared.below, 0)]
    return [limit + step for limit, step in beside if limit is not None]


@every_method
def test_a_bad_keyword_is_named_with_its_value(name):
    method, table = methods[name], table_of(name, "A>K")
    bad = {keyword: values for keyword, one in method.declared().items() if (values := out_of_range(one))}
    bad |= {keyword: values for keyword, values in BAD.items() if keyword in method.declared()} | BAD_OF.get(name, {})
    assert bad.keys() >= method.declared().keys() - {"engine"}  # none is left out
    for keyword, values in bad.items():
        for value in values:
            with pytest.raises(BadParameter, match=rf"^{keyword} must .*{re.escape(str(value))}"):
                method(**{keyword: value}).fit(table)


@every_method
def test_stopping_early_warns_with_what_to_raise(name):
    keywords = {
        key: value for key, value in {"max_iter": 2, "tol": 0, "restarts": 1}.items() if key in methods[name].declared()
    }
    if "max_iter" not in keywords:
        pytest.skip("has no passes")
    with pytest.warns(ConvergenceWarning, match=r"stopped after max_iter=2 .*Raise max_iter or tol") as said:
        model = methods[name](**keywords).fit(simulate(300, 9, 2 if is_binary(name) else 4, seed=4).annotations)
    assert not model.converged_
    assert model.n_iter_ == 2
    assert {one.filename for one in said} == {__file__}  # it is said of the caller's line


@every_method
def test_a_row_of_weight_two_is_that_row_twice(name):
    table = random_table(5, n_classes=2 if is_binary(name) else 4)
    rows = np.concatenate([np.arange(len(table))] * 2)
    names = {"classes": table.n_classes, "items": table.items, "annotators": table.annotators}
    twice = Annotations.from_arrays(table.item[rows], table.annotator[rows], table.label[rows], **names)
    weight = np.full(len(table), 1.0 if name == "consensus" else 2.0)  # which takes what somebody repeats for one label
    heavy = Annotations.from_arrays(table.item, table.annotator, table.label, weight=weight, **names)
    one, other = results(fit(name, twice)), results(fit(name, heavy))
    for key in one.keys() - {"n_annotations_", "trace_"}:
        np.testing.assert_allclose(one[key], other[key], atol=1e-6, err_msg=key)


@every_method
def test_an_item_with_thousands_of_labels_neither_underflows_nor_overflows(name):
    n = 5000
    table = Annotations.from_arrays(np.zeros(n, int), np.arange(n) % 11, np.arange(n) % (2 if is_binary(name) else 3))
    for key, value in results(fit(name, table)).items():
        assert np.isfinite(value).all(), key


@every_method
def test_known_gold_is_kept_and_checked(name):
    table = table_of(name, "A>K")
    gold = np.full(table.n_items, -1)
    gold[:5] = np.array([3, 2, 1, 0, 3]) % table.n_classes
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model = methods[name]().fit(table, gold=gold)
    np.testing.assert_array_equal(model.predict()[:5], gold[:5])
    for bad in (gold[:-1], gold + 0.5, np.full(table.n_items, table.n_classes)):
        with pytest.raises(DataError, match="gold"):
            methods[name]().fit(table, gold=bad)


@every_method
def test_saved_and_loaded_model_is_the_same(name, tmp_path):
    sim = table_of(name, "A>K")
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
    dissensus.save(fit(name, table_of(name, "A>K"), seed=np.int64(3)), tmp_path)
    assert dissensus.load(tmp_path).seed == 3


@every_method
def test_damaged_model_is_one_clear_error(name, tmp_path):
    with pytest.raises(UnreadableFile, match="no fitted model"):
        dissensus.load(tmp_path)
    path = dissensus.save(fit(name, table_of(name, "A>K")), tmp_path)
    whole = path.read_bytes()
    for part in (b"", b"junk", whole[: len(whole) // 2], whole[:-30]):
        path.write_bytes(part)
        with pytest.raises(UnreadableFile, match="damaged"):
            dissensus.load(tmp_path)


@every_method
@pytest.mark.parametrize("backend", ["pandas", "polars", "pyarrow"])
def test_frames_carry_the_names(name, backend):
    sim = table_of(name, "A>K")
    table = Annotations.from_arrays(
        [f"i{i:03}" for i in sim.item], sim.annotator, np.array(["no", "so", "ja", "öh"])[sim.label]
    )
    classes = ["no", "so"] if is_binary(name) else ["ja", "no", "so", "öh"]
    model = fit(name, table)
    items = model.to_frame("items", backend)
    columns = items.column_names if backend == "pyarrow" else list(items.columns)
    modelled = ["difficulty"] if hasattr(model, "difficulty_") else []
    assert columns == ["item", "label", "confidence", *modelled, *(f"p_{k}" for k in classes)]
    assert items["label"].to_numpy().tolist() == model.predict().tolist()
    assert len(model.to_frame("annotators", backend)) == table.n_annotators
    if hasattr(model, "confusion_"):
        assert len(model.to_frame("confusions", backend)) == table.n_annotators * len(classes) ** 2


@every_method
def test_steps_are_reported(name):
    seen = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model = methods[name]().fit(table_of(name, "A>K"), on_step=lambda step, objective: seen.append(step))
    assert seen == list(range(1, model.n_iter_ + 1))


@every_method
@settings(max_examples=25)
@given(data=st.data())
def test_any_table_works(name, data):
    # up to five: code is compiled for each number of classes, and the tests above have compiled these
    table = data.draw(tables(max_size=5, max_classes=2 if is_binary(name) else None))
    model = fit(name, table)
    np.testing.assert_allclose(model.posterior_.sum(axis=1), 1, atol=1e-9)
    nothing_counts = table.weight is not None and table.weight.sum() == 0
    assert nothing_counts or np.isfinite(model.reliability_).all()
    np.testing.assert_allclose(model.predict_proba(table), model.posterior_, atol=1e-7)


@every_method
def test_annotations_are_predicted_for_seen_and_unseen(name):
    table = table_of(name, "A>K")
    model = fit(name, table)
    expected = model.predict_annotations(table)
    assert expected.shape == (len(table), table.n_classes)
    np.testing.assert_allclose(expected.sum(axis=1), 1)
    assert (expected > 0).all()  # a label that nobody expected must not cost everything
    order = np.random.default_rng(0).permutation(table.n_items)[:7]
    some = table.select(items=np.isin(np.arange(table.n_items), order))
    np.testing.assert_array_equal(model.predict_annotations(some), expected[np.isin(table.item, order)])
    late = table.select(annotators=table.annotators >= 3)  # other codes for the same annotators
    np.testing.assert_array_equal(model.predict_annotations(late), expected[table.annotator >= 3])
    new = Annotations.from_arrays([999, int(table.items[0]), 999], [0, 999, 999], [0, 1, 1])
    np.testing.assert_allclose(model.predict_annotations(new).sum(axis=1), 1)


@every_method
def test_annotations_are_predicted_by_the_confusion_matrix(name):
    table = table_of(name, "I<A")
    model = fit(name, table, **independent(name))
    if not hasattr(model, "confusion_") or model.labels_depend_on_items:
        pytest.skip("the model has no confusion matrix, or labels depend on more")
    for row, expected in enumerate(model.predict_annotations(table)):
        literal = sum(
            model.posterior_[table.item[row], c] * model.confusion_[table.annotator[row], c]
            for c in range(table.n_classes)
        )
        np.testing.assert_allclose(expected, literal)


@every_method
def test_intervals_hold_the_estimate_and_narrow_with_labels(name):
    table = table_of(name, "A>K")
    model = fit(name, table)
    low, high = model.reliability_interval().T
    assert (low < model.reliability_).all()
    assert (model.reliability_ < high).all()
    for a in range(table.n_annotators):
        labels = 1 / (1 / (model.total_[a] + 5 + 1) + 1 / 20) - 1  # five of the crowd's; no more than 20 in all
        beta = stats.beta(model.reliability_[a] * labels, (1 - model.reliability_[a]) * labels)
        np.testing.assert_allclose([low[a], high[a]], beta.ppf([0.025, 0.975]))
    wide, narrow = (np.ptp(model.reliability_interval(level), axis=1) for level in (0.99, 0.5))
    assert (wide > narrow).all()
    frame = model.to_frame("annotators", "pyarrow")
    np.testing.assert_array_equal(frame["low"].to_numpy(), low)
    np.testing.assert_array_equal(frame["high"].to_numpy(), high)
    with pytest.raises(BadParameter, match=r"level must be between 0 and 1, got 1\.5"):
        model.reliability_interval(1.5)
    if model.confusion_support() is not None:
        low, high = np.moveaxis(model.confusion_interval(), -1, 0)
        assert ((low <= model.confusion_) & (model.confusion_ <= high)).all()
        assert (low < high).mean() > 0.9


def test_intervals_hold_the_truth_as_often_as_they_say():
    """Simulated crowds whose truth is known; reliability allows for more doubt than there is in a simulation."""
    inside, entries = [], []
    for seed in range(4):
        kinds = {"expert": 1, "ordinary": 3, "specialist": 1, "uniform-spammer": 0.3}
        sim = simulate(1500, 60, 4, redundancy=6, kinds=kinds, hardness=0.05, seed=seed)
        table, model = sim.annotations, fit("dawid-skene", sim.annotations)
        right = np.einsum("akk->ak", sim.confusion)[table.annotator, sim.truth[table.item]]
        accuracy = np.bincount(table.annotator, right) / np.diff(table.annotator_ptr)
        low, high = model.reliability_interval().T
        inside.append((low <= accuracy) & (accuracy <= high))
        low, high = np.moveaxis(model.confusion_interval(), -1, 0)
        entries.append((low <= sim.confusion) & (sim.confusion <= high))
    assert np.mean(inside) >= 0.97
    assert 0.90 <= np.mean(entries) <= 0.99


def known_before(table: Annotations, right: float, wrong: float) -> np.ndarray:
    """Counts of an annotator who was right and wrong so often, over all classes."""
    K = table.n_classes
    return np.where(np.eye(K, dtype=bool), right / K, wrong / (K * (K - 1)))


@every_method
def test_what_was_known_before_counts_as_labels_on_known_items(name):
    table = table_of(name, "A>K")
    before = {int(a): known_before(table, 900, 100) for a in table.annotators}
    before[int(table.annotators[2])] = known_before(table, 50, 950)
    before[4711] = known_before(table, 5, 5)  # not in the table
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        if not methods[name].takes_earlier:
            with pytest.raises(DataError, match="earlier"):
                methods[name]().fit(table, earlier=before)
            return
        model = methods[name]().fit(table, earlier=before)
        array = np.array([before[int(a)] for a in table.annotators])
        assert_same(model, methods[name]().fit(table, earlier=array))
    assert model.posterior_.shape == (table.n_items, table.n_classes)
    np.testing.assert_array_equal(model.items_, table.items)
    assert model.reliability_.argmin() == 2
    assert model.reliability_[2] < 0.2
    assert np.delete(model.reliability_, 2).min() > 0.8
    np.testing.assert_array_equal(model.n_annotations_, np.diff(table.annotator_ptr))
    np.testing.assert_allclose(model.predict_proba(table), model.posterior_, atol=1e-9)


def test_earlier_counts_that_make_no_sense_are_clear_errors():
    table = table_of("dawid-skene", "A>K")
    for wrong, message in (
        ({0: np.ones((3, 3))}, r"annotator 0 has counts of shape \(3, 3\); it takes 4 × 4"),
        ({0: -np.ones((4, 4))}, r"annotator 0 has the count -1\.0 for label 0 of class 0"),
        (np.ones((2, 4, 4)), r"earlier has shape \(2, 4, 4\)"),
        ({"a": np.ones((4, 4))}, r"annotators: one table names them by integers"),
    ):
        with pytest.raises(DataError, match=message):
            methods["dawid-skene"]().fit(table, earlier=wrong)


def test_earlier_counts_are_the_same_as_the_items_they_stand_for():
    """Dawid-Skene, where whole items of known class can be written out."""
    sim = simulate(60, 5, 3, redundancy=3, seed=1)
    table, rng = sim.annotations, np.random.default_rng(0)
    counts = rng.integers(0, 4, (5, 3, 3))
    written = [(f"known {c}", a, k) for c, a, k in np.ndindex(3, 5, 3) for _ in range(counts[a, c, k])]
    item, annotator, label = zip(*written, strict=True)
    both = Annotations.from_arrays(
        [*(f"i{i:02}" for i in table.item), *item], [*table.annotator, *annotator], [*table.label, *label], classes=3
    )
    gold = both.gold_codes([f"known {c}" for c in range(3)], [0, 1, 2])
    one = methods["dawid-skene"](tol=1e-12).fit(table, earlier=counts)
    two = methods["dawid-skene"](tol=1e-12).fit(both, gold=gold)
    np.testing.assert_allclose(one.posterior_, two.posterior_[:60], atol=1e-6)
    np.testing.assert_allclose(one.confusion_, two.confusion_, atol=1e-6)


@every_method
@pytest.mark.parametrize("seed", range(3))
def test_an_added_oracle_is_best_and_one_who_is_always_wrong_worst(name, seed):
    if name == "majority-vote":
        pytest.skip("models no annotators")
    kinds = {"expert": 1, "ordinary": 4, "uniform-spammer": 1}
    sim = simulate(400, 12, 2 if is_binary(name) else 4, redundancy=6, kinds=kinds, seed=seed)
    model = fit(name, with_extremes(sim, labels=200))
    for key in ("reliability_", "accuracy_", "competence_", "ability_", "weight_", "skill_"):
        if hasattr(model, key):
            score = getattr(model, key)
            # MACE cannot be worse than a spammer
            assert model.annotators_[score.argmax()] == 1000, key
            assert model.annotators_[score.argmin()] == 1001 or (key == "competence_" and score[-1] < 0.1), key


@pytest.mark.parametrize(
    ("name", "kinds", "more"),
    [
        *(
            (name, {"ordinary": 0.5, "adversary": 0.5}, 0.1)
            for name in methods_for("classes")
            if name not in ("majority-vote", "mace", "wawa", "zero-based-skill")
        ),
        ("mace", {"ordinary": 0.3, "uniform-spammer": 0.7}, 0.02),
    ],
)
def test_gold_of_some_items_is_kept_and_helps_the_others(name, kinds, more):
    sim = simulate(400, 30, 2 if is_binary(name) else 3, redundancy=3, hardness=0.2, kinds=kinds, seed=2)
    gold = np.where(np.arange(400) % 2 == 0, sim.truth, -1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        with_gold, without = (methods[name]().fit(sim.annotations, gold=known) for known in (gold, None))
    np.testing.assert_array_equal(with_gold.posterior_[::2], np.eye(sim.annotations.n_classes)[sim.truth[::2]])
    right = [(model.predict()[1::2] == sim.truth[1::2]).mean() for model in (with_gold, without)]
    assert right[0] > right[1] + more


def can_be_updated(name: str) -> bool:
    return methods[name]._partial_update is not Aggregator._partial_update


def named(table: Annotations, rows=None) -> Annotations:
    """The same with text for names, only items and annotators with rows."""
    rows = np.arange(len(table)) if rows is None else np.flatnonzero(rows)
    return Annotations.from_arrays(
        [f"i{i:04}" for i in table.item[rows]], [f"a{a:02}" for a in table.annotator[rows]], table.label[rows],
        classes=table.n_classes,
    )  # fmt: skip


@every_method
def test_an_update_is_near_a_fit_of_everything(name):
    """Nine tenths of the rows first, then the rest in two parts: new rows of known items, new items, new annotators."""
    sim = simulate(900, 15, 2 if is_binary(name) else 4, redundancy=5, seed=3)
    table, rng = sim.annotations, np.random.default_rng(0)
    late = (table.item % 20 == 7) | (table.annotator == 4) & (table.item > 600) | (rng.random(len(table)) < 0.05)
    late |= (table.annotator == 5) & (table.item % 3 > 0) & (table.item < 300)
    late &= table.item != 0
    first, parts = named(table, ~late), [named(table, late & (table.item % 2 == part)) for part in (0, 1)]
    everything = named(table)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model, refit = methods[name]().fit(first), methods[name]().fit(everything)
        if not can_be_updated(name):
            with pytest.raises(BadParameter, match="cannot be updated; fit it to all annotations again"):
                model.partial_fit(parts[0])
            return
        held = model.posterior_
        copy = held.copy()
        for part in parts:
            model.partial_fit(part)
    np.testing.assert_array_equal(held, copy)  # what was handed out stays
    assert_array = np.testing.assert_array_equal
    assert_array(model.items_, refit.items_)
    assert_array(model.annotators_, refit.annotators_)
    assert_array(model.n_annotations_, refit.n_annotations_)
    np.testing.assert_allclose(model.total_, refit.total_)
    np.testing.assert_allclose(model.posterior_.sum(axis=1), 1)
    assert results(model).keys() == results(refit).keys()
    for key, value in results(model).items():
        other = getattr(refit, key)
        assert value.shape == other.shape or key == "trace_", key
        # an update leaves communities as they are; `test_community_bcc` says who joins them
        if value.dtype.kind == "f" and key != "trace_" and not key.startswith("community"):
            assert np.abs(value - other).mean() < 0.06 * np.abs(other).mean(), key
    # one of ten labels may be in another community before
    near, apart = (0.1, 0.025) if name == "community-bcc" else (0.03, 0.02)
    assert 0.5 * np.abs(model.posterior_ - refit.posterior_).sum(axis=1).mean() < apart
    assert np.abs(model.reliability_ - refit.reliability_).max() < near
    right = [(one.predict() == sim.truth).mean() for one in (model, refit)]
    assert abs(right[0] - right[1]) < 0.01
    expected = [one.predict_annotations(everything) for one in (model, refit)]
    assert np.abs(expected[0] - expected[1]).mean() < 0.02


@every_method
def test_an_updated_model_is_saved_scored_and_updated_with_gold(name, tmp_path):
    if not can_be_updated(name):
        pytest.skip("cannot be updated")
    table = table_of(name, "A>K")
    model = fit(name, table)
    new = Annotations.from_arrays([900, 900, 3], [0, 77, 77], [0, 1, 1])
    gold = np.array([-1, 1])  # of items 3 and 900
    model.partial_fit(new, gold=gold)
    assert model.predict()[-1] == 1
    dissensus.save(model, tmp_path)
    assert_same(model, dissensus.load(tmp_path))
    assert model.predict_proba(Annotations.from_arrays([5], [77], [1])).shape == (1, table.n_classes)
    for use in (model.partial_fit, model.predict, model.predict_annotations):
        with pytest.raises(UnknownClass, match=r"99\. The classes of a fitted model stay as they are; fit it"):
            use(Annotations.from_arrays([1], [0], [99]))
    with pytest.raises(DataError, match=r"items: .*integers.*text"):
        model.partial_fit(Annotations.from_arrays(["x"], [0], [0]))


def test_majority_vote_s_update_is_exact():
    table = table_of("majority-vote", "A>K")
    late = np.random.default_rng(0).random(len(table)) < 0.4
    model = methods["majority-vote"]().fit(named(table, ~late)).partial_fit(named(table, late))
    refit = methods["majority-vote"]().fit(named(table))
    np.testing.assert_allclose(model.posterior_, refit.posterior_)
    np.testing.assert_allclose(model.prior_, refit.prior_)


def test_ties_are_broken_by_seed_and_name_not_by_order_of_rows_or_classes():
    items, even = np.arange(4000), np.full((4000, 2), 0.5)
    first, second = np.array(["a", "b"], object), np.array(["b", "a"], object)
    one = first[arg_max(even, items, first, 1)]
    assert abs((one == "a").mean() - 0.5) < 0.05  # neither class is favoured
    np.testing.assert_array_equal(one, second[arg_max(even, items, second, 1)])
    order = np.random.default_rng(0).permutation(4000)
    np.testing.assert_array_equal(first[arg_max(even, items[order], first, 1)], one[order])
    assert (one != first[arg_max(even, items, first, 2)]).any()


@pytest.mark.parametrize("alone", ["", "a", "b"])
@pytest.mark.parametrize("name", ["wawa", "zero-based-skill", "m-msr", "one-coin"])
def test_the_frequent_class_decides_between_two_whose_skills_cannot_be_told(name, alone):
    found = fit(name, two_who_differ(*alone)).predict()[1200:1800]
    assert set(found) == {"b"}
    vote = fit("majority-vote", two_who_differ(*alone)).predict()[1200:1800]
    assert 240 < (vote == "b").sum() < 360  # a plain vote draws


@pytest.mark.parametrize("name", ["majority-vote", "wawa", "zero-based-skill", "m-msr", "one-coin"])
def test_between_classes_that_are_as_frequent_a_draw_decides(name):
    found = fit(name, two_who_differ(agreed="baab")).predict()[1200:1800]
    assert 240 < (found == "b").sum() < 360


def test_ties_draw_only_among_the_tied():
    posterior = np.array([[0.4, 0.2, 0.4]] * 500)
    won = arg_max(posterior, np.array([f"i{i}" for i in range(500)], object), np.arange(3), 0)
    assert set(won) == {0, 2}
