"""The map of annotators in the report: its facts are those of the model, and it is there for LIA alone."""

import json

import numpy as np
import pytest

from dissensus.report.blocks import ChartBlock
from dissensus.report.section import sections
from dissensus.report.sections import annotator_map as section
from dissensus.testing.sections import check_facts
from report.reports import Page, blocks, crowd, report, trained
from report.test_sections import SMALL

pytest.importorskip("torch", reason="needs the `learning` extra")


def facts_of(model, table=None):
    made = report(table, model=model, only=["annotator-map"])
    return made, made.facts["sections"].get("annotator-map")


@pytest.mark.parametrize("table", SMALL.values(), ids=SMALL)
def test_every_table_has_a_map(table):
    made, facts = facts_of(trained(table, objective="lia", epochs=1), table)
    check_facts(sections["annotator-map"](), facts)
    Page(made.html())


def test_the_map_is_that_of_the_model():
    from dissensus.learning.annotator_map import annotator_map

    table, model = crowd().annotations, trained(objective="lia")
    _, facts = facts_of(model)
    found = annotator_map(model, table)
    assert len(facts["annotators"]) == facts["labelled"] == found.n_labelled == table.n_annotators
    assert [row["x"] for row in facts["annotators"]] == pytest.approx(found.position[:, 0].tolist(), rel=1e-3)
    errors = [np.nan if row["error"] is None else row["error"] for row in facts["annotators"]]
    np.testing.assert_allclose(errors, found.mistakes.error_rate, atol=1e-3)
    titles = [block.title for block in blocks("annotator-map", json.loads(json.dumps(facts)), ChartBlock)]
    assert titles == ["Clusters of mistakes", "Error rate", "Over-used class"]


def test_other_models_have_no_map():
    assert facts_of(trained())[1] is None


def test_many_classes_share_a_colour_and_those_without_rates_are_grey():
    rows = [{"annotator": f"w{n}", "x": n, "y": 0, "labels": 20, "cluster": "1", "error": 0.1} for n in range(12)]
    for n, row in enumerate(rows):
        row["overused"] = f"class {n % 10}"
    rows[0] |= {"error": None, "cluster": section.TOO_FEW_LABELS_NAME, "overused": section.TOO_FEW_LABELS_NAME}
    made = section.make_annotator_charts(rows, ["a", "b", "c"])
    domain = made[2][2].to_dict()["encoding"]["color"]["scale"]["domain"]
    assert len(domain) == 8
    assert domain[-2:] == [section.OTHERS_NAME, section.TOO_FEW_LABELS_NAME]
    assert [len(layer["data"]["values"]) for layer in _layers(made[1][2])] == [1, 11]


def _layers(chart):
    spec = chart.to_dict()
    assert "layer" in spec
    return spec["layer"]
