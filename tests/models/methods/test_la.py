"""LA against its equations as plain loops, its order of items, and updates."""

from itertools import pairwise

import numpy as np
import pytest

from dissensus import Annotations, load_dataset
from dissensus.compute import chunk
from dissensus.compute.rows import expand_rows
from dissensus.models.methods import LA
from dissensus.models.methods.la import processing_order
from dissensus.table.simulate import simulate
from tables import KINDS, random_table, shares_of, some_gold


def literal_la(table: Annotations, seed: int, gold=None):
    """Accuracies (A,) and the right side of q (I, K), as loops over groups of items and rows."""
    I, A, K = table.n_items, table.n_annotators, table.n_classes
    right, total, votes = np.ones(A), np.full(A, 2.0), np.zeros((I, K))
    order, group = processing_order(expand_rows(table), table, gold, seed)
    for first, stop in pairwise(group):
        accuracy = right / total
        for i in order[first:stop]:
            mine = np.flatnonzero(table.item == i)
            vote = sum(accuracy[table.annotator[row]] * shares_of(table, row) for row in mine)
            winner = np.isclose(vote, vote.max(), rtol=1e-9, atol=0) / np.isclose(vote, vote.max(), rtol=1e-9).sum()
            if gold is not None and gold[i] >= 0:
                winner = np.eye(K)[gold[i]]
            for row in mine:
                right[table.annotator[row]] += shares_of(table, row) @ winner
                total[table.annotator[row]] += shares_of(table, row).sum()
    accuracy = right / total
    for row in range(len(table)):
        for k in range(K):
            weight = (K * accuracy[table.annotator[row]] - 1) * shares_of(table, row)[k]
            if weight >= 0:
                votes[table.item[row], k] += weight
            else:
                votes[table.item[row], np.arange(K) != k] -= weight
    return accuracy, votes


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("with_gold", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_results_equal_the_equations(kind, with_gold, compiled, monkeypatch):
    if compiled:
        monkeypatch.setattr(chunk, "MIN_KERNEL_ROWS", 0)
    table = random_table(3, **KINDS[kind])
    gold = some_gold(table) if with_gold else None
    model = LA().fit(table, gold=gold)
    accuracy, votes = literal_la(table, model.tie_seed_, gold)
    np.testing.assert_allclose(model.accuracy_, accuracy)
    np.testing.assert_allclose(model.evidence_, votes.sum(axis=1), atol=1e-12)
    np.testing.assert_allclose(model.prior_, votes.sum(axis=0) / votes.sum())
    busy = votes.any(axis=1) if gold is None else votes.any(axis=1) & (gold < 0)
    np.testing.assert_allclose(model.posterior_[busy], votes[busy] / votes[busy].sum(axis=1, keepdims=True))
    if gold is not None:
        np.testing.assert_array_equal(model.posterior_[::3], np.eye(4)[[2] * len(model.posterior_[::3])])


def test_the_order_is_drawn_by_the_seed_and_gold_comes_first():
    table = simulate(300, 20, 3, redundancy=4, seed=0).annotations
    gold = np.where(np.arange(300) % 5 == 0, 1, -1)
    orders = [processing_order(expand_rows(table), table, gold, seed) for seed in (1, 2)]
    for order, group in orders:
        np.testing.assert_array_equal(np.sort(order), np.arange(300))
        assert (gold[order[:60]] == 1).all()
        assert group[-1] == 300
        assert np.diff(group).max() < 10  # only items with like labels share a place
    assert (orders[0][0] != orders[1][0]).mean() > 0.9


def test_an_annotator_below_chance_counts_for_the_other_classes():
    table = Annotations.from_arrays(
        [i for i in range(30) for _ in range(4)], list(range(4)) * 30, [a == 3 for _ in range(30) for a in range(4)]
    )
    model = LA().fit(table)
    assert model.accuracy_[3] < 0.1
    np.testing.assert_allclose(model.posterior_[:, 0], 1)


@pytest.mark.realdata
@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("zencrowd_us", 0.869),
        ("rte", 0.927),
        ("sentiment_polarity", 0.903),
        ("web_relevance", 0.837),
        ("bluebirds", 0.749),
    ],
)
def test_accuracy_is_that_of_plain_loops_over_items_in_random_orders(name, expected):
    data = load_dataset(name)  # `expected` is the mean of ten orders of the items
    known = data.gold >= 0
    found = LA().fit(data.annotations).predict()[known]
    assert abs((found == data.annotations.classes[data.gold[known]]).mean() - expected) < 0.011
