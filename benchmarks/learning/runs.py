"""Trainings in processes of their own; a finished one is a line in a store, so that a run that was killed goes on."""

from __future__ import annotations

import json
import multiprocessing
import traceback
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any


def stored(store: Path | None) -> list[dict[str, Any]]:
    """What is finished; None: nothing is kept."""
    there = store is not None and store.exists()
    return [json.loads(line) for line in store.read_text().splitlines()] if there else []


def run_all(
    run: Callable[..., dict[str, Any]], todo: Iterable[tuple[Any, ...]], jobs: int, store: Path | None
) -> list[dict[str, Any]]:
    """The results of `run(*what)` for all of `todo`, so many at a time; one that fails is shown and left out."""
    found = []
    with ProcessPoolExecutor(jobs, mp_context=multiprocessing.get_context("spawn")) as pool:
        for future in as_completed([pool.submit(run, *what) for what in todo]):
            try:
                found.append(future.result())
            except Exception:  # the others are worth having
                traceback.print_exc()
                continue
            print(found[-1], flush=True)
            if store is not None:
                store.parent.mkdir(exist_ok=True)
                with store.open("a") as file:
                    file.write(json.dumps(found[-1]) + "\n")
    return found
