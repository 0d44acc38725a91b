"""Conformance suite for report sections: `check_section` raises AssertionError if one breaks the contract."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any

import numpy as np

from dissensus.clustering import clusterings
from dissensus.exceptions import DissensusWarning
from dissensus.models.base import default_method, methods
from dissensus.report import Report
from dissensus.report.blocks import ChartBlock, PageBlock, TableBlock
from dissensus.report.face import REPORT_FACE
from dissensus.report.section import Finding, Section, sections
from dissensus.report.study import Study, to_plain
from dissensus.table.annotations import Annotations
from dissensus.table.io.jsonl import dumps
from dissensus.table.kinds import KIND_DESCRIPTIONS
from dissensus.table.simulate import simulate, simulate_kind, simulate_sets, simulate_spans, simulate_texts

EXAMPLE_METHODS = ("majority-vote", "dawid-skene")  # fast methods that the example reports compare


def check_section(name: str, *studies: Study) -> None:
    """Check a registered section on those studies that it applies to, by default on examples of all label types."""
    entry = sections.entry(name)
    assert entry.summary is not None, "register it with the question that it answers as summary"
    assert isinstance(entry.facts.get("title"), str), "register it with a title"
    assert set(entry.value.kinds) <= set(KIND_DESCRIPTIONS), "`kinds` must be names of label types"
    section, applied = entry.value(), 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DissensusWarning)
        for study in studies or example_reports():
            if study.table.kind in section.kinds and section.applies(study):
                check_facts(section, dict(to_plain(section.collect(study))))
                applied += 1
    assert applied, "the section applies to none of the studies; pass one that it applies to"


def check_facts(section: Section, facts: dict[str, Any]) -> None:
    """Check that facts are plain values, and that findings and blocks depend only on the facts."""
    assert json.loads(dumps(facts)) == facts, "facts must be JSON values without NaN"
    again = json.loads(dumps(facts))
    for found in section.findings(again):
        assert isinstance(found, Finding), "findings must be instances of Finding"
        assert found.tone in ("good", "note", "bad")
        _check_words(f"{found.render(REPORT_FACE)} {found.render_advice(REPORT_FACE)}")
    blocks = list(section.draw(again))
    assert all(isinstance(block, PageBlock) for block in blocks), "draw must return blocks"
    assert blocks, "draw must return at least one block"
    assert again == facts, "findings and draw must not change the facts"
    for block in blocks:
        if isinstance(block, ChartBlock):
            assert block.alt, "a chart needs an alternative text"
            assert block.caption, "a chart needs a caption"
            _check_words(f"{block.caption} {block.alt}")
        if isinstance(block, TableBlock):
            assert block.rows, "a table needs rows"
            assert all(len(row) == len(block.columns) for row in block.rows), "a cell for each column"
            assert block.details is None or len(block.details) == len(block.rows), "details for each row"
    names = [block.name for block in blocks if isinstance(block, TableBlock)]
    assert len(names) == len(set(names)), "names of tables must be unique"


def example_reports() -> Iterator[Report]:
    """Yield reports on small tables of all label types, with gold, texts, groups, clusters and a model."""
    sim = simulate(40, 8, 3, redundancy=5, seed=1)
    table = sim.annotations
    items = {"item": table.items, "text": [f"This is the text about item number {name}." for name in table.items]}
    annotators = {"annotator": table.annotators, "country": np.array(["x", "y"])[np.arange(8) % 2]}
    options: dict[str, Any] = {"items": items, "annotators": annotators, "gold": sim.truth}
    options["clustering"] = clusterings["pgm-bp"](item_clusters=3, annotator_clusters=2, restarts=1).fit(table)
    if find_spec("torch"):
        from dissensus.learning import CrowdClassifier

        options["model"] = CrowdClassifier(encoder="mlp", objective="lia", epochs=2, device="cpu")
        options["model"].fit(table, np.random.default_rng(0).standard_normal((40, 4)))
    yield _make_report(table, "dawid-skene", **options)
    panel = simulate(60, 4, 2, redundancy=4, seed=2)
    yield _make_report(panel.annotations, "dawid-skene", gold=panel.truth)
    yield _make_report(panel.annotations, "dawid-skene")
    yield _make_report(Annotations.from_arrays(["i"], ["a"], ["yes"]), "majority-vote")
    yield _make_report(Annotations.from_arrays([0, 0, 1], [0, 1, 0], ["x", "x", "x"], items=range(3)), "majority-vote")
    made = {
        "sets": lambda: simulate_sets(31, 9, 4, redundancy=3),
        "spans": lambda: simulate_spans(20, 6, 2),
        "objects": lambda: simulate_texts(31, 9, redundancy=3),
    }
    for kind in KIND_DESCRIPTIONS:
        if kind != "classes":
            drawn = made.get(kind, lambda kind=kind: simulate_kind(kind, 31, 9, redundancy=3))().annotations
            yield Report(
                drawn, methods[default_method(kind)]().fit(drawn), methods=EXAMPLE_METHODS if kind == "graded" else None
            )


def _make_report(table: Annotations, method: str, **options: Any) -> Report:
    return Report(table, methods[method]().fit(table), methods=EXAMPLE_METHODS, **options)


def _check_words(text: str) -> None:
    assert text.strip(), "a finding or caption is empty"
    assert not {"nan", "None", "inf"} & set(text.replace("(", " ").split()), f"a missing value is written out: {text}"
