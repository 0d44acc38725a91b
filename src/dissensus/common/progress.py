"""Show progress on stderr, as a bar on a terminal, or for commands as lines in a pipe or file.

If another program calls the library, no lines are written, and with `set_output(quiet=True)` no bar either.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress

PIPE_LINE_LENGTH = 100  # characters of a line in a pipe or a file
SECONDS_BEFORE_BAR = 1.0  # Shorter work shows no bar.
VALIDATION_SCORES = ("cross-entropy", "accuracy")  # validation scores of an epoch that a bar shows
SECONDS_BEFORE_LINE = 2.0  # time before the first line in a pipe; later pauses are longer
MAX_SECONDS_BETWEEN_LINES = 60.0


class OutputSettings(NamedTuple):
    """Settings for output other than results."""

    quiet: bool = False  # True for no progress at all
    lines: bool = False  # True for lines of progress if stderr is not a terminal


_output_settings: ContextVar[OutputSettings] = ContextVar("_output_settings", default=OutputSettings())  # noqa: B039 - immutable


@contextmanager
def set_output(*, quiet: bool, lines: bool) -> Iterator[None]:
    """Set which output is written inside the context."""
    token = _output_settings.set(OutputSettings(quiet, lines))
    try:
        yield
    finally:
        _output_settings.reset(token)


def make_console(*, stderr: bool = False) -> Console:
    """Return a console on stdout or stderr, without markup, so that a label such as `[red]` is printed unchanged."""
    from rich.console import Console

    class PlainConsole(Console):
        def on_broken_pipe(self) -> None:
            raise BrokenPipeError  # By default, rich would exit the program.

    stream = sys.stderr if stderr else sys.stdout
    width = None if stream.isatty() else PIPE_LINE_LENGTH
    quiet = _output_settings.get().quiet
    return PlainConsole(stderr=stderr, width=width, markup=False, emoji=False, highlight=False, quiet=quiet)


def escape(value: Any) -> str:
    """Return a value as text on one line, with all characters escaped that a terminal would interpret."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape", "surrogatepass").decode() for c in str(value))


class ProgressBar:
    """The progress of one task; without a `progress` to draw it on, it is only stored in `state`."""

    def __init__(self, text: str, total: int | None, progress: Progress | None):
        self.total, self.progress = total, progress
        self.state: dict[str, Any] = {
            "description": escape(text),
            "state": "",
            "completed": None,
            "total": total,
        }
        self.task = None if progress is None else progress.add_task(escape(text), total=total, state="")

    def __call__(self, step: int, objective: float, entry: Mapping[str, float] | None = None) -> None:
        """Show that a pass is finished, with its validation scores if it has any."""
        at_most = f" of at most {self.total:,}" if self.total else ""
        known = f", objective {objective:,.6g}" if objective == objective else ""
        known += "".join(f", {name} {entry[name]:.4f}" for name in VALIDATION_SCORES if entry and name in entry)
        self._update(completed=step, state=f"pass {step:,}{at_most}{known}")

    def set_text(self, text: str, done: int | None = None, total: int | None = None) -> None:
        """Show a description of the current work, and optionally how much of it is done."""
        self._update(description=escape(text), completed=done, total=total)

    def __str__(self) -> str:
        done, total = self.state["completed"], self.state["total"]
        count = f"{done:,} of {total:,}" if done is not None and total and not self.state["state"] else ""
        return ", ".join(part for part in (self.state["description"], self.state["state"], count) if part)

    def _update(self, **fields: Any) -> None:
        self.state |= {name: value for name, value in fields.items() if value is not None}
        if self.progress is not None and self.task is not None:
            self.progress.update(self.task, **fields)


@contextmanager
def show_progress(text: str, total: int | None = None) -> Iterator[ProgressBar]:
    """Show the progress of the work inside the context on stderr; call the yielded bar after every pass."""
    screen, allowed = make_console(stderr=True), _output_settings.get()
    if allowed.quiet or not (screen.is_interactive or screen.is_jupyter):
        bar = ProgressBar(text, total, None)
        with _print_progress_lines(bar) if allowed.lines and not allowed.quiet else nullcontext():
            yield bar
        return
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TextColumn("{task.description}", markup=False), BarColumn(), TimeElapsedColumn())
    progress = Progress(*columns, TextColumn("{task.fields[state]}"), console=screen, transient=True)
    late = threading.Timer(SECONDS_BEFORE_BAR, progress.start)
    late.daemon = True
    late.start()
    try:
        yield ProgressBar(text, total, progress)
    finally:
        late.cancel()
        late.join()  # The timer may be starting the bar at this moment.
        progress.stop()


@contextmanager
def _print_progress_lines(bar: ProgressBar) -> Iterator[None]:
    """Write a line on stderr from time to time; another thread writes it, because one pass may take long."""
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
