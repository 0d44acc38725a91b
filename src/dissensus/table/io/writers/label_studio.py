"""Label Studio's tasks with our labels as `predictions`: https://labelstud.io/guide/predictions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from dissensus.table.io.jsonl import Record, records
from dissensus.table.io.writers import Given, Labels, add


def tasks(labels: Labels) -> Iterator[Record]:
    """Yield the tasks of the export, each with one prediction more; its score is that of its least sure answer.

    Predictions that an export only numbers cannot be imported again, and are left out.
    """
    if labels.source is None:
        for item, given in labels.named_items():
            yield {"id": item, "data": {"item": item}, "predictions": [_prediction(given, {}, labels.agent)]}
        return
    said, controls = labels.by_item(), _controls(labels)
    for task in records(labels.source):
        item = (task if labels.item is None else task["data"]).get(labels.item or "id")
        found = [one for one in task.get("predictions") or [] if isinstance(one, dict)]
        if str(item) in said:
            found.append(_prediction(said[str(item)], controls, labels.agent))
        yield task | {"predictions": found}


def _controls(labels: Labels) -> dict[str | None, list[Record]]:
    """The results that annotators gave, by control; under None those of the first, for a table of one question."""
    found: dict[str | None, list[Record]] = {}
    for task in records(labels.source):  # type: ignore[arg-type]  # asked where there is a source
        for annotation in task.get("annotations", task.get("completions")) or []:
            for result in annotation.get("result") or []:
                name, kind = result.get("from_name"), result.get("type")
                wanted = {name} if labels.question is None and kind in ("choices", "labels") else set()
                for question in filter(None, (*labels.questions, labels.question)):
                    if question == name or (kind == "labels" and question.startswith(f"{name}, ")):  # a layer of spans
                        wanted.add(question)
                for question in wanted:
                    found.setdefault(question, []).append(result)
    return found | {None: next(iter(found.values()), [])}


def _prediction(given: dict[str | None, Given], controls: dict[str | None, list[Record]], agent: str) -> Record:
    return {
        "model_version": agent,
        "score": min(one.confidence for one in given.values()),
        "result": [
            result for question, one in given.items() for result in _results(question, one, controls.get(question, []))
        ],
    }


def _results(question: str | None, given: Given, before: list[Record]) -> list[Record]:
    if not isinstance(given.label, list):
        return [_result(question, given, before)]
    first = before[0] if before else {}
    names = {"from_name": first.get("from_name", question or "label"), "to_name": first.get("to_name", "text")}
    return [
        {**names, "type": "labels", "value": {"start": start, "end": end, "labels": [label]}, "score": probability}
        for start, end, label, probability in given.label
    ]


def _result(question: str | None, given: Given, before: list[Record]) -> Record:
    first = before[0] if before else {}
    kind = first.get("type", "choices")
    key = "selected" if kind == "pairwise" else kind
    values: list[Any] = [result.get("value", {}).get(key) for result in before]
    several = not values or isinstance(values[0], list)
    flat = {str(one): one for value in values for one in (value if isinstance(value, list) else [value])}
    label = flat.get(str(given.label), given.label)  # 4 where a table holds the text "4"
    return {
        "from_name": first.get("from_name", question or "label"),
        "to_name": first.get("to_name", "text"),
        "type": kind,
        "value": {key: [label] if several else label},
        "score": given.confidence,
    }


add("label-studio", "to-label-studio.json", tasks, "Label Studio's tasks with predictions", place=10)
