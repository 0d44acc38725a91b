"""Read and write Prodigy's JSONL files, as `db-out` exports them.

A choice task (`options`, `accept`) is one answer with the accepted options. In a binary task, the question is the
displayed `label`, and the answer is "accept" or "reject". Spans are read from accepted tasks. Ignored tasks are not
answers. The item is `_input_hash`, which is the same for all questions about one input. Our answers are written as
tasks of a separate session, for `db-in`.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator
from pathlib import Path

from dissensus.table import exceptions as errors
from dissensus.table.find_columns import ColumnNames
from dissensus.table.io.exports import LABEL, SPANS, ExportedAnswer, ExportedItem, ExportRows, make_export_reader
from dissensus.table.io.jsonl import Record, get_objects, parse_span, read_records, require_field
from dissensus.table.io.readers import readers
from dissensus.table.io.writers import LabelsToWrite, json_writer, writers

_CHOICE_QUESTION = "choice"
_UNNAMED_SESSION = re.compile(r"\d{4}-\d\d-\d\d_\d\d-\d\d-\d\d")  # Unnamed sessions are named by their start time.


def matches_record(record: Record) -> bool:
    """Return True if the record looks like a task of Prodigy."""
    return "answer" in record and any(key in record for key in ("_input_hash", "_task_hash", "_view_id", "_session_id"))


def read_answers(path: Path, columns: ColumnNames) -> ExportRows:
    """Yield the text and the answer of each task."""
    sessions = set()
    for number, record in enumerate(read_records(path), start=1):
        where = f"{path}: record {number:,}"
        item = require_field(record, columns.item, ("_input_hash", "_task_hash"), "item", where)
        annotator = require_field(record, columns.annotator, ("_annotator_id", "_session_id"), "annotator", where)
        sessions.add(str(annotator))
        answer = record.get("answer")
        if answer not in ("accept", "reject", "ignore"):
            expected = "'accept', 'reject' or 'ignore'"
            raise errors.UnexpectedValue(location=where, field="answer", value=answer, expected=expected)
        yield ExportedItem(item, {"text": record["text"]} if isinstance(record.get("text"), str) else {})
        ignored = "tasks ignored" if answer == "ignore" else ""
        question = _task_question(record)
        label, kind, rejected = answer, LABEL, ""
        if question == _CHOICE_QUESTION:
            label, rejected = record.get("accept"), "choice tasks rejected"
        elif question == SPANS:
            label = [parse_span(span, ("start", "end", "label"), where) for span in get_objects(record, "spans", where)]
            kind, rejected = SPANS, "tasks with spans rejected"
        yield ExportedAnswer(
            item, annotator, label, question, kind, ignored or (rejected if answer == "reject" else "")
        )
    if len(sessions) > 1 and (unnamed := sum(bool(_UNNAMED_SESSION.fullmatch(session)) for session in sessions)):
        warnings.warn(errors.UnnamedSessions(path=path, n=unnamed, n_annotators=len(sessions)), stacklevel=2)


def _task_question(record: Record) -> str:
    """Return the question of a task: "choice", "spans", or the displayed label."""
    if "accept" in record or "options" in record:
        return _CHOICE_QUESTION
    return SPANS if "spans" in record and "label" not in record else str(record.get("label", "answer"))


def add_answered_tasks(labels: LabelsToWrite) -> Iterator[Record]:
    """Yield the tasks of the export, and a task with our answer for each question about each input."""
    first_tasks: dict[str, dict[str, Record]] = {}  # input → question → first task
    for record in read_records(labels.source) if labels.source else ():
        yield record
        item = labels.find_item(record, "_input_hash", "_task_hash")
        first_tasks.setdefault(str(item), {}).setdefault(_task_question(record), record)
    annotator = labels.agent.replace(" ", "-")
    for item, given in labels.iterate_items():
        tasks_of = first_tasks.get(str(item)) or {}
        for question, answer in given.items():
            if isinstance(answer.label, list):
                spans = [dict(zip(("start", "end", "label", "score"), span, strict=True)) for span in answer.label]
                before = tasks_of.get(SPANS) or {"text": str(item), "_input_hash": item}
                yield before | {
                    "spans": spans,
                    "answer": "accept",
                    "_annotator_id": annotator,
                    "_session_id": annotator,
                }
                continue
            name = question or next(iter(tasks_of), _CHOICE_QUESTION)
            options = [{"id": answer.label, "text": str(answer.label)}]
            before = tasks_of.get(name) or {"text": str(item), "_input_hash": item, "options": options}
            chosen = {"accept": [answer.label], "answer": "accept"} if "options" in before else {"answer": answer.label}
            yield before | chosen | {"_annotator_id": annotator, "_session_id": annotator, "score": answer.confidence}


readers.register("prodigy", summary="Prodigy's choices, binary tasks and spans", place=60)(
    make_export_reader(read_answers, matches_record)
)
writers.register("prodigy", summary="Prodigy's tasks, answered", place=40)(
    json_writer("to-prodigy.jsonl", add_answered_tasks)
)
