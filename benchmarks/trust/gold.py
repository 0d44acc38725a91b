"""Gain from gold labels: log loss and accuracy on the other items, with ρ by gold and with shifts as well.

    python -m benchmarks.trust.gold [METHOD] [--seeds 8]

Every set with gold; 30 to 1,000 gold items drawn at random, at most three of five, judge the rest. The fit that is
calibrated has seen none of them. A mean is over sets that have so many.
"""

from __future__ import annotations

import argparse
import warnings
from collections import defaultdict
from typing import Any

import numpy as np

from benchmarks.trust.posterior import LEVELS, Case, cases, scores
from dissensus.models.gold_tempering import tempering_from_gold

SIZES = (30, 50, 100, 200, 1000)  # gold items
MAX_SHARE = 0.6  # Largest share of a set's gold that is used.
JUDGED = 5_000  # items at most


def score_with_gold(case: Case, size: int, seed: int) -> Any:
    """(3, 2) log loss and accuracy of items that were not drawn: by the default, with ρ by gold, and with shifts."""
    order = np.random.default_rng([seed, size]).permutation(case.gold.size)
    known, rest = order[:size], order[size : size + JUDGED]
    found = tempering_from_gold(case.posterior[known], case.n_labels[known], case.gold[known])
    alone = tempering_from_gold(case.posterior[known], case.n_labels[known], case.gold[known], shifts=False)
    soft = [
        case.temper(case.dependence)[rest],
        alone.temper(case.posterior[rest], case.n_labels[rest]),
        found.temper(case.posterior[rest], case.n_labels[rest]),
    ]
    return np.array([scores(one, case.gold[rest])[:2] for one in soft])


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("method", nargs="?", default="consensus")
    parser.add_argument("--seeds", type=int, default=8)
    asked = parser.parse_args()
    warnings.simplefilter("ignore")
    print("| set | gold items | log loss: default | ρ by gold | and shifts | accuracy | with shifts |")
    print("|---|---|---|---|---|---|---|")
    means = defaultdict(list)
    for case in cases(asked.method, LEVELS[-1:]):
        for size in SIZES:
            if size <= MAX_SHARE * case.gold.size:
                found = np.mean([score_with_gold(case, size, seed) for seed in range(asked.seeds)], axis=0)
                means[size].append(found)
                show(case.name, size, found)
    for size, found in means.items():
        show(f"mean of {len(found)} sets", size, np.mean(found, axis=0))
        worst = max(one[2, 0] - one[1, 0] for one in found)
        print(f"| shifts against ρ alone: the worst set | {size} | | | {worst:+.4f} | | |", flush=True)


def show(name: str, size: int, found: Any) -> None:
    """Print a line of the table."""
    losses = " | ".join(f"{loss:.3f}" for loss in found[:, 0])
    print(f"| {name} | {size} | {losses} | {100 * found[1, 1]:.1f} | {100 * found[2, 1]:.1f} |", flush=True)


if __name__ == "__main__":
    main()
