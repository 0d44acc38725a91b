"""MeTaL: F and its slopes against loops over all pairs, exact moments recovered, what pairs of labels cannot tell."""

import dataclasses
from itertools import combinations, product

import numpy as np
import pytest

from dissensus import Annotations, methods
from dissensus.compute.engines.local import Threads
from dissensus.compute.kernels import metal as kernels
from dissensus.compute.rows import expand_rows
from dissensus.models.exceptions import WrongClassBalance
from dissensus.models.methods.metal import MeTaL, PairMoments, PriorMoments, count_gold_labels, prior_moments
from dissensus.table.simulate import simulate
from tables import KINDS, random_table, shares_of, some_gold


def pair_moments(table: Annotations, gold=None) -> dict:
    """(j, k) → C (K, K) and n of the module docstring, from loops over items and pairs of annotators."""
    A, K = table.n_annotators, table.n_classes
    C = {pair: np.zeros((K, K)) for pair in combinations(range(A), 2)}
    for i in range(table.n_items):
        if gold is not None and gold[i] >= 0:
            continue
        said = np.zeros((A, K))
        for row in np.flatnonzero(table.item == i):
            said[table.annotator[row]] += shares_of(table, row)
        if said.sum() > 0:
            for j, k in C:
                C[j, k] += np.outer(said[j], said[k]) / said.sum()
    return {pair: (counts, counts.sum()) for pair, counts in C.items() if counts.sum() > 0}


def literal_objective(table: Annotations, theta, prior, known: PriorMoments, gold=None) -> float:
    """F; `theta` (A, K, K) [annotator, given, true]."""
    value = 0.0
    for (j, k), (C, n) in pair_moments(table, gold).items():
        expected = sum(prior[c] * np.outer(theta[j, :, c], theta[k, :, c]) for c in range(prior.size))
        value += n * ((C / n - expected) ** 2).sum()
    for j, c in np.ndindex(known.strength.shape):
        value += known.strength[j, c] * ((theta[j, :, c] - known.centre[j, :, c]) ** 2).sum()
    return value


def constant(table: Annotations, gold=None) -> float:
    return sum((C**2).sum() / n for C, n in pair_moments(table, gold).values())


def random_case(table: Annotations, seed: int = 0):
    rng = np.random.default_rng(seed)
    A, K = table.n_annotators, table.n_classes
    theta, centre = (rng.dirichlet(np.ones(K), (A, K)).transpose(0, 2, 1).copy() for _ in range(2))
    return theta, rng.dirichlet(3 * np.ones(K)), PriorMoments(centre, rng.uniform(0.1, 2, (A, K)))


@pytest.mark.parametrize(("threads", "min_kernel_rows"), [(1, 0), (3, 0), (1, 10**6)])
@pytest.mark.parametrize("with_gold", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_the_objective_equals_loops_over_all_pairs(kind, with_gold, threads, min_kernel_rows, monkeypatch):
    monkeypatch.setattr("dissensus.compute.chunk.MIN_KERNEL_ROWS", min_kernel_rows)
    table = random_table(1, **KINDS[kind])
    gold = some_gold(table) if with_gold else None
    theta, prior, known = random_case(table)
    with Threads(threads) as pool:
        value = PairMoments(expand_rows(table), pool, gold, prior, known)(theta)
    np.testing.assert_allclose(value + constant(table, gold), literal_objective(table, theta, prior, known, gold))


@pytest.mark.parametrize("kind", KINDS)
def test_every_parabola_has_the_slope_of_the_objective(kind):
    table = random_table(2, n_items=9, n_annotators=5, n=40, **KINDS[kind])
    theta, prior, known = random_case(table)
    with Threads(1) as pool:
        moments = PairMoments(expand_rows(table), pool, None, prior, known)
        moments(theta)
    slope = 2 * (np.einsum("acd,ayd->ayc", moments.curvature, theta) - moments.pull)
    step = 1e-5
    for at in np.ndindex(theta.shape):
        around = []
        for side in (-step, step):
            moved = theta.copy()
            moved[at] += side
            around.append(literal_objective(table, moved, prior, known))
        np.testing.assert_allclose(slope[at], (around[1] - around[0]) / (2 * step), atol=1e-6)


def test_curvature_is_that_of_the_objective():
    table = random_table(2, n_items=9, n_annotators=5, n=40)
    theta, prior, known = random_case(table)
    with Threads(1) as pool:
        moments = PairMoments(expand_rows(table), pool, None, prior, known)
        start = moments(theta)
        H, R = moments.curvature.copy(), moments.pull.copy()
        for j in range(5):  # F along one annotator is exactly its parabola
            moved = theta.copy()
            moved[j] += np.random.default_rng(j).normal(size=(4, 4))
            parabola = [np.einsum("cd,yd,yc->", H[j], x, x) - 2 * (R[j] * x).sum() for x in (theta[j], moved[j])]
            np.testing.assert_allclose(moments(moved) - start, parabola[1] - parabola[0])


def test_projection_is_the_nearest_point_of_the_simplex():
    rng = np.random.default_rng(0)
    for K in (1, 2, 5, 30):
        for scale in (0.01, 1, 1e6):
            for _ in range(30):
                x = rng.normal(0, scale, K)
                nearest = kernels.project_to_simplex(x[None, :, None])[0, :, 0]
                np.testing.assert_allclose(nearest.sum(), 1, atol=1e-9 * max(scale, 1))
                assert (nearest >= 0).all()
                # the way back to x makes no acute angle with the way to any corner
                assert ((np.eye(K) - nearest) @ (x - nearest) <= 1e-9 * max(scale, 1)).all()
    np.testing.assert_allclose(kernels.project_to_simplex(np.zeros((2, 4, 3))), 0.25)


def parabola(theta, pull, curvature) -> float:
    return float(np.einsum("acd,ayd,ayc->", curvature, theta, theta) - 2 * (pull * theta).sum())


def some_parabolas(rng, A=4, K=3):
    root = rng.normal(size=(A, K, K)) * [1, 0.1, 0.01]  # a frequent class and two rare ones
    return root.transpose(0, 2, 1) @ root + 1e-7 * np.eye(K), rng.normal(size=(A, K, K)) * [1, 0.01, 1e-4]


def test_steps_descend_the_parabolas_and_many_reach_the_lowest_point():
    rng = np.random.default_rng(3)
    for _ in range(20):
        curvature, pull = some_parabolas(rng)
        theta = rng.dirichlet(np.ones(3), (4, 3)).transpose(0, 2, 1).copy()
        first = parabola(theta, pull, curvature)
        few, many = (kernels.descend_on_simplex(theta, pull, curvature, steps) for steps in (1, 3000))
        assert parabola(few, pull, curvature) < first
        np.testing.assert_allclose(many.sum(axis=1), 1)
        lowest = parabola(many, pull, curvature)
        assert lowest <= parabola(few, pull, curvature)
        slope = np.einsum("acd,ayd->ayc", curvature, many) - pull
        # no corner of a row's simplex lies downhill
        downhill = (slope * many).sum(axis=1) - slope.min(axis=1)
        assert (downhill * [1, 10, 100] < 1e-4).all()


def exact_table(theta: np.ndarray, prior: np.ndarray, n: float = 1e6) -> Annotations:
    """Every combination of labels of all annotators once, weighted so that all moments are the model's own.

    `theta` (A, K, K) [annotator, true, given].
    """
    A, K = theta.shape[:2]
    combinations = np.array(list(product(range(K), repeat=A)))
    p = sum(prior[c] * np.prod([theta[a, c][combinations[:, a]] for a in range(A)], axis=0) for c in range(K))
    item, annotator = np.divmod(np.arange(combinations.size), A)
    return Annotations.from_arrays(item, annotator, combinations.ravel(), weight=np.repeat(n * p, A), classes=K)


def test_two_classes_are_recovered_exactly_from_their_moments():
    rng = np.random.default_rng(5)
    for prior in ([0.5, 0.5], [0.8, 0.2]):
        right = rng.uniform(0.55, 0.95, (4, 2))
        right[0] = 0.3, 0.4  # worse than a guess
        theta = np.stack([np.stack([r, 1 - r][::step], axis=-1) for r, step in zip(right.T, (1, -1), strict=True)], 1)
        model = MeTaL(class_balance=prior, overlap=1e-6, tol=1e-15, max_iter=20_000).fit(exact_table(theta, prior))
        np.testing.assert_allclose(model.confusion_, theta, atol=1e-3)
        np.testing.assert_allclose(model.prior_, prior)


def test_where_everybody_labels_everything_it_is_snorkel_s_label_model():
    counts = [41, 7, 9, 5, 13, 2, 6, 11, 8, 6, 3, 10, 4, 9, 14, 52]  # of the 16 ways that four can label two classes
    labels = np.repeat(list(product([0, 1], repeat=4)), counts, axis=0)
    item, annotator = np.divmod(np.arange(labels.size), 4)
    table = Annotations.from_arrays(item, annotator, labels.ravel())
    model = MeTaL(class_balance="uniform", overlap=1e-9, smoothing=1e-9, margin=0, tol=1e-15, max_iter=9000).fit(table)
    # snorkel 0.10.0, LabelModel(2).fit(L, n_epochs=50_000, seed=0).get_conditional_probs(), which seed 1 gives as well;
    # its rows need not sum to one
    theirs = [
        [[0.80244, 0.19789], [0.13818, 0.86146]],
        [[0.74510, 0.25455], [0.14414, 0.85621]],
        [[0.78692, 0.21280], [0.11259, 0.88767]],
        [[0.81223, 0.18805], [0.16833, 0.83138]],
    ]
    np.testing.assert_allclose(model.confusion_, theirs, atol=1e-3)


def test_pairs_cannot_tell_three_classes_apart_from_a_rotation_of_them():
    # Θ → QΘ with Q = P^-½ R P^½, R orthogonal with R √π = √π, keeps every Θ_jᵀPΘ_k and the sums of rows
    rng = np.random.default_rng(2)
    prior = np.array([0.5, 0.3, 0.2])
    theta = 0.5 * np.eye(3) + 0.5 * rng.dirichlet(20 * np.ones(3), (4, 3))  # well inside the simplex
    axis = np.sqrt(prior)
    cross = np.array([[0, -axis[2], axis[1]], [axis[2], 0, -axis[0]], [-axis[1], axis[0], 0]])
    R = np.eye(3) + np.sin(0.2) * cross + (1 - np.cos(0.2)) * cross @ cross
    turned = np.diag(1 / axis) @ R @ np.diag(axis) @ theta
    assert np.abs(turned - theta).max() > 0.05
    assert (turned > 0).all()
    np.testing.assert_allclose(turned.sum(axis=2), 1)
    table = exact_table(theta, prior)
    nothing = PriorMoments(np.zeros((4, 3, 3)), np.zeros((4, 3)))
    with Threads(1) as pool:
        moments = PairMoments(expand_rows(table), pool, None, prior, nothing)
        truth, other = (moments(np.ascontiguousarray(x.transpose(0, 2, 1))) for x in (theta, turned))
        np.testing.assert_allclose(truth, other, rtol=1e-12)
        np.testing.assert_allclose(truth + constant(table), 0, atol=1e-6)
    # what decides is the population that everybody is pulled to; it is far better than a guess
    model = MeTaL(class_balance=prior.tolist(), tol=1e-13, max_iter=5000).fit(table)
    assert np.abs(model.confusion_ - theta).max() < 0.12


def test_pairs_cannot_tell_the_shares_of_two_classes():
    prior, other = np.array([0.5, 0.5]), np.array([0.6, 0.4])
    theta = np.array([[[0.8, 0.2], [0.3, 0.7]], [[0.7, 0.3], [0.25, 0.75]], [[0.65, 0.35], [0.2, 0.8]]])
    mean = np.einsum("c,acy->ay", prior, theta)
    spread = (theta[:, 0] - theta[:, 1]) * np.sqrt(prior[0] * prior[1] / (other[0] * other[1]))
    moved = np.stack([mean + other[1] * spread, mean - other[0] * spread], axis=1)
    assert ((moved > 0) & (moved < 1)).all()
    table = exact_table(theta, prior)
    nothing = PriorMoments(np.zeros((3, 2, 2)), np.zeros((3, 2)))
    with Threads(1) as pool:
        for shares, matrices in ((prior, theta), (other, moved)):
            value = PairMoments(expand_rows(table), pool, None, shares, nothing)(
                np.ascontiguousarray(matrices.transpose(0, 2, 1))
            )
            np.testing.assert_allclose(value + constant(table), 0, atol=1e-6)


@pytest.mark.parametrize("with_gold", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_no_small_move_from_the_answer_is_better(kind, with_gold):
    table = random_table(4, n_items=30, n_annotators=6, n=150, **KINDS[kind])
    gold = some_gold(table) if with_gold else None
    rng = np.random.default_rng(0)
    theta, prior, known = random_case(table)
    model = MeTaL(tol=1e-14, max_iter=20_000)
    with Threads(1) as pool:
        moments = PairMoments(expand_rows(table), pool, gold, prior, known)
        best = model._minimise(moments, theta, lambda step, value: None)
        lowest = moments(best)
        np.testing.assert_allclose(model.trace_[-1], -lowest, rtol=1e-12)
        assert (best >= 0).all()
        np.testing.assert_allclose(best.sum(axis=1), 1)
        for _ in range(500):
            towards = rng.dirichlet(np.ones(4), (6, 4)).transpose(0, 2, 1)
            size = 10 ** rng.uniform(-5, -1)
            assert moments((1 - size) * best + size * towards) >= lowest - 1e-8


@pytest.mark.parametrize("seed", range(6))
def test_trace_never_falls_and_the_steps_are_worth_it(seed):
    table = random_table(seed, n_items=41, n_annotators=6, n_classes=3, n=203)
    model = MeTaL(tol=1e-10, max_iter=3000).fit(table)
    assert (np.diff(model.trace_) >= 0).all()
    assert model.converged_
    assert model.n_iter_ == len(model.trace_) < 500
    assert model.trace_[-1] > model.trace_[0]


def test_a_step_that_overshoots_is_taken_back(monkeypatch):
    import dissensus.models.methods.metal as module

    table = simulate(200, 8, 3, redundancy=5, seed=1).annotations
    usual = MeTaL(tol=1e-12, max_iter=5000).fit(table)
    monkeypatch.setattr(module, "INITIAL_STEP_SHARE", 4.0)  # far beyond where the parabolas are lowest
    far = MeTaL(tol=1e-12, max_iter=5000).fit(table)
    assert (np.diff(far.trace_) >= 0).all()
    assert (np.diff(far.trace_) == 0).sum() > 3
    np.testing.assert_allclose(far.trace_[-1], usual.trace_[-1], rtol=1e-6)


def test_a_look_ahead_that_gains_nothing_is_no_reason_to_stop(monkeypatch):
    import dissensus.models.methods.metal as module

    table = simulate(200, 8, 3, redundancy=5, seed=1).annotations
    usual = MeTaL().fit(table)
    monkeypatch.setattr(module, "MOMENTUM", -1.0)  # looks where it already is
    slow = MeTaL().fit(table)
    assert slow.n_iter_ > usual.n_iter_
    np.testing.assert_allclose(slow.trace_[-1], usual.trace_[-1], rtol=1e-5)


def test_silent_items_have_no_share_in_the_balance_unless_their_class_is_known():
    table = Annotations.from_arrays([0, 0, 1, 2], [0, 1, 0, 1], [0, 0, 1, 0], weight=[1, 1, 1, 0], items=range(6))
    shares = np.array([1.0, 1.0])  # items 0 and 1; 2 has no weight, 3 to 5 no label
    np.testing.assert_allclose(MeTaL().fit(table).prior_, (shares + 1) / 4)
    gold = np.array([-1, -1, 1, 1, -1, -1])
    np.testing.assert_allclose(MeTaL(class_count=3).fit(table, gold=gold).prior_, (shares + [0, 2] + 3) / 10)


@pytest.mark.parametrize("kind", KINDS)
def test_the_posterior_is_bayes_rule_and_the_matrices_are_smoothed_as_stated(kind):
    table = random_table(6, **KINDS[kind])
    gold = some_gold(table)
    model = MeTaL(smoothing=0.9, margin=0.4, overlap=3.0, dependence=None).fit(table, gold=gold)
    for i in range(table.n_items):
        log = np.log(model.prior_)
        for row in np.flatnonzero(table.item == i):
            log = log + np.log(model.confusion_[table.annotator[row]]) @ shares_of(table, row)
        expected = np.exp(log - np.logaddexp.reduce(log)) if gold[i] < 0 else np.eye(4)[gold[i]]
        np.testing.assert_allclose(model.posterior_[i], expected, atol=1e-9)
    rows = expand_rows(table)
    counts = np.zeros((7, 4, 4))  # of gold, [annotator, given, true]
    total, votes = np.zeros(7), np.zeros((4, 4))
    shares = table.soft_labels()
    shares[gold >= 0] = np.eye(4)[2]
    for row in range(len(table)):
        i, j, said = table.item[row], table.annotator[row], shares_of(table, row)
        votes += np.outer(said, shares[i])
        if gold[i] >= 0:
            counts[j, :, gold[i]] += said
        else:
            total[j] += said.sum()
    np.testing.assert_allclose(count_gold_labels(rows, gold, 7, 4), counts, atol=1e-12)
    empty = np.bincount(table.item, minlength=23) == 0
    known_or_told = ~empty | (gold >= 0)
    prior = (shares[known_or_told].sum(axis=0) + 1) / (known_or_told.sum() + 4)
    np.testing.assert_allclose(model.prior_, prior)
    wrong = 0.9 * 2
    pseudo = np.where(np.eye(4) == 1, 0.4 + wrong / 2, wrong / 3)
    population = votes + pseudo
    N = counts.sum(axis=1)
    known = prior_moments(population, counts, prior, 3.0)
    for j, c in np.ndindex(N.shape):
        pull = 3.0 * max(prior[c], 0.5 * 2 / 4 * sum(share**2 for share in prior))
        crowd = population[:, c] / population[:, c].sum()
        np.testing.assert_allclose(known.strength[j, c], pull + prior[c] * N[j, c])
        np.testing.assert_allclose(
            known.centre[j, :, c] * known.strength[j, c], pull * crowd + prior[c] * counts[j, :, c]
        )
    with Threads(1) as pool:
        moments = PairMoments(rows, pool, gold, prior, known)
        start = counts + pseudo
        again = MeTaL(tol=1e-13, max_iter=9000)
        theta = again._minimise(moments, start / start.sum(axis=1, keepdims=True), lambda *_: None)
    model.set_params(tol=1e-13, max_iter=9000).fit(table, gold=gold)
    smoothed = (theta * (np.outer(total, prior) + N)[:, None, :] + pseudo).transpose(0, 2, 1)
    np.testing.assert_allclose(model.confusion_, smoothed / smoothed.sum(axis=2, keepdims=True), atol=1e-4)
    np.testing.assert_allclose(model.confusion_support()[:, :, 0], smoothed.sum(axis=2), rtol=1e-4)


def test_rare_classes_among_several_are_pulled_to_the_crowd_and_others_as_they_were():
    def strength(*prior):
        K = len(prior)
        return prior_moments(np.ones((K, K)), np.zeros((1, K, K)), np.array(prior), 2.0).strength[0]

    np.testing.assert_allclose(strength(0.9, 0.1), [1.8, 0.2])  # of two, pairs tell all there is to tell
    np.testing.assert_allclose(strength(0.3, 0.25, 0.25, 0.2), [0.6, 0.5, 0.5, 0.4])
    least = 0.5 * 2 / 4 * (0.9**2 + 0.06**2 + 2 * 0.02**2)
    np.testing.assert_allclose(strength(0.9, 0.06, 0.02, 0.02), [1.8, 2 * least, 2 * least, 2 * least])


@pytest.mark.parametrize("seed", range(2))
def test_matrices_of_rare_classes_are_nearer_to_the_truth_for_it(seed):
    sim = simulate(2000, 40, 9, redundancy=4, prior=np.array([0.84, *[0.02] * 8]), seed=seed)
    # 0.082 where the pull is as faint as the classes are rare
    assert np.abs(MeTaL().fit(sim.annotations).confusion_ - sim.confusion).mean() < 0.078


def test_where_every_class_is_known_the_matrices_are_counts():
    sim = simulate(300, 9, 3, seed=4)
    table = sim.annotations
    model = MeTaL(overlap=1e-9, smoothing=1e-9, margin=0).fit(table, gold=sim.truth)
    for a in range(9):
        rows = table.annotator == a
        for c in range(3):
            given = np.bincount(table.label[rows & (sim.truth[table.item] == c)], minlength=3)
            np.testing.assert_allclose(model.confusion_[a, c], given / given.sum(), atol=1e-6)


def test_whoever_shares_no_item_is_like_the_population():
    sim = simulate(200, 8, 3, redundancy=4, seed=6).annotations
    item, annotator = np.append(sim.item, 200 + np.arange(40)), np.append(sim.annotator, np.full(40, 77))
    table = Annotations.from_arrays(item, annotator, np.append(sim.label, np.zeros(40, int)))
    model = MeTaL(smoothing=1e-9, margin=0.0).fit(table)
    shares = table.soft_labels()[table.item]
    votes = np.array([np.bincount(table.label, shares[:, c], minlength=3) for c in range(3)])
    np.testing.assert_allclose(model.confusion_[-1], votes / votes.sum(axis=1, keepdims=True), atol=1e-4)


def test_recovers_what_was_simulated_and_beats_majority_vote():
    rng = np.random.default_rng(1)
    I, A, K = 4000, 25, 4
    prior = np.array([0.4, 0.3, 0.2, 0.1])
    truth = rng.choice(K, I, p=prior)
    quality = rng.uniform(0.1, 0.9, A)[:, None, None]
    theta = quality * np.eye(K) + (1 - quality) * rng.dirichlet(np.ones(K), (A, K))
    item, annotator = np.repeat(np.arange(I), 6), rng.integers(0, A, 6 * I)
    label = (rng.random(item.size)[:, None] > theta[annotator, truth[item]].cumsum(axis=1)).sum(axis=1)
    table = Annotations.from_arrays(item, annotator, label)
    model = MeTaL(class_balance=prior.tolist(), dependence=None).fit(table)
    vote = methods["majority-vote"]().fit(table)
    assert (model.predict() == truth).mean() > (vote.predict() == truth).mean() + 0.03
    assert np.abs(model.confusion_ - theta).mean() < 0.06
    assert np.abs(model.reliability_ - (prior @ np.einsum("acc->ca", theta))).mean() < 0.04


def test_shares_of_the_votes_hold_where_uniform_ones_run_off():
    rng = np.random.default_rng(3)
    truth = (rng.random(2000) < 0.1).astype(int)
    item, annotator = np.repeat(np.arange(2000), 5), rng.integers(0, 40, 10_000)
    label = np.where(rng.random(10_000) < 0.85, truth[item], 1 - truth[item])
    table = Annotations.from_arrays(item, annotator, label)
    votes, uniform = (MeTaL(class_balance=balance).fit(table) for balance in ("votes", "uniform"))
    np.testing.assert_allclose(uniform.prior_, 0.5)
    assert (votes.predict() == truth).mean() > (uniform.predict() == truth).mean() + 0.02


def test_unseen_annotator_gets_the_population_s_matrix():
    table = simulate(300, 9, 3, seed=4).annotations
    model = MeTaL(dependence=None).fit(table)
    counts = np.zeros((3, 3))
    for row in range(len(table)):
        counts[:, table.label[row]] += model.posterior_[table.item[row]]
    wrong = 0.7 * np.sqrt(3)
    population = counts + np.where(np.eye(3) == 1, 1 + wrong / 2, wrong / 2)
    population /= population.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(model.population_confusion_, population)
    scored = model.predict_proba(Annotations.from_arrays([7], [999], [1], classes=3))
    np.testing.assert_allclose(scored[0], model.prior_ * population[:, 1] / (model.prior_ @ population[:, 1]))


def test_threads_agree():
    table = simulate(15_000, 60, 4, redundancy=5, seed=9).annotations
    one, two = MeTaL(threads=1).fit(table), MeTaL(threads=2).fit(table)
    np.testing.assert_allclose(one.posterior_, two.posterior_, atol=1e-9)


def test_a_class_balance_of_another_length_is_an_error():
    with pytest.raises(WrongClassBalance) as caught:
        MeTaL(class_balance=(1, 1, 1)).fit(random_table(1))
    assert (caught.value.shares, caught.value.n_classes) == (3, 4)


@pytest.mark.realdata
def test_rte_is_far_from_what_the_library_of_the_paper_makes_of_it():
    from dissensus import load_dataset

    data = load_dataset("rte")
    for balance in ("votes", "uniform"):
        model = MeTaL(class_balance=balance).fit(data.annotations)
        # LabelModel of snorkel 0.10.0: 75.1 to 80.3 % by seed, 85.9 % in ten times its epochs; majority vote 89.9 %
        assert (model.predict() == data.annotations.classes[data.gold]).mean() > 0.915


def test_weights_next_to_nothing_are_no_division_by_zero():
    for weight in ([5e-324, 0.0], [5e-324, 5e-324], [1e-300, 1e-310]):
        table = Annotations.from_arrays([0, 0], [0, 1], [0, 1])
        model = MeTaL().fit(dataclasses.replace(table, weight=np.array(weight)))
        assert np.isfinite(model.posterior_).all()
        assert np.isfinite(model.confusion_).all()
