"""Argilla's records with our labels as `suggestions`, for `records.from_json` or, flat, `records.log`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from dissensus.table.io.jsonl import Record, records
from dissensus.table.io.writers import Labels, add


def suggestions(labels: Labels) -> Iterator[Record]:
    """Yield the records of the export, each with our suggestion in place of an earlier one to the same question."""
    if labels.source is None:
        for item, given in labels.named_items():
            ours = {question or "label": _suggestion(*one, labels.agent) for question, one in given.items()}
            yield {"id": item, "fields": {"item": str(item)}, "metadata": {}, "suggestions": ours, "responses": {}}
        return
    said, values = labels.by_item(), _values(labels.source)
    for record in records(labels.source):
        flat = "responses" not in record
        added: Record = {} if flat else {"suggestions": dict(record.get("suggestions") or {})}
        for question, one in said.get(str(record.get(labels.item or "id")), {}).items():
            name = question if question is not None else next(iter(values), "label")
            label = values.get(name, {}).get(str(one.label), one.label)  # 4 where a table holds the text "4"
            ours = _suggestion(label, one.confidence, labels.agent)
            if flat:
                key = f"{name}.suggestion"
                added |= {key: ours["value"], f"{key}.score": ours["score"], f"{key}.agent": ours["agent"]}
            else:
                added["suggestions"][name] = ours
        yield record | added


def _values(path: Path) -> dict[str, dict[str, Any]]:
    """Question → what was answered, as text → as the tool has it."""
    found: dict[str, dict[str, Any]] = {}
    for record in records(path):
        if isinstance(record.get("responses"), dict):
            given = {name: [one.get("value") for one in answers] for name, answers in record["responses"].items()}
        else:
            ends = ".responses"
            given = {key.removesuffix(ends): value or [] for key, value in record.items() if key.endswith(ends)}
        for name, values in given.items():
            found.setdefault(name, {}).update((str(value), value) for value in values)
    return found


def _suggestion(label: Any, confidence: float, agent: str) -> Record:
    return {"value": label, "score": confidence, "agent": agent}


add("argilla", "to-argilla.json", suggestions, "Argilla's records with suggestions", place=20)
