"""Panels whose judges err in families, where `item-effect` fails: `python -m benchmarks.trust.families [--seeds 3]`.

A judge misses a third of what is good and passes an eighth of what is bad; a share of its luck is that of its family.
Accuracy of majority vote, hierarchical Dawid-Skene, item-effect and consensus, and the share of labels that item-effect
changes.
"""

from __future__ import annotations

import argparse
import warnings

import numpy as np

import dissensus as dz

METHODS = ("majority-vote", "hierarchical-dawid-skene", "item-effect", "consensus")
PANELS = ([1] * 5, [2, 2, 1], [2] * 4, [1] * 10, [4, 3, 3], [2] * 5, [6] * 4, [3] * 8, [8] * 3)  # sizes of families
SHARES = (0.3, 0.6, 0.8)  # Shares of a judge's error that it has in common with its family.
ITEMS, GOOD, MISSED, PASSED = 800, 0.55, 0.33, 0.12


def panel(sizes: list[int], share: float, seed: int) -> tuple[dz.Annotations, np.ndarray]:
    """Verdicts, and the truth."""
    rng, family = np.random.default_rng(seed), np.repeat(np.arange(len(sizes)), sizes)
    good = rng.random(ITEMS) < GOOD
    together = rng.random((ITEMS, len(sizes)))[:, family]
    luck = np.where(rng.random(together.shape) < share, together, rng.random(together.shape))
    wrong = luck < np.where(good, MISSED, PASSED)[:, None]
    return dz.Annotations.from_matrix((wrong ^ good[:, None]).astype(int)), good


def main() -> None:
    """Print a line for every kind of panel."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    seeds = range(parser.parse_args().seeds)
    warnings.simplefilter("ignore")
    print(f"| families | share | {' | '.join(METHODS)} | changed by item-effect |")
    print("|---|---|" + "---|" * (len(METHODS) + 1))
    for sizes in PANELS:
        for share in SHARES:
            rows = []
            for seed in seeds:
                table, good = panel(sizes, share, seed)
                said = [dz.methods[name]().fit(table).posterior_.argmax(axis=1) for name in METHODS]
                rows.append([*((one == good).mean() for one in said), (said[1] != said[2]).mean()])
            cells = " | ".join(f"{value:.3f}" for value in np.mean(rows, axis=0))
            print(f"| {sizes} | {share} | {cells} |", flush=True)


if __name__ == "__main__":
    main()
