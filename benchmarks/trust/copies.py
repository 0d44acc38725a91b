"""Cost of copies: accuracy and log loss of the default on crowds with copying annotators, and without their labels.

    python -m benchmarks.trust.copies [--seeds 20]

Crowds of ten labels an item in which 10, 20 and 40 % copy a poor leader, and `digits-crowd`. An oracle leaves out the
labels of all who copy, but the leader's.
"""

from __future__ import annotations

import argparse
import warnings
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import numpy as np

import dissensus as dz
from benchmarks.trust.people import copying_crowd
from dissensus.table.datasets.digits import DATASET_NAME

METHODS = ("consensus", "dawid-skene", "hierarchical-dawid-skene", "majority-vote")
SHARES = (0.1, 0.2, 0.4)


def crowds(seed: int) -> Iterator[tuple[str, Any, Any, Any]]:
    """Yield a name, the table, its truth, and a mask of the copying annotators."""
    for share in SHARES:
        table, leader, truth = copying_crowd(110, 1000, 4, share, 1, seed)
        yield f"{share:.0%} copy", table, truth, (leader >= 0) & (leader != np.arange(leader.size))
    data: Any = dz.load_dataset(DATASET_NAME, seed=seed)
    yield (
        DATASET_NAME,
        data.annotations,
        data.gold,
        np.array([bool(one) for one in data.annotators["copies"].to_pylist()]),
    )


def scores(method: str, table: Any, truth: Any) -> tuple[float, float]:
    """Accuracy and log loss."""
    q = dz.methods[method]().fit(table).posterior_
    return float((q.argmax(axis=1) == truth).mean()), float(
        -np.log(np.maximum(q[np.arange(truth.size), truth], 1e-12)).mean()
    )


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=20)
    scores_by_case: dict[str, dict[str, list[tuple[float, float]]]] = defaultdict(lambda: defaultdict(list))
    warnings.simplefilter("ignore")
    for seed in range(parser.parse_args().seeds):
        for name, table, truth, copies in crowds(seed):
            for method in METHODS:
                scores_by_case[name][method].append(scores(method, table, truth))
            rest = table.select(rows=~copies[table.annotator])
            kept = np.isin(table.items, rest.items)
            for method in METHODS[:2]:
                scores_by_case[name][f"{method} without the copies"].append(scores(method, rest, truth[kept]))
    print("| crowd | method | accuracy | log loss |\n|---|---|---|---|")
    for name, rows in scores_by_case.items():
        for method, values in rows.items():
            accuracy, loss = np.mean(values, axis=0)
            print(f"| {name} | {method} | {accuracy:.4f} | {loss:.3f} |")


if __name__ == "__main__":
    main()
