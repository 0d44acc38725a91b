"""What a person sees: plain tables on stdout, a bar on stderr. Text from data is shown as it is, never as markup."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from dissensus.common.progress import clean as clean
from dissensus.common.progress import console as console
from dissensus.common.progress import waiting as waiting

if TYPE_CHECKING:
    from rich.table import Table

MAX_NAME_LENGTH = 40  # characters
MAX_CLASSES_SHOWN = 20


def name(value: Any) -> str:
    """A name from the data, cleaned and cut."""
    text = clean(value)
    return text if len(text) <= MAX_NAME_LENGTH else text[: MAX_NAME_LENGTH - 1] + "…"


def path(value: Path) -> str:
    """A path as JSON can hold it; bytes that are no UTF-8 become question marks."""
    return os.fsencode(value).decode("utf-8", "replace")


def bar(share: float, width: int = 20) -> str:
    """A share as a little bar."""
    return "█" * round(share * width)


def percent(share: float) -> str:
    """A share for people."""
    return f"{100 * share:.1f} %"


def line(text: str) -> None:
    """One line, which only a terminal may break."""
    console().print(text, soft_wrap=True)


def grid(title: str | None = None, *columns: str, numbers: tuple[str, ...] = ()) -> Table:
    """An empty table; the columns in `numbers` align to the right."""
    from rich import box
    from rich.table import Table

    table = Table(title=title, title_justify="left", title_style="bold", box=box.SIMPLE, show_header=bool(columns))
    for column in columns:
        right = column in numbers
        table.add_column(column, justify="right" if right else "left", no_wrap=right, overflow="fold")
    return table


def label_counts(counts: Mapping[str, int], total: int, column: str = "items") -> Table:
    """How many items have each label, the most frequent first."""
    table = grid(None, "label", column, "", numbers=(column,))
    rows = sorted(counts.items(), key=lambda pair: -pair[1])
    for label, count in rows[:MAX_CLASSES_SHOWN]:
        table.add_row(name(label), f"{count:,}", bar(count / max(total, 1)))
    if others := rows[MAX_CLASSES_SHOWN:]:
        table.add_row(f"… {len(others):,} more", f"{sum(count for _, count in others):,}")
    return table


def written(output: Path | None, what: str, option: str) -> None:
    """Say where the results are, or with which option they are kept."""
    line(f"Nothing was written; add -o {option}." if output is None else f"{what} in {clean(output)}")


def json(value: Any) -> None:
    """One JSON object on stdout, in UTF-8 whatever the terminal's encoding is."""
    from dissensus.table.io.jsonl import dumps

    typer.echo(dumps(value, indent=2).encode())
