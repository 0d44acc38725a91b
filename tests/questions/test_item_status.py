"""What to do about each item: status against literal counts, and reasons."""

import math

import numpy as np
import pytest

from dissensus import Annotations, methods
from dissensus.models.methods import MajorityVote
from dissensus.questions import findings as f
from dissensus.questions.item_status import STATUSES, item_status, status_by_model, status_of_documents
from dissensus.table.simulate import simulate, simulate_kind


def answers(*votes):
    """A table of items with these votes, such as "aab"; annotator j gives the j-th label of every item."""
    item = np.repeat(np.arange(len(votes)), [len(one) for one in votes])
    annotator = np.concatenate([np.arange(len(one)) for one in votes])
    return Annotations.from_arrays(
        item, annotator, list("".join(votes)), classes=list("abcd"), items=np.arange(len(votes)),
    )  # fmt: skip


def test_votes_are_counted_the_most_frequent_first():
    found = item_status(answers("abba", "c", "", "bca", "bbb"), np.array([0, 2, 0, 0, 1]), np.full(5, 0.95))
    assert found.votes.to_pylist() == ["a 2, b 2", "c 1", "", "a 1, b 1, c 1", "b 3"]
    assert found.n_labels.tolist() == [4, 1, 0, 3, 3]


def tied(classes, labels):
    return f.LabelsTied(classes=tuple(classes), agree=2, labels=labels, is_settled=True)


@pytest.mark.parametrize(
    ("votes", "label", "confidence", "status", "reason"),
    [
        ("aaa", 0, 0.95, "settled", f.AllLabelsAgree(labels=3, threshold=None)),
        ("aa", 0, 0.95, "settled", f.AllLabelsAgree(labels=2, threshold=None)),
        ("aa", 0, 0.94, "needs a look", f.AllLabelsAgree(labels=2, threshold=0.95)),
        ("aab", 0, 0.95, "settled", f.SomeLabelsAgree(agree=2, labels=3)),
        ("a", 0, 0.95, "needs a look", f.OneLabel()),
        ("a", 1, 0.6, "needs a look", f.OnlyLabelDoubtful(label="a")),
        ("", 0, 0.5, "needs a look", f.NoLabel()),
        ("ab", 0, 0.6, "needs a look", f.LabelsDiffer(labels=2, is_settled=False)),
        ("abc", 2, 0.6, "needs a look", f.LabelsDiffer(labels=3, is_settled=False)),
        ("abcd", 2, 0.4, "truly split", f.LabelsDiffer(labels=4, is_settled=False)),
        ("aabb", 0, 0.95, "settled", tied("ab", 4)),
        ("aabbc", 0, 0.95, "settled", tied("ab", 5)),
        ("aabbc", 2, 0.95, "settled", tied("ab", 5)),
        ("aabbcc", 2, 0.95, "settled", tied("abc", 6)),
        ("ab", 2, 0.95, "settled", f.LabelsDiffer(labels=2, is_settled=True)),
        ("aaabbc", 1, 0.95, "settled", f.MajorityOverruled(label="a", agree=3, labels=6, is_settled=True)),
        ("aab", 1, 0.8, "needs a look", f.MajorityOverruled(label="a", agree=2, labels=3, is_settled=False)),
        ("aabb", 0, 0.5, "truly split", f.LessAgreementThanUsual(agree=2, labels=4, expected=4)),
    ],
)
def test_status_and_reason(votes, label, confidence, status, reason):
    others = ["aaaa"] * 60  # on which every annotator is right
    found = item_status(
        answers(votes, *others), np.array([label] + [0] * 60), np.array([confidence] + [1.0] * 60)
    )  # fmt: skip
    assert (STATUSES[found.status[0]], found.reason[0].as_py()) == (status, str(reason))


def test_one_person_who_repeats_a_label_checks_nothing():
    table = Annotations.from_arrays("aaaabbc", ["Ann"] * 5 + ["Bob", "Bob"], list("yyyynnn"), classes=["n", "y"])
    found = item_status(table, np.array([1, 0, 0]), np.full(3, 0.99))
    assert found.columns()["status"].to_pylist() == ["needs a look", "settled", "needs a look"]
    assert found.reason.to_pylist() == [
        str(one) for one in (f.LabelsByOneAnnotator(labels=4), f.AllLabelsAgree(labels=2, threshold=None), f.OneLabel())
    ]
    votes = Annotations.from_counts(["a"], ["y"], [4])  # nobody knows whose
    assert item_status(votes, np.array([0]), np.array([0.99])).status.tolist() == [0]
    numbers = Annotations.from_arrays("aabbcc", "xxxyxy", [1.0, 1.0, 2.0, 2.1, 5.0, 5.1], kind="numbers")
    found = status_by_model(methods["gaussian"]().fit(numbers), numbers)
    assert (found.status[0], found.reason_of(0)) == (1, str(f.LabelsByOneAnnotator(labels=2)))


def test_rows_of_weight_0_are_no_votes():
    table = Annotations.from_arrays([0, 0, 1, 1], "xyxy", list("aaab"), weight=[1, 0, 0, 0])
    found = item_status(table, np.array([0, 0]), np.full(2, 0.99))
    assert found.votes.to_pylist() == ["a 1", ""]
    assert found.n_labels.tolist() == [1, 0]
    assert found.reason.to_pylist() == [str(f.OneLabel()), str(f.NoLabel())]


def test_labels_that_differ_are_no_split_of_four_people_where_two_gave_them():
    item, who = np.repeat(np.arange(40), 4), np.tile([0, 1, 2, 3], 40)
    label, two = np.zeros(160, int), who.copy()
    label[:8], two[:4] = [0, 0, 1, 1, 0, 0, 1, 1], [0, 0, 1, 1]
    found = item_status(Annotations.from_arrays(item, two, label), np.zeros(40, int), np.full(40, 0.6))
    assert found.columns()["status"].to_pylist()[:3] == ["needs a look", "truly split", "needs a look"]


def test_samples_of_one_judge_are_no_crowd_that_is_split():
    """In items 0 and 1 two judges of five differ: 3 of 5 is no rare count where each is right four times of five."""
    said = np.zeros((40, 5), int)
    said[np.arange(40), np.arange(40) % 5] = 1
    said[:2, :2] = 1
    item, judge = np.divmod(np.arange(200), 5)
    for times in (1, 6):
        own = np.repeat(np.arange(200), times)
        table = Annotations.from_arrays(item[own], judge[own], said.ravel()[own])
        found = item_status(table, np.zeros(40, int), np.full(40, 0.6))
        assert found.counts()["truly split"] == 0
    assert found.reason_of(0) == str(f.SomeLabelsAgree(agree=18, labels=30))


def test_answers_that_are_tied_are_named_of_each_item_and_only_counted_where_they_are_many():
    table = Annotations.from_arrays(
        np.repeat(np.arange(3), [4, 4, 8]), np.arange(16), list("bbddaaccaabbccdd"), items=np.arange(3)
    )
    found = item_status(table, np.zeros(3, int), np.full(3, 0.95))
    said = [str(tied(classes, labels)) for classes, labels in (("bd", 4), ("ac", 4), ("abcd", 8))]
    assert found.reason.to_pylist() == said
    assert tied("abcd", 8).class_names == "4 answers"
    assert found.reason_of(1) == said[1]


def test_a_known_class_settles_an_item_with_one_label():
    found = item_status(answers("a", "a", ""), np.zeros(3, int), np.array([1.0, 1.0, 1.0]), np.array([0, -1, 0]))
    assert found.status.tolist() == [0, 1, 0]
    decided = str(f.AnswerDecided())
    assert found.reason.to_pylist() == [decided, str(f.OneLabel()), decided]  # not the votes
    assert found.reason_of(0) == decided


def test_an_item_is_split_where_its_annotators_would_hardly_agree_so_little():
    table = simulate(200, 12, 3, redundancy=6, seed=3).annotations
    model = MajorityVote().fit(table)
    found = status_by_model(model, table)
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
        expected = 0 if model.posterior_[i].max() >= 0.95 else 2 if n >= 4 and chance <= 0.05 else 1
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


def literal_status(labels, agree, usual, sure, number=False):
    """The rule as the module says it, of one item."""
    chance = sum(math.comb(labels, m) * usual**m * (1 - usual) ** (labels - m) for m in range(agree + 1))
    if labels >= 2 and sure >= (0.9 if number else 0.95) and not (number and chance <= 0.05):
        return "settled"
    return "truly split" if labels >= 4 and chance <= 0.05 else "needs a look"


def shares(table, right):
    """Of every annotator: the share of their rows that are right, and 10 of average quality."""
    return [
        (right[table.annotator == a].sum() + 10 * right.mean()) / ((table.annotator == a).sum() + 10)
        for a in range(table.n_annotators)
    ]


def test_numbers_are_settled_by_their_reliability_and_split_where_labels_lie_apart():
    rng = np.random.default_rng(1)
    truth, rows = rng.normal(0, 9, 80), []
    for i in range(80):
        for a in rng.choice(7, 1 if i == 3 else 4, replace=False).tolist():
            rows.append((i, a, truth[i] + rng.normal(0, 1 + 0.3 * a) + (9 * (-1) ** len(rows) if i == 7 else 0)))
    table = Annotations.from_arrays(*zip(*rows, strict=True)).as_kind("numbers")
    model = methods["gaussian"]().fit(table)
    found = status_by_model(model, table)
    spread = ((model.interval_[:, 1] - model.interval_[:, 0]) / 3.92) ** 2
    spread_of_truth = np.var(model.values_) + np.mean(spread)
    away = np.abs(table.values[table.label] - model.values_[table.item])
    near = away <= np.quantile(away, 0.9)
    usual = shares(table, near)
    for i in range(table.n_items):
        rows = table.item == i
        sure, mean = 1 - spread[i] / spread_of_truth, np.mean([usual[a] for a in table.annotator[rows]])
        assert STATUSES[found.status[i]] == literal_status(rows.sum(), near[rows].sum(), mean, sure, number=True)
    assert [STATUSES[found.status[i]] for i in (3, 7)] == ["needs a look", "truly split"]
    assert found.confidence[7] > 0.9
    assert found.reason[3].as_py() == str(f.OneLabel())
    assert found.reason[7].as_py() == str(f.FewLabelsNearValue(near=0, labels=4, expected=3))
    assert 0.3 < (found.status == 0).mean() < 1
    assert found.threshold == 0.9  # a reliability, no probability
    known = status_by_model(model, table, np.where(np.arange(80) == 7, 1.5, np.nan))
    assert (known.status[7], known.reason[7].as_py()) == (0, str(f.AnswerDecided()))
    assert known.reason[3].as_py() == str(f.OneLabel())


@pytest.mark.parametrize(("kind", "method"), [("sets", "set-tree"), ("pairs", "bradley-terry")])
def test_other_answers_are_settled_by_their_probability_and_two_labels(kind, method):
    if kind == "pairs":
        table = simulate_kind(kind, 80, 6, n_things=5, seed=4).annotations
    else:
        rng, options = np.random.default_rng(5), ["a", "a|b", "∅"]
        rows = [(i, a, options[i % 3 if rng.random() < 0.8 else rng.integers(3)]) for i in range(40) for a in range(5)]
        table = Annotations.from_arrays(*zip(*rows, strict=True)).as_kind(kind)
    rows = np.flatnonzero(table.item == 0)
    table = table.select(rows=~np.isin(np.arange(len(table)), rows[1:]))  # one label of the first is left
    model = methods[method]().fit(table)
    found = status_by_model(model, table)
    answer = model.predict()
    right = table.classes[table.label] == answer[table.item]
    usual = shares(table, right)
    for i in range(table.n_items):
        rows = np.flatnonzero(table.item == i)
        sure = model.posterior_[i].max() if kind == "pairs" else model.confidence_[i]
        if kind == "pairs" and answer[i] != "tie":
            left, right_ = (list(model.things_).index(one) for one in str(table.items[i]).split(" | ")[0].split(" vs "))
            cov, apart = model.score_variance_, model.scores_[left] - model.scores_[right_]
            sd = math.sqrt(cov[left, left] + cov[right_, right_] - 2 * cov[left, right_])
            sure = 0.5 * (1 + math.erf((apart if answer[i] == "left" else -apart) / sd / math.sqrt(2)))
        agree = np.bincount(table.label[rows], minlength=1).max()
        mean = np.mean([usual[a] for a in table.annotator[rows]])
        assert STATUSES[found.status[i]] == literal_status(rows.size, agree, mean, sure)
    assert STATUSES[found.status[0]] == "needs a look"
    assert "settled" in found.columns()["status"].to_pylist()


def test_a_document_is_settled_where_its_spans_are_and_two_have_read_it():
    spans = [("d", who, 0, 3, "PER") for who in "abc"] + [("e", "a", 0, 3, "PER"), ("f", "a", 0, 3, "PER")]
    spans += [("h", "a", 0, 3, "PER"), ("h", "b", 10, 12, "PER"), ("h", "c", 13, 16, "PER")]
    readings = [(d, who) for d in "degh" for who in "abc"] + [("f", "a")]
    texts = dict.fromkeys("defgh", "Ann works at IBM")
    table = Annotations.from_spans(*zip(*spans, strict=True), readings=readings, texts=texts)
    model = methods["bayesian-sequence"]().fit(table)
    documents, found = status_of_documents(model, table)
    assert documents.tolist() == list("defgh")
    assert found.n_labels.tolist() == [3, 3, 1, 3, 3]
    answer = model.predict()
    for d, name in enumerate(documents):
        doubt = 0.0
        for i, place in enumerate(table.items):
            if not str(place).startswith(name):
                continue
            if not np.isnan(model.span_probability_[i]):
                doubt += 1 - model.span_probability_[i]
            elif answer[i] == "O" and any(table.classes[k] != "O" for k in table.label[table.item == i]):
                doubt += model.posterior_[i][[str(tag).startswith("B-") for tag in model.classes_]].sum()
        least = max(1 - doubt, 0)
        assert found.confidence[d] == pytest.approx(least)
        assert STATUSES[found.status[d]] == ("settled" if least >= 0.95 and name != "f" else "needs a look")
    assert found.reason[2].as_py() == str(f.OneReader())
    assert [STATUSES[found.status[d]] for d in (3, 4)] == ["settled", "needs a look"]  # nobody marked; all differ
