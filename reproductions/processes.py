"""Run parts in `jobs` processes at a time; a part that fails does not stop the others."""

from __future__ import annotations

import multiprocessing
import os
import threading
import traceback
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from multiprocessing.connection import wait as wait_for
from pathlib import Path
from typing import Any

from dissensus.exceptions import DissensusError

Outcome = tuple[Any, Any, str]
"""A part, what its function returned or None, and the error or ""."""


def run_parts(
    run: Callable[..., Any], parts: Iterable[Any], *arguments: Any, jobs: int = 1,
    too_late: Callable[[], bool] = lambda: False, here: bool = False,
) -> Iterator[Outcome]:  # fmt: skip
    """Call `run(part, *arguments)` for every part until it is too late; yield each outcome when it is ready.

    Parts are submitted only when a process is free, so that the time limit holds. Workers have one thread each. `here`
    runs the parts in this process, with all its threads.
    """
    rest = iter(parts)
    if here:
        while not too_late() and (part := next(rest, None)) is not None:
            yield _attempt(run, part, arguments, 0)
        return
    with worker_pool(jobs) as pool:
        running: set[Any] = set()
        while True:
            while len(running) < jobs and not too_late() and (part := next(rest, None)) is not None:
                running.add(pool.submit(_attempt, run, part, arguments, 1))
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


def worker_pool(jobs: int) -> ProcessPoolExecutor:
    """Make processes that end with this one, even if it is killed."""
    return ProcessPoolExecutor(jobs, mp_context=multiprocessing.get_context("spawn"), initializer=_end_with_parent)


def _end_with_parent() -> None:
    """End this worker with its parent; otherwise it would wait forever, with all its memory, after a kill."""
    parent = multiprocessing.parent_process()
    assert parent is not None

    def watch() -> None:
        wait_for([parent.sentinel])
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _attempt(run: Callable[..., Any], part: Any, arguments: tuple[Any, ...], threads: int) -> Outcome:
    try:
        if threads:
            _limit(threads)
        return part, run(part, *arguments), ""
    except Exception as error:  # The other parts still run.
        last = traceback.extract_tb(error.__traceback__)[-1]
        return part, None, f"{type(error).__name__}: {error} ({Path(last.filename).name}, line {last.lineno})"


def _limit(threads: int) -> None:
    """Limit the threads of this process: parts run side by side."""
    from threadpoolctl import threadpool_limits

    threadpool_limits(threads)
    try:
        import torch
    except ImportError:
        return
    torch.set_num_threads(threads)
