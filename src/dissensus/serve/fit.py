"""The table of a project's rows, and a fit to it by the method that `dissensus aggregate` takes."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from dissensus.common.types import FloatArray, IntArray, Names
from dissensus.models.base import Aggregator, default_method, methods
from dissensus.questions.item_status import ItemStatus, item_status, status_of, status_of_documents, usual_share
from dissensus.serve.events import Stored, label_json
from dissensus.serve.rows import ANNOTATOR, ITEM, LABEL, Columns
from dissensus.table import kinds
from dissensus.table.annotations import Annotations
from dissensus.table.io.build import in_guessed_kind
from dissensus.table.kinds import CLASS_KINDS
from dissensus.table.names import match

if TYPE_CHECKING:
    from dissensus.serve.project import Project


@dataclass(eq=False)
class Fitted:
    """A model of the whole table as it was at `seq`."""

    model: Aggregator
    table: Annotations
    seq: int
    seconds: float
    rank: IntArray  # project's code of an item → its place in the table; −1 where it had no label
    who: IntArray  # the same of annotators
    class_of: IntArray  # the same of labels, in the classes
    share: FloatArray  # (A + 1,) `usual_share`, the last for somebody new
    top: IntArray  # (I,) class
    sure: FloatArray  # (I,)
    status: ItemStatus | None = None  # of labels that are classes
    answers: dict[str, dict[str, Any]] = field(default_factory=dict)  # of labels that are no classes

    def items_status(self) -> ItemStatus:
        """Status of the items of the table; of spans, of its places."""
        return status_of(self.model, self.table) if self.status is None else self.status


def fit(project: Project, now: Columns, seq: int, decisions: dict[int, Stored]) -> Fitted | None:
    """Fit to some rows, of which the last is of the number `seq`; None where nothing is marked or ticked in any."""
    began = time.perf_counter()
    table, rank, who, class_of = table_of(project, now, decisions)
    if not len(table) or (table.kind == "sets" and not table.options.names.size):
        return None
    model = methods[default_method(table.kind)]()
    model.fit(table, gold=_gold(project, table, decisions))
    none = np.empty(0, np.int64)
    found = Fitted(model, table, seq, 0.0, rank, who, class_of, np.ones(1), none, np.empty(0))
    if table.kind in CLASS_KINDS:
        posterior = np.asarray(model.posterior_)
        found.top, found.sure = answered(model, table.items, posterior)
        share = usual_share(table, table.label == found.top[table.item])
        right = (table.label == found.top[table.item]).mean() if len(table) else 1.0
        found.share = np.append(share, right)
        found.status = item_status(table, found.top, posterior.max(axis=1, initial=0), share=share)
    else:
        found.answers = _other_answers(found)
    found.seconds = time.perf_counter() - began
    return found


def _gold(project: Project, table: Annotations, decisions: dict[int, Stored]) -> Any:
    """(I,) what adjudicators said, as the method takes it."""
    said = {
        project.names[ITEM].texts[item]: project.label_text(one) for item, one in decisions.items() if one.label >= 0
    }
    if not said or table.kind not in (*CLASS_KINDS, "numbers", "sets"):
        return None
    columns = np.array(list(said), object), np.array(list(said.values()), object)
    if table.kind == "numbers":
        return table.gold_values(columns[0], np.array([float(one) for one in said.values()]))
    return table.gold_codes(*columns)


def _other_answers(fitted: Fitted) -> dict[str, dict[str, Any]]:
    """Item → its row of the frame that `aggregate` writes, status and reason; of spans, document → spans."""
    model, table = fitted.model, fitted.table
    if table.kind == "spans":
        documents, said = status_of_documents(model, table)
        rows = [{"label": [], "confidence": sure} for sure in said.sure.tolist()]
        found: dict[str, dict[str, Any]] = dict(zip(documents.tolist(), rows, strict=True))
        for row in model.spans("pyarrow").to_pylist():  # type: ignore[attr-defined]
            found[row.pop("document")]["label"].append(row)
    else:
        said = fitted.items_status()
        rows = model.to_frame("items", "pyarrow").to_pylist()
        found = {str(row.pop("item")): {"label": row.pop("value", None), "confidence": None} | row for row in rows}
    told = zip(said.sure.tolist(), said.columns()["status"].to_pylist(), said.reason.to_pylist(), strict=True)
    for one, (sure, status, reason) in zip(found.values(), told, strict=True):
        one |= {"sure": sure, "status": status, "reason": reason}
    return found


def table_of(
    project: Project, now: Columns, decisions: dict[int, Stored]
) -> tuple[Annotations, IntArray, IntArray, IntArray]:
    """The table of some rows, and the places in it of the project's items, annotators and labels."""
    found = []
    for names, codes in zip(project.names, (now.item, now.annotator, now.label), strict=True):
        found.append(names.ordered(np.flatnonzero(np.bincount(codes, minlength=len(names)))))
    (items, _, rank), (annotators, _, who), (labels, _, class_of) = found
    kind, declared = project.about.get("kind"), project.about.get("classes")
    if kind == "spans":
        return _spans(project, now), rank, who, class_of
    item, annotator = rank[now.item], who[now.annotator]
    wanted = [project.label_text(one) for one in decisions.values() if one.label >= 0]
    if declared is not None:
        more = declared
    else:
        more = sorted({*labels.tolist(), *wanted}) if kind in (None, *CLASS_KINDS, "sets") else labels.tolist()
    classes = np.array(more, object)
    place = {name: at for at, name in enumerate(more)}
    at = np.array([place[name] for name in labels.tolist()], np.int64)
    class_of = np.where(class_of >= 0, np.append(at, -1)[class_of], -1)
    table = Annotations.from_codes(item, annotator, class_of[now.label], items, annotators, classes)
    if kind is None:
        kind = "classes" if declared is not None else in_guessed_kind(table)[0].kind
    if kind != "classes":
        _, moved = kinds.vocabulary(kind, classes, declared is not None)
        class_of = np.where(class_of >= 0, np.append(moved, -1)[class_of], -1)
        table = table.as_kind(kind, ordered=declared is not None)
    if kind == "sets" and wanted:  # lost where the rows of one person and item became one set
        table = table.including(wanted)
    return table, rank, who, class_of


def _spans(project: Project, now: Columns) -> Annotations:
    """The table of spans: tags of the places of documents, cut into words where their texts are known."""
    names, spans, readings = project.names, [], []
    for item, annotator, label in zip(now.item.tolist(), now.annotator.tolist(), now.label.tolist(), strict=True):
        document, reader = names[ITEM].texts[item], names[ANNOTATOR].texts[annotator]
        readings.append((document, reader))
        marked = label_json(names[LABEL].texts[label], "spans")
        spans += [(document, reader, one["start"], one["end"], one["label"]) for one in marked]
    shown_ = {names[ITEM].texts[item]: data for item, data in project.shown(set(now.item.tolist())).items()}
    texts = {name: data["text"] for name, data in shown_.items() if isinstance(data.get("text"), str)}
    columns = zip(*spans, strict=True) if spans else ((),) * 5
    return Annotations.from_spans(*columns, readings=readings, texts=texts or None)


def answered(model: Aggregator, items: Names, posterior: FloatArray) -> tuple[IntArray, FloatArray]:
    """(I,) the class of each item as the method's frame says it, and its probability."""
    columns = model.item_columns(items, posterior, None)
    return match(columns["label"], model.classes_, "classes").astype(np.int64), columns["confidence"]
