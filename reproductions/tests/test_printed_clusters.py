"""The printed equations of Weerasooriya et al. 2021, compared with literal loops and with the library."""

import numpy as np
import pytest

from clustering.graphs import clustered, some_params
from clustering.test_model import PRIORS, K, L
from dissensus.clustering import FMM, PGMBP, Projector, model
from dissensus.clustering.model import LabelGraph
from reproductions.printed_clusters import PrintedBP, PrintedProjector, product_counts, projected
from tables import KINDS, random_table


@pytest.fixture(scope="module")
def fitted():
    return PGMBP(item_clusters=3, annotator_clusters=2, restarts=2).fit(clustered())


@pytest.mark.parametrize("kind", KINDS)
def test_product_counts_and_m_step_are_the_printed_ones(kind):
    table = random_table(1, **KINDS[kind])
    rng, P = np.random.default_rng(1), table.n_classes
    w, z = rng.dirichlet(np.ones(K), table.n_items), rng.dirichlet(np.ones(L), table.n_annotators)
    counts = product_counts(LabelGraph(table), w, z)
    params = model.m_step(counts, PRIORS)
    for k in range(K):
        for l in range(L):
            labels = np.zeros(P)
            for row in range(len(table)):
                shares = np.eye(P)[table.label[row]] if table.proba is None else table.proba[row]
                weight = 1.0 if table.weight is None else table.weight[row]
                labels += weight * shares * w[table.item[row], k] * z[table.annotator[row], l]
            expected = (PRIORS.alpha - 1 + labels) / (P * (PRIORS.alpha - 1) + labels.sum())
            np.testing.assert_allclose(params.theta[k, l], expected)
    np.testing.assert_allclose(
        params.psi, [(PRIORS.gamma - 1 + w[:, k].sum()) / (K * (PRIORS.gamma - 1) + table.n_items) for k in range(K)]
    )
    np.testing.assert_allclose(
        params.omega, [(PRIORS.tau - 1 + z[:, l].sum()) / (L * (PRIORS.tau - 1) + table.n_annotators) for l in range(L)]
    )


def test_projection_is_equation_2_with_pseudo_labels():
    params, rng = some_params(K, L, 4, 0), np.random.default_rng(0)
    h, size = rng.dirichlet(np.ones(4), 6), 7.5
    found = projected(params, h, size)
    for n in range(6):
        chance = np.zeros(K)
        for k in range(K):
            for l in range(L):
                likelihood = np.prod([params.theta[k, l, p] ** (size * h[n, p]) for p in range(4)])
                chance[k] += params.psi[k] * params.omega[l] * likelihood
        np.testing.assert_allclose(found[n], chance / chance.sum())


def test_projector_is_equation_2_then_equation_1(fitted):
    h = np.random.default_rng(0).dirichlet(np.ones(4), 20)
    projector = PrintedProjector(fitted).fit()
    chance = projected(fitted.params_, h, fitted.labels_per_item_)
    np.testing.assert_allclose(projector.predict_clusters(h), chance)
    labels = model.population_labels(fitted.params_)
    np.testing.assert_allclose(projector.transform(h), labels[chance.argmax(axis=1)])
    soft = PrintedProjector(fitted, how="soft")
    np.testing.assert_allclose(soft.fit().transform(h), chance @ labels)
    two = projected(fitted.params_, h, 2.0)
    np.testing.assert_allclose(soft.set_params(size=2.0).fit().transform(h), two @ labels)


def test_no_printed_cluster_says_what_both_annotator_clusters_say_together(fitted):
    labels = model.population_labels(fitted.params_)
    assert np.abs(PrintedProjector(fitted, size=50).fit_transform(labels) - labels).max() > 0.3
    mixture = FMM(n_clusters=3).fit(clustered())
    both = [kind(mixture).fit().predict_clusters(labels) for kind in (PrintedProjector, Projector)]
    np.testing.assert_allclose(*both)


@pytest.mark.parametrize("kind", KINDS)
def test_with_one_annotator_cluster_it_is_the_mixture(kind):
    table = clustered(kind, seed=1, redundancy=25)
    exact = {"tol": 1e-15, "max_iter": 5000, "restarts": 1, "seed": 3}
    mixture = FMM(n_clusters=3, accelerate=None, **exact).fit(table)
    joint = PrintedBP(item_clusters=3, annotator_clusters=1, **exact).fit(table)
    np.testing.assert_allclose(joint.trace_[-1], mixture.trace_[-1], rtol=1e-10)
    np.testing.assert_allclose(joint.posterior_, mixture.posterior_, atol=1e-8)
