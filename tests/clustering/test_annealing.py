import numpy as np
import pytest

from clustering.graphs import clustered, log_joint, some_params
from dissensus.clustering import PGMAnnealing, model
from dissensus.clustering.annealing import State, _accept, _pick
from dissensus.clustering.model import Edges, Params, Priors
from dissensus.exceptions import BadParameter


def a_state(seed=0):
    table = clustered(seed=seed)
    rng = np.random.default_rng(seed)
    params = some_params(3, 2, table.n_classes, seed)
    w, z = rng.integers(0, 3, table.n_items), rng.integers(0, 2, table.n_annotators)
    return table, State(Edges(table), params, w, z, Priors())


@pytest.mark.parametrize("proposal", ["conditional", "prior"])
def test_the_log_posterior_of_a_walk_is_that_of_its_state(proposal):
    table, state = a_state()
    rng = np.random.default_rng(0)
    for temperature in (1.0, 0.5, 0.1):
        getattr(state, proposal)(temperature, rng)
        full = log_joint(table, state.params, state.item, state.annotator) + model.log_prior(state.params, Priors())
        np.testing.assert_allclose(state.log_posterior(), full, atol=1e-9)


def test_at_temperature_zero_every_block_rises():
    _, state = a_state()
    rng, before = np.random.default_rng(0), -np.inf
    for _ in range(10):
        state.conditional(0.0, rng)
        assert state.log_posterior() >= before - 1e-9
        before = state.log_posterior()
    at_rest = state.item.copy()
    state.conditional(0.0, rng)
    np.testing.assert_array_equal(state.item, at_rest)


def test_clusters_are_drawn_from_the_tempered_conditional():
    logs = np.tile(np.array([0.0, 1.0, -0.5]), (60_000, 1))
    chosen = _pick(logs, 2.0, np.random.default_rng(0))
    expected = np.exp(2 * logs[0]) / np.exp(2 * logs[0]).sum()
    np.testing.assert_allclose(np.bincount(chosen) / len(logs), expected, atol=0.006)
    assert (_pick(logs, np.inf, np.random.default_rng(0)) == 1).all()


def test_parameters_are_drawn_from_the_tempered_conditional():
    _, state = a_state()
    counts, rng = state.counts, np.random.default_rng(0)
    drawn = []
    for _ in range(3000):
        state.counts = counts
        state.conditional(0.5, rng)
        drawn.append(state.params)
    for part, sizes in (("theta", counts.labels), ("psi", counts.items), ("omega", counts.annotators)):
        values = np.stack([getattr(params, part) for params in drawn])
        shape = 1 + (1 + sizes) / 0.5
        total = shape.sum(axis=-1, keepdims=True)
        mean = shape / total
        np.testing.assert_allclose(values.mean(axis=0), mean, atol=0.006)
        np.testing.assert_allclose(values.var(axis=0), mean * (1 - mean) / (total + 1), rtol=0.2)


def test_worse_proposals_are_taken_at_the_rate_that_the_temperature_says():
    rng = np.random.default_rng(0)
    assert _accept(np.full(1000, 0.1), 0.5, rng).all()
    assert not _accept(np.full(1000, -1e9), 0.5, rng).any()
    share = _accept(np.full(100_000, -0.7), 0.5, rng).mean()
    np.testing.assert_allclose(share, np.exp(-0.7 / 0.5), atol=0.005)


def test_the_walk_of_prior_proposals_has_the_posterior_as_its_limit():
    # at T = 1 with everything but ψ frozen, ψ is Dirichlet(γ + N); the paper's δ without N would leave it at its prior.
    # its proposals come from the prior without correction, so the limit is prior² × likelihood: Dirichlet(2γ − 1 + N)
    rng, sizes, psi, total = np.random.default_rng(0), np.array([6.0, 2.0]), np.array([0.5, 0.5]), np.zeros(2)
    for _ in range(40_000):
        new = rng.dirichlet([2.0, 2.0])
        if _accept(model.delta_shares(sizes, psi, new, 2.0), 1.0, rng):
            psi = new
        total += psi
    shape = 3 + sizes
    np.testing.assert_allclose(total / 40_000, shape / shape.sum(), atol=0.01)


@pytest.mark.parametrize("proposal", ["conditional", "prior"])
def test_the_best_state_ever_seen_is_returned(proposal):
    table = clustered()
    fitted = PGMAnnealing(item_clusters=3, annotator_clusters=2, proposal=proposal, sweeps=30, restarts=2).fit(table)
    params = Params(fitted.psi_, fitted.omega_, fitted.labels_of_clusters_)
    full = log_joint(table, params, fitted.item_cluster_, fitted.annotator_cluster_) + model.log_prior(params, Priors())
    np.testing.assert_allclose(fitted.trace_[-1], full, atol=1e-8)
    assert (np.diff(fitted.trace_) >= 0).all()


def test_conditional_proposals_end_higher_than_those_of_the_prior():
    table = clustered()
    options = {"item_clusters": 3, "annotator_clusters": 2, "start": "random", "restarts": 1}
    ends = {
        proposal: PGMAnnealing(proposal=proposal, sweeps=100, **options).fit(table).trace_[-1]
        for proposal in ("conditional", "prior")
    }
    assert ends["conditional"] > ends["prior"] + 100


def test_schedules():
    np.testing.assert_allclose(PGMAnnealing(schedule="inverse", sweeps=4).temperatures(), [1, 1 / 2, 1 / 3, 1 / 4])
    plateau = PGMAnnealing(sweeps=10).temperatures()
    np.testing.assert_allclose(plateau[:5], 1)
    np.testing.assert_allclose(plateau[-1], 0.1)
    np.testing.assert_allclose(plateau[6] / plateau[5], plateau[7] / plateau[6])
    np.testing.assert_allclose(PGMAnnealing(schedule=[3, 1, 0.5]).temperatures(), [3, 1, 0.5])
    assert len(PGMAnnealing(sweeps=1).temperatures()) == 1
    for wrong in ([], [1, 0], [1, np.inf], [[1]], "geometric"):
        with pytest.raises(BadParameter, match="schedule"):
            PGMAnnealing(schedule=wrong).fit(clustered())
