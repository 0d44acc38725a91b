"""Describe a whole project: its annotators, its progress, its export and its report."""

from __future__ import annotations

import io
import json
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from dissensus.exceptions import DataError
from dissensus.models.base import default_method
from dissensus.questions.diagnose import FLAG_WORDS, diagnose_classes
from dissensus.report.study import to_plain
from dissensus.serve import describe
from dissensus.serve.exceptions import NothingToReport, NoToolFormat
from dissensus.serve.fit import FittedProject, build_table
from dissensus.serve.rows import ANNOTATOR, ITEM
from dissensus.table.io.readers import readers
from dissensus.table.io.writers import LabelledSpan, LabelsToWrite, QuestionLabels, writers
from dissensus.table.kinds import CLASS_KINDS

if TYPE_CHECKING:
    from dissensus.serve.project import Project

TOOL_FORMATS = ("label-studio", "argilla")
EMPTY_ITEM_COLUMNS = (
    "item",
    "label",
    "confidence",
    "status",
    "reason",
)  # columns of the exported items before the first label
EXPORT_CONTENTS = ("annotations", "items", "decisions")
EXPORT_FORMATS = {
    "csv": "text/csv; charset=utf-8",
    "parquet": "application/vnd.apache.parquet",
    "jsonl": "application/x-ndjson",
    **dict.fromkeys(TOOL_FORMATS, "application/json"),
}
"""Export format → media type."""


def list_annotators(project: Project) -> list[dict[str, Any]]:
    """Return number of labels, reliability with its interval, time of the last label, and flags by annotator."""
    fitted = project.fitted
    estimates: dict[str, dict[str, Any]] = {}
    if fitted is not None:
        frame = fitted.model.to_frame("annotators", "pyarrow").drop_columns("annotations")
        estimates = {str(row.pop("annotator")): to_plain(row, 17) for row in frame.to_pylist()}
    flags = project.get_cached("flags", lambda: _flag_words(fitted)) if fitted is not None else {}
    found = []
    with project.lock:
        last = project.rows.last_label_times("annotator", project.n_labels_given.size)
        for code in np.flatnonzero(project.n_labels_given).tolist():
            name = project.names[ANNOTATOR].texts[code]
            one = {"annotator": name, "labels": int(project.n_labels_given[code])}
            one |= dict.fromkeys(("reliability", "low", "high")) | estimates.get(name, {})
            found.append(one | {"last": float(last[code]), "flags": [], "reasons": ""} | flags.get(name, {}))
    return sorted(found, key=lambda one: (-one["labels"], one["annotator"]))


def _flag_words(fitted: FittedProject) -> dict[str, dict[str, Any]]:
    """Return flags in words, with their reasons, by annotator."""
    if fitted.table.kind not in CLASS_KINDS:
        return {}
    found = diagnose_classes(fitted.table)
    rows = zip(found.annotators.tolist(), found.flags, found.reasons, strict=True)
    return {name: {"flags": [FLAG_WORDS[one] for one in flags], "reasons": why} for name, flags, why in rows if flags}


def collect_progress(project: Project, days: int = 14) -> dict[str, Any]:
    """Return the progress by day (UTC) and which annotators drift; see `serve.progress`."""
    return dict(project.get_cached(f"progress {days}", lambda: project.fit_state() | _compute_progress(project, days)))


def _compute_progress(project: Project, days: int) -> dict[str, Any]:
    from dissensus.serve.progress import WEEK_SECONDS, measure_progress

    now = project.clock()
    with project.lock:
        rows, fitted, texts = project.current_rows(), project.fitted, project.names[ITEM].texts
        decided = {texts[item]: event.at for item, event in project.decisions.items()}
        table, item_rank, annotator_rank, class_codes = build_table(project, rows, dict(project.decisions))
    at = rows.at
    if table.kind in CLASS_KINDS:  # The rows of the table are in this order.
        at = at[np.lexsort((class_codes[rows.label], annotator_rank[rows.annotator], item_rank[rows.item]))]
    before = project.table(now - WEEK_SECONDS) if at.size and at.min() < now - WEEK_SECONDS else None
    model = fitted.model if fitted is not None else None
    return measure_progress(table, at, before=before, model=model, decided=decided, now=now, days=days)


def export_file(project: Project, form: str = "csv", content: str | None = None, names: bool = True) -> bytes:
    """Return the content of a file of annotations, items or decisions, or of labels that a tool can import.

    Without `names`, annotators have pseudonyms.
    """
    needs_fit = form in TOOL_FORMATS or content == "items"
    with suppress(*(() if needs_fit else (DataError,))):  # Annotations and decisions do not need the fit.
        project.refit()
    file = io.BytesIO()
    if form in TOOL_FORMATS:
        writers[form].write(_tool_labels(project, form), file)
        return file.getvalue()
    frame = {"items": _item_frame, "decisions": _decision_frame}.get(content or "", _annotation_frame)(project)
    if not names:
        pseudonyms = (
            project.pseudonyms()
        )  # The frame is made first because it may have annotators that are newer than earlier pseudonyms.
        for column in {"annotator", "by"}.intersection(frame.column_names):
            frame = _replace_column(frame, column, [pseudonyms[name] for name in frame[column].to_pylist()])
        if "reason" in frame.column_names:
            reasons = zip(frame["reason"].to_pylist(), frame["status"].to_pylist(), strict=True)
            frame = _replace_column(
                frame, "reason", ["decided" if status == "decided" else one for one, status in reasons]
            )
    write = readers[form].write
    assert write is not None
    write(frame, file)
    return file.getvalue()


def _replace_column(frame: Any, column: str, values: list[str | None]) -> Any:
    """Return the frame with new values in a column."""
    return frame.set_column(frame.column_names.index(column), column, pa.array(values, pa.string()))


def _annotation_frame(project: Project) -> Any:
    """Return the rows that count; if they do not form a valid table, as they were posted."""
    try:
        return project.table().to_arrow()
    except Exception:  # An older version accepted rows that are not a valid table.
        columns = zip(project.names, project.current_rows()[1:4], strict=True)
        texts = [[names.texts[code] for code in codes.tolist()] for names, codes in columns]
        return pa.table(dict(zip(("item", "annotator", "label"), texts, strict=True)))


def _item_frame(project: Project) -> Any:
    """Return the frame that `aggregate` writes, with decisions; items without labels come last."""
    fitted = project.fitted
    if fitted is None:
        types = {name: pa.float64() if name == "confidence" else pa.string() for name in EMPTY_ITEM_COLUMNS}
        frame = pa.schema(types.items()).empty_table()
    else:
        frame = fitted.get_item_status().add_columns(fitted.model.to_frame("items", "pyarrow"))
    decided: dict[str, dict[str, Any]] = {}
    with project.lock:
        for event in sorted(project.decisions.values(), key=lambda one: one.seq):
            item, by = project.names[ITEM].texts[event.item], project.names[ANNOTATOR].texts[event.annotator]
            label = project.label_text(event) if event.label >= 0 else None
            facts = {"item": item, "label": label, "confidence": None if label is None else 1.0, "decided": label}
            facts |= {"votes": 0, "labels": 0, "status": "decided", "reason": describe.decision_reason(by)}
            decided[item] = facts
    names = list(map(str, frame["item"].to_pylist()))
    for column in {"status", "reason"}.intersection(frame.column_names):
        values = zip(names, frame[column].to_pylist(), strict=True)
        frame = _replace_column(
            frame, column, [decided[name][column] if name in decided else old for name, old in values]
        )
    labels = [decided[name]["decided"] if name in decided else None for name in names]
    frame = frame.append_column("decided", pa.array(labels, pa.string()))
    more = [row for name, row in decided.items() if name not in set(names)]
    if not more:
        return frame
    columns = {one.name: pa.array([row.get(one.name) for row in more]).cast(one.type) for one in frame.schema}
    return pa.concat_tables(
        [frame, pa.table(columns)]
    ).combine_chunks()  # An empty chunk would be written as zero bytes.


def _decision_frame(project: Project) -> Any:
    with project.lock:
        made = sorted(project.decisions.values(), key=lambda one: one.seq)
        rows = [describe.describe_decision(project, one) for one in made]
        labels = [project.label_text(one) if one.label >= 0 else None for one in made]
    text = {"item": [row["item"] for row in rows], "label": labels}
    text |= {key: [None if row[key] is None else str(row[key]) for row in rows] for key in ("by", "note")}
    both = [json.dumps(one.accepted_labels, ensure_ascii=False) if one.accepted_labels else None for one in made]
    return pa.table(
        {key: pa.array(values, pa.string()) for key, values in text.items()}
        | {"both": pa.array(both, pa.string()), "unclear": [bool(row["unclear"]) for row in rows]}
    )


def _tool_labels(project: Project, form: str) -> LabelsToWrite:
    """Return the results in the form that the writer of a tool expects; decided labels have confidence 1."""
    fitted, kind = project.fitted, project.kind
    if kind not in (*CLASS_KINDS, "spans"):
        raise NoToolFormat(format=form, kind=kind)
    answers: dict[str, tuple[Any, float]] = {}
    if fitted is not None and kind == "spans":
        for name, one in fitted.answers.items():
            answers[name] = ([LabelledSpan(**span) for span in one["label"]], one["confidence"] or float("nan"))
    elif fitted is not None:
        rows = zip(fitted.table.items.tolist(), fitted.top.tolist(), fitted.confidence.tolist(), strict=True)
        answers = {name: (str(fitted.model.classes_[top]), confidence) for name, top, confidence in rows}
    for one in project.all_decisions():
        if (label := one["label"]) is not None:
            spans = kind == "spans"
            answers[one["item"]] = ([LabelledSpan(**span, probability=1.0) for span in label] if spans else label, 1.0)
    items, labels = np.array(list(answers), object), np.empty(len(answers), object)
    labels[:] = [label for label, _ in answers.values()]
    confidence = np.array([one for _, one in answers.values()], np.float64)
    method = default_method(fitted.table.kind) if fitted is not None else "consensus"
    return LabelsToWrite({None: QuestionLabels(items, labels, confidence)}, f"dissensus {method}")


def draw_report(project: Project, names: bool = False) -> str:
    """Return the page of `dissensus report` about the rows that count now."""
    from dissensus.report import Report

    project.refit()
    if (fitted := project.fitted) is None:
        raise NothingToReport(project=project.name)
    return Report(
        fitted.table, fitted.model, title=project.title, names=names, salt=project.store.pseudonym_salt()
    ).html()
