"""One coin: its M step against loops, and what the uniform class prior is for."""

import numpy as np
import pytest

from dissensus import Annotations, methods
from dissensus.models.coins import Coins
from dissensus.models.methods.one_coin import OneCoin
from dissensus.table.simulate import simulate
from models.family import begun, sums_by
from tables import KINDS, random_table, shares_of

CLASS_PRIORS = ["uniform", "learned"]


@pytest.mark.parametrize("class_prior", CLASS_PRIORS)
@pytest.mark.parametrize("kind", KINDS)
def test_m_step_and_penalty_equal_their_definitions(kind, class_prior):
    table, rng = random_table(3, **KINDS[kind]), np.random.default_rng(4)
    posterior, coin = rng.dirichlet(np.ones(4), 23), rng.dirichlet([2, 1], 7)
    hits, total = np.zeros(7), np.zeros(7)
    for row in range(len(table)):
        hits[table.annotator[row]] += shares_of(table, row) @ posterior[table.item[row]]
        total[table.annotator[row]] += shares_of(table, row).sum()
    model = begun(OneCoin(right_count=3.0, wrong_count=0.5, class_prior=class_prior, class_count=2.0), table)
    after = model._next_params(sums_by(model, table, posterior), None)
    np.testing.assert_allclose(after.coin[:, 0], (3.0 + hits) / (3.5 + total))
    np.testing.assert_allclose(after.coin[:, 1], (0.5 + total - hits) / (3.5 + total))
    votes = sum(shares_of(table, row) for row in range(len(table)))
    lean = 1 + 0.01 * votes / votes.sum()
    shares = lean / lean.sum() if class_prior == "uniform" else (2 + posterior.sum(axis=0)) / (8 + table.n_items)
    np.testing.assert_allclose(after.prior, shares)
    np.testing.assert_array_equal(model.class_pseudo_counts_, 2.0)
    penalty = sum(3.0 * np.log(p) + 0.5 * np.log(not_p) for p, not_p in coin)
    np.testing.assert_allclose(model.log_prior(Coins(after.prior, coin)), penalty)


def test_recovers_what_was_simulated_and_beats_majority_vote():
    rng = np.random.default_rng(1)
    I, A, K = 3000, 40, 5
    truth, accuracy = rng.choice(K, I, p=[0.4, 0.25, 0.15, 0.1, 0.1]), rng.uniform(0.2, 0.95, A)
    item, annotator = np.repeat(np.arange(I), 5), rng.integers(0, A, 5 * I)
    wrong = (truth[item] + rng.integers(1, K, item.size)) % K
    label = np.where(rng.random(item.size) < accuracy[annotator], truth[item], wrong)
    table = Annotations.from_arrays(item, annotator, label)
    vote = methods["majority-vote"]().fit(table)
    for class_prior in CLASS_PRIORS:
        model = OneCoin(class_prior=class_prior, dependence=None).fit(table)
        assert (model.predict() == truth).mean() > (vote.predict() == truth).mean() + 0.04
        assert np.abs(model.accuracy_ - accuracy).mean() < 0.03
        assert np.abs(model.reliability_ - accuracy).mean() < 0.03
    np.testing.assert_allclose(model.prior_, [0.4, 0.25, 0.15, 0.1, 0.1], atol=0.03)


def test_uniform_classes_hold_where_a_learnt_prior_runs_off():
    # everyone takes class 1 for 0 more often than not: to one coin that is a world with hardly any class 1
    rng = np.random.default_rng(3)
    truth = rng.integers(0, 2, 400)
    item, annotator = np.repeat(np.arange(400), 4), rng.integers(0, 60, 1600)
    label = np.where(truth[item] == 1, rng.random(1600) < 0.4, rng.random(1600) < 0.1).astype(int)
    table = Annotations.from_arrays(item, annotator, label)
    uniform, learned = (OneCoin(class_prior=kind, dependence=None).fit(table) for kind in CLASS_PRIORS)
    assert learned.posterior_[:, 1].mean() < 0.1
    assert (uniform.predict() == truth).mean() > (learned.predict() == truth).mean() + 0.05


def test_confusions_and_their_intervals_are_made_of_the_coins():
    table = random_table(9)
    model = OneCoin(right_count=3, wrong_count=2, dependence=None).fit(table)
    assert not hasattr(OneCoin(), "confusion_")
    for a, (right, wrong) in enumerate(model.coin_):
        np.testing.assert_allclose(model.confusion_[a], np.where(np.eye(4) == 1, right, wrong / 3))
    np.testing.assert_allclose(model.confusion_support()[:, 0, 0], model.n_annotations_ + 5)
    hits = model.posterior_[table.item, table.label].sum()
    unseen = (hits + 3) / (len(table) + 5)
    np.testing.assert_allclose(model.annotator_confusions(np.array([-1]))[0].diagonal(), unseen)


@pytest.mark.realdata
def test_bluebirds_does_not_run_off_to_one_class():
    from dissensus import load_dataset

    data = load_dataset("bluebirds")
    model = OneCoin().fit(data.annotations)
    assert (model.predict() == data.annotations.classes[data.gold]).mean() > 0.7  # 0.583 with a learnt prior


@pytest.mark.parametrize("name", ["one-coin", "snorkel"])
def test_an_unseen_annotator_has_the_population_s_coin(name):
    table = simulate(60, 10, 3, redundancy=5, seed=1).annotations
    model = methods[name]().fit(table)
    right, _ = model.population_coin_[0]
    assert model.coin_[:, 0].min() < right < model.coin_[:, 0].max()
    first, second = model.predict_proba(Annotations.from_arrays([1000], [1000], [0], classes=[0, 1, 2]))[0, :2]
    odds = model.prior_[0] / model.prior_[1] * right / ((1 - right) / 2)
    assert first / second == pytest.approx(odds)
