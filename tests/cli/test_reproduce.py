from __future__ import annotations

import json
import tomllib
from types import SimpleNamespace

from dissensus.papers import experiment, runner
from papers.test_papers import FILE, Module


def toy(monkeypatch):
    """A paper that takes no time, in the place of all."""
    import dissensus.papers as package

    made, module = experiment.parse("toy", tomllib.loads(FILE)), Module()
    monkeypatch.setattr(experiment.Paper, "module", module)
    for where in (runner, package):
        monkeypatch.setattr(where, "load_paper", lambda name: made)
    monkeypatch.setattr(package, "paper_names", lambda: ["toy"])
    return SimpleNamespace(paper=made, calls=module.calls)


def test_papers_are_listed(cli, here):
    text = cli("reproduce", "--list").stdout
    assert "weerasooriya2021: " in text
    assert "table3" in text


def test_pages_and_a_store_are_written_and_nothing_is_run_twice(cli, here, monkeypatch):
    one = toy(monkeypatch)
    result = cli("reproduce", "toy", "table1", "--seeds", "1", "-o", "out")
    assert "out/toy.md, .html; 2 parts are left, 2 of them failed" in result.stdout
    assert "2 parts are left" in result.stderr
    assert sorted(path.name for path in (here / "out").iterdir()) == ["toy.html", "toy.jsonl", "toy.md"]
    assert len((here / "out" / "toy.jsonl").read_text().splitlines()) == 4
    one.calls.clear()
    cli("reproduce", "--seeds", "1", "-o", "out")
    assert [call[1] for call in one.calls] == ["broken", "broken"]
    one.calls.clear()
    cli("reproduce", "toy", "--render", "-o", "out")
    assert not one.calls
    assert "| plain | 1.0 | 1.5 ± 0.5 | -0.5 | 0.000 | 1 |" in (here / "out" / "toy.md").read_text()
    cli("reproduce", "--quick", "-o", "out")
    assert "A quick run" in (here / "out" / "toy-quick.md").read_text()
    assert json.loads((here / "out" / "toy-quick.jsonl").read_text().splitlines()[0])["values"]["square"] == [101]


def test_wrong_names_and_numbers_are_one_sentence(cli, here):
    for words, message in (
        (("nobody1999",), "there is no paper 'nobody1999'"),
        (("weerasooriya2021", "table9"), "has no 'table9'"),
        (("--jobs", "0"), "--jobs must be at least 1, got 0"),
    ):
        result = cli("reproduce", *words)
        assert result.exit_code == 2
        assert message in result.stderr
