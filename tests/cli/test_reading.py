"""Commands say how FILE was read, and every option of reading does what it says."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from dissensus.cli import app
from dissensus.cli.exceptions import GoldIgnored
from dissensus.cli.inputs import Inputs
from dissensus.exceptions import DataError
from dissensus.table.io import write_frame

LONG = "item,annotator,label\na,x,yes\na,y,no\nb,x,no\nb,y,no\n"
WIDE = "id,text,ann,bob\n1,first,yes,no\n2,second,no,no\n3,third,no,\n"
SPELLED = "item,annotator,label\na,x, Yes\na,y,yes\nb,x,YES\nb,y,no\nc,x,\n"


def choices(*ticks):
    return {"type": "choices", "from_name": "tone", "value": {"choices": list(ticks)}}


def task(number, **answers):
    right = {"id": number, "completed_by": 9, "ground_truth": True, "result": [choices("kind")]}
    given = [{"id": 1, "completed_by": who, "result": [choices(tick)]} for who, tick in answers.items()]
    return {"id": number, "data": {"text": f"text {number}"}, "annotations": [*given, *([right] if number < 3 else [])]}


PROJECT = [task(n, ann="kind" if n % 2 else "rude", bob="kind", eve="rude" if n % 3 else "kind") for n in range(8)]


def described(cli, *args):
    result = cli("describe", *args, "--json")
    assert (result.exit_code, result.stderr) == (0, "")
    return json.loads(result.stdout)


def test_a_command_says_how_it_read_its_file_above_its_results(cli, here):
    Path("labels.csv").write_text(LONG.replace("annotator", "worker"))
    said = "Read as csv: item 'item', annotator 'worker', label 'label'; all 4 rows used. Change: --item, --annotator, "
    for command in (
        ("describe",),
        ("aggregate", "-m", "majority-vote"),
        ("describe", "--measures", "--resamples", "0"),
    ):
        lines = cli(command[0], "labels.csv", *command[1:]).stdout.splitlines()
        assert lines[0] == f"{said}--label."
    assert not any(line.startswith("Read as") for line in lines[1:])
    assert described(cli, "labels.csv")["reading"]["columns"]["annotator"] == "'worker'"


def test_summary_json_keeps_the_account(cli, here):
    Path("project.json").write_text(json.dumps(PROJECT))
    result = cli("aggregate", "project.json", "-o", "out", "-m", "majority-vote")
    assert result.stdout.splitlines()[1] == "Not used: 3 answers marked as correct (gold labels, no votes)."
    summary = json.loads(Path("out/summary.json").read_text())
    assert summary["reading"] == {
        "format": "label-studio",
        "columns": {
            "item": "id",
            "annotator": "who answered",
            "label": "'tone'",
            "text": "'text'",
            "gold": "3 answers marked as correct",
        },
        "answers": 27,
        "used": 24,
        "not_used": {"answers marked as correct (gold labels, no votes)": 3},
        "notes": [],
    }
    assert summary["gold"]["items"] == 3  # ground truth is used as gold where no file is named


@pytest.mark.parametrize(
    ("content", "args", "expected"),
    [
        (WIDE, (), {"items": 3, "annotators": 2, "annotations": 5}),
        (WIDE, ("--wide", "--item", "text", "--annotator", "ann,bob"), {"items": 3, "annotations": 5}),
        ("doc,turn,who,label\na,1,x,yes\na,2,y,no\na,1,y,no\n", ("--item", "doc,turn"), {"items": 2}),
        (SPELLED, ("--abstain", "", "--normalize"), {"classes": 2, "annotations": 4}),
        (SPELLED, ("--abstain", "", "--map", "YES=yes", "--map", " Yes=yes"), {"classes": 2}),
        (SPELLED, ("--abstain", "", "--map", "map.csv"), {"classes": 3}),
        (SPELLED, ("--abstain", "", "--map", "no="), {"classes": 3, "annotations": 3}),
    ],
)  # fmt: skip
def test_options_of_reading(cli, here, content, args, expected):
    Path("map.csv").write_text("old,new\nYES,yes\n")
    Path("labels.csv").write_text(content)
    found = described(cli, "labels.csv", *args)
    assert {key: found[key] for key in expected} == expected


def test_standard_input(here):
    result = CliRunner().invoke(app, ["describe", "-", "--json"], input=LONG)
    assert json.loads(result.stdout)["annotations"] == 4


@pytest.mark.parametrize(
    ("name", "content", "args", "says"),
    [
        ("t.csv", "id,ann\n1,yes\n2,no\n", (), "--annotator COLUMN"),
        ("t.csv", "id,ann\n1,yes\n2,no\n", ("--wide",), "--annotator A,B,…"),
        ("t.csv", "\n".join(["item,annotator,label", *(f"{n},a,x{n}" for n in range(1100))]), (), "--many-classes"),
        ("t.csv", SPELLED, (), '--abstain ""'),
    ],
    ids=["no annotator", "not wide", "no classes", "empty label"],
)  # fmt: skip
def test_advice_names_options_that_there_are(cli, here, name, content, args, says):
    Path(name).write_text(content)
    result = cli("describe", name, *args)
    assert (result.exit_code, result.stdout) == (1, "")
    assert says in result.stderr
    assert result.stderr.count("\n") == 1


def test_texts_of_an_export_are_those_of_its_items(cli, here, monkeypatch):
    def report(*_, items, **__):
        raise DataError(f"{items.column_names}, {items['text'][5]}")

    monkeypatch.setattr("dissensus.report.Report", report)
    Path("project.json").write_text(json.dumps(PROJECT))
    result = cli("report", "project.json", "-o", "page.html", "--method", "majority-vote")
    assert "['item', 'text', 'gold'], text 5" in result.stderr


def test_texts_may_stand_in_the_table_of_labels(here):
    Path("labels.csv").write_text("item,annotator,label,text\nb,x,1,second\nb,y,0,second\na,x,1,first\n")
    names, texts = Inputs("texts", ("text",)).read(Path("labels.csv"))
    assert (names.tolist(), texts) == (["b", "a"], ["second", "first"])
    Path("labels.csv").write_text("item,annotator,label,text\nb,x,1,second\nb,y,0,other\n")
    with pytest.raises(DataError):
        Inputs("texts", ("text",)).read(Path("labels.csv"))


def test_known_labels_outside_the_classes_are_said_and_not_used(cli, here):
    Path("labels.csv").write_text(
        LONG.replace("label\n", "label,gold\n").replace("yes\n", "yes,maybe\n").replace("no\n", "no,\n")
    )
    result = cli("aggregate", "labels.csv", "-m", "majority-vote")
    assert result.exit_code == 0
    assert list(map(type, result.warnings)) == [GoldIgnored]


def test_a_table_on_a_disk_is_said_too(cli, here):
    write_frame({"task": ["a", "a", "b"], "worker": ["x", "y", "x"], "label": ["p", "q", "p"]}, "labels.parquet")
    said = cli("aggregate", "labels.parquet", "--engine", "disk", "-m", "majority-vote").stdout
    assert said.startswith("Read as parquet: item 'task', annotator 'worker', label 'label'; all 3 rows used.")


@pytest.mark.parametrize("command", ["aggregate", "diagnose", "describe"])
def test_every_command_says_that_classes_are_spelt_in_several_ways(cli, here, command):
    rows = [f"i{n // 3},{'abc'[n % 3]},{('Yes', 'yes', 'no')[(n + n // 3) % 3]}" for n in range(30)]
    (here / "spelt.csv").write_text("\n".join(["item,annotator,label", *rows]) + "\n")
    text = " ".join(cli(command, "spelt.csv").stdout.split())
    assert "are treated as different: Yes, yes. Merge them with --normalize." in text
    assert "treated as different" not in cli(command, "spelt.csv", "--normalize").stdout


SPELT = ["item,annotator,label", *(f"t{i},p{p},{['yes', 'no'][i % 2].title() if p % 2 else ['yes', 'no'][i % 2]}"
                                   for i in range(30) for p in range(4))]  # fmt: skip


def test_nobody_is_named_before_the_spelling_is_settled(cli, here):
    (here / "spelt.csv").write_text("\n".join(SPELT))
    said = cli("diagnose", "spelt.csv", "--json")
    assert json.loads(said.stdout)["annotators"] == {}
    assert json.loads(said.stdout)["unsettled"].startswith("Some classes differ")
    assert not json.loads(cli("diagnose", "spelt.csv", "--json", "--normalize").stdout)["unsettled"]


def test_several_annotator_columns_without_a_label_are_a_wide_table(cli, here):
    (here / "wide.csv").write_text("id,A,B,C\n1,yes,no,yes\n2,no,no,no\n3,yes,yes,no\n")
    said = cli("describe", "wide.csv", "--annotator", "A,B,C")
    assert "Read as wide csv: item 'id', annotator the columns 'A', 'B', 'C'" in said.stdout
    (here / "pairs.csv").write_text("id,note,team,person\n1,a,x,p\n2,b,y,q\n3,c,x,p\n")
    said = cli("describe", "pairs.csv", "--annotator", "team,person")
    assert "--label COLUMN" in said.stderr
