"""What to do about each item: status against literal counts, and reasons."""

import math

import numpy as np
import pytest

from dissensus import Annotations
from dissensus.models.methods import MajorityVote
from dissensus.questions.item_status import STATUSES, item_status, status_of
from dissensus.table.simulate import simulate


def answers(*votes):
    """A table of items with these votes, such as "aab"; annotator j gives the j-th label of every item."""
    item = np.repeat(np.arange(len(votes)), [len(one) for one in votes])
    annotator = np.concatenate([np.arange(len(one)) for one in votes])
    return Annotations.from_arrays(
        item, annotator, list("".join(votes)), classes=list("abc"), items=np.arange(len(votes)),
    )  # fmt: skip


def test_votes_are_counted_the_most_frequent_first():
    found = item_status(answers("abba", "c", "", "bca", "bbb"), np.array([0, 2, 0, 0, 1]), np.full(5, 0.95))
    assert found.votes.to_pylist() == ["a 2, b 2", "c 1", "", "a 1, b 1, c 1", "b 3"]
    assert found.labels.tolist() == [4, 1, 0, 3, 3]


@pytest.mark.parametrize(
    ("votes", "label", "confidence", "status", "reason"),
    [
        ("aaa", 0, 0.9, "settled", "all 3 labels agree"),
        ("aa", 0, 0.95, "settled", "both labels agree"),
        ("aa", 0, 0.89, "needs a look", "both labels agree, yet below 90 % sure"),
        ("aab", 0, 0.95, "settled", "2 of 3 labels agree"),
        ("a", 0, 0.95, "needs a look", "only 1 label"),
        ("a", 1, 0.6, "needs a look", "the only label, 'a', is doubted"),
        ("", 0, 0.5, "needs a look", "no label"),
        ("ab", 0, 0.6, "needs a look", "2 labels differ"),
        ("abc", 2, 0.6, "needs a look", "3 labels differ"),
        ("aabb", 0, 0.95, "settled", "4 labels are tied"),
        ("aab", 1, 0.8, "needs a look", "most labels (2 of 3) say 'a'"),
        ("aabb", 0, 0.5, "truly split", "2 of 4 labels agree where 4 usually would"),
    ],
)
def test_status_and_reason(votes, label, confidence, status, reason):
    others = ["aaaa"] * 60  # on which everybody is right
    found = item_status(
        answers(votes, *others), np.array([label] + [0] * 60), np.array([confidence] + [1.0] * 60)
    )  # fmt: skip
    assert (STATUSES[found.status[0]], found.reason[0].as_py()) == (status, reason)


def test_a_known_class_settles_an_item_with_one_label():
    found = item_status(answers("a", "a", ""), np.zeros(3, int), np.array([1.0, 1.0, 1.0]), np.array([0, -1, 0]))
    assert found.status.tolist() == [0, 1, 0]


def test_an_item_is_split_where_its_annotators_would_hardly_agree_so_little():
    table = simulate(200, 12, 3, redundancy=6, seed=3).annotations
    model = MajorityVote().fit(table)
    found = status_of(model, table)
    label = np.searchsorted(model.classes_, model.predict())
    right = table.label == label[table.item]
    share = [
        (right[table.annotator == j].sum() + 5 * right.mean()) / ((table.annotator == j).sum() + 5) for j in range(12)
    ]
    split = 0
    for i in range(200):
        rows = table.item == i
        n, r = int(rows.sum()), np.mean([share[j] for j in table.annotator[rows]])
        agree = int(np.bincount(table.label[rows]).max())
        chance = sum(math.comb(n, k) * r**k * (1 - r) ** (n - k) for k in range(agree + 1))
        expected = 0 if model.posterior_[i].max() >= 0.9 else 2 if n >= 4 and chance <= 0.05 else 1
        assert found.status[i] == expected
        split += expected == 2
    assert split > 0
    assert found.counts() == dict(zip(STATUSES, np.bincount(found.status, minlength=3).tolist(), strict=True))


def test_no_items_and_no_annotations_are_no_error():
    table = Annotations.from_arrays([], [], [], classes=["a", "b"], items=["x"])
    found = item_status(table, np.array([0]), np.array([0.5]))
    assert (found.reason.to_pylist(), found.votes.to_pylist()) == (["no label"], [""])
    assert found.columns()["status"].to_pylist() == ["needs a look"]
    nothing = Annotations.from_arrays([], [], [], classes=["a", "b"])
    assert len(item_status(nothing, np.empty(0, int), np.empty(0)).votes) == 0
