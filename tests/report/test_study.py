"""What a report is about: frames find their items and annotators, and what does not belong together is an error."""

import numpy as np
import pyarrow as pa
import pytest

from dissensus import Annotations, Report, methods
from dissensus.exceptions import NotFitted
from dissensus.report.exceptions import EmptyFrame, FittedToOtherTable, NamesOfOtherTable, NoKeyColumn
from dissensus.report.study import (
    align_frame,
    limit_json_size,
    list_largest_shares,
    make_distinct_names,
    shorten_text,
    to_plain,
)
from dissensus.table.io.jsonl import dumps
from refused import refused
from report.reports import crowd, report


def test_frames_are_aligned_by_name_in_any_order_of_rows():
    names = np.array(["a", "b", "c"], object)
    frame = pa.table({"item": ["c", "x", "a"], "text": ["of c", "of x", "of a"]})
    assert align_frame(frame, "item", names) == {"text": ["of a", None, "of c"]}
    assert align_frame({"task": ["c", "a"], "n": [3, 1]}, "item", names) == {"n": [1, None, 3]}


def test_of_rows_with_one_name_the_first_counts():
    assert align_frame({"item": ["a", "a"], "n": [1, 2]}, "item", np.array(["a"], object)) == {"n": [1]}


@pytest.mark.parametrize(("names", "column"), [(np.array([7, 8]), ["8", "7"]), (np.array(["7", "8"], object), [8, 7])])
def test_numbers_read_as_text_are_still_found(names, column):
    assert align_frame({"item": column, "n": [8, 7]}, "item", names) == {"n": [7, 8]}


def test_a_frame_about_something_else_is_an_error():
    names = np.array(["a", "b"], object)
    with refused(NoKeyColumn, role="item", columns=("name", "text")):
        align_frame(pa.table({"name": ["a"], "text": ["x"]}), "item", names)
    with refused(NamesOfOtherTable, rows=1, role="item", name="'z'", column="item"):
        align_frame({"item": ["z"], "text": ["x"]}, "item", names)
    with refused(EmptyFrame, role="item"):
        align_frame(pa.table({"item": pa.array([], pa.string()), "text": pa.array([], pa.string())}), "item", names)


def test_a_model_of_another_table_is_an_error():
    table = crowd().annotations
    half = table.select(items=np.arange(table.n_items) < 50)
    fitted = methods["majority-vote"]().fit(half)
    with refused(FittedToOtherTable, fitted=50, items=100):
        Report(table, fitted)
    with pytest.raises(NotFitted):
        Report(table, methods["majority-vote"]())


def test_pictures_are_shown_only_where_they_are_pictures():
    table = Annotations.from_arrays(["a", "b", "c", "d"], ["x"] * 4, [0, 1, 0, 1])
    good = "data:image/png;base64,iVBORw0KGgo="
    values = [good, "data:image/svg+xml,<svg onload=alert(1)>", 'data:image/png;base64,AA==" onerror="x', "A" * 30]
    study = report(table, items={"item": table.items, "image": values})
    assert study.picture_column == "image"
    assert study.text_columns == []
    assert [study.picture(i) for i in range(4)] == [good, None, None, None]


def test_texts_are_the_columns_to_read():
    table = Annotations.from_arrays(["a", "b"], ["x", "y"], [0, 1])
    frame = {
        "item": ["a", "b"],
        "text": ["short", "words"],
        "claim": ["a claim that is long enough to be read", "another that is long enough"],
        "split": ["train" * 9, "test" * 9],
        "kind": ["x", "y"],
    }
    study = report(table, items=frame)
    assert study.text_columns == ["text", "claim"]
    assert study.texts(1) == ["words", "another that is long enough"]


def test_values_for_people_and_for_json():
    assert shorten_text("a\x00b\x1b[31m\nc" + "x" * 50, 12) == "a b [31m\ncx…"
    assert to_plain({"a": np.float64(1 / 3), "b": np.array([np.nan, 2.0]), "c": (np.int32(4), None)}) == {
        "a": 0.33333,
        "b": [None, 2.0],
        "c": [4, None],
    }


def test_names_that_are_cut_to_the_same_are_told_apart():
    assert make_distinct_names(["abcdef", "abcdeg", "x"], 4) == ["abc… #0", "abc… #1", "x"]
    assert make_distinct_names([1, 2], 4) == ["1", "2"]


def test_rows_are_taken_as_long_as_there_is_room():
    assert limit_json_size([{"a": 1}] * 9, 25) == [{"a": 1}] * (25 // len(dumps({"a": 1})))
    assert limit_json_size([], 5) == []


def test_a_bar_has_the_largest_shares_and_one_for_the_rest():
    few, many = list("abcdef"), list("abcdefghi")
    assert list_largest_shares(np.array([1.0, 0, 3, 0, 0, 0]), few) == [
        ["c", 0.75, 2],
        ["a", 0.25, 0],
    ]  # colours of the classes
    counts = np.array([5.0, 1, 4, 3, 1, 6, 0, 0, 0])
    assert list_largest_shares(counts, many) == [
        ["f", 0.3, 0],
        ["a", 0.25, 1],
        ["c", 0.2, 2],
        ["d", 0.15, 3],
        ["other", 0.1, -1],
    ]
    assert list_largest_shares(np.zeros(6), few) == []


def test_the_report_names_options_that_there_are():
    from dissensus.cli import load_command
    from dissensus.report.face import REPORT_FACE

    options = {name for parameter in load_command("aggregate").params for name in parameter.opts}
    for parameter in ("many_classes", "gold"):
        assert REPORT_FACE.parameter(parameter) in options
