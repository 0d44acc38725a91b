"""The report: one HTML file about the labels of a table, their annotators, hard items, and what to do next."""

from __future__ import annotations

import html
import re
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from dissensus.clustering import Clustering, Selection
from dissensus.common.atomic import OWNER_ONLY_MODE, open_atomically
from dissensus.common.registry import skip_failing_plugin
from dissensus.models.answers import check_gold_values
from dissensus.models.base import check_gold
from dissensus.questions.exceptions import NoGoldToScore
from dissensus.questions.scoring import exclude_training_gold
from dissensus.report.exceptions import (
    FittedToOtherTable,
    MailAddressesShown,
    NoAnnotatorColumn,
    NotAPage,
)
from dissensus.report.face import make_headline, render_finding
from dissensus.report.section import Finding, Section
from dissensus.report.section import sections as registry
from dissensus.report.study import Study, align_frame, shorten_text, to_plain
from dissensus.table.io import write_frame, write_json
from dissensus.table.kinds import CLASS_KINDS

MAX_FINDINGS = 5  # findings in the summary
MAIL_ADDRESS_PATTERN = re.compile(r"[^@\s]+@[^@\s]+\.[^@\s]")

__all__ = ["Finding", "Report", "Section", "Study", "collect_sections"]


@dataclass(eq=False, repr=False, kw_only=True)
class Report(Study):
    """Report on a table and a method fitted to it, as facts and as a page; a notebook displays it.

    Parameters
    ----------
    table : Annotations
    fitted : Aggregator
        Method fitted to the table.
    gold : (I,) int, optional
        Gold classes, −1 where unknown. Accuracy is reported on the items that are not in `training_gold`.
    training_gold : (I,) int, optional
        Gold classes used for training `fitted`, −1 where unknown. These items count as settled.
    items : frame, optional
        Information about items: a column `item`, texts and other columns.
    annotators : frame, optional
        Information about annotators: a column `annotator` and columns that group them.
    show : columns of `annotators`, optional
        Columns to print for each annotator; the others are only used as groups. By default none is printed.
    title : str
        Title of the page.
    names : bool
        Show the annotators' names. By default they have pseudonyms, and `save` writes their key to a separate file.
    salt : str
        Secret of the pseudonyms; without it, a guessed name can be verified.
    methods : list of names, optional
        Methods to compare; by default a few of different families.
    clustering, search : optional
        Fitted clustering, and the search that chose its numbers of clusters; adds the section `clusters`.
    model : CrowdClassifier, LIA or folder, optional
        Model trained on the table's items, or the folder that `dissensus train` wrote; adds the section `model`.
    out_of_fold : OutOfFold, optional
        Result of `dissensus.learning.out_of_fold`; by default the one in the folder of the model, if there is one.
    only : names of sections, optional
        Sections to include; by default all that apply.
    seed : int
        Seed of everything random.
    on_step : callable, optional
        Function that is called with a description of the current step.

    >>> from dissensus import Report, methods
    >>> from dissensus.table.simulate import simulate
    >>> table = simulate(40, 8, 2, seed=0).annotations
    >>> report = Report(table, methods["majority-vote"]().fit(table), only=["items"])
    >>> list(report.facts["sections"])
    ['items']
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     [path.suffix for path in report.save(f"{folder}/report.html")], len(report.html()) > 1000
    (['.html', '.json', '.csv'], True)
    """

    title: str = "Labels"
    only: Any = None

    def __post_init__(self) -> None:
        self.only = None if self.only is None else set(self.only)
        for name in self.only or ():
            registry.entry(name)
        if isinstance(self.model, str | Path):
            from dissensus.learning.folds import load_trained

            self.model, found = load_trained(self.model)
            self.out_of_fold = found if self.out_of_fold is None else self.out_of_fold
        if self.model is not None:
            self.model = getattr(self.model, "classifier_", self.model)
            self.model._check_fitted()
        table, fitted = self.table, self.fitted
        fitted._check_fitted()
        if fitted.items_.tolist() != table.items.tolist() or fitted.annotators_.tolist() != table.annotators.tolist():
            raise FittedToOtherTable(fitted=fitted.items_.size, items=table.n_items)
        if table.kind in CLASS_KINDS:
            self.table = table.with_classes(fitted.classes_)
        check = check_gold_values if table.kind == "numbers" else check_gold
        self.training_gold = check(self.training_gold, table)
        given = check(self.gold, table)
        self.gold = check(exclude_training_gold(given, self.training_gold), table)
        if given is not None and self.gold is None:
            warnings.warn(NoGoldToScore(), stacklevel=3)
        about = table.sequences.documents if table.kind == "spans" else table.items
        if (
            self.items is None
            and table.kind == "spans"
            and table.import_report is not None
            and table.import_report.item_fields
        ):
            texts = {  # A document with several texts is shown with its longest one.
                str(item): max((one for one in fields.values() if isinstance(one, str)), key=len, default=None)
                for item, fields in table.import_report.item_fields.items()
            }
            self.items = {"item": list(texts), "text": list(texts.values())}
        self.items = align_frame(self.items, "item", about)
        self.annotators = align_frame(self.annotators, "annotator", table.annotators)
        for name in self.show:
            if name not in self.annotators:
                raise NoAnnotatorColumn(column=name, columns=tuple(self.annotators))
            mail = sum(MAIL_ADDRESS_PATTERN.search(str(value)) is not None for value in self.annotators[name])
            if mail and not self.names:
                warnings.warn(MailAddressesShown(column=name, count=mail), stacklevel=3)
        self.search = None if self.clustering is None else _collect_search_facts(self.search, self.clustering)
        self.on_step = self.on_step or (lambda what: None)

    def __repr__(self) -> str:
        return f"Report on {self.table!r}, by {self.method}"

    def _repr_html_(self) -> str:
        return (
            f'<iframe srcdoc="{html.escape(self.html())}" style="width:100%;height:720px;border:0" '
            f'title="{html.escape(self.title)}"></iframe>'
        )

    @cached_property
    def facts(self) -> dict[str, Any]:
        """Return all facts of the report as plain values."""
        return collect_sections(self, self.title, self.only)

    def html(self) -> str:
        """Return the page as HTML."""
        from dissensus.report.page import render_page

        facts = self.facts
        self.on_step("drawing")
        return render_page(facts)

    def save(self, path: str | Path) -> list[Path]:
        """Write the page, its facts (.json) and, with pseudonyms, their key (-key.csv).

        Parameters
        ----------
        path : path
            File of the page, which ends in .html or .htm.

        Returns
        -------
        paths : list of paths
            The files that were written, the page first.
        """
        path = Path(path)
        if path.suffix.lower() not in (".html", ".htm"):
            raise NotAPage(name=path.name, page=path.with_suffix(".html").name)
        page, written = self.html(), list_report_files(path, self.names)
        for key in written[2:]:
            order = np.argsort(self.annotator_names)
            columns = {"pseudonym": np.array(self.annotator_names)[order], "annotator": self.table.annotators[order]}
            write_frame(columns, key, mode=OWNER_ONLY_MODE)  # Only its owner may read the key.
        write_json(self.facts, written[1])
        with open_atomically(path) as file:
            file.write(page.encode())
        return written


def list_report_files(page: Path, names: bool) -> list[Path]:
    """Return the paths of the page, its facts and, unless the page shows names, the key of the pseudonyms."""
    key = [] if names else [page.with_name(f"{page.stem}-key.csv")]
    return [page, page.with_suffix(".json"), *key]


def collect_sections(study: Study, title: str = "Labels", only: set[str] | None = None) -> dict[str, Any]:
    """Return the facts and findings of all sections that apply, as plain values."""
    from dissensus import __version__

    facts_by_section: dict[str, Any] = {}
    findings = []
    for name, entry in registry.entries():
        with skip_failing_plugin(entry):
            section = entry.value()
            if (only is not None and name not in only) or study.table.kind not in section.kinds:
                continue
            if not section.applies(study):
                continue
            about = dict(to_plain(section.collect(study)))
            findings += [render_finding(name, one) for one in section.findings(about)]
            facts_by_section[name] = about
    order = {"bad": 0, "note": 1, "good": 2}
    return {
        "title": shorten_text(title, 200),
        "headline": make_headline(study, facts_by_section),
        "version": __version__,
        "made": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "method": study.method,
        "parameters": study.fitted.get_params(deep=False),
        "pseudonyms": not study.names,
        "findings": sorted(findings, key=lambda one: order[one["tone"]])[:MAX_FINDINGS],
        "sections": facts_by_section,
    }


def _collect_search_facts(search: Selection | Mapping[str, Any] | None, chosen: Clustering) -> dict[str, Any] | None:
    """Return the search that led to a clustering as plain values, or None if it belongs to another clustering."""
    if isinstance(search, Selection):
        search = {"criterion": search.criterion, "points": search.rows()}
    points = [] if search is None else to_plain(search["points"])
    best = next((p for p in points if (p["K"], p["L"]) == chosen.labels_of_clusters_.shape[:2]), None)
    if search is None or best is None:
        return None
    return {"criterion": search["criterion"], "points": points, "best": best}
