"""Dawid-Skene: the fused pass against literal loops, EM against brute force, and what the default prior is for."""

import re
import warnings

import numpy as np
import pytest

from dissensus import Annotations, methods
from dissensus.compute.kernels import confusion as kernels
from dissensus.exceptions import BadParameter, ConvergenceWarning
from dissensus.models.em import Climb, e_step
from dissensus.models.methods.dawid_skene import ConfusionPass, Confusions, DawidSkene, expected_pseudo, fitting
from dissensus.table.simulate import simulate
from tables import KINDS, placed, random_table


def random_params(seed: int, table: Annotations) -> Confusions:
    rng = np.random.default_rng(seed)
    A, K = table.n_annotators, table.n_classes
    confusion = rng.dirichlet(np.full(K, 0.5), (A, K)).transpose(0, 2, 1) + 1e-6
    return Confusions(rng.dirichlet(np.ones(K)), np.ascontiguousarray(confusion / confusion.sum(axis=1, keepdims=True)))


def literal_pass(table: Annotations, params: Confusions, gold=None):
    """The equations of the module docstring as plain loops over rows, in logs."""
    I, A, K = table.n_items, table.n_annotators, table.n_classes
    posterior, counts, evidence = np.zeros((I, K)), np.zeros((A, K, K)), 0.0
    for i in range(I):
        log_joint = [np.log(params.prior[c]) for c in range(K)]
        for row in range(len(table)):
            if table.item[row] != i:
                continue
            for c in range(K):
                shares = np.eye(K)[table.label[row]] if table.proba is None else table.proba[row]
                weight = 1.0 if table.weight is None else table.weight[row]
                log_joint[c] += weight * sum(
                    shares[y] * np.log(params.confusion[table.annotator[row], y, c]) for y in range(K)
                )
        if gold is not None and gold[i] >= 0:
            log_joint = [value if c == gold[i] else -np.inf for c, value in enumerate(log_joint)]
        total = np.logaddexp.reduce(log_joint)
        evidence += total
        posterior[i] = np.exp(np.array(log_joint) - total)
        for row in range(len(table)):
            if table.item[row] == i:
                shares = np.eye(K)[table.label[row]] if table.proba is None else table.proba[row]
                weight = 1.0 if table.weight is None else table.weight[row]
                for y in range(K):
                    counts[table.annotator[row], y] += weight * shares[y] * posterior[i]
    return posterior, counts, evidence


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("with_gold", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_fused_pass_equals_the_literal_loops(kind, with_gold, threads):
    table = random_table(1, **KINDS[kind])
    params = random_params(2, table)
    gold = np.where(np.arange(table.n_items) % 3 == 0, 2, -1).astype(np.int32) if with_gold else None
    posterior, counts, evidence = literal_pass(table, params, gold)
    pseudo = np.random.default_rng(3).gamma(1.0, size=(4, 4))  # [given, true], not symmetric
    out = np.full_like(posterior, np.nan)
    model = DawidSkene()
    model.pseudo_, model.class_pseudo_ = pseudo, np.array([0.7, 0.2, 3.0, 1.0])
    with placed(table, gold, threads) as engine:
        sums = engine.sweep(ConfusionPass(), params, {"posterior": out})
        np.testing.assert_allclose(out, posterior, atol=1e-12)
        np.testing.assert_allclose(sums.counts, counts, atol=1e-11)
        np.testing.assert_allclose(sums.prior_counts, posterior.sum(axis=0), atol=1e-11)
        np.testing.assert_allclose(sums.evidence, evidence, rtol=1e-12)
        expected = counts + pseudo
        after = model._maximise(sums.counts, sums.prior_counts, engine.pool)
        np.testing.assert_allclose(after.confusion, expected / expected.sum(axis=1, keepdims=True), atol=1e-12)
    density = kernels.log_density(0, 5, params.confusion, pseudo) + kernels.log_density(5, 7, params.confusion, pseudo)
    np.testing.assert_allclose(density, (pseudo * np.log(params.confusion)).sum(), rtol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_readable_form_equals_the_literal_loops(kind):
    table = random_table(3, **KINDS[kind])
    params = random_params(4, table)
    posterior, counts, evidence = literal_pass(table, params)
    model = DawidSkene()
    model.start(placed(table), None)  # the prior of π is made of the votes
    readable, objective = e_step(model, table, params)
    np.testing.assert_allclose(readable, posterior, atol=1e-12)
    np.testing.assert_allclose(objective, evidence + model.log_penalty(params), rtol=1e-12)
    expected = counts + model.pseudo_
    np.testing.assert_allclose(model.m_step(table, posterior).confusion, expected / expected.sum(axis=1, keepdims=True))


@pytest.mark.parametrize("with_gold", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_start_is_an_m_step_from_the_shares_of_the_votes(kind, with_gold):
    table = random_table(7, **KINDS[kind])
    gold = np.where(np.arange(table.n_items) % 3 == 0, 2, -1).astype(np.int32) if with_gold else None
    shares = table.soft_labels()  # uniform where an item has no votes
    if gold is not None:
        shares[gold >= 0] = np.eye(4)[2]
    model = DawidSkene(class_count=0.6, vote_count=0.4)
    started = model.start(placed(table, gold), None)
    expected = model.m_step(table, shares)
    np.testing.assert_allclose(started.confusion, expected.confusion, atol=1e-12)
    active = len(set(table.annotator.tolist()))
    prior = shares.sum(axis=0) + 0.6 + 0.4 * active * shares.mean(axis=0)
    np.testing.assert_allclose(started.prior, prior / prior.sum(), atol=1e-12)
    np.testing.assert_allclose(expected.prior, prior / prior.sum(), atol=1e-12)


def test_few_labels_each_do_not_make_one_class_of_all_items():
    """Two labels of every item, five of every annotator: matrices alone could explain anything."""
    smallest = {(0.0, 1.0, 0.0): [], (0.0, 1.0, 0.5): [], (1.5, 0.15, 0.0): []}
    for seed in range(8):
        table = simulate(100, 40, 2, redundancy=2, hardness=0.2, seed=seed).annotations
        for (crowd_labels, smoothing, vote_count), shares in smallest.items():
            model = DawidSkene(crowd_labels=crowd_labels, smoothing=smoothing, least_labels=0, vote_count=vote_count)
            predicted = model.fit(table).predict()
            shares.append(min((predicted == k).mean() for k in (0, 1)))
    assert np.mean(smallest[0.0, 1.0, 0.0]) < 0.1
    assert np.mean(smallest[0.0, 1.0, 0.5]) > 0.2  # either remedy does
    assert np.mean(smallest[1.5, 0.15, 0.0]) > 0.3


@pytest.mark.parametrize("n_classes", [2, 33, 200])  # compiled for their length, and beyond
def test_any_number_of_classes(n_classes):
    table = random_table(5, n_classes=n_classes, n=301)
    params = random_params(6, table)
    out = np.empty((table.n_items, n_classes))
    model = DawidSkene()
    with placed(table) as engine:
        engine.sweep(ConfusionPass(), params, {"posterior": out})
        model.start(engine, None)
    np.testing.assert_allclose(out, e_step(model, table, params)[0], atol=1e-12)


def test_an_item_with_thousands_of_labels_neither_underflows_nor_overflows():
    n = 5000
    table = Annotations.from_arrays(np.zeros(n, int), np.arange(n) % 11, np.arange(n) % 3)
    model = DawidSkene().fit(table)
    assert np.isfinite(model.posterior_).all()
    assert np.isfinite(model.trace_).all()


def test_a_class_that_trails_over_many_labels_can_still_win():
    # 300 good annotators; about item 0, 140 say 0 and 160 say 1, those who say 0 first or last in the order of names
    item, annotator = (codes.ravel() for codes in np.meshgrid(np.arange(1000), np.arange(300), indexing="ij"))
    label = np.where(item == 0, annotator >= 140, item % 2)
    plain = DawidSkene().fit(Annotations.from_arrays(item, annotator, label))
    renamed = DawidSkene().fit(Annotations.from_arrays(item, 299 - annotator, label))
    logs = DawidSkene().fit(Annotations.from_arrays(item, annotator, label, weight=np.ones(item.size)))
    assert plain.predict()[0] == 1
    np.testing.assert_allclose(plain.posterior_, renamed.posterior_, atol=1e-9)
    np.testing.assert_allclose(plain.posterior_, logs.posterior_, atol=1e-9)
    np.testing.assert_allclose(plain.trace_[-1], logs.trace_[-1], rtol=1e-10)


def test_em_climbs_to_the_mode_that_a_grid_search_finds():
    # two classes, one annotator sure to be symmetric: the evidence is a function of few numbers
    table = Annotations.from_arrays([0, 0, 1, 1, 2, 2, 3], [0, 1, 0, 1, 0, 1, 0], [0, 0, 1, 1, 0, 1, 1])
    model = DawidSkene(tol=1e-13, accelerate=None, max_iter=5000).fit(table)
    rng = np.random.default_rng(0)
    best = Confusions(model.prior_, np.ascontiguousarray(model.confusion_.transpose(0, 2, 1)))
    top = e_step(model, table, best)[1]
    for _ in range(2000):  # no small move from the answer is better
        moved = best.from_vector(best.to_vector() + rng.normal(0, 10 ** rng.uniform(-4, -1), best.to_vector().size))
        assert e_step(model, table, moved)[1] <= top + 1e-9


@pytest.mark.parametrize("accelerate", [None, "squarem"])
@pytest.mark.parametrize("seed", range(5))
def test_trace_never_falls_and_ends_at_what_is_returned(seed, accelerate):
    table = random_table(seed, n_items=41, n_annotators=6, n_classes=3, n=203)
    model = DawidSkene(accelerate=accelerate, tol=1e-9, max_iter=3000).fit(table)
    assert (np.diff(model.trace_) >= -1e-9).all()
    returned = Confusions(model.prior_, np.ascontiguousarray(model.confusion_.transpose(0, 2, 1)))
    posterior, objective = e_step(model, table, returned)
    np.testing.assert_allclose(model.trace_[-1], objective, rtol=1e-12)
    np.testing.assert_allclose(model.posterior_, posterior, atol=1e-12)
    assert model.n_iter_ == len(model.trace_) - 1


def test_squarem_needs_fewer_passes_and_is_no_worse():
    table = simulate(3000, 40, 4, redundancy=3, seed=3).annotations
    plain = DawidSkene(accelerate=None, tol=1e-10, max_iter=5000).fit(table)
    fast = DawidSkene(accelerate="squarem", tol=1e-10, max_iter=5000).fit(table)
    assert fast.n_iter_ < 0.7 * plain.n_iter_
    assert fast.trace_[-1] >= plain.trace_[-1] - 1e-6 * abs(plain.trace_[-1])


def test_recovers_what_was_simulated_and_beats_majority_vote():
    sim = simulate(4000, 50, 5, redundancy=5, seed=11)
    ds = DawidSkene().fit(sim.annotations)
    mv = methods["majority-vote"]().fit(sim.annotations)
    accuracy, vote = (ds.predict() == sim.truth).mean(), (mv.predict() == sim.truth).mean()
    assert accuracy > vote + 0.02
    busy = ds.n_annotations_ > 300
    assert np.abs(ds.confusion_ - sim.confusion)[busy].mean() < 0.03


def test_default_prior_holds_up_for_annotators_with_three_labels():
    # 30 good annotators with 3 labels each: without a prior three labels decide a whole confusion matrix
    rng = np.random.default_rng(0)
    ours, bare = [], []
    for _ in range(10):
        truth = rng.choice(3, 30, p=[0.8, 0.1, 0.1])
        item, annotator = np.repeat(np.arange(30), 3), rng.permutation(np.repeat(np.arange(30), 3))
        label = np.where(rng.random(90) < 0.75, truth[item], rng.integers(0, 3, 90))
        table = Annotations.from_arrays(item, annotator, label, classes=3)
        ours.append((DawidSkene().fit(table).predict() == truth).mean())
        bare.append(
            (
                DawidSkene(crowd_labels=0, smoothing=1e-6, least_labels=0, class_count=1e-6).fit(table).predict()
                == truth
            ).mean()
        )
    assert np.mean(ours) > 0.8
    assert np.mean(ours) > np.mean(bare) + 0.05


def test_gold_of_some_items_is_kept_and_helps_the_others():
    sim = simulate(400, 30, 3, redundancy=3, hardness=0.2, kinds={"ordinary": 0.5, "adversary": 0.5}, seed=2)
    gold = np.where(np.arange(400) % 2 == 0, sim.truth, -1)
    with_gold = DawidSkene().fit(sim.annotations, gold=gold)
    without = DawidSkene().fit(sim.annotations)
    np.testing.assert_array_equal(with_gold.predict()[::2], sim.truth[::2])
    assert (with_gold.predict()[1::2] == sim.truth[1::2]).mean() > (
        without.predict()[1::2] == sim.truth[1::2]
    ).mean() + 0.1


def test_gold_that_everybody_denies_is_kept():
    # 300 annotators who are never wrong elsewhere say 1 about item 0, whose class is known to be 0
    item, annotator = (codes.ravel() for codes in np.meshgrid(np.arange(100), np.arange(300), indexing="ij"))
    label = np.where(item == 0, 1, item % 2)
    gold = np.where(np.arange(100) == 0, 0, -1)
    model = DawidSkene(crowd_labels=0, smoothing=1e-6, least_labels=0).fit(
        Annotations.from_arrays(item, annotator, label), gold=gold
    )
    np.testing.assert_array_equal(model.posterior_[0], [1, 0])
    assert np.isfinite(model.trace_).all()
    assert np.isfinite(model.confusion_).all()


def test_unseen_annotator_gets_population_confusion_and_empty_item_the_prior():
    sim = simulate(300, 9, 3, seed=4)
    model = DawidSkene().fit(sim.annotations)
    new = Annotations.from_arrays([7, 8], [999, 3], [1, 2], classes=3, items=[5, 7, 8])
    scored = model.predict_proba(new)
    np.testing.assert_allclose(scored[0], model.prior_)
    for item, confusion, label in ((1, model.population_confusion_, 1), (2, model.confusion_[3], 2)):
        expected = model.prior_ * confusion[:, label]
        np.testing.assert_allclose(scored[item], expected / expected.sum())


def test_population_confusion_is_the_pooled_counts_per_true_class():
    table = simulate(300, 9, 3, kinds={"ordinary": 1, "constant-spammer": 1}, prior=[0.7, 0.2, 0.1], seed=4).annotations
    model = DawidSkene().fit(table)
    counts = model.pseudo_.T.copy()
    for row in range(len(table)):
        counts[:, table.label[row]] += model.posterior_[table.item[row]]
    np.testing.assert_allclose(model.population_confusion_, counts / counts.sum(axis=1, keepdims=True), atol=1e-9)


def test_every_restart_has_its_own_draw_and_the_best_is_kept(monkeypatch):
    table = random_table(8, n_items=61, n_annotators=5, n_classes=3, n=150)
    firsts, ends, start, run = [], [], DawidSkene.start, Climb.run

    def watched_start(self, *arguments):
        firsts.append(start(self, *arguments))
        return firsts[-1]

    def watched_run(self, *arguments, **keywords):
        done = run(self, *arguments, **keywords)
        ends.append(done.trace[-1])
        return done

    monkeypatch.setattr(DawidSkene, "start", watched_start)
    monkeypatch.setattr("dissensus.models.em.Climb.run", watched_run)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model = DawidSkene(restarts=4, seed=3).fit(table)
    assert len({first.confusion.tobytes() for first in firsts}) == 4
    assert len(set(ends)) > 1
    assert model.trace_[-2] == max(ends)


def test_random_start_keeps_gold():
    table = simulate(60, 6, 3, seed=1).annotations
    start = DawidSkene().start(placed(table, np.zeros(table.n_items, np.int32)), np.random.default_rng(0))
    prior = np.array([table.n_items + 1.0 + 0.5 * 6, 1, 1])  # and half a count of each of six annotators
    np.testing.assert_allclose(start.prior, prior / prior.sum())


@pytest.mark.parametrize("with_gold", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_pseudo_counts_are_those_of_the_docstring(kind, with_gold):
    table = random_table(7, **KINDS[kind])
    gold = np.where(np.arange(table.n_items) % 3 == 0, 2, -1).astype(np.int32) if with_gold else None
    v = table.soft_labels()
    if gold is not None:
        v[gold >= 0] = np.eye(4)[2]
    crowd, n = np.zeros((4, 4)), 0.0
    for row in range(len(table)):
        weight = 1.0 if table.weight is None else table.weight[row]
        says = np.eye(4)[table.label[row]] if table.proba is None else table.proba[row]
        crowd += weight * np.outer(v[table.item[row]], says)  # [true, given]
        n += weight
    expected = np.array(
        [[0.7 * 8 * crowd[c, y] / n + 0.2 * (3 if y == c else 1) for y in range(4)] for c in range(4)]  # 8 = 4 √4
    )
    least = float(np.median(expected.sum(axis=1)))  # some rows are filled up, some are not
    for c in range(4):  # W = 0.7 √4 = 1.4 for the wrong ones, 1 + 0.7 for the right one: 3.1 in all
        missing = max(least - expected[c].sum(), 0)
        expected[c] += [missing * (1.7 if y == c else 1.4 / 3) / 3.1 for y in range(4)]
    model = DawidSkene(crowd_labels=0.7, smoothing=0.2, least_labels=least)
    for rng in (None, np.random.default_rng(0)):  # whatever the start
        model.start(placed(table, gold), rng)
        np.testing.assert_allclose(model.pseudo_.T, expected, rtol=1e-9)


def test_a_crowd_that_leans_one_way_is_expected_to():
    """All annotators miss half of class 1 and never mistake class 0, with few labels each."""
    rng = np.random.default_rng(0)
    right = {0.0: [], 1.5: []}
    for _ in range(10):
        truth = rng.integers(0, 2, 200)
        item, annotator = np.repeat(np.arange(200), 3), rng.permutation(np.arange(600) % 100)
        label = np.where((truth[item] == 1) & (rng.random(600) < 0.5), 0, truth[item])
        table = Annotations.from_arrays(item, annotator, label, classes=2)
        for crowd_labels, found in right.items():
            found.append(
                (
                    DawidSkene(crowd_labels=crowd_labels, smoothing=0.5, least_labels=0).fit(table).predict() == truth
                ).mean()
            )
    assert np.mean(right[1.5]) > np.mean(right[0.0]) + 0.01


def test_rare_classes_are_not_lost_to_what_the_votes_make_of_them():
    """One item in thirty is of class 1: most votes for it are mistakes, and say nothing of how it is labelled."""
    found = {0.0: [], 2.0: []}
    for seed in range(6):
        sim = simulate(300, 40, 2, redundancy=3, prior=np.array([0.97, 0.03]), seed=seed)
        for least, right in found.items():
            right.append((DawidSkene(least_labels=least).fit(sim.annotations).predict() == sim.truth).mean())
    assert np.mean(found[2.0]) > np.mean(found[0.0]) + 0.02


def test_what_is_expected_of_an_unknown_annotator():
    expected = np.where(np.eye(4) > 0, 2 + 1.2 / 2, 1.2 / 3)  # W = 0.6 √4
    np.testing.assert_allclose(expected_pseudo(4, smoothing=0.6, margin=2), expected)


def test_single_precision_is_not_used_where_it_cannot_count(monkeypatch):
    monkeypatch.setattr("dissensus.models.methods.dawid_skene.MAX_SINGLE", 40)
    with placed(random_table(1)) as engine:
        assert fitting("float32", engine) == "float32"  # 131 rows by 7 annotators
        monkeypatch.setattr("dissensus.models.methods.dawid_skene.MAX_SINGLE", 10)
        assert fitting("float32", engine) == "float64"


def test_single_precision_agrees_to_six_digits():
    table = simulate(500, 12, 4, seed=5).annotations
    double, single = DawidSkene(max_iter=50), DawidSkene(precision="float32", max_iter=50)
    np.testing.assert_allclose(single.fit(table).posterior_, double.fit(table).posterior_, atol=1e-3)
    params = random_params(1, table)
    posterior = {}
    for precision in ("float64", "float32"):
        posterior[precision] = np.empty((table.n_items, 4))
        with placed(table) as engine:
            engine.sweep(ConfusionPass(precision), params, {"posterior": posterior[precision]})
    np.testing.assert_allclose(posterior["float32"], posterior["float64"], atol=1e-6)


def test_stopping_early_warns_with_what_to_raise():
    table = simulate(300, 9, 3, seed=4).annotations
    with pytest.warns(ConvergenceWarning, match=r"max_iter=2 passes.*Raise max_iter or tol"):
        model = DawidSkene(max_iter=2, tol=0).fit(table)
    assert not model.converged_
    assert model.n_iter_ == 2


@pytest.mark.parametrize(
    ("keyword", "value"),
    [("smoothing", 0.0), ("smoothing", 1e308), ("crowd_labels", -1), ("least_labels", -1),
     ("class_count", 0), ("max_iter", 0),
     ("max_iter", 2.5), ("tol", -1.0), ("tol", float("nan")), ("accelerate", "anderson"), ("restarts", 0),
     ("threads", 0), ("precision", "float16")],
)  # fmt: skip
def test_a_bad_keyword_is_named_with_its_value(keyword, value):
    table = simulate(30, 4, 2, redundancy=3, seed=4).annotations
    with pytest.raises(BadParameter, match=rf"{keyword} must .*{re.escape(str(value))}"):
        DawidSkene(**{keyword: value}).fit(table)


def test_restarts_start_apart_and_the_best_is_kept():
    table = random_table(8, n_items=61, n_annotators=5, n_classes=3, n=150)
    model = DawidSkene(restarts=4)
    starts = [
        model.start(placed(table), None if child is None else np.random.default_rng(child))
        for child in (None, *np.random.SeedSequence(0).spawn(3))
    ]
    for a in range(4):
        for b in range(a):
            assert np.abs(starts[a].confusion - starts[b].confusion).max() > 1e-3
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        assert model.fit(table).trace_[-1] >= DawidSkene().fit(table).trace_[-1] - 1e-9


def test_threads_agree():
    sim = simulate(15_000, 60, 4, redundancy=5, seed=9)
    one, two = DawidSkene(threads=1).fit(sim.annotations), DawidSkene(threads=2).fit(sim.annotations)
    np.testing.assert_allclose(one.posterior_, two.posterior_, atol=1e-9)


def test_reliability_is_near_the_truth_even_for_a_few_labels():
    sim = simulate(3000, 60, 6, redundancy=5, skew=1.5, seed=13)
    model = DawidSkene().fit(sim.annotations)
    truth = np.einsum("akk->a", sim.confusion) / 6
    assert np.abs(model.reliability_ - truth).mean() < 0.06
    few = model.n_annotations_ < 60
    assert few.sum() > 5
    assert np.abs(model.reliability_ - truth)[few].mean() < 0.09


def test_reliability_equals_its_definition():
    table = random_table(9)
    model = DawidSkene().fit(table)
    right, n = np.zeros(table.n_annotators), np.zeros(table.n_annotators)
    for row in range(len(table)):
        right[table.annotator[row]] += model.posterior_[table.item[row], table.label[row]]
        n[table.annotator[row]] += 1
    np.testing.assert_allclose(model.reliability_, (right + 5 * right.sum() / n.sum()) / (n + 5), atol=1e-9)
