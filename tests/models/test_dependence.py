"""What labels of one item are worth together, held to literal loops."""

import numpy as np
import pytest

import dissensus as dz
from dissensus.models.dependence import DEFAULT, MIN_GOLD, from_gold, sharpen, soften
from dissensus.table.simulate import simulate

SOFT = [name for name, entry in dz.methods.entries() if "dependence" in entry.value.parameter_names()]


def literal(posterior, n_labels, rho):
    """The posterior to the power of 1/d, item by item."""
    found = np.empty_like(posterior)
    for i, q in enumerate(posterior):
        found[i] = q ** (1 / (1 + max(n_labels[i] - 1, 0) * rho))
        found[i] /= found[i].sum()
    return found


@pytest.fixture
def some():
    rng = np.random.default_rng(0)
    return rng.dirichlet([0.3] * 4, 50), rng.integers(0, 12, 50).astype(float)


@pytest.mark.parametrize("rho", [0.1, 0.5, 2.0])
def test_soften_is_the_literal_loop_and_sharpen_undoes_it(some, rho):
    posterior, n = some
    soft = soften(posterior, n, rho)
    np.testing.assert_allclose(soft, literal(posterior, n, rho), atol=1e-12)
    np.testing.assert_allclose(sharpen(soft, n, rho), posterior, atol=1e-9)
    assert soften(posterior, n, 0.0) is posterior


def test_one_label_and_no_label_stay_as_they_are(some):
    posterior, _ = some
    for n in (0.0, 1.0):
        np.testing.assert_allclose(soften(posterior, np.full(50, n), 0.7), posterior, atol=1e-12)


def test_a_known_class_stays_known():
    soft = soften(np.eye(3)[:1], np.array([5.0]), 0.5)
    np.testing.assert_array_equal(soft, [[1, 0, 0]])


def test_gold_chooses_the_dependence_with_the_least_log_loss():
    rng = np.random.default_rng(1)
    n = np.full(4000, 9.0)
    honest = rng.beta(3, 1, 4000)  # P(class 0), calibrated
    gold = (rng.random(4000) > honest).astype(int)
    sure = sharpen(np.stack([honest, 1 - honest], axis=1), n, 0.25)
    assert from_gold(sure, n, gold) == pytest.approx(0.25, rel=0.25)


@pytest.mark.parametrize("name", SOFT)
def test_labels_that_share_their_items_are_less_sure_and_name_the_same_classes(name):
    table = simulate(300, 15, 3, redundancy=5, seed=2).annotations
    model = dz.methods[name]
    sure, soft = model(dependence=None).fit(table), model().fit(table)
    assert sure.dependence_ == 0
    assert soft.dependence_ > 0
    expected = literal(np.maximum(sure.posterior_, 1e-300), np.diff(table.item_ptr), soft.dependence_)
    np.testing.assert_allclose(soft.posterior_, expected, atol=1e-7)
    np.testing.assert_allclose(soft.predict_proba(table), soft.posterior_, atol=1e-6)
    np.testing.assert_allclose(soft.predict_annotations(table), sure.predict_annotations(table), atol=1e-6)
    hits = np.bincount(table.annotator, soft.posterior_[table.item, table.label], table.n_annotators)
    np.testing.assert_allclose(soft.hits_, hits, atol=1e-6)


def test_gold_of_few_items_leaves_the_default():
    crowd = simulate(300, 15, 3, redundancy=5, seed=2)
    table, truth = crowd.annotations, crowd.truth
    few, many = (np.where(np.arange(300) < n, truth, -1) for n in (MIN_GOLD - 1, 200))
    model = dz.methods["dawid-skene"]
    assert model().fit(table, gold=few).dependence_ == DEFAULT
    assert model().fit(table, gold=many).dependence_ < DEFAULT / 2  # these labels are independent given the class


def test_update_softens_by_all_labels_of_an_item():
    table = simulate(200, 10, 3, redundancy=6, seed=4).annotations
    first, more = table.select(rows=table.annotator % 2 == 0), table.select(rows=table.annotator % 2 == 1)
    soft, sure = (dz.methods["dawid-skene"](dependence=rho).fit(first).partial_fit(more) for rho in (0.5, None))
    np.testing.assert_array_equal(soft.item_total_, np.diff(table.item_ptr))
    expected = literal(np.maximum(sure.posterior_, 1e-300), soft.item_total_, 0.5)
    np.testing.assert_allclose(soft.posterior_, expected, atol=1e-6)


def test_a_dependence_that_is_none():
    with pytest.raises(dz.exceptions.BadParameter, match="dependence must be 'auto', None, or a number"):
        dz.methods["dawid-skene"](dependence=-1).fit(simulate(20, 5, 2, seed=0).annotations)


def test_any_number_of_labels_is_worth_less_than_one_over_rho():
    table = simulate(100, 40, 2, redundancy=(1, 30), seed=5).annotations
    model = dz.methods["dawid-skene"](dependence=0.5).fit(table)
    n = np.diff(table.item_ptr)
    np.testing.assert_allclose(model.effective_labels_, [k / (1 + (k - 1) * 0.5) for k in n])
    assert model.effective_labels_.max() < 2
