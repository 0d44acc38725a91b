"""GOLD: a file of known labels, and the options that say how to read it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dissensus.cli import show
from dissensus.exceptions import DissensusError

if TYPE_CHECKING:
    from dissensus.common.types import IntArray
    from dissensus.table.annotations import Annotations

GoldFile = Annotated[
    Path | None,
    typer.Option("--gold", metavar="GOLD", help="Known labels, to measure accuracy; the method never sees them."),
]
GoldItem = Annotated[str | None, typer.Option("--gold-item", metavar="COLUMN", help="GOLD's column of items.")]
GoldLabel = Annotated[str | None, typer.Option("--gold-label", metavar="COLUMN", help="GOLD's column of labels.")]


def read(path: Path, table: Annotations, item: str | None, label: str | None) -> IntArray:
    """(I,) class codes, −1 where unknown."""
    from dissensus.table.io import read_gold

    with _reading(path):
        return read_gold(path, table, item, label)


def columns(path: Path, item: str | None, label: str | None) -> tuple[Any, Any]:
    """The columns of items and labels, for a table whose items are not all in one place."""
    from dissensus.table.io import gold_columns

    with _reading(path):
        return gold_columns(path, item, label)


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    try:
        with show.waiting(f"reading {path}"):
            yield
    except DissensusError as error:  # its columns have options of their own
        advice = (
            str(error).replace("item=<column>", "--gold-item COLUMN").replace("label=<column>", "--gold-label COLUMN")
        )
        raise type(error)(advice) from error.__cause__
