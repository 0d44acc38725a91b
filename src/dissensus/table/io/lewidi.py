"""The JSON of the shared tasks Learning With Disagreements: one object, item → its text and annotations.

2025: `annotations` is annotator → label, several labels separated by commas. 2023: `annotations` and `annotators` are
lists separated by commas, in the same order. `soft_label` and `hard_label` are derived from these.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from dissensus.messages import quote_name
from dissensus.table import exceptions as errors
from dissensus.table.find_columns import Columns
from dissensus.table.io.exports import Answer, Item, Rows, export_reader
from dissensus.table.io.jsonl import Record, part, records
from dissensus.table.io.readers import readers


def claims(record: Record) -> bool:
    """Return True for an object of objects that have annotations and annotators."""
    return bool(record) and all(
        isinstance(e, dict) and {"annotations", "annotators"} <= e.keys() for e in record.values()
    )


def answers(path: Path, columns: Columns) -> Rows:
    """Yield the text of every item, and one answer per annotator of it."""
    for record in records(path):
        for item in record:
            where = f"{path}: item {quote_name(item)}"
            entry = part(record, item, dict, where)
            text = entry.get("text")
            yield Item(item, text if isinstance(text, dict) else {"text": text})
            for annotator, label in _annotations(entry, where):
                yield Answer(item, annotator, label, excluded="" if label else "answers held back (empty text)")


def _annotations(entry: Record, where: str) -> list[tuple[str, list[Any]]]:
    if isinstance(entry.get("annotations"), dict):
        labels = {who: part(entry["annotations"], who, str, where) for who in entry["annotations"]}
        return [(who, [text.strip() for text in label.split(",") if text.strip()]) for who, label in labels.items()]
    given, people = (part(entry, key, str, where).split(",") for key in ("annotations", "annotators"))
    if len(given) != len(people):
        raise errors.UnequalAnswers(where=where, n=len(given), n_annotators=len(people))
    return [(who.strip(), [label.strip()] if label.strip() else []) for who, label in zip(people, given, strict=True)]


readers.register("lewidi", summary="Learning With Disagreements, 2023 and 2025", place=65)(
    export_reader(answers, claims)
)
