"""Two snapshots: what changed, which labels made an answer flip, and who drifts."""

import numpy as np
import pytest

from dissensus import Annotations, diff, methods
from dissensus.exceptions import BadParameter
from dissensus.questions.diff import CHANGE_KINDS
from dissensus.questions.exceptions import EmptySnapshot
from dissensus.questions.findings import (
    FlippedByOtherItems,
    FlippedByOwnLabels,
    LabelChange,
    NoDriftTested,
    NoLabelChanged,
)
from found import kinds


def table(*rows, **more):
    return Annotations.from_arrays(*zip(*rows, strict=True), **more)


def crowd(seed, drift=0.0, harder=0.0, n_items=200, n_annotators=10, redundancy=5):
    """Half of the items before and all of them after; the first annotator is less often right in the second half."""
    rng = np.random.default_rng(seed)
    truth, skill = rng.integers(3, size=2 * n_items), rng.uniform(0.65, 0.95, n_annotators)
    item = np.repeat(np.arange(2 * n_items), redundancy)
    annotator = np.concatenate([rng.permutation(n_annotators)[:redundancy] for _ in range(2 * n_items)])
    right = skill[annotator] - (item >= n_items) * (harder + drift * (annotator == 0))
    label = np.where(rng.random(item.size) < right, truth[item], rng.integers(3, size=item.size)).astype(str)
    first = item < n_items
    both = Annotations.from_arrays(item, annotator, label)
    return Annotations.from_arrays(item[first], annotator[first], label[first]), both


def literal_changes(old, new):
    """Added, changed and removed rows by plain loops over pairs."""
    found = dict.fromkeys(CHANGE_KINDS, 0)
    rows = [list(zip(*one.to_arrow().to_pydict().values(), strict=True)) for one in (old, new)]
    for pair in {row[:2] for side in rows for row in side}:
        was, now = ([row[2] for row in side if row[:2] == pair] for side in rows)
        for label in list(was):
            if label in now:
                was.remove(label)
                now.remove(label)
        both = min(len(was), len(now))
        found["changed"] += both
        found["added"] += len(now) - both
        found["removed"] += len(was) - both
    return found


@pytest.mark.parametrize("seed", range(5))
def test_changes_are_those_of_plain_loops_over_pairs(seed):
    rng = np.random.default_rng(seed)
    old, new = (
        Annotations.from_arrays(
            rng.integers(6, size=60), rng.integers(4, size=60), rng.integers(3, size=60).astype(str)
        )
        for _ in range(2)
    )  # pairs that repeat, labels that repeat
    assert diff(old, new, method="majority-vote").counts() == literal_changes(old, new)


def test_nothing_changed_is_said():
    old, _ = crowd(0, n_items=20)
    found = diff(old, old)
    assert kinds(found.findings()) == [NoLabelChanged]
    assert found.counts() == {"added": 0, "changed": 0, "removed": 0}
    assert found.flips.item.size == 0
    assert not found.drift.drifts.any()


def test_one_label_and_one_item_are_told_in_the_singular():
    old = table(("a", "x", "cat"), ("a", "y", "dog"), ("a", "z", "cat"), ("b", "x", "cat"))
    new = table(("a", "x", "dog"), ("a", "y", "dog"), ("a", "z", "cat"), ("b", "x", "cat"), ("b", "y", "cat"))
    first = next(diff(old, new, method="majority-vote").findings())
    assert first.facts == {"added": 1, "changed": 1, "removed": 0, "flipped": 1}
    assert next(diff(new, old, method="majority-vote").findings()).facts == {
        "added": 0, "changed": 1, "removed": 1, "flipped": 1,
    }  # fmt: skip


def flipped_by(decisive, *labels):
    return FlippedByOwnLabels(decisive=decisive, labels=labels, n_changes=len(labels))


def test_the_labels_that_made_an_answer_flip_are_named():
    base = [(i, a, "cat") for i in ("i1", "i2", "i3", "i4") for a in "xyz"]
    old = table(*base, ("i5", "x", "dog"), ("i5", "y", "cat"), ("i5", "z", "cat"), ("i6", "x", "dog"))
    new = table(
        *base, ("i5", "x", "dog"), ("i5", "y", "dog"), ("i5", "z", "cat"), ("i6", "x", "dog"), ("i6", "y", "dog")
    )
    found = diff(old, new, method="majority-vote")
    why = str(flipped_by(True, LabelChange(annotator="y", old="cat", new="dog")))
    assert found.to_frame()[["item", "old", "new", "reason"]].values.tolist() == [["i5", "cat", "dog", why]]
    labels = found.to_frame("labels")
    assert labels["change"].tolist() == ["changed", "added"]
    assert labels["decisive"].tolist() == [True, False]
    assert found.to_frame("labels", "pyarrow")["old"].to_pylist() == ["cat", None]


def test_a_removed_label_can_be_decisive_and_two_changes_can_be_so_only_together():
    def votes(yes, no):
        return table(*[("a", w, "yes") for w in yes], *[("a", w, "no") for w in no], *[("b", w, "yes") for w in "uvwx"])

    old = votes("uvw", "xy")
    removed = {w: LabelChange(annotator=w, old="yes", new=None) for w in "uvw"}
    said = [diff(old, votes(*new), method="majority-vote").reasons() for new in (("u", "xy"), ("uv", "xyz"))]
    assert said[0] == [str(flipped_by(True, removed["v"], removed["w"]))]  # with either, votes are tied
    assert said[1] == [str(flipped_by(True, removed["w"], LabelChange(annotator="z", old=None, new="no")))]
    (both,) = diff(old, votes("", "xy"), method="majority-vote").reasons()
    assert both == str(flipped_by(False, *removed.values()))


def test_an_item_can_flip_because_of_what_was_learnt_from_others():
    rng = np.random.default_rng(0)
    truth = rng.integers(2, size=80)
    rows = [(f"i{i:02}", w, str(truth[i])) for i in range(80) for w in ("good1", "good2")]
    rows += [(f"i{i:02}", "weak", str(truth[i] ^ (rng.random() < 0.5))) for i in range(80)]
    few = [("x", "new", "0"), ("x", "weak", "1")]
    old = table(*rows[:20], *rows[160:170], *few, *[(f"i{i:02}", "new", str(1 - truth[i])) for i in range(10)])
    new = table(*rows, *few, *[(f"i{i:02}", "new", str(truth[i])) for i in range(80)])
    found = diff(old, new, method="dawid-skene")
    flips = dict(zip(found.to_frame()["item"], found.reasons(), strict=True))
    assert flips["x"] == str(FlippedByOtherItems(own_changes=0))


def test_answers_are_those_of_the_method_fitted_to_each_snapshot():
    old, new = crowd(3, n_items=60, redundancy=3)
    found = diff(old.subsample(2), new, method="dawid-skene")
    was, now = (methods["dawid-skene"]().fit(one) for one in (old.subsample(2), new))
    before, after = (dict(zip(m.items_.tolist(), m.predict().tolist(), strict=True)) for m in (was, now))
    expected = {item for item in before if before[item] != after[item]}
    assert set(found.items[found.flips.item].tolist()) == expected
    assert len(expected) > 3


def test_a_class_that_is_gone_is_no_error():
    old = table(("a", "x", "old"), ("a", "y", "old"), ("b", "x", "yes"), ("b", "y", "no"), ("b", "z", "no"))
    new = table(("a", "x", "yes"), ("a", "y", "yes"), ("b", "x", "yes"), ("b", "y", "no"), ("b", "z", "no"))
    found = diff(old, new, method="dawid-skene")
    assert found.classes.tolist() == ["no", "old", "yes"]
    assert "a" in found.items[found.flips.item]


def test_who_drifts_is_named_and_hardly_anybody_else():
    named = np.zeros(10)
    wrong = 0.0
    for seed in range(20):
        drifts = diff(*crowd(seed, drift=0.5, harder=0.1, n_items=300), method="majority-vote").drift.drifts
        named += drifts
        wrong += drifts[1:].sum() / max(drifts.sum(), 1)
    assert named[0] >= 16
    assert wrong / 20 <= 0.05


def test_without_drift_the_false_discovery_rate_holds_also_where_items_get_harder():
    for harder in (0.0, 0.15):
        someone = [
            diff(*crowd(seed, harder=harder), method="majority-vote").drift.drifts.any() for seed in range(100, 120)
        ]
        assert np.mean(someone) <= 0.1  # 0.05 and the noise of 20 crowds


def test_samples_of_one_judge_are_no_more_labels_that_drift():
    old, new = crowd(1, drift=0.3, n_items=80)
    once, again = (
        diff(*(Annotations.concat([one] * n) for one in (old, new)), method="majority-vote").drift for n in (1, 5)
    )
    np.testing.assert_allclose(again.p_value, once.p_value)
    np.testing.assert_allclose(again.agreement_since, once.agreement_since)
    assert again.labels_since.tolist() == (5 * once.labels_since).tolist()


def test_the_statistic_is_that_of_its_equation():
    old, new = crowd(1, drift=0.3, n_items=80)
    d = diff(old, new, method="majority-vote").drift
    logit = lambda h, n: np.log((h + 0.5) / (n - h + 0.5))  # noqa: E731
    hits = [np.rint(d.agreement_before * d.labels_before), np.rint(d.agreement_since * d.labels_since)]
    sizes = [d.labels_before, d.labels_since]
    moved = logit(hits[1], sizes[1]) - logit(hits[0], sizes[0])
    variance = sum(1 / (h + 0.5) + 1 / (n - h + 0.5) for h, n in zip(hits, sizes, strict=True))
    for j in range(10):
        rest = [k for k in range(10) if k != j]
        w = 1 / variance[rest]
        mean = (w * moved[rest]).sum() / w.sum()
        Q = (w * (moved[rest] - mean) ** 2).sum()
        tau = max(0, (Q - 8) / (w.sum() - (w**2).sum() / w.sum()))
        z = (moved[j] - mean) / np.sqrt(variance[j] + tau + (w**2 * (1 / w + tau)).sum() / w.sum() ** 2)
        from scipy.stats import norm

        assert d.p_value[j] == pytest.approx(2 * norm.sf(abs(z)))


def test_with_few_labels_nobody_is_tested():
    old = table(("a", "x", "yes"), ("a", "y", "no"))
    new = table(("a", "x", "yes"), ("a", "y", "yes"), ("b", "x", "no"))
    d = diff(old, new).drift
    assert np.isnan(d.p_value).all()
    assert not d.drifts.any()


def test_labels_of_items_that_nobody_else_labelled_are_not_judged():
    old, new = crowd(2, n_items=40)
    alone = Annotations.from_arrays([1000, 1001], [0, 0], ["0", "1"])
    with_alone = diff(old, Annotations.concat([new, alone]), method="majority-vote").drift
    assert with_alone.labels_since.tolist() == diff(old, new, method="majority-vote").drift.labels_since.tolist()


def test_wrong_arguments_are_one_sentence():
    old, new = crowd(0, n_items=5)
    with pytest.raises(BadParameter):
        diff(old, new, level=2)
    with pytest.raises(EmptySnapshot) as caught:
        diff(old.select(rows=np.zeros(len(old), bool)), new)
    assert caught.value.snapshot == "old"
    with pytest.raises(BadParameter):
        diff(old, new).to_frame("rows")


def test_nobody_is_said_not_to_drift_who_cannot_be_compared():
    few = Annotations.from_arrays([1, 1, 2], ["x", "y", "x"], ["a", "b", "a"])
    found = diff(few, Annotations.from_arrays([1], ["x"], ["a"]), method="majority-vote")
    assert kinds(found.findings())[-1] is NoDriftTested
