"""Run the cells of a paper's tables and store their results; stored cells are not run again."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dissensus.common.json_lines import JsonLinesStore
from reproductions.experiment import Cell, Paper, Table, load_paper
from reproductions.processes import run_parts
from reproductions.record import Results, add_line, provenance
from reproductions.watch import ProgressTable


@dataclass(frozen=True)
class Failure:
    """A cell that could not be run."""

    cell: Cell
    error: str


def reproduce(
    tables: Sequence[Table],
    store: str | Path,
    *,
    quick: bool = False,
    seeds: int | None = None,
    jobs: int = 1,
    device: str = "auto",
    minutes: float | None = None,
    watch: ProgressTable | None = None,
) -> tuple[Results, list[Failure]]:
    """Run all cells of these tables that the store does not have.

    Parameters
    ----------
    tables : sequence of Table
    store : path
        A file of JSON lines; it is created if it does not exist.
    quick, seeds
        Use the settings of each table for --quick; or another number of seeds.
    jobs : int
        Number of processes.
    device : str
        Device of trained models: "auto", "cpu", "cuda" …
    minutes : float, optional
        No cell is started after this time; the next run continues.
    watch : Watch, optional
        Shows the progress.
    """
    path = Path(store)
    cells = [cell for table in tables for cell in table.cells(quick=quick, seeds=seeds)]
    failures: list[Failure] = []
    began = time.monotonic()

    def too_late() -> bool:
        return minutes is not None and time.monotonic() - began > 60 * minutes

    with JsonLinesStore.locked(path) as kept, watch or nullcontext():
        found = kept.by_key()
        todo = [cell for cell in cells if cell.key not in found]
        if watch is not None:
            watch.set_cells(cells, [cell for cell in cells if cell.key in found])
        made = provenance(device=device) if todo else {}
        for cell, values, error in run_parts(run_cell, todo, device, jobs=jobs, too_late=too_late, here=jobs == 1):
            if error:
                failures.append(Failure(cell, error))
            else:
                found[cell.key] = add_line(kept, cell.key, made, {"command": cell.command(quick=quick)} | values)
            if watch is not None:
                watch.add_result(cell, found.get(cell.key), error)
    return {cell.key: found[cell.key] for cell in cells if cell.key in found}, failures


def run_cell(cell: Cell, device: str) -> dict[str, Any]:
    """Run a cell; return its configuration, the values of its seeds, further results, and the seconds."""
    began = time.perf_counter()
    found = load_paper(cell.paper).run(cell.table)(cell, device)
    values, kept = found if isinstance(found, tuple) else (found, {})
    for metric, each in values.items():
        if len(each) != len(cell.seeds):
            raise ValueError(f"{metric} has {len(each)} values for {len(cell.seeds)} seeds")
    return {
        "paper": cell.paper, "table": cell.table, "data": cell.data, "condition": cell.condition,
        "keywords": cell.keywords, "seeds": list(cell.seeds), "values": values, **({"kept": kept} if kept else {}),
        "seconds": round(time.perf_counter() - began, 2),
    }  # fmt: skip


def figure_files(tables: Iterable[Table]) -> list[str]:
    """Return the names of the pictures below these tables."""
    return [figure["file"] for table in tables for figure in table.figures]


def draw_figures(
    paper: Paper, tables: Iterable[Table], folder: Path, device: str, *, quick: bool = False
) -> dict[str, str]:
    """Draw the pictures that the folder does not have, with `quick` the first of a table; return why each failed."""
    failed = {}
    folder.mkdir(parents=True, exist_ok=True)
    for name in [file for table in tables for file in figure_files([table])[: 1 if quick else None]]:
        if not (folder / name).exists():
            try:
                paper.module.draw(folder / name, device)
            except Exception as error:  # The tables are useful without pictures.
                failed[name] = f"{type(error).__name__}: {error}"
    return failed
