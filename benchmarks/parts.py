"""Benchmarks of many parts: each part runs in a process and becomes a line of a store; a killed run can be resumed.

    python -m benchmarks.learning.NAME [--seeds N] [--jobs 1] [--device cpu] [--store FILE] [--quick]
    python -m benchmarks.learning.NAME --render

from the repository's root, with DISSENSUS_DATA naming the data folder. `--quick` runs few and short parts and keeps
nothing; `--render` runs nothing and writes the tables of what is stored.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dissensus.common.json_lines import JsonLinesStore
from reproductions import record
from reproductions.processes import run_parts

Part = dict[str, Any]
"""Settings of a part; its key is their hash."""
Rows = list[dict[str, Any]]
"""Finished parts with their settings and results."""


@dataclass(frozen=True)
class Benchmark:
    """Declaration of a benchmark of parts; `main` is its command line."""

    folder: Path  # README.md and results/ are here
    name: str  # Name of the store and of the marks in README.md.
    run: Callable[[Part, str], dict[str, Any]]  # part, device → what was found
    parts: Callable[[int], list[Part]]  # number of seeds → parts
    quick: list[Part]
    tables: Callable[[Any], list[str]]  # rows, or their summary → Markdown
    seeds: int
    summary: Callable[[Rows], dict[str, Any]] | None = None
    """For large lines: they stay out of the repository (results/running), and their summary is published instead."""

    def main(self, doc: str | None) -> None:
        """Run what is missing, and write the tables."""
        parser = argparse.ArgumentParser(description=(doc or "").splitlines()[0])
        parser.add_argument("--seeds", type=int, default=self.seeds)
        parser.add_argument("--jobs", type=int, default=1, help="processes side by side")
        parser.add_argument("--device", default="cpu")
        parser.add_argument("--store", type=Path, help="another store; the tables are printed only")
        parser.add_argument("--render", action="store_true", help="only write the tables of what is stored")
        parser.add_argument("--quick", action="store_true", help="few and short parts; nothing is kept")
        options = parser.parse_args()
        os.environ.setdefault("OMP_NUM_THREADS", "1")
        if options.quick:
            with tempfile.TemporaryDirectory() as folder:
                self._finish(self.quick, Path(folder, "quick.jsonl"), options)
            return
        where = self.folder / "results" / "running" if self.summary else self.folder / "results"
        where.mkdir(parents=True, exist_ok=True)
        store = options.store or where / f"{self.name}.jsonl"
        self._finish([] if options.render else self.parts(options.seeds), store, options)

    def _finish(self, parts: list[Part], store: Path, options: argparse.Namespace) -> None:
        made = record.provenance(device=options.device)
        with JsonLinesStore.locked(store) as kept:
            found = kept.by_key()
            todo = [part for part in parts if record.hash_configuration([self.name, part]) not in found]
            for part, values, error in run_parts(self.run, todo, options.device, jobs=options.jobs):
                print(part, error or "done", flush=True)
                if not error:
                    key = record.hash_configuration([self.name, part])
                    found[key] = record.add_line(kept, key, made, part | values)
        rows = list(found.values())
        if not rows:
            print("nothing is stored.")
            return
        summary = self.summary(rows) if self.summary else {}
        text, readme = self.tables(summary or rows), self.folder / "README.md"
        if options.quick or options.store:
            print("\n\n".join(text))
        elif summary:
            record.publish(readme, self.name, rows[-1]["made"], summary, text)
        else:
            record.replace_between_marks(readme, self.name, "\n\n".join([origin(rows), *text]))


def origin(rows: Rows) -> str:
    """Say where the last part was made, and how many are of other commits."""
    last = rows[-1]["made"]
    others = [record.commit_text(row["made"]) for row in rows if row["made"]["commit"] != last["commit"]]
    older = f" {len(others)} of {len(rows)} parts are of commit {', '.join(sorted(set(others)))}." if others else ""
    return record.describe_provenance(last) + older


def mean_and_error(values: Any, digits: int = 3, scale: float = 1.0) -> str:
    """Mean ± standard error; no error of one value."""
    found = scale * np.asarray(values, float)
    error = f" ± {found.std(ddof=1) / np.sqrt(found.size):.{digits}f}" if found.size > 1 else ""
    return f"{found.mean():.{digits}f}{error}"
