"""How many labels are enough: the curve, one more label against literal loops and against what it does."""

import sys

import numpy as np
import pytest

import dissensus as dz
from dissensus import Annotations
from dissensus.common.formatting import format_percent
from dissensus.evaluation import Estimate, accuracy, expected_accuracy
from dissensus.evaluation.hard import TIE_TOLERANCE, probability_correct
from dissensus.exceptions import BadParameter, DataError, UnknownName
from dissensus.models.base import Aggregator, Likelihoods, methods_for
from dissensus.models.confidence import EffectiveLabels
from dissensus.models.exceptions import NoAnnotations
from dissensus.models.methods import DawidSkene, MajorityVote, OneCoin
from dissensus.questions import findings
from dissensus.questions.recommend import Recommendation
from dissensus.questions.redundancy import Level, NextLabel, Redundancy, Rehearsal, redundancy
from dissensus.table.simulate import simulate
from found import find, kinds
from tables import KINDS, random_table

inside = sys.modules["dissensus.questions.redundancy"]  # the package may show the function by this name


def next_label(model: Aggregator):
    return inside._compute_next_label_effect(model)


def said_right(model: Aggregator) -> np.ndarray:
    """How often those who may label next are right about class 0, on the first item."""
    expected = model.likelihoods()
    return expected.matrices(np.array([0]), inside._choose_annotators(model, expected)[0])[0, :, 0, 0]


class Expects(Aggregator):
    """Believes what it is told, of items (I, K), which are named by their codes, and of annotators (A, K, K)."""

    def __init__(self, *, belief=None, confusion=None, seed=0):
        self.belief, self.confusion, self.seed = belief, confusion, seed

    def _fit(self, table, gold, on_step):
        self.posterior_, self.prior_ = np.array(self.belief)[table.items], np.mean(self.belief, axis=0)
        self.trace_, self.n_iter_, self.converged_ = np.empty(0), 1, True
        counts = np.diff(table.annotator_ptr).astype(float)
        self._set_reliability(counts * np.linspace(0.3, 0.9, counts.size), counts)

    def _compute_posterior(self, table, annotators):
        return self.posterior_

    def annotator_confusions(self, annotators):
        return np.array(self.confusion)[annotators]


@pytest.fixture(autouse=True)
def registered(monkeypatch):
    monkeypatch.setattr(dz.methods, "_entries", dict(dz.methods._entries))
    dz.methods.register("expects", summary="", cite="")(Expects)


def tops(values):
    return {c for c, value in enumerate(values) if value >= max(values) * (1 - TIE_TOLERANCE)}


def literal(belief, thetas, shares):
    """The equations of the module, one number at a time: thetas[j][i][c][y]."""
    gains, flips = [], []
    for i, q in enumerate(belief):
        gain = flip = 0.0
        for j, share in enumerate(shares):
            for y in range(len(q)):
                p = sum(q[c] * thetas[j][i][c][y] for c in range(len(q)))
                after = [q[c] * thetas[j][i][c][y] / p for c in range(len(q))]
                stays = len(tops(q) & tops(after)) / len(tops(q) | tops(after))
                gain += share * p * max(after)
                flip += share * p * (1 - stays)
        gains.append(gain - max(q))
        flips.append(flip)
    return gains, flips


def crowd_table(n_items, n_annotators, n_classes, seed=0):
    """Annotator a labels a + 2 of the items: all have different numbers of labels."""
    rng = np.random.default_rng(seed)
    item = np.concatenate([rng.choice(n_items, a + 2, replace=False) for a in range(n_annotators)])
    annotator = np.repeat(np.arange(n_annotators), np.arange(n_annotators) + 2)
    return Annotations.from_arrays(
        item, annotator, rng.integers(0, n_classes, item.size), classes=n_classes, items=np.arange(n_items)
    )


@pytest.mark.parametrize("n_classes", [2, 3, 7])
def test_gain_and_flips_are_the_literal_loops(n_classes):
    rng = np.random.default_rng(n_classes)
    table = crowd_table(13, 5, n_classes)
    belief = rng.dirichlet(np.full(n_classes, 0.5), 13) + 1e-5  # no class is passed over
    belief /= belief.sum(axis=1, keepdims=True)
    belief[3] = 1 / n_classes  # all tied
    confusion = rng.dirichlet(np.ones(n_classes), (5, n_classes))
    after = redundancy(table, Expects(belief=belief, confusion=confusion), levels=[], seeds=1).next_label
    shares = np.diff(table.annotator_ptr) / len(table)
    gains, flips = literal(belief, [[confusion[j]] * 13 for j in range(5)], shares)
    np.testing.assert_allclose(after.gain, gains, atol=1e-12)
    np.testing.assert_allclose(after.flips, flips, atol=1e-12)
    assert after.expected_right == pytest.approx(belief.max(axis=1).mean())
    assert after.expected_right_after == pytest.approx(belief.max(axis=1).mean() + np.mean(gains))
    assert (after.gain >= 0).all()


@pytest.mark.parametrize("method", ["glad", "mmce", "one-coin", "snorkel", "mace", "hierarchical-dawid-skene"])
def test_what_annotators_say_is_the_models_own_item_by_item(method, monkeypatch):
    monkeypatch.setattr(inside, "MAX_LIKELIHOODS_PER_CHUNK", 40)  # several chunks of items
    sim = simulate(31, 6, 3, redundancy=4, seed=3)
    model = dz.methods[method]().fit(sim.annotations)
    thetas = [
        [model._label_probabilities(np.eye(3), np.full(3, i), np.full(3, j)).tolist() for i in range(31)]
        for j in range(6)
    ]
    belief = dz.methods[method](dependence=None).fit(sim.annotations).posterior_
    gains, flips = literal(belief, thetas, model.total_ / model.total_.sum())
    gain, flip = next_label(model)
    np.testing.assert_allclose(gain, gains, atol=1e-6)
    np.testing.assert_allclose(flip, flips, atol=1e-6)


def test_many_annotators_are_taken_at_even_places_over_their_labels(monkeypatch):
    monkeypatch.setattr(inside, "N_ANNOTATOR_QUANTILES", 4)
    table = crowd_table(40, 9, 2)  # 2 … 10 labels, 54 in all, and reliability rises
    confusion = np.random.default_rng(0).dirichlet(np.ones(2), (9, 2))
    belief = np.random.default_rng(1).dirichlet([1, 1], 40)
    after = redundancy(table, Expects(belief=belief, confusion=confusion), levels=[], seeds=1).next_label
    chosen = [
        2,
        5,
        6,
        8,
    ]  # at the 6.75th, 20.25th, 33.75th and 47.25th label: they have up to the 9th, 27th, 35th, 54th
    gains, _ = literal(belief, [[confusion[a]] * 40 for a in chosen], [0.25] * 4)
    np.testing.assert_allclose(after.gain, gains, atol=1e-12)


def test_certain_items_and_useless_annotators_gain_nothing():
    rng = np.random.default_rng(0)
    table = crowd_table(8, 4, 3)
    useful, row = rng.dirichlet(np.ones(3), (4, 3)), rng.dirichlet(np.ones(3), 4)
    certain = np.eye(3)[rng.integers(0, 3, 8)]
    sure = redundancy(table, Expects(belief=certain, confusion=useful), levels=[], seeds=1).next_label
    assert sure.gain.tolist() == sure.flips.tolist() == [0] * 8
    assert sure.gain_curve.tolist() == [0] * 101
    assert sure.count_items_with_share(0.8) == 0
    doubt = rng.dirichlet(np.ones(3), 8)
    nothing = Expects(belief=doubt, confusion=np.repeat(row[:, None], 3, axis=1))
    useless = redundancy(table, nothing, levels=[], seeds=1).next_label
    assert useless.gain.tolist() == [0] * 8
    np.testing.assert_allclose(useless.flips, 0, atol=1e-12)
    some = redundancy(table, Expects(belief=doubt, confusion=useful), levels=[], seeds=1).next_label
    assert (some.gain > 0).any()


def test_a_class_that_cannot_matter_is_passed_over_without_harm():
    rng = np.random.default_rng(0)
    belief = rng.dirichlet(np.full(60, 0.02), 50)
    confusion = rng.dirichlet(np.ones(60) * 0.3, (4, 60))
    expected = Likelihoods(belief, lambda _, j: confusion[j].transpose(0, 2, 1)[None], True)
    gain, flips = inside._compute_annotator_effect(expected, np.arange(4), np.full(4, 0.25))
    joint = belief[None, :, :, None] * confusion[:, None]  # (A, I, K, K)
    np.testing.assert_allclose(gain, joint.max(axis=2).sum(axis=2).mean(axis=0) - belief.max(axis=1), atol=60e-7)
    changed = joint.argmax(axis=2) != belief.argmax(axis=1)[:, None]
    np.testing.assert_allclose(flips, (joint.sum(axis=2) * changed).sum(axis=2).mean(axis=0), atol=60e-7)


# Votes ----------------------------------------------------------------------------------------------------------------


def test_one_more_vote_is_the_literal_vote():
    """Of 2 : 1 votes a contrary one makes a tie; of 3 : 0 it changes nothing."""
    label = [0, 0, 1, 0, 0, 0, 1, 1, 1, 1, 1, 0]
    table = Annotations.from_arrays(np.repeat(np.arange(4), 3), np.tile([1, 2, 3], 4), label)
    model = MajorityVote().fit(table)
    belief, right = model.likelihoods().belief, said_right(model)[0]
    odds = right / (1 - right)
    np.testing.assert_allclose(
        belief[:, 0], [odds / (1 + odds), odds**3 / (1 + odds**3), 1 / (1 + odds**3), 1 / (1 + odds)]
    )
    gain, flips = next_label(model)
    contrary = 1 / (1 + odds) * right + odds / (1 + odds) * (1 - right)
    np.testing.assert_allclose(flips, [contrary / 2, 0, 0, contrary / 2])
    np.testing.assert_allclose(gain, 0, atol=1e-12)  # the second of two to break no tie


def test_an_item_without_votes_is_believed_what_the_vote_says_of_it():
    table = Annotations.from_arrays([0, 0, 1, 1, 2], [1, 2, 1, 2, 1], [0, 0, 0, 1, 1], items=np.arange(4))
    model = MajorityVote().fit(table)
    belief = model.likelihoods().belief
    assert belief[3].tolist() == model.prior_.tolist() == [0.6, 0.4]
    assert belief[1].tolist() == [0.5, 0.5]


def test_votes_are_right_as_often_as_their_agreement_says():
    sim = simulate(3000, 40, 4, redundancy=5, kinds={"ordinary": 1}, hardness=0.05, seed=1)
    model = MajorityVote().fit(sim.annotations)
    belief = model.likelihoods().belief
    truly = (sim.annotations.label == sim.truth[sim.annotations.item]).mean()
    assert said_right(model)[0] == pytest.approx(truly, abs=0.02)
    assert belief.max(axis=1).mean() == pytest.approx((belief.argmax(axis=1) == sim.truth).mean(), abs=0.02)


def test_a_skilled_vote_weighs_by_skill():
    table = simulate(60, 9, 3, redundancy=4, seed=2).annotations
    model = dz.methods["wawa"]().fit(table)
    right = said_right(model)
    order = inside._choose_annotators(model, model.likelihoods())[0]
    logit = np.log(2 * right / (1 - right))
    np.testing.assert_allclose(logit / logit[0], model.skill_[order] / model.skill_[order[0]])


# The curve ------------------------------------------------------------------------------------------------------------


def literal_same(one, other):
    return [len(tops(p) & tops(q)) / len(tops(p) | tops(q)) for p, q in zip(one, other, strict=True)]


@pytest.mark.parametrize("method", ["dawid-skene", "majority-vote"])
def test_levels_are_fits_to_subsamples(method):
    sim = simulate(70, 9, 3, redundancy=(2, 6), seed=4)
    table, gold = sim.annotations, np.where(np.arange(70) % 3 > 0, sim.truth, -1)
    found = redundancy(table, method, gold=gold, levels=[4, 2, 2, 50], seeds=2, seed=7)
    assert [level.labels for level in found] == [2, 4, 6]
    whole = dz.methods[method]().fit(table)
    draws = [int(np.random.SeedSequence([7, number]).generate_state(1)[0]) for number in range(2)]
    for level in found.levels[:2]:
        parts = [table.subsample(level.labels, draw) for draw in draws]
        fits = [dz.methods[method]().fit(part) for part in parts]
        assert {len(part) for part in parts} == {level.annotations}
        more = np.diff(table.item_ptr) > level.labels  # the others have no label to lose
        same = np.mean([np.array(literal_same(fit.posterior_, whole.posterior_))[more] for fit in fits])
        assert level.items == more.sum() < 70
        assert level.stability.value == pytest.approx(same)
        assert level.stability.low < same < level.stability.high
        right = np.mean([expected_accuracy(gold, fit.posterior_) for fit in fits])
        assert level.accuracy.value == pytest.approx(right)
        if method == "dawid-skene":
            assert level.confidence == pytest.approx(np.mean([fit.posterior_.max(axis=1) for fit in fits]))
    last = found.levels[-1]
    assert last.stability == Estimate(1.0, 1.0, 1.0)
    assert last.annotations == len(table)
    assert last.accuracy.value == found.accuracy.value == pytest.approx(expected_accuracy(gold, whole.posterior_))
    assert last.confidence == pytest.approx(found.next_label.expected_right)
    np.testing.assert_array_equal(found.model.posterior_, whole.posterior_)


def test_accuracy_is_that_of_the_labels_where_nothing_is_tied():
    sim = simulate(90, 9, 3, redundancy=5, seed=4)
    gold = sim.truth.astype(int)
    found = redundancy(sim.annotations, "dawid-skene", gold=gold)
    assert found.accuracy.value == pytest.approx(accuracy(gold, found.model.predict()))
    assert found.expected_accuracy == pytest.approx(found.next_label.expected_right)


def test_rehearsal_takes_one_label_of_each_item_and_gives_it_back():
    sim = simulate(80, 9, 3, redundancy=(1, 4), seed=5)
    table, gold = sim.annotations, sim.truth.astype(int)
    found = redundancy(table, "dawid-skene", gold=gold, levels=[], seeds=1, seed=3).rehearsal
    counts = np.diff(table.item_ptr)
    many = np.flatnonzero(counts > 1)
    draw = np.random.default_rng(int(np.random.SeedSequence([3, 0]).generate_state(1)[0])).random(len(table))
    last = [table.item_ptr[i] + draw[table.item_ptr[i] : table.item_ptr[i + 1]].argmax() for i in many]
    fewer = DawidSkene(dependence=None).fit(table.select(rows=~np.isin(np.arange(len(table)), last)))
    whole = DawidSkene().fit(table)
    assert found.items == many.size < 80
    same = np.array(literal_same(fewer.posterior_, whole.posterior_))
    assert found.changed.value == pytest.approx(1 - same[many].mean())
    risen = probability_correct(gold[many], whole.posterior_[many]) - probability_correct(
        gold[many], fewer.posterior_[many]
    )
    assert found.accuracy_gain.value == pytest.approx(risen.mean())
    shares = fewer.total_ / fewer.total_.sum()
    gains, flips = literal(fewer.posterior_, [[fewer.confusion_[j]] * 80 for j in range(9)], shares)
    assert found.gain == pytest.approx(np.array(gains)[many].mean(), abs=1e-6)
    assert found.flips == pytest.approx(np.array(flips)[many].mean(), abs=1e-6)


def test_levels_stop_where_hardly_a_label_would_be_left_out():
    def levels(counts):
        return inside._choose_levels(np.array(counts), None)

    assert levels([10] * 5) == [1, 2, 3, 5, 7]
    assert levels([25] * 5) == [1, 2, 3, 5, 7, 10, 15, 20]
    assert levels([400]) == [1, 2, 3, 5, 7, 10, 15, 20, 30, 50, 70, 100, 150, 200, 300]
    assert levels([3] * 99 + [10]) == [1, 2]  # one item with many labels makes no level
    assert levels([1] * 9) == []
    assert levels([2, 2]) == [1]


def test_a_large_table_is_cut_down_to_items_with_all_their_labels():
    sim = simulate(200, 12, 3, redundancy=5, seed=6)
    gold = sim.truth.astype(int)
    found = redundancy(sim.annotations, "majority-vote", gold=gold, limit=300, seeds=1)
    assert found.sampled_items == 60
    assert found.levels[-1].annotations == 300
    assert found.levels[-1].stability.value == 1
    assert found.next_label.gain.size == 200  # the next label is that of all items
    assert found.accuracy.value == pytest.approx(
        expected_accuracy(gold, MajorityVote().fit(sim.annotations).posterior_)
    )
    assert find(findings.MeasuredOnSample, found.findings()).items == 60
    assert redundancy(sim.annotations, "majority-vote", limit=1000, seeds=1).sampled_items is None
    part, _, _ = inside._sample_items(sim.annotations, None, 300, 0)
    other, _, _ = inside._sample_items(sim.annotations, None, 300, 1)
    assert (np.diff(part.item_ptr) == 5).all()
    assert part.items.tolist() != other.items.tolist()
    assert inside._sample_items(sim.annotations, None, 1, 0)[0].n_items == 1


def test_items_without_labels_gain_but_are_not_in_the_curve():
    sim = simulate(50, 8, 3, redundancy=4, seed=6)
    table = sim.annotations
    more = Annotations.from_arrays(table.item, table.annotator, table.label, items=np.arange(60))
    found = redundancy(more, "dawid-skene")
    assert found.sampled_items is None
    assert found.levels[-1].annotations == len(table)
    assert found.labels_per_item == 4
    assert set(found.next_label.best(10)) == set(range(50, 60))


# Next label -----------------------------------------------------------------------------------------------------------


def test_the_best_items_hold_what_the_curve_says():
    gain = np.array([0.1, 0.0, 0.4, 0.3, 0.2])
    after = NextLabel(np.array(list("abcde"), object), gain, gain, 0.5, 0.7)
    assert after.best(3) == ["c", "d", "e"]
    assert after.best(0) == []
    assert [after.count_items_with_share(share) for share in (0.1, 0.4, 0.7, 0.71, 0.9, 1.0)] == [1, 1, 2, 3, 3, 4]
    np.testing.assert_allclose(after.gain_curve[[0, 20, 40, 50, 60, 80, 100]], [0, 0.4, 0.7, 0.8, 0.9, 1, 1])
    with pytest.raises(BadParameter):
        after.best(-1)


@pytest.mark.parametrize("method", [DawidSkene(dependence=None), MajorityVote(), OneCoin(dependence=None)])
def test_what_is_expected_of_the_next_label_is_what_it_does(method):
    """Four to five labels of a crowd that fits the model; the true rise and the true changes, over 4,000 items."""
    sim = simulate(4000, 40, 4, redundancy=4, hardness=0, skew=0, kinds={"ordinary": 2, "uniform-spammer": 1}, seed=3)
    found = redundancy(sim.annotations, method, gold=sim.truth.astype(int), levels=[])
    rehearsal = found.rehearsal
    assert rehearsal.flips == pytest.approx(rehearsal.changed.value, rel=0.25)
    assert rehearsal.gain == pytest.approx(rehearsal.accuracy_gain.value, rel=0.3)
    assert found.next_label.expected_right == pytest.approx(found.accuracy.value, abs=0.03)


def test_the_average_annotator_would_tell_less_than_annotators_do():
    sim = simulate(4000, 40, 4, redundancy=4, hardness=0, skew=0, kinds={"expert": 1, "uniform-spammer": 1}, seed=3)
    fewer, more = (sim.annotations.subsample(r, seed=1) for r in (3, 4))
    model = DawidSkene(dependence=None).fit(fewer)
    rose = probability_correct(sim.truth.astype(int), DawidSkene().fit(more).posterior_) - probability_correct(
        sim.truth.astype(int), model.posterior_
    )
    gain, _ = next_label(model)
    average = Likelihoods(
        model.posterior_, lambda *_: model.annotator_confusions(np.array([-1])).transpose(0, 2, 1)[None], True
    )
    of_average, _ = inside._compute_annotator_effect(average, np.array([-1]), np.ones(1))
    assert abs(gain.mean() - rose.mean()) < abs(of_average.mean() - rose.mean()) / 2
    order = np.argsort(-gain)[:800]
    assert rose[order].sum() > 0.5 * rose.sum()  # a fifth of the items, more than half of the rise


def test_what_is_foreseen_does_not_hang_on_dependence_and_the_confidence_does():
    table = simulate(200, 12, 3, redundancy=5, seed=2).annotations
    soft, sharp = (redundancy(table, OneCoin(dependence=rho), levels=[], seeds=1) for rho in ("auto", None))
    np.testing.assert_allclose(soft.next_label.gain, sharp.next_label.gain, atol=1e-9)
    np.testing.assert_allclose(soft.next_label.flips, sharp.next_label.flips, atol=1e-9)
    assert soft.rehearsal.flips == pytest.approx(sharp.rehearsal.flips)
    assert soft.next_label.expected_right == pytest.approx(soft.model.posterior_.max(axis=1).mean())
    assert soft.next_label.expected_right < sharp.next_label.expected_right - 0.05


# The same for all -----------------------------------------------------------------------------------------------------


def without_seconds(found):
    return [{key: value for key, value in row.items() if key != "seconds"} for row in found.rows()]


@pytest.mark.parametrize("method", ["dawid-skene", "wawa", "glad"])
def test_order_of_rows_and_names_change_nothing(method):
    table = simulate(60, 30, 3, redundancy=4, seed=8).annotations
    order = np.random.default_rng(0).permutation(len(table))
    shuffled = Annotations.from_arrays(table.item[order], table.annotator[order], table.label[order])
    renamed = Annotations.from_arrays(
        [f"i{i:03}" for i in table.item], [f"a{a:03}" for a in table.annotator], [f"c{c}" for c in table.label]
    )
    one, two, three = (redundancy(t, method, seeds=2) for t in (table, shuffled, renamed))
    assert without_seconds(one) == without_seconds(two) == without_seconds(three)
    assert one.rehearsal == two.rehearsal == three.rehearsal
    assert [f"i{i:03}" for i in one.next_label.best(9)] == three.next_label.best(9)
    assert one.verdict() == two.verdict()
    measured = [[m.facts for m in list(found.findings())[:-1]] for found in (one, three)]  # advice depends on names
    assert measured[0] == measured[1]
    new_item, new_annotator = np.random.default_rng(1).permutation(60), np.random.default_rng(2).permutation(30)
    moved = Annotations.from_arrays(new_item[table.item], new_annotator[table.annotator], table.label)
    four = redundancy(moved, method, seeds=1, levels=[])  # which labels are drawn depends on the order of names
    np.testing.assert_allclose(four.next_label.gain[new_item], one.next_label.gain, atol=1e-6)
    np.testing.assert_allclose(four.next_label.flips[new_item], one.next_label.flips, atol=1e-6)


def test_the_seed_decides_what_is_drawn():
    table = simulate(60, 9, 3, redundancy=5, seed=8).annotations
    one, two, three = (redundancy(table, "dawid-skene", seed=seed) for seed in (1, 1, 2))
    assert without_seconds(one) == without_seconds(two)
    assert one.levels[1].stability.value != three.levels[1].stability.value
    np.testing.assert_array_equal(one.next_label.gain, three.next_label.gain)


def test_every_fit_is_announced():
    table = simulate(60, 9, 3, redundancy=4).annotations
    steps = []
    found = redundancy(table, "one-coin", seeds=2, on_fit=lambda *step: steps.append(step))
    assert [level.labels for level in found] == [1, 2, 3, 4]
    assert steps == [("one-coin", done, 9) for done in range(9)]  # all; three levels and the rehearsal, twice
    steps.clear()
    redundancy(table, OneCoin(), seeds=1, limit=100, levels=[2], on_fit=lambda *step: steps.append(step))
    assert steps == [("one-coin", done, 4) for done in range(4)]  # all, all of the sample, a level, the rehearsal


def test_the_model_given_is_copied_with_its_parameters():
    table = simulate(60, 9, 3, redundancy=4).annotations
    model = DawidSkene(smoothing=5.0)
    found = redundancy(table, model, seeds=1)
    assert not hasattr(model, "posterior_")
    np.testing.assert_array_equal(found.model.posterior_, DawidSkene(smoothing=5.0).fit(table).posterior_)


@pytest.mark.parametrize("method", sorted(methods_for("classes")))
@pytest.mark.parametrize("kind", KINDS)
def test_every_method_takes_every_kind_of_table(method, kind):
    binary = dz.methods.entry(method).facts.get("binary")
    if binary and "proba" in KINDS[kind]:
        pytest.skip("these tables have four classes")
    table = random_table(1, n_classes=2 if binary else 4, **KINDS[kind])
    found = redundancy(table, method, seeds=1, resamples=20)
    after = found.next_label
    assert np.isfinite(after.gain).all()
    assert (after.gain >= 0).all()
    assert ((after.flips >= 0) & (after.flips <= 1)).all()
    assert after.expected_right <= after.expected_right_after <= 1 + 1e-9
    assert found.levels[-1].stability.value == 1
    assert found.verdict()


# Words ----------------------------------------------------------------------------------------------------------------


def found_with(*, stability=(0.9, 0.97), items=100, flips=0.02, expected=0.02, changed=0.021, gain=None, **fields):
    levels = [
        Level(n, n * 100, items, Estimate(s, s, s), None, 0.9, 0.1) for n, s in zip((3, 5), stability, strict=True)
    ]
    gain = np.repeat([0.4, 0.0], [10, 90]) if gain is None else np.array(gain)
    after = NextLabel(np.arange(gain.size), gain, np.full(gain.size, flips), 0.9, 0.9 + gain.mean())
    known = {
        "sampled_items": None,
        "accuracy": None,
        "expected_accuracy": None,
        "labels_per_item": 10.0,
        "n_classes": 3,
    }
    rehearsal = Rehearsal(100, expected, Estimate(changed, changed * 0.9, changed * 1.1), 0.01, None)
    last = Level(10, 1000, 100, Estimate(1, 1, 1), None, 0.9, 0.1)
    pairs = np.array(["i"]), np.array(["a"]), np.ones(1), np.ones(1), np.ones(1), np.full(1, 0.3)
    advice = Recommendation(*pairs, candidates=7)
    return Redundancy((*levels, last), after, rehearsal, model=None, advice=advice, **(known | fields))


def test_the_verdict_says_what_was_measured_and_what_recommend_says():
    level, effect, advice = found_with().findings()
    assert level.facts == {"labels": 5, "share": 0.97, "stable": True, "items": None, "equal_labels": 10}
    expected = {"flips": 0.02, "gain": 0.04, "expected": 0.02, "observed": 0.021}
    assert effect.facts == pytest.approx(expected)
    assert (type(advice), advice.budget) == (findings.NextStep, 100)
    assert found_with().verdict() == f"{level} {effect} {advice}"

    def stable_level(**fields):
        return find(findings.StabilityWithFewerLabels, found_with(**fields).findings())

    first, last = stable_level(stability=(0.96, 0.97)), stable_level(stability=(0.9, 0.94))
    assert (first.labels, first.share, first.stable) == (3, 0.96, True)
    assert (last.labels, last.share, last.stable) == (5, 0.94, False)
    assert stable_level(items=40, labels_per_item=7.25).items == 40
    assert stable_level(labels_per_item=7.25).equal_labels is None
    worth = EffectiveLabels(1.6, 1.0, 6.0, labels=24)
    assert str(worth) in map(str, found_with(effective_labels=worth).findings())
    gold = found_with(accuracy=Estimate(0.88, 0.8, 0.9), expected_accuracy=0.97)
    accuracy = find(findings.AccuracyOnGold, gold.findings())
    assert accuracy.facts == {"value": 0.88, "low": 0.8, "high": 0.9, "expected": 0.97}


def test_a_model_that_the_rehearsal_refutes_is_not_believed():
    assert findings.LessStableThanExpected in kinds(found_with(expected=0.001, changed=0.05).findings())
    tiny = redundancy(Annotations.from_arrays([1, 1, 2], ["ann", "bob", "ann"], ["yes", "no", "yes"]), "consensus")
    assert tiny.rehearsal.changed.low > 2 * tiny.rehearsal.flips
    assert findings.LessStableThanExpected not in kinds(tiny.findings())  # it is one item


def test_hardly_any_is_not_none_and_nearly_all_is_not_all():
    shares = [0, 1e-5, 0.0005, 0.5, 0.9994, 0.9996, 1]
    assert [format_percent(share, 1) for share in shares] == [
        "0.0 %", "less than 0.1 %", "0.1 %", "50.0 %", "99.9 %", "more than 99.9 %", "100.0 %",
    ]  # fmt: skip


def test_extremes_are_told_as_they_are():
    single = redundancy(Annotations.from_arrays([1, 2, 3], [1, 1, 2], [0, 1, 0]), "dawid-skene")
    (said,) = single.findings()
    assert (type(said), said.budget) == (findings.NoSecondAnnotator, 100)
    alone = redundancy(Annotations.from_arrays([1, 2], [1, 1], [0, 1]), "dawid-skene")
    assert next(alone.findings()).budget is None  # there is no annotator whom `recommend` could name
    twice = redundancy(Annotations.from_arrays([1, 2, 3] * 2, [1, 1, 2] * 2, [0, 1, 0] * 2), "dawid-skene")
    assert (twice.rehearsal, twice.verdict()) == (None, single.verdict())  # the same people, once more
    assert single.rehearsal is None
    assert len(single) == 1
    one_class = redundancy(Annotations.from_arrays([1, 1, 2], [1, 2, 2], ["x", "x", "x"]), "majority-vote")
    assert kinds(one_class.findings()) == [findings.OneClass]
    assert one_class.next_label.gain.tolist() == [0, 0]
    two = redundancy(Annotations.from_arrays([1, 1, 2, 2], [1, 2, 1, 2], [0, 1, 1, 1]), "dawid-skene")
    first = next(two.findings())
    assert (type(first), first.expected) == (findings.EffectOfNextLabel, None)  # of two items no share is told
    same = one_class.levels[0].stability
    assert (same.value, same.high) == (1, 1)
    assert same.low < 0.3  # of one item
    for method in ("dawid-skene", "majority-vote", "one-coin"):
        agree = Annotations.from_arrays(
            np.repeat(np.arange(300), 5), np.tile(np.arange(5), 300), np.repeat([0, 1], 750)
        )
        *_, advice = said = list(redundancy(agree, method).findings())
        assert find(findings.StabilityWithFewerLabels, said).share == 1
        assert advice.budget is None


def test_rows_and_frame_are_one_row_per_level():
    sim = simulate(60, 9, 3, redundancy=4)
    found = redundancy(sim.annotations, "majority-vote", gold=sim.truth.astype(int), seeds=1)
    frame = found.to_frame()
    assert frame["labels"].tolist() == [1, 2, 3, 4]
    assert frame["accuracy_low"].tolist() == [level.accuracy.low for level in found]
    assert "accuracy" not in redundancy(sim.annotations, "majority-vote", seeds=1).to_frame().columns
    assert repr(found) == f"Redundancy at 4 levels: {found.verdict()}"


def test_wrong_use_is_one_clear_error():
    table = simulate(20, 5, 3, redundancy=3).annotations
    for wrong in ({"seeds": 0}, {"limit": 0.5}, {"seed": -1}, {"levels": [2, 0]}):
        with pytest.raises(BadParameter):
            redundancy(table, "majority-vote", **wrong)
    with pytest.raises(UnknownName):
        redundancy(table, "majority-vot")
    with pytest.raises(NoAnnotations):
        redundancy(table.select(rows=np.zeros(60, bool)), "majority-vote")
    with pytest.raises(DataError):
        redundancy(table, "majority-vote", gold=np.zeros(3, int))


@pytest.mark.realdata
@pytest.mark.parametrize("name", ["rte", "sentiment_polarity"])
def test_real_labels_change_about_as_many_classes_as_expected(name):
    data = dz.load_dataset(name)
    for method in ("dawid-skene", "one-coin", "majority-vote"):
        rehearsal = redundancy(data.annotations, method, levels=[]).rehearsal
        assert 0.5 * rehearsal.changed.value < rehearsal.flips < 1.2 * rehearsal.changed.value
