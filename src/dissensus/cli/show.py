"""What a person sees: plain tables on stdout, a bar on stderr. Text from data is shown as it is, never as markup."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import typer

from dissensus.common.progress import clean as clean
from dissensus.common.progress import console as console
from dissensus.common.progress import waiting as waiting

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


def text(sentence: str = "") -> None:
    """Print a sentence, broken into lines that fit."""
    console().print(sentence)


def line(sentence: str) -> None:
    """Print one line, which only a terminal may break."""
    console().print(sentence, soft_wrap=True)


def table(
    title: str | None,
    columns: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    numbers: Sequence[str] = (),
    unbroken: Sequence[str] = (),
    header: bool = True,
) -> None:
    """Print a table; the columns in `numbers` align to the right, and neither they nor `unbroken` ones wrap."""
    from rich import box
    from rich.table import Table

    made = Table(title=title, title_justify="left", title_style="bold", box=box.SIMPLE, show_header=header)
    for column in columns:
        right = column in numbers
        whole = right or column in unbroken
        made.add_column(column, justify="right" if right else "left", no_wrap=whole, overflow="fold")
    for row in rows:
        made.add_row(*row)
    console().print(made)


def label_counts(counts: Mapping[str, int], total: int, column: str = "items") -> None:
    """Print how many items have each label, the most frequent first."""
    first, others = most_frequent(counts)
    rows = [(name(label), f"{count:,}", bar(count / max(total, 1))) for label, count in first]
    if others:
        rows.append((f"… {len(others):,} more", f"{sum(count for _, count in others):,}", ""))
    table(None, ("label", column, ""), rows, numbers=(column,))


def most_frequent(counts: Mapping[str, float]) -> tuple[list[tuple[str, float]], list[tuple[str, float]]]:
    """The classes that are shown, the most frequent first, and the others."""
    rows = sorted(counts.items(), key=lambda pair: -pair[1])
    return rows[:MAX_CLASSES_SHOWN], rows[MAX_CLASSES_SHOWN:]


def written(output: Path | None, what: str, option: str) -> None:
    """Say where the results are, or with which option they are kept."""
    line(f"Nothing was written; add -o {option}." if output is None else f"{what} in {clean(output)}")


def json(value: Any) -> None:
    """One JSON object on stdout, in UTF-8 whatever the terminal's encoding is."""
    from dissensus.table.io.jsonl import dumps

    typer.echo(dumps(value, indent=2).encode())
