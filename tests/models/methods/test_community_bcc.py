"""Community BCC: the kernel against SciPy, the bound against loops and sampling, and communities that were planted."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from scipy import stats
from scipy.special import gammaln, psi
from sklearn.metrics import adjusted_rand_score

from dissensus import Annotations
from dissensus.compute.kernels import community_bcc as kernels
from dissensus.models.dirichlet import expected_log, update_alpha
from dissensus.models.methods import community_bcc
from dissensus.models.methods.community_bcc import (
    CommunityBCC,
    CommunityParams,
    fixed_point_step,
    quotient_step,
    readable_annotator_posteriors,
)
from dissensus.models.methods.dawid_skene import DawidSkene
from dissensus.models.methods.hierarchical_dawid_skene import HierarchicalDawidSkene, expected_population
from dissensus.table.simulate import simulate
from models.family import begun, readable_objective, sums_by
from tables import KINDS, placed, random_table, some_gold

PLANTED = {"expert": 0.5, "uniform-spammer": 0.25, "adversary": 0.25}


def random_params(seed: int, n_annotators: int, n_classes: int, communities: int) -> CommunityParams:
    rng = np.random.default_rng(seed)
    counts = rng.gamma(0.3, 5, (n_annotators, n_classes, n_classes))
    counts[0] = 0  # nothing is known of the first one
    return CommunityParams(
        rng.dirichlet(np.ones(n_classes)),
        counts,
        rng.uniform(0.1, 3, (communities, n_classes, n_classes)),
        rng.dirichlet(np.ones(communities)),
    )


def literal_posteriors(params: CommunityParams):
    """ρ, E log Θ and γ by the equations of the module docstring, in loops."""
    A, K, M = len(params.counts), params.prior.size, params.community_share.size
    rho, logs, gamma = np.zeros((A, M)), np.zeros((A, K, K)), np.zeros((A, M, K, K))

    def log_b(row):
        return gammaln(row).sum() - gammaln(row.sum())

    for a in range(A):
        odds = np.log(params.community_share)
        for m in range(M):
            gamma[a, m] = params.community_concentration[m] + params.counts[a]
            for c in range(K):
                odds[m] += log_b(gamma[a, m][c]) - log_b(params.community_concentration[m][c])
        rho[a] = np.exp(odds - np.logaddexp.reduce(odds))
        for m in range(M):
            for c in range(K):
                row = gamma[a, m][c]
                logs[a, c] += rho[a, m] * (psi(row) - psi(row.sum()))
    return rho, logs, gamma


def test_log_gamma_and_psi_are_scipys():
    for x in np.concatenate([np.geomspace(1e-3, 1e7, 400), [1.0, 2.0, 7.999999, 8.0]]):
        log_gamma, slope = kernels.log_gamma_and_psi(x)
        np.testing.assert_allclose(log_gamma, gammaln(x), rtol=1e-13, atol=1e-13)
        np.testing.assert_allclose(slope, psi(x), rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("communities", [1, 3])
def test_annotator_posteriors_equal_the_literal_loops(communities):
    params = random_params(1, 7, 4, communities)
    rho, logs, gamma = literal_posteriors(params)
    for found in (CommunityBCC().annotator_posteriors(params), readable_annotator_posteriors(params)):
        np.testing.assert_allclose(found.membership, rho, atol=1e-11)
        np.testing.assert_allclose(np.log(found.confusion), logs, rtol=1e-10)
        np.testing.assert_allclose(found.expected_log_likelihood, (params.counts * logs).sum(), rtol=1e-11)
        of_each = psi(gamma) - psi(gamma.sum(axis=3, keepdims=True))
        np.testing.assert_allclose(found.log_sums, np.einsum("am,amky->mky", rho, of_each), rtol=1e-10)
        np.testing.assert_allclose(
            found.total_digammas, np.einsum("am,amk->mk", rho, psi(gamma.sum(axis=3))), rtol=1e-10
        )
        np.testing.assert_allclose(found.evidence, readable_annotator_posteriors(params).evidence, rtol=1e-11)


def test_penalty_is_minus_the_divergences_plus_the_log_priors():
    A, K, M = 3, 4, 2
    params = random_params(2, A, K, M)
    rho, _, gamma = literal_posteriors(params)
    model = CommunityBCC(prior_annotators=1.5, community_count=0.4)

    def log_density(theta_logs, alpha):  # of a Dirichlet, where log Θ is what is given
        flat = np.full(K, 1 / K)
        return stats.dirichlet(alpha).logpdf(flat) + ((alpha - 1) * (theta_logs - np.log(flat))).sum()

    literal = 0.4 * np.log(params.community_share).sum()
    expected = expected_population(K)
    for m in range(M):
        for c in range(K):
            alpha = params.community_concentration[m][c]
            literal += 1.5 / M * log_density(psi(expected[c]) - psi(expected[c].sum()), alpha)
            for a in range(A):
                row = gamma[a, m][c]
                logs = psi(row) - psi(row.sum())
                literal -= rho[a, m] * (-stats.dirichlet(row).entropy() - log_density(logs, alpha))
        literal -= (rho[:, m] * np.log(rho[:, m] / params.community_share[m])).sum()
    np.testing.assert_allclose(model.log_prior(params), literal, rtol=1e-10)


def one_population(logs, members: float, known: float, before):
    """α (K, K) of one community by itself: annotators, and `known` more like an unknown one."""
    unknown = expected_log(expected_population(len(before)))
    return update_alpha((logs + known * unknown) / (members + known), before)


@pytest.mark.parametrize("with_gold", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_a_pass_equals_the_readable_form(kind, with_gold, monkeypatch):
    monkeypatch.setattr(community_bcc, "QUOTIENT_STEPS", 0)
    table = random_table(3, **KINDS[kind])
    gold = some_gold(table) if with_gold else None
    params = random_params(4, 7, 4, 3)
    model = begun(CommunityBCC(communities=3, prior_annotators=1.5), table, gold)
    model.class_pseudo_counts_ = np.array([0.7, 0.2, 3.0, 1.0])
    with placed(table, gold) as engine:
        bound, after = model.em_step(engine, model.e_step_pass(), params)
    posterior, objective = readable_objective(model, table, params, gold)
    np.testing.assert_allclose(bound, objective, rtol=1e-11)
    np.testing.assert_allclose(after.counts, sums_by(model, table, posterior).label_counts, atol=1e-9)
    np.testing.assert_allclose(
        after.prior, (posterior.sum(axis=0) + model.class_pseudo_counts_) / (table.n_items + 4.9)
    )
    believed = readable_annotator_posteriors(replace(params, counts=after.counts))
    members = believed.membership.sum(axis=0)
    np.testing.assert_allclose(after.community_share, (members + 1) / (7 + 3), rtol=1e-9)
    for m in range(3):  # each has a third of 1.5
        expected = one_population(believed.log_sums[m], members[m], 0.5, params.community_concentration[m])
        np.testing.assert_allclose(after.community_concentration[m], expected, rtol=1e-8)


def test_quotients_equal_the_literal_loops():
    A, K, M = 5, 3, 2
    params = random_params(6, A, K, M)
    rho, _, gamma = literal_posteriors(params)
    found = quotient_step(readable_annotator_posteriors(params), 3.0, params.community_concentration)
    expected = expected_population(K)
    for m, c, l in np.ndindex(M, K, K):
        alpha = params.community_concentration[m]
        up = sum(rho[a, m] * (psi(gamma[a, m, c, l]) - psi(alpha[c, l])) for a in range(A))
        down = sum(rho[a, m] * (psi(gamma[a, m, c].sum()) - psi(alpha[c].sum())) for a in range(A))
        logs = psi(expected[c, l]) - psi(expected[c].sum())
        pull = 3.0 / M * (logs - (psi(alpha[c, l]) - psi(alpha[c].sum())))
        up, down = up + max(pull, 0), down + max(-pull, 0)
        np.testing.assert_allclose(found[m, c, l], max(alpha[c, l] * up / down, 0.05), rtol=1e-9)


def test_learning_never_lowers_the_bound_and_ends_on_top():
    model, step = CommunityBCC(communities=3), 1e-5
    for seed in range(20):
        params = random_params(seed, 9, 3, 3)
        assert model._log_evidence(model.update_hyperparameters(params.counts, params)) >= model._log_evidence(params)
    for _ in range(700):
        params = model.update_hyperparameters(params.counts, params)
    for at in np.ndindex(3, 3, 3):
        alpha = params.community_concentration
        if alpha[at] > 0.051:  # not at the border
            move = step * np.eye(27)[np.ravel_multi_index(at, (3, 3, 3))].reshape(3, 3, 3)
            moved = [
                model._log_evidence(replace(params, community_concentration=alpha + sign * move)) for sign in (1, -1)
            ]
            assert abs(moved[0] - moved[1]) / (2 * step) < 1e-3


def test_the_bound_is_below_the_log_evidence():
    # two items, two annotators, two classes, two communities: the evidence by sampling m and Θ from the prior
    table = Annotations.from_arrays([0, 0, 1, 1], [0, 1, 0, 1], [0, 0, 1, 0])
    rng = np.random.default_rng(0)
    params = random_params(5, 2, 2, 2)
    n = 100_000
    theta = np.empty((2, 2, n, 2))  # [annotator, class, sample, label]
    for a in range(2):
        community = rng.choice(2, n, p=params.community_share)
        for c in range(2):
            drawn = np.stack([rng.dirichlet(params.community_concentration[m, c], n) for m in range(2)])
            theta[a, c] = drawn[community, np.arange(n)]
    evidence = np.ones(n)
    for labels in ((0, 0), (1, 0)):
        evidence *= sum(params.prior[c] * theta[0, c, :, labels[0]] * theta[1, c, :, labels[1]] for c in range(2))
    model, found = begun(CommunityBCC(communities=2), table), -np.inf
    with placed(table) as engine:
        for _ in range(50):  # the posteriors that fit best, with α, h and π as they are
            bound, after = model.em_step(engine, model.e_step_pass(), params)
            density = model._log_evidence(params) - model.annotator_posteriors(params).evidence  # log priors of α and h
            found = bound - density - model.class_pseudo_counts_ @ np.log(params.prior)
            params = replace(params, counts=after.counts)
    assert found <= np.log(evidence.mean())
    assert found > np.log(evidence.mean()) - 0.5


def test_populations_of_all_communities_are_those_of_each():
    rng = np.random.default_rng(1)
    logs, members = -rng.gamma(2, 20, (3, 4, 4)), np.array([30.0, 8.0, 0.0])
    logs[2] = 0
    before = rng.uniform(0.2, 2, (3, 4, 4))
    found = fixed_point_step(logs, members, 6.0, before)
    for m in range(3):
        np.testing.assert_allclose(found[m], one_population(logs[m], members[m], 2.0, before[m]), rtol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_one_community_is_hierarchical_dawid_skene(kind):
    table = random_table(6, **KINDS[kind])
    one = CommunityBCC(communities=1, tol=1e-14, max_iter=5000).fit(table)
    other = HierarchicalDawidSkene(tol=1e-14, max_iter=5000).fit(table)
    np.testing.assert_allclose(one.trace_[-1], other.trace_[-1], rtol=1e-10)
    np.testing.assert_allclose(one.posterior_, other.posterior_, atol=1e-4)
    np.testing.assert_allclose(one.confusion_, other.confusion_, atol=1e-4)
    np.testing.assert_allclose(one.community_concentration_[0], other.population_, rtol=1e-3)
    np.testing.assert_allclose(
        one.confusion_support(), np.broadcast_to(other.confusion_support(), (7, 4, 4)), rtol=1e-3
    )
    np.testing.assert_array_equal(one.community_posterior_, 1)


@pytest.mark.parametrize("communities", [3, None])
@pytest.mark.parametrize("seed", range(3))
def test_planted_communities_are_found(seed, communities):
    sim = simulate(1000, 60, 2, redundancy=8, kinds=PLANTED, seed=seed)
    model = CommunityBCC(communities=communities).fit(sim.annotations)
    assert model.community_share_.size == 3
    assert adjusted_rand_score(sim.kind, model.community_) > 0.9
    for m, kind in enumerate(("expert", "uniform-spammer", "adversary")):  # from the best to the worst
        assert (sim.kind[model.community_ == m] == kind).mean() > 0.9
        planted = sim.confusion[sim.kind == kind].mean(axis=0)
        assert np.abs(model.community_confusion_[m] - planted).max() < 0.1
        assert abs(model.community_share_[m] - (sim.kind == kind).mean()) < 0.05


def test_one_kind_of_annotators_is_one_community():
    for seed in range(3):
        sim = simulate(1000, 60, 3, redundancy=5, kinds={"ordinary": 1}, seed=seed)
        assert CommunityBCC().fit(sim.annotations).community_share_.size == 1


def test_few_labels_tell_more_where_communities_are_known():
    # experts and spammers, half of them with fewer than 30 labels for 25 entries of a matrix
    errors, right = {}, {}
    for seed in range(2):
        sim = simulate(600, 100, 5, redundancy=5, kinds={"expert": 1, "uniform-spammer": 1}, seed=seed)
        for method in (DawidSkene, HierarchicalDawidSkene, CommunityBCC):
            model = method().fit(sim.annotations)
            few = model.n_annotations_ < np.median(model.n_annotations_)
            errors.setdefault(method, []).append(np.abs(model.confusion_ - sim.confusion)[few].mean())
            right.setdefault(method, []).append((model.predict() == sim.truth).mean())
    for other in (DawidSkene, HierarchicalDawidSkene):
        assert np.mean(errors[CommunityBCC]) < 0.6 * np.mean(errors[other])
        assert np.mean(right[CommunityBCC]) > np.mean(right[other]) + 0.01


@pytest.mark.parametrize("restarts", [1, 3])
def test_names_and_order_of_annotators_and_classes_change_nothing(restarts):
    table = simulate(200, 30, 3, redundancy=5, kinds=PLANTED, seed=1).annotations
    rng = np.random.default_rng(0)
    new = [rng.permutation(size) for size in (200, 30, 3)]
    renamed = Annotations.from_arrays(new[0][table.item], new[1][table.annotator], new[2][table.label])
    before, after = (CommunityBCC(communities=3, restarts=restarts).fit(t) for t in (table, renamed))
    np.testing.assert_allclose(after.community_posterior_[new[1]], before.community_posterior_, atol=1e-7)
    np.testing.assert_allclose(
        after.community_confusion_[:, new[2]][:, :, new[2]], before.community_confusion_, atol=1e-7
    )
    np.testing.assert_allclose(after.posterior_[np.ix_(new[0], new[2])], before.posterior_, atol=1e-7)


@pytest.mark.parametrize("seed", [None, 1])
def test_who_has_the_same_figures_starts_in_the_same_community(seed):
    # half of the labels of annotators 0 … 6 are right, three quarters of those of the others; matrices all differ
    rng = np.random.default_rng(0)
    counts = np.zeros((11, 3, 3))
    for a in range(11):
        right = 6.0 if a < 7 else 9.0
        counts[a] = rng.dirichlet(np.ones(3)) * right * np.eye(3)
        counts[a, [0, 1, 2], [1, 2, 0]] = rng.dirichlet(np.ones(3)) * (12 - right)
    model, order = CommunityBCC(), rng.permutation(11)
    one, two = (
        model._group_annotators(np.full(3, 1 / 3), some, None if seed is None else np.random.default_rng(seed), 4)
        for some in (counts, counts[order])
    )
    np.testing.assert_allclose(one.community_concentration, two.community_concentration)
    np.testing.assert_allclose(one.community_share, two.community_share)


def test_what_is_said_of_communities_belongs_together():
    sim = simulate(400, 40, 3, redundancy=6, kinds=PLANTED, seed=2)
    table = Annotations.from_arrays(
        sim.annotations.item, sim.annotations.annotator, sim.annotations.label, annotators=np.arange(41), classes=3
    )
    model = CommunityBCC(communities=3).fit(table)
    np.testing.assert_allclose(model.community_posterior_.sum(axis=1), 1)
    np.testing.assert_array_equal(model.community_, model.community_posterior_.argmax(axis=1))
    np.testing.assert_allclose(model.community_share_, (model.community_posterior_.sum(axis=0) + 1) / 44, atol=1e-3)
    alpha = model.community_concentration_
    np.testing.assert_allclose(model.community_confusion_, alpha / alpha.sum(axis=2, keepdims=True))
    right = [model.prior_ @ np.diagonal(matrix) for matrix in model.community_confusion_]
    assert all(a > b for a, b in pairwise(right))
    # the last annotator has no labels: it is like anybody
    np.testing.assert_allclose(model.community_posterior_[40], model.community_share_)
    anybody = sum(
        share * matrix for share, matrix in zip(model.community_share_, model.community_confusion_, strict=True)
    )
    np.testing.assert_allclose(model.confusion_[40], anybody)
    np.testing.assert_allclose(model.annotator_confusions(np.array([-1, 3])), [anybody, model.confusion_[3]])


def test_interval_of_a_confusion_matrix_is_that_of_the_mixture():
    params = random_params(8, 3, 3, 2)
    model = CommunityBCC()
    rho, _, gamma = literal_posteriors(params)
    model._set_params(params)
    expected_label_likelihood, behind = model.expected_label_likelihood(params), model.confusion_support()
    rng = np.random.default_rng(0)
    community = rng.choice(2, 100_000, p=rho[1])
    for c in range(3):
        drawn = np.stack([rng.dirichlet(gamma[1, m][c], 100_000) for m in range(2)])[community, np.arange(100_000)]
        mean, size = expected_label_likelihood[1, c], behind[1, c]
        np.testing.assert_allclose(mean, drawn.mean(axis=0), atol=0.005)
        np.testing.assert_allclose(mean * (1 - mean) / (size + 1), drawn.var(axis=0), rtol=0.05)


def test_the_best_of_several_starts_is_kept():
    table = random_table(9, n_annotators=31, n=401)
    one, many = (CommunityBCC(communities=3, restarts=restarts).fit(table) for restarts in (1, 5))
    assert many.trace_[-1] >= one.trace_[-1] - 1e-6


def test_an_update_puts_newcomers_into_the_communities_that_are_there():
    sim = simulate(1000, 60, 2, redundancy=8, kinds=PLANTED, seed=0)
    table = sim.annotations
    new = table.annotators % 6 == 0
    model = CommunityBCC(communities=3).fit(table.select(annotators=~new))
    alpha = model.community_concentration_
    model.partial_fit(table.select(annotators=new))
    assert model.community_concentration_ is alpha
    assert model.community_posterior_.shape == (60, 3)
    np.testing.assert_allclose(model.counts_[new], model.label_counts_[new])
    refit = CommunityBCC(communities=3).fit(table)
    assert (model.community_ == refit.community_).mean() > 0.95
    assert (model.predict() == refit.predict()).mean() > 0.99
    np.testing.assert_allclose(model.community_share_, refit.community_share_, atol=0.05)


def test_more_communities_than_annotators_or_figures_work():
    for communities in (2, 5):
        model = CommunityBCC(communities=communities).fit(random_table(10, n_annotators=3))
        assert model.community_posterior_.shape == (3, communities)
        assert np.isfinite(model.confusion_).all()
