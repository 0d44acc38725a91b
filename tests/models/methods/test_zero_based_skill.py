"""Zero-based skill against its equations as plain loops, and against crowd-kit's figures."""

import warnings

import numpy as np
import pytest

from dissensus import methods
from dissensus.exceptions import ConvergenceWarning
from dissensus.models.exceptions import NotConverged
from dissensus.models.methods import Wawa, ZeroBasedSkill
from dissensus.table.simulate import simulate
from tables import KINDS, judged, random_table, shares_of, sheet_table, some_gold


def literal_skills(table, steps, rate, decay, every, gold=None):
    """Skills (A,) after so many steps, and the objective F of every one: loops over rows."""
    A, K = table.n_annotators, table.n_classes
    n = np.zeros(A)
    for row in range(len(table)):
        n[table.annotator[row]] += judged(table, row, gold) * shares_of(table, row).sum()
    skill, trace = np.full(A, 1 / K), []
    for step in range(1, steps + 1):
        sums, hits = np.zeros((table.n_items, K)), np.zeros(A)
        for row in range(len(table)):
            sums[table.item[row]] += skill[table.annotator[row]] * shares_of(table, row)
        for row in range(len(table)):
            i = table.item[row]
            outcome = np.isclose(sums[i], sums[i].max(), rtol=1e-9, atol=0).astype(float)
            if gold is not None and gold[i] >= 0:
                outcome = np.eye(K)[gold[i]]
            if judged(table, row, gold):
                hits[table.annotator[row]] += shares_of(table, row) @ outcome / outcome.sum()
        trace.append(sum(n[a] * (skill[a] * hits[a] / n[a] - skill[a] ** 2 / 2) for a in range(A)))
        if step % every == 0:
            rate *= decay
        skill = skill + rate * (hits / n - skill)
    return skill, trace


@pytest.mark.parametrize("with_gold", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_skills_and_objective_equal_the_literal_loops(kind, with_gold):
    table = random_table(1, **KINDS[kind])
    gold = some_gold(table) if with_gold else None
    model = ZeroBasedSkill(learning_rate=0.4, decay=0.7, decay_every=3, max_iter=8, tol=0)
    with pytest.warns(NotConverged) as caught:
        model.fit(table, gold=gold)
    assert (caught[0].message.max_iter, caught[0].message.unit) == (8, "votes")
    skill, trace = literal_skills(table, 8, 0.4, 0.7, 3, gold)
    np.testing.assert_allclose(model.skill_, skill)
    np.testing.assert_allclose(model.trace_[:-1], trace)
    assert model.n_iter_ == 8
    assert not model.converged_


def test_figures_of_crowd_kit():
    # ZeroBasedSkill of crowd-kit 1.4.2: by default, and with n_iter=7, lr_init=0.3, lr_steps_to_reduce=3, eps=0
    model = ZeroBasedSkill().fit(sheet_table())
    np.testing.assert_allclose(model.skill_, [1.0, 0.9, 0.3, 0.636363636, 0.444444444, 0.636363636], atol=1e-9)
    np.testing.assert_allclose(model.posterior_[0], [0, 0.113460547, 0.886539453], atol=1e-9)
    assert "".join(model.predict()) == "ccccccbbabb"
    with pytest.warns(ConvergenceWarning):
        model = ZeroBasedSkill(max_iter=7, learning_rate=0.3, decay_every=3).fit(sheet_table())
    expected = [0.745846809, 0.679844653, 0.38283495, 0.625842889, 0.498338723, 0.558340683]
    np.testing.assert_allclose(model.skill_, expected, atol=1e-9)
    np.testing.assert_allclose(model.posterior_[0], [0, 0.142747571, 0.857252429], atol=1e-9)
    assert "".join(model.predict()) == "cccccabbabb"


@pytest.mark.parametrize("learning_rate", [0.2, 1.0])
@pytest.mark.parametrize("seed", range(5))
def test_trace_never_falls_and_ends_at_what_is_returned(seed, learning_rate):
    table = random_table(seed, n_items=41, n_annotators=6, n_classes=3, n=203)
    model = ZeroBasedSkill(learning_rate=learning_rate, max_iter=1000, decay=1.0).fit(table)
    assert (np.diff(model.trace_) >= -1e-9).all()
    assert model.converged_
    votes = np.zeros((41, 3))
    np.add.at(votes, (table.item, table.label), model.skill_[table.annotator])
    outcome = np.isclose(votes, votes.max(axis=1, keepdims=True), rtol=1e-9, atol=0)
    shared = outcome / outcome.sum(axis=1, keepdims=True)
    counted = np.array([judged(table, row) for row in range(len(table))])
    agreement = np.bincount(table.annotator, shared[table.item, table.label] * counted) / model.total_
    assert np.abs(agreement - model.skill_).max() < 2e-5  # skills are the agreement with the vote they make
    expected = (model.total_ * (model.skill_ * agreement - model.skill_**2 / 2)).sum()
    np.testing.assert_allclose(model.trace_[-1], expected)


def test_one_full_step_is_wawa():
    table = random_table(4)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        one = ZeroBasedSkill(max_iter=1).fit(table)
    np.testing.assert_allclose(one.posterior_, Wawa().fit(table).posterior_)


def test_annotator_without_labels_gets_the_average_skill():
    table = random_table(5, n_annotators=7)
    wider = type(table).from_arrays(table.item, table.annotator, table.label, classes=4, annotators=np.arange(9))
    model = ZeroBasedSkill(learning_rate=0.3, max_iter=1000, decay=1.0).fit(wider)
    average = (model.skill_ * model.total_).sum() / model.total_.sum()
    np.testing.assert_allclose(model.skill_[7:], average)
    np.testing.assert_allclose(model.population_skill_, average)


def test_beats_majority_vote_where_annotators_differ():
    sim = simulate(4000, 50, 5, redundancy=5, seed=11)
    model, vote = ZeroBasedSkill().fit(sim.annotations), methods["majority-vote"]().fit(sim.annotations)
    assert (model.predict() == sim.truth).mean() > (vote.predict() == sim.truth).mean() + 0.01
