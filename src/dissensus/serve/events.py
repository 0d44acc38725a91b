"""What can happen in a project, and how JSON says it.

An event is never changed. Its `id` is the tool's own; events of one id are one annotation and its corrections, of which
the one with the greatest version counts, and none after a removal. An id that we make of the item and the annotator may
be used again: its removal takes back what came before. So the state does not depend on the order in which
a tool's events arrive, nor on how often they do. Of different events with one version the later one counts; one that is
sent again stands where it first arrived.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, NamedTuple

from dissensus.common.parameters import is_whole
from dissensus.exceptions import DataError
from dissensus.table import kinds
from dissensus.table.find_columns import listed
from dissensus.table.names import shown

KINDS = ("annotation", "removal", "decision", "withdrawal", "item")
"""Kinds of events, by their number in the store; the first letter of what an event is about stands before its id."""
FAMILY = {"annotation": "a", "removal": "a", "decision": "d", "withdrawal": "d", "item": "i"}
ABOUT = "\x1f"  # between the item and the annotator in an id that we make
HERE = (".", "..")  # what an address leaves out: nothing that is asked for by its name may be called so
EMPTY = "lists"  # what an empty list speaks for: sets or spans
MAX_NAME = 1_000  # characters of an item, annotator, id, option or label of one class
MAX_LABEL = 100_000  # characters of a label that is a list or an object, as JSON, and of a note
MAX_END = 10**9  # characters or tokens of a document, where a span may end
NUMBER = re.compile(r"[0-9]+(\.[0-9]+)?")
FIELDS = ("id", "item", "annotator", "label", "version", "at", "data", "deleted", "left", "right", "winner")
DECISION_FIELDS = ("item", "label", "both", "unclear", "by", "note")
VERSION_DIGITS = 20  # to which whole numbers are filled up, so that they sort as text
EARLIEST = 631_152_000.0  # seconds: 1990; a label is not older than the tools that write its time


@dataclass(frozen=True)
class Event:
    """Something that happened; `data` is JSON: of an item what to show, of a decision `both`, `unclear`, `note`."""

    kind: str
    id: str
    item: str
    annotator: str = ""
    label: str | None = None
    version: str = ""
    at: float = 0.0  # seconds since 1970 when it was done, as the tool says; 0: when it is stored
    data: Mapping[str, Any] | None = None
    of_kind: str | None = None  # what the JSON of the label speaks for: a kind, `EMPTY`; None: text or a number


class Receipt(NamedTuple):
    """What became of some events: stored and counting, there before, stored but overtaken; the log's last number."""

    accepted: int
    duplicates: int
    stale: int
    seq: int


class Stored(NamedTuple):
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
    def both(self) -> list[str] | None:
        """The labels of a decision that calls several right."""
        found: list[str] | None = json.loads(self.data).get("both") if self.data else None
        return found

    @property
    def content(self) -> tuple[Any, ...]:
        """What it says, whenever and in whatever version."""
        return self.kind, self.item, self.annotator, self.label, self.data


def winner(group: Iterable[Stored]) -> Stored:
    """The event that counts among those of one id; a removal by the tool's own id is final."""
    events = since_removal(list(group))
    removed = [one for one in events if KINDS[one.kind] == "removal" and ABOUT not in one.id]
    return max(removed or events, key=lambda one: (one.version, one.seq))


def since_removal(events: list[Stored]) -> list[Stored]:
    """Events of one id; of an id that we made, those from its last removal without a version on."""
    last = max((one.seq for one in events if KINDS[one.kind] == "removal" and not one.version), default=0)
    return [one for one in events if one.seq >= last or ABOUT not in one.id]


def annotation_events(body: Any, kind: str | None = None) -> list[Event]:
    """Read what is posted to a project of a declared kind: an object, or a list of them."""
    return [_annotation(one, at, kind) for at, one in enumerate(_objects(body, "an annotation"))]


def item_events(body: Any) -> list[Event]:
    """Read items to show: {item, …}; all other fields are what is shown."""
    events = []
    for at, one in enumerate(_objects(body, "an item")):
        item = name_of(one, "item", at)
        events.append(Event("item", item, item, data={key: value for key, value in one.items() if key != "item"}))
    return events


def decision_event(body: Any, of_kind: str | None = None) -> Event:
    """Read an adjudicator's word: {item, label | both | unclear, by, note}."""
    if not isinstance(one := body, dict):
        raise DataError(f"a decision is one object, got {shown(body)}.")
    if unknown := one.keys() - set(DECISION_FIELDS):
        raise DataError(
            f"a decision has the field {listed(sorted(unknown))}; the fields are {', '.join(DECISION_FIELDS)}."
        )
    item, by = name_of(one, "item", 0), name_of({"by": "adjudicator"} | one, "by", 0)
    if not isinstance(one.get("note", ""), str | None):
        raise DataError(f"note must be text, got {shown(one['note'])}.")
    _of_length(one.get("note") or "", "note")
    said = [key for key in ("label", "both") if one.get(key) is not None] + ["unclear"] * _flag(one, "unclear", 0)
    if len(said) != 1:
        raise DataError("a decision has one of label, both (a list of labels) and unclear (true); give one of them.")
    label, kind, data = None, None, {key: one[key] for key in ("note",) if one.get(key)}
    if said == ["label"]:
        label, kind = label_of(one["label"], 0, of_kind)
    elif said == ["both"]:
        if not isinstance(one["both"], list) or len(one["both"]) < 2:
            raise DataError(f"both must be a list of two labels or more, got {shown(one['both'])}.")
        found = [label_of(each, 0, of_kind) for each in one["both"]]
        data["both"] = [text for text, _ in found]
        if len(set(data["both"])) < len(data["both"]):
            raise DataError(f"both names a label twice, in {shown(one['both'])}; give labels that differ.")
        kind, *others = {each for _, each in found} - {EMPTY}
        if others:
            raise DataError(f"both has labels of several kinds, in {shown(one['both'])}; give labels of one.")
        _of_length(json.dumps(data["both"], ensure_ascii=False), "both")
    else:
        data["unclear"] = True
    return Event("decision", item, item, by, label, data=data or None, of_kind=kind)


def label_of(value: Any, at: int, kind: str | None = None) -> tuple[str, str | None]:
    """A label as text, and the kind that its JSON speaks for, if any; where the labels are objects, any list is one."""
    said = f"annotation {at}: the label"
    several = value if isinstance(value, list) and kind != "objects" else None
    if isinstance(value, bool):
        return ("true" if value else "false"), None
    if isinstance(value, int | float) and abs(value) <= kinds.MAX_NUMBER:
        return json.dumps(int(value) if isinstance(value, float) and value.is_integer() else value), None
    if isinstance(value, str) and value.strip():
        return _bounded(value, "label", at, MAX_LABEL if kind == "objects" else MAX_NAME), None
    if several == []:
        return kinds.NOTHING, EMPTY
    if several and all(isinstance(one, str) for one in several):
        return _of_length(kinds.set_name(_option(one, at) for one in several), said), "sets"
    if several and all(isinstance(one, dict) and {"start", "end", "label"} <= one.keys() for one in several):
        text = span_text(several, at)
        for one in json.loads(text):
            if not 0 <= one["start"] < one["end"] <= MAX_END:
                raise DataError(
                    f"annotation {at}: a span starts at 0 or later and ends after its start, at {MAX_END:,} at most, "
                    f"got {shown(one)}."
                )
        return _of_length(text, said), "spans"
    if isinstance(value, dict | list):
        return _of_length(json.dumps(value, sort_keys=True, ensure_ascii=False), said), "objects"
    raise DataError(
        f"annotation {at} has the label {shown(value)}; give text, a number up to {kinds.MAX_NUMBER:g}, a list of "
        "options or of spans."
    )


def span_text(spans: Sequence[Mapping[str, Any]], at: int) -> str:
    """Spans as text, in order."""
    if not all(is_whole(one["start"]) and is_whole(one["end"]) for one in spans):
        raise DataError(f"annotation {at}: start and end of a span must be whole numbers, in {shown(spans)}.")
    found = sorted({(int(one["start"]), int(one["end"]), name_of(one, "label", at)) for one in spans})
    return json.dumps([{"start": start, "end": end, "label": label} for start, end, label in found], ensure_ascii=False)


def label_json(text: str | None, kind: str) -> Any:
    """The label as JSON answers show it; text that this kind cannot hold (the kind was guessed before) stays text."""
    if text is None:
        return None
    if text == kinds.NOTHING:
        return []
    if kind == "sets":
        return text.split(kinds.JOIN)
    try:
        if kind == "numbers" and math.isfinite(number := float(text)):
            return int(number) if number.is_integer() else number
        return json.loads(text) if kind == "spans" else text
    except ValueError:
        return text


def in_order(version: Any, at: int = 0) -> str:
    """A version as text that sorts as the versions do: times in UTC, numbers filled up."""
    text = "" if version is None else str(version).strip()
    whole, point, rest = text.partition(".")
    if not text or (NUMBER.fullmatch(text) and len(whole) <= VERSION_DIGITS):
        return text and whole.zfill(VERSION_DIGITS) + (point + rest).rstrip("0").rstrip(".")
    try:
        moment = datetime.fromisoformat(text)
        moment = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError):
        said = f"version {shown(version)} is no time such as 2026-01-31T09:30:00Z and no number from 0."
        raise DataError(f"annotation {at}: {said}") from None
    return moment.isoformat(timespec="microseconds")


def time_of(value: Any, at: int = 0) -> float:
    """Seconds since 1970 of a time: ISO 8601, in UTC where it names no zone, or seconds; 0 where there is none."""
    if value is None or value == "":
        return 0.0
    try:
        if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
            return float(value)
        if NUMBER.fullmatch(str(value)):
            return float(value)
        moment = datetime.fromisoformat(str(value).strip())
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        said = f"the time {shown(value)} is none such as 2026-01-31T09:30:00Z, and no number of seconds since 1970."
        raise DataError(f"annotation {at}: {said}") from None


def plausible_time(at: float, now: float) -> float:
    """When something was done: as its tool says, or now where that is before `EARLIEST` or in the future."""
    return at if EARLIEST <= at <= now else now


def name_of(one: Mapping[str, Any], field: str, at: int) -> str:
    """A name from a field; numbers become text."""
    value = one.get(field)
    if isinstance(value, int | float) and not isinstance(value, bool):
        value = str(value)
    if not isinstance(value, str) or not value.strip():
        raise DataError(f"entry {at} has no {field}, or one that is no text or number: {shown(value)}.")
    return _bounded(value, field, at)


def _flag(one: Mapping[str, Any], field: str, at: int) -> bool:
    if not isinstance(one.get(field), bool | None):
        raise DataError(f"entry {at}: {field} must be true or false, got {shown(one[field])}.")
    return bool(one.get(field))


def slug(name: str) -> str:
    """A name as part of an address: letters, digits and few other characters."""
    return re.sub(r"[^\w.-]+", "-", name)


def _annotation(one: Mapping[str, Any], at: int, of_kind: str | None) -> Event:
    if unknown := one.keys() - set(FIELDS):
        raise DataError(
            f"annotation {at} has the field {listed(sorted(unknown))}; the fields are {', '.join(FIELDS)}, and data "
            "holds what else you keep."
        )
    version, done = in_order(one.get("version"), at), time_of(one.get("at"), at)
    if "winner" in one:
        one = {"label": one["winner"], **one}
    pair = "left" in one and "right" in one
    if pair and "item" not in one:
        left, right = name_of(one, "left", at), name_of(one, "right", at)
        if left == right:
            raise DataError(f"annotation {at} compares {shown(left)} with itself; name two things.")
        one = {"item": kinds.pair_items([left], [right])[0].as_py(), **one}
    if _flag(one, "deleted", at):
        return Event("removal", _id(one, at), "", version=version, at=done)
    item, annotator, id_ = name_of(one, "item", at), name_of(one, "annotator", at), _id(one, at)
    label, kind = label_of(one.get("label"), at, of_kind)
    data = one.get("data")
    if data is not None and not isinstance(data, dict):
        raise DataError(f"annotation {at}: data must be an object, got {shown(data)}.")
    return Event("annotation", id_, item, annotator, label, version, done, data, of_kind="pairs" if pair else kind)


def _id(one: Mapping[str, Any], at: int) -> str:
    """The tool's own, or else the item and the annotator."""
    if one.get("id") is not None:
        return name_of(one, "id", at)
    return name_of(one, "item", at) + ABOUT + name_of(one, "annotator", at)


def _objects(body: Any, what: str) -> list[dict[str, Any]]:
    found = body if isinstance(body, list) else [body]
    for at, one in enumerate(found):
        if not isinstance(one, dict):
            raise DataError(f"entry {at} is no object but {shown(one)}; {what} is a JSON object, or several in a list.")
    return found


def _option(text: str, at: int) -> str:
    """An option of a set, whose name can stand beside others."""
    if not text.strip() or kinds.JOIN in text or text == kinds.NOTHING:
        raise DataError(f"annotation {at} ticks {shown(text)}; an option is text without {kinds.JOIN!r}, not blank.")
    return _bounded(text, "option", at)


def _of_length(text: str, said: str) -> str:
    if len(text) > MAX_LABEL:
        raise DataError(f"{said} has {len(text):,} characters; {MAX_LABEL:,} are allowed.")
    return text


def _bounded(text: str, field: str, at: int, most: int = MAX_NAME) -> str:
    if len(text) > most:
        raise DataError(f"entry {at}: {field} has {len(text):,} characters; {most:,} are allowed.")
    if field in ("item", "id") and text in HERE:
        raise DataError(f"entry {at}: {field} {text!r} could not be asked for by its address; take another name.")
    if "\x00" in text or (ABOUT in text and field != "label") or any("\ud800" <= letter <= "\udfff" for letter in text):
        raise DataError(f"entry {at}: {field} holds a character that cannot be stored; leave it out.")
    return text
