import numpy as np
import pytest

from benchmarks.clustering.drawn import draw
from clustering.graphs import log_joint, some_params
from dissensus import Annotations
from dissensus.clustering import model
from dissensus.clustering.model import ClusterPriors, LabelGraph
from dissensus.exceptions import BadParameter
from refused import refused
from tables import KINDS, random_table

PRIORS = ClusterPriors(2.5, 1.7, 3.1)
K, L = 3, 2


def literal_posterior(table, params, w, z, priors):
    """Eq. 3, term by term."""
    total = log_joint(table, params, w, z)
    total += sum((priors.alpha - 1) * np.log(value) for value in params.theta.ravel())
    total += sum((priors.gamma - 1) * np.log(value) for value in params.psi)
    return total + sum((priors.tau - 1) * np.log(value) for value in params.omega)


def a_state(kind, seed=0):
    table = random_table(seed, **KINDS[kind])
    rng = np.random.default_rng(seed)
    w, z = rng.integers(0, K, table.n_items), rng.integers(0, L, table.n_annotators)
    return table, some_params(K, L, table.n_classes, seed), w, z


@pytest.mark.parametrize("kind", KINDS)
def test_logits_are_differences_of_full_log_posteriors(kind):
    table, old, w, z = a_state(kind)
    edges = LabelGraph(table)

    def full(params, w, z):
        return literal_posterior(table, params, w, z, PRIORS)

    before = full(old, w, z)
    of_item = model.cluster_logits(edges, edges.items, old, z)
    of_annotator = model.cluster_logits(edges, edges.annotators, old, w)
    for i in range(table.n_items):
        for k in range(K):
            other = w.copy()
            other[i] = k
            np.testing.assert_allclose(of_item[i, k] - of_item[i, w[i]], full(old, other, z) - before, atol=1e-9)
    for j in range(table.n_annotators):
        for l in range(L):
            other = z.copy()
            other[j] = l
            delta = of_annotator[j, l] - of_annotator[j, z[j]]
            np.testing.assert_allclose(delta, full(old, w, other) - before, atol=1e-9)


def test_one_pair_is_one_edge_however_many_labels_it_has():
    table = Annotations.from_arrays([0, 0, 0, 1, 1], [0, 0, 1, 0, 0], [0, 1, 1, 1, 0], classes=3)
    edges = LabelGraph(table)
    assert edges.size == 3
    assert edges.item.tolist() == [0, 0, 1]
    assert edges.annotator.tolist() == [0, 1, 0]
    assert edges.bag[0] == edges.bag[2] != edges.bag[1]  # the same two labels, in whatever order they came
    assert edges.bags[[edges.bag[0]]].toarray().tolist() == [[1, 1, 0]]
    assert edges.bags[[edges.bag[1]]].toarray().tolist() == [[0, 1, 0]]


def test_labels_of_a_cluster_are_averaged_over_annotator_clusters():
    params = some_params(K, L, 4, 0)
    expected = [[sum(params.omega[l] * params.theta[k, l, p] for l in range(L)) for p in range(4)] for k in range(K)]
    np.testing.assert_allclose(model.population_labels(params), expected)


def test_drawn_tables_follow_the_model():
    params = some_params(2, 2, 3, 0)
    drawn = draw(4000, 40, 3, item_clusters=2, annotator_clusters=2, redundancy=9, params=params, seed=1)
    table = drawn.annotations
    assert (np.diff(table.item_ptr) == 9).all()
    assert table.describe()["repeated_pairs"] == 0
    counts = model.hard_counts(LabelGraph(table), drawn.item_cluster, drawn.annotator_cluster, 2, 2)
    assert (counts.labels.sum(axis=2) > 200).all()
    np.testing.assert_allclose(counts.labels / counts.labels.sum(axis=2, keepdims=True), params.theta, atol=0.04)
    np.testing.assert_allclose(counts.items / 4000, params.psi, atol=0.03)
    few = draw(50, 5, 3, item_clusters=2, annotator_clusters=2, redundancy=5, seed=1).annotations
    assert few.describe()["repeated_pairs"] == 0
    with refused(BadParameter, name="redundancy"):
        draw(50, 5, 3, item_clusters=2, annotator_clusters=2, redundancy=6)
