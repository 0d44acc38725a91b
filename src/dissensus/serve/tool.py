"""A labelling tool, both ways: each of its questions is a project of the service, and the consensus goes back."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from dissensus.serve.events import Event
from dissensus.serve.service import Follower, Service
from dissensus.serve.tool_client import Record
from dissensus.table.kinds import name_set

AGENT_NAME = "dissensus"  # author of our predictions and suggestions
FIELD_PREFIX = "dissensus_"  # beginning of the fields that we add
MIN_CHANGE = 0.01  # a confidence that changes by less is not written again
ITEMS_PER_PAGE = 2_000


class ToolQuestion(NamedTuple):
    """A question of a tool."""

    name: str
    kind: str  # kind of its labels
    project: str  # its project in the service
    about: Record  # its description by the tool


class Tool(Follower):
    """A project or dataset of a tool, kept in step with a service by a thread in the background."""

    number: Any  # its name in the tool

    def __init__(self, service: Service, base: str):
        super().__init__(service, base)
        self.questions: list[ToolQuestion] = []
        self._shown: dict[str, Record] = {}  # item → its fields as of the last event

    def read_questions(self) -> tuple[str, list[ToolQuestion]]:
        """Return the title, and the questions whose answers can be read."""
        raise NotImplementedError

    def create_projects(self) -> None:
        """Make a project of the service for every question."""
        title, self.questions = self.read_questions()
        for question in self.questions:
            self.service.create_project(question.project, kind=question.kind, title=f"{title}: {question.name}")

    def install_hook(self) -> None:
        """Make the tool report what happens, where it can."""

    def start(self) -> None:
        """Make the projects, then keep in step: the first step finds what came before the hook."""
        self.create_projects()
        self.install_hook()
        super().start()

    def stored_labels(self) -> dict[str, dict[str, tuple[str, str, bool]]]:
        """Return the labels of every project, by its name."""
        return {question.project: self.service.project(question.project).stored_labels() for question in self.questions}

    def item_events(self, items: Iterable[tuple[str, Record]]) -> dict[str, list[Event]]:
        """Return the fields of items, where they are new, as events of every project."""
        events: dict[str, list[Event]] = {question.project: [] for question in self.questions}
        for item, fields in items:
            if self._shown.get(item) != fields:
                self._shown[item] = fields
                for question in self.questions:
                    events[question.project].append(Event("item", item, item, data=self.shown_fields(question, fields)))
        return events

    def shown_fields(self, question: ToolQuestion, fields: Record) -> Record:
        """Return the fields of an item that annotators of a question see."""
        return fields

    def field_prefix(self, question: ToolQuestion) -> str:
        """Return the beginning of the fields about a question."""
        return FIELD_PREFIX if len(self.questions) == 1 else f"{FIELD_PREFIX}{question.name}_"

    def iterate_answers(self) -> Iterator[tuple[ToolQuestion, Record, Record]]:
        """Yield question, item and its summary, for all items with a label."""
        for question in self.questions:
            offset, total = 0, 1
            while offset < total:
                page = self.service.project(question.project).items(order="name", offset=offset, limit=ITEMS_PER_PAGE)
                yield from (
                    (question, item, summarize_item(item)) for item in page["items"] if item["label"] is not None
                )
                offset, total = offset + ITEMS_PER_PAGE, page["total"]


def summarize_item(item: Record) -> Record:
    """Return label, status, confidence and agreement of an item; agreement is the share of votes for the label."""
    label, votes = item["label"], item["votes"]
    if isinstance(label, list):
        parts = [f"{one['label']} {one['start']}-{one['end']}" if isinstance(one, dict) else one for one in label]
        label, name = ", ".join(parts), name_set(parts)
    else:
        name = str(label)
    found = {"label": label, "status": item["status"]}
    if item["confidence"] is not None:
        found["confidence"] = round(float(item["confidence"]), 3)
    if name in votes:
        found["agreement"] = round(votes[name] / sum(votes.values()), 3)
    return found


def record_difference(wanted: Record, present: Record) -> float:
    """Return the largest difference of two records' numbers; 2 if their keys or other values differ."""
    if wanted.keys() != present.keys():
        return 2.0
    pairs = [(wanted[key], present[key]) for key in wanted]
    if any(new != old for new, old in pairs if not (isinstance(new, float) and isinstance(old, float))):
        return 2.0
    return max((abs(new - old) for new, old in pairs if isinstance(new, float)), default=0.0)
