"""Figure 4 of Weerasooriya et al. 2021: items as LDL-NM sees them, and which of its vectors keeps classes apart.

    python -m benchmarks.learning.item_map [--seeds 2]

from the repository's root, with DISSENSUS_DATA naming the data folder. Draws the training items of jobs_q3 (seed 0)
into this folder and writes the table into README.md. Trained as in the paper: 200 epochs, the sets' training items;
MiniLM vectors, sizes 10 and 10; no sizes were searched for it.

The share of the ten nearest neighbours of an item, among the training items or among the test items, that have its
majority label: by MiniLM, by z_I, and by the mean of z_E over annotators, which is what `item_map` takes.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks import record
from benchmarks.learning.ldl_nm import SETS, parts

import dissensus as dz

HERE = Path(__file__).parent
COLUMNS = {"chance": "by chance", "minilm": "MiniLM", "z_i": "z_I", "z_e": "z_E"}


def run(name: str, seed: int) -> list[dict[str, Any]]:
    """One training, both parts; jobs_q3 of seed 0 is drawn."""
    import torch
    from reproductions.size_search import ldl_nm

    from dissensus.learning.latent_map import item_vectors, nearest, separation
    from dissensus.models.base import arg_max
    from dissensus.report.figures import plot_latent

    torch.set_num_threads(1)
    data = parts(name, None)
    model = ldl_nm(seed=seed, device="cpu").fit(*data["train"])
    if (name, seed) == ("jobs_q3", 0):
        plot_latent(model, data["train"][1], HERE / "jobs_q3_items.svg", table=data["train"][0])
    head: Any = model.network_.head
    rows = []
    for part in ("train", "test"):
        table, X = data[part]
        code = arg_max(table.votes(), table.items, table.classes, 0)
        with torch.inference_mode():
            z_item = head.z_item(torch.as_tensor(np.asarray(X, np.float32))).double().numpy()
        vectors = {"minilm": np.asarray(X, np.float64), "z_i": z_item, "z_e": item_vectors(model, X)}
        found = {key: separation(nearest(z), code, table.n_classes) for key, z in vectors.items()}
        rows.append(
            {"set": name, "part": part, "seed": seed, "chance": found["z_e"].mean_chance}
            | {key: one.mean for key, one in found.items()}
        )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=2)
    seeds = parser.parse_args().seeds
    made = record.provenance()
    runs = [row for name in SETS for seed in range(seeds) for row in run(name, seed)]
    lines = []
    for name in SETS:
        for part in ("train", "test"):
            own = [one for one in runs if (one["set"], one["part"]) == (name, part)]
            cells = [[one[key] for one in own] for key in COLUMNS]
            lines.append([name, part, *(f"{np.mean(cell):.3f} ± {np.std(cell):.3f}" for cell in cells)])
    text = [
        record.sentence(made, {"dissensus": {"dissensus": dz.__version__}}),
        f"{seeds} seeds, mean ± standard deviation.",
        record.table(["set", "items", *COLUMNS.values()], lines, left=2),
    ]
    record.save(HERE, "item-map", made, {"runs": runs})
    record.splice(HERE / "README.md", "item map", "\n\n".join(text))


if __name__ == "__main__":
    main()
