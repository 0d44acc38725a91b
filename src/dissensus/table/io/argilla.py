"""Argilla's records, in the shapes in which they are found.

Version 2: `responses` is question → list of `value` and `user_id` (`records.to_json`), or is spread over fields
`<question>.responses`, `.responses.users` and `.responses.status` (flattened, as in a dataset on the hub). Version 1
and the server: `responses` is a list by person, of `values` by question; on the hub, a field `<question>` is a list of
`value`, `user_id` and `status`. Suggestions are a model's: only counted, and what our labels become.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from dissensus.exceptions import DataError
from dissensus.table.find_columns import Columns
from dissensus.table.io.exports import COMPARED, LABEL, RATING, SPANS, Answer, Item, Rows, add_export
from dissensus.table.io.jsonl import Record, field, objects, part, records, span_of
from dissensus.table.io.pairs import comparisons
from dissensus.table.io.writers import Labels, Span, add

_RESPONSES, _USERS, _STATUS = ".responses", ".responses.users", ".responses.status"
_COUNTED = ("submitted", None)  # a status; None where the export does not tell


def claims(record: Record) -> bool:
    """True for a record that looks like one of Argilla."""
    nested = isinstance(record.get("fields"), dict) and isinstance(record.get("responses"), dict | list)
    return nested or any(key.endswith(_USERS) for key in record) or bool(_asked(record))


def answers(path: Path, columns: Columns) -> Rows:
    """Yield the fields of every record, and one answer per person and question."""
    for number, record in enumerate(records(path)):
        where = f"{path}: record {number:,} (from 0)"
        item = field(record, columns.item, ("id", "external_id"), "item", where)
        flat = _is_flat(record)
        fields = {} if flat else part(record, "fields", dict, where)
        if flat:  # those that belong to no question
            questions = [*(key.removesuffix(_USERS) for key in record if key.endswith(_USERS)), *_asked(record)]
            own = (*questions, "_server_id", "status", "id", "external_id", "metadata")
            parts = tuple(f"{question}{mark}" for question in questions for mark in ".-")
            fields = {key: value for key, value in record.items() if key not in own and not key.startswith(parts)}
        yield Item(item, fields)
        for question, user, value, status in responses(record, where):
            if user is None:
                raise DataError(f"{where} has a response to {question!r} without its user.")
            left_out = "" if status in _COUNTED else f"answers {'not finished' if status == 'draft' else status}"
            kind = RATING if isinstance(value, int | float) and not isinstance(value, bool) else LABEL
            if isinstance(value, list) and value and isinstance(value[0], dict) and "rank" in value[0]:
                kind, ranked = COMPARED, (one for one in value if isinstance(one, dict))
                ranks = {str(one.get("value", "")): one.get("rank") for one in ranked}
                value = comparisons({name: r for name, r in ranks.items() if isinstance(r, int | float)}, item)
            elif isinstance(value, list) and value and isinstance(value[0], dict):
                kind, value = SPANS, [span_of(one, ("start", "end", "label"), where) for one in value]
            yield Answer(item, user, value, question, kind, left_out)
        suggested = record.get("suggestions") or ()
        if flat:
            suggested = [key for key in record if key.endswith((".suggestion", "-suggestion"))]
        for _ in suggested if isinstance(suggested, list | dict) else ():
            yield Answer(item, "", None, left_out="suggestions by models")


def _is_flat(record: Record) -> bool:
    return any(key.endswith(_USERS) for key in record) or "responses" not in record


def responses(record: Record, where: str) -> Iterator[tuple[str, Any, Any, Any]]:
    """(question, user, value, status) of every response."""
    flat = _is_flat(record)
    if not flat and isinstance(record.get("responses"), list):
        for response in objects(record, "responses", where):
            for question, answer in part(response, "values", dict, where).items():
                value = answer.get("value") if isinstance(answer, dict) else answer
                yield question, response.get("user_id"), value, response.get("status")
        return
    by_question = {name: record[name] for name in _asked(record)} if flat else part(record, "responses", dict, where)
    for question in by_question:
        for response in objects(by_question, question, where):
            yield question, response.get("user_id"), response.get("value"), response.get("status")
    for key in [key for key in record if key.endswith(_USERS)]:
        question = key.removesuffix(_USERS)
        users, values, states = (part(record, question + what, list, where) for what in (_USERS, _RESPONSES, _STATUS))
        if not len(users) == len(values) == len(states or users):
            raise DataError(f"{where} has {len(values):,} responses to {question!r} by {len(users):,} users.")
        for user, value, status in zip(users, values, states or [None] * len(users), strict=True):
            yield question, user, value, status


def _asked(record: Record) -> list[str]:
    """The questions that are fields of a record by themselves."""
    return [
        key for key, value in record.items()
        if isinstance(value, list) and value and isinstance(value[0], dict) and {"user_id", "value"} <= value[0].keys()
    ]  # fmt: skip


def suggestions(labels: Labels) -> Iterator[Record]:
    """Yield the records of the export, each with our suggestion in place of an earlier one to the same question."""
    if labels.source is None:
        for item, given in labels.named_items():
            ours = {question or "label": _suggestion(*one, labels.agent) for question, one in given.items()}
            yield {"id": item, "fields": {"item": str(item)}, "metadata": {}, "suggestions": ours, "responses": {}}
        return
    said = labels.by_item()
    values: dict[str, dict[str, Any]] = {}  # question → what was answered, as text → as the tool has it
    for record in records(labels.source):
        for name, _, value, _ in responses(record, str(labels.source)):
            values.setdefault(name, {})[str(value)] = value
    for record in records(labels.source):
        item = labels.item_of(record, "id", "external_id")
        for question, one in said.get(str(item), {}).items():
            name = question or labels.question or next(iter(values), "label")
            known = values.get(name, {})
            label = known.get(str(one.label), one.label)  # 4 where a table holds the text "4"
            if any(isinstance(value, list) for value in known.values()) and not isinstance(one.label, list):  # ticks
                label = [label]
            record = _with(record, name, _suggestion(label, one.confidence, labels.agent))
        yield record


def _with(record: Record, name: str, ours: Record) -> Record:
    """The record with our suggestion to one question, in its own shape; see the reader."""
    if isinstance(record.get("responses"), dict):
        return record | {"suggestions": {**(record.get("suggestions") or {}), name: ours}}
    if isinstance(record.get("responses"), list):
        before = [old for old in record.get("suggestions") or [] if old.get("question_name") != name]
        return record | {"suggestions": [*before, {"question_name": name, **ours}]}
    about = {"score": ours["score"], "agent": ours["agent"]}
    if f"{name}.responses" in record:
        key = f"{name}.suggestion"
        return record | {key: ours["value"]} | {f"{key}.{part}": value for part, value in about.items()}
    return record | {f"{name}-suggestion": ours["value"], f"{name}-suggestion-metadata": about}


def _suggestion(label: Any, confidence: Any, agent: str) -> Record:
    if isinstance(label, list) and all(isinstance(one, Span) for one in label):
        confidence = [one.probability for one in label]
        label = [{"start": one.start, "end": one.end, "label": one.label} for one in label]
    return {"value": label, "score": confidence, "agent": agent}


add_export("argilla", answers, claims=claims, summary="Argilla's labels, ratings, spans, rankings", place=55)
add("argilla", "to-argilla.json", suggestions, "Argilla's records with suggestions", place=20)
