"""The same file gives the same labels, by the same method, from every command."""

from __future__ import annotations

import csv
import json

import pytest

from dissensus.common.registry import DEFAULT_METHOD
from dissensus.table.datasets import load_dataset


def test_every_command_gives_one_answer(cli, tmp_path):
    data = load_dataset("digits-crowd")
    table = data.annotations.select(rows=data.annotations.item < 80)
    file = tmp_path / "labels.csv"
    with file.open("w", newline="") as out:
        rows = zip(table.items[table.item], table.annotators[table.annotator], table.classes[table.label], strict=True)
        csv.writer(out).writerows([("item", "annotator", "label"), *rows])
    cli("aggregate", file, "-o", tmp_path / "labels")
    summary = json.loads((tmp_path / "labels" / "summary.json").read_bytes())
    assert summary["method"] == DEFAULT_METHOD
    with (tmp_path / "labels" / "items.csv").open(newline="") as out:
        labels = {row["item"]: row["label"] for row in csv.DictReader(out)}
    cli("explain", file, "-o", tmp_path / "why.csv")
    with (tmp_path / "why.csv").open(newline="") as out:
        assert {row["item"]: row["label"] for row in csv.DictReader(out)} == labels
    cli("report", file, "-o", tmp_path / "page.html")
    facts = json.loads((tmp_path / "page.json").read_bytes())
    assert facts["method"] == DEFAULT_METHOD
    methods, compared = facts["sections"]["methods"], json.loads(cli("compare", file, "--json").stdout)
    assert [methods[key] for key in ("best", "verdict")] == [compared[key] for key in ("best", "verdict")]
    assert [one["method"] for one in methods["methods"]] == [one["method"] for one in compared["methods"]]
    behind = [one["behind"]["value"] for one in methods["methods"]]
    assert behind == pytest.approx([one["behind"] for one in compared["methods"]], rel=1e-4)
    assert any(compared["verdict"] in one["text"] for one in facts["findings"])
    recommended = json.loads(cli("recommend", file, "--budget", 5, "--json").stdout)
    assert recommended["method"] == DEFAULT_METHOD
