"""Choosing without gold: what is hidden, how it is scored, who is told apart."""

import numpy as np
import pytest

import dissensus as dz
from dissensus import Annotations
from dissensus.evaluation import Estimate
from dissensus.exceptions import BadParameter
from dissensus.models.base import Aggregator
from dissensus.models.methods import DawidSkene, MajorityVote
from dissensus.questions import compare as comparison
from dissensus.questions import findings
from dissensus.questions.exceptions import NamesAreText, NoMethodNamed, NoSharedItem, RepeatedMethod
from dissensus.questions.scoring import SCORING_BY_LABEL_TYPE, select_held_out_rows
from dissensus.table.simulate import simulate
from found import find, kinds
from tables import random_table


class Fixed(Aggregator):
    """Expects the same of everybody: P(label) = shares."""

    def __init__(self, *, shares=(0.5, 0.3, 0.2), seed=0):
        self.shares, self.seed = shares, seed

    def _fit(self, table, gold, on_step):
        self.prior_ = np.array(self.shares)
        self.posterior_ = np.tile(self.prior_, (table.n_items, 1))
        self.trace_, self.n_iter_, self.converged_ = np.empty(0), 1, True
        self._set_reliability(np.ones(table.n_annotators), np.full(table.n_annotators, 2.0))

    def _compute_posterior(self, table, annotators):
        return np.tile(self.prior_, (table.n_items, 1))

    def _label_probabilities(self, posterior, item, annotator):
        return np.tile(self.prior_, (item.size, 1))


@pytest.fixture(autouse=True)
def registered(monkeypatch):
    monkeypatch.setattr(dz.methods, "_entries", dict(dz.methods._entries))
    dz.methods.register("fixed", summary="", cite="")(Fixed)


def test_score_is_the_mean_log_probability_of_what_was_hidden():
    table = simulate(50, 6, 3, redundancy=4).annotations
    found = dz.compare(table, ["fixed"], share=0.3, splits=2, seed=5)
    assert repr(found).startswith("Comparison of 1 method: ")
    hidden = [select_held_out_rows(table, 0.3, np.random.default_rng([5, number])) for number in range(2)]
    logs = [np.log(Fixed().shares[table.label[row]]) for mask in hidden for row in np.flatnonzero(mask)]
    assert found.n_hidden == len(logs) == 2 * round(0.3 * len(table))
    assert found["fixed"].score.value == pytest.approx(np.mean(logs))
    assert found["fixed"].score.low < np.mean(logs) < found["fixed"].score.high


@pytest.mark.parametrize("kind", ["weight", "proba"])
def test_weights_and_probabilistic_rows_count_as_they_say(kind):
    extra = {"weight": lambda rng, n: rng.uniform(0, 3, n), "proba": lambda rng, n: rng.dirichlet(np.ones(3), n)}
    table = random_table(1, n_classes=3, **{kind: extra[kind]})
    mask = select_held_out_rows(table, 0.2, np.random.default_rng([0, 0]))
    logs = np.log(Fixed().shares)
    rows = [table.proba[r] @ logs if kind == "proba" else logs[table.label[r]] for r in np.flatnonzero(mask)]
    literal = np.average(rows, weights=None if kind == "proba" else table.weight[mask])
    assert dz.compare(table, ["fixed"], splits=1)["fixed"].score.value == pytest.approx(literal)


def test_every_item_keeps_a_label_and_the_draw_is_the_seed_s():
    table = random_table(3, n=200)
    some = np.diff(table.item_ptr) > 0
    for share in (0.2, 0.95):
        mask = select_held_out_rows(table, share, np.random.default_rng(0))
        kept = np.bincount(table.item[~mask], minlength=table.n_items)
        assert not np.intersect1d(table.rating_codes[mask], table.rating_codes[~mask]).size
        assert (kept[some] > 0).all()
        np.testing.assert_array_equal(mask, select_held_out_rows(table, share, np.random.default_rng(0)))
    assert np.unique(table.rating_codes[mask]).size == table.rating_codes[-1] + 1 - some.sum()  # all that may be hidden
    assert (mask != select_held_out_rows(table, 0.5, np.random.default_rng(1))).any()


def test_a_model_never_sees_what_it_predicts():
    """A table of labels at random: nothing can be predicted, so nobody beats the shares of the classes by much."""
    rng = np.random.default_rng(0)
    table = Annotations.from_arrays(np.repeat(np.arange(400), 5), rng.integers(0, 30, 2000), rng.integers(0, 3, 2000))
    found = dz.compare(table, ["majority-vote", "dawid-skene", "glad", "one-coin", "fixed", "mace"])
    assert all(one.score.value < np.log(1 / 3) + 0.01 for one in found)


def test_better_methods_come_first_and_are_told_apart():
    sim = simulate(600, 20, 4, kinds={"expert": 1, "uniform-spammer": 1}, seed=2)
    found = dz.compare(sim.annotations, ["majority-vote", "dawid-skene"], gold=sim.truth.astype(int))
    assert [one.method for one in found] == ["dawid-skene", "majority-vote"]
    assert found.best == "dawid-skene"
    assert found.tied == ["dawid-skene"]
    vote = found["majority-vote"]
    assert not vote.tied
    assert vote.behind.low > 0
    difference = found["dawid-skene"].score.value - vote.score.value
    assert vote.behind.value == pytest.approx(difference)
    said = find(findings.BestMethodAhead, found.findings())
    assert (said.best, said.other_method, said.behind) == ("dawid-skene", "majority-vote", vote.behind.value)
    assert said.simple == "majority vote"
    whole = DawidSkene().fit(sim.annotations)
    assert found["dawid-skene"].accuracy.value == pytest.approx((whole.predict() == sim.truth).mean())
    np.testing.assert_array_equal(found["dawid-skene"].model.posterior_, whole.posterior_)


def test_methods_that_cannot_be_told_apart_say_so():
    sim = simulate(40, 8, 3, kinds={"ordinary": 1}, seed=3)
    found = dz.compare(sim.annotations, ["majority-vote", "wawa", "zero-based-skill"])
    assert "majority-vote" in found.tied
    assert kinds(found.findings())[0] in (findings.SimplestMethodBest, findings.SimplestMethodSuffices)
    same = dz.compare(sim.annotations, [MajorityVote(), MajorityVote(seed=3)])
    assert [one.method for one in same] == ["majority-vote", "MajorityVote(seed=3)"]
    assert same["MajorityVote(seed=3)"].p_value == 1
    assert same["MajorityVote(seed=3)"].behind.value == 0


def contestant(method, behind, tied):
    e = Estimate
    return comparison.ComparedMethod(
        method, e(-1, -1, -1), 0, None, 0, e(behind, behind, behind + 0.001), 1.0 if tied else 0.001, tied
    )


BEHIND = {"best": "gaussian", "unit": "a larger mean absolute error", "behind": 0.02, "low": 0.02, "high": 0.021}


@pytest.mark.parametrize(
    ("ranked", "said"),
    [
        (
            (("mean", 0.0, True), ("gaussian", 0.02, False)),
            findings.BaselineAhead(other_method="mean", tied=False, **BEHIND),
        ),
        (
            (("median", 0.0, True), ("gaussian", 0.02, True), ("mean", 0.5, False)),
            findings.BaselineAhead(other_method="median", tied=True, **BEHIND),
        ),
        (
            (("gaussian", 0.0, True), ("mean", 0.02, True)),
            findings.BestMethodAhead(other_method="mean", tied=True, ties_with=(), baseline=True, **BEHIND),
        ),
        (
            (("mean", 0.0, True), ("median", 0.02, True)),
            findings.OnlyBaselinesCompared(best="mean"),
        ),
    ],
)
def test_a_verdict_names_a_method_that_can_be_fitted(ranked, said):
    numbers = SCORING_BY_LABEL_TYPE["numbers"]
    found = comparison.Comparison(
        tuple(contestant(*one) for one in ranked), 100, 1, 0.2, {}, numbers.measure, numbers.simplest, "gaussian",
        frozenset(numbers.baselines),
    )  # fmt: skip
    (one,) = found.findings()
    assert (type(one), one.facts) == (type(said), said.facts)
    assert found.verdict() == str(said)
    assert found.best == said.best
    assert [row["baseline"] for row in found.rows()] == [name != "gaussian" for name, *_ in ranked]


def test_who_is_behind_by_next_to_nothing_is_not_behind_by_nothing():
    ranked = [contestant(*one) for one in (("mace", 0, True), ("consensus", 1e-5, False), ("majority-vote", 1, False))]
    found = comparison.Comparison(tuple(ranked), 100, 1, 0.2, {})
    said = find(findings.DefaultMethodBehind, found.findings())
    assert (said.method, said.behind, said.by) == ("consensus", 1e-5, "less than 0.001")


def test_a_vote_that_is_hardly_behind_is_as_good():
    def first(behind, tied=False, hidden=100):
        ranked = contestant("glad", 0.0, True), contestant("majority-vote", behind, tied)
        return next(comparison.Comparison(ranked, hidden, 1, 0.2, {}).findings())

    assert (type(first(0.004)), first(0.004).behind) == (findings.SimplestMethodSuffices, 0.004)
    assert (type(first(0.04)), first(0.04).behind) == (findings.BestMethodAhead, 0.04)
    tied = first(0.5, tied=True)
    assert (type(tied), tied.tied) == (findings.SimplestMethodSuffices, True)
    few = first(0.5, hidden=29)
    assert (type(few), few.n_hidden) == (findings.TooFewHiddenLabels, 29)


def test_holm_is_the_outside_library_s():
    from statsmodels.stats.multitest import multipletests

    rng = np.random.default_rng(0)
    for n in (1, 4, 9):
        p = dict(enumerate((rng.random(n) ** 4).tolist()))
        np.testing.assert_allclose(
            [comparison.holm_correction(p)[k] for k in p], multipletests(list(p.values()), method="holm")[1]
        )


def test_order_of_rows_changes_nothing():
    table = simulate(80, 9, 3, redundancy=4, seed=4).annotations
    order = np.random.default_rng(0).permutation(len(table))
    shuffled = Annotations.from_arrays(table.item[order], table.annotator[order], table.label[order])
    one, two = (dz.compare(t, ["majority-vote", "mace"], resamples=50) for t in (table, shuffled))
    for a, b in zip(one.rows(), two.rows(), strict=True):
        assert {k: v for k, v in a.items() if k != "seconds"} == {k: v for k, v in b.items() if k != "seconds"}


def test_all_methods_that_can_take_the_table_are_tried():
    steps, results = [], []
    table = simulate(60, 8, 3, redundancy=4).annotations
    found = dz.compare(
        table, "all", splits=1, resamples=20, on_fit=lambda *step: steps.append(step),
        on_result=lambda *r: results.append(r),
    )  # fmt: skip
    able = {n for n, one in dz.methods.entries() if "classes" in one.value.kinds and not one.facts.get("binary")}
    assert {one.method for one in found} == able
    assert [step[1] for step in steps] == list(range(len(able)))
    assert {step[2] for step in steps} == {len(able)}
    assert dict(results) == {one.method: pytest.approx(one.score.value) for one in found}
    frame = found.to_frame()
    assert list(frame["method"]) == [one.method for one in found]
    assert "accuracy" not in frame.columns


def test_costly_methods_are_named_where_they_are_left_out():
    table = simulate(60, 8, 3, redundancy=4).annotations
    found = dz.compare(table, splits=1, resamples=20)
    assert found.skipped_slow_methods == ("community-bcc", "ebcc", "mmce")
    assert not {one.method for one in found} & set(found.skipped_slow_methods)
    said = find(findings.SlowMethodsSkipped, found.findings())
    assert (said.tried, said.methods) == (len(found), found.skipped_slow_methods)


def test_a_part_of_a_large_table_is_compared_with_its_own_gold():
    sim = simulate(100, 8, 3, redundancy=4, seed=2)
    found = dz.compare(sim.annotations, ["majority-vote", "wawa"], gold=sim.truth.astype(int), limit=200)
    part = sim.annotations.select(items=sim.annotations.items[found.sampled_items])
    again = dz.compare(part, ["majority-vote", "wawa"], gold=sim.truth.astype(int)[found.sampled_items])
    assert (found.sampled_items.size, again.sampled_items) == (50, None)
    assert [one.accuracy for one in found] == [one.accuracy for one in again]
    *same, last = found.findings()
    assert (" ".join(map(str, same)), type(last), last.items) == (again.verdict(), findings.ComparedOnSample, 50)


def test_wrong_use_is_one_clear_error():
    table = simulate(20, 5, 3, redundancy=3).annotations
    for wrong, error in (
        ({"names": []}, NoMethodNamed),
        ({"names": "glad"}, NamesAreText),
        ({"names": [DawidSkene(), DawidSkene(), DawidSkene()]}, RepeatedMethod),
        ({"share": 1.0}, BadParameter),
        ({"splits": 0}, BadParameter),
    ):
        with pytest.raises(error):
            dz.compare(table, **wrong)
    single = Annotations.from_arrays([1, 2, 3], [1, 1, 2], [0, 1, 0])
    with pytest.raises(NoSharedItem):
        dz.compare(single)
