"""Langfuse's scores, as its API returns them (a page of version 2 or 3) or a line each.

The item is the scored object: an observation, else a trace, else a session. The name of a score is the question; the
annotator is its author, else the name of the score, which is often the model's. If the metadata name the model, it is
removed from the question: "tone-gpt" by "gpt" is "tone".
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from dissensus.messages import quote_name
from dissensus.table import exceptions as errors
from dissensus.table.find_columns import Columns
from dissensus.table.io.exports import LABEL, NUMBER, Answer, Item, Rows, export_reader
from dissensus.table.io.jsonl import Record, check_once, field, first_of, objects, part, records
from dissensus.table.io.readers import readers
from dissensus.table.notes import MorePages, SomeScores

_SCORE_FIELDS = {"name", "dataType", "source"}
_ITEMS = ("observationId", "traceId", "sessionId", "datasetRunId")  # the first that a score has
_NOT_READ = {"TEXT": "texts", "CORRECTION": "corrections"}


def claims(record: Record) -> bool:
    """Return True for a page of scores, or one of them."""
    data = record.get("data")
    first = data[0] if isinstance(data, list) and data else record
    return isinstance(first, dict) and first.keys() >= _SCORE_FIELDS


def answers(path: Path, columns: Columns) -> Rows:
    """Yield one answer per score."""
    seen: set[str] = set()
    for page in records(path):
        meta, there = part(page, "meta", dict, str(path)), page.get("data")
        total = meta.get("totalItems")
        if isinstance(total, int) and isinstance(there, list) and total > len(there):
            yield SomeScores(n=len(there), n_total=total)
        elif meta.get("cursor"):
            yield MorePages()
        for score in objects(page, "data", str(path)) if "data" in page else [page]:
            where = f"{path}: score {quote_name(score.get('id'))}"
            if "id" in score:
                check_once(seen, str(score["id"]), where, "fetch the scores")
            item = first_of(score, (columns.item,) if isinstance(columns.item, str) else _ITEMS)
            item = part(score, "subject", dict, where).get("id") if item is None else item
            if item is None:
                raise errors.NoSubject(where=where, names=_ITEMS, role="item")
            yield Item(item, {})
            yield _answer(score, item, columns, where)


def _answer(score: Record, item: Any, columns: Columns, where: str) -> Answer:
    kind, value, name = str(score.get("dataType")), score.get("value"), score.get("name")
    if not isinstance(name, str) or not name:
        raise errors.UnexpectedValue(where=where, field="name", value=name, expected="text")
    metadata = score.get("metadata")
    model = metadata.get("model") if isinstance(metadata, dict) else None
    author = score.get("authorUserId")
    if columns.annotator is not None:
        author = field(score, columns.annotator, (), "annotator", where)
    question, who = name, author if isinstance(author, str | int) and author != "" else name
    if author is None and isinstance(model, str) and model and model in name:
        question = name.replace(model, "").strip(" -_:/.") or "score"
    if kind in _NOT_READ:
        return Answer(item, who, None, question, _NOT_READ[kind])
    if kind == "NUMERIC":
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            raise errors.UnexpectedValue(where=where, field="value", value=value, expected="a number")
        return Answer(item, who, float(value), question, NUMBER)
    label = score.get("stringValue") if score.get("stringValue") is not None else value
    if kind == "BOOLEAN" and label in (0, 1):
        label = str(bool(label))
    if not isinstance(label, str):
        raise errors.UnexpectedValue(where=where, field="value", value=label, expected="text")
    return Answer(item, who, label, question, LABEL)


readers.register("langfuse", summary="Langfuse's scores", place=58)(
    export_reader(answers, claims, words=("what was scored", "the author, else the name of the score"))
)
