"""Even classes: the price of leaving them, and the M step."""

import numpy as np
import pytest

from dissensus.models.class_shares import (
    UniformClassPrior,
    fit_uniformity,
    nonuniform_cost,
    uniform_weights,
    update_class_prior,
)


def objective(params, counts, pseudo, cost):
    """What the M step raises."""
    return counts @ np.log(params.prior) + pseudo @ np.log(params.free_shares) - cost * (1 - params.uniformity[0])


@pytest.mark.parametrize("seed", range(6))
def test_the_m_step_raises_its_objective_to_the_top(seed):
    rng = np.random.default_rng(seed)
    K = 2 + seed % 3
    counts, pseudo = 300 * rng.dirichlet(np.full(K, 2.0)), 0.5 + 20 * rng.dirichlet(np.ones(K))
    cost, last = nonuniform_cost(np.ones(K), 300), -np.inf
    params = UniformClassPrior(np.array([0.5]), rng.dirichlet(np.full(K, 5.0)), rng.dirichlet(np.full(K, 9.0)))
    for _ in range(3000):
        now = objective(params, counts, pseudo, cost)
        assert now >= last - 1e-9
        params, last = update_class_prior(params, counts, pseudo, cost), now
    for _ in range(2000):
        even = np.clip(params.uniformity + rng.normal(0, 0.02), 0, 1)
        near = UniformClassPrior(even, rng.dirichlet(2000 * params.free_shares + 1e-3), params.uniform_shares)
        assert objective(near, counts, pseudo, cost) < last + 1e-4


@pytest.mark.parametrize("K", [2, 5])
def test_near_even_shares_evenness_is_the_price_over_chi_squared(K):
    shares = np.full(K, 1 / K)
    shares[:2] += [0.02, -0.02]
    counts, cost = 10_000 * shares, nonuniform_cost(np.ones(K), 10_000)
    params = UniformClassPrior(np.array([0.5]), shares, np.full(K, 1 / K))
    chi_squared = ((counts - 10_000 / K) ** 2 / (10_000 / K)).sum()
    assert fit_uniformity(params, counts, cost) == pytest.approx(min(cost / chi_squared, 1), abs=0.05)
    assert fit_uniformity(params, counts / 100, nonuniform_cost(np.ones(K), 100)) == 1


def test_the_price_is_that_of_all_classes_but_one():
    assert nonuniform_cost(np.ones(4), 100) == pytest.approx(3 * np.log(100))
    assert nonuniform_cost(np.ones(1), 100) == nonuniform_cost(np.ones(3), 0) == 0


def test_a_class_that_next_to_nobody_names_is_not_among_the_even_ones():
    np.testing.assert_allclose(
        uniform_weights(np.array([500.0, 499.0, 1.0, 0.0])), [1, 1, 5 / 1001 / 0.25, 1 / 1001 / 0.25]
    )
    np.testing.assert_array_equal(uniform_weights(np.array([60.0, 30.0, 10.0])), 1)  # a tenth is not so few
    np.testing.assert_array_equal(uniform_weights(np.zeros(3)), 1)
