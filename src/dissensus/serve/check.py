"""Check events before they are stored: labels must fit the label type, and spans must lie inside their text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from dissensus.messages import quote_names
from dissensus.serve.events import EMPTY_LIST, Event, label_to_json
from dissensus.serve.exceptions import RefusedLabel, SpanBeyondText, UndeclaredClass
from dissensus.serve.rows import ITEM, LABEL
from dissensus.table import kinds
from dissensus.table.kinds import CLASS_KINDS

if TYPE_CHECKING:
    from dissensus.serve.project import Project

SCALAR_LABELS = "text or numbers"  # label type until the next fit determines the kind of labels
ACCEPTED_KINDS = {EMPTY_LIST: (EMPTY_LIST, "sets", "spans"), SCALAR_LABELS: (None,)}
"""Label type → kinds that the JSON of a label may imply; all other label types accept themselves and None."""


def check_events(
    project: Project, events: Sequence[Event], label_type: str | None = None
) -> tuple[list[Event], str | None]:
    """Return the events in the form to store, and the project's label type after them; raise if a label does not fit.

    A label type is a kind, `EMPTY_LIST`, `SCALAR_LABELS`, or None before the first label. The argument `label_type` is
    the one after earlier events of the same batch, which the project has not stored yet.
    """
    checked = []
    label_type = label_type or _label_type(project)
    for event in events:
        checked.append(_check_event(project, event, label_type))
        if label_type in (None, EMPTY_LIST) and event.label is not None:
            label_type = event.label_kind or SCALAR_LABELS
    return checked, label_type


def _label_type(project: Project) -> str | None:
    texts = project.names[LABEL].texts
    return project.about.get("kind") or (EMPTY_LIST if texts == [kinds.EMPTY_SET] else SCALAR_LABELS if texts else None)


def _check_event(project: Project, event: Event, label_type: str | None) -> Event:
    if event.kind == "decision" and event.data and "both" in event.data:
        each = [_check_event(project, one, label_type).label for one in _split_decision(event)]
        return replace(event, data={**event.data, "both": each})
    if event.label is None:
        return event
    label, kind, classes = event.label, event.label_kind, project.about.get("classes")
    if label == kinds.EMPTY_SET and label_type in ("sets", "spans"):
        return replace(event, label="[]" if label_type == "spans" else label, label_kind=label_type)
    fits = label_type is None or kind in ACCEPTED_KINDS.get(label_type, (None, label_type))
    if fits and label_type in (None, SCALAR_LABELS, *CLASS_KINDS) and classes is not None:
        _check_class(event, label, classes)
        return event
    if label_type in ("numbers", "graded"):
        fits = fits and _is_number(label)
    if label_type in (None, SCALAR_LABELS, "numbers", "graded"):
        fits = fits and not _is_too_large(label)
    if "pairs" in (label_type, kind):
        fits = fits and label in kinds.PAIR_OUTCOMES and _is_pair(event.item)
    if label_type == "spans":
        fits = fits and kind is not None
    if not fits or (label_type is None and kind == "objects"):
        first = {"objects": EMPTY_LIST, "pairs": "pairs"}.get(kind or "", "classes")
        wanted = {None: first, SCALAR_LABELS: project.kind}.get(label_type, label_type)
        raise RefusedLabel(item=event.item, label=label, kind=str(wanted))
    return event


def _check_class(event: Event, label: str, classes: Sequence[str]) -> None:
    if label not in classes:
        raise UndeclaredClass(item=event.item, label=label, classes=quote_names(sorted(classes)))


def _split_decision(decision: Event) -> list[Event]:
    """Return one decision per accepted label."""
    both = (decision.data or {}).get("both")
    return [decision] if both is None else [replace(decision, label=one, data=None) for one in both]


def _is_number(label: str) -> bool:
    return kinds.parse_numbers(np.array([label], object)) is not None


def _is_too_large(label: str) -> bool:
    try:
        return kinds.MAX_LABEL_NUMBER < abs(float(label)) < float("inf")
    except ValueError:
        return False


def _is_pair(item: str) -> bool:
    sides = item.split(kinds.CONTEXT_SEPARATOR, 1)[0].split(kinds.PAIR_SEPARATOR)
    return len(sides) == 2 and all(side.strip() for side in sides)


def check_spans(project: Project, events: Sequence[Event]) -> None:
    """Raise SpanBeyondText if a span ends beyond the text that was posted for its item."""
    codes = project.names[ITEM].codes
    marked = [(event, codes[event.item]) for event in events if event.label_kind == "spans" and event.item in codes]
    with project.lock:
        fields = project.item_fields({code for _, code in marked})
    for event, code in marked:
        text = fields.get(code, {}).get("text")
        last = max((span["end"] for span in label_to_json(event.label, "spans") or []), default=0)
        if isinstance(text, str) and last > len(text):
            raise SpanBeyondText(item=event.item, end=last, length=len(text))


def check_decision(project: Project, event: Event) -> None:
    """Raise if the item of a decision is unknown, or its label does not fit the project."""
    with project.lock:
        project.item_code(event.item)
        decisions = _split_decision(event)
        check_spans(project, decisions)
        given, kind = project.names[LABEL], project.kind
        if event.label_kind is not None or not len(given):
            return
        for one in decisions:
            if one.label is None:
                continue
            if kind == "numbers" and not _is_number(one.label):
                raise RefusedLabel(item=one.item, label=one.label, kind=kind)
            if kind in CLASS_KINDS:
                _check_class(one, one.label, project.about.get("classes") or given.texts)
