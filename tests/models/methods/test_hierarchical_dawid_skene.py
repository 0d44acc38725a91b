"""Hierarchical Dawid-Skene: the bound against SciPy's Dirichlet, and what sharing a prior is for."""

import numpy as np
from scipy import optimize, stats
from scipy.special import gammaln, psi

from dissensus import Annotations
from dissensus.models.dirichlet import MIN_ALPHA, expected_log, inverse_psi
from dissensus.models.methods.dawid_skene import DawidSkene
from dissensus.models.methods.hierarchical_dawid_skene import (
    HierarchicalDawidSkene,
    HierarchicalParams,
    expected_population,
    improve_population,
)
from dissensus.table.simulate import simulate
from models.family import readable_objective


def random_crowd(seed: int, n_annotators: int, n_classes: int) -> HierarchicalParams:
    rng = np.random.default_rng(seed)
    shape = (n_annotators, n_classes, n_classes)
    return HierarchicalParams(
        rng.dirichlet(np.ones(n_classes)), rng.uniform(0.1, 9, shape), rng.uniform(0.1, 3, shape[1:])
    )


def test_expected_log_is_that_of_samples():
    gamma = np.array([0.7, 2.0, 4.0])
    samples = np.random.default_rng(0).dirichlet(gamma, 100_000)
    np.testing.assert_allclose(expected_log(gamma), np.log(samples).mean(axis=0), atol=0.02)


def test_penalty_is_minus_the_divergences_plus_the_log_priors():
    A, K = 3, 4
    params = random_crowd(1, A, K)
    model = HierarchicalDawidSkene(prior_annotators=1.5)
    literal = 0.0
    for c in range(K):
        alpha = params.population[c]
        for j in range(A):
            gamma = params.concentration[j, c]
            # KL(Dir(γ) ‖ Dir(α)) = E_γ[log density ratio], in closed form from entropies
            logs = psi(gamma) - psi(gamma.sum())
            cross = -stats.dirichlet(alpha).logpdf(np.full(K, 1 / K)) + ((alpha - 1) * np.log(1 / K)).sum()
            cross -= ((alpha - 1) * logs).sum()  # −E_γ log Dir(Θ | α)
            literal -= cross - stats.dirichlet(gamma).entropy()
        expected = expected_population(K)[c]
        logs = psi(expected) - psi(expected.sum())
        normaliser = stats.dirichlet(alpha).logpdf(np.full(K, 1 / K)) - ((alpha - 1) * np.log(1 / K)).sum()
        literal += 1.5 * (normaliser + ((alpha - 1) * logs).sum())
    np.testing.assert_allclose(model.log_prior(params), literal, rtol=1e-10)


def test_population_is_the_one_that_a_search_finds():
    """By the fixed point and by `improve_population` in turn, from large counts in proportion to the matrices."""
    rng = np.random.default_rng(3)
    matrices = rng.dirichlet([2.0, 0.8, 1.5], size=(40, 3))
    logs, model = np.log(matrices[:, 0]).sum(axis=0), HierarchicalDawidSkene(prior_annotators=1e-6)
    params = HierarchicalParams(np.full(3, 1 / 3), np.empty(0), expected_population(3))
    for _ in range(200):
        params = model.update_hyperparameters(1e7 * matrices, params)

    def loss(log_alpha):
        alpha = np.exp(log_alpha)
        density = stats.dirichlet(alpha).logpdf(np.full(3, 1 / 3)) - ((alpha - 1) * np.log(1 / 3)).sum()
        return -(40 * density + ((alpha - 1) * logs).sum())

    best = np.exp(optimize.minimize(loss, np.zeros(3)).x)
    np.testing.assert_allclose(params.population[0], best, rtol=2e-3)


def test_inverse_psi_inverts():
    x = np.array([0.05, 0.5, 1.0, 7.0, 400.0])
    np.testing.assert_allclose(inverse_psi(psi(x)), x, rtol=1e-8)


def test_m_step_adds_the_counts_and_who_has_none_is_like_the_population():
    params, labels = random_crowd(2, 5, 3), np.random.default_rng(0).gamma(1, size=(5, 3, 3))
    model = HierarchicalDawidSkene()
    np.testing.assert_array_equal(model.m_step(labels, np.empty(0), params).concentration, labels + params.population)
    unseen = model.expected_label_likelihood(model.population_params(params))[0]
    np.testing.assert_allclose(unseen, params.population / params.population.sum(axis=1, keepdims=True))
    model.concentration_ = params.concentration
    np.testing.assert_allclose(model.confusion_support()[..., 0], params.concentration.sum(axis=2))


def test_polishing_ends_where_a_search_does():
    """Σ_j log B(α + n_j)/B(α) and the prior's part, literally, and SciPy's search for its top."""
    rng = np.random.default_rng(4)
    A, K, known = 30, 3, 1.5
    truth = np.array([[6.0, 0.4, 0.3], [0.2, 4.0, 1.0], [0.5, 0.1, 9.0]])
    counts = np.array([[rng.multinomial(12, rng.dirichlet(row)) for row in truth] for _ in range(A)], float)

    def density(alpha, c):
        def log_beta(x):
            return gammaln(x).sum() - gammaln(x.sum())

        expected = expected_population(K)[c]
        logs = psi(expected) - psi(expected.sum())
        fit = sum(log_beta(alpha + counts[j, c]) - log_beta(alpha) for j in range(A))
        return fit + known * (((alpha - 1) * logs).sum() - log_beta(alpha))

    alpha = np.ones((K, K))
    for _ in range(300):
        after = improve_population(alpha, counts, known)
        for c in range(K):
            assert density(after[c], c) >= density(alpha[c], c) - 1e-9
        alpha = after
    for c in range(K):
        search = optimize.minimize(lambda x, c=c: -density(np.maximum(np.exp(x), MIN_ALPHA), c), np.zeros(K), tol=1e-10)
        assert density(alpha[c], c) >= -search.fun - 1e-4


def test_the_bound_is_below_the_log_evidence():
    # two items, two annotators, two classes: the evidence by sampling Θ from the prior
    table = Annotations.from_arrays([0, 0, 1, 1], [0, 1, 0, 1], [0, 0, 1, 0])
    params = random_crowd(5, 2, 2)
    rng = np.random.default_rng(0)
    n = 100_000
    theta = [[rng.dirichlet(params.population[c], n) for c in range(2)] for _ in range(2)]  # [annotator][class] (n, 2)
    evidence = np.ones(n)
    for labels in ((0, 0), (1, 0)):
        evidence *= sum(
            params.prior[c] * np.prod([theta[j][c][:, labels[j]] for j in range(2)], axis=0) for c in range(2)
        )
    model = HierarchicalDawidSkene()
    model.class_pseudo_counts_ = np.ones(2)
    nothing = HierarchicalParams(params.prior, np.stack([params.population] * 2), params.population)  # KL = 0
    constant = model.log_prior(nothing) + np.log(params.prior).sum()
    assert readable_objective(model, table, params)[1] - constant <= np.log(evidence.mean()) + 0.02


def test_an_annotator_with_few_labels_is_near_the_crowd_and_one_with_many_is_itself():
    sim = simulate(4000, 40, 3, redundancy=5, skew=1.5, kinds={"ordinary": 1.0}, seed=8)
    model = HierarchicalDawidSkene().fit(sim.annotations)
    crowd = model.population_ / model.population_.sum(axis=1, keepdims=True)
    far = np.abs(model.confusion_ - crowd).mean(axis=(1, 2))
    wrong = np.abs(model.confusion_ - sim.confusion).mean(axis=(1, 2))
    few, many = model.n_annotations_ < 60, model.n_annotations_ > 600
    assert few.any()
    assert many.any()
    assert far[few].mean() < far[many].mean()
    assert wrong[many].mean() < 0.03


def test_better_than_dawid_skene_where_annotators_have_few_labels_of_uneven_classes():
    scores = {DawidSkene: [], HierarchicalDawidSkene: []}
    for seed in range(6):
        sim = simulate(300, 60, 3, redundancy=3, prior=[0.8, 0.15, 0.05], seed=seed)  # 15 labels each
        for method, found in scores.items():
            found.append((method().fit(sim.annotations).predict() == sim.truth).mean())
    assert np.mean(scores[HierarchicalDawidSkene]) > np.mean(scores[DawidSkene]) + 0.01
