import re
import shutil
import sys
from pathlib import Path

import pyarrow as pa
import pytest

from dissensus.exceptions import UnknownName
from dissensus.table import exceptions as errors
from dissensus.table import io
from dissensus.table.io import exports, jsonl
from dissensus.table.io.readers import detect_format, readers
from dissensus.testing.readers import check_reader
from facts import raises, warns

CSV = "item,annotator,label\n1,2,3\n"
RECORDS = {
    "jsonl": '{"item": 1, "annotator": "a", "label": "x"}',
    "doccano": '{"id": 1, "text": "t", "label": ["x"], "Comments": []}',
    "prodigy": '{"text": "t", "_input_hash": 1, "label": "x", "answer": "accept", "_session_id": "s"}',
    "label-studio": '{"id": 1, "data": {"text": "t"}, "annotations": [], "predictions": []}',
}


@pytest.mark.parametrize("name", RECORDS)
@pytest.mark.parametrize("suffix", [".jsonl", ".json", ".NDJSON", "", ".export"])
def test_json_is_told_apart_by_its_first_record(name, suffix, tmp_path):
    path = tmp_path / f"file{suffix}"
    path.write_text(RECORDS[name] + "\n")
    assert detect_format(path) == name
    path.write_text(f"[\n{RECORDS[name]}\n]")
    assert detect_format(path) == name


def test_other_formats_are_known_by_suffix_else_by_their_first_bytes(tmp_path):
    table = pa.table({"item": [1], "annotator": [2], "label": [3]})
    io.write_frame(table, tmp_path / "a.PARQUET")
    with pa.OSFile(str(tmp_path / "a.Feather"), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table)
    (tmp_path / "a.csv").write_text(CSV)
    for path, name in (("a.PARQUET", "parquet"), ("a.Feather", "arrow"), ("a.csv", "csv")):
        assert detect_format(tmp_path / path) == name
        shutil.copy(tmp_path / path, tmp_path / "file")
        assert detect_format(tmp_path / "file") == name


def test_a_named_format_wins_over_the_suffix(tmp_path):
    (tmp_path / "table.json").write_text(CSV)
    assert len(io.read(tmp_path / "table.json", format="csv")) == 1


def test_an_unknown_format_is_answered_with_the_nearest(tmp_path):
    with pytest.raises(UnknownName):
        io.read(tmp_path / "table.csv", format="parket")
    (tmp_path / "table.dat").write_bytes(b"\xd0\xcf\x11\xe0\0\0")
    with raises(errors.UnknownFormat):
        io.read(tmp_path / "table.dat")


def test_every_format_has_a_suffix():
    assert all(one.suffixes for one in readers.values())


def test_a_reader_is_one_file_as_the_guide_writes_it(tmp_path, monkeypatch):
    guide = (Path(__file__).parents[3] / "docs" / "contributing" / "reader.md").read_text(encoding="utf-8")
    (tmp_path / "votes.py").write_text(re.search(r"```python\n(.*?)```", guide, re.DOTALL)[1], encoding="utf-8")
    monkeypatch.setattr(io, "__path__", [*io.__path__, str(tmp_path)])
    monkeypatch.setattr(readers, "_entries", dict(readers._entries))
    monkeypatch.setattr(readers, "_complete", False)
    monkeypatch.setattr(io, "votes", None, raising=False)  # where the import leaves it; taken away again
    try:
        (tmp_path / "table.votes").write_text("a ann cat\nb ann dog\na bob cat\n")
        table = io.read(tmp_path / "table.votes")
        assert (table.items.tolist(), table.annotators.tolist()) == (["a", "b"], ["ann", "bob"])
        assert io.read(tmp_path / "table.votes", item="label", label="item").classes.tolist() == ["a", "b"]
        assert detect_format(tmp_path / "table.votes") == "votes"
        assert list(readers).index("arrow") < list(readers).index("votes") < list(readers).index("label-studio")
        with raises(errors.UnknownColumn, name="who", role="annotator", columns=("item", "annotator", "label")):
            io.read(tmp_path / "table.votes", annotator="who")
        check_reader("votes", tmp_path / "table.votes")
        (tmp_path / "ragged.votes").write_text("a ann cat\nb ann\n")
        with raises(errors.DamagedFile, path=tmp_path / "ragged.votes", reason="line 2 has 2 parts instead of 3"):
            io.read(tmp_path / "ragged.votes")
    finally:
        sys.modules.pop("dissensus.table.io.votes", None)


def test_an_export_is_a_function_that_yields_answers(tmp_path, monkeypatch):
    monkeypatch.setattr(readers, "_entries", dict(readers._entries))
    assert "jsonl" in readers
    len(readers)  # all are entered; the next one is new

    def answers(path, columns):
        for record in jsonl.read_records(path):
            who = jsonl.require_field(record, columns.annotator, ("by",), "annotator", str(path))
            yield exports.ExportedAnswer(record["fancy_id"], who, record["says"])

    reader = exports.make_export_reader(answers, lambda record: "fancy_id" in record)
    readers.register("fancy", summary="", place=75)(reader)
    path = tmp_path / "export.json"
    path.write_text('{"fancy_id": 7, "by": "ann", "says": "cat"}\n{"fancy_id": 8, "by": "bob", "says": null}\n')
    with warns(errors.RowsExcluded, unused={"answers without a choice": 1}):
        table = io.read(path)
    assert (table.items.tolist(), table.annotators.tolist(), len(table)) == ([7, 8], ["ann", "bob"], 1)
    with raises(errors.MissingField, names=("who",), role="annotator"):
        io.read(path, annotator="who")
    path.write_text('{"fancy_id": 7, "by": "ann"}\n')
    with raises(errors.DamagedFile, path=path, reason="there is no entry 'says'"):
        io.read(path)
