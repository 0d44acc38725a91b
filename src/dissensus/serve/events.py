"""Events of a project, and how values of JSON become the text that the store keeps.

An event is never changed. Its `id` is the tool's own; events with the same id are one annotation and its corrections.
The one with the greatest version counts, and none counts after a removal. An id that is made of the item and the
annotator may be used again: its removal takes back what came before. So the state depends neither on the order in which
the events of a tool arrive nor on how often they arrive. Of two different events with one version the later counts; an
event that is sent again keeps its first position.
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
"""Kinds of events, by their number in the store; the first letter of the family precedes the id there."""
FAMILY_LETTERS = {"annotation": "a", "removal": "a", "decision": "d", "withdrawal": "d", "item": "i"}
SEPARATOR = "\x1f"  # between the item and the annotator in an id that is made of them
EMPTY_LIST = "lists"  # the label type of an empty list: sets or spans
NUMBER_PATTERN = re.compile(r"[0-9]+(\.[0-9]+)?")
VERSION_DIGITS = 20  # whole numbers are padded to sort as text
EARLIEST_TIME = 631_152_000.0  # seconds: 1990; a label is not older than the tools that write its time


@dataclass(frozen=True)
class Event:
    """One change of a project; `data` is JSON: the fields of an item, or `both`, `unclear` and `note` of a decision."""

    kind: str
    id: str
    item: str
    annotator: str = ""
    label: str | None = None
    version: str = ""
    at: float = 0.0  # seconds since 1970 as the tool reports them; 0: the time of storing
    data: Mapping[str, Any] | None = None
    label_kind: str | None = None  # implied by the JSON of the label: a kind or `EMPTY`; None: text or a number


class Receipt(NamedTuple):
    """Number of events by outcome: stored and counting, known before, stored but outdated; last number of the log."""

    accepted: int
    duplicates: int
    stale: int
    seq: int


class StoredEvent(NamedTuple):
    """An event as the store holds it; names are codes, −1 for none."""

    seq: int
    project: int
    kind: int
    id: str
    first: int  # seq of the first event with this id
    item: int
    annotator: int
    label: int
    version: str
    at: float
    data: str | None

    @property
    def accepted_labels(self) -> list[str] | None:
        """The labels of a decision that accepts several."""
        found: list[str] | None = json.loads(self.data).get("both") if self.data else None
        return found

    @property
    def content(self) -> tuple[Any, ...]:
        """The content without its time and version."""
        return self.kind, self.item, self.annotator, self.label, self.data


def current_event(group: Iterable[StoredEvent]) -> StoredEvent:
    """Return the event that counts among those with one id; a removal by the tool's own id is final."""
    events = events_since_removal(list(group))
    removals = [event for event in events if EVENT_KINDS[event.kind] == "removal" and SEPARATOR not in event.id]
    return max(removals or events, key=lambda event: (event.version, event.seq))


def events_since_removal(events: list[StoredEvent]) -> list[StoredEvent]:
    """Return the events of one id, of an id made of names only those since its last removal without a version."""
    last = max((event.seq for event in events if EVENT_KINDS[event.kind] == "removal" and not event.version), default=0)
    return [event for event in events if event.seq >= last or SEPARATOR not in event.id]


def label_to_json(text: str | None, kind: str) -> Any:
    """Return the label as answers show it; text that is no label of this kind (it was guessed) is returned as it is."""
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
    """Return a version as text that sorts as versions do: times in UTC, padded numbers."""
    text = "" if version is None else str(version).strip()
    whole, point, rest = text.partition(".")
    if not text or (NUMBER_PATTERN.fullmatch(text) and len(whole) <= VERSION_DIGITS):
        return text and whole.zfill(VERSION_DIGITS) + (point + rest).rstrip("0").rstrip(".")
    try:
        return _parse_datetime(text).astimezone(UTC).isoformat(timespec="microseconds")
    except (ValueError, OverflowError):
        raise InvalidValue(problem="time", value=version) from None


def parse_seconds(time: Any) -> float:
    """Return the seconds since 1970 of a time: ISO 8601 (UTC without a zone) or seconds; 0 for none."""
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
    """Return the time that a tool reports, or now if that time is before `EARLIEST` or in the future."""
    return at if EARLIEST_TIME <= at <= now else now


def make_slug(name: str) -> str:
    """Return a name as part of an address: letters, digits and few other characters."""
    return re.sub(r"[^\w.-]+", "-", name)
