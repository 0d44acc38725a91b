"""Pages of labels that are no classes: a headline, findings, the picture of the kind, and the annotators."""

import json

import numpy as np
import pytest

from dissensus import Annotations, Report, methods
from dissensus.models.base import default_method
from dissensus.report.section import sections
from dissensus.report.sections.answers import WideIntervals
from dissensus.table.io.jsonl import dumps
from dissensus.testing.sections import check_facts
from report.reports import Page, blocks, findings
from tables import drawn

PICTURES = {
    "numbers": ["Items by value"],
    "pairs": ["Scores", "Ranks"],
    "sets": ["Options"],
    "spans": ["Spans found"],
    "objects": ["Expected error of the answers"],
}


def page(table, **options):
    return Report(table, methods[default_method(table.kind)]().fit(table), **options)


@pytest.mark.parametrize("kind", PICTURES)
def test_every_kind_has_its_page(kind):
    made = page(drawn(kind))
    facts = made.facts
    assert json.loads(dumps(facts)) == facts
    assert set(facts["sections"]) == {"answers", "methods", "people"}
    assert len(facts["findings"]) <= 5
    for name, about in facts["sections"].items():
        check_facts(sections[name](), about)
    titles = [one.title for one in blocks("answers", facts["sections"]["answers"]) if one.kind == "ChartBlock"]
    assert titles == PICTURES[kind]
    parsed = Page(made.html())
    assert len(parsed.ids()) == len(set(parsed.ids()))
    assert default_method(kind) in facts["headline"][-1]
    people = facts["sections"]["people"]["people"]
    assert {one["annotator"] for one in people} == set(made.annotator_names)  # pseudonyms


def test_one_item_is_not_held_against_chance():
    made = page(Annotations.from_arrays([0, 0], ["a", "b"], [3.5, 4.25]).as_kind("numbers"), only=["answers"])
    [wide] = findings("answers", made.facts["sections"]["answers"])
    assert (type(wide), wide.wide, wide.items) == (WideIntervals, 1, 1)


def test_a_ranking_has_intervals_of_scores_and_ranks():
    table = drawn("pairs")
    made = page(table)
    rows = made.facts["sections"]["answers"]["rows"]
    assert [row["thing"] for row in rows] == made.fitted.ranking()["thing"].tolist()
    assert all(row["low"] < row["score"] < row["high"] and row["rank_low"] <= row["rank"] for row in rows)


def test_spans_are_marked_in_their_text():
    text = "Ann works at IBM in Rome."
    table = Annotations.from_spans(
        ["d"] * 6, ["x", "y", "z"] * 2, [0, 0, 0, 13, 13, 13], [3, 3, 3, 16, 16, 16], ["PER"] * 3 + ["ORG"] * 3,
        texts={"d": text},
    )  # fmt: skip
    row = page(table, items={"item": ["d"], "text": [text]}).facts["sections"]["answers"]["rows"][0]
    assert "".join(part[0] for part in row["marked"]) == text
    assert [part[:2] for part in row["marked"] if len(part) > 1] == [["Ann", "PER"], ["IBM", "ORG"]]
    assert page(table).facts["sections"]["answers"]["rows"][0]["marked"][0][0] == "0 to 3"


def test_gold_of_numbers_is_measured():
    table = drawn("numbers")
    model = methods["gaussian"]().fit(table)
    gold = np.where(np.arange(table.n_items) % 2, model.values_ + 1, np.nan)
    found = Report(table, model, gold=gold).facts["sections"]["answers"]["gold"]
    assert found["value"]["value"] == pytest.approx(1)
    assert found["items"] == table.n_items // 2


@pytest.mark.parametrize("kind", PICTURES)
def test_the_smallest_tables_have_a_page(kind):
    table = drawn(kind)
    one = table.select(rows=np.arange(len(table)) < 1)
    facts = page(one.select(items=np.diff(one.item_ptr) > 0)).facts
    assert facts["sections"]["people"]["flagged"] == 0
