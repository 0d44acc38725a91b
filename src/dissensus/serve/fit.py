"""Build the table of a project, and fit the default method of `dissensus aggregate` to it."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from dissensus.common.types import FloatArray, IntArray, Names
from dissensus.models.base import Aggregator, default_method, methods
from dissensus.questions.item_status import (
    ItemStatus,
    item_status,
    measure_annotator_agreement,
    status_by_model,
    status_of_documents,
)
from dissensus.serve.events import StoredEvent, label_to_json
from dissensus.serve.rows import ITEM, RowArrays
from dissensus.table import kinds
from dissensus.table.annotations import Annotations
from dissensus.table.io.build import convert_to_guessed_kind
from dissensus.table.kinds import CLASS_KINDS
from dissensus.table.names import match_names

if TYPE_CHECKING:
    from dissensus.serve.project import Project


@dataclass(eq=False)
class FittedProject:
    """A method fitted to the whole table as it was at event `seq`."""

    model: Aggregator
    table: Annotations
    seq: int
    seconds: float
    item_rank: IntArray  # code of an item in the project → its position in the table; −1 without a label
    annotator_rank: IntArray  # the same for annotators
    class_codes: IntArray  # code of a label in the project → code of its class in the table
    agreement_share: FloatArray  # (A + 1,) result of `annotator_agreement`; the last entry is for unseen annotators
    top: IntArray  # (I,) code of the most probable class
    confidence: FloatArray  # (I,) its probability
    status: ItemStatus | None = None  # None if labels are not classes
    answers: dict[str, dict[str, Any]] = field(default_factory=dict)  # empty if labels are classes

    def get_item_status(self) -> ItemStatus:
        """Return the status of the items of the table; for spans, the status of their positions."""
        return status_by_model(self.model, self.table) if self.status is None else self.status


def fit_project(project: Project, now: RowArrays, seq: int, decisions: dict[int, StoredEvent]) -> FittedProject | None:
    """Fit the default method to the rows up to event `seq`; return None if no label marks or selects anything."""
    began = time.perf_counter()
    table, item_rank, annotator_rank, class_codes = build_table(project, now, decisions)
    if not len(table) or (table.kind == "sets" and not table.options.names.size):
        return None
    model = methods[default_method(table.kind)]()
    model.fit(table, gold=_decided_labels(project, table, decisions))
    none = np.empty(0, np.int64)
    found = FittedProject(model, table, seq, 0.0, item_rank, annotator_rank, class_codes, np.ones(1), none, np.empty(0))
    if table.kind in CLASS_KINDS:
        posterior = np.asarray(model.posterior_)
        found.top, found.confidence = displayed_labels(model, table.items, posterior)
        right = table.label == found.top[table.item]
        share = measure_annotator_agreement(table, right)
        found.agreement_share = np.append(share, right.mean())
        found.status = item_status(table, found.top, posterior.max(axis=1, initial=0), agreement=share)
    else:
        found.answers = _collect_answers(found)
    found.seconds = time.perf_counter() - began
    return found


def _decided_labels(project: Project, table: Annotations, decisions: dict[int, StoredEvent]) -> Any:
    """Return the (I,) decided labels as gold labels of the method, or None."""
    texts = project.names[ITEM].texts
    gold = {texts[item]: project.label_text(event) for item, event in decisions.items() if event.label >= 0}
    if not gold or table.kind not in (*CLASS_KINDS, "numbers", "sets"):
        return None
    items, labels = np.array(list(gold), object), np.array(list(gold.values()), object)
    if table.kind == "numbers":
        return table.gold_values(items, labels.astype(float))
    return table.gold_codes(items, labels)


def _collect_answers(fitted: FittedProject) -> dict[str, dict[str, Any]]:
    """Return label, confidence, status and reason by item, as `aggregate` writes them; for spans, by document."""
    model, table = fitted.model, fitted.table
    if table.kind == "spans":
        documents, status = status_of_documents(model, table)
        rows = [{"label": [], "confidence": confidence} for confidence in status.confidence.tolist()]
        answers: dict[str, dict[str, Any]] = dict(zip(documents.tolist(), rows, strict=True))
        for row in model.spans("pyarrow").to_pylist():  # type: ignore[attr-defined]
            answers[row.pop("document")]["label"].append(row)
    else:
        status = fitted.get_item_status()
        rows = model.to_frame("items", "pyarrow").to_pylist()
        answers = {str(row.pop("item")): {"label": row.pop("value", None), "confidence": None} | row for row in rows}
    facts = zip(
        status.confidence.tolist(), status.columns()["status"].to_pylist(), status.reason.to_pylist(), strict=True
    )
    for one, values in zip(answers.values(), facts, strict=True):
        one |= dict(zip(("sure", "status", "reason"), values, strict=True))
    return answers


def build_table(
    project: Project, now: RowArrays, decisions: dict[int, StoredEvent]
) -> tuple[Annotations, IntArray, IntArray, IntArray]:
    """Return the table of the rows, and the positions of the project's items, annotators and labels in it."""
    found = []
    for names, codes in zip(project.names, (now.item, now.annotator, now.label), strict=True):
        found.append(names.sort_used(np.flatnonzero(np.bincount(codes, minlength=len(names)))))
    (items, _, item_rank), (annotators, _, annotator_rank), (labels, _, class_codes) = found
    kind, declared = project.about.get("kind"), project.about.get("classes")
    if kind == "spans":
        return _build_span_table(project, now), item_rank, annotator_rank, class_codes
    decided = [project.label_text(event) for event in decisions.values() if event.label >= 0]
    if declared is not None:
        vocabulary = declared
    else:
        vocabulary = sorted({*labels.tolist(), *decided}) if kind in (None, *CLASS_KINDS, "sets") else labels.tolist()
    classes = np.array(vocabulary, object)
    place = {name: at for at, name in enumerate(vocabulary)}
    at = np.array([place[name] for name in labels.tolist()], np.int64)
    class_codes = np.where(class_codes >= 0, np.append(at, -1)[class_codes], -1)
    item, annotator = item_rank[now.item], annotator_rank[now.annotator]
    table = Annotations.from_codes(item, annotator, class_codes[now.label], items, annotators, classes)
    if kind is None:
        kind = "classes" if declared is not None else convert_to_guessed_kind(table)[0].kind
    if kind != "classes":
        _, places = kinds.build_vocabulary(kind, classes, declared is not None)
        class_codes = np.where(class_codes >= 0, np.append(places, -1)[class_codes], -1)
        table = table.as_kind(kind, ordered=declared is not None)
    if kind == "sets" and decided:  # the table lacks a decided option if no annotator selected it
        table = table.with_added_classes(decided)
    return table, item_rank, annotator_rank, class_codes


def _build_span_table(project: Project, now: RowArrays) -> Annotations:
    """Return the table of spans: tags of the positions of documents, which are words if the texts are known."""
    (items, annotators, labels), spans, readings = project.names, [], []
    for item, annotator, label in zip(now.item.tolist(), now.annotator.tolist(), now.label.tolist(), strict=True):
        reading = items.texts[item], annotators.texts[annotator]
        readings.append(reading)
        marked = label_to_json(labels.texts[label], "spans")
        spans += [(*reading, one["start"], one["end"], one["label"]) for one in marked]
    fields = {items.texts[item]: data for item, data in project.item_fields(set(now.item.tolist())).items()}
    texts = {name: data["text"] for name, data in fields.items() if isinstance(data.get("text"), str)}
    columns = zip(*spans, strict=True) if spans else ((),) * 5
    return Annotations.from_spans(*columns, readings=readings, texts=texts or None)


def displayed_labels(model: Aggregator, items: Names, posterior: FloatArray) -> tuple[IntArray, FloatArray]:
    """Return the (I,) code of each item's label as the method reports it, and its (I,) probability."""
    columns = model.item_columns(items, posterior, None)
    return match_names(columns["label"], model.classes_, "classes").astype(np.int64), columns["confidence"]
