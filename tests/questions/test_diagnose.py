"""Flags: every number against a literal loop, every flag against crowds of which all is known."""

from collections import Counter

import numpy as np
import pytest
from scipy import stats

import dissensus as dz
from dissensus import Annotations, diagnose
from dissensus.compute.engines.base import hard_rows
from dissensus.exceptions import BadParameter, DataError
from dissensus.models.methods.dawid_skene import expected_pseudo
from dissensus.questions import diagnose as diagnostics
from dissensus.questions.diagnose import _groups
from dissensus.table.datasets.digits import digits_crowd
from dissensus.table.simulate import simulate
from tables import KINDS, random_table


def said(table: Annotations, row: int) -> list[tuple[int, float]]:
    """What a row says: (label, weight)."""
    w = 1.0 if table.weight is None else table.weight[row]
    if table.proba is None:
        return [(int(table.label[row]), w)]
    return [(k, w * p) for k, p in enumerate(table.proba[row])]


class Literal:
    """What the module computes, one row at a time."""

    def __init__(self, table: Annotations):
        self.table = table
        rows, A, K = hard_rows(table), table.n_annotators, table.n_classes
        self.pairs = diagnostics._pairs(rows, A, K)
        circles = diagnostics._find_friends(self.pairs, A, K).toarray()
        self.friends = [set(np.flatnonzero(circle).tolist()) for circle in circles]
        self.found = circles.sum() > A  # whether anybody has friends
        self.model = diagnostics._fit(table, diagnostics._find_friends(self.pairs, A, K), 1)
        self.votes = self.model.votes

    def share(self, row: int) -> float:
        there = set(self.table.annotator[self.table.item == self.table.item[row]].tolist())
        return 1 / len(there & self.friends[self.table.annotator[row]])

    def others(self, item: int, *without: int) -> np.ndarray | None:
        """(K,) the class of an item by everybody but these annotators and their friends; None: there is nobody."""
        q, anybody = self.model.prior.copy(), False
        left_out = set().union(*(self.friends[a] for a in without))
        for row in range(self.table.item_ptr[item], self.table.item_ptr[item + 1]):
            if self.table.annotator[row] not in left_out:
                anybody = True
                for label, w in said(self.table, row):
                    q = q * self.model.confusion[self.table.annotator[row], :, label] ** (w * self.share(row))
        return q / q.sum() if anybody else None


def with_copies(table: Annotations, copies: int = 2) -> Annotations:
    """The busiest annotator is copied, label by label, by others called 100, 101, …."""
    mine = table.annotator == np.diff(table.annotator_ptr).argmax()
    item, label = (np.concatenate([c, *[c[mine]] * copies]) for c in (table.item, table.label))
    who = [np.full(mine.sum(), 100 + n) for n in range(copies)]
    return Annotations.from_arrays(item, np.concatenate([table.annotator, *who]), label, classes=table.n_classes)


CROWDS = {
    **{kind: lambda kind=kind: random_table(2, **KINDS[kind]) for kind in KINDS},
    "copies": lambda: with_copies(simulate(60, 7, 4, redundancy=5, seed=1).annotations),
}


@pytest.mark.parametrize("kind", CROWDS)
def test_information_and_belief_are_those_of_a_literal_loop(kind):
    table = CROWDS[kind]()
    literal, found = Literal(table), diagnose(table)
    assert literal.found == (kind == "copies")
    A, K = table.n_annotators, table.n_classes
    pseudo = expected_pseudo(K)
    counts, given = np.zeros((A, K, K)), np.zeros((A, K))  # [annotator, true, given]
    for r in range(len(table)):
        a, q = table.annotator[r], literal.others(table.item[r], table.annotator[r])
        for label, w in said(table, r) if q is not None else ():
            counts[a, :, label] += w * q
            given[a, label] += w
    crowd = (given.sum(axis=0) + 1 / K) / (given.sum() + 1)
    gains, beliefs = [[] for _ in range(A)], [[] for _ in range(A)]
    for r in range(len(table)):
        a, q = table.annotator[r], literal.others(table.item[r], table.annotator[r])
        for label, w in said(table, r) if q is not None else ():
            if w == 0:
                continue
            rest = counts[a].copy()
            rest[:, label] -= w * q
            expected = sum(q[c] * (rest[c, label] + pseudo[c, label]) / (rest[c] + pseudo[c]).sum() for c in range(K))
            alone = (given[a, label] - w + crowd[label]) / (given[a].sum() - w + crowd.sum())
            gains[a].append((w, np.log(expected / alone)))
            beliefs[a].append((w, q[label]))
    for a in range(A):
        w, gain = np.array(gains[a]).T
        n = w.sum()
        mean = (w * gain).sum() / n
        assert found.labels[a] == pytest.approx(n)
        assert found.information[a] == pytest.approx(mean)
        error = np.sqrt((w * (gain - mean) ** 2).sum() / (n - 1) / n)
        assert found.information_high[a] - mean == pytest.approx(stats.t.ppf(0.975, n - 1) * error)
        assert mean - found.information_low[a] == pytest.approx(stats.t.ppf(0.975, n - 1) * error)
        assert found.belief[a] == pytest.approx(np.average(np.array(beliefs[a])[:, 1], weights=w))
        assert found.by_chance[a] == pytest.approx(given[a] @ counts[a].sum(axis=1) / n**2)


@pytest.mark.parametrize("copies", [0, 2])
def test_pairs_are_those_of_a_literal_loop(copies):
    table = simulate(120, 6, 3, redundancy=4, seed=3).annotations
    twice = [np.concatenate([column, column[:9]]) for column in (table.item, table.annotator)]
    table = Annotations.from_arrays(*twice, np.concatenate([table.label, (table.label[:9] + 1) % 3]))
    table = with_copies(table, copies)
    literal = Literal(table)
    assert literal.found == bool(copies)
    theta = literal.model.confusion
    found = literal.pairs
    sums = np.stack([found.shared, found.agreed, *literal.model.agreements(found)], axis=1)
    seen = {(a, b): row for a, b, row in zip(found.first.tolist(), found.second.tolist(), sums, strict=True)}
    assert len(seen) == found.first.size
    for a in range(table.n_annotators):
        for b in range(a + 1, table.n_annotators):
            n = agreed = expected = variance = 0
            for i in range(table.n_items):
                mine, theirs = (
                    [table.label[r] for r in range(*table.item_ptr[i : i + 2]) if table.annotator[r] == who]
                    for who in (a, b)
                )
                if mine and theirs:
                    q = literal.others(i, a, b)
                    q = literal.model.prior if q is None else q
                    p = sum(q[c] * theta[a, c] @ theta[b, c] for c in range(3))
                    n, agreed = n + 1, agreed + (mine[0] == theirs[0])
                    expected, variance = expected + p, variance + p * (1 - p)
            if n >= 10:
                np.testing.assert_allclose(seen.pop((a, b)), [n, agreed, expected, variance], rtol=1e-9)
    assert not seen


def test_votes_of_friends_are_shared():
    table = with_copies(simulate(60, 7, 4, redundancy=5, seed=1).annotations)
    literal = Literal(table)
    np.testing.assert_allclose(literal.votes, [literal.share(row) for row in range(len(table))])
    assert set(np.unique(literal.votes).round(4)) >= {1.0, 0.3333}


def test_spammers_and_cliques_of_digits_crowd_are_found():
    """Precision and recall at least 0.9 over 20 seeds, for each flag."""
    kinds = {
        "spammer": ("uniform-spammer", "constant-spammer"),
        "copier": ("clique",),
        "adversary": ("adversary",),
    }
    found, right, there = Counter(), Counter(), Counter()
    for seed in range(20):
        data = digits_crowd(seed)
        result = diagnose(data.annotations)
        kind = np.array(data.annotators["kind"].to_pylist())
        for flag, wanted in kinds.items():
            flagged, true = set(result.flagged(flag)), set(data.annotations.annotators[np.isin(kind, wanted)])
            found[flag] += len(flagged)
            right[flag] += len(flagged & true)
            there[flag] += len(true)
        few = np.diff(data.annotations.annotator_ptr) < 10
        assert set(data.annotations.annotators[few]) <= set(result.flagged("too few labels"))
    for flag in kinds:
        assert right[flag] / found[flag] >= 0.9, flag
        assert right[flag] / there[flag] >= 0.9, flag


def test_honest_annotators_are_left_alone():
    flags = Counter()
    for seed in range(3):
        honest = {"expert": 1, "ordinary": 3, "specialist": 1}
        sim = simulate(2000, 60, 5, redundancy=8, kinds=honest, seed=seed)
        flags.update(flag for one in diagnose(sim.annotations).flags for flag in one)
    assert flags["spammer"] + flags["adversary"] + flags["copier"] == 0
    assert flags["too few labels"] + flags["unclear"] <= 9  # of 180


def test_who_was_given_items_of_one_class_only_is_no_spammer():
    rng = np.random.default_rng(3)
    n_pages, honest, each = 100, 10, 10  # every page of ten items is labelled by ten people, right 97 times in 100
    truth = rng.integers(0, 4, (n_pages, each))
    truth[:8] = rng.integers(0, 4, (8, 1))  # eight pages of one class each
    page, who, item = np.meshgrid(np.arange(n_pages), np.arange(honest), np.arange(each), indexing="ij")
    label = np.where(rng.random(page.shape) < 0.97, truth[page, item], rng.integers(0, 4, page.shape))
    found = diagnose(
        Annotations.from_arrays((page * each + item).ravel(), (page * honest + who).ravel(), label.ravel())
    )
    assert not found.flagged("spammer")
    assert len(found.flagged("unclear")) >= 60  # nothing tells them from people who say one thing only
    assert len(set(found.flagged("unclear")) - set(range(80))) <= 5
    assert (
        "its items are so alike that its 10 labels"
        in found.reasons[found.annotators.tolist().index(found.flagged("unclear")[0])]
    )


def test_noise_has_no_information():
    rng = np.random.default_rng(0)
    table = Annotations.from_arrays(np.repeat(np.arange(1000), 5), rng.integers(0, 20, 5000), rng.integers(0, 4, 5000))
    found = diagnose(table)
    assert (found.information < 0.05).all()  # everybody's labels have a small part in what the others are thought of
    assert not found.groups


def test_one_who_copies_everything_adds_nothing():
    table = simulate(400, 8, 4, redundancy=6, kinds={"ordinary": 1}, seed=1).annotations
    found, original = diagnose(with_copies(table)), int(np.diff(table.annotator_ptr).argmax())
    assert found.groups == ((original, 100, 101),)
    assert found.active_annotators == 10
    assert found.effective_annotators == pytest.approx(8, abs=0.1)
    assert set(found.copiers.first) | set(found.copiers.second) == {original, 100, 101}
    np.testing.assert_allclose(found.copiers.copied, 1)
    assert "about 100 % of the labels are copied, in a group of 3" in found.reasons[-1]


def test_effective_number_is_kish_s():
    groups, effective = _groups(9, [(0, 3, 0.5), (3, 5, 0.7), (1, 2, 1.0)], np.ones(9, bool))
    assert groups == [(0, 3, 5), (1, 2)]
    assert effective == pytest.approx(9 - 3 + 3 / (1 + 2 * 0.6) - 2 + 2 / (1 + 1))
    assert _groups(4, [], np.array([True, True, False, True])) == ([], 3.0)


def test_who_labels_alone_cannot_be_judged():
    table = Annotations.from_arrays(np.arange(60) // 2, [7] * 60, np.arange(60) % 3)
    found = diagnose(table)
    assert found.flags == (("too few labels",),)
    assert found.reasons == ("0 labels on items that others have labelled too: too few to tell",)
    assert np.isnan(found.information[0])


def test_names_and_order_of_rows_change_nothing():
    data = digits_crowd(1).annotations
    order = np.random.default_rng(0).permutation(len(data))
    names = np.random.default_rng(1).permutation(data.n_annotators)
    one = diagnose(data)
    two = diagnose(Annotations.from_arrays(data.item[order], names[data.annotator[order]], data.label[order]))
    np.testing.assert_allclose(two.information[names], one.information, atol=1e-7)
    assert [two.flags[n] for n in names] == list(one.flags)
    assert two.effective_annotators == pytest.approx(one.effective_annotators)


def test_threads_change_nothing():
    table = simulate(9000, 50, 3, redundancy=5, seed=2).annotations  # enough rows for two threads
    one, two = diagnose(table, threads=1), diagnose(table, threads=2)
    assert one.flags == two.flags
    np.testing.assert_allclose(one.copiers.deviations, two.copiers.deviations, rtol=1e-6)


def test_nothing_to_judge_is_an_error():
    table = digits_crowd(0).annotations
    with pytest.raises(DataError, match="no annotations"):
        diagnose(table.select(rows=np.zeros(len(table), bool)))


def test_any_table_works():
    for seed in range(5):
        for kind in KINDS:
            found = diagnose(random_table(seed, n_items=9, n=17, **KINDS[kind]))
            assert len(found.flags) == 7


def test_frame_has_flags_and_reasons():
    found = dz.diagnose(digits_crowd(0).annotations)
    frame = found.to_frame().set_index("annotator")
    assert list(frame.index) == found.annotators.tolist()
    spammer = found.flagged("spammer")[0]
    assert frame.loc[spammer, "flags"] == "spammer"
    assert "labels do not depend on the item: the others believe" in frame.loc[spammer, "reasons"]
    with pytest.raises(
        BadParameter, match=r"flag must be 'spammer', 'adversary', 'copier', .* or 'unclear', got 'spamer'"
    ):
        found.flagged("spamer")
    assert repr(found).startswith("Diagnosis of 42 annotators, worth 38.1 independent ones: 5 spammer, 1 adversary")
    assert "the others believe" in frame.loc[found.flagged("adversary")[0], "reasons"]
