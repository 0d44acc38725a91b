"""Reader and writer of Argilla's records.

In version 2, `records.to_json` writes `responses` as a mapping from each question to a list of `value` and `user_id`. A
dataset of version 2 on the hub has the fields `<question>.responses`, `.responses.users` and `.responses.status`. In
version 1 and on the server, `responses` is a list with the `values` of all questions for each annotator; in a dataset
of version 1 on the hub, the field `<question>` is a list of `value`, `user_id` and `status`. Suggestions of models are
only counted. Our labels are written as suggestions.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from dissensus.table import exceptions as errors
from dissensus.table.find_columns import ColumnNames
from dissensus.table.io.exports import (
    COMPARISONS,
    LABEL,
    RATING,
    SPANS,
    ExportedAnswer,
    ExportedItem,
    ExportRows,
    make_export_reader,
)
from dissensus.table.io.jsonl import Record, get_entry, get_objects, parse_span, read_records, require_field
from dissensus.table.io.pairs import compare_ranked_alternatives
from dissensus.table.io.readers import readers
from dissensus.table.io.writers import LabelledSpan, LabelsToWrite, json_writer, writers

_RESPONSES_SUFFIX, _USERS_SUFFIX, _STATUS_SUFFIX = ".responses", ".responses.users", ".responses.status"
_COUNTED_STATUSES = ("submitted", None)  # status of responses that are used; None if the export has no status


def matches_record(record: Record) -> bool:
    """Return True if the record looks like a record of Argilla."""
    nested = isinstance(record.get("fields"), dict) and isinstance(record.get("responses"), dict | list)
    return nested or any(key.endswith(_USERS_SUFFIX) for key in record) or bool(_questions_in_fields(record))


def read_answers(path: Path, columns: ColumnNames) -> ExportRows:
    """Yield the fields of each record, and one answer per annotator and question."""
    for number, record in enumerate(read_records(path)):
        where = f"{path}: record {number:,} (from 0)"
        item = require_field(record, columns.item, ("id", "external_id"), "item", where)
        flat = _is_flat_record(record)
        fields = {} if flat else get_entry(record, "fields", dict, where)
        if flat:  # The fields that do not belong to a question describe the item.
            questions = [
                *(key.removesuffix(_USERS_SUFFIX) for key in record if key.endswith(_USERS_SUFFIX)),
                *_questions_in_fields(record),
            ]
            own = (*questions, "_server_id", "status", "id", "external_id", "metadata")
            parts = tuple(f"{question}{mark}" for question in questions for mark in ".-")
            fields = {key: value for key, value in record.items() if key not in own and not key.startswith(parts)}
        yield ExportedItem(item, fields)
        for question, user, value, status in iterate_responses(record, where):
            if user is None:
                raise errors.MissingField(location=where, names=("user_id",), role="annotator")
            excluded = (
                "" if status in _COUNTED_STATUSES else f"answers {'not finished' if status == 'draft' else status}"
            )
            kind = RATING if isinstance(value, int | float) and not isinstance(value, bool) else LABEL
            if isinstance(value, list) and value and isinstance(value[0], dict) and "rank" in value[0]:
                kind, ranked = COMPARISONS, (entry for entry in value if isinstance(entry, dict))
                ranks = {str(entry.get("value", "")): entry.get("rank") for entry in ranked}
                value = compare_ranked_alternatives(
                    {name: r for name, r in ranks.items() if isinstance(r, int | float)}, item
                )
            elif isinstance(value, list) and value and isinstance(value[0], dict):
                kind, value = SPANS, [parse_span(span, ("start", "end", "label"), where) for span in value]
            yield ExportedAnswer(item, user, value, question, kind, excluded)
        suggested = record.get("suggestions") or ()
        if flat:
            suggested = [key for key in record if key.endswith((".suggestion", "-suggestion"))]
        for _ in suggested if isinstance(suggested, list | dict) else ():
            yield ExportedAnswer(item, "", None, excluded="suggestions by models")


def _is_flat_record(record: Record) -> bool:
    return any(key.endswith(_USERS_SUFFIX) for key in record) or "responses" not in record


def iterate_responses(record: Record, where: str) -> Iterator[tuple[str, Any, Any, Any]]:
    """Yield (question, user, value, status) of each response."""
    flat = _is_flat_record(record)
    if not flat and isinstance(record.get("responses"), list):
        for response in get_objects(record, "responses", where):
            for question, answer in get_entry(response, "values", dict, where).items():
                value = answer.get("value") if isinstance(answer, dict) else answer
                yield question, response.get("user_id"), value, response.get("status")
        return
    by_question = (
        {name: record[name] for name in _questions_in_fields(record)}
        if flat
        else get_entry(record, "responses", dict, where)
    )
    for question in by_question:
        for response in get_objects(by_question, question, where):
            yield question, response.get("user_id"), response.get("value"), response.get("status")
    for key in [key for key in record if key.endswith(_USERS_SUFFIX)]:
        question = key.removesuffix(_USERS_SUFFIX)
        users, values, states = (
            get_entry(record, question + what, list, where)
            for what in (_USERS_SUFFIX, _RESPONSES_SUFFIX, _STATUS_SUFFIX)
        )
        if not len(users) == len(values) == len(states or users):
            raise errors.UnequalLengths(
                column="answers", n=len(values), other_column="annotators", n_other=len(users)
            ).add_subject(where)
        for user, value, status in zip(users, values, states or [None] * len(users), strict=True):
            yield question, user, value, status


def _questions_in_fields(record: Record) -> list[str]:
    """Return the questions that are stored as fields of a record."""
    return [
        key for key, value in record.items()
        if isinstance(value, list) and value and isinstance(value[0], dict) and {"user_id", "value"} <= value[0].keys()
    ]  # fmt: skip


def add_suggestions(labels: LabelsToWrite) -> Iterator[Record]:
    """Yield the records of the export with our suggestions, which replace earlier suggestions for the same question."""
    if labels.source is None:
        for item, given in labels.iterate_items():
            ours = {question or "label": _make_suggestion(*answer, labels.agent) for question, answer in given.items()}
            yield {"id": item, "fields": {"item": str(item)}, "metadata": {}, "suggestions": ours, "responses": {}}
        return
    by_item = labels.labels_by_item()
    values: dict[str, dict[str, Any]] = {}  # question → answer as text → answer as in the export
    for record in read_records(labels.source):
        for name, _, value, _ in iterate_responses(record, str(labels.source)):
            values.setdefault(name, {})[str(value)] = value
    for record in read_records(labels.source):
        item = labels.find_item(record, "id", "external_id")
        for question, answer in by_item.get(str(item), {}).items():
            name = question or labels.question or next(iter(values), "label")
            known = values.get(name, {})
            label = known.get(str(answer.label), answer.label)  # The table may contain "4" for the number 4.
            if any(isinstance(value, list) for value in known.values()) and not isinstance(answer.label, list):  # ticks
                label = [label]
            record = _add_suggestion(record, name, _make_suggestion(label, answer.confidence, labels.agent))
        yield record


def _add_suggestion(record: Record, name: str, ours: Record) -> Record:
    """Return the record with our suggestion for one question, in the format of the record."""
    if isinstance(record.get("responses"), dict):
        return record | {"suggestions": {**(record.get("suggestions") or {}), name: ours}}
    if isinstance(record.get("responses"), list):
        before = [old for old in record.get("suggestions") or [] if old.get("question_name") != name]
        return record | {"suggestions": [*before, {"question_name": name, **ours}]}
    about = {"score": ours["score"], "agent": ours["agent"]}
    if f"{name}.responses" in record:
        key = f"{name}.suggestion"
        return record | {key: ours["value"]} | {f"{key}.{entry}": value for entry, value in about.items()}
    return record | {f"{name}-suggestion": ours["value"], f"{name}-suggestion-metadata": about}


def _make_suggestion(label: Any, confidence: Any, agent: str) -> Record:
    if isinstance(label, list) and all(isinstance(span, LabelledSpan) for span in label):
        confidence = [span.probability for span in label]
        label = [{"start": span.start, "end": span.end, "label": span.label} for span in label]
    return {"value": label, "score": confidence, "agent": agent}


readers.register("argilla", summary="Argilla's labels, ratings, spans, rankings", place=55)(
    make_export_reader(read_answers, matches_record)
)
writers.register("argilla", summary="Argilla's records with suggestions", place=20)(
    json_writer("to-argilla.json", add_suggestions)
)
