from __future__ import annotations

import json

import pytest

import dissensus as dz
from dissensus.common.registry import DEFAULT_METHOD
from dissensus.exceptions import UnknownName
from dissensus.table.io import read_frame, read_gold
from found import error_of, shown


def test_levels_and_verdict_are_shown(cli, labels):
    result = cli("recommend", labels, "--enough", "--seeds", 1, "--method", "majority-vote")
    assert (result.exit_code, result.stderr) == (0, "")
    found = dz.redundancy(dz.read(labels), "majority-vote", seeds=1)
    assert all(shown(one) in result.stdout for one in found.findings())
    assert "accuracy" not in result.stdout
    assert "280" in result.stdout
    assert "Nothing was written" in result.stdout


@pytest.mark.parametrize("method", [None, "one-coin"])
def test_file_and_json_have_what_the_library_says(cli, labels, method):
    options = ["--seeds", 2, "--seed", 3, "--gold", "gold.csv", *([] if method is None else ["-m", method])]
    parsed = json.loads(cli("recommend", labels, "--enough", *options, "-o", "levels.csv", "--json").stdout)
    table = dz.read(labels)
    found = dz.redundancy(table, method or DEFAULT_METHOD, gold=read_gold("gold.csv", table), seeds=2, seed=3)
    assert (parsed["method"], parsed["verdict"], parsed["output"]) == (
        method or DEFAULT_METHOD, found.verdict(), "levels.csv",
    )  # fmt: skip
    for row, one in zip(parsed["levels"], found.rows(), strict=True):
        del row["seconds"], one["seconds"]
        assert row == one
    assert parsed["next_label"]["best_items"] == found.next_label.best(10)
    assert read_frame("levels.csv")["labels"].to_pylist() == [str(one.labels) for one in found]


def test_questions_are_answered_each_and_wrong_names_are_said_first(cli, questions, here):
    options = ("--seeds", 1, "--method", "majority-vote")
    assert len(json.loads(cli("recommend", questions, "--enough", *options, "--json").stdout)["questions"]) == 3
    assert "question Tone" in " ".join(cli("recommend", questions, "--enough", *options).stdout.split())
    refused = cli("recommend", here / "missing.csv", "--enough", "--method", "dawid-skeen")
    assert (refused.exit_code, isinstance(error_of(refused), UnknownName)) == (2, True)
