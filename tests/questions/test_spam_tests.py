"""Honesty: the others' view and the evidence against literal loops, and crowds of which all is known."""

import dataclasses
from itertools import product

import numpy as np
import pytest

from dissensus import Annotations
from dissensus.models.methods.dawid_skene import DawidSkene
from dissensus.questions import spam_tests
from dissensus.questions.spam_tests import LeaveOneOutPosterior, detect_spam, leave_one_out_posterior
from dissensus.table.simulate import simulate
from tables import KINDS, random_table


@pytest.mark.parametrize("kind", KINDS)
def test_what_others_say_is_that_of_a_literal_loop(kind):
    table = random_table(2, **KINDS[kind])
    A = table.n_annotators
    unit = np.arange(A)
    found = leave_one_out_posterior(table, unit)
    per_row = table.n_classes if table.proba is not None else 1
    weight = np.ones(len(table)) if table.weight is None else table.weight
    pairs = list(zip(table.item.tolist(), table.annotator.tolist(), strict=True))
    said = [[w for w, one in zip(weight, pairs, strict=True) if one == pair] for pair in pairs]
    once = [w * (most := max(1, *of)) / max(sum(of), most) for w, of in zip(weight, said, strict=True)]
    model = DawidSkene().fit(
        table if len(set(pairs)) == len(pairs) else dataclasses.replace(table, weight=np.array(once))
    )
    if per_row == 1:
        np.testing.assert_allclose(found.weight, once)
    for row in range(len(table)):
        item, who = table.item[row], table.annotator[row]
        same = np.flatnonzero(table.item == item)
        log, voters = np.log(model.prior_), set()
        total = {a: weight[same][table.annotator[same] == a].sum() for a in table.annotator[same]}
        votes = np.zeros(table.n_classes)
        for other in same:
            a = table.annotator[other]
            if a == who:
                continue
            voters.add(a)
            said = {table.label[other]: 1.0} if table.proba is None else dict(enumerate(table.proba[other]))
            for label, share in said.items():
                votes += weight[other] * share / max(total[a], 1) * np.log(model.confusion_[a, :, label])
        q = np.exp(log + votes / (1 + max(len(voters) - 1, 0) * 0.6))
        if per_row == 1:
            np.testing.assert_allclose(found.posterior[row], q / q.sum(), rtol=1e-6)
            assert found.has_no_others[row] == (not voters)


def test_answers_given_five_times_are_evidence_once():
    table = simulate(60, 8, 3, redundancy=4, seed=3).annotations
    again = Annotations.from_arrays(
        *(
            np.repeat(names[codes], 5)
            for names, codes in ((table.items, table.item), (table.annotators, table.annotator))
        ),
        np.repeat(table.classes[table.label], 5),
    )
    unit = np.arange(table.n_annotators)
    expected = detect_spam(leave_one_out_posterior(table, unit)).probability
    # Blocks of labels start elsewhere
    np.testing.assert_allclose(detect_spam(leave_one_out_posterior(again, unit)).probability, expected, atol=0.02)


def test_copiers_share_a_vote_and_are_no_evidence_for_each_other():
    table = Annotations.from_arrays([0, 0, 0, 1, 1, 2, 2, 2], [0, 1, 2, 0, 1, 0, 1, 2], [0, 0, 1, 1, 1, 0, 0, 0])
    found = leave_one_out_posterior(table, np.array([0, 0, 2]))
    assert found.has_no_others.tolist() == [False] * 3 + [True] * 2 + [False] * 3
    np.testing.assert_allclose(found.posterior[0], found.posterior[1])  # both are judged by the third alone


def test_every_hypothesis_is_a_distribution_over_all_labels():
    rng, n, K = np.random.default_rng(0), 4, 3
    q = rng.dirichlet(np.ones(K), n)
    pseudo = rng.gamma(1.0, size=(K, K))
    of_matrix, of_habit = 0.0, 0.0
    for labels in product(range(K), repeat=n):
        zeros = np.zeros(n, np.int64)
        others = LeaveOneOutPosterior(zeros, np.arange(n), np.array(labels), np.ones(n), q, np.zeros(n, bool), 1)
        used, cuts = spam_tests._order_evidence(others)
        of_matrix += np.exp(spam_tests._compute_log_evidence(others, used, cuts, pseudo)[0])
        given = np.bincount(labels, minlength=K)[None].astype(float)
        of_habit += np.exp(spam_tests._compute_unrelated_log_evidence(given, pseudo[0])[0])
    assert of_matrix == pytest.approx(1)
    assert of_habit == pytest.approx(1)


def crowd(prevalence: float, labels: int, *, constant: int, seed: int) -> Annotations:
    """200 people, right on 95 % of "no" and 75 % of "yes"; the first few always say "no"."""
    rng, A = np.random.default_rng(seed), 200
    item = np.repeat(np.arange(A * labels // 5), 5)
    who = np.concatenate([rng.permutation(A) for _ in range(labels)])
    yes = rng.random(item.max() + 1) < prevalence
    right = rng.random(item.size) < np.where(yes[item], 0.75, 0.95)
    return Annotations.from_arrays(item, who, np.where(who < constant, 0, yes[item] == right), classes=2)


@pytest.mark.parametrize("labels", [12, 20])
def test_honest_people_are_left_alone_where_nearly_all_items_are_alike(labels):
    table = crowd(0.05, labels, constant=0, seed=labels)
    honest = detect_spam(leave_one_out_posterior(table, np.arange(200))).probability[:, 0]
    assert (np.bincount(table.annotator, table.label) == 0).sum() >= 5  # who never said "yes"
    assert (honest > 0.1).all()


def test_who_always_says_no_is_found_where_half_of_the_items_are_yes():
    found = detect_spam(leave_one_out_posterior(crowd(0.5, 40, constant=6, seed=1), np.arange(200)))
    assert (found.probability[:6, 0] < 0.01).all()
    assert (found.probability[:6, 1] > 0.9).all()
    assert (found.probability[6:, 0] > 0.01).all()
    seen, chance = found.p_value(0, 0)
    assert seen == 40
    assert chance < 0.001
    seen, chance = found.p_value(10, 0)  # an honest one
    assert chance > 0.01


def test_chances_are_those_of_honest_people_with_the_same_items():
    table = crowd(0.05, 12, constant=0, seed=3)
    found = detect_spam(leave_one_out_posterior(table, np.arange(200)))
    chance = np.array([found.p_value(one, None)[1] for one in range(60)])
    assert (chance < 0.05).mean() <= 0.1
    assert (chance < 0.5).mean() == pytest.approx(0.5, abs=0.2)


def test_weak_members_of_a_mixed_crowd_are_left_alone():
    for seed in range(3):
        kinds = {"expert": 1, "ordinary": 3, "specialist": 1}
        table = simulate(600, 40, 5, redundancy=5, kinds=kinds, hardness=0.15, seed=seed).annotations
        assert (detect_spam(leave_one_out_posterior(table, np.arange(40))).probability[:, 0] > 0.01).all()
