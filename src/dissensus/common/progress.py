"""A bar on stderr for work that takes longer than a second, where somebody is looking; nothing where nobody is."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console

    from dissensus.common.types import OnStep

WIDTH = 100  # of what goes into a pipe or a file
PATIENCE = 1.0  # seconds of silence before a bar


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


@contextmanager
def waiting(text: str, total: int | None = None) -> Iterator[OnStep]:
    """A bar on stderr once the work inside takes longer than a second; call what it yields after every pass."""
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    screen = console(stderr=True)
    if not (screen.is_interactive or screen.is_jupyter):
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
