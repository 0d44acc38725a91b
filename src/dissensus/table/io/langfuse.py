"""Read Langfuse's scores from pages of its API (version 2 or 3), or from files with one score per line.

The item is the scored observation, trace or session. The question is the name of the score. The annotator is the author
of the score, or the name of the score if there is no author. If the metadata contain the name of the model, it is
removed from the question: "tone-gpt" by the model "gpt" becomes "tone".
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from dissensus.messages import quote_name
from dissensus.table import exceptions as errors
from dissensus.table.find_columns import ColumnNames
from dissensus.table.io.exports import LABEL, NUMBER, ExportedAnswer, ExportedItem, ExportRows, make_export_reader
from dissensus.table.io.jsonl import (
    Record,
    check_unique,
    get_entry,
    get_first_present,
    get_objects,
    read_records,
    require_field,
)
from dissensus.table.io.readers import readers
from dissensus.table.notes import PagesMissing

_SCORE_FIELDS = {"name", "dataType", "source"}
_ITEM_FIELDS = ("observationId", "traceId", "sessionId", "datasetRunId")  # The first field that exists is used.
_UNREAD_TYPES = {"TEXT": "texts", "CORRECTION": "corrections"}


def matches_record(record: Record) -> bool:
    """Return True if the record is a score or a page of scores."""
    data = record.get("data")
    first = data[0] if isinstance(data, list) and data else record
    return isinstance(first, dict) and first.keys() >= _SCORE_FIELDS


def read_answers(path: Path, columns: ColumnNames) -> ExportRows:
    """Yield one answer per score."""
    score_ids: set[str] = set()
    for page in read_records(path):
        meta, scores = get_entry(page, "meta", dict, str(path)), page.get("data")
        total = meta.get("totalItems")
        if isinstance(total, int) and isinstance(scores, list) and total > len(scores):
            yield PagesMissing(n=len(scores), n_total=total)
        elif meta.get("cursor"):
            yield PagesMissing(n=len(scores) if isinstance(scores, list) else 1, n_total=None)
        for score in get_objects(page, "data", str(path)) if "data" in page else [page]:
            where = f"{path}: score {quote_name(score.get('id'))}"
            if "id" in score:
                check_unique(score_ids, str(score["id"]), where, "fetch the scores")
            item = get_first_present(score, (columns.item,) if isinstance(columns.item, str) else _ITEM_FIELDS)
            item = get_entry(score, "subject", dict, where).get("id") if item is None else item
            if item is None:
                raise errors.ScoreWithoutSubject(location=where, names=_ITEM_FIELDS, role="item")
            yield ExportedItem(item, {})
            yield _read_score(score, item, columns, where)


def _read_score(score: Record, item: Any, columns: ColumnNames, where: str) -> ExportedAnswer:
    kind, value, name = str(score.get("dataType")), score.get("value"), score.get("name")
    if not isinstance(name, str) or not name:
        raise errors.UnexpectedValue(location=where, field="name", value=name, expected="text")
    metadata = score.get("metadata")
    model = metadata.get("model") if isinstance(metadata, dict) else None
    author = score.get("authorUserId")
    if columns.annotator is not None:
        author = require_field(score, columns.annotator, (), "annotator", where)
    question, annotator = name, author if isinstance(author, str | int) and author != "" else name
    if author is None and isinstance(model, str) and model and model in name:
        question = name.replace(model, "").strip(" -_:/.") or "score"
    if kind in _UNREAD_TYPES:
        return ExportedAnswer(item, annotator, None, question, _UNREAD_TYPES[kind])
    if kind == "NUMERIC":
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            raise errors.UnexpectedValue(location=where, field="value", value=value, expected="a number")
        return ExportedAnswer(item, annotator, float(value), question, NUMBER)
    label = score.get("stringValue") if score.get("stringValue") is not None else value
    if kind == "BOOLEAN" and label in (0, 1):
        label = str(bool(label))
    if not isinstance(label, str):
        raise errors.UnexpectedValue(location=where, field="value", value=label, expected="text")
    return ExportedAnswer(item, annotator, label, question, LABEL)


readers.register("langfuse", summary="Langfuse's scores", place=58)(
    make_export_reader(
        read_answers, matches_record, words=("what was scored", "the author, else the name of the score")
    )
)
