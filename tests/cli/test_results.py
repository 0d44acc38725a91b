"""What `aggregate` says of every item."""

from __future__ import annotations

import csv
import json
from collections import Counter

import pytest

from cli.tables import write_csv


def items(folder):
    with (folder / "items.csv").open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_items_have_votes_labels_status_and_reason(cli, labels, here):
    shown = cli("aggregate", labels, "-o", "out")
    assert shown.exit_code == 0, shown.stderr
    votes: dict[str, Counter[str]] = {}
    for row in csv.DictReader(labels.read_text(encoding="utf-8").splitlines()):
        votes.setdefault(row["item"], Counter())[row["label"]] += 1
    rows = items(here / "out")
    assert list(rows[0])[:7] == ["item", "label", "confidence", "votes", "labels", "status", "reason"]
    for row in rows:
        counted = dict(vote.rsplit(" ", 1) for vote in row["votes"].split(", "))
        assert {name: int(count) for name, count in counted.items()} == votes[row["item"]]
        assert (row["labels"], (float(row["confidence"]) >= 0.95)) == ("7", row["status"] == "settled")
        assert row["reason"]
    counts = Counter(row["status"] for row in rows)
    assert len(counts) >= 2
    about = json.loads((here / "out" / "summary.json").read_text(encoding="utf-8"))["status"]
    assert about == {status: counts[status] for status in ("settled", "needs a look", "truly split")}
    assert f"{counts['settled']:,} items are settled" in " ".join(shown.stdout.split())


def test_scored_items_have_them_too_and_updated_ones_do_not(cli, labels, here):
    assert cli("aggregate", labels, "--method", "dawid-skene", "-o", "out").exit_code == 0
    new = write_csv(here / "new.csv", ["item", "annotator", "label"], [("x", "w5", "cat"), ("x", "w6", "cat")])
    assert cli("aggregate", new, "--model", "out", "-o", "scored").exit_code == 0
    (row,) = items(here / "scored")
    assert (row["votes"], row["labels"]) == ("cat 2", "2")
    updated = cli("aggregate", new, "--model", "out", "--update", "-o", "updated")  # earlier labels are not here
    assert updated.exit_code == 0, updated.stderr
    assert "votes" not in items(here / "updated")[0]


@pytest.mark.parametrize("suffix", ["parquet", "jsonl"])
def test_other_formats_have_them_too(cli, labels, here, suffix):
    from dissensus.table.io import read_frame

    assert cli("aggregate", labels, "--method", "majority-vote", "--format", suffix, "-o", "out").exit_code == 0
    frame = read_frame(here / "out" / f"items.{suffix}")
    assert {"votes", "labels", "status", "reason"} <= set(frame.column_names)
    assert set(map(int, frame["labels"].to_pylist())) == {7}
