"""How far the work is, on stderr: a bar where somebody is looking, lines in the pipe or file of a command.

A library that is called in somebody's own program writes neither lines nor, with `output(quiet=True)`, anything else.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress

PIPE_WIDTH = 100  # characters of a line that goes into a pipe or a file
SECONDS_BEFORE_BAR = 1.0
VALIDATION = ("cross-entropy", "accuracy")  # scores of an epoch that a bar shows
SECONDS_BEFORE_LINE = 2.0  # into a pipe; the pauses between lines get longer
MAX_SECONDS_BETWEEN_LINES = 60.0


current = SimpleNamespace(quiet=False, lines=False)
"""What may be written: nothing but results (quiet), and lines where stderr is no terminal."""


@contextmanager
def output(*, quiet: bool, lines: bool) -> Iterator[None]:
    """Set what the work inside may write."""
    before = dict(vars(current))
    vars(current).update(quiet=quiet, lines=lines)
    try:
        yield
    finally:
        vars(current).update(before)


def console(*, stderr: bool = False) -> Console:
    """A console for one of the streams as it is now; markup is off, so that a label `[red]` is those five letters."""
    from rich.console import Console

    class Quiet(Console):
        def on_broken_pipe(self) -> None:
            raise BrokenPipeError  # rich would exit by itself

    stream = sys.stderr if stderr else sys.stdout
    width = None if stream.isatty() else PIPE_WIDTH
    return Quiet(stderr=stderr, width=width, markup=False, emoji=False, highlight=False, quiet=current.quiet)


def clean(value: Any) -> str:
    """Text on one line without anything that a terminal would obey: line ends, escapes, marks that turn direction."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape", "surrogatepass").decode() for c in str(value))


class Bar:
    """How far the work is; without a `progress` to draw on, it is only kept in `said`."""

    def __init__(self, text: str, total: int | None, progress: Progress | None):
        self.total, self.progress = total, progress
        self.said: dict[str, Any] = {"description": clean(text), "state": "", "completed": None, "total": total}
        self.task = None if progress is None else progress.add_task(clean(text), total=total, state="")

    def __call__(self, step: int, objective: float, entry: Mapping[str, float] | None = None) -> None:
        """Show that a pass is done; of an `entry` also the scores on validation items."""
        at_most = f" of at most {self.total:,}" if self.total else ""
        known = f", objective {objective:,.6g}" if objective == objective else ""
        known += "".join(f", {name} {entry[name]:.4f}" for name in VALIDATION if entry and name in entry)
        self._update(completed=step, state=f"pass {step:,}{at_most}{known}")

    def tell(self, text: str, done: int | None = None, total: int | None = None) -> None:
        """Show what is done now."""
        self._update(description=clean(text), completed=done, total=total)

    def __str__(self) -> str:
        done, total = self.said["completed"], self.said["total"]
        count = f"{done:,} of {total:,}" if done is not None and total and not self.said["state"] else ""
        return ", ".join(part for part in (self.said["description"], self.said["state"], count) if part)

    def _update(self, **fields: Any) -> None:
        self.said |= {name: value for name, value in fields.items() if value is not None}
        if self.progress is not None and self.task is not None:
            self.progress.update(self.task, **fields)


@contextmanager
def waiting(text: str, total: int | None = None) -> Iterator[Bar]:
    """Show on stderr how far the work inside is, once it takes a while; call what it yields after every pass."""
    screen = console(stderr=True)
    if current.quiet or not (screen.is_interactive or screen.is_jupyter):
        bar = Bar(text, total, None)
        with _lines(bar) if current.lines and not current.quiet else nullcontext():
            yield bar
        return
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TextColumn("{task.description}", markup=False), BarColumn(), TimeElapsedColumn())
    progress = Progress(*columns, TextColumn("{task.fields[state]}"), console=screen, transient=True)
    late = threading.Timer(SECONDS_BEFORE_BAR, progress.start)
    late.daemon = True
    late.start()
    try:
        yield Bar(text, total, progress)
    finally:
        late.cancel()
        late.join()  # it may just be starting the bar
        progress.stop()


@contextmanager
def _lines(bar: Bar) -> Iterator[None]:
    """Write a line on stderr now and then, from a thread of its own: a pass may take long."""
    over, began = threading.Event(), time.monotonic()

    def write() -> None:
        pause = SECONDS_BEFORE_LINE
        while not over.wait(pause):
            print(f"dissensus: {bar} ({time.monotonic() - began:.0f} s)", file=sys.stderr, flush=True)
            pause = min(2 * pause, MAX_SECONDS_BETWEEN_LINES)

    writer = threading.Thread(target=write, daemon=True)
    writer.start()
    try:
        yield
    finally:
        over.set()
        writer.join()
