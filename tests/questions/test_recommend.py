"""Whom to ask next: gains against literal loops and brute force, the greedy choice, limits, names, and time."""

import dataclasses
import itertools
import time

import numpy as np
import pytest

import dissensus as dz
from dissensus import Annotations
from dissensus.exceptions import BadParameter, NotFitted
from dissensus.models.base import Aggregator, methods_for
from dissensus.models.exceptions import NotATable
from dissensus.models.methods import DawidSkene, HierarchicalDawidSkene, MajorityVote, OneCoin
from dissensus.questions import findings
from dissensus.questions import recommend as recommendation
from dissensus.questions.exceptions import (
    AnnotatorWithoutValue,
    BadCandidates,
    CostNotPositive,
    FractionalCapacity,
    LimitsNotNumbers,
    NamesAreText,
    NotAModel,
    NotInTable,
    OtherClasses,
    WrongLength,
)
from dissensus.questions.recommend import Recommendation, recommend
from dissensus.table.simulate import simulate
from found import find, kinds
from tables import random_table


class Expects(Aggregator):
    """Believes what it is told, of items (I, K), of annotators (A, K, K), and of the labels behind each row (A, K)."""

    def __init__(self, *, belief=None, confusion=None, labels=None, seed=0):
        self.belief, self.confusion, self.labels, self.seed = belief, confusion, labels, seed

    def _fit(self, table, gold, on_step):
        self.posterior_, self.prior_ = np.array(self.belief), np.mean(self.belief, axis=0)
        self.confusion_ = np.array(self.confusion)
        counts = np.diff(table.annotator_ptr).astype(float)
        self._set_reliability(counts, counts)
        self.n_iter_ = 0

    def _compute_posterior(self, table, annotators):
        return self.posterior_

    def annotator_confusions(self, annotators):
        return self.confusion_[annotators]

    def confusion_support(self):
        return None if self.labels is None else np.array(self.labels)[:, :, None]


def told(n_items, n_annotators, n_classes, seed, labels=None, observed=0):
    """Such a model and its table, in which the first `observed` annotators have labelled everything."""
    rng = np.random.default_rng(seed)
    belief = rng.dirichlet(np.full(n_classes, 0.7), n_items)
    confusion = rng.dirichlet(np.full(n_classes, 0.5), (n_annotators, n_classes)) / 2 + np.eye(n_classes) / 2
    size = np.full((n_annotators, n_classes), 1e9) if labels is None else labels
    item, annotator = np.divmod(np.arange(n_items * max(observed, 1)), max(observed, 1))
    table = Annotations.from_arrays(
        item, annotator, rng.integers(0, n_classes, item.size), classes=n_classes, items=np.arange(n_items),
        annotators=np.arange(n_annotators),
    )  # fmt: skip
    return Expects(belief=belief, confusion=confusion, labels=size).fit(table), table


NO_LIMITS = {"capacity": None, "per_item": None, "settled": None}


def everything(model, table, **more):
    return recommend(model, table, **{"budget": 1e6, "allow_repeats": True} | NO_LIMITS | more)


def entropy(p):
    return -sum(x * np.log(x) for x in p if x > 0)


@pytest.mark.parametrize("n_classes", [2, 3, 5])
def test_gain_of_a_first_label_is_the_literal_fall_of_entropy(n_classes):
    model, table = told(6, 4, n_classes, n_classes)
    for j in range(4):
        found = everything(model, table, annotators=[j])
        assert len(found) == 6
        for i, gain, about_item in zip(found.items, found.gain, found.about_item, strict=True):
            q, theta = model.posterior_[i], model.confusion_[j]
            after = 0.0
            for y in range(n_classes):
                p = sum(q[k] * theta[k, y] for k in range(n_classes))
                after += p * entropy([q[k] * theta[k, y] / p for k in range(n_classes)])
            assert gain == pytest.approx(entropy(q) - after, abs=1e-7)
            assert about_item == pytest.approx(entropy(q) - after, abs=1e-9)


def test_gain_about_the_annotator_is_that_of_drawn_confusions():
    """I(y; z, Θ) by drawing Θ: H(mean of P(y | z, Θ)) − mean of the entropies."""
    labels = np.array([[3.0, 12.0, 5.0], [40.0, 1.0, 2.0]])
    model, table = told(4, 2, 3, 0, labels)
    rng = np.random.default_rng(0)
    for j in range(2):
        found = everything(model, table, annotators=[j], per_item=1)
        drawn = np.stack([rng.dirichlet(labels[j, k] * model.confusion_[j, k], 200_000) for k in range(3)])
        spread = -(drawn * np.log(np.maximum(drawn, 1e-300))).sum(axis=2).mean(axis=1)
        first = found.items[0]  # later ones are told more by what was asked before
        q = model.posterior_[first]
        expected = entropy(q @ model.confusion_[j]) - q @ spread
        assert found.gain[0] == pytest.approx(expected, abs=3e-3)
        assert found.about_item[0] < found.gain[0]


def joint_information(q, thetas):
    """I(z; y_1 … y_m) over all outcomes."""
    joint = np.array([
        [q[k] * np.prod([theta[k, y] for theta, y in zip(thetas, ys, strict=True)]) for k in range(len(q))]
        for ys in itertools.product(range(len(q)), repeat=len(thetas))
    ])  # fmt: skip
    return entropy(q) + entropy(joint.sum(axis=1)) - entropy(joint.reshape(-1))


@pytest.mark.parametrize("n_classes", [2, 3])
def test_gains_of_one_item_add_up_to_the_joint_information(n_classes):
    model, table = told(1, 3, n_classes, 7)
    found = everything(model, table)
    assert len(found) == 3
    whole = joint_information(model.posterior_[0], model.confusion_[found.annotators])
    assert found.gain.sum() == pytest.approx(whole, abs=1e-7)
    assert (np.diff(found.gain) <= 1e-12).all()


def test_beyond_the_outcomes_that_are_kept_gains_stay_near(monkeypatch):
    model, table = told(1, 6, 3, 3)
    exact = joint_information(model.posterior_[0], model.confusion_)
    assert exact < everything(model, table).gain.sum() < 1.1 * exact  # taken together, outcomes have told less
    monkeypatch.setattr(recommendation, "MAX_OUTCOMES", 1000)
    assert everything(model, table).gain.sum() == pytest.approx(exact, abs=1e-6)


@pytest.mark.parametrize("seed", range(5))
def test_greedy_choice_is_the_literal_one(seed):
    model, table = told(3, 4, 2, seed)
    pairs = list(itertools.product(range(3), range(4)))
    chosen = []
    for _ in range(6):

        def value(pair):
            of_item = [j for i, j in chosen if i == pair[0]]
            q, theta = model.posterior_[pair[0]], model.confusion_
            return joint_information(q, theta[[*of_item, pair[1]]]) - joint_information(q, theta[of_item])

        chosen.append(max((pair for pair in pairs if pair not in chosen), key=value))
    found = recommend(model, table, budget=6, allow_repeats=True, **NO_LIMITS)
    assert list(zip(found.items, found.annotators, strict=True)) == chosen


def test_greedy_is_near_the_best_of_all_choices():
    for seed in range(5):
        model, table = told(2, 4, 2, seed)
        total = []
        for picks in itertools.combinations(range(8), 3):
            of_item = [[pick % 4 for pick in picks if pick // 4 == i] for i in (0, 1)]
            total.append(sum(joint_information(model.posterior_[i], model.confusion_[of_item[i]]) for i in (0, 1)))
        found = recommend(model, table, budget=3, allow_repeats=True, **NO_LIMITS)
        assert (1 - 1 / np.e) * max(total) <= found.gain.sum() <= max(total) + 1e-7


def test_what_is_known_of_annotators_grows_with_what_they_are_asked():
    """Somebody new who may be good is asked first, and no more than it takes to see that the other is better."""
    model, table = told(200, 2, 2, 0, labels=np.array([[1e9, 1e9], [1.0, 1.0]]))
    model.posterior_[:] = 0.5
    model.confusion_[:] = [[[0.9, 0.1], [0.1, 0.9]], [[0.8, 0.2], [0.2, 0.8]]]
    found = recommend(model, table, budget=160, allow_repeats=True, **NO_LIMITS | {"per_item": 1})
    assert found.annotators.tolist() == [1] * 20 + [0] * 140  # rounds of 20


def test_price_divides_the_gain_and_the_budget_is_kept():
    model, table = told(5, 3, 2, 2)
    cost = {0: 1.0, 1: 2.5, 2: 10.0}
    found = recommend(model, table, budget=11, cost=cost, allow_repeats=True)
    assert found.cost.sum() <= 11
    assert found.cost.tolist() == [cost[j] for j in found.annotators]
    np.testing.assert_allclose(found.to_frame()["gain_per_cost"], found.gain / found.cost)
    assert (np.diff(found.gain / found.cost) <= 1e-9).all()
    left = 11 - found.cost.sum()
    rest = {(i, j) for i in range(5) for j in range(3)} - set(zip(found.items, found.annotators, strict=True))
    assert all(cost[j] > left for _, j in rest)
    same = recommend(model, table, budget=11, cost=[1.0, 2.5, 10.0], allow_repeats=True)
    assert same.annotators.tolist() == found.annotators.tolist()
    dear = recommend(model, table, budget=5, cost={0: 6, 1: 6, 2: 1}, allow_repeats=True)
    assert set(dear.annotators) == {2}


def test_capacity_and_labels_per_item_are_kept():
    model, table = told(6, 3, 2, 2)
    found = everything(model, table, capacity=2, per_item=1)
    assert np.bincount(found.annotators).tolist() == [2, 2, 2]
    assert np.bincount(found.items).tolist() == [1] * 6
    some = everything(model, table, capacity={1: 1})
    assert np.bincount(some.annotators).tolist() == [6, 1, 6]


def test_observed_pairs_are_not_asked_again_unless_allowed():
    model, table = told(4, 5, 3, 1, observed=2)
    found = recommend(model, table, budget=100, **NO_LIMITS)
    assert len(found) == found.candidates == 12
    assert set(found.annotators) == {2, 3, 4}
    again = recommend(model, table, budget=100, allow_repeats=True, **NO_LIMITS)
    assert len(again) == again.candidates == 20
    assert len(set(zip(again.items, again.annotators, strict=True))) == 20


def test_candidates_are_all_that_is_chosen_from():
    model, table = told(4, 5, 3, 1, observed=2)
    found = recommend(model, table, budget=100, candidates=([0, 0, 1, 3, 3], [0, 2, 4, 4, 4]), **NO_LIMITS)
    assert sorted(zip(found.items.tolist(), found.annotators.tolist(), strict=True)) == [(0, 2), (1, 4), (3, 4)]
    assert found.candidates == 3
    inner = recommend(model, table, budget=100, items=[1, 3], candidates=([0, 1], [2, 4]), **NO_LIMITS)
    assert (inner.items.tolist(), inner.annotators.tolist()) == ([1], [4])
    both = recommend(model, table, budget=100, items=[3, 1], annotators=[4, 2], **NO_LIMITS)
    assert sorted(zip(both.items.tolist(), both.annotators.tolist(), strict=True)) == [(1, 2), (1, 4), (3, 2), (3, 4)]


@pytest.mark.parametrize("name", sorted(set(methods_for("classes")) - {"expects"}))
def test_every_method_can_be_asked(name):
    K = 2 if dz.methods.entry(name).facts.get("binary") else 3
    table = random_table(0, 30, 6, K, 120)
    table = Annotations.from_arrays(
        table.item, table.annotator, table.label, K, items=np.arange(32), annotators=np.arange(8)
    )  # two items and two annotators without labels
    model = dz.methods[name]().fit(table)
    found = recommend(model, table, budget=20)
    assert len(found) == 20
    assert (found.gain >= found.about_item - 1e-9).all()
    assert (found.about_item >= -1e-9).all()
    observed = set(zip(table.item.tolist(), table.annotator.tolist(), strict=True))
    assert not observed & set(zip(found.items.tolist(), found.annotators.tolist(), strict=True))
    new = recommend(model, table, budget=3, items=[30, 31], annotators=[6, 7])
    assert len(new) == 3


@pytest.mark.parametrize("model", [DawidSkene(), OneCoin(), HierarchicalDawidSkene(), dz.methods["glad"]()])
def test_row_order_changes_nothing_and_names_only_names(model):
    table = simulate(60, 9, 3, redundancy=3, seed=2).annotations
    order = np.random.default_rng(0).permutation(len(table))
    first = recommend(model.fit(table), table, budget=40)
    other = Annotations.from_arrays(table.item[order], table.annotator[order], table.label[order])
    second = recommend(model.fit(other), other, budget=40)
    assert (first.items.tolist(), first.annotators.tolist()) == (second.items.tolist(), second.annotators.tolist())
    assert first.gain.tolist() == second.gain.tolist()
    flipped = Annotations.from_arrays(59 - table.item, 8 - table.annotator, table.label)
    third = recommend(model.fit(flipped), flipped, budget=40)
    np.testing.assert_allclose(third.gain, first.gain, atol=2e-5)
    pairs = [set(zip(one.items, one.annotators, strict=True)) for one in (first, third)]
    assert len({(59 - i, 8 - j) for i, j in pairs[1]} & pairs[0]) >= 36  # exact ties are drawn by name


def test_ties_are_drawn_by_name_and_not_by_order():
    model, table = told(50, 3, 2, 0)
    model.posterior_[:] = 0.5
    model.confusion_[:] = model.confusion_[0]
    found = recommend(model, table, budget=20, allow_repeats=True, **NO_LIMITS)
    assert len(set(found.items)) == 20
    assert found.items.tolist() != sorted(found.items.tolist())
    assert len(set(found.annotators)) == 3


def test_majority_vote_has_nothing_to_learn_of_annotators():
    table = simulate(60, 9, 3, redundancy=4, seed=2).annotations
    found = recommend(MajorityVote().fit(table), table, budget=20)
    np.testing.assert_allclose(found.gain, found.about_item, atol=1e-6)


def test_one_class_has_nothing_to_tell():
    table = Annotations.from_arrays([0, 1], [0, 1], [0, 0], classes=1)
    assert len(recommend(DawidSkene().fit(table), table, budget=5)) == 0


def test_labels_that_are_recommended_put_more_items_right_than_others():
    from dissensus.evaluation.hard import probability_correct

    sim = simulate(300, 20, 2, redundancy=15, seed=5)
    whole = sim.annotations
    rng = np.random.default_rng(0)
    rank = np.lexsort((rng.random(len(whole)), whole.item))
    have = np.zeros(len(whole), bool)
    have[rank[whole.item_ptr[:-1]]] = True
    key = whole.item * 20 + whole.annotator
    random = have | (rng.permutation(len(whole)) < 900)
    for _ in range(9):
        part = whole.select(rows=have)
        rest = ~have
        found = recommend(
            DawidSkene().fit(part), part, budget=100, candidates=(whole.item[rest], whole.annotator[rest])
        )
        have |= np.isin(key, found.items * 20 + found.annotators)
    gold = sim.truth
    right = [
        probability_correct(gold, DawidSkene().fit(whole.select(rows=rows)).posterior_).mean()
        for rows in (have, random)
    ]
    assert right[0] > right[1] + 0.03


@pytest.mark.parametrize(
    ("keywords", "error", "facts"),
    [
        ({"budget": 0}, BadParameter, None),
        ({"budget": 5, "per_item": 0}, BadParameter, None),
        ({"budget": 5, "settled": 0}, BadParameter, None),
        ({"budget": 5, "capacity": "all"}, LimitsNotNumbers, {"name": "capacity", "value": "all"}),
        ({"budget": 5, "items": [0, 99]}, NotInTable, {"name": "items", "value": 99}),
        ({"budget": 5, "annotators": [77]}, NotInTable, {"name": "annotators", "value": 77}),
        ({"budget": 5, "annotators": "ab"}, NamesAreText, {"name": "annotators", "text": "ab"}),
        ({"budget": 5, "candidates": ([0], [99])}, NotInTable, {"name": "candidates", "value": 99}),
        ({"budget": 5, "candidates": ([0], [1, 2])}, BadCandidates, {}),
        ({"budget": 5, "cost": {0: 1.0}}, AnnotatorWithoutValue, {"name": "cost", "annotator": 1}),
        ({"budget": 5, "cost": 0}, CostNotPositive, {"cost": 0, "annotator": 0}),
        ({"budget": 5, "cost": [1.0, 2.0]}, WrongLength, {"name": "cost", "expected": 4, "shape": (2,)}),
        ({"budget": 5, "cost": "much"}, LimitsNotNumbers, {"name": "cost", "value": "much"}),
        ({"budget": 5, "capacity": 2.5}, FractionalCapacity, {"value": 2.5}),
        ({"budget": 5, "capacity": -1}, LimitsNotNumbers, {"name": "capacity", "value": -1}),
    ],
)
def test_what_cannot_be_recommended_is_an_error_with_facts(keywords, error, facts):
    model, table = told(5, 4, 2, 0)
    with pytest.raises(error) as caught:
        recommend(model, table, **keywords)
    assert facts in (None, caught.value.facts)


def test_models_that_cannot_be_asked_are_refused():
    table = simulate(20, 6, 2, seed=0).annotations
    with pytest.raises(NotFitted):
        recommend(DawidSkene(), table, budget=5)
    with pytest.raises(NotATable) as caught:
        recommend(DawidSkene().fit(table), "labels.csv", budget=5)
    assert caught.value.type == "str"
    with pytest.raises(NotAModel) as caught:
        recommend("dawid-skene", table, budget=5)
    assert caught.value.type == "str"
    other = Annotations.from_arrays([0, 1], [0, 1], [0, 2], classes=3)
    with pytest.raises(OtherClasses) as caught:
        recommend(DawidSkene().fit(table), other, budget=5)
    assert caught.value.facts == {"model_classes": 2, "table_classes": 3}


def test_frame_has_a_row_per_label_in_order():
    model, table = told(4, 3, 2, 0)
    found = everything(model, table)
    assert isinstance(found, Recommendation)
    frame = found.to_frame("pyarrow")
    names = ["rank", "item", "annotator", "gain", "about_item", "cost", "gain_per_cost", "p_change"]
    assert frame.column_names == names == list(found.to_frame().columns)
    assert frame["rank"].to_pylist() == list(range(1, 13))
    assert "12 of 12 labels for 12" in repr(found)


def test_a_million_pairs_take_a_bounded_number_of_logarithms():
    table = simulate(10_000, 100, 2, redundancy=2, seed=0).annotations
    model = OneCoin(threads=1).fit(table)
    recommend(model, table, budget=2, threads=1)  # compiles
    numbers = np.random.default_rng(0).random(4_000_000)  # what H(P) of as many pairs needs, twice

    def seconds(work):
        best = np.inf
        for _ in range(3):
            begin = time.perf_counter()
            work()
            best = min(best, time.perf_counter() - begin)
        return best

    floor = seconds(lambda: np.log(numbers))
    ours = seconds(lambda: recommend(model, table, budget=20, threads=1))
    assert ours < 300 * floor  # 25 to 90 were seen; a loop in Python would be thousands


def test_a_budget_that_is_a_sum_of_prices_is_spent():
    """0.3 − 0.1 − 0.1 is less than 0.1."""
    model, table = told(5, 4, 2, 0)
    assert len(recommend(model, table, budget=0.3, cost=0.1)) == 3


# Limits and what the labels are expected to change -------------------------------------------------------------------


def uneven(n_labels, n_items=60, sure=0.6):
    """A model and its table: annotator j has labelled the first n_labels[j] items; all items are equally uncertain."""
    annotator = np.repeat(np.arange(len(n_labels)), n_labels)
    item = np.concatenate([np.arange(n) for n in n_labels])
    table = Annotations.from_arrays(
        item, annotator, item % 2, classes=2, items=np.arange(n_items), annotators=np.arange(len(n_labels))
    )
    confusion = np.tile([[0.8, 0.2], [0.2, 0.8]], (len(n_labels), 1, 1))
    belief = np.tile([sure, 1 - sure], (n_items, 1))
    return Expects(belief=belief, confusion=confusion, labels=np.full((len(n_labels), 2), 1e9)).fit(table), table


def test_nobody_gets_more_than_twice_the_share_of_the_labels_so_far():
    model, table = uneven([50, 30, 10, 9, 1])
    model.confusion_[2] = [[0.99, 0.01], [0.01, 0.99]]  # whom all labels would go to
    free = recommend(model, table, budget=40, capacity=None)
    assert set(free.annotators) == {2}
    found = recommend(model, table, budget=40)
    counts = np.bincount(found.annotators, minlength=5)
    done = np.array([50, 30, 10, 9, 1]) + 1
    share = done / done.sum()
    assert (counts <= np.maximum(np.ceil(40 * np.maximum(share, np.minimum(2 * share, 0.5))), 5)).all()
    assert (counts[2], len(found)) == (np.ceil(40 * 2 * 11 / 105), 40)
    dear = recommend(model, table, budget=40, cost={0: 1, 1: 1, 2: 2, 3: 1, 4: 1})
    assert np.bincount(dear.annotators, minlength=5)[2] == np.ceil(40 * 2 * 11 / 105 / 2)  # its share of the money


def test_two_annotators_share_the_budget_and_one_gets_all_of_it():
    model, table = uneven([30, 30])
    assert np.bincount(recommend(model, table, budget=20).annotators).max() <= 10
    alone, own = uneven([30])
    assert len(recommend(alone, own, budget=20)) == 20


def test_items_get_at_most_three_labels_more_than_the_median_item():
    model, table = uneven([60, 60, 60, 5, 5, 5, 5, 0, 0, 0, 0])  # items have 3 labels, five of them 7
    model.posterior_[:] = [0.9999, 0.0001]
    model.posterior_[[1, 20]] = 0.5
    found = recommend(model, table, budget=60, capacity=None, settled=None)
    counts = np.bincount(found.items, minlength=60) + np.diff(table.item_ptr)
    assert (counts[20], counts[1], counts.max()) == (6, 7, 7)
    assert found.limits.labels_per_item == 6
    assert found.limits.full_items == 5
    free = recommend(model, table, budget=60, capacity=None, per_item=None, settled=None)
    assert np.bincount(free.items)[1] == 4


def test_settled_items_get_no_labels_unless_they_have_only_one():
    model, table = uneven([60, 59, 0])
    model.posterior_[:30] = model.posterior_[59] = [0.95, 0.05]
    found = recommend(model, table, budget=1000, capacity=None)
    assert set(found.items) == set(range(30, 60))  # the last has one label, which nobody has checked
    assert (found.limits.settled_items, found.limits.open_items) == (30, 30)
    surer = recommend(model, table, budget=1000, capacity=None, settled=0.96)
    assert (surer.limits.settled_items, surer.limits.unchangeable_items) == (
        0,
        30,
    )  # they are open, and no label changes them
    assert set(recommend(model, table, budget=1000, capacity=None, settled=None).items) == set(range(60))


@pytest.mark.parametrize("dependence", [0.0, 0.6])
def test_p_change_is_what_all_outcomes_give(dependence):
    """The label after new ones is decided by the sharp posterior, and the outcomes come as the softened one says."""
    model, table = told(6, 4, 3, 5)
    model.dependence_, model.item_total_ = dependence, np.array([1.0, 2, 3, 4, 5, 6])
    found = everything(model, table, per_item=3)
    for i in range(6):
        q, thetas = model.posterior_[i], model.confusion_[found.annotators[found.items == i]]
        p = q ** (1 + i * dependence)
        changed = 0.0
        for ys in itertools.product(range(3), repeat=len(thetas)):
            given = np.prod([theta[:, y] for theta, y in zip(thetas, ys, strict=True)], axis=0)
            if (p * given).argmax() != q.argmax():
                changed += (q * given).sum()
        assert found.p_change[found.items == i] == pytest.approx(changed, abs=1e-9)
    assert found.expected_changes == pytest.approx(sum(found.p_change[found.items == i][0] for i in range(6)))
    asked, expected = dataclasses.replace(found, limits=None).findings()
    assert asked.facts == {"labels": 18, "items": 6, "per_item": 3, "cost": 18}
    assert expected.facts == {"changes": found.expected_changes, "labels": 18}


def test_nothing_is_left_to_buy_where_all_items_are_settled_or_full():
    model, table = uneven([60, 60, 0], sure=0.95)
    found = recommend(model, table, budget=10)
    assert len(found) == 0
    (said,) = found.findings()
    assert (type(said), said.budget_left, said.n_settled, said.items) == (findings.NoUnsettledItem, None, 60, 60)
    assert (said.confidence, said.annotators, said.full_items) == (0.95, 2, 0)
    model, table = uneven([60, 60, 60, 60, 10, 10, 10, 10, 0], sure=0.6)
    full = recommend(model, table, budget=10, items=range(10))
    (said,) = full.findings()
    assert (said.n_settled, said.items, said.full_items) == (0, 10, 10)


def test_nothing_is_left_to_buy_where_no_label_would_change_anything():
    model, table = uneven([60, 60, 60, 0], sure=0.89)
    model.confusion_[:] = [[0.55, 0.45], [0.45, 0.55]]  # three of these cannot outweigh 8 to 1
    found = recommend(model, table, budget=10)
    assert (len(found), found.expected_changes) == (0, 0)
    (said,) = found.findings()
    assert (type(said), said.budget_left) == (findings.NoUsefulLabel, None)
    single, own = uneven([60, 0], sure=0.89)
    single.confusion_[:] = [[0.55, 0.45], [0.45, 0.55]]
    # Nobody has checked what is believed of these items
    assert len(recommend(single, own, budget=10, capacity=None)) == 10


def test_labels_that_change_an_item_only_together_are_not_nothing():
    model, table = uneven([60, 60, 0, 0, 0], sure=0.85)
    model.confusion_[:] = [[0.7, 0.3], [0.3, 0.7]]  # two against 6 to 1 do not suffice, three do
    found = recommend(model, table, budget=10, capacity=None)
    assert (len(found), found.expected_changes) == (10, 0)
    asked, unchanged, more = found.findings()
    assert asked.facts == {"labels": 10, "items": 10, "per_item": 1, "cost": 10}
    assert (type(unchanged), more.items) == (findings.NoExpectedChange, 10)


def test_labels_that_change_nothing_are_not_bought_beside_those_that_do():
    model, table = uneven([60, 60, 60, 0], sure=0.6)
    model.confusion_[:] = [[0.7, 0.3], [0.3, 0.7]]  # changes what is 60 % sure, not what is 89 % sure
    model.posterior_[20:] = [0.89, 0.11]
    found = recommend(model, table, budget=50, capacity=None)
    assert sorted(found.items.tolist()) == list(range(20))
    assert (found.limits.unchangeable_items, found.limits.unspent) == (40, 30)
    assert find(findings.NoUsefulLabel, found.findings()).budget_left == 30
    assert len(recommend(model, table, budget=50, capacity=None, settled=None)) == 50


def test_a_budget_below_every_price_says_so():
    model, table = uneven([60, 60, 0])
    found = recommend(model, table, budget=1, cost=2)
    assert kinds(found.findings()) == [findings.BudgetTooSmall]
    everybody = recommend(*uneven([60, 60]), budget=5)
    assert kinds(everybody.findings()) == [findings.EverythingLabelled]


def test_items_that_are_only_checked_are_counted_among_those_of_the_plan():
    table = Annotations.from_arrays([*range(60)], [0, 1, 2] * 20, [0, 1] * 30)
    found = recommend(DawidSkene().fit(table), table, budget=12)
    assert found.limits.unchecked_items <= np.unique(found.items).size < 60
    one = dataclasses.replace(found, limits=dataclasses.replace(found.limits, unchecked_items=1))
    assert find(findings.UncheckedItemsIncluded, one.findings()).items == 1


def test_where_nobody_was_checked_no_change_is_foretold():
    table = Annotations.from_arrays([*range(60)], [0, 1, 2] * 20, [0, 1] * 30)
    said = kinds(recommend(DawidSkene().fit(table), table, budget=12).findings())
    assert findings.NoItemLabelledTwice in said
    assert findings.ExpectedChanges not in said
    known = DawidSkene().fit(simulate(60, 8, 2, redundancy=2, seed=1).annotations)
    elsewhere = kinds(recommend(known, table, budget=12).findings())
    assert {findings.ExpectedChanges, findings.NoExpectedChange} & set(elsewhere)


def test_an_item_is_as_full_as_people_have_labelled_it_however_often_one_of_them_did():
    made = simulate(60, 8, 2, redundancy=2, seed=1).annotations
    rest = made.item > 0
    item, annotator = np.append(made.item[rest], [0] * 9), np.append(made.annotator[rest], [0] * 9)
    table = Annotations.from_arrays(item, annotator, np.append(made.label[rest], [1] * 9))
    found = recommend(DawidSkene().fit(table), table, budget=4, items=[0])
    assert (len(found), found.limits.labels_per_item, found.limits.full_items) == (4, 5, 0)
