"""Label Studio's JSON export: `annotations` of tasks, each by `completed_by`, with results of several controls.

The item is the task's `id`, or a field of its `data` where the caller names one; `data` holds the texts. Every control
(`from_name`) is a question: choices are labels, ratings and numbers are ratings, labels of text are spans, a ranker or
a choice of two compares; other regions, texts and predictions are counted only. Annotations marked as `ground_truth`
are known labels. Our labels become `predictions`: https://labelstud.io/guide/predictions.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

from dissensus.table.find_columns import Columns
from dissensus.table.io.exports import COMPARED, LABEL, NOTHING, RATING, SPANS, Answer, Item, Note, Rows, add_export
from dissensus.table.io.jsonl import Record, field, objects, part, records
from dissensus.table.io.pairs import SIDES, comparisons
from dissensus.table.io.writers import Given, Labels, add
from dissensus.table.kinds import CONTEXT, OUTCOMES, VERSUS
from dissensus.table.names import shown

_OF_REGIONS = {"start", "end", "x", "y", "points"}  # an answer about a part of the item says where that part is
_KINDS = {"choices": LABEL, "rating": RATING, "number": RATING, "textarea": "texts"}
MAX_NAME_LENGTH = 200  # characters of what names a thing; what is longer is its content


def claims(record: Record) -> bool:
    """True for a record that looks like a task of Label Studio."""
    return isinstance(record.get("data"), dict) and isinstance(record.get(_key(record)), list)


def answers(path: Path, columns: Columns) -> Rows:
    """Yield the data of every task, and one answer per control of an annotation."""
    for task in records(path):
        yield from task_answers(task, columns, f"{path}: task {shown(task.get('id'))}")


def task_answers(task: Record, columns: Columns, where: str) -> Rows:
    """Yield the data of one task, and one answer per control of its annotations."""
    data = part(task, "data", dict, where)
    item = field(task if columns.item is None else data, columns.item, ("id",), "item", where)
    yield Item(item, data)
    for annotation in objects(task, _key(task), where):
        who = field(annotation, columns.annotator, ("completed_by", "created_username"), "annotator", where)
        annotator = field(who, None, ("email", "id"), "annotator", where) if isinstance(who, dict) else who
        results = objects(annotation, "result", where)
        gold = bool(annotation.get("ground_truth"))
        if annotation.get("was_cancelled") or not results:
            why = "annotations skipped" if annotation.get("was_cancelled") else NOTHING
            yield Answer(item, annotator, None, left_out=why)
            continue
        for result in results:
            if result.get("type") in ("pairwise", "ranker"):
                yield from _comparison(item, annotator, result, gold, data, where)
            else:
                at = annotation.get("updated_at") or annotation.get("created_at")
                yield _answer(item, annotator, result, gold, where)._replace(at=at)
    for key, what in (("predictions", "predictions by models"), ("drafts", "drafts")):
        for _ in part(task, key, list, where):
            yield Answer(item, "", None, left_out=what)


def _answer(item: Any, annotator: str, result: Record, gold: bool, where: str) -> Answer:
    kind = str(result.get("type"))
    value = part(result, "value", dict, where)
    name = str(result.get("from_name", ""))
    if kind == "labels" and isinstance(value.get("start"), int) and isinstance(value.get("end"), int):
        marked = [(value["start"], value["end"], str(one)) for one in part(value, "labels", list, where)]
        return Answer(item, annotator, marked, name, SPANS, gold=gold)
    if kind not in _KINDS:
        return Answer(item, annotator, None, name, f"answers of type {kind}")
    if _OF_REGIONS & value.keys():
        return Answer(item, annotator, None, name, "answers about regions")
    given = part(value, kind, list, where) if kind == "choices" else value.get(kind)
    return Answer(item, annotator, given, name, _KINDS[kind], gold=gold)


def _comparison(item: Any, annotator: str, result: Record, gold: bool, data: Record, where: str) -> Rows:
    """A choice of two things, or a list in its new order; lists in buckets are only counted: these have no order."""
    name, value = str(result.get("from_name", "")), part(result, "value", dict, where)
    if result["type"] == "ranker":
        given = value.get("ranker")
        lists = list(given.values()) if isinstance(given, dict) else [given]
        if len(lists) == 1 and isinstance(lists[0], list):
            ranked = comparisons({str(thing): rank for rank, thing in enumerate(lists[0])}, item)
            yield Answer(item, annotator, ranked, name, COMPARED, gold=gold)
        else:
            yield Answer(item, annotator, None, name, COMPARED, "rankings of other than one list")
        return
    shown_as = [one.strip() for one in str(result.get("to_name", "")).split(",")]
    shown_as = shown_as if len(set(shown_as)) == 2 else ["left", "right"]
    better = value.get("selected")
    if better not in OUTCOMES:
        yield Answer(item, annotator, [], name, COMPARED, gold=gold)
        return
    named = next((pair for pair in SIDES[:-1] if all(isinstance(data.get(side), str) for side in pair)), shown_as)
    left, right = (_thing(data, one, item) for one in named)
    if left == right:
        left, right = (f"{one} of {item}" for one in shown_as)
    if not all(one in data for one in named):
        said = f"'{name}' compares '{left}' with '{right}' in every task, whose data have no such fields"
        yield Note(f"{said} (kind='classes': left or right for each task).")
    yield Answer(item, annotator, [(left, right, better)], name, COMPARED, gold=gold, seen=True)


def _thing(data: Record, field_name: str, item: Any) -> str:
    """What names a thing: the field's content, its place in the task where that is long, else how it is shown."""
    if field_name not in data:
        return field_name
    content = data[field_name]
    plain = isinstance(content, str) and 0 < len(content.strip()) <= MAX_NAME_LENGTH
    return content if plain and VERSUS not in content and CONTEXT not in content else f"{field_name} of {item}"


def _key(task: Record) -> str:
    return "annotations" if "annotations" in task else "completions"  # the latter before version 1.0


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
        for annotation in task.get(_key(task)) or []:
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
    results = [_results(question, one, controls.get(question, [])) for question, one in given.items()]
    score = min(one.confidence for one in given.values())
    return {"model_version": agent, "score": score, "result": list(chain.from_iterable(results))}


def _results(question: str | None, given: Given, before: list[Record]) -> list[Record]:
    first = before[0] if before else {}
    names = {"from_name": first.get("from_name", question or "label"), "to_name": first.get("to_name", "text")}
    if isinstance(given.label, list):
        return [
            {**names, "type": "labels", "value": {"start": start, "end": end, "labels": [label]}, "score": probability}
            for start, end, label, probability in given.label
        ]
    kind = first.get("type", "choices")
    key = "selected" if kind == "pairwise" else kind
    values: list[Any] = [result.get("value", {}).get(key) for result in before]
    several = not values or isinstance(values[0], list)
    flat = {str(one): one for value in values for one in (value if isinstance(value, list) else [value])}
    label = flat.get(str(given.label), given.label)  # 4 where a table holds the text "4"
    value = {key: [label] if several else label}
    return [{**names, "type": kind, "value": value, "score": given.confidence}]


add_export("label-studio", answers, claims=claims, summary="Label Studio's choices, ratings, spans, rankings", place=50)
add("label-studio", "to-label-studio.json", tasks, "Label Studio's tasks with predictions", place=10)
