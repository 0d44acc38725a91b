"""The command line of the papers."""

from __future__ import annotations

import json
import tomllib
from dataclasses import replace
from types import SimpleNamespace

import pytest

from reproductions import experiment, runner
from reproductions.tests.toy import FILE, Module


def toy(monkeypatch):
    """Replace all papers by one that takes no time."""
    import reproductions as package

    made, module = experiment.parse("toy", tomllib.loads(FILE)), Module()
    monkeypatch.setattr(experiment.Paper, "module", module)
    for where in (runner, package):
        monkeypatch.setattr(where, "load_paper", lambda name: made)
    monkeypatch.setattr(package, "paper_names", lambda: ["toy"])
    monkeypatch.setenv("DISSENSUS_DATA", ".")
    return SimpleNamespace(paper=made, calls=module.calls)


def test_papers_are_listed(cli, work_folder):
    text = cli("--list").stdout
    assert "weerasooriya2021: " in text
    assert "table3" in text


def test_pages_and_a_store_are_written_and_nothing_is_run_twice(cli, work_folder, monkeypatch):
    one = toy(monkeypatch)
    result = cli("toy", "table1", "--seeds", "1", "-o", "out")
    assert "out/toy.md, .html; 2 parts are left, 2 of them failed" in result.stdout
    assert "2 parts are left, 2 of which failed; run the same command again to continue" in result.stderr
    assert result.exit_code == 1
    assert sorted(path.name for path in (work_folder / "out").iterdir()) == [
        "toy-claims.svg",
        "toy.html",
        "toy.jsonl",
        "toy.md",
    ]
    assert len((work_folder / "out" / "toy.jsonl").read_text().splitlines()) == 4
    one.calls.clear()
    cli("--seeds", "1", "-o", "out")
    assert [call[1] for call in one.calls] == ["broken", "broken"]
    one.calls.clear()
    assert cli("toy", "--render", "-o", "out").exit_code == 0
    assert not one.calls
    assert "| plain | 1.0 | 1.5 ± 0.5 | -0.5 | 0.000 | 1 |" in (work_folder / "out" / "toy.md").read_text()
    cli("--quick", "-o", "out")
    assert "A quick run" in (work_folder / "out" / "toy-quick.md").read_text()
    assert json.loads((work_folder / "out" / "toy-quick.jsonl").read_text().splitlines()[0])["values"]["square"] == [
        101
    ]


def test_wrong_names_and_numbers_are_one_sentence(cli, work_folder):
    for words, message in (
        (("nobody1999",), "there is no paper 'nobody1999'"),
        (("weerasooriya2021", "table9"), "has no 'table9'"),
        (("--jobs", "0"), "--jobs must be at least 1, got 0"),
    ):
        result = cli(*words)
        assert result.exit_code == 2
        assert message in result.stderr


def test_without_the_device_nothing_is_begun(cli, work_folder, monkeypatch):
    pytest.importorskip("torch", reason="needs the `learning` extra")
    one = toy(monkeypatch)
    for device, message in (("gpu", "device must be 'auto', "), ("cuda:99", "this machine has no device 'cuda:99'")):
        result = cli("toy", "--device", device, "-o", "out")
        assert result.exit_code == 2
        assert message in result.stderr
    assert not one.calls


def test_without_the_data_nothing_is_begun(cli, work_folder, monkeypatch):
    one = toy(monkeypatch)
    for folder, message in (
        (
            None,
            "DISSENSUS_DATA is not set, and the papers' data are in the folder that it names; `export DISSENSUS_DATA=",
        ),
        ("nowhere", "DISSENSUS_DATA names 'nowhere', which is not a folder"),
    ):
        monkeypatch.delenv("DISSENSUS_DATA") if folder is None else monkeypatch.setenv("DISSENSUS_DATA", folder)
        result = cli("toy", "-o", "out")
        assert result.exit_code == 1
        assert message in result.stderr
        assert len(result.stderr.splitlines()) == 1
        assert cli("toy", "--render", "-o", "out").exit_code == 0  # Rendering needs no run.
    assert not one.calls


def test_a_page_that_cannot_be_written_whole_stays_what_it_was(cli, work_folder, monkeypatch):
    toy(monkeypatch)
    cli("toy", "--seeds", "1", "-o", "out")
    before = (work_folder / "out" / "toy.html").read_text()

    monkeypatch.setattr("reproductions.render_html", lambda *args, **kwargs: "\ud800")  # no UTF-8: breaks in writing
    result = cli("toy", "--render", "-o", "out")
    assert result.exit_code != 0
    assert (work_folder / "out" / "toy.html").read_text() == before


def test_what_is_kept_is_said_when_a_run_is_interrupted(cli, work_folder, monkeypatch):
    toy(monkeypatch)
    cli("toy", "--seeds", "1", "-o", "out")

    def stopped(*args, **kwargs):
        raise KeyboardInterrupt

    monkeypatch.setattr("reproductions.reproduce", stopped)
    result = cli("toy", "-o", "out")
    assert result.exit_code == 130
    assert (
        "4 parts are in out/toy.jsonl; run the same command again to continue, or with --render to write pages."
        in result.stderr
    )


def test_pictures_that_are_not_there_are_named(cli, work_folder, monkeypatch):
    one = toy(monkeypatch)
    one.paper.tables["table1"] = replace(one.paper.tables["table1"], figures=({"file": "a.svg", "text": "A map"},))
    result = cli("toy", "--render", "-o", "out")
    assert "a.svg: not in out; `python -m reproductions toy` without --render draws it." in result.stderr
    (work_folder / "out" / "a.svg").touch()
    assert not cli("toy", "--render", "-o", "out").stderr
