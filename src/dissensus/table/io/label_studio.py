"""Label Studio's JSON export: `annotations` of tasks, each by `completed_by`, with results of type `choices`.

The item is the task's `id`, or a field of its `data` where the caller names one. Every choice control (`from_name`) is
a question; several choices in one answer are several rows. Regions, texts and predictions are not read.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from dissensus.exceptions import DataError
from dissensus.table.find_columns import Columns
from dissensus.table.io.exports import Answer, add_export, field, warn_left_out
from dissensus.table.io.jsonl import Record, records

_OF_REGIONS = {"start", "end", "x", "y", "points"}  # a choice about a part of the item says where that part is


def claims(record: Record) -> bool:
    """True for a record that looks like a task of Label Studio."""
    return isinstance(record.get("data"), dict) and isinstance(_annotations(record), list)


def answers(path: Path, columns: Columns) -> Iterator[Answer]:
    """Yield one row per choice: item, annotator, label, and the control as the question."""
    skipped: list[tuple[Any, str]] = []
    kinds: set[str] = set()
    questions: set[str] = set()
    total = 0
    for task in records(path):
        where = f"{path}: task {task.get('id')}"
        item = field(task if columns.item is None else task.get("data") or {}, columns.item, ("id",), "item", where)
        for annotation in _annotations(task) or []:
            total += 1
            annotator = _annotator(annotation, columns.annotator, where)
            chosen = 0
            for result in [] if annotation.get("was_cancelled") else annotation.get("result") or []:
                value = result.get("value") or {}
                kinds.add(str(result.get("type")))
                if result.get("type") != "choices" or _OF_REGIONS & set(value):
                    continue
                for choice in value.get("choices", []):
                    chosen += 1
                    questions.add(str(result.get("from_name")))
                    yield Answer(item, annotator, choice, str(result.get("from_name")))
            if not chosen:
                skipped.append((item, annotator))
    if not questions:
        raise DataError(
            f"{path} holds no choices of whole tasks in {total:,} annotations (its results are of type "
            f"{', '.join(sorted(kinds)) or 'none'}); only the answers of <Choices> are read."
        )
    warn_left_out(len(skipped), total, "annotations were skipped or chose nothing; they are left out", path)
    yield from (Answer(item, annotator, None, question) for item, annotator in skipped for question in questions)


def _annotations(task: Record) -> Any:
    return task.get("annotations", task.get("completions"))  # "completions" before version 1.0


def _annotator(annotation: Record, named: str | None, where: str) -> str:
    """Name who made an annotation: a user's number, or the email address where the export has it."""
    who = field(annotation, named, ("completed_by", "created_username"), "annotator", where)
    return str(field(who, None, ("email", "id"), "annotator", where) if isinstance(who, dict) else who)


add_export("label-studio", answers, claims=claims, summary="Label Studio's choices", place=50)
