"""What a project takes: labels of its kind, spans inside of their text, decisions that an item could have."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from dissensus.exceptions import DataError
from dissensus.serve.events import EMPTY, Event, label_json
from dissensus.serve.rows import ITEM, LABEL
from dissensus.table import kinds
from dissensus.table.find_columns import listed
from dissensus.table.kinds import CLASS_KINDS
from dissensus.table.names import shown

if TYPE_CHECKING:
    from dissensus.serve.project import Project


SCALARS = "text or numbers"  # whose kind the next fit tells
TAKES = {EMPTY: (EMPTY, "sets", "spans"), SCALARS: (None,)}
"""What the labels of a project are → which kinds of a label's JSON it takes; where the kind is known, that or None."""
WORDS = kinds.KINDS | {EMPTY: "lists", SCALARS: SCALARS}


def check(project: Project, events: Sequence[Event], told: str | None = None) -> tuple[list[Event], str | None]:
    """The events as a project takes them, and what its labels are after them; a label that it cannot hold raises.

    What they are is a kind, `EMPTY`, `SCALARS`, or None before the first; `told` is what earlier events, which the
    project does not know yet, have told.
    """
    found = []
    told = told or _told(project)
    for event in events:
        found.append(_checked(project, event, told))
        if told in (None, EMPTY) and event.label is not None:
            told = event.of_kind or SCALARS
    return found, told


def _told(project: Project) -> str | None:
    texts = project.names[LABEL].texts
    return project.about.get("kind") or (EMPTY if texts == [kinds.NOTHING] else SCALARS if texts else None)


def _checked(project: Project, event: Event, told: str | None) -> Event:
    if event.kind == "decision" and event.data and "both" in event.data:
        each = [_checked(project, one, told).label for one in _labels(event)]
        return replace(event, data={**event.data, "both": each})
    if event.label is None:
        return event
    label, of_kind, classes = event.label, event.of_kind, project.about.get("classes")
    said = f"project {project.name!r}, item {shown(event.item)}: the label {shown(label)}"
    if label == kinds.NOTHING and told in ("sets", "spans"):  # an empty list: nothing is ticked or marked
        return replace(event, label="[]" if told == "spans" else label, of_kind=told)
    if told is None and of_kind == "objects":
        raise DataError(f"{said} is no list of options or spans; of other things, declare the kind 'objects'.")
    if told is not None and of_kind not in TAKES.get(told, (None, told)):
        has = WORDS[project.kind if told == SCALARS else told]
        raise DataError(f"{said} is one of {WORDS[of_kind or SCALARS]}, and this project has {has}; make another.")
    if told in (None, SCALARS, *CLASS_KINDS) and classes is not None:
        if label not in classes:
            raise DataError(f"{said} is none of the {len(classes)} classes declared; declare it in a new project.")
        return event
    if told in ("numbers", "graded") and kinds.numbers_of(np.array([label], object)) is None:
        how = "" if told == "numbers" else "; declare the classes, in their order, in a new project"
        raise DataError(f"{said} is no number{how}.")
    if told in (None, SCALARS, "numbers", "graded") and _is_too_large(label):
        raise DataError(f"{said} is beyond {kinds.MAX_NUMBER:g}, where squares overflow; divide the labels first.")
    if "pairs" in (told, of_kind) and not (label in kinds.OUTCOMES and _is_pair(event.item)):
        raise DataError(f"{said} is no comparison; an item is 'A vs B', a label left, right, tie.")
    if told == "spans" and of_kind is None:
        raise DataError(f"{said} is no list of spans; give [{{start, end, label}}, …].")
    return event


def _labels(decision: Event) -> list[Event]:
    """A decision for each label of one that calls several right."""
    both = (decision.data or {}).get("both")
    return [decision] if both is None else [replace(decision, label=one, data=None) for one in both]


def _is_too_large(label: str) -> bool:
    try:
        return kinds.MAX_NUMBER < abs(float(label)) < float("inf")
    except ValueError:
        return False


def _is_pair(item: str) -> bool:
    sides = item.split(kinds.CONTEXT, 1)[0].split(kinds.VERSUS)
    return len(sides) == 2 and all(side.strip() for side in sides)


def check_spans(project: Project, events: Sequence[Event]) -> None:
    """Raise where a span ends beyond the text that was posted of its item."""
    marked = [one for one in events if one.of_kind == "spans" and one.item in project.names[ITEM].codes]
    with project.lock:
        texts = project.shown({project.names[ITEM].codes[one.item] for one in marked})
    for one in marked:
        text = texts.get(project.names[ITEM].codes[one.item], {}).get("text")
        last = max((span["end"] for span in label_json(one.label, "spans") or []), default=0)
        if isinstance(text, str) and last > len(text):
            said = f"a span of item {shown(one.item)} ends at {last:,}, and its text has {len(text):,} characters."
            raise DataError(f"project {project.name!r}: {said}")


def check_decision(project: Project, event: Event) -> None:
    """Raise where an adjudicator's item is not known, or the label is none that the item could have."""
    with project.lock:
        project.code(event.item)
        check_spans(project, _labels(event))
        given, kind = project.names[LABEL], project.kind
        said = [one.label for one in _labels(event) if one.label is not None]
        if event.of_kind is not None or not len(given):
            return
        for label in said:
            if kind == "numbers" and kinds.numbers_of(np.array([label], object)) is None:
                raise DataError(f"the label {shown(label)} is no number, and the labels of {project.name!r} are.")
            classes = project.about.get("classes") or given.texts
            if kind in CLASS_KINDS and label not in classes:
                raise DataError(f"nobody gave the label {shown(label)}; the classes are {listed(sorted(classes))}.")
