"""GLAD: the fused pass against literal loops, EM against finite differences, and what ability and difficulty mean."""

import warnings

import numpy as np
import pytest
from scipy.special import expit
from scipy.stats import entropy, spearmanr

from dissensus import Annotations, methods
from dissensus.compute.kernels import glad as kernels
from dissensus.exceptions import ConvergenceWarning
from dissensus.models.methods.glad import GLAD, AbilityPass, GLADParams
from dissensus.table.simulate import simulate
from tables import KINDS, placed, shares_of, some_gold
from tables import random_table as any_table


def random_table(seed: int, n_annotators: int = 7, **sizes) -> Annotations:
    """As elsewhere, and the last annotator has no labels."""
    return any_table(seed, n_annotators=n_annotators - 1, silent=1, **sizes)


def random_params(seed: int, table: Annotations) -> GLADParams:
    rng = np.random.default_rng(seed)
    I, A, K = table.n_items, table.n_annotators, table.n_classes
    return GLADParams(rng.normal(0.5, 1.5, A), rng.normal(0, 0.8, I), rng.dirichlet(np.ones(K)))


def returned(model: GLAD) -> GLADParams:
    return GLADParams(model.ability_, -np.log(model.difficulty_), model.prior_)


def from_the_model(seed: int, n_items: int, n_annotators: int, n_classes: int, redundancy: int):
    """A table drawn from GLAD itself, and its truth, abilities and difficulties."""
    rng = np.random.default_rng(seed)
    truth, ability = rng.integers(0, n_classes, n_items), rng.normal(1.5, 1, n_annotators)
    difficulty = np.exp(-rng.normal(0, 0.8, n_items))
    item = np.repeat(np.arange(n_items), redundancy)
    annotator = np.concatenate([rng.permutation(n_annotators)[:redundancy] for _ in range(n_items)])
    wrong = (truth[item] + rng.integers(1, n_classes, item.size)) % n_classes
    label = np.where(rng.random(item.size) < expit(ability[annotator] / difficulty[item]), truth[item], wrong)
    return Annotations.from_arrays(item, annotator, label, classes=n_classes), truth, ability, difficulty


def literal_posterior(table: Annotations, params: GLADParams, gold=None):
    """The E step of the module docstring as plain loops over rows, in logs."""
    I, K = table.n_items, table.n_classes
    posterior, evidence = np.zeros((I, K)), 0.0
    for i in range(I):
        log_joint = np.log(params.prior)
        for row in np.flatnonzero(table.item == i):
            right = expit(params.ability[table.annotator[row]] * np.exp(params.easiness[i]))
            for c in range(K):
                for y in range(K):
                    log_joint[c] += shares_of(table, row)[y] * np.log(right if y == c else (1 - right) / (K - 1))
        if gold is not None and gold[i] >= 0:
            log_joint = np.where(np.arange(K) == gold[i], log_joint, -np.inf)
        total = np.logaddexp.reduce(log_joint)
        evidence += total
        posterior[i] = np.exp(log_joint - total)
    return posterior, evidence


def literal_gradient(table: Annotations, params: GLADParams, posterior: np.ndarray):
    """∂/∂α and ∂/∂b of the expected log likelihood: Σ (q[y] − σ) β and Σ (q[y] − σ) α β."""
    by_ability, by_easiness = np.zeros(table.n_annotators), np.zeros(table.n_items)
    for row in range(len(table)):
        i, j = table.item[row], table.annotator[row]
        beta = np.exp(params.easiness[i])
        for y in range(table.n_classes):
            off = shares_of(table, row)[y] * (posterior[i, y] - expit(params.ability[j] * beta))
            by_ability[j] += off * beta
            by_easiness[i] += off * params.ability[j] * beta
    return by_ability, by_easiness


def literal_sums(table: Annotations, params: GLADParams, posterior: np.ndarray, easiness: np.ndarray):
    """The two sums of every new α, at the new b and the old parabolas."""
    pull, curvature = np.zeros(table.n_annotators), np.zeros(table.n_annotators)
    for row in range(len(table)):
        i, j = table.item[row], table.annotator[row]
        x = params.ability[j] * np.exp(params.easiness[i])
        for y in range(table.n_classes):
            w = shares_of(table, row)[y]
            pull[j] += w * (posterior[i, y] - 0.5) * np.exp(easiness[i])
            curvature[j] += w * np.tanh(x / 2) / (2 * x) * np.exp(2 * easiness[i])
    return pull, curvature


@pytest.mark.parametrize(("threads", "min_kernel_rows"), [(1, 0), (3, 0), (1, 10**6)])
@pytest.mark.parametrize("with_gold", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_every_form_of_the_pass_equals_the_literal_loops(kind, with_gold, threads, min_kernel_rows, monkeypatch):
    monkeypatch.setattr("dissensus.compute.chunk.MIN_KERNEL_ROWS", min_kernel_rows)
    table = random_table(1, **KINDS[kind])
    params = random_params(2, table)
    gold = some_gold(table) if with_gold else None
    posterior, evidence = literal_posterior(table, params, gold)
    out = np.full_like(posterior, np.nan)
    easiness = np.empty(table.n_items)
    with placed(table, gold, threads) as engine:
        sums = engine.run(AbilityPass(1.3), params, {"posterior": out, "easiness": easiness})
    np.testing.assert_allclose(sums.log_evidence, evidence, rtol=1e-12)
    np.testing.assert_allclose(out, posterior, atol=1e-12)
    np.testing.assert_allclose(sums.class_counts, posterior.sum(axis=0), atol=1e-12)
    pull, curvature = literal_sums(table, params, posterior, easiness)
    np.testing.assert_allclose(sums.pull, pull, atol=1e-11)
    np.testing.assert_allclose(sums.curvature, curvature, atol=1e-11)


def test_parabola_of_an_ability_near_zero_bends_by_a_quarter():
    table = random_table(14)
    for ability in (0.0, 1e-9, -1e-5, 9e-5):
        params = GLADParams(np.full(7, ability), np.zeros(23), np.full(4, 0.25))
        easiness = np.empty(23)
        with placed(table) as engine:
            sums = engine.run(AbilityPass(1.3), params, {"easiness": easiness})
        expected = np.zeros(7)
        np.add.at(expected, table.annotator, 0.25 * np.exp(2 * easiness[table.item]))
        np.testing.assert_allclose(sums.curvature, expected, rtol=1e-8)


def test_penalty_equals_its_definition():
    params = random_params(4, random_table(3))
    density = -0.5 * (((params.ability - 1) / 0.8) ** 2).sum() - 0.5 * ((params.easiness / 1.7) ** 2).sum()
    for class_count in (None, 0.4):
        model = GLAD(ability_sd=0.8, easiness_sd=1.7, class_count=class_count)
        of_prior = (class_count or 0) * np.log(params.prior).sum()
        np.testing.assert_allclose(model.log_prior(params), density + of_prior, rtol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_literal_gradient_is_that_of_the_log_evidence(kind):
    # of the expected log likelihood at the parameters of the E step, which is what lets a step on it raise the evidence
    table = random_table(5, n_items=6, n=31, **KINDS[kind])
    params = random_params(6, table)
    gradient = literal_gradient(table, params, literal_posterior(table, params)[0])
    vector, size = params.to_vector(), 1e-5
    for at in range(table.n_annotators + table.n_items):
        step = size * (np.arange(vector.size) == at)
        above, below = (literal_posterior(table, params.from_vector(vector + sign * step))[1] for sign in (1, -1))
        np.testing.assert_allclose(np.concatenate(gradient)[at], (above - below) / (2 * size), atol=1e-7)


@pytest.mark.parametrize("with_gold", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_em_ends_where_the_literal_gradient_of_the_log_posterior_vanishes(kind, with_gold):
    table = random_table(7, **KINDS[kind])
    gold = some_gold(table) if with_gold else None
    model = GLAD(tol=1e-15, max_iter=5000, ability_sd=0.8, easiness_sd=0.6).fit(table, gold=gold)
    posterior, _ = literal_posterior(table, returned(model), gold)
    by_ability, by_easiness = literal_gradient(table, returned(model), posterior)
    np.testing.assert_allclose(by_ability, (model.ability_ - 1) / 0.8**2, atol=1e-4)
    np.testing.assert_allclose(by_easiness, -np.log(model.difficulty_) / 0.6**2, atol=1e-4)


@pytest.mark.parametrize("accelerate", [None, "squarem"])
@pytest.mark.parametrize("class_count", [None, 0.5])
@pytest.mark.parametrize("kind", KINDS)
def test_trace_never_falls_and_ends_at_what_is_returned(kind, class_count, accelerate):
    for seed in range(2):
        table = random_table(seed, n_items=41, n_annotators=6, n=203, **KINDS[kind])
        keywords = {"class_count": class_count, "dependence": None, "tol": 1e-10, "max_iter": 5000}
        model = GLAD(accelerate=accelerate, **keywords).fit(table)
        assert (np.diff(model.trace_) >= -1e-9).all()
        posterior, evidence = literal_posterior(table, returned(model))
        np.testing.assert_allclose(model.trace_[-1], evidence + model.log_prior(returned(model)), rtol=1e-11)
        np.testing.assert_allclose(model.posterior_, posterior, atol=1e-9)
        assert model.n_iter_ == len(model.trace_) - 1


def test_one_pass_from_anywhere_raises_the_objective():
    table = random_table(8)
    model = GLAD()
    for seed in range(200):
        params = random_params(seed, table)
        wild = GLADParams(4 * params.ability, 3 * params.easiness, params.prior)
        easiness = np.empty(23)
        with placed(table) as engine:
            walk, out = AbilityPass(1 / model.easiness_sd**2), {"easiness": easiness}
            sums = engine.run(walk, wild, out)
            before = sums.log_evidence + model.log_prior(wild)
            after = GLADParams(*model._m_step(sums, easiness.copy(), engine.has_labels()), wild.prior)
            assert engine.run(walk, after, out).log_evidence + model.log_prior(after) > before


def test_scaling_abilities_against_easiness_is_where_the_priors_want_it():
    table = random_table(9)
    model = GLAD()
    params = random_params(1, table)
    busy, labelled = np.diff(table.annotator_ptr) > 0, np.diff(table.item_ptr) > 0
    with placed(table) as engine:
        walk, out = AbilityPass(1 / model.easiness_sd**2), {"easiness": np.empty(23)}
        evidence = engine.run(walk, params, out).log_evidence
        ability, easiness = model._rescale(params.ability, params.easiness, busy, labelled)
        moved = engine.run(walk, GLADParams(ability, easiness, params.prior), out)
        assert moved.log_evidence == pytest.approx(evidence, rel=1e-12)
    np.testing.assert_array_equal(ability[~busy], params.ability[~busy])
    np.testing.assert_array_equal(easiness[~labelled], params.easiness[~labelled])
    heights = []
    for t in np.linspace(-2, 2, 401):
        moved = np.where(busy, ability * np.exp(t), ability), np.where(labelled, easiness - t, easiness)
        heights.append(model.log_prior(GLADParams(*moved, params.prior)))
    assert np.argmax(heights) == 200


@pytest.mark.parametrize("start", [-4.0, 0.0, 3.0])
def test_climb_never_goes_down_and_ends_on_a_top(start):
    rng = np.random.default_rng(0)

    def height(b):
        return slope * np.exp(b) - 0.5 * square * np.exp(2 * b) - 0.5 * precision * b**2

    for _ in range(500):
        slope, square, precision = rng.normal(0, 20), 10 * rng.random() ** 3, 10 ** rng.uniform(-1, 1)
        b = kernels._maximise_easiness(slope, square, precision, start)
        many = kernels.maximise_easiness(
            *(np.full(3, number) for number in (slope, square)), precision, np.full(3, start)
        )
        np.testing.assert_allclose(many, b, atol=1e-12)  # in NumPy
        assert height(b) >= height(start)
        again = b
        for _ in range(20):
            again = kernels._maximise_easiness(slope, square, precision, again)
        assert height(again) >= max(height(again - 1e-3), height(again + 1e-3))


def test_squarem_needs_fewer_passes_and_is_no_worse():
    table = simulate(3000, 40, 4, redundancy=3, seed=3).annotations
    plain = GLAD(accelerate=None, tol=1e-10).fit(table)
    fast = GLAD(accelerate="squarem", tol=1e-10).fit(table)
    assert fast.n_iter_ < 0.7 * plain.n_iter_
    assert fast.trace_[-1] >= plain.trace_[-1] - 1e-8 * abs(plain.trace_[-1])


@pytest.mark.parametrize("n_classes", [2, 5])
def test_recovers_abilities_and_difficulties_drawn_from_the_model(n_classes):
    table, truth, ability, difficulty = from_the_model(0, 2000, 50, n_classes, 20)
    model = GLAD(easiness_sd=0.8).fit(table)
    assert (model.predict() == truth).mean() > 0.97
    assert np.corrcoef(model.ability_, ability)[0, 1] > 0.98
    assert spearmanr(model.difficulty_, difficulty).statistic > 0.6
    hard, easy = np.argsort(difficulty)[-200:], np.argsort(difficulty)[:200]
    assert np.median(model.difficulty_[hard]) > 1.8 * np.median(model.difficulty_[easy])


def test_beats_majority_vote_where_abilities_differ():
    table, truth, _, _ = from_the_model(1, 2000, 50, 2, 7)
    model, vote = GLAD().fit(table), methods["majority-vote"]().fit(table)
    assert (model.predict() == truth).mean() > (vote.predict() == truth).mean() + 0.02


def test_difficulty_tells_the_items_that_people_confuse_better_than_the_entropy_of_the_votes():
    sim = simulate(2000, 30, 4, redundancy=20, hardness=0.2, seed=5)
    hard, easy = sim.difficulty > 0.4, sim.difficulty < 0.1
    shares = sim.annotations.soft_labels()
    scores = GLAD().fit(sim.annotations).difficulty_, entropy(shares, axis=1)
    glad, votes = ((score[hard][:, None] > score[easy][None, :]).mean() for score in scores)  # area under the ROC curve
    assert glad > 0.9
    assert glad > votes + 0.1


@pytest.mark.parametrize("n_classes", [2, 5])
def test_oracle_comes_out_best_and_always_wrong_worst(n_classes):
    sim = simulate(400, 12, n_classes, redundancy=5, kinds={"ordinary": 1}, seed=6)
    table, rng = sim.annotations, np.random.default_rng(0)
    both = [np.arange(400)] * 2
    wrong = (sim.truth + rng.integers(1, n_classes, 400)) % n_classes
    model = GLAD().fit(
        Annotations.from_arrays(
            np.concatenate([table.item, *both]), np.concatenate([table.annotator, np.repeat([100, 200], 400)]),
            np.concatenate([table.label, sim.truth, wrong]),
        )
    )  # fmt: skip
    for result in (model.ability_, model.reliability_):
        assert model.annotators_[result.argmax()] == 100
        assert model.annotators_[result.argmin()] == 200
    assert model.ability_[-1] < -1


def test_annotator_who_is_always_wrong_helps_where_there_are_two_classes():
    truth = np.arange(60) % 2
    item = np.repeat(np.arange(60), 3)
    given = np.stack([truth, truth, 1 - truth], axis=1)
    given[:10, 1] = 1 - truth[:10]  # the second one errs ten times; the liar then decides
    model = GLAD(ability_sd=3.0).fit(Annotations.from_arrays(item, np.tile([0, 1, 2], 60), given.ravel()))
    np.testing.assert_array_equal(model.predict(), truth)


def test_classes_are_equally_likely_unless_their_shares_are_learnt():
    shares = np.array([0.7, 0.15, 0.1, 0.05])
    sim = simulate(3000, 60, 4, redundancy=4, prior=shares, seed=7)
    even, learnt = (GLAD(class_count=count, dependence=None).fit(sim.annotations) for count in (None, 1.0))
    np.testing.assert_array_equal(even.prior_, np.full(4, 0.25))
    assert np.abs(learnt.prior_ - shares).max() < 0.05
    np.testing.assert_allclose(learnt.prior_, (learnt.posterior_.sum(axis=0) + 1) / 3004, atol=1e-4)
    assert (learnt.predict() == sim.truth).mean() > (even.predict() == sim.truth).mean() + 0.02


def test_known_item_keeps_its_difficulty_new_one_has_the_priors_and_unseen_annotator_the_mean_ability():
    sim = simulate(300, 9, 3, seed=4)
    model = GLAD(dependence=None).fit(sim.annotations)
    new = Annotations.from_arrays([7, 7, 1000, 1001], [3, 5, 3, 999], [1, 2, 2, 1], classes=3, items=[5, 7, 1000, 1001])
    scored = model.predict_proba(new)
    np.testing.assert_allclose(scored[0], 1 / 3)

    def votes(ability, difficulty, label):
        right = expit(ability / difficulty)
        return np.where(np.arange(3) == label, right, (1 - right) / 2)

    old = model.difficulty_[7]
    assert abs(old - 1) > 0.01
    both = votes(model.ability_[3], old, 1) * votes(model.ability_[5], old, 2)
    np.testing.assert_allclose(scored[1], both / both.sum(), atol=1e-12)
    np.testing.assert_allclose(scored[2], votes(model.ability_[3], 1.0, 2), atol=1e-12)
    np.testing.assert_allclose(scored[3], votes(model.ability_.mean(), 1.0, 1), atol=1e-12)


def test_gold_that_everybody_denies_is_kept_and_makes_the_item_hard():
    item, annotator = (codes.ravel() for codes in np.meshgrid(np.arange(100), np.arange(300), indexing="ij"))
    gold = np.where(np.arange(100) == 0, 0, -1)
    model = GLAD().fit(Annotations.from_arrays(item, annotator, np.where(item == 0, 1, item % 2)), gold=gold)
    np.testing.assert_array_equal(model.posterior_[0], [1, 0])
    assert model.difficulty_.argmax() == 0
    assert np.isfinite(model.trace_).all()


def test_an_annotator_and_an_item_without_labels_stay_at_the_middle_of_the_priors():
    table = random_table(10)
    model = GLAD().fit(table)
    empty = np.diff(table.item_ptr) == 0
    assert empty.any()
    assert model.ability_[-1] == 1
    np.testing.assert_array_equal(model.difficulty_[empty], 1)
    np.testing.assert_array_equal(model.posterior_[empty], 1 / 4)


def test_one_label_says_a_little_about_its_item_and_its_annotator():
    model = GLAD().fit(Annotations.from_arrays([0], [0], [1], classes=3))
    right = expit(model.ability_[0] / model.difficulty_[0])
    np.testing.assert_allclose(model.posterior_[0], [(1 - right) / 2, right, (1 - right) / 2])
    assert right > 0.5


def test_threads_agree():
    sim = simulate(15_000, 60, 4, redundancy=5, seed=9)
    one, two = GLAD(threads=1).fit(sim.annotations), GLAD(threads=2).fit(sim.annotations)
    for key in ("posterior_", "ability_", "difficulty_"):
        np.testing.assert_allclose(getattr(one, key), getattr(two, key), atol=1e-9)


def test_restarts_start_apart_and_the_best_is_kept():
    table = random_table(12, n_items=61, n_annotators=5, n_classes=3, n=150)
    model = GLAD(restarts=4)
    children = (None, *np.random.SeedSequence(0).spawn(3))
    starts = [model.initialise(placed(table), child and np.random.default_rng(child)) for child in children]
    for a in range(4):
        for b in range(a):
            assert np.abs(starts[a].ability - starts[b].ability).max() > 0.1
            assert np.abs(starts[a].easiness - starts[b].easiness).max() > 0.1
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        assert model.fit(table).trace_[-1] >= GLAD().fit(table).trace_[-1] - 1e-9


def test_reliability_equals_its_definition():
    table = random_table(13)
    model = GLAD().fit(table)
    right, n = np.zeros(table.n_annotators), np.zeros(table.n_annotators)
    for row in range(len(table)):
        right[table.annotator[row]] += model.posterior_[table.item[row], table.label[row]]
        n[table.annotator[row]] += 1
    np.testing.assert_allclose(model.reliability_, (right + 5 * right.sum() / n.sum()) / (n + 5), atol=1e-9)
