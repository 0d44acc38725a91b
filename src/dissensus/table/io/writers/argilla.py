"""Argilla's records with our labels as `suggestions`, for `records.from_json` or, flat, `records.log`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from dissensus.table.io.argilla import responses
from dissensus.table.io.jsonl import Record, records
from dissensus.table.io.writers import Labels, Span, add


def suggestions(labels: Labels) -> Iterator[Record]:
    """Yield the records of the export, each with our suggestion in place of an earlier one to the same question."""
    if labels.source is None:
        for item, given in labels.named_items():
            ours = {question or "label": _suggestion(*one, labels.agent) for question, one in given.items()}
            yield {"id": item, "fields": {"item": str(item)}, "metadata": {}, "suggestions": ours, "responses": {}}
        return
    said, values = labels.by_item(), _values(labels.source)
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


def _values(path: Path) -> dict[str, dict[str, Any]]:
    """Question → what was answered, as text → as the tool has it."""
    found: dict[str, dict[str, Any]] = {}
    for record in records(path):
        for name, _, value, _ in responses(record, str(path)):
            found.setdefault(name, {})[str(value)] = value
    return found


def _suggestion(label: Any, confidence: float, agent: str) -> Record:
    if isinstance(label, list) and all(isinstance(one, Span) for one in label):
        value = [{"start": one.start, "end": one.end, "label": one.label} for one in label]
        return {"value": value, "score": [one.probability for one in label], "agent": agent}
    return {"value": label, "score": confidence, "agent": agent}


add("argilla", "to-argilla.json", suggestions, "Argilla's records with suggestions", place=20)
