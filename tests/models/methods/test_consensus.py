"""Consensus is Dawid-Skene where copies count once."""

import numpy as np
import pytest

import dissensus as dz
from dissensus.models.dependence import DEFAULT
from dissensus.models.methods import consensus
from dissensus.models.methods.consensus import counted_once
from dissensus.table.simulate import simulate


@pytest.fixture(scope="module")
def digits():
    return dz.load_dataset("digits-crowd")


def test_without_copies_it_is_dawid_skene():
    table = simulate(300, 12, 3, seed=1).annotations
    ours, theirs = (dz.methods[name](dependence=0.6).fit(table) for name in ("consensus", "dawid-skene"))
    assert (ours.copy_group_ == -1).all()
    np.testing.assert_allclose(ours.posterior_, theirs.posterior_, atol=1e-12)


def test_members_of_a_group_share_one_label_of_an_item():
    table = simulate(40, 6, 2, redundancy=4, seed=0).annotations
    group = np.array([0, -1, 0, 1, 1, 0])
    counted = counted_once(table, group)
    for row in range(len(table)):
        mine = group[table.annotator[row]]
        same = (table.item == table.item[row]) & (group[table.annotator] == mine)
        assert counted.weight[row] == pytest.approx(1.0 if mine < 0 else 1 / same.sum())
    assert counted_once(table, np.full(6, -1)) is table


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


def test_a_panel_has_the_answers_of_item_effect_softened_by_its_labels():
    table = panel(2.5)
    ours = dz.methods["consensus"]().fit(table)
    rho = (12**consensus.PANEL_POWER - 1) / 11
    assert ours.dependence_ == pytest.approx(rho)
    effect = dz.methods["item-effect"](dependence=rho).fit(table)
    np.testing.assert_allclose(ours.posterior_, effect.posterior_, atol=1e-12)
    np.testing.assert_allclose(ours.predict_proba(table), ours.posterior_, atol=1e-9)
    assert ours.weights_ == {"item-effect": 1.0}
    assert "how easy an item is" in ours.chosen_
    plain = np.stack([(table.label == k)[:, None] * effect._independent()[table.item] for k in range(2)], axis=2)
    counts = np.zeros((12, 2, 2))
    np.add.at(counts, table.annotator, plain)  # a literal M step by what item-effect believes
    counts += ours.pseudo_
    np.testing.assert_allclose(ours.confusion_, counts / counts.sum(axis=2, keepdims=True), atol=1e-9)


def test_a_panel_is_scored_saved_and_updated_like_any_model(tmp_path):
    table = panel(2.5)
    model = dz.methods["consensus"]().fit(table)
    again = dz.load(dz.save(model, tmp_path / "model"))
    new = dz.Annotations.from_arrays([900, 900, 901], [0, 99, 3], [1, 1, 0])
    np.testing.assert_allclose(again.predict_proba(new), model.predict_proba(new), atol=1e-12)
    model.partial_fit(new)
    assert model.theta_.shape == (13, 2, 2)
    np.testing.assert_array_equal(model.theta_[12], model.population_theta_)
    assert model.predict_proba(new).shape == (2, 2)
    assert model.fit(simulate(300, 12, 3, seed=1).annotations).theta_ is None  # nothing of the panel is left


def test_gold_says_more_than_the_number_of_labels():
    table = panel(2.5)
    gold = np.where(np.arange(250) < 60, panel_truth(250), -1)
    assert dz.methods["consensus"]().fit(table, gold=gold).dependence_ != pytest.approx((12**0.57 - 1) / 11)
    few = np.where(np.arange(250) < 10, panel_truth(250), -1)
    model = dz.methods["consensus"]().fit(table, gold=few)
    assert model.dependence_ == pytest.approx((12**consensus.PANEL_POWER - 1) / 11)
    np.testing.assert_array_equal(model.posterior_[:10].argmax(axis=1), few[:10])


def test_with_five_labels_the_effect_must_be_seen():
    alone, shared = (dz.methods["consensus"]().fit(panel(loading, 400, 5)) for loading in (0.0, 2.5))
    assert alone.weights_ == {"dawid-skene": 1.0}
    assert alone.dependence_ == DEFAULT
    assert shared.weights_ == {"item-effect": 1.0}
    assert shared.dependence_ < DEFAULT


def test_few_labels_or_items_or_a_large_table_leave_dawid_skene(monkeypatch):
    for table in (panel(2.5, n_annotators=4), panel(2.5, n_items=60)):
        assert dz.methods["consensus"]().fit(table).dependence_ == DEFAULT
    monkeypatch.setattr(consensus, "MAX_COST", 1000)
    assert dz.methods["consensus"]().fit(panel(2.5)).weights_ == {"dawid-skene": 1.0}


def test_judges_who_err_in_families_are_left_to_dawid_skene():
    rng = np.random.default_rng(1)
    good, family = rng.random(800) < 0.55, np.array([0, 0, 0, 0, 1, 1, 1, 2, 2, 2])
    luck = np.where(rng.random((800, 10)) < 0.6, rng.random((800, 3))[:, family], rng.random((800, 10)))
    said = np.where(luck < np.where(good, 0.33, 0.12)[:, None], ~good[:, None], good[:, None])
    table = dz.Annotations.from_matrix(said.astype(int))
    right = {
        name: (dz.methods[name]().fit(table).posterior_.argmax(axis=1) == good).mean()
        for name in ("consensus", "dawid-skene", "item-effect")
    }
    assert right["item-effect"] < right["dawid-skene"] - 0.1  # what the effect makes of families
    assert right["consensus"] == right["dawid-skene"]


def test_a_large_table_is_looked_at_by_some_of_its_items_first(monkeypatch):
    monkeypatch.setattr(consensus, "MAX_LOOK_ROWS", 500)
    looked, fit = [], consensus.ItemEffect.fit
    monkeypatch.setattr(
        consensus.ItemEffect, "fit", lambda self, table, **more: looked.append(len(table)) or fit(self, table, **more)
    )
    assert dz.methods["consensus"]().fit(panel(0.0, 400, 5)).weights_ == {"dawid-skene": 1.0}
    assert looked == [500]
    assert dz.methods["consensus"]().fit(panel(2.5, 400, 5)).weights_ == {"item-effect": 1.0}
    assert looked == [500, 500, 2000]
