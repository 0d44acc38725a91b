"""M-MSR: pairs and trimmed means against literal loops, exact completion of forged matrices, colluding annotators."""

import warnings

import numpy as np
import pytest

from dissensus import Annotations, methods
from dissensus.compute.engines.local import Threads
from dissensus.compute.kernels import m_msr as kernels
from dissensus.exceptions import ConvergenceWarning
from dissensus.models.exceptions import NotConverged, TooManyPairs
from dissensus.models.methods.m_msr import MMSR, AnnotatorPairs
from dissensus.table.simulate import simulate
from models.family import readable_pass
from tables import KINDS, random_table, shares_of, some_gold


def literal_pairs(table: Annotations, gold, least: float):
    """n and C of all pairs and with the truth, by plain loops over pairs of rows."""
    A, K = table.n_annotators, table.n_classes
    n, agree = np.zeros((A, A)), np.zeros((A, A))
    known, right = np.zeros(A), np.zeros(A)
    for row in range(len(table)):
        i, j, mine = table.item[row], table.annotator[row], shares_of(table, row)
        if gold is not None and gold[i] >= 0:
            known[j] += mine.sum()
            right[j] += mine[gold[i]]
            continue
        for other in np.flatnonzero(table.item == i):
            if table.annotator[other] != j:
                theirs = shares_of(table, other)
                n[j, table.annotator[other]] += mine.sum() * theirs.sum()
                agree[j, table.annotator[other]] += mine @ theirs
    n[(n < least) | (n == 0)] = 0
    with np.errstate(invalid="ignore", divide="ignore"):
        return n, (K * agree / n - 1) / (K - 1), known, (K * right / known - 1) / (K - 1)


def dense(pairs: AnnotatorPairs) -> tuple[np.ndarray, np.ndarray]:
    A = pairs.ptr.size - 1
    n, C = np.zeros((A, A)), np.full((A, A), np.nan)
    first = np.repeat(np.arange(A), np.diff(pairs.ptr))
    n[first, pairs.second], C[first, pairs.second] = pairs.count, pairs.skill
    return n, C


def from_matrices(n: np.ndarray, C: np.ndarray) -> AnnotatorPairs:
    first, second = np.nonzero(n)
    ptr = np.searchsorted(first, np.arange(len(n) + 1))
    labels, nothing = np.ones(len(n)), np.zeros(len(n))
    return AnnotatorPairs(ptr, second.astype(np.int32), n[first, second], C[first, second], labels, nothing, nothing)


def literal_trimmed_mean(value, weight, trim: float) -> float:
    """Every value in turn, from the smallest, with what of its weight is beyond `trim` from either end."""
    total, passed, size, out = sum(weight), 0.0, 0.0, 0.0
    for v, w in sorted(zip(value, weight, strict=True)):
        kept = max(min(passed + w, (1 - trim) * total) - max(passed, trim * total), 0.0)
        passed, size, out = passed + w, size + kept, out + kept * v
    return out / size


def literal_update(n, C, labels, known, known_skill, trim, given, before) -> np.ndarray:
    out = before.copy()
    for j in range(len(n)):
        others = [k for k in np.flatnonzero(n[j]) if given[k] != 0]
        estimates = [(known[j], known_skill[j])] if known[j] > 0 else []
        if others:
            weight = [n[j, k] * given[k] ** 2 for k in others]
            estimates += [(labels[j], literal_trimmed_mean([C[j, k] / given[k] for k in others], weight, trim))]
        if estimates:
            out[j] = sum(w * s for w, s in estimates) / sum(w for w, _ in estimates)
    return out


def complete(pairs: AnnotatorPairs, **keywords) -> np.ndarray:
    with Threads(1) as pool:
        return MMSR(**keywords)._estimate_skills(pairs, pool, lambda step, objective: None)


@pytest.mark.parametrize("least", [0, 2.7])
@pytest.mark.parametrize("with_gold", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_pairs_equal_the_literal_loops(kind, with_gold, least, monkeypatch):
    monkeypatch.setattr("dissensus.models.methods.m_msr.MAX_CHUNK_PAIRS", 7)
    table = random_table(1, n_annotators=9, **KINDS[kind])
    gold = some_gold(table) if with_gold else None
    n, C, known, known_skill = literal_pairs(table, gold, least)
    pairs = AnnotatorPairs.from_table(table, gold, least)
    found_n, found_C = dense(pairs)
    np.testing.assert_allclose(found_n, n, atol=1e-12)
    np.testing.assert_allclose(found_C[n > 0], C[n > 0], atol=1e-12)
    assert np.isnan(found_C[n == 0]).all()
    np.testing.assert_allclose(pairs.gold_labels, known)
    weight = np.bincount(table.annotator, table.weight, 9)
    np.testing.assert_allclose(pairs.labels, weight - known, atol=1e-12)
    np.testing.assert_allclose(pairs.gold_skill[known > 0], known_skill[known > 0])
    np.testing.assert_array_equal(pairs.has_skill, (n.sum(axis=1) > 0) | (known > 0))


@pytest.mark.parametrize("trim", [0.0, 0.1, 0.4, 0.49])
@pytest.mark.parametrize("size", [1, 2, 7, 300])
def test_trimmed_means_equal_the_literal_loop(size, trim):
    rng = np.random.default_rng(size)
    for digits in (0, 8):  # with and without ties
        C, given = rng.normal(0, 2, size).round(digits), rng.choice([-1.0, 0.5, 1, 2], size)
        n = rng.uniform(0, 3, size) * rng.integers(0, 2, size) + 0.01
        ptr, second, out = np.array([0, size]), np.arange(size, dtype=np.int32), np.full(2, np.nan)
        data = (ptr, second, n, C, np.ones(1), np.zeros(1), np.zeros(1)), trim, given
        kernels.update_skills(0, 1, *data, out[:1])
        kernels.update_skills_numpy(*data, out[1:])
        np.testing.assert_allclose(out, literal_trimmed_mean(C / given, n * given**2, trim), atol=1e-9)


@pytest.mark.parametrize("min_kernel_rows", [0, 10**6])
@pytest.mark.parametrize("with_gold", [False, True])
def test_skills_equal_the_literal_alternation(with_gold, min_kernel_rows, monkeypatch):
    monkeypatch.setattr("dissensus.compute.chunk.MIN_KERNEL_ROWS", min_kernel_rows)
    table = simulate(60, 9, 4, redundancy=3, seed=1).annotations
    gold = some_gold(table) if with_gold else None
    n, C, known, known_skill = literal_pairs(table, gold, 1)
    labels = np.bincount(table.annotator, minlength=9) - known
    u, v = np.ones(9), np.ones(9)
    for _ in range(4):
        v = literal_update(n, C, labels, known, known_skill, 0.3, u, v)
        u = literal_update(n, C, labels, known, known_skill, 0.3, v, u)
        u, v = u * np.sqrt(np.abs(v).sum() / np.abs(u).sum()), v * np.sqrt(np.abs(u).sum() / np.abs(v).sum())
    with pytest.warns(NotConverged) as caught:
        model = MMSR(trim=0.3, max_iter=4, tol=0).fit(table, gold=gold)
    assert caught[0].message.method == "MMSR"
    assert 0 < caught[0].message.change < 0.1
    linked = (n.sum(axis=1) > 0) | (known > 0)
    np.testing.assert_allclose(
        model.skill_, np.where(linked, np.sign(u) * np.sqrt(np.maximum(u * v, 0)), 0), atol=1e-12
    )
    assert not model.converged_


@pytest.mark.parametrize("seed", range(3))
def test_untrimmed_skills_are_least_squares(seed):
    table = simulate(200, 8, 3, redundancy=4, seed=seed).annotations
    s = MMSR(trim=0.0, tol=1e-12).fit(table).skill_
    n, C, *_ = literal_pairs(table, None, 1)
    for j in range(8):  # half the derivative of Σ n (C − s s')² by s_j
        others = np.flatnonzero(n[j])
        np.testing.assert_allclose((n[j] * s * (C[j] - s[j] * s))[others].sum(), 0, atol=1e-6)


@pytest.mark.parametrize("seed", range(4))
def test_a_forged_matrix_is_completed_exactly(seed):
    rng = np.random.default_rng(seed)
    A = 30
    skill = rng.uniform(0.3, 1.0, A) * np.where(rng.random(A) < 0.1, -1, 1)
    n = np.triu(rng.random((A, A)) < 0.8, 1) * 10.0
    C = np.outer(skill, skill)
    forged = rng.choice(A, 4, replace=False)  # whole rows: what they agree on says nothing
    C[forged] = np.triu(rng.uniform(-1, 1, (A, A)), 1)[forged]
    n, C = n + n.T, np.triu(C, 1) + np.triu(C, 1).T
    pairs = from_matrices(n, C)
    honest = ~np.isin(np.arange(A), forged)
    found = complete(pairs, tol=1e-10, max_iter=5000)
    np.testing.assert_allclose(found[honest], skill[honest], atol=1e-6)
    untrimmed = complete(pairs, trim=0.0, tol=1e-6, max_iter=5000)
    assert np.abs(untrimmed - skill)[honest].mean() > 0.01


def crowd(
    seed: int, I: int, A: int, K: int, labels: int, colluding: float
) -> tuple[Annotations, np.ndarray, np.ndarray]:
    """One-coin annotators, and some who all give the same answers, right half of the time."""
    rng = np.random.default_rng(seed)
    truth, accuracy = rng.integers(0, K, I), rng.uniform(0.5, 0.95, A)
    item = np.repeat(np.arange(I), labels)
    annotator = np.concatenate([rng.choice(A, labels, replace=False) for _ in range(I)])
    wrong = (truth + rng.integers(1, K, I)) % K
    label = np.where(
        rng.random(item.size) < accuracy[annotator], truth[item], (truth[item] + rng.integers(1, K, item.size)) % K
    )
    agreed = np.where(rng.random(I) < 0.5, truth, wrong)
    bad = np.arange(A) < colluding * A
    return Annotations.from_arrays(item, annotator, np.where(bad[annotator], agreed[item], label)), truth, accuracy


@pytest.mark.parametrize(("n_classes", "colluding"), [(2, 0.3), (3, 0.3), (5, 0.35)])
def test_colluders_do_not_take_over(n_classes, colluding):
    table, truth, _ = crowd(1, 1000, 20, n_classes, 10, colluding)
    right = {
        name: (methods[name]().fit(table).predict() == truth).mean() for name in ("m-msr", "one-coin", "dawid-skene")
    }
    assert right["m-msr"] > 0.9
    assert right["one-coin"] < 0.75  # they agree with each other, so they are thought to be perfect
    assert right["dawid-skene"] < 0.75
    assert (MMSR(trim=0.0).fit(table).predict() == truth).mean() < 0.75


@pytest.mark.parametrize("n_classes", [2, 6])
def test_finds_skills_and_beats_majority_vote(n_classes):
    table, truth, accuracy = crowd(2, 3000, 30, n_classes, 5, 0.0)
    model = MMSR(dependence=None).fit(table)
    assert (model.predict() == truth).mean() > (methods["majority-vote"]().fit(table).predict() == truth).mean() + 0.01
    assert np.abs(model.accuracy_ - accuracy).mean() < 0.04
    assert np.abs(model.reliability_ - accuracy).mean() < 0.04
    np.testing.assert_allclose(model.skill_, (n_classes * accuracy - 1) / (n_classes - 1), atol=0.15)


def test_who_guesses_has_no_skill():
    # |C| of a guesser is the size of the noise, not 0; values that keep their signs cancel
    rng = np.random.default_rng(7)
    table, *_ = crowd(3, 400, 12, 2, 6, 0.0)
    guesses = rng.integers(0, 2, 400)
    table = Annotations.from_arrays(
        np.concatenate([table.item, np.arange(400)]),
        np.concatenate([table.annotator, np.full(400, 12)]),
        np.concatenate([table.label, guesses]),
    )
    assert abs(MMSR().fit(table).skill_[12]) < 0.1


def test_posterior_is_that_of_one_coin_with_these_coins():
    for kind in KINDS:
        table = random_table(5, **KINDS[kind])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            model = MMSR(dependence=None).fit(table)
        votes = sum(shares_of(table, row) for row in range(len(table)))
        lean = 1 + 0.01 * votes / votes.sum()
        np.testing.assert_allclose(model.prior_, lean / lean.sum())
        posterior, _ = readable_pass(table, model.prior_, model.confusion_)
        np.testing.assert_allclose(model.posterior_, posterior, atol=1e-12)


def test_coins_are_skills_and_pseudo_counts():
    table = simulate(100, 9, 4, redundancy=3, seed=3).annotations
    model = MMSR(right_count=3, wrong_count=1).fit(table)
    n = model.n_annotations_
    share = np.clip((3 * model.skill_ + 1) / 4, 0, 1)
    np.testing.assert_allclose(model.accuracy_, (n * share + 3) / (n + 4))
    everyone = ((n * model.accuracy_).sum() + 3) / (n.sum() + 4)
    np.testing.assert_allclose(model.population_coin_, [[everyone, 1 - everyone]])
    for (right, wrong), confusion in zip(model.coin_, model.confusion_, strict=True):
        np.testing.assert_allclose(confusion, np.where(np.eye(4) == 1, right, wrong / 3))


def test_who_shares_no_item_is_like_the_population_and_so_is_who_is_unseen():
    table = simulate(100, 9, 3, redundancy=3, seed=3).annotations
    more = Annotations.from_arrays(
        np.append(table.item, [900, 901]),
        np.append(table.annotator, [99, 99]),
        np.append(table.label, [1, 2]),
        classes=3,
    )
    model = MMSR().fit(more)
    np.testing.assert_array_equal(model.coin_[9:], model.population_coin_)
    np.testing.assert_allclose(model.coin_[:9], MMSR().fit(table).coin_)
    scored = model.predict_proba(Annotations.from_arrays([7, 8], [999, 3], [1, 2], classes=3, items=[5, 7, 8]))
    np.testing.assert_allclose(scored[0], model.prior_)
    for row, (right, wrong), label in ((1, model.population_coin_[0], 1), (2, model.coin_[3], 2)):
        expected = model.prior_ * np.where(np.arange(3) == label, right, wrong / 2)
        np.testing.assert_allclose(scored[row], expected / expected.sum())


def test_pairs_that_share_too_little_are_left_out():
    table = simulate(200, 30, 3, redundancy=3, seed=6).annotations
    count = [AnnotatorPairs.from_table(table, None, least).count for least in (1, 3)]
    assert count[1].size < count[0].size
    np.testing.assert_array_equal(np.sort(count[1]), np.sort(count[0][count[0] >= 3]))
    model = MMSR(min_shared=1000).fit(table)  # nobody is left
    np.testing.assert_allclose(model.coin_, np.broadcast_to([2 / 3, 1 / 3], (30, 2)))


def test_pairs_of_little_weight_count_all_the_same():
    table = simulate(200, 12, 3, redundancy=4, seed=6).annotations
    light = Annotations.from_arrays(table.item, table.annotator, table.label, weight=np.full(len(table), 0.01))
    np.testing.assert_allclose(MMSR().fit(light).skill_, MMSR().fit(table).skill_, atol=1e-9)


def test_threads_change_no_skill():
    table = simulate(15_000, 60, 4, redundancy=5, seed=9).annotations
    one, two = MMSR(threads=1).fit(table), MMSR(threads=2).fit(table)
    np.testing.assert_array_equal(one.skill_, two.skill_)
    np.testing.assert_array_equal(one.posterior_, two.posterior_)


@pytest.mark.realdata
@pytest.mark.parametrize(("name", "least"), [("rte", 0.92), ("sentiment_polarity", 0.91)])
def test_beats_the_same_method_elsewhere(name, least):
    from dissensus import load_dataset

    data = load_dataset(name)
    truth = data.annotations.classes[data.gold]
    assert (MMSR().fit(data.annotations).predict() == truth).mean() > least  # crowd-kit's MMSR: 0.858, 0.901


def test_too_many_pairs_are_an_error_before_they_are_made():
    n = 100_000
    table = Annotations.from_codes(
        np.zeros(n, int), np.arange(n), np.arange(n) % 2, np.arange(1), np.arange(n), np.arange(2)
    )
    with pytest.raises(TooManyPairs) as caught:
        MMSR().fit(table)
    assert (caught.value.pairs, caught.value.max_pairs) == (10_000_000_000, 100_000_000)
