"""Panels corrected by gold, against what was simulated."""

import numpy as np
import pytest

import dissensus as dz
from dissensus import Annotations, calibrate, review_panel
from dissensus.questions.exceptions import (
    AnnotatorWithoutValue,
    GoldOfAnotherType,
    NoDrawProbability,
    OneClassOnly,
    TooLittleGold,
    UnevenDraw,
    WrongLength,
)
from dissensus.questions.findings import FewGoldLabels, GoldNotRandom
from dissensus.questions.panel_review import _compute_correlations, _compute_errors, _effective_number, _JudgeVotes

JUDGES = ["llama-1", "llama-2", "qwen-1", "qwen-2", "human x"]


def panel(n_items=600, seed=0, shared=0.5, rate=0.4):
    """Five judges who say yes too rarely; judges of one family share a part of their errors. The truth."""
    rng = np.random.default_rng(seed)
    truth = (rng.random(n_items) < rate).astype(int)
    own, family = rng.random((n_items, 5)), np.repeat(rng.random((n_items, 3)), [2, 2, 1], axis=1)
    draw = np.where(rng.random((n_items, 5)) < shared, family, own)
    said = np.where(draw < np.where(truth == 1, 0.4, 0.1)[:, None], 1 - truth[:, None], truth[:, None])
    item, judge = np.nonzero(np.ones_like(said))
    names = np.array(["no", "yes"], object)
    return Annotations.from_arrays(item, np.array(JUDGES, object)[judge], names[said[item, judge]]), truth, said


def only(truth, n, seed=0):
    known = np.random.default_rng(seed).permutation(truth.size)[:n]
    return np.where(np.isin(np.arange(truth.size), known), truth, -1)


def test_the_corrected_rate_is_near_the_truth_where_the_judges_are_not():
    table, truth, _ = panel()
    found = calibrate(table, only(truth, 120))
    plan = found.plan(0.1)
    yes = found["yes"]
    assert yes.low < truth.mean() < yes.high < truth.mean() + 0.1
    assert yes.high - yes.low < yes.human.high - yes.human.low
    assert found["no"].value == pytest.approx(1 - yes.value)
    rate = next(one for one in found.rates if one.name == "yes")
    assert rate.rogan_gladen.low < truth.mean() < rate.rogan_gladen.high
    assert found.posterior_.shape == (600, 2)
    assert found.accuracy > 0.75
    assert plan.n_gold_needed - 120 == len(set(plan.next_items)) > 0
    known = set(table.items[only(truth, 120) >= 0].tolist())
    assert not known & set(plan.next_items)
    assert list(found.to_frame().columns) == ["item", "label", "confidence", "p_no", "p_yes"]


def test_posteriors_of_known_items_have_not_seen_their_gold():
    table, truth, _ = panel()
    gold = only(truth, 100)
    known = np.flatnonzero(gold >= 0)
    lied = gold.copy()
    lied[known[0]] = 1 - gold[known[0]]
    one, other = (calibrate(table, g).posterior_[known[0]] for g in (gold, lied))
    np.testing.assert_array_equal(one, other)


def test_recalls_are_counts():
    table, truth, said = panel()
    gold = only(truth, 80)
    known = gold >= 0
    found = {(one.judge, one.name): one for one in calibrate(table, gold).recalls}
    for j, name in enumerate(JUDGES):
        mine = found[name, "yes"]
        assert mine.items == (truth[known] == 1).sum()
        assert mine.recall.value == pytest.approx((said[known & (truth == 1), j] == 1).mean())
        assert mine.recall.low < mine.recall.value < mine.recall.high


def test_samples_of_one_judge_count_once_in_recalls():
    table, truth, said = panel()
    gold, rng = only(truth, 80), np.random.default_rng(1)
    once = calibrate(table, gold).recalls
    again = calibrate(Annotations.concat([table] * 5), gold).recalls
    assert again == once
    item, judge, _ = np.nonzero(np.ones((*said.shape, 5)))
    drawn = np.where(rng.random(item.size) < 0.2, 1 - said[item, judge], said[item, judge])
    found = calibrate(Annotations.from_arrays(item, judge, drawn), gold).recalls
    mean = drawn.reshape(600, 5, 5).mean(axis=2)
    for one, other in zip(found, once, strict=True):
        here = gold == int(one.name)
        at = abs(mean[here, int(one.judge)] - 1 + int(one.name)).mean()
        assert (one.items, one.recall.value) == (other.items, pytest.approx(at))
        assert one.recall.high - one.recall.low > 1.4 / np.sqrt(one.items)


def test_samples_of_one_judge_correlate_as_their_means_do():
    _, truth, said = panel(300, shared=0.8)
    item, judge, _ = np.nonzero(np.ones((*said.shape, 5)))
    drawn = np.where(np.random.default_rng(1).random(item.size) < 0.2, 1 - said[item, judge], said[item, judge])
    table = Annotations.from_arrays(item, judge, drawn)
    wrong = (drawn != truth[item]).reshape(300, 5, 5).mean(axis=2)
    expected = _JudgeVotes(table, np.arange(5)).expected_correlations(np.eye(2)[truth])
    np.testing.assert_allclose(expected, np.corrcoef(wrong, rowvar=False), atol=1e-9)


def test_judges_of_one_family_err_alike():
    table, truth, said = panel(2000, shared=0.8)
    for found in (review_panel(table, gold=truth), calibrate(table, only(truth, 400)).judges):
        pairs = {frozenset(one[:2]) for one in found.most_similar_pairs(2)}
        assert pairs == {frozenset(("llama-1", "llama-2")), frozenset(("qwen-1", "qwen-2"))}
        assert found.uses_gold
    assert sorted(found.families) == ["human", "llama", "llama", "qwen", "qwen"]
    found = review_panel(table, gold=truth)
    wrong = (said != truth[:, None]).astype(float)
    order = [JUDGES.index(name) for name in found.judges]
    np.testing.assert_allclose(found.correlation, np.corrcoef(wrong[:, order], rowvar=False), atol=1e-9)
    free = review_panel(table)
    assert not free.uses_gold
    assert abs(free.effective_judges.value - found.effective_judges.value) < 1
    assert free.effective_judges.low <= free.effective_judges.value <= free.effective_judges.high
    assert [share for _, share in found.selection][-1] == pytest.approx(1)
    assert len({name for name, _ in found.selection}) == 5


def test_independent_judges_are_seldom_said_to_err_alike():
    """Not even where they are worse on one class, so that their errors correlate by more than 0.1 over all items."""
    said = [review_panel(table, gold=only(truth, 100)) for table, truth, _ in (panel(200, s, 0) for s in range(40))]
    assert np.mean([one.mean_correlation for one in said]) > 0.1
    assert sum(bool(one.significant_pairs(10)) for one in said) <= 6  # 2 are expected
    assert not any(one.is_significant.any() for one in [review_panel(panel(200)[0])])
    table, truth, _ = panel(600, shared=0.8)
    found = review_panel(table, gold=only(truth, 200)).significant_pairs(10)
    assert {frozenset(one[:2]) for one in found} == {frozenset(JUDGES[:2]), frozenset(JUDGES[2:4])}


def test_gold_on_which_nobody_errs_says_nothing_about_errors():
    _, truth, _ = panel(200)
    item = np.repeat(np.arange(200), 3)
    found = review_panel(Annotations.from_arrays(item, np.tile(range(3), 200), truth[item]), gold=truth)
    assert not found.uses_gold
    assert found.effective_judges.value < 1.5
    assert review_panel(Annotations.from_arrays(item, np.tile(range(3), 200), np.zeros(600, int))) is None


def test_one_judge_missing_on_some_items_is_left_out_of_pairs_there():
    errors = np.array([[1, 0.0], [0, 1], [1, 1], [0, np.nan]])
    np.testing.assert_allclose(_compute_correlations(errors)[0, 1], np.corrcoef(errors[:3].T)[0, 1])
    assert _effective_number(np.eye(4)) == 4
    assert _effective_number(np.ones((4, 4))) == 1
    table = Annotations.from_arrays([0, 0, 1], [0, 1, 0], [0, 1, 1])
    expected = [[0, 1], [0, np.nan]]
    np.testing.assert_array_equal(_compute_errors(table, np.arange(2), np.arange(2), np.array([0, 1])), expected)


@pytest.mark.parametrize("paired", [True, False])
def test_differences_of_systems(paired):
    table, truth, _ = panel(1200, seed=3)
    pairs = truth.reshape(-1, 2)
    swap = (pairs[:, 1] > pairs[:, 0]) & (np.random.default_rng(1).random(600) < 0.6)  # the new system has more of them
    better = np.stack([~swap, swap], axis=1).reshape(-1)
    systems = np.where(better, "new", "old")
    prompts = np.arange(1200) // 2 if paired else None
    gold = np.where(np.isin(np.arange(1200) // 2, np.random.default_rng(0).permutation(600)[:150]), truth, -1)
    found = calibrate(table, gold, systems=systems, prompts=prompts)
    one = next(one for one in found.differences if one.name == "yes")
    assert one.systems == ("new", "old")
    assert one.n_pairs == (150 if paired else 0)
    assert 0 < one.corrected.low < truth[better].mean() - truth[~better].mean() < one.corrected.high
    assert one.is_significant
    assert one.corrected.high - one.corrected.low < one.human.high - one.human.low
    assert {rate.system for rate in found.rates} == {None, "new", "old"}


def test_scores_give_the_mean_score_or_rates_of_gold_classes():
    rng = np.random.default_rng(0)
    y = rng.normal(5, 2, 500)
    said = np.round(0.5 * y[:, None] + rng.normal(0, [0.5, 1, 3], (500, 3)), 1)
    item, judge = np.nonzero(np.ones_like(said))
    table = Annotations.from_arrays(item, judge, said[item, judge], kind="numbers")
    known = rng.permutation(500)[:80]
    gold = np.full(500, np.nan)
    gold[known] = y[known]
    found = calibrate(table, gold)["mean score"]
    assert found.low < y.mean() < found.high
    assert found.high - found.low < 0.7 * (found.human.high - found.human.low)
    classes = np.where(np.isnan(gold), -1, y > 5)
    found = calibrate(table, classes, classes=["low", "high"])
    assert found["high"].low < (y > 5).mean() < found["high"].high
    assert (found.posterior_[:, 1] > 0.5)[y > 7].mean() > 0.9
    assert found.judges.uses_gold


def test_scores_that_are_all_known_have_the_mean_of_the_known_ones():
    truth = np.random.default_rng(1).normal(size=40)
    said = truth[:, None] + np.array([0.3, -0.2, 0.1])
    item, judge = np.divmod(np.arange(120), 3)
    found = calibrate(Annotations.from_arrays(item, judge, said.ravel().round(3), kind="numbers"), truth)
    assert found.rates[0].corrected.value == pytest.approx(truth.mean(), abs=1e-6)
    times = np.where(judge == 0, 9, 1)  # one judge was asked more often
    often = Annotations.from_arrays(*(np.repeat(one, times) for one in (item, judge, said.ravel())), kind="numbers")
    assert calibrate(often, truth).rates[0].judge_rate == pytest.approx(said.mean())


def test_a_crowd_has_rates_and_no_panel():
    data = dz.simulate.simulate(400, 40, 3, redundancy=5, seed=2)
    found = calibrate(data.annotations, only(data.truth, 100))
    assert found.judges is None
    for k in range(3):
        one = found[str(data.annotations.classes[k])]
        assert one.low < (data.truth == k).mean() < one.high


def test_grades_also_have_a_mean():
    _table, truth, said = panel()
    item, judge = np.nonzero(np.ones_like(said))
    graded = Annotations.from_arrays(item, judge, said[item, judge] * 4 + 1, kind="graded")
    one = calibrate(graded, only(truth, 100))["mean score"]
    assert one.low < 1 + 4 * truth.mean() < one.high


def test_what_judges_react_to_beyond_the_truth():
    table, truth, said = panel(1000, seed=5)
    rng = np.random.default_rng(1)
    first = rng.random(1000) < 0.5
    said = np.where(first[:, None] & (rng.random(said.shape) < 0.4), 1, said)  # whatever comes first is liked
    makers = np.where(rng.random(1000) < 0.5, "llama-9", "qwen-9")
    said[:, 0] = np.where((makers == "llama-9") & (rng.random(1000) < 0.5), 1, said[:, 0])
    item, judge = np.nonzero(np.ones_like(said))
    table = Annotations.from_arrays(item, np.array(JUDGES, object)[judge], said[item, judge])
    columns = {"position": np.where(first, "first", "last"), "system": makers, "length": rng.random(1000)}
    found = {(e.column, e.value, e.judge): e.excess for e in calibrate(table, truth, columns=columns).judge_biases}
    assert found["position", "last", ""].high < -0.1
    assert found["system", "llama", "llama-1"].low > 0.1
    assert found["length", "", ""].low < 0 < found["length", "", ""].high


@pytest.mark.parametrize(
    ("change", "error", "facts"),
    [
        ({"gold": np.full(600, -1)}, TooLittleGold, {"n_gold": 0, "needed": 10}),
        ({"gold": np.full(600, np.nan)}, GoldOfAnotherType, {}),
        ({"table": Annotations.from_arrays(range(600), [0] * 600, [0] * 600)}, OneClassOnly, {}),
        ({"systems": ["a"]}, WrongLength, {"name": "systems", "expected": 600, "shape": (1,)}),
    ],
)
def test_what_cannot_be_corrected_is_an_error_with_facts(change, error, facts):
    table, truth, _ = panel()
    with pytest.raises(error) as caught:
        calibrate(**{"table": table, "gold": only(0 * truth, 50)} | change)
    assert caught.value.facts == facts


def test_gold_that_was_chosen_is_noticed_and_weighted():
    table, truth, said = panel(1000, seed=2)
    doubt = 1 - np.abs(2 * said.mean(axis=1) - 1)
    chance = 0.05 + 0.25 * doubt
    chosen = np.where(np.random.default_rng(0).random(1000) < chance, truth, -1)
    found = calibrate(table, chosen)
    (doubt,) = found.warnings
    assert (type(doubt), doubt.feature, doubt.is_more) == (GoldNotRandom, "agreement", False)
    assert doubt.p_value < 0.01
    assert found.notes == (str(doubt),)
    assert calibrate(table, only(truth, 150)).warnings == ()
    weighted = calibrate(table, chosen, probability=chance)
    assert weighted.warnings == ()
    assert weighted["yes"].low < truth.mean() < weighted["yes"].high
    assert weighted.rates[0].rogan_gladen is None
    known = chosen >= 0
    at = known & (truth == 1)
    share = np.average(said[at, 0] == 1, weights=1 / chance[at])
    found = {(one.judge, one.name): one for one in weighted.recalls}
    assert found[JUDGES[0], "yes"].recall.value == pytest.approx(share)
    assert found[JUDGES[0], "yes"].items == at.sum()
    with pytest.raises(UnevenDraw):
        calibrate(table, chosen, probability=chance).plan(0.1)
    with pytest.raises(NoDrawProbability) as caught:
        calibrate(table, chosen, probability=0 * chance)
    assert (caught.value.n_bad, caught.value.n_gold, caught.value.probability) == (known.sum(), known.sum(), 0)


def test_few_gold_labels_of_a_class_are_said():
    table, truth, _ = panel(rate=0.05)
    doubt = calibrate(table, only(truth, 60)).warnings[-1]
    assert (type(doubt), list(doubt.labels)) == (FewGoldLabels, ["yes"])


def test_dear_judges_are_bought_late():
    table, _, _ = panel(2000, shared=0.9)
    first = review_panel(table).selection[0][0]
    price = dict.fromkeys(JUDGES, 1.0) | {first: 100.0}
    found = review_panel(table, cost=price)
    assert found.selection[-1][0] == first
    assert found.cost.max() == 100
    with pytest.raises(AnnotatorWithoutValue) as caught:
        review_panel(table, cost=dict.fromkeys(JUDGES[:4], 1.0))
    assert caught.value.annotator == "human x"


def test_a_position_may_differ_from_judge_to_judge():
    table, truth, said = panel(600, seed=5)
    rng = np.random.default_rng(1)
    first = rng.random(said.shape) < 0.5
    said = np.where(first & (rng.random(said.shape) < 0.4), 1, said)
    item, judge = np.nonzero(np.ones_like(said))
    table = Annotations.from_arrays(item, np.array(JUDGES, object)[judge], said[item, judge])
    names = [JUDGES.index(name) for name in table.annotators]
    rows = np.where(first[table.item, np.array(names)[table.annotator]], "first", "last")
    (found,) = [one for one in calibrate(table, truth, columns={"position": rows}).judge_biases if not one.judge]
    clean = said.astype(float)
    for j in range(5):
        for z in (0, 1):
            clean[truth == z, j] -= clean[truth == z, j].mean()
    assert found.excess.value == pytest.approx(clean[~first].mean() - clean[first].mean())
    assert found.excess.high < -0.1


def test_the_next_items_are_whole_prompts():
    table, truth, _ = panel(600)
    prompts = np.arange(600) // 2
    gold = np.where(np.isin(prompts, np.random.default_rng(0).permutation(300)[:40]), truth, -1)
    plan = calibrate(table, gold, prompts=prompts).plan(0.1)
    _, count = np.unique(prompts[np.array(plan.next_items)], return_counts=True)
    assert (count == 2).all()
    assert plan.n_gold_needed == 80 + len(plan.next_items)
