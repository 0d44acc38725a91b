"""Flags against crowds of which all is known, and what is said of people."""

from collections import Counter

import numpy as np
import pytest

import dissensus as dz
from dissensus import Annotations, diagnose
from dissensus.exceptions import BadParameter
from dissensus.models.exceptions import NoAnnotations
from dissensus.questions.findings import AgreesRarely, RepeatsOneLabel
from dissensus.table.datasets.digits import make_digits_crowd
from dissensus.table.simulate import simulate
from tables import KINDS, random_table

SUSPECT = ("uniform-spammer", "constant-spammer", "adversary")


def with_copies(table: Annotations, copies: int = 2) -> Annotations:
    """The busiest annotator is copied, label by label, by others called 100, 101, …."""
    mine = table.annotator == np.diff(table.annotator_ptr).argmax()
    item, label = (np.concatenate([c, *[c[mine]] * copies]) for c in (table.item, table.label))
    who = [np.full(mine.sum(), 100 + n) for n in range(copies)]
    return Annotations.from_arrays(item, np.concatenate([table.annotator, *who]), label, classes=table.n_classes)


def test_forty_labels_are_enough_on_digits_crowd():
    """Recall at least 0.9 for spammers and adversaries, and nobody else is flagged."""
    found = there = 0
    for seed in range(3):
        data = make_digits_crowd(seed)
        kind = np.array(data.annotators["kind"].to_pylist())
        table, rng = data.annotations, np.random.default_rng(seed)
        rank = np.empty(len(table), np.int64)
        order = np.lexsort((rng.random(len(table)), table.annotator))
        rank[order] = np.arange(len(table)) - table.annotator_ptr[table.annotator[order]]
        suspect = np.isin(kind, SUSPECT)
        result = diagnose(table.select(rows=~suspect[table.annotator] | (rank < 40)))
        flagged = np.array([not {"unrelated", "contrary"}.isdisjoint(flags) for flags in result.flags])
        assert not flagged[~suspect].any()
        assert set(result.annotators_with_flag("copies")) == set(table.annotators[kind == "clique"])
        found, there = found + flagged[suspect].sum(), there + suspect.sum()
    assert found >= 0.9 * there


def test_honest_annotators_are_left_alone():
    flags = Counter()
    for seed in range(3):
        honest = {"expert": 1, "ordinary": 3, "specialist": 1}
        sim = simulate(2000, 60, 5, redundancy=8, kinds=honest, seed=seed)
        flags.update(flag for one in diagnose(sim.annotations).flags for flag in one)
    assert not flags


def test_who_was_given_items_of_one_class_only_is_not_flagged():
    rng = np.random.default_rng(3)
    n_pages, honest, each = 100, 10, 10  # every page of ten items is labelled by ten people, right 97 times in 100
    truth = rng.integers(0, 4, (n_pages, each))
    truth[:8] = rng.integers(0, 4, (8, 1))  # eight pages of one class each
    page, who, item = np.meshgrid(np.arange(n_pages), np.arange(honest), np.arange(each), indexing="ij")
    label = np.where(rng.random(page.shape) < 0.97, truth[page, item], rng.integers(0, 4, page.shape))
    rows = Annotations.from_arrays((page * each + item).ravel(), (page * honest + who).ravel(), label.ravel())
    assert not any(diagnose(rows).flags)


def test_of_noise_nothing_is_said():
    rng = np.random.default_rng(0)
    table = Annotations.from_arrays(np.repeat(np.arange(1000), 5), rng.integers(0, 20, 5000), rng.integers(0, 4, 5000))
    assert not any(diagnose(table).flags)


def test_one_who_copies_everything_adds_nothing():
    table = simulate(400, 8, 4, redundancy=6, kinds={"ordinary": 1}, seed=1).annotations
    found, original = diagnose(with_copies(table)), int(np.diff(table.annotator_ptr).argmax())
    assert found.groups == ((original, 100, 101),)
    assert found.active_annotators == 10
    np.testing.assert_allclose(found.share_copied[found.share_copied > 0], 1)
    n = int(np.diff(table.annotator_ptr).max())
    reason = found.flag_messages[-1]["copies"]
    assert (reason.sources[0], len(reason.sources), reason.agreed, reason.shared) == (original, 2, n, n)
    assert found.reasons[-1] == str(reason)


def test_too_few_labels_is_a_number_and_nothing_is_said_of_anybody():
    table = Annotations.from_arrays(np.arange(60) // 2, [7] * 60, np.arange(60) % 3)
    found = diagnose(table)
    assert (found.flags, found.reasons, found.too_few_labels) == (((),), ("",), 1)
    assert np.isnan(found.p_typical[0])


def test_names_and_order_of_rows_change_nothing():
    data = make_digits_crowd(1).annotations
    order = np.random.default_rng(0).permutation(len(data))
    names = np.random.default_rng(1).permutation(data.n_annotators)
    one = diagnose(data)
    two = diagnose(Annotations.from_arrays(data.item[order], names[data.annotator[order]], data.label[order]))
    np.testing.assert_allclose(two.p_typical[names], one.p_typical, atol=1e-3)
    assert [two.flags[n] for n in names] == list(one.flags)


def test_threads_change_nothing():
    table = simulate(9000, 50, 3, redundancy=5, seed=2).annotations  # enough rows for two threads
    one, two = diagnose(table, threads=1), diagnose(table, threads=2)
    assert one.flags == two.flags
    np.testing.assert_allclose(one.p_typical, two.p_typical, atol=1e-6)


def test_nothing_to_judge_is_an_error():
    table = make_digits_crowd(0).annotations
    with pytest.raises(NoAnnotations):
        diagnose(table.select(rows=np.zeros(len(table), bool)))


def test_any_table_works():
    for seed in range(5):
        for kind in KINDS:
            found = diagnose(random_table(seed, n_items=9, n=17, **KINDS[kind]))
            assert len(found.flags) == 7


def test_frame_has_probabilities_flags_and_reasons():
    found = dz.diagnose(make_digits_crowd(0).annotations)
    frame = found.to_frame().set_index("annotator")
    assert list(frame.index) == found.annotators.tolist()
    for name in found.annotators_with_flag("unrelated"):
        assert frame.loc[name, "p_typical"] <= 0.01
    said = dict(zip(found.annotators, found.flag_messages, strict=True))
    unrelated = [said[name]["unrelated"] for name in found.annotators_with_flag("unrelated")]
    assert all(one.chance <= 0.01 and one.p_typical <= 0.01 for one in unrelated)
    assert {RepeatsOneLabel, AgreesRarely} >= {type(one) for one in unrelated} >= {RepeatsOneLabel}
    contrary = said[found.annotators_with_flag("contrary")[0]]["contrary"]
    assert type(contrary) is AgreesRarely
    assert list(frame["evidence"]) == list(found.reasons)
    with pytest.raises(BadParameter):
        found.annotators_with_flag("spamer")
    said = (
        "Diagnosis of 42 annotators, whose answers are: 5 unrelated to the items, 1 contrary to the others, 5 same as"
    )
    assert repr(found).startswith(said)


@pytest.mark.parametrize("kind_of_labels", ["graded", "classes"])
def test_who_grades_higher_but_in_the_same_order_is_neither_unrelated_nor_contrary(kind_of_labels):
    rng = np.random.default_rng(4)
    kinds = np.array(["unrelated", "contrary", "contrary", *["strict"] * 3, *["honest"] * 34], object)
    item = np.repeat(np.arange(300), 6)
    annotator = np.concatenate([rng.choice(40, 6, replace=False) for _ in range(300)])
    said, kind = rng.normal(size=300)[item] + 0.8 * rng.normal(size=item.size), kinds[annotator]
    said = np.select(
        [kind == "strict", kind == "contrary", kind == "unrelated"], [said + 1.6, -said, rng.permutation(said)], said
    )
    names = np.array([f"{name} {at}" for at, name in enumerate(kinds)], object)
    grades = np.clip(np.round(said + 3), 1, 5).astype(int)
    found = diagnose(Annotations.from_arrays(item, names[annotator], grades, kind=kind_of_labels))
    named = {*found.annotators_with_flag("unrelated"), *found.annotators_with_flag("contrary")}
    assert {"contrary 1", "contrary 2"} <= named
    assert not [name for name in named if name.startswith(("strict", "honest"))]
    assert any(name.startswith("strict") for name in found.annotators_with_flag("higher")) == (
        kind_of_labels == "graded"
    )
