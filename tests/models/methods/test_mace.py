"""MACE: the bound and the M step against loops, the evidence by brute force, and spammers found."""

import math

import numpy as np
import pytest
from scipy import integrate, stats
from scipy.special import psi

from dissensus import Annotations, methods
from dissensus.compute.kernels.confusion import MAX_LOG_PRODUCT, chunk_rows
from dissensus.models.confusion import EStepParams
from dissensus.models.dirichlet import expected_log, kl_divergence
from dissensus.models.methods.mace import MACE, MIN_PRIOR_PARAMETER, MACEParams, draw_keys_by_counts, posterior_means
from dissensus.table.datasets import load_dataset
from dissensus.table.simulate import simulate
from models.family import begun, readable_objective
from tables import KINDS, placed, random_table, shares_of, some_gold


def random_params(seed: int, table: Annotations) -> MACEParams:
    rng = np.random.default_rng(seed)
    given = np.zeros((table.n_annotators, table.n_classes))
    for row in range(len(table)):
        given[table.annotator[row]] += shares_of(table, row)
    return MACEParams(rng.dirichlet(np.ones(table.n_classes)), np.where(given > 0, rng.random(given.shape), 0), given)


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


def literal_pass(model: MACE, table: Annotations, params: MACEParams, gold=None):
    """The equations of the module docstring as plain loops, and the bound term by term: E log p − E log q."""
    I, A, K = table.n_items, table.n_annotators, table.n_classes
    posterior, copied, bound = np.zeros((I, K)), np.zeros((A, K)), 0.0
    copy, spam = np.zeros(A), np.zeros((A, K))
    for j in range(A):
        alpha, beta, delta = model.alpha, model.beta, np.full(K, model.strategy_count)
        for y in range(K):
            alpha += params.copied_share[j, y] * params.given[j, y]
            beta += (1 - params.copied_share[j, y]) * params.given[j, y]
            delta[y] += (1 - params.copied_share[j, y]) * params.given[j, y]
        copy[j] = np.exp(psi(alpha) - psi(alpha + beta))
        for y in range(K):
            spam[j, y] = np.exp(psi(beta) - psi(alpha + beta) + psi(delta[y]) - psi(delta.sum()))
        both = np.array([alpha, beta])
        bound -= kl_divergence(both[None], np.array([model.alpha, model.beta]), expected_log(both[None]))
        bound -= kl_divergence(delta[None], np.full(K, model.strategy_count), expected_log(delta[None]))
    for i in range(I):
        rows = []  # (annotator, label, weight); a probabilistic row is one row per class
        for row in range(len(table)):
            if table.item[row] == i:
                rows += [(table.annotator[row], y, weight) for y, weight in enumerate(shares_of(table, row))]
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


@pytest.mark.parametrize("with_gold", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_bound_and_m_step_equal_the_literal_loops(kind, with_gold):
    table = random_table(1, **KINDS[kind])
    params, gold = random_params(2, table), some_gold(table) if with_gold else None
    for class_prior in ("uniform", "learned"):
        model = begun(MACE(alpha=0.7, beta=0.4, strategy_count=1.3, class_prior=class_prior), table, gold)
        if class_prior == "learned":
            model.class_pseudo_counts_ = np.array([0.7, 0.2, 3.0, 1.0])
        posterior, copied, bound = literal_pass(model, table, params, gold)
        of_prior = 0.0 if class_prior == "uniform" else model.class_pseudo_counts_ @ np.log(params.prior)
        with placed(table, gold) as engine:
            objective, after = model.em_step(engine, model.e_step_pass(), params)
        readable, same = readable_objective(model, table, params, gold)
        np.testing.assert_allclose(readable, posterior, atol=1e-12)
        np.testing.assert_allclose([objective, same], bound + of_prior, rtol=1e-12)
        np.testing.assert_allclose(after.copied_share * after.given, copied, atol=1e-11)
        np.testing.assert_allclose(after.given, params.given)
        shares = posterior.sum(axis=0) + model.class_pseudo_counts_ if class_prior == "learned" else np.ones(4)
        np.testing.assert_allclose(after.prior, shares / shares.sum())


def test_divergence_is_that_of_the_densities():
    counts, prior = np.array([[2.5, 0.8], [0.6, 4.0]]), np.array([0.5, 0.5])
    expected = 0.0
    for own in counts:
        one, other = stats.beta(*own), stats.beta(*prior)
        expected += integrate.quad(
            lambda x, one=one, other=other: one.pdf(x) * (one.logpdf(x) - other.logpdf(x)), 0, 1
        )[0]
    np.testing.assert_allclose(kl_divergence(counts, prior, expected_log(counts)), expected, rtol=1e-6)
    counts, prior = np.array([3.0, 1.2, 2.1]), np.array([1.0, 1.5, 0.9])
    draws = np.random.default_rng(0).dirichlet(counts, 200_000).T
    sampled = (stats.dirichlet(counts).logpdf(draws) - stats.dirichlet(prior).logpdf(draws)).mean()
    np.testing.assert_allclose(kl_divergence(counts[None], prior, expected_log(counts[None])), sampled, atol=0.01)


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
    gold = some_gold(table) if with_gold else None
    share, active = np.zeros(4), set()
    for i in range(table.n_items):
        votes = np.zeros(4)
        for row in range(table.item_ptr[i], table.item_ptr[i + 1]):
            votes += shares_of(table, row)
            active.add(int(table.annotator[row]))
        if votes.sum() > 0:
            share += np.eye(4)[gold[i]] if gold is not None and gold[i] >= 0 else votes / votes.sum()
    roots = [float(np.sqrt(v)) for v in share]
    model = begun(MACE(class_count=0.6, vote_count=0.4), table, gold)
    expected = [0.6 + 0.4 * len(active) * 4 * root / sum(roots) for root in roots]
    np.testing.assert_allclose(model.class_pseudo_counts_, expected, rtol=1e-12)


def test_held_shares_keep_few_labels_each_from_making_one_class_of_all_items():
    smallest = {0.0: [], 1.0: []}
    for seed in range(8):
        table = simulate(100, 60, 2, redundancy=2, hardness=0.3, seed=seed).annotations
        for vote_count, found in smallest.items():
            predicted = MACE(vote_count=vote_count, restarts=2).fit(table).predict()
            found.append(min((predicted == k).mean() for k in (0, 1)))
    assert np.mean(smallest[1.0]) > np.mean(smallest[0.0]) + 0.05


def test_everyone_begins_with_half_of_its_labels_copied():
    table = random_table(8)
    start = begun(MACE(), table).initialise(placed(table), None)
    np.testing.assert_array_equal(start.copied_share, np.where(random_params(0, table).given > 0, 0.5, 0))
    np.testing.assert_array_equal(start.prior, 0.25)


def test_random_starts_are_keyed_on_what_annotators_did_not_on_their_names():
    table = random_table(8)
    new = np.random.default_rng(1).permutation(7)
    renamed = Annotations.from_arrays(table.item, new[table.annotator], table.label)
    before, after = (
        begun(MACE(), each).initialise(placed(each), np.random.default_rng(5)).copied_share for each in (table, renamed)
    )
    np.testing.assert_array_equal(after[new], before)


def test_steps_of_all_starts_are_told():
    seen = []
    model = MACE(restarts=3).fit(random_table(1), on_step=lambda step, bound: seen.append((step, bound)))
    assert [step for step, _ in seen] == list(range(1, model.n_iter_ + 1))
    assert max(bound for _, bound in seen) == model.trace_[-2]


def test_confusions_are_made_of_competence_and_strategy():
    model = MACE().fit(random_table(9))
    for theta, leans, matrix in zip(model.competence_, model.strategy_, model.confusion_, strict=True):
        np.testing.assert_allclose(matrix, theta * np.eye(4) + (1 - theta) * leans)
    copied = (model.copied_share_ * model.given_).sum(axis=1)
    np.testing.assert_allclose(model.competence_counts_[:, 0], copied + model.alpha)
    np.testing.assert_allclose(model.competence_counts_.sum(axis=1), model.n_annotations_ + model.alpha + model.beta)
    np.testing.assert_allclose(model.competence_, posterior_means(model.annotator_posterior(model._params()))[0])
    np.testing.assert_allclose(model.strategy_.sum(axis=1), 1)


def test_the_population_pools_what_was_copied():
    table = simulate(300, 9, 3, seed=4).annotations
    model = MACE().fit(table)
    copied = model.competence_counts_[:, 0] - model.alpha
    pooled = (copied.sum() + model.alpha) / (len(table) + model.alpha + model.beta)
    np.testing.assert_allclose(model.population_competence_, pooled)
    spammed = (model.strategy_counts_ - model.strategy_count).sum(axis=0) + model.strategy_count
    np.testing.assert_allclose(model.population_strategy_, spammed / spammed.sum())
    unseen = pooled * np.eye(3) + (1 - pooled) * model.population_strategy_
    np.testing.assert_allclose(model.annotator_confusions(np.array([-1]))[0], unseen)


def test_intervals_have_the_variance_of_what_is_believed():
    """By draws of θ and ξ, and by SciPy's moments of a Beta and a Dirichlet; few labels, so that n + 1 is not n."""
    model = MACE(alpha=0.8, beta=1.7, strategy_count=0.6).fit(random_table(9, n=31))
    variance = model.confusion_ * (1 - model.confusion_) / (model.confusion_support() + 1)
    rng = np.random.default_rng(0)
    for a in range(7):
        theta, delta = stats.beta(*model.competence_counts_[a]), model.strategy_counts_[a]
        xi = stats.dirichlet(delta)
        draws = theta.rvs(60_000, random_state=rng)[:, None, None]
        drawn = draws * np.eye(4) + (1 - draws) * xi.rvs(60_000, random_state=rng)[:, None, :]
        np.testing.assert_allclose(variance[a], drawn.var(axis=0), rtol=0.05)
        spams = theta.var() + (1 - theta.mean()) ** 2  # E (1 − θ)²
        for c, y in np.ndindex(4, 4):
            x = stats.beta(delta[y], delta.sum() - delta[y])
            mean, square = (1 - x.mean(), x.var() + (1 - x.mean()) ** 2) if c == y else (x.mean(), x.moment(2))
            exact = spams * square - ((1 - theta.mean()) * mean) ** 2
            np.testing.assert_allclose(variance[a, c, y], exact, rtol=1e-9)


def test_the_paper_s_extremes_end_in_numbers():
    n = 5000
    sure = Annotations.from_arrays(np.arange(n) % 2, np.arange(n) // 50, np.arange(n) % 2)  # ratios of hundreds
    model = MACE(alpha=0.01, beta=0.01, strategy_count=0.01).fit(sure)
    np.testing.assert_allclose(model.posterior_, np.eye(2))
    assert np.isfinite(model.trace_).all()


def test_no_prior_that_is_allowed_makes_odds_that_could_overflow():
    given = np.array([[1e9, 0.0, 0.0], [5e8, 5e8, 0.0]])
    model = MACE(alpha=MIN_PRIOR_PARAMETER, beta=MIN_PRIOR_PARAMETER, strategy_count=MIN_PRIOR_PARAMETER)
    for share in (0.0, 0.5, 1.0):
        params = MACEParams(np.full(3, 1 / 3), np.full((2, 3), share), given)
        odds = EStepParams.from_likelihood(params.prior, model.label_likelihood(params)).likelihood
        assert np.abs(np.log(odds)).max() < MAX_LOG_PRODUCT
        assert chunk_rows(odds) >= 1


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


def test_the_rounding_of_large_sums_changes_no_draw():
    """The sums of 100,000 labels and more differ in their last digits where classes have other names."""
    total = np.exp2(np.random.default_rng(0).uniform(0, 60, 20_000))
    hits = total * np.random.default_rng(1).random(total.size)
    one, other = (draw_keys_by_counts(np.random.default_rng(2), hits * noise, total) for noise in (1, 1 + 1e-13))
    assert np.mean(one != other) < 1e-4
    assert np.unique(one).size == one.size
