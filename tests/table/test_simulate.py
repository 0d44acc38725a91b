from __future__ import annotations

import itertools

import numpy as np
import pytest

from dissensus import Annotations
from dissensus.common.exceptions import OutOfRange
from dissensus.exceptions import BadParameter
from dissensus.table import exceptions as errors
from dissensus.table.simulate import (
    DEFAULT_KIND_SHARES,
    ITEMS_PER_CHUNK,
    Crowd,
    _draw_annotators,
    _make_tickets,
    annotate,
    make_crowd,
    simulate,
)
from facts import raises

ALL_KINDS = {kind: 5 if kind == "clique" else 2 for kind in DEFAULT_KIND_SHARES}  # 17 annotators


def empirical_confusion(table, truth):
    """[annotator, true, given] shares and the number of labels behind each row, by plain loops."""
    counts = np.zeros((table.n_annotators, table.n_classes, table.n_classes))
    for item, annotator, label in zip(table.item.tolist(), table.annotator.tolist(), table.label.tolist(), strict=True):
        counts[annotator, truth[item], label] += 1
    total = counts.sum(axis=2, keepdims=True)
    return counts / total, total


def label_matrix(table):
    matrix = np.full((table.n_items, table.n_annotators), -1)
    matrix[table.item, table.annotator] = table.label
    return matrix


def test_every_annotator_answers_as_its_confusion_says():
    sim = simulate(12_000, 17, 4, redundancy=6, kinds=ALL_KINDS, hardness=0.15, skew=0.5, seed=3)
    share, n = empirical_confusion(sim.annotations, sim.truth)
    error = np.sqrt(sim.confusion * (1 - sim.confusion) / n)
    assert n.min() > 100
    assert np.abs(share - sim.confusion).max() < 0.1
    assert (np.abs(share - sim.confusion) < 4.5 * error + 1e-3).all()


def test_confusion_is_the_sum_over_what_the_item_is_taken_for_and_who_is_copied():
    crowd = make_crowd(9, 3, kinds={"clique": 4, "ordinary": 5}, seed=5)
    taken_for = np.array([[0.9, 0.1, 0.0], [0.0, 0.8, 0.2], [0.3, 0.0, 0.7]])
    got = crowd.confusion(taken_for)
    for a, true, given in itertools.product(range(9), range(3), range(3)):
        expected = 0.0
        for taken in range(3):
            own = crowd.answers[a, taken, given]
            if crowd.leader[a] >= 0:
                own = (1 - crowd.copying[a]) * own + crowd.copying[a] * crowd.answers[crowd.leader[a], taken, given]
            expected += taken_for[true, taken] * own
        assert got[a, true, given] == pytest.approx(expected)


def test_annotate_states_the_confusion_over_the_very_items_given():
    crowd = make_crowd(5, 3, kinds={"ordinary": 1}, seed=2)
    truth, decoy = np.array([0, 0, 1, 2, 2, 2, 1]), np.array([1, 2, 0, 0, 1, 1, 2])
    difficulty = np.array([0.1, 0.4, 0.0, 0.5, 0.2, 0.3, 0.25])
    sim = annotate(crowd, truth, difficulty=difficulty, decoy=decoy, redundancy=4)
    for a, true, given in itertools.product(range(5), range(3), range(3)):
        chances = [
            (1 - d) * crowd.answers[a, t, given] + d * crowd.answers[a, other, given]
            for t, d, other in zip(truth, difficulty, decoy, strict=True)
            if t == true
        ]
        assert sim.confusion[a, true, given] == pytest.approx(np.mean(chances))


def test_a_clique_agrees_and_others_do_not():
    sim = simulate(4_000, 15, 6, redundancy=8, kinds={"clique": 5, "ordinary": 10}, skew=0.0, seed=1)
    matrix, clique = label_matrix(sim.annotations), np.flatnonzero(sim.kind == "clique")
    assert set(sim.crowd.leader[clique].tolist()) == {int(clique[0])}
    agreement = {}
    for a, b in itertools.combinations(range(15), 2):
        both = (matrix[:, a] >= 0) & (matrix[:, b] >= 0)
        agreement[a, b] = (matrix[both, a] == matrix[both, b]).mean()
    inside = [agreement[pair] for pair in itertools.combinations(clique.tolist(), 2)]
    outside = [share for pair, share in agreement.items() if not set(pair) <= set(clique.tolist())]
    assert min(inside) > 0.88  # two members both copy 0.9 of the time
    assert max(outside) < 0.75


def test_a_clique_agrees_also_where_its_leader_is_not_in_the_table():
    sim = simulate(3_000, 12, 5, redundancy=5, kinds={"clique": 5, "ordinary": 7}, skew=0.0, seed=4)
    matrix, members = label_matrix(sim.annotations), np.flatnonzero(sim.kind == "clique")
    leader, a, b = members[:3]
    alone = (matrix[:, leader] < 0) & (matrix[:, a] >= 0) & (matrix[:, b] >= 0)
    assert alone.sum() > 100
    assert (matrix[alone, a] == matrix[alone, b]).mean() > 0.85


def test_harder_items_are_confused_more_but_not_by_those_who_do_not_look():
    kinds = {"expert": 3, "uniform-spammer": 2, "constant-spammer": 2}
    sim = simulate(9_000, 7, 4, redundancy=5, kinds=kinds, hardness=0.2, skew=0.0, seed=8)
    table = sim.annotations
    right = table.label == sim.truth[table.item]
    hard = sim.difficulty[table.item] > 0.35
    by_expert = np.isin(table.annotator, np.flatnonzero(sim.kind == "expert"))
    assert right[by_expert & ~hard].mean() - right[by_expert & hard].mean() > 0.25
    assert right[~by_expert & ~hard].mean() == pytest.approx(right[~by_expert & hard].mean(), abs=0.04)
    mistaken = by_expert & hard & ~right
    assert (table.label == sim.decoy[table.item])[mistaken].mean() > 0.8


@pytest.mark.parametrize("n_annotators", [11, 400])  # the two ways of drawing annotators
@pytest.mark.parametrize("redundancy", [3, (1, 4)])
def test_parts_make_up_the_whole_wherever_they_are_cut(n_annotators, redundancy):
    n = 2 * ITEMS_PER_CHUNK + 777
    options = {"redundancy": redundancy, "prior": np.array([0.5, 0.3, 0.2]), "seed": 6}
    whole = simulate(n, n_annotators, 3, **options)
    cuts = [0, 5, ITEMS_PER_CHUNK - 1, ITEMS_PER_CHUNK, ITEMS_PER_CHUNK + 1234, n]
    parts = [simulate(n, n_annotators, 3, part=part, **options) for part in itertools.pairwise(cuts)]
    joined = Annotations.concat([part.annotations for part in parts])
    for field in ("annotator", "label", "item_ptr", "items"):
        np.testing.assert_array_equal(getattr(joined, field), getattr(whole.annotations, field))
    for field in ("truth", "difficulty", "decoy"):
        np.testing.assert_array_equal(np.concatenate([getattr(part, field) for part in parts]), getattr(whole, field))
    for part in parts:
        np.testing.assert_array_equal(part.confusion, whole.confusion)


def test_the_seed_decides_everything():
    one, same, other = (simulate(500, 13, 3, seed=seed) for seed in (7, 7, 8))
    for field in ("annotator", "label"):
        np.testing.assert_array_equal(getattr(one.annotations, field), getattr(same.annotations, field))
        assert not np.array_equal(getattr(one.annotations, field), getattr(other.annotations, field))
    assert not np.array_equal(one.truth, other.truth)
    assert not np.array_equal(one.crowd.answers, other.crowd.answers)


def test_the_table_is_what_from_codes_would_make_of_its_rows_in_any_order():
    sim = simulate(300, 23, 130, redundancy=(2, 5), seed=9)  # more classes than int8 holds
    table = sim.annotations
    order = np.random.default_rng(0).permutation(len(table))
    again = Annotations.from_codes(
        table.item[order], table.annotator[order], table.label[order], table.items, table.annotators, table.classes
    )
    for field in ("annotator", "label", "item_ptr"):
        np.testing.assert_array_equal(getattr(table, field), getattr(again, field))
        assert getattr(table, field).dtype == getattr(again, field).dtype
    per_item = np.diff(table.item_ptr)
    assert set(per_item.tolist()) == {2, 3, 4, 5}


def pair_chances(weight):
    """The chance of each pair when two are drawn one after the other, without replacement, in proportion to weight."""
    total = sum(weight.values())
    chances = {}
    for a, b in itertools.combinations(weight, 2):
        chances[a, b] = weight[a] / total * weight[b] / (total - weight[a])
        chances[a, b] += weight[b] / total * weight[a] / (total - weight[b])
    return chances


@pytest.mark.parametrize("idle", [0, 60], ids=["small-crowd", "large-crowd"])
def test_annotators_of_an_item_differ_and_come_in_proportion_to_activity(idle):
    activity = np.concatenate([np.zeros(idle), [1.0, 2.0, 5.0, 0.5]])
    who = _draw_annotators(np.random.default_rng(1), 40_000, 2, _make_tickets(activity))
    assert (who[:, 0] < who[:, 1]).all()
    pairs, count = np.unique(who, axis=0, return_counts=True)
    expected = pair_chances({idle + a: w for a, w in enumerate([1.0, 2.0, 5.0, 0.5])})
    assert {tuple(pair): None for pair in pairs.tolist()}.keys() == expected.keys()
    for pair, n in zip(pairs.tolist(), count, strict=True):
        assert n / 40_000 == pytest.approx(expected[tuple(pair)], abs=0.01)


def test_everybody_can_label_everything():
    table = simulate(50, 9, 2, redundancy=9, seed=0).annotations
    assert (label_matrix(table) >= 0).all()


def test_activity_is_shared_as_unequally_as_asked():
    equal = np.bincount(simulate(3_000, 200, 2, skew=0.0).annotations.annotator, minlength=200)
    unequal = np.bincount(simulate(3_000, 200, 2, skew=1.5).annotations.annotator, minlength=200)
    assert equal.std() / equal.mean() < 0.2
    assert unequal.std() / unequal.mean() > 1


def test_items_follow_the_prior_and_the_hardness():
    prior = np.array([0.6, 0.25, 0.1, 0.05])
    sim = simulate(20_000, 8, 4, prior=prior, hardness=0.12, seed=2)
    np.testing.assert_allclose(np.bincount(sim.truth, minlength=4) / 20_000, prior, atol=0.012)
    assert sim.difficulty.mean() == pytest.approx(0.12, abs=0.005)
    assert sim.difficulty.max() <= 0.5
    assert (sim.decoy != sim.truth).all()
    assert (simulate(100, 8, 4, hardness=0).difficulty == 0).all()
    assert (simulate(100, 8, 4, hardness=0.5).difficulty == 0.5).all()


def test_kinds_are_counts_where_they_sum_to_the_crowd():
    crowd = make_crowd(17, 5, kinds=ALL_KINDS, seed=11)
    assert {kind: int((crowd.kind == kind).sum()) for kind in DEFAULT_KIND_SHARES} == ALL_KINDS
    assert crowd.kind.tolist() != [kind for kind, n in ALL_KINDS.items() for _ in range(n)]  # codes tell nothing
    right = np.diagonal(crowd.answers, axis1=1, axis2=2)
    assert right[crowd.kind == "expert"].mean() > 0.9
    assert right[crowd.kind == "adversary"].max() < 0.3
    assert (right[crowd.kind == "uniform-spammer"] == 0.2).all()
    constant = crowd.answers[crowd.kind == "constant-spammer"]
    assert (constant.max(axis=2) > 0.9).all()
    assert (constant.argmax(axis=2) == constant.argmax(axis=2)[:, :1]).all()
    np.testing.assert_allclose(crowd.answers.sum(axis=2), 1)


def test_a_clique_of_one_is_none():
    crowd = make_crowd(4, 3, kinds={"clique": 1, "expert": 3})
    assert (crowd.kind == "clique").sum() == 0
    assert (crowd.leader == -1).all()


def test_one_of_many_cliques_copies_its_own_leader():
    crowd = make_crowd(60, 4, kinds={"clique": 23, "ordinary": 37}, seed=3)
    members = np.flatnonzero(crowd.kind == "clique")
    sizes = np.unique(crowd.leader[members], return_counts=True)[1]
    assert sorted(sizes.tolist()) == [5, 6, 6, 6]
    leaders = np.unique(crowd.leader[members])
    assert (crowd.leader[leaders] == leaders).all()
    assert (crowd.copying[leaders] == 1).all()


def test_annotate_takes_names_and_needs_no_difficulty():
    sure = Crowd(
        answers=np.tile(np.eye(3), (2, 1, 1)),
        kind=np.array(["expert", "expert"], object),
        activity=np.ones(2),
        leader=np.full(2, -1, np.int32),
        copying=np.ones(2),
    )
    names = {"items": np.array(["a", "b", "c", "d"], object), "annotators": np.array(["x", "y"], object)}
    sim = annotate(sure, np.array([2, 0, 1, 1]), redundancy=1, classes=np.array(["lo", "mid", "hi"], object), **names)
    assert sim.annotations.classes[sim.annotations.label].tolist() == ["hi", "lo", "mid", "mid"]
    assert sim.annotations.items.tolist() == ["a", "b", "c", "d"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"redundancy": 0}, {"name": "redundancy", "allowed": "be from 1 to the 6 active annotators", "value": 0}),
        ({"redundancy": (4, 7)}, {"name": "redundancy", "value": (4, 7)}),
        ({"kinds": {"wizard": 1}}, {"name": "kinds", "value": {"wizard": 1}}),
        ({"kinds": {"expert": 0}}, {"name": "kinds", "value": {"expert": 0}}),
        ({"kinds": {"expert": -1}}, {"name": "kinds", "value": {"expert": -1}}),
        (
            {"prior": np.array([0.5, 0.4])},
            {"name": "prior", "allowed": "be 3 shares that sum to one", "value": [0.5, 0.4]},
        ),
        ({"part": (5, 60)}, {"name": "part", "value": (5, 60)}),
    ],
)
def test_parameters_outside_their_range_are_named(options, message):
    with raises(OutOfRange, **message):
        simulate(50, 6, 3, **options)
    with pytest.raises(BadParameter):
        simulate(50, 6, 3, hardness=0.6)


def test_annotate_refuses_codes_that_are_no_classes_and_half_a_difficulty():
    crowd = make_crowd(5, 3)
    with raises(errors.WrongColumn, column="truth", description="0 … 3"):
        annotate(crowd, np.array([0, 3]))
    with raises(errors.DifficultyWithoutDecoy):
        annotate(crowd, np.array([0, 1]), difficulty=np.array([0.1, 0.1]))
