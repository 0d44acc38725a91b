"""Numbers: the model against plain loops, recovery, gold, new tables, and what is refused."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest

from dissensus import Annotations, load, methods, save
from dissensus.exceptions import BadParameter, NotFitted
from dissensus.models.exceptions import WrongGoldValuesShape, WrongLabelType
from dissensus.models.methods.gaussian import Gaussian
from dissensus.table.simulate import simulate_kind

SIM = simulate_kind("numbers", 300, 24, seed=1)


def literal(table, weight, shared, passes):
    """The equations of the module, by loops over rows; labels standardised as `scores="labels"` does."""
    labels = [float(table.values[k]) for k in table.label]
    total = sum(weight)
    mean = sum(w * y for w, y in zip(weight, labels, strict=True)) / total
    sd = math.sqrt(sum(w * (y - mean) ** 2 for w, y in zip(weight, labels, strict=True)) / total)
    x = [(y - mean) / sd for y in labels]
    rows = list(zip(table.item.tolist(), table.annotator.tolist(), x, weight, strict=True))
    I, A = table.n_items, table.n_annotators
    of_item = [[(w, v) for i, _, v, w in rows if i == item] for item in range(I)]
    middle = [sum(w * v for w, v in one) / sum(w for w, _ in one) for one in of_item]
    within = sum(w * (v - middle[i]) ** 2 for i, _, v, w in rows) / total
    spread = sum((m - sum(middle) / I) ** 2 for m in middle) / I
    mu, tau2, pool, sa2, sb2 = 0.0, max(spread, within / I, within / 10), within, 0.1, within / 10
    people = [{"b": 0.0, "a": 1.0, "bb": 0.0, "aa": 0.0, "ab": 0.0, "s2": within} for _ in range(A)]
    for _ in range(passes):
        m, v = [], []
        for item in range(I):
            precision, pull = 1 / tau2, mu / tau2
            for i, j, value, w in rows:
                if i == item:
                    one = people[j]
                    precision += w * (one["a"] ** 2 + one["aa"]) / one["s2"]
                    pull += w * (one["a"] * value - one["a"] * one["b"] - one["ab"]) / one["s2"]
            v.append(1 / precision)
            m.append(pull / precision)
        mu = sum(m) / I
        tau2 = max(sum((a - mu) ** 2 + b for a, b in zip(m, v, strict=True)), within) / I
        for j, one in enumerate(people):
            own = [(m[i], m[i] ** 2 + v[i], value, w) for i, k, value, w in rows if k == j]
            s2 = one["s2"]
            H = np.array([[1 / sb2, 0], [0, 1 / sa2]]) + sum(
                w / s2 * np.array([[1, t], [t, tt]]) for t, tt, _, w in own
            )
            V = np.linalg.inv(H)
            b, a = V @ (np.array([0, 1 / sa2]) + sum(w / s2 * np.array([y, y * t]) for t, _, y, w in own))
            off = sum(
                w * (y * y - 2 * y * (b + a * t) + b * b + V[0, 0] + 2 * (a * b + V[0, 1]) * t + (a * a + V[1, 1]) * tt)
                for t, tt, y, w in own
            )
            n = sum(w for *_, w in own)
            one |= {
                "b": b,
                "a": a,
                "bb": V[0, 0],
                "aa": V[1, 1],
                "ab": V[0, 1],
                "s2": (off + shared * pool) / (n + shared + 2),
            }
        sa2 = sum((one["a"] - 1) ** 2 + one["aa"] for one in people) / A
        sb2 = sum(one["b"] ** 2 + one["bb"] for one in people) / A
        pool = (A + 1) / (1 / within + sum(1 / one["s2"] for one in people))
    return people, mu, tau2


@pytest.mark.parametrize("weighted", [False, True])
def test_passes_are_those_of_plain_loops(weighted):
    rng = np.random.default_rng(3)
    item, annotator = np.repeat(np.arange(7), 3), np.tile(np.arange(3), 7) + np.repeat([0, 2], [12, 9])
    weight = rng.uniform(0.5, 2, 21) if weighted else None
    table = Annotations.from_arrays(item, annotator, rng.normal(size=21).round(2), kind="numbers", weight=weight)
    own = np.ones(21) if table.weight is None else table.weight
    people, mu, tau2 = literal(table, own.tolist(), 7.0, 4)
    model = Gaussian(scores="labels", crowd_labels=7.0)
    model._set_quantiles(table, own)
    x = model._to_scores(table.values)[table.label]
    fit, trace, _ = Gaussian(crowd_labels=7.0, max_iter=4, tol=0.0)._optimise(table, x, own, lambda *_: None)
    np.testing.assert_allclose([fit.mu, fit.tau2], [mu, tau2], rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(fit.b, [one["b"] for one in people], atol=1e-10)
    np.testing.assert_allclose(fit.a, [one["a"] for one in people], rtol=1e-9)
    np.testing.assert_allclose(fit.s2, [one["s2"] for one in people], rtol=1e-9)
    assert (np.diff(trace) > 0).all()


@pytest.mark.parametrize("scores", ["ranks", "labels"])
def test_the_truth_is_found_among_spammers_adversaries_and_bias(scores):
    table, truth = SIM.annotations, SIM.truth
    model = methods["gaussian"](scores=scores, dependence=None).fit(table)
    mean = np.bincount(table.item, table.values[table.label]) / 5
    assert np.abs(model.values_ - truth).mean() < 0.75 * np.abs(mean - truth).mean()
    inside = (model.interval_[:, 0] <= truth) & (truth <= model.interval_[:, 1])
    assert 0.88 <= inside.mean() <= 0.99
    assert model.reliability_[SIM.kind == "ordinary"].min() > model.reliability_[SIM.kind != "ordinary"].max()
    assert (model.stretch_[SIM.kind == "adversary"] < 0).all()
    ordinary = SIM.kind == "ordinary"
    assert np.corrcoef(model.bias_[ordinary], SIM.bias[ordinary])[0, 1] > 0.8
    assert (np.diff(model.trace_) > -1e-6).all()


def test_labels_that_depend_on_each_other_have_wider_intervals():
    widths = [
        np.diff(methods["gaussian"](dependence=rho).fit(SIM.annotations).interval_).mean()
        for rho in (None, 0.3, "auto")
    ]
    assert widths[0] < widths[1] < widths[2]
    assert methods["gaussian"]().fit(SIM.annotations).dependence_ == 0.6
    gold = np.where(np.arange(300) < 200, SIM.truth, np.nan)
    taught = methods["gaussian"](scores="labels").fit(SIM.annotations, gold=gold)
    assert taught.dependence_ < 0.2  # they do not
    inside = (taught.interval_[200:, 0] <= SIM.truth[200:]) & (SIM.truth[200:] <= taught.interval_[200:, 1])
    assert 0.88 <= inside.mean() <= 1


def test_order_and_units_of_labels_do_not_matter():
    table = SIM.annotations
    model = methods["gaussian"]().fit(table)
    rows = np.random.default_rng(0).permutation(len(table))
    x = table.values[table.label]
    moved = Annotations.from_arrays(table.item[rows], table.annotator[rows], 10 * x[rows] + 3, kind="numbers")
    np.testing.assert_allclose(methods["gaussian"]().fit(moved).values_, 10 * model.values_ + 3, rtol=1e-6)


def test_an_outlier_moves_a_value_little():
    table = SIM.annotations
    x = table.values[table.label].copy()
    x[0] = 1e6
    model = methods["gaussian"]().fit(Annotations.from_arrays(table.item, table.annotator, x, kind="numbers"))
    assert abs(model.values_[0] - SIM.truth[0]) < 1.5


def test_new_tables_unseen_annotators_and_items_without_labels(tmp_path):
    table = SIM.annotations
    model = methods["gaussian"]().fit(table)
    np.testing.assert_allclose(model.predict(table), model.values_)
    strange = Annotations.from_arrays(
        [0, 0, 1], ["new", "other", "new"], [2.0, 2.2, -1.0], items=[0, 1, 2], kind="numbers"
    )
    stranger = methods["gaussian"]().fit(
        dataclasses.replace(table, annotators=table.annotators.astype(str).astype(object))
    )
    value, ends = stranger.predict(strange), stranger.predict_interval(strange)
    assert value[0] > value[2] > value[1]
    assert (np.diff(ends)[2] >= np.diff(ends)[:2]).all()
    assert np.diff(model.predict_interval(table, 0.5)).mean() < np.diff(model.interval_).mean()
    loaded = load(save(model, tmp_path))
    np.testing.assert_array_equal(loaded.predict_interval(table), model.predict_interval(table))
    frame = model.to_frame("items", "pyarrow")
    assert frame.column_names == ["item", "value", "low", "high", "annotations"]


def test_few_labels_or_one_number_are_no_trouble():
    for x in ([3.0], [3.0, 3.0], [1.0, 2.0]):
        table = Annotations.from_arrays([0] * len(x), list(range(len(x))), x, kind="numbers")
        model = methods["gaussian"]().fit(table)
        assert min(x) - 1e-9 <= model.values_[0] <= max(x) + 1e-9
        assert np.isfinite(model.interval_).all()


@pytest.mark.parametrize("labels", [[1.0, 2.0], [0.0, 1.0, 2.0, 3.0, 4.0], [3.0, 3.5, 9.0]])
def test_one_item_alone_is_not_known_better_than_its_labels_say(labels):
    """With nothing to hold it, the variance of the items went to 0 and took the interval with it."""
    table = Annotations.from_arrays(["i"] * len(labels), list(range(len(labels))), labels, kind="numbers")
    low, high = Gaussian().fit(table).interval_[0]
    assert high - low > 2 * 1.96 * np.std(labels, ddof=1) / np.sqrt(len(labels)) or (low, high) == (
        min(labels), max(labels)
    )  # fmt: skip


def test_what_it_cannot_do_is_said():
    model = methods["gaussian"]()
    with pytest.raises(NotFitted):
        model.predict()
    with pytest.raises(WrongLabelType):
        model.fit(Annotations.from_arrays([0], [0], ["a"]))
    model.fit(SIM.annotations)
    for ask in (model.predict_proba, lambda: model.partial_fit(SIM.annotations), lambda: model.to_frame("confusions")):
        with pytest.raises(BadParameter):
            ask()
    with pytest.raises(WrongGoldValuesShape):
        model.fit(SIM.annotations, gold=np.zeros(3))
