"""Langfuse's scores, as its API returns them (a page of version 2 or 3) or a line each.

The item is what was scored: an observation, else a trace, else a session. The name of a score is the question; who
answered is its author, else the name of the score: that of a score by a model often is the model's. Where the metadata
name the model, it is taken out of the question: "tone-gpt" by "gpt" is "tone".
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from dissensus.exceptions import DataError
from dissensus.table.find_columns import Columns
from dissensus.table.io.exports import LABEL, NUMBER, Answer, Item, Note, Rows, add_export
from dissensus.table.io.jsonl import Record, check_once, field, first_of, objects, part, records
from dissensus.table.names import shown

_OF_A_SCORE = {"name", "dataType", "source"}
_ITEMS = ("observationId", "traceId", "sessionId", "datasetRunId")  # the first that is there
_NOT_READ = {"TEXT": "texts", "CORRECTION": "corrections"}


def claims(record: Record) -> bool:
    """True for a page of scores, or one of them."""
    data = record.get("data")
    first = data[0] if isinstance(data, list) and data else record
    return isinstance(first, dict) and first.keys() >= _OF_A_SCORE


def answers(path: Path, columns: Columns) -> Rows:
    """Yield one answer per score."""
    seen: set[str] = set()
    for page in records(path):
        meta, there = part(page, "meta", dict, str(path)), page.get("data")
        total = meta.get("totalItems")
        if isinstance(total, int) and isinstance(there, list) and total > len(there):
            said = f"This page has {len(there):,} of {total:,} scores"
            yield Note(f"{said}; give all pages, in one folder.", loud=True, alone=True)
        elif meta.get("cursor"):
            yield Note("There are more scores after this page; give all pages, in one folder.", loud=True, alone=True)
        for score in objects(page, "data", str(path)) if "data" in page else [page]:
            where = f"{path}: score {shown(score.get('id'))}"
            if "id" in score:
                check_once(seen, str(score["id"]), where, "fetch the scores")
            item = first_of(score, (columns.item,) if isinstance(columns.item, str) else _ITEMS)
            item = part(score, "subject", dict, where).get("id") if item is None else item
            if item is None:
                named = ", ".join(map(repr, _ITEMS))
                raise DataError(f"{where} has none of {named} nor a subject; ask for fields=subject.")
            yield Item(item, {})
            yield _answer(score, item, columns, where)


def _answer(score: Record, item: Any, columns: Columns, where: str) -> Answer:
    kind, value, name = str(score.get("dataType")), score.get("value"), score.get("name")
    if not isinstance(name, str) or not name:
        raise DataError(f"{where} has the name {shown(name)}; expected text.")
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
            raise DataError(f"{where} is NUMERIC and has the value {shown(value)}; expected a number.")
        return Answer(item, who, float(value), question, NUMBER)
    said = score.get("stringValue") if score.get("stringValue") is not None else value
    if kind == "BOOLEAN" and said in (0, 1):
        said = str(bool(said))
    if not isinstance(said, str):
        raise DataError(f"{where} is {kind} and has the value {shown(said)}; expected text.")
    return Answer(item, who, said, question, LABEL)


add_export(
    "langfuse", answers, claims=claims, summary="Langfuse's scores", place=58,
    words=("what was scored", "the author, else the name of the score"),
)  # fmt: skip
