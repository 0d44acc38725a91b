"""Dawid-Skene: its M step and its pseudo-counts against loops, and what the default prior is for."""

import numpy as np
import pytest

from dissensus import Annotations, methods
from dissensus.models.methods.dawid_skene import DawidSkene, DawidSkeneParams
from dissensus.table.simulate import simulate
from models.family import begun, sums_by
from tables import KINDS, placed, random_table, some_gold


def test_m_step_and_penalty_equal_their_definitions():
    rng = np.random.default_rng(3)
    pseudo, labels = rng.gamma(1.0, size=(4, 4)), rng.gamma(1.0, size=(7, 4, 4))  # [true, given], not symmetric
    model, prior = DawidSkene(), np.full(4, 0.25)
    model.pseudo_counts_ = pseudo
    found = model.m_step(labels, np.empty(0), DawidSkeneParams(prior, np.empty(0)))
    for a, c in np.ndindex(7, 4):
        np.testing.assert_allclose(found.confusion[a, c], (labels[a, c] + pseudo[c]) / (labels[a, c] + pseudo[c]).sum())
    np.testing.assert_allclose(model.log_prior(found), (pseudo * np.log(found.confusion)).sum(), rtol=1e-12)


@pytest.mark.parametrize("with_gold", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_pseudo_counts_are_those_of_the_docstring(kind, with_gold):
    table = random_table(7, **KINDS[kind])
    gold = some_gold(table) if with_gold else None
    v = table.soft_labels()  # uniform where an item has no votes
    if gold is not None:
        v[gold >= 0] = np.eye(4)[2]
    crowd = sums_by(DawidSkene(), table, v).label_counts.sum(axis=0)  # [true, given]
    n = crowd.sum()
    expected = np.array(
        [[0.7 * 8 * crowd[c, y] / n + 0.2 * (3 if y == c else 1) for y in range(4)] for c in range(4)]  # 8 = 4 √4
    )
    least = float(np.median(expected.sum(axis=1)))  # some rows are filled up, some are not
    for c in range(4):  # W = 0.7 √4 = 1.4 for the wrong ones, 1 + 0.7 for the right one: 3.1 in all
        missing = max(least - expected[c].sum(), 0)
        expected[c] += [missing * (1.7 if y == c else 1.4 / 3) / 3.1 for y in range(4)]
    model = DawidSkene(crowd_labels=0.7, smoothing=0.2, least_labels=least, class_count=0.6, vote_count=0.4)
    begun(model, table, gold)
    np.testing.assert_allclose(model.pseudo_counts_, expected, rtol=1e-9)
    active = len(set(table.annotator.tolist()))
    np.testing.assert_allclose(model.class_pseudo_counts_, 0.6 + 0.4 * active * v.mean(axis=0), rtol=1e-12)
    prior = v.sum(axis=0) + model.class_pseudo_counts_
    np.testing.assert_allclose(model.initialise(placed(table, gold), None).prior, prior / prior.sum(), atol=1e-12)


def test_few_labels_each_do_not_make_one_class_of_all_items():
    """Two labels of every item, five of every annotator: matrices alone could explain anything."""
    smallest = {(0.0, 1.0, 0.0): [], (0.0, 1.0, 0.5): [], (1.5, 0.15, 0.0): []}
    for seed in range(8):
        table = simulate(100, 40, 2, redundancy=2, hardness=0.2, seed=seed).annotations
        for (crowd_labels, smoothing, vote_count), shares in smallest.items():
            model = DawidSkene(crowd_labels=crowd_labels, smoothing=smoothing, least_labels=0, vote_count=vote_count)
            predicted = model.fit(table).predict()
            shares.append(min((predicted == k).mean() for k in (0, 1)))
    assert np.mean(smallest[0.0, 1.0, 0.0]) < 0.1
    assert np.mean(smallest[0.0, 1.0, 0.5]) > 0.2  # either remedy does
    assert np.mean(smallest[1.5, 0.15, 0.0]) > 0.3


def test_recovers_what_was_simulated_and_beats_majority_vote():
    sim = simulate(4000, 50, 5, redundancy=5, seed=11)
    ds = DawidSkene().fit(sim.annotations)
    mv = methods["majority-vote"]().fit(sim.annotations)
    accuracy, vote = (ds.predict() == sim.truth).mean(), (mv.predict() == sim.truth).mean()
    assert accuracy > vote + 0.02
    busy = ds.n_annotations_ > 300
    assert np.abs(ds.confusion_ - sim.confusion)[busy].mean() < 0.03


def test_default_prior_holds_up_for_annotators_with_three_labels():
    # 30 good annotators with 3 labels each: without a prior three labels decide a whole confusion matrix
    rng = np.random.default_rng(0)
    right = {"ours": [], "bare": []}
    bare = DawidSkene(crowd_labels=0, smoothing=1e-6, least_labels=0, class_count=1e-6)
    for _ in range(10):
        truth = rng.choice(3, 30, p=[0.8, 0.1, 0.1])
        item, annotator = np.repeat(np.arange(30), 3), rng.permutation(np.repeat(np.arange(30), 3))
        label = np.where(rng.random(90) < 0.75, truth[item], rng.integers(0, 3, 90))
        table = Annotations.from_arrays(item, annotator, label, classes=3)
        right["ours"].append((DawidSkene().fit(table).predict() == truth).mean())
        right["bare"].append((bare.fit(table).predict() == truth).mean())
    assert np.mean(right["ours"]) > 0.8
    assert np.mean(right["ours"]) > np.mean(right["bare"]) + 0.05


def test_population_confusion_is_the_pooled_counts_per_true_class():
    table = simulate(300, 9, 3, kinds={"ordinary": 1, "constant-spammer": 1}, prior=[0.7, 0.2, 0.1], seed=4).annotations
    model = DawidSkene(dependence=None).fit(table)
    counts = model.pseudo_counts_ + sums_by(model, table, model.posterior_).label_counts.sum(axis=0)
    np.testing.assert_allclose(model.population_confusion_, counts / counts.sum(axis=1, keepdims=True), atol=1e-9)
    np.testing.assert_array_equal(model.annotator_confusions(np.array([-1]))[0], model.population_confusion_)


def test_a_crowd_that_leans_one_way_is_expected_to():
    """All annotators miss half of class 1 and never mistake class 0, with few labels each."""
    rng = np.random.default_rng(0)
    right = {0.0: [], 1.5: []}
    for _ in range(10):
        truth = rng.integers(0, 2, 200)
        item, annotator = np.repeat(np.arange(200), 3), rng.permutation(np.arange(600) % 100)
        label = np.where((truth[item] == 1) & (rng.random(600) < 0.5), 0, truth[item])
        table = Annotations.from_arrays(item, annotator, label, classes=2)
        for crowd_labels, found in right.items():
            model = DawidSkene(crowd_labels=crowd_labels, smoothing=0.5, least_labels=0).fit(table)
            found.append((model.predict() == truth).mean())
    assert np.mean(right[1.5]) > np.mean(right[0.0]) + 0.01


def test_rare_classes_are_not_lost_to_what_the_votes_make_of_them():
    """One item in thirty is of class 1: most votes for it are mistakes, and say nothing of how it is labelled."""
    found = {0.0: [], 2.0: []}
    for seed in range(6):
        sim = simulate(300, 40, 2, redundancy=3, prior=np.array([0.97, 0.03]), seed=seed)
        for least, right in found.items():
            right.append((DawidSkene(least_labels=least).fit(sim.annotations).predict() == sim.truth).mean())
    assert np.mean(found[2.0]) > np.mean(found[0.0]) + 0.02


def test_reliability_is_near_the_truth_even_for_a_few_labels():
    sim = simulate(3000, 60, 5, redundancy=5, skew=1.5, seed=13)
    model = DawidSkene(dependence=None).fit(sim.annotations)
    truth = np.einsum("akk->a", sim.confusion) / 5
    assert np.abs(model.reliability_ - truth).mean() < 0.06
    few = model.n_annotations_ < 60
    assert few.sum() > 5
    assert np.abs(model.reliability_ - truth)[few].mean() < 0.09


def test_intervals_count_labels_and_pseudo_counts():
    table = random_table(4, **KINDS["both"])
    model = DawidSkene(dependence=None).fit(table)
    rows = (sums_by(model, table, model.posterior_).label_counts + model.pseudo_counts_).sum(axis=2)
    np.testing.assert_allclose(np.broadcast_to(model.confusion_support(), (7, 4, 4)), np.repeat(rows[:, :, None], 4, 2))
