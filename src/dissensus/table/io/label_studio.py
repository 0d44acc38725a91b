"""Label Studio's JSON export: `annotations` of tasks, each by `completed_by`, with results of type `choices`.

The item is the task's `id`, or a field of its `data` where the caller names one. Every choice control (`from_name`) is
a question; several choices in one answer are several rows. Regions, texts and predictions are not read.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa

from dissensus.exceptions import DataError
from dissensus.table.io.columns import Columns
from dissensus.table.io.exports import Answer, first_of, to_table, warn_left_out
from dissensus.table.io.jsonl import Record, records

_OF_REGIONS = {"start", "end", "x", "y", "points"}  # a choice about a part of the item says where that part is


def claims(record: Record) -> bool:
    """Whether a record looks like a task of Label Studio."""
    return isinstance(record.get("data"), dict) and isinstance(_annotations(record), list)


def read(path: Path, columns: Columns | None) -> pa.Table:
    """One row per choice: item, annotator, label (and question, where there are several controls)."""
    columns = columns or Columns()
    answers: list[Answer] = []
    skipped: list[tuple[Any, str]] = []
    kinds: set[str] = set()
    total = 0
    for task in records(path):
        where = f"{path}: task {task.get('id')}"
        item = (
            first_of(task.get("data") or {}, [columns.item], "item", where)
            if columns.item
            else first_of(task, ["id"], "item", where)
        )
        for annotation in _annotations(task) or []:
            total += 1
            annotator = _annotator(annotation, columns.annotator, where)
            found = []
            for result in [] if annotation.get("was_cancelled") else annotation.get("result") or []:
                value = result.get("value") or {}
                kinds.add(str(result.get("type")))
                if result.get("type") == "choices" and not _OF_REGIONS & set(value):
                    question = str(result.get("from_name"))
                    found += [Answer(item, annotator, choice, question) for choice in value.get("choices", [])]
            answers += found
            if not found:
                skipped.append((item, annotator))
    if not answers:
        raise DataError(
            f"{path} holds no choices of whole tasks in {total:,} annotations (its results are of type "
            f"{', '.join(sorted(kinds)) or 'none'}); only the answers of <Choices> are read."
        )
    warn_left_out(len(skipped), total, "annotations were skipped or chose nothing; they are left out", path)
    questions = {answer.question for answer in answers}
    answers += [Answer(item, annotator, None, question) for item, annotator in skipped for question in questions]
    return to_table(answers, path)


def _annotations(task: Record) -> Any:
    return task.get("annotations", task.get("completions"))  # "completions" before version 1.0


def _annotator(annotation: Record, field: str | None, where: str) -> str:
    """Who made an annotation: a user's number, or the email address where the export has it."""
    who = first_of(annotation, [field] if field else ["completed_by", "created_username"], "annotator", where)
    return str(first_of(who, ["email", "id"], "annotator", where) if isinstance(who, dict) else who)
