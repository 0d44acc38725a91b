"""Kinds of labels: how a vocabulary is read, that derived tables keep it, and what is refused."""

from __future__ import annotations

import dataclasses
import pickle

import numpy as np
import pyarrow as pa
import pytest

from dissensus import Annotations, methods, read
from dissensus.common.exceptions import OutOfRange
from dissensus.exceptions import DataError
from dissensus.table import exceptions as errors
from dissensus.table import kinds, notes
from dissensus.table.io import gold_values
from facts import raises

IN_ORDER = "declare the classes in their order"
DECIMAL_POINT = "write it with a decimal point instead of a comma"
ROWS = ["a", "a", "b", "b"], ["x", "y", "x", "y"]


@pytest.mark.parametrize(
    ("kind", "labels", "classes", "values"),
    [
        ("graded", ["10", "9", "1", "9"], ["1", "9", "10"], [1, 9, 10]),
        ("graded", [3, 1, 2, 1], [1, 2, 3], [1, 2, 3]),
        ("numbers", ["0.5", "1", "1.0", "-2"], [-2.0, 0.5, 1.0], [-2, 0.5, 1]),
        ("numbers", ["7", "7", "5", "5"], [5, 7], [5, 7]),
    ],
)
def test_numbers_sort_as_numbers(kind, labels, classes, values):
    table = Annotations.from_arrays(*ROWS, labels, kind=kind)
    assert (table.classes.tolist(), table.values.tolist()) == (classes, values)
    assert table.values[table.label].tolist() == [float(label) for label in labels]


def test_declared_grades_keep_their_order_and_have_ranks():
    table = Annotations.from_arrays(*ROWS, ["low", "high", "mid", "low"], ["low", "mid", "high"], kind="graded")
    assert (table.classes.tolist(), table.values.tolist()) == (["low", "mid", "high"], [0, 1, 2])
    assert table.label.tolist() == [0, 2, 1, 0]


@pytest.mark.parametrize(
    ("kind", "labels", "says"),
    [
        (
            "graded",
            ["low", "high", "low", "low"],
            (errors.LabelNotANumber, {"label": "high", "advice": IN_ORDER}),
        ),
        ("numbers", ["1", "n/a", "2", "3"], (errors.LabelNotANumber, {"label": "n/a"})),
        ("numbers", ["1", "007", "2", "3"], (errors.LabelNotANumber, {"label": "007"})),
        (
            "pairs",
            ["left", "win", "tie", "tie"],
            (errors.InvalidOutcome, {"label": "win", "outcomes": "left, right, tie"}),
        ),
    ],
)
def test_what_a_kind_cannot_be_is_said(kind, labels, says):
    with raises(says[0], **says[1]):
        Annotations.from_arrays(*ROWS, labels, kind=kind)
    with raises(OutOfRange, name="kind", value="number"):
        Annotations.from_arrays(*ROWS, labels, kind="number")


@pytest.mark.parametrize("kind", ["graded", "numbers", "pairs"])
def test_every_table_made_of_one_keeps_its_kind(kind):
    labels = ["left", "tie", "left", "right"] if kind == "pairs" else ["1", "2", "10", "2"]
    table = Annotations.from_arrays(["a vs b", "a vs b", "b vs c", "b vs c"], ROWS[1], labels, kind=kind)
    made = [
        table.select(items=["a vs b"]), table.subsample(1), *table.split(), Annotations.concat([table, table]),
        table.with_classes(table.classes[::-1]), dataclasses.replace(table, weight=np.ones(4)),
        pickle.loads(pickle.dumps(table)), table.as_kind(kind),
    ]  # fmt: skip
    assert {one.kind for one in made} == {kind}
    with raises(errors.DifferentLabelTypes):
        Annotations.concat([table, table.as_kind("classes")])


def test_joined_grades_and_numbers_sort_as_numbers():
    for kind, expected in (("graded", ["2", "9", "10"]), ("numbers", [2, 9, 10])):
        parts = [Annotations.from_arrays(["a"] * 2, ["x", "y"], two, kind=kind) for two in (["2", "10"], ["9", "2"])]
        assert Annotations.concat(parts).classes.tolist() == expected


def test_people_who_choose_several_classes_of_an_item_are_said():
    item, annotator = np.repeat(np.arange(50), 2), np.tile(["ann", "ben"], 50)
    label = np.where(item % 3 == 0, "x", "y")
    rows = {"item": [*item, *item[:7]], "annotator": [*annotator, *annotator[:7]], "label": [*label, *["z"] * 7]}
    assert read(pa.table(rows)).import_report.notes == [notes.SeveralLabelsPerItem(n=7)]
    assert read(pa.table({name: values[:-3] for name, values in rows.items()})).import_report.notes == []
    assert read(pa.table(rows), kind="classes").import_report.notes == []


@pytest.mark.parametrize(
    ("labels", "kind", "note"),
    [
        ([f"{k / 2}" for k in range(4)], "numbers", notes.LabelTypeGuessed(kind="numbers")),
        (list(range(31)), "numbers", notes.LabelTypeGuessed(kind="numbers")),
        (list(range(30)), "classes", None),
        (["1", "2", "3", "4", "5"], "classes", notes.LabelsMayBeGrades()),
        ([0, 1], "classes", None),
        (["a", "0.5", "1", "2"], "classes", None),
        ([f"00{k}" for k in range(40)], "classes", None),
    ],
)
def test_the_kind_is_guessed_and_said(labels, kind, note):
    n = len(labels)
    table = read(pa.table({"item": list(range(n)), "annotator": ["x"] * n, "label": labels}))
    assert table.kind == kind
    assert table.import_report.notes == ([] if note is None else [note])
    assert (
        read(pa.table({"item": list(range(n)), "annotator": ["x"] * n, "label": labels}), kind="classes").kind
        == "classes"
    )


def test_scores_that_never_repeat_are_a_column_of_labels():
    rng = np.random.default_rng(0)
    table = read(pa.table({"item": np.arange(60) // 2, "annotator": ["x", "y"] * 30, "score": rng.normal(size=60)}))
    assert (table.kind, table.n_classes) == ("numbers", 60)


def test_numbers_make_no_votes_and_no_class_method_takes_them():
    table = Annotations.from_arrays(*ROWS, [1.5, 2.5, 3.0, 2.5], kind="numbers")
    assert repr(table) == "Annotations: 4 numbers of 2 items by 2 annotators, from 1.5 to 3, 2.0 per item"
    about = table.describe()
    assert about["values"]["median"] == 2.5
    assert about["sd_within_items"] == pytest.approx(np.sqrt((0.5 + 0.125) / 2))
    for use in (table.votes, lambda: methods["consensus"]().fit(table)):
        with pytest.raises(DataError):
            use()


def test_pairs_know_their_things():
    table = Annotations.from_pairs(["b", "a", "b"], ["a", "c", "a"], ["tie", "left", "left"], context=[1, 1, 2])
    assert table.items.tolist() == ["a vs c | 1", "b vs a | 1", "b vs a | 2"]
    things, left, right = table.alternatives
    assert (things[left].tolist(), things[right].tolist()) == (["a", "b", "b"], ["c", "a", "a"])
    assert table.describe()["comparisons_per_thing"]["max"] == 3
    with raises(errors.InvalidAlternative, name="a vs c"):
        kinds.name_pair_items(["a vs c"], ["d"])
    with raises(errors.ItemNotAPair, item="a"):
        _ = Annotations.from_arrays(*ROWS, ["left"] * 4, kind="pairs").alternatives


@pytest.mark.parametrize(
    ("labels", "classes"),
    [
        (["b|a", "a", "a | b", "c"], ["a", "a|b", "c"]),
        (["b;a", "a", "a;b;b", "∅"], ["a", "a|b", "∅"]),
        (["b, a", "a", "a", "c"], ["a", "a|b", "c"]),
    ],
)
def test_sets_have_one_name_each(labels, classes):
    table = Annotations.from_arrays(*ROWS, labels, kind="sets")
    assert table.classes.tolist() == classes
    names, ticked = table.options
    assert [set(names[row]) for row in ticked] == [set(one.split("|")) - {"∅"} for one in classes]
    assert table.describe()["ticks_per_annotation"] == np.mean([ticked[code].sum() for code in table.label])


def test_one_grade_may_be_written_in_two_ways():
    table = Annotations.from_arrays(*ROWS, ["1", "1.0", "2", "10"], kind="graded")
    assert (table.classes.tolist(), table.label.tolist()) == (["1", "2", "10"], [0, 0, 1, 2])
    weighed = Annotations.from_arrays(["a"], ["x"], classes=["2", "1", "1.0"], proba=[[0.5, 0.2, 0.3]])
    assert weighed.as_kind("graded").proba.tolist() == [[0.5, 0.5]]


def test_rows_of_one_item_and_annotator_are_one_set():
    rows = ["a", "a", "a", "b", "b"], ["x", "x", "y", "x", "x"], ["p", "q", "p", "q", "q"]
    table = Annotations.from_arrays(*rows, kind="sets")
    assert table.to_arrow().to_pylist() == [
        {"item": "a", "annotator": "x", "label": "p|q"},
        {"item": "a", "annotator": "y", "label": "p"},
        {"item": "b", "annotator": "x", "label": "q"},
    ]


def test_labels_that_join_options_are_read_as_sets(tmp_path):
    path = tmp_path / "ticks.csv"
    path.write_text("item,annotator,label\n1,x,a|b\n1,y,b\n2,x,a\n2,y,a|c\n3,x,c|b\n3,y,b\n")
    table = read(path)
    assert (table.kind, table.options.names.tolist()) == ("sets", ["a", "b", "c"])
    assert table.import_report.notes == [notes.LabelTypeGuessed(kind="sets of options")]
    assert read(path, kind="classes").kind == "classes"
    path.write_text("item,annotator,label\n1,x,a/b\n1,y,yes|no\n")
    assert read(path).kind == "classes"  # no option occurs twice


def test_lists_of_labels_are_sets(tmp_path):
    path = tmp_path / "ticks.jsonl"
    path.write_text('{"item": 1, "annotator": "x", "label": ["b", "a"]}\n{"item": 1, "annotator": "y", "label": []}\n')
    table = read(path)
    assert (table.kind, table.classes[table.label].tolist()) == ("sets", ["a|b", "∅"])
    assert read(path, ticks="votes").kind == "classes"


def test_a_wide_table_of_numbers_and_questions_of_several_kinds(tmp_path):
    numbers = {"item": ["a", "b", "c"], "ann": ["0.5", "1.25", "7.5"], "bob": ["0.75", "", "7"]}
    table = read(pa.table(numbers), wide=True)
    assert (table.kind, table.n_annotators, len(table)) == ("numbers", 2, 5)
    rows = {"question": ["size", "size", "hue", "hue"], "item": [1, 2, 1, 2], "annotator": ["x"] * 4}
    found = read(pa.table(rows | {"label": ["0.5", "2.5", "red", "blue"]}))
    assert {name: one.kind for name, one in found.items()} == {"hue": "classes", "size": "numbers"}
    note = notes.LabelTypeGuessed(kind="numbers").add_subject("Question size")
    assert found["hue"].import_report.notes == [note]  # every report has those of all questions


def test_known_numbers_are_joined_by_item(tmp_path):
    table = Annotations.from_arrays([1, 1, 2, 3], ["x", "y", "x", "x"], [0.5, 1.5, 2.0, 3.0], kind="numbers")
    gold = pa.array(["2", "1", "9", "3"]), pa.array(["4.5", "", "1", "7"])
    np.testing.assert_array_equal(gold_values(table, *gold), [np.nan, 4.5, 7])
    with raises(errors.ContradictoryGold, row=0, content="numbers"):
        table.gold_values([2, 2], [1.0, 2.0])
    with raises(errors.InvalidCell, column="gold", row=0, value="high"):
        table.gold_values([2], ["high"])


def test_joined_options_are_taken_apart_on_request_and_blank_is_nothing(tmp_path):
    path = tmp_path / "ticks.csv"
    path.write_text("item,annotator,label\n1,x,a|b\n1,y,b\n2,x,a\n2,y,\n3,x,c|b\n3,y,c\n")
    table = read(path, kind="sets")
    assert table.classes[table.label].tolist() == ["a|b", "b", "a", "∅", "b|c", "c"]
    assert sorted(read(path, ticks="questions", abstain=[None])) == ["a", "b", "c"]
    assert len(read(path, ticks="votes", abstain=[None])) == 7


def test_rows_that_make_one_set_are_counted(tmp_path):
    path = tmp_path / "ticks.csv"
    path.write_text("item,annotator,label\n1,x,a\n1,x,b\n1,y,b\n")
    table = read(path, kind="sets")
    assert (len(table), table.import_report.n_rows, table.import_report.unused_counts.total()) == (2, 3, 1)


@pytest.mark.parametrize(
    ("labels", "words"),
    [
        (["3,5", "4,0"], (errors.LabelNotANumber, {"label": "3,5", "advice": DECIMAL_POINT})),
        (["50%", "70%"], (errors.LabelNotANumber, {"label": "50%", "advice": "write it without the % sign"})),
        (["1e300", "2"], (errors.NumberTooLarge, {"label": "1e300", "limit": 1e150})),
    ],
)
def test_numbers_in_another_notation_are_told_what_to_do(labels, words):
    with raises(words[0], **words[1]):
        Annotations.from_arrays([1, 2], ["a", "b"], labels, kind="numbers")
