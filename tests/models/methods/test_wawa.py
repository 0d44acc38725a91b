"""Wawa against its equations as plain loops, and against crowd-kit's figures."""

import numpy as np
import pytest

from dissensus import Annotations, methods
from dissensus.compute.kernels.vote import sum_skilled_votes
from dissensus.compute.rows import expand_rows
from dissensus.models.methods import Wawa
from dissensus.models.votes import VotePass
from dissensus.table.simulate import simulate
from tables import KINDS, judged, placed, random_table, shares_of, sheet_table, some_gold


def literal_vote(table: Annotations, skill: np.ndarray, gold=None):
    """Sums (I, K) and agreement (A,) of the module docstring as loops over rows."""
    I, A, K = table.n_items, table.n_annotators, table.n_classes
    sums, hits = np.zeros((I, K)), np.zeros(A)
    for row in range(len(table)):
        sums[table.item[row]] += skill[table.annotator[row]] * shares_of(table, row)
    for i in np.flatnonzero(sums.sum(axis=1) == 0):  # where nobody has skill, all count the same
        for row in np.flatnonzero(table.item == i):
            sums[i] += shares_of(table, row)
    for row in range(len(table)):
        i = table.item[row]
        outcome = np.isclose(sums[i], sums[i].max(), rtol=1e-9, atol=0).astype(float)
        if gold is not None and gold[i] >= 0:
            outcome = np.eye(K)[gold[i]]
        if judged(table, row, gold):
            hits[table.annotator[row]] += shares_of(table, row) @ outcome / outcome.sum()
    return sums, hits


@pytest.mark.parametrize("with_gold", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_one_walk_equals_the_literal_loops(kind, with_gold):
    table = random_table(1, **KINDS[kind])
    gold = some_gold(table) if with_gold else None
    skill = np.random.default_rng(2).uniform(0, 1, table.n_annotators)
    skill[0] = 0
    sums, hits = literal_vote(table, skill, gold)
    with placed(table, gold, 2) as engine:
        outcome = engine.run(VotePass(), skill)
    np.testing.assert_allclose(outcome.hits, hits, atol=1e-12)
    np.testing.assert_allclose(outcome.votes, sums.sum(axis=0), atol=1e-12)
    np.testing.assert_allclose(sum_skilled_votes(expand_rows(table), skill, 4), sums, atol=1e-12)


@pytest.mark.parametrize("with_gold", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_results_equal_the_equations(kind, with_gold):
    table = random_table(3, **KINDS[kind])
    gold = some_gold(table) if with_gold else None
    model = Wawa().fit(table, gold=gold)
    total = np.zeros(7)
    for row in range(len(table)):
        total[table.annotator[row]] += judged(table, row, gold) * shares_of(table, row).sum()
    skill = literal_vote(table, np.ones(7), gold)[1] / total
    sums, hits = literal_vote(table, skill, gold)
    prior = sums.sum(axis=0) / sums.sum()
    expected = np.array([row / row.sum() if row.sum() > 0 else prior for row in sums])
    if gold is not None:
        expected[::3] = np.eye(4)[2]
    np.testing.assert_allclose(model.skill_, skill)
    np.testing.assert_allclose(model.posterior_, expected, atol=1e-12)
    np.testing.assert_allclose(model.prior_, prior)
    np.testing.assert_allclose(model.reliability_, (hits + 5 * hits.sum() / total.sum()) / (total + 5))


def test_figures_of_crowd_kit():
    # Wawa of crowd-kit 1.4.2 on the sheet, its skills and the first row of its probabilities
    model = Wawa().fit(sheet_table())
    expected = [0.888888889, 0.8, 0.4, 0.727272727, 0.555555556, 0.636363636]
    np.testing.assert_allclose(model.skill_, expected, atol=1e-9)
    np.testing.assert_allclose(model.posterior_[0], [0, 0.138608871, 0.861391129], atol=1e-9)
    assert "".join(model.predict()) == "ccccccbbabb"


def test_tied_classes_share_the_agreement():
    table = Annotations.from_arrays([1, 1, 2, 2, 2], [1, 2, 1, 3, 2], ["a", "b", "a", "a", "b"])
    np.testing.assert_allclose(Wawa().fit(table).skill_, [(0.5 + 1) / 2, (0.5 + 0) / 2, 1])


def test_a_tie_leans_to_the_class_with_more_votes_elsewhere_and_nothing_else_does():
    table = Annotations.from_arrays([1, 1, 2, 2, 3, 3, 4, 4], [1, 2] * 4, list("abbaccba"), items=range(5))
    model = Wawa().fit(table)  # equal skills; a and b have three votes, c has two
    np.testing.assert_allclose(model.prior_, [3 / 8, 3 / 8, 2 / 8])
    np.testing.assert_array_equal(model.posterior_[[1, 2, 4]], [[0.5, 0.5, 0]] * 3)  # as many elsewhere
    np.testing.assert_allclose(model.posterior_[0], model.prior_)
    np.testing.assert_array_equal(model.posterior_[3], [0, 0, 1])
    new = Annotations.from_arrays([7, 7, 8, 8, 8], [1, 2, 1, 1, 2], list("caaca"), classes=list("abc"), items=[6, 7, 8])
    scored = model.predict_proba(new)
    lean = np.array([1 + 1e-6 * 3 / 8, 0, 1 + 1e-6 * 2 / 8])
    np.testing.assert_allclose(scored[1], lean / lean.sum(), rtol=1e-12)
    np.testing.assert_allclose(scored[0], model.prior_, rtol=1e-15)
    np.testing.assert_allclose(scored[2], [2 / 3, 0, 1 / 3], rtol=1e-12)


def test_who_is_on_either_side_of_a_tie_agrees_by_half_whatever_it_leans_to():
    first = Annotations.from_arrays([1, 1, 2, 2], [1, 2, 1, 2], list("aaab"))
    more = Annotations.from_arrays([3, 3, 4, 4], [1, 2, 1, 2], list("abaa"))
    both = Annotations.from_arrays([1, 1, 2, 2, 3, 3, 4, 4], [1, 2] * 4, list("aaababaa"))
    updated, fitted = Wawa().fit(first).partial_fit(more), Wawa().fit(both)
    assert updated.predict().tolist() == fitted.predict().tolist() == ["a"] * 4
    np.testing.assert_allclose(updated.skill_, [0.75, 0.75])
    np.testing.assert_allclose(fitted.skill_, [0.75, 0.75])
    np.testing.assert_allclose(updated.hits_, fitted.hits_)


def test_a_label_alone_on_its_item_agrees_with_nobody():
    # 1 and 2 agree on half of what they share; 1 has three more items to itself, 3 has nothing else
    item, annotator = [1, 1, 2, 2, 3, 4, 5, 6], [1, 2, 1, 2, 1, 1, 1, 3]
    table = Annotations.from_arrays(item, annotator, ["a", "a", "a", "b", "a", "b", "a", "b"])
    model = Wawa().fit(table)
    np.testing.assert_allclose(model.skill_, [0.75, 0.75, 0.75])
    np.testing.assert_allclose(model.posterior_[1], [0.5, 0.5], atol=1e-6)
    np.testing.assert_allclose(model.posterior_[5], [0, 1])
    known = Wawa().fit(table, gold=np.array([-1, -1, -1, -1, -1, 1]))
    np.testing.assert_allclose(known.skill_, [0.75, 0.75, 1])


def test_where_nobody_has_skill_all_count_the_same():
    # annotators 1 and 2 say "b" about items that are known to be "a"
    table = Annotations.from_arrays([1, 1, 2, 3], [1, 2, 2, 3], ["b", "b", "b", "a"])
    model = Wawa().fit(table, gold=np.array([0, 0, 0]))
    np.testing.assert_allclose(model.skill_, [0, 0, 1])
    new = Annotations.from_arrays([7, 7, 7, 8, 8], [1, 2, 2, 1, 3], ["a", "b", "b", "b", "a"])
    np.testing.assert_allclose(model.predict_proba(new), [[1 / 3, 2 / 3], [1, 0]])


def test_unseen_annotator_votes_with_the_average_skill():
    model = Wawa().fit(sheet_table())
    new = Annotations.from_arrays([1, 1, 2], [99, 0, 2], ["a", "b", "c"], items=[0, 1, 2], classes=list("abc"))
    scored = model.predict_proba(new)
    average = (model.skill_ * model.n_annotations_).sum() / model.n_annotations_.sum()
    both = average + model.skill_[0]
    np.testing.assert_allclose(scored, [model.prior_, [average / both, model.skill_[0] / both, 0], [0, 0, 1]])


def test_known_classes_inform_the_skills_and_so_help_the_others():
    sim = simulate(300, 12, 3, redundancy=5, hardness=0.1, kinds={"ordinary": 0.4, "uniform-spammer": 0.6}, seed=1)
    gold = np.where(np.arange(300) % 2 == 0, sim.truth, -1)
    with_gold, without = Wawa().fit(sim.annotations, gold=gold), Wawa().fit(sim.annotations)
    rest = slice(1, None, 2)
    np.testing.assert_array_equal(with_gold.predict()[::2], sim.truth[::2])
    right = [(model.predict()[rest] == sim.truth[rest]).mean() for model in (with_gold, without)]
    assert right[0] > right[1] + 0.02


def test_beats_majority_vote_where_annotators_differ():
    sim = simulate(4000, 50, 5, redundancy=5, seed=11)
    wawa, vote = Wawa().fit(sim.annotations), methods["majority-vote"]().fit(sim.annotations)
    assert (wawa.predict() == sim.truth).mean() > (vote.predict() == sim.truth).mean() + 0.01


@pytest.mark.parametrize("name", ["majority-vote", "wawa", "zero-based-skill"])
@pytest.mark.parametrize("with_gold", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_votes_on_a_short_table_are_those_of_the_kernels(kind, with_gold, name, monkeypatch):
    table = random_table(3, **KINDS[kind])
    gold = some_gold(table) if with_gold else None
    compiled = methods[name]().fit(table, gold=gold)
    scored = compiled.predict_proba(table)
    monkeypatch.setattr("dissensus.compute.chunk.MIN_KERNEL_ROWS", 10**6)
    short = methods[name]().fit(table, gold=gold)
    for key in ("posterior_", "reliability_", "hits_", "total_", "prior_", "item_total_", "trace_"):
        np.testing.assert_allclose(getattr(short, key), getattr(compiled, key), atol=1e-12)
    np.testing.assert_allclose(short.predict_proba(table), scored, atol=1e-12)


def test_labels_of_weight_0_leave_everyone_alone():
    table = Annotations.from_arrays([0, 0, 1], [0, 1, 2], [0, 0, 1], weight=[0.0, 0.0, 1.0])
    assert np.isfinite(Wawa().fit(table).reliability_).all()
