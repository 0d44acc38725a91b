"""Synchronise with a labelling tool: each of its questions is a project, and the consensus is written back."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from dissensus.serve.events import Event
from dissensus.serve.service import Follower, Service
from dissensus.serve.tool_client import Record
from dissensus.table.kinds import name_set

AGENT_NAME = "dissensus"  # name of the author of our predictions and suggestions
FIELD_PREFIX = "dissensus_"  # All fields that we add begin with this.
MIN_CONFIDENCE_CHANGE = 0.01  # minimum change of a confidence for which it is written to the tool again
ITEMS_PER_PAGE = 2_000


class ToolQuestion(NamedTuple):
    """A question of a labelling tool."""

    name: str
    kind: str  # label type
    project: str  # name of its project in the service
    about: Record  # description of the question by the tool


class Tool(Follower):
    """A project or dataset of a labelling tool that a background thread synchronises with a service."""

    number: Any  # number or name of the project or dataset in the tool

    def __init__(self, service: Service, base: str):
        super().__init__(service, base)
        self.questions: list[ToolQuestion] = []
        self._shown: dict[str, Record] = {}  # item → its fields in the last event

    def read_questions(self) -> tuple[str, list[ToolQuestion]]:
        """Return the title and the supported questions."""
        raise NotImplementedError

    def create_projects(self) -> None:
        """Create a project of the service for every question."""
        title, self.questions = self.read_questions()
        for question in self.questions:
            self.service.create_project(question.project, kind=question.kind, title=f"{title}: {question.name}")

    def install_hook(self) -> None:
        """Make the tool report changes at once, if it can."""

    def start(self) -> None:
        """Create the projects and start the thread, whose first step reads everything from before the hook."""
        self.create_projects()
        self.install_hook()
        super().start()

    def stored_labels(self) -> dict[str, dict[str, tuple[str, str, bool]]]:
        """Return the stored labels of every project, by its name."""
        return {question.project: self.service.project(question.project).stored_labels() for question in self.questions}

    def item_events(self, items: Iterable[tuple[str, Record]]) -> dict[str, list[Event]]:
        """Return the changed fields of items as events, by project."""
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
        """Return the prefix of the fields about a question."""
        return FIELD_PREFIX if len(self.questions) == 1 else f"{FIELD_PREFIX}{question.name}_"

    def iterate_answers(self) -> Iterator[tuple[ToolQuestion, Record, Record]]:
        """Yield (question, item, summary of the item) for all items with a label."""
        for question in self.questions:
            offset, total = 0, 1
            while offset < total:
                page = self.service.project(question.project).items(order="name", offset=offset, limit=ITEMS_PER_PAGE)
                yield from (
                    (question, item, summarize_item(item)) for item in page["items"] if item["label"] is not None
                )
                offset, total = offset + ITEMS_PER_PAGE, page["total"]


def summarize_item(item: Record) -> Record:
    """Return label, status, confidence and agreement (share of the votes for the label) of an item."""
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
    """Return the largest difference between the numbers of two records, or 2 if keys or other values differ."""
    if wanted.keys() != present.keys():
        return 2.0
    pairs = [(wanted[key], present[key]) for key in wanted]
    if any(new != old for new, old in pairs if not (isinstance(new, float) and isinstance(old, float))):
        return 2.0
    return max((abs(new - old) for new, old in pairs if isinstance(new, float)), default=0.0)
