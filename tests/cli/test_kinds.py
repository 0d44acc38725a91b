"""What every command does with grades, numbers and comparisons, or says that it cannot."""

from __future__ import annotations

import json
from collections import Counter
from typing import get_args

import numpy as np
import pyarrow.csv as csv
import pytest

from cli.tables import SCORE
from dissensus.cli import COMMANDS
from dissensus.cli.exceptions import NotForLabels
from dissensus.cli.source import COMMANDS_FOR_ANY_KIND, Kind
from dissensus.table.io import write_frame
from dissensus.table.kinds import KIND_DESCRIPTIONS
from dissensus.table.simulate import simulate_kind


@pytest.fixture
def files(here):
    for kind in ("numbers", "graded", "pairs"):
        sim = simulate_kind(kind, 60, 8, n_things=6, seed=1)
        write_frame(sim.annotations.to_arrow(), f"{kind}.csv")
        if kind == "numbers":
            write_frame({"item": np.arange(60), "value": sim.truth}, "gold.csv")
    pairs = sim.annotations
    sides = [pairs.alternatives.names[side][pairs.item] for side in pairs.alternatives[1:]]
    log = {"model_a": sides[0], "model_b": sides[1], "judge": pairs.annotator, "winner": pairs.classes[pairs.label]}
    write_frame(log, "arena.csv")


def test_options_know_all_kinds():
    assert set(get_args(Kind)) == set(KIND_DESCRIPTIONS)
    assert set(COMMANDS_FOR_ANY_KIND) == {
        "describe", "aggregate", "calibrate", "diagnose", "recommend", "report", "adjudicate",
    }  # fmt: skip


def test_numbers_are_aggregated_scored_and_described(cli, files):
    said = json.loads(
        cli(
            "aggregate",
            "numbers.csv",
            "--gold",
            "gold.csv",
            "--gold-use",
            "score",
            "--gold-label",
            "value",
            "-o",
            "out",
            "--json",
        ).stdout
    )
    assert (said["kind"], said["method"], said["reading"]["notes"]) == (
        "numbers", "gaussian", ["Labels are read as numbers; to read them as classes, use kind='classes'."]
    )  # fmt: skip
    assert said["gold"]["mean_absolute_error"] < 0.5
    assert said["gold"]["covered"] > 0.9
    table = csv.read_csv("out/items.csv").to_pydict()
    assert list(table) == ["item", "value", "low", "high", "status", "reason", "annotations"]
    assert Counter(table["status"]) == {key: n for key, n in said["status"].items() if n}
    assert all(
        low <= value <= high for low, value, high in zip(table["low"], table["value"], table["high"], strict=True)
    )
    again = cli("aggregate", "numbers.csv", "--model", "out", "-o", "again")
    assert again.exit_code == 0
    assert csv.read_csv("again/items.csv")["value"].to_pylist() == pytest.approx(table["value"])
    text = cli("aggregate", "numbers.csv", "--gold", "gold.csv", *SCORE).stdout
    assert "Mean absolute error" in text
    assert "the intervals contain" in " ".join(text.split())
    assert "half of them lie between" in cli("describe", "numbers.csv").stdout
    found = cli("describe", "numbers.csv", "--measures", "--resamples", "50").stdout
    assert "intraclass correlation" in found
    pairs = cli("describe", "numbers.csv", "--pairs", "--least", 3).stdout
    assert "Lin's concordance" in pairs
    assert " agree " not in pairs[pairs.index("Lin's concordance") :]
    for more in (("--flags",), ("--to", "csv", "-o", "x")):
        refused = cli("aggregate", "numbers.csv", *more)
        assert (refused.exit_code, refused.stdout, type(refused.error)) == (2, "", NotForLabels)


def test_comparisons_are_ranked(cli, files):
    said = json.loads(cli("aggregate", "arena.csv", "-o", "out", "--json").stdout)
    assert (said["kind"], said["things"], said["reading"]["format"]) == ("pairs", 6, "comparisons in csv")
    ranking = said["ranking"]
    assert [row["rank"] for row in ranking] == list(range(1, 7))
    assert csv.read_csv("out/things.csv").to_pylist()[0]["thing"] == ranking[0]["thing"]
    assert "95 % of ranks" in cli("aggregate", "arena.csv").stdout
    assert "comparisons each" in cli("describe", "arena.csv").stdout
    assert cli("aggregate", "pairs.csv", "--kind", "pairs").exit_code == 0
    refused = cli("aggregate", "numbers.csv", "--kind", "pairs")
    assert (refused.exit_code, refused.stdout, refused.stderr.count("\n")) == (1, "", 1)


def test_grades_take_their_own_method_and_scale(cli, files):
    said = json.loads(cli("aggregate", "graded.csv", "--kind", "graded", "--json").stdout)
    assert said["method"] == "graded-response"
    assert (
        json.loads(cli("describe", "graded.csv", "--kind", "graded", "--resamples", "0", "--json").stdout)["agreement"][
            "scale"
        ]
        == "ordinal"
    )
    for command in ("explain", "recommend"):
        more = ("--budget", "5") if command == "recommend" else ()
        done = cli(command, "graded.csv", "--kind", "graded", "--json", *more)
        assert done.exit_code == 0, done.stderr
        assert json.loads(done.stdout).get("method", "graded-response") == "graded-response"
    assert "--kind graded" in cli("describe", "graded.csv").stdout


OTHER = {"evaluate": ["numbers.csv"], "check": ["--min-settled", "0.9"]}
REFUSING = [
    name for name in COMMANDS if name not in (*COMMANDS_FOR_ANY_KIND, "train", "predict", "list", "serve", "demo")
]


@pytest.mark.parametrize("command", REFUSING)
def test_commands_for_classes_say_that_they_are(cli, files, command):
    done = cli(command, "numbers.csv", *OTHER.get(command, ()))
    assert (done.exit_code, done.stdout) == (2 if command == "check" else 1, "")
    assert f"dissensus {command} requires unordered classes" in done.stderr
    assert done.stderr.count("\n") == 1


def test_how_many_labels_are_enough_is_for_classes(cli, files):
    done = cli("recommend", "numbers.csv", "--enough")
    assert (done.exit_code, done.stdout) == (1, "")
    assert "dissensus recommend --enough requires unordered classes" in done.stderr


@pytest.mark.parametrize(
    ("kind", "coefficient", "files"),
    [
        ("sets", "jaccard_alpha", ["annotators.csv", "confusions.csv", "items.csv", "model.npz", "summary.json"]),
        ("objects", "words_alpha", ["annotators.csv", "items.csv", "model.npz", "summary.json"]),
    ],
)
def test_sets_and_objects_are_described_answered_and_scored(cli, tmp_path, kind, coefficient, files):
    from dissensus.table.simulate import simulate_sets, simulate_texts

    drawn = simulate_sets(40, 8, 4, seed=1) if kind == "sets" else simulate_texts(30, 8, seed=1)
    path, out, more = tmp_path / "labels.csv", tmp_path / "out", () if kind == "sets" else ("--kind", "objects")
    write_frame(drawn.annotations.to_arrow(), path)
    assert json.loads(cli("describe", path, "--json", *more).stdout)["kind"] == kind
    found = json.loads(cli("describe", path, "--json", "--resamples", 20, *more).stdout)["agreement"]
    assert 0.3 < found["coefficients"][coefficient]["value"] < 1
    result = cli("aggregate", path, "-o", out, *more)
    assert result.exit_code == 0, result.output
    assert "exactly this" in result.stdout
    assert sorted(one.name for one in out.iterdir()) == files
    items = (out / "items.csv").read_bytes()
    assert cli("aggregate", path, "--model", out, "-o", tmp_path / "again", *more).exit_code == 0
    assert (tmp_path / "again/items.csv").read_bytes() == items
    refused = cli("explain", path, *more)
    assert refused.exit_code == 1
    assert "dissensus explain requires" in refused.stderr


def test_known_sets_may_be_such_as_nobody_ticked(cli, tmp_path):
    labels, gold = tmp_path / "labels.csv", tmp_path / "gold.csv"
    labels.write_text("item,annotator,label\n1,x,a|b\n1,y,b\n2,x,a\n2,y,a\n3,x,b|a\n3,y,a|b\n")
    gold.write_text('item,label\n1,"a, b, c"\n2,a\n3,b|a\n')
    said = json.loads(cli("aggregate", labels, "--gold", gold, *SCORE, "--json").stdout)
    assert (said["gold"]["items"], said["gold"]["accuracy"]) == (3, pytest.approx(2 / 3))
    gold.write_text('item,label\n1,"a, b, c"\n')
    known = cli("aggregate", labels, "--gold", gold, "-o", tmp_path / "out")
    assert known.exit_code == 0, known.stderr
    assert '"1","a|b|c",' in (tmp_path / "out" / "items.csv").read_text().replace("1,a|b|c,", '"1","a|b|c",')


@pytest.mark.parametrize("kind", ["numbers", "pairs"])
@pytest.mark.parametrize("command", ["evaluate", "diagnose", "recommend", "report"])
def test_commands_answer_for_the_kind(cli, files, command, kind):
    more = {"evaluate": ["--splits", 1, "--resamples", 10], "recommend": ["--budget", 3], "report": ["-o", "page.html"]}
    done = cli(command, {"numbers": "numbers.csv", "pairs": "arena.csv"}[kind], *more.get(command, ()), "--json")
    assert done.exit_code == 0, done.stderr
    said = json.loads(done.stdout)
    fields = {
        "evaluate": {"best", "verdict", "methods"}, "diagnose": {"annotators", "contested_items"},
        "recommend": {"recommended", "verdict"}, "report": {"headline", "findings"},
    }  # fmt: skip
    assert fields[command] <= said.keys()
    assert said.get("best", "win-rate") in ("gaussian", "mean", "median", "bradley-terry", "win-rate")
    if command == "recommend":
        assert len(said["recommended"]) == 3
        assert cli(command, "arena.csv", "--budget", 3, "--cost", 2).exit_code == 2


def test_a_known_text_need_not_be_one_that_somebody_wrote(cli, tmp_path):
    labels, gold = tmp_path / "texts.csv", tmp_path / "gold.csv"
    labels.write_text("item,annotator,label\n1,x,the cat\n1,y,the cat\n1,z,a cat\n2,x,hello\n2,y,hello\n")
    gold.write_text("item,label\n1,the black cat\n2,hello\n")
    said = json.loads(cli("aggregate", labels, "--kind", "objects", "--gold", gold, *SCORE, "--json").stdout)
    assert (said["gold"]["items"], said["gold"]["accuracy"]) == (2, 0.5)
    compared = cli("evaluate", labels, "--kind", "objects", "--gold", gold, "--splits", 1, "--resamples", 5, "--json")
    assert json.loads(compared.stdout)["methods"][0]["gold_distance"] == pytest.approx((1 / 3 + 0) / 2)
