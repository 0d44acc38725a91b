"""What is said of a whole project: its annotators, its progress, its export and its report."""

from __future__ import annotations

import io
import json
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from dissensus.exceptions import BadParameter, DataError
from dissensus.models.base import default_method
from dissensus.questions.diagnose import FLAG_WORDS, diagnose_classes
from dissensus.report.study import plain
from dissensus.serve import describe
from dissensus.serve.fit import Fitted, table_of
from dissensus.serve.rows import ANNOTATOR, ITEM
from dissensus.table.io.readers import readers
from dissensus.table.io.writers import Answers, Labels, Span, writers
from dissensus.table.kinds import CLASS_KINDS, KINDS
from dissensus.table.names import shown

if TYPE_CHECKING:
    from dissensus.serve.project import Project

MAX_DAYS = 366
TOOLS = ("label-studio", "argilla")
DECIDED_BY = "decided by "
BARE = ("item", "label", "confidence", "status", "reason")  # columns of items before the first label
WHAT = ("annotations", "items", "decisions")


FORMATS = {
    "csv": "text/csv; charset=utf-8",
    "parquet": "application/vnd.apache.parquet",
    "jsonl": "application/x-ndjson",
    **dict.fromkeys(TOOLS, "application/json"),
}
"""Form of export → its type for browsers."""


def annotators(project: Project) -> list[dict[str, Any]]:
    """Everybody who gave a label: how many, reliability with its interval, last seen, flags with their reasons."""
    fitted = project.fitted
    known: dict[str, dict[str, Any]] = {}
    if fitted is not None:
        frame = fitted.model.to_frame("annotators", "pyarrow").drop_columns("annotations")
        known = {str(row.pop("annotator")): plain(row, 17) for row in frame.to_pylist()}
    flags = project.kept("flags", lambda: _flags(fitted)) if fitted is not None else {}
    found = []
    with project.lock:
        last = project.rows.last_at("annotator", project.n_given.size)
        for code in np.flatnonzero(project.n_given).tolist():
            name = project.names[ANNOTATOR].texts[code]
            one = {"annotator": name, "labels": int(project.n_given[code])}
            one |= dict.fromkeys(("reliability", "low", "high")) | known.get(name, {})
            one |= {"last": float(last[code]), "flags": [], "reasons": ""} | flags.get(name, {})
            found.append(one)
    return sorted(found, key=lambda one: (-one["labels"], one["annotator"]))


def _flags(fitted: Fitted) -> dict[str, dict[str, Any]]:
    """Annotator → flags in words, and why."""
    if fitted.table.kind not in CLASS_KINDS:
        return {}
    found = diagnose_classes(fitted.table)
    rows = zip(found.annotators.tolist(), found.flags, found.reasons, strict=True)
    return {name: {"flags": [FLAG_WORDS[one] for one in flags], "reasons": why} for name, flags, why in rows if flags}


def progress(project: Project, days: int = 14) -> dict[str, Any]:
    """Day by day (UTC), and who drifts; see `serve.progress`."""
    if not 1 <= days <= MAX_DAYS:
        raise BadParameter(f"days must be from 1 to {MAX_DAYS}, got {days}.")
    return dict(project.kept(f"progress {days}", lambda: project._as_of() | _progress(project, days)))


def _progress(project: Project, days: int) -> dict[str, Any]:
    from dissensus.serve.progress import WEEK, progress

    now = project.clock()
    with project.lock:
        rows, fitted, texts = project._counting(), project.fitted, project.names[ITEM].texts
        decided = {texts[item]: event.at for item, event in project.decisions.items()}
        table, rank, who, class_of = table_of(project, rows, dict(project.decisions))
    at = rows.at
    if table.kind in CLASS_KINDS:  # in the order of the table's rows
        at = at[np.lexsort((class_of[rows.label], who[rows.annotator], rank[rows.item]))]
    before = project.table(now - WEEK) if at.size and at.min() < now - WEEK else None
    model = fitted.model if fitted is not None else None
    return progress(table, at, before=before, model=model, decided=decided, now=now, days=days)


def export(project: Project, form: str = "csv", what: str | None = None, names: bool = True) -> bytes:
    """A file: the rows that count, what became of the items, or decisions; for a tool, the labels it takes.

    Without `names` annotators have their pseudonyms.
    """
    if form not in FORMATS:
        raise BadParameter(f"format must be {', '.join(FORMATS)}, got {shown(form)}.")
    if what not in (None, *WHAT):
        raise BadParameter(f"what must be {', '.join(WHAT)}, got {shown(what)}.")
    of_answers = form in TOOLS or what == "items"
    with suppress(*(() if of_answers else (DataError,))):  # rows and decisions can be had whatever a fit says
        project.refit()
    file = io.BytesIO()
    if form in TOOLS:
        writers[form].write(_for_tool(project, form), file)
        return file.getvalue()
    frame = {"items": _items, "decisions": _decisions}.get(what or "", _rows)(project)
    if not names:
        called = project.pseudonyms()  # after the frame: others may have come meanwhile
        for column in {"annotator", "by"}.intersection(frame.column_names):
            frame = _with(frame, column, [called[one] for one in frame[column].to_pylist()])
        if "reason" in frame.column_names:
            said = ["decided" if (one or "").startswith(DECIDED_BY) else one for one in frame["reason"].to_pylist()]
            frame = _with(frame, "reason", said)
    write = readers[form].write
    assert write is not None
    write(frame, file)
    return file.getvalue()


def _with(frame: Any, column: str, values: list[str | None]) -> Any:
    """The frame with other values in a column."""
    return frame.set_column(frame.column_names.index(column), column, pa.array(values, pa.string()))


def _rows(project: Project) -> Any:
    """The rows that count; as they were posted, where they make no table."""
    try:
        return project.table().to_arrow()
    except Exception:  # of rows that an older version took
        columns = zip(project.names, project._counting()[1:4], strict=True)
        texts = [[names.texts[code] for code in codes.tolist()] for names, codes in columns]
        return pa.table(dict(zip(("item", "annotator", "label"), texts, strict=True)))


def _items(project: Project) -> Any:
    """The frame that `aggregate` writes with what was decided, as `GET items` says it; items without a label last."""
    fitted = project.fitted
    if fitted is None:
        types = {name: pa.float64() if name == "confidence" else pa.string() for name in BARE}
        frame = pa.schema(types.items()).empty_table()
    else:
        frame = fitted.items_status().beside(fitted.model.to_frame("items", "pyarrow"))
    decided: dict[str, dict[str, Any]] = {}
    with project.lock:
        for event in sorted(project.decisions.values(), key=lambda one: one.seq):
            item, by = project.names[ITEM].texts[event.item], project.names[ANNOTATOR].texts[event.annotator]
            label = project.label_text(event) if event.label >= 0 else None
            one = {"item": item, "label": label, "confidence": None if label is None else 1.0, "decided": label}
            decided[item] = one | {"votes": 0, "labels": 0, "status": "decided", "reason": DECIDED_BY + by}
    names = list(map(str, frame["item"].to_pylist()))
    for column in {"status", "reason"}.intersection(frame.column_names):
        there = zip(names, frame[column].to_pylist(), strict=True)
        frame = _with(frame, column, [decided[name][column] if name in decided else old for name, old in there])
    said = [decided[name]["decided"] if name in decided else None for name in names]
    frame = frame.append_column("decided", pa.array(said, pa.string()))
    known = set(names)
    more = [row for name, row in decided.items() if name not in known]
    if not more:
        return frame
    columns = {one.name: pa.array([row.get(one.name) for row in more]).cast(one.type) for one in frame.schema}
    return pa.concat_tables([frame, pa.table(columns)]).combine_chunks()  # an empty chunk is written as zero bytes


def _decisions(project: Project) -> Any:
    with project.lock:
        made = sorted(project.decisions.values(), key=lambda one: one.seq)
        rows = [describe.decision(project, one) for one in made]
        labels = [project.label_text(one) if one.label >= 0 else None for one in made]
    text = {"item": [row["item"] for row in rows], "label": labels}
    text |= {key: [None if row[key] is None else str(row[key]) for row in rows] for key in ("by", "note")}
    both = [json.dumps(one.both, ensure_ascii=False) if one.both else None for one in made]
    return pa.table(
        {key: pa.array(values, pa.string()) for key, values in text.items()}
        | {"both": pa.array(both, pa.string()), "unclear": [bool(row["unclear"]) for row in rows]}
    )


def _for_tool(project: Project, form: str) -> Labels:
    """The answers as a tool's writer takes them; what was decided is as sure as can be."""
    fitted = project.fitted
    kind = project.kind
    if kind not in (*CLASS_KINDS, "spans"):
        raise BadParameter(f"format {form} holds classes and spans, and these labels are {KINDS[kind]}; take csv.")
    answers: dict[str, tuple[Any, float]] = {}
    if fitted is not None and kind == "spans":
        for name, one in fitted.answers.items():
            answers[name] = ([Span(**span) for span in one["label"]], one["confidence"] or float("nan"))
    elif fitted is not None:
        names = zip(fitted.table.items.tolist(), fitted.top.tolist(), fitted.sure.tolist(), strict=True)
        answers = {name: (str(fitted.model.classes_[top]), sure) for name, top, sure in names}
    for one in project.all_decisions():
        if (label := one["label"]) is not None:
            spans = kind == "spans"
            answers[one["item"]] = ([Span(**span, probability=1.0) for span in label] if spans else label, 1.0)
    items, labels = np.array(list(answers), object), np.empty(len(answers), object)
    labels[:] = [label for label, _ in answers.values()]
    sure = np.array([one for _, one in answers.values()], np.float64)
    method = default_method(fitted.table.kind) if fitted is not None else "consensus"
    return Labels({None: Answers(items, labels, sure)}, f"dissensus {method}")


def report(project: Project, names: bool = False) -> str:
    """The page of `dissensus report` on the rows that count now."""
    from dissensus.report import Report

    project.refit()
    fitted = project.fitted
    if fitted is None:
        raise DataError(f"project {project.name!r} has no labels to learn from yet; there is nothing to report.")
    return Report(fitted.table, fitted.model, title=project.title, names=names, salt=project.store.salt()).html()
