"""`dissensus cluster`: searches, writes, goes on where it was killed, and says what is wrong."""

import csv
import json

import numpy as np
import pytest

from benchmarks.clustering.drawn import draw
from cli.tables import write_csv
from dissensus.cli.exceptions import BadSizes, NotWrittenBy, SettingHasOption
from dissensus.common.exceptions import OutOfRange, UnknownEntry
from dissensus.exceptions import DissensusError, UnknownClass, UnreadableFile

SMALL = ("--item-clusters", "2:3", "--annotator-clusters", "1,2")


@pytest.fixture
def drawn(here):
    """drawn.csv: 60 items of 3 clusters by 20 annotators of 2."""
    made = draw(60, 20, 4, item_clusters=3, annotator_clusters=2, redundancy=6, seed=1)
    table = made.annotations
    rows = zip(table.items[table.item], table.annotators[table.annotator], table.label, strict=True)
    return write_csv(here / "drawn.csv", ["item", "annotator", "label"], rows)


def frame(path):
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_a_range_is_searched_and_everything_written(cli, drawn):
    result = cli("cluster", drawn, *SMALL, "-o", "out")
    assert (result.exit_code, result.stderr) == (0, "")
    out = drawn.parent / "out"
    names = {"items.csv", "annotators.csv", "clusters.csv", "search.csv", "search.jsonl", "model.npz", "summary.json"}
    names |= {"clusters.html", "clusters.json", "clusters-key.csv"}
    assert {path.name for path in out.iterdir()} == names
    summary = json.loads((out / "summary.json").read_text(encoding="utf-8"))
    points = frame(out / "search.csv")
    assert {(p["K"], p["L"]) for p in points} == {("2", "1"), ("2", "2"), ("3", "1"), ("3", "2")}
    best = max(points, key=lambda p: float(p["log_likelihood"]))
    assert (summary["item_clusters"], summary["annotator_clusters"]) == (int(best["K"]), int(best["L"]))
    items, people, theta = (frame(out / f"{name}.csv") for name in ("items", "annotators", "clusters"))
    assert len(items) == 60
    assert len(people) == 20
    assert np.bincount([int(row["cluster"]) for row in items]).tolist() == summary["items"]
    K, L = summary["item_clusters"], summary["annotator_clusters"]
    assert len(theta) == K * L * 4
    total = sum(float(row["probability"]) for row in theta)
    assert total == pytest.approx(K * L)


def test_a_search_goes_on_where_it_was(cli, drawn):
    cli("cluster", drawn, *SMALL, "-o", "out")
    store = drawn.parent / "out" / "search.jsonl"
    lines = store.read_text(encoding="utf-8").splitlines()
    marked = [json.dumps(json.loads(line) | {"seconds": 12345.0}) for line in lines]
    store.write_text("\n".join(marked[:2]) + "\n" + lines[2][:20], encoding="utf-8")  # killed in the third line
    cli("cluster", drawn, *SMALL, "-o", "out")
    seconds = [float(row["seconds"]) for row in frame(drawn.parent / "out" / "search.csv")]
    assert sorted(s == 12345 for s in seconds) == [False, False, True, True]


def test_single_numbers_need_no_search(cli, drawn):
    summary = json.loads(cli("cluster", drawn, "--method", "fmm", "--item-clusters", "3", "--json").stdout)
    assert summary["item_clusters"] == 3
    assert summary["annotator_clusters"] == 1
    assert "search" not in summary
    assert sum(summary["items"]) == 60


def test_development_items_can_be_a_file_of_their_own(cli, drawn):
    other = draw(30, 20, 4, item_clusters=3, annotator_clusters=2, redundancy=6, seed=2).annotations
    rows = zip(other.items[other.item] + 1000, other.annotators[other.annotator], other.label, strict=True)
    write_csv(drawn.parent / "dev.csv", ["item", "annotator", "label"], rows)
    summary = json.loads(cli("cluster", drawn, *SMALL, "--dev", "dev.csv", "--criterion", "kl", "--json").stdout)
    assert summary["search"]["criterion"] == "kl"
    assert summary["search"]["best"]["log_likelihood"] is None


def test_the_report_shows_the_clusters(cli, drawn):
    cli("cluster", drawn, *SMALL, "-o", "out")
    result = cli("report", drawn, "--clusters", "out", "--method", "dawid-skene")
    assert (result.exit_code, result.stderr) == (0, "")
    facts = json.loads((drawn.parent / "report.json").read_text(encoding="utf-8"))["sections"]["clusters"]
    assert len(facts["search"]["points"]) == 4
    assert sum(one["items"] for one in facts["item_clusters"]) == 60
    (drawn.parent / "out" / "summary.json").write_text("{", encoding="utf-8")
    result = cli("report", drawn, "--clusters", "out", "-o", "again.html")
    assert (result.exit_code, type(result.error)) == (1, NotWrittenBy)


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["--item-clusters", "a:b"], BadSizes),
        (["--annotator-clusters", "0"], BadSizes),
        (["--method", "pgm-bq"], UnknownEntry),
        (["--set", "n_clusters=3", "--method", "fmm"], SettingHasOption),
        (["--item-clusters", "200", "--annotator-clusters", "2"], DissensusError),
        (["--dev", "missing.csv"], UnreadableFile),
        (["--dev", "1.5"], OutOfRange),
    ],
)
def test_bad_usage_is_one_sentence(cli, drawn, arguments, error):
    result = cli("cluster", drawn, *arguments)
    assert result.exit_code in (1, 2)
    assert isinstance(result.error, error)
    assert result.stderr.count("\n") == 1


def test_a_development_class_that_was_never_seen_is_an_error(cli, drawn):
    write_csv(drawn.parent / "dev.csv", ["item", "annotator", "label"], [("x", 1, "new"), ("x", 2, "0")])
    result = cli("cluster", drawn, *SMALL, "--dev", "dev.csv")
    assert (result.exit_code, isinstance(result.error, UnknownClass)) == (1, True)


def test_questions_are_taken_one_by_one(cli, questions):
    result = cli("cluster", questions, *SMALL)
    assert (result.exit_code, result.error.count) == (2, 3)


@pytest.mark.parametrize("method", ["pgm-bp", "fmm"])
def test_a_range_is_cut_to_the_items_and_annotators_that_are_there(cli, here, method):
    table = draw(16, 5, 3, item_clusters=2, annotator_clusters=2, redundancy=3, seed=1).annotations
    rows = zip(table.items[table.item], table.annotators[table.annotator], table.label, strict=True)
    few = write_csv(here / "few.csv", ["item", "annotator", "label"], rows)
    result = cli("cluster", few, "--method", method, "-o", "out")
    assert (result.exit_code, result.stderr) == (0, "")
    points = frame(here / "out" / "search.csv")
    assert sorted({int(point["K"]) for point in points}) == [3, 5, 8, 12]  # 12 of 16 items are fitted
    assert sorted({int(point["L"]) for point in points}) == ([3, 4, 5] if method == "pgm-bp" else [1])
    assert "--search full" in result.stdout
    result = cli("cluster", few, "--item-clusters", "2:3", "--annotator-clusters", "7:9", "--method", method)
    assert result.exit_code == 0
    assert "full" not in result.stdout  # all of these ranges were tried
    assert cli("cluster", few, "--annotator-clusters", "2,9").exit_code != 0  # a list is not cut


def test_a_search_fits_no_pair_twice(cli, drawn):
    result = cli("cluster", drawn, "--item-clusters", "2:9", "--annotator-clusters", "1,2", "-o", "out")
    assert "--search full" in result.stdout
    lines = (drawn.parent / "out" / "search.jsonl").read_text(encoding="utf-8").splitlines()
    assert len(lines) == 8
