"""BWA against its equations as plain loops, and against the figures of its authors."""

import numpy as np
import pytest

from dissensus import Annotations, load_dataset
from dissensus.models.methods import BWA
from tables import KINDS, random_table, some_gold


def ratings_of(table: Annotations) -> dict[tuple[int, int], tuple[float, np.ndarray]]:
    """Weight and indicators (K,) of each pair of item and annotator."""
    rows: dict[tuple[int, int], list[tuple[float, np.ndarray]]] = {}
    for row in range(len(table)):
        shares = np.eye(table.n_classes)[table.label[row]] if table.proba is None else table.proba[row]
        weight = 1.0 if table.weight is None else table.weight[row]
        rows.setdefault((int(table.item[row]), int(table.annotator[row])), []).append((weight, shares))
    merged = {}
    for pair, parts in rows.items():
        heaviest = max(weight for weight, _ in parts)
        merged[pair] = heaviest, np.max([weight / heaviest * shares for weight, shares in parts], axis=0)
    return merged


def literal_bwa(table: Annotations, passes: int, gold=None, a=15.0, lam=1.0):
    """z (I, K), v (A, K), μ (K,) and the objective of every pass, as loops over pairs and classes."""
    I, A, K = table.n_items, table.n_annotators, table.n_classes
    ratings, trace = ratings_of(table), []
    z, mu, v = np.full((I, K), 1 / K), np.zeros(K), np.zeros((A, K))
    total = np.zeros(I)
    for (i, _), (w, _) in ratings.items():
        total[i] += w
    for i in np.flatnonzero(total):
        z[i] = sum(w * x for (item, _), (w, x) in ratings.items() if item == i) / total[i]
    b = a * 4 * (1 - 1 / K) * (total[:, None] * z * (1 - z)).sum(axis=0) / total.sum()
    for step in range(passes + 1):
        if gold is not None:
            for i in np.flatnonzero(gold >= 0):
                z[i] = np.eye(K)[gold[i]]
        if step == passes:
            return z, v, mu, trace
        counted = (total > 0) if gold is None else (total > 0) | (gold >= 0)
        mu = z[counted].mean(axis=0)
        objective = -0.5 * lam * ((z[counted] - mu) ** 2).sum()
        for j in range(A):
            for k in range(K):
                mine = [(w, x[k], z[i, k]) for (i, annotator), (w, x) in ratings.items() if annotator == j]
                shape, rate = a + sum(w for w, _, _ in mine), b[k] + sum(w * (s - x) ** 2 for w, x, s in mine)
                v[j, k] = shape / rate
                objective += 0.5 * shape * np.log(v[j, k]) - 0.5 * v[j, k] * rate
        trace.append(objective)
        for i in range(I):
            mine = [(w * v[j], x) for (item, j), (w, x) in ratings.items() if item == i]
            z[i] = (lam * mu + sum((m * x for m, x in mine), np.zeros(K))) / (lam + sum((m for m, _ in mine), 0.0))
    raise AssertionError


@pytest.mark.filterwarnings("ignore::dissensus.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("with_gold", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_results_equal_the_equations(kind, with_gold):
    table = random_table(3, **KINDS[kind])
    gold = some_gold(table) if with_gold else None
    for passes in (1, 4):
        model = BWA(max_iter=passes, tol=0).fit(table, gold=gold)
        z, v, mu, trace = literal_bwa(table, passes, gold)
        np.testing.assert_allclose(model.precision_, v, rtol=1e-9)
        np.testing.assert_allclose(model.class_mean_, mu)
        np.testing.assert_allclose(model.trace_, trace)
        np.testing.assert_allclose(model.posterior_, z / z.sum(axis=1, keepdims=True), atol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_the_objective_rises_to_the_same_scores_from_a_stricter_limit(kind):
    table = random_table(5, **KINDS[kind])
    strict = BWA(tol=1e-10, max_iter=5000).fit(table)
    assert (np.diff(strict.trace_) >= -1e-9 * np.abs(strict.trace_[1:])).all()
    np.testing.assert_allclose(BWA().fit(table).posterior_, strict.posterior_, atol=0.02)


def test_a_repeated_label_counts_once_and_two_labels_of_one_annotator_count_for_both_classes():
    rows = [(0, 0, "a"), (0, 1, "b"), (1, 0, "a"), (1, 1, "a"), (1, 2, "b")]
    once, twice = (Annotations.from_arrays(*zip(*labels, strict=True)) for labels in (rows, [*rows, rows[0]]))
    np.testing.assert_allclose(BWA().fit(once).posterior_, BWA().fit(twice).posterior_)
    both = Annotations.from_arrays(*zip(*[*rows, (0, 0, "b")], strict=True))
    z = literal_bwa(both, BWA().fit(both).n_iter_)[0]
    assert z[0].sum() > 1  # one annotator said both
    np.testing.assert_allclose(BWA().fit(both).posterior_, z / z.sum(axis=1, keepdims=True))


@pytest.mark.realdata
@pytest.mark.parametrize(
    ("name", "published"),
    [
        ("zencrowd_us", 0.9108),
        ("rte", 0.9275),
        ("sentiment_polarity", 0.9170),
        ("web_relevance", 0.8225),
        ("bluebirds", 0.7593),
    ],
)
def test_figures_of_the_authors(name, published):
    data = load_dataset(name)
    known = data.gold >= 0
    found = BWA().fit(data.annotations).predict()[known]
    assert abs((found == data.annotations.classes[data.gold[known]]).mean() - published) < 0.004
