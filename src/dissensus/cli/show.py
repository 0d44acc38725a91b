"""What a person sees: plain tables on stdout, a bar on stderr. Text from data is shown as it is, never as markup."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import typer

from dissensus.common.formatting import count as count
from dissensus.common.formatting import interval as interval
from dissensus.common.formatting import number as number
from dissensus.common.formatting import share as share
from dissensus.common.formatting import short as short
from dissensus.common.progress import clean as clean
from dissensus.common.progress import console as console
from dissensus.common.progress import waiting as waiting

percent = share  # with one decimal
command = ""  # the one that runs
MAX_CLASSES_SHOWN = 20


def name(value: Any) -> str:
    """A name from the data, cleaned and cut."""
    return short(clean(value))


def path(value: Path) -> str:
    """A path as JSON can hold it; bytes that are no UTF-8 become question marks."""
    return os.fsencode(value).decode("utf-8", "replace")


def paths(**files: Path | None) -> dict[str, str]:
    """The files that there are, by key, as JSON can hold them."""
    return {key: path(file) for key, file in files.items() if file is not None}


def bar(share: float, width: int = 20) -> str:
    """A share as a little bar."""
    return "█" * round(share * width)


_announced: list[str] = []  # lines that stand above whatever is printed next


def announce(lines: Iterable[str]) -> None:
    """Print lines above what is printed next; where nothing is, because of an error, they are not printed either."""
    _announced[:] = lines


def _print(what: Any, **how: Any) -> None:
    while _announced:
        console().print(_announced.pop(0), soft_wrap=True)
    console().print(what, **how)


def text(sentence: str = "") -> None:
    """Print a sentence, broken into lines that fit."""
    _print(sentence)


def line(sentence: str) -> None:
    """Print one line, which only a terminal may break."""
    _print(sentence, soft_wrap=True)


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
    _print(made)


def bars(columns: Sequence[str], counts: Mapping[str, Any], total: float, *, shares: bool = False) -> None:
    """Print how often each of several names occurs, the most frequent first, as a table with little bars."""
    ordered = sorted(counts.items(), key=lambda pair: -pair[1])
    first, others = ordered[:MAX_CLASSES_SHOWN], ordered[MAX_CLASSES_SHOWN:]
    shown = [(name(label), count) for label, count in first]
    if others:
        shown.append((f"… {len(others):,} more", sum(count for _, count in others)))
    rows = [(label, percent(count) if shares else f"{count:,}", bar(count / max(total, 1))) for label, count in shown]
    table(None, (*columns, ""), rows, numbers=columns[1:])


def ends(rows: list[tuple[str, ...]], n: int) -> list[tuple[str, ...]]:
    """The first and last n rows; one between them counts the others."""
    between = len(rows) - 2 * n
    return [*rows[:n], (f"… {between:,} more",), *rows[-n:]] if between > 0 else rows


def written(output: Path | None, what: str, option: str) -> None:
    """Say where the results are, or with which option they are kept."""
    line(f"Nothing was written; add -o {option}." if output is None else f"{what} in {clean(output)}")


def json(value: dict[str, Any], **files: Path | None) -> None:
    """One JSON object on stdout, in UTF-8 whatever the terminal's encoding is; `files` that were written are named."""
    from dissensus import __version__
    from dissensus.table.io.jsonl import dumps

    head = {"command": command, "version": __version__}
    typer.echo(dumps(head | value | paths(**files), indent=2).encode())
