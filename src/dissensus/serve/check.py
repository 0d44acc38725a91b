"""What a project takes: labels of its kind, spans inside of their text, decisions that an item could have."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from dissensus.exceptions import DataError
from dissensus.serve.events import Event
from dissensus.serve.rows import ITEM, LABEL
from dissensus.table import kinds
from dissensus.table.find_columns import listed
from dissensus.table.kinds import CLASS_KINDS
from dissensus.table.names import shown

if TYPE_CHECKING:
    from dissensus.serve.project import Project


def check(project: Project, events: Sequence[Event], kind: str | None = None) -> list[Event]:
    """The events as a project of this kind takes them; a label that it cannot hold raises."""
    kind, classes = kind or project.about.get("kind"), project.about.get("classes")
    scalar = kind is None and bool(len(project.names[LABEL]))
    return [_checked(project, event, kind, classes, scalar) for event in events]


def _checked(project: Project, event: Event, kind: str | None, classes: list[str] | None, scalar: bool) -> Event:
    if event.label is None:
        return event
    label, said = event.label, f"project {project.name!r}: the label {shown(event.label)}"
    if kind == "spans" and label == kinds.NOTHING:  # an empty list: nothing is marked
        return replace(event, label="[]", of_kind="spans")
    if event.of_kind is not None and (scalar or (kind is not None and event.of_kind != kind)):
        has = kinds.KINDS[kind or project.kind]
        raise DataError(f"{said} is one of {kinds.KINDS[event.of_kind]}, and this project has {has}; make another.")
    if classes is not None and kind in (None, *CLASS_KINDS) and label not in classes:
        raise DataError(f"{said} is none of the {len(classes)} classes declared; declare it in a new project.")
    if kind == "numbers" and kinds.numbers_of(np.array([label], object)) is None:
        raise DataError(f"{said} is no number.")
    if "pairs" in (kind, event.of_kind) and (label not in kinds.OUTCOMES or kinds.VERSUS not in event.item):
        raise DataError(
            f"{said} of {shown(event.item)} is no comparison; an item is 'A vs B', a label left, right, tie."
        )
    if kind == "spans" and event.of_kind is None:
        raise DataError(f"{said} is no list of spans; give [{{start, end, label}}, …].")
    return event


def check_spans(project: Project, events: Sequence[Event]) -> None:
    """Raise where a span ends beyond the text that was posted of its item."""
    marked = [one for one in events if one.of_kind == "spans" and one.item in project.names[ITEM].codes]
    with project.lock:
        texts = project.shown({project.names[ITEM].codes[one.item] for one in marked})
    for one in marked:
        text = texts.get(project.names[ITEM].codes[one.item], {}).get("text")
        last = max((span["end"] for span in json.loads(one.label or "[]")), default=0)
        if isinstance(text, str) and last > len(text):
            said = f"a span of item {shown(one.item)} ends at {last:,}, and its text has {len(text):,} characters."
            raise DataError(f"project {project.name!r}: {said}")


def check_decision(project: Project, event: Event) -> None:
    """Raise where an adjudicator's item is not known, or the label is none that the item could have."""
    with project.lock:
        project.code(event.item)
        check_spans(project, [event])
        given, kind = project.names[LABEL], project.kind
        said = [one for one in (event.label, *(event.data or {}).get("both", ())) if one is not None]
        if event.of_kind is not None or not len(given):
            return
        for label in said:
            if kind == "numbers" and kinds.numbers_of(np.array([label], object)) is None:
                raise DataError(f"the label {shown(label)} is no number, and the labels of {project.name!r} are.")
            classes = project.about.get("classes") or given.texts
            if kind in CLASS_KINDS and label not in classes:
                raise DataError(f"nobody gave the label {shown(label)}; the classes are {listed(sorted(classes))}.")
