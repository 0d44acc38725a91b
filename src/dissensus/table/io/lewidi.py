"""Read the JSON files of the shared tasks Learning With Disagreements.

A file is one object that maps each item to its text and annotations. In 2025, `annotations` maps annotators to labels,
and commas separate several labels. In 2023, `annotations` and `annotators` are comma-separated lists in the same order.
`soft_label` and `hard_label` are derived from these and not read.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from dissensus.messages import quote_name
from dissensus.table import exceptions as errors
from dissensus.table.find_columns import ColumnNames
from dissensus.table.io.exports import ExportedAnswer, ExportedItem, ExportRows, make_export_reader
from dissensus.table.io.jsonl import Record, get_entry, read_records
from dissensus.table.io.readers import readers


def matches_record(record: Record) -> bool:
    """Return True if all entries of the object have annotations and annotators."""
    return bool(record) and all(
        isinstance(e, dict) and {"annotations", "annotators"} <= e.keys() for e in record.values()
    )


def read_answers(path: Path, columns: ColumnNames) -> ExportRows:
    """Yield the text of each item, and one answer per annotator."""
    for record in read_records(path):
        for item in record:
            where = f"{path}: item {quote_name(item)}"
            entry = get_entry(record, item, dict, where)
            text = entry.get("text")
            yield ExportedItem(item, text if isinstance(text, dict) else {"text": text})
            for annotator, label in _labels_by_annotator(entry, where):
                yield ExportedAnswer(item, annotator, label, excluded="" if label else "answers held back (empty text)")


def _labels_by_annotator(entry: Record, where: str) -> list[tuple[str, list[Any]]]:
    if isinstance(entry.get("annotations"), dict):
        labels = {
            annotator: get_entry(entry["annotations"], annotator, str, where) for annotator in entry["annotations"]
        }
        return [
            (annotator, [text.strip() for text in label.split(",") if text.strip()])
            for annotator, label in labels.items()
        ]
    given, annotators = (get_entry(entry, key, str, where).split(",") for key in ("annotations", "annotators"))
    if len(given) != len(annotators):
        raise errors.UnequalLengths(
            column="answers", n=len(given), other_column="annotators", n_other=len(annotators)
        ).add_subject(where)
    return [
        (annotator.strip(), [label.strip()] if label.strip() else [])
        for annotator, label in zip(annotators, given, strict=True)
    ]


readers.register("lewidi", summary="Learning With Disagreements, 2023 and 2025", place=65)(
    make_export_reader(read_answers, matches_record)
)
