"""Runs cells and keeps what they found, one line each; what is there is not run again.

Cells run in processes of their own (`jobs`), or one after the other in this one. A line has the values of the cell's
seeds, the seconds, and where it was made: versions, machine and commit. A cell that fails is shown and left out, so
that the others are not lost; the next run tries it again.
"""

from __future__ import annotations

import multiprocessing
import os
import platform
import subprocess
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from multiprocessing.connection import wait as wait_for
from pathlib import Path
from typing import Any

from dissensus.common.json_lines import append_lines, read_lines
from dissensus.exceptions import DissensusError, UnwritableFile
from reproductions.experiment import Cell, Table, load_paper
from reproductions.watch import Watch

PACKAGES = ("dissensus", "numpy", "scipy", "scikit-learn", "numba", "torch", "transformers")
Results = dict[str, dict[str, Any]]
"""Key of a cell → its line."""


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
    watch: Watch | None = None,
) -> tuple[Results, list[Failure]]:
    """Run all cells of these tables that the store does not have.

    Parameters
    ----------
    tables : sequence of Table
    store : path
        A file of JSON lines, made if need be.
    quick, seeds
        As each table has it for --quick; or another number of seeds.
    jobs : int
        Processes.
    device : str
        Of what is trained: "auto", "cpu", "cuda" …
    minutes : float, optional
        No cell is begun after so long; what is left waits for the next run.
    watch : Watch, optional
        Shows how far it is.
    """
    path = Path(store)
    cells = [cell for table in tables for cell in table.cells(quick=quick, seeds=seeds)]
    failures: list[Failure] = []
    began = time.monotonic()

    def late() -> bool:
        return minutes is not None and time.monotonic() - began > 60 * minutes

    def keep(line: dict[str, Any]) -> None:
        found[line["key"]] = line
        append_lines(path, line)

    with only_run(path) as found, watch or nullcontext():
        todo = [cell for cell in cells if cell.key not in found]
        if watch is not None:
            watch.begin(cells, [cell for cell in cells if cell.key in found])
        for cell, line, error in (_one_by_one if jobs == 1 else _together)(todo, jobs, device, late):
            if line is not None:
                keep(line)
            else:
                failures.append(Failure(cell, error))
            if watch is not None:
                watch.finished(cell, line, error)
    return {cell.key: found[cell.key] for cell in cells if cell.key in found}, failures


@contextmanager
def only_run(path: Path) -> Iterator[Results]:
    """What the store has; an error where it cannot be written, or another run writes it, which would do all twice.

    The lock is the system's, on the store itself: it goes with the process, however that ends.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        file = path.open("ab")
    except OSError as error:
        raise UnwritableFile(f"cannot write {path}: {error.strerror or error}.") from error
    with file:
        try:
            import fcntl

            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise UnwritableFile(
                f"cannot write {path}: another run is writing it; wait for its end, or name another folder."
            ) from error
        except (ImportError, OSError):  # Windows; a file system without locks
            pass
        yield read_store(path)


def read_store(path: Path) -> Results:
    """The lines of a store by their keys."""
    return {line["key"]: line for line in read_lines(path) if "key" in line}


Done = tuple[Cell, dict[str, Any] | None, str]


def _one_by_one(todo: list[Cell], jobs: int, device: str, late: Callable[[], bool]) -> Any:
    for cell in todo:
        if late():
            return
        yield _safely(cell, device, 0)


def pool(jobs: int) -> ProcessPoolExecutor:
    """Processes that end with this one, even where it is killed."""
    return ProcessPoolExecutor(jobs, mp_context=multiprocessing.get_context("spawn"), initializer=_end_with_parent)


def _end_with_parent() -> None:
    """Else a process waits for ever, with all its memory, after the run was killed."""
    parent = multiprocessing.parent_process()
    assert parent is not None

    def watch() -> None:
        wait_for([parent.sentinel])
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _together(todo: list[Cell], jobs: int, device: str, late: Callable[[], bool]) -> Any:
    """In processes; only as many are handed out as run, so that a limit of time holds."""
    rest = iter(todo)
    with pool(jobs) as processes:
        running: set[Any] = set()
        while True:
            while len(running) < jobs and not late() and (cell := next(rest, None)) is not None:
                running.add(processes.submit(_safely, cell, device, 1))
            if not running:
                return
            done, running = wait(running, return_when=FIRST_COMPLETED)
            for future in done:
                try:
                    yield future.result()
                except BrokenProcessPool as error:
                    raise DissensusError(
                        "a process was ended before its part was (killed? out of memory?); what is finished is kept: "
                        "give the same command again, with fewer --jobs."
                    ) from error


def _safely(cell: Cell, device: str, threads: int) -> Done:
    """Run a cell; an error is its text."""
    try:
        if threads:
            _limit(threads)
        return cell, run_cell(cell, device), ""
    except Exception as error:  # the other cells are worth having
        last = traceback.extract_tb(error.__traceback__)[-1]
        return cell, None, f"{type(error).__name__}: {error} ({Path(last.filename).name}, line {last.lineno})"


def run_cell(cell: Cell, device: str) -> dict[str, Any]:
    """The line of a cell."""
    began = time.perf_counter()
    found = load_paper(cell.paper).run(cell.table)(cell, device)
    values, kept = found if isinstance(found, tuple) else (found, {})
    for metric, each in values.items():
        if len(each) != len(cell.seeds):
            raise ValueError(f"{metric} has {len(each)} values for {len(cell.seeds)} seeds")
    return {
        "key": cell.key, "paper": cell.paper, "table": cell.table, "data": cell.data, "condition": cell.condition,
        "keywords": cell.keywords, "seeds": list(cell.seeds), "values": values, **({"kept": kept} if kept else {}),
        "seconds": round(time.perf_counter() - began, 2), "made": provenance(device),
    }  # fmt: skip


def _limit(threads: int) -> None:
    """Cells that run side by side have a thread each."""
    from threadpoolctl import threadpool_limits

    threadpool_limits(threads)
    try:
        import torch
    except ImportError:
        return
    torch.set_num_threads(threads)


@cache
def provenance(device: str) -> dict[str, Any]:
    """Versions, machine and commit."""
    versions = {}
    for name in PACKAGES:
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            continue
    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        "commit": _commit(),
        "versions": versions,
        "python": platform.python_version(),
        "machine": platform.machine(),
        "cores": os.cpu_count(),
        "device": _device(device),
    }


def _commit() -> str | None:
    """Of the source, where it is a checkout."""
    try:
        done = subprocess.run(
            ["git", "describe", "--always", "--dirty"],
            cwd=Path(__file__).parent, capture_output=True, text=True, check=True,
        )  # fmt: skip
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout.strip() or None


def _device(device: str) -> str:
    try:
        import torch
    except ImportError:
        return "CPU"
    if device != "cpu" and torch.cuda.is_available():
        rounded = torch.get_float32_matmul_precision() != "highest"  # products of float32 in the tensor cores
        return f"{torch.cuda.get_device_name()}{' (TF32)' if rounded else ''}"
    return "CPU"
