"""Show the progress of a run: one row per table with cells done, cells failed and the time left."""

from __future__ import annotations

import time
from collections import defaultdict
from types import TracebackType
from typing import Any, Self

from dissensus.common.progress import escape, make_console
from reproductions.experiment import Cell


class ProgressTable:
    """Show a live table on a terminal, or print one line per cell in a pipe."""

    def __init__(self, jobs: int = 1):
        self.jobs, self.screen = jobs, make_console(stderr=True)
        self.total: dict[str, int] = defaultdict(int)
        self.done: dict[str, int] = defaultdict(int)
        self.failed: dict[str, int] = defaultdict(int)
        self.seconds: dict[str, list[float]] = defaultdict(list)
        self.live: Any = None
        self.last = ""
        self.began = time.monotonic()

    def __enter__(self) -> Self:
        if self.screen.is_interactive:
            from rich.live import Live

            self.live = Live(self.table(), console=self.screen, refresh_per_second=2, transient=True)
            self.live.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self.live is not None:
            self.live.stop()

    def set_cells(self, cells: list[Cell], there: list[Cell]) -> None:
        """Count all cells, and the cells that are stored already."""
        for cell in cells:
            self.total[_table_name(cell)] += 1
        for cell in there:
            self.done[_table_name(cell)] += 1
        self._show()

    def add_result(self, cell: Cell, line: dict[str, Any] | None, error: str) -> None:
        """Count a cell that has finished or failed."""
        name = _table_name(cell)
        seeds = f"seed {cell.seeds[0]}" if len(cell.seeds) == 1 else f"{len(cell.seeds)} seeds"
        if line is None:
            self.failed[name] += 1
            self.last = f"{name}, {cell.data}, {cell.condition}, {seeds}: {error}"
            self.screen.print(escape(f"failed: {self.last}"))
        else:
            self.done[name] += 1
            self.seconds[name].append(line["seconds"])
            values = ", ".join(f"{key} {sum(each) / len(each):.4g}" for key, each in line["values"].items())
            self.last = f"{cell.data}, {cell.condition}, {seeds}: {values}"
            if self.live is None:
                done, total = sum(self.done.values()), sum(self.total.values())
                self.screen.print(escape(f"{done} of {total}: {name}, {self.last} ({line['seconds']:.0f} s)"))
        self._show()

    def seconds_left(self, name: str) -> float | None:
        """Return the seconds that a table still needs, at the mean time of its cells."""
        rest = self.total[name] - self.done[name] - self.failed[name]
        if rest == 0:
            return 0.0
        if not self.seconds[name]:
            return None
        return rest * sum(self.seconds[name]) / len(self.seconds[name]) / self.jobs

    def table(self) -> Any:
        """Return the current state, one row per table."""
        from rich.table import Table

        table = Table("table", "done", "of", "failed", "s each", "time left", caption=escape(self.last))
        for name, total in self.total.items():
            spent = self.seconds[name]
            each = f"{sum(spent) / len(spent):.1f}" if spent else ""
            failed = str(self.failed[name] or "")
            table.add_row(name, str(self.done[name]), str(total), failed, each, _format_time(self.seconds_left(name)))
        return table

    def _show(self) -> None:
        if self.live is not None:
            self.live.update(self.table())


def _table_name(cell: Cell) -> str:
    return f"{cell.paper} {cell.table}"


def _format_time(seconds: float | None) -> str:
    if seconds is None:
        return "?"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest:02d} s" if minutes else f"{rest} s"


def no_progress(step: int, loss: float) -> None:
    """Report nothing: for a training inside a cell, as the cells have a table."""
