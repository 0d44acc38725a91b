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
        nested = isinstance(record.get("responses"), dict)
        added: Record = {"suggestions": dict(record.get("suggestions") or {})} if nested else {}
        for question, one in said.get(str(record.get(labels.item or "id")), {}).items():
            name = question or labels.question or next(iter(values), "label")
            known = values.get(name, {})
            label = known.get(str(one.label), one.label)  # 4 where a table holds the text "4"
            if any(isinstance(value, list) for value in known.values()):  # several may be ticked
                label = [label]
            ours = _suggestion(label, one.confidence, labels.agent)
            if isinstance(record.get("responses"), list):  # version 1
                before = [old for old in record.get("suggestions") or [] if old.get("question_name") != name]
                record = record | {"suggestions": [*before, {"question_name": name, **ours}]}
            elif flat:
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
        elif isinstance(record.get("responses"), list):
            given = {}
            for values_of in (one.get("values") or {} for one in record["responses"]):
                for name, answer in values_of.items():
                    given.setdefault(name, []).append(answer.get("value") if isinstance(answer, dict) else answer)
        else:
            ends = ".responses"
            given = {key.removesuffix(ends): value or [] for key, value in record.items() if key.endswith(ends)}
        for name, values in given.items():
            found.setdefault(name, {}).update((str(value), value) for value in values)
    return found


def _suggestion(label: Any, confidence: float, agent: str) -> Record:
    return {"value": label, "score": confidence, "agent": agent}


add("argilla", "to-argilla.json", suggestions, "Argilla's records with suggestions", place=20)
