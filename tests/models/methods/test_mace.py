"""MACE: the fused pass against literal loops, the bound against brute force, and spammers found."""

import math

import numpy as np
import pytest
from scipy import integrate, stats
from scipy.special import psi

from dissensus import Annotations, methods
from dissensus.compute.engines.base import hard_rows
from dissensus.compute.engines.local import Threads
from dissensus.compute.kernels import mace as kernels
from dissensus.exceptions import BadParameter, ConvergenceWarning
from dissensus.models.em import e_step
from dissensus.models.methods.mace import (
    LEAST,
    MACE,
    Believed,
    Copied,
    CopyPass,
    divergence,
    expected_log,
    label_totals,
    shared,
)
from dissensus.table.datasets import load_dataset
from dissensus.table.simulate import simulate
from tables import placed


def random_table(
    seed: int, n_items: int = 23, n_annotators: int = 7, n_classes: int = 4, n: int = 131, **extra
) -> Annotations:
    """Items of very unequal length, some empty, repeated pairs: sizes all different."""
    rng = np.random.default_rng(seed)
    item = rng.integers(0, n_items, n) * rng.integers(0, 2, n)  # item 0 gets about half of all rows
    columns = {"annotator": rng.integers(0, n_annotators, n), "label": rng.integers(0, n_classes, n)}
    columns |= {key: make(rng, n) for key, make in extra.items()}
    if "proba" in columns:
        del columns["label"]
    return Annotations.from_arrays(
        item, **columns, classes=n_classes, items=np.arange(n_items), annotators=np.arange(n_annotators)
    )


def random_params(seed: int, table: Annotations) -> Copied:
    rng = np.random.default_rng(seed)
    total = label_totals(hard_rows(table), table.n_annotators, table.n_classes)
    share = np.where(total > 0, rng.random(total.shape), 0)
    return Copied(rng.dirichlet(np.ones(table.n_classes)), share, total)


def simulate_spammers(competence, strategy, n_items, redundancy, seed, prior=None):
    """A table that MACE's own story tells: copy with probability θ_j, else draw from ξ_j."""
    rng = np.random.default_rng(seed)
    A, K = strategy.shape
    truth = rng.choice(K, n_items, p=prior)
    item = np.repeat(np.arange(n_items), redundancy)
    annotator = np.concatenate([rng.choice(A, redundancy, replace=False) for _ in range(n_items)])
    drawn = np.array([rng.choice(K, p=strategy[j]) for j in annotator])
    label = np.where(rng.random(item.size) < competence[annotator], truth[item], drawn)
    return Annotations.from_arrays(item, annotator, label, classes=K, annotators=np.arange(A)), truth


def literal_pass(model: MACE, table: Annotations, params: Copied, gold=None):
    """The equations of the module docstring as plain loops, and the bound term by term: E log p − E log q."""
    I, A, K = table.n_items, table.n_annotators, table.n_classes
    posterior, copied, bound = np.zeros((I, K)), np.zeros((A, K)), 0.0
    copy, spam = np.zeros(A), np.zeros((A, K))
    for j in range(A):
        alpha, beta, delta = model.alpha, model.beta, np.full(K, model.strategy_count)
        for y in range(K):
            alpha += params.share[j, y] * params.total[j, y]
            beta += (1 - params.share[j, y]) * params.total[j, y]
            delta[y] += (1 - params.share[j, y]) * params.total[j, y]
        copy[j] = np.exp(psi(alpha) - psi(alpha + beta))
        for y in range(K):
            spam[j, y] = np.exp(psi(beta) - psi(alpha + beta) + psi(delta[y]) - psi(delta.sum()))
        both = np.array([alpha, beta])
        bound -= divergence(both[None], np.array([model.alpha, model.beta]), expected_log(both[None]))
        bound -= divergence(delta[None], np.full(K, model.strategy_count), expected_log(delta[None]))
    for i in range(I):
        rows = []  # (annotator, label, weight); a probabilistic row is one row per class
        for row in range(len(table)):
            if table.item[row] == i:
                weight = 1.0 if table.weight is None else table.weight[row]
                shares = np.eye(K)[table.label[row]] if table.proba is None else table.proba[row]
                rows += [(table.annotator[row], y, weight * shares[y]) for y in range(K)]
        log_joint = np.log(params.prior)
        for j, y, weight in rows:
            for c in range(K):
                log_joint[c] += weight * np.log(copy[j] * (y == c) + spam[j, y])
        if gold is not None and gold[i] >= 0:
            log_joint[np.arange(K) != gold[i]] = -np.inf
        posterior[i] = np.exp(log_joint - log_joint.max())
        posterior[i] /= posterior[i].sum()
        for c in range(K):
            if posterior[i, c] == 0:
                continue
            bound += posterior[i, c] * (np.log(params.prior[c]) - np.log(posterior[i, c]))
            for j, y, weight in rows:
                knows = copy[j] / (copy[j] + spam[j, y]) if y == c else 0.0  # P(s_ij = 0 | z_i = c)
                copied[j, y] += weight * posterior[i, c] * knows
                if knows:
                    bound += weight * posterior[i, c] * knows * np.log(copy[j] / knows)
                bound += weight * posterior[i, c] * (1 - knows) * np.log(spam[j, y] / (1 - knows))
    return posterior, copied, bound


KINDS = {
    "hard": {},
    "weighted": {"weight": lambda rng, n: rng.uniform(0, 3, n)},
    "probabilistic": {"proba": lambda rng, n: rng.dirichlet(np.ones(4), n)},
    "both": {"weight": lambda rng, n: rng.uniform(0, 3, n), "proba": lambda rng, n: rng.dirichlet(np.ones(4), n)},
}


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("with_gold", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_fused_pass_equals_the_literal_loops(kind, with_gold, threads):
    table = random_table(1, **KINDS[kind])
    params = random_params(2, table)
    gold = np.where(np.arange(table.n_items) % 3 == 0, 2, -1).astype(np.int32) if with_gold else None
    model = MACE(alpha=0.7, beta=0.4, strategy_count=1.3, class_prior="uniform")
    posterior, copied, bound = literal_pass(model, table, params, gold)
    out = np.full_like(posterior, np.nan)
    with placed(table, gold, threads) as engine:
        beliefs = model._beliefs(params, engine.pool)
        sums = engine.sweep(CopyPass(), Believed(params.prior, beliefs), {"posterior": out})
        evidence = sums.evidence + shared(params.total, beliefs)
        np.testing.assert_allclose(out, posterior, atol=1e-12)
        np.testing.assert_allclose(sums.prior_counts, posterior.sum(axis=0), atol=1e-11)
        np.testing.assert_allclose(evidence - beliefs.divergence, bound, rtol=1e-12)
        after = model._maximise(sums, params, beliefs)
        np.testing.assert_allclose(after.share * after.total, copied, atol=1e-11)
        np.testing.assert_array_equal(after.prior, params.prior)
        model.class_prior = "learned"
        model.class_pseudo_ = np.array([0.7, 0.2, 3.0, 1.0])  # `start` makes it from the votes
        expected = posterior.sum(axis=0) + model.class_pseudo_
        np.testing.assert_allclose(model._maximise(sums, params, beliefs).prior, expected / expected.sum())


@pytest.mark.parametrize("with_gold", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_readable_form_equals_the_literal_loops(kind, with_gold):
    table = random_table(3, **KINDS[kind])
    params = random_params(4, table)
    gold = np.where(np.arange(table.n_items) % 3 == 0, 1, -1).astype(np.int32) if with_gold else None
    for model in (MACE(class_prior="uniform"), MACE()):
        model.class_pseudo_ = np.array([0.7, 0.2, 3.0, 1.0])
        posterior, _, bound = literal_pass(model, table, params, gold)
        readable, objective = e_step(model, table, params, gold)
        np.testing.assert_allclose(readable, posterior, atol=1e-12)
        of_prior = 0.0 if model.class_prior == "uniform" else model.class_pseudo_ @ np.log(params.prior)
        np.testing.assert_allclose(objective, bound + of_prior, rtol=1e-12)


def test_divergence_is_that_of_the_densities():
    counts, prior = np.array([[2.5, 0.8], [0.6, 4.0]]), np.array([0.5, 0.5])
    expected = 0.0
    for own in counts:
        one, other = stats.beta(*own), stats.beta(*prior)
        expected += integrate.quad(
            lambda x, one=one, other=other: one.pdf(x) * (one.logpdf(x) - other.logpdf(x)), 0, 1
        )[0]
    np.testing.assert_allclose(divergence(counts, prior, expected_log(counts)), expected, rtol=1e-6)
    counts, prior = np.array([3.0, 1.2, 2.1]), np.array([1.0, 1.5, 0.9])
    draws = np.random.default_rng(0).dirichlet(counts, 200_000).T
    sampled = (stats.dirichlet(counts).logpdf(draws) - stats.dirichlet(prior).logpdf(draws)).mean()
    np.testing.assert_allclose(divergence(counts[None], prior, expected_log(counts[None])), sampled, atol=0.01)


def test_the_bound_is_below_the_log_evidence_and_near_it():
    # two annotators, two classes: θ and ξ of both are four numbers, and the evidence is a sum over a fine grid
    item, annotator, label = [0, 0, 1, 1, 2, 2, 3], [0, 1, 0, 1, 0, 1, 0], [0, 0, 1, 1, 0, 1, 1]
    table = Annotations.from_arrays(item, annotator, label)
    model = MACE(class_prior="uniform", tol=1e-12, max_iter=5000).fit(table)
    middle = (np.arange(40) + 0.5) / 40
    theta = np.sin(np.pi / 2 * middle) ** 2  # Beta(½, ½) is uniform in the angle
    says = {}  # annotator 0 on axes 0 and 1, annotator 1 on axes 2 and 3: P(label | class) at each point of the grid
    for j in (0, 1):
        knows = theta.reshape([-1 if axis == 2 * j else 1 for axis in range(4)])
        leans = middle.reshape([-1 if axis == 2 * j + 1 else 1 for axis in range(4)])  # ξ[1], uniform: Dirichlet(1, 1)
        says |= {
            (j, y, c): knows * (y == c) + (1 - knows) * (leans if y else 1 - leans) for y in (0, 1) for c in (0, 1)
        }
    evidence = np.ones((1, 1, 1, 1))
    for i in range(4):
        rows = [(a, y) for where, a, y in zip(item, annotator, label, strict=True) if where == i]
        joint = [0.5 * math.prod(says[a, y, c] for a, y in rows) for c in (0, 1)]
        evidence = evidence * (joint[0] + joint[1])
    log_evidence = np.log(np.broadcast_to(evidence, (40, 40, 40, 40)).mean())
    assert log_evidence - 2 < model.trace_[-1] < log_evidence


def params_of(model: MACE, table: Annotations) -> Copied:
    total = label_totals(hard_rows(table), table.n_annotators, table.n_classes)
    spammed = model.strategy_counts_ - model.strategy_count
    return Copied(model.prior_, np.where(total > 0, 1 - spammed / np.where(total > 0, total, 1), 0).clip(0, 1), total)


@pytest.mark.parametrize("class_prior", ["uniform", "learned"])
@pytest.mark.parametrize("accelerate", [None, "squarem"])
@pytest.mark.parametrize("seed", range(4))
def test_bound_never_falls_and_ends_at_what_is_returned(seed, accelerate, class_prior):
    table = random_table(seed, n_items=41, n_annotators=6, n_classes=3, n=203)
    model = MACE(accelerate=accelerate, class_prior=class_prior, tol=1e-9, max_iter=3000, restarts=2).fit(table)
    assert (np.diff(model.trace_) >= -1e-9).all()
    np.testing.assert_allclose(model.trace_[-1], e_step(model, table, params_of(model, table))[1], rtol=1e-11)


def test_no_small_move_from_the_answer_raises_the_bound():
    table = random_table(2, n_items=31, n_annotators=5, n_classes=3, n=150)
    model = MACE(tol=1e-14, accelerate=None, max_iter=20_000, restarts=3).fit(table)
    best = params_of(model, table)
    top, rng = e_step(model, table, best)[1], np.random.default_rng(0)
    for _ in range(1000):
        moved = best.from_vector(best.to_vector() + rng.normal(0, 10 ** rng.uniform(-4, -1), best.to_vector().size))
        assert e_step(model, table, moved)[1] <= top + 1e-8


def test_squarem_needs_fewer_passes_and_is_no_worse():
    table = simulate(3000, 40, 4, redundancy=3, seed=3).annotations
    plain = MACE(accelerate=None, tol=1e-10, max_iter=5000, restarts=1).fit(table)
    fast = MACE(accelerate="squarem", tol=1e-10, max_iter=5000, restarts=1).fit(table)
    assert fast.n_iter_ < 0.7 * plain.n_iter_
    assert fast.trace_[-1] >= plain.trace_[-1] - 1e-6 * abs(plain.trace_[-1])


def test_vector_and_back_is_the_same_point():
    table = random_table(6)
    params = random_params(7, table)
    same = params.from_vector(params.to_vector())
    np.testing.assert_allclose(same.prior, params.prior, atol=1e-15)
    np.testing.assert_allclose(same.share, params.share, atol=1e-15)


def test_recovers_competences_and_strategies_and_beats_majority_vote():
    rng = np.random.default_rng(1)
    competence = np.concatenate([rng.uniform(0.6, 0.95, 12), rng.uniform(0, 0.15, 13)])
    strategy = rng.dirichlet(np.full(4, 0.5), 25)
    table, truth = simulate_spammers(competence, strategy, 2500, 5, seed=2)
    model = MACE().fit(table)
    assert np.abs(model.competence_ - competence).max() < 0.1
    assert np.abs(model.competence_ - competence).mean() < 0.03
    spammers = competence < 0.5
    assert np.abs(model.strategy_ - strategy)[spammers].mean() < 0.02
    vote = methods["majority-vote"]().fit(table)
    assert (model.predict() == truth).mean() > (vote.predict() == truth).mean() + 0.05


def test_learned_class_prior_helps_where_classes_are_skewed_and_uniform_is_uniform():
    prior = np.array([0.85, 0.1, 0.05])
    rng = np.random.default_rng(3)
    table, truth = simulate_spammers(rng.uniform(0.2, 0.8, 20), rng.dirichlet(np.ones(3), 20), 2000, 3, 4, prior)
    learned, uniform = MACE().fit(table), MACE(class_prior="uniform").fit(table)
    np.testing.assert_allclose(learned.prior_, prior, atol=0.13)
    np.testing.assert_array_equal(uniform.prior_, np.full(3, 1 / 3))
    assert (learned.predict() == truth).mean() > (uniform.predict() == truth).mean() + 0.01


@pytest.mark.parametrize("with_gold", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_class_shares_are_held_as_the_docstring_says(kind, with_gold):
    table = random_table(7, **KINDS[kind])
    gold = np.where(np.arange(table.n_items) % 3 == 0, 2, -1).astype(np.int32) if with_gold else None
    share, active = np.zeros(4), set()
    for i in range(table.n_items):
        votes = np.zeros(4)
        for row in range(table.item_ptr[i], table.item_ptr[i + 1]):
            says = np.eye(4)[table.label[row]] if table.proba is None else table.proba[row]
            votes += says * (1.0 if table.weight is None else table.weight[row])
            active.add(int(table.annotator[row]))
        if votes.sum() > 0:
            share += np.eye(4)[gold[i]] if gold is not None and gold[i] >= 0 else votes / votes.sum()
    roots = [float(np.sqrt(v)) for v in share]
    model = MACE(class_count=0.6, vote_count=0.4)
    model.start(placed(table, gold), None)
    expected = [0.6 + 0.4 * len(active) * 4 * root / sum(roots) for root in roots]
    np.testing.assert_allclose(model.class_pseudo_, expected, rtol=1e-12)


def test_held_shares_keep_few_labels_each_from_making_one_class_of_all_items():
    smallest = {0.0: [], 1.0: []}
    for seed in range(8):
        table = simulate(100, 60, 2, redundancy=2, hardness=0.3, seed=seed).annotations
        for vote_count, found in smallest.items():
            predicted = MACE(vote_count=vote_count).fit(table).predict()
            found.append(min((predicted == k).mean() for k in (0, 1)))
    assert np.mean(smallest[1.0]) > np.mean(smallest[0.0]) + 0.05


@pytest.mark.parametrize("seed", range(5))
def test_an_oracle_is_best_and_the_always_wrong_worst(seed):
    sim = simulate(400, 15, 3, redundancy=4, seed=seed)
    table = sim.annotations
    item = np.concatenate([table.item, np.arange(400), np.arange(400)])
    annotator = np.concatenate([table.annotator, np.full(400, 15), np.full(400, 16)])
    label = np.concatenate([table.label, sim.truth, (sim.truth + 1) % 3])
    model = MACE().fit(Annotations.from_arrays(item, annotator, label))
    assert model.reliability_.argmax() == 15
    assert model.competence_.argmax() == 15
    assert model.reliability_.argmin() == 16
    assert model.competence_[16] < 0.1


def test_shuffled_rows_give_the_same_bits():
    # crowd-kit 1.4.1 pairs parameters with the wrong annotators unless rows come sorted
    sim = simulate(300, 25, 4, redundancy=5, seed=8).annotations
    columns = [np.array(c) for c in sim.to_arrow().to_pydict().values()]
    order = np.random.default_rng(0).permutation(1500)
    one, other = (
        MACE().fit(Annotations.from_arrays(*columns)),
        MACE().fit(Annotations.from_arrays(*(column[order] for column in columns))),
    )
    for key in ("posterior_", "competence_", "strategy_", "trace_"):
        np.testing.assert_array_equal(getattr(one, key), getattr(other, key))


def test_restarts_start_apart_and_the_best_is_kept():
    table = random_table(8, n_items=61, n_annotators=5, n_classes=3, n=150)
    children = np.random.SeedSequence(0).spawn(4)
    starts = [
        MACE().start(placed(table), np.random.default_rng(child) if n else None) for n, child in enumerate(children)
    ]
    for a in range(4):
        for b in range(a):
            assert np.abs(starts[a].share - starts[b].share).max() > 0.05
    half = {"alpha": 0.5, "beta": 0.5, "vote_count": 0.0}  # several tops
    bounds = [  # where each start leads by itself
        Only(start, restarts=1, tol=1e-9, max_iter=5000, **half).fit(table).trace_[-2] for start in starts
    ]
    assert max(bounds) > min(bounds) + 0.1
    best = MACE(restarts=4, tol=1e-9, max_iter=5000, **half).fit(table)
    np.testing.assert_allclose(best.trace_[-2], max(bounds), rtol=1e-12)


class Only(MACE):
    """MACE from one given start."""

    def __init__(self, first, **keywords):
        super().__init__(**keywords)
        self.first = first

    def start(self, engine, rng):
        super().start(engine, rng)
        return self.first


def test_random_starts_are_keyed_on_what_annotators_did_not_on_their_names():
    table = random_table(8)
    columns = [np.array(c) for c in table.to_arrow().to_pydict().values()]
    new = np.random.default_rng(1).permutation(7)
    renamed = Annotations.from_arrays(columns[0], new[columns[1]], columns[2])
    before = MACE().start(placed(table), np.random.default_rng(5)).share
    after = MACE().start(placed(renamed), np.random.default_rng(5)).share
    np.testing.assert_array_equal(after[new], before)


def test_steps_of_all_starts_are_counted():
    seen = []
    model = MACE(restarts=3).fit(random_table(1), on_step=lambda step, bound: seen.append((step, bound)))
    assert [step for step, _ in seen] == list(range(1, model.n_iter_ + 1))
    assert len(model.trace_) - 1 < model.n_iter_
    assert max(bound for _, bound in seen) == model.trace_[-2]


def test_a_row_of_weight_two_is_that_row_twice():
    table = random_table(5)
    columns = [np.array(c) for c in table.to_arrow().to_pydict().values()]
    twice = Annotations.from_arrays(*(np.concatenate([c, c]) for c in columns), classes=4, items=table.items)
    heavy = Annotations.from_arrays(*columns, weight=np.full(131, 2.0), classes=4, items=table.items)
    one, other = MACE(restarts=1).fit(twice), MACE(restarts=1).fit(heavy)
    np.testing.assert_allclose(one.posterior_, other.posterior_, atol=1e-8)
    np.testing.assert_allclose(one.competence_, other.competence_, atol=1e-8)


def test_posterior_and_confusion_belong_together():
    table = random_table(9)
    model = MACE().fit(table)
    log_joint = np.log(model.prior_) + np.zeros((table.n_items, 4))
    for row in range(len(table)):
        log_joint[table.item[row]] += np.log(model.confusion_[table.annotator[row], :, table.label[row]])
    expected = np.exp(log_joint - np.logaddexp.reduce(log_joint, axis=1, keepdims=True))
    np.testing.assert_allclose(model.posterior_, expected, atol=1e-12)
    right = np.zeros(7)
    np.add.at(right, table.annotator, model.posterior_[table.item, table.label])
    n = model.n_annotations_
    np.testing.assert_allclose(model.reliability_, (right + 5 * right.sum() / n.sum()) / (n + 5), atol=1e-9)


def test_unseen_annotator_gets_the_population_and_empty_item_the_prior():
    sim = simulate(300, 9, 3, seed=4)
    model = MACE().fit(sim.annotations)
    new = Annotations.from_arrays([7, 8], [999, 3], [1, 2], classes=3, items=[5, 7, 8])
    scored = model.predict_proba(new)
    np.testing.assert_allclose(scored[0], model.prior_)
    for item, theta, leans, label in (
        (1, model.population_competence_, model.population_strategy_, 1),
        (2, model.competence_[3], model.strategy_[3], 2),
    ):
        expected = model.prior_ * (theta * np.eye(3)[label] + (1 - theta) * leans[label])
        np.testing.assert_allclose(scored[item], expected / expected.sum())
    copied = model.competence_counts_[:, 0] - model.alpha
    pooled = (copied.sum() + model.alpha) / (len(sim.annotations) + model.alpha + model.beta)
    np.testing.assert_allclose(model.population_competence_, pooled)


def test_an_item_with_thousands_of_labels_neither_underflows_nor_overflows():
    n = 5000
    table = Annotations.from_arrays(np.zeros(n, int), np.arange(n) % 11, np.arange(n) % 3)
    sure = Annotations.from_arrays(np.arange(n) % 2, np.arange(n) // 50, np.arange(n) % 2)  # ratios of hundreds
    for model in (MACE().fit(table), MACE(alpha=0.01, beta=0.01, strategy_count=0.01).fit(sure)):
        assert np.isfinite(model.posterior_).all()
        assert np.isfinite(model.trace_).all()
    np.testing.assert_allclose(model.posterior_, np.eye(2))
    params = random_params(0, sure)
    model = MACE()
    with placed(sure) as engine:
        model.start(engine, None)
        beliefs = model._beliefs(params, engine.pool)
        evidence = engine.sweep(CopyPass(), Believed(params.prior, beliefs)).evidence + shared(params.total, beliefs)
    np.testing.assert_allclose(evidence + model.log_penalty(params), e_step(model, sure, params)[1], rtol=1e-12)


def test_no_prior_that_is_allowed_makes_a_ratio_that_could_overflow():
    total = np.array([[1e9, 0.0, 0.0], [5e8, 5e8, 0.0]])
    model = MACE(alpha=LEAST, beta=LEAST, strategy_count=LEAST)
    for share in (0.0, 0.5, 1.0):
        log_copy, log_spam, _ = model._beliefs(Copied(np.full(3, 1 / 3), np.full((2, 3), share), total), Threads(1))
        assert np.exp(log_copy[:, None] - log_spam).max() < kernels.RATIO
    assert np.finfo(float).max > kernels.RATIO * kernels.LARGE


def test_gold_that_everybody_denies_is_kept():
    # 300 annotators who are never wrong elsewhere say 1 about item 0, whose class is known to be 0
    item, annotator = (codes.ravel() for codes in np.meshgrid(np.arange(100), np.arange(300), indexing="ij"))
    label = np.where(item == 0, 1, item % 2)
    gold = np.where(np.arange(100) == 0, 0, -1)
    model = MACE().fit(Annotations.from_arrays(item, annotator, label), gold=gold)
    np.testing.assert_array_equal(model.posterior_[0], [1, 0])
    assert np.isfinite(model.trace_).all()


def test_gold_of_some_items_is_kept_and_helps_the_others():
    sim = simulate(400, 30, 3, redundancy=3, hardness=0.2, kinds={"ordinary": 0.3, "uniform-spammer": 0.7}, seed=2)
    gold = np.where(np.arange(400) % 2 == 0, sim.truth, -1)
    with_gold, without = MACE().fit(sim.annotations, gold=gold), MACE().fit(sim.annotations)
    np.testing.assert_array_equal(with_gold.predict()[::2], sim.truth[::2])
    assert (with_gold.predict()[1::2] == sim.truth[1::2]).mean() > (
        without.predict()[1::2] == sim.truth[1::2]
    ).mean() + 0.02


@pytest.mark.parametrize("n_classes", [2, 33, 200])
def test_any_number_of_classes(n_classes):
    table = random_table(5, n_classes=n_classes, n=301)
    params, model = random_params(6, table), MACE()
    out = np.empty((table.n_items, n_classes))
    with placed(table) as engine:
        model.start(engine, None)
        beliefs = model._beliefs(params, engine.pool)
        engine.sweep(CopyPass(), Believed(params.prior, beliefs), {"posterior": out})
    np.testing.assert_allclose(out, e_step(model, table, params)[0], atol=1e-12)


def test_threads_agree():
    sim = simulate(15_000, 60, 4, redundancy=5, seed=9)
    one, two = (MACE(threads=threads, restarts=2).fit(sim.annotations) for threads in (1, 2))
    np.testing.assert_allclose(one.posterior_, two.posterior_, atol=1e-9)


def test_stopping_early_warns_with_what_to_raise():
    table = simulate(300, 9, 3, seed=4).annotations
    with pytest.warns(ConvergenceWarning, match=r"max_iter=2 passes.*Raise max_iter or tol"):
        model = MACE(max_iter=2, tol=0).fit(table)
    assert not model.converged_


@pytest.mark.parametrize(
    ("keyword", "value"),
    [("alpha", 0.0), ("beta", -1), ("strategy_count", float("inf")), ("class_count", 0), ("vote_count", -1),
     ("class_prior", "flat"), ("max_iter", 0), ("tol", -1.0), ("accelerate", "anderson"), ("restarts", 0),
     ("threads", 0)],
)  # fmt: skip
def test_a_bad_keyword_is_named_with_its_value(keyword, value):
    table = simulate(30, 4, 2, redundancy=3, seed=4).annotations
    with pytest.raises(BadParameter, match=rf"{keyword} must .*{value}"):
        MACE(**{keyword: value}).fit(table)


@pytest.mark.realdata
@pytest.mark.parametrize(
    ("name", "accuracy"), [("rte", 0.926), ("bluebirds", 0.861), ("sentiment_polarity", 0.918), ("labelme", 0.779)]
)
def test_with_the_settings_of_the_paper_it_is_as_right_as_crowd_kit(name, accuracy, data_folder):
    # crowd-kit 1.4.1, MACE(n_restarts=1), rows sorted by worker and label; ties count as their share
    data = load_dataset(name, folder=data_folder)
    known = data.gold >= 0
    paper = MACE(alpha=0.5, beta=0.5, strategy_count=10, class_prior="uniform")
    posterior = paper.fit(data.annotations).posterior_[known]
    tied = posterior >= posterior.max(axis=1, keepdims=True) * (1 - 1e-9)
    found = (tied[np.arange(known.sum()), data.gold[known]] / tied.sum(axis=1)).mean()
    assert abs(found - accuracy) < 0.002
