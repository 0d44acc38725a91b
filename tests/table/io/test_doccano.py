"""The shape of the exports is that of doccano's own data_export package, versions 1.0 to 1.8, and of its issue 113."""

import json
import zipfile

import pytest

from dissensus.table import exceptions as errors
from dissensus.table import io
from facts import raises, warns


@pytest.fixture
def read(tmp_path):
    def read_records(*records, name="ann.jsonl", **options):
        (tmp_path / name).write_text("\n".join(map(json.dumps, records)))
        return io.read(tmp_path / name, **options)

    return read_records


def test_the_file_is_named_after_the_annotator(read):
    table = read(
        {"id": 7, "text": "t", "label": ["x"], "Comments": []},
        {"id": 8, "text": "u", "label": ["y", "x"], "Comments": []},
        ticks="votes",
    )
    assert table.annotators.tolist() == ["ann"]
    assert table.items.tolist() == [7, 8]
    assert table.votes().tolist() == [[1, 0], [1, 1]]


def test_the_zip_of_all_annotators_is_one_table(tmp_path):
    with zipfile.ZipFile(tmp_path / "export.zip", "w") as archive:
        for who, label in (("ann", "x"), ("bob", "y")):
            archive.writestr(f"{who}.jsonl", json.dumps({"id": 1, "text": "t", "label": [label]}) + "\n")
        archive.writestr("unknown.jsonl", json.dumps({"id": 2, "text": "u", "label": []}) + "\n")
        archive.writestr("readme.txt", "not this")
    table = io.read(tmp_path / "export.zip")
    assert table.annotators.tolist() == ["ann", "bob"]
    assert table.votes().tolist() == [[1, 1], [0, 0]]
    assert table.import_report.unused_counts == {"answers without a choice": 1}


def test_a_damaged_zip_is_an_error(tmp_path):
    with zipfile.ZipFile(tmp_path / "export.zip", "w") as archive:
        archive.writestr("ann.jsonl", json.dumps({"id": 1, "text": "t", "label": ["x"]}) + "\n")
    content = bytearray((tmp_path / "export.zip").read_bytes())
    content[45] ^= 0xFF  # inside the only record
    (tmp_path / "export.zip").write_bytes(content)
    with raises(errors.DamagedFile, reason="Bad CRC-32 for file 'ann.jsonl'"):
        io.read(tmp_path / "export.zip")


def test_a_shared_project_names_nobody(read):
    with warns(errors.UnnamedAnnotators, n=2, n_answers=2):
        table = read({"id": 1, "text": "t", "label": ["x"]}, {"id": 2, "text": "u", "label": ["y"]}, name="all.jsonl")
    assert table.annotators.tolist() == ["all"]


@pytest.mark.parametrize(
    "record",
    [
        {"doc_id": 1, "text": "t", "labels": ["x"], "username": "eve"},
        {"id": 1, "text": "t", "label": "x", "username": "eve"},
        {"id": 1, "text": "t", "label": ["x"], "annotator": "eve"},
        {"id": 1, "text": "t", "cats": ["x"], "entities": [], "annotator": "eve"},
        {"id": 1, "text": "t", "annotations": [{"label": "x", "user": "eve"}], "meta": {}, "annotation_approver": None},
    ],
)
def test_older_exports_name_the_annotator_in_the_record(read, record):
    table = read(record)
    assert (table.items.tolist(), table.annotators.tolist(), table.classes.tolist()) == ([1], ["eve"], ["x"])


def test_annotations_of_several_users_in_one_record(read):
    table = read({"id": 1, "text": "t", "annotations": [{"label": 4, "user": 1}, {"label": 2, "user": 3}], "meta": {}})
    assert table.annotators.tolist() == ["1", "3"]
    assert table.classes.tolist() == [2, 4]


def test_item_and_annotator_may_be_other_fields(read):
    table = read({"id": 1, "text": "t", "label": ["x"], "page": "p1", "by": "eve"}, item="page", annotator="by")
    assert (table.items.tolist(), table.annotators.tolist()) == (["p1"], ["eve"])


def test_records_without_any_label_and_broken_spans_are_errors(read):
    with raises(errors.NoUsableRows, unit="answer"):
        read({"id": 1, "text": "t", "label": []})
    with raises(errors.UnexpectedValue, field="span", value={}):
        read({"id": 1, "text": "EU", "label": [[0, "ORG"]]})
    with raises(errors.MissingField, names=("id", "doc_id", "item"), role="item"):
        read({"text": "t", "label": ["x"]})


def test_who_ticks_nothing_where_several_may_be_ticked_has_answered(tmp_path):
    said = [("x", ["a", "b"]), ("y", []), ("z", ["a"])]
    lines = [json.dumps({"id": 1, "text": "t", "label": labels, "username": who}) for who, labels in said]
    (tmp_path / "export.jsonl").write_text("\n".join(lines) + "\n")
    table = io.read(tmp_path / "export.jsonl")
    assert (table.kind, table.classes.tolist(), table.import_report.unused_counts.total()) == (
        "sets",
        ["a", "a|b", "∅"],
        0,
    )
