"""Prodigy's tasks for `db-in`: the tasks of the export, answered by us in a session of our own."""

from __future__ import annotations

from collections.abc import Iterator

from dissensus.table.io.jsonl import Record, records
from dissensus.table.io.writers import Labels, add


def tasks(labels: Labels) -> Iterator[Record]:
    """Yield the tasks of the export and, for each question about each input, one more with our answer."""
    asked: dict[str, dict[str, Record]] = {}  # input → question → the first task
    for record in records(labels.source) if labels.source else ():
        yield record
        item = labels.item_of(record, "_input_hash", "_task_hash")
        asked_for = "choice" if "accept" in record or "options" in record else str(record.get("label", "answer"))
        asked.setdefault(str(item), {}).setdefault(asked_for, record)
    who = labels.agent.replace(" ", "-")
    for item, given in labels.named_items():
        tasks_of = asked.get(str(item)) or {}
        for question, one in given.items():
            name = question or next(iter(tasks_of), "choice")
            options = [{"id": one.label, "text": str(one.label)}]
            before = tasks_of.get(name) or {"text": str(item), "_input_hash": item, "options": options}
            chosen = {"accept": [one.label], "answer": "accept"} if "options" in before else {"answer": one.label}
            yield before | chosen | {"_annotator_id": who, "_session_id": who, "score": one.confidence}


add("prodigy", "to-prodigy.jsonl", tasks, "Prodigy's tasks, answered", place=40)
