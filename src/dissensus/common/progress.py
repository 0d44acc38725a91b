"""A bar on stderr for work that takes longer than a second, where somebody is looking; nothing where nobody is."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress

PIPE_WIDTH = 100  # characters of a line that goes into a pipe or a file
SECONDS_BEFORE_BAR = 1.0
VALIDATION = ("cross-entropy", "accuracy")  # scores of an epoch that a bar shows


def console(*, stderr: bool = False) -> Console:
    """A console for one of the streams as it is now; markup is off, so that a label `[red]` is those five letters."""
    from rich.console import Console

    class Quiet(Console):
        def on_broken_pipe(self) -> None:
            raise BrokenPipeError  # rich would exit by itself

    stream = sys.stderr if stderr else sys.stdout
    width = None if stream.isatty() else PIPE_WIDTH
    return Quiet(stderr=stderr, width=width, markup=False, emoji=False, highlight=False)


def clean(value: Any) -> str:
    """Text on one line without anything that a terminal would obey: line ends, escapes, marks that turn direction."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape", "surrogatepass").decode() for c in str(value))


class Bar:
    """How far the work is; without a `progress` to draw on, nothing is shown."""

    def __init__(self, text: str, total: int | None, progress: Progress | None):
        self.total, self.progress = total, progress
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

    def _update(self, **fields: Any) -> None:
        if self.progress is not None and self.task is not None:
            self.progress.update(self.task, **fields)


@contextmanager
def waiting(text: str, total: int | None = None) -> Iterator[Bar]:
    """A bar on stderr once the work inside takes longer than a second; call what it yields after every pass."""
    screen = console(stderr=True)
    if not (screen.is_interactive or screen.is_jupyter):
        yield Bar(text, total, None)
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
