"""Consensus is Dawid-Skene where copies count once; with many labels, a pool of two models."""

from dataclasses import replace

import numpy as np
import pytest

import dissensus as dz
from dissensus.models import class_shares, pooling
from dissensus.models.collapse import collapse
from dissensus.models.confidence import advise_gold_labels
from dissensus.models.matrices import default_pseudo_counts
from dissensus.models.methods.dawid_skene import crowd_pseudo_counts
from dissensus.table.simulate import simulate


@pytest.fixture(scope="module")
def digits():
    return dz.load_dataset("digits-crowd")


@pytest.mark.parametrize("n", [2, 3, 5])
def test_without_copies_it_is_dawid_skene_with_more_of_the_crowd_the_fewer_labels_check_each_other(n):
    table = simulate(300, 12, 3, redundancy=n, seed=1).annotations
    ours, factor = dz.methods["consensus"](dependence=None).fit(table), n / (n - 1) * (1 + 5 / 300)
    assert (ours.copy_group_ == -1).all()
    shares = table.votes() / n
    crowd, unknown = np.zeros((3, 3)), default_pseudo_counts(3)
    for item, label in zip(table.item, table.label, strict=True):
        crowd[:, label] += shares[item]
    for c in range(3):  # three labels more of somebody of whom nothing is known; the row stays as heavy
        drawn = crowd[c] + 3 * unknown[c] / unknown[c].sum()
        crowd[c] = drawn / drawn.sum() * crowd[c].sum()
    np.testing.assert_allclose(ours.pseudo_counts_, crowd_pseudo_counts(crowd[None], 1.25 * factor, 0.15, 2.0))
    np.testing.assert_allclose(ours.class_pseudo_counts_, 1 + 0.5 * factor * 12 * shares.mean(axis=0))
    counts = ours.label_counts_ + ours.pseudo_counts_
    np.testing.assert_allclose(ours.confusion_, counts / counts.sum(axis=2, keepdims=True), atol=1e-4)
    joint = np.tile(ours.prior_, (300, 1))  # the E step, row by row
    for item, annotator, label in zip(table.item, table.annotator, table.label, strict=True):
        joint[item] *= ours.confusion_[annotator, :, label]
    np.testing.assert_allclose(ours.posterior_, joint / joint.sum(axis=1, keepdims=True), atol=1e-9)


def test_its_classes_are_equally_frequent_unless_the_labels_say_otherwise():
    even, skewed = ([0.5, 0.5], [0.85, 0.15])
    for shares, found in ((even, 1.0), (skewed, 0.0)):
        table = simulate(2000, 60, 2, redundancy=3, prior=shares, seed=3).annotations
        model = dz.methods["consensus"](dependence=None, tol=1e-12).fit(table)
        assert model.uniformity_[0] == found if found else model.uniformity_[0] < 0.2
        assert abs(model.prior_[0] - np.mean(table.label == 0)) < 0.1
        counts, steps = model.posterior_.sum(axis=0), np.linspace(0, 1, 401)
        grid = np.array([[e, s] for e in steps for s in steps[1:-1]])  # of e and s_0
        e, s = grid[:, :1], np.stack([grid[:, 1], 1 - grid[:, 1]], axis=1)
        fit = (
            np.log(e / 2 + (1 - e) * s) @ counts
            + np.log(s) @ model.class_pseudo_counts_
            - model.nonuniform_cost_ * (1 - e[:, 0])
        )
        stage = model._as_dawid_skene()
        own = counts @ np.log(model.prior_) + stage.log_class_prior(stage._params())
        assert own >= fit.max() - 1e-4


def named_too_often(seed):
    """Even classes, one of which annotators name too often; and the truth."""
    made = simulate(200, 40, 2, redundancy=2, prior=[0.5, 0.5], seed=seed)
    label = np.where(np.random.default_rng(seed).random(400) < 0.3, 0, made.annotations.label)
    return replace(made.annotations, label=label), made.truth


def test_with_two_labels_a_class_that_is_named_too_often_is_not_taken_for_a_frequent_one(monkeypatch):
    right = []
    for price in (class_shares.NONUNIFORM_COST_FACTOR, 0.0):
        monkeypatch.setattr(class_shares, "NONUNIFORM_COST_FACTOR", price)
        for table, truth in map(named_too_often, range(8)):
            right.append((dz.methods["consensus"]().fit(table).posterior_.argmax(axis=1) == truth).mean())
    assert np.mean(right[:8]) > np.mean(right[8:]) + 0.01


def test_copies_count_once_in_a_pool_too():
    made = simulate(300, 20, 2, redundancy=10, kinds={"ordinary": 1}, seed=6).annotations
    own = np.flatnonzero(made.annotator == 0)
    rows = np.concatenate([np.arange(len(made)), *[own] * 5])
    who = np.concatenate([made.annotator, *[np.full(own.size, 20 + k) for k in range(5)]])
    table = dz.Annotations.from_arrays(made.item[rows], who, made.label[rows])
    model = dz.consensus(table)
    assert model.member_weights_ is not None
    assert (model.copy_group_ >= 0).sum() == 6
    np.testing.assert_allclose(model.item_total_, 10)
    np.testing.assert_allclose(model.total_[[0, *range(20, 25)]].sum(), own.size)
    np.testing.assert_allclose(model.predict_proba(table), model.posterior_, atol=1e-9)


def test_a_few_items_are_decided_by_their_majority():
    one = dz.Annotations.from_arrays(["x"] * 3, ["a", "b", "c"], ["0", "1", "1"])
    two = dz.Annotations.from_arrays(["x"] * 3 + ["y"] * 3, ["a", "b", "c"] * 2, ["0", "1", "1"] * 2)
    assert dz.consensus(one).predict().tolist() == ["1"]
    assert dz.consensus(two).predict().tolist() == ["1", "1"]
    against = n = 0
    for seed in range(40):
        made = simulate(5, 3, 2, redundancy=3, kinds={"ordinary": 1}, seed=seed).annotations
        against += (dz.consensus(made).posterior_.argmax(axis=1) != made.votes().argmax(axis=1)).sum()
        n += made.n_items
    assert against < 0.05 * n


@pytest.mark.parametrize("typed", [0, 1])
def test_a_class_that_nobody_means_takes_nothing_from_the_others(typed):
    made = simulate(300, 20, 2, redundancy=5, seed=4).annotations
    label = made.label.astype(np.int64)
    label[:typed] = 2  # a typing error
    table = dz.Annotations.from_arrays(made.item, made.annotator, label, classes=3)
    assert table.n_classes == 3
    two, three = dz.consensus(made), dz.consensus(table)
    rest = slice(1, None)  # but the item that has it
    assert three.posterior_[rest, 2].max() < 0.08
    np.testing.assert_allclose(three.posterior_[rest, :2], two.posterior_[rest], atol=0.08)
    assert (three.predict()[rest] != 2).all()


def test_what_is_known_from_before_does_not_count_as_labels_of_an_item():
    table = simulate(200, 10, 2, redundancy=3, seed=3).annotations
    earlier = np.tile(np.array([[900.0, 100.0], [100.0, 900.0]]), (10, 1, 1))
    plain, known = (dz.methods["consensus"]().fit(table, earlier=one) for one in (None, earlier))
    assert known.dependence_ == pytest.approx(plain.dependence_)


def test_rows_of_no_weight_copy_nobody():
    made = simulate(80, 10, 2, redundancy=7, seed=1).annotations
    own = np.flatnonzero(made.annotator == 0)
    rows = np.concatenate([np.arange(len(made)), *[own] * 4])
    who = np.concatenate([made.annotator, *[np.full(own.size, 10 + k) for k in range(4)]])
    weight = np.concatenate([np.ones(len(made)), np.zeros(4 * own.size)])
    table = dz.Annotations.from_arrays(made.item[rows], who, made.label[rows], weight=weight)
    model = dz.consensus(table)
    assert (model.copy_group_ == -1).all()
    assert model.total_[0] == pytest.approx(own.size)


def test_a_row_of_no_weight_takes_no_share_of_what_a_group_says():
    table = dz.Annotations.from_arrays([0, 0, 1, 1], [0, 1, 0, 1], [1, 1, 0, 0], weight=[1.0, 0.0, 1.0, 1.0])
    assert collapse(table, np.zeros(2, np.int64)).weight.tolist() == [1, 0, 0.5, 0.5]


def test_there_is_no_pool_where_its_confusion_matrices_are_too_many(monkeypatch):
    table = simulate(200, 20, 2, redundancy=10, seed=2).annotations
    assert dz.consensus(table).member_weights_ is not None
    monkeypatch.setattr(pooling, "MAX_MATRIX_ENTRIES", 20 * 2**2 - 1)
    assert dz.consensus(table).member_weights_ is None


def test_one_class_is_no_reason_for_a_pool():
    item, annotator = (one.ravel() for one in np.indices((60, 12)))
    model = dz.consensus(dz.Annotations.from_arrays(item, annotator, np.ones(item.size, int)))
    assert model.member_weights_ is None
    assert model.converged_
    assert (model.posterior_ == 1).all()


def test_gold_of_items_without_labels_says_nothing_of_rho():
    made = simulate(100, 10, 2, redundancy=3, seed=1)
    table = dz.Annotations.from_arrays(
        made.annotations.item, made.annotations.annotator, made.annotations.label, items=list(range(150)), classes=2
    )
    gold = np.append(np.full(100, -1), np.zeros(50, int))
    for name in ("consensus", "dawid-skene"):
        fits = [dz.methods[name]().fit(table, gold=one) for one in (None, gold)]
        assert fits[0].dependence_ == fits[1].dependence_
        assert advise_gold_labels(fits[1])


@pytest.mark.parametrize("name", ["consensus", "one-coin"])
def test_what_gold_says_of_rho_and_shifts_is_said_by_items_with_labels(name):
    made = simulate(200, 10, 2, redundancy=3, seed=1)
    table, gold = made.annotations, np.where(np.arange(200) < 40, made.truth, -1)
    more = dz.Annotations.from_arrays(table.item, table.annotator, table.label, items=list(range(300)), classes=2)
    fits = [
        dz.methods[name]().fit(one, gold=known) for one, known in ((table, gold), (more, np.append(gold, [0] * 100)))
    ]
    assert fits[0].dependence_ == fits[1].dependence_ != dz.methods[name]().fit(table).dependence_
    shifts = [np.zeros(2) if one.shift_ is None else one.shift_ for one in fits]
    np.testing.assert_allclose(*shifts, atol=0.01)


def test_an_update_of_a_pool_leaves_its_class_shares_free():
    table = simulate(300, 20, 2, redundancy=10, prior=[0.6, 0.4], seed=2).annotations
    model = dz.methods["consensus"]().fit(table)
    assert model.member_weights_ is not None
    model.partial_fit(simulate(20, 20, 2, redundancy=3, seed=3).annotations)
    shares = model.class_counts_ + model.class_pseudo_counts_
    np.testing.assert_allclose(model.prior_, shares / shares.sum())
    assert model.uniformity_[0] == 0


def test_labels_that_nobody_checks_leave_everybody_like_the_crowd():
    table = simulate(300, 12, 3, redundancy=4, seed=1).annotations
    alone = dz.methods["consensus"]().fit(table.subsample(1))
    assert {class_shares.label_check_factor(n) for n in (0.0, 1.0, 1.25)} == {5}
    spread = [np.ptp(model.confusion_, axis=0).max() for model in (alone, dz.methods["dawid-skene"]().fit(table))]
    assert spread[0] < spread[1] / 2


def test_with_two_labels_more_of_the_crowd_is_better():
    loss = []
    for seed in range(5):
        made = simulate(400, 80, 4, redundancy=2, seed=seed)
        table, at = made.annotations, (np.arange(400), made.truth)
        rho = dz.methods["consensus"]().fit(table).dependence_
        models = (dz.methods[name](dependence=rho).fit(table) for name in ("consensus", "dawid-skene"))
        loss.append([-np.log(model.posterior_[at]).mean() for model in models])
    ours, theirs = np.mean(loss, axis=0)
    assert ours < theirs - 0.002


def test_members_of_a_group_share_one_label_of_an_item():
    table = simulate(40, 6, 2, redundancy=4, seed=0).annotations
    group = np.array([0, -1, 0, 1, 1, 0])
    counted = collapse(table, group)
    for row in range(len(table)):
        mine = group[table.annotator[row]]
        same = (table.item == table.item[row]) & (group[table.annotator] == mine)
        assert counted.weight[row] == pytest.approx(1.0 if mine < 0 else 1 / same.sum())
    assert collapse(table, np.full(6, -1)) is table


def test_what_one_annotator_repeats_about_an_item_is_one_label():
    rows = [0, 0, 0, 1, 1, 2], [0, 0, 1, 1, 2, 0], [0, 1, 1, 0, 0, 1]
    table = dz.Annotations.from_arrays(*rows, weight=[1, 3, 1, 1, 1, 2])
    assert collapse(table, np.full(3, -1)).weight.tolist() == [0.75, 2.25, 1, 1, 1, 2]
    assert collapse(table, np.array([-1, 0, 0])).weight.tolist() == [0.75, 2.25, 1, 0.5, 0.5, 2]
    shared = dz.Annotations.from_arrays([0, 0], [0, 0], [0, 1], weight=[0.5, 0.5])
    assert collapse(shared, np.array([-1])).weight.tolist() == [0.5, 0.5]
    votes = dz.Annotations.from_counts([0, 0, 1], ["a", "b", "a"], [3, 2, 4])  # nobody knows whose
    assert collapse(votes, np.array([-1])) is votes


@pytest.mark.parametrize("redundancy", [3, 9])
def test_five_samples_of_every_judge_are_as_sure_as_one(redundancy):
    table = simulate(200, 12, 3, redundancy=redundancy, seed=5).annotations
    five = dz.Annotations.concat([table] * 5)
    once, again = dz.consensus(table), dz.consensus(five)
    np.testing.assert_allclose(again.posterior_, once.posterior_, atol=1e-6)
    np.testing.assert_allclose(again.reliability_interval(), once.reliability_interval(), atol=1e-6)
    np.testing.assert_allclose(once.predict_proba(five), once.predict_proba(table), atol=1e-9)


def test_copies_count_once_and_the_labels_are_better_for_it(digits):
    table = digits.annotations
    ours, theirs = (dz.methods[name]().fit(table) for name in ("consensus", "dawid-skene"))
    assert np.bincount(ours.copy_group_ + 1).tolist()[1:] == [5]
    right = [(model.posterior_.argmax(axis=1) == digits.gold).mean() for model in (ours, theirs)]
    assert right[0] > right[1] + 0.005
    np.testing.assert_allclose(ours.predict_proba(table), ours.posterior_, atol=1e-9)  # scoring knows the group too
    assert ours.item_total_.max() <= np.diff(table.item_ptr).max()
    assert (ours.item_total_ < np.diff(table.item_ptr) - 0.5).any()


def test_an_update_keeps_the_group_of_its_members(digits):
    table = digits.annotations
    model = dz.methods["consensus"]().fit(table)
    few = table.select(rows=table.item < 50)
    before = dict(zip(model.annotators_.tolist(), model.copy_group_.tolist(), strict=True))
    new = dz.Annotations.from_arrays(
        np.append(few.items[few.item], "new"),
        np.append(few.annotators[few.annotator], "a00x"),
        np.append(few.classes[few.label], "3"),
    )
    model.partial_fit(new)
    after = dict(zip(model.annotators_.tolist(), model.copy_group_.tolist(), strict=True))
    assert after == before | {"a00x": -1}


def panel_truth(n_items):
    return np.random.default_rng(5).integers(2, size=n_items)


def panel(loading, n_items=250, n_annotators=12):
    """Everybody labels everything; an item is easy for all or hard for all as far as `loading` says."""
    rng = np.random.default_rng(6)
    truth, ease = panel_truth(n_items), rng.standard_normal(n_items)
    right = rng.random((n_items, n_annotators)) < 1 / (1 + np.exp(-1.2 - loading * ease))[:, None]
    return dz.Annotations.from_matrix(np.where(right, truth[:, None], 1 - truth[:, None]))


def by_power(n):
    """ρ with which n labels are worth n^(1 − γ)."""
    return pytest.approx((n**pooling.DESIGN_EFFECT_POWER - 1) / (n - 1))


def pooled(table, weight, gold=None):
    """(I, K) a literal pool of the two models, with the mean of their class shares; not softened."""
    names = ("hierarchical-dawid-skene", "item-effect")
    models = [dz.methods[name](dependence=None).fit(table, gold=gold) for name in names]
    prior = (models[0].prior_ + models[1].prior_) / 2
    for model in models:
        model.prior_ = prior
    powers = [model.predict_proba(table) ** power for model, power in zip(models, (weight, 1 - weight), strict=True)]
    return powers[0] * powers[1] / (powers[0] * powers[1]).sum(axis=1, keepdims=True)


def test_a_panel_has_the_answers_of_two_models_each_softened_by_its_own_labels():
    table = panel(2.5)
    ours = dz.methods["consensus"]().fit(table)
    crowd, effect = (
        12**pooling.DESIGN_EFFECT_POWER,
        12**pooling.ITEM_EFFECT_POWER,
    )  # as many labels as one, by either model
    weight = effect / (crowd + effect)
    assert ours.weights_ == pytest.approx({"hierarchical-dawid-skene": weight, "item-effect": 1 - weight})
    plain = pooled(table, weight)
    np.testing.assert_allclose(ours.untempered_posterior(), plain, atol=1e-9)
    np.testing.assert_allclose(1 + 11 * ours.dependence_, 2 / (1 / crowd + 1 / effect))
    soft = plain ** (1 / (1 + 11 * ours.dependence_))
    np.testing.assert_allclose(ours.posterior_, soft / soft.sum(axis=1, keepdims=True), atol=1e-9)
    np.testing.assert_allclose(ours.predict_proba(table), ours.posterior_, atol=1e-9)
    counts = np.zeros((12, 2, 2))
    np.add.at(counts, table.annotator, np.eye(2)[table.label][:, None, :] * plain[table.item][:, :, None])
    counts += ours.pseudo_counts_  # a literal M step by what the pool believes
    np.testing.assert_allclose(ours.confusion_, counts / counts.sum(axis=2, keepdims=True), atol=1e-9)


def test_a_class_that_nobody_means_does_not_become_the_name_of_hard_items():
    rng = np.random.default_rng(2)
    safe = rng.standard_normal(350)
    says = rng.random((350, 20)) < 1 / (1 + np.exp(-2 * (safe[:, None] - 0.7 - rng.standard_normal(20))))
    label = np.where(rng.random(says.shape) < rng.beta(1, 12, 20), 2, says)  # 2: "unsure", now and then
    table = dz.Annotations.from_matrix(label)
    given = {name: dz.methods[name]().fit(table).posterior_.argmax(axis=1) for name in ("consensus", "dawid-skene")}
    assert (given["dawid-skene"] == 2).mean() > 0.2  # its matrices explain hard items by it
    assert (given["consensus"] == 2).mean() < 0.05
    truth = safe > 0.7
    assert (given["consensus"] == truth).mean() > (given["dawid-skene"] == truth).mean() + 0.1


def test_shares_of_three_classes_are_held_in_a_pool_too():
    rng = np.random.default_rng(3)
    truth = rng.choice(5, 300, p=(0.9, 0.025, 0.025, 0.025, 0.025))
    label = np.where(rng.random((300, 10)) < 0.6, truth[:, None], rng.integers(5, size=(300, 10)))
    model = dz.methods["consensus"]().fit(dz.Annotations.from_matrix(label))
    assert model.weights_ != {"dawid-skene": 1.0}
    moved = np.abs(model.posterior_.mean(axis=0) - model.untempered_posterior().mean(axis=0)).sum() / 2
    assert model.damping_ is not None
    assert moved == pytest.approx(0.1, abs=0.011)
    assert dz.methods["consensus"](dependence=0.5).fit(dz.Annotations.from_matrix(label)).damping_ is None


def test_a_panel_is_scored_saved_and_updated_like_any_model(tmp_path):
    table = panel(2.5)
    model = dz.methods["consensus"]().fit(table)
    again = dz.load(dz.save(model, tmp_path / "model"))
    new = dz.Annotations.from_arrays([900, 900, 901], [0, 99, 3], [1, 1, 0])
    np.testing.assert_allclose(again.predict_proba(new), model.predict_proba(new), atol=1e-12)
    model.partial_fit(new)
    assert model.theta_.shape == (13, 2, 2)
    np.testing.assert_array_equal(model.theta_[12], model.population_theta_)
    np.testing.assert_array_equal(model.concentration_[12], model.population_)
    assert model.predict_proba(new).shape == (2, 2)
    assert model.fit(simulate(300, 12, 3, seed=1).annotations).member_weights_ is None  # nothing of the panel is left


def test_gold_says_more_than_the_number_of_labels():
    table = panel(2.5)
    default = (pooling.ModelPool(12, [None, None]).design_effect - 1) / 11
    gold = np.where(np.arange(250) < 60, panel_truth(250), -1)
    assert dz.methods["consensus"]().fit(table, gold=gold).dependence_ != pytest.approx(default)
    few = np.where(np.arange(250) < 10, panel_truth(250), -1)
    model = dz.methods["consensus"]().fit(table, gold=few)
    assert model.dependence_ == pytest.approx(default)
    np.testing.assert_array_equal(model.posterior_[:10].argmax(axis=1), few[:10])


def test_with_five_labels_the_effect_must_be_seen():
    alone, shared = (dz.methods["consensus"]().fit(panel(loading, 400, 5)) for loading in (0.0, 2.5))
    assert alone.weights_ == {"dawid-skene": 1.0}
    assert alone.dependence_ == by_power(5)
    assert list(shared.weights_) == ["hierarchical-dawid-skene", "item-effect"]
    assert shared.dependence_ < alone.dependence_


def test_few_labels_leave_dawid_skene_and_few_items_or_a_large_table_leave_the_ease_of_items_out(monkeypatch):
    few = dz.methods["consensus"]().fit(panel(2.5, n_annotators=4))
    assert few.weights_ == {"dawid-skene": 1.0}
    monkeypatch.setattr(pooling, "MAX_EFFECT_COST", 1000)
    for table in (panel(2.5, n_items=60), panel(2.5)):
        model = dz.methods["consensus"]().fit(table)
        assert model.weights_ == {"hierarchical-dawid-skene": 1.0}
        assert model.dependence_ == by_power(12)
        alone = dz.methods["hierarchical-dawid-skene"](dependence=model.dependence_).fit(table)
        np.testing.assert_allclose(model.posterior_, alone.posterior_, atol=1e-9)
        np.testing.assert_allclose(model.predict_proba(table), alone.posterior_, atol=1e-9)


def test_without_gold_labels_are_worth_a_power_of_their_number():
    for n in (2, 3, 4):
        table = simulate(200, 20, 2, redundancy=n, seed=1).annotations
        model = dz.methods["consensus"]().fit(table)
        assert model.dependence_ == by_power(n)
        assert model.mean_effective_labels().value == pytest.approx(n ** (1 - pooling.DESIGN_EFFECT_POWER))
    assert dz.methods["consensus"]().fit(table.subsample(1)).dependence_ == pooling.DESIGN_EFFECT_POWER
    twice = dz.Annotations.from_arrays(
        table.items[table.item], table.annotators[table.annotator], table.classes[table.label],
        weight=np.full(len(table), 0.5),
    )  # fmt: skip
    assert dz.methods["consensus"]().fit(twice).dependence_ == by_power(2)  # four labels that count half


def test_labels_that_are_all_copies_are_no_panel(monkeypatch):
    monkeypatch.setattr(
        "dissensus.models.methods.consensus.copy_groups", lambda table: np.zeros(table.n_annotators, np.int64)
    )
    model = dz.methods["consensus"]().fit(panel(2.5))
    assert model.item_total_.max() == pytest.approx(1)
    assert model.weights_ == {"dawid-skene": 1.0}


def test_judges_who_err_in_families_are_not_taken_for_hard_items():
    rng = np.random.default_rng(1)
    good, family = rng.random(800) < 0.55, np.array([0, 0, 0, 0, 1, 1, 1, 2, 2, 2])
    luck = np.where(rng.random((800, 10)) < 0.6, rng.random((800, 3))[:, family], rng.random((800, 10)))
    said = np.where(luck < np.where(good, 0.33, 0.12)[:, None], ~good[:, None], good[:, None])
    table = dz.Annotations.from_matrix(said.astype(int))
    right = {
        name: (dz.methods[name]().fit(table).posterior_.argmax(axis=1) == good).mean()
        for name in ("consensus", "hierarchical-dawid-skene", "item-effect")
    }
    assert right["item-effect"] < right["hierarchical-dawid-skene"] - 0.1  # what the effect makes of families
    assert right["consensus"] == right["hierarchical-dawid-skene"]


def test_a_large_table_is_looked_at_by_some_of_its_items_first(monkeypatch):
    monkeypatch.setattr(pooling, "MAX_SAMPLE_ROWS", 500)
    looked, fit = [], pooling.ItemEffect.fit
    monkeypatch.setattr(
        pooling.ItemEffect, "fit", lambda self, table, **more: looked.append(len(table)) or fit(self, table, **more)
    )
    assert dz.methods["consensus"]().fit(panel(0.0, 400, 5)).weights_ == {"dawid-skene": 1.0}
    assert looked == [500]
    assert dz.methods["consensus"]().fit(panel(2.5, 400, 5)).weights_.keys() > {"item-effect"}
    assert looked == [500, 500, 2000]
