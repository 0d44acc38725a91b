"""The report: one HTML file that answers the five questions about a table of labels."""

from __future__ import annotations

import html
import re
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from dissensus.clustering import Clustering, Selection
from dissensus.common.atomic import PRIVATE, atomic
from dissensus.common.formatting import count, percent
from dissensus.common.registry import guarded
from dissensus.evaluation.pairs import wilson
from dissensus.exceptions import BadParameter, DataError, DataWarning, MissingColumn
from dissensus.models.answers import check_values
from dissensus.models.base import check_gold
from dissensus.models.confidence import ask_for_gold
from dissensus.questions.item_status import SETTLED
from dissensus.questions.scoring import unseen
from dissensus.report.section import Finding, Section
from dissensus.report.section import sections as registry
from dissensus.report.study import Study, aligned, plain, shown
from dissensus.table.io import write_frame, write_json
from dissensus.table.kinds import CLASS_KINDS

MAX_FINDINGS = 5
MAIL = re.compile(r"[^@\s]+@[^@\s]+\.[^@\s]")

__all__ = ["Finding", "Report", "Section", "Study", "collect"]


@dataclass(eq=False, repr=False, kw_only=True)
class Report(Study):
    """What there is to say about a table and a model fitted to it, as numbers and as a page.

    Parameters
    ----------
    table : Annotations
    fitted : Aggregator
        Fitted to the table.
    gold : (I,) int, optional
        Known classes, −1 where unknown: accuracy is reported, of those that are not in `known`.
    known : (I,) int, optional
        Known classes that `fitted` learnt from, −1 where unknown: these items are settled.
    items : frame, optional
        What is known about the items: a column `item`, texts and others.
    annotators : frame, optional
        What is known about the annotators: a column `annotator` and groups they belong to.
    show : columns of `annotators`, optional
        To print beside each annotator; left out, none: all of them only serve as groups.
    title : str
    names : bool
        Show the annotators' own names. Left out, they have pseudonyms, whose key `save` writes to a file of its own.
    salt : str
        A secret that goes into the pseudonyms: without it whoever guesses a name can check the guess.
    methods : list of names, optional
        To compare; left out, a few of different kinds.
    clustering, search : optional
        A fitted clustering, and the search that chose its numbers of clusters: a section shows them.
    model : CrowdClassifier, LIA or folder, optional
        A model trained on the table's items, or the folder that `dissensus train` wrote: a section shows it.
    out_of_fold : OutOfFold, optional
        What `dissensus.learning.out_of_fold` found; left out, a folder's own where it has one.
    only : names of sections, optional
        Left out, all that have something to say.
    seed : int
    on_step : callable, optional
        Called with what is being worked out.

    In a notebook a report shows itself.

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
            raise DataError(
                f"the model was fitted to another table ({fitted.items_.size:,} items, this one has "
                f"{table.n_items:,}); give the table that it was fitted to."
            )
        if table.kind in CLASS_KINDS:
            self.table = table.to_classes(fitted.classes_)
        check = check_values if table.kind == "numbers" else check_gold
        self.known = check(self.known, table)
        given = check(self.gold, table)
        self.gold = check(unseen(given, self.known), table)
        if given is not None and self.gold is None:
            said = "known has the label of every item that gold has; accuracy cannot be measured."
            warnings.warn(said, DataWarning, stacklevel=3)
        about = table.sequences.documents if table.kind == "spans" else table.items
        if self.items is None and table.kind == "spans" and table.source is not None and table.source.texts:
            texts = {  # the longest text of each
                str(item): max((one for one in fields.values() if isinstance(one, str)), key=len, default=None)
                for item, fields in table.source.texts.items()
            }
            self.items = {"item": list(texts), "text": list(texts.values())}
        self.items = aligned(self.items, "item", about)
        self.annotators = aligned(self.annotators, "annotator", table.annotators)
        for name in self.show:
            if name not in self.annotators:
                there = ", ".join(self.annotators)
                raise MissingColumn(f"no column {name!r} of annotators to show; there are {there}.")
            mail = sum(MAIL.search(str(value)) is not None for value in self.annotators[name])
            if mail and not self.names:  # which undoes the pseudonyms
                said = (
                    f"the column {name!r}, which is to be shown, holds {mail:,} e-mail addresses: they say who is who."
                )
                warnings.warn(said, DataWarning, stacklevel=3)
        self.search = None if self.clustering is None else _as_facts(self.search, self.clustering)
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
        """Every number of the report, as plain values."""
        return collect(self, self.title, self.only)

    def html(self) -> str:
        """Draw the page."""
        from dissensus.report.page import render

        facts = self.facts
        self.on_step("drawing")
        return render(facts)

    def save(self, path: str | Path) -> list[Path]:
        """Write the page, its numbers (.json) and, with pseudonyms, their key (-key.csv); return the paths."""
        path = Path(path)
        if path.suffix.lower() not in (".html", ".htm"):
            raise BadParameter(f"a report is an HTML file; call it {path.with_suffix('.html').name}, not {path.name}.")
        page, written = self.html(), files_of(path, self.names)
        for key in written[2:]:
            order = np.argsort(self.annotator_names)
            columns = {"pseudonym": np.array(self.annotator_names)[order], "annotator": self.table.annotators[order]}
            write_frame(columns, key, mode=PRIVATE)  # it is what the pseudonyms are for
        write_json(self.facts, written[1])
        with atomic(path) as file:
            file.write(page.encode())
        return written


def files_of(page: Path, names: bool) -> list[Path]:
    """The page, its numbers and, unless it shows the annotators' own names, the key to their pseudonyms."""
    key = [] if names else [page.with_name(f"{page.stem}-key.csv")]
    return [page, page.with_suffix(".json"), *key]


def collect(study: Study, title: str = "Labels", only: set[str] | None = None) -> dict[str, Any]:
    """Collect the numbers and findings of all sections that apply, as a plain dict."""
    from dissensus import __version__

    found: dict[str, Any] = {}
    findings = []
    for name, entry in registry.entries():
        with guarded(entry):
            section = entry.value()
            if (only is not None and name not in only) or study.table.kind not in section.kinds:
                continue
            if not section.applies(study):
                continue
            about = dict(plain(section.collect(study)))
            findings += [{"section": name} | asdict(one) for one in section.findings(about)]
            found[name] = about
    order = {"bad": 0, "note": 1, "good": 2}
    return {
        "title": shown(title, 200),
        "headline": _headline(study, found),
        "version": __version__,
        "made": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "method": study.method,
        "parameters": study.fitted.get_params(deep=False),
        "pseudonyms": not study.names,
        "findings": sorted(findings, key=lambda one: order[one["tone"]])[:MAX_FINDINGS],
        "sections": found,
    }


def _headline(study: Study, sections: Mapping[str, Any]) -> list[str]:
    """Say how much there is, what came out and how sure that is, what to do next, and by which method."""
    table = study.table
    of, by = count(table.n_items, "item"), count(table.n_annotators, "annotator")
    if table.kind == "pairs":
        of = f"{count(table.sides.things.size, 'thing')}, compared in {of}"
    elif table.kind == "spans":
        of = f"{count(table.sequences.documents.size, 'document')} ({count(table.n_items, 'place')})"
    said = [f"{count(table.n_annotations, 'label')} of {of} by {by}."]
    if table.kind in CLASS_KINDS:
        return [*said, *_how_settled(study), *_what_next(study, sections), f"Labels by {study.method}."]
    about = sections.get("answers", {"finding": [], "numbers": []})
    if table.kind == "pairs":
        said += about["finding"][:1]
    else:
        said += [f"{one[1][0].upper()}{one[1][1:]}: {one[0]}." for one in about["numbers"][:2]]
    return [*said, f"Answers by {study.method}."]


def _how_settled(study: Study) -> Iterator[str]:
    settled = study.settled
    if not (n := int(settled.sum())):
        yield f"No item is settled at {percent(SETTLED)}."
        return
    sure = f"about {percent(study.confidence[settled].mean())} of these are expected to be right"
    if study.gold is not None and (known := settled & (study.gold >= 0)).any():
        right = (study.label == study.gold)[known].mean()
        low, high = map(float, wilson(right, right * (1 - right), known.sum()))
        whose = "these" if known.sum() == n else f"the {known.sum():,} with a known label"
        sure = f"of {whose} {percent(right, 1)} are right by gold ({percent(low, 1)} to {percent(high, 1)})"
    are = "is" if n == 1 else "are"
    yield f"{count(n, 'item')} ({percent(n / settled.size)}) {are} settled at {percent(SETTLED)}; {sure}."


def _what_next(study: Study, sections: Mapping[str, Any]) -> Iterator[str]:
    if study.diagnosis.unsettled:
        yield f"Next: settle the spelling of the classes, then report again. {study.diagnosis.unsettled}"
    elif "redundancy" in sections:
        yield sections["redundancy"]["advice"]
    worth = study.fitted.mean_effective_labels()
    if "panel" not in sections and worth is not None:  # what errors in common leave of a panel is said there, by judges
        yield str(worth)
        if (advice := ask_for_gold(study.fitted)) is not None:
            yield str(advice)


def _as_facts(search: Selection | Mapping[str, Any] | None, chosen: Clustering) -> dict[str, Any] | None:
    """Return the search that led to a clustering as plain values; None where it was another's."""
    if isinstance(search, Selection):
        search = {"criterion": search.criterion, "points": search.rows()}
    points = [] if search is None else plain(search["points"])
    best = next((p for p in points if (p["K"], p["L"]) == chosen.labels_of_clusters_.shape[:2]), None)
    if search is None or best is None:
        return None
    return {"criterion": search["criterion"], "points": points, "best": best}
