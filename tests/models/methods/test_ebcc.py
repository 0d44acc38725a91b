"""EBCC against its equations as plain loops, the bound, the starts, and the figures of its authors."""

import numpy as np
import pytest
from scipy.special import psi
from scipy.stats import dirichlet

from dissensus import Annotations, load_dataset
from dissensus.models.methods import EBCC, ebcc
from dissensus.models.methods.ebcc import block_ranges
from dissensus.table.simulate import simulate
from tables import KINDS, random_table, shares_of, some_gold

M = 3


def describe(table: Annotations, gold=None, **keywords):
    model = EBCC(subtypes=M, **keywords)
    model.tie_seed_ = 7
    return model._describe_problem(table, gold)


def literal_m_step(table: Annotations, items, belief, alpha):
    """Dirichlets of τ (K,), π (K, M) and v (A, K, M, K), as loops over rows."""
    K = table.n_classes
    labels = np.zeros((table.n_annotators, K, M, K))
    for k in range(K):
        labels[:, k] = np.where(np.arange(K) == k, 4.0, 1.0)
    for row in range(len(table)):
        for y, share in enumerate(shares_of(table, row)):
            labels[table.annotator[row], :, :, y] += share * belief[items.index(table.item[row])]
    return alpha + belief.sum(axis=(0, 2)), 0.1 / M + belief.sum(axis=0), labels


def literal_e_step(table: Annotations, items, classes, subtypes, labels, gold=None):
    """q (I, K, M) as loops over items, classes, subtypes and rows."""
    K = table.n_classes
    q = np.zeros((len(items), K, M))
    for n, i in enumerate(items):
        for k in range(K):
            for m in range(M):
                q[n, k, m] = psi(classes[k]) - psi(classes.sum()) + psi(subtypes[k, m]) - psi(subtypes[k].sum())
                for row in np.flatnonzero(table.item == i):
                    counts = labels[table.annotator[row], k, m]
                    q[n, k, m] += shares_of(table, row) @ (psi(counts) - psi(counts.sum()))
        if gold is not None and gold[i] >= 0:
            q[n, np.arange(K) != gold[i]] = -np.inf
        q[n] = np.exp(q[n] - np.logaddexp.reduce(q[n], axis=None))
    return q


def literal_bound(table: Annotations, items, q, alpha, classes, subtypes, labels):
    """E log p − E log q, term by term."""
    K = table.n_classes

    def logs(counts):
        return psi(counts) - psi(counts.sum())

    def gain(counts, prior):  # E log p − E log q of a Dirichlet
        ones = np.full(len(counts), 1 / len(counts))
        normaliser = dirichlet.logpdf(ones, prior) - ((prior - 1) * np.log(ones)).sum()
        return normaliser + ((prior - 1) * logs(counts)).sum() + dirichlet.entropy(counts)

    bound = gain(classes, alpha)
    for k in range(K):
        bound += gain(subtypes[k], np.full(M, 0.1 / M))
        for j in range(table.n_annotators):
            for m in range(M):
                bound += gain(labels[j, k, m], np.where(np.arange(K) == k, 4.0, 1.0))
    for n, i in enumerate(items):
        for k in range(K):
            for m in np.flatnonzero(q[n, k] > 0):
                expected = logs(classes)[k] + logs(subtypes[k])[m] - np.log(q[n, k, m])
                for row in np.flatnonzero(table.item == i):
                    expected += shares_of(table, row) @ logs(labels[table.annotator[row], k, m])
                bound += q[n, k, m] * expected
    return bound


@pytest.mark.parametrize("with_gold", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_a_pass_equals_the_literal_loops(kind, with_gold):
    table = random_table(3, **KINDS[kind])
    gold = some_gold(table) if with_gold else None
    busy = np.diff(table.item_ptr) > 0 if gold is None else (np.diff(table.item_ptr) > 0) | (gold >= 0)
    items, problem = np.flatnonzero(busy).tolist(), describe(table, gold)
    starts = np.stack([problem.draw_start(number) for number in range(2)], axis=1)
    posteriors = problem.m_step(starts)
    q, bounds = problem.e_step(posteriors)
    for s in range(2):
        classes, subtypes, labels = literal_m_step(table, items, starts[:, s], problem.class_prior)
        np.testing.assert_allclose(posteriors.classes[s], classes)
        np.testing.assert_allclose(posteriors.subtypes[s], subtypes)
        np.testing.assert_allclose(posteriors.labels[:, :, s].transpose(0, 2, 3, 1), labels)
        expected = literal_e_step(table, items, classes, subtypes, labels, gold)
        np.testing.assert_allclose(q[:, s], expected, atol=1e-12)
        literal = literal_bound(table, items, expected, problem.class_prior, classes, subtypes, labels)
        np.testing.assert_allclose(bounds[s], literal)


@pytest.mark.parametrize("kind", KINDS)
def test_the_result_is_the_best_start_and_its_bound_rises(kind, monkeypatch):
    table = random_table(5, **KINDS[kind])
    model = EBCC(subtypes=M, restarts=6, dependence=None).fit(table)
    assert (np.diff(model.trace_) >= -1e-9 * np.abs(model.trace_[1:])).all()
    monkeypatch.setattr(ebcc, "BLOCK_CELLS", 1)  # every start by itself
    alone = EBCC(subtypes=M, restarts=6, dependence=None, threads=2).fit(table)
    np.testing.assert_allclose(alone.posterior_, model.posterior_, atol=1e-9)
    assert alone.n_iter_ == model.n_iter_
    assert model.trace_[-1] >= EBCC(subtypes=M, restarts=1).fit(table).trace_[-1]
    busy = np.diff(table.item_ptr) > 0
    counts = (getattr(model, name) for name in ("class_counts_", "subtype_counts_", "label_counts_"))
    q = literal_e_step(table, np.flatnonzero(busy).tolist(), *counts)
    np.testing.assert_allclose(model.posterior_[busy], q.sum(axis=2), atol=1e-12)
    shares = q / q.sum(axis=2, keepdims=True)
    np.testing.assert_allclose(model.subtype_posterior_[busy], shares, atol=1e-6)


def test_starts_are_vote_shares_with_draws_of_a_uniform_dirichlet():
    table = simulate(2000, 30, 3, redundancy=5, seed=2).annotations
    problem = describe(table)
    first, second = problem.draw_start(0), problem.draw_start(1)
    np.testing.assert_allclose(first.sum(axis=2), table.soft_labels())
    voted = table.soft_labels() > 0
    shares, others = (start[voted] / start[voted].sum(axis=1, keepdims=True) for start in (first, second))
    np.testing.assert_allclose(shares.mean(axis=0), 1 / M, atol=0.02)
    np.testing.assert_allclose(shares.var(axis=0), (1 / M) * (1 - 1 / M) / (M + 1), atol=0.01)
    assert abs(np.corrcoef(shares[:, 0], others[:, 0])[0, 1]) < 0.1


def test_blocks_of_starts_cover_all_of_them_once():
    for n, cells in ((40, 10), (40, 2**16), (40, 2**30), (1, 0)):
        ranges = block_ranges(n, cells)
        assert [start for start, _ in ranges] == [0, *(stop for _, stop in ranges[:-1])]
        assert ranges[-1][1] == n


def test_subtypes_are_items_on_which_the_same_annotators_err():
    """Half of the items of class 1 look like class 0 to six annotators of 16."""
    rng = np.random.default_rng(0)
    truth, hard = rng.integers(0, 2, 400), rng.random(400) < 0.5
    label = np.where((truth & hard)[:, None] & (np.arange(16) < 6), 0, truth[:, None])
    label = np.where(rng.random(label.shape) < 0.1, 1 - label, label)
    item, annotator = np.divmod(np.arange(label.size), 16)
    model = EBCC(restarts=5).fit(Annotations.from_arrays(item, annotator, label.ravel()))
    assert (model.predict() == truth).mean() > 0.97
    subtype = model.subtype_posterior_[truth == 1, 1].argmax(axis=1)
    most = [np.bincount(subtype[hard[truth == 1] == part]).argmax() for part in (False, True)]
    assert most[0] != most[1]
    assert (np.array(most)[hard[truth == 1].astype(int)] == subtype).mean() > 0.9
    np.testing.assert_allclose(model.subtype_confusion_[:6, 1, most[1], 0], 0.87, atol=0.1)


@pytest.mark.realdata
@pytest.mark.parametrize(("name", "published"), [("bluebirds", 0.8611), ("rte", 0.9312)])
def test_figures_of_the_authors(name, published):
    data = load_dataset(name)  # the other sets take longer, see docs/methods/ebcc.md
    known = data.gold >= 0
    found = EBCC().fit(data.annotations).predict()[known]
    assert abs((found == data.annotations.classes[data.gold[known]]).mean() - published) < 0.004
