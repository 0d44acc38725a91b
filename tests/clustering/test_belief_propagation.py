import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.clustering.drawn import draw
from clustering.graphs import brute_force, clustered, some_params, trees
from dissensus import Annotations
from dissensus.clustering import FMM, PGMBP, model
from dissensus.clustering.belief_propagation import BeliefMessages
from dissensus.clustering.model import LabelGraph
from dissensus.clustering.start import VoteMixture
from dissensus.compute.engines.local import Threads
from tables import KINDS, random_table


def settled(table, params, rounds=50, damping=0.0, tol=0.0):
    with Threads(1) as pool:
        messages = BeliefMessages(LabelGraph(table), params, damping, pool)
        evidence = messages.propagate(params, rounds, tol)
        return messages, evidence, messages.expected_counts()


@settings(max_examples=60)
@given(trees(), st.integers(1, 3), st.integers(1, 3), st.integers(0, 99), st.sampled_from([0.0, 0.3]))
def test_beliefs_on_a_tree_are_the_exact_marginals(table, K, L, seed, damping):
    params = some_params(K, L, table.n_classes, seed)
    evidence, of_item, of_annotator, counts = brute_force(table, params)
    messages, bethe, found = settled(table, params, 200 if damping else 12, damping)
    np.testing.assert_allclose(messages.of_item, of_item, atol=1e-10)
    np.testing.assert_allclose(messages.of_annotator, of_annotator, atol=1e-10)
    np.testing.assert_allclose(bethe, evidence, rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(found.labels, counts, atol=1e-9)
    np.testing.assert_allclose(found.items, of_item.sum(axis=0), atol=1e-9)


@pytest.mark.parametrize("kind", KINDS)
def test_one_round_is_the_papers_and_the_objective_is_bethe(kind):
    table = random_table(3, n_items=9, n_annotators=4, n=40, **KINDS[kind])
    K, L, P = 3, 2, table.n_classes
    params = some_params(K, L, P, 3)
    messages, evidence, counts = settled(table, params, rounds=1)

    pairs = sorted({(int(i), int(j)) for i, j in zip(table.item, table.annotator, strict=True)})
    factor = {}
    for i, j in pairs:
        log = np.zeros((K, L))
        for row in np.flatnonzero((table.item == i) & (table.annotator == j)):
            shares = np.eye(P)[table.label[row]] if table.proba is None else table.proba[row]
            log += (1.0 if table.weight is None else table.weight[row]) * np.log(params.theta) @ shares
        factor[i, j] = np.exp(log)
    mu = dict.fromkeys(pairs, params.omega)
    into = {pair: factor[pair] @ mu[pair] for pair in pairs}
    joint = np.array([params.psi * np.prod([into[p] for p in pairs if p[0] == i], axis=0) for i in range(9)])
    w = joint / joint.sum(axis=1, keepdims=True)
    nu = {pair: w[pair[0]] / into[pair] / (w[pair[0]] / into[pair]).sum() for pair in pairs}
    back = {pair: nu[pair] @ factor[pair] for pair in pairs}
    other = np.array([params.omega * np.prod([back[p] for p in pairs if p[1] == j], axis=0) for j in range(4)])
    z = other / other.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(messages.of_item, w)
    np.testing.assert_allclose(messages.of_annotator, z)
    bethe = np.log(joint.sum(axis=1)).sum() + np.log(other.sum(axis=1)).sum()
    bethe -= sum(np.log(nu[pair] @ factor[pair] @ mu[pair]) for pair in pairs)
    np.testing.assert_allclose(evidence, bethe)

    new = {pair: z[pair[1]] / back[pair] / (z[pair[1]] / back[pair]).sum() for pair in pairs}
    expected = np.zeros((K, L, P))
    for row in range(len(table)):
        pair = int(table.item[row]), int(table.annotator[row])
        belief = nu[pair][:, None] * factor[pair] * new[pair]
        shares = np.eye(P)[table.label[row]] if table.proba is None else table.proba[row]
        weight = 1.0 if table.weight is None else table.weight[row]
        expected += weight * (belief / belief.sum())[:, :, None] * shares
    np.testing.assert_allclose(counts.labels, expected, atol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_factors_made_on_the_way_are_the_kept_ones(kind, monkeypatch):
    table = random_table(4, **KINDS[kind])
    params = some_params(3, 2, table.n_classes, 4)
    kept, evidence, counts = settled(table, params, rounds=4)
    monkeypatch.setattr(model, "MAX_CACHED_FACTORS", 0)
    made, again, too = settled(table, params, rounds=4)
    assert made.for_items._kept is None
    assert kept.for_items._kept is not None
    np.testing.assert_allclose(made.of_item, kept.of_item, rtol=1e-10)
    np.testing.assert_allclose(again, evidence)
    np.testing.assert_allclose(too.labels, counts.labels, rtol=1e-10)


def test_em_on_a_forest_never_lowers_the_objective():
    # every annotator labels two items, no two annotators share one: chains, on which EM is exact
    rng = np.random.default_rng(0)
    item = np.array([[2 * j, 2 * j + 1] for j in range(60)]).ravel()
    table = Annotations.from_arrays(item, np.repeat(np.arange(60), 2), rng.integers(0, 4, 120))
    trace = PGMBP(item_clusters=3, annotator_clusters=3, round_tol=0, tol=1e-9).fit(table).trace_
    assert len(trace) > 5
    assert (np.diff(trace) >= -1e-9 * np.abs(trace[1:])).all()


@pytest.mark.parametrize("kind", KINDS)
def test_with_one_annotator_cluster_it_is_the_mixture(kind):
    table = clustered(kind, seed=1, redundancy=25)  # EM settles to the last digit: the clusters are far apart
    exact = {"tol": 1e-15, "max_iter": 5000, "restarts": 1, "seed": 3}
    mixture = FMM(n_clusters=3, accelerate=None, **exact).fit(table)
    joint = PGMBP(item_clusters=3, annotator_clusters=1, **exact).fit(table)
    assert len(mixture.trace_) > 3
    np.testing.assert_allclose(joint.trace_[-1], mixture.trace_[-1], rtol=1e-10)
    np.testing.assert_allclose(joint.item_clusters_, mixture.item_clusters_, atol=1e-8)
    np.testing.assert_allclose(joint.labels_of_clusters_, mixture.labels_of_clusters_, atol=1e-8)
    np.testing.assert_allclose(joint.psi_, mixture.psi_, atol=1e-8)
    np.testing.assert_allclose(joint.posterior_, mixture.posterior_, atol=1e-8)


@pytest.mark.parametrize("kind", KINDS)
def test_with_one_annotator_cluster_an_em_step_is_the_mixtures(kind):
    table, priors = random_table(5, **KINDS[kind]), model.ClusterPriors()
    params = some_params(3, 1, table.n_classes, 5)
    _, evidence, counts = settled(table, params, rounds=1)
    objective, after = VoteMixture(table.votes(), priors).em_step(params)
    np.testing.assert_allclose(evidence + model.log_prior(params, priors), objective, rtol=1e-13)
    found = model.m_step(counts, priors)
    np.testing.assert_allclose(found.theta, after.theta, rtol=1e-12)
    np.testing.assert_allclose(found.psi, after.psi, rtol=1e-12)


def test_an_annotator_with_a_thousand_labels_neither_underflows_nor_loses_its_evidence():
    label = np.random.default_rng(0).integers(0, 4, 1000)
    table = Annotations.from_arrays(np.arange(1000), np.zeros(1000, int), label, classes=4)
    params = some_params(3, 2, 4, 8)
    messages, evidence, _ = settled(table, params, rounds=3)
    of_item = np.einsum("k,kln->ln", params.psi, params.theta[:, :, label])  # P(label | cluster of the annotator)
    logs = np.log(params.omega) + np.log(of_item).sum(axis=1)
    assert (logs < -1000).all()
    np.testing.assert_allclose(evidence, np.logaddexp.reduce(logs))
    np.testing.assert_allclose(messages.of_annotator[0], np.exp(logs - np.logaddexp.reduce(logs)), atol=1e-12)


def test_extreme_weights_give_numbers():
    table = Annotations.from_arrays(
        [0, 0, 1, 1, 2, 2], [0, 1, 0, 1, 0, 1], [0, 0, 1, 1, 0, 1], weight=[1e4, 1e4, 1e4, 1e4, 1e-9, 1e4]
    )
    fitted = PGMBP(item_clusters=2, annotator_clusters=2).fit(table)
    for value in (fitted.item_clusters_, fitted.annotator_clusters_, fitted.labels_of_clusters_, fitted.trace_):
        assert np.isfinite(value).all()
    assert fitted.item_cluster_[0] != fitted.item_cluster_[1]


def test_damping_leads_to_the_same_beliefs():
    drawn = draw(60, 20, 4, item_clusters=2, annotator_clusters=2, redundancy=5, concentration=0.3, seed=0)
    params = drawn.params
    plain, bethe, _ = settled(drawn.annotations, params, rounds=200)
    damped, again, _ = settled(drawn.annotations, params, rounds=400, damping=0.5)
    np.testing.assert_allclose(damped.of_item, plain.of_item, atol=1e-8)
    np.testing.assert_allclose(again, bethe, rtol=1e-9)


def test_rounds_stop_when_beliefs_do_not_change():
    drawn = draw(200, 30, 4, item_clusters=2, annotator_clusters=2, redundancy=5, concentration=0.3, seed=0)
    ten, _, _ = settled(drawn.annotations, drawn.params, rounds=10, tol=1e-3)
    hundred, _, _ = settled(drawn.annotations, drawn.params, rounds=100, tol=1e-3)
    np.testing.assert_array_equal(ten.of_item, hundred.of_item)
    exact, _, _ = settled(drawn.annotations, drawn.params, rounds=100, tol=0)
    np.testing.assert_allclose(ten.of_item, exact.of_item, atol=0.05)
