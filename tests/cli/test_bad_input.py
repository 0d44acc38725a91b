"""Every bad file and every wrong option: an exit code, one line, no traceback, nothing written."""

from __future__ import annotations

import gzip
import json
import os
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

HEADER = b"item,annotator,label\n"
GOOD = HEADER + b"a,x,cat\na,y,dog\nb,x,cat\nb,y,cat\n"


def parquet(columns: dict[str, list[object]]) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table(columns), sink)
    return sink.getvalue().to_pybytes()


WHOLE = parquet({"item": [1, 2], "annotator": ["x", "y"], "label": ["cat", "dog"]})
FILES = {
    "no label column": ("a.csv", b"item,annotator\na,x\n", "no column 'label'"),
    "named column absent": ("a.csv", b"thing,annotator,label\na,x,cat\n", "Name it: --item COLUMN."),
    "empty": ("a.csv", b"", "is empty"),
    "header only": ("a.csv", HEADER, "no row"),
    "blank item": ("a.csv", GOOD + b",x,cat\n", "row 4"),
    "blank annotator": ("a.csv", GOOD + b"c, ,cat\n", "blank or missing"),
    "blank label": ("a.csv", GOOD + b"c,x,\n", '--abstain ""'),
    "truncated gzip": ("a.csv.gz", gzip.compress(GOOD * 50)[:60], "cut short"),
    "truncated parquet": ("a.parquet", WHOLE[: len(WHOLE) // 2], "cut short"),
    "null id": ("a.parquet", parquet({"item": [1, None], "annotator": [1, 2], "label": [0, 1]}), "blank or missing"),
    "not text": ("a.csv", HEADER + b"\xff\xfe,x,cat\n", "not UTF-8"),
    "no known format": ("a.bin", b"\0\1\2\3" * 100, "--input-format"),
    "a line that is no JSON": ("a.jsonl", b'{"item": 1, "annotator": 1, "label": 1}\n{"item": \n', "line 2"),
    "ids of two kinds": (
        "a.jsonl",
        b'{"item": 1, "annotator": "x", "label": "a"}\n{"item": "1", "annotator": "y", "label": "a"}\n',
        "mixes kinds",
    ),
    "probabilities that do not sum to one": ("a.csv", b"item,annotator,p_a,p_b\n1,x,0.5,0.6\n", "sum to one"),
    "negative weight": ("a.csv", b"item,annotator,label,weight\na,x,cat,-1\n", "negative"),
}


@pytest.mark.parametrize("command", ["describe", "aggregate"])
@pytest.mark.parametrize(("name", "content", "says"), FILES.values(), ids=FILES)
def test_bad_file_is_one_sentence_and_exit_1(cli, here, name, content, says, command):
    Path(name).write_bytes(content)
    more = ("-o", "out") if command == "aggregate" else ()
    check(cli(command, name, *more, "--json"), 1, says)
    assert [path.name for path in here.iterdir()] == [name]


@pytest.mark.parametrize(
    ("args", "code", "says"),
    [
        (("nowhere.csv",), 1, "no file nowhere.csv"),
        ((".",), 1, "is a folder"),
        (("a.csv", "--classes", "cat,cow"), 1, "first at row 1 (from 0): 'dog'"),
        (("a.csv", "--item", "thing"), 1, "no column 'thing' for item"),
        (("a.csv", "--gold", "nowhere.csv"), 1, "no file nowhere.csv"),
        (("a.csv", "--gold", "strange.csv"), 1, "'yak'. Declare all classes in making the table: --classes A,B,…."),
        (("a.csv", "--model", "nowhere"), 1, "no fitted model in nowhere"),
        (("a.csv", "--model", "damaged"), 1, "damaged"),
        (("a.csv", "--abstain", "cat", "--abstain", "dog"), 1, "no annotations"),
        (("a.csv", "-o", "a.csv"), 2, "it is a file"),
        (("a.csv", "-o", "a.csv/out"), 2, "a.csv is a file"),
        (("a.csv", "-m", "dawid-skeen"), 2, "did you mean 'dawid-skene'?"),
        (("a.csv", "--set", "smothing=1"), 2, "did you mean 'smoothing'?"),
        (("a.csv", "--set", "smoothing=much"), 2, "expected a number, got 'much'"),
        (("a.csv", "--set", "smoothing"), 2, "expected KEY=VALUE"),
        (("a.csv", "--set", "seed=-1"), 2, "seed must be 0 or more"),
        (("a.csv", "--max-iter", "0"), 2, "max_iter must be a whole number, at least 1"),
        (
            ("a.csv", "-m", "majority-vote", "--max-iter", "5"),
            2,
            "'majority-vote' has no keyword 'max_iter'; it has engine, seed.",
        ),
        (("a.csv", "--input-format", "cvs"), 2, "did you mean 'csv'?"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else None,
)
def test_bad_option_is_one_sentence(cli, here, args, code, says):
    Path("a.csv").write_bytes(GOOD)
    Path("strange.csv").write_bytes(b"item,label\na,yak\n")
    Path("damaged").mkdir()
    Path("damaged/model.npz").write_bytes(b"PK\3\4 and so on")
    output = () if "-o" in args else ("-o", "out")
    check(cli("aggregate", *args, *output), code, says)
    assert not Path("out").exists()


def test_names_that_are_no_utf8(cli, here):
    """Arrow opens no such Parquet file, but others and folders can be called so."""
    odd = os.fsdecode(b"l\xff")
    Path(f"{odd}.parquet").write_bytes(WHOLE)
    check(cli("describe", f"{odd}.parquet"), 1, r"l\udcff.parquet: this name is not UTF-8; rename the file")
    Path(f"{odd}.csv").write_bytes(GOOD)
    assert cli("describe", f"{odd}.csv").exit_code == 0
    Path("a.csv").write_bytes(GOOD)
    assert json.loads(cli("aggregate", "a.csv", "-o", odd, "--json").stdout)["folder"] == "l\ufffd"
    assert cli("aggregate", "a.csv", "--model", odd, "-o", "out").exit_code == 0
    assert json.loads(Path("out/summary.json").read_text())["model"] == "l\ufffd"


@pytest.mark.parametrize(
    "args",
    [("aggregate",), ("aggregate", "a.csv", "--format", "xml"), ("describe", "a.csv", "--wrong"), ("describ",),
     ("aggregate", "a.csv", "--threads", "0"), ("aggregate", "a.csv", "--seed", "-1")],
    ids=" ".join,
)  # fmt: skip
def test_typer_s_own_usage_errors_exit_2(cli, here, args):
    result = cli(*args)
    assert (result.exit_code, result.stdout) == (2, "")
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize(
    "content",
    [GOOD.replace(b"y", b"x"), GOOD.replace(b"dog", b"cat"), GOOD + b"b,y,cat\nb,y,dog\n", HEADER + b"a,x,cat\n"],
    ids=["one annotator", "one class", "a repeated pair", "one row"],
)
def test_odd_tables_work(cli, here, content):
    Path("a.csv").write_bytes(content)
    for args in (("describe", "a.csv"), ("aggregate", "a.csv", "-o", "out"), ("aggregate", "a.csv", "--model", "out")):
        result = cli(*args)
        assert (result.exit_code, result.stderr) == (0, "")


def check(result, code: int, says: str) -> None:
    assert result.exit_code == code
    assert result.stdout == ""
    assert result.stderr.startswith("dissensus: ")
    assert says in result.stderr
    assert result.stderr.count("\n") == 1
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize("command", ["aggregate", "compare", "report", "calibrate"])
def test_known_labels_of_no_item_in_the_table_are_an_error(cli, tmp_path, command):
    labels, known = tmp_path / "labels.csv", tmp_path / "known.csv"
    rows = [f"q{i},{who},{'yes' if i % 3 else 'no'}" for i in range(12) for who in "ab"]
    labels.write_text("item,annotator,label\n" + "\n".join(rows))
    known.write_text("item,label\nQ1,yes\nQ2,no\n")
    result = cli(command, labels, "--gold", known)
    assert result.exit_code == 1
    assert "none of the 2 items with a gold label is in the table, such as 'Q1'" in result.stderr


def test_known_labels_of_other_items_are_counted_and_capitals_do_not_matter(cli, tmp_path):
    labels, known = tmp_path / "labels.csv", tmp_path / "known.csv"
    rows = [f"q{i},{who},{'yes' if i % 3 else 'no'}" for i in range(12) for who in "ab"]
    labels.write_text("item,annotator,label\n" + "\n".join(rows))
    known.write_text("item,label\nq1,YES\nq3, no \nother,yes\n")
    result = cli("aggregate", labels, "--gold", known, "-o", tmp_path / "out")
    assert result.exit_code == 0, result.output
    assert "1 of 3 items with a gold label are not in the table, such as 'other'; they are excluded." in result.stderr
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert (summary["gold"]["items"], summary["gold"]["accuracy"]) == (2, 1.0)
