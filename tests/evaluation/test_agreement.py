from __future__ import annotations

import dataclasses
from itertools import permutations

import krippendorff
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from statsmodels.stats.inter_rater import aggregate_raters
from statsmodels.stats.inter_rater import fleiss_kappa as statsmodels_fleiss

from dissensus import Annotations
from dissensus import evaluation as ev
from dissensus.evaluation.exceptions import (
    ClassNameNotNumeric,
    NoSharedItems,
    NotOnePerClass,
    RepeatedClassPosition,
    RowsNotFinite,
    WeightsIgnored,
)
from dissensus.exceptions import BadParameter
from evaluation.tables import any_tables, matrix
from refused import refused

SCALES = ("nominal", "ordinal", "interval")
X = np.nan
# Krippendorff's example of 12 units and 4 observers, "Computing Krippendorff's alpha-reliability" (2011), which is also
# the data set raw_4raters of irrCAC
EXAMPLE = np.array([
    [1, 1, X, 1], [2, 2, 3, 2], [3, 3, 3, 3], [3, 3, 3, 3], [2, 2, 2, 2], [1, 2, 3, 4],
    [4, 4, 4, 4], [1, 1, 2, 1], [2, 2, 2, 2], [X, 5, 5, 5], [X, X, 1, 1], [X, X, 3, X],
])  # fmt: skip


def ratings(table: Annotations) -> list[list[np.ndarray]]:
    """For every item the distributions that its annotators gave, by plain loops."""
    found: list[dict[int, list[np.ndarray]]] = [{} for _ in range(table.n_items)]
    for row in range(len(table)):
        one = np.eye(table.n_classes)[table.label[row]] if table.proba is None else table.proba[row]
        found[table.item[row]].setdefault(int(table.annotator[row]), []).append(one)
    return [[np.mean(rows, axis=0) for rows in of_item.values()] for of_item in found]


def literal(table: Annotations, scale: str, place: list[float], times: np.ndarray | None = None) -> dict[str, float]:
    """Every coefficient as its definition says, item i counting times[i] times."""
    K, items = table.n_classes, ratings(table)
    times = np.ones(len(items)) if times is None else times
    n = np.zeros(K)
    coincidences = np.zeros((K, K))
    agree = pairs = by_item = paired = rated = 0.0
    shares, of_paired = np.zeros(K), np.zeros(K)
    for t, of_item in zip(times, items, strict=True):
        m = len(of_item)
        if m:
            rated += t
            shares += t * np.sum(of_item, axis=0) / m
        if m > 1:
            of_paired += t * np.sum(of_item, axis=0) / m
            joint = sum(np.outer(p, q) for p, q in permutations(of_item, 2))
            coincidences += t * joint / (m - 1)
            n += t * np.sum(of_item, axis=0)
            agree, pairs = agree + t * np.trace(joint), pairs + t * m * (m - 1)
            by_item, paired = by_item + t * np.trace(joint) / (m * (m - 1)), paired + t

    def distance(c: int, k: int) -> float:
        if scale == "nominal":
            return float(c != k)
        if scale == "interval":
            return (place[c] - place[k]) ** 2
        low, high = min(c, k), max(c, k)
        return (n[low : high + 1].sum() - (n[c] + n[k]) / 2) ** 2

    delta = np.array([[distance(c, k) for k in range(K)] for c in range(K)])
    total = n.sum()
    apart, expected = (coincidences * delta).sum() / total, (np.outer(n, n) * delta).sum() / (total * (total - 1))
    p = shares / rated
    P, two, gwet = by_item / paired, ((of_paired / paired) ** 2).sum(), (p * (1 - p)).sum() / (K - 1) if K > 1 else 1.0
    ratio = lambda a, b: a / b if abs(b) > 1e-9 else np.nan  # noqa: E731
    return {
        "percent": agree / pairs,
        "krippendorff_alpha": 1 - ratio(apart, expected),
        "fleiss_kappa": ratio(P - two, 1 - two),
        "gwet_ac1": ratio(P - gwet, 1 - gwet),
    }


def values(found: dict[str, ev.Estimate]) -> dict[str, float]:
    return {name: estimate.value for name, estimate in found.items()}


def test_coefficients_of_the_published_example():
    table = Annotations.from_matrix(EXAMPLE)
    found = values(ev.agreement(table))
    # Krippendorff 2011: 0.743, 0.815, 0.849; irrCAC 0.4.4 (Python): α 0.74342, AC1 0.77544, P 0.81818, and κ 0.76248
    # of the 11 units with two ratings or more (0.76117 of all 12, whose chance is of other units than its agreement)
    assert [round(ev.krippendorff_alpha(table, scale=s).value, 3) for s in SCALES] == [0.743, 0.815, 0.849]
    assert [round(found[name], 5) for name in found][1:] == [0.74342, 0.76248, 0.77544]
    assert round(ev.percent_agreement(table, mean_over="items").value, 5) == 0.81818
    assert found["percent"] == pytest.approx(table.describe()["pairwise_agreement"])


def test_kappa_is_never_below_minus_one():
    """One item on which two disagree, and twenty with one label each: with their shares, κ was −20."""
    table = Annotations.from_arrays([0, 0, *range(1, 21)], [0, 1, *[0] * 20], [0, 1, *[0] * 20])
    assert ev.fleiss_kappa(table, resamples=0).value == pytest.approx(-1)


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize(("I", "A", "K"), [(30, 5, 3), (8, 3, 6), (4, 9, 2), (60, 2, 5)])
def test_alpha_is_that_of_krippendorff_s_package(scale, I, A, K):
    given = matrix(I, A, K, seed=I)
    table = Annotations.from_matrix(given, classes=K)
    number = np.where(given < 0, np.nan, given)
    theirs = krippendorff.alpha(number.T, level_of_measurement=scale, value_domain=np.arange(float(K)))
    assert ev.krippendorff_alpha(table, scale=scale).value == pytest.approx(theirs)
    place = np.random.default_rng(I).normal(100, 3, size=K)
    theirs = krippendorff.alpha(
        np.where(given < 0, np.nan, place[given]).T,
        level_of_measurement=scale,
        value_domain=np.sort(place),
    )
    assert ev.krippendorff_alpha(table, scale=scale, values=place).value == pytest.approx(theirs)


@pytest.mark.parametrize(("I", "A", "K"), [(30, 5, 3), (7, 3, 4), (5, 9, 2)])
def test_fleiss_with_equally_many_ratings_is_that_of_statsmodels(I, A, K):
    given = matrix(I, A, K, seed=I, missing=0)
    theirs = statsmodels_fleiss(aggregate_raters(given, n_cat=K)[0])
    assert ev.fleiss_kappa(Annotations.from_matrix(given)).value == pytest.approx(theirs)


@given(any_tables(), st.sampled_from(SCALES), st.integers(0, 99))
def test_any_table_gives_what_the_definitions_give(table, scale, seed):
    place = np.random.default_rng(seed).normal(size=table.n_classes)
    if max(len(of_item) for of_item in ratings(table)) < 2:
        with refused(NoSharedItems, count=table.n_items, units="items"):
            ev.agreement(table, scale=scale, values=place)
        return
    ordered = table
    if scale == "ordinal":
        ordered = table.with_classes(table.classes[np.argsort(place)])
    expected = literal(ordered, scale, place)
    found = ev.agreement(table, scale=scale, values=place, resamples=0)
    assert values(found) == pytest.approx(expected, nan_ok=True, abs=1e-9)
    by_name = {
        "percent": ev.percent_agreement(table, resamples=0),
        "krippendorff_alpha": ev.krippendorff_alpha(table, scale=scale, values=place, resamples=0),
        "fleiss_kappa": ev.fleiss_kappa(table, resamples=0),
        "gwet_ac1": ev.gwet_ac1(table, resamples=0),
    }
    assert values(by_name) == pytest.approx(values(found), nan_ok=True)
    assert table.annotators_per_item.tolist() == [len(of_item) for of_item in ratings(table)]
    if (said := table.describe()["pairwise_agreement"]) is not None:
        assert said == pytest.approx(by_name["percent"].value)


@pytest.mark.parametrize("scale", SCALES)
def test_intervals_are_those_of_tables_made_of_the_drawn_items(scale):
    given = matrix(23, 4, 3, seed=1)
    given[5] = -1  # an item without labels is not drawn
    table = Annotations.from_matrix(given, classes=3)
    rated = table.select(items=np.diff(table.item_ptr) > 0)
    draws = ev.bootstrap_sums(np.eye(rated.n_items), resamples=80, seed=4).resampled
    resampled = [literal(rated, scale, [0, 1, 2], times) for times in draws]
    for name, estimate in ev.agreement(table, scale=scale, resamples=80, seed=4).items():
        expected = np.nanquantile([one[name] for one in resampled], [0.025, 0.975])
        assert (estimate.low, estimate.high) == pytest.approx(expected)


def test_intervals_cover_the_truth():
    # two annotators with P(class) and P(right) known: the population's α and AC1 in closed form
    p, skill, rng = np.array([0.2, 0.3, 0.5]), 0.8, np.random.default_rng(0)
    confusion = skill * np.eye(3) + (1 - skill) * p
    joint = np.einsum("t,ta,tb->ab", p, confusion, confusion)
    agree, two, gwet = np.trace(joint), (p**2).sum(), (p * (1 - p)).sum() / 2
    truth = {"krippendorff_alpha": (agree - two) / (1 - two), "gwet_ac1": (agree - gwet) / (1 - gwet), "percent": agree}
    inside = dict.fromkeys(truth, 0)
    for trial in range(300):
        cells = rng.choice(9, 150, p=joint.reshape(-1))
        found = ev.agreement(
            Annotations.from_matrix(np.column_stack([cells // 3, cells % 3])), resamples=200, seed=trial
        )
        for name, value in truth.items():
            inside[name] += found[name].low <= value <= found[name].high
    assert all(0.91 < n / 300 <= 0.98 for n in inside.values()), inside


def test_row_order_changes_no_bit():
    rng = np.random.default_rng(0)
    rows = np.column_stack([rng.integers(0, 31, 200), rng.integers(0, 7, 200), rng.integers(0, 4, 200)])
    first = Annotations.from_arrays(*rows.T)
    second = Annotations.from_arrays(*rng.permutation(rows).T)
    for scale in SCALES:
        assert ev.agreement(first, scale=scale) == ev.agreement(second, scale=scale)


def test_repeats_are_one_rating_and_nobody_agrees_with_themselves():
    item, annotator = ["a", "a", "a", "b", "b"], ["x", "x", "y", "x", "y"]
    table = Annotations.from_arrays(item, annotator, [0, 1, 0, 1, 1])
    assert ev.percent_agreement(table).value == pytest.approx((0.5 + 1) / 2)
    alone = Annotations.from_arrays(["a", "a"], ["x", "x"], [0, 0], classes=2)
    with refused(NoSharedItems, count=1, units="items"):
        ev.percent_agreement(alone)


def test_votes_without_annotator_ids_are_a_rating_each():
    counts = Annotations.from_counts(["a", "a", "b"], [0, 1, 1], [3, 1, 2], classes=3)
    item, label = ["a"] * 4 + ["b"] * 2, [0, 0, 0, 1, 1, 1]
    named = Annotations.from_arrays(item, ["w", "x", "y", "z", "w", "x"], label, classes=3)
    assert ev.agreement(counts) == ev.agreement(named)


def test_weights_are_not_used_and_that_is_said():
    table = Annotations.from_matrix(EXAMPLE)
    weighted = dataclasses.replace(table, weight=np.linspace(1, 2, len(table)))
    with pytest.warns(WeightsIgnored):
        assert ev.agreement(weighted) == ev.agreement(table)
    alike = dataclasses.replace(table, weight=np.full(len(table), 0.5))
    assert ev.agreement(alike) == ev.agreement(table)
    dropped = dataclasses.replace(table, weight=(np.arange(len(table)) % 3 > 0).astype(float))
    assert ev.agreement(dropped) == ev.agreement(table.select(rows=np.arange(len(table)) % 3 > 0))


def test_agreement_on_all_items_is_not_certain():
    table = Annotations.from_arrays([*range(40)] * 2, [0] * 40 + [1] * 40, [0, 1] * 40)
    assert ev.agreement(table)["percent"] == ev.bootstrap(np.ones(40))
    assert np.isnan(ev.agreement(table, resamples=0)["percent"].low)


def test_one_class_only_has_no_chance_to_correct_for():
    table = Annotations.from_matrix(np.zeros((4, 3), int))
    found = ev.agreement(table)
    assert found["percent"].value == 1
    assert np.isnan([found[name].value for name in ("krippendorff_alpha", "fleiss_kappa", "gwet_ac1")]).all()
    two = ev.agreement(Annotations.from_matrix(np.zeros((4, 3), int), classes=2))
    assert two["gwet_ac1"].value == 1
    assert np.isnan(two["krippendorff_alpha"].value)


def test_class_names_are_the_numbers_of_an_interval_scale():
    given = matrix(20, 4, 3, seed=0)
    text = np.array([["1", "10", "2.5"][v] if v >= 0 else None for v in given.ravel()], object).reshape(given.shape)
    table = Annotations.from_matrix(text, missing=None)
    assert table.classes.tolist() == ["1", "10", "2.5"]
    number = np.where(given < 0, np.nan, np.array([1, 10, 2.5])[given])
    theirs = krippendorff.alpha(number.T, level_of_measurement="interval")
    assert ev.krippendorff_alpha(table, scale="interval").value == pytest.approx(theirs)
    tiny = ev.krippendorff_alpha(table, scale="interval", values=np.array([1, 10, 2.5]) * 1e-9 + 5)
    assert tiny.value == pytest.approx(theirs, rel=1e-6)


@pytest.mark.parametrize(
    ("keywords", "error", "facts"),
    [
        ({"scale": "ratio"}, BadParameter, {"name": "scale"}),
        ({"scale": "interval"}, ClassNameNotNumeric, {"name": "cat"}),
        ({"scale": "ordinal", "values": [1, 2, 3]}, NotOnePerClass, {"name": "values", "values": 3, "n_classes": 2}),
        ({"scale": "ordinal", "values": [1, 1]}, RepeatedClassPosition, {}),
        ({"values": [1, np.nan]}, RowsNotFinite, {"name": "values", "count": 1, "rows": 2, "first_row": 1}),
        ({"level": 95}, BadParameter, {"name": "level"}),
        ({"resamples": -5}, BadParameter, {"name": "resamples"}),
    ],
)
def test_bad_input_is_refused(keywords, error, facts):
    table = Annotations.from_arrays(["a", "a"], ["x", "y"], ["cat", "dog"])
    with refused(error, **facts):
        ev.agreement(table, **keywords)
    with refused(BadParameter, name="mean_over"):
        ev.percent_agreement(table, mean_over="all")


def test_importing_evaluation_brings_no_statistics_library():
    import subprocess
    import sys

    code = (
        "import sys, dissensus.evaluation; print([m for m in ('scipy.stats', 'sklearn', 'pandas') if m in sys.modules])"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"
