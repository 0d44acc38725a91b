"""No command writes over any of its inputs, whatever the names of the files that it writes."""

import json
import os
import shutil
from pathlib import Path

import pytest

from cli.tables import write_csv
from dissensus.common.exceptions import OverwritesInput


def contents(folder):
    return {str(path): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


LABELS = "labels.csv"
REFUSED = [  # arguments, and the input that would be lost; 'ag' is the folder of an earlier run
    (["report", "project.json", "-o", "project.html"], "project.json"),
    (["report", LABELS, "--items", "texts.json", "-o", "texts.html"], "texts.json"),
    (["report", "page-key.csv", "-o", "page.html"], "page-key.csv"),
    (["report", "linked.csv", "-o", "other.html"], "other-key.csv"),
    (["report", LABELS, "--annotators", "people-key.csv", "-o", "people.html"], "people-key.csv"),
    (["report", LABELS, "--clusters", "ag", "-o", "ag/summary.html"], "ag/summary.json"),
    (["aggregate", LABELS, "--model", "ag/model.npz", "-o", "ag"], "ag/model.npz"),
    (["aggregate", LABELS, "--model", "ag", "-o", "ag"], "ag/items.csv"),
    (["aggregate", LABELS, "--model", "ag", "--update", "-o", "ag"], "ag/items.csv"),
    (["aggregate", "ag/items.csv", "-o", "ag"], "ag/items.csv"),
    (["aggregate", LABELS, "--gold", "ag/items.csv", "-o", "ag"], "ag/items.csv"),
    (["aggregate", "ag/item[s].csv", "-o", "ag"], "ag/items.csv"),
    (["cluster", LABELS, "--dev", "ag/items.csv", "-o", "ag"], "ag/items.csv"),
    (["train", LABELS, "--items", "ag/items.csv", "-o", "ag"], "ag/items.csv"),
    (["train", LABELS, "--features", "ag/annotators.csv", "-o", "ag"], "ag/annotators.csv"),
    (["explain", LABELS, "--annotators", "people-key.csv", "-o", "people-key.csv"], "people-key.csv"),
    (["recommend", LABELS, "--enough", "--gold", "gold.csv", "-o", "gold.csv"], "gold.csv"),
    (["recommend", LABELS, "--budget", "9", "--cost", "gold.csv", "-o", "gold.csv"], "gold.csv"),
    (["diagnose", LABELS, "-o", LABELS], LABELS),
    (["predict", "ag", LABELS, "-o", LABELS], LABELS),
]


@pytest.fixture
def files(labels, here):
    annotations = [line.split(",") for line in labels.read_text().splitlines()[1:]]
    project = [
        {"id": i, "data": {"text": item}, "annotations": [{"completed_by": who, "result": [
            {"type": "choices", "from_name": "q", "to_name": "t", "value": {"choices": [label]}}]}]}
        for i, (item, who, label) in enumerate(annotations)
    ]  # fmt: skip
    Path("project.json").write_text(json.dumps(project))
    Path("texts.json").write_text(json.dumps([{"item": "i000", "text": "a text"}]))
    shutil.copy(labels, "page-key.csv")
    shutil.copy(labels, "linked.csv")
    os.link("linked.csv", "other-key.csv")
    write_csv(here / "people-key.csv", ["annotator", "team"], [(f"w{a}", a % 2) for a in range(7)])
    Path("ag").mkdir()
    for name in ("items.csv", "annotators.csv", "model.npz", "summary.json"):
        shutil.copy(labels, Path("ag") / name)
    return here


@pytest.mark.parametrize(("arguments", "lost"), REFUSED, ids=[" ".join(arguments) for arguments, _ in REFUSED])
def test_an_input_is_never_overwritten(cli, files, arguments, lost):
    before = contents(files)
    out = cli(*arguments)
    assert (out.exit_code, out.stderr.count("\n")) == (2, 1), out.output
    assert out.error.facts == {"path": Path(lost)}
    assert contents(files) == before


def test_a_data_set_is_not_written_over_itself(cli, here, monkeypatch):
    assert cli("list", "datasets", "digits-crowd", "-o", "sets/mine").exit_code == 0
    monkeypatch.setenv("DISSENSUS_DATA", "sets")
    before = contents(here)
    out = cli("list", "datasets", "mine", "-o", "sets/mine")
    assert (out.exit_code, type(out.error)) == (2, OverwritesInput)
    assert contents(here) == before


def test_a_page_beside_the_model_may_be_written_again(cli, labels):
    """A page in a folder that is read, and what goes with it, are no input."""
    assert cli("cluster", labels, "--item-clusters", "2", "--annotator-clusters", "2", "-o", "found").exit_code == 0
    for _ in range(2):
        out = cli("report", labels, "-m", "majority-vote", "--clusters", "found", "-o", "found/report.html")
        assert out.exit_code == 0, out.output
