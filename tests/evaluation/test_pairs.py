from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import cohen_kappa_score
from statsmodels.stats.proportion import proportion_confint

from dissensus import Annotations
from dissensus import evaluation as ev
from dissensus.evaluation.exceptions import TooFewAnnotators
from dissensus.exceptions import BadParameter
from evaluation.tables import any_tables, matrix
from refused import refused

WEIGHTS = ("none", "linear", "quadratic")


@pytest.mark.parametrize("weights", WEIGHTS)
@pytest.mark.parametrize(("I", "A", "K"), [(60, 5, 3), (25, 9, 4), (40, 3, 7)])
def test_all_pairs_are_scikit_learn_s(weights, I, A, K):
    given = matrix(I, A, K, seed=I)
    table = Annotations.from_matrix(given, classes=K)
    pairs = ev.cohen_kappas(table, min_shared=13, weights=weights)
    expected = []
    for a, b in combinations(range(A), 2):
        both = (given[:, a] >= 0) & (given[:, b] >= 0)
        if both.sum() >= 13:
            x, y = given[both, a], given[both, b]
            kappa = cohen_kappa_score(x, y, labels=range(K), weights=None if weights == "none" else weights)
            expected.append((a, b, both.sum(), (x == y).mean(), kappa))
    assert 0 < len(expected) == len(pairs)
    found = zip(pairs.first_annotator, pairs.second_annotator, pairs.shared, pairs.agreement, pairs.kappa, strict=True)
    assert [list(row) for row in found] == [pytest.approx(list(row)) for row in expected]


@given(any_tables(), st.sampled_from(WEIGHTS), st.integers(1, 3))
def test_any_table_gives_what_the_definition_gives(table, weights, least):
    """Repeated pairs and probabilistic labels too: the expected κ table of two independent draws."""
    A, K = table.n_annotators, table.n_classes
    if A < 2:
        with refused(TooFewAnnotators, annotators=A):
            ev.cohen_kappas(table)
        return
    rating = np.zeros((A, table.n_items, K))
    for row in range(len(table)):
        one = np.eye(K)[table.label[row]] if table.proba is None else table.proba[row]
        rating[table.annotator[row], table.item[row]] += one
    total = rating.sum(axis=2, keepdims=True)
    rating = rating / np.where(total > 0, total, 1)
    power = {"none": 0, "linear": 1, "quadratic": 2}[weights]
    distance = np.array([[0 if c == k else abs(c - k) ** power for k in range(K)] for c in range(K)])
    expected = {}
    for a, b in combinations(range(A), 2):
        both = [i for i in range(table.n_items) if total[a, i] > 0 and total[b, i] > 0]
        if len(both) >= least:
            joint = sum(np.outer(rating[a, i], rating[b, i]) for i in both) / len(both)
            chance = (np.outer(joint.sum(axis=1), joint.sum(axis=0)) * distance).sum()
            kappa = 1 - (joint * distance).sum() / chance if chance > 1e-9 else np.nan
            expected[table.annotators[a], table.annotators[b]] = (len(both), np.trace(joint), kappa)
    pairs = ev.cohen_kappas(table, min_shared=least, weights=weights)
    assert list(zip(pairs.first_annotator, pairs.second_annotator, strict=True)) == list(expected)
    for (first, second), row in zip(
        expected, zip(pairs.shared, pairs.agreement, pairs.kappa, strict=True), strict=True
    ):
        assert list(row) == pytest.approx(list(expected[first, second]), nan_ok=True, abs=1e-9)


def test_interval_of_a_pair_is_wilson_s_carried_over():
    given = matrix(80, 4, 3, seed=2)
    pairs = ev.cohen_kappas(Annotations.from_matrix(given))
    assert len(pairs) == 6
    for p in range(len(pairs)):
        chance = 1 - (1 - pairs.agreement[p]) / (1 - pairs.kappa[p])
        n = pairs.shared[p]
        low, high = proportion_confint(round(n * pairs.agreement[p]), n, method="wilson")
        assert pairs.low[p] == pytest.approx((low - chance) / (1 - chance))
        assert pairs.high[p] == pytest.approx((high - chance) / (1 - chance))


@pytest.mark.parametrize(("weights", "least_cover"), [("none", 0.93), ("linear", 0.9), ("quadratic", 0.84)])
def test_interval_of_a_pair_covers_the_truth_also_with_few_items(weights, least_cover):
    # 1,000 pairs, each with 20 items of its own; the plain large-sample interval covers 0.88 and (quadratic) 0.77
    K, n, S, rng = 5, 20, 1000, np.random.default_rng(0)
    confusion = 0.9 * np.eye(K) + 0.1 / K
    joint = np.einsum("ta,tb->ab", confusion, confusion) / K
    cells = rng.choice(K * K, (S, n), p=joint.reshape(-1))
    labels = np.stack([cells // K, cells % K], axis=2).reshape(-1)
    annotators = (2 * np.repeat(np.arange(S), n)[:, None] + [0, 1]).reshape(-1)
    pairs = ev.cohen_kappas(
        Annotations.from_arrays(np.repeat(np.arange(S * n), 2), annotators, labels), weights=weights
    )
    apart = np.abs(np.subtract.outer(np.arange(K), np.arange(K))) / (K - 1)
    distance = {"none": 1 - np.eye(K), "linear": apart, "quadratic": apart**2}[weights]
    truth = 1 - (joint * distance).sum() / (np.outer(joint.sum(axis=1), joint.sum(axis=0)) * distance).sum()
    assert len(pairs) == S
    assert least_cover < ((pairs.low <= truth) & (truth <= pairs.high)).mean() < 0.99


@pytest.mark.parametrize("weights", WEIGHTS)
def test_interval_of_a_pair_with_many_items_is_as_wide_as_its_mean_varies(weights):
    x, y = matrix(4000, 2, 5, seed=0, missing=0).T
    pairs = ev.cohen_kappas(Annotations.from_matrix(np.column_stack([x, y])), weights=weights)
    power = {"none": 0, "linear": 1, "quadratic": 2}[weights]
    apart = np.where(x == y, 0, np.abs(x - y) ** power)
    half = 1.96 * apart.std() / np.sqrt(4000) / (apart.mean() / (1 - pairs.kappa[0]))
    assert (pairs.high - pairs.low) / 2 == pytest.approx([half], rel=0.01)


def test_agreeing_on_everything_is_not_certainty():
    given = np.random.default_rng(0).integers(0, 3, 25)
    pairs = ev.cohen_kappas(Annotations.from_matrix(np.column_stack([given, given])))
    assert pairs.kappa.tolist() == pytest.approx([1])
    assert 0.6 < pairs.low[0] < 0.95
    assert pairs.high[0] == pytest.approx(1)


def test_classes_may_lie_anywhere_on_the_line():
    given = matrix(80, 2, 3, seed=1)
    x, y = given[(given >= 0).all(axis=1)].T
    place = np.array([10.0, -3.0, 4.0])
    apart = np.abs(place[x] - place[y]).mean()
    chance = np.mean([abs(a - b) for a in place[x] for b in place[y]])
    found = ev.cohen_kappas(Annotations.from_matrix(given), weights="linear", values=place)
    assert found.kappa == pytest.approx([1 - apart / chance])


def test_row_order_changes_no_bit():
    rng = np.random.default_rng(0)
    rows = np.column_stack([rng.integers(0, 31, 300), rng.integers(0, 7, 300), rng.integers(0, 4, 300)])
    one = ev.cohen_kappas(Annotations.from_arrays(*rows.T), min_shared=5)
    other = ev.cohen_kappas(Annotations.from_arrays(*rng.permutation(rows).T), min_shared=5)
    for name in ("first_annotator", "second_annotator", "shared", "agreement", "kappa", "low", "high"):
        assert np.array_equal(getattr(one, name), getattr(other, name))


def test_bad_input_is_refused():
    table = Annotations.from_arrays(["a", "a", "b"], ["x", "y", "z"], [0, 1, 1])
    with refused(BadParameter, name="min_shared"):
        ev.cohen_kappas(table, min_shared=0)
    with refused(BadParameter, name="weights"):
        ev.cohen_kappas(table, weights="cubic")
    assert len(ev.cohen_kappas(table)) == 0
