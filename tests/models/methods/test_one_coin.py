"""One coin: the fused pass against literal loops, EM's climb, and what the uniform class prior is for."""

import numpy as np
import pytest

from dissensus import Annotations, methods
from dissensus.compute.kernels import one_coin as kernels
from dissensus.exceptions import BadParameter
from dissensus.models.em import e_step
from dissensus.models.methods.one_coin import CoinPass, Coins, OneCoin
from dissensus.table.simulate import simulate
from tables import KINDS, placed, random_table, shares_of, some_gold, with_extremes

CLASS_PRIORS = ["uniform", "learned"]


def random_params(seed: int, table: Annotations, sharp: float = 1.0) -> Coins:
    rng = np.random.default_rng(seed)
    coin = rng.dirichlet([2 / sharp, 1 / sharp], table.n_annotators) + 1e-12
    return Coins(rng.dirichlet(np.ones(table.n_classes)), coin / coin.sum(axis=1, keepdims=True))


def literal_pass(table: Annotations, params: Coins, gold=None):
    """The equations of the module docstring as plain loops over rows and classes, in logs."""
    I, A, K = table.n_items, table.n_annotators, table.n_classes
    posterior, hits, total, evidence = np.zeros((I, K)), np.zeros(A), np.zeros(A), 0.0
    for i in range(I):
        log_joint = np.log(params.prior)
        for row in np.flatnonzero(table.item == i):
            right, wrong = params.coin[table.annotator[row]]
            for c in range(K):
                for y in range(K):
                    log_joint[c] += shares_of(table, row)[y] * np.log(right if y == c else wrong / (K - 1))
        if gold is not None and gold[i] >= 0:
            log_joint = np.where(np.arange(K) == gold[i], log_joint, -np.inf)
        evidence += np.logaddexp.reduce(log_joint)
        posterior[i] = np.exp(log_joint - np.logaddexp.reduce(log_joint))
        for row in np.flatnonzero(table.item == i):
            hits[table.annotator[row]] += shares_of(table, row) @ posterior[i]
            total[table.annotator[row]] += shares_of(table, row).sum()
    return posterior, hits, total, evidence


@pytest.mark.parametrize("sharp", [1.0, 30.0])  # with sharp coins item 0 is too long for a product
@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("with_gold", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_fused_pass_equals_the_literal_loops(kind, with_gold, threads, sharp):
    table = random_table(1, **KINDS[kind])
    params = random_params(2, table, sharp)
    gold = some_gold(table) if with_gold else None
    posterior, hits, total, evidence = literal_pass(table, params, gold)
    out = np.full_like(posterior, np.nan)
    with placed(table, gold, threads) as engine:
        sums = engine.sweep(CoinPass(), params, {"posterior": out})
    np.testing.assert_allclose(sums.evidence + total @ params.log_wrong(), evidence, rtol=1e-12)
    np.testing.assert_allclose(out, posterior, atol=1e-12)
    np.testing.assert_allclose(sums.hits, hits, atol=1e-11)
    np.testing.assert_allclose(sums.prior_counts, posterior.sum(axis=0), atol=1e-11)
    longest = np.diff(table.item_ptr).max()
    assert (kernels.safe_rows(params.log_ratio()) < longest) == (sharp > 1)


@pytest.mark.parametrize("class_prior", CLASS_PRIORS)
@pytest.mark.parametrize("kind", KINDS)
def test_readable_form_equals_the_literal_loops(kind, class_prior):
    table = random_table(3, **KINDS[kind])
    params = random_params(4, table)
    posterior, hits, total, evidence = literal_pass(table, params)
    model = OneCoin(right=3.0, wrong=0.5, class_prior=class_prior, class_count=2.0)
    readable, objective = e_step(model, table, params)
    penalty = sum(3.0 * np.log(p) + 0.5 * np.log(not_p) for p, not_p in params.coin)
    if class_prior == "learned":
        penalty += 2.0 * sum(np.log(params.prior))
    np.testing.assert_allclose(readable, posterior, atol=1e-12)
    np.testing.assert_allclose(objective, evidence + penalty, rtol=1e-12)
    after = model.m_step(table, posterior)
    np.testing.assert_allclose(after.coin[:, 0], (3.0 + hits) / (3.5 + total))
    np.testing.assert_allclose(after.coin[:, 1], (0.5 + total - hits) / (3.5 + total))
    votes = sum(shares_of(table, row) for row in range(len(table)))
    lean = 1 + 0.01 * votes / votes.sum()
    shares = lean / lean.sum() if class_prior == "uniform" else (2 + posterior.sum(axis=0)) / (8 + table.n_items)
    np.testing.assert_allclose(after.prior, shares)


@pytest.mark.parametrize("n_classes", [2, 33, 200])
def test_any_number_of_classes(n_classes):
    table = random_table(5, n_classes=n_classes, n=301)
    params = random_params(6, table)
    out = np.empty((table.n_items, n_classes))
    with placed(table) as engine:
        engine.sweep(CoinPass(), params, {"posterior": out})
    np.testing.assert_allclose(out, e_step(OneCoin(), table, params)[0], atol=1e-12)


def test_a_class_that_the_first_thousand_deny_is_not_lost():
    # rows stand in the order of annotators: 1000 say 0, then 2000 say 1; a running product would have lost class 1
    item, annotator = (codes.ravel() for codes in np.meshgrid(np.arange(30), np.arange(3000), indexing="ij"))
    label = np.where(item == 0, annotator >= 1000, item % 2).astype(int)
    for smoothing in (4.0, 1e-9):
        model = OneCoin(right=smoothing, wrong=smoothing).fit(Annotations.from_arrays(item, annotator, label))
        np.testing.assert_allclose(model.posterior_[0], [0, 1])
        assert np.isfinite(model.trace_).all()


def test_an_item_with_thousands_of_labels_is_scored_exactly():
    n = 6000
    table = Annotations.from_arrays(np.zeros(n, int), np.arange(n) % 11, (np.arange(n) * 7) % 3)
    params = random_params(8, table)
    out = np.empty((1, 3))
    with placed(table) as engine:
        evidence = engine.sweep(CoinPass(), params, {"posterior": out}).evidence
        evidence += engine.per_annotator @ params.log_wrong()
    model = OneCoin()
    readable, objective = e_step(model, table, params)
    np.testing.assert_allclose(out, readable, atol=1e-9)
    np.testing.assert_allclose(evidence, objective - model.log_penalty(params), rtol=1e-12)


@pytest.mark.parametrize("class_prior", CLASS_PRIORS)
@pytest.mark.parametrize("accelerate", [None, "squarem"])
@pytest.mark.parametrize("seed", range(4))
def test_trace_never_falls_and_ends_at_what_is_returned(seed, accelerate, class_prior):
    table = random_table(seed, n_items=41, n_annotators=6, n_classes=3, n=203)
    model = OneCoin(accelerate=accelerate, class_prior=class_prior, tol=1e-9, max_iter=3000).fit(table)
    assert (np.diff(model.trace_) >= -1e-9).all()
    posterior, objective = e_step(model, table, Coins(model.prior_, model.coin_))
    np.testing.assert_allclose(model.trace_[-1], objective, rtol=1e-12)
    np.testing.assert_allclose(model.posterior_, posterior, atol=1e-12)
    assert model.n_iter_ == len(model.trace_) - 1


@pytest.mark.parametrize("class_prior", CLASS_PRIORS)
def test_no_small_move_from_the_answer_is_better(class_prior):
    table = Annotations.from_arrays([0, 0, 1, 1, 2, 2, 3], [0, 1, 0, 1, 0, 1, 0], [0, 0, 1, 1, 0, 1, 1])
    model = OneCoin(class_prior=class_prior, tol=1e-13, accelerate=None, max_iter=5000).fit(table)
    best = Coins(model.prior_, model.coin_)
    top, rng = e_step(model, table, best)[1], np.random.default_rng(0)
    for _ in range(1000):
        move = rng.normal(0, 10 ** rng.uniform(-4, -1), best.to_vector().size)
        move[:2] *= class_prior == "learned"
        assert e_step(model, table, best.from_vector(best.to_vector() + move))[1] <= top + 1e-9


def test_parameters_survive_the_way_into_a_vector_and_back():
    params = random_params(3, random_table(1))
    back = params.from_vector(params.to_vector())
    np.testing.assert_allclose(back.prior, params.prior)
    np.testing.assert_allclose(back.coin, params.coin)


@pytest.mark.parametrize("with_gold", [False, True])
def test_restarts_start_apart_and_keep_gold(with_gold):
    table = random_table(7)
    gold = some_gold(table) if with_gold else None
    model = OneCoin()
    starts = [
        model.start(placed(table, gold), rng) for rng in (None, np.random.default_rng(1), np.random.default_rng(2))
    ]
    for a in range(3):
        for b in range(a):
            assert np.abs(starts[a].coin - starts[b].coin).max() > 1e-3
    shares = table.soft_labels()
    if gold is not None:
        shares[gold >= 0] = np.eye(4)[2]
    np.testing.assert_allclose(starts[0].coin, model.m_step(table, shares).coin)


def test_recovers_what_was_simulated_and_beats_majority_vote():
    rng = np.random.default_rng(1)
    I, A, K = 3000, 40, 5
    truth, accuracy = rng.choice(K, I, p=[0.4, 0.25, 0.15, 0.1, 0.1]), rng.uniform(0.2, 0.95, A)
    item, annotator = np.repeat(np.arange(I), 5), rng.integers(0, A, 5 * I)
    wrong = (truth[item] + rng.integers(1, K, item.size)) % K
    label = np.where(rng.random(item.size) < accuracy[annotator], truth[item], wrong)
    table = Annotations.from_arrays(item, annotator, label)
    for class_prior in CLASS_PRIORS:
        model = OneCoin(class_prior=class_prior).fit(table)
        vote = methods["majority-vote"]().fit(table)
        assert (model.predict() == truth).mean() > (vote.predict() == truth).mean() + 0.04
        assert np.abs(model.accuracy_ - accuracy).mean() < 0.03
        assert np.abs(model.reliability_ - accuracy).mean() < 0.03
    np.testing.assert_allclose(model.prior_, [0.4, 0.25, 0.15, 0.1, 0.1], atol=0.03)


@pytest.mark.parametrize("seed", range(5))
def test_an_oracle_is_best_and_one_who_is_always_wrong_worst(seed):
    model = OneCoin().fit(with_extremes(simulate(600, 20, 4, redundancy=5, seed=seed)))
    for score in (model.reliability_, model.accuracy_):
        assert model.annotators_[[score.argmax(), score.argmin()]].tolist() == [1000, 1001]


def test_uniform_classes_hold_where_a_learnt_prior_runs_off():
    # everyone takes class 1 for 0 more often than not: to one coin that is a world with hardly any class 1
    rng = np.random.default_rng(3)
    truth = rng.integers(0, 2, 400)
    item, annotator = np.repeat(np.arange(400), 4), rng.integers(0, 60, 1600)
    label = np.where(truth[item] == 1, rng.random(1600) < 0.4, rng.random(1600) < 0.1).astype(int)
    table = Annotations.from_arrays(item, annotator, label)
    uniform, learned = (OneCoin(class_prior=kind).fit(table) for kind in CLASS_PRIORS)
    assert learned.posterior_[:, 1].mean() < 0.1
    assert (uniform.predict() == truth).mean() > (learned.predict() == truth).mean() + 0.05


def test_gold_of_some_items_is_kept_and_helps_the_others():
    sim = simulate(400, 30, 3, redundancy=3, hardness=0.2, kinds={"ordinary": 0.5, "adversary": 0.5}, seed=2)
    gold = np.where(np.arange(400) % 2 == 0, sim.truth, -1)
    with_gold, without = OneCoin().fit(sim.annotations, gold=gold), OneCoin().fit(sim.annotations)
    np.testing.assert_array_equal(with_gold.predict()[::2], sim.truth[::2])
    right = [(model.predict()[1::2] == sim.truth[1::2]).mean() for model in (with_gold, without)]
    assert right[0] > right[1] + 0.1


def test_unseen_annotator_gets_the_population_s_coin_and_empty_item_the_prior():
    table = simulate(300, 9, 3, seed=4).annotations
    model = OneCoin(class_prior="learned").fit(table)
    new = Annotations.from_arrays([7, 8], [999, 3], [1, 2], classes=3, items=[5, 7, 8])
    scored = model.predict_proba(new)
    np.testing.assert_allclose(scored[0], model.prior_)
    hits = model.posterior_[table.item, table.label].sum()
    np.testing.assert_allclose(
        model.population_coin_, [[(hits + 4) / (len(table) + 6), (len(table) - hits + 2) / (len(table) + 6)]]
    )
    for item, (right, wrong), label in ((1, model.population_coin_[0], 1), (2, model.coin_[3], 2)):
        expected = model.prior_ * np.where(np.arange(3) == label, right, wrong / 2)
        np.testing.assert_allclose(scored[item], expected / expected.sum())


def test_confusions_are_made_of_the_coins():
    model = OneCoin().fit(random_table(9))
    assert not hasattr(OneCoin(), "confusion_")
    for a, (right, wrong) in enumerate(model.coin_):
        np.testing.assert_allclose(model.confusion_[a], np.where(np.eye(4) == 1, right, wrong / 3))


def test_reliability_equals_its_definition():
    table = random_table(9)
    model = OneCoin().fit(table)
    right = np.bincount(table.annotator, model.posterior_[table.item, table.label])
    n = model.n_annotations_
    np.testing.assert_allclose(model.reliability_, (right + 5 * right.sum() / n.sum()) / (n + 5), atol=1e-9)


def test_threads_agree():
    table = simulate(15_000, 60, 4, redundancy=5, seed=9).annotations
    one, two = OneCoin(threads=1).fit(table), OneCoin(threads=2).fit(table)
    np.testing.assert_allclose(one.posterior_, two.posterior_, atol=1e-9)


@pytest.mark.parametrize(
    ("keyword", "value"),
    [("right", 0.0), ("wrong", -1), ("class_count", 0), ("class_prior", "flat"), ("max_iter", 0), ("tol", -1.0),
     ("restarts", 0), ("threads", 0)],
)  # fmt: skip
def test_a_bad_keyword_is_named_with_its_value(keyword, value):
    with pytest.raises(BadParameter, match=rf"{keyword} must .*{value}"):
        OneCoin(**{keyword: value}).fit(random_table(1))


@pytest.mark.realdata
def test_bluebirds_does_not_run_off_to_one_class():
    from dissensus import load_dataset

    data = load_dataset("bluebirds")
    model = OneCoin().fit(data.annotations)
    assert (model.predict() == data.annotations.classes[data.gold]).mean() > 0.7  # 0.583 with a learnt prior
