"""The table that most commands read: FILE and the options that say how, declared once.

@takes_table()
def compare(source: Source, *, gold: …) -> None:
    tables = source.read()
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

from dissensus.cli import show

if TYPE_CHECKING:
    from dissensus.table.annotations import Annotations
    from dissensus.table.questions import Questions

PANEL = "Reading FILE"


def _column(option: str, other: str) -> Any:
    return typer.Option(option, metavar="COLUMN", help=f"Column of the {other}.", rich_help_panel=PANEL)


@dataclass(frozen=True)
class Source:
    """FILE and how to read it; every field is an argument or option of the command."""

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
        typer.Option(
            metavar="A,B,…", help="All classes, in this order; a label outside is an error.", rich_help_panel=PANEL
        ),
    ] = None
    abstain: Annotated[
        list[str] | None,
        typer.Option(
            metavar="LABEL", help='An answer that is no class ("" for an empty one); repeatable.', rich_help_panel=PANEL
        ),
    ] = None
    input_format: Annotated[
        str | None,
        typer.Option(
            "--input-format", metavar="FORMAT", help="FILE's format, where it is not seen.", rich_help_panel=PANEL
        ),
    ] = None

    def read(self) -> Annotations | Questions:
        """The table, or one per question."""
        from dissensus.table.io import read

        with show.waiting(f"reading {self.file}"):
            return read(
                self.file,
                format=self.input_format,
                item=self.item,
                annotator=self.annotator,
                label=self.label,
                question=self.question,
                weight=self.weight,
                classes=self.class_names(),
                abstain=[answer or None for answer in self.abstain or ()],
            )

    @property
    def file(self) -> Path:
        """What is named, as a path; an address such as s3://bucket is none, and keeps its slashes in `named`."""
        return Path(self.named)

    def class_names(self) -> list[str] | None:
        """What --classes declares."""
        return None if self.classes is None else [part.strip() for part in self.classes.split(",")]


def takes_table(*format_options: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Put the fields of `Source` in place of a command's first parameter.

    `format_options` are further names of --input-format, where a command has no output that could be meant.
    """

    def expand(command: Callable[..., None]) -> Callable[..., None]:
        hints = get_type_hints(Source, include_extras=True)
        if format_options:
            option = hints["input_format"].__metadata__[0]
            names = (*format_options, *option.param_decls)
            renamed = typer.Option(*names, metavar=option.metavar, help=option.help, rich_help_panel=PANEL)
            hints["input_format"] = Annotated[str | None, renamed]
        fields = dataclasses.fields(Source)
        of_source = [
            inspect.Parameter(
                field.name,
                inspect.Parameter.KEYWORD_ONLY,
                default=inspect.Parameter.empty if field.default is dataclasses.MISSING else field.default,
                annotation=hints[field.name],
            )
            for field in fields
        ]
        own = list(inspect.signature(command, eval_str=True).parameters.values())[1:]

        @functools.wraps(command)
        def run(**given: Any) -> None:
            command(Source(**{field.name: given.pop(field.name) for field in fields}), **given)

        # typer reads one of these two, by its version
        run.__signature__ = inspect.Signature([of_source[0], *own, *of_source[1:]])  # type: ignore[attr-defined]
        run.__annotations__ = {parameter.name: parameter.annotation for parameter in [*of_source, *own]}
        del run.__dict__["__wrapped__"]  # else it would look through to the command
        return run

    return expand
