"""How long the paper's search takes, whether its fits are finished, and one fit to a million annotations.

    python -m benchmarks.clustering.speed [--only grid million]

from the repository's root, with DISSENSUS_DATA naming the data folder. The grid is 3 to 20 item clusters by 3 to 20
annotator clusters on all 2,000 items of jobs_q3, one start each, by `select_clusters`. Afterwards 36 points, spread
over the grid, are fitted again for five times as long. Writes `results/` and a table of README.md.
"""

from __future__ import annotations

import argparse
import resource
import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.metrics import adjusted_rand_score

import dissensus as dz
from benchmarks.clustering.drawn import draw
from dissensus.clustering import GridPoint
from dissensus.exceptions import ConvergenceWarning
from reproductions import record

FOLDER = Path(__file__).parent
SIZES = range(3, 21)
METHODS = ("pgm-bp", "pgm-annealing")
LONGER_FACTOR = 5
REFITTED_NUMBERS = (3, 6, 10, 13, 17, 20)  # numbers of clusters that are fitted again, for longer


def grid(method: str) -> dict[str, Any]:
    data = dz.load_dataset("jobs_q3")
    table, dev = data.annotations, data.splits["dev"].annotations
    dz.clusterings[method](item_clusters=3, annotator_clusters=3, restarts=1).fit(table)  # compiles
    begin = time.perf_counter()
    found = dz.select_clusters(table, method, K=SIZES, L=SIZES, dev=dev, criterion="kl")
    seconds = time.perf_counter() - begin

    def behind(point: GridPoint) -> float:
        """Relative gain of the objective in a run five times as long."""
        longer: dict[str, Any] = {"sweeps": 400 * LONGER_FACTOR}
        if method == "pgm-bp":
            longer = {"max_iter": LONGER_FACTOR * point.iterations, "tol": 0.0}
        model = dz.clusterings[method](
            item_clusters=point.K, annotator_clusters=point.L, restarts=1, threads=1, **longer
        )
        return float((model.fit(table).trace_[-1] - point.objective) / abs(point.objective))

    print(method, f"{seconds:.1f} s", flush=True)
    with ThreadPoolExecutor(record.n_cores()) as pool:
        gaps = list(pool.map(behind, (point for point in found.points if {point.K, point.L} <= set(REFITTED_NUMBERS))))
    return {
        "method": method,
        "points": len(found.points),
        "seconds": seconds,
        "converged": sum(point.converged for point in found.points),
        "iterations": float(np.mean([point.iterations for point in found.points])),
        "slowest": max(point.seconds for point in found.points),
        "behind_mean": float(np.mean(gaps)),
        "behind_worst": max(gaps),
    }


def million(method: str) -> dict[str, Any]:
    drawn = draw(100_000, 1000, 10, item_clusters=10, annotator_clusters=10, redundancy=10, concentration=0.5, seed=0)
    warm = draw(100, 20, 10, item_clusters=10, annotator_clusters=10, redundancy=5, seed=0).annotations
    sizes: dict[str, Any] = {"item_clusters": 10, "annotator_clusters": 10, "restarts": 1}
    dz.clusterings[method](**sizes).fit(warm)
    begin = time.perf_counter()
    model = dz.clusterings[method](**sizes).fit(drawn.annotations)
    return {
        "method": method,
        "seconds": time.perf_counter() - begin,
        "iterations": model.n_iter_,
        "converged": model.converged_,
        "items": float(adjusted_rand_score(drawn.item_cluster, model.item_cluster_)),
        "annotators": float(adjusted_rand_score(drawn.annotator_cluster, model.annotator_cluster_)),
        "peak_gb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6,
    }


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--only", nargs="+", choices=("grid", "million"), default=("grid", "million"))
    only = options.parse_args().only
    warnings.simplefilter("ignore", ConvergenceWarning)
    made, content = record.provenance(busy=True), {}
    for name, measure in (("million", million), ("grid", grid)):
        if name in only:
            content[name] = []
            for method in METHODS:
                content[name].append(measure(method))
                print(name, content[name][-1], flush=True)
    if len(only) < 2:
        return
    head = ["grid, jobs_q3", "points", "minutes", "slowest fit, s", "steps", "converged", "behind, mean", "worst"]
    rows = [
        [row["method"], str(row["points"]), f"{row['seconds'] / 60:.1f}", f"{row['slowest']:.1f}",
         f"{row['iterations']:.0f}", str(row["converged"]), f"{row['behind_mean']:.3%}", f"{row['behind_worst']:.3%}"]
        for row in content["grid"]
    ]  # fmt: skip
    text = [record.markdown_table(head, rows)]
    head = ["a million annotations", "seconds", "steps", "items", "annotators", "peak, GB"]
    rows = [
        [row["method"], f"{row['seconds']:.1f}", str(row["iterations"]), f"{row['items']:.3f}",
         f"{row['annotators']:.3f}", f"{row['peak_gb']:.2f}"]
        for row in content["million"]
    ]  # fmt: skip
    text.append(record.markdown_table(head, rows))
    record.publish(FOLDER / "README.md", "speed", made, content, text)


if __name__ == "__main__":
    main()
