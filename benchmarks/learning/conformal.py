"""How often sets of labels hold the label, for 90 % asked.

    python -m benchmarks.learning.conformal        # options: see benchmarks/parts.py

`CrowdClassifier()` learns from 70 % of the items and says sets of the others. *Votes*: nothing but annotations is
known, and a set is to hold the label of an annotator drawn at random. *Gold*: the classes of half of the other items
are given as `validation`, and a set is to hold the class of the rest. Also the size of the sets, and how often the
interval that the model itself gives of its coverage holds 90 %.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

import dissensus as dz
from benchmarks.learning.defaults import SETS, TAUGHT, data
from benchmarks.parts import Benchmark, Part, Rows, mean_and_error
from reproductions import record

HERE = Path(__file__).parent
COVERAGE = 0.9
WITH_GOLD = ("sentiment_polarity", "labelme", "digits-crowd")


def run(part: Part, device: str) -> dict[str, Any]:
    """Fit once, and count what the sets of new items hold."""
    from dissensus.learning import CrowdClassifier

    table, X, _ = data(part["data"])
    order = np.random.default_rng(part["seed"]).permutation(table.n_items)[: part.get("items")]
    taught, new = np.split(order, [round(TAUGHT * order.size)])
    truth, validation = table.soft_labels(), None
    if part["by"] == "gold":
        gold = dz.load_dataset(part["data"]).gold
        truth, (known, new) = np.eye(table.n_classes)[gold], np.array_split(new, 2)
        validation = (X[known], table.classes[gold[known]])
    chosen = np.isin(np.arange(table.n_items), taught)
    model = CrowdClassifier(device=device, seed=part["seed"])
    model.fit(table.select(items=chosen), X[chosen], validation=validation, on_step=lambda step, loss: None)
    sets = model.predict_sets(X[new], coverage=COVERAGE)
    return {
        "coverage": float((truth[new] * sets.members).sum(axis=1).mean()),
        "size": float(sets.members.sum(axis=1).mean()),
        "empty": float((~sets.members.any(axis=1)).mean()),
        "said": [sets.covered.low, sets.covered.value, sets.covered.high],
    }


def tables(rows: Rows) -> list[str]:
    """A line for every set, by votes and by gold."""
    lines = []
    for by in ("votes", "gold"):
        for name in SETS:
            own = [row for row in rows if (row["data"], row["by"]) == (name, by)]
            if own:
                values = [100 * row["coverage"] for row in own]
                holds = np.mean([row["said"][0] <= COVERAGE <= row["said"][2] for row in own])
                lines.append(
                    [
                        name, by, str(len(own)), mean_and_error(values, 1), f"{min(values):.1f} to {max(values):.1f}",
                        mean_and_error([row["size"] for row in own], 2),
                        f"{100 * np.mean([row['empty'] for row in own]):.1f}", f"{100 * holds:.0f}",
                    ]
                )  # fmt: skip
    head = [
        "set", "by", "splits", "coverage %", "least to most", "labels in a set", "empty %",
        "own interval holds 90 %, % of splits",
    ]  # fmt: skip
    return [record.table(head, lines, text_columns=2)]


def parts(seeds: int) -> list[Part]:
    """All splits of every set."""
    kinds = [(name, "votes") for name in SETS] + [(name, "gold") for name in WITH_GOLD]
    return [{"data": name, "by": by, "seed": seed} for seed in range(seeds) for name, by in kinds]


QUICK: list[Part] = [{"data": "digits-crowd", "by": by, "seed": 0, "items": 150} for by in ("votes", "gold")]
BENCHMARK = Benchmark(HERE, "conformal", run, parts, QUICK, tables, seeds=100)


if __name__ == "__main__":
    BENCHMARK.main(__doc__)
