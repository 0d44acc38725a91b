"""Prodigy's JSONL, as `db-out` writes it.

Choice tasks (`options`, `accept`): one row per accepted option. Binary tasks: the question is the `label` shown, the
answer "accept" or "reject". Ignored tasks are abstentions. The item is `_input_hash`, the same for all questions about
one input.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from dissensus.exceptions import DataError
from dissensus.table.find_columns import Columns
from dissensus.table.io.exports import Answer, add_export, field, warn_left_out
from dissensus.table.io.jsonl import Record, records

_UNNAMED_SESSION = re.compile(r"\d{4}-\d\d-\d\d_\d\d-\d\d-\d\d")  # called after the time at which it began


def claims(record: Record) -> bool:
    """True for a record that looks like a task of Prodigy."""
    return "answer" in record and any(key in record for key in ("_input_hash", "_task_hash", "_view_id", "_session_id"))


def answers(path: Path, columns: Columns) -> Iterator[Answer]:
    """Yield one row per answer: item, annotator, label, and the label shown as the question."""
    total = unchosen = 0
    sessions = set()
    for record in records(path):
        total += 1
        where = f"{path}: record {total:,}"
        item = field(record, columns.item, ("_input_hash", "_task_hash"), "item", where)
        annotator = str(field(record, columns.annotator, ("_annotator_id", "_session_id"), "annotator", where))
        sessions.add(annotator)
        answer = record.get("answer")
        if answer not in ("accept", "reject", "ignore"):
            raise DataError(f"{where} has the answer {answer!r}; expected 'accept', 'reject' or 'ignore'.")
        if "accept" in record or "options" in record:
            chosen = record.get("accept") if answer == "accept" else None
            chosen = chosen if isinstance(chosen, list) else [] if chosen is None else [chosen]
            unchosen += answer != "ignore" and not chosen
            yield from (Answer(item, annotator, choice, "choice") for choice in chosen or [None])
        elif "spans" in record and "label" not in record:
            raise DataError(f"{where} labels spans of its text; only labels of whole inputs are read.")
        else:
            label = None if answer == "ignore" else answer
            yield Answer(item, annotator, label, str(record.get("label", "answer")))
    warn_left_out(unchosen, total, "choice tasks were rejected or accepted without a choice; they are left out", path)
    if len(sessions) > 1:
        unnamed = sum(bool(_UNNAMED_SESSION.fullmatch(session)) for session in sessions)
        what = "annotators are unnamed sessions, called after their time; one person may count as several"
        warn_left_out(unnamed, len(sessions), what, path)


add_export("prodigy", answers, claims=claims, summary="Prodigy's choice and binary tasks", place=60)
