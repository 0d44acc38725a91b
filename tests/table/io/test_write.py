"""Writing: whole files or none, and exactly what went in."""

import json
import os
import stat

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dissensus.exceptions import UnwritableFile
from dissensus.table import exceptions as errors
from dissensus.table import io
from facts import raises
from strategies import texts

SUFFIXES = ["csv", "csv.gz", "parquet", "jsonl", "jsonl.gz"]


@pytest.mark.parametrize("suffix", SUFFIXES)
@given(values=st.lists(st.tuples(texts(), st.floats(allow_nan=False, allow_infinity=False)), min_size=1, max_size=9))
def test_text_and_floats_read_back_exactly(suffix, values, tmp_path_factory):
    path = tmp_path_factory.mktemp("written") / f"table.{suffix}"
    text, floats = map(list, zip(*values, strict=True))
    io.write_frame({"text": np.array(text, object), "p": np.array(floats)}, path)
    back = io.read_frame(path)
    assert back["text"].to_pylist() == text
    assert np.array(back["p"].to_pylist(), np.float64).tobytes() == np.array(floats).tobytes()


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_the_same_table_is_the_same_bytes(suffix, tmp_path):
    one, other = tmp_path / f"one.{suffix}", tmp_path / f"other.{suffix}"
    for path in (one, other):
        io.write_frame(pa.table({"item": ["a", "b"], "n": [1, None]}), path)
    assert one.read_bytes() == other.read_bytes()


def test_frames_are_written_too_and_a_named_format_wins(tmp_path):
    io.write_frame(pd.DataFrame({"item": [1, 2]}), tmp_path / "table.dat", format="csv")
    assert (tmp_path / "table.dat").read_text() == "item\n1\n2\n"


def test_categories_are_written_as_their_names(tmp_path):
    io.write_frame(pd.DataFrame({"label": pd.Categorical(["x", "y,", "x"])}), tmp_path / "table.csv")
    assert (tmp_path / "table.csv").read_text() == 'label\n"x"\n"y,"\n"x"\n'


def test_what_cannot_be_written_says_so(tmp_path):
    with raises(errors.FormatNotWritable, format="csv", reason="Unsupported Type:list<item: string>"):
        io.write_frame({"a": [["x"]]}, tmp_path / "table.csv")
    with raises(errors.FormatNotWritable, format="csv"):
        io.write_frame({"a": [1], "b": [1, 2]}, tmp_path / "table.csv")
    with raises(errors.FormatNotWritable, format=".xlsx", reason="the formats are csv, parquet, jsonl"):
        io.write_frame({"a": [1]}, tmp_path / "table.xlsx")
    with raises(errors.FormatNotWritable, format="tsv", reason="the formats are csv, parquet, jsonl"):
        io.write_frame({"a": [1]}, tmp_path / "table.csv", format="tsv")
    with pytest.raises(UnwritableFile):
        io.write_frame({"a": [1]}, tmp_path / "nowhere" / "table.csv")
    with pytest.raises(UnwritableFile):
        io.write_json({}, tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_after_an_error_the_old_file_stays_and_nothing_else(error, tmp_path):
    path = tmp_path / "table.csv"
    path.write_text("old")

    def fail():
        with io.open_atomically(path) as file:
            file.write(b"half")
            file.flush()
            assert path.read_text() == "old"
            raise error

    with pytest.raises(error):
        fail()
    assert [p.name for p in tmp_path.iterdir()] == ["table.csv"]
    assert path.read_text() == "old"


def test_a_full_disk_is_one_sentence_and_leaves_nothing(tmp_path):
    def fill():
        with io.open_atomically(tmp_path / "table.csv"):
            raise OSError(28, "No space left on device")

    with pytest.raises(UnwritableFile):
        fill()
    assert list(tmp_path.iterdir()) == []


def test_permissions_are_those_of_the_umask(tmp_path):
    before = os.umask(0o027)
    try:
        io.write_json({}, tmp_path / "value.json")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "value.json").stat().st_mode) == 0o640


def test_a_link_stays_a_link(tmp_path):
    (tmp_path / "link.json").symlink_to(tmp_path / "value.json")
    io.write_json(1, tmp_path / "link.json")
    assert (tmp_path / "link.json").is_symlink()
    assert (tmp_path / "value.json").read_text() == "1\n"


def test_json_of_numpy_values_and_without_nan(tmp_path):
    value = {"n": np.int64(3), "p": np.array([0.1, np.nan]), 5: (True, None), "é": float("inf")}
    io.write_json(value, tmp_path / "value.json")
    text = (tmp_path / "value.json").read_text()
    assert json.loads(text) == {"n": 3, "p": [0.1, None], "5": [True, None], "é": None}
    assert "é" in text
