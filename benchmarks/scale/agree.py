"""Engines agree on 5M simulated annotations: every method fitted by `local`, `disk`, `torch` (on the CPU) and `spark`.

    python -m benchmarks.scale.agree                 # some minutes
    python -m benchmarks.scale.agree --million 1

Spark is a cluster on loopback, a master and two workers of one core each, which is started here; the table is sent to
it from memory.

To the end, or at most `--passes` passes each; one thread. Differences are the largest over all items and classes.
Labels are compared where the best two classes are further apart than 1e-9. Seconds are of whole fits, and torch's are
no measure of a GPU, nor Spark's of a cluster.
"""

from __future__ import annotations

import argparse
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from dissensus import methods
from dissensus.compute.engines import Disk, Spark, Torch
from dissensus.table.simulate import simulate
from reproductions import record
from tests.compute.engines.cluster import cluster

FOLDER = Path(__file__).parent
METHODS = ("majority-vote", "wawa", "dawid-skene", "one-coin", "hierarchical-dawid-skene", "mace", "glad")
ENGINES = ("disk", "torch", "spark")
TIE_TOLERANCE = 1e-9


def keywords(name: str, passes: int) -> dict[str, Any]:
    if name in ("majority-vote", "wawa"):
        return {}
    return {"max_iter": passes, "threads": 1} | ({"restarts": 1} if name == "mace" else {})


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--million", type=int, default=5)
    options.add_argument("--passes", type=int, default=500)
    given = options.parse_args()
    warnings.simplefilter("ignore")
    made = record.provenance(busy=True)
    table = simulate(given.million * 100_000, 5_000, 5, redundancy=10, seed=0).annotations
    rows, results = [], []
    with tempfile.TemporaryDirectory() as folder, cluster(Path(folder) / "spark", 2, "2g"):
        engines = {
            "local": "local",
            "disk": Disk(folder=Path(folder) / "codes", block_rows=1_000_000),
            "torch": Torch(device="cpu"),
            "spark": Spark(),
        }
        for name in METHODS:
            fitted, seconds = {}, {}
            for engine, placed in engines.items():
                begun = time.perf_counter()
                fitted[engine] = methods[name](engine=placed, **keywords(name, given.passes)).fit(table)
                seconds[engine] = time.perf_counter() - begun
            best = np.sort(fitted["local"].posterior_, axis=1)[:, -2:]
            clear = best[:, 1] - best[:, 0] > TIE_TOLERANCE
            result_row: dict[str, Any] = {"method": name, "seconds": seconds}
            for engine in ENGINES:
                model, local = fitted[engine], fitted["local"]
                result_row[engine] = {
                    "posterior": float(np.abs(model.posterior_ - local.posterior_).max()),
                    "labels": int((model.predict()[clear] != local.predict()[clear]).sum()),
                    "same_passes": model.n_iter_ == local.n_iter_,
                }
            results.append(result_row)
            rows.append(
                [
                    name, f"{fitted['local'].n_iter_}",
                    *(f"{result_row[e]['posterior']:.0e}, {result_row[e]['labels']}" for e in ENGINES),
                    *(f"{seconds[e]:.1f}" for e in engines),
                ]
            )  # fmt: skip
            print(rows[-1], flush=True)
    head = ["method", "passes", *(f"{e}: posterior, labels" for e in ENGINES), *(f"s {e}" for e in engines)]
    text = record.markdown_table(head, rows)
    record.publish(FOLDER / "README.md", "agree", made, {"annotations": len(table), "results": results}, [text])
    print(text)


if __name__ == "__main__":
    main()
