"""What a person sees: plain tables on stdout, a bar on stderr. Text from data is shown as it is, never as markup."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from dissensus._types import OnStep

WIDTH = 100  # of what goes into a pipe or a file
PATIENCE = 1.0  # seconds of silence before a bar
LONGEST = 40  # characters of a name


def console(*, stderr: bool = False) -> Console:
    """A console for one of the streams as it is now; markup is off, so that a label `[red]` is those five letters."""
    from rich.console import Console

    class Quiet(Console):
        def on_broken_pipe(self) -> None:
            raise BrokenPipeError  # rich would exit by itself

    stream = sys.stderr if stderr else sys.stdout
    width = None if stream.isatty() else WIDTH
    return Quiet(stderr=stderr, width=width, markup=False, emoji=False, highlight=False)


def clean(value: Any) -> str:
    """Text on one line without anything that a terminal would obey: line ends, escapes, marks that turn direction."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape", "surrogatepass").decode() for c in str(value))


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
    from dissensus.io.jsonl import dumps

    typer.echo(dumps(value, indent=2).encode())


@contextmanager
def waiting(text: str, total: int | None = None) -> Iterator[OnStep]:
    """A bar on stderr once the work inside takes longer than a second; call what it yields after every pass."""
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    screen = console(stderr=True)
    if not screen.is_interactive:
        yield lambda step, objective: None
        return
    parts = (SpinnerColumn(), TextColumn("{task.description}", markup=False), BarColumn(), TimeElapsedColumn())
    progress = Progress(*parts, TextColumn("{task.fields[state]}"), console=screen, transient=True)
    task = progress.add_task(clean(text), total=total, state="")

    def on_step(step: int, objective: float) -> None:
        at_most = f" of at most {total:,}" if total else ""
        known = f", objective {objective:,.6g}" if objective == objective else ""
        progress.update(task, completed=step, state=f"pass {step:,}{at_most}{known}")

    late = threading.Timer(PATIENCE, progress.start)
    late.daemon = True
    late.start()
    try:
        yield on_step
    finally:
        late.cancel()
        late.join()  # it may just be starting the bar
        progress.stop()
