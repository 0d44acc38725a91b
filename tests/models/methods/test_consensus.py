"""Consensus is Dawid-Skene where copies count once."""

import numpy as np
import pytest

import dissensus as dz
from dissensus.models.dependence import CANDIDATES, DEFAULT
from dissensus.models.methods import consensus
from dissensus.models.methods.consensus import counted_once, seen_dependence
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


def panel(loading, n_items=250, n_annotators=12):
    """Everybody labels everything; an item is easy for all or hard for all as far as `loading` says."""
    rng = np.random.default_rng(5)
    truth, ease = rng.integers(2, size=n_items), rng.standard_normal(n_items)
    right = rng.random((n_items, n_annotators)) < 1 / (1 + np.exp(-1.2 - loading * ease))[:, None]
    return dz.Annotations.from_matrix(np.where(right, truth[:, None], 1 - truth[:, None]))


def test_a_panel_that_shares_its_items_has_the_greater_dependence():
    alone, shared = seen_dependence(panel(0.0)), seen_dependence(panel(2.5))
    assert alone < DEFAULT
    assert shared > 1.3 * alone
    assert dz.methods["consensus"]().fit(panel(2.5)).dependence_ == pytest.approx(shared)


def test_seen_dependence_is_that_of_a_literal_search():
    table, n = panel(2.5), 12
    easy = dz.methods["item-effect"](dependence=None).fit(table).posterior_
    plain = dz.methods["dawid-skene"](dependence=None).fit(table).posterior_
    far = []
    for rho in CANDIDATES:
        total = 0.0
        for a, b in zip(easy, plain, strict=True):
            p = a ** (1 / (1 + (n - 1) * consensus.SEEN_DEPENDENCE))
            q = np.maximum(b, 1e-300) ** (1 / (1 + (n - 1) * rho))
            total += (p / p.sum() * (np.log(p / p.sum()) - np.log(q / q.sum()))).sum()
        far.append(total)
    weight = (n - 1) / (n + consensus.PRIOR_LABELS)
    expected = CANDIDATES[int(np.argmin(far))] ** weight * DEFAULT ** (1 - weight)
    assert seen_dependence(table) == pytest.approx(min(expected, 1.0))


def test_few_labels_or_items_leave_the_default():
    assert seen_dependence(panel(2.5, n_annotators=5)) is None
    assert seen_dependence(panel(2.5, n_items=60)) is None
    assert dz.methods["consensus"]().fit(panel(2.5, n_items=60)).dependence_ == DEFAULT
