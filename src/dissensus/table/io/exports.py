"""What the exports of annotation tools have in common: answers to one or several questions, some of them skipped.

A tool is one file with two functions: `answers` yields an `Answer` for every label, `claims` tells the tool's records.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from dissensus.exceptions import DataError, DataWarning
from dissensus.table.find_columns import Columns
from dissensus.table.io.formats import JSON_SUFFIXES, Format, add
from dissensus.table.names import to_column


class Answer(NamedTuple):
    """One row. A label of None is no answer: the item and the annotator stay, the row does not."""

    item: Any
    annotator: str
    label: Any
    question: str = ""


def add_export(
    name: str,
    answers: Callable[[Path, Columns], Iterator[Answer]],
    *,
    claims: Callable[[dict[str, Any]], bool],
    summary: str,
    place: int,
    suffixes: tuple[str, ...] = JSON_SUFFIXES,
) -> None:
    """Enter the format of an annotation tool."""

    def read(path: Path, columns: Columns | None) -> pa.Table:
        found = list(answers(path, columns or Columns()))
        if all(answer.label is None for answer in found):
            raise DataError(f"{path} holds no answer; a table needs at least one.")
        made = dict(zip(Answer._fields, zip(*found, strict=True), strict=True))
        if len(set(made["question"])) == 1:
            del made["question"]
        return pa.table({name: to_column(values, name) for name, values in made.items()})

    add(Format(name, suffixes, read, claims=claims, export=True, summary=summary, place=place))


def field(record: dict[str, Any], named: str | None, usual: tuple[str, ...], role: str, where: str) -> Any:
    """Read the field that the caller named for a role, or the first usual one that is there; none raises."""
    keys = usual if named is None else (named,)
    for key in keys:
        if record.get(key) is not None:
            return record[key]
    raise DataError(f"{where} has no {' nor '.join(map(repr, keys))} for {role}; name the field: {role}=<field>.")


def warn_left_out(count: int, total: int, what: str, path: Path) -> None:
    """Warn once, with a count, where something was left out."""
    if count:
        warnings.warn(f"{path}: {count:,} of {total:,} {what}.", DataWarning, stacklevel=2)
