"""Comparisons of two things, as arena logs, Elo files and other tables have them."""

from __future__ import annotations

import pyarrow as pa
import pytest

from dissensus import read
from dissensus.exceptions import DataError, MissingColumn
from dissensus.table import exceptions as errors
from facts import raises


def outcomes(table):
    things, left, right = table.alternatives
    return sorted(
        (things[left[i]], things[right[i]], table.annotators[a], table.classes[k])
        for i, a, k in zip(table.item, table.annotator, table.label, strict=True)
    )


@pytest.mark.parametrize(
    ("columns", "keywords"),
    [
        (
            {"model_a": ["x", "y"], "model_b": ["y", "z"], "winner": ["model_a", "tie (bothbad)"], "judge": ["j", "k"]},
            {},
        ),
        ({"left": ["x", "y"], "right": ["y", "z"], "preference": ["A", "draw"], "annotator": ["j", "k"]}, {}),
        (
            {
                "left": ["x", "y"],
                "right": ["y", "z"],
                "winner": ["x", "tie"],
                "judge": ["j", "k"],
                "prompt": ["p", "p"],
            },
            {},
        ),
        (
            {"one": ["x", "y"], "two": ["y", "z"], "said": ["left", "neither"], "who": ["j", "k"]},
            {"item": "one,two", "label": "said", "annotator": "who", "kind": "pairs"},
        ),
    ],
    ids=["arena", "left and right", "by name", "named"],
)
def test_a_log_of_comparisons(columns, keywords):
    table = read(pa.table(columns), **keywords)
    assert table.kind == "pairs"
    assert outcomes(table) == [("x", "y", "j", "left"), ("y", "z", "k", "tie")]
    assert ("context" in table.import_report.columns) == ("prompt" in columns)


def test_a_table_that_we_wrote_is_read_back():
    table = read(pa.table({"a": ["x", "y"], "b": ["y", "z"], "winner": ["a", "tie"], "judge": ["j", "k"]}))
    assert outcomes(read(table.to_arrow(), kind="pairs")) == outcomes(table)


def test_an_elo_file_has_winners_and_losers():
    table = read(pa.table({"winner": ["x", "y"], "loser": ["y", "z"]}))
    assert outcomes(table) == [("x", "y", "anonymous", "left"), ("y", "z", "anonymous", "left")]


def test_verdicts_that_name_nobody_are_left_out_or_renamed():
    log = pa.table({"a": ["x"] * 4, "b": ["y"] * 4, "judge": list("pqrs"), "winner": ["A", "N/A", None, "y"]})
    found = read(log, abstain=["N/A", ""])
    assert outcomes(found) == [("x", "y", "p", "left"), ("x", "y", "s", "right")]
    assert found.annotators.tolist() == list("pqrs")
    assert "2 rows without an answer" in found.import_report.describe_unused()
    assert outcomes(read(log, abstain=[None], map={"N/A": "tie"}))[1] == ("x", "y", "q", "tie")
    with raises(errors.MissingLabels, column="label", n_bad=1, n_rows=4, row=2, value=None):
        read(log, abstain="N/A")


@pytest.mark.parametrize(
    ("columns", "error", "says"),
    [
        (
            {"a": ["x"], "b": ["y"], "winner": ["perhaps"]},
            DataError,
            (errors.InvalidOutcome, {"label": "perhaps", "outcomes": "left, right, tie"}),
        ),
        (
            {"a": ["x"], "b": ["x"], "winner": ["a"]},
            DataError,
            (
                errors.InvalidRows,
                {"column": "'a', 'b', 'winner'", "n_bad": 1, "n_rows": 1, "row": 0, "value": "x"},
            ),
        ),
        (
            {"a vs": ["x"], "c": ["y"], "winner": ["a"]},
            MissingColumn,
            (errors.NoPairColumns, {"columns": ("a vs", "c", "winner")}),
        ),
        ({"a": ["x vs z"], "b": ["y"], "winner": ["a"]}, DataError, (errors.InvalidAlternative, {"name": "x vs z"})),
    ],
)
def test_what_is_no_comparison_is_said(columns, error, says):
    with raises(says[0], **says[1]):
        read(pa.table(columns), kind="pairs")


def test_a_column_that_is_not_there_is_said():
    columns = {"a": ["x"], "b": ["y"], "winner": ["a"]}
    with raises(errors.UnknownColumn, name="c", role="right", columns=("a", "b", "winner")):
        read(pa.table(columns), item="a,c", kind="pairs")
    with raises(errors.UnknownColumn, name="c", role="item", columns=("a", "b", "winner")):
        read(pa.table(columns), item="a,c")
