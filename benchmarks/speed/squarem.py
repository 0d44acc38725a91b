"""SQUAREM against plain EM: passes over the data until as good as 1,000 plain iterations.

    python -m benchmarks.speed.squarem

from the repository's root, with DISSENSUS_DATA naming the data folder. "As good" is within 1e-6 (relative) of the
objective after 1,000 plain iterations. A pass reports the objective of the parameters it starts from, on both sides;
every pass counts, those of jumps that were thrown away too.
"""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks import record

import dissensus as dz
from dissensus.datasets import load_dataset

HERE = Path(__file__).parent
SETS = ["gimpel_pos", "labelme"]
PLAIN, WITHIN = 1_000, 1e-6


def climb(table: Any, accelerate: str | None) -> tuple[Any, np.ndarray]:
    """The fitted model, and the best objective known after each pass (P,)."""
    seen: list[float] = []
    model = dz.methods["dawid-skene"](seed=0, max_iter=PLAIN, tol=0.0, accelerate=accelerate)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # stopping at max_iter is meant
        model.fit(table, on_step=lambda step, objective: seen.append(objective))
    return model, np.maximum.accumulate(seen)


def run_set(name: str) -> dict[str, Any]:
    """Passes needed with and without acceleration."""
    data = load_dataset(name)
    known = data.gold >= 0
    runs = {mode: climb(data.annotations, mode) for mode in (None, "squarem")}
    goal = float(runs[None][1][-1])
    target = goal - WITHIN * abs(goal)
    row: dict[str, Any] = {"set": name, "objective": goal, "plain_iterations": len(runs[None][1])}
    for mode, (model, seen) in runs.items():
        there = np.flatnonzero(seen >= target)
        row[mode or "plain"] = {
            "passes": int(there[0]) + 1 if there.size else None,
            "best_objective": float(seen[-1]),
            "accuracy": float((model.predict() == data.annotations.classes[data.gold])[known].mean()),
        }
    passes = row["plain"]["passes"], row["squarem"]["passes"]
    row["ratio"] = None if None in passes else passes[1] / passes[0]
    return row


def main() -> None:
    made, rows = record.provenance(), [run_set(name) for name in SETS]
    head = ["Set", "objective of 1,000 plain iterations", "plain passes", "squarem passes", "squarem / plain"]
    head += ["best objective, squarem", "accuracy (%), plain", "accuracy (%), squarem"]
    body = [
        [
            row["set"],
            f"{row['objective']:.3f}",
            str(row["plain"]["passes"]),
            str(row["squarem"]["passes"] or f"not in {PLAIN:,}"),
            "–" if row["ratio"] is None else f"{row['ratio']:.2f}",
            f"{row['squarem']['best_objective']:.3f}",
            f"{100 * row['plain']['accuracy']:.2f}",
            f"{100 * row['squarem']['accuracy']:.2f}",
        ]
        for row in rows
    ]
    text = record.table(head, body)
    print(text)
    print("written:", record.save(HERE, "squarem", made, {"dissensus": dz.__version__, "sets": rows}).name)
    sentence = record.sentence(made, {"dissensus": {"version": dz.__version__}})
    record.splice(HERE / "README.md", "squarem", f"{sentence}\n\n{text}")


if __name__ == "__main__":
    main()
