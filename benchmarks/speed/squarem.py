"""SQUAREM against plain EM: passes over the data until as good as 1,000 plain iterations.

    python -m benchmarks.speed.squarem

from the repository's root, with DISSENSUS_DATA naming the data folder. "As good" is within 1e-6 (and 1e-8, relative) of
the objective after 1,000 plain iterations. A pass reports the objective of what it starts from, on both sides;
every pass counts, those of jumps that were thrown away too.
"""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np

import dissensus as dz
from dissensus.table.datasets import load_dataset
from reproductions import record

FOLDER = Path(__file__).parent
SETS = ["gimpel_pos", "labelme", "ner_mturk", "plank_pos", "rte", "sentiment_polarity", "medical_causes"]
PLAIN_PASSES, RELATIVE_GAPS = 1_000, (1e-6, 1e-8)


def climb(table: Any, accelerate: str | None) -> tuple[Any, np.ndarray]:
    """Fit, and return the model and the best objective after each pass (P,)."""
    objectives: list[float] = []
    model = dz.methods["dawid-skene"](seed=0, max_iter=PLAIN_PASSES, tol=0.0, accelerate=accelerate)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # stopping at max_iter is meant
        model.fit(table, on_step=lambda step, objective: objectives.append(objective))
    return model, np.maximum.accumulate(objectives)


def run_set(name: str) -> dict[str, Any]:
    """Count passes with and without acceleration."""
    data = load_dataset(name)
    known = data.gold >= 0
    runs = {mode: climb(data.annotations, mode) for mode in (None, "squarem")}
    goal = float(runs[None][1][-1])
    row: dict[str, Any] = {"set": name, "objective": goal, "plain_iterations": len(runs[None][1])}
    for mode, (model, seen) in runs.items():
        passes = {}
        for within in RELATIVE_GAPS:
            there = np.flatnonzero(seen >= goal - within * abs(goal))
            passes[f"{within:g}"] = int(there[0]) + 1 if there.size else None
        row[mode or "plain"] = {
            "passes": passes,
            "best_objective": float(seen[-1]),
            "accuracy": float((model.predict() == data.annotations.classes[data.gold])[known].mean()),
        }
    return row


def passes(row: dict[str, Any], within: float) -> str:
    """Plain → squarem passes and their ratio."""
    plain, fast = (row[mode]["passes"][f"{within:g}"] for mode in ("plain", "squarem"))
    if fast is None:
        return f"{plain} → not in {PLAIN_PASSES:,}"
    return f"{plain} → {fast} ({fast / plain:.2f})"


def main() -> None:
    made, rows = record.provenance(busy=True), [run_set(name) for name in SETS]
    head = ["Set", *(f"passes to within {within:g}: plain → squarem (ratio)" for within in RELATIVE_GAPS)]
    head += ["objective of 1,000 plain iterations", "best of squarem", "accuracy (%), plain", "accuracy (%), squarem"]
    body = [
        [
            row["set"],
            *(passes(row, within) for within in RELATIVE_GAPS),
            f"{row['objective']:.3f}",
            f"{row['squarem']['best_objective']:.3f}",
            f"{100 * row['plain']['accuracy']:.2f}",
            f"{100 * row['squarem']['accuracy']:.2f}",
        ]
        for row in rows
    ]
    text = record.markdown_table(head, body)
    print(text)
    record.publish(FOLDER / "README.md", "squarem", made, {"sets": rows}, [text])


if __name__ == "__main__":
    main()
