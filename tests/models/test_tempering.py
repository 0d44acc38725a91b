"""Tempering, verified against literal loops."""

import numpy as np
import pytest
from scipy.optimize import minimize

import dissensus as dz
from dissensus.models.gold_tempering import SHIFT_SD_GRID, fit_class_shifts, tempering_from_gold
from dissensus.models.tempering import (
    CORRELATION_INTERVAL,
    DEFAULT_CORRELATION,
    MAX_SHARE_CHANGE,
    MIN_GOLD_ITEMS,
    RARE_CLASS_FRACTION,
    SHARE_CHANGE_TOL,
    Tempering,
)
from dissensus.table.simulate import simulate

SOFT = [
    name
    for name, entry in dz.methods.entries()
    if "dependence" in entry.value.parameter_names() and "classes" in entry.value.kinds
]


SHIFT = np.array([0.4, -1.0, 0.1, 0.5])


def literal(posterior, n_labels, rho, shift=0.0, damping=0.0):
    """The posterior to the power of 1/d times e to the shift and to (1 − 1/d) of what is damping, item by item."""
    found = np.empty_like(posterior)
    for i, q in enumerate(posterior):
        d = 1 + max(n_labels[i] - 1, 0) * rho
        found[i] = q ** (1 / d) * np.exp(shift) * np.exp(damping) ** (1 - 1 / d)
        found[i] /= found[i].sum()
    return found


@pytest.fixture
def some():
    rng = np.random.default_rng(0)
    return rng.dirichlet([0.3] * 4, 50), rng.integers(0, 12, 50).astype(float)


@pytest.mark.parametrize(("shift", "damping"), [(None, None), (SHIFT, None), (None, -SHIFT), (SHIFT, SHIFT**2)])
@pytest.mark.parametrize("rho", [0.1, 0.5, 2.0])
def test_soften_is_the_literal_loop_and_sharpen_undoes_it(some, rho, shift, damping):
    posterior, n = some
    tempering = Tempering(rho, shift=shift, damping=damping)
    soft = tempering.temper(posterior, n)
    expected = literal(posterior, n, rho, *(0.0 if one is None else one for one in (shift, damping)))
    np.testing.assert_allclose(soft, expected, atol=1e-12)
    np.testing.assert_allclose(tempering.untemper(soft, n), posterior, atol=1e-9)
    assert Tempering(0.0).temper(posterior, n) is posterior


def test_one_label_and_no_label_stay_as_they_are(some):
    posterior, _ = some
    for n in (0.0, 1.0):
        np.testing.assert_allclose(Tempering(0.7).temper(posterior, np.full(50, n)), posterior, atol=1e-12)


def test_a_known_class_stays_known():
    soft = Tempering(0.5).temper(np.eye(3)[:1], np.array([5.0]))
    np.testing.assert_array_equal(soft, [[1, 0, 0]])


def calibrated(shift, size=4000):
    """A posterior of nine independent labels and gold; with ρ = 0.25 and this shift it is calibrated."""
    rng = np.random.default_rng(1)
    n, honest = np.full(size, 9.0), rng.dirichlet([0.9, 0.5, 0.3], size)
    gold = (rng.random((size, 1)) > honest.cumsum(axis=1)[:, :2]).sum(axis=1)
    return Tempering(0.25, shift=shift).untemper(honest, n), n, gold


@pytest.mark.parametrize("shift", [None, np.array([0.7, -0.4, -0.3])])
def test_gold_chooses_dependence_and_shifts_with_the_least_log_loss(shift):
    found = tempering_from_gold(*calibrated(shift))
    assert found.dependence == pytest.approx(0.25, rel=0.13)  # a step of the candidates
    assert found.interval[0] < 0.25 < found.interval[1]
    if shift is None:
        assert found.shift is None
    else:
        np.testing.assert_allclose(found.shift - found.shift.mean(), shift, atol=0.1)


def test_shifts_are_the_ridge_estimate_with_the_greatest_evidence():
    posterior, n, gold = calibrated(np.array([0.7, -0.4, -0.3]), 60)
    soft = Tempering(0.25).temper(posterior, n)

    def log_joint(shift, sd):
        q = literal(soft, np.ones(60), 0.0, shift)
        return sum(np.log(q[i, c]) for i, c in enumerate(gold)) - shift @ shift / (2 * sd**2)

    evidence = {}
    for sd in SHIFT_SD_GRID:
        best = minimize(lambda shift, sd=sd: -log_joint(shift, sd), np.zeros(3), method="Nelder-Mead", tol=1e-9).x
        step = 1e-3 * np.eye(3)
        curved = [
            [sum(s * r * log_joint(best + s * a + r * b, sd) for s in (1, -1) for r in (1, -1)) / 4e-6 for a in step]
            for b in step
        ]
        evidence[sd] = log_joint(best, sd) - np.linalg.slogdet(-np.array(curved) * sd**2)[1] / 2, best
    most, expected = max(evidence.values(), key=lambda one: one[0])
    assert most > log_joint(np.zeros(3), 1.0)
    np.testing.assert_allclose(fit_class_shifts(soft, gold), expected, atol=1e-4)


def test_less_gold_says_less_of_the_dependence():
    widths = [np.diff(np.log(tempering_from_gold(*calibrated(None, size)).interval))[0] for size in (40, 400, 4000)]
    assert widths[0] > 1.5 * widths[1] > 2 * widths[2] > 0


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
    few, many = (np.where(np.arange(300) < n, truth, -1) for n in (MIN_GOLD_ITEMS - 1, 200))
    model = dz.methods["dawid-skene"]
    assert model().fit(table, gold=few).dependence_ == DEFAULT_CORRELATION
    assert (
        model().fit(table, gold=many).dependence_ < DEFAULT_CORRELATION / 2
    )  # these labels are independent given the class


@pytest.mark.parametrize("name", ["dawid-skene", "glad"])  # softened by the last pass, and after the fit
def test_shifts_are_in_every_answer_about_classes_and_in_none_about_labels(name):
    crowd = simulate(400, 15, 3, redundancy=5, seed=2)
    table, gold = crowd.annotations, np.where(crowd.truth == 2, 1, crowd.truth)  # class 2 is never right
    known = np.where(np.arange(400) < 200, gold, -1)
    model = dz.methods[name]().fit(table, gold=known)
    assert model.shift_.argmin() == 2
    told = dz.methods[name](dependence=None).fit(table, gold=known)
    n = np.diff(table.item_ptr)
    expected = literal(np.maximum(told.posterior_, 1e-300), n, model.dependence_, model.shift_)
    np.testing.assert_allclose(model.posterior_, expected, atol=1e-6)
    for answer in ("untempered_posterior", "likelihoods"):
        one, other = (getattr(each, answer)() for each in (model, told))
        np.testing.assert_allclose(getattr(one, "belief", one), getattr(other, "belief", other), atol=1e-5)
    np.testing.assert_allclose(model.predict_annotations(table), told.predict_annotations(table), atol=1e-5)
    fresh = dz.Annotations.from_arrays([900] * 3 + [901], [0, 1, 2, 99], [1, 2, 2, 2], classes=table.classes)
    scored = literal(told.predict_proba(fresh), [3, 1], model.dependence_, model.shift_)
    np.testing.assert_allclose(model.predict_proba(fresh), scored, atol=1e-6)
    if name == "dawid-skene":
        before, after = (each.partial_fit(fresh).posterior_[-2:] for each in (told, model))
        np.testing.assert_allclose(after, literal(before, [3, 1], model.dependence_, model.shift_), atol=1e-6)


def test_update_softens_by_all_labels_of_an_item():
    table = simulate(200, 10, 3, redundancy=6, seed=4).annotations
    first, more = table.select(rows=table.annotator % 2 == 0), table.select(rows=table.annotator % 2 == 1)
    soft, sure = (dz.methods["dawid-skene"](dependence=rho).fit(first).partial_fit(more) for rho in (0.5, None))
    np.testing.assert_array_equal(soft.item_total_, np.diff(table.item_ptr))
    expected = literal(np.maximum(sure.posterior_, 1e-300), soft.item_total_, 0.5)
    np.testing.assert_allclose(soft.posterior_, expected, atol=1e-6)


def test_a_dependence_that_is_none():
    with pytest.raises(dz.exceptions.BadParameter):
        dz.methods["dawid-skene"](dependence=-1).fit(simulate(20, 5, 2, seed=0).annotations)


def test_any_number_of_labels_is_worth_less_than_one_over_rho():
    table = simulate(100, 40, 2, redundancy=(1, 30), seed=5).annotations
    model = dz.methods["dawid-skene"](dependence=0.5).fit(table)
    n = np.diff(table.item_ptr)
    np.testing.assert_allclose(model.effective_labels_, [k / (1 + (k - 1) * 0.5) for k in n])
    assert model.effective_labels_.max() < 2


@pytest.mark.parametrize("dependence", ["auto", 0.3, None])
def test_labels_count_as_the_mean_of_the_items(dependence):
    table = simulate(100, 40, 2, redundancy=(1, 30), seed=5).annotations
    rhos = {"auto": (DEFAULT_CORRELATION, *CORRELATION_INTERVAL), 0.3: (0.3, 0.3, 0.3)}.get(dependence)
    worth = dz.methods["dawid-skene"](dependence=dependence).fit(table).mean_effective_labels()
    if rhos is None:
        assert worth is None
        return
    value, high, low = (np.mean([k / (1 + (k - 1) * rho) for k in np.diff(table.item_ptr)]) for rho in rhos)
    assert [worth.value, worth.low, worth.high] == pytest.approx([value, low, high])
    assert worth.labels == len(table) / 100
    assert (worth.low == worth.high) == (dependence == 0.3)


def rare_classes():
    """A table as of tokens, most of which are nothing: annotators miss half of the rest, and every item has six."""
    rng = np.random.default_rng(0)
    truth = rng.choice(8, 1500, p=[0.86, *[0.02] * 7])
    seen = np.where(rng.random((1500, 6)) < 0.5, truth[:, None], 0)
    slips = rng.random(seen.shape) < 0.02
    label = np.where(slips, rng.integers(0, 8, seen.shape), seen)
    item, who = np.divmod(np.arange(label.size), 6)
    return dz.Annotations.from_arrays(item, who + 6 * rng.integers(0, 2, item.size), label.ravel()), truth


def test_rare_classes_do_not_take_the_items_of_a_large_one():
    table, truth = rare_classes()
    free = dz.methods["dawid-skene"](dependence=DEFAULT_CORRELATION).fit(table)
    model = dz.methods["dawid-skene"]().fit(table)
    shares = model.untempered_posterior().mean(axis=0)

    def moved(fit):
        return np.abs(fit.posterior_.mean(axis=0) - shares).sum() / 2

    assert free.damping_ is None
    assert moved(free) > MAX_SHARE_CHANGE + SHARE_CHANGE_TOL
    assert moved(model) == pytest.approx(MAX_SHARE_CHANGE, abs=SHARE_CHANGE_TOL)
    away = np.log(model.prior_ / model.prior_.max())
    rare = np.log(np.minimum(model.prior_ * model.prior_.size / RARE_CLASS_FRACTION, 1))
    beta = (model.damping_[away < 0] / away[away < 0]).min()
    np.testing.assert_allclose(model.damping_, np.minimum(rare, beta * away), atol=1e-9)
    np.testing.assert_allclose(model.untempered_posterior(), free.untempered_posterior(), atol=1e-6)
    np.testing.assert_allclose(model.predict_proba(table), model.posterior_, atol=1e-9)
    right = np.arange(truth.size), truth
    assert np.log(model.posterior_[right]).mean() > np.log(free.posterior_[right]).mean()
    known = np.where(np.arange(truth.size) < 40, truth, -1)
    assert dz.methods["dawid-skene"]().fit(table, gold=known).damping_ is None  # gold says what the shares are
