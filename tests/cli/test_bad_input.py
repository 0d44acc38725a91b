"""Every bad file and every wrong option: an exit code, one line, no traceback, nothing written."""

from __future__ import annotations

import gzip
import json
import os
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cli.tables import SCORE
from dissensus.cli.exceptions import BadSetting, InTheWay, UnknownSetting
from dissensus.common.exceptions import OutOfRange, UnknownEntry
from dissensus.exceptions import DataError, DataWarning, UnreadableFile
from dissensus.models.exceptions import DamagedModel, NoAnnotations, NoModel
from dissensus.table import exceptions as table

HEADER = b"item,annotator,label\n"
GOOD = HEADER + b"a,x,cat\na,y,dog\nb,x,cat\nb,y,cat\n"


def parquet(columns: dict[str, list[object]]) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table(columns), sink)
    return sink.getvalue().to_pybytes()


WHOLE = parquet({"item": [1, 2], "annotator": ["x", "y"], "label": ["cat", "dog"]})
FILES = {
    "no label column": ("a.csv", b"item,annotator\na,x\n", table.RoleColumnMissing),
    "named column absent": ("a.csv", b"thing,annotator,label\na,x,cat\n", table.RoleColumnMissing),
    "empty": ("a.csv", b"", table.EmptyFile),
    "header only": ("a.csv", HEADER, table.NoUsableRows),
    "blank item": ("a.csv", GOOD + b",x,cat\n", table.MissingNames),
    "blank annotator": ("a.csv", GOOD + b"c, ,cat\n", table.MissingNames),
    "blank label": ("a.csv", GOOD + b"c,x,\n", table.MissingLabels),
    "truncated gzip": ("a.csv.gz", gzip.compress(GOOD * 50)[:60], table.DamagedFile),
    "truncated parquet": ("a.parquet", WHOLE[: len(WHOLE) // 2], table.DamagedFile),
    "null id": ("a.parquet", parquet({"item": [1, None], "annotator": [1, 2], "label": [0, 1]}), table.MissingNames),
    "not text": ("a.csv", HEADER + b"\xff\xfe,x,cat\n", table.NotUtf8),
    "no known format": ("a.bin", b"\0\1\2\3" * 100, table.UnknownFormat),
    "a line that is no JSON": ("a.jsonl", b'{"item": 1, "annotator": 1, "label": 1}\n{"item": \n', table.InvalidJson),
    "ids of two kinds": (
        "a.jsonl",
        b'{"item": 1, "annotator": "x", "label": "a"}\n{"item": "1", "annotator": "y", "label": "a"}\n',
        table.MixedTypes,
    ),
    "probabilities that do not sum to one": (
        "a.csv",
        b"item,annotator,p_a,p_b\n1,x,0.5,0.6\n",
        table.ProbabilitiesNotNormalised,
    ),
    "negative weight": ("a.csv", b"item,annotator,label,weight\na,x,cat,-1\n", table.InvalidRows),
}


@pytest.mark.parametrize("command", ["describe", "aggregate"])
@pytest.mark.parametrize(("name", "content", "error"), FILES.values(), ids=FILES)
def test_bad_file_is_one_sentence_and_exit_1(cli, here, name, content, error, command):
    Path(name).write_bytes(content)
    more = ("-o", "out") if command == "aggregate" else ()
    check(cli(command, name, *more, "--json"), 1, error)
    assert [path.name for path in here.iterdir()] == [name]


@pytest.mark.parametrize(
    ("args", "code", "error"),
    [
        (("nowhere.csv",), 1, table.MissingFile),
        ((".",), 1, UnreadableFile),
        (("a.csv", "--classes", "cat,cow"), 1, table.LabelOutsideClasses),
        (("a.csv", "--item", "thing"), 1, table.UnknownColumn),
        (("a.csv", "--gold", "nowhere.csv", *SCORE), 1, table.MissingFile),
        (("a.csv", "--gold", "strange.csv", *SCORE), 1, table.BadGoldLabels),
        (("a.csv", "--model", "nowhere"), 1, NoModel),
        (("a.csv", "--model", "damaged"), 1, DamagedModel),
        (("a.csv", "--abstain", "cat", "--abstain", "dog"), 1, NoAnnotations),
        (("a.csv", "-o", "a.csv"), 2, InTheWay),
        (("a.csv", "-o", "a.csv/out"), 2, InTheWay),
        (("a.csv", "-m", "dawid-skeen"), 2, UnknownEntry),
        (("a.csv", "--set", "smothing=1"), 2, UnknownSetting),
        (("a.csv", "--set", "smoothing=much"), 2, BadSetting),
        (("a.csv", "--set", "smoothing"), 2, BadSetting),
        (("a.csv", "--set", "seed=-1"), 2, OutOfRange),
        (("a.csv", "--max-iter", "0"), 2, OutOfRange),
        (("a.csv", "-m", "majority-vote", "--max-iter", "5"), 2, UnknownSetting),
        (("a.csv", "--input-format", "cvs"), 2, UnknownEntry),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else None,
)
def test_bad_option_is_one_sentence(cli, here, args, code, error):
    Path("a.csv").write_bytes(GOOD)
    Path("strange.csv").write_bytes(b"item,label\na,yak\n")
    Path("damaged").mkdir()
    Path("damaged/model.npz").write_bytes(b"PK\3\4 and so on")
    output = () if "-o" in args else ("-o", "out")
    check(cli("aggregate", *args, *output), code, error)
    assert not Path("out").exists()


def test_names_that_are_no_utf8(cli, here):
    """Arrow opens no such Parquet file, but others and folders can be called so."""
    odd = os.fsdecode(b"l\xff")
    Path(f"{odd}.parquet").write_bytes(WHOLE)
    check(cli("describe", f"{odd}.parquet"), 1, UnicodeEncodeError)
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


def check(result, code: int, error: type[BaseException]) -> None:
    assert result.exit_code == code
    assert isinstance(result.error, error)
    assert result.stdout == ""
    assert result.stderr.startswith("dissensus: ")
    assert result.stderr.count("\n") == 1
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize("command", ["aggregate", "evaluate", "report", "calibrate"])
def test_known_labels_of_no_item_in_the_table_are_an_error(cli, tmp_path, command):
    labels, known = tmp_path / "labels.csv", tmp_path / "known.csv"
    rows = [f"q{i},{who},{'yes' if i % 3 else 'no'}" for i in range(12) for who in "ab"]
    labels.write_text("item,annotator,label\n" + "\n".join(rows))
    known.write_text("item,label\nQ1,yes\nQ2,no\n")
    result = cli(command, labels, "--gold", known)
    assert (result.exit_code, isinstance(result.error, DataError)) == (1, True)


def test_known_labels_of_other_items_are_counted_and_capitals_do_not_matter(cli, tmp_path):
    labels, known = tmp_path / "labels.csv", tmp_path / "known.csv"
    rows = [f"q{i},{who},{'yes' if i % 3 else 'no'}" for i in range(12) for who in "ab"]
    labels.write_text("item,annotator,label\n" + "\n".join(rows))
    known.write_text("item,label\nq1,YES\nq3, no \nother,yes\n")
    result = cli("aggregate", labels, "--gold", known, *SCORE, "-o", tmp_path / "out")
    assert result.exit_code == 0, result.output
    assert [isinstance(warning, DataWarning) for warning in result.warnings] == [True]
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert (summary["gold"]["items"], summary["gold"]["accuracy"]) == (2, 1.0)
