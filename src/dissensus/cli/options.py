"""Options that several commands share, each declared once.

A parameter whose type is an option group, such as `Source`, adds all fields of the group as options of the command (see
`dissensus.cli.command`):

    def compare(*, gold: Gold, share: float = option(0.2, "…"), source: Source) -> None: ...
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import typer

from dissensus.cli import show
from dissensus.cli.exceptions import OptionNeeds, OptionsConflict
from dissensus.common.registry import DEFAULT_METHOD
from dissensus.messages import ParameterName

Engine = Literal["local", "disk", "torch", "spark"]


def option(default: Any, text: str, *names: str, panel: str | None = None, **more: Any) -> Any:
    """Declare an option of a command; the default `...` makes it required, and `names` replace the parameter's name."""
    return typer.Option(default, *names, help=text, rich_help_panel=panel, **more)


def method_names() -> list[str]:
    """Return the names of methods for completion, from files and entry points; importing the methods takes a second."""
    from importlib.metadata import entry_points

    folder = Path(__file__).parent.parent / "models" / "methods"
    ours = [path.stem.replace("_", "-") for path in folder.glob("[a-z]*.py")]
    return sorted([*ours, *entry_points(group="dissensus.methods").names])


JSON = option(False, "Print one JSON object instead.", "--json")
QUIET = option(False, "Print only the output of --json, warnings and errors.", "--quiet", "-q")
SEED = option(None, "Seed of all random numbers; 0 by default.", min=0)
DEVICE = option(None, "Device that runs the network: auto, cpu, cuda, cuda:1 or mps.", show_default="auto")
OUTPUT_FOLDER = option(
    None, "Write the results into this folder; by default they are only printed.", "--output", "-o", metavar="FOLDER"
)
OUTPUT_FILE = option(
    None,
    "Write the results to this .csv, .parquet or .jsonl file; by default they are only printed.",
    "--output",
    "-o",
    metavar="OUT",
)
METHOD = option(
    None, "Method that infers the labels; see `dissensus list methods`.", "--method", "-m", metavar="NAME",
    show_default=DEFAULT_METHOD,
    autocompletion=method_names,
)  # fmt: skip
TOOL = option(
    None,
    "Also write the labels as a file for a tool: label-studio, argilla, doccano, prodigy, inspect, promptfoo, "
    "conll, csv, jsonl or xlsx. If FILE is an export of this tool, everything in it is kept.",
    metavar="TOOL",
    autocompletion=lambda: list(import_module("dissensus.table.io.writers").writers),
)
SETTINGS = option(
    None, "Set a parameter of the method, such as smoothing=0.5; repeatable.", "--set", metavar="KEY=VALUE"
)
ANNOTATORS = option(
    None, "A table about the annotators: a column annotator, and columns with their groups.", metavar="FILE"
)
ITEMS = option(
    None,
    "A table about the items: a column item, and columns with texts, pictures as data URIs or other facts.",
    metavar="FILE",
)


def refuse_together(other: str, *names: str) -> None:
    """Raise OptionsConflict if the user set one of these options, which cannot be used with `other`."""
    for name in select_set_by_user(names):
        raise OptionsConflict(option=ParameterName(name), other_option=other)


def refuse_without(needed: str, *names: str) -> None:
    """Raise OptionNeeds if the user set one of these options, which cannot be used without `needed`."""
    for name in select_set_by_user(names):
        raise OptionNeeds(option=ParameterName(name), needed=needed)


def select_set_by_user(names: Iterable[str]) -> list[str]:
    """Return the options among `names` that the user set, rather than left at their default."""
    return [name for name in names if name in show.current_invocation.get().set_by_user]


@dataclass(frozen=True)
class InputFiles:
    """Files and columns with the inputs of a trained model."""

    items: Path | None = ITEMS
    text: str | None = option(
        None, "Column of ITEMS with the texts; by default text, sentence, question or prompt.", metavar="COLUMN"
    )
    pair: str | None = option(None, "Column of ITEMS with a second text, such as a target.", metavar="COLUMN")
    position: str | None = option(None, "Column of ITEMS with the position of a token in its text.", metavar="COLUMN")
    features: Path | None = option(None, ".npz with arrays item and x, or a table: item and numbers.", metavar="FILE")
    images: Path | None = option(None, ".npz with arrays item and x (n, H, W[, C]).", metavar="FILE")

    @property
    def names_table_column(self) -> bool:
        """Whether the options name a column, so that the inputs must be in a table."""
        return any((self.text, self.pair, self.position))


if TYPE_CHECKING:
    from dissensus.cli.settings import MethodOptions as MethodOptions
    from dissensus.cli.settings import new_model as new_model
    from dissensus.cli.source import NUMBER_COLUMNS as NUMBER_COLUMNS
    from dissensus.cli.source import Gold as Gold
    from dissensus.cli.source import Source as Source
    from dissensus.cli.source import SourceOfTables as SourceOfTables
    from dissensus.cli.source import Tables as Tables
    from dissensus.cli.source import answer_each as answer_each
    from dissensus.cli.source import find_gold_item_column as find_gold_item_column
