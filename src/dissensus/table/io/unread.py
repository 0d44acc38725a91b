"""Files that are known and not read yet: each gets one sentence that says what it is and what to write instead."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from dissensus.exceptions import UnreadableFile

INSPECT = (
    "a log of Inspect",
    "item samples[].id, annotator the judge's model, label its grade (each judge has an entry in samples[].scores, or "
    "a model event under the scorer)",
)
RECORDS: tuple[tuple[str, str, Callable[[dict[str, Any]], bool]], ...] = (
    (*INSPECT, lambda r: {"eval", "version"} <= r.keys() and ("samples" in r or "status" in r)),
    (
        "a result of promptfoo",
        "item testIdx with promptIdx, annotator and label gradingResult.componentResults[] (assertion.metric and pass)",
        lambda r: {"evalId", "results"} <= r.keys() or {"gradingResult", "promptIdx"} <= r.keys(),
    ),
    (
        "a file of samples of lm-evaluation-harness by one model",
        "item doc_id, annotator the model, label what filtered_resps says, gold target",
        lambda r: {"doc_id", "filtered_resps"} <= r.keys(),
    ),
    (
        "a page of Langfuse's scores",
        "item traceId or subject.id, annotator authorUserId or the name of the score, label stringValue or value",
        lambda r: _is_page_of_scores(r),
    ),
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
            raise _not_read(path, what, columns)


def check_members(path: Path, names: Sequence[str]) -> None:
    """Raise where the files in a zip are those of a tool which is not read."""
    if "header.json" in names or any(name.startswith("_journal/") for name in names):
        raise _not_read(path, *INSPECT)


def _is_page_of_scores(record: dict[str, Any]) -> bool:
    data = record.get("data")
    return (
        isinstance(data, list)
        and bool(data)
        and isinstance(data[0], dict)
        and {"dataType", "source", "name"} <= data[0].keys()
    )


def _not_read(path: Path, what: str, columns: str) -> UnreadableFile:
    return UnreadableFile(f"{path} is {what}, which is not read yet; write a table with a row per label: {columns}.")
