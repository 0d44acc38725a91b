"""Define questions about a table: options, facts, findings and frame are declared once.

    @questions.register("overlap", summary="How many items did each pair of annotators label?")
    class Overlap(Question):
        least: int = param(2, "items that a pair shares at least", low=1)

        def compute(self, table): ...            # → facts, a frozen dataclass
        def findings(self, facts): ...           # → messages and tables

The declaration gives `ask` in Python, a command with `--json` and `-o`, an HTTP endpoint and, for a question registered
with a `title` and a `place`, a section of the report. The inputs are the keywords of `compute`: a fitted `model`, a
`method` to be fitted, `gold` classes (I,), a frame of metadata of the `annotators`, and `progress`, a function of what
is being done, the steps done and the steps in all.
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
    """A table of facts to show: cells are text, columns in `numbers` align to the right, `unbroken` ones never wrap."""

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    title: str = ""
    numbers: Sequence[str] = ()
    unbroken: Sequence[str] = ()
    header: bool = True


@dataclass(frozen=True)
class ShareBars:
    """Shares by name, shown as bars, the largest first."""

    columns: tuple[str, str]
    shares: Mapping[str, float]


@dataclass(frozen=True)
class MessageList:
    """Messages below a heading."""

    heading: str
    messages: Sequence[Message]


Finding = Message | Table | ShareBars | MessageList


def fact(text: str, **more: Any) -> Any:
    """Declare a field of facts, with the line that documents it."""
    return dataclasses.field(metadata={"text": text}, **more)


class Question(Parameters, ABC):
    """A question about a table of annotations."""

    kinds: ClassVar[tuple[str, ...]] = ("classes", "graded")  # label types
    row_noun: ClassVar[str] = ""  # plural noun for the rows of the frame, such as "annotators"; "" without a frame
    json_options: ClassVar[tuple[str, ...]] = ()  # options that `--json` repeats
    progress_text: ClassVar[str] = "looking at"  # shown as progress, before the name of the file
    option_names: ClassVar[Mapping[str, tuple[str, ...]]] = {}  # option → other names on the command line

    @abstractmethod
    def compute(self, table: Annotations, *args: Any, **inputs: Any) -> Any:
        """Return the facts: a frozen dataclass whose fields are declared with `fact`."""

    @abstractmethod
    def findings(self, facts: Any) -> Iterable[Finding]:
        """Return the findings that follow from the facts, the most important first."""

    def to_json(self, facts: Any) -> dict[str, Any]:
        """Return the facts by their names in JSON."""
        return {field.name: getattr(facts, field.name) for field in dataclasses.fields(facts)}

    def to_frame(self, facts: Any) -> Any:
        """Return columns by name, rows as mappings, or a frame, with one row for each of `row_noun`."""
        return facts.to_frame()

    def prepare(self, table: Annotations) -> None:
        """Check the options against the table, before a model is fitted."""

    def warnings(self, facts: Any) -> Iterable[Message | str]:
        """Return warnings, such as what was skipped."""
        return ()

    def ask(self, table: Annotations, *, model: str | Aggregator | None = None, **inputs: Any) -> Any:
        """Return the facts about a table; inputs that `compute` does not take are ignored.

        `model` is a fitted model, the name of a method, or a model to be fitted; by default the default method.
        """
        from dissensus.models.base import default_method, methods
        from dissensus.table.kinds import check_kind

        self.check_parameters()
        entry = questions.find_entry(type(self))  # a command may combine questions without registering the result
        check_kind(table.kind, self.kinds, type(self).__name__ if entry is None else entry.name)
        self.prepare(table)
        required = self.inputs()
        chosen: Any = (
            methods[model or default_method(table.kind)]() if model is None or isinstance(model, str) else model
        )
        if "model" in required and getattr(chosen, "items_", None) is None:
            chosen.fit(table)
        values = {"progress": lambda *_: None} | inputs | {"model": chosen, "method": chosen}
        return self.compute(table, **{name: values.get(name) for name in required})

    @classmethod
    def inputs(cls) -> tuple[str, ...]:
        """Return the inputs that `compute` takes."""
        return tuple(name for name in INPUTS if name in inspect.signature(cls.compute).parameters)

    @classmethod
    def fact_texts(cls) -> dict[str, str]:
        """Return the documentation of the declared facts by name; {} if `to_json` makes them from another result."""
        try:
            facts = get_type_hints(cls.compute).get("return")
        except NameError:  # the type is imported for type checks only
            return {}
        declared = dataclasses.fields(facts) if dataclasses.is_dataclass(facts) else ()
        return {field.name: field.metadata["text"] for field in declared if "text" in field.metadata}


questions: Registry[type[Question]] = Registry(
    "question", "--help", "dissensus.questions.definitions", "dissensus.questions"
)
"""Questions by name. `summary` is the question as a sentence; `title` and `place` add a section of the report."""


def ask(question: str, table: Any, **options: Any) -> Any:
    """Answer a question by name, with its options and inputs; return its facts.

    >>> from dissensus import ask, simulate
    >>> table = simulate.simulate(60, 8, 2, seed=1).annotations
    >>> ask("describe", table)["items"], ask("redundancy", table, model="majority-vote", seeds=1).n_classes
    (60, 2)
    """
    kind = questions[question]
    inputs = {name: options.pop(name) for name in INPUTS if name in options and name not in kind.declared()}
    return kind(**options).ask(table, **inputs)


def render_messages(findings: Iterable[Finding], face: Face = PYTHON_FACE) -> Iterator[str]:
    """Yield the messages among findings in the words of an interface."""
    for finding in findings:
        if isinstance(finding, MessageList):
            yield from render_messages(finding.messages, face)
        elif isinstance(finding, Message):
            yield finding.render(face)
