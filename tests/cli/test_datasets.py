from __future__ import annotations

import json
from pathlib import Path

import pytest

import dissensus as dz
from cli.tables import write_csv
from dissensus.cli.exceptions import InTheWay, OptionNeeds
from dissensus.exceptions import UnknownName


def test_bundled_set_is_listed_and_the_data_folder_explained(cli, here):
    text = cli("list", "datasets").stdout
    assert "digits-crowd" in text
    assert "DISSENSUS_DATA" in text


def test_sets_of_the_data_folder_are_listed(cli, here, monkeypatch):
    monkeypatch.setenv("DISSENSUS_DATA", str(here))
    (here / "pets").mkdir()
    write_csv(here / "pets" / "annotations.csv", ["item", "annotator", "label"], [("a", "x", "cat"), ("a", "y", "dog")])
    found = {info["name"]: info for info in json.loads(cli("list", "datasets", "--json").stdout)["datasets"]}
    assert set(found) == {"digits-crowd", "pets"}
    assert "pets" in cli("list", "datasets").stdout
    about = json.loads(cli("list", "datasets", "pets", "--json").stdout)
    assert about["annotations"]["items"] == 1
    assert about["gold_items"] is None


def test_one_set_becomes_files_that_read_back_the_same(cli, here):
    result = cli("list", "datasets", "digits-crowd", "-o", "digits", "--json")
    data = dz.load_dataset("digits-crowd")
    assert sorted(path.name for path in (here / "digits").iterdir()) == json.loads(result.stdout)["files"]
    assert dz.read("digits/annotations.csv").describe() == data.annotations.describe()
    text = cli("list", "datasets", "digits-crowd", "-o", "digits").stdout
    assert "annotations.csv" in text
    assert "--features" in text
    assert "--features" not in cli("list", "datasets", "digits-crowd", "-o", "whole", "--features").stdout


def test_failed_writing_leaves_nothing(cli, here, monkeypatch):
    def fail(self, folder, **_):
        (folder / "annotations.csv").write_text("half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("dissensus.table.datasets.Dataset.write", fail)
    result = cli("list", "datasets", "digits-crowd", "-o", "a/b/digits")
    assert (result.exit_code, result.stderr.count("\n")) == (1, 1)
    assert result.error.facts == {"path": Path("a/b/digits"), "reason": "No space left on device"}
    assert not list(here.iterdir())


@pytest.mark.parametrize(
    ("args", "error"),
    [(("digits-crwd",), UnknownName), (("-o", "x"), OptionNeeds), (("digits-crowd", "-o", "file"), InTheWay)],
)
def test_wrong_use_is_one_sentence(cli, here, args, error):
    (here / "file").touch()
    result = cli("list", "datasets", *args)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith("dissensus: ")
    assert isinstance(result.error, error)
    assert result.stderr.count("\n") == 1
