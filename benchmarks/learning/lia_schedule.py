"""LIA's schedule against the paper's on `rte`: likelihood of hidden annotations, and time.

    python -m benchmarks.learning.lia_schedule        # options: see benchmarks/parts.py

A fifth of the annotations is hidden, another
one for every seed; all see the rest and the same features (MiniLM of both texts), and are asked for the hidden ones.
Paper: AMSGrad at 0.001, ten rounds of 1,000 steps of 1,024 annotations and 1,000 of fine-tuning, four layers of 16. The
middle line has the paper's layers with our rates and steps. Times are of one thread: of the processor, which others may
use too, and by the clock.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.learning.new_items import data
from benchmarks.parts import Benchmark, Part, Rows
from dissensus.questions.scoring import log_likelihood, select_held_out_rows
from reproductions import record
from reproductions.verdict import estimate_mean

FOLDER = Path(__file__).parent
LAYERS = {"hidden": (16, 16, 16, 16), "dropout": 0.0}
SCHEDULES: dict[str, dict[str, Any]] = {
    "the paper's": {
        **LAYERS, "steps": 11_000, "finetune_share": 1 / 11, "learning_rate": 0.001, "head_learning_rate": 0.001,
    },
    "the paper's layers, our steps": LAYERS,
    "`LIA()`": {},
}  # fmt: skip


def run(part: Part, device: str) -> dict[str, Any]:
    """Fit all schedules with the same hidden annotations."""
    from dissensus.learning import LIA

    seed, few = part["seed"], {"steps": part["steps"]} if "steps" in part else {}
    table, X, gold = data("rte")
    mask = select_held_out_rows(table, 0.2, np.random.default_rng(seed))
    seen, rest = table.select(rows=~mask), table.select(rows=mask)
    rows = []
    for name, keywords in SCHEDULES.items():
        clock, processor = time.perf_counter(), time.process_time()
        model = LIA(seed=seed, device=device, **keywords | few).fit(seen, X, on_step=lambda epoch, loss: None)
        clock, processor = time.perf_counter() - clock, time.process_time() - processor
        hidden = float(log_likelihood(rest, model.predict_annotations(rest))[0].mean())
        right = float((model.posterior_.argmax(axis=1) == gold).mean())
        rows.append({"schedule": name, "hidden": hidden, "right": right, "clock": clock, "cpu": processor})
    return {"rows": rows}


def tables(parts: Rows) -> list[str]:
    """Return a line for every schedule."""
    rows = [row for part in parts for row in part["rows"]]
    lines = []
    first = next(iter(SCHEDULES))
    for name in SCHEDULES:
        own = [row for row in rows if row["schedule"] == name]
        hidden, cpu, clock, right = (np.array([row[key] for row in own]) for key in ("hidden", "cpu", "clock", "right"))
        gain = hidden - np.array([row["hidden"] for row in rows if row["schedule"] == first])
        versus = ""
        if name != first and gain.size > 1:
            found = estimate_mean(gain)
            versus = f"{found.mean:+.4f} ({found.low:+.4f} to {found.high:+.4f})"
        lines.append(
            [
                name,
                f"{hidden.mean():.4f}",
                versus,
                f"{100 * right.mean():.1f}",
                f"{cpu.mean():.1f}",
                f"{clock.mean():.1f}",
            ]
        )
    head = ["schedule", "log-likelihood", "more than the paper's", "items right %", "seconds", "by the clock"]
    said = f"Mean log-likelihood of a hidden annotation, {len(parts)} seeds; differences with 95 % intervals."
    return [said, record.markdown_table(head, lines)]


def parts(seeds: int) -> list[Part]:
    """One part for every seed."""
    return [{"seed": seed} for seed in range(seeds)]


BENCHMARK = Benchmark(FOLDER, "lia-schedule", run, parts, [{"seed": 0, "steps": 20}], tables, seeds=5)


if __name__ == "__main__":
    BENCHMARK.main(__doc__)
