"""Define the events of a project, and convert JSON values into the text that the store keeps.

An event is never changed. The labelling tool chooses its `id`: events with the same id are one annotation and its
corrections. The event with the greatest version counts, and none counts after a removal. An id that consists of item
and annotator may be used again: a removal only revokes earlier events. Therefore the state depends neither on the order
in which events arrive nor on how often they arrive. If two different events have the same version, the later one
counts; an event that is sent again keeps its first position.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, NamedTuple

from dissensus.serve.exceptions import InvalidValue
from dissensus.table import kinds

EVENT_KINDS = ("annotation", "removal", "decision", "withdrawal", "item")
"""Kinds of events; the store has their position in this tuple, and a letter of `FAMILY_LETTERS` before the id."""
FAMILY_LETTERS = {"annotation": "a", "removal": "a", "decision": "d", "withdrawal": "d", "item": "i"}
SEPARATOR = "\x1f"  # separates item and annotator in an id that consists of both
EMPTY_LIST = "lists"  # label type of an empty list, which may be a set or spans
NUMBER_PATTERN = re.compile(r"[0-9]+(\.[0-9]+)?")
VERSION_DIGITS = 20  # Integers are padded to this length so that they sort as text.
EARLIEST_TIME = 631_152_000.0  # seconds since 1970 (the year 1990); earlier times of labels are errors


@dataclass(frozen=True)
class Event:
    """One change of a project; `data` has the fields of an item, or `both`, `unclear` and `note` of a decision."""

    kind: str
    id: str
    item: str
    annotator: str = ""
    label: str | None = None
    version: str = ""
    at: float = 0.0  # seconds since 1970 as reported by the tool; 0 means the time of storing
    data: Mapping[str, Any] | None = None
    label_kind: str | None = None  # label type implied by the JSON of the label; None for text and numbers


class Receipt(NamedTuple):
    """Number of events that count, were stored before, or are outdated; and the number of the last event in the log."""

    accepted: int
    duplicates: int
    stale: int
    seq: int


class StoredEvent(NamedTuple):
    """An event as stored: names are codes, −1 for none."""

    seq: int
    project: int
    kind: int
    id: str
    first_seq: int  # seq of the first event with this id
    item: int
    annotator: int
    label: int
    version: str
    at: float
    data: str | None

    @property
    def accepted_labels(self) -> list[str] | None:
        """The labels of a decision that accepts several labels, else None."""
        accepted: list[str] | None = json.loads(self.data).get("both") if self.data else None
        return accepted

    @property
    def content(self) -> tuple[Any, ...]:
        """The content of the event without its time and version."""
        return self.kind, self.item, self.annotator, self.label, self.data


def current_event(group: Iterable[StoredEvent]) -> StoredEvent:
    """Return the event that counts among all events with one id; a removal by the tool's own id is final."""
    events = events_since_removal(list(group))
    removals = [event for event in events if EVENT_KINDS[event.kind] == "removal" and SEPARATOR not in event.id]
    return max(removals or events, key=lambda event: (event.version, event.seq))


def events_since_removal(events: list[StoredEvent]) -> list[StoredEvent]:
    """Return the events of one id; if it consists of item and annotator, only those since its last removal."""
    last = max((event.seq for event in events if EVENT_KINDS[event.kind] == "removal" and not event.version), default=0)
    return [event for event in events if event.seq >= last or SEPARATOR not in event.id]


def label_to_json(text: str | None, kind: str) -> Any:
    """Convert a label to JSON; text that is not a label of this guessed kind is returned unchanged."""
    if text is None:
        return None
    if text == kinds.EMPTY_SET:
        return []
    if kind == "sets":
        return text.split(kinds.OPTION_SEPARATOR)
    try:
        if kind == "numbers" and math.isfinite(number := float(text)):
            return int(number) if number.is_integer() else number
        return json.loads(text) if kind == "spans" else text
    except ValueError:
        return text


def to_sortable_version(version: Any) -> str:
    """Return a version as text that sorts correctly: times in UTC, numbers padded with zeros."""
    text = "" if version is None else str(version).strip()
    whole, point, rest = text.partition(".")
    if not text or (NUMBER_PATTERN.fullmatch(text) and len(whole) <= VERSION_DIGITS):
        return text and whole.zfill(VERSION_DIGITS) + (point + rest).rstrip("0").rstrip(".")
    try:
        return _parse_datetime(text).astimezone(UTC).isoformat(timespec="microseconds")
    except (ValueError, OverflowError):
        raise InvalidValue(problem="time", value=version) from None


def parse_seconds(time: Any) -> float:
    """Convert a time to seconds since 1970: ISO 8601 (UTC without a zone) or seconds; 0 if there is none."""
    if time is None or time == "":
        return 0.0
    try:
        number = isinstance(time, int | float) and not isinstance(time, bool) and math.isfinite(time)
        return (
            float(time)
            if number or NUMBER_PATTERN.fullmatch(str(time))
            else _parse_datetime(str(time).strip()).timestamp()
        )
    except (ValueError, OverflowError):
        raise InvalidValue(problem="time", value=time) from None


def _parse_datetime(text: str) -> datetime:
    moment = datetime.fromisoformat(text)
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def plausible_time(at: float, now: float) -> float:
    """Return the time reported by a tool, or `now` if it is before `EARLIEST_TIME` or in the future."""
    return at if EARLIEST_TIME <= at <= now else now


def make_slug(name: str) -> str:
    """Replace all characters of a name that are unusual in an address by hyphens."""
    return re.sub(r"[^\w.-]+", "-", name)
