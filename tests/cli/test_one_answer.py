"""The same file gives the same labels, by the same method, from every command."""

from __future__ import annotations

import csv
import json
import re

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
    methods, compared = facts["sections"]["methods"], json.loads(cli("evaluate", file, "--json").stdout)
    assert [methods[key] for key in ("best", "verdict")] == [compared[key] for key in ("best", "verdict")]
    assert [one["method"] for one in methods["methods"]] == [one["method"] for one in compared["methods"]]
    behind = [one["behind"]["value"] for one in methods["methods"]]
    assert behind == pytest.approx([one["behind"] for one in compared["methods"]], rel=1e-4)
    recommended = json.loads(cli("recommend", file, "--budget", 100, "--json").stdout)
    assert recommended["method"] == DEFAULT_METHOD
    redundancy = facts["sections"]["redundancy"]
    assert redundancy["next_labels"]["labels"] == len(recommended["recommended"]) == 100
    assert any(str(redundancy["next_labels"]["items"]) in one for one in facts["headline"] if one.startswith("Next: "))
    advice = redundancy["advice"]
    assert advice.startswith(f"Next: c{recommended['verdict'][1:]} ")
    assert advice in json.loads(cli("recommend", file, "--enough", "--json").stdout)["verdict"]
    assert [one["item"] for one in facts["sections"]["redundancy"]["ask"]] == [
        one["item"] for one in recommended["recommended"]
    ]
    truth = data.annotations.classes[data.gold[:40]]
    with (tmp_path / "known.csv").open("w", newline="") as out:
        csv.writer(out).writerows([("item", "label"), *zip(table.items[:40], truth, strict=True)])
    summary = json.loads(cli("aggregate", file, "--gold", tmp_path / "known.csv", "--json").stdout)
    cli("report", file, "--gold", tmp_path / "known.csv", "-o", tmp_path / "page.html")
    facts = json.loads((tmp_path / "page.json").read_bytes())
    assert facts["sections"]["labels"]["settled"] == summary["status"]["settled"] >= 40


TINY = {
    "three rows": "1,ann,yes\n1,bob,no\n2,ann,yes\n",
    "everybody labelled everything": "1,ann,yes\n1,bob,no\n2,ann,yes\n2,bob,yes\n",
    "one annotator": "1,ann,yes\n2,ann,no\n",
    "one class": "1,ann,yes\n1,bob,yes\n2,ann,yes\n",
}


@pytest.mark.parametrize("rows", TINY.values(), ids=TINY)
def test_tiny_files_get_one_advice(rows, cli, tmp_path):
    file = tmp_path / "tiny.csv"
    file.write_text(f"item,annotator,label\n{rows}")
    verdict = json.loads(cli("recommend", file, "--budget", 100, "--json").stdout)["verdict"]
    cli("report", file, "-o", tmp_path / "page.html")
    headline = json.loads((tmp_path / "page.json").read_bytes())["headline"]
    advice = next(sentence for sentence in headline if sentence.startswith("Next: "))
    assert verdict[1:] in advice or (verdict.startswith("Collect") and advice.startswith("Next: collect"))
    page = (tmp_path / "page.html").read_text()
    assert "buy another label" not in page
    commands = (["diagnose", file], ["explain", file], ["recommend", file, "--enough"], ["aggregate", file])
    said = [cli(*command).stdout for command in commands]
    said += [one["text"] for one in json.loads((tmp_path / "page.json").read_bytes())["findings"]]
    assert not re.search(r"\b1 (items|annotators|labels|annotations)\b", " ".join([*headline, *said]))
