"""How the default does where a class is rare, and with what price of uneven classes: `python -m benchmarks.trust.rare`.

Real crowds: items of one class are left out, by gold, until its share is so small; two or three labels of an item, or
five. Simulated ones: 200 items by 30 annotators, 2,000 by 60. Accuracy and log loss, means over tables.
"""

from __future__ import annotations

import warnings
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import numpy as np

import dissensus as dz
from benchmarks.trust.others import grades
from benchmarks.trust.posterior import scores
from dissensus.models import class_shares
from dissensus.table.simulate import simulate

SETS = (
    "bluebirds", "judges_civilcomments", "medical_causes", "medical_treats", "rte", "sentiment_polarity", "wordsim",
)  # fmt: skip
SHARES, LEVELS, SEEDS = (0.3, 0.15, 0.05), (2, 3, 5), 2
PRICES = (0.0, 0.25, class_shares.NONUNIFORM_COST_FACTOR, 0.5, 1.0)
CROWDS = {200: 30, 2000: 60}  # items: annotators
MIN_RARE_ITEMS = 3

Table = tuple[dz.Annotations, Any]


def sources() -> Iterator[Table]:
    """Real tables of two classes, with gold."""
    for name in SETS:
        data: Any = dz.load_dataset(name)
        yield data.annotations, data.gold
    yield from ((table, gold) for _, table, gold in grades() if table.n_classes == 2)


def real(share: float, level: int) -> Iterator[Table]:
    """Either class made so rare."""
    for table, gold in sources():
        for rare in (0, 1):
            common, few = np.flatnonzero(gold == 1 - rare), np.flatnonzero(gold == rare)
            size = round(share / (1 - share) * common.size)
            if MIN_RARE_ITEMS <= size < few.size:
                kept = np.union1d(common, np.random.default_rng(7).choice(few, size, replace=False))
                some = table.select(items=np.isin(np.arange(table.n_items), kept))
                for seed in range(SEEDS):
                    yield some.subsample(level, [seed, level]), gold[kept]


def simulated(share: float, level: int, items: int) -> Iterator[Table]:
    """Yield crowds with equal errors on both classes."""
    for seed in range(2 * SEEDS):
        made = simulate(items, CROWDS[items], 2, redundancy=level, prior=[1 - share, share], seed=seed)
        yield made.annotations, made.truth


def main() -> None:
    """Print a line for every kind of table."""
    warnings.simplefilter("ignore")
    print("| tables | labels | " + " | ".join(f"price {price}" for price in PRICES) + " |")
    print("|---|---|" + "---|" * len(PRICES))
    for share in SHARES:
        for level in LEVELS:
            kinds = {"real": real(share, level)}
            kinds |= {f"simulated, {items} items": simulated(share, level, items) for items in CROWDS}
            for kind, tables in kinds.items():
                found = defaultdict(list)
                for table, gold in tables:
                    known = np.flatnonzero(np.diff(table.item_ptr) > 0)
                    for price in PRICES:
                        class_shares.NONUNIFORM_COST_FACTOR = price
                        posterior = np.asarray(dz.methods["consensus"]().fit(table).posterior_)
                        found[price].append(scores(posterior[known], gold[known])[:2])
                means = (np.mean(found[price], axis=0) for price in PRICES)
                cells = " | ".join(f"{100 * right:.1f} %, {loss:.3f}" for loss, right in means)
                print(f"| {kind}, {share:.0%} | {level} | {cells} |", flush=True)


if __name__ == "__main__":
    main()
