"""Spans on the command line: spans.csv, agreement, a model used again, and back into the tool."""

from __future__ import annotations

import csv
import json

import pytest

from cli.tables import SCORE
from dissensus import read
from dissensus.cli.exceptions import NoCharacters
from dissensus.exceptions import DataError
from dissensus.models.saving import load
from dissensus.table.simulate import simulate_spans
from dissensus.table.spans import extract_spans
from table.test_spans import CHARACTERS, TOOLS, spans_said


def rows_of(path):
    with path.open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


@pytest.fixture
def tags(here):
    """tags.csv: 30 simulated documents, and gold.csv."""
    sim = simulate_spans(30, 6, 2, seed=5)
    columns = sim.annotations.to_arrow().to_pydict()
    lines = [",".join(row) for row in zip(*columns.values(), strict=True)]
    (here / "tags.csv").write_text("\n".join(["item,annotator,label", *lines]) + "\n")
    known = zip(sim.annotations.items, sim.annotations.classes[sim.truth], strict=True)
    (here / "gold.csv").write_text("\n".join(["item,label", *(",".join(row) for row in known)]) + "\n")
    return here / "tags.csv"


def test_spans_come_with_probabilities_and_scores_and_the_model_is_used_again(cli, tags, here):
    done = cli("aggregate", tags, "--gold", "gold.csv", *SCORE, "--to", "conll", "-o", "out", "--json")
    assert done.exit_code == 0, done.stderr
    about = json.loads(done.stdout)
    assert about["method"] == "bayesian-sequence"
    spans = rows_of(here / "out" / "spans.csv")
    assert len(spans) == about["spans"]["count"] == sum(about["spans"]["labels"].values())
    assert sum(float(row["probability"]) for row in spans) == pytest.approx(about["spans"]["expected_right"])
    assert about["spans"]["gold"]["f1"] > 0.85
    items = rows_of(here / "out" / "items.csv")
    model = load(here / "out")
    assert [row["label"] for row in items] == model.predict().tolist()
    said = extract_spans(model.items_, model.classes_, model.tags_)
    assert [(row["document"], row["start"], row["label"]) for row in spans] == [
        (d, str(s), k) for d, s, k in zip(said["document"], said["start"], said["label"], strict=True)
    ]
    with (here / "out" / "items.csv").open(newline="") as file:
        sure = {row["item"].replace(" ", ""): float(row[f"p_{row['label']}"]) for row in csv.DictReader(file)}
    lines = [line.split("\t") for line in (here / "out" / "to-conll.conll").read_text().splitlines() if line]
    assert all(float(line[2]) == pytest.approx(sure[line[0]], abs=1e-4) for line in lines)
    back = read(here / "out" / "to-conll.conll")
    assert [s[2] for s in spans_said(back)["1"]] == [row["label"] for row in spans]
    assert cli("aggregate", tags, "--model", "out", "-o", "again").exit_code == 0
    assert (here / "again" / "spans.csv").read_text() == (here / "out" / "spans.csv").read_text()
    refused = cli("aggregate", tags, "--to", "doccano", "-o", "no")
    assert type(refused.error) is NoCharacters
    assert " spans: " in cli("aggregate", tags).stdout


def test_agreement_of_spans_and_commands_that_are_not_for_them(cli, tags):
    found = json.loads(cli("describe", tags, "--measures", "--resamples", 10, "--json").stdout)["agreement"][
        "coefficients"
    ]
    assert list(found) == ["exact_f1", "overlap_f1", "krippendorff_alpha", "unitizing_alpha"]
    assert found["exact_f1"]["value"] < found["overlap_f1"]["value"]
    assert "F1 of exactly equal spans" in cli("describe", tags, "--measures", "--resamples", 0).stdout
    assert cli("describe", tags).exit_code == 0
    refused = cli("explain", tags)
    assert (refused.exit_code, refused.stderr.count("\n")) != (0, 0)
    assert isinstance(refused.error, DataError)


@pytest.mark.filterwarnings("ignore::dissensus.exceptions.DataWarning")
@pytest.mark.parametrize("tool", TOOLS)
def test_spans_go_back_into_the_tool_beside_those_of_people(cli, here, tool):
    (here / "export.json").write_text(json.dumps(TOOLS[tool]()))
    done = cli("aggregate", "export.json", "--to", tool, "-o", "out")
    assert done.exit_code == 0, done.stderr
    ours = [(int(r["start"]), int(r["end"]), r["label"]) for r in rows_of(here / "out" / "spans.csv")]
    assert ours
    (path,) = (here / "out").glob("to-*")
    if tool == "doccano":
        assert [tuple(span) for span in json.loads(path.read_text())["label"]] == ours
        return
    back = spans_said(read(path))
    assert {who: spans for who, spans in back.items() if who in CHARACTERS} == CHARACTERS
    if tool == "prodigy":
        (who,) = back.keys() - CHARACTERS.keys()
        assert back[who] == ours
    else:
        assert json.loads(path.read_text())[0]["id"] in (7, "7")
        text = path.read_text()
        for start, end, label in ours:
            near = (f'"start": {start}, "end": {end}, "label": "{label}"', f'"start": {start}, "end": {end}, "labels"')
            assert any(one in text for one in near)
