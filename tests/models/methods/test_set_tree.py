"""set-tree: its tree and its marginals against all sets, EM that never falls, recovery, and what it refuses."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from dissensus import Annotations, load, methods, save
from dissensus.compute.kernels import sets as kernels
from dissensus.evaluation.distances import distance_alpha, set_distances
from dissensus.models.exceptions import UnseenOption, WrongLabelType
from dissensus.models.methods.set_tree import SetTree, most_likely_tree, option_marginals
from dissensus.table.simulate import simulate_sets

CROWD = {"sparing": 4, "eager": 4, "spammer": 4, "adversary": 2}


@pytest.fixture(scope="module")
def drawn():
    return simulate_sets(600, 40, 8, redundancy=7, kinds=CROWD, seed=3)


@pytest.fixture(scope="module")
def fitted(drawn):
    return SetTree().fit(drawn.annotations)


def by_all_sets(odds, order, parent, chance):
    """Marginals, joint sums and log totals, literally over all 2^L sets."""
    L, posterior, joint, total = odds.shape[1], np.zeros(odds.shape), np.zeros(chance.shape), np.zeros(len(odds))
    for i in range(len(odds)):
        for chosen in product([0, 1], repeat=L):
            weight = 1.0
            for c in range(L):
                p = chance[c, chosen[parent[c]] if parent[c] >= 0 else 0]
                weight *= (p if chosen[c] else 1 - p) * np.exp(odds[i, c] * chosen[c])
            total[i] += weight
            posterior[i] += weight * np.array(chosen)
        posterior[i] /= total[i]
        for chosen in product([0, 1], repeat=L):
            weight = 1 / total[i]
            for c in range(L):
                p = chance[c, chosen[parent[c]] if parent[c] >= 0 else 0]
                weight *= (p if chosen[c] else 1 - p) * np.exp(odds[i, c] * chosen[c])
            for c in range(L):
                joint[c, chosen[parent[c]] if parent[c] >= 0 else 0] += weight * chosen[c]
    return posterior, joint, np.log(total)


def test_the_walks_over_the_tree_are_sums_over_all_sets():
    rng = np.random.default_rng(0)
    order, parent = np.array([2, 0, 1, 3, 4]), np.array([2, 0, -1, 2, 3])
    odds, chance = rng.normal(0, 3, (6, 5)), rng.uniform(0.05, 0.95, (5, 2))
    chance[2, 1] = chance[2, 0]
    for found, literal in zip(
        option_marginals(odds, order, parent, chance), by_all_sets(odds, order, parent, chance), strict=True
    ):
        np.testing.assert_allclose(found, literal, rtol=1e-10)


def test_rows_are_summed_as_a_loop_sums_them(drawn):
    table, rng = drawn.annotations, np.random.default_rng(1)
    ticked, (I, L, A) = table.options.selected, (table.n_items, 8, table.n_annotators)
    tick, blank, q = rng.normal(size=(A, L)), rng.normal(size=(A, L)), rng.random((I, L))
    weight = rng.random(len(table))
    odds, true, hits = np.zeros((I, L)), np.zeros((A, L)), np.zeros((A, L))
    rows = table.item_ptr, table.annotator, table.label, weight, ticked
    kernels.add_log_odds(*rows, tick, blank, odds)
    kernels.add_counts(*rows, q, true, hits)
    literal = [np.zeros((I, L)), np.zeros((A, L)), np.zeros((A, L))]
    for i, a, y, w in zip(table.item, table.annotator, table.label, weight, strict=True):
        literal[0][i] += w * np.where(ticked[y], tick[a], blank[a])
        literal[1][a] += w * q[i]
        literal[2][a] += w * q[i] * ticked[y]
    for found, loop in zip((odds, true, hits), literal, strict=True):
        np.testing.assert_allclose(found, loop)


def test_options_that_go_together_are_neighbours(drawn):
    _, parent = most_likely_tree(drawn.truth.astype(float))
    edges = {frozenset((c, p)) for c, p in enumerate(parent.tolist()) if p >= 0}
    assert edges == {frozenset((c, c + 1)) for c in range(7)}  # as they were drawn


def test_the_objective_never_falls(drawn):
    plain = SetTree(accelerate=None).fit(drawn.annotations)
    assert np.diff(plain.trace_).min() >= 0
    assert SetTree().fit(drawn.annotations).trace_[-1] == pytest.approx(plain.trace_[-1], rel=1e-5)


def test_truth_and_annotators_are_found_again(drawn, fitted):
    table = drawn.annotations
    shares = np.add.reduceat(table.options.selected[table.label], table.item_ptr[:-1]) / 7
    wrong = (fitted.answer_ != drawn.truth).mean()
    assert wrong < 0.01
    assert wrong < 0.5 * ((shares > 0.5) != drawn.truth).mean()
    mean = {kind: fitted.reliability_[drawn.kind == kind].mean() for kind in ("good", "spammer", "adversary")}
    assert mean["good"] > mean["spammer"] + 0.3
    assert mean["spammer"] > mean["adversary"]
    np.testing.assert_allclose(fitted.hit_[drawn.kind == "good"].mean(), 0.85, atol=0.05)
    assert ((fitted.confidence_ > 0) & (fitted.confidence_ <= 1)).all()


def test_order_and_names_change_nothing(drawn, fitted):
    table = drawn.annotations
    rows = np.random.default_rng(0).permutation(len(table))
    other = {f"o{c}": f"z{9 - c}" for c in range(8)} | {"∅": "∅"}
    turned = np.array(["|".join(other[one] for one in name.split("|")) for name in table.classes], object)
    again = SetTree().fit(
        Annotations.from_arrays(table.item[rows], table.annotator[rows], turned[table.label[rows]], kind="sets")
    )
    assert again.options_.tolist() == [f"z{n}" for n in range(2, 10)]
    np.testing.assert_allclose(again.posterior_[:, ::-1], fitted.posterior_, atol=1e-6)


def test_known_sets_stay_and_teach(drawn):
    gold = np.full(drawn.annotations.n_items, -1, np.int32)
    gold[:5] = [drawn.annotations.classes.tolist().index("o3")] * 5
    model = SetTree().fit(drawn.annotations, gold=gold)
    assert model.predict()[:5].tolist() == ["o3"] * 5
    assert model.posterior_[:5, 3].min() > 0.99


def test_many_known_sets_say_how_far_labels_depend(drawn):
    table = drawn.annotations
    place = {name: k for k, name in enumerate(table.classes)}
    names = ["|".join(drawn.options[one]) or "∅" for one in drawn.truth]
    gold = np.array([place.get(name, -1) for name in names], np.int32)
    model = SetTree().fit(table, gold=np.where(np.arange(600) < 200, gold, -1))
    assert model.dependence_ < 0.2  # drawn without any
    assert model.dependence_interval_[0] <= model.dependence_ <= model.dependence_interval_[1]


def test_new_rows_are_judged_by_what_was_learnt(drawn, fitted, tmp_path):
    new = drawn.annotations.select(items=drawn.annotations.items[:20])
    np.testing.assert_allclose(fitted.predict_proba(new), fitted.posterior_[:20], atol=1e-8)
    assert fitted.predict(new).tolist() == fitted.predict()[:20].tolist()
    expected = fitted.predict_annotations(new)
    ticked = new.options.selected[new.label]
    assert expected[ticked].mean() > expected[~ticked].mean() + 0.4
    save(fitted, tmp_path)
    kept = load(tmp_path)
    assert kept.predict(new).tolist() == fitted.predict(new).tolist()
    with pytest.raises(UnseenOption) as caught:
        fitted.predict(Annotations.from_arrays([1], [1], ["new"], kind="sets"))
    assert caught.value.option == "'new'"
    with pytest.raises(WrongLabelType):
        fitted.predict(Annotations.from_arrays([1, 1], [1, 2], ["a", "b"]))


def test_frames_have_names(fitted):
    items = fitted.to_frame("items", "pyarrow")
    assert items.column_names[:4] == ["item", "label", "confidence", "p_o0"]
    assert fitted.to_frame("confusions", "pyarrow").column_names == ["annotator", "option", "hit", "false_tick"]
    with pytest.raises(WrongLabelType) as caught:
        methods["dawid-skene"]().fit(Annotations.from_arrays([1, 1], [1, 2], ["a|b", "b"], kind="sets"))
    assert "set-tree" in caught.value.able


@pytest.mark.parametrize(("distance", "values"), [("jaccard", [0, 0.5, 2 / 3, 1]), ("masi", [0, 2 / 3, 8 / 9, 1])])
def test_distances_of_sets(distance, values):
    table = Annotations.from_arrays([1, 1, 1, 1, 1], [1, 2, 3, 4, 5], ["a|b", "a", "b|c", "d", "∅"], kind="sets")
    delta = set_distances(table, distance)
    at = {name: k for k, name in enumerate(table.classes)}
    found = [delta[at["a|b"], at[other]] for other in ("a|b", "a", "b|c", "d")]
    np.testing.assert_allclose(found, values)
    assert delta[at["∅"], [at["∅"], at["a"]]].tolist() == [0, 1]


def test_alpha_of_a_distance_is_the_sum_over_all_pairs(drawn):
    table = drawn.annotations.select(items=drawn.annotations.items[:40])
    delta = set_distances(table, "masi")
    within = n = 0.0
    for i in range(table.n_items):
        labels = table.label[table.item == i]
        within += sum(delta[a, b] for x, a in enumerate(labels) for y, b in enumerate(labels) if x != y) / (
            len(labels) - 1
        )
        n += len(labels)
    across = sum(delta[a, b] for a in table.label for b in table.label)
    found = distance_alpha(table, delta, resamples=200, seed=0)
    assert found.value == pytest.approx(1 - (n - 1) * within / across)
    assert found.low < found.value < found.high


def test_softened_posterior_is_that_of_all_sets():
    """Labels count 1/d, the tree's log odds 1/√d: a sum over all sets of three options."""
    from itertools import product

    from dissensus.models.methods.set_tree import _temper_options

    rng = np.random.default_rng(0)
    odds, d = rng.normal(0, 3, (4, 3)), np.array([1.0, 4.0, 4.0, 9.0])
    order, parent, chance = np.array([1, 0, 2]), np.array([1, -1, 0]), rng.uniform(0.1, 0.9, (3, 2))
    chance[1, 1] = chance[1, 0]
    sets = rng.random((4, 3)) < 0.5
    q, log_set = _temper_options(odds, d, sets, order, parent, chance)
    for i in range(4):
        tree = 1 / (1 + ((1 - chance) / chance) ** (1 / np.sqrt(d[i])))
        weight = {}
        for truth in product((False, True), repeat=3):
            w = 1.0
            for c in range(3):
                p = tree[c, int(parent[c] >= 0 and truth[parent[c]])]
                w *= p * np.exp(odds[i, c] / d[i]) if truth[c] else 1 - p
            weight[truth] = w
        total = sum(weight.values())
        for c in range(3):
            assert q[i, c] == pytest.approx(sum(w for truth, w in weight.items() if truth[c]) / total)
        assert log_set[i] == pytest.approx(np.log(weight[tuple(sets[i].tolist())] / total))


def test_random_starts_keep_the_tree_that_the_best_of_them_is_judged_by():
    table = simulate_sets(30, 14, 7, redundancy=2, kinds=CROWD, seed=0).annotations
    once, often = (SetTree(restarts=n, seed=2).fit(table) for n in (1, 4))
    assert often.parent_.tolist() == once.parent_.tolist()
    assert often.trace_.max() >= once.trace_.max() - 1e-9
    np.testing.assert_allclose(often.predict_proba(table), often.posterior_, atol=1e-9)
