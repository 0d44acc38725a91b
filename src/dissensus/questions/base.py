"""A question about a table: its options, facts, findings and frame, declared once.

    @questions.register("overlap", summary="How many items did each pair of annotators label?")
    class Overlap(Question):
        least: int = param(2, "items that a pair shares at least", low=1)

        def compute(self, table): ...            # → facts, a frozen dataclass
        def findings(self, facts): ...           # → messages and tables

`ask` in Python, the command with `--json` and `-o`, the HTTP endpoint and, for a question registered with a `title` and
a `place`, a section of the report follow from the declaration. The inputs are the keywords of `compute`: a fitted
`model`, a `method` to be fitted, `gold` classes (I,), a frame about the `annotators` and `progress`, which is called
with what is being done, the steps done and the steps in all.
"""

from __future__ import annotations

import dataclasses
import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, get_type_hints

from dissensus.common.parameters import Parameters
from dissensus.common.registry import Registry
from dissensus.messages import PYTHON_FACE, Face, Message

if TYPE_CHECKING:
    from dissensus.models.base import Aggregator
    from dissensus.table.annotations import Annotations

Progress = Callable[[str, int | None, int | None], None]
INPUTS = ("model", "method", "gold", "annotators", "progress")


@dataclass(frozen=True)
class Table:
    """A table that shows facts: cells are text, columns in `numbers` align to the right, `unbroken` ones never wrap."""

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    title: str = ""
    numbers: Sequence[str] = ()
    unbroken: Sequence[str] = ()
    header: bool = True


@dataclass(frozen=True)
class ShareBars:
    """Shares of named things, shown as bars, the largest first."""

    columns: tuple[str, str]
    shares: Mapping[str, float]


@dataclass(frozen=True)
class MessageList:
    """Messages listed below a heading."""

    heading: str
    messages: Sequence[Message]


Finding = Message | Table | ShareBars | MessageList


def fact(text: str, **more: Any) -> Any:
    """Declare a field of facts with the line that documents it."""
    return dataclasses.field(metadata={"text": text}, **more)


class Question(Parameters, ABC):
    """A question about a table of annotations."""

    kinds: ClassVar[tuple[str, ...]] = ("classes", "graded")  # label types
    row_noun: ClassVar[str] = ""  # what the rows of the frame are, such as "annotators"; "" without a frame
    json_options: ClassVar[tuple[str, ...]] = ()  # options that `--json` repeats
    progress_text: ClassVar[str] = "looking at"  # what progress says before the name of the file
    option_names: ClassVar[Mapping[str, tuple[str, ...]]] = {}  # option → its names on the command line, if not its own

    @abstractmethod
    def compute(self, table: Annotations, *args: Any, **inputs: Any) -> Any:
        """Return the facts: a frozen dataclass, its fields declared with `fact`."""

    @abstractmethod
    def findings(self, facts: Any) -> Iterable[Finding]:
        """Return what the facts mean, the most important first."""

    def to_json(self, facts: Any) -> dict[str, Any]:
        """Return the facts under the names that they have in JSON."""
        return {field.name: getattr(facts, field.name) for field in dataclasses.fields(facts)}

    def to_frame(self, facts: Any) -> Any:
        """Return columns by name, rows as mappings, or a frame, with one row per thing that `rows` names."""
        return facts.to_frame()

    def prepare(self, table: Annotations) -> None:
        """Check the options against the table, before anything is fitted."""

    def warnings(self, facts: Any) -> Iterable[Message | str]:
        """Return what a reader must know besides, such as what was skipped."""
        return ()

    def ask(self, table: Annotations, *, model: str | Aggregator | None = None, **inputs: Any) -> Any:
        """Return the facts about a table; inputs that `compute` does not take are ignored.

        `model` is a fitted model, a method by name or a model to be fitted; the default method without it.
        """
        from dissensus.models.base import default_method, methods
        from dissensus.table.kinds import check_kind

        self.check_parameters()
        entry = questions.entry_of(type(self))  # a command may combine questions without registering the result
        check_kind(table.kind, self.kinds, type(self).__name__ if entry is None else entry.name)
        self.prepare(table)
        needed = self.inputs()
        chosen: Any = (
            methods[model or default_method(table.kind)]() if model is None or isinstance(model, str) else model
        )
        if "model" in needed and getattr(chosen, "items_", None) is None:
            chosen.fit(table)
        given = {"progress": lambda *_: None} | inputs | {"model": chosen, "method": chosen}
        return self.compute(table, **{name: given.get(name) for name in needed})

    @classmethod
    def inputs(cls) -> tuple[str, ...]:
        """Return the inputs that `compute` takes."""
        return tuple(name for name in INPUTS if name in inspect.signature(cls.compute).parameters)

    @classmethod
    def fact_texts(cls) -> dict[str, str]:
        """Return name → text of the declared facts, in their order; {} if `plain` makes them from another result."""
        try:
            facts = get_type_hints(cls.compute).get("return")
        except NameError:  # a type that is imported for type checks only
            return {}
        declared = dataclasses.fields(facts) if dataclasses.is_dataclass(facts) else ()
        return {field.name: field.metadata["text"] for field in declared if "text" in field.metadata}


questions: Registry[type[Question]] = Registry(
    "question", "--help", "dissensus.questions.definitions", "dissensus.questions"
)
"""Questions by name; `summary` is the question in words, `title` and `place` make it a section of the report."""


def ask(question: str, table: Any, **given: Any) -> Any:
    """Ask a question by name, with its options and inputs; return its facts.

    >>> from dissensus import ask, simulate
    >>> table = simulate.simulate(60, 8, 2, seed=1).annotations
    >>> ask("describe", table)["items"], ask("redundancy", table, model="majority-vote", seeds=1).n_classes
    (60, 2)
    """
    kind = questions[question]
    inputs = {name: given.pop(name) for name in INPUTS if name in given and name not in kind.declared()}
    return kind(**given).ask(table, **inputs)


def render_messages(findings: Iterable[Finding], face: Face = PYTHON_FACE) -> Iterator[str]:
    """Return the messages among findings as an interface words them."""
    for one in findings:
        if isinstance(one, MessageList):
            yield from render_messages(one.messages, face)
        elif isinstance(one, Message):
            yield one.render(face)
