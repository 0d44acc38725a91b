"""`read`, `read_frame` and `read_gold`: what holds for every format, and for frames."""

import gzip
import tempfile
from pathlib import Path

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given

from dissensus import Annotations, Questions
from dissensus.exceptions import DataError, UnknownClass, UnreadableFile
from dissensus.table import exceptions as errors
from dissensus.table import io
from dissensus.table.io.readers import readers
from dissensus.table.notes import RepeatedRows
from facts import raises, warns
from strategies import columns, identical

TABLE = pa.table({"item": ["b", "a", "b"], "annotator": ["p", "q", "q"], "label": ["x", "y", "y"]})


def write_arrow(table, path):
    new = pa.ipc.new_stream if path.suffix == ".arrow" else pa.ipc.new_file  # streams, as the hub writes them
    with pa.OSFile(str(path), "wb") as file, new(file, table.schema) as writer:
        writer.write_table(table)


WRITERS = {
    "csv": io.write_frame,
    "csv.gz": io.write_frame,
    "parquet": io.write_frame,
    "jsonl": io.write_frame,
    "jsonl.gz": io.write_frame,
    "feather": write_arrow,
    "arrow": write_arrow,
    "tsv": lambda table, path: path.write_text(
        "\n".join(
            "\t".join(map(str, row)) for row in [table.column_names, *zip(*table.to_pydict().values(), strict=True)]
        )
    ),
    "json": lambda table, path: path.write_text(io.dumps(table.to_pylist(), indent=1)),
}


def read_back(table, suffix, **options):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"table.{suffix}"
        WRITERS[suffix](table, path)
        return io.read(path, **options)


@pytest.mark.parametrize("suffix", [s for s in WRITERS if s != "tsv"])  # the test's own writer of that quotes nothing
@given(columns())
def test_a_table_that_is_written_reads_back_the_same(suffix, given_columns):
    table = Annotations.from_arrays(**given_columns)
    options = {"classes": given_columns["classes"]}
    if table.proba is not None:
        options["proba"] = {name: f"p_{name}" for name in given_columns["classes"]}
    found = read_back(table.to_arrow(), suffix, **options)
    expected = {
        "item": table.items[table.item],
        "annotator": table.annotators[table.annotator],
        "label": table.classes[table.label],
    }
    if suffix.startswith("csv"):  # has no types: all names are text
        expected = {name: list(map(str, values)) for name, values in expected.items()}
        if table.proba is None:
            options["classes"] = list(map(str, options["classes"]))
    else:
        assert found.items.dtype == table.items.dtype
    again = Annotations.from_arrays(**expected, classes=options["classes"], weight=table.weight, proba=table.proba)
    assert identical(found, again)


@pytest.mark.parametrize("suffix", WRITERS)
def test_every_format_gives_the_same_table(suffix):
    assert identical(read_back(TABLE, suffix), Annotations.from_frame(TABLE))


@pytest.mark.parametrize("suffix", WRITERS)
def test_the_order_of_rows_in_a_file_changes_no_bit(suffix):
    rng = np.random.default_rng(0)
    table = pa.table(
        {n: rng.integers(0, k, 200).astype(str) for n, k in (("item", 30), ("annotator", 7), ("label", 4))}
    )
    one, other = read_back(table, suffix), read_back(table.take(rng.permutation(200)), suffix)
    assert identical(one, other)


@pytest.mark.parametrize("suffix", WRITERS)
def test_a_question_column_gives_a_table_per_question(suffix):
    found = read_back(TABLE.append_column("question", pa.array(["q1", "q2", "q1"])), suffix)
    assert isinstance(found, Questions)
    assert {name: t.classes.tolist() for name, t in found.items()} == {"q1": ["x", "y"], "q2": ["y"]}


@pytest.mark.parametrize("suffix", WRITERS)
def test_a_missing_column_is_named_with_the_file(suffix):
    with raises(
        errors.AnnotatorColumnMissing,
        role="annotator",
        columns=("item", "label"),
    ):
        read_back(TABLE.drop_columns("annotator"), suffix)


@pytest.mark.parametrize("suffix", WRITERS)
def test_columns_may_be_called_anything(suffix):
    renamed = TABLE.rename_columns(["text", "who", "what"])
    assert identical(
        read_back(renamed, suffix, item="text", annotator="who", label="what"), Annotations.from_frame(TABLE)
    )


@pytest.mark.parametrize("suffix", ["csv", "tsv", "parquet", "feather"])
def test_a_table_without_rows_is_an_error(suffix):
    with pytest.raises(DataError) as caught:
        read_back(TABLE.slice(0, 0), suffix)
    assert type(caught.value) in (errors.EmptyFile, errors.NoUsableRows)
    assert f"table.{suffix}" in str(caught.value)


@pytest.mark.parametrize("suffix", ["csv", "parquet", "feather", "jsonl", "tsv", "json"])
def test_an_empty_file_is_an_error(suffix, tmp_path):
    path = tmp_path / f"table.{suffix}"
    path.write_bytes(b"")
    with pytest.raises(UnreadableFile) as caught:
        io.read(path)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize("suffix", ["csv.gz", "jsonl.gz"])
@pytest.mark.parametrize("missing", [4, 2000])
def test_a_truncated_gzip_is_an_error(suffix, missing, tmp_path):
    path = tmp_path / f"table.{suffix}"
    rng = np.random.default_rng(0)
    io.write_frame({n: rng.integers(0, 10**9, 2000) for n in ("item", "annotator", "label")}, path)
    path.write_bytes(path.read_bytes()[:-missing])
    with raises(errors.DamagedFile):
        io.read(path)


def test_gzip_is_known_by_its_bytes_not_its_name(tmp_path):
    (tmp_path / "packed.csv").write_bytes(gzip.compress(b"item,annotator,label\n1,2,3\n"))
    (tmp_path / "plain.csv.gz").write_bytes(b"item,annotator,label\n1,2,3\n")
    assert len(io.read(tmp_path / "packed.csv")) == len(io.read(str(tmp_path / "plain.csv.gz"))) == 1


@pytest.mark.parametrize("suffix", ["parquet", "feather"])
@pytest.mark.parametrize("keep", [4, 0.5, -1])
def test_a_truncated_binary_file_is_an_error(suffix, keep, tmp_path):
    path = tmp_path / f"table.{suffix}"
    WRITERS[suffix](TABLE, path)
    content = path.read_bytes()
    path.write_bytes(content[: int(keep * len(content)) if isinstance(keep, float) else keep])
    with raises(errors.DamagedFile, path=path):
        io.read(path)


def test_what_is_no_file_is_an_error(tmp_path):
    with raises(errors.MissingFile):
        io.read(tmp_path / "none.csv")
    with raises(errors.UnusableFolder, problem="without a table"):
        io.read(tmp_path)
    with raises(errors.UnsupportedSource, type="dict"):
        io.read({"item": [1]})


def test_weights_and_abstentions_and_classes_reach_the_table(tmp_path):
    path = tmp_path / "table.csv"
    path.write_text("item,annotator,label,weight\na,p,x,0.1\na,q,?,2\nb,p,,1e-3\n")
    table = io.read(path, classes=["y", "x"], abstain=["?", None])
    assert table.classes.tolist() == ["y", "x"]
    assert table.items.tolist() == ["a", "b"]
    assert table.weight.tolist() == [0.1]


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        (
            "a,p,x\na,,x\n",
            DataError,
            (errors.MissingNames, {"column": "annotator", "n_bad": 1, "n_rows": 2, "row": 1, "value": None}),
        ),
        (
            "a,p,x\n  ,p,x\n",
            DataError,
            (errors.MissingNames, {"column": "item", "n_bad": 1, "n_rows": 2, "row": 1, "value": None}),
        ),
        (
            "a,p,x\nb,p,cta\n",
            UnknownClass,
            (
                errors.LabelOutsideClasses,
                {"column": "label", "n_bad": 1, "n_rows": 2, "row": 1, "value": "cta", "n_classes": 1},
            ),
        ),
        (
            "a,p,\nb,p,x\n",
            DataError,
            (errors.MissingLabels, {"column": "label", "n_bad": 1, "n_rows": 2, "row": 0, "value": None}),
        ),
    ],
)
def test_bad_cells_say_file_column_and_row(text, error, message, tmp_path):
    path = tmp_path / "table.csv"
    path.write_text("item,annotator,label\n" + text)
    with raises(message[0], **message[1]):
        io.read(path, classes=["x"])


def test_probabilities_that_do_not_sum_to_one_are_an_error(tmp_path):
    path = tmp_path / "table.csv"
    path.write_text("item,annotator,p_x,p_y\n1,1,0.5,0.5\n1,2,0.9,0.3\n")
    with raises(
        errors.ProbabilitiesNotNormalised, column="proba", n_bad=1, n_rows=2, row=1, value=[0.9, 0.3], total=1.2
    ):
        io.read(path)


def test_repeated_pairs_one_annotator_and_one_class_are_fine(tmp_path):
    path = tmp_path / "table.csv"
    path.write_text("item,annotator,label\n1,1,x\n1,1,x\n2,1,x\n")
    table = io.read(path)
    assert (len(table), table.n_items, table.n_annotators, table.n_classes) == (3, 2, 1, 1)


def test_it_is_said_that_many_rows_repeat_others(tmp_path):
    path, rows = tmp_path / "table.csv", [f"{i},{i % 3},{'xy'[i % 2]}\n" for i in range(100)]
    path.write_text("item,annotator,label\n" + "".join(rows + rows[:4]))
    assert io.read(path).import_report.notes == []
    path.write_text("item,annotator,label\n" + "".join(rows + rows))
    table = io.read(path)
    assert table.annotators_per_item.tolist() == [1] * 100
    assert table.import_report.notes == [RepeatedRows(n=100, n_rows=200)]


def test_questions_take_weights_classes_and_abstentions(tmp_path):
    path = tmp_path / "table.csv"
    path.write_text("question,item,annotator,label,weight\nq,1,a,y,0.5\nq,2,a,?,1\nr,1,a,n,2\n")
    tables = io.read(path, classes=["y", "n"], abstain="?")
    assert {name: t.weight.tolist() for name, t in tables.items()} == {"q": [0.5], "r": [2]}
    assert tables["q"].classes.tolist() == ["y", "n"]


def test_questions_with_probabilities_are_refused():
    frame = pa.table({"question": [1], "item": [1], "annotator": [1], "p_a": [1.0]})
    with raises(errors.OneQuestionPerTable, parameter="proba="):
        io.read(frame)


FRAMES = {
    "Arrow": lambda: TABLE,
    "pandas": TABLE.to_pandas,
    "polars": lambda: pl.from_arrow(TABLE),
    "polars, lazy": lambda: pl.from_arrow(TABLE).lazy(),
    "DuckDB": lambda: duckdb.from_arrow(TABLE),
}


@pytest.mark.parametrize("kind", FRAMES)
def test_frames_are_read_as_they_are(kind):
    assert identical(io.read(FRAMES[kind]()), Annotations.from_frame(TABLE))


def test_a_frame_with_ids_that_differ_only_in_type_is_an_error():
    with raises(errors.MixedTypes, column="item", example_by_type={"int": (0, "1"), "str": (1, "1")}):
        io.read(pd.DataFrame({"item": [1, "1"], "annotator": ["p", "q"], "label": ["x", "y"]}))


def test_read_frame_keeps_every_column(tmp_path):
    path = tmp_path / "items.csv"
    path.write_text('item,text,n\n01,"a, b",1\n02,NA,\n')
    assert io.read_frame(path).to_pylist() == [
        {"item": "01", "text": "a, b", "n": "1"},
        {"item": "02", "text": "NA", "n": None},
    ]
    path.write_text("item,text,text\n1,2,3\n")
    with raises(errors.DuplicateName, n=2, name="text"):
        io.read_frame(path)


def test_read_frame_keeps_lists_of_json(tmp_path):
    (tmp_path / "items.jsonl").write_text('{"item": 1, "tokens": ["a", "b"]}\n{"item": 2, "tokens": []}\n')
    assert io.read_frame(tmp_path / "items.jsonl")["tokens"].to_pylist() == [["a", "b"], []]


@pytest.mark.parametrize("header", ["item,label", "id,gold", "task,truth"])
def test_gold_is_aligned_with_the_table(header, tmp_path):
    path = tmp_path / "gold.csv"
    path.write_text(f"{header}\nb,y\nelsewhere,x\na,\n")
    assert io.read_gold(path, Annotations.from_frame(TABLE)).tolist() == [-1, 1]


def test_gold_as_text_matches_integers(tmp_path):
    path = tmp_path / "gold.csv"
    path.write_text("which,what\n10,3\n9,2\n")
    table = Annotations.from_arrays([9, 10, 11], [0, 0, 0], [2, 3, 3])
    assert io.read_gold(path, table, "which", label="what").tolist() == [0, 1, -1]
    with raises(errors.UnknownColumn, name="nope", role="label", columns=("which", "what")):
        io.read_gold(path, table, "which", "nope")
    with raises(
        errors.RoleColumnMissing,
        role="item",
        columns=("which", "what"),
    ):
        io.read_gold(path, table)
    path.write_text("item,label\n10,seven\n")
    with raises(errors.DifferentNameTypes, names="gold labels", type="integers", other_type="text", other_name="seven"):
        io.read_gold(path, table)


def test_every_export_refuses_columns_that_it_fixes(tmp_path):
    for name, one in readers.items():
        if one.collect:
            with raises(errors.ParameterFixedByFormat, parameter="weight=", format=name):
                io.read(tmp_path / "export.json", format=name, weight="w")


def test_warnings_of_exports_are_ours(tmp_path):
    (tmp_path / "all.jsonl").write_text('{"id": 1, "text": "t", "label": ["x"]}\n')
    with warns(errors.UnnamedAnnotators, n=1, n_answers=1):
        io.read(tmp_path / "all.jsonl")


def test_a_missing_column_names_those_that_were_found_for_other_roles(tmp_path):
    (tmp_path / "some.csv").write_text("task,worker,foo\n1,a,x\n", encoding="utf-8")
    with raises(
        errors.RoleColumnMissing,
        role="label",
        columns=("foo",),
        columns_of_roles={"item": "'task'", "annotator": "'worker'"},
    ):
        io.read(tmp_path / "some.csv")
