"""Accuracy of the default compared with every other method: `python -m benchmarks.trust.accuracy [SET …] [--seeds 5]`.

The sets and levels of `benchmarks.trust.posterior`, all methods for single labels that take the table. "Behind" is how
many points of accuracy a method is below the best by gold of the same table, which is chosen with hindsight: accuracies
are means over several draws of the labels, or the luck of one draw would choose it.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections import defaultdict
from typing import Any

import numpy as np

import dissensus as dz
from benchmarks.trust.posterior import LEVELS, SETS
from dissensus.common.registry import DEFAULT_METHOD
from dissensus.exceptions import DissensusError

PRINTED_METHODS = ("dawid-skene", "hierarchical-dawid-skene", "majority-vote")  # Methods for which a line is printed.
NOT_FOR_LABELS = (
    "bayesian-sequence", "bradley-terry", "closest", "gaussian", "graded-response", "rover", "set-tree",
)  # fmt: skip
MAX_CELLS = 1_000_000  # annotators × classes² that item-effect, which keeps 11 copies, is tried on
NEAR = 0.01


def accuracies(table: Any, gold: Any) -> dict[str, float]:
    """Return method → accuracy on the items with gold."""
    found = {}
    known = np.flatnonzero((gold >= 0) & (np.diff(table.item_ptr) > 0))
    for method in dz.methods:
        large = table.n_annotators * table.n_classes**2 > MAX_CELLS or len(table) > MAX_CELLS // 10
        if method in NOT_FOR_LABELS or (method == "item-effect" and large):
            continue
        try:
            labels = dz.methods[method]().fit(table).predict()
        except DissensusError:  # made for two classes, or for items that all annotators have labelled
            continue
        found[method] = float((labels[known] == table.classes[gold[known]]).mean())
    return found


def main() -> None:
    """Print a line for every table, then the means over tables and over sets."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("sets", nargs="*", default=SETS)
    parser.add_argument("--seeds", type=int, default=5)
    asked = parser.parse_args()
    warnings.simplefilter("ignore")
    behind, by_set = defaultdict(list), defaultdict(lambda: defaultdict(list))
    for name in asked.sets:
        data: Any = dz.load_dataset(name)
        for level in LEVELS:
            if level is not None and level >= np.diff(data.annotations.item_ptr).mean() - 0.01:
                continue
            began, draws = time.perf_counter(), []
            for seed in range(1 if level is None else asked.seeds):
                table = data.annotations if level is None else data.annotations.subsample(level, [seed, level])
                draws.append(accuracies(table, data.gold))
            found = {method: float(np.mean([draw[method] for draw in draws])) for method in draws[0]}
            best = max(found, key=lambda method: found[method])
            for method, value in found.items():
                behind[method].append(found[best] - value)
                by_set[method][name].append(value)
            print(
                f"{name}, {level or 'all'} labels: {DEFAULT_METHOD} {found[DEFAULT_METHOD]:.2%}, best of "
                f"{len(found)} {best} {found[best]:.2%} ({time.perf_counter() - began:.0f} s)", flush=True,
            )  # fmt: skip
    print("\n| method | accuracy, mean over sets | within one point of the best | points behind, mean | largest |")
    print("|---|---|---|---|---|")
    for method in (DEFAULT_METHOD, *PRINTED_METHODS):
        far = np.array(behind[method])
        mean = np.mean([np.mean(values) for values in by_set[method].values()])
        near = f"{np.count_nonzero(far <= NEAR + 1e-9)} of {far.size}"
        print(f"| {method} | {mean:.2%} | {near} | {100 * far.mean():.2f} | {100 * far.max():.2f} |")


if __name__ == "__main__":
    main()
