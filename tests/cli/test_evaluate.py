from __future__ import annotations

import json

import numpy as np
import pytest

import dissensus as dz
from cli.tables import CLASSES, write_csv
from dissensus.exceptions import MissingColumn
from dissensus.questions.exceptions import NoPredictedColumn
from dissensus.questions.findings import MissingPredictions
from dissensus.table.io import read_frame, read_gold
from found import error_of, shown


@pytest.fixture
def predictions(labels, here):
    """proba.csv: probabilities of the 40 items; right.csv: gold as labels."""
    proba = np.random.default_rng(0).dirichlet(np.ones(3), 40)
    rows = [(f"i{i:03}", *row) for i, row in enumerate(proba)]
    write_csv(here / "proba.csv", ["item", *(f"p_{name}" for name in CLASSES)], rows)
    (here / "right.csv").write_text((here / "gold.csv").read_text())
    return labels


def test_scores_are_shown_side_by_side(cli, predictions):
    result = cli("evaluate", predictions, "proba.csv", "right.csv", "--gold", "gold.csv", "--resamples", 50)
    assert (result.exit_code, result.stderr) == (0, "")
    for words in (
        "proba",
        "right",
        "accuracy ↑",
        "1.000 ± 0.000",
        "▲ +",
        "cross_entropy ↓",
        "–",
        "error_rate",
        "gold.",
    ):
        assert words in result.stdout
    alone = cli("evaluate", predictions, "proba.csv", "--resamples", 50)
    assert "the most frequent label" in alone.stdout
    assert "▲" not in alone.stdout
    assert " to " in alone.stdout


def test_json_and_file_have_the_library_s_numbers(cli, predictions):
    options = ("--gold", "gold.csv", "--resamples", 50, "--seed", 3, "-o", "out.csv", "--json")
    result = cli("evaluate", predictions, "proba.csv", "right.csv", *options)
    parsed = json.loads(result.stdout)
    table = dz.read(predictions)
    files = {"proba": "proba.csv", "right": "right.csv"}
    found = dz.evaluate(files, table, gold=read_gold("gold.csv", table), resamples=50, seed=3)
    expected = [{k: None if v != v else v for k, v in row.items()} for row in found.rows()]
    assert parsed["scores"] == expected
    assert parsed["predictions"] == ["proba", "right"]
    assert parsed["reference"] == "gold"
    assert read_frame("out.csv")["score"].to_pylist() == [row["score"] for row in expected]


def test_a_file_without_annotators_is_gold(cli, predictions):
    parsed = json.loads(cli("evaluate", "gold.csv", "right.csv", "--json", "--resamples", 0).stdout)
    assert {row["kind"] for row in parsed["scores"]} == {"hard"}
    assert parsed["scores"][0]["value"] == 1
    refused = cli("evaluate", "gold.csv", "right.csv", "--gold", "gold.csv")
    assert refused.exit_code == 1
    assert isinstance(error_of(refused), MissingColumn)


def test_numbers_in_a_text_file_have_their_order(cli, here):
    rows = [("a", "x", "10"), ("a", "y", "10"), ("b", "x", "9"), ("c", "y", "11")]
    labels = write_csv(here / "labels.csv", ["item", "annotator", "label"], rows)
    write_csv(here / "p.csv", ["item", "label"], [("a", "11"), ("b", "9"), ("c", "9")])
    for scale in ("ordinal", "interval"):
        parsed = json.loads(cli("evaluate", labels, "p.csv", "--scale", scale, "--resamples", 0, "--json").stdout)
        (distance,) = (row["value"] for row in parsed["scores"] if row["score"] == "absolute_distance")
        assert distance == pytest.approx((1 / 2 + 0 + 1) / 3)


def test_files_of_the_same_name_are_told_apart(cli, predictions, here):
    (here / "other").mkdir()
    (here / "other" / "right.csv").write_text((here / "right.csv").read_text())
    parsed = json.loads(cli("evaluate", predictions, "right.csv", "other/right.csv", "--resamples", 0, "--json").stdout)
    assert parsed["predictions"] == ["right.csv", "other/right.csv"]


def test_what_is_left_out_is_a_warning(cli, predictions, here):
    write_csv(here / "few.csv", ["item", "label"], [("i000", "cat"), ("i001", "dog"), ("zzz", "owl")])
    result = cli("evaluate", predictions, "few.csv", "--gold", "gold.csv", "--resamples", 10)
    assert result.exit_code == 0
    facts = {"predictions": "few", "missing": 38, "n": 40, "unit": "items", "item": "i002"}
    assert f"warning: {shown(MissingPredictions(**facts))}" in result.stderr


def test_cells_count_the_items_that_only_one_prediction_gets_right(cli, predictions):
    asked = ("evaluate", predictions, "proba.csv", "right.csv", "--gold", "gold.csv", "--cells", "--resamples", 0)
    result = cli(*asked, "--json")
    cells = json.loads(result.stdout)["cells"]
    table = dz.read(predictions)
    gold, proba = read_gold("gold.csv", table), read_frame("proba.csv")
    hits = np.column_stack([proba[f"p_{name}"] for name in table.classes]).argmax(axis=1) == gold
    counts = {(cell["stl"], cell["mtl"]): cell["items"] for cell in cells}
    assert counts == {
        ("right", "right"): hits.sum(), ("wrong", "right"): (~hits).sum(), ("right", "wrong"): 0, ("wrong", "wrong"): 0,
    }  # fmt: skip
    assert cells[1]["kurtosis"] is None
    assert f"{hits.sum()}" in cli(*asked).stdout
    assert cli("evaluate", predictions, "proba.csv", "--cells").exit_code == 2


def test_bad_files_are_one_sentence(cli, predictions, here):
    write_csv(here / "bad.csv", ["item", "x"], [("i000", "cat")])
    result = cli("evaluate", predictions, "bad.csv")
    assert result.exit_code == 1
    assert type(error_of(result)) is NoPredictedColumn
    assert isinstance(error_of(cli("evaluate", predictions, "right.csv", "--predicted", "y")), MissingColumn)
    assert cli("evaluate", predictions, "right.csv", "-o", "right.csv").exit_code == 2
