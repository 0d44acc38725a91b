"""Figure 4 of Weerasooriya et al. 2021: items as LDL-NM sees them, and which of its vectors keeps classes apart.

    python -m benchmarks.learning.item_map        # options: see benchmarks/parts.py

Draws the training items of jobs_q3 (seed 0) into this folder. Trained as in the paper: 200 epochs, the sets' training
items; MiniLM vectors, sizes 10 and 10; no sizes were searched for it.

The share of the ten nearest neighbours of an item, among the training items or among the test items, that have its
majority label: by MiniLM, by z_I, and by the mean of z_E over annotators, which is what `item_map` takes.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.parts import Benchmark, Part, Rows
from reproductions import record
from reproductions.weerasooriya2021 import SETS
from reproductions.weerasooriya2021 import parts as splits

HERE = Path(__file__).parent
COLUMNS = {"chance": "by chance", "minilm": "MiniLM", "z_i": "z_I", "z_e": "z_E"}


def run(part: Part, device: str) -> dict[str, Any]:
    """Train once, score both parts, and draw jobs_q3 with seed 0."""
    import torch

    from dissensus.learning.latent_map import item_vectors, nearest, separation
    from dissensus.models.base import arg_max
    from dissensus.report.figures import plot_latent
    from reproductions.size_search import ldl_nm

    data = splits(part["set"])
    epochs = {"epochs": part["epochs"]} if "epochs" in part else {}
    model = ldl_nm(seed=part["seed"], device=device, **epochs).fit(data["train"].table, data["train"].X)
    if part == {"set": "jobs_q3", "seed": 0}:
        plot_latent(model, data["train"].X, HERE / "jobs_q3_items.svg", table=data["train"].table)
    head: Any = model.network_.head
    rows = []
    for split in ("train", "test"):
        table, X = data[split].table, data[split].X
        code = arg_max(table.votes(), table.items, table.classes, 0)
        with torch.inference_mode():
            z_item = head.z_item(torch.as_tensor(np.asarray(X, np.float32))).double().numpy()
        vectors = {"minilm": np.asarray(X, np.float64), "z_i": z_item, "z_e": item_vectors(model, X)}
        found = {key: separation(nearest(z), code, table.n_classes) for key, z in vectors.items()}
        rows.append({"part": split, "chance": found["z_e"].mean_chance} | {key: one.mean for key, one in found.items()})
    return {"rows": rows}


def tables(rows: Rows) -> list[str]:
    """The shares of every set and part."""
    lines = []
    for name in SETS:
        for split in ("train", "test"):
            own = [one for row in rows if row["set"] == name for one in row["rows"] if one["part"] == split]
            if own:
                cells = [[one[key] for one in own] for key in COLUMNS]
                lines.append([name, split, *(f"{np.mean(cell):.3f} ± {np.std(cell):.3f}" for cell in cells)])
    return [
        f"{len({row['seed'] for row in rows})} seeds, mean ± standard deviation.",
        record.table(["set", "items", *COLUMNS.values()], lines, 2),
    ]


def parts(seeds: int) -> list[Part]:
    """Every set, seed by seed."""
    return [{"set": name, "seed": seed} for name in SETS for seed in range(seeds)]


BENCHMARK = Benchmark(HERE, "item-map", run, parts, [{"set": "jobs_q3", "seed": 0, "epochs": 2}], tables, seeds=2)


if __name__ == "__main__":
    BENCHMARK.main(__doc__)
