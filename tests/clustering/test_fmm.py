import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import adjusted_rand_score

from benchmarks.clustering.drawn import draw
from clustering.graphs import clustered, some_params
from dissensus.clustering import FMM
from dissensus.clustering.model import ClusterPriors
from dissensus.clustering.start import VoteMixture, draw_distant_rows
from strategies import tables
from tables import KINDS, random_table


@pytest.mark.parametrize("kind", KINDS)
def test_one_pass_is_the_literal_em_step(kind):
    table, priors = random_table(2, **KINDS[kind]), ClusterPriors(2.5, 1.7)
    params = some_params(3, 1, table.n_classes, 2)
    psi, theta, n = params.psi, params.theta[:, 0], table.votes()
    objective, after = VoteMixture(n, priors).em_step(params)
    total = 1.5 * np.log(theta).sum() + 0.7 * np.log(psi).sum()
    counts, sizes = np.full(theta.shape, 1.5), np.full(3, 0.7)
    for i in range(table.n_items):
        joint = np.array([psi[k] * np.prod(theta[k] ** n[i]) for k in range(3)])
        total += np.log(joint.sum())
        sizes += joint / joint.sum()
        counts += np.outer(joint / joint.sum(), n[i])
    np.testing.assert_allclose(objective, total)
    np.testing.assert_allclose(after.psi, sizes / sizes.sum())
    np.testing.assert_allclose(after.theta[:, 0], counts / counts.sum(axis=1, keepdims=True))


@settings(max_examples=40)
@given(tables(), st.integers(1, 3), st.sampled_from([None, "squarem"]))
def test_the_objective_never_falls(table, K, accelerate):
    K = min(K, int((np.diff(table.item_ptr) > 0).sum()))
    model = FMM(n_clusters=K, accelerate=accelerate, max_iter=3000, restarts=2).fit(table)
    assert (np.diff(model.trace_) >= -1e-9 * np.abs(model.trace_[1:])).all()
    np.testing.assert_allclose(model.item_clusters_.sum(axis=1), 1)
    np.testing.assert_allclose(model.labels_of_clusters_.sum(axis=2), 1)


def test_scoring_the_fitted_table_gives_its_clusters():
    table = clustered()
    model = FMM(n_clusters=3, snap="soft").fit(table)
    np.testing.assert_allclose(model.predict_clusters(table), model.item_clusters_, atol=1e-12)
    np.testing.assert_allclose(model.predict_proba(table), model.posterior_, atol=1e-12)


def test_known_clusters_are_found():
    drawn = draw(600, 40, 6, item_clusters=4, annotator_clusters=1, redundancy=12, concentration=0.3, seed=0)
    model = FMM(n_clusters=4).fit(drawn.annotations)
    by_truth = VoteMixture(drawn.annotations.votes(), ClusterPriors()).posterior(drawn.params).argmax(axis=1)
    reached = adjusted_rand_score(drawn.item_cluster, model.item_cluster_)
    assert reached > 0.95 * adjusted_rand_score(drawn.item_cluster, by_truth) > 0.7


def test_more_starts_are_never_worse_and_start_apart():
    table = random_table(7, n=300)
    one, many = FMM(n_clusters=4, restarts=1).fit(table), FMM(n_clusters=4, restarts=8).fit(table)
    assert many.trace_[-1] >= one.trace_[-1]
    votes = VoteMixture(table.votes(), ClusterPriors())
    seeds = np.random.SeedSequence(0).spawn(2)
    first, second = (votes.draw_params(4, np.random.default_rng(seed)).theta for seed in seeds)
    assert np.abs(first - second).max() > 0.01


def test_first_items_lie_far_apart():
    counts = np.repeat(np.eye(4) * 10, 50, axis=0)  # four kinds of items, fifty of each
    for seed in range(20):
        assert len(set(draw_distant_rows(counts, 4, np.random.default_rng(seed)) // 50)) == 4
