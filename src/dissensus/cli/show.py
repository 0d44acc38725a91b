"""Print sentences, tables and JSON on stdout; text from the data is never interpreted as markup."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import typer

from dissensus.common.formatting import format_count as format_count
from dissensus.common.formatting import format_interval as format_interval
from dissensus.common.formatting import format_number as format_number
from dissensus.common.formatting import format_share as format_share
from dissensus.common.formatting import shorten_name as shorten_name
from dissensus.common.progress import escape as escape
from dissensus.common.progress import make_console as make_console
from dissensus.common.progress import show_progress as show_progress

format_percent = format_share  # per cent with one decimal
MAX_CLASSES_SHOWN = 20
OWN_PROCESS = "own process"
"""Value of `obj` in typer's context if `dissensus` runs as a process, not as a function of another program."""


@dataclass
class Invocation:
    """The running command and its options."""

    command: str = ""
    options: Collection[str] = ()  # names of all its parameters
    set_by_user: Collection[str] = ()  # names of the parameters that the user set
    settings: Mapping[str, str] = field(default_factory=dict)  # parameter of the model → its key after --set
    own_process: bool = False  # False if another program called the command line as a function
    announced: list[str] = field(default_factory=list)  # lines to print above the results


current_invocation: ContextVar[Invocation] = ContextVar("running", default=Invocation())  # noqa: B039 - outside of commands


def shorten(value: Any) -> str:
    """Return a name from the data, escaped and shortened."""
    return shorten_name(escape(value))


def format_path(value: Path) -> str:
    """Return a path as text for JSON; bytes that are not UTF-8 become question marks."""
    return os.fsencode(value).decode("utf-8", "replace")


def format_paths(**files: Path | None) -> dict[str, str]:
    """Return the paths that are not None as text for JSON, by key."""
    return {key: format_path(file) for key, file in files.items() if file is not None}


def draw_bar(share: float, width: int = 20) -> str:
    """Draw a share as a bar of characters."""
    return "█" * round(share * width)


def announce_lines(lines: Iterable[str]) -> None:
    """Print lines above the next output; if an error prevents any output, they are not printed either."""
    current_invocation.get().announced[:] = lines


def _print(content: Any, **style: Any) -> None:
    announced = current_invocation.get().announced
    while announced:
        make_console().print(announced.pop(0), soft_wrap=True)
    make_console().print(content, **style)


def print_text(sentence: str = "") -> None:
    """Print a sentence: a terminal breaks it between words, a pipe gets it on one line."""
    _print(sentence, soft_wrap=not make_console().is_terminal)


def print_line(sentence: str) -> None:
    """Print one line, which only a terminal may wrap."""
    _print(sentence, soft_wrap=True)


def print_table(
    title: str | None,
    columns: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    numbers: Sequence[str] = (),
    unbroken: Sequence[str] = (),
    header: bool = True,
) -> None:
    """Print a table; the columns in `numbers` align to the right, and they and `unbroken` columns do not wrap."""
    from rich import box
    from rich.table import Table

    drawn = Table(title=title, title_justify="left", title_style="bold", box=box.SIMPLE, show_header=header)
    for column in columns:
        right = column in numbers
        whole = right or column in unbroken
        drawn.add_column(column, justify="right" if right else "left", no_wrap=whole, overflow="fold")
    for row in rows:
        drawn.add_row(*row)
    _print(drawn)


def print_bars(columns: Sequence[str], counts: Mapping[str, Any], total: float, *, shares: bool = False) -> None:
    """Print the count of each name, the most frequent first, as a table with bars."""
    ordered = sorted(counts.items(), key=lambda pair: -pair[1])
    first, others = ordered[:MAX_CLASSES_SHOWN], ordered[MAX_CLASSES_SHOWN:]
    shown = [(shorten(label), count) for label, count in first]
    if others:
        shown.append((f"… {len(others):,} more", sum(count for _, count in others)))
    rows = [
        (label, format_percent(count) if shares else f"{count:,}", draw_bar(count / max(total, 1)))
        for label, count in shown
    ]
    print_table(None, (*columns, ""), rows, numbers=columns[1:])


def shorten_rows(rows: list[tuple[str, ...]], n: int) -> list[tuple[str, ...]]:
    """Return the first and last n rows, with a row between them that gives the number of omitted rows."""
    between = len(rows) - 2 * n
    return [*rows[:n], (f"… {between:,} more",), *rows[-n:]] if between > 0 else rows


def print_written(output: Path | None, what: str, option: str) -> None:
    """Print where the results were written, or which option writes them."""
    print_line(f"Nothing was written; add -o {option}." if output is None else f"{what} in {escape(output)}")


def print_json(value: dict[str, Any], **files: Path | None) -> None:
    """Print one JSON object in UTF-8, whatever the encoding of the terminal, with the names of written `files`."""
    from dissensus import __version__
    from dissensus.table.io.jsonl import dumps

    head = {"command": current_invocation.get().command, "version": __version__}
    typer.echo(dumps(head | value | format_paths(**files), indent=2).encode())
