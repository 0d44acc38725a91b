"""KOS: messages against literal sums that leave one out, and probabilities that hold."""

import math
import warnings

import numpy as np
import pytest

from dissensus import Annotations, methods
from dissensus.compute.engines.local import Threads
from dissensus.compute.kernels import kos as kernels
from dissensus.models.exceptions import NotConverged
from dissensus.models.methods.kos import KOS, AnswerEdges, MessagePassing, fit_scale, gold_agreement
from dissensus.table.simulate import simulate
from tables import random_table, shares_of, with_extremes

KINDS = {
    "hard": {},
    "weighted": {"weight": lambda rng, n: rng.uniform(0, 3, n)},
    "probabilistic": {"proba": lambda rng, n: rng.dirichlet(np.ones(2), n)},
    "both": {"weight": lambda rng, n: rng.uniform(0, 3, n), "proba": lambda rng, n: rng.dirichlet(np.ones(2), n)},
}


def two_classes(seed: int, kind: str = "hard", **sizes) -> Annotations:
    return random_table(seed, n_classes=2, **sizes, **KINDS[kind])


def some_gold(table: Annotations) -> np.ndarray:
    return np.where(np.arange(table.n_items) % 3 == 0, np.arange(table.n_items) % 2, -1).astype(np.int32)


def one_coin_table(seed: int, I: int, A: int, labels: int, low: float, high: float) -> tuple[Annotations, np.ndarray]:
    rng = np.random.default_rng(seed)
    truth, accuracy = rng.integers(0, 2, I), rng.uniform(low, high, A)
    item, annotator = np.repeat(np.arange(I), labels), rng.integers(0, A, I * labels)
    right = rng.random(item.size) < accuracy[annotator]
    return Annotations.from_arrays(item, annotator, np.where(right, truth[item], 1 - truth[item])), truth


def literal_passes(table: Annotations, gold, labels: float, passes: int):
    """The equations of the module as plain sums over everyone else, without ever subtracting."""
    a: dict[tuple[int, int], float] = {}
    right, known = np.zeros(table.n_annotators), np.zeros(table.n_annotators)
    for row in range(len(table)):
        i, j = int(table.item[row]), int(table.annotator[row])
        answer = shares_of(table, row)[1] - shares_of(table, row)[0]
        if gold is not None and gold[i] >= 0:
            right[j] += answer * (2 * gold[i] - 1)
            known[j] += abs(answer)
        else:
            a[i, j] = a.get((i, j), 0.0) + answer
    pairs = [(a[e], a[f]) for e in a for f in a if e[0] == f[0] and e != f]
    kappa = np.sqrt(max((sum(p * q for p, q in pairs) + 2 / 9) / (sum(abs(p * q) for p, q in pairs) + 2), 0.01**2))
    y = dict.fromkeys(a, kappa)
    for _ in range(passes):
        says = {e: math.atanh(min(max(y[e], -0.99), 0.99)) for e in a}
        x = {(i, j): sum(a[e] * says[e] for e in a if e[0] == i and e[1] != j) for i, j in a}

        def reply(j, but, x=x):
            h = {e: a[e] * x[e] / (1 + abs(x[e])) for e in a if e[1] == j and e[0] != but}
            Y, Q = sum(h.values()) + right[j], sum(map(abs, h.values())) + known[j]
            return (Y + labels * kappa) / (Q + labels)

        weight = np.array([reply(j, None) for j in range(table.n_annotators)])
        y = {(i, j): reply(j, i) for i, j in a}
    return a, x, np.arctanh(np.clip(weight, -0.99, 0.99)), kappa


@pytest.mark.parametrize(("threads", "min_kernel_rows"), [(1, 0), (3, 0), (1, 10**6)])
@pytest.mark.parametrize("with_gold", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_messages_equal_the_literal_sums(kind, with_gold, threads, min_kernel_rows, monkeypatch):
    monkeypatch.setattr("dissensus.compute.chunk.MIN_KERNEL_ROWS", min_kernel_rows)
    table = two_classes(1, kind, n=97)
    gold = some_gold(table) if with_gold else None
    a, x, weight, kappa = literal_passes(table, gold, 3.0, passes=3)
    edges = AnswerEdges.from_table(table, gold)
    item = np.repeat(np.arange(table.n_items), np.diff(edges.item_ptr))
    assert list(zip(item.tolist(), edges.annotator.tolist(), strict=True)) == sorted(a)
    np.testing.assert_allclose(edges.answer, [a[e] for e in sorted(a)], atol=1e-12)
    with Threads(threads) as pool:
        messages = MessagePassing(edges, gold_agreement(table, gold), pool, 3.0)
        for _ in range(3):
            messages()
    np.testing.assert_allclose(messages.message, [x[e] for e in sorted(a)], atol=1e-9)
    np.testing.assert_allclose(messages.weight, weight, atol=1e-9)
    np.testing.assert_allclose(messages.crowd, kappa)


def mean_margin(messages: MessagePassing) -> float:
    return (
        sum(abs(a * x) for a, x in zip(messages.edges.answer, messages.message, strict=True))
        / np.abs(messages.edges.answer).sum()
    )


def literal_likelihood(messages: MessagePassing, beta: float) -> float:
    agrees = [
        (abs(a), np.sign(a) * np.tanh(beta * x / 2))
        for a, x in zip(messages.edges.answer, messages.message, strict=True)
    ]
    t = np.tanh(beta * mean_margin(messages) / 2)
    more = np.log(1 + messages.crowd * t) + np.log(1 - messages.crowd * t)
    return sum(w * np.log(1 + messages.crowd * s) for w, s in agrees) + more


@pytest.mark.parametrize("kind", KINDS)
def test_scale_is_what_predicts_left_out_labels_best(kind):
    table = two_classes(3, kind, n_items=40, n=300)
    with Threads(2) as pool:
        messages = MessagePassing(AnswerEdges.from_table(table, None), np.zeros((7, 2)), pool, 5.0)
        for _ in range(5):
            messages()
        table = simulate(80, 9, 2, redundancy=4, seed=1).annotations
        good = MessagePassing(AnswerEdges.from_table(table, None), np.zeros((9, 2)), pool, 5.0)
        for _ in range(5):
            good()
        for each in (messages, good):
            best = fit_scale(each)
            top = literal_likelihood(each, best)
            for factor in (0.5, 0.9, 0.999, 1.001, 1.1, 2):
                assert literal_likelihood(each, best * factor) <= top + 1e-9 or best * mean_margin(each) < 1.001e-3
        assert 0.1 < fit_scale(good) * mean_margin(good) < 10  # and not an end of what is searched


def test_posterior_is_made_of_the_score():
    table, _ = one_coin_table(5, 40, 7, 4, 0.5, 0.95)
    model = KOS().fit(table)
    score = np.zeros(table.n_items)
    for row in range(len(table)):
        score[table.item[row]] += (2 * table.label[row] - 1) * model.weight_[table.annotator[row]]
    np.testing.assert_allclose(model.posterior_[:, 1], 1 / (1 + np.exp(-model.scale_ * score)), atol=1e-12)
    np.testing.assert_allclose(model.posterior_[:, 0], 1 / (1 + np.exp(model.scale_ * score)), atol=1e-12)


def test_weights_equal_their_definition_over_all_items():
    table, _ = one_coin_table(1, 50, 6, 4, 0.6, 0.9)
    model = KOS(crowd_labels=7).fit(table)
    _, _, weight, *_ = literal_passes(table, None, 7.0, model.n_iter_)
    np.testing.assert_allclose(model.weight_, weight, atol=1e-9)


def test_rows_of_the_same_pair_count_as_one_of_their_sum():
    table, _ = one_coin_table(6, 30, 5, 6, 0.6, 0.95)
    edges = AnswerEdges.from_table(table, None)
    assert edges.annotator.size < len(table)
    item = np.repeat(np.arange(table.n_items), np.diff(edges.item_ptr))
    merged = Annotations.from_arrays(
        item, edges.annotator, (edges.answer > 0).astype(int), 2, weight=np.abs(edges.answer), items=table.items,
        annotators=table.annotators,
    )  # fmt: skip
    np.testing.assert_allclose(KOS().fit(table).posterior_, KOS().fit(merged).posterior_, atol=1e-9)


def test_a_nearly_perfect_label_outweighs_two_middling_ones():
    rng = np.random.default_rng(0)
    truth = rng.integers(0, 2, 2000)
    item, annotator = (codes.ravel() for codes in np.meshgrid(np.arange(2000), np.arange(5), indexing="ij"))
    right = rng.random(item.size) < np.array([0.98, 0.98, 0.98, 0.75, 0.75])[annotator]
    model = KOS().fit(Annotations.from_arrays(item, annotator, np.where(right, truth[item], 1 - truth[item])))
    assert model.weight_[:3].min() > 1.5 * model.weight_[3:].max()
    both = Annotations.from_arrays([1, 1, 1], [0, 3, 4], [0, 1, 1], classes=2)
    assert model.predict(both)[0] == 0


def test_an_even_vote_of_equals_is_a_tie():
    item, annotator = np.divmod(np.arange(40), 4)
    label = np.where(item < 9, item % 2, annotator % 2)  # all alike, but for the last item
    model = KOS().fit(Annotations.from_arrays(item, annotator, label))
    np.testing.assert_array_equal(model.posterior_[9], [0.5, 0.5])
    assert model.posterior_[:9].max(axis=1).min() > 0.8


@pytest.mark.parametrize("seed", range(3))
def test_finds_the_truth_and_knows_how_sure_it_is(seed):
    table, truth = one_coin_table(seed, 3000, 60, 6, 0.35, 0.95)
    model, vote = KOS().fit(table), methods["majority-vote"]().fit(table)
    assert (model.predict() == truth).mean() > (vote.predict() == truth).mean() + 0.05
    for low, high in ((0.5, 0.7), (0.7, 0.9), (0.9, 1.0)):
        sure = model.posterior_.max(axis=1)
        within = (sure >= low) & (sure <= high)
        assert abs((model.predict() == truth)[within].mean() - sure[within].mean()) < 0.06


def test_probabilities_hold_where_annotators_err_together():
    # on a third of the items everyone is right half of the time at most: labels are not independent
    rng = np.random.default_rng(2)
    truth, hard = rng.integers(0, 2, 1000), rng.random(1000) < 0.3
    item = np.repeat(np.arange(1000), 15)
    right = rng.random(item.size) < np.where(hard[item], 0.4, 0.9)
    table = Annotations.from_arrays(item, rng.integers(0, 50, item.size), np.where(right, truth[item], 1 - truth[item]))
    loss = {}
    for name, keywords in {"kos": {}, "one-coin": {"dependence": None}, "dawid-skene": {"dependence": None}}.items():
        posterior = methods[name](**keywords).fit(table).posterior_
        loss[name] = -np.log(np.maximum(posterior[np.arange(1000), truth], 1e-15)).mean()
    assert loss["kos"] < 0.6 * min(loss["one-coin"], loss["dawid-skene"])


def test_shares_hold_where_two_copy_on_all_items():
    # three careful annotators per item, of 40 labels each, and two who copy the same guesses, on all items
    rng = np.random.default_rng(4)
    truth = rng.integers(0, 2, 600)
    careful = np.concatenate([rng.permutation(600) for _ in range(3)])
    item = np.concatenate([careful, np.arange(600), np.arange(600)])
    annotator = np.concatenate([np.arange(1800) // 40, np.full(600, 100), np.full(600, 101)])
    right = np.concatenate([rng.random(1800) < 0.85, np.tile(rng.random(600) < 0.5, 2)])
    table = Annotations.from_arrays(item, annotator, np.where(right, truth[item], 1 - truth[item]))
    assert (KOS().fit(table).predict() == truth).mean() > 0.85


def test_parts_that_hardly_meet_do_not_silence_each_other():
    # the paper's sums settle where the graph is densest, and are next to nothing elsewhere
    dense, truth_1 = one_coin_table(1, 800, 40, 10, 0.5, 0.95)
    sparse, truth_2 = one_coin_table(2, 800, 40, 3, 0.5, 0.95)
    truth = np.concatenate([truth_1, truth_2])
    other = sparse.annotator + 38  # two annotators are in both
    table = Annotations.from_arrays(
        np.concatenate([dense.item, sparse.item + 800]), np.concatenate([dense.annotator, other]),
        np.concatenate([dense.label, sparse.label]),
    )  # fmt: skip
    alone = (KOS().fit(sparse).predict() == truth_2).mean()
    assert (KOS().fit(table).predict() == truth)[800:].mean() > alone - 0.02


def test_no_overlap_is_left_to_the_votes():
    table = Annotations.from_arrays([1, 2, 3, 3], [1, 2, 3, 3], [0, 1, 1, 1])
    model = KOS().fit(table)
    np.testing.assert_array_equal(model.predict(), [0, 1, 1])
    crowd = np.arctanh(1 / 3)  # a newcomer is right two times in three
    np.testing.assert_allclose(model.posterior_[1:, 1], 1 / (1 + np.exp(-2 * crowd * np.array([1, 2]))))
    assert model.converged_


@pytest.mark.parametrize("seed", range(3))
def test_an_oracle_is_best_and_one_who_is_always_wrong_worst(seed):
    model = KOS().fit(with_extremes(simulate(600, 20, 2, redundancy=5, seed=seed), labels=100))
    assert model.annotators_[[model.reliability_.argmax(), model.reliability_.argmin()]].tolist() == [1000, 1001]
    assert model.weight_[model.annotators_ == 1001] < 0


def test_the_sign_is_the_crowd_s_but_for_gold():
    # two thirds are wrong, and agree on it: the crowd wins, unless some classes are known
    rng = np.random.default_rng(5)
    truth, accuracy = rng.integers(0, 2, 300), np.where(np.arange(30) < 20, 0.15, 0.85)
    item, annotator = np.repeat(np.arange(300), 6), rng.integers(0, 30, 1800)
    right = rng.random(1800) < accuracy[annotator]
    table = Annotations.from_arrays(item, annotator, np.where(right, truth[item], 1 - truth[item]))
    gold = np.where(np.arange(300) < 60, truth, -1)
    alone, told = KOS().fit(table), KOS().fit(table, gold=gold)
    assert (alone.predict() == truth).mean() < 0.1
    assert (told.predict() == truth)[60:].mean() > 0.9


def test_unseen_annotator_weighs_as_the_crowd_and_empty_item_has_the_prior():
    table = simulate(300, 9, 2, seed=4).annotations
    model = KOS().fit(table)
    new = Annotations.from_arrays([7, 8], [999, 3], [1, 0], classes=2, items=[5, 7, 8])
    scored = model.predict_proba(new)
    np.testing.assert_array_equal(scored[0], model.prior_)
    odds = model.scale_ * np.array([model.population_weight_, -model.weight_[3]])
    np.testing.assert_allclose(scored[1:, 1], 1 / (1 + np.exp(-odds)))
    np.testing.assert_allclose(
        model.annotator_confusions(np.array([-1]))[0, 0, 0], model.hits_.sum() / model.total_.sum()
    )


def test_confusions_are_made_of_the_reliabilities():
    model = KOS().fit(one_coin_table(9, 40, 7, 4, 0.5, 0.95)[0])
    assert not hasattr(KOS(), "confusion_")
    for p, confusion in zip(model.reliability_, model.confusion_, strict=True):
        np.testing.assert_allclose(confusion, [[p, 1 - p], [1 - p, p]])


def test_threads_agree():
    table = simulate(15_000, 60, 2, redundancy=5, seed=9).annotations
    one, two = KOS(threads=1).fit(table), KOS(threads=2).fit(table)
    np.testing.assert_allclose(one.posterior_, two.posterior_, atol=1e-9)


def test_too_few_passes_are_a_warning_with_the_last_change():
    table = simulate(300, 9, 2, seed=4).annotations
    with pytest.warns(NotConverged) as caught:
        model = KOS(max_iter=2).fit(table)
    assert 0 < caught[0].message.change < 1
    assert not model.converged_
    assert model.n_iter_ == 2
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert KOS().fit(table).converged_


@pytest.mark.realdata
def test_rte_needs_shares():
    from dissensus import load_dataset

    data = load_dataset("rte")
    truth = data.annotations.classes[data.gold]
    model = KOS().fit(data.annotations)
    assert (model.predict() == truth).mean() > 0.92  # crowd-kit's KOS, by sums: 0.4975 for all of 20 seeds
    assert -np.log(model.posterior_[np.arange(800), data.gold]).mean() < 0.25


def test_log_odds_of_a_share_nearby_are_exact():
    rng = np.random.default_rng(0)
    near = rng.uniform(-1, 1, 2000)
    share = np.clip(near + rng.choice([1e-6, 1e-3, 0.02, 0.5], 2000) * rng.uniform(-1, 1, 2000), -1, 1)
    found = [kernels._nearby_log_odds(x, y, kernels.log_odds(y)) for x, y in zip(share, near, strict=True)]
    bounded = np.clip(share, -kernels.MAX_AGREEMENT, kernels.MAX_AGREEMENT)
    np.testing.assert_allclose(found, np.arctanh(bounded), rtol=1e-12, atol=1e-14)
    u = (share - near) / (1 - share * near)
    assert (np.abs(u) < kernels.MAX_SERIES_ARGUMENT).sum() > 500  # by the series
    assert (np.abs(u) > kernels.MAX_SERIES_ARGUMENT).sum() > 200  # by the logarithm
