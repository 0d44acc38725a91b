"""Prodigy's JSONL, as `db-out` writes it.

Choice tasks (`options`, `accept`): one answer with the accepted options. Binary tasks: the question is the `label`
shown, the answer "accept" or "reject". Spans: those of an accepted task. Ignored tasks are no answers. The item is
`_input_hash`, the same for all questions about one input.
"""

from __future__ import annotations

import re
import warnings
from pathlib import Path

from dissensus.exceptions import DataError, DataWarning
from dissensus.table.find_columns import Columns
from dissensus.table.io.exports import SPANS, Answer, Item, Rows, add_export, field, objects, span_of
from dissensus.table.io.jsonl import Record, records

_UNNAMED_SESSION = re.compile(r"\d{4}-\d\d-\d\d_\d\d-\d\d-\d\d")  # called after the time at which it began


def claims(record: Record) -> bool:
    """True for a record that looks like a task of Prodigy."""
    return "answer" in record and any(key in record for key in ("_input_hash", "_task_hash", "_view_id", "_session_id"))


def answers(path: Path, columns: Columns) -> Rows:
    """Yield the text of every task, and its answer, with the label shown as the question."""
    sessions = set()
    for number, record in enumerate(records(path), start=1):
        where = f"{path}: record {number:,}"
        item = field(record, columns.item, ("_input_hash", "_task_hash"), "item", where)
        annotator = field(record, columns.annotator, ("_annotator_id", "_session_id"), "annotator", where)
        sessions.add(str(annotator))
        answer = record.get("answer")
        if answer not in ("accept", "reject", "ignore"):
            raise DataError(f"{where} has the answer {answer!r}; expected 'accept', 'reject' or 'ignore'.")
        yield Item(item, {"text": record["text"]} if isinstance(record.get("text"), str) else {})
        ignored = "tasks ignored" if answer == "ignore" else ""
        if "accept" in record or "options" in record:
            rejected = "choice tasks rejected" if answer == "reject" else ""
            yield Answer(item, annotator, record.get("accept"), "choice", left_out=ignored or rejected)
        elif "spans" in record and "label" not in record:
            rejected = "tasks with spans rejected" if answer == "reject" else ""
            spans = [span_of(one, ("start", "end", "label"), where) for one in objects(record, "spans", where)]
            yield Answer(item, annotator, spans, "spans", SPANS, left_out=ignored or rejected)
        else:
            yield Answer(item, annotator, answer, str(record.get("label", "answer")), left_out=ignored)
    if len(sessions) > 1 and (unnamed := sum(bool(_UNNAMED_SESSION.fullmatch(session)) for session in sessions)):
        said = "annotators are unnamed sessions, called after their time; one person may count as several"
        warnings.warn(f"{path}: {unnamed:,} of {len(sessions):,} {said}.", DataWarning, stacklevel=2)


add_export("prodigy", answers, claims=claims, summary="Prodigy's choices, binary tasks and spans", place=60)
