"""How long a recommendation from a million pairs takes, beside the logarithms that it cannot do without.

    python -m benchmarks.recommend.speed

from the repository's root. One thread; the best of five runs each, in turn, so that others on the machine are in both.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import dissensus as dz
from dissensus.models.methods import DawidSkene
from dissensus.table.simulate import simulate
from reproductions import record

FOLDER = Path(__file__).parent
ITEMS, ANNOTATORS, RUNS = 10_000, 100, 5


def seconds(work: Callable[[], Any]) -> float:
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def case(n_classes: int) -> dict[str, Any]:
    """Time one label, and five hundred, of a million pairs; the floor is K logarithms for each pair."""
    table = simulate(ITEMS, ANNOTATORS, n_classes, redundancy=3, seed=0).annotations
    model = DawidSkene(threads=1).fit(table)
    numbers = np.random.default_rng(0).random(ITEMS * ANNOTATORS * n_classes) + 1e-3
    seconds_by_case: dict[str, list[float]] = {"one": [], "many": [], "floor": []}
    for _ in range(RUNS):
        seconds_by_case["one"].append(seconds(lambda: dz.recommend(model, table, budget=1, threads=1)))
        seconds_by_case["many"].append(seconds(lambda: dz.recommend(model, table, budget=500, threads=1)))
        seconds_by_case["floor"].append(seconds(lambda: np.log(numbers)))
    return {"classes": n_classes} | {name: min(times) for name, times in seconds_by_case.items()}


def main() -> None:
    made = record.provenance(busy=True)
    cases = [case(n_classes) for n_classes in (2, 5, 12)]
    rows = []
    for one in cases:
        times = [f"{one[name]:.3f}" for name in ("one", "many", "floor")]
        rows.append([str(one["classes"]), *times, f"{one['one'] / one['floor']:.1f}"])
    head = ["classes", "one label, s", "500 labels, s", "logarithms alone, s", "one label / logarithms"]
    record.publish(FOLDER / "README.md", "speed", made, {"cases": cases}, [record.markdown_table(head, rows)])


if __name__ == "__main__":
    main()
