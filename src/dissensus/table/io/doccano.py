"""doccano's JSON and JSONL exports of classification projects, and the zip of them for several annotators.

A shared project is one file, `all.jsonl`, in which nobody is named; any other is a zip with one file per annotator,
named after them. Versions before 1.0 name the annotator in every record (`username`) or label (`annotations[].user`).
"""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from pathlib import Path, PurePath
from typing import Any

from dissensus.exceptions import DataError
from dissensus.table.find_columns import Columns
from dissensus.table.io.exports import Answer, add_export, field, warn_left_out
from dissensus.table.io.files import reading
from dissensus.table.io.formats import JSON_SUFFIXES
from dissensus.table.io.jsonl import Record, parse, records

_LABELS = ("label", "labels", "cats")
_ANNOTATORS = ("annotator", "username", "user")
_NOBODY = ("all", "unknown")  # files that are named after no annotator


def claims(record: Record) -> bool:
    """True for a record that looks like an example of doccano: a list of labels, or the older fields."""
    return (
        any(isinstance(record.get(key), list) for key in (*_LABELS, "annotations"))
        or {"text", "username"} <= record.keys()
    )


def answers(path: Path, columns: Columns) -> Iterator[Answer]:
    """Yield one row per label: item, annotator, label."""
    total = found = unlabelled = unnamed = 0
    for source, record in sources(path):
        total += 1
        where = f"{path}: record {total:,} of {source}"
        item = field(record, columns.item, ("id", "doc_id", "item"), "item", where)
        keys = [columns.annotator] if columns.annotator else _ANNOTATORS
        named = next((record[key] for key in keys if record.get(key) is not None), source)
        labels = _labels(record, where)
        found += len(labels)
        unlabelled += not labels
        for user, label in labels:
            annotator = named if user is None else user
            unnamed += annotator is source and source in _NOBODY
            yield Answer(item, str(annotator), label)
    warn_left_out(unlabelled, total, "records have no label; they are left out", path)
    what = "labels name no annotator and count as one annotator's, called after the file"
    warn_left_out(unnamed, found, what, path)


def sources(path: Path) -> Iterator[tuple[str, Record]]:
    """Yield each record with the name of its file, which is the annotator's."""
    with reading(path):
        packed = zipfile.is_zipfile(path)
    if not packed:
        yield from ((path.name.partition(".")[0], record) for record in records(path))
        return
    with reading(path), zipfile.ZipFile(path) as archive:
        for name in sorted(archive.namelist()):
            if name.endswith((".jsonl", ".json")):
                with archive.open(name) as file:
                    yield from ((PurePath(name).stem, record) for record in parse(file, f"{path}/{name}"))


def _labels(record: Record, where: str) -> list[tuple[Any, Any]]:
    """(annotator or None, label) of each label of a record."""
    if isinstance(record.get("annotations"), list):
        return [(entry.get("user"), entry["label"]) for entry in record["annotations"] if "label" in entry]
    found = next((record[key] for key in _LABELS if key in record), None)
    labels = found if isinstance(found, list) else [] if found is None else [found]
    if labels and isinstance(labels[0], list | dict):
        raise DataError(
            f"{where} labels spans of its text ({str(labels[0])[:40]}); only labels of whole texts are read."
        )
    return [(None, label) for label in labels]


add_export(
    "doccano", answers, claims=claims, summary="doccano's classification projects", place=70,
    suffixes=(*JSON_SUFFIXES, ".zip"),
)  # fmt: skip
