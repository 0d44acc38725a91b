"""doccano's JSON and JSONL exports of labels and of spans, and the zip of them for several annotators.

A shared project is one file, `all.jsonl`, in which nobody is named; any other is a zip with one file per annotator,
named after them. Versions before 1.0 name the annotator in every record (`username`) or label (`annotations[].user`).
Our label takes the place of the annotators' in lines to import; further fields become an example's metadata.
"""

from __future__ import annotations

import warnings
import zipfile
from collections.abc import Iterator
from pathlib import Path, PurePath
from typing import Any

from dissensus.exceptions import BadParameter, DataWarning
from dissensus.table.find_columns import Columns
from dissensus.table.io.exports import LABEL, SPANS, Answer, Item, Rows, add_export
from dissensus.table.io.files import is_zip, members, open_member, reading
from dissensus.table.io.formats import JSON_SUFFIXES
from dissensus.table.io.jsonl import Record, field, objects, parse, records, span_of
from dissensus.table.io.writers import Given, Labels, add

_LABELS = ("label", "labels", "cats", "entities")
_ANNOTATORS = ("annotator", "username", "user")
_SPAN = ("start_offset", "end_offset", "label")
_NOBODY = ("all", "unknown")  # files that are named after no annotator
_OF_AN_ANNOTATOR = ("labels", "cats", "entities", "annotations", "username", "user")


def claims(record: Record) -> bool:
    """True for a record that looks like an example of doccano: a list of labels, or the older fields."""
    if {"item", "annotator"} <= record.keys():
        return False  # a table of one's own
    return (
        any(isinstance(record.get(key), list) for key in (*_LABELS, "annotations"))
        or {"text", "username"} <= record.keys()
    )


def answers(path: Path, columns: Columns) -> Rows:
    """Yield the text of every example, and one answer per annotator of it."""
    found = unnamed = 0
    for number, (source, record) in enumerate(sources(path), start=1):
        where = f"{path}: record {number:,} of {source}"
        item = field(record, columns.item, ("id", "doc_id", "item"), "item", where)
        yield Item(item, {key: record[key] for key in ("text", "data") if isinstance(record.get(key), str)})
        keys: Any = [columns.annotator] if columns.annotator else _ANNOTATORS
        named = next((record[key] for key in keys if record.get(key) is not None), source)
        for user, labels, spans in _labels(record, where):
            nobody = user is None and named is source and source in _NOBODY
            annotator = "" if nobody and not labels else named if user is None else user
            found += 1
            unnamed += nobody and bool(labels)
            if spans:  # lists [start, end, label], or objects
                lists = (isinstance(one, list) and len(one) == 3 for one in labels)
                whole = (dict(zip(_SPAN, a, strict=True)) if b else a for a, b in zip(labels, lists, strict=True))
                labels = [span_of(one if isinstance(one, dict) else {}, _SPAN, where) for one in whole]
            yield Answer(item, annotator, labels, kind=SPANS if spans else LABEL)
    if unnamed:
        said = "answers name no annotator and count as one annotator's, called after the file"
        warnings.warn(f"{path}: {unnamed:,} of {found:,} {said}.", DataWarning, stacklevel=2)


def sources(path: Path) -> Iterator[tuple[str, Record]]:
    """Yield each record with the name of its file, which is the annotator's."""
    with reading(path):
        packed = is_zip(path)
    if not packed:
        yield from ((path.name.partition(".")[0], record) for record in records(path))
        return
    with reading(path), zipfile.ZipFile(path) as archive:
        for name in sorted(members(path)):
            if name.endswith(JSON_SUFFIXES):
                with open_member(archive, name, path) as file:
                    yield from ((PurePath(name).stem, record) for record in parse(file, f"{path}/{name}"))


def _labels(record: Record, where: str) -> list[tuple[Any, list[Any], bool]]:
    """(annotator or None, labels, whether they are spans) of each annotator of a record."""
    if isinstance(record.get("annotations"), list):
        by_user: dict[Any, list[Any]] = {}
        for entry in objects(record, "annotations", where):
            user = entry.get("user")
            of_text = "start_offset" in entry
            by_user.setdefault(user if user is None else str(user), []).append(entry if of_text else entry.get("label"))
        found_spans = any(isinstance(one, dict) for labels in by_user.values() for one in labels)
        return [(user, labels, found_spans) for user, labels in by_user.items()] or [(None, [], False)]
    found = next((record[key] for key in _LABELS if key in record), None)
    labels = found if isinstance(found, list) else [] if found is None else [found]
    return [(None, labels, any(isinstance(label, list | dict) for label in labels))]


def examples(labels: Labels) -> Iterator[Record]:
    """Yield one line per example: what the export says of it first, and our label in place of the annotators'."""
    if len(labels.questions) > 1:
        raise BadParameter(f"a doccano project has one question, not {len(labels.questions):,}; take each by itself.")
    ours = {str(item): (item, given) for item, given in labels.named_items()}
    written = set()
    for _, record in sources(labels.source) if labels.source else ():
        item = labels.item_of(record, "id", "doc_id", "item")
        if item not in written:
            written.add(item)
            before = {key: value for key, value in record.items() if key not in _OF_AN_ANNOTATOR}
            yield before | _own_label(ours.pop(str(item), (item, None))[1], labels.agent)
    yield from ({"id": item, "text": str(item)} | _own_label(given, labels.agent) for item, given in ours.values())


def _own_label(given: dict[str | None, Given] | None, agent: str) -> Record:
    if given is None:  # nobody has labelled it
        return {"label": []}
    (one,) = given.values()
    score: Any = one.confidence
    label = [one.label]
    if isinstance(one.label, list):
        label, score = [[*span[:3]] for span in one.label], [span.probability for span in one.label]
    return {"label": label, "annotator": agent, "score": score}


add_export(
    "doccano", answers, claims=claims, summary="doccano's labels and spans", place=70,
    suffixes=(*JSON_SUFFIXES, ".zip"),
)  # fmt: skip
add("doccano", "to-doccano.jsonl", examples, "doccano's examples, labelled", place=30)
