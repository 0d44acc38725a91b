"""What `aggregate` prints: the answer first, then annotators and next steps, and never more than a screen."""

from __future__ import annotations

import pytest

import dissensus as dz
from cli.tables import SCORE, write_csv
from dissensus.cli.exceptions import GoldOnlyScores
from dissensus.table.io import write_frame
from dissensus.table.simulate import simulate
from tables import drawn

MAX_LINES = 25


def check_lines(result):
    assert result.exit_code == 0, result.output
    assert len(result.stdout.splitlines()) <= MAX_LINES


@pytest.mark.parametrize("kind", ["numbers", "graded", "pairs", "sets", "objects", "spans"])
def test_every_label_type_fits_on_a_screen(cli, here, kind):
    write_frame(drawn(kind).to_arrow(), here / "labels.csv")
    check_lines(cli("aggregate", "labels.csv", "--kind", kind))


def test_many_classes_annotators_and_flags_fit_on_a_screen(cli, here):
    table = dz.load_dataset("digits-crowd").annotations
    write_frame(table.to_arrow(), here / "digits.csv")
    result = cli("aggregate", "digits.csv")
    check_lines(result)
    lines = [line for line in result.stdout.splitlines() if line]
    assert len(set(lines)) == len(lines)  # nothing is said twice
    flagged = sum(map(bool, dz.diagnose(table).flags))
    assert f"{flagged} of 42 annotators are flagged" in result.stdout
    assert "dissensus diagnose digits.csv" in result.stdout
    write_frame(simulate(300, 60, 30, seed=1).annotations.to_arrow(), here / "many.csv")
    check_lines(cli("aggregate", "many.csv", "-m", "majority-vote"))


def test_many_questions_fit_on_a_screen(cli, here):
    rows = [(f"q{k}", f"i{i}", f"w{a}", "ab"[(i + a * k) % 2]) for k in range(12) for i in range(6) for a in range(3)]
    write_csv(here / "labels.csv", ["question", "item", "annotator", "label"], rows)
    result = cli("aggregate", "labels.csv", "-m", "majority-vote")
    check_lines(result)
    assert "7 more questions" in result.stdout


def test_a_method_that_cannot_be_trained_on_gold_says_how_to_measure_with_it(cli, here):
    write_csv(here / "texts.csv", ["item", "annotator", "label"], [(i, a, "a b") for i in "xyz" for a in "uvw"])
    write_csv(here / "gold.csv", ["item", "label"], [("x", "a b")])
    refused = cli("aggregate", "texts.csv", "--kind", "objects", "--gold", "gold.csv")
    assert (refused.exit_code, type(refused.error)) == (2, GoldOnlyScores)
    assert cli("aggregate", "texts.csv", "--kind", "objects", "--gold", "gold.csv", *SCORE).exit_code == 0
