"""The item effect: evidence and posterior against an integral, the way to Dawid-Skene, and a loading found again."""

import itertools

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import norm

import dissensus as dz
from dissensus.compute.chunk import build_label_matrix
from dissensus.compute.rows import expand_rows
from dissensus.models.methods.item_effect import ItemEffect, ItemEffectParams
from dissensus.table.simulate import simulate


def chance(theta, loading, ease, true, given):
    """P(label | class, b) of one annotator, literally."""
    logits = [theta[true][k] + loading[true] * ease * (k == true) for k in range(len(theta))]
    return np.exp(logits[given]) / sum(np.exp(logits))


def shared_effect(loading, n_items=600, n_annotators=12, seed=0):
    """Two classes; everybody labels everything, and on hard items all err more often."""
    rng = np.random.default_rng(seed)
    truth, ease = rng.integers(0, 2, n_items), rng.normal(size=n_items)
    right = 1 / (1 + np.exp(-(1.2 + loading * ease)))
    said = np.where(rng.random((n_items, n_annotators)) < right[:, None], truth[:, None], 1 - truth[:, None])
    item, who = np.indices(said.shape)
    return dz.Annotations.from_arrays(item.ravel(), who.ravel(), said.ravel()), truth


def test_evidence_and_posterior_are_those_of_the_integral():
    rng = np.random.default_rng(0)
    table = dz.Annotations.from_arrays(
        np.repeat([0, 1, 2, 3], 3), [0, 1, 2, 0, 1, 3, 1, 2, 3, 0, 0, 4], rng.integers(0, 3, 12), weight=rng.random(12)
    )
    model = ItemEffect(points=40)
    theta, loading, prior = rng.normal(size=(5, 3, 3)), np.array([0.8, 0.0, 1.3]), np.array([0.2, 0.3, 0.5])
    labels, gold = build_label_matrix(expand_rows(table), 5, 3), np.array([-1, 2, -1, -1])
    evidence, posterior = model.e_step(labels, ItemEffectParams(prior, loading, theta), gold)
    joint = np.zeros((4, 3))
    for i, c in itertools.product(range(4), range(3)):
        rows = np.flatnonzero(table.item == i)

        def integrand(ease, rows=rows, c=c):
            each = [
                chance(theta[table.annotator[r]], loading, ease, c, table.label[r]) ** table.weight[r] for r in rows
            ]
            return np.prod(each) * norm.pdf(ease)

        joint[i, c] = prior[c] * quad(integrand, -9, 9)[0] * (gold[i] in (-1, c))
    assert evidence == pytest.approx(np.log(joint.sum(axis=1)).sum(), abs=1e-6)
    np.testing.assert_allclose(posterior.sum(axis=2), joint / joint.sum(axis=1, keepdims=True), atol=1e-6)


def test_without_a_loading_it_is_dawid_skene():
    table = simulate(200, 12, 3, redundancy=5, seed=3).annotations
    effect = ItemEffect(loading_sd=1e-6, dependence=None).fit(table)
    plain = dz.methods["dawid-skene"](dependence=None).fit(table)
    np.testing.assert_allclose(effect.posterior_, plain.posterior_, atol=1e-3)
    np.testing.assert_allclose(effect.confusion_, plain.confusion_, atol=1e-3)
    np.testing.assert_allclose(effect.annotator_confusions(np.array([-1]))[0], plain.population_confusion_, atol=1e-3)


def test_a_shared_effect_is_found_and_the_posterior_is_less_sure_of_it():
    table, truth = shared_effect(1.5)
    model, plain = (dz.methods[name](dependence=None).fit(table) for name in ("item-effect", "dawid-skene"))
    np.testing.assert_allclose(np.abs(model.loading_), 1.5, atol=0.45)
    loss, independent = (-np.log(one.posterior_[np.arange(600), truth]).mean() for one in (model, plain))
    assert loss < 0.75 * independent
    np.testing.assert_allclose(model.annotator_confusions(np.array([-1]))[0], model.confusion_.mean(axis=0), atol=0.01)
    independent_labels = ItemEffect().fit(shared_effect(0.0)[0])
    assert np.abs(independent_labels.loading_).max() < 0.45


def test_more_points_change_nothing():
    table, _ = shared_effect(1.0, n_items=200)
    few, many = (ItemEffect(points=points, dependence=None).fit(table).posterior_ for points in (11, 40))
    np.testing.assert_allclose(few, many, atol=0.01)
