from __future__ import annotations

import json

import numpy as np
import pytest

import dissensus as dz
from cli.tables import CLASSES, write_csv
from dissensus.common.formatting import Count
from dissensus.exceptions import BadParameter
from dissensus.questions import findings as f
from dissensus.table.io import read_frame
from found import error_of, shown


@pytest.fixture
def constant(here):
    """constant.csv: 60 items, six annotators who are mostly right and one who always says "owl"."""
    rng = np.random.default_rng(0)
    truth = rng.integers(3, size=60)
    said = np.where(rng.random((60, 6)) < 0.9, truth[:, None], rng.integers(3, size=(60, 6)))
    rows = [(f"i{i}", f"w{j}", CLASSES[said[i, j]]) for i in range(60) for j in range(6)]
    rows += [(f"i{i}", "same", "owl") for i in range(60)] + [("i0", "new", "cat")]
    return write_csv(here / "constant.csv", ["item", "annotator", "label"], rows)


def test_who_stands_out_is_named_with_the_reason(cli, constant):
    result = cli("diagnose", constant)
    assert (result.exit_code, result.stderr) == (0, "")
    assert shown(f.FlaggedAnnotators(annotators=Count(8), flagged=1, unsettled=False)) in result.stdout
    assert shown(f.TooFewLabels(n=Count(1), annotators=Count(8))) in result.stdout
    table = dz.read(constant)
    (why,) = dz.diagnose(table).flag_messages[table.annotators.tolist().index("same")].values()
    assert (type(why), why.label, why.times, why.n) == (f.RepeatsOneLabel, "owl", 60, 60)
    assert str(why).partition(";")[0] in " ".join(result.stdout.split())
    assert "Nothing was written" in result.stdout


def test_file_and_json_have_what_the_library_says(cli, constant):
    parsed = json.loads(cli("diagnose", constant, "-o", "people.csv", "--json").stdout)
    found = dz.diagnose(dz.read(constant))
    assert parsed["output"] == "people.csv"
    assert list(parsed["annotators"]) == ["same"]
    assert parsed["annotators"]["same"]["reasons"] == dict(zip(found.annotators, found.reasons, strict=True))["same"]
    assert (parsed["active_annotators"], parsed["too_few_labels"]) == (8, 1)
    written = read_frame("people.csv")
    assert written.column_names == found.to_frame().columns.tolist()
    assert written["annotator"].to_pylist() == found.annotators.tolist()


def test_nobody_stands_out_among_honest_people(cli, labels):
    said = shown(f.FlaggedAnnotators(annotators=Count(7), flagged=0, unsettled=False))
    assert said in cli("diagnose", labels).stdout


def test_questions_are_answered_each_but_written_one_by_one(cli, questions):
    assert len(json.loads(cli("diagnose", questions, "--json").stdout)["questions"]) == 3
    refused = cli("diagnose", questions, "-o", "people.csv")
    assert (refused.exit_code, refused.error.facts) == (2, {"option": "output"})


def test_a_file_that_cannot_be_written_is_said_first(cli, constant):
    result = cli("diagnose", constant, "-o", "people.xls")
    assert (result.exit_code, isinstance(error_of(result), BadParameter)) == (2, True)
