"""What is said of items: everything, a list by status, or the short answer to a post; and what was decided."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from dissensus.exceptions import BadParameter
from dissensus.questions.item_status import STATUSES
from dissensus.serve.events import Stored, label_json
from dissensus.serve.rows import ANNOTATOR, ITEM, LABEL
from dissensus.table.kinds import CLASS_KINDS
from dissensus.table.names import shown

if TYPE_CHECKING:
    from dissensus.serve.project import Project

NEW_CLASS = "a label of a new class; the next fit will tell how sure it is"
ORDERS = ("confidence", "name", "changed")


def items(
    project: Project, status: str | None = None, order: str = "confidence", offset: int = 0, limit: int = 100
) -> dict[str, Any]:
    """Some items with a status, the least sure first (or by name, or the last labelled first), and how many."""
    if order not in ORDERS:
        raise BadParameter(f"order must be {', '.join(ORDERS)}, got {shown(order)}.")
    with project.lock:
        there = masks(project)
        if status is not None and status not in there:
            raise BadParameter(f"status must be {', '.join(there)}, got {shown(status)}.")
        chosen = np.flatnonzero(there[status or "all"])
        if order == "name":
            texts = project.names[ITEM].texts
            ordered = sorted(chosen.tolist(), key=texts.__getitem__)
        else:
            by = project.sure if order == "confidence" else -project.rows.last_at("item", project.status.size)
            ordered = chosen[np.lexsort((chosen, by[chosen]))].tolist()
        some = ordered[offset : offset + limit]
        data = project.shown(some)
        found = [one | {"data": data.get(code)} for code, one in zip(some, described(project, some), strict=True)]
        counts = {name: int(mask.sum()) for name, mask in there.items()}
        return {"items": found, "total": int(chosen.size), "counts": counts, **project._as_of()}


def masks(project: Project) -> dict[str, Any]:
    """(I,) which items have each status. `queue`: those that an adjudicator should look at."""
    decided = np.zeros(project.status.size, np.bool_)
    decided[list(project.decisions)] = True
    there = (project.n_labels > 0) | decided
    there[list(project.shown_at)] = True
    masks = {"all": there}
    masks |= {name: (project.status == at) & ~decided for at, name in enumerate(STATUSES)}
    masks["unlabelled"] = there & (project.n_labels == 0) & ~decided
    masks["decided"] = decided
    masks["unsettled"] = there & ~decided & (project.status != 0)
    masks["queue"] = masks["unsettled"] & (project.n_labels > 1)
    return masks


def described(project: Project, codes: Sequence[int]) -> list[dict[str, Any]]:
    """What is said of items."""
    fitted, found = project.fitted, []
    classes = fitted is not None and fitted.table.kind in CLASS_KINDS
    columns, names = project.rows.columns(), project.names
    for code in codes:
        name = names[ITEM].texts[code]
        rows = [
            {
                "annotator": names[ANNOTATOR].texts[columns.annotator[row]],
                "label": label_json(names[LABEL].texts[columns.label[row]], project.kind),
                "at": float(columns.at[row]),
            }
            for row in project.rows.of_item(code)
        ]
        one: dict[str, Any] = {"item": name, "label": None, "confidence": None, "probabilities": None, "reason": ""}
        if code in project.voted:
            one |= {"label": project.voted[code], "reason": NEW_CLASS}
        elif classes and project.top[code] >= 0 and fitted is not None:
            chances = project.posterior(code)
            assert chances is not None
            one |= {"label": str(fitted.model.classes_[project.top[code]]), "confidence": float(project.sure[code])}
            one["probabilities"] = dict(zip(map(str, fitted.model.classes_), chances.tolist(), strict=True))
            status, at = project.why.get(code) or (fitted.status, int(fitted.rank[code]))
            one["reason"] = status.reason_of(at) if status is not None else ""
        elif fitted is not None and name in fitted.answers:
            one |= {key: value for key, value in fitted.answers[name].items() if key != "sure"}
            if project.kind == "sets":
                one["label"] = label_json(one["label"], "sets")
        one |= {"votes": project._votes(code), "labels": len(rows), "annotations": rows}
        one |= {"status": STATUSES[project.status[code]]} if rows else {"status": "unlabelled", "reason": "no label"}
        one |= {"decided": False, "decision": None}
        if (event := project.decisions.get(code)) is not None:
            said = decision(project, event)
            one |= {"decided": True, "decision": said, "status": "decided", "reason": f"decided by {said['by']}"}
            one |= {"label": said["label"], "confidence": 1.0} if event.label >= 0 else {}
        found.append(one | project._as_of())
    return found


def decision(project: Project, event: Stored) -> dict[str, Any]:
    """An adjudicator's word as it was posted."""
    data = json.loads(event.data) if event.data else {}
    label = label_json(project.label_text(event), project.kind) if event.label >= 0 else None
    data |= {"both": [label_json(one, project.kind) for one in event.both]} if event.both else {}
    item, by = project.names[ITEM].texts[event.item], project.names[ANNOTATOR].texts[event.annotator]
    return {"item": item, "label": label, "both": None, "unclear": False, "note": None} | data | {
        "by": by, "at": event.at,
    }  # fmt: skip


def all_decisions(project: Project) -> list[dict[str, Any]]:
    """Every decision that stands, in the order in which they were made."""
    with project.lock:
        return [decision(project, one) for one in sorted(project.decisions.values(), key=lambda one: one.seq)]


def short(project: Project, items: Iterable[str]) -> list[dict[str, Any]]:
    """The answers to some items, without what they rest on."""
    with project.lock:
        fitted, found = project.fitted, []
        classes = fitted is not None and fitted.table.kind in CLASS_KINDS
        for name in sorted(items):
            code = project.names[ITEM].codes[name]
            if classes and fitted is not None and code not in project.decisions and code not in project.voted:
                labelled = project.top[code] >= 0
                one = {
                    "item": name,
                    "label": str(fitted.model.classes_[project.top[code]]) if labelled else None,
                    "confidence": float(project.sure[code]) if labelled else None,
                    "labels": int(project.n_labels[code]),
                    "status": STATUSES[project.status[code]] if labelled else "unlabelled",
                }
            else:
                whole = described(project, [code])[0]
                one = {key: whole[key] for key in ("item", "label", "confidence", "labels", "status")}
            found.append(one)
        return found
