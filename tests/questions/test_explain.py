"""Why labels disagree: every number against a literal loop, every kind against items of which all is known."""

from itertools import permutations, product
from math import log

import numpy as np
import pyarrow as pa
import pytest
from scipy import stats

from dissensus import Annotations, load_dataset, methods
from dissensus.compute.engines import local
from dissensus.compute.engines.local import Threads
from dissensus.exceptions import BadParameter, MissingColumn, NotFitted
from dissensus.models.base import methods_for
from dissensus.models.methods import GLAD, DawidSkene, MajorityVote
from dissensus.questions import explain as disagreement
from dissensus.questions import group_effects
from dissensus.questions.exceptions import RepeatedAnnotator, UnequalMetadataColumns, UnknownAnnotators
from dissensus.questions.explain import DISAGREEMENT_KINDS, KIND_MEANINGS, explain
from dissensus.questions.group_effects import read_metadata_groups
from dissensus.table.simulate import annotate, make_crowd
from tables import KINDS as ROWS
from tables import random_table

AMBIGUOUS, GROUP = DISAGREEMENT_KINDS.index("ambiguous"), DISAGREEMENT_KINDS.index("group perspective")
ERROR, UNDECIDED, AGREED, UNLABELLED = (
    DISAGREEMENT_KINDS.index(k) for k in ("likely error", "cannot tell", "agreed", "unlabelled")
)


class Literal:
    """Equations 1 and 2 after so many rounds of EM, one row at a time."""

    def __init__(self, table: Annotations, model, rounds: int):
        self.table, self.q, self.K = table, model.posterior_, table.n_classes
        self.best = self.q.argmax(axis=1)
        weight = np.ones(len(table)) if table.weight is None else table.weight
        most = np.array([max(1, weight[table.rating_codes == of].max()) for of in range(table.rating_codes.max() + 1)])
        weight = (
            weight * (most / np.maximum(np.bincount(table.rating_codes, weight), most))[table.rating_codes]
        )  # one person's: one
        self.rows = [
            [
                (int(table.annotator[r]), int(table.label[r]), weight[r])
                for r in range(*table.item_ptr[i : i + 2])
                if weight[r] > 0
            ]
            for i in range(table.n_items)
        ]
        self.cells = [(i, n) for i, rows in enumerate(self.rows) for n in range(len(rows))]
        self.looked = dict.fromkeys(self.cells, 1.0)
        for last in range(rounds):
            self.count()
            if last < rounds - 1:
                self.looked = {cell: self.no_slip(*cell) for cell in self.cells}
                terms = [[self.one(i, c) for c in range(self.K)] for i in range(table.n_items)]
                self.q = np.array(terms) / np.sum(terms, axis=1, keepdims=True)
        self.usual = {(i, n): self.slip_of(i, n) for i, n in self.cells}
        sure = sorted((e, self.rows[i][n][2]) for (i, n), e in self.usual.items())
        reached = np.cumsum([w for _, w in sure])
        least = next(e for (e, _), done in zip(sure, reached, strict=True) if done >= 0.1 * reached[-1])
        factor = max(0.95 / (1 - least), 1)
        self.careful = {cell: min(max(1 - factor * (1 - e), 0.005), 0.995) for cell, e in self.usual.items()}

    def differing(self, i: int) -> float:
        pairs = [(x, y) for x in self.rows[i] for y in self.rows[i] if x is not y]
        total = sum(x[2] * y[2] for x, y in pairs)
        return sum(x[2] * y[2] for x, y in pairs if x[1] != y[1]) / total if pairs else 0.0

    def count(self):
        A, K = self.table.n_annotators, self.K
        self.slips, self.labels, self.mine = np.zeros((A, K)), np.zeros(A), {}
        for i, n in self.cells:
            a, y, w = self.rows[i][n]
            self.mine[i, n] = w * (1 - self.q[i, y] * self.looked[i, n])
            self.slips[a, y] += self.mine[i, n]
            self.labels[a] += w
        self.crowd = (self.slips.sum(axis=0) + 1) / (self.slips.sum() + K)
        self.prior = (self.q.sum(axis=0) + 1) / (len(self.q) + K)

    def slip_of(self, i: int, n: int) -> float:
        """e of a row's annotator, without this row."""
        a, _, w = self.rows[i][n]
        mean = self.slips.sum() / self.labels.sum()
        e = (self.slips[a].sum() - self.mine[i, n] + 5 * mean) / (self.labels[a] - w + 5)
        return min(max(e, 0.005), 0.995)

    def habit(self, i: int, n: int, label: int) -> float:
        a, y, _ = self.rows[i][n]
        mine = self.mine[i, n]
        return (self.slips[a, label] - mine * (label == y) + 5 * self.crowd[label]) / (self.slips[a].sum() - mine + 5)

    def no_slip(self, i: int, n: int) -> float:
        e = self.slip_of(i, n)
        return (1 - e) / (1 - e + e * self.habit(i, n, self.rows[i][n][1]))

    def labels_given(self, i: int, phi, slips=None) -> float:
        """P(labels | every label that is no slip comes from phi)."""
        p = 1.0
        for n, (_, y, w) in enumerate(self.rows[i]):
            e = slips[i, n] if slips else self.slip_of(i, n)
            p *= ((1 - e) * phi[y] + e * self.habit(i, n, y)) ** w
        return p

    def one(self, i: int, c: int, slips=None) -> float:
        return self.prior[c] * self.labels_given(i, np.eye(self.K)[c], slips)

    def evidence(self, i: int) -> float:
        one = sum(self.one(i, c, self.careful) for c in range(self.K))
        two = others = 0.0
        for c, x in product(range(self.K), (0.3, 0.5, 0.7)):
            for d in set(range(self.K)) - {c}:
                phi = (1 - x) * np.eye(self.K)[c] + x * np.eye(self.K)[d]
                pair = self.prior[c] * self.prior[d] / (1 - self.prior[c])
                two += pair * self.labels_given(i, phi, self.careful) / 3
        for c, x in product(range(self.K), (0.2, 0.4, 0.6, 0.8)):
            phi = (1 - x) * np.eye(self.K)[c] + x * self.prior
            others += self.prior[c] * self.labels_given(i, phi, self.careful) / 4
        return log(one) - log((two + others) / 2)


def few_rounds(monkeypatch, rounds: int) -> None:
    monkeypatch.setattr(disagreement, "MAX_EM_STEPS", rounds)
    monkeypatch.setattr(disagreement, "ERROR_RATE_TOLERANCE", 0)


@pytest.mark.parametrize("kind", ROWS)
def test_evidence_is_that_of_a_literal_loop(kind, monkeypatch):
    few_rounds(monkeypatch, 3)
    table = random_table(1, n=67, n_items=19, **ROWS[kind])
    model = DawidSkene().fit(table)
    literal, found = Literal(table, model, 3), explain(table, model)
    several = np.array([len(rows) > 1 for rows in literal.rows])
    values = np.array([literal.evidence(i) for i in np.flatnonzero(several)])
    np.testing.assert_allclose(found.evidence[several], values, atol=1e-9)
    assert np.isnan(found.evidence[~several]).all()
    assert (found.ambiguity[~several] == 0).all()
    alpha = (found.ambiguity.sum() + 5) / (several.sum() + 10)
    odds = alpha / (1 - alpha) * np.exp(-values)
    np.testing.assert_allclose(found.ambiguity[several], odds / (1 + odds), atol=1e-6)
    assert 0 <= found.share_ambiguous < 1


def test_a_perspective_is_one_class_for_each_group(monkeypatch):
    few_rounds(monkeypatch, 2)
    table = random_table(1, n=67, n_items=19)
    table = table.select(rows=np.unique(table.rating_codes, return_index=True)[1])  # nobody repeats anything
    model, group = DawidSkene().fit(table), np.array([0, 1, 0, 1, 0, -1, 1])
    literal, items = Literal(table, model, 2), np.array([3, 7, 11])
    slips = disagreement._fit_error_model(table, model.posterior_)
    found = disagreement._log_likelihood_by_group(slips, items, group)
    for i, value in zip(items, found, strict=True):
        expected, rows = 0.0, literal.rows[i]
        for g in (-1, 0, 1):
            terms = literal.prior.copy()
            for n, (a, y, w) in enumerate(rows):
                if group[a] == g:
                    e = literal.usual[i, n]
                    terms *= [((1 - e) * (y == c) + e * literal.habit(i, n, y)) ** w for c in range(literal.K)]
            expected += log(terms.sum())
        assert value == pytest.approx(expected)


@pytest.mark.parametrize("kind", ROWS)
def test_disagreement_expectation_and_surprise_are_those_of_a_literal_loop(kind, monkeypatch):
    few_rounds(monkeypatch, 2)
    table = random_table(5, n=67, n_items=19, **ROWS[kind])
    model = DawidSkene().fit(table)
    usual = explain(table, model).surprise
    monkeypatch.setattr(disagreement, "GRID_POINTS_PER_SD", 1e4)
    monkeypatch.setattr(disagreement, "MAX_GRID_POINTS", 10**6)
    literal, found = Literal(table, model, 2), explain(table, model)
    seen = 0
    for i, rows in enumerate(literal.rows):
        if len(rows) < 2:
            assert np.isnan([found.disagreement[i], found.expected_disagreement[i], found.surprise[i]]).all()
            continue
        theta = []
        for n in range(len(rows)):
            e = literal.usual[i, n]
            theta.append([(1 - e) * (y == literal.best[i]) + e * literal.habit(i, n, y) for y in range(4)])
        assert found.disagreement[i] == pytest.approx(literal.differing(i))
        differ = total = 0.0
        for x in range(len(rows)):
            for y in range(len(rows)):
                if x != y:
                    w = rows[x][2] * rows[y][2]
                    total += w
                    differ += w * (1 - sum(theta[x][k] * theta[y][k] for k in range(4)))
        assert found.expected_disagreement[i] == pytest.approx(differ / total)
        if len(rows) > 6:
            continue
        seen += 1
        mine = sum(r[2] * log(theta[n][r[1]]) for n, r in enumerate(rows))
        tail = 0.0
        for labels in product(range(4), repeat=len(rows)):
            value = sum(r[2] * log(theta[n][y]) for n, (r, y) in enumerate(zip(rows, labels, strict=True)))
            p = np.prod([theta[n][y] for n, y in enumerate(labels)])
            tail += p / 2 if abs(value - mine) < 1e-9 else p * (value < mine)
        assert found.surprise[i] == pytest.approx(stats.norm.isf(tail), abs=0.01)
        assert usual[i] == pytest.approx(stats.norm.isf(tail), abs=0.25)
    assert seen >= 8


def test_with_many_labels_surprise_is_normal(monkeypatch):
    rng = np.random.default_rng(0)
    table = Annotations.from_arrays(np.repeat(np.arange(9), 90), np.tile(np.arange(90), 9), rng.random(810) < 0.3)
    model = DawidSkene().fit(table)
    exact = explain(table, model).surprise
    monkeypatch.setattr(disagreement, "MAX_EXACT_LABELS", 50)
    normal = explain(table, model).surprise
    assert not np.array_equal(exact, normal)
    near = np.abs(exact) < 3  # far out in the tail a normal one is too thin
    assert near.sum() >= 5
    np.testing.assert_allclose(normal[near], exact[near], atol=0.3)
    assert (normal[~near] > 3).all()


def between(labels, groups) -> float:
    """Eq. 6 without its last term."""
    total = 0.0
    for g in set(groups):
        own = [y for y, h in zip(labels, groups, strict=True) if g == h]
        for k in set(labels):
            total += len(own) * (own.count(k) / len(own) - labels.count(k) / len(labels)) ** 2
    return total


def test_between_groups_statistic_is_that_of_a_literal_loop_and_zero_by_chance():
    table = random_table(5)
    group = np.array([0, 1, 2, 1, 0, -1, 2])
    everything = np.ones(table.n_items, bool)
    column = group_effects._GroupTest(table, DawidSkene().fit(table).posterior_, everything, group, 3)
    (values,), (mosts,) = column.explain_by_groups(column.group[None], 0, column.item.size)
    found = dict(zip(column.item.tolist(), zip(values, mosts, strict=True), strict=True))
    several = 0
    for i in range(table.n_items):
        rows = [r for r in range(*table.item_ptr[i : i + 2]) if group[table.annotator[r]] >= 0]
        labels, groups = [int(table.label[r]) for r in rows], [int(group[table.annotator[r]]) for r in rows]
        if len(set(labels)) < 2:
            assert i not in found
            continue
        value, most = found.pop(i)
        if len(set(groups)) == 1:
            assert (value, most) == (0, 0)
            continue
        if len(rows) <= 6:  # what chance gives: all ways to deal the labels out
            several += 1
            chance = np.mean([between(list(p), groups) for p in permutations(labels)])
        else:
            T = len(rows) - sum(labels.count(k) ** 2 for k in set(labels)) / len(rows)
            chance = T * (len(set(groups)) - 1) / (len(rows) - 1)
        assert value == pytest.approx(between(labels, groups) - chance)
        assert most == pytest.approx(between(labels, list(range(len(rows)))) - chance)  # each a group: all of it
    assert not found
    assert several > 5


def test_p_value_is_the_share_of_ways_to_deal_out_the_people(monkeypatch):
    monkeypatch.setattr(group_effects, "MAX_LARGER_PERMUTATIONS", 10**9)
    table = random_table(7, n_annotators=6)
    group, posterior = np.array([0, 0, 1, 1, 1, 0]), np.full((table.n_items, 4), 0.25)

    def total(groups) -> float:
        of = group_effects._GroupTest(table, posterior, np.ones(table.n_items, bool), np.array(groups), 2)
        return of.explain_by_groups(of.group[None], 0, of.item.size)[0].sum()

    mine = total(group)
    exact = np.mean([total(way) >= mine - 1e-9 for way in product((0, 1), repeat=6) if sum(way) == 3])
    column = group_effects._GroupTest(table, posterior, np.ones(table.n_items, bool), group, 2)
    test = column.test(4000, 0, Threads(1))
    assert 0.1 < exact < 0.9
    assert test.p_value == pytest.approx(exact, abs=0.03)
    assert test.effect == pytest.approx(mine / column.explain_by_groups(group[None], 0, column.item.size)[1].sum())


# What is found --------------------------------------------------------------------------------------------------------


def crowd_of(kinds, seed, share=0.0, n_classes=5, redundancy=10):
    """1,000 items, of which the first `share` are taken for either of two classes by whoever looks; and which."""
    rng = np.random.default_rng([seed, 1])
    truth = rng.integers(0, n_classes, 1000)
    decoy = (truth + rng.integers(1, n_classes, 1000)) % n_classes
    either = np.arange(1000) < share * 1000
    crowd = make_crowd(60, n_classes, kinds=kinds, seed=seed)
    return annotate(crowd, truth, difficulty=either / 2, decoy=decoy, redundancy=redundancy, seed=seed), either


CROWDS = {"experts": {"expert": 1}, "mixed": {"expert": 1, "ordinary": 2}, "all kinds": None}


@pytest.mark.parametrize("method", ["dawid-skene", "glad", "majority-vote"])
@pytest.mark.parametrize("crowd", CROWDS)
def test_errors_are_not_called_ambiguity(crowd, method):
    for n_classes in (2, 5):
        for seed in range(3):
            sim, _ = crowd_of(CROWDS[crowd], seed, n_classes=n_classes)
            found = explain(sim.annotations, methods[method]().fit(sim.annotations))
            assert found.counts()["ambiguous"] <= 30  # of 1,000; specialists and adversaries are no slips
            assert found.share_ambiguous < 0.05


@pytest.mark.parametrize(
    ("n_classes", "redundancy", "slip", "people"), [(2, 10, 0.25, 20), (4, 6, 0.25, 25), (10, 5, 0.35, 40)]
)
def test_where_all_err_alike_no_item_is_ambiguous(n_classes, redundancy, slip, people):
    for seed in range(2):
        rng = np.random.default_rng(seed)
        annotator = np.concatenate([rng.choice(people, redundancy, replace=False) for _ in range(400)])
        item, truth = np.repeat(np.arange(400), redundancy), rng.integers(0, n_classes, 400)
        wrong = rng.integers(1, n_classes, item.size) * (rng.random(item.size) < slip)
        table = Annotations.from_arrays(item, annotator, (truth[item] + wrong) % n_classes)
        found = explain(table, DawidSkene().fit(table))
        assert (found.counts()["ambiguous"], found.share_ambiguous) == (0, 0)  # it was up to 23 % of the items


@pytest.mark.parametrize(
    ("crowd", "n_classes", "redundancy", "share", "recall"),
    [
        ("experts", 2, 10, 0.1, 0.6),
        ("experts", 5, 20, 0.1, 0.95),
        ("experts", 5, 10, 0.1, 0.8),
        ("experts", 5, 10, 0.3, 0.75),
        ("mixed", 5, 10, 0.1, 0.5),
        ("all kinds", 5, 20, 0.1, 0.6),
    ],
)
def test_items_with_two_classes_are_found(crowd, n_classes, redundancy, share, recall):
    found = right = there = 0
    for seed in range(3):
        sim, either = crowd_of(CROWDS[crowd], seed, share, n_classes, redundancy)
        result = explain(sim.annotations, DawidSkene().fit(sim.annotations))
        called = result.kind == AMBIGUOUS
        found, right, there = found + called.sum(), right + (called & either).sum(), there + either.sum()
        assert result.share_ambiguous == pytest.approx(share, abs=0.07)
    assert right / found >= 0.8
    assert right / there >= recall


def test_rows_that_are_mistakes_are_suspected():
    chances, mistakes = [], []
    for seed in range(3):
        sim, either = crowd_of(CROWDS["mixed"], seed, 0.1)
        table = sim.annotations
        found = explain(table, DawidSkene().fit(table))
        clear = ~either[table.item]
        mistake = clear & (table.label != sim.truth[table.item])  # there is none where there are two truths
        suspects = found.p_mistake > 0.5
        assert mistake[suspects & clear].mean() > 0.97
        assert suspects[mistake & (found.kind == ERROR)[table.item]].mean() > 0.97
        assert suspects[mistake].mean() > 0.8
        assert found.p_mistake[(found.kind == AMBIGUOUS)[table.item]].max() < 0.5
        chances.append(found.p_mistake)
        mistakes.append(mistake)
    chance, mistake = np.concatenate(chances), np.concatenate(mistakes)
    for low in (0.1, 0.3, 0.5, 0.7):  # a probability: measured from 0.1 above the share to 0.2 below
        some = (chance > low) & (chance <= low + 0.2)
        assert -0.15 < mistake[some].mean() - chance[some].mean() < 0.25


def two_views(seed, share=0.1, n_annotators=60, kinds=None):
    """A table in which half of the annotators take the first `share` of 600 items for another class; group, items."""
    rng = np.random.default_rng([seed, 2])
    truth, view = rng.integers(0, 5, 600), rng.permutation(np.arange(n_annotators) % 2)
    other, split = (truth + rng.integers(1, 5, 600)) % 5, np.arange(600) < share * 600
    crowd = make_crowd(n_annotators, 5, kinds=kinds or {"expert": 1}, seed=seed)
    table = annotate(crowd, truth, redundancy=12, seed=seed).annotations
    seen = np.where(split[table.item] & (view[table.annotator] == 1), other[table.item], truth[table.item])
    chance = crowd.answers[table.annotator, seen].cumsum(axis=1)
    label = np.minimum((rng.random(len(table))[:, None] >= chance).sum(axis=1), 4)
    table = Annotations.from_arrays(table.item, table.annotator, label, classes=5, annotators=np.arange(n_annotators))
    return table, view, split


def test_perspectives_of_groups_are_found():
    found = right = there = 0
    for seed in range(3):
        table, view, split = two_views(seed)
        metadata = {
            "annotator": np.arange(60),
            "view": np.array(["left", "right"])[view],
            "coin": np.random.default_rng(seed).integers(0, 3, 60),
        }
        result = explain(table, DawidSkene().fit(table), annotators=metadata)
        first = result.groups[0]
        assert (first.column, first.groups, first.significant) == ("view", ("left", "right"), True)
        assert first.p_value == pytest.approx(2 / 501)  # two columns; no permutation of 500 was as far
        assert [g.significant for g in result.groups] == [True, False]
        assert 0.1 < first.effect < 0.6
        assert abs(result.groups[1].effect) < 0.1
        called = result.kind == GROUP
        assert set(first.items) == set(np.flatnonzero(called))
        np.testing.assert_array_equal(result.group_index, np.where(called, 0, -1))
        assert first.labels.sum() == np.isin(table.item, np.flatnonzero(result.disagreement > 0)).sum()
        assert (result.p_mistake[called[table.item]] == 0).all()
        found, right, there = found + called.sum(), right + (called & split).sum(), there + split.sum()
    assert right / found >= 0.85
    assert right / there >= 0.8
    assert "groups differ by view" in repr(result)
    assert result.to_frame()["group"][first.items[0]] == "view"


def test_random_groups_differ_by_chance_alone():
    p_values = []
    for seed in range(60):
        table, _, _ = two_views(seed, share=0.0, n_annotators=24, kinds={"ordinary": 1})
        groups = {"annotator": np.arange(24), "any": np.random.default_rng([seed, 3]).integers(0, 3, 24)}
        result = explain(table.select(items=table.items < 80), MajorityVote().fit(table), annotators=groups)
        p_values.append(result.groups[0].p_value)
        assert result.counts()["group perspective"] == 0
    assert stats.kstest(p_values, "uniform").pvalue > 0.01


# Order, names, odd tables ---------------------------------------------------------------------------------------------


def test_order_of_rows_and_threads_change_nothing(monkeypatch):
    monkeypatch.setattr(local, "MIN_THREAD_ROWS", 1000)  # enough rows for two threads
    table, view, _ = two_views(1)
    order = np.random.default_rng(0).permutation(len(table))
    other = Annotations.from_arrays(table.item[order], table.annotator[order], table.label[order], classes=5)
    model, people = DawidSkene().fit(table), {"annotator": np.arange(60), "view": view}
    one = explain(table, model, annotators=people, threads=1)
    for two in (explain(t, model, annotators=people, threads=n) for t, n in ((other, 1), (table, 2))):
        np.testing.assert_array_equal(two.kind, one.kind)
        np.testing.assert_allclose(two.ambiguity, one.ambiguity, rtol=1e-9)
        np.testing.assert_allclose(two.p_mistake, one.p_mistake, atol=1e-9)
        np.testing.assert_array_equal(two.groups[0].items, one.groups[0].items)
        assert two.groups[0].p_value == one.groups[0].p_value


def test_names_and_order_of_classes_change_nothing():
    table, view, _ = two_views(2)
    rng = np.random.default_rng(0)
    item, who, label = rng.permutation(600), rng.permutation(60), rng.permutation(5)
    other = Annotations.from_arrays(item[table.item], who[table.annotator], label[table.label], classes=5)
    one = explain(table, DawidSkene().fit(table), annotators={"annotator": np.arange(60), "view": view})
    two = explain(other, DawidSkene().fit(other), annotators={"annotator": who, "view": view})
    for key in ("ambiguity", "disagreement", "expected_disagreement", "confidence"):
        np.testing.assert_allclose(getattr(two, key)[item], getattr(one, key), atol=1e-6)
    np.testing.assert_allclose(two.surprise[item], one.surprise, atol=0.02)
    assert (two.kind[item] == one.kind).mean() > 0.99  # other people move in a permutation
    assert two.groups[0].effect == pytest.approx(one.groups[0].effect)


def test_seed_decides_permutations():
    table, view, _ = two_views(0, share=0.0, kinds={"ordinary": 1})
    model, people = DawidSkene().fit(table), {"annotator": np.arange(60), "view": view}
    values = [explain(table, model, annotators=people, seed=seed).groups[0].p_value for seed in (0, 0, 1, 2, 3)]
    assert values[0] == values[1]
    assert len(set(values)) > 1


@pytest.mark.parametrize("method", methods_for("classes"))
def test_every_method_can_be_explained(method):
    table = random_table(4, n_items=60, n_classes=2)
    found = explain(table, methods[method]().fit(table))
    assert sum(found.counts().values()) == table.n_items
    assert found.counts()["unlabelled"] == (np.diff(table.item_ptr) == 0).sum() > 0
    assert (found.p_mistake >= 0).all()
    assert (found.p_mistake <= 1).all()


def test_any_table_works():
    for seed in range(5):
        for kind in ROWS:
            table = random_table(seed, n_items=9, n=17, **ROWS[kind])
            explain(table, DawidSkene().fit(table), annotators={"annotator": np.arange(7), "g": [0, 1, 0, 1, 0, 1, 0]})


@pytest.mark.parametrize("n_labels", [4, 60])
def test_a_table_in_which_every_item_is_split_in_half(n_labels):
    item, annotator = np.divmod(np.arange(3 * n_labels), n_labels)
    table = Annotations.from_arrays(item, annotator, annotator % 2)
    found = explain(table, MajorityVote().fit(table))
    assert found.counts()["cannot tell"] == 3


def test_one_person_agrees_with_nobody():
    table = Annotations.from_arrays("aaabb", "xxxxy", list("yyynn"), classes=["n", "y"])
    found = explain(table, MajorityVote().fit(table))
    assert [DISAGREEMENT_KINDS[code] for code in found.kind] == ["cannot tell", "agreed"]


def test_one_label_is_no_agreement():
    table = Annotations.from_arrays([0, 0, 1, 2, 2], list("ababa"), [0, 0, 1, 0, 1])
    found = explain(table, MajorityVote().fit(table))
    single = table.select(items=[0])
    assert repr(explain(single, MajorityVote().fit(single))).startswith("Explanation of 1 item: ")
    assert found.kind.tolist() == [AGREED, UNDECIDED, UNDECIDED]
    assert found.items_of_kind("cannot tell") == [2, 1]
    assert found.items_of_kind("cannot tell", differing=True) == [2]


def test_one_class_is_agreed_and_one_annotator_contradicts_itself():
    table = Annotations.from_arrays([0, 0, 1, 1], ["a", "b", "a", "b"], ["x"] * 4)
    found = explain(table, DawidSkene().fit(table), annotators={"annotator": ["a", "b"], "g": ["u", "v"]})
    assert found.counts()["agreed"] == 2
    assert found.ambiguity.max() < 1e-9
    assert found.groups == ()  # as many groups as people
    table = Annotations.from_arrays([0, 0, 1, 1, 2], ["a"] * 5, [0, 1, 1, 1, 0])
    found = explain(table, DawidSkene().fit(table))
    np.testing.assert_array_equal(found.disagreement, [1, 0, np.nan])


def test_samples_of_one_judge_are_no_more_evidence_than_one():
    """Each judge always says the same of an item, and judges err at random: nothing shows that items are ambiguous."""
    rng = np.random.default_rng(0)
    truth = rng.integers(0, 2, 200)
    said = np.where(rng.random((200, 6)) < 0.25, 1 - truth[:, None], truth[:, None]).ravel()
    item, judge = np.divmod(np.arange(1200), 6)
    table = Annotations.from_arrays(item, judge, said)
    model = DawidSkene().fit(table)
    once = explain(table, model)
    again = explain(Annotations.concat([table] * 5), model)
    assert again.counts() == once.counts()
    np.testing.assert_allclose(again.evidence, once.evidence, atol=0.2)  # of a label the other samples are not left out


def test_rows_without_weight_do_not_count():
    table = Annotations.from_arrays([0, 0, 0, 1, 1], [0, 1, 2, 0, 1], [0, 0, 1, 1, 0], weight=[1, 1, 0, 0, 0])
    found = explain(table, MajorityVote().fit(table))
    np.testing.assert_array_equal(found.kind, [AGREED, UNLABELLED])
    np.testing.assert_array_equal(found.disagreement, [0, np.nan])


def test_those_who_agree_may_be_wrong():
    sim, _ = crowd_of(CROWDS["experts"], 0)
    table = sim.annotations
    votes, gold = table.votes(), np.full(1000, -1)
    same = np.flatnonzero(votes.max(axis=1) == votes.sum(axis=1))
    gold[same[0]] = (votes[same[0]].argmax() + 1) % 5  # somebody knows better
    model = DawidSkene().fit(table, gold=gold)
    model.posterior_[same[1]] = model.posterior_[same[1]] * 0.8 + 0.04
    found = explain(table, model)
    assert found.kind[same[:3]].tolist() == [ERROR, AGREED, AGREED]
    assert found.disagreement[same[0]] == 0
    assert "differ" not in KIND_MEANINGS["likely error"]  # all said the same here
    assert found.p_mistake[table.item == same[0]].min() > 0.95


def test_items_that_the_model_does_not_know_are_scored():
    sim, either = crowd_of(CROWDS["experts"], 0, 0.1)
    table = sim.annotations
    model = DawidSkene().fit(table.select(items=table.items % 2 == 0))
    found = explain(table, model)
    np.testing.assert_allclose(found.confidence, model.predict_proba(table).max(axis=1), atol=1e-6)
    assert (found.kind == AMBIGUOUS)[either].mean() > 0.8


def test_a_model_of_difficulty_does_not_hide_ambiguity():
    sim, either = crowd_of(CROWDS["experts"], 0, 0.1)
    found = explain(sim.annotations, GLAD().fit(sim.annotations))
    assert (found.kind == AMBIGUOUS)[either].mean() > 0.8


# Metadata -------------------------------------------------------------------------------------------------------------


def cut(values, **options):
    table = Annotations.from_arrays(np.zeros(len(values), int), np.arange(len(values)), np.arange(len(values)) % 2)
    metadata = pa.table({"annotator": np.arange(len(values)), "x": values})
    return read_metadata_groups(metadata, table, options.get("missing_as_group", False)).get("x")


def test_columns_become_groups():
    assert cut(["b", "a", "b", "a"])[0] == ("a", "b")
    assert cut([True, False, True, True])[0] == ("False", "True")
    assert cut(["10", "9", "9", "10"])[0] == ("9", "10")  # numbers, as text
    groups, group = cut(np.arange(40.0))
    assert groups == ("0 … 9", "10 … 19", "20 … 29", "30 … 39")
    np.testing.assert_array_equal(group, np.arange(40) // 10)
    assert cut([1] * 30 + list(range(30)))[0] == ("0 … 1", "2 … 14", "15 … 29")  # quarters that are the same join
    assert cut(["a"] * 4) is None  # all alike
    assert cut(["a", "b", "c", "d", "e", "a"]) is None  # most differ
    assert cut(["nan", "inf", "nan", "inf"])[0] == ("inf", "nan")


def test_missing_entries_are_left_out_or_a_group():
    values = ["a", None, "b", "a", "b", ""]
    groups, group = cut(values)
    assert groups == ("a", "b")
    np.testing.assert_array_equal(group, [0, -1, 1, 0, 1, -1])
    groups, group = cut(values, missing_as_group=True)
    assert groups == ("a", "b", "(missing)")
    np.testing.assert_array_equal(group, [0, 2, 1, 0, 1, 2])


def test_any_frame_will_do_in_any_order_with_strangers():
    import pandas as pd
    import polars as pl

    table, view, _ = two_views(0)
    order = np.random.default_rng(0).permutation(70)
    columns = {"worker_id": order, "view": np.append(view, np.zeros(10, int))[order]}
    model = DawidSkene().fit(table)
    found = [
        explain(table, model, annotators=frame, permutations=100).groups[0]
        for frame in (columns, pd.DataFrame(columns), pl.DataFrame(columns), pa.table(columns))
    ]
    plain = explain(table, model, annotators={"annotator": np.arange(60), "view": view}, permutations=100).groups[0]
    for one in found:
        assert (one.effect, one.p_value) == (plain.effect, plain.p_value)
        np.testing.assert_array_equal(one.items, plain.items)


def test_errors_say_what_is_wrong():
    table, view, _ = two_views(0)
    model, people = DawidSkene().fit(table), np.arange(60)
    with pytest.raises(NotFitted):
        explain(table, DawidSkene())
    with pytest.raises(BadParameter):
        explain(table, model, permutations=0)
    with pytest.raises(MissingColumn):
        explain(table, model, annotators={"view": view})
    with pytest.raises(UnequalMetadataColumns) as caught:
        explain(table, model, annotators={"annotator": people, "view": view[1:]})
    assert caught.value.facts == {"column": "view", "rows": 59, "key": "annotator", "expected": 60}
    with pytest.raises(RepeatedAnnotator) as caught:
        explain(table, model, annotators={"annotator": [5, 5], "view": [0, 1]})
    assert caught.value.annotator == 5
    with pytest.raises(UnknownAnnotators) as caught:
        explain(table, model, annotators={"annotator": people + 100, "view": view})
    assert caught.value.facts == {"n": 60, "annotator": 100, "table_annotator": 0}
    with pytest.raises(BadParameter):
        explain(table, model).items_of_kind("ambigous")


def test_frame_and_lists_name_the_items():
    sim, _ = crowd_of(CROWDS["experts"], 0, 0.1)
    found = explain(sim.annotations, DawidSkene().fit(sim.annotations))
    frame = found.to_frame().set_index("item")
    first = found.items_of_kind("ambiguous")[0]
    assert frame.loc[first, "kind"] == "ambiguous"
    assert frame.loc[first, "disagreement"] == frame.loc[frame["kind"] == "ambiguous", "disagreement"].max()
    assert frame["group"].isna().all()
    assert repr(found).startswith("Explanation of 1,000 items: ")
    assert f"{found.counts()['ambiguous']} ambiguous" in repr(found)


def test_a_p_value_is_by_as_many_permutations_as_asked_for():
    table, view, _ = two_views(0)
    people = {"annotator": np.arange(60), "view": view}
    found = explain(table, DawidSkene().fit(table), annotators=people, permutations=120)
    assert found.groups[0].p_value == pytest.approx(1 / 121)


@pytest.mark.realdata
def test_kinds_of_real_items_differ_in_accuracy():
    """Measured: cifar10h 1.0 and 0.89; bluebirds' ambiguous items 0.72 against 0.95 of the others."""
    data = load_dataset("cifar10h")
    model = DawidSkene().fit(data.annotations)
    kind, right = explain(data.annotations, model).kind, model.posterior_.argmax(axis=1) == data.gold
    assert (kind == ERROR).mean() > 0.4
    assert right[kind == ERROR].all()
    assert right[kind == AMBIGUOUS].mean() < 0.95
    data = load_dataset("bluebirds")
    model = DawidSkene().fit(data.annotations)
    kind, right = explain(data.annotations, model).kind, model.posterior_.argmax(axis=1) == data.gold
    assert right[kind != AMBIGUOUS].mean() > right[kind == AMBIGUOUS].mean() + 0.15


@pytest.mark.realdata
@pytest.mark.parametrize("name", ["popquorn_offensiveness", "jobs_q1", "jobs_q2", "jobs_q3"])
def test_views_are_not_called_errors(name):
    """Measured: 0, 1.0, 1.8 and 0 % of the items; 13, 1, 3 and 16 % are ambiguous."""
    table = load_dataset(name).annotations
    found = explain(table, methods["consensus"]().fit(table))
    assert (found.kind == ERROR).mean() < 0.05
    assert (found.kind == AMBIGUOUS).mean() > 0.005


@pytest.mark.parametrize("seed", range(3))
def test_a_matter_of_taste_is_no_error(seed):
    """Everybody draws from the item's own distribution: nobody errs, whatever the labels."""
    rng = np.random.default_rng(seed)
    shares = rng.dirichlet(np.full(4, 0.8), 300)
    label = (rng.random((300, 20, 1)) > shares.cumsum(axis=1)[:, None, :-1]).sum(axis=2)
    who = np.argsort(rng.random((300, 50)), axis=1)[:, :20]
    table = Annotations.from_arrays(np.repeat(np.arange(300), 20), who.ravel(), label.ravel(), classes=4)
    found = explain(table, DawidSkene().fit(table))
    one_answer = shares.max(axis=1) > 0.85
    assert (found.kind == ERROR)[~one_answer].mean() < 0.02
    assert (found.kind == AMBIGUOUS)[shares.max(axis=1) < 0.6].mean() > 0.65


def test_a_small_table_cannot_tell():
    table = Annotations.from_arrays([0, 0, 0, 1, 1, 1], [0, 1, 2, 0, 1, 2], [0, 0, 1, 1, 1, 1])
    assert explain(table, DawidSkene().fit(table)).kind.tolist() == [UNDECIDED, AGREED]


@pytest.mark.realdata
def test_platforms_differ_in_jobs():
    data = load_dataset("jobs_q1")
    found = explain(data.annotations, DawidSkene().fit(data.annotations), annotators=data.annotators)
    platform = next(effect for effect in found.groups if effect.column == "platform")
    assert platform.groups == ("f8", "mt")
    assert platform.significant
    assert platform.reliability[0] < platform.reliability[1] - 0.1
