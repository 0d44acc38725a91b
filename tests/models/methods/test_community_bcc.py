"""Community BCC: the kernel against SciPy, the bound against loops and sampling, and communities that were planted."""

from itertools import pairwise

import numpy as np
import pytest
from scipy import stats
from scipy.special import gammaln, psi
from sklearn.metrics import adjusted_rand_score

from dissensus import Annotations
from dissensus.compute.engines.local import Threads
from dissensus.compute.kernels import community_bcc as kernels
from dissensus.exceptions import BadParameter
from dissensus.models.em import e_step
from dissensus.models.methods import community_bcc
from dissensus.models.methods.community_bcc import (
    Communities,
    CommunityBCC,
    beliefs,
    fit_populations,
    quotients,
    readable_beliefs,
)
from dissensus.models.methods.dawid_skene import ConfusionPass, DawidSkene, soft_counts
from dissensus.models.methods.hierarchical_dawid_skene import HierarchicalDawidSkene, expected_population
from dissensus.table.simulate import simulate
from tables import KINDS, placed, random_table, some_gold, with_extremes

PLANTED = {"expert": 0.5, "uniform-spammer": 0.25, "adversary": 0.25}


def random_params(seed: int, n_annotators: int, n_classes: int, communities: int) -> Communities:
    rng = np.random.default_rng(seed)
    counts = rng.gamma(0.3, 5, (n_annotators, n_classes, n_classes))
    counts[0] = 0  # nothing is known of the first one
    return Communities(
        rng.dirichlet(np.ones(n_classes)),
        counts,
        rng.uniform(0.1, 3, (communities, n_classes, n_classes)),
        rng.dirichlet(np.ones(communities)),
    )


def literal_beliefs(params: Communities):
    """ρ, E log Θ and γ by the equations of the module docstring, in loops."""
    A, K, M = len(params.counts), params.prior.size, params.share.size
    rho, logs, gamma = np.zeros((A, M)), np.zeros((A, K, K)), np.zeros((A, M, K, K))

    def log_b(row):
        return gammaln(row).sum() - gammaln(row.sum())

    for a in range(A):
        odds = np.log(params.share)
        for m in range(M):
            gamma[a, m] = params.population[m] + params.counts[a]
            for c in range(K):
                odds[m] += log_b(gamma[a, m][:, c]) - log_b(params.population[m][:, c])
        rho[a] = np.exp(odds - np.logaddexp.reduce(odds))
        for m in range(M):
            for c in range(K):
                row = gamma[a, m][:, c]
                logs[a, :, c] += rho[a, m] * (psi(row) - psi(row.sum()))
    return rho, logs, gamma


def test_log_gamma_and_psi_are_scipys():
    for x in np.concatenate([np.geomspace(1e-3, 1e7, 400), [1.0, 2.0, 7.999999, 8.0]]):
        log_gamma, slope = kernels.log_gamma_and_psi(x)
        np.testing.assert_allclose(log_gamma, gammaln(x), rtol=1e-13, atol=1e-13)
        np.testing.assert_allclose(slope, psi(x), rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("communities", [1, 3])
def test_beliefs_equal_the_literal_loops(communities, threads):
    params = random_params(1, 7, 4, communities)
    rho, logs, gamma = literal_beliefs(params)
    with Threads(threads) as pool:
        fast = beliefs(params, pool)
    for found in (fast, readable_beliefs(params)):
        np.testing.assert_allclose(found.membership, rho, atol=1e-11)
        np.testing.assert_allclose(np.log(found.confusion), logs, rtol=1e-10)
        np.testing.assert_allclose(found.spent, (params.counts * logs).sum(), rtol=1e-11)
        of_each = psi(gamma) - psi(gamma.sum(axis=2, keepdims=True))
        np.testing.assert_allclose(found.logs, np.einsum("am,amyk->myk", rho, of_each), rtol=1e-10)
        np.testing.assert_allclose(found.wholes, np.einsum("am,amk->mk", rho, psi(gamma.sum(axis=2))), rtol=1e-10)
    np.testing.assert_allclose(fast.evidence, readable_beliefs(params).evidence, rtol=1e-11)


def test_penalty_is_minus_the_divergences_plus_the_log_priors():
    A, K, M = 3, 4, 2
    params = random_params(2, A, K, M)
    rho, _, gamma = literal_beliefs(params)
    model = CommunityBCC(known=1.5, community_count=0.4)
    model.class_pseudo_ = np.array([0.7, 0.2, 3.0, 1.0])  # `start` makes it from the votes

    def log_density(theta_logs, alpha):  # of a Dirichlet, where log Θ is what is given
        flat = np.full(K, 1 / K)
        return stats.dirichlet(alpha).logpdf(flat) + ((alpha - 1) * (theta_logs - np.log(flat))).sum()

    literal = model.class_pseudo_ @ np.log(params.prior) + 0.4 * np.log(params.share).sum()
    expected = expected_population(K)
    for m in range(M):
        for c in range(K):
            alpha = params.population[m][:, c]
            literal += 1.5 / M * log_density(psi(expected[:, c]) - psi(expected[:, c].sum()), alpha)
            for a in range(A):
                row = gamma[a, m][:, c]
                logs = psi(row) - psi(row.sum())
                literal -= rho[a, m] * (-stats.dirichlet(row).entropy() - log_density(logs, alpha))
        literal -= (rho[:, m] * np.log(rho[:, m] / params.share[m])).sum()
    np.testing.assert_allclose(model.log_penalty(params), literal, rtol=1e-10)


@pytest.mark.parametrize("with_gold", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_fused_pass_equals_the_readable_form(kind, with_gold, monkeypatch):
    monkeypatch.setattr(community_bcc, "LONGER", 0)
    table = random_table(3, **KINDS[kind])
    gold = some_gold(table) if with_gold else None
    params = random_params(4, 7, 4, 3)
    model = CommunityBCC(communities=3, known=1.5)
    model.class_pseudo_ = np.array([0.7, 0.2, 3.0, 1.0])
    with placed(table, gold) as engine:
        bound, after = model._pass(engine, ConfusionPass(), params)
    posterior, objective = e_step(model, table, params, gold)
    np.testing.assert_allclose(bound, objective, rtol=1e-11)
    np.testing.assert_allclose(after.counts, soft_counts(table, posterior), atol=1e-9)
    np.testing.assert_allclose(after.prior, (posterior.sum(axis=0) + model.class_pseudo_) / (table.n_items + 4.9))
    believed = readable_beliefs(Communities(after.prior, after.counts, params.population, params.share))
    members = believed.membership.sum(axis=0)
    np.testing.assert_allclose(after.share, (members + 1) / (7 + 3), rtol=1e-9)
    for m in range(3):
        learn = HierarchicalDawidSkene(known=0.5)._fit_population  # a third of 1.5
        expected = learn(believed.logs[m], members[m], params.population[m])
        np.testing.assert_allclose(after.population[m], expected, rtol=1e-8)


def test_quotients_equal_the_literal_loops():
    A, K, M = 5, 3, 2
    params = random_params(6, A, K, M)
    rho, _, gamma = literal_beliefs(params)
    found = quotients(readable_beliefs(params), 3.0, params.population)
    expected = expected_population(K)
    for m, l, c in np.ndindex(M, K, K):
        alpha = params.population[m]
        up = sum(rho[a, m] * (psi(gamma[a, m, l, c]) - psi(alpha[l, c])) for a in range(A))
        down = sum(rho[a, m] * (psi(gamma[a, m][:, c].sum()) - psi(alpha[:, c].sum())) for a in range(A))
        logs = psi(expected[l, c]) - psi(expected[:, c].sum())
        pull = 3.0 / M * (logs - (psi(alpha[l, c]) - psi(alpha[:, c].sum())))
        up, down = up + max(pull, 0), down + max(-pull, 0)
        np.testing.assert_allclose(found[m, l, c], max(alpha[l, c] * up / down, 0.05), rtol=1e-9)


def test_learning_never_lowers_the_bound_and_ends_on_top():
    model, step = CommunityBCC(communities=3), 1e-5
    with Threads(1) as pool:

        def height(params):
            return beliefs(params, pool).evidence + model._log_density(params)

        for seed in range(20):
            params = random_params(seed, 9, 3, 3)
            assert height(model._learn(params, beliefs(params, pool), pool)) >= height(params)
        for _ in range(3000):
            params = model._learn(params, beliefs(params, pool), pool)
        for at in np.ndindex(3, 3, 3):
            if params.population[at] > 0.051:  # not at the border
                move = step * np.eye(27)[np.ravel_multi_index(at, (3, 3, 3))].reshape(3, 3, 3)
                moved = [
                    Communities(params.prior, params.counts, params.population + sign * move, params.share)
                    for sign in (1, -1)
                ]
                assert abs(height(moved[0]) - height(moved[1])) / (2 * step) < 1e-3


def test_the_bound_is_below_the_log_evidence():
    # two items, two annotators, two classes, two communities: the evidence by sampling m and Θ from the prior
    table = Annotations.from_arrays([0, 0, 1, 1], [0, 1, 0, 1], [0, 0, 1, 0])
    rng = np.random.default_rng(0)
    params = random_params(5, 2, 2, 2)
    n = 200_000
    theta = np.empty((2, 2, n, 2))  # [annotator, class, sample, label]
    for a in range(2):
        community = rng.choice(2, n, p=params.share)
        for c in range(2):
            drawn = np.stack([rng.dirichlet(params.population[m][:, c], n) for m in range(2)])
            theta[a, c] = drawn[community, np.arange(n)]
    evidence = np.ones(n)
    for labels in ((0, 0), (1, 0)):
        evidence *= sum(params.prior[c] * theta[0, c, :, labels[0]] * theta[1, c, :, labels[1]] for c in range(2))
    model, found = CommunityBCC(communities=2), -np.inf
    model.class_pseudo_ = np.ones(2)
    with placed(table) as engine:
        for _ in range(50):  # the beliefs that fit best, with α, h and π as they are
            bound, after = model._pass(engine, ConfusionPass(), params)
            constant = model._log_density(params) + np.log(params.prior).sum()
            found = bound - constant
            params = Communities(params.prior, after.counts, params.population, params.share)
    assert found <= np.log(evidence.mean())
    assert found > np.log(evidence.mean()) - 0.5


def test_populations_of_all_communities_are_those_of_each():
    rng = np.random.default_rng(1)
    logs, members = -rng.gamma(2, 20, (3, 4, 4)), np.array([30.0, 8.0, 0.0])
    logs[2] = 0
    before = rng.uniform(0.2, 2, (3, 4, 4))
    found = fit_populations(logs, members, 6.0, before)
    for m in range(3):
        learn = HierarchicalDawidSkene(known=2.0)._fit_population
        np.testing.assert_allclose(found[m], learn(logs[m], members[m], before[m]), rtol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_one_community_is_hierarchical_dawid_skene(kind):
    table = random_table(6, **KINDS[kind])
    one = CommunityBCC(communities=1, tol=1e-14, max_iter=5000).fit(table)
    other = HierarchicalDawidSkene(tol=1e-14, max_iter=5000).fit(table)
    np.testing.assert_allclose(one.trace_[-1], other.trace_[-1], rtol=1e-10)
    np.testing.assert_allclose(one.posterior_, other.posterior_, atol=1e-4)
    np.testing.assert_allclose(one.confusion_, other.confusion_, atol=1e-4)
    np.testing.assert_allclose(one.community_concentration_[0], other.population_, rtol=1e-3)
    np.testing.assert_allclose(one._confusion_size(), np.broadcast_to(other._confusion_size(), (7, 4, 4)), rtol=1e-3)
    np.testing.assert_array_equal(one.community_posterior_, 1)


@pytest.mark.parametrize("accelerate", [None, "squarem"])
@pytest.mark.parametrize("communities", [1, 3, None])
@pytest.mark.parametrize("kind", KINDS)
def test_bound_never_falls(kind, communities, accelerate):
    for seed in range(3):
        table = random_table(seed, n_items=41, n_annotators=17, n=303, **KINDS[kind])
        model = CommunityBCC(communities=communities, accelerate=accelerate, tol=1e-9, max_iter=5000).fit(table)
        assert (np.diff(model.trace_) >= -1e-9 * np.abs(model.trace_[1:])).all()


def test_no_small_move_from_the_answer_is_better():
    table = random_table(7, n_items=9, n_annotators=5, n_classes=3, n=60)
    model = CommunityBCC(communities=2)
    with placed(table) as engine:
        params = model.start(engine, None)
        for _ in range(3000):
            top, params = model._pass(engine, ConfusionPass(), params)
        rng = np.random.default_rng(0)
        for _ in range(500):
            move = rng.normal(0, 10 ** rng.uniform(-4, -1), params.to_vector().size)
            assert model._pass(engine, ConfusionPass(), params.from_vector(params.to_vector() + move))[0] <= top + 1e-7


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
    # experts and spammers, half of them with fewer than 100 labels for 100 entries of a matrix
    errors, right = {}, {}
    for seed in range(2):
        sim = simulate(2500, 100, 10, redundancy=5, kinds={"expert": 1, "uniform-spammer": 1}, seed=seed)
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
    model, order = CommunityBCC(communities=4), rng.permutation(11)
    one, two = (
        model._sorted(np.full(3, 1 / 3), some, None if seed is None else np.random.default_rng(seed))
        for some in (counts, counts[order])
    )
    np.testing.assert_allclose(one.population, two.population)
    np.testing.assert_allclose(one.share, two.share)


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
    np.testing.assert_allclose(model._confusions(np.array([-1, 3])), [anybody, model.confusion_[3]])


def test_interval_of_a_confusion_matrix_is_that_of_the_mixture():
    params = random_params(8, 3, 3, 2)
    model = CommunityBCC()
    rho, _, gamma = literal_beliefs(params)
    model._describe(params, rho)
    rng = np.random.default_rng(0)
    community = rng.choice(2, 100_000, p=rho[1])
    for c in range(3):
        drawn = np.stack([rng.dirichlet(gamma[1, m][:, c], 100_000) for m in range(2)])[community, np.arange(100_000)]
        mean, size = model.confusion_[1, c], model.confusion_size_[1, c]
        np.testing.assert_allclose(mean, drawn.mean(axis=0), atol=0.005)
        np.testing.assert_allclose(mean * (1 - mean) / (size + 1), drawn.var(axis=0), rtol=0.05)


@pytest.mark.parametrize("seed", range(3))
def test_an_oracle_is_best_and_one_who_is_always_wrong_worst(seed):
    model = CommunityBCC().fit(with_extremes(simulate(600, 20, 4, redundancy=5, seed=seed)))
    assert model.annotators_[[model.reliability_.argmax(), model.reliability_.argmin()]].tolist() == [1000, 1001]


def test_gold_of_some_items_is_kept_and_helps_the_others():
    sim = simulate(400, 30, 3, redundancy=3, hardness=0.2, kinds={"ordinary": 0.5, "adversary": 0.5}, seed=2)
    gold = np.where(np.arange(400) % 2 == 0, sim.truth, -1)
    with_gold, without = CommunityBCC().fit(sim.annotations, gold=gold), CommunityBCC().fit(sim.annotations)
    np.testing.assert_array_equal(with_gold.predict()[::2], sim.truth[::2])
    right = [(model.predict()[1::2] == sim.truth[1::2]).mean() for model in (with_gold, without)]
    assert right[0] > right[1] + 0.1


def test_restarts_start_apart_and_the_best_is_kept():
    table = random_table(9, n_annotators=31, n=401)
    model = CommunityBCC(communities=3)
    starts = [model.start(placed(table), rng) for rng in (None, np.random.default_rng(1), np.random.default_rng(2))]
    for a in range(3):
        for b in range(a):
            assert np.abs(starts[a].population - starts[b].population).max() > 0.01
    many = CommunityBCC(communities=3, restarts=5).fit(table)
    assert many.trace_[-1] >= model.fit(table).trace_[-1] - 1e-6


def test_parameters_survive_the_way_into_a_vector_and_back():
    params = random_params(3, 7, 4, 3)
    back = params.from_vector(params.to_vector())
    for key in ("prior", "counts", "population", "share"):
        np.testing.assert_allclose(getattr(back, key), getattr(params, key), rtol=1e-12)


def test_more_communities_than_annotators_or_figures_work():
    for communities in (2, 5):
        model = CommunityBCC(communities=communities).fit(random_table(10, n_annotators=3))
        assert model.community_posterior_.shape == (3, communities)
        assert np.isfinite(model.confusion_).all()


def test_repeating_a_row_equals_weighing_it_double():
    table = random_table(11)
    rows = np.concatenate([np.arange(len(table))] * 2)
    names = {"classes": 4, "items": table.items, "annotators": table.annotators}
    twice = Annotations.from_arrays(table.item[rows], table.annotator[rows], table.label[rows], **names)
    double = Annotations.from_arrays(table.item, table.annotator, table.label, weight=np.full(len(table), 2.0), **names)
    for key in ("posterior_", "community_posterior_", "confusion_"):
        one, two = (getattr(CommunityBCC(communities=2).fit(t), key) for t in (twice, double))
        np.testing.assert_allclose(one, two, atol=1e-6)


def test_threads_agree():
    table = simulate(10_000, 60, 4, redundancy=5, seed=9).annotations
    one, two = (CommunityBCC(communities=2, threads=threads).fit(table) for threads in (1, 2))
    for key in ("posterior_", "community_posterior_", "confusion_"):
        np.testing.assert_allclose(getattr(one, key), getattr(two, key), atol=1e-7)


@pytest.mark.parametrize(
    ("keyword", "value"),
    [("communities", 0), ("communities", 2.5), ("known", 0), ("community_count", 0), ("class_count", -1.0),
     ("max_iter", 0), ("threads", 0)],
)  # fmt: skip
def test_a_bad_keyword_is_named_with_its_value(keyword, value):
    with pytest.raises(BadParameter, match=rf"{keyword} must .*{value}"):
        CommunityBCC(**{keyword: value}).fit(random_table(1))
