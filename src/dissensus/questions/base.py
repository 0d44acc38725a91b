"""Define questions about a table: each question declares its options, facts, findings and frame once.

    @questions.register("overlap", summary="How many items did each pair of annotators label?")
    class Overlap(Question):
        least: int = param(2, "minimum number of items that a pair has in common", low=1)

        def compute(self, table): ...            # returns the facts, a frozen dataclass
        def findings(self, facts): ...           # returns messages and tables

A registered question is available through `ask` in Python, as a command with `--json` and `-o`, and as an HTTP
endpoint. A question that is registered with a `title` and a `place` is also a section of the report. `compute` declares
its inputs as keywords: a fitted `model`, a `method` to be fitted, `gold` classes (I,), a frame with metadata of the
`annotators`, and `progress`, a function that is called with a description of the current step, the number of steps done
and the total number of steps.
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

ProgressCallback = Callable[[str, int | None, int | None], None]
INPUT_NAMES = ("model", "method", "gold", "annotators", "progress")


@dataclass(frozen=True)
class Table:
    """A table of facts with text cells; columns in `numbers` are right-aligned, columns in `unbroken` never wrap."""

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    title: str = ""
    numbers: Sequence[str] = ()
    unbroken: Sequence[str] = ()
    header: bool = True


@dataclass(frozen=True)
class ShareBars:
    """Shares by name, which are shown as bars in descending order."""

    columns: tuple[str, str]
    shares: Mapping[str, float]


@dataclass(frozen=True)
class MessageList:
    """A list of messages with a heading."""

    heading: str
    messages: Sequence[Message]


Finding = Message | Table | ShareBars | MessageList


def fact(text: str, **more: Any) -> Any:
    """Declare a field of the facts with the text that documents it."""
    return dataclasses.field(metadata={"text": text}, **more)


class Question(Parameters, ABC):
    """A question about a table of annotations."""

    kinds: ClassVar[tuple[str, ...]] = ("classes", "graded")  # label types
    row_noun: ClassVar[str] = ""  # plural noun for the rows of the frame, such as "annotators"; "" without a frame
    json_options: ClassVar[tuple[str, ...]] = ()  # options that are included in the output of `--json`
    progress_text: ClassVar[str] = (
        "looking at"  # text that is shown before the name of the file while the question is computed
    )
    option_names: ClassVar[
        Mapping[str, tuple[str, ...]]
    ] = {}  # maps each option to its other names on the command line

    @abstractmethod
    def compute(self, table: Annotations, *args: Any, **inputs: Any) -> Any:
        """Return the facts: a frozen dataclass whose fields are declared with `fact`."""

    @abstractmethod
    def findings(self, facts: Any) -> Iterable[Finding]:
        """Return the findings that follow from the facts, the most important first."""

    def to_json(self, facts: Any) -> dict[str, Any]:
        """Return the facts under the names that they have in JSON."""
        return {field.name: getattr(facts, field.name) for field in dataclasses.fields(facts)}

    def to_frame(self, facts: Any) -> Any:
        """Return a frame, columns by name or rows as mappings, with one row for each member of `row_noun`."""
        return facts.to_frame()

    def prepare(self, table: Annotations) -> None:
        """Check the options against the table, before a model is fitted."""

    def warnings(self, facts: Any) -> Iterable[Message | str]:
        """Return warnings, for example about skipped items."""
        return ()

    def ask(self, table: Annotations, *, model: str | Aggregator | None = None, **inputs: Any) -> Any:
        """Return the facts about a table; inputs that are not parameters of `compute` are ignored.

        `model` is a fitted model, an unfitted model or the name of a method. If it is None, the default method is used.
        """
        from dissensus.models.base import default_method, methods
        from dissensus.table.kinds import check_kind

        self.check_parameters()
        entry = questions.find_entry(type(self))  # the class may be a combination of questions that is not registered
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
        """Return the names of the inputs that are parameters of `compute`."""
        return tuple(name for name in INPUT_NAMES if name in inspect.signature(cls.compute).parameters)

    @classmethod
    def fact_texts(cls) -> dict[str, str]:
        """Return the documentation of the declared facts by name; {} if `to_json` builds them from another result."""
        try:
            facts = get_type_hints(cls.compute).get("return")
        except NameError:  # the return type is imported for type checks only
            return {}
        declared = dataclasses.fields(facts) if dataclasses.is_dataclass(facts) else ()
        return {field.name: field.metadata["text"] for field in declared if "text" in field.metadata}


questions: Registry[type[Question]] = Registry(
    "question", "--help", "dissensus.questions.definitions", "dissensus.questions"
)
"""Registry of the questions. `summary` is the question as a sentence; `title` and `place` add a report section."""


def ask(question: str, table: Any, **options: Any) -> Any:
    """Answer the question with this name and return its facts; `options` are its options and inputs.

    >>> from dissensus import ask, simulate
    >>> table = simulate.simulate(60, 8, 2, seed=1).annotations
    >>> ask("describe", table)["items"], ask("redundancy", table, model="majority-vote", seeds=1).n_classes
    (60, 2)
    """
    kind = questions[question]
    inputs = {name: options.pop(name) for name in INPUT_NAMES if name in options and name not in kind.declared()}
    return kind(**options).ask(table, **inputs)


def render_messages(findings: Iterable[Finding], face: Face = PYTHON_FACE) -> Iterator[str]:
    """Yield each message among the findings as text, in the wording of an interface."""
    for finding in findings:
        if isinstance(finding, MessageList):
            yield from render_messages(finding.messages, face)
        elif isinstance(finding, Message):
            yield finding.render(face)
