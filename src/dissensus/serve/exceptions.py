"""Errors of the service, reasons of items, and reasons why an annotator gets no item."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from dissensus.common.formatting import join_words
from dissensus.exceptions import (
    BadParameter,
    Conflict,
    DataError,
    DissensusError,
    StoreUnavailable,
    UnknownName,
    UnreadableFile,
)
from dissensus.messages import Message, ParameterName, quote_name

VALUE_RULES = {
    "field": "there is no such field (/openapi.json lists all); put additional facts into data",
    "name": (
        "a name must not be blank, '.' or '..'; control characters, '/' (projects) and '|' (options) are not allowed"
    ),
    "time": "give a time such as 2026-01-31T09:30:00Z, or a number of seconds since 1970",
    "label": "give text, a number up to 1e+150, a list of options or a list of {start, end, label}",
    "span": "the end of a span must be greater than its start",
    "pair": "left and right must differ",
    "answer": "a decision needs exactly one of label, both (different labels of one kind) and unclear",
    "classes": "classes must differ, and can only be declared for the kinds classes and graded",
}
"""Rule → sentence about what a value must be."""

LABEL_FORMATS = {
    "classes": "text or a number up to 1e+150",
    "graded": "a number up to 1e+150 or a declared class",
    "numbers": "a number up to 1e+150",
    "pairs": "left, right or tie of an item 'A vs B'",
    "sets": "a list of options",
    "spans": "a list of {start, end, label}",
    "objects": "JSON",
    "lists": "a list of options or of {start, end, label}",
}
"""Label type → how its labels are written."""

STORE_FAULTS = {
    "full": "the disk of the store is full; free some space",
    "locked": "another program is using the store; wait a moment",
    "readonly": "the store is read-only; make the file and its folder writable",
    "disk I/O": "reading or writing the store failed; check the disk",
    "away": "the database server of the store does not answer; start it",
    "stopping": "the service is stopping; start it again",
}
"""Fault, some as named by SQLite → what happened, and what to do."""

REFUSALS = {
    "unknown token": (401, "this token is unknown or was revoked; ask an admin for a new one."),
    "token needed": (401, "a token is needed; send it as 'Authorization: Bearer TOKEN', or sign in."),
    "other machine": (
        401,
        "requests from other machines need a token; make one on the machine of the service: dissensus serve token add.",
    ),
    "unknown webhook": (
        401,
        "this webhook was not created by dissensus serve; delete it, and start the service again.",
    ),
    "other site": (403, "a page of {subject} is not allowed to send this request; use the page of the service."),
    "not allowed": (403, "the role of this token does not include '{subject}'; ask an admin for another token."),
    "other annotator": (403, "this token is only valid for annotator {subject!r}; use the token of this annotator."),
    "own id": (403, "with this token, identify a label by item and annotator; leave out id."),
    "no such address": (404, "there is no such address, or it does not accept this method; /docs lists all addresses."),
    "too long": (413, "the request is longer than {subject} MB; send it in parts."),
    "too many": (429, "there were more than {subject} requests per second; wait a moment."),
}
"""Reason → HTTP status and sentence."""


class RequestRefused(DissensusError):
    template = "{problem}"
    reason: str  # a key of `REFUSALS`
    subject: str
    all_examples = [{"reason": reason} for reason in REFUSALS]

    @property
    def problem(self) -> str:
        return REFUSALS[self.reason][1].format(subject=self.subject)


def http_status(error: DissensusError) -> int:
    """Return the HTTP status of an error."""
    statuses = {StoreUnavailable: 503, UnknownName: 404, Conflict: 409, DissensusError: 400}
    if isinstance(error, RequestRefused):
        return REFUSALS[error.reason][0]
    return next(status for kind, status in statuses.items() if isinstance(error, kind))


# Bodies of requests ---------------------------------------------------------------------------------------------------


class InvalidJsonBody(DataError):
    template = "the body is not valid JSON ({reason}); send an object or a list of objects."
    reason: str


class MissingBodyField(DataError):
    template = "the field {field} is missing."
    field: ParameterName
    example = {"field": ParameterName("annotator")}


class InvalidValue(DataError):
    template = "{text}, got {shown_value}."
    problem: str  # a key of `VALUE_RULES`, or what pydantic reports
    value: Any
    all_examples = [{"problem": problem} for problem in ("input should be a valid integer", *VALUE_RULES)]

    @property
    def text(self) -> str:
        return VALUE_RULES.get(self.problem, self.problem)

    @property
    def shown_value(self) -> str:
        return quote_name(self.value)


# Projects -------------------------------------------------------------------------------------------------------------


class RefusedLabel(DataError):
    template = (
        "the label {label!r} of item {item!r} is not {expected}; use another project for other labels, with "
        "{param[kind='objects']} for any JSON."
    )
    item: str
    label: str
    kind: str  # kind of the labels of the project
    all_examples = [{"kind": kind} for kind in LABEL_FORMATS]

    @property
    def expected(self) -> str:
        return LABEL_FORMATS[self.kind]


class UndeclaredClass(DataError):
    template = "the label {label!r} of item {item!r} is not one of the classes {classes}."
    item: str
    label: str
    classes: str


class SpanBeyondText(DataError):
    template = "a span of item {item!r} ends at {end:,}, but its text has {length:,} characters."
    item: str
    end: int
    length: int


class UnknownProjectOrItem(UnknownName):
    template = "there is no {noun} {name!r}; check the name, or post it first."
    noun: str
    name: str


class UnknownToken(UnknownName):
    template = "{n_found} tokens begin with {start!r}; give at least 4 characters of exactly one that token list shows."
    start: str
    n_found: int


class ProjectSettingsDiffer(Conflict):
    template = (
        "project {project!r} already exists with {setting} {present!r}, not {expected!r}; use that value, or choose "
        "another name for the project."
    )
    project: str
    setting: ParameterName
    present: Any
    expected: Any


class FitFailed(DataError):
    template = "the last fit failed: {reason}"
    reason: str
    example = {"reason": "division by zero"}


class NothingToReport(DataError):
    template = "project {project!r} has no labels yet, so there is nothing to report; post some first."
    project: str


class NoToolFormat(BadParameter):
    template = "format {format} supports only classes and spans, not labels of kind {kind}; use csv."
    format: str
    kind: str


class UnknownRole(BadParameter):
    template = "{param[role]} must be {listed_roles}, got {role!r}."
    role: str
    roles: tuple[str, ...]

    @property
    def listed_roles(self) -> str:
        return join_words(self.roles, "or")


# Stores, ports, folders and tools -------------------------------------------------------------------------------------


class StoreFault(StoreUnavailable):
    template = "{problem}, and send the request again."
    fault: str
    all_examples = [{"fault": fault} for fault in STORE_FAULTS]

    @property
    def problem(self) -> str:
        return STORE_FAULTS[self.fault]


class StoreNotUsable(UnreadableFile):
    template = "{store} cannot be used as a store ({reason}); choose another file or database."
    store: str
    reason: str


class PortTaken(BadParameter):
    template = (
        "port {port} of {host} cannot be used ({reason}); choose another with {param[port]}, or 0 for a free one."
    )
    host: str
    port: int
    reason: str


class ServedWithoutTokens(BadParameter):
    template = (
        "{param[host]} {host} would let everyone who can reach it read and write; make a token first: dissensus serve "
        "--store {store} token add --role admin."
    )
    host: str
    store: str


class NoToolAddress(BadParameter):
    template = (
        "{param[remove=True]} needs the address of a tool: {param[label_studio=<url>]} or {param[argilla=<url>]}."
    )


class UnknownTokenCommand(BadParameter):
    template = (
        "there is no command {words!r}; use token add, token list, or token revoke with the beginning of a token."
    )
    words: str


class NoFolderToWatch(UnreadableFile):
    template = "{path} is not a folder, so it cannot be watched; create it, or choose another."
    path: Path


class ToolError(DissensusError):
    template = "{tool} at {url} {problem}"
    tool: str
    url: str
    status: int  # HTTP status; 0 without an answer
    reason: str  # the beginning of the answer, or why there is none
    all_examples = [{"status": status} for status in (0, 200, 302, 401, 503)]

    @property
    def problem(self) -> str:
        if self.status == 0:
            return f"cannot be reached: {self.reason}."
        if self.status == 401:
            return "does not accept the token; use a valid one."
        if self.status < 300:
            return "does not answer with JSON; check its address."
        where = f"redirects to {self.reason}; use that address."
        return where if self.status < 400 else f"answers with status {self.status}: {self.reason}"


class ToolAccess(BadParameter):
    template = "{tool} needs an address that begins with http:// or https://, got {url!r}, and {key}."
    tool: str
    url: str
    key: str


class ChooseFromTool(BadParameter):
    template = "{tool} at {url} shows this {key} several or none of the requested; choose with {option} from: {titles}."
    option: ParameterName
    tool: str
    url: str
    key: str
    titles: str


class NothingToServe(DataError):
    template = "{name!r} in {tool} has no question of a supported type; supported are {kinds}."
    tool: str
    name: str
    kinds: str


class BadWebhook(DataError):
    template = "the webhook must be a JSON object with an action and project {project}."
    project: int


# Reasons --------------------------------------------------------------------------------------------------------------


class NewClass(Message):
    template = "it has a label of a new class; the next fit computes its confidence"


class DecidedBy(Message):
    template = "decided by {annotator}"
    annotator: str


class EnoughLabels(Message):
    template = "You have given {n_labels:,} labels, the maximum per annotator in this project. Thank you!"
    n_labels: int


class OthersHavePriority(Message):
    template = "Other annotators are asked first about the remaining items. Please try again later."


class ItemsInProgress(Message):
    template = "Other annotators are labelling the remaining items. Please try again in some minutes."


class NothingLeftToLabel(Message):
    template = "No item needs a label from you now. Thank you!"


class UnknownRemovals(Message):
    template = (
        "{n_ids:,} of the ids to remove are unknown; the removals are stored, so annotations that arrive later with "
        "these ids will not count."
    )
    n_ids: int


# Questions ------------------------------------------------------------------------------------------------------------


class NamesNotAllowed(BadParameter):
    template = "answers to questions contain names of annotators; use a token that is allowed to see names."


class NotFittedYet(BadParameter):
    template = "this project has no fitted method yet; ask again after the first labels have arrived."


class UnknownOption(BadParameter):
    template = "{question} has no option {name!r}; it has {names}."
    question: str
    name: str
    options: tuple[str, ...]

    @property
    def names(self) -> str:
        """Return the names of all options, or "none"."""
        return ", ".join(self.options) or "none"
