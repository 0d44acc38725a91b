"""How often sets of labels hold the label, for 90 % asked.

    python -m benchmarks.learning.conformal        # options: see benchmarks/parts.py

`CrowdClassifier()` learns from 70 % of the items and says sets of the others. *Votes*: nothing but annotations is
known, and a set is to hold the label of an annotator drawn at random. *Gold*: the classes of half of the other items
are given as `validation`, and a set is to hold the class of the rest. Ten fits for every set, on other items each, and
ten splits of what each fit says: a random half of the items that it held out calibrates, a random half of the new ones
is counted. Also the size of the sets, and how often the interval that goes with the sets holds 90 %.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

import dissensus as dz
from benchmarks.learning.defaults import SETS, TRAIN_SHARE, data
from benchmarks.parts import Benchmark, Part, Rows, mean_and_error
from reproductions import record

FOLDER = Path(__file__).parent
COVERAGE = 0.9
SPLITS = 10  # Random splits of each fit.
WITH_GOLD = ("sentiment_polarity", "labelme", "digits-crowd")


def run(part: Part, device: str) -> dict[str, Any]:
    """Fit once, and count what the sets of new items hold, in all splits."""
    from dissensus.learning import CrowdClassifier
    from dissensus.learning.conformal import make_label_sets

    table, X, _ = data(part["data"])
    order = np.random.default_rng(part["seed"]).permutation(table.n_items)[: part.get("items")]
    taught, new = np.split(order, [round(TRAIN_SHARE * order.size)])
    truth, validation = table.soft_labels(), None
    if part["by"] == "gold":
        gold = dz.load_dataset(part["data"]).gold
        truth, (known, new) = np.eye(table.n_classes)[gold], np.array_split(new, 2)
        validation = (X[known], table.classes[gold[known]])
    chosen = np.isin(np.arange(table.n_items), taught)
    model = CrowdClassifier(device=device, seed=part["seed"])
    model.fit(table.select(items=chosen), X[chosen], validation=validation, on_step=lambda step, loss: None)
    proba, draw = model.predict_proba(X[new]), np.random.default_rng([part["seed"], 1])
    found = []
    for _ in range(SPLITS):
        held, asked = (draw.permutation(n)[: n // 2] for n in (len(model.held_out_predictions_[1]), len(new)))
        judged = [of[held] for of in model.held_out_predictions_]
        sets = make_label_sets(proba[asked], model.classes_, *judged, COVERAGE)
        found.append(
            {
                "coverage": float((truth[new[asked]] * sets.members).sum(axis=1).mean()),
                "size": float(sets.members.sum(axis=1).mean()),
                "empty": float((~sets.members.any(axis=1)).mean()),
                "said": [sets.covered.low, sets.covered.value, sets.covered.high],
            }
        )
    return {"splits": found}


def tables(rows: Rows) -> list[str]:
    """Return a line for every set, by votes and by gold."""
    lines = []
    for by in ("votes", "gold"):
        for name in SETS:
            own = [row for row in rows if (row["data"], row["by"]) == (name, by)]
            if own:
                splits = [split for row in own for split in row["splits"]]
                values = [100 * split["coverage"] for split in splits]
                by_fit = np.mean(np.reshape(values, (len(own), -1)), axis=1)
                holds = np.mean([split["said"][0] <= COVERAGE <= split["said"][2] for split in splits])
                lines.append(
                    [
                        name, by, str(len(splits)), mean_and_error(by_fit, 1),
                        f"{min(values):.1f} to {max(values):.1f}",
                        f"{np.mean([split['size'] for split in splits]):.2f}",
                        f"{100 * np.mean([split['empty'] for split in splits]):.1f}", f"{100 * holds:.0f}",
                    ]
                )  # fmt: skip
    head = [
        "set", "by", "splits", "coverage % (± over fits)", "least to most", "labels in a set", "empty %",
        "interval holds 90 %, % of splits",
    ]  # fmt: skip
    return [record.markdown_table(head, lines, text_columns=2)]


def parts(seeds: int) -> list[Part]:
    """Return all splits of every set."""
    kinds = [(name, "votes") for name in SETS] + [(name, "gold") for name in WITH_GOLD]
    return [{"data": name, "by": by, "seed": seed} for seed in range(seeds) for name, by in kinds]


QUICK: list[Part] = [{"data": "digits-crowd", "by": by, "seed": 0, "items": 150} for by in ("votes", "gold")]
BENCHMARK = Benchmark(FOLDER, "conformal", run, parts, QUICK, tables, seeds=10)


if __name__ == "__main__":
    BENCHMARK.main(__doc__)
