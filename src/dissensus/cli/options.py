"""Options that several commands share, each declared once.

A parameter whose type is a group of options, such as `Source` or `Gold`, stands for all fields of the group:

    @with_groups
    def compare(*, gold: Gold, json: Json = False, source: Source) -> None: ...
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, get_type_hints

import typer

from dissensus.cli import show
from dissensus.cli.errors import about
from dissensus.exceptions import BadParameter, DissensusError

if TYPE_CHECKING:
    from dissensus.common.types import IntArray
    from dissensus.models.base import Aggregator
    from dissensus.table.annotations import Annotations
    from dissensus.table.questions import Questions

T = TypeVar("T")
DEFAULT_METHOD = "dawid-skene"


class TableFormat(StrEnum):
    """Formats of the result tables."""

    csv = "csv"
    parquet = "parquet"
    jsonl = "jsonl"


def _file(option: str, metavar: str, text: str) -> Any:
    return typer.Option(option, metavar=metavar, help=text)


def _output(metavar: str, text: str) -> Any:
    return typer.Option("--output", "-o", metavar=metavar, help=text)


Json = Annotated[bool, typer.Option("--json", help="Print one JSON object instead.")]
Seed = Annotated[int | None, typer.Option("--seed", min=0, help="Of everything random; 0 where left out.")]
OutputFolder = Annotated[Path | None, _output("FOLDER", "Write the results here; left out, they are only shown.")]
OutputFile = Annotated[
    Path | None, _output("OUT", "Write a .csv, .parquet or .jsonl file; left out, the first rows are shown.")
]
MethodName = Annotated[
    str | None,
    typer.Option("--method", "-m", metavar="NAME", show_default=DEFAULT_METHOD, help="`dissensus methods` lists them."),
]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Any keyword of the method, such as smoothing=0.5; repeatable."),
]
Known = Annotated[Path | None, _file("--known", "GOLD", "Known labels of some items, to learn from.")]
ItemsFile = Annotated[Path | None, _file("--items", "ITEMS", "A table about the items: column item, texts, others.")]
Device = Annotated[str | None, typer.Option("--device", show_default="auto", help="auto, cpu, cuda, cuda:1, mps.")]


@dataclass(frozen=True)
class Gold:
    """A file of known labels, and how to read it."""

    gold: Annotated[
        Path | None, _file("--gold", "GOLD", "Known labels, to measure accuracy; the method never sees them.")
    ] = None
    gold_item: Annotated[str | None, typer.Option("--gold-item", metavar="COLUMN", help="GOLD's column of items.")] = (
        None
    )
    gold_label: Annotated[
        str | None, typer.Option("--gold-label", metavar="COLUMN", help="GOLD's column of labels.")
    ] = None

    def read(self, table: Annotations) -> IntArray | None:
        """(I,) class codes, −1 where unknown; None where no file is named."""
        return None if self.gold is None else self.read_file(self.gold, table)

    def read_file(self, path: Path, table: Annotations) -> IntArray:
        """(I,) class codes from another file with the same columns."""
        from dissensus.table.io import read_gold

        with self._reading(path):
            return read_gold(path, table, self.gold_item, self.gold_label)

    def columns(self) -> tuple[Any, Any] | None:
        """The columns of items and labels, for a table whose items are not all in memory."""
        from dissensus.table.io import gold_columns

        if self.gold is None:
            return None
        with self._reading(self.gold):
            return gold_columns(self.gold, self.gold_item, self.gold_label)

    @contextmanager
    def _reading(self, path: Path) -> Iterator[None]:
        try:
            with show.waiting(f"reading {path}"):
                yield
        except DissensusError as error:  # its columns have options of their own
            advice = str(error).replace("item=<column>", "--gold-item COLUMN")
            raise type(error)(advice.replace("label=<column>", "--gold-label COLUMN")) from error.__cause__


def _reading_file(*names: str, metavar: str, text: str) -> Any:
    return typer.Option(*names, metavar=metavar, help=text, rich_help_panel="Reading FILE")


def _column(option: str, text: str) -> Any:
    return _reading_file(option, metavar="COLUMN", text=f"Column of the {text}.")


@dataclass(frozen=True)
class Source:
    """FILE and how to read it."""

    named: Annotated[
        str,
        typer.Argument(
            metavar="FILE",
            show_default=False,
            help="One row per annotation: CSV, TSV (also .gz), Parquet, Arrow, JSON lines, an export of Label Studio, "
            "doccano or Prodigy.",
        ),
    ]
    item: Annotated[str | None, _column("--item", "items (found where called item, task, id, …)")] = None
    annotator: Annotated[str | None, _column("--annotator", "annotators (annotator, worker, rater, …)")] = None
    label: Annotated[str | None, _column("--label", "labels (label, answer, annotation)")] = None
    question: Annotated[str | None, _column("--question", "questions, each a table of its own")] = None
    weight: Annotated[str | None, _column("--weight", "weights of the rows")] = None
    classes: Annotated[
        str | None,
        _reading_file("--classes", metavar="A,B,…", text="All classes, in this order; a label outside is an error."),
    ] = None
    abstain: Annotated[
        list[str] | None,
        _reading_file(
            "--abstain", metavar="LABEL", text='An answer that is no class ("" for an empty one); repeatable.'
        ),
    ] = None
    input_format: Annotated[
        str | None, _reading_file("--input-format", metavar="FORMAT", text="FILE's format, where it is not seen.")
    ] = None

    def read(self) -> Annotations | Questions:
        """The table, or one per question."""
        from dissensus.table.io import read

        columns = {role: getattr(self, role) for role in ("item", "annotator", "label", "question", "weight")}
        with show.waiting(f"reading {self.file}"):
            return read(
                self.file,
                format=self.input_format,
                classes=self.class_names(),
                abstain=[answer or None for answer in self.abstain or ()],
                **columns,
            )

    def read_one(self, refusal: str) -> Annotations:
        """The table; BadParameter with a sentence where there are several questions."""
        tables = self.read()
        if isinstance(tables, Mapping):
            raise BadParameter(refusal.format(n=len(tables)))
        return tables

    @property
    def file(self) -> Path:
        """What is named, as a path; an address such as s3://bucket is none, and keeps its slashes in `named`."""
        return Path(self.named)

    def class_names(self) -> list[str] | None:
        """What --classes declares."""
        return None if self.classes is None else [part.strip() for part in self.classes.split(",")]

    def title(self, question: str | None) -> str:
        """What a result is about."""
        return str(self.file) if question is None else f"{self.file}, question {show.name(question)}"


def answer_each(tables: Annotations | Questions, answer: Callable[[Annotations, str | None], T]) -> dict[str | None, T]:
    """Question → answer, or None → answer where there is one table; errors and warnings name the question."""
    if not isinstance(tables, Mapping):
        return {None: answer(tables, None)}
    found: dict[str | None, T] = {}
    for question, table in tables.items():
        with about(f"question {show.name(question)!r}"):
            found[question] = answer(table, question)
    return found


def one_or_each(answers: dict[str | None, dict[str, Any]]) -> dict[str, Any]:
    """The facts of `answer_each` as JSON has them."""
    return answers.get(None, {"questions": answers})


def new_model(method: str, settings: list[str] | None, question: str | None = None) -> Aggregator:
    """A method by name, with KEY=VALUE settings; a wrong name or keyword is an error."""
    from dissensus.cli.keywords import parse
    from dissensus.models.base import methods

    return methods[method](**parse(settings or [], methods[method], method))


def with_groups(command: Callable[..., None]) -> Callable[..., None]:
    """Put the fields of a group of options in place of a parameter whose type is that group."""
    own = inspect.signature(command, eval_str=True).parameters.values()
    groups: dict[str, Any] = {one.name: one.annotation for one in own if dataclasses.is_dataclass(one.annotation)}
    has_format = any(one.name == "format_" for one in own)
    expanded: list[inspect.Parameter] = []
    for one in own:
        expanded += _options_of(one.annotation, has_format) if one.name in groups else [one]

    @functools.wraps(command)
    def run(**given: Any) -> None:
        for name, group in groups.items():
            given[name] = group(**{field.name: given.pop(field.name) for field in dataclasses.fields(group)})
        command(**given)

    # typer reads one of these two, by its version
    run.__signature__ = inspect.Signature(expanded)  # type: ignore[attr-defined]
    run.__annotations__ = {one.name: one.annotation for one in expanded}
    del run.__dict__["__wrapped__"]  # else it would look through to the command
    return run


def _options_of(group: Any, has_format: bool) -> Iterator[inspect.Parameter]:
    """The fields as parameters; --format means --input-format where a command writes no tables."""
    hints = get_type_hints(group, include_extras=True)
    for field in dataclasses.fields(group):
        hint = hints[field.name]
        if field.name == "input_format" and not has_format:
            option = hint.__metadata__[0]
            names = ("--format", *option.param_decls)
            hint = Annotated[str | None, _reading_file(*names, metavar=option.metavar, text=option.help)]
        default = inspect.Parameter.empty if field.default is dataclasses.MISSING else field.default
        yield inspect.Parameter(field.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=hint)
