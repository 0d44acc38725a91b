"""Accuracy of the default on few items, and with classes that no annotator means: `python -m benchmarks.trust.few`.

*Real*: so many items of a set, at random, three or five labels each. *Simulated*: two classes, even or one to four,
by 3 to 6 annotators who are right three times of four. *Unused*: a set with one or eight classes declared that nobody
gives. *Typed*: a set in which one label is a typing error. Accuracy (a tie counts in parts) and log loss.
"""

from __future__ import annotations

import warnings
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import numpy as np

import dissensus as dz
from benchmarks.trust.posterior import SETS

METHODS = ("consensus", "dawid-skene", "one-coin", "majority-vote")
ITEMS = (1, 3, 10, 30)
CROWDS = ((3, 3), (3, 6), (5, 5))  # labels of an item, annotators
STRAY = ("bluebirds", "rte", "sentiment_polarity", "labelme", "ner_mturk")
MAX_ITEMS = 5000
SEEDS = 6

Table = tuple[str, dz.Annotations, Any]


def named(table: dz.Annotations, classes: list[str], label: Any = None) -> dz.Annotations:
    """Return the rows with names, and other classes."""
    given = np.asarray(table.classes)[table.label] if label is None else label
    item, annotator = np.asarray(table.items)[table.item], np.asarray(table.annotators)[table.annotator]
    return dz.Annotations.from_arrays(item, annotator, given, classes=classes)


def real() -> Iterator[Table]:
    """Yield some items of each set."""
    for name in SETS:
        data: Any = dz.load_dataset(name)
        known = np.flatnonzero((data.gold >= 0) & (np.diff(data.annotations.item_ptr) > 0))
        for n_items in ITEMS:
            for seed in range(SEEDS):
                some = np.sort(np.random.default_rng([seed, n_items]).choice(known, min(n_items, known.size), False))
                table = data.annotations.select(items=np.isin(np.arange(data.gold.size), some))
                level = (3, 5)[seed % 2]
                if np.diff(table.item_ptr).mean() > level:
                    table = table.subsample(level, [seed, n_items])
                yield f"real, {n_items} items", named(table, list(table.classes)), data.gold[some]


def simulated() -> Iterator[Table]:
    """Yield crowds with equal errors on both classes."""
    for n_items in ITEMS:
        for rare in (0.5, 0.2):
            for level, people in CROWDS:
                for seed in range(SEEDS):
                    rng = np.random.default_rng([seed, n_items, level, people])
                    truth = (rng.random(n_items) < rare).astype(int)
                    who = np.concatenate([rng.choice(people, level, replace=False) for _ in range(n_items)])
                    item, skill = np.repeat(np.arange(n_items), level), rng.beta(6, 2, people)
                    label = np.where(rng.random(item.size) < skill[who], truth[item], 1 - truth[item])
                    yield f"simulated, {n_items} items", dz.Annotations.from_arrays(item, who, label, classes=2), truth


def stray() -> Iterator[Table]:
    """Yield tables with classes that no annotator means."""
    for name in STRAY:
        data: Any = dz.load_dataset(name)
        some = np.arange(data.gold.size) % (-(-data.gold.size // MAX_ITEMS)) == 0
        table, gold = data.annotations.select(items=some), data.gold[some]
        classes = [str(one) for one in table.classes]
        given = np.array(classes, object)[table.label]
        yield "as they are", named(table, classes, given), gold
        for more in (1, 8):
            yield f"{more} unused", named(table, [*classes, *(f"zz{k}" for k in range(more))], given), gold
        typed = given.copy()
        typed[typed.size // 3] = "zz0"
        yield "one label typed wrong", named(table, [*classes, "zz0"], typed), gold


def main() -> None:
    """Print a line for every kind of table, its mean over tables."""
    warnings.simplefilter("ignore")
    print(f"| tables | {' | '.join(METHODS)} |\n|---|{'---|' * len(METHODS)}")
    for source in (real, simulated, stray):
        results: dict[str, list[Any]] = defaultdict(list)
        for kind, table, gold in source():
            at = np.flatnonzero(gold >= 0)
            rows = []
            for method in METHODS:
                p = np.asarray(dz.methods[method]().fit(table).posterior_)[at]
                top, right = p == p.max(axis=1, keepdims=True), (np.arange(at.size), gold[at])
                rows.append(((top[right] / top.sum(axis=1)).mean(), -np.log(np.maximum(p[right], 1e-6)).mean()))
            results[kind].append(rows)
        for kind, tables in results.items():
            cells = " | ".join(f"{100 * right:.1f} %, {loss:.3f}" for right, loss in np.mean(tables, axis=0))
            print(f"| {kind} | {cells} |", flush=True)


if __name__ == "__main__":
    main()
