"""Prodigy's JSONL, as `db-out` writes it.

Choice tasks (`options`, `accept`): one row per accepted option. Binary tasks: the question is the `label` shown, the
answer "accept" or "reject". Ignored tasks are abstentions. The item is `_input_hash`, the same for all questions about
one input.
"""

from __future__ import annotations

import re
from pathlib import Path

import pyarrow as pa

from dissensus.exceptions import DataError
from dissensus.table.io.columns import Columns
from dissensus.table.io.exports import Answer, first_of, to_table, warn_left_out
from dissensus.table.io.jsonl import Record, records

_UNNAMED_SESSION = re.compile(r"\d{4}-\d\d-\d\d_\d\d-\d\d-\d\d")  # called after the time at which it began


def claims(record: Record) -> bool:
    """Whether a record looks like a task of Prodigy."""
    return "answer" in record and any(key in record for key in ("_input_hash", "_task_hash", "_view_id", "_session_id"))


def read(path: Path, columns: Columns | None) -> pa.Table:
    """One row per answer: item, annotator, label (and question, where several labels were shown)."""
    columns = columns or Columns()
    answers: list[Answer] = []
    total = unchosen = 0
    for record in records(path):
        total += 1
        where = f"{path}: record {total:,}"
        item = first_of(record, [columns.item] if columns.item else ["_input_hash", "_task_hash"], "item", where)
        keys = [columns.annotator] if columns.annotator else ["_annotator_id", "_session_id"]
        annotator = str(first_of(record, keys, "annotator", where))
        answer = record.get("answer")
        if answer not in ("accept", "reject", "ignore"):
            raise DataError(f"{where} has the answer {answer!r}; expected 'accept', 'reject' or 'ignore'.")
        if "accept" in record or "options" in record:
            chosen = record.get("accept") if answer == "accept" else None
            chosen = chosen if isinstance(chosen, list) else [] if chosen is None else [chosen]
            unchosen += answer != "ignore" and not chosen
            answers += [Answer(item, annotator, choice, "choice") for choice in chosen or [None]]
        elif "spans" in record and "label" not in record:
            raise DataError(f"{where} labels spans of its text; only labels of whole inputs are read.")
        else:
            label = None if answer == "ignore" else answer
            answers.append(Answer(item, annotator, label, str(record.get("label", "answer"))))
    warn_left_out(unchosen, total, "choice tasks were rejected or accepted without a choice; they are left out", path)
    sessions = {answer.annotator for answer in answers}
    unnamed = sum(bool(_UNNAMED_SESSION.fullmatch(session)) for session in sessions)
    if len(sessions) > 1:
        what = "annotators are unnamed sessions, called after their time; one person may count as several"
        warn_left_out(unnamed, len(sessions), what, path)
    return to_table(answers, path)
