"""Files that are known and not read yet: each gets one sentence that says what it is and what to write instead."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from dissensus.exceptions import UnreadableFile

RECORDS: tuple[tuple[str, str, Callable[[dict[str, Any]], bool]], ...] = (
    (
        "one object of objects without annotations",
        "item, annotator and label; if it describes the annotators, give it as a table with a column annotator",
        lambda r: len(r) > 0 and all(isinstance(value, dict) and "annotations" not in value for value in r.values()),
    ),
)


def check_record(path: Path, record: dict[str, Any]) -> None:
    """Raise where the first record of a JSON file is that of a tool which is not read."""
    for what, columns, matches in RECORDS:
        if matches(record):
            raise UnreadableFile(
                f"{path} is {what}, which is not read yet; write a table with a row per label: {columns}."
            )
