import shutil

import pyarrow as pa
import pytest

from dissensus.exceptions import UnknownName, UnreadableFile
from dissensus.table import io
from dissensus.table.io.formats import FORMATS, detect

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
    assert detect(path).name == name
    path.write_text(f"[\n{RECORDS[name]}\n]")
    assert detect(path).name == name


def test_other_formats_are_known_by_suffix_else_by_their_first_bytes(tmp_path):
    table = pa.table({"item": [1], "annotator": [2], "label": [3]})
    io.write_frame(table, tmp_path / "a.PARQUET")
    with pa.OSFile(str(tmp_path / "a.Feather"), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table)
    (tmp_path / "a.csv").write_text(CSV)
    for path, name in (("a.PARQUET", "parquet"), ("a.Feather", "arrow"), ("a.csv", "csv")):
        assert detect(tmp_path / path).name == name
        shutil.copy(tmp_path / path, tmp_path / "file")
        assert detect(tmp_path / "file").name == name


def test_a_named_format_wins_over_the_suffix(tmp_path):
    (tmp_path / "table.json").write_text(CSV)
    assert len(io.read(tmp_path / "table.json", format="csv")) == 1


def test_an_unknown_format_is_answered_with_the_nearest(tmp_path):
    with pytest.raises(UnknownName, match="no format 'parket'; did you mean 'parquet'"):
        io.read(tmp_path / "table.csv", format="parket")
    (tmp_path / "table.xls").write_bytes(b"\xd0\xcf\x11\xe0\0\0")
    with pytest.raises(UnreadableFile, match="is of no known format; say which: format=, one of csv, tsv"):
        io.read(tmp_path / "table.xls")


def test_every_format_has_a_name_of_its_own_and_a_suffix():
    assert all(name == one.name and one.suffixes for name, one in FORMATS.items())
