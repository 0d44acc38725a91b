"""Every command prints one JSON object, with the fields that docs/json.md lists, and is silent with --quiet."""

from __future__ import annotations

import itertools
import json
import re
from pathlib import Path

import pytest

from cli.tables import SCORE, rows, write_csv
from dissensus import __version__
from dissensus.cli import COMMANDS
from dissensus.table.io import write_frame
from tables import drawn

PAGE = Path(__file__).parent.parent.parent / "docs" / "json.md"
RUNS = {
    "demo": [],
    "describe": ["labels.csv", "--pairs", "--resamples", 50],
    "aggregate": ["labels.csv", "--gold", "gold.csv", *SCORE, "-o", "out"],
    "diagnose": ["labels.csv", "-o", "annotators.csv"],
    "calibrate": ["labels.csv", "--gold", "gold.csv", "--width", 0.5],
    "explain": ["labels.csv", "--annotators", "people.csv", "-m", "wawa"],
    "recommend": ["few.csv", "--budget", 9, "-m", "majority-vote"],
    "report": ["labels.csv", "-m", "majority-vote"],
    "check": ["labels.csv", "--against", "few.csv", "-m", "majority-vote", "--exit-zero"],
    "adjudicate": ["labels.csv", "--no-browser"],
    "serve": ["token", "add", "--role", "read"],
    "cluster": ["labels.csv", "-m", "fmm", "--item-clusters", "2,3"],
    "train": [
        "labels.csv",
        "--features",
        "items.csv",
        "--gold",
        "gold.csv",
        *SCORE,
        "--epochs",
        1,
        "--device",
        "cpu",
        "-o",
        "m",
    ],
    "predict": ["m", "items.csv"],
    "evaluate": ["labels.csv", "gold.csv", "--gold", "gold.csv", "--resamples", 50],
    "list": ["methods"],
}
OTHER_USES = {
    "recommend --enough": [
        "recommend", "labels.csv", "--enough", "--gold", "gold.csv", "-m", "wawa", "--seeds", 1
    ],
    "cluster --decision": ["cluster", "labels.csv", "--decision", "--set", "epochs=1", "-o", "d"],
    "evaluate without PREDICTIONS": [
        "evaluate", "labels.csv", "--gold", "gold.csv", "-m", "majority-vote,wawa", "--resamples", 50
    ],
    "list datasets": ["list", "datasets", "digits-crowd"],
}  # fmt: skip
"""Heading of the page → a command that prints other fields with these arguments."""


@pytest.fixture
def files(labels, here):
    """labels.csv and gold.csv with people.csv, items.csv and few.csv, an earlier snapshot."""
    annotations, truth = rows()
    write_csv(here / "people.csv", ["annotator", "group"], [(f"w{a}", "ab"[a % 2]) for a in range(7)])
    write_csv(here / "items.csv", ["item", "x", "y"], [(i, len(label), n % 5) for n, (i, label) in enumerate(truth)])
    few = [(i, w, "owl" if i == "i000" else label) for i, w, label in annotations if w in ("w4", "w5", "w6")]
    write_csv(here / "few.csv", ["item", "annotator", "label"], few)
    return here


def paths(value, before=()):
    """The place of every value: keys of objects, [] for an entry of a list of objects, ∅ below what is empty."""
    if isinstance(value, dict) and value:
        for key, one in value.items():
            yield from paths(one, (*before, key))
    elif isinstance(value, list) and value and isinstance(value[0], dict):
        for one in value:
            yield from paths(one, (*before[:-1], f"{before[-1]}[]"))
    else:
        yield (*before, "∅") if value in ({}, []) else before


def documented(command):
    """Return the patterns of the list of a command, each with whether the field always exists."""
    text = PAGE.read_text(encoding="utf-8")
    section = re.search(rf"^## {re.escape(command)}\n(.*?)(?=^## |\Z)", text, flags=re.MULTILINE | re.DOTALL)[1]
    found = {("command",): True, ("version",): True, ("reading", "…"): False}
    for fields, meaning in re.findall(r"((?:^[\w{].*\n)+)    (\S.*)$", section, flags=re.MULTILINE):
        for field in fields.strip().replace("\n", ", ").split(", "):
            parts = [[one] if one[0] != "{" else one[1:-1].split(",") for one in re.findall(r"\{.*?\}|[^{}]+", field)]
            for pieces in itertools.product(*parts):
                name = "".join(pieces).replace("items_below_0.7", "items_below_0 7")
                pattern = tuple(piece.replace("0 7", "0.7") for piece in name.split("."))
                found[pattern] = not re.search(r"\bif\b|--", meaning)
    return found


def fits(path, pattern):
    if pattern[-1] == "…":
        return len(path) >= len(pattern) - 1 and fits(path[: len(pattern) - 1], pattern[:-1])
    if path[-1] == "∅":
        path = path[:-1]
        pattern = tuple(part.removesuffix("[]") for part in pattern[: len(path)])
    return len(path) == len(pattern) and all(p in (one, "*") for one, p in zip(path, pattern, strict=True))


def run(cli, command, *more):
    if command in ("train", "predict"):
        pytest.importorskip("torch", reason="needs the extra learning")
    if command == "predict":
        cli("train", *RUNS["train"])
    return cli(command, *RUNS[command], *more)


def test_every_command_is_tried_and_on_the_page():
    assert RUNS.keys() == COMMANDS.keys()
    on_page = set(re.findall(r"^## (.+)$", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE))
    assert on_page == COMMANDS.keys() | OTHER_USES.keys()


@pytest.mark.parametrize("command", COMMANDS)
def test_json_is_one_object_with_the_fields_of_the_page(files, cli, command, monkeypatch):
    if command in ("demo", "report"):  # drawing takes seconds, and is tested with the report
        monkeypatch.setattr("dissensus.report.Report.save", lambda self, path: [path, path])
    if command == "adjudicate":
        pytest.importorskip("fastapi", reason="needs the extra serve")
        monkeypatch.setattr("uvicorn.Server.run", lambda self, sockets: sockets[0].close())
    check_fields(run(cli, command, "--json", "--quiet"), command, command)


@pytest.mark.parametrize("use", OTHER_USES)
def test_other_uses_of_a_command_have_their_fields_on_the_page(files, cli, use):
    if use == "cluster --decision":
        pytest.importorskip("torch", reason="needs the extra learning")
    command, *arguments = OTHER_USES[use]
    check_fields(cli(command, *arguments, "--json", "--quiet"), use, command)


def check_fields(result, heading, command):
    """Assert that JSON has the fields that the page lists under a heading, and no others."""
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert list(found)[:2] == ["command", "version"]
    assert (found["command"], found["version"]) == (command, __version__)
    patterns, there = documented(heading), set(paths(found))
    unknown = [".".join(path) for path in there if not any(fits(path, pattern) for pattern in patterns)]
    assert not unknown, f"docs/json.md does not say what these fields of {heading} are"
    missing = [".".join(one) for one, always in patterns.items() if always and not any(fits(p, one) for p in there)]
    assert not missing, f"docs/json.md names fields that {heading} does not print"


@pytest.mark.parametrize("kind", ["numbers", "pairs", "sets", "objects", "spans"])
def test_the_page_has_the_fields_of_other_kinds(cli, here, kind):
    write_frame(drawn(kind).to_arrow(), here / "labels.csv")
    for command in ("describe", "aggregate"):
        result = cli(command, "labels.csv", "--kind", kind, "--json", "--quiet")
        assert result.exit_code == 0, result.output
        patterns, there = documented(command), set(paths(json.loads(result.stdout)))
        assert [path for path in there if not any(fits(path, pattern) for pattern in patterns)] == [], command


@pytest.mark.parametrize("command", ["describe", "aggregate", "check", "list"])
def test_quiet_prints_nothing(files, cli, command):
    assert run(cli, command).stdout
    result = run(cli, command, "-q")
    assert (result.exit_code, result.stdout, result.stderr) == (0, "", "")


def test_quiet_keeps_warnings_and_errors(files, cli):
    assert cli("describe", "nowhere.csv", "-q").stderr
    write_csv(files / "other.csv", ["item", "label"], [("i000", "cat"), ("elsewhere", "cat")])
    assert cli("aggregate", "labels.csv", "--gold", "other.csv", *SCORE, "-q").warnings
