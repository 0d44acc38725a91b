"""Minimax conditional entropy: the fused pass against loops and SciPy, the run_em, and what an item's effect is for."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import log_softmax, softmax

from dissensus import Annotations, methods
from dissensus.compute.engines.local import Threads
from dissensus.compute.kernels import mmce as kernels
from dissensus.compute.rows import expand_rows
from dissensus.models.matrices import default_pseudo_counts
from dissensus.models.methods.mmce import MAX_ROW_WEIGHT, MMCE, FusedPass, MMCEParams, unknown_annotator_effect
from dissensus.table.simulate import simulate
from models.family import readable_pass
from tables import KINDS, random_table, shares_of, some_gold

BETA = 0.8


def random_params(seed: int, table: Annotations, size: float = 1.0) -> MMCEParams:
    rng = np.random.default_rng(seed)
    I, A, K = table.n_items, table.n_annotators, table.n_classes
    effect = rng.normal(0, size, (A, K, K)) + size * np.eye(K)
    return MMCEParams(
        np.array([0.3]), rng.dirichlet(np.ones(K)), np.full(K, 1 / K), effect, rng.dirichlet(np.ones(K) / 2, I)
    )


def literal_posterior(table: Annotations, sigma, tau, prior, gold=None):
    """Posterior, log evidence and the labels seen and expected, as loops over rows, classes and labels."""
    I, A, K = table.n_items, table.n_annotators, table.n_classes
    posterior, evidence, seen, expected = np.zeros((I, K)), 0.0, np.zeros((A, K, K)), np.zeros((A, K, K))
    for i in range(I):
        log_joint = np.log(prior)
        for row in np.flatnonzero(table.item == i):
            for k in range(K):
                logits = sigma[table.annotator[row], k] + tau[i, k]
                for y in range(K):
                    log_joint[k] += shares_of(table, row)[y] * (logits[y] - np.logaddexp.reduce(logits))
        if gold is not None and gold[i] >= 0:
            log_joint = np.where(np.arange(K) == gold[i], log_joint, -np.inf)
        evidence += np.logaddexp.reduce(log_joint)
        posterior[i] = np.exp(log_joint - np.logaddexp.reduce(log_joint))
        for row in np.flatnonzero(table.item == i):
            a, shares = table.annotator[row], shares_of(table, row)
            for k in range(K):
                seen[a, k] += posterior[i, k] * shares
                expected[a, k] += posterior[i, k] * shares.sum() * softmax(sigma[a, k] + tau[i, k])
    return posterior, evidence, seen, expected


def best_tau(table: Annotations, sigma, belief, beta: float):
    """τ (I, K, K) by SciPy: the top of Σ_j q(k) log P(y_ij | k) − β/2 |τ|² of every item and class."""
    K = table.n_classes
    tau = np.zeros((table.n_items, K, K))
    for i, k in np.ndindex(table.n_items, K):
        rows = np.flatnonzero(table.item == i)

        def loss(x, rows=rows, q=belief[i, k], k=k):
            total, slope = beta / 2 * (x @ x), beta * x
            for row in rows:
                shares, logits = shares_of(table, row), sigma[table.annotator[row], k] + x
                total -= q * (shares @ log_softmax(logits))
                slope = slope + q * (shares.sum() * softmax(logits) - shares)
            return total, slope

        tau[i, k] = minimize(loss, np.zeros(K), jac=True, tol=1e-13).x
    return tau


def pass_at(table: Annotations, params: MMCEParams, gold=None, threads: int = 1, rounds: int = 1, special=None):
    with Threads(threads) as pool:
        fused_pass = FusedPass(expand_rows(table), pool, BETA, gold, table.n_items if special is None else special)
        return fused_pass(params, rounds), fused_pass


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("with_gold", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_a_pass_equals_the_literal_loops(kind, with_gold, threads):
    table = random_table(1, n_items=9, n=61, **KINDS[kind])
    params = random_params(2, table)
    gold = some_gold(table) if with_gold else None
    tau = best_tau(table, params.effect, params.posterior, BETA)
    assert np.abs(tau).max() > 0.5
    posterior, evidence, seen, expected = literal_posterior(table, params.effect, tau, params.prior, gold)
    objective, fused_pass = pass_at(table, params, gold, threads)
    np.testing.assert_allclose(objective, evidence - BETA / 2 * np.square(tau).sum(), rtol=1e-7)
    np.testing.assert_allclose(fused_pass.posterior, posterior, atol=1e-5)
    np.testing.assert_allclose(fused_pass.sums.observed, seen, atol=1e-4)
    np.testing.assert_allclose(fused_pass.sums.expected, expected, atol=1e-4)


def plain_posterior(table: Annotations, params: MMCEParams) -> np.ndarray:
    """(I, K) of items without an effect of their own."""
    return readable_pass(table, params.prior, softmax(params.effect, axis=2))[0]


def test_penalty_equals_its_definition():
    params = random_params(4, random_table(3))
    model = MMCE(gamma=0.3, centre="zero")
    np.testing.assert_allclose(model.log_prior(params), -0.3 * 16 / 2 * np.square(params.effect).sum(), rtol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_sums_of_a_pass_are_the_gradient_of_the_log_evidence(kind):
    table = random_table(5, n_items=6, n_annotators=3, n=23, **KINDS[kind])
    params = random_params(6, table)
    tau = np.random.default_rng(1).normal(0, 1, (6, 4, 4))
    _, _, seen, expected = literal_posterior(table, params.effect, tau, params.prior)
    for at in np.ndindex(3, 4, 4):
        step = np.zeros((3, 4, 4))
        step[at] = 1e-5
        above, below = (literal_posterior(table, params.effect + sign * step, tau, params.prior)[1] for sign in (1, -1))
        np.testing.assert_allclose((seen - expected)[at], (above - below) / 2e-5, atol=1e-7)


def test_items_that_stand_for_many_have_no_effect():
    table = random_table(7)
    params = random_params(8, table)
    _, fused_pass = pass_at(table, params, special=5)
    plain = plain_posterior(table, params)
    np.testing.assert_allclose(fused_pass.posterior[5:], plain[5:], atol=1e-12)
    assert np.abs(fused_pass.posterior[:5] - plain[:5]).max() > 0.01


def test_newton_never_goes_down_and_its_bound_lies_below():
    # the bound: c·d − n log Σ (m/n) e^d − ½ penalty |x + d|², which replaces a sum over rows
    rng = np.random.default_rng(0)
    for _ in range(300):
        K, n = rng.integers(1, 7), rng.integers(1, 5)
        weight, p = rng.exponential(5, n), rng.dirichlet(np.ones(K) / 3, n)
        seen = rng.dirichlet(np.ones(K)) * weight.sum()
        x, penalty = rng.normal(0, 3, K), 10 ** rng.uniform(-3, 2)
        step = np.empty(K)
        size = kernels._newton_step(1.0, seen, weight @ p, penalty, x, step)
        np.testing.assert_allclose(size, np.abs(step).max(), atol=1e-15)

        def truth(d, weight=weight, p=p, seen=seen, penalty=penalty, x=x):
            return seen @ d - weight @ np.log(p @ np.exp(d)) - penalty / 2 * np.square(x + d).sum()

        def bound(d, weight=weight, p=p, seen=seen, penalty=penalty, x=x):
            total = weight.sum()
            return seen @ d - total * np.log((weight @ p) / total @ np.exp(d)) - penalty / 2 * np.square(x + d).sum()

        assert truth(0 * x) == pytest.approx(bound(0 * x))
        assert bound(step) >= bound(0 * x) - 1e-12
        assert truth(step) >= bound(step) - 1e-9
        if size > 1e-3:
            assert bound(step) > bound(0 * x)


def test_sigma_of_an_m_step_is_where_the_bound_is_highest():
    rng = np.random.default_rng(1)
    A, K, alpha = 3, 4, 0.6
    effect, seen, centre = rng.normal(0, 1, (A, K, K)), rng.exponential(3, (A, K, K)), rng.normal(0, 1, (K, K))
    seen[1, 2] = 0
    shares = rng.dirichlet(np.ones(K), (A, K))
    expected = shares * seen.sum(axis=2, keepdims=True)
    after = kernels.m_step(effect, seen, expected, alpha, centre)
    moved = shares * np.exp(after - effect)
    moved *= seen.sum(axis=2, keepdims=True) / moved.sum(axis=2, keepdims=True)
    np.testing.assert_allclose(seen - moved, alpha * (after - centre), atol=1e-9)
    np.testing.assert_array_equal(after[1, 2], centre[2])


@pytest.mark.parametrize("centre", ["crowd", "zero"])
def test_penalty_is_the_least_over_what_annotators_have_in_common(centre):
    params = random_params(1, random_table(1))
    model = MMCE(gamma=0.3, centre=centre, prior_annotators=3.0)
    sigma, expected = params.effect, np.log(default_pseudo_counts(4))
    expected -= expected.mean(axis=1, keepdims=True)

    def penalty(middle):
        middle = middle.reshape(4, 4)
        total = sum(np.square(one - middle).sum() for one in sigma)
        return 0.3 * 16 / 2 * (total + 3 * np.square(middle - expected).sum() * (centre == "crowd"))

    least = minimize(penalty, np.zeros(16)).fun if centre == "crowd" else penalty(np.zeros(16))
    np.testing.assert_allclose(model.log_prior(params), -least, rtol=1e-9)


@pytest.mark.parametrize("centre", ["crowd", "zero"])
def test_one_pass_from_anywhere_raises_the_objective(centre):
    table = random_table(8)
    model = MMCE(centre=centre)
    for seed in range(100):
        params = random_params(seed, table, size=1 + seed % 4)
        before, fused_pass = pass_at(table, params)
        after = replace(
            params, effect=model._step_effect(params.effect, fused_pass.sums), posterior=fused_pass.posterior
        )
        gain = pass_at(table, after)[0] + model.log_prior(after) - before - model.log_prior(params)
        assert gain > 0


@pytest.mark.parametrize("accelerate", [None, "squarem"])
@pytest.mark.parametrize("class_prior", ["votes", "learned"])
@pytest.mark.parametrize("centre", ["crowd", "zero"])
@pytest.mark.parametrize("kind", KINDS)
def test_trace_never_falls(kind, centre, class_prior, accelerate):
    for seed in range(4):
        table = random_table(seed, n_items=41, n_annotators=6, n=203, **KINDS[kind])
        keywords = {"accelerate": accelerate, "centre": centre, "class_prior": class_prior}
        model = MMCE(tol=1e-9, max_iter=5000, **keywords).fit(table)
        assert (np.diff(model.trace_) >= -1e-9 * np.abs(model.trace_[1:])).all()
        assert model.n_iter_ == len(model.trace_) - 1


@pytest.mark.parametrize(("centre", "with_gold"), [("crowd", False), ("crowd", True), ("zero", False)])
@pytest.mark.parametrize("kind", KINDS)
def test_scipy_finds_nothing_better_near_the_answer(kind, centre, with_gold):
    table = random_table(9, n_items=7, n_annotators=4, n=41, **KINDS[kind])
    gold = some_gold(table) if with_gold else None
    model = MMCE(gamma=0.1, centre=centre, dependence=None, tol=1e-14, max_iter=5000).fit(table, gold=gold)
    alpha, beta, sigma = model.annotator_penalty(4), model.item_penalty(table, 7), model.annotator_effect_
    belief = model.posterior_
    for _ in range(3):  # of the rounds of q and τ; those of the fit ended where the next one changes little
        tau = best_tau(table, sigma, belief, beta)
        belief = literal_posterior(table, sigma, tau, model.prior_, gold)[0]
    np.testing.assert_allclose(model.posterior_, belief, atol=1e-5)

    def loss(x):
        """Minus the objective, and its gradient, over σ and τ."""
        s, t = x[: sigma.size].reshape(sigma.shape), x[sigma.size :].reshape(tau.shape)
        logits = s[table.annotator] + t[table.item]
        shares = np.array([shares_of(table, row) for row in range(len(table))])
        votes = np.einsum("ny,nky->nk", shares, log_softmax(logits, axis=2))
        joint = np.log(model.prior_) + np.stack([votes[table.item == i].sum(axis=0) for i in range(7)])
        if gold is not None:
            joint = np.where((gold[:, None] >= 0) & (np.arange(4) != gold[:, None]), -np.inf, joint)
        evidence = np.logaddexp.reduce(joint, axis=1)
        q = np.exp(joint - evidence[:, None])[table.item][:, :, None]
        pull = q * (shares[:, None, :] - shares.sum(axis=1)[:, None, None] * softmax(logits, axis=2))
        known, expected = (5, unknown_annotator_effect(4)) if centre == "crowd" else (0, 0)
        middle = (s.sum(axis=0) + known * expected) / (4 + known) if known else np.zeros((4, 4))
        by_sigma, by_tau = -alpha * (s - middle), -beta * t
        np.add.at(by_sigma, table.annotator, pull)
        np.add.at(by_tau, table.item, pull)
        objective = evidence.sum() - alpha / 2 * np.square(s - middle).sum() - beta / 2 * np.square(t).sum()
        objective -= known * alpha / 2 * np.square(middle - expected).sum()
        return -objective, -np.concatenate([by_sigma.ravel(), by_tau.ravel()])

    answer = np.concatenate([sigma.ravel(), tau.ravel()])
    found, slope = loss(answer)
    np.testing.assert_allclose(-found, model.trace_[-1], rtol=1e-9)
    np.testing.assert_allclose(slope, 0, atol=1e-3)
    rng = np.random.default_rng(0)
    for _ in range(3):
        near = minimize(loss, answer + rng.normal(0, 0.02, answer.size), jac=True, method="L-BFGS-B", tol=1e-12)
        assert near.fun >= found - 1e-6


def from_the_model(seed: int, n_items: int, n_annotators: int, redundancy: int):
    """A table drawn from the model with three classes, its truth, σ and τ."""
    rng = np.random.default_rng(seed)
    K = 3
    truth, sigma = rng.integers(0, K, n_items), rng.normal(0, 0.5, (n_annotators, K, K)) + 1.5 * np.eye(K)
    tau = rng.normal(0, 1.0, (n_items, K, K))
    item = np.repeat(np.arange(n_items), redundancy)
    annotator = np.concatenate([rng.permutation(n_annotators)[:redundancy] for _ in range(n_items)])
    chance = softmax(sigma[annotator, truth[item]] + tau[item, truth[item]], axis=1)
    label = (rng.random(item.size)[:, None] > np.cumsum(chance, axis=1)).sum(axis=1)
    return Annotations.from_arrays(item, annotator, label, classes=K), truth, sigma, tau


def test_effects_of_items_drawn_from_the_model_are_found():
    table, truth, sigma, tau = from_the_model(0, 300, 60, 40)
    model = MMCE().fit(table)
    found, cell = model.item_effect_, model.item_effect_cell_
    mine = cell % 3 == truth[cell // 3]
    assert mine.mean() > 0.5
    expected = tau[cell // 3, cell % 3][mine]
    expected -= expected.mean(axis=1, keepdims=True)
    assert np.corrcoef(found[mine].ravel(), expected.ravel())[0, 1] > 0.8
    centred = sigma - sigma.mean(axis=2, keepdims=True)
    assert np.corrcoef(model.annotator_effect_.ravel(), centred.ravel())[0, 1] > 0.8


def test_predicts_labels_of_confusing_items_better_than_dawid_skene():
    table, *_ = from_the_model(1, 300, 60, 20)
    hide = np.arange(len(table)) % 5 == 0
    seen, rest = table.select(rows=~hide), table.select(rows=hide)

    def surprise(model):
        return -np.log(model.fit(seen).predict_annotations(rest)[np.arange(len(rest)), rest.label]).mean()

    assert surprise(MMCE()) < surprise(methods["dawid-skene"]()) - 0.05


def test_beats_majority_vote_where_annotators_differ():
    sim = simulate(2000, 50, 4, redundancy=5, seed=3)
    model, vote = MMCE().fit(sim.annotations), methods["majority-vote"]().fit(sim.annotations)
    assert (model.predict() == sim.truth).mean() > (vote.predict() == sim.truth).mean() + 0.05


def test_a_new_item_is_judged_as_a_fitted_one_with_the_same_labels():
    table = simulate(200, 9, 3, seed=4).annotations
    model = MMCE().fit(table)
    renamed = Annotations.from_arrays(table.item + 1000, table.annotator, table.label, classes=3)
    np.testing.assert_array_equal(model.predict_proba(renamed), model.posterior_)
    plain = plain_posterior(table, MMCEParams(np.zeros(1), model.prior_, model.prior_, model.annotator_effect_, None))
    assert np.abs(model.posterior_ - plain).max() > 0.01  # because it gets an effect of its own


def test_unseen_annotator_is_like_the_population_and_empty_item_gets_the_prior():
    table = simulate(300, 9, 3, seed=4).annotations
    model = MMCE().fit(table)
    average = sum(model.n_annotations_[a] * softmax(model.annotator_effect_[a], axis=1) for a in range(9)) / len(table)
    np.testing.assert_allclose(model.population_confusion_, average)
    scored = model.predict_proba(Annotations.from_arrays([7], [999], [1], classes=3, items=[5, 7]))
    np.testing.assert_allclose(scored[0], model.prior_)
    lone = Annotations.from_arrays([0], [0], [1], classes=3)  # the same by loops: q and τ in turn
    belief = literal_posterior(lone, np.log(average)[None], np.zeros((1, 3, 3)), model.prior_)[0]
    for _ in range(30):
        tau = best_tau(lone, np.log(average)[None], belief, model.item_penalty(table, 300))
        belief = literal_posterior(lone, np.log(average)[None], tau, model.prior_)[0]
    np.testing.assert_allclose(scored[1], belief[0], atol=1e-6)


def test_labels_are_predicted_with_the_effect_of_the_item():
    table = random_table(10)
    model = MMCE().fit(table)
    tau = np.zeros((24, 4, 4))
    tau.reshape(-1, 4)[model.item_effect_cell_] = model.item_effect_
    everyone = np.concatenate([softmax(model.annotator_effect_, axis=2), model.population_confusion_[None]])
    item, annotator = np.array([0, 3, 0, -1, 8]), np.array([2, 6, -1, 1, -1])
    posterior = np.concatenate([model.posterior_, model.prior_[None]])[item]
    found = model._label_probabilities(posterior, item, annotator)
    for row in range(5):
        literal = sum(
            posterior[row, k] * softmax(np.log(everyone[annotator[row], k]) + tau[item[row], k]) for k in range(4)
        )
        np.testing.assert_allclose(found[row], literal, atol=1e-6)
    assert np.abs(tau).max() > 0.1


def test_kept_effects_are_the_best_ones():
    table = random_table(11, n_items=9, n=61)
    model = MMCE(dependence=None).fit(table)
    tau = best_tau(table, model.annotator_effect_, model.posterior_, model.item_penalty(table, 9))
    cell = model.item_effect_cell_
    np.testing.assert_allclose(model.item_effect_, tau.reshape(-1, 4)[cell], atol=1e-4)
    left_out = np.setdiff1d(np.arange(36), cell)
    assert (model.posterior_.ravel()[left_out] < 1e-5).sum() + 4 * (np.diff(table.item_ptr) == 0).sum() >= left_out.size


def test_difficulty_is_how_much_likelier_an_average_annotator_is_wrong_here_than_elsewhere():
    table = random_table(12)
    model = MMCE(dependence=None).fit(table)
    tau = np.zeros((23, 4, 4))
    tau.reshape(-1, 4)[model.item_effect_cell_] = model.item_effect_
    for i in range(23):
        literal = 0.0
        for k in range(4):
            average = model.population_confusion_[k]
            literal += model.posterior_[i, k] * (average[k] - softmax(np.log(average) + tau[i, k])[k])
        np.testing.assert_allclose(model.difficulty_[i], literal, atol=1e-6)


def test_difficulty_tells_the_items_that_people_confuse():
    sim = simulate(2000, 30, 4, redundancy=20, hardness=0.2, seed=5)
    hard, easy = sim.difficulty > 0.4, sim.difficulty < 0.1
    score = MMCE().fit(sim.annotations).difficulty_
    assert (score[hard][:, None] > score[easy][None, :]).mean() > 0.9  # area under the ROC curve


def test_what_was_known_before_goes_to_the_annotators_and_not_to_an_item():
    table = random_table(13)
    before = np.full((7, 4, 4), 10.0) + 190 * np.eye(4)  # everyone was right 200 times of 230
    model = MMCE().fit(table, earlier=before)
    assert np.einsum("akk->ak", model.confusion_).min() > 0.8
    assert model.item_effect_cell_.max() < table.n_items * 4
    assert model.difficulty_.shape == (table.n_items,)


def test_penalties_are_those_of_the_paper():
    table = random_table(14)  # item 0 is one of those with labels, some others have none
    items, annotators = np.unique(table.item).size, np.unique(table.annotator).size
    per_annotator, per_item = len(table) / annotators, len(table) / items
    model = MMCE(gamma=0.25)
    assert MMCE().annotator_penalty(7) == 1
    assert model.annotator_penalty(4) == 0.25 * 4**2
    assert model.item_penalty(table, 23) == pytest.approx(model.annotator_penalty(4) * per_annotator / per_item)
    assert MMCE().annotator_penalty(2) == MMCE(gamma=0.25).annotator_penalty(2)
    assert model.item_penalty(random_table(14, n_items=3, n_annotators=40), 3) == model.annotator_penalty(
        4
    )  # more annotators than items


def test_class_shares_are_those_of_the_votes_even_or_learnt_between_the_two():
    shares = np.array([0.7, 0.15, 0.1, 0.05])
    table = simulate(3000, 60, 4, redundancy=4, prior=shares, seed=7).annotations
    votes, even, learnt = (
        MMCE(class_prior=kind, class_count=2.0, dependence=None).fit(table) for kind in ("votes", "uniform", "learned")
    )
    np.testing.assert_allclose(votes.prior_, (table.soft_labels().sum(axis=0) + 2) / 3008)
    np.testing.assert_allclose(even.prior_, np.full(4, 0.25), rtol=1e-12)
    np.testing.assert_allclose(learnt.prior_, votes.prior_, atol=1e-6)  # many items, and truly skewed
    few = table.select(items=np.arange(3000) < 40)
    assert few.soft_labels().mean(axis=0).max() > 0.4
    np.testing.assert_allclose(MMCE().fit(few).prior_, np.full(4, 0.25), atol=1e-6)


def test_learnt_evenness_has_the_largest_objective_of_all(monkeypatch):
    # annotators name class 0 too often; as they do so, neither the votes nor all alike explain the labels best
    table = simulate(2000, 60, 2, redundancy=5, prior=[0.7, 0.3], seed=1).annotations
    table = replace(table, label=np.where(np.random.default_rng(0).random(len(table)) < 0.3, 0, table.label))
    learnt = MMCE(dependence=None, tol=1e-12, max_iter=3000).fit(table)
    shares = (table.soft_labels().sum(axis=0) + 1) / (table.n_items + 2)
    even = (learnt.prior_ - shares)[0] / (0.5 - shares[0])
    assert 0.05 < even < 0.95
    start, cost = MMCE.initialise, np.log(table.n_items)
    for other in (even - 0.02, even + 0.02):
        prior = shares + other * (0.5 - shares)
        monkeypatch.setattr(MMCE, "initialise", lambda *told, at=prior: replace(start(*told), free_shares=at))
        held = MMCE(class_prior="votes", dependence=None, tol=1e-12, max_iter=3000)
        assert held.fit(table).trace_[-1] - cost * (1 - other) < learnt.trace_[-1]


def test_few_labels_of_each_annotator_are_enough_where_the_crowd_is_the_centre():
    # twenty labels from everyone, two for an item; where the centre is zero, most annotators are thought to guess
    right = {}
    for seed in range(4):
        sim = simulate(400, 40, 2, redundancy=2, skew=0, kinds={"ordinary": 1}, seed=seed)
        for model in (MMCE(), MMCE(centre="zero"), methods["majority-vote"]()):
            right.setdefault(repr(model), []).append((model.fit(sim.annotations).predict() == sim.truth).mean())
    crowd, zero, vote = (np.mean(found) for found in right.values())
    assert crowd > vote - 0.02
    assert crowd > zero + 0.05


def test_what_annotators_have_in_common_is_found_in_few_passes():
    # seven labels from everyone: one annotator after the other, drawn to where the crowd was, took a hundred
    table = simulate(200, 300, 5, redundancy=10, kinds={"expert": 1}, seed=1).annotations
    assert MMCE(accelerate=None).fit(table).n_iter_ < 40


def test_items_without_labels_change_nothing():
    table = simulate(100, 9, 3, redundancy=3, prior=[0.7, 0.2, 0.1], seed=4).annotations
    more = Annotations.from_arrays(table.item, table.annotator, table.label, classes=3, items=np.arange(400))
    np.testing.assert_allclose(MMCE().fit(more).posterior_[:100], MMCE().fit(table).posterior_, atol=1e-12)


def test_one_label_for_each_item_is_believed_as_far_as_the_crowd_is():
    sim = simulate(400, 30, 3, redundancy=1, kinds={"ordinary": 1}, seed=1)
    model = MMCE().fit(sim.annotations)
    np.testing.assert_array_equal(model.predict(), sim.annotations.label)
    np.testing.assert_allclose(
        model.crowd_effect_, (model.annotator_effect_.sum(axis=0) + 5 * unknown_annotator_effect(3)) / 35
    )
    assert not MMCE(centre="zero").fit(sim.annotations).crowd_effect_.any()


@pytest.mark.parametrize("gamma", [1e-6, 1e6])
def test_extreme_penalties_end_in_numbers(gamma):
    model = MMCE(gamma=gamma, max_iter=2000, tol=1e-6).fit(random_table(15))
    assert np.isfinite(model.posterior_).all()
    assert np.isfinite(model.trace_).all()


@pytest.mark.parametrize("weight", [2.0**14, 2.0**29])  # powers of two: divided without rounding
def test_weights_beyond_a_thousand_count_in_proportion(weight):
    table = random_table(15)
    given = np.where(np.arange(len(table)) % 3 == 0, 1.0, 0.25)
    models = [MMCE(dependence=None).fit(replace(table, weight=scale * given)) for scale in (MAX_ROW_WEIGHT, weight)]
    for key in ("posterior_", "annotator_effect_", "item_effect_"):
        np.testing.assert_allclose(*(getattr(model, key) for model in models), atol=1e-8)
    assert models[1].predict_proba(replace(table, weight=weight * given)).max() <= 1


@pytest.mark.parametrize("n_classes", [1, 2, 40])
def test_any_number_of_classes(n_classes):
    table = random_table(16, n_classes=n_classes, n=301)
    params = random_params(6, table)
    _, fused_pass = pass_at(table, params, special=0)
    np.testing.assert_allclose(fused_pass.posterior, plain_posterior(table, params), atol=1e-12)
    np.testing.assert_allclose(MMCE().fit(table).posterior_.sum(axis=1), 1)


def test_threads_agree():
    sim = simulate(10_000, 60, 4, redundancy=5, seed=9)
    one, two = MMCE(threads=1).fit(sim.annotations), MMCE(threads=2).fit(sim.annotations)
    for key in ("posterior_", "annotator_effect_", "difficulty_"):
        np.testing.assert_allclose(getattr(one, key), getattr(two, key), atol=1e-6)


@pytest.mark.parametrize("with_gold", [False, True])
def test_restarts_start_apart_and_keep_gold(with_gold):
    table = random_table(18)
    gold = some_gold(table) if with_gold else None
    model = MMCE()
    starts = [model.initialise(table, gold, rng) for rng in (None, np.random.default_rng(1), np.random.default_rng(2))]
    for a in range(3):
        for b in range(a):
            assert np.abs(starts[a].effect - starts[b].effect).max() > 0.01
        if gold is not None:
            np.testing.assert_array_equal(starts[a].posterior[gold >= 0], np.eye(4)[gold[gold >= 0]])
    shares = table.soft_labels()
    np.testing.assert_array_equal(starts[0].posterior[1], shares[1])


def test_parameters_survive_the_way_into_a_vector_and_back():
    params = random_params(3, random_table(1))
    back = params.from_vector(params.to_vector())
    np.testing.assert_allclose(back.prior, params.prior)
    np.testing.assert_array_equal(back.effect, params.effect)
    assert back.posterior is params.posterior


@pytest.mark.realdata
def test_bluebirds_beats_dawid_skene():
    from dissensus import load_dataset

    data = load_dataset("bluebirds")
    right, skene = (
        (methods[name]().fit(data.annotations).predict() == data.annotations.classes[data.gold]).mean()
        for name in ("mmce", "dawid-skene")
    )
    assert right > 0.91 > 0.89 > skene
