"""Read and write Label Studio's JSON export.

A task has `annotations`, each by one annotator (`completed_by`) with the results of several controls. The item is the
`id` of the task, or a field of its `data` if the caller names one; `data` holds the texts. Each control (`from_name`)
is a question. Choices are read as labels, ratings and numbers as ratings, labels of text as spans, and rankers and
pairwise choices as comparisons. Other regions, texts and predictions are only counted. Annotations marked as
`ground_truth` are gold labels. Our labels become `predictions`, see https://labelstud.io/guide/predictions.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

from dissensus.messages import quote_name
from dissensus.table.find_columns import ColumnNames
from dissensus.table.io.exports import (
    COMPARISONS,
    LABEL,
    NO_ANSWER_REASON,
    RATING,
    SPANS,
    ExportedAnswer,
    ExportedItem,
    ExportRows,
    make_export_reader,
)
from dissensus.table.io.jsonl import Record, get_entry, get_objects, read_records, require_field
from dissensus.table.io.pairs import SIDE_COLUMNS, compare_ranked_alternatives
from dissensus.table.io.readers import readers
from dissensus.table.io.writers import ItemLabel, LabelsToWrite, json_writer, writers
from dissensus.table.kinds import CONTEXT_SEPARATOR, PAIR_OUTCOMES, PAIR_SEPARATOR
from dissensus.table.notes import ComparedFieldsMissing

_REGION_FIELDS = {"start", "end", "x", "y", "points"}  # fields of answers about a part of the item
_ANSWER_KINDS = {"choices": LABEL, "rating": RATING, "number": RATING, "textarea": "texts"}
MAX_NAME_LENGTH = 200  # characters; longer texts are the content of an alternative and not its name


def matches_record(record: Record) -> bool:
    """Return True if the record looks like a task of Label Studio."""
    return isinstance(record.get("data"), dict) and isinstance(record.get(_annotations_key(record)), list)


def read_answers(path: Path, columns: ColumnNames) -> ExportRows:
    """Yield the data of each task, and one answer per control of each annotation."""
    for task in read_records(path):
        yield from read_task_answers(task, columns, f"{path}: task {quote_name(task.get('id'))}")


def read_task_answers(task: Record, columns: ColumnNames, where: str) -> ExportRows:
    """Yield the data of a task, and one answer per control of its annotations."""
    data = get_entry(task, "data", dict, where)
    item = require_field(task if columns.item is None else data, columns.item, ("id",), "item", where)
    yield ExportedItem(item, data)
    for annotation in get_objects(task, _annotations_key(task), where):
        who = require_field(annotation, columns.annotator, ("completed_by", "created_username"), "annotator", where)
        annotator = require_field(who, None, ("email", "id"), "annotator", where) if isinstance(who, dict) else who
        results = get_objects(annotation, "result", where)
        gold = bool(annotation.get("ground_truth"))
        if annotation.get("was_cancelled") or not results:
            why = "annotations skipped" if annotation.get("was_cancelled") else NO_ANSWER_REASON
            yield ExportedAnswer(item, annotator, None, excluded=why)
            continue
        for result in results:
            if result.get("type") in ("pairwise", "ranker"):
                yield from _read_comparison(item, annotator, result, gold, data, where)
            else:
                at = annotation.get("updated_at") or annotation.get("created_at")
                yield _read_result(item, annotator, result, gold, where)._replace(at=at)
    for key, what in (("predictions", "predictions by models"), ("drafts", "drafts")):
        for _ in get_entry(task, key, list, where):
            yield ExportedAnswer(item, "", None, excluded=what)


def _read_result(item: Any, annotator: str, result: Record, gold: bool, where: str) -> ExportedAnswer:
    kind = str(result.get("type"))
    value = get_entry(result, "value", dict, where)
    name = str(result.get("from_name", ""))
    if kind == "labels" and isinstance(value.get("start"), int) and isinstance(value.get("end"), int):
        marked = [(value["start"], value["end"], str(label)) for label in get_entry(value, "labels", list, where)]
        return ExportedAnswer(item, annotator, marked, name, SPANS, gold=gold)
    if kind not in _ANSWER_KINDS:
        return ExportedAnswer(item, annotator, None, name, f"answers of type {kind}")
    if _REGION_FIELDS & value.keys():
        return ExportedAnswer(item, annotator, None, name, "answers about regions")
    given = get_entry(value, kind, list, where) if kind == "choices" else value.get(kind)
    return ExportedAnswer(item, annotator, given, name, _ANSWER_KINDS[kind], gold=gold)


def _read_comparison(item: Any, annotator: str, result: Record, gold: bool, data: Record, where: str) -> ExportRows:
    """Yield the comparisons of a pairwise choice or a ranking; rankings in buckets are only counted."""
    name, value = str(result.get("from_name", "")), get_entry(result, "value", dict, where)
    if result["type"] == "ranker":
        given = value.get("ranker")
        lists = list(given.values()) if isinstance(given, dict) else [given]
        if len(lists) == 1 and isinstance(lists[0], list):
            ranked = compare_ranked_alternatives({str(name): rank for rank, name in enumerate(lists[0])}, item)
            yield ExportedAnswer(item, annotator, ranked, name, COMPARISONS, gold=gold)
        else:
            yield ExportedAnswer(item, annotator, None, name, COMPARISONS, "rankings of other than one list")
        return
    shown_as = [side.strip() for side in str(result.get("to_name", "")).split(",")]
    shown_as = shown_as if len(set(shown_as)) == 2 else ["left", "right"]
    better = value.get("selected")
    if better not in PAIR_OUTCOMES:
        yield ExportedAnswer(item, annotator, [], name, COMPARISONS, gold=gold)
        return
    side_fields = next(
        (pair for pair in SIDE_COLUMNS[:-1] if all(isinstance(data.get(side), str) for side in pair)), shown_as
    )
    left, right = (_name_alternative(data, side, item) for side in side_fields)
    if left == right:
        left, right = (f"{side} of {item}" for side in shown_as)
    if not all(side in data for side in side_fields):
        yield ComparedFieldsMissing(question=name, left_field=left, right_field=right)
    yield ExportedAnswer(item, annotator, [(left, right, better)], name, COMPARISONS, gold=gold, as_shown=True)


def _name_alternative(data: Record, field_name: str, item: Any) -> str:
    """Return the name of an alternative: the content of its field, or, if that is long, the field and the item."""
    if field_name not in data:
        return field_name
    content = data[field_name]
    plain = isinstance(content, str) and 0 < len(content.strip()) <= MAX_NAME_LENGTH
    return (
        content
        if plain and PAIR_SEPARATOR not in content and CONTEXT_SEPARATOR not in content
        else f"{field_name} of {item}"
    )


def _annotations_key(task: Record) -> str:
    return "annotations" if "annotations" in task else "completions"  # "completions" before version 1.0


def add_predictions(labels: LabelsToWrite) -> Iterator[Record]:
    """Yield the tasks of the export with our predictions, whose score is that of the least confident answer.

    Predictions for which the export has only an id cannot be imported again and are dropped.
    """
    if labels.source is None:
        for item, given in labels.iterate_items():
            yield {"id": item, "data": {"item": item}, "predictions": [_make_prediction(given, {}, labels.agent)]}
        return
    by_item, controls = labels.labels_by_item(), _results_by_control(labels)
    for task in read_records(labels.source):
        item = (task if labels.item is None else task["data"]).get(labels.item or "id")
        predictions = [old for old in task.get("predictions") or [] if isinstance(old, dict)]
        if str(item) in by_item:
            predictions.append(_make_prediction(by_item[str(item)], controls, labels.agent))
        yield task | {"predictions": predictions}


def _results_by_control(labels: LabelsToWrite) -> dict[str | None, list[Record]]:
    """Return control → annotators' results; the key None stands for the first control."""
    by_control: dict[str | None, list[Record]] = {}
    for task in read_records(labels.source):  # type: ignore[arg-type]  # The function is only called with a source.
        for annotation in task.get(_annotations_key(task)) or []:
            for result in annotation.get("result") or []:
                name, kind = result.get("from_name"), result.get("type")
                questions = {name} if labels.question is None and kind in ("choices", "labels") else set()
                for question in filter(None, (*labels.questions, labels.question)):
                    if question == name or (
                        kind == "labels" and question.startswith(f"{name}, ")
                    ):  # The question is a layer of spans.
                        questions.add(question)
                for question in questions:
                    by_control.setdefault(question, []).append(result)
    return by_control | {None: next(iter(by_control.values()), [])}


def _make_prediction(
    given: dict[str | None, ItemLabel], controls: dict[str | None, list[Record]], agent: str
) -> Record:
    results = [_make_results(question, answer, controls.get(question, [])) for question, answer in given.items()]
    score = min(answer.confidence for answer in given.values())
    return {"model_version": agent, "score": score, "result": list(chain.from_iterable(results))}


def _make_results(question: str | None, given: ItemLabel, before: list[Record]) -> list[Record]:
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
    by_text = {str(label): label for value in values for label in (value if isinstance(value, list) else [value])}
    label = by_text.get(str(given.label), given.label)  # The table may contain "4" for the number 4.
    value = {key: [label] if several else label}
    return [{**names, "type": kind, "value": value, "score": given.confidence}]


readers.register("label-studio", summary="Label Studio's choices, ratings, spans, rankings", place=50)(
    make_export_reader(read_answers, matches_record)
)
writers.register("label-studio", summary="Label Studio's tasks with predictions", place=10)(
    json_writer("to-label-studio.json", add_predictions)
)
