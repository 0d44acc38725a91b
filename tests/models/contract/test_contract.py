"""Every registered method passes the conformance suite and further checks, which need tables of the tests."""

import math
import re
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from dissensus import Annotations, methods
from dissensus.exceptions import BadParameter, ConvergenceWarning, DataError
from dissensus.models.base import Aggregator, arg_max, methods_for
from dissensus.models.exceptions import BadEarlierCount, NoPartialFit, WrongEarlierMatrixShape, WrongEarlierShape
from dissensus.table.simulate import simulate
from dissensus.testing import methods as suite
from strategies import tables
from tables import random_table, two_who_differ, with_extremes

every_method = pytest.mark.parametrize("name", methods_for("classes"))


def is_binary(name: str) -> bool:
    return suite.is_binary(methods[name])


def table_of(name: str, shape: str) -> Annotations:
    return suite.make_table(methods[name], shape)


def fit(name: str, table: Annotations, **keywords):
    return suite.fit_quietly(methods[name], table, **keywords)


@every_method
@pytest.mark.parametrize("check", suite.CHECKS)
def test_conformance(name, check):
    suite.CHECKS[check](methods[name])


def test_a_method_that_breaks_its_promise_is_named(monkeypatch):
    class Careless(methods["majority-vote"]):
        def predict_proba(self, table=None):
            return super().predict_proba(table).copy()

    with pytest.raises(AssertionError) as caught:
        suite.check_method(Careless)
    assert str(caught.value).startswith("Careless, shapes")


def independent(name: str) -> dict[str, None]:
    """Keywords of a method that takes the labels of an item for independent."""
    return {"dependence": None} if "dependence" in methods[name].declared() else {}


@pytest.mark.parametrize("name", methods)
def test_one_fit_serves_all_kinds_of_labels(name):
    assert methods[name].fit is Aggregator.fit
    assert not methods[name].__abstractmethods__


BAD = {
    "seed": [-1], "max_iter": [0, 2.5], "tol": [-1.0, math.nan], "accelerate": ["anderson"], "restarts": [0],
    "threads": [0], "class_count": [0, -1], "vote_count": [-1], "prior_annotators": [0],
    "dependence": [-1, math.inf, math.nan, "half", True],
}  # fmt: skip
"""Keyword → values that no method takes."""
BAD_OF = {
    "community-bcc": {"communities": [0, 2.5], "community_count": [0]},
    "dawid-skene": {"smoothing": [0.0, 1e308], "crowd_labels": [-1], "least_labels": [-1]},
    "glad": {"ability_sd": [0.0, math.inf], "easiness_sd": [-1.0, math.nan]},
    "kos": {"crowd_labels": [-1, math.inf]},
    "m-msr": {"trim": [-0.1, 0.5], "min_shared": [-1], "right_count": [0.0], "wrong_count": [-1]},
    "mace": {"alpha": [0.0], "beta": [-1], "strategy_count": [math.inf], "class_prior": ["flat"]},
    "metal": {
        "overlap": [0.0], "smoothing": [0.0], "margin": [-1], "class_balance": ["learned", [0.5, -1]],
    },
    "mmce": {"gamma": [0.0, -1.0, math.nan], "centre": ["mean"], "class_prior": ["flat"]},
    "one-coin": {"right_count": [0.0], "wrong_count": [-1], "class_prior": ["flat"]},
    "snorkel": {
        "l2": [0.0], "initial_accuracy": [1, 0.0], "class_balance": ["flat", [], [1, 0], [1, "a"], 0.5],
    },
    "zero-based-skill": {"learning_rate": [0, 1.5], "decay": [0, 2], "decay_every": [0]},
}  # fmt: skip
BAD_OF["consensus"] = BAD_OF["dawid-skene"]


@every_method
def test_a_bad_keyword_is_named_with_its_value(name):
    method, table = methods[name], table_of(name, "A>K")
    bad = {keyword: values for keyword, values in BAD.items() if keyword in method.declared()} | BAD_OF.get(name, {})
    limited = {keyword for keyword, declared in method.declared().items() if suite.values_out_of_range(declared)}
    assert bad.keys() | limited >= method.declared().keys() - {"engine"}  # the suite checks the declared limits
    for keyword, values in bad.items():
        for value in values:
            with pytest.raises(BadParameter, match=rf"^{keyword} .*{re.escape(str(value))}"):
                method(**{keyword: value}).fit(table)


@every_method
def test_a_row_of_weight_two_is_that_row_twice(name):
    table = random_table(5, n_classes=2 if is_binary(name) else 4)
    rows = np.concatenate([np.arange(len(table))] * 2)
    names = {"classes": table.n_classes, "items": table.items, "annotators": table.annotators}
    twice = Annotations.from_arrays(table.item[rows], table.annotator[rows], table.label[rows], **names)
    weight = np.full(len(table), 1.0 if name in ("bwa", "consensus") else 2.0)  # these count repeated labels once
    heavy = Annotations.from_arrays(table.item, table.annotator, table.label, weight=weight, **names)
    one, other = (suite.array_results(fit(name, table)) for table in (twice, heavy))
    for key in one.keys() - {"n_annotations_", "trace_"}:
        np.testing.assert_allclose(one[key], other[key], atol=1e-6, err_msg=key)


@every_method
def test_frames_of_pandas_and_polars_have_the_columns_of_pyarrow(name):
    model = fit(name, table_of(name, "A>K"))
    for kind in ("items", "annotators", *(["confusions"] if hasattr(model, "confusion_") else [])):
        expected = model.to_frame(kind, "pyarrow")
        for backend in ("pandas", "polars"):
            frame = model.to_frame(kind, backend)
            assert list(frame.columns) == expected.column_names
            assert [frame[name].to_numpy().tolist() for name in expected.column_names] == [
                column.to_numpy().tolist() for column in expected.columns
            ]
            assert len(frame) == len(expected)


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
def test_intervals_of_reliability_are_quantiles_of_a_beta_distribution(name):
    table = table_of(name, "A>K")
    model = fit(name, table)
    low, high = model.reliability_interval().T
    for a in range(table.n_annotators):
        labels = 1 / (1 / (model.total_[a] + 5 + 1) + 1 / 20) - 1  # five of the crowd's; no more than 20 in all
        beta = stats.beta(model.reliability_[a] * labels, (1 - model.reliability_[a]) * labels)
        np.testing.assert_allclose([low[a], high[a]], beta.ppf([0.025, 0.975]))


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


def test_earlier_counts_that_make_no_sense_are_clear_errors():
    table = table_of("dawid-skene", "A>K")
    for wrong, error, facts in (
        ({0: np.ones((3, 3))}, WrongEarlierMatrixShape, {"annotator": "0", "shape": (3, 3), "n_classes": 4}),
        ({0: -np.ones((4, 4))}, BadEarlierCount, {"annotator": "0", "count": -1, "label": "0", "true": "0"}),
        (np.ones((2, 4, 4)), WrongEarlierShape, {"shape": (2, 4, 4), "expected": (8, 4, 4)}),
        ({"a": np.ones((4, 4))}, DataError, {}),  # the table has integers as names
    ):
        with pytest.raises(error) as caught:
            methods["dawid-skene"]().fit(table, earlier=wrong)
        assert caught.value.facts.items() >= facts.items()


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
            if name not in ("majority-vote", "mace", "wawa", "zero-based-skill", "ebcc")
        ),
        # The prior of EBCC, four correct labels per class of each subtype, outweighs an annotator's 40 labels.
        ("ebcc", {"ordinary": 0.5, "adversary": 0.5}, 0.0),
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
            with pytest.raises(NoPartialFit):
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
    assert suite.array_results(model).keys() == suite.array_results(refit).keys()
    for key, value in suite.array_results(model).items():
        other = getattr(refit, key)
        assert value.shape == other.shape or key == "trace_", key
        # an update leaves communities as they are; `test_community_bcc` says who joins them
        if value.dtype.kind == "f" and key != "trace_" and not key.startswith("community"):
            assert np.abs(value - other).mean() < 0.06 * np.abs(other).mean(), key
    # one of ten labels may be in another community before
    near, apart = (0.1, 0.025) if name == "community-bcc" else (0.05 if name == "la" else 0.03, 0.02)
    assert 0.5 * np.abs(model.posterior_ - refit.posterior_).sum(axis=1).mean() < apart
    assert np.abs(model.reliability_ - refit.reliability_).max() < near
    right = [(one.predict() == sim.truth).mean() for one in (model, refit)]
    assert abs(right[0] - right[1]) < 0.01
    expected = [one.predict_annotations(everything) for one in (model, refit)]
    assert np.abs(expected[0] - expected[1]).mean() < 0.02


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
