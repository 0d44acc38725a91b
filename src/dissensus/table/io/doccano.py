"""Read and write doccano's JSON and JSONL exports of labels and spans.

The export of a shared project is one file, `all.jsonl`, without names of annotators. The export of another project is a
zip with one file per annotator, named after the annotator. Versions before 1.0 name the annotator in each record
(`username`) or in each label (`annotations[].user`). In the file that we write for import, our label replaces those of
the annotators; doccano reads the other fields as metadata.
"""

from __future__ import annotations

import warnings
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePath
from typing import Any

from dissensus.table import exceptions as errors
from dissensus.table.find_columns import ColumnNames
from dissensus.table.io.exports import LABEL, SPANS, ExportedAnswer, ExportedItem, ExportRows, make_export_reader
from dissensus.table.io.files import is_zip, list_zip_members, open_zip_member, report_read_errors
from dissensus.table.io.jsonl import Record, get_objects, parse_records, parse_span, read_records, require_field
from dissensus.table.io.readers import JSON_SUFFIXES, readers
from dissensus.table.io.writers import ItemLabel, LabelsToWrite, json_writer, writers

_LABEL_FIELDS = ("label", "labels", "cats", "entities")
_NAME_FIELDS = ("annotator", "username", "user")
_SPAN_FIELDS = ("start_offset", "end_offset", "label")
_UNNAMED_FILES = ("all", "unknown")  # names of files that do not name an annotator
_ANNOTATOR_FIELDS = ("labels", "cats", "entities", "annotations", "username", "user")


def matches_record(record: Record) -> bool:
    """Return True if the record looks like an example of doccano."""
    if {"item", "annotator"} <= record.keys():
        return False  # This is a row of a table.
    return (
        any(isinstance(record.get(key), list) for key in (*_LABEL_FIELDS, "annotations"))
        or {"text", "username"} <= record.keys()
    )


def matches_zip(names: Sequence[str]) -> bool:
    """Return True if these are the files of a zip with JSON files."""
    return any(name.lower().endswith(JSON_SUFFIXES) for name in names)


def read_answers(path: Path, columns: ColumnNames) -> ExportRows:
    """Yield the text of each example, and one answer per annotator."""
    n_answers = n_unnamed = 0
    for number, (source, record) in enumerate(iterate_records(path), start=1):
        where = f"{path}: record {number:,} of {source}"
        item = require_field(record, columns.item, ("id", "doc_id", "item"), "item", where)
        yield ExportedItem(item, {key: record[key] for key in ("text", "data") if isinstance(record.get(key), str)})
        keys: Any = [columns.annotator] if columns.annotator else _NAME_FIELDS
        named = next((record[key] for key in keys if record.get(key) is not None), source)
        for user, labels, spans in _labels_by_annotator(record, where):
            is_unnamed = user is None and named is source and source in _UNNAMED_FILES
            annotator = "" if is_unnamed and not labels else named if user is None else user
            n_answers += 1
            n_unnamed += is_unnamed and bool(labels)
            if spans:  # Spans are lists [start, end, label] or objects.
                triples = (isinstance(span, list) and len(span) == 3 for span in labels)
                whole = (
                    dict(zip(_SPAN_FIELDS, a, strict=True)) if b else a for a, b in zip(labels, triples, strict=True)
                )
                labels = [parse_span(span if isinstance(span, dict) else {}, _SPAN_FIELDS, where) for span in whole]
            yield ExportedAnswer(item, annotator, labels, kind=SPANS if spans else LABEL)
    if n_unnamed:
        warnings.warn(errors.UnnamedAnnotators(path=path, n=n_unnamed, n_answers=n_answers), stacklevel=2)


def iterate_records(path: Path) -> Iterator[tuple[str, Record]]:
    """Yield each record with the name of its file, which is the name of the annotator."""
    with report_read_errors(path):
        packed = is_zip(path)
    if not packed:
        yield from ((path.name.partition(".")[0], record) for record in read_records(path))
        return
    with report_read_errors(path), zipfile.ZipFile(path) as archive:
        for name in sorted(list_zip_members(path)):
            if name.endswith(JSON_SUFFIXES):
                with open_zip_member(archive, name, path) as file:
                    yield from ((PurePath(name).stem, record) for record in parse_records(file, f"{path}/{name}"))


def _labels_by_annotator(record: Record, where: str) -> list[tuple[Any, list[Any], bool]]:
    """Return (annotator or None, labels, True if they are spans) for each annotator of a record."""
    if isinstance(record.get("annotations"), list):
        by_user: dict[Any, list[Any]] = {}
        for entry in get_objects(record, "annotations", where):
            user = entry.get("user")
            of_text = "start_offset" in entry
            by_user.setdefault(user if user is None else str(user), []).append(entry if of_text else entry.get("label"))
        spans = any(isinstance(label, dict) for labels in by_user.values() for label in labels)
        return [(user, labels, spans) for user, labels in by_user.items()] or [(None, [], False)]
    value = next((record[key] for key in _LABEL_FIELDS if key in record), None)
    labels = value if isinstance(value, list) else [] if value is None else [value]
    return [(None, labels, any(isinstance(label, list | dict) for label in labels))]


def make_examples(labels: LabelsToWrite) -> Iterator[Record]:
    """Yield the first record of each example in the export, with our label instead of the annotators' labels."""
    if len(labels.questions) > 1:
        raise errors.OneQuestionPerProject(tool="a doccano project", n=len(labels.questions))
    labels_by_item = {str(item): (item, given) for item, given in labels.iterate_items()}
    written = set()
    for _, record in iterate_records(labels.source) if labels.source else ():
        item = labels.find_item(record, "id", "doc_id", "item")
        if item not in written:
            written.add(item)
            before = {key: value for key, value in record.items() if key not in _ANNOTATOR_FIELDS}
            yield before | _make_label(labels_by_item.pop(str(item), (item, None))[1], labels.agent)
    yield from (
        {"id": item, "text": str(item)} | _make_label(given, labels.agent) for item, given in labels_by_item.values()
    )


def _make_label(given: dict[str | None, ItemLabel] | None, agent: str) -> Record:
    if given is None:  # The item has no label.
        return {"label": []}
    (answer,) = given.values()
    score: Any = answer.confidence
    label = [answer.label]
    if isinstance(answer.label, list):
        label, score = [[*span[:3]] for span in answer.label], [span.probability for span in answer.label]
    return {"label": label, "annotator": agent, "score": score}


readers.register("doccano", summary="doccano's labels and spans", place=70)(
    make_export_reader(read_answers, matches_record, suffixes=(*JSON_SUFFIXES, ".zip"), matches_zip=matches_zip)
)
writers.register("doccano", summary="doccano's examples, labelled", place=30)(
    json_writer("to-doccano.jsonl", make_examples)
)
