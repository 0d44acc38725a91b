"""Options that several commands share, each declared once.

A parameter of a command whose type is a group of options, such as `Source`, stands for all fields of the group (see
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
    """Declare an option of a command, named after its parameter unless names are given; `...` is no default."""
    return typer.Option(default, *names, help=text, rich_help_panel=panel, **more)


def method_names() -> list[str]:
    """Return the names of methods for completion, from files and entry points: importing them would take a second."""
    from importlib.metadata import entry_points

    folder = Path(__file__).parent.parent / "models" / "methods"
    ours = [path.stem.replace("_", "-") for path in folder.glob("[a-z]*.py")]
    return sorted([*ours, *entry_points(group="dissensus.methods").names])


JSON = option(False, "Print one JSON object instead.", "--json")
QUIET = option(False, "Print no text and no progress; --json, warnings and errors stay.", "--quiet", "-q")
SEED = option(None, "Seed of everything random; 0 by default.", min=0)
DEVICE = option(None, "auto, cpu, cuda, cuda:1, mps.", show_default="auto")
OUTPUT_FOLDER = option(
    None, "Write the results here; by default they are only shown.", "--output", "-o", metavar="FOLDER"
)
OUTPUT_FILE = option(
    None, "Write a .csv, .parquet or .jsonl file; by default nothing is written.", "--output", "-o", metavar="OUT"
)
METHOD = option(
    None, "`dissensus list methods` lists them.", "--method", "-m", metavar="NAME", show_default=DEFAULT_METHOD,
    autocompletion=method_names,
)  # fmt: skip
TOOL = option(
    None,
    "Write the labels for a tool too, as to-TOOL: label-studio, argilla, doccano, prodigy, inspect, promptfoo, "
    "conll, csv, jsonl or xlsx. An export of the same tool keeps everything in it.",
    metavar="TOOL",
    autocompletion=lambda: list(import_module("dissensus.table.io.writers").writers),
)
SETTINGS = option(None, "Any parameter of the method, such as smoothing=0.5; repeatable.", "--set", metavar="KEY=VALUE")
ANNOTATORS = option(None, "A table about the annotators: column annotator, and their groups.", metavar="FILE")
ITEMS = option(None, "A table about the items: column item, texts, pictures as data URIs, others.", metavar="FILE")


def refuse_together(other: str, *names: str) -> None:
    """Raise OptionsConflict if the user set one of these options, which cannot be used with `other`."""
    for name in select_set_by_user(names):
        raise OptionsConflict(option=ParameterName(name), other=other)


def refuse_without(needed: str, *names: str) -> None:
    """Raise OptionNeeds if the user set one of these options, which cannot be used without `needed`."""
    for name in select_set_by_user(names):
        raise OptionNeeds(option=ParameterName(name), needed=needed)


def select_set_by_user(names: Iterable[str]) -> list[str]:
    """Return the options among `names` that the user set, rather than left at their default."""
    return [name for name in names if name in show.current_invocation.get().set_by_user]


@dataclass(frozen=True)
class InputFiles:
    """Files of the inputs of a trained model, and their columns."""

    items: Path | None = ITEMS
    text: str | None = option(None, "ITEMS' column of texts (text, sentence, …).", metavar="COLUMN")
    pair: str | None = option(None, "ITEMS' column of a second text, such as a target.", metavar="COLUMN")
    position: str | None = option(None, "ITEMS' column of the position of a token in its text.", metavar="COLUMN")
    features: Path | None = option(None, ".npz with arrays item and x, or a table: item and numbers.", metavar="FILE")
    images: Path | None = option(None, ".npz with arrays item and x (n, H, W[, C]).", metavar="FILE")

    @property
    def names_table_column(self) -> bool:
        """True if a column of a table is named, so that the inputs are in a table."""
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
