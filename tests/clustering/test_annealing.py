import numpy as np
import pytest
from sklearn.metrics import adjusted_rand_score

from benchmarks.clustering.drawn import draw
from clustering.graphs import clustered, log_joint, some_params
from clustering.test_model import PRIORS, K, L, literal_posterior
from clustering.test_model import a_state as a_drawn_state
from dissensus.clustering import model, select_clusters
from dissensus.clustering.annealing import (
    AnnealingState,
    PGMAnnealing,
    _draw_acceptance,
    _draw_clusters,
    delta_shares,
    delta_theta,
    log_posterior,
)
from dissensus.clustering.exceptions import InvalidTemperatureSchedule
from dissensus.clustering.model import ClusterCounts, ClusterParams, ClusterPriors, LabelGraph
from dissensus.clustering.start import InitialState
from dissensus.exceptions import BadParameter
from dissensus.table.simulate import simulate
from tables import KINDS


def a_state(seed=0):
    table = clustered(seed=seed)
    rng = np.random.default_rng(seed)
    params = some_params(3, 2, table.n_classes, seed)
    w, z = rng.integers(0, 3, table.n_items), rng.integers(0, 2, table.n_annotators)
    return table, AnnealingState(LabelGraph(table), params, w, z, ClusterPriors())


@pytest.mark.parametrize("proposal", ["conditional", "prior"])
def test_the_log_posterior_of_a_walk_is_that_of_its_state(proposal):
    table, state = a_state()
    rng = np.random.default_rng(0)
    for temperature in (1.0, 0.5, 0.1):
        step = state.gibbs_step if proposal == "conditional" else state.metropolis_step
        step(temperature, rng)
        full = log_joint(table, state.params, state.item, state.annotator) + model.log_prior(
            state.params, ClusterPriors()
        )
        np.testing.assert_allclose(state.log_posterior(), full, atol=1e-9)


def test_at_temperature_zero_every_block_rises():
    _, state = a_state()
    rng, before = np.random.default_rng(0), -np.inf
    for _ in range(10):
        state.gibbs_step(0.0, rng)
        assert state.log_posterior() >= before - 1e-9
        before = state.log_posterior()
    at_rest = state.item.copy()
    state.gibbs_step(0.0, rng)
    np.testing.assert_array_equal(state.item, at_rest)


def test_clusters_are_drawn_from_the_tempered_conditional():
    logs = np.tile(np.array([0.0, 1.0, -0.5]), (60_000, 1))
    chosen = _draw_clusters(logs, 2.0, np.random.default_rng(0))
    expected = np.exp(2 * logs[0]) / np.exp(2 * logs[0]).sum()
    np.testing.assert_allclose(np.bincount(chosen) / len(logs), expected, atol=0.006)
    assert (_draw_clusters(logs, np.inf, np.random.default_rng(0)) == 1).all()


def test_parameters_are_drawn_from_the_tempered_conditional():
    _, state = a_state()
    counts, rng = state.counts, np.random.default_rng(0)
    drawn = []
    for _ in range(3000):
        state.counts = counts
        state.gibbs_step(0.5, rng)
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
    assert _draw_acceptance(np.full(1000, 0.1), 0.5, rng).all()
    assert not _draw_acceptance(np.full(1000, -1e9), 0.5, rng).any()
    share = _draw_acceptance(np.full(100_000, -0.7), 0.5, rng).mean()
    np.testing.assert_allclose(share, np.exp(-0.7 / 0.5), atol=0.005)


def test_the_walk_of_prior_proposals_has_the_posterior_as_its_limit():
    # at T = 1 with everything but ψ frozen, ψ is Dirichlet(γ + N); the paper's δ without N would leave it at its prior.
    # its proposals come from the prior without correction, so the limit is prior² × likelihood: Dirichlet(2γ − 1 + N)
    rng, sizes, psi, total = np.random.default_rng(0), np.array([6.0, 2.0]), np.array([0.5, 0.5]), np.zeros(2)
    for _ in range(40_000):
        new = rng.dirichlet([2.0, 2.0])
        if _draw_acceptance(delta_shares(sizes, psi, new, 2.0), 1.0, rng):
            psi = new
        total += psi
    shape = 3 + sizes
    np.testing.assert_allclose(total / 40_000, shape / shape.sum(), atol=0.01)


@pytest.mark.parametrize("proposal", ["conditional", "prior"])
def test_the_best_state_ever_seen_is_returned(proposal):
    table = clustered()
    fitted = PGMAnnealing(item_clusters=3, annotator_clusters=2, proposal=proposal, sweeps=30, restarts=2).fit(table)
    params = ClusterParams(fitted.psi_, fitted.omega_, fitted.labels_of_clusters_)
    full = log_joint(table, params, fitted.item_cluster_, fitted.annotator_cluster_) + model.log_prior(
        params, ClusterPriors()
    )
    np.testing.assert_allclose(fitted.trace_[-1], full, atol=1e-8)
    assert (np.diff(fitted.trace_) >= 0).all()


def test_conditional_proposals_end_higher_than_those_of_the_prior(monkeypatch):
    def random_start(self, edges, votes, number, rng):
        item, annotator = rng.integers(3, size=edges.items.size), rng.integers(2, size=edges.annotators.size)
        return InitialState(
            model.m_step(model.hard_counts(edges, item, annotator, 3, 2), votes.priors), item, annotator
        )

    monkeypatch.setattr(PGMAnnealing, "_initial_state", random_start)
    table = clustered()
    options = {"item_clusters": 3, "annotator_clusters": 2, "restarts": 1}
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
    for wrong in ([], [1, 0], [1, np.inf], [[1]]):
        with pytest.raises(InvalidTemperatureSchedule):
            PGMAnnealing(schedule=wrong).fit(clustered())
    with pytest.raises(BadParameter):
        PGMAnnealing(schedule="geometric").fit(clustered())


# Equations -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_log_posterior_is_equation_3(kind):
    table, params, w, z = a_drawn_state(kind)
    counts = model.hard_counts(LabelGraph(table), w, z, K, L)
    expected = literal_posterior(table, params, w, z, PRIORS)
    np.testing.assert_allclose(log_posterior(counts, params, PRIORS), expected, rtol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_every_delta_is_the_difference_of_full_log_posteriors(kind):
    table, old, w, z = a_drawn_state(kind)
    new = some_params(K, L, table.n_classes, 99)
    counts = model.hard_counts(LabelGraph(table), w, z, K, L)

    def full(params, w, z):
        return literal_posterior(table, params, w, z, PRIORS)

    before = full(old, w, z)
    deltas = delta_theta(counts, old.theta, new.theta, PRIORS)
    for k in range(K):
        for l in range(L):
            theta = old.theta.copy()
            theta[k, l] = new.theta[k, l]
            np.testing.assert_allclose(
                deltas[k, l], full(ClusterParams(old.psi, old.omega, theta), w, z) - before, atol=1e-9
            )
    np.testing.assert_allclose(
        delta_shares(counts.items, old.psi, new.psi, PRIORS.gamma),
        full(ClusterParams(new.psi, old.omega, old.theta), w, z) - before, atol=1e-9,
    )  # fmt: skip
    np.testing.assert_allclose(
        delta_shares(counts.annotators, old.omega, new.omega, PRIORS.tau),
        full(ClusterParams(old.psi, new.omega, old.theta), w, z) - before, atol=1e-9,
    )  # fmt: skip


def test_no_parameters_beat_those_of_the_m_step():
    rng = np.random.default_rng(0)
    counts = ClusterCounts(rng.uniform(0, 9, (K, L, 4)), rng.uniform(0, 9, K), rng.uniform(0, 9, L))
    best = log_posterior(counts, model.m_step(counts, PRIORS), PRIORS)
    for seed in range(50):
        assert log_posterior(counts, some_params(K, L, 4, seed), PRIORS) < best


# As the other clusterings ---------------------------------------------------------------------------------------------


def test_known_clusters_of_items_and_annotators_are_found():
    for seed in range(3):
        drawn = draw(500, 80, 8, item_clusters=4, annotator_clusters=3, redundancy=10, concentration=0.2, seed=seed)
        model = PGMAnnealing(item_clusters=4, annotator_clusters=3, sweeps=200).fit(drawn.annotations)
        assert adjusted_rand_score(drawn.item_cluster, model.item_cluster_) > 0.95
        assert adjusted_rand_score(drawn.annotator_cluster, model.annotator_cluster_) > 0.95


def test_without_a_number_item_clusters_are_the_classes():
    crowd = simulate(1000, 60, 3, redundancy=6, seed=2)
    model = PGMAnnealing(item_clusters=None, annotator_clusters=3, restarts=2, sweeps=40).fit(crowd.annotations)
    assert model.item_clusters_.shape == (1000, 3)


def test_threads_and_jobs_change_no_bit():
    table = clustered()
    how = {"item_clusters": 3, "annotator_clusters": 2, "restarts": 2, "sweeps": 40}
    one, two = (PGMAnnealing(threads=threads, **how).fit(table) for threads in (1, 2))
    np.testing.assert_array_equal(one.item_clusters_, two.item_clusters_)
    np.testing.assert_array_equal(one.trace_, two.trace_)
    one, two = (select_clusters(table, "pgm-annealing", K=[2, 3], L=[2], sweeps=20, jobs=jobs) for jobs in (1, 2))
    assert [point.objective for point in one.points] == [point.objective for point in two.points]


@pytest.mark.parametrize(("keyword", "value"), [("proposal", "posterior"), ("sweeps", 0), ("annotator_clusters", 1.5)])
def test_wrong_keywords_are_named(keyword, value):
    with pytest.raises(BadParameter):
        PGMAnnealing(**{keyword: value}).fit(clustered())
