"""Snorkel: the factor graph by enumeration, the M step's root, and what sets the model apart from one coin."""

from itertools import product

import numpy as np
import pytest
from scipy.optimize import brentq

from dissensus import Annotations, methods
from dissensus.models.coins import Coins
from dissensus.models.exceptions import WrongClassBalance
from dissensus.models.methods.one_coin import OneCoin
from dissensus.models.methods.snorkel import Snorkel, penalised_logit
from dissensus.table.simulate import simulate
from models.family import begun, sums_by
from tables import KINDS, random_table

BALANCES = ["uniform", "learned", [0.1, 0.2, 0.3, 0.4]]


def of_weights(theta: np.ndarray, eta: np.ndarray, n_classes: int) -> tuple[np.ndarray, np.ndarray]:
    """Accuracy and propensity (A,) of the weights of the module docstring."""
    some = np.exp(eta) * (np.exp(theta) + n_classes - 1)
    return np.exp(theta) / (np.exp(theta) + n_classes - 1), some / (1 + some)


def literal_joint(theta, eta, n_classes) -> dict:
    """P(Λ, Y) of one item by enumeration of the factor graph; −1 stands for ∅."""
    weight = {}
    for labels in product(range(-1, n_classes), repeat=len(theta)):
        for y in range(n_classes):
            log = sum(t * (label == y) + e * (label >= 0) for t, e, label in zip(theta, eta, labels, strict=True))
            weight[labels, y] = np.exp(log)
    total = sum(weight.values())
    return {state: w / total for state, w in weight.items()}


@pytest.mark.parametrize("n_classes", [2, 3])
def test_the_factor_graph_is_accuracies_and_propensities(n_classes):
    theta, eta = np.array([1.3, -0.4, 2.5]), np.array([-0.7, 0.2, -3.0])
    accuracy, propensity = of_weights(theta, eta, n_classes)
    for (labels, y), p in literal_joint(theta, eta, n_classes).items():
        expected = 1 / n_classes
        for a, b, label in zip(accuracy, propensity, labels, strict=True):
            expected *= 1 - b if label < 0 else b * a if label == y else b * (1 - a) / (n_classes - 1)
        np.testing.assert_allclose(p, expected)


def test_the_posterior_is_that_of_the_factor_graph_silence_included():
    table = simulate(40, 4, 3, redundancy=2, seed=3).annotations
    model = Snorkel(dependence=None).fit(table)
    theta = np.log(model.coin_[:, 0]) - np.log(model.coin_[:, 1] / 2)
    eta = np.log(model.propensity_ / (1 - model.propensity_)) - np.log(np.exp(theta) + 2)
    np.testing.assert_allclose(of_weights(theta, eta, 3), [model.accuracy_, model.propensity_])
    joint = literal_joint(theta, eta, 3)
    for i in range(40):
        labels = [-1] * 4
        for row in np.flatnonzero(table.item == i):
            labels[table.annotator[row]] = table.label[row]
        p = np.array([joint[tuple(labels), y] for y in range(3)])
        np.testing.assert_allclose(model.posterior_[i], p / p.sum())


def whole_objective(table: Annotations, accuracy, propensity, l2, initial) -> float:
    """Log marginal likelihood of all labels and all silences, uniform classes, less the penalty: plain loops."""
    K, value = table.n_classes, 0.0
    given = {(table.item[row], table.annotator[row]): table.label[row] for row in range(len(table))}
    for i in range(table.n_items):
        p = np.full(K, 1 / K)
        for j in range(table.n_annotators):
            for c in range(K):
                label = given.get((i, j), -1)
                right = accuracy[j] if label == c else (1 - accuracy[j]) / (K - 1)
                p[c] *= 1 - propensity[j] if label < 0 else propensity[j] * right
        value += np.log(p.sum())
    logit = np.log(accuracy / (1 - accuracy)) - np.log(initial / (1 - initial))
    return value - l2 / 2 * (logit**2).sum()


def test_no_small_move_of_accuracy_or_propensity_is_better():
    table = simulate(30, 5, 3, redundancy=3, seed=1).annotations
    model = Snorkel(l2=0.5, initial_accuracy=0.6, tol=1e-13, accelerate=None, max_iter=5000).fit(table)
    top = whole_objective(table, model.accuracy_, model.propensity_, 0.5, 0.6)
    rng = np.random.default_rng(0)
    for _ in range(60):
        moved = [
            1 / (1 + (1 / p - 1) * np.exp(rng.normal(0, 10 ** rng.uniform(-3, -0.5), p.size)))
            for p in (model.accuracy_, model.propensity_)
        ]
        assert whole_objective(table, *moved, 0.5, 0.6) <= top + 1e-9
        assert whole_objective(table, moved[0], model.propensity_, 0.5, 0.6) <= top + 1e-9
        assert whole_objective(table, model.accuracy_, moved[1], 0.5, 0.6) <= top + 1e-9


@pytest.mark.parametrize("l2", [1e-9, 0.025, 3.0, 1e6])
@pytest.mark.parametrize("initial", [0.02, 0.7])
def test_the_m_step_finds_the_root(l2, initial):
    total = np.array([0, 1, 1, 3, 3, 10, 1e4, 1e4, 1e7, 0.3])
    hits = np.array([0, 0, 1, 2.5, np.nextafter(3, 4), 0.01, 9999.9, 1e4, 3e6, 0.1])
    centre = np.log(initial / (1 - initial))
    for h, n, x in zip(hits, total, penalised_logit(hits, total, centre, l2), strict=True):
        root = brentq(lambda x, h=h, n=n: h - n / (1 + np.exp(-x)) - l2 * (x - centre), -60, 60, xtol=1e-12)
        np.testing.assert_allclose(x, root, atol=1e-6)


@pytest.mark.parametrize("balance", BALANCES, ids=str)
@pytest.mark.parametrize("kind", KINDS)
def test_m_step_and_penalty_equal_their_definitions(kind, balance):
    table = random_table(3, **KINDS[kind])
    rng = np.random.default_rng(4)
    coin = rng.dirichlet([2, 1], 7)
    params = Coins(rng.dirichlet(np.ones(4)), coin)
    model = begun(Snorkel(l2=0.8, initial_accuracy=0.75, class_balance=balance, class_count=2.0), table)
    penalty = -0.4 * sum((np.log(p / q) - np.log(3)) ** 2 for p, q in coin)
    np.testing.assert_array_equal(model.class_pseudo_counts_, 2.0)
    np.testing.assert_allclose(model.log_prior(params), penalty)
    posterior = rng.dirichlet(np.ones(4), 23)
    shares = np.eye(4)[table.label] if table.proba is None else table.proba
    weight = np.ones(len(table)) if table.weight is None else table.weight
    hits = np.bincount(table.annotator, weight * (shares * posterior[table.item]).sum(axis=1))
    total = np.bincount(table.annotator, weight)
    after = model._next_params(sums_by(model, table, posterior), None)
    p, q = after.coin.T
    np.testing.assert_allclose(p + q, 1)
    np.testing.assert_allclose(hits - total * p, 0.8 * (np.log(p / q) - np.log(3)), atol=1e-9)
    if balance == "learned":
        np.testing.assert_allclose(after.prior, (2 + posterior.sum(axis=0)) / (8 + 23))
    else:
        np.testing.assert_allclose(after.prior, 0.25 if balance == "uniform" else balance)


def test_without_their_priors_this_and_one_coin_are_the_same():
    table = simulate(500, 12, 3, redundancy=5, seed=2).annotations
    coin = OneCoin(right_count=1e-9, wrong_count=1e-9, tol=1e-12, max_iter=5000).fit(table)
    snorkel = Snorkel(l2=1e-9, class_balance=coin.prior_.tolist(), tol=1e-12, max_iter=5000).fit(table)
    np.testing.assert_allclose(snorkel.posterior_, coin.posterior_, atol=1e-5)
    np.testing.assert_allclose(snorkel.accuracy_, coin.accuracy_, atol=1e-5)


def test_a_given_class_balance_is_used_and_need_not_sum_to_one():
    table = simulate(200, 9, 3, redundancy=1, seed=4).annotations
    given = Snorkel(class_balance=[6, 3, 1]).fit(table)
    np.testing.assert_allclose(given.prior_, [0.6, 0.3, 0.1])
    even = Snorkel().fit(table)
    np.testing.assert_allclose(even.prior_, 1 / 3)
    assert given.posterior_[:, 0].mean() > even.posterior_[:, 0].mean() + 0.02
    with pytest.raises(WrongClassBalance) as caught:
        Snorkel(class_balance=[0.5, 0.5]).fit(table)
    assert (caught.value.shares, caught.value.n_classes) == (2, 3)


def test_propensity_counts_items_once_and_nothing_from_before():
    table = Annotations.from_arrays(
        [0, 0, 0, 1, 2], [0, 0, 1, 0, 1], [0, 1, 0, 1, 1], items=range(4), annotators=range(3)
    )
    expected = [2 / 4, 2 / 4, 0]
    np.testing.assert_allclose(Snorkel().fit(table).propensity_, expected)
    np.testing.assert_allclose(Snorkel().fit(table, earlier=np.ones((3, 2, 2))).propensity_, expected)


def test_an_update_counts_new_items_and_shares():
    one = Annotations.from_arrays([0, 1, 2, 2], [0, 0, 0, 1], [0, 1, 1, 1], classes=2)
    two = Annotations.from_arrays([2, 3, 3, 3], [5, 0, 1, 1], [0, 0, 0, 0], classes=2)
    for balance, shares in (("uniform", [0.5, 0.5]), ([3, 1], [0.75, 0.25]), ("learned", None)):
        model = Snorkel(class_balance=balance, dependence=None).fit(one)
        before = model.propensity_
        model.partial_fit(two)
        np.testing.assert_allclose(model.propensity_, [4 / 4, 2 / 4, 1 / 4])
        np.testing.assert_allclose(before, [1, 1 / 3])  # what was handed out stays
        learned = (model.posterior_.sum(axis=0) + 1) / 6
        np.testing.assert_allclose(model.prior_, learned if shares is None else shares, atol=1e-9)
    model.partial_fit(two)  # the same again
    assert model.propensity_.max() == 1


def test_a_newcomer_has_the_initial_accuracy_and_a_strong_penalty_holds_everybody_there():
    table = Annotations.from_arrays([0, 0, 1, 1], [0, 1, 0, 1], [0, 0, 1, 1], annotators=range(3))
    model = Snorkel(initial_accuracy=0.8).fit(table)
    np.testing.assert_allclose(model.accuracy_[2], 0.8)
    assert (model.accuracy_[:2] > 0.85).all()
    np.testing.assert_allclose(Snorkel(initial_accuracy=0.8, l2=1e8).fit(table).accuracy_, 0.8, atol=1e-6)


def test_recovers_what_was_simulated_and_beats_majority_vote():
    rng = np.random.default_rng(1)
    I, A, K = 3000, 40, 5
    truth, accuracy, coverage = rng.integers(0, K, I), rng.uniform(0.2, 0.95, A), rng.uniform(0.02, 0.3, A)
    item, annotator = np.nonzero(rng.random((I, A)) < coverage)
    wrong = (truth[item] + rng.integers(1, K, item.size)) % K
    label = np.where(rng.random(item.size) < accuracy[annotator], truth[item], wrong)
    table = Annotations.from_arrays(item, annotator, label, items=range(I))
    model, vote = Snorkel().fit(table), methods["majority-vote"]().fit(table)
    assert (model.predict() == truth).mean() > (vote.predict() == truth).mean() + 0.04
    assert np.abs(model.accuracy_ - accuracy).mean() < 0.03
    assert np.abs(model.propensity_ - coverage).mean() < 0.01


def test_intervals_count_the_penalty_as_labels():
    table = simulate(200, 9, 3, seed=4).annotations
    model = Snorkel(l2=2.1, initial_accuracy=0.7).fit(table)
    np.testing.assert_allclose(model.confusion_support()[:, 0, 0], model.total_ + 10)
