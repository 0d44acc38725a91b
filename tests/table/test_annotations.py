import pickle
from collections import Counter

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dissensus import Annotations, Questions
from dissensus.exceptions import BadParameter, DataError
from dissensus.models.base import check_gold
from dissensus.table import exceptions as errors
from dissensus.table.find_columns import ColumnNames
from facts import raises, warns
from strategies import columns, identical, tables

ITEM, ANNOTATOR, LABEL = ["i2", "i1", "i2", "i2"], ["b", "a", "a", "b"], ["x", "y", "y", "x"]  # 2 items, 4 rows
SMALL = Annotations.from_arrays(ITEM, ANNOTATOR, LABEL, ["y", "x", "z"])


# The codes and both indexes, against plain loops ----------------------------------------------------------------------


@given(columns(probabilistic=False))
def test_rows_are_the_sorted_rows_of_the_input(given_columns):
    table = Annotations.from_arrays(**given_columns)
    weight = given_columns.get("weight", [1.0] * len(given_columns["item"]))
    order = {name: code for code, name in enumerate(given_columns["classes"])}
    expected = sorted(
        (i, a, order[y], w)
        for i, a, y, w in zip(
            given_columns["item"], given_columns["annotator"], given_columns["label"], weight, strict=True
        )
    )
    found = [
        (table.items[i], table.annotators[a], y, 1.0 if table.weight is None else table.weight[row])
        for row, (i, a, y) in enumerate(zip(table.item, table.annotator, table.label, strict=True))
    ]
    assert found == expected
    assert table.items.tolist() == sorted(given_columns["items"])
    assert table.annotators.tolist() == sorted(given_columns["annotators"])
    assert table.classes.tolist() == given_columns["classes"]


@given(tables())
def test_both_indexes_list_every_row_once_under_its_code(table):
    for i in range(table.n_items):
        assert (table.item[table.item_ptr[i] : table.item_ptr[i + 1]] == i).all()
    seen = []
    for a in range(table.n_annotators):
        rows = table.by_annotator[table.annotator_ptr[a] : table.annotator_ptr[a + 1]]
        assert (table.annotator[rows] == a).all()
        assert (np.diff(rows) > 0).all()
        seen += rows.tolist()
    assert sorted(seen) == list(range(len(table)))


@given(columns(), st.randoms(use_true_random=False))
def test_the_order_of_rows_changes_no_bit(given_columns, random):
    order = list(range(len(given_columns["item"])))
    random.shuffle(order)
    per_row = ("item", "annotator", "label", "weight", "proba")
    shuffled = {
        name: [value[row] for row in order] if name in per_row else value for name, value in given_columns.items()
    }
    one, other = Annotations.from_arrays(**given_columns), Annotations.from_arrays(**shuffled)
    assert identical(one, other)
    assert one.votes().tobytes() == other.votes().tobytes()


@given(tables())
def test_votes_are_summed_weights_or_probabilities(table):
    expected = np.zeros((table.n_items, table.n_classes))
    for row in range(len(table)):
        weight = 1.0 if table.weight is None else table.weight[row]
        for k in range(table.n_classes):
            share = table.proba[row, k] if table.proba is not None else float(table.label[row] == k)
            expected[table.item[row], k] += weight * share
    np.testing.assert_allclose(table.votes(), expected, rtol=0, atol=1e-12)


def test_an_item_with_very_many_rows_is_sorted_too():  # beyond the length up to which rows are sorted by insertion
    rng = np.random.default_rng(0)
    annotator, label = rng.integers(0, 90, 1000), rng.integers(0, 3, 1000)
    table = Annotations.from_arrays(np.zeros(1000, int), annotator, label)
    assert list(zip(table.annotator, table.label, strict=True)) == sorted(zip(annotator, label, strict=True))


def test_arrays_are_read_only_and_the_callers_stay_their_own():
    item, weight = np.array([0, 1, 2], np.int32), np.array([1.0, 2.0, 3.0])
    table = Annotations.from_arrays(item, item, item, weight=weight)
    for array in (
        table.item,
        table.annotator,
        table.label,
        table.item_ptr,
        table.items,
        table.weight,
        table.by_annotator,
    ):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 0
    unweighted = Annotations.from_arrays(item, item, item)
    item[0] = weight[0] = 7
    assert table.annotator.tolist() == unweighted.annotator.tolist() == [0, 1, 2]
    assert table.weight.tolist() == [1, 2, 3]


@given(tables())
def test_pickling_keeps_every_bit(table):
    assert identical(pickle.loads(pickle.dumps(table)), table)


# Labels and classes ---------------------------------------------------------------------------------------------------


def test_declared_classes_keep_their_order_and_may_have_no_label():
    assert SMALL.classes.tolist() == ["y", "x", "z"]
    assert SMALL.votes().tolist() == [[1, 0, 0], [1, 2, 0]]


def test_classes_are_the_sorted_labels_where_none_are_declared():
    assert Annotations.from_arrays(ITEM, ANNOTATOR, LABEL).classes.tolist() == ["x", "y"]
    assert Annotations.from_arrays([1], [2], [True]).classes.tolist() == [True]


def test_integer_labels_are_codes_into_declared_text_classes():
    table = Annotations.from_arrays([0, 1, 2], [0, 0, 0], [2, 0, 0], ["no", "maybe", "yes"])
    assert table.classes[table.label].tolist() == ["yes", "no", "no"]
    with raises(errors.LabelOutsideClasses, column="label", n_bad=1, n_rows=2, row=1, value=3, n_classes=3):
        Annotations.from_arrays([0, 1], [0, 0], [2, 3], ["no", "maybe", "yes"])


def test_classes_can_be_a_number_or_anything_that_yields_names():
    for classes in (3, np.int64(3), iter([0, 1, 2])):
        assert Annotations.from_arrays([0], [0], [1], classes).n_classes == 3
    table = Annotations.from_arrays([0], [0], proba=[[0.5, 0.5]], classes=(c for c in "yx"))
    assert table.classes.tolist() == ["y", "x"]


def test_a_label_outside_the_declared_classes_says_how_many_where_and_which():
    with raises(errors.LabelOutsideClasses, column="label", n_bad=2, n_rows=4, row=1, value="y", n_classes=2):
        Annotations.from_arrays(ITEM, ANNOTATOR, LABEL, ["x", "z"])


def test_abstentions_are_no_class_and_leave_items_and_annotators():
    table = Annotations.from_arrays(
        ["a", "b", "c"], ["p", "q", "r"], ["yes", "can't say", None], abstain=["can't say", None]
    )
    assert table.classes.tolist() == ["yes"]
    assert (table.n_annotations, table.n_items, table.n_annotators) == (1, 3, 3)


@pytest.mark.parametrize("abstain", [-1, [-1], ["-1"], [-1, None], np.array([-1])])
def test_integer_abstentions_may_be_given_in_several_ways(abstain):
    for label in ([-1, 1, 0], pa.array([-1, 1, 0]), [-1, 1, 0.0]):
        assert Annotations.from_arrays([1, 2, 3], [1, 2, 3], label, abstain=abstain).classes.tolist() == [0, 1]


def test_an_abstention_of_another_kind_than_the_labels_never_occurs():
    assert len(Annotations.from_arrays([1, 2], [1, 2], [0, 1], abstain="n/a")) == 2


def test_rows_that_all_abstain_leave_a_table_without_rows():
    for label in ([None, None], ["?", "?"]):
        table = Annotations.from_arrays([1, 2], ["p", "q"], label, abstain=[None, "?"])
        assert (len(table), table.n_items, table.n_annotators, table.n_classes) == (0, 2, 2, 0)


def test_a_missing_label_is_an_error_unless_it_is_declared():
    with raises(errors.MissingLabels, column="label", n_bad=1, n_rows=3, row=2, value=None):
        Annotations.from_arrays([1, 2, 3], [1, 2, 3], ["?", "a", ""], abstain="?")
    with raises(errors.MissingLabels, column="label", n_bad=1, n_rows=2, row=1, value=None):
        Annotations.from_arrays([1, 2], [1, 2], [0, None])


def test_ids_that_differ_only_in_type_are_an_error():
    with raises(errors.MixedTypes, column="annotator", example_by_type={"str": (0, "1"), "int": (1, "1")}):
        Annotations.from_arrays([1, 2], ["1", 1], [0, 1])


def test_no_rows_make_an_empty_table():
    table = Annotations.from_arrays([], [], [])
    assert (len(table), table.n_items, table.n_classes) == (0, 0, 0)
    assert table.votes().shape == (0, 0)
    assert table.describe()["annotations"] == 0


def test_columns_of_different_length_are_an_error():
    with raises(errors.UnequalLengths, column="label", n=1, other_column="item", n_other=2):
        Annotations.from_arrays([1, 2], [1, 2], [1])


def test_an_item_outside_the_declared_ones_is_an_error():
    with raises(errors.UndeclaredName, role="item", name="i2"):
        Annotations.from_arrays(ITEM, ANNOTATOR, LABEL, items=["i1"])


# Weights and probabilities --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("weight", "message"),
    [
        ([1, -2], (errors.InvalidRows, {"column": "weight", "n_bad": 1, "n_rows": 2, "row": 1, "value": -2.0})),
        ([np.nan, 1], (errors.InvalidRows, {"column": "weight", "n_bad": 1, "n_rows": 2, "row": 0})),
        ([1, "much"], (errors.InvalidCell, {"column": "weight", "row": 1, "value": "much"})),
    ],
)
def test_bad_weights_say_where(weight, message):
    with raises(message[0], **message[1]):
        Annotations.from_arrays([1, 2], [1, 2], [0, 1], weight=weight)


@pytest.mark.parametrize(
    ("proba", "message"),
    [
        (
            [[0.5, 0.5], [0.5, 0.6]],
            (
                errors.ProbabilitiesNotNormalised,
                {"column": "proba", "n_bad": 1, "n_rows": 2, "row": 1, "value": [0.5, 0.6], "total": 1.1},
            ),
        ),
        (
            [[0.5, 0.5], [-0.5, 1.5]],
            (errors.InvalidRows, {"column": "proba", "n_bad": 1, "n_rows": 2, "row": 1, "value": [-0.5, 1.5]}),
        ),
        (
            [[np.nan, 0.5], [0.5, 0.5]],
            (errors.InvalidRows, {"column": "proba", "n_bad": 1, "n_rows": 2, "row": 0}),
        ),
        (
            [0.5, 0.5],
            (
                errors.WrongColumn,
                {
                    "column": "proba",
                    "expected": "one row per annotation and one column per class",
                    "description": "shape (2,)",
                },
            ),
        ),
        (
            [[0.5, 0.2, 0.3], [1, 0, 0]],
            (errors.WrongColumn, {"column": "proba", "expected": "2 columns", "description": "3"}),
        ),
    ],
)
def test_bad_probabilities_say_where(proba, message):
    with raises(message[0], **message[1]):
        Annotations.from_arrays([1, 2], [1, 2], proba=proba, classes=["n", "y"])


def test_probabilities_that_nearly_sum_to_one_are_made_to():
    table = Annotations.from_arrays([1], [1], proba=[[1 / 3, 1 / 3, 0.33333]])
    assert table.proba.sum() == pytest.approx(1, abs=1e-15)


# Frames ---------------------------------------------------------------------------------------------------------------

FRAME = {"task": ITEM, "worker": ANNOTATOR, "label": LABEL}  # crowd-kit's names
FRAMES = {
    "pandas": pd.DataFrame,
    "polars": pl.DataFrame,
    "polars, lazy": pl.LazyFrame,
    "Arrow": pa.table,
    "Arrow, in chunks": lambda data: pa.concat_tables([pa.table(data).slice(0, 1), pa.table(data).slice(1)]),
    "DuckDB": lambda data: duckdb.from_arrow(pa.table(data)),
}


@pytest.mark.parametrize("kind", FRAMES)
def test_every_kind_of_frame_gives_the_same_table(kind):
    assert identical(Annotations.from_frame(FRAMES[kind](FRAME), classes=["y", "x", "z"]), SMALL)


def test_columns_have_synonyms_in_any_case_with_or_without_id():
    found = ColumnNames().resolve(["Task_ID", "rater", "Answer", "weight"])
    assert found == {"item": "Task_ID", "annotator": "rater", "label": "Answer", "weight": "weight"}


def test_our_own_name_wins_over_a_synonym():
    assert ColumnNames().resolve(["id", "item", "worker", "label"])["item"] == "item"


def test_an_annotation_id_is_no_label():
    with raises(
        errors.RoleColumnMissing,
        role="label",
        columns=("item", "worker", "annotation_id"),
        columns_of_roles={"item": "'item'", "annotator": "'worker'"},
    ):
        ColumnNames().resolve(["item", "worker", "annotation_id"])


def test_two_synonyms_have_to_be_told_apart():
    with raises(errors.AmbiguousColumns, role="item", columns=("task", "id")):
        ColumnNames().resolve(["task", "id", "worker", "label"])


def test_a_column_that_is_named_for_one_role_plays_no_other():
    found = ColumnNames(item="question").resolve(["question", "worker", "label"])
    assert found == {"item": "question", "annotator": "worker", "label": "label"}


def test_a_missing_column_lists_those_that_are_there():
    with raises(
        errors.AnnotatorColumnMissing,
        role="annotator",
        columns=("task", "label"),
        columns_of_roles={"item": "'task'", "label": "'label'"},
    ):
        Annotations.from_frame(pa.table({"task": [1], "label": [1]}))
    with raises(errors.UnknownColumn, name="who", role="annotator", columns=("task", "label")):
        Annotations.from_frame(pa.table({"task": [1], "label": [1]}), annotator="who")


def test_columns_of_probabilities_are_found_and_ordered_by_classes():
    frame = pa.table({"item": [1, 2], "annotator": [1, 1], "p_n": [0.25, 1], "p_y": [0.75, 0]})
    table = Annotations.from_frame(frame, classes=["y", "n"])
    assert table.proba.tolist() == [[0.75, 0.25], [0, 1]]
    with raises(errors.UnknownColumn, name="maybe", columns=("n", "y")):
        Annotations.from_frame(frame, classes=["y", "maybe"])


def test_several_questions_in_one_table_are_an_error():
    with raises(errors.SeveralQuestions, column="question"):
        Annotations.from_frame(pa.table({**FRAME, "question": list("abab")}))


def test_a_pandas_column_of_mixed_kinds_is_an_error():
    with raises(errors.MixedTypes, column="task", example_by_type={"str": (0, "a"), "int": (1, "1")}):
        Annotations.from_frame(pd.DataFrame({**FRAME, "task": ["a", 1, "b", 2]}))


# Matrices and counts --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("matrix", "missing"),
    [
        ([[0, -1, 1], [1, 1, -1]], -1),
        ([[0, np.nan, 1], [1, 1, np.nan]], -1),
        (np.array([[0, None, 1], [1, 1, None]], object), -1),
        ([["0", "", "1"], ["1", "1", ""]], ""),
    ],
)
def test_a_matrix_has_a_row_per_cell_that_is_not_missing(matrix, missing):
    table = Annotations.from_matrix(matrix, missing=missing, annotators=["r", "p", "q"])
    assert (table.n_items, table.n_annotators, len(table)) == (2, 3, 4)
    assert table.annotators.tolist() == ["p", "q", "r"]
    names = zip(
        table.item.tolist(), table.annotators[table.annotator], table.classes[table.label].astype(int), strict=True
    )
    assert list(names) == [(0, "q", 1), (0, "r", 0), (1, "p", 1), (1, "r", 1)]


def test_a_matrix_keeps_items_without_a_label_and_checks_its_names():
    assert Annotations.from_matrix([[-1, -1, -1], [0, 1, -1]]).n_items == 2
    with raises(errors.WrongColumn, column="items", expected="2 different names"):
        Annotations.from_matrix([[0, 1], [1, 1]], items=["a", "b", "c"])


def test_counts_become_rows_of_one_anonymous_annotator():
    table = Annotations.from_counts(["b", "a", "b"], ["x", "y", "y"], [2, 1, 3], items=["a", "b", "c"])
    assert table.annotators.tolist() == ["anonymous"]
    assert table.votes().tolist() == [[0, 1], [2, 3], [0, 0]]


@pytest.mark.parametrize(
    ("count", "message"),
    [
        ([1, -1], (errors.InvalidRows, {"column": "column 'count'", "n_bad": 1, "n_rows": 2, "row": 1, "value": -1.0})),
        ([0.5, 1], (errors.InvalidRows, {"column": "column 'count'", "n_bad": 1, "n_rows": 2, "row": 0, "value": 0.5})),
        ([1], (errors.UnequalLengths, {"column": "count", "n": 1, "other_column": "item", "n_other": 2})),
    ],
)
def test_counts_that_are_not_whole_or_too_few_are_an_error(count, message):
    with raises(message[0], **message[1]):
        Annotations.from_counts(["a", "b"], ["x", "y"], count)


# Soft labels, description, gold ---------------------------------------------------------------------------------------


def test_soft_labels_of_five_votes_of_five_over_twelve_classes():
    table = Annotations.from_arrays([0] * 5, range(5), [3] * 5, 12)
    assert table.soft_labels()[0, 3] == 1
    assert table.soft_labels("softmax")[0, 3] == pytest.approx(0.931, abs=5e-4)  # SPEC.md, section 1
    assert table.soft_labels("smoothed")[0, 3] == pytest.approx(6 / 17)
    for kind in ("normalized", "softmax", "smoothed"):
        np.testing.assert_allclose(table.soft_labels(kind).sum(axis=1), 1)


@given(tables(), st.sampled_from(["normalized", "softmax", "smoothed"]))
def test_soft_labels_sum_to_one_and_are_uniform_without_votes(table, kind):
    soft = table.soft_labels(kind)
    np.testing.assert_allclose(soft.sum(axis=1), 1, rtol=1e-12)
    unseen = table.votes().sum(axis=1) == 0
    np.testing.assert_allclose(soft[unseen], 1 / table.n_classes)


def test_soft_labels_refuse_what_makes_no_sense():
    for bad in ({"kind": "hard"}, {"kind": "softmax", "temperature": 0}, {"kind": "smoothed", "pseudocount": -1}):
        with pytest.raises(BadParameter):
            SMALL.soft_labels(**bad)


def test_description_counts_pairs_repeats_and_agreement():
    facts = Annotations.from_arrays(ITEM, ANNOTATOR, LABEL, items=["i0", "i1", "i2"]).describe()
    assert facts["annotations"] == 4
    assert facts["items_without_annotation"] == 1
    assert facts["repeated_pairs"] == 1  # b labelled i2 twice
    assert facts["pairwise_agreement"] == 0  # i2: b says x twice, and that does not count; the other y
    assert facts["unanimous_items"] == 0  # of one item with two annotators or more
    assert facts["class_shares"] == {"x": 0.5, "y": 0.5}


def test_description_of_weights_that_are_all_zero():
    assert Annotations.from_arrays([1], [1], [0], weight=[0]).describe()["unanimous_items"] is None


@given(tables())
def test_every_table_can_be_described_and_shown(table):
    assert table.describe()["annotations"] == len(table)
    assert f"{len(table)}" in repr(table)
    assert "<table>" in table._repr_html_()


def test_long_class_names_are_cut_in_the_repr():
    assert len(repr(Annotations.from_arrays([1], [1], ["y" * 10**6]))) < 200


def test_gold_is_aligned_with_items_and_minus_one_where_unknown():
    gold = SMALL.gold_codes(["i2", "elsewhere", "i1"], ["z", "x", None])
    assert gold.tolist() == [-1, 2]


def test_gold_that_contradicts_itself_or_names_another_class_is_an_error():
    with raises(errors.ContradictoryGold, item="i2", row=0, content="labels"):
        SMALL.gold_codes(["i2", "i2"], ["x", "z"])
    with raises(
        errors.BadGoldLabels, column="gold", n_bad=1, n_rows=2, row=2, value="cat", n_classes=3, kind="classes"
    ):
        SMALL.gold_codes(["i1", "i1", "i2"], ["x", None, "cat"])


# Parts and joins ------------------------------------------------------------------------------------------------------


@given(tables(), st.randoms(use_true_random=False))
def test_select_keeps_the_rows_of_the_items_and_annotators_asked_for(table, random):
    items = random.sample(table.items.tolist(), random.randint(1, table.n_items))
    annotators = random.sample(table.annotators.tolist(), random.randint(1, table.n_annotators))
    part = table.select(items=items, annotators=annotators)
    assert part.items.tolist() == sorted(items)
    assert part.annotators.tolist() == sorted(annotators)
    assert part.classes is table.classes

    def rows(t):
        return Counter(zip(t.items[t.item].tolist(), t.annotators[t.annotator].tolist(), t.label.tolist(), strict=True))

    kept = {row: n for row, n in rows(table).items() if row[0] in items and row[1] in annotators}
    assert rows(part) == kept


def test_select_by_rows_and_by_what_is_not_there():
    assert SMALL.select(rows=[0, 2]).n_annotations == 2
    assert SMALL.select(rows=np.array([True, False, False, False])).n_annotations == 1
    with raises(errors.WrongColumn, column="rows", expected="a mask of 4", description="1"):
        SMALL.select(rows=[True])
    with raises(errors.NamesOutsideTable, argument="annotators", n_missing=1, n=2, name="nobody"):
        SMALL.select(annotators=["a", "nobody"])


@given(tables(), st.integers(1, 3), st.integers(0, 5))
def test_subsample_leaves_at_most_that_many_per_item(table, redundancy, seed):
    part = table.subsample(redundancy, seed)
    before, after = np.diff(table.item_ptr), np.diff(part.item_ptr)
    assert after.tolist() == np.minimum(before, redundancy).tolist()
    assert identical(part, table.subsample(redundancy, seed))


@given(tables(), st.sampled_from(["item", "annotation"]), st.floats(0.1, 0.9))
def test_split_parts_join_to_the_whole(table, by, share):
    parts = table.split(share, by=by)
    assert sum(map(len, parts)) == len(table)
    assert identical(Annotations.concat(parts), table)


def test_split_and_subsample_refuse_what_makes_no_sense():
    for call in (lambda: SMALL.split(1.0), lambda: SMALL.split(by="rows"), lambda: SMALL.subsample(0)):
        with pytest.raises(BadParameter):
            call()


def test_concat_unites_names_and_fills_in_weights_and_probabilities():
    one = Annotations.from_arrays(["a"], ["p"], ["y"], weight=[2])
    other = Annotations.from_arrays(["b", "c", "a"], ["p", "q", "p"], proba=np.eye(2)[[0, 1, 1]], classes=["n", "y"])
    both = Annotations.concat([one, other])
    assert both.classes.tolist() == ["n", "y"]
    assert both.items.tolist() == ["a", "b", "c"]
    assert both.votes().tolist() == [[0, 3], [1, 0], [0, 1]]


def test_concat_of_text_and_integer_names_is_an_error():
    with raises(errors.DifferentNameTypes, names="items", type="text", name="i1", other_type="integers"):
        Annotations.concat([SMALL, Annotations.from_arrays([1], ["a"], ["x"])])
    with raises(errors.NoTablesToJoin):
        Annotations.concat([])


def test_rows_in_other_classes():
    table = SMALL.with_classes(np.array(["x", "y"], object))
    assert table.classes[table.label].tolist() == SMALL.classes[SMALL.label].tolist()
    with raises(errors.LabelUnknownToModel, column="label", n_bad=2, n_rows=4, row=0, value="y", n_classes=1):
        SMALL.with_classes(np.array(["x"], object))


# Questions ------------------------------------------------------------------------------------------------------------


def test_questions_share_items_and_annotators_and_have_their_own_classes():
    tables = Questions.from_arrays(["q2", "q1", "q1"], [1, 1, 2], ["a", "b", "a"], ["x", "n", "y"], weight=[1, 2, 3])
    assert list(tables) == ["q1", "q2"]
    assert [t.classes.tolist() for t in tables.values()] == [["n", "y"], ["x"]]
    assert [t.items.tolist() for t in tables.values()] == [[1, 2], [1, 2]]
    assert tables["q1"].weight.tolist() == [2, 3]
    assert "q2: Annotations: 1 weighted" in repr(tables)


def test_questions_may_declare_the_same_classes_for_all():
    tables = Questions.from_arrays(["q1", "q2"], [1, 1], ["a", "b"], ["n", "?"], (c for c in "yn"), abstain="?")
    assert [t.classes.tolist() for t in tables.values()] == [["y", "n"]] * 2
    assert [len(t) for t in tables.values()] == [1, 0]


def test_ticks_are_yes_and_no_for_everybody_who_ticked_anything():
    tables = Questions.from_ticks(["red", "blue", "red"], ["i", "i", "j"], ["a", "b", "a"])
    assert tables["red"].votes().tolist() == [[1, 1], [0, 1]]
    assert tables["blue"].votes().tolist() == [[1, 1], [1, 0]]


def test_to_classes_moves_probabilities():
    table = Annotations.from_arrays([1], [1], proba=[[0.2, 0.8]], classes=["b", "a"])
    assert table.with_classes(np.array(["a", "b", "c"], object)).proba.tolist() == [[0.8, 0.2, 0.0]]


def test_strided_and_foreign_arrays_are_read_as_what_they_hold():
    codes = np.array([[0, 9, 1, 9], [0, 9, 1, 9]], np.int32)
    made = Annotations(
        codes[0, ::2], codes[1, ::2].astype(np.int8), np.array([0, 1, 2]), np.arange(2), np.arange(2), np.arange(2)
    )
    assert made.annotator.flags.c_contiguous
    assert made.annotator.tolist() == [0, 1]
    assert Annotations.from_arrays(np.array([1, 2, 3], ">i4"), [1, 1, 1], [0, 1, 0]).items.tolist() == [1, 2, 3]


def test_a_pickled_table_is_read_only_too():
    table = pickle.loads(pickle.dumps(Annotations.from_arrays([1, 2], [1, 1], [0, 1])))
    assert not table.label.flags.writeable
    assert table.item.tolist() == [0, 1]


@pytest.mark.parametrize("rows", [[-1], [99], [0.5]])
def test_rows_that_are_not_there_are_an_error(rows):
    with raises(errors.WrongColumn, column="rows", expected="numbers from 0 to 1, or a mask"):
        Annotations.from_arrays([1, 2], [1, 1], [0, 1]).select(rows=rows)


def test_doubled_names_of_a_matrix_and_endless_counts_are_errors():
    with raises(errors.WrongColumn, column="items", expected="2 different names"):
        Annotations.from_matrix([[0, 1], [1, 1]], items=["x", "x"])
    with raises(errors.InvalidRows, column="column 'count'", n_bad=1, n_rows=1, row=0):
        Annotations.from_counts(["a"], ["x"], [np.inf])


def test_abstentions_beside_probabilities_are_an_error():
    with raises(errors.AbstainWithProba):
        Annotations.from_arrays([1], [1], proba=[[0.5, 0.5]], abstain=[0])


def test_a_question_column_that_holds_the_items_own_text_is_doubted():
    with warns(errors.QuestionPerItem, n_items=3):
        Questions.from_arrays(["why?", "why?", "how?", "who?"], [1, 1, 2, 3], [1, 2, 1, 1], [0, 1, 0, 1])


@given(columns())
def test_agreement_with_a_posterior_is_the_weight_of_labels_that_are_right(given_columns):
    table = Annotations.from_arrays(**given_columns)
    posterior = np.random.default_rng(0).dirichlet(np.ones(table.n_classes), table.n_items)
    hits, total = np.zeros(table.n_annotators), np.zeros(table.n_annotators)
    for row, (i, a, k) in enumerate(zip(table.item, table.annotator, table.label, strict=True)):
        weight = 1.0 if table.weight is None else table.weight[row]
        total[a] += weight
        given_label = np.eye(table.n_classes)[k] if table.proba is None else table.proba[row]
        hits[a] += weight * given_label @ posterior[i]
    for found, expected in zip(table.count_correct_labels(posterior), (hits, total), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-12)


# Masked arrays, and codes out of range --------------------------------------------------------------------------------


HIDDEN = np.ma.masked_equal([0, 1, -99999999, 1], -99999999)


@pytest.mark.parametrize("hidden", [HIDDEN, HIDDEN.astype(float), HIDDEN.astype(object), [0, 1, np.ma.masked, 1]])
def test_a_masked_label_is_a_missing_label(hidden):
    """Its value was once a code: an address far outside every array."""
    Annotations.from_arrays([0, 0, 1, 1], [0, 1, 0, 1], [0, 1, 0, 1])
    with raises(errors.MissingLabels, column="label", n_bad=1, n_rows=4, row=2, value=None):
        Annotations.from_arrays([0, 0, 1, 1], [0, 1, 0, 1], hidden)
    table = Annotations.from_arrays([0, 0, 1, 1], [0, 1, 0, 1], hidden, abstain=[None])
    assert identical(table, Annotations.from_arrays([0, 0, 1], [0, 1, 1], [0, 1, 1]))


def test_a_masked_item_weight_or_probability_is_missing():
    rows = {"item": [0, 0, 1, 1], "annotator": [0, 1, 0, 1], "label": [0, 1, 0, 1]}
    for name, value, error in (
        ("item", HIDDEN, errors.MissingNames),
        ("annotator", HIDDEN, errors.MissingNames),
        ("weight", HIDDEN, errors.InvalidRows),
        ("proba", np.ma.masked_equal([[0, 1], [1, 0], [7, 1], [0, 1]], 7), errors.InvalidRows),
    ):
        with raises(error, column=name, n_bad=1, n_rows=4, row=2):
            Annotations.from_arrays(**rows | {name: value})


def test_a_mask_empties_a_cell_of_a_matrix_and_a_known_class():
    matrix = np.ma.masked_equal([[0, 1, 5], [5, 1, 1]], 5)
    assert identical(Annotations.from_matrix(matrix), Annotations.from_matrix([[0, 1, -1], [-1, 1, 1]]))
    table = Annotations.from_matrix(matrix)
    gold = check_gold(np.ma.masked_equal([1, 0], 0), table)
    assert gold.tolist() == [1, -1]
    assert table.gold_codes([0, 1], np.ma.masked_equal([1, 0], 0)).tolist() == [1, -1]
    assert len(table.select(rows=np.ma.masked_equal([0, 1, 3], 1))) == 2
    assert len(table.select(rows=np.ma.array([True, True, False, False], mask=[0, 1, 0, 0]))) == 1


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("item", [0, 0, 2, 1]), ("item", [0, 0, -1, 1]), ("annotator", [0, 1, 5, 0]), ("annotator", [0, 1, -1, 0]),
        ("annotator", [0, 1, 2**32, 0]), ("label", [0, 1, 2, 0]), ("label", [0, 1, 256, 0]), ("label", [0.0, 1, 0, 0]),
        ("label", [[0, 1, 0, 0]]), ("weight", [1.0, 1.0]), ("weight", [[1.0] * 4]),
        ("annotator", [0, 1]), ("label", [0, 1, 0]),
    ],
)  # fmt: skip
@pytest.mark.parametrize("times", [1, 40_000])
def test_no_table_holds_codes_that_nobody_checked(field, value, times):
    codes = {"item": [0, 0, 1, 1], "annotator": [0, 1, 1, 0], "label": [0, 1, 0, 0]}
    given_codes = {name: np.tile(np.asarray(one), times) for name, one in (codes | {field: value}).items()}
    names = {name: np.array(["x", "y"], object) for name in ("items", "annotators", "classes")}
    with pytest.raises((errors.CodeOutsideNames, errors.WrongColumn)) as caught:
        Annotations.from_codes(**given_codes, **names)
    assert getattr(caught.value, "name", None) or caught.value.column == field


@pytest.mark.parametrize(
    ("field", "value"),
    [("annotator", [0, 1, 9, 0]), ("label", [0, 1]), ("item_ptr", [0, 3, 2, 4]), ("item_ptr", [0, 4, 9])],
)
def test_a_table_is_checked_once_unpickled(field, value):
    table = Annotations.from_arrays([0, 0, 1, 1], [0, 1, 0, 1], [0, 1, 0, 1])
    forged = object.__new__(Annotations)
    with pytest.raises((errors.CodeOutsideNames, errors.WrongColumn, errors.InvalidItemPointers)) as caught:
        forged.__setstate__(vars(table) | {field: np.array(value)})
    assert str(caught.value).startswith(field)


@pytest.mark.parametrize(
    ("keyword", "value", "error"),
    [
        ("weight", [[1.0], [2.0]], DataError), ("weight", [[1.0, 2.0], [1.0]], DataError), ("weight", 3, DataError),
        ("weight", pa.array([[1.0, 2.0], [1.0]]), DataError), ("weight", object(), DataError),
        ("classes", 3.5, BadParameter), ("classes", True, BadParameter), ("classes", -1, BadParameter),
        ("classes", 10**12, BadParameter), ("classes", "ab", BadParameter), ("classes", object(), BadParameter),
        ("abstain", object(), BadParameter), ("items", 5, DataError), ("annotators", object(), DataError),
        ("proba", [[1.0, "a"], [0, 1]], DataError), ("proba", [[1.0, 0], [1]], DataError), ("proba", 4, DataError),
        ("label", np.array([1 + 2j, 3]), DataError), ("label", np.zeros(2, "V8"), DataError), ("label", 7, DataError),
        ("item", None, DataError), ("annotator", None, DataError),
    ],
)  # fmt: skip
def test_a_keyword_of_a_wrong_type_is_our_error(keyword, value, error):
    rows = {"item": [0, 1], "annotator": [0, 1], "label": [0, 1]}
    with pytest.raises(error) as raised:
        Annotations.from_arrays(**rows | {keyword: value})
    assert keyword.rstrip("s") in str(raised.value)


@pytest.mark.parametrize("most", [10**12, 10**6])
def test_counts_far_beyond_the_size_of_what_was_given_are_an_error(most):
    with raises(errors.TooManyVotes, n_votes=most + 1, limit=1_000_000):
        Annotations.from_counts([0, 1], [0, 1], [1, most])
    assert len(Annotations.from_counts([0] * 1001, [0] * 1001, [0] * 1000 + [1_000_001])) == 1_000_001


@pytest.mark.parametrize("weight", [1e300, 1e-300, 2e9, 5e-324])
def test_weights_whose_products_leave_the_range_of_numbers_are_refused(weight):
    with raises(errors.ExtremeWeights, column="weight", n_bad=1, n_rows=2, row=1, low=1e-09, high=1000000000.0):
        Annotations.from_arrays([0, 1], [0, 1], [0, 1], weight=[1.0, weight])
    assert Annotations.from_arrays([0, 1], [0, 1], [0, 1], weight=[0.0, 1e9]).weight.tolist() == [0.0, 1e9]


def test_a_row_of_weight_0_is_nobody_s_label():
    table = Annotations.from_arrays(
        ["a", "a", "a", "b", "c", "c"], ["x", "x", "y", "x", "x", "z"], [0, 1, 0, 1, 1, 0], weight=[1, 1, 0, 0, 1, 2]
    )
    assert table.annotators_per_item.tolist() == [1, 0, 2]
    assert table.describe()["repeated_pairs"] == 1
