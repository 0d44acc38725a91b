"""What the exports of annotation tools have in common: answers to one or several questions, some of them skipped."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from dissensus.exceptions import DataError, DataWarning
from dissensus.table.names import to_column


class Answer(NamedTuple):
    """One row. A label of None is no answer: the item and the annotator stay, the row does not."""

    item: Any
    annotator: str
    label: Any
    question: str


def to_table(answers: list[Answer], path: Path) -> pa.Table:
    """The answers as columns item, annotator, label, and question where there is more than one."""
    if all(answer.label is None for answer in answers):
        raise DataError(f"{path} holds no answer; a table needs at least one.")
    columns = {
        name: to_column([getattr(answer, name) for answer in answers], name) for name in ("item", "annotator", "label")
    }
    questions = [answer.question for answer in answers]
    if len(set(questions)) > 1:
        columns["question"] = to_column(questions, "question")
    return pa.table(columns)


def first_of(record: dict[str, Any], keys: Iterable[str], role: str, where: str) -> Any:
    """The first of these fields that a record holds; none of them is an error."""
    for key in keys:
        if record.get(key) is not None:
            return record[key]
    raise DataError(f"{where} has no {' nor '.join(map(repr, keys))} for {role}; name the field: {role}=<field>.")


def warn_left_out(count: int, total: int, what: str, path: Path) -> None:
    """One warning with a count, where something was left out."""
    if count:
        warnings.warn(f"{path}: {count:,} of {total:,} {what}.", DataWarning, stacklevel=2)
