"""A labelling tool, both ways: each question that it asks is a project of the service, and the consensus goes back."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from dissensus.serve.events import Event
from dissensus.serve.service import Follower, Service
from dissensus.serve.tool_client import Record
from dissensus.table.kinds import set_name

AGENT = "dissensus"  # who gives our predictions and suggestions
FIELD = "dissensus_"  # how the fields that we add begin
MIN_CHANGE = 0.01  # of a confidence, before it is written again
ROWS_AT_ONCE = 2_000


class Question(NamedTuple):
    """A question of a tool."""

    name: str
    kind: str  # of its labels
    project: str  # of the service
    about: Record  # what the tool says of it


class Tool(Follower):
    """A project or dataset of a tool, kept in step with a service by a thread in the background."""

    number: Any  # what the tool calls it

    def __init__(self, service: Service, base: str):
        super().__init__(service, base)
        self.questions: list[Question] = []
        self._shown: dict[str, Record] = {}  # item → what was shown of it last

    def asked(self) -> tuple[str, list[Question]]:
        """The title, and the questions whose answers can be read."""
        raise NotImplementedError

    def link(self) -> None:
        """Make a project of the service for every question."""
        title, self.questions = self.asked()
        for one in self.questions:
            self.service.create(one.project, kind=one.kind, title=f"{title}: {one.name}")

    def hook(self) -> None:
        """Have the tool tell what happens, where it can."""

    def start(self) -> None:
        """Make the projects, then keep in step: what came before the hook is found by the first step."""
        self.link()
        self.hook()
        super().start()

    def held(self) -> dict[str, dict[str, tuple[str, str, bool]]]:
        """Project → what it holds."""
        return {one.project: self.service.project(one.project).held() for one in self.questions}

    def show(self, items: Iterable[tuple[str, Record]]) -> dict[str, list[Event]]:
        """What there is to see of items, where it is new, as events of every project."""
        events: dict[str, list[Event]] = {one.project: [] for one in self.questions}
        for item, fields in items:
            if self._shown.get(item) != fields:
                self._shown[item] = fields
                for one in self.questions:
                    events[one.project].append(Event("item", item, item, data=self.seen(one, fields)))
        return events

    def seen(self, question: Question, fields: Record) -> Record:
        """What of an item is shown to whoever answers a question."""
        return fields

    def prefix(self, question: Question) -> str:
        """How the fields about a question begin."""
        return FIELD if len(self.questions) == 1 else f"{FIELD}{question.name}_"

    def answers(self) -> Iterator[tuple[Question, Record, Record]]:
        """Question, answer, and how the item stands (`standing`), for all that has a label."""
        for one in self.questions:
            offset, total = 0, 1
            while offset < total:
                page = self.service.project(one.project).items(order="name", offset=offset, limit=ROWS_AT_ONCE)
                yield from ((one, row, standing(row)) for row in page["items"] if row["label"] is not None)
                offset, total = offset + ROWS_AT_ONCE, page["total"]


def standing(row: Record) -> Record:
    """How an item stands on one question; agreement is the share of votes for the label."""
    label, votes = row["label"], row["votes"]
    if isinstance(label, list):
        parts = [f"{one['label']} {one['start']}-{one['end']}" if isinstance(one, dict) else one for one in label]
        label, name = ", ".join(parts), set_name(parts)
    else:
        name = str(label)
    found = {"label": label, "status": row["status"]}
    if row["confidence"] is not None:
        found["confidence"] = round(float(row["confidence"]), 3)
    if name in votes:
        found["agreement"] = round(votes[name] / sum(votes.values()), 3)
    return found


def difference(want: Record, there: Record) -> float:
    """How much fields differ from what they should say: 2 where they are others, or differ in more than numbers."""
    if want.keys() != there.keys():
        return 2.0
    pairs = [(want[key], there[key]) for key in want]
    if any(new != old for new, old in pairs if not (isinstance(new, float) and isinstance(old, float))):
        return 2.0
    return max((abs(new - old) for new, old in pairs if isinstance(new, float)), default=0.0)
