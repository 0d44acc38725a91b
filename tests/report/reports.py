"""Studies and pages that the tests of the report share."""

from __future__ import annotations

from functools import cache
from html.parser import HTMLParser
from typing import Any

import numpy as np

from dissensus import Annotations, Report, methods
from dissensus.report.blocks import PageBlock
from dissensus.report.section import Finding, sections
from dissensus.table.simulate import Simulation, simulate

FEW_METHODS = ("majority-vote", "dawid-skene")  # methods to compare, where the comparison is not the point


@cache
def crowd() -> Simulation:
    """100 items, 14 annotators of all kinds, 3 classes, 7 labels each."""
    return simulate(100, 14, 3, redundancy=7, seed=3)


def report(table: Annotations | None = None, method: str = "dawid-skene", **options: Any) -> Report:
    table = crowd().annotations if table is None else table
    return Report(table, methods[method]().fit(table), **{"methods": FEW_METHODS} | options)


def people(table: Annotations) -> dict[str, Any]:
    return {"annotator": table.annotators, "country": np.array(["x", "y"])[np.arange(table.n_annotators) % 2]}


def things(table: Annotations) -> dict[str, Any]:
    texts = [f"This is the text about item number {name}, long enough to be one." for name in table.items]
    return {"item": table.items, "text": texts, "source": ["web", "book"] * (table.n_items // 2)}


def features(table: Annotations, truth: Any = None, seed: int = 0) -> Any:
    """(I, 6) vectors that show the truth, or nothing."""
    rng = np.random.default_rng(seed)
    shown = 0 if truth is None else 2 * np.eye(6)[np.asarray(truth) % 6]
    return rng.standard_normal((table.n_items, 6)) + shown


def trained(table: Annotations | None = None, truth: Any = None, validation: Any = None, **keywords: Any) -> Any:
    """A small model of the crowd, or of another table."""
    from dissensus.learning import CrowdClassifier
    from dissensus.learning.encoders import MLP

    if table is None:
        table, truth = crowd().annotations, crowd().truth
    model = CrowdClassifier(
        **{"encoder": MLP(hidden=(8,)), "objective": "soft", "epochs": 5, "device": "cpu"} | keywords
    )
    return model.fit(table, features(table, truth), validation=validation)


def blocks(name: str, facts: Any, kind: type[PageBlock] = PageBlock) -> list[Any]:
    """What a section draws, of one kind."""
    return [block for block in sections[name]().draw(facts) if isinstance(block, kind)]


def findings(name: str, facts: Any) -> list[Finding]:
    return list(sections[name]().findings(facts))


def found(name: str, facts: Any, kind: type[Finding]) -> Any:
    """The first finding of a class."""
    return next(one for one in findings(name, facts) if isinstance(one, kind))


class Page(HTMLParser):
    """What a browser would make of a page: its elements with their attributes, and the text of its scripts."""

    def __init__(self, html: str):
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[tuple[dict[str, str | None], str]] = []
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag == "script":
            self.scripts.append((dict(attrs), ""))

    def handle_data(self, data: str) -> None:
        if self.cdata_elem == "script":
            attributes, text = self.scripts[-1]
            self.scripts[-1] = attributes, text + data

    def ids(self) -> list[str]:
        return [attributes["id"] for _, attributes in self.elements if attributes.get("id")]
