"""What a person sees: plain tables on stdout, a bar on stderr. Text from data is shown as it is, never as markup."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from dissensus.common.progress import clean as clean
from dissensus.common.progress import console as console
from dissensus.common.progress import waiting as waiting

if TYPE_CHECKING:
    from rich.table import Table

LONGEST = 40  # characters of a name


def name(value: Any) -> str:
    """A name from the data, cleaned and cut."""
    text = clean(value)
    return text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"


def path(value: Path) -> str:
    """A path as JSON can hold it; bytes that are no UTF-8 become question marks."""
    return os.fsencode(value).decode("utf-8", "replace")


def bar(share: float, width: int = 20) -> str:
    """A share as a little bar."""
    return "█" * round(share * width)


def percent(share: float) -> str:
    """A share for people."""
    return f"{100 * share:.1f} %"


def grid(title: str | None = None, *columns: str, numbers: tuple[str, ...] = ()) -> Table:
    """An empty table; the columns in `numbers` align to the right."""
    from rich import box
    from rich.table import Table

    table = Table(title=title, title_justify="left", title_style="bold", box=box.SIMPLE, show_header=bool(columns))
    for column in columns:
        right = column in numbers
        table.add_column(column, justify="right" if right else "left", no_wrap=right, overflow="fold")
    return table


def json(value: Any) -> None:
    """One JSON object on stdout, in UTF-8 whatever the terminal's encoding is."""
    from dissensus.table.io.jsonl import dumps

    typer.echo(dumps(value, indent=2).encode())
