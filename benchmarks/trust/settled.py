"""Accuracy of the items that are called settled: `python -m benchmarks.trust.settled`.

By bars of the probability from which an item is settled: the sets of `benchmarks.trust.posterior` at 2, 5, 10 and all
labels an item, without gold and with 50 known items drawn at random (others are judged), and the tables of
`benchmarks.trust.others`, one draw each. A set counts once; of a table, right is said where ten items are settled.
*Left out*: the lowest bar by which nine of ten of the other sets are at least 88 % right, held to the set left out.
"""

from __future__ import annotations

import argparse
import warnings
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import numpy as np

import dissensus as dz
from benchmarks.trust import others
from benchmarks.trust.posterior import LEVELS, SETS
from dissensus.questions.item_status import MIN_ANNOTATORS

BARS = (0.9, 0.92, 0.94, 0.95, 0.96, 0.97)
MIN_RIGHT = 0.88  # Lowest accuracy of the settled items of a set.
MIN_SETS = 0.9  # Share of the sets that must reach it.
MIN_SETTLED = 10  # items of a table
GOLD_ITEMS = 50

Rows = dict[str, list[Any]]  # set → (bars, 2) share settled and right of them, of each of its tables


def judged(table: dz.Annotations, gold: Any, known: Any = None) -> Any:
    """(bars, 2) share of the items with gold that are settled, and of these right; NaN of a few."""
    model = dz.consensus(table, gold=known)
    some = (gold >= 0) & (np.diff(table.item_ptr) > 0)
    if known is not None:
        some &= known < 0
    posterior = np.asarray(model.posterior_)[some]
    sure = np.where(table.annotators_per_item[some] >= MIN_ANNOTATORS, posterior.max(axis=1), 0.0)
    right = posterior.argmax(axis=1) == gold[some]
    found = [(sure >= bar) for bar in BARS]
    return np.array([
        (one.mean(), right[one].mean() if np.count_nonzero(one) >= MIN_SETTLED else np.nan) for one in found
    ])  # fmt: skip


def sets(known: int = 0) -> Rows:
    """Return results of all sets with gold, of which `known` items are given to the method."""
    rows: Rows = defaultdict(list)
    for name in SETS:
        data: Any = dz.load_dataset(name)
        for level in LEVELS:
            if level is not None and level >= np.diff(data.annotations.item_ptr).mean() - 0.01:
                continue
            table = data.annotations if level is None else data.annotations.subsample(level, [0, level])
            told = None
            if known:
                if np.count_nonzero(data.gold >= 0) < 2 * known:
                    continue
                drawn = np.random.default_rng(known).permutation(np.flatnonzero(data.gold >= 0))[:known]
                told = np.where(np.isin(np.arange(table.n_items), drawn), data.gold, -1)
            rows[name].append(judged(table, data.gold, told))
    return rows


def other_tables() -> Iterator[tuple[str, Rows]]:
    """Those that the default was not chosen on."""
    for kind in (others.grades, others.classifiers, others.degrees, others.independent):
        yield kind.__name__, {name: [judged(table, gold)] for name, table, gold in kind()}


def by_set(rows: Rows) -> Any:
    """Return (sets, thresholds, 2) means over the tables of each set."""
    return np.array([np.nanmean(tables, axis=0) for tables in rows.values()])


def show(title: str, rows: Rows) -> None:
    """Print a line for every threshold."""
    found = by_set(rows)
    for at, bar in enumerate(BARS):
        share, right = found[:, at, 0], found[:, at, 1]
        there = ~np.isnan(right)
        low = [f"{name} {100 * one:.0f}" for name, one in zip(rows, right, strict=True) if one < MIN_RIGHT]
        mean = f"{100 * right[there].mean():.1f} %" if there.any() else "-"
        good = f"{np.count_nonzero(right[there] >= MIN_RIGHT)} of {there.sum()}"
        print(f"| {title} | {bar:g} | {100 * share.mean():.0f} % | {mean} | {good} | {', '.join(low)} |", flush=True)


def left_out(rows: Rows) -> None:
    """Print the threshold that the other sets choose for each set, and its result."""
    right = by_set(rows)[:, :, 1]
    said = []
    for at, name in enumerate(rows):
        rest = np.delete(right, at, axis=0)
        good = np.array([np.mean(one[~np.isnan(one)] >= MIN_RIGHT) >= MIN_SETS for one in rest.T])
        bar = int(np.argmax(good)) if good.any() else len(BARS) - 1
        said.append(right[at, bar])
        print(f"| left out: {name} | {BARS[bar]:g} | | {100 * right[at, bar]:.1f} % | | |", flush=True)
    kept = np.array(said)[~np.isnan(said)]
    good_sets = f"{(kept >= MIN_RIGHT).sum()} of {kept.size}"
    print(f"| left out, all | | | {100 * kept.mean():.1f} % | {good_sets} | |", flush=True)


def main() -> None:
    """Print the table."""
    argparse.ArgumentParser(description=__doc__).parse_args()
    warnings.simplefilter("ignore")
    print("| tables | settled from | settled | right of these | sets that are right at least 88 % | below |")
    print("|---|---|---|---|---|---|")
    rows = sets()
    show("12 sets", rows)
    left_out(rows)
    show(f"12 sets, {GOLD_ITEMS} known items", sets(GOLD_ITEMS))
    for title, found in other_tables():
        show(title, found)


if __name__ == "__main__":
    main()
