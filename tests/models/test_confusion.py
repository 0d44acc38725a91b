"""The confusion family: its one E step on every engine against loops, and what every method inherits from it."""

import warnings
from dataclasses import dataclass, fields

import numpy as np
import pytest

import dissensus
from dissensus import Annotations, methods
from dissensus.common.parameters import param
from dissensus.compute.chunk import ALL_ONES, COIN, DIAGONAL, FULL, LIKELIHOOD, POSTERIOR, VOTES
from dissensus.compute.engines import Disk, Torch
from dissensus.compute.engines.local import LocalEngine, Threads
from dissensus.compute.kernels.confusion import chunk_rows
from dissensus.compute.rows import expand_rows
from dissensus.exceptions import ConvergenceWarning
from dissensus.models.confusion import (
    ClassParams,
    ConfusionModel,
    ConfusionPass,
    EStepParams,
    RightWrongLikelihood,
    expected_label_counts,
    label_totals,
)
from dissensus.models.em import EMRun
from dissensus.models.focus import FocusedEngine
from dissensus.models.matrices import default_pseudo_counts, sum_logs, vote_counts
from dissensus.models.params import (
    COUNT,
    LOG_SIMPLEX,
    SHARE,
    SIMPLEX,
    Params,
    em_parameter,
    positive_transform,
    real_transform,
)
from dissensus.table.simulate import simulate
from models.family import (
    FAMILY,
    UNIFORM,
    begun,
    family_method,
    full,
    in_shape,
    readable_objective,
    readable_pass,
    sums_by,
)
from tables import KINDS, placed, random_table, shares_of, some_gold

family = pytest.mark.parametrize("name", FAMILY)
SHAPES = {"full": FULL, "own": DIAGONAL, "coin": COIN}
SOURCES = {"likelihood": LIKELIHOOD, "votes": VOTES, "given": POSTERIOR, "ones": ALL_ONES}


# The pass -------------------------------------------------------------------------------------------------------------


def random_cells(seed: int, table: Annotations, shape: int, sharp: float):
    """Likelihoods as a method of that shape states them; sharp ones are near 0 for some labels."""
    rng, A, K = np.random.default_rng(seed), table.n_annotators, table.n_classes
    if shape == FULL:
        return np.maximum(rng.dirichlet(np.full(K, 1 / sharp), (A, K)), 1e-12)
    right = np.clip(rng.beta(2 / sharp, 1 / sharp, (A, K if shape == DIAGONAL else 1)), 1e-12, 1 - 1e-12)
    return RightWrongLikelihood(right, (1 - right) / max(K - 1, 1))


def literal_pass(table: Annotations, prior, cells, gold=None):
    """The equations of the module as plain loops over rows, in logs: posterior, sums (A, true, given), evidence."""
    I, A, K = table.n_items, table.n_annotators, table.n_classes
    posterior, labels, evidence = np.zeros((I, K)), np.zeros((A, K, K)), 0.0
    for i in range(I):
        log_joint = np.log(prior[i] if prior.ndim == 2 else prior)
        rows = np.flatnonzero(table.item == i)
        for row in rows:
            for c in range(K):
                for y in range(K):
                    log_joint[c] += shares_of(table, row)[y] * np.log(cells[table.annotator[row], c, y])
        if gold is not None and gold[i] >= 0:
            log_joint = np.where(np.arange(K) == gold[i], log_joint, -np.inf)
        evidence += np.logaddexp.reduce(log_joint)
        posterior[i] = np.exp(log_joint - np.logaddexp.reduce(log_joint))
        for row in rows:
            labels[table.annotator[row]] += np.outer(posterior[i], shares_of(table, row))
    return posterior, labels, evidence


@pytest.mark.parametrize("per_item", [False, True])
@pytest.mark.parametrize("with_gold", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_the_readable_pass_equals_the_literal_loops(kind, with_gold, per_item):
    table = random_table(1, **KINDS[kind])
    gold = some_gold(table) if with_gold else None
    prior = np.random.default_rng(3).dirichlet(np.ones(4), table.n_items if per_item else None)
    cells = random_cells(2, table, FULL, 1.0)
    posterior, labels, evidence = literal_pass(table, prior, cells, gold)
    readable, sums = readable_pass(table, prior, cells, gold)
    np.testing.assert_allclose(readable, posterior, atol=1e-12)
    np.testing.assert_allclose(sums.label_counts, labels, atol=1e-11)
    np.testing.assert_allclose(sums.class_counts, posterior.sum(axis=0), atol=1e-11)
    np.testing.assert_allclose(sums.log_evidence, evidence, rtol=1e-12)


def expected_pass(source: int, shape: int, table: Annotations, prior, cells, given, gold):
    """Posterior, classes, labels and evidence of a pass, by `readable_pass` and loops."""
    if source == LIKELIHOOD:
        posterior, sums = readable_pass(table, prior, full(cells, table.n_classes), gold)
        totals = np.array([sums.label_counts[a].sum(axis=0) for a in range(table.n_annotators)])
        shared = 0.0 if shape == FULL else (totals * np.log(cells.wrong)).sum()  # what all classes have in common
        return posterior, sums.class_counts, in_shape(sums.label_counts, shape), sums.log_evidence - shared
    q = {VOTES: table.soft_labels(), POSTERIOR: given.copy(), ALL_ONES: np.ones_like(given)}[source]
    if gold is not None and source != ALL_ONES:
        q[gold >= 0] = np.eye(table.n_classes)[gold[gold >= 0]]
    model = type("Shaped", (), {"layout": shape})
    return q, q.sum(axis=0), sums_by(model, table, q).label_counts, 0.0


def engines_of(table: Annotations, gold, monkeypatch):
    """The same table as a short one, in one thread, in three, and in torch in parts of a few rows."""
    with monkeypatch.context() as patch:
        patch.setattr("dissensus.compute.chunk.MIN_KERNEL_ROWS", len(table) * 10)
        yield placed(table, gold)
    yield placed(table, gold)
    yield placed(table, gold, 3)
    torch = pytest.importorskip("torch", reason="needs the `learning` extra")
    yield Torch(device="cpu", part_rows=17).open_engine(None, table, gold)
    if torch.cuda.is_available():  # where there is Triton too, hard rows without gold go through its kernel
        yield Torch(device="cuda").open_engine(None, table, gold)


@pytest.mark.parametrize("source", ["votes", "likelihood"])
def test_an_item_without_labels_has_the_prior_or_even_votes(source, monkeypatch):
    table = Annotations.from_arrays([1, 1, 3], [0, 1, 0], [0, 2, 1], classes=3, items=np.arange(5), annotators=[0, 1])
    prior = np.array([0.5, 0.3, 0.2])
    params = EStepParams.from_likelihood(prior, random_cells(1, table, FULL, 1.0)) if source == "likelihood" else None
    for engine in engines_of(table, None, monkeypatch):
        out = np.full((5, 3), np.nan)
        with engine:
            engine.run(ConfusionPass(SOURCES[source], FULL), params, {"posterior": out})
        expected = np.full(3, 1 / 3) if params is None else prior
        np.testing.assert_allclose(out[[0, 2, 4]], np.stack([expected] * 3))


@pytest.mark.parametrize("with_gold", [False, True])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("source", [*SOURCES, "likelihood, a prior per item", "likelihood, sharp"])
def test_every_pass_on_every_engine_is_the_readable_one(source, shape, kind, with_gold, monkeypatch):
    table, code = random_table(1, **KINDS[kind]), SOURCES[source.partition(",")[0]]
    sharp = 30.0 if "sharp" in source else 1.0  # with sharp likelihoods item 0 is too long for a product
    gold, rng = some_gold(table) if with_gold else None, np.random.default_rng(4)
    prior = rng.dirichlet(np.ones(4), table.n_items if "prior" in source else None)
    given, cells = rng.dirichlet(np.ones(4), table.n_items), random_cells(2, table, SHAPES[shape], sharp)
    expected = expected_pass(code, SHAPES[shape], table, prior, cells, given, gold)
    params = EStepParams.from_likelihood(prior, cells) if code == LIKELIHOOD else None
    if params is not None:
        assert (chunk_rows(params.likelihood) < np.diff(table.item_ptr).max()) == (sharp > 1)
    for engine in engines_of(table, gold, monkeypatch):
        out, walk = np.full_like(given, np.nan), ConfusionPass(code, SHAPES[shape])
        walk.posterior = given if code == POSTERIOR else None
        with engine:
            for _ in range(2):  # the second time, what a pass keeps between passes is used again
                sums = engine.run(walk, params, {"posterior": out})
        for found, value in zip((out, sums.class_counts, sums.label_counts), expected[:3], strict=True):
            np.testing.assert_allclose(found, value, atol=1e-10)
        np.testing.assert_allclose(sums.log_evidence, expected[3], rtol=1e-10, atol=1e-9)


@pytest.mark.parametrize("with_gold", [False, True])
def test_votes_can_be_counted_without_gold(with_gold, monkeypatch):
    table = random_table(2)
    q = table.soft_labels()
    if with_gold:
        q[some_gold(table) >= 0] = np.eye(4)[2]
    for engine in engines_of(table, some_gold(table), monkeypatch):
        with engine:
            found = engine.run(ConfusionPass(VOTES, FULL, with_gold), None)
        np.testing.assert_allclose(found.label_counts, expected_label_counts(table, q), atol=1e-11)
    if with_gold:
        np.testing.assert_allclose(vote_counts(table, some_gold(table)).label_counts, found.label_counts)


def test_draws_are_the_same_on_every_engine(monkeypatch):
    table = random_table(2, **KINDS["both"])
    found = []
    for engine in engines_of(table, some_gold(table), monkeypatch):
        with engine:
            found.append(engine.run(ConfusionPass(POSTERIOR, DIAGONAL, rng=np.random.default_rng(7)), None))
    for other in found[1:]:
        np.testing.assert_allclose(other.label_counts, found[0].label_counts, atol=1e-11)
        np.testing.assert_allclose(other.class_counts, found[0].class_counts, atol=1e-11)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("n_classes", [1, 2, 33, 200])  # compiled for their length, and beyond
def test_any_number_of_classes(n_classes, shape):
    table = random_table(5, n_classes=n_classes, n=301)
    cells, prior = random_cells(6, table, SHAPES[shape], 1.0), np.random.default_rng(7).dirichlet(np.ones(n_classes))
    expected = expected_pass(LIKELIHOOD, SHAPES[shape], table, prior, cells, np.empty(0), None)
    out = np.empty((table.n_items, n_classes))
    with placed(table) as engine:
        sums = engine.run(
            ConfusionPass(LIKELIHOOD, SHAPES[shape]), EStepParams.from_likelihood(prior, cells), {"posterior": out}
        )
    if n_classes > 1 or shape == "full":  # of one class `OwnLabelLikelihood.full` says that nothing can go wrong
        np.testing.assert_allclose(sums.log_evidence, expected[3], rtol=1e-10)
    np.testing.assert_allclose(out, expected[0], atol=1e-12)
    np.testing.assert_allclose(sums.label_counts, expected[2], atol=1e-10)


@pytest.mark.parametrize("shape", SHAPES)
def test_an_item_with_thousands_of_labels_is_scored_exactly(shape):
    n = 6000
    table = Annotations.from_arrays(np.zeros(n, int), np.arange(n) % 11, (np.arange(n) * 7) % 3)
    cells, prior = random_cells(8, table, SHAPES[shape], 1.0), np.array([0.2, 0.3, 0.5])
    expected = expected_pass(LIKELIHOOD, SHAPES[shape], table, prior, cells, np.empty(0), None)
    out = np.empty((1, 3))
    with placed(table) as engine:
        sums = engine.run(
            ConfusionPass(LIKELIHOOD, SHAPES[shape]), EStepParams.from_likelihood(prior, cells), {"posterior": out}
        )
    np.testing.assert_allclose(out, expected[0], atol=1e-9)
    np.testing.assert_allclose(sums.log_evidence, expected[3], rtol=1e-12)


def test_what_is_expected_of_an_unknown_annotator():
    expected = np.where(np.eye(4) > 0, 2 + 1.2 / 2, 1.2 / 3)  # W = 0.6 √4
    np.testing.assert_allclose(default_pseudo_counts(4, smoothing=0.6, margin=2), expected)


@pytest.mark.parametrize("n", [0, 15, 16, 37])
def test_logarithms_of_sixteen_are_taken_at_once(n):
    values = np.random.default_rng(0).uniform(1e-18, 1, (n, 3, 2))
    values[: n // 2] = 1e-18
    np.testing.assert_allclose(sum_logs(values), np.log(values).sum(axis=0), rtol=1e-12)


# Parameters -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("space", "values"),
    [
        (SIMPLEX, [[0.2, 0.8], [1e-6, 1 - 1e-6]]),
        (LOG_SIMPLEX, [[0.2, 0.8], [1e-12, 1 - 1e-12]]),
        (SHARE, [0.0, 0.3, 1.0]),
        (COUNT, [0.0, 1e-9, 5e6]),
        (positive_transform(0.05), [0.05, 1.0, 1e9]),
        (real_transform(), [-3.0, 0.0, 1e9]),
    ],
)
def test_a_space_is_left_by_the_way_back_and_no_step_leaves_its_range(space, values):
    values = np.array(values)
    np.testing.assert_allclose(space.inverse(space.forward(values)), values, rtol=1e-12, atol=1e-15)
    far = space.inverse(space.forward(values) + np.random.default_rng(0).normal(0, 30, values.shape))
    if space in (SIMPLEX, LOG_SIMPLEX):
        np.testing.assert_allclose(far.sum(axis=-1), 1)
        assert (far > 0).all()
    elif space is not real_transform():
        assert (far >= (0.05 if space is positive_transform(0.05) else 0)).all()
    assert np.isfinite(far).all()


def test_a_step_of_a_bounded_number_ends_at_the_bound():
    assert real_transform(50.0).inverse(np.array([-1e9, 3.0, 60.0])).tolist() == [-50, 3, 50]


@dataclass(frozen=True)
class Some(Params):
    prior: np.ndarray = em_parameter(SIMPLEX)
    each: np.ndarray = em_parameter(real_transform(), "A")
    data: np.ndarray = em_parameter(axes="A")


def test_what_is_not_moved_stays_and_rows_are_taken_and_put():
    some = Some(np.array([0.5, 0.5]), np.arange(6.0).reshape(3, 2), np.array([7, 8, 9]))
    assert some.to_vector().size == 8
    back = some.from_vector(some.to_vector() + 1)
    np.testing.assert_array_equal(back.each, some.each + 1)
    assert back.data is some.data
    taken = some.select_annotators(np.array([2, 0]))
    assert (taken.each.tolist(), taken.data.tolist()) == ([[4, 5], [0, 1]], [9, 7])
    put = some.replace_annotators(np.array([2, 0]), Some(np.array([0.1, 0.9]), -taken.each, taken.data + 10))
    assert (put.each.tolist(), put.data.tolist()) == ([[0, -1], [2, 3], [-4, -5]], [17, 8, 19])
    assert put.prior.tolist() == [0.1, 0.9]
    assert some.data.tolist() == [7, 8, 9]  # what somebody else holds does not change


@family
def test_parameters_survive_the_way_into_a_vector_and_back(name):
    params = family_method(name)().fit(random_table(1))._params()
    back = params.from_vector(params.to_vector())
    for one in fields(params):
        np.testing.assert_allclose(getattr(back, one.name), getattr(params, one.name), rtol=1e-9, atol=1e-14)


# What a method inherits -----------------------------------------------------------------------------------------------

VARIANTS = {name: [{}] for name in FAMILY} | {
    "one-coin": [{}, {"class_prior": "learned"}],
    "mace": [{"restarts": 2}, {"restarts": 1, "class_prior": "uniform"}],
    "community-bcc": [{"communities": communities} for communities in (2, None)],
    "snorkel": [{"class_balance": balance} for balance in ("uniform", "learned", [0.1, 0.2, 0.3, 0.4])],
}
CASES = [(name, keywords) for name, variants in VARIANTS.items() for keywords in variants]
variant = pytest.mark.parametrize(("name", "keywords"), CASES, ids=lambda value: str(value))


@variant
@pytest.mark.parametrize("accelerate", [None, "squarem"])
def test_the_objective_never_falls_and_ends_at_what_is_returned(name, keywords, accelerate):
    for seed, kind in enumerate(KINDS):
        table = random_table(seed, n_items=41, n_annotators=9, n=203, **KINDS[kind])
        gold = some_gold(table) if seed % 2 else None
        exact = {"tol": 1e-9, "max_iter": 5000, "dependence": None}
        model = family_method(name)(accelerate=accelerate, **exact, **keywords).fit(table, gold=gold)
        table = model._reweight(table, np.arange(table.n_annotators))  # what somebody repeats is one label of consensus
        assert (np.diff(model.trace_) >= -1e-9 * np.abs(model.trace_[1:])).all()
        params = model._params()
        _, objective = readable_objective(model, table, params, gold)
        np.testing.assert_allclose(model.trace_[-1], objective, rtol=1e-10)
        posterior, sums = readable_pass(table, params.prior, full(model.expected_label_likelihood(params), 4), gold)
        np.testing.assert_allclose(model.posterior_, posterior, atol=1e-10)
        np.testing.assert_allclose(model.confusion_, full(model.expected_label_likelihood(params), 4))
        np.testing.assert_allclose(model.class_counts_, sums.class_counts, atol=1e-9)
        if model.restarts == 1 and "communities" not in keywords:
            assert model.n_iter_ == len(model.trace_) - 1


@variant
def test_no_small_move_from_the_answer_is_better(name, keywords):
    table = random_table(2, n_items=9, n_annotators=5, n=60)
    # momentum gets along the flat ridges of communities, and the driver takes nothing that is worse
    accelerate = "squarem" if name in ("community-bcc", "hierarchical-dawid-skene") else None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model = family_method(name)(tol=1e-15, accelerate=accelerate, max_iter=20_000, **keywords).fit(table)
    table = model._reweight(table, np.arange(table.n_annotators))
    best, rng = model._params(), np.random.default_rng(0)
    vector, top = best.to_vector(), readable_objective(model, table, best)[1]
    for _ in range(300):
        move = rng.normal(0, 10 ** rng.uniform(-4, -1), vector.size)
        if model.fixed_prior_ is not None:
            move[: best.prior.size] = 0
        assert readable_objective(model, table, best.from_vector(vector + move))[1] <= top + 1e-7


@pytest.mark.parametrize("name", ["dawid-skene", "mace"])
def test_squarem_needs_fewer_passes_and_is_no_worse(name):
    table = simulate(3000, 40, 4, redundancy=3, seed=3).annotations
    plain, fast = (
        family_method(name)(accelerate=kind, tol=1e-10, max_iter=5000, restarts=1).fit(table)
        for kind in (None, "squarem")
    )
    assert fast.n_iter_ < 0.7 * plain.n_iter_
    assert fast.trace_[-1] >= plain.trace_[-1] - 1e-6 * abs(plain.trace_[-1])


@pytest.mark.parametrize("name", ["dawid-skene", "one-coin", "hierarchical-dawid-skene", "snorkel"])
@pytest.mark.parametrize("with_gold", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_a_fit_starts_with_an_m_step_from_the_shares_of_the_votes(kind, with_gold, name):
    table = random_table(7, **KINDS[kind])
    gold = some_gold(table) if with_gold else None
    shares = table.soft_labels()  # uniform where an item has no votes
    if gold is not None:
        shares[gold >= 0] = np.eye(4)[2]
    model = begun(family_method(name)(), table, gold)
    started, expected = (
        model.initialise(placed(table, gold), None),
        model._next_params(sums_by(model, table, shares), None),
    )
    for one in fields(started):
        np.testing.assert_allclose(getattr(started, one.name), getattr(expected, one.name), atol=1e-12)


@family
def test_restarts_start_apart_and_keep_gold(name):
    table = random_table(7, n_annotators=11)
    known = np.zeros(table.n_items, np.int32)
    for gold in (None, known):
        model = begun(family_method(name)(**({"communities": 3} if name == "community-bcc" else {})), table, gold)
        children = (None, *np.random.SeedSequence(0).spawn(3))
        starts = [model.initialise(placed(table, gold), child and np.random.default_rng(child)) for child in children]
        vectors = [start.to_vector() for start in starts]
        if gold is None:
            assert all(np.abs(vectors[a] - vectors[b]).max() > 1e-3 for a in range(4) for b in range(a))
        elif model.fixed_prior_ is None and name not in ("mace", UNIFORM):  # whose π are not free
            for start in starts:
                shares = np.add(model.class_pseudo_counts_, [table.n_items, 0, 0, 0])
                np.testing.assert_allclose(start.prior, shares / shares.sum())


@pytest.mark.parametrize(
    ("name", "keywords"),
    [("dawid-skene", {}), ("mace", {"alpha": 0.5, "beta": 0.5, "vote_count": 0.0})],  # several tops
)
def test_every_restart_is_climbed_and_the_best_is_kept(name, keywords, monkeypatch):
    table = random_table(8, n_items=61, n_annotators=5, n_classes=3, n=150)
    method, firsts, ends, start, run = family_method(name), [], [], family_method(name).initialise, EMRun.run

    def watched_start(self, *arguments):
        firsts.append(start(self, *arguments))
        return firsts[-1]

    def watched_run(self, *arguments, **options):
        done = run(self, *arguments, **options)
        ends.append(done.trace[-1])
        return done

    monkeypatch.setattr(method, "initialise", watched_start)
    monkeypatch.setattr(EMRun, "run", watched_run)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model = method(restarts=4, seed=3, tol=1e-9, **keywords).fit(table)
    assert len({first.to_vector().tobytes() for first in firsts}) == len(ends) == 4
    assert max(ends) > min(ends)
    assert model.trace_[-2] == max(ends)
    assert len(model.trace_) - 1 < model.n_iter_  # the passes of all


def test_a_class_that_trails_over_many_labels_can_still_win():
    # 300 good annotators; about item 0, 140 say 0 and 160 say 1, those who say 0 first or last in the order of names
    item, annotator = (codes.ravel() for codes in np.meshgrid(np.arange(300), np.arange(300), indexing="ij"))
    label = np.where(item == 0, annotator >= 140, item % 2)
    for name in ("dawid-skene", "one-coin"):
        plain, renamed, logs = (
            family_method(name)().fit(Annotations.from_arrays(item, who, label, weight=weight))
            for who, weight in ((annotator, None), (299 - annotator, None), (annotator, np.ones(item.size)))
        )
        assert plain.predict()[0] == 1
        np.testing.assert_allclose(plain.posterior_, renamed.posterior_, atol=1e-9)
        np.testing.assert_allclose(plain.posterior_, logs.posterior_, atol=1e-9)
        np.testing.assert_allclose(plain.trace_[-1], logs.trace_[-1], rtol=1e-10)


def test_a_class_that_the_first_thousand_deny_is_not_lost():
    # rows stand in the order of annotators: 1000 say 0, then 2000 say 1; a running product would have lost class 1
    item, annotator = (codes.ravel() for codes in np.meshgrid(np.arange(30), np.arange(3000), indexing="ij"))
    label = np.where(item == 0, annotator >= 1000, item % 2).astype(int)
    for smoothing in (4.0, 1e-9):
        model = methods["one-coin"](right_count=smoothing, wrong_count=smoothing)
        model.fit(Annotations.from_arrays(item, annotator, label))
        np.testing.assert_allclose(model.posterior_[0], [0, 1])
        assert np.isfinite(model.trace_).all()


EXTREME = {
    "dawid-skene": {"crowd_labels": 0, "smoothing": 1e-6, "least_labels": 0},
    "one-coin": {"right_count": 1e-9, "wrong_count": 1e-9},
    "mace": {"alpha": 0.01, "beta": 0.01, "strategy_count": 0.01, "restarts": 2},
}


@family
def test_gold_that_everybody_denies_is_kept(name):
    # 200 annotators who are never wrong elsewhere say 1 about item 0, whose class is known to be 0
    item, annotator = (codes.ravel() for codes in np.meshgrid(np.arange(50), np.arange(200), indexing="ij"))
    table = Annotations.from_arrays(item, annotator, np.where(item == 0, 1, item % 2))
    for keywords in ({}, EXTREME.get(name, {})):
        model = family_method(name)(dependence=None, **keywords).fit(table, gold=np.where(np.arange(50) == 0, 0, -1))
        np.testing.assert_array_equal(model.posterior_[0], [1, 0])
        np.testing.assert_allclose(model.posterior_[1:], np.eye(2)[np.arange(1, 50) % 2], atol=1e-12)
        assert np.isfinite(model.trace_).all()
        assert np.isfinite(model.confusion_).all()


@family
def test_an_unseen_annotator_is_like_the_population_and_an_empty_item_has_the_prior(name):
    model = family_method(name)().fit(simulate(300, 9, 3, seed=4).annotations)
    scored = model.predict_proba(Annotations.from_arrays([7, 8], [999, 3], [1, 2], classes=3, items=[5, 7, 8]))
    np.testing.assert_allclose(scored[0], model.prior_)
    unseen = full(model.expected_label_likelihood(model.population_params(model._params())), 3)[0]
    for item, matrix, label in ((1, unseen, 1), (2, model.confusion_[3], 2)):
        expected = model.prior_ * matrix[:, label]
        np.testing.assert_allclose(scored[item], expected / expected.sum())


@pytest.mark.parametrize("name", ["dawid-skene", "one-coin", "snorkel"])
def test_the_population_is_all_labels_as_one_annotators(name):
    """Of a table whose classes are known, so that nothing depends on who gave which label."""
    table = simulate(300, 9, 3, kinds={"ordinary": 1, "constant-spammer": 1}, prior=[0.7, 0.2, 0.1], seed=4).annotations
    gold = table.soft_labels().argmax(axis=1)
    together = Annotations.from_arrays(table.item, np.zeros(len(table), int), table.label, classes=3)
    pseudo = {"crowd_labels": 0} if name == "dawid-skene" else {}  # which would be those of another crowd
    every, one = (family_method(name)(**pseudo).fit(each, gold=gold) for each in (table, together))
    np.testing.assert_allclose(every.annotator_confusions(np.array([-1]))[0], one.confusion_[0], atol=1e-9)


@family
def test_reliability_equals_its_definition(name):
    for kind in ("hard", "both"):
        table = random_table(9, **KINDS[kind])
        model = family_method(name)().fit(table)
        table = model._reweight(table, np.arange(table.n_annotators))
        right, n = np.zeros(7), np.zeros(7)
        for row in range(len(table)):
            right[table.annotator[row]] += shares_of(table, row) @ model.posterior_[table.item[row]]
            n[table.annotator[row]] += shares_of(table, row).sum()
        np.testing.assert_allclose(model.reliability_, (right + 5 * right.sum() / n.sum()) / (n + 5), atol=1e-9)


def test_threads_agree():
    table = simulate(10_000, 60, 4, redundancy=5, seed=9).annotations
    for name in ("dawid-skene", "mace"):
        one, two = (family_method(name)(threads=threads, restarts=2).fit(table) for threads in (1, 2))
        np.testing.assert_allclose(one.posterior_, two.posterior_, atol=1e-9)


# Items in doubt -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", SHAPES)
def test_a_pass_over_some_items_bounds_the_evidence_and_is_exact_where_it_began(shape):
    table, code = random_table(3), SHAPES[shape]
    prior, walk = np.array([0.4, 0.3, 0.2, 0.1]), ConfusionPass(LIKELIHOOD, code)
    keep = np.arange(table.n_items) % 2 == 0
    with placed(table) as engine, LocalEngine(engine.select_rows(keep), 7, 4, Threads(1), None) as rest:
        here, *others = (EStepParams.from_likelihood(prior, random_cells(seed, table, code, 1.0)) for seed in range(20))
        focused = FocusedEngine.from_counts(engine.run(walk, here), rest, here, walk)
        for likelihood in (here, *others):
            found, whole = focused.run(walk, likelihood), engine.run(walk, likelihood)
            if likelihood is here:
                np.testing.assert_allclose(found.log_evidence, whole.log_evidence, rtol=1e-12)
                np.testing.assert_allclose(found.label_counts, whole.label_counts, atol=1e-11)
                np.testing.assert_allclose(found.class_counts, whole.class_counts, atol=1e-11)
            else:
                assert found.log_evidence < whole.log_evidence


@pytest.mark.parametrize("name", ["dawid-skene", "one-coin", "mace", "hierarchical-dawid-skene"])
def test_a_fit_that_turns_to_the_items_in_doubt_ends_where_one_that_does_not_does(name, monkeypatch):
    table = simulate(3000, 40, 4, redundancy=5, seed=3).annotations
    gold = np.where(np.arange(3000) % 50 == 0, 1, -1)
    keywords = {"tol": 1e-12, "max_iter": 5000, "restarts": 1, "dependence": None}
    plain = family_method(name)(**keywords).fit(table, gold=gold)
    sizes, sweep = [], LocalEngine.run
    monkeypatch.setattr("dissensus.models.confusion.MIN_FOCUS_ROWS", 10_000)
    monkeypatch.setattr(LocalEngine, "run", lambda self, *a: sizes.append(self.rows.annotator.size) or sweep(self, *a))
    focused = family_method(name)(**keywords).fit(table, gold=gold)
    assert set(sizes) == {len(table), min(sizes)}
    assert min(sizes) < 0.9 * len(table)
    assert sizes.count(min(sizes)) > 3  # a run of its own
    assert (np.diff(focused.trace_) >= -1e-9 * np.abs(focused.trace_[1:])).all()
    assert focused.trace_[-1] >= plain.trace_[-1] - 1e-7 * abs(plain.trace_[-1])
    np.testing.assert_allclose(focused.posterior_, plain.posterior_, atol=1e-3)


# A method in twenty lines ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ByClass(ClassParams):
    """How often an annotator is right about each class, (A, K)."""

    right: np.ndarray = em_parameter(SHARE, "A K")


class ClassAccuracy(ConfusionModel[ByClass]):
    """An accuracy per annotator and class; wrong labels share the rest."""

    pseudo: float = param(2.0, "pseudo-count of right labels; half of it of wrong ones", above=0)
    Params = ByClass

    def label_likelihood(self, params):
        right = params.right[:, :, None]
        return np.where(np.eye(params.prior.size, dtype=bool), right, (1 - right) / (params.prior.size - 1))

    def m_step(self, label_counts, label_totals, params):
        right = np.einsum("akk->ak", label_counts) + self.pseudo
        return ByClass(params.prior, right / (label_counts.sum(axis=2) + 1.5 * self.pseudo))

    def log_prior(self, params):
        return float((self.pseudo * np.log(params.right) + self.pseudo / 2 * np.log1p(-params.right)).sum())


@pytest.fixture
def toy(monkeypatch):
    """The method above, registered for one test."""
    with monkeypatch.context() as patch:
        list(methods)  # load all
        patch.setattr(methods, "_entries", dict(methods._entries))
        methods.register("class-accuracy", summary="an accuracy per class", cite="—")(ClassAccuracy)
        yield methods["class-accuracy"]


def test_a_method_in_twenty_lines_has_all_that_the_family_gives(toy, tmp_path):
    sim = simulate(400, 12, 3, redundancy=5, seed=2)
    table, local = sim.annotations, toy(tol=1e-10).fit(sim.annotations)
    assert (np.diff(local.trace_) >= -1e-9).all()
    np.testing.assert_allclose(local.trace_[-1], readable_objective(local, table, local._params())[1], rtol=1e-12)
    assert (local.predict() == sim.truth).mean() > (methods["majority-vote"]().fit(table).predict() == sim.truth).mean()
    np.testing.assert_allclose(local.predict_proba(table), local.posterior_, atol=1e-12)
    np.testing.assert_allclose(local.predict_annotations(table).sum(axis=1), 1)
    assert (local.confusion_interval()[..., 0] <= local.confusion_).all()
    for engine in (Torch(device="cpu", part_rows=300), Disk(folder=tmp_path / "codes", block_rows=300)):
        pytest.importorskip("torch" if isinstance(engine, Torch) else "duckdb")
        placed_elsewhere = toy(tol=1e-10, engine=engine).fit(table)
        np.testing.assert_allclose(placed_elsewhere.posterior_, local.posterior_, atol=1e-9)
        assert placed_elsewhere.n_iter_ == local.n_iter_
    late = table.item % 10 == 3
    updated = toy(tol=1e-10).fit(table.select(rows=~late)).partial_fit(table.select(rows=late))
    assert np.abs(updated.posterior_ - local.posterior_).mean() < 0.01
    weighted = Annotations.from_arrays(table.item, table.annotator, table.label, weight=np.full(len(table), 2.0))
    twice = Annotations.from_arrays(*(np.tile(c, 2) for c in (table.item, table.annotator, table.label)))
    np.testing.assert_allclose(toy().fit(weighted).posterior_, toy().fit(twice).posterior_, atol=1e-9)
    known = toy().fit(table, gold=sim.truth.astype(np.int32), earlier={0: 500 * np.eye(3)[[1, 2, 0]]})
    assert known.reliability_.argmin() == 0
    assert dissensus.load(dissensus.save(known, tmp_path)).predict().tolist() == sim.truth.tolist()
    assert "pseudo" in toy().get_params()


def test_totals_are_the_weights_of_all_labels():
    for kind in KINDS:
        table = random_table(3, **KINDS[kind])
        with LocalEngine(expand_rows(table), 7, 4, Threads(1), some_gold(table)) as engine:
            found = label_totals(engine)[:, 0]
        expected = np.zeros((7, 4))
        for row in range(len(table)):
            expected[table.annotator[row]] += shares_of(table, row)
        np.testing.assert_allclose(found, expected)
