"""Describe items in full, as lists by status or as a short receipt, and describe decisions."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from dissensus.questions.findings import NoLabel
from dissensus.questions.item_status import STATUSES
from dissensus.serve.events import StoredEvent, label_to_json
from dissensus.serve.exceptions import DecidedBy, NewClass
from dissensus.serve.rows import ANNOTATOR, ITEM, LABEL
from dissensus.table.kinds import CLASS_KINDS

if TYPE_CHECKING:
    from dissensus.serve.project import Project

SUMMARY_FIELDS = ("item", "label", "confidence", "labels", "status")
ITEM_LISTS = ("all", *STATUSES, "unlabelled", "decided", "unsettled", "queue")
ITEM_ORDERS = ("confidence", "name", "changed")


def list_masks(project: Project) -> dict[str, Any]:
    """Return the (I,) mask of each of `ITEM_LISTS`; `queue` has the items that an adjudicator should decide."""
    decided = np.zeros(project.status.size, np.bool_)
    decided[list(project.decisions)] = True
    known = (project.n_labels > 0) | decided
    known[list(project.field_events)] = True
    found = {"all": known}
    found |= {name: (project.status == at) & ~decided for at, name in enumerate(STATUSES)}
    found |= {"unlabelled": known & (project.n_labels == 0) & ~decided, "decided": decided}
    found["unsettled"] = known & ~decided & (project.status != 0)
    return found | {"queue": found["unsettled"] & (project.n_labels > 1)}


def list_items(
    project: Project, status: str = "all", order: str = "confidence", offset: int = 0, limit: int = 100
) -> dict[str, Any]:
    """Return items of one of `ITEM_LISTS`, and the size of each list.

    Items are ordered by confidence (lowest first), by name, or by the time of their last label (latest first).
    """
    with project.lock:
        lists = list_masks(project)
        chosen = np.flatnonzero(lists[status])
        if order == "name":
            ordered = sorted(chosen.tolist(), key=project.names[ITEM].texts.__getitem__)
        else:
            changed = order == "changed"
            by = -project.rows.last_label_times("item", project.status.size) if changed else project.confidence
            ordered = chosen[np.lexsort((chosen, by[chosen]))].tolist()
        found = _describe_with_fields(project, ordered[offset : offset + limit])
        counts = {name: int(mask.sum()) for name, mask in lists.items()}
        return {"items": found, "total": int(chosen.size), "counts": counts, **project.fit_state()}


def describe_item(project: Project, name: str) -> dict[str, Any]:
    """Return everything that is known about one item."""
    with project.lock:
        return _describe_with_fields(project, [project.item_code(name)])[0]


def _describe_with_fields(project: Project, codes: Sequence[int]) -> list[dict[str, Any]]:
    fields = project.item_fields(codes)
    return [_describe_code(project, code) | {"data": fields.get(code)} for code in codes]


def _describe_code(project: Project, code: int) -> dict[str, Any]:
    """Return the label, votes, status, annotations and decision of an item."""
    fitted, columns, names = project.fitted, project.rows.columns(), project.names
    name = names[ITEM].texts[code]
    rows = [
        {
            "annotator": names[ANNOTATOR].texts[columns.annotator[row]],
            "label": label_to_json(names[LABEL].texts[columns.label[row]], project.kind),
            "at": float(columns.at[row]),
        }
        for row in project.rows.rows_of_item(code)
    ]
    description: dict[str, Any] = {"item": name, "label": None, "confidence": None, "probabilities": None, "reason": ""}
    if code in project.voted_labels:
        description |= {"label": project.voted_labels[code], "reason": str(NewClass())}
    elif fitted is not None and fitted.table.kind in CLASS_KINDS and project.top[code] >= 0:
        chances = project.posterior(code)
        assert chances is not None
        classes = list(map(str, fitted.model.classes_))
        description |= {"label": classes[project.top[code]], "confidence": float(project.confidence[code])}
        status, at = project.reasons.get(code) or (fitted.status, int(fitted.item_rank[code]))
        description |= {"probabilities": dict(zip(classes, chances.tolist(), strict=True))}
        description |= {"reason": status.reason_of(at) if status is not None else ""}
    elif fitted is not None and name in fitted.answers:
        description |= {key: value for key, value in fitted.answers[name].items() if key != "sure"}
        if project.kind == "sets":
            description["label"] = label_to_json(description["label"], "sets")
    description |= {"votes": project.votes(code), "labels": len(rows), "annotations": rows}
    description |= (
        {"status": STATUSES[project.status[code]]} if rows else {"status": "unlabelled", "reason": str(NoLabel())}
    )
    description |= {"decided": False, "decision": None}
    if (event := project.decisions.get(code)) is not None:
        made = describe_decision(project, event)
        description |= {"decided": True, "decision": made, "status": "decided", "reason": decision_reason(made["by"])}
        description |= {"label": made["label"], "confidence": 1.0} if event.label >= 0 else {}
    return description | project.fit_state()


def decision_reason(annotator: str) -> str:
    """Return the reason to show for a decided item."""
    return str(DecidedBy(annotator=annotator))


def describe_decision(project: Project, event: StoredEvent) -> dict[str, Any]:
    """Return a decision in the form in which it was posted."""
    data = json.loads(event.data) if event.data else {}
    label = label_to_json(project.label_text(event), project.kind) if event.label >= 0 else None
    data |= (
        {"both": [label_to_json(one, project.kind) for one in event.accepted_labels]} if event.accepted_labels else {}
    )
    found = {
        "item": project.names[ITEM].texts[event.item],
        "label": label,
        "both": None,
        "unclear": False,
        "note": None,
    }
    return found | data | {"by": project.names[ANNOTATOR].texts[event.annotator], "at": event.at}


def list_decisions(project: Project) -> list[dict[str, Any]]:
    """Return all decisions in force, in the order in which they were made."""
    with project.lock:
        return [describe_decision(project, one) for one in sorted(project.decisions.values(), key=lambda one: one.seq)]


def summarize_items(project: Project, items: Iterable[str]) -> list[dict[str, Any]]:
    """Return the `SUMMARY_FIELDS` of items."""
    with project.lock:
        found = [_describe_code(project, project.names[ITEM].codes[name]) for name in sorted(items)]
        return [{key: one[key] for key in SUMMARY_FIELDS} for one in found]
