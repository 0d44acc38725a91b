"""Do corrected rates hold what their intervals promise: coverage and width over many draws of gold items.

    python -m benchmarks.trust.ppi [--draws 1000] [--parts crowds differences panels]

crowds: every set with gold and class with ten gold items or more; the posterior of `consensus` predicts. Items are
drawn with replacement, so that the set is the population. differences: two systems made of a set's items, with other
rates; paired and not. panels: the posterior that learnt from gold, cross-fitted as `calibrate` does, on every set that
is a panel; also with replacement, so that known items, folds and others are independent draws from the set.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Iterator
from functools import cached_property, partial
from typing import Any

import numpy as np

import dissensus as dz
from benchmarks.trust.judges import score_table
from benchmarks.trust.posterior import SETS
from dissensus.evaluation.ppi import corrected_difference, corrected_mean
from dissensus.models.gold_weights import Panel, panel_judges
from dissensus.questions.calibrate import _cross_fit

SIZES = (50, 100, 300)
MIN_GOLD = 10  # items of a class, in the set
MIN_EXPECTED = 10  # items of a class among those drawn, from which on coverage should be 93 to 97 %
MAX_ITEMS = 3_000  # Items of a draw.
JUDGES = "judges_civilcomments"
PANELS = (JUDGES, "plank_pos", "bluebirds")
PANEL_ITEMS = 1_000  # Items of a draw from a panel, which is fitted again in every draw.


def cases() -> Iterator[tuple[str, Any, Any, Any]]:
    """Name, table, posterior (n, K) and gold (n,) of known items of each set."""
    for name in SETS:
        data: Any = dz.load_dataset(name)
        known = np.flatnonzero((data.gold >= 0) & (np.diff(data.annotations.item_ptr) > 0))
        yield (
            name,
            data.annotations,
            dz.methods["consensus"]().fit(data.annotations).posterior_[known],
            data.gold[known],
        )


def judged(found: list[Any], truth: float) -> tuple[float, float, float]:
    """Return the coverage, that of the human labels alone, and the width relative to theirs."""
    low, high = (np.array([getattr(one, end) for one, _ in found]) for end in ("low", "high"))
    low_alone, high_alone = (np.array([getattr(one, end) for _, one in found]) for end in ("low", "high"))
    covered = ((low <= truth) & (truth <= high)).mean(), ((low_alone <= truth) & (truth <= high_alone)).mean()
    return float(covered[0]), float(covered[1]), float((high - low).mean() / (high_alone - low_alone).mean())


class Summary:
    """Lines that are outside of what was asked for, and counts."""

    def __init__(self, what: str):
        self.what, self.rows = what, []

    def add(self, name: str, size: int, of: str, expected: float, result: tuple[float, float, float]) -> None:
        """Print a line that is outside of 93 to 97 %, or wider than the human labels alone."""
        self.rows.append((expected, *result))
        if (expected >= MIN_EXPECTED and not 0.93 <= result[0] <= 0.97) or result[0] < 0.93 or result[2] >= 1:
            self.show(f"{name}, class {of}, {expected:.0f} expected", size, result)

    def show(self, name: str, size: int | str, result: tuple[float, float, float]) -> None:
        """Return a line of the table."""
        cells = (f"{100 * result[0]:.1f} %", f"{100 * result[1]:.1f} %", f"{result[2]:.2f}")
        print(f"| {self.what} | {name} | {size} | " + " | ".join(cells) + " |", flush=True)

    def print_counts(self) -> None:
        """Print the counts of all cases."""
        for least, most, words in ((MIN_EXPECTED, np.inf, "ten or more expected"), (0, MIN_EXPECTED, "fewer expected")):
            some = np.array([row for row in self.rows if least <= row[0] < most])
            if len(some):
                c = some[:, 1]
                print(
                    f"| {self.what} | {words}: {len(some)} cases, {((c >= 0.93) & (c <= 0.97)).sum()} in 93 to 97 %, "
                    f"{(c < 0.93).sum()} below, least {100 * c.min():.1f} % | | mean {100 * c.mean():.1f} % | "
                    f"{100 * some[:, 2].mean():.1f} % | {some[:, 3].mean():.2f}, at most {some[:, 3].max():.2f} |",
                    flush=True,
                )


def crowds(draws: int) -> None:
    """Rates by the posterior without gold."""
    summary = Summary("rates")
    for name, _, posterior, gold in cases():
        K, rng = posterior.shape[1], np.random.default_rng(0)
        classes = [c for c in range(K) if (gold == c).sum() >= MIN_GOLD and not (K == 2 and c == 0)]
        for size in SIZES:
            if size > 0.9 * gold.size:
                continue
            results: dict[int, list[Any]] = {c: [] for c in classes}
            for _ in range(draws):
                at = rng.integers(0, gold.size, min(gold.size, MAX_ITEMS))
                for c in classes:
                    y, f = gold[at[:size]] == c, posterior[at, c]
                    one = corrected_mean(y, f[:size], f[size:], rate=True)
                    results[c].append((one, one.human))
            for c in classes:
                rate = (gold == c).mean()
                summary.add(name, size, str(c), size * min(rate, 1 - rate), judged(results[c], rate))
    summary.print_counts()


def differences(draws: int) -> None:
    """Two systems of one set, whose rates differ; gold in all, half for each."""
    summary = Summary("differences")
    for name, _, posterior, gold in cases():
        c, rng = int(np.bincount(gold).argmax()), np.random.default_rng(1)
        y, f = (gold == c) * 1.0, posterior[:, c]
        better = rng.random(gold.size) < np.where(y, 0.6, 0.4)
        one, other = np.flatnonzero(better), np.flatnonzero(~better)
        truth, I = y[one].mean() - y[other].mean(), min(one.size, other.size, MAX_ITEMS)
        for size in SIZES:
            half = size // 2
            if half > 0.9 * I:
                continue
            apart, paired = [], []
            for _ in range(draws):
                a, b = one[rng.integers(0, one.size, I)], other[rng.integers(0, other.size, I)]
                left, right = (corrected_mean(y[s[:half]], f[s[:half]], f[s[half:]], rate=True) for s in (a, b))
                apart.append(
                    (corrected_difference(left, right), corrected_difference(left.human_only, right.human_only))
                )
                both = corrected_mean((y[a] - y[b])[:half], (f[a] - f[b])[:half], (f[a] - f[b])[half:])
                paired.append((both, both.human))
            expected = half * min(
                min(y[s].mean(), 1 - y[s].mean()) for s in (one, other)
            )  # Expected labels of the rarer answer.
            summary.add(f"{name}, not paired", size, str(c), expected, judged(apart, truth))
            summary.add(f"{name}, paired", size, str(c), expected, judged(paired, truth))
    summary.print_counts()


class Drawn(Panel):
    """A panel whose items are positions in a draw; features of the set are computed once, for all draws."""

    whole: Any
    at: Any

    @classmethod
    def from_table(cls, table: Any, known: Any, K: int, free: Any) -> Drawn:
        """Draws from known items of a table."""
        made = cls(table, panel_judges(table), K, free)
        object.__setattr__(made, "whole", Panel.features(made, known))
        return made

    def draw(self, at: Any) -> None:
        """Take positions among the known items."""
        object.__setattr__(self, "at", at)

    def features(self, items: Any) -> Any:
        """Features of the set, at the positions drawn."""
        return self.whole[self.at[items]]

    @cached_property
    def _labels_per_item(self) -> float:
        return Panel._judges_per_item(self)

    def _per_item(self) -> float:
        return self._labels_per_item


def panels(draws: int, only: list[str] | None = None) -> None:
    """Rates by the posterior that learnt from gold."""
    sets: dict[str, Any] = {"judges, scores": (score_table(), None, dz.load_dataset(JUDGES).gold)}
    for name in PANELS:
        dataset: Any = dz.load_dataset(name)
        sets[name] = (dataset.annotations, dz.methods["consensus"]().fit(dataset.annotations).posterior_, dataset.gold)
    summary = Summary("panels")
    for name, (table, free, gold) in sets.items():
        if only and name not in only:
            continue
        known = np.flatnonzero((gold >= 0) & (np.diff(table.item_ptr) > 0))
        panel, gold = Drawn.from_table(table, known, int(gold.max()) + 1, free), gold[known]
        K = panel.n_classes
        classes = [c for c in range(K) if (gold == c).sum() >= MIN_GOLD and not (K == 2 and c == 0)]
        for size in SIZES:
            if size > 0.9 * gold.size:
                continue
            results: dict[int, list[Any]] = {c: [] for c in classes}
            for draw in range(draws):
                at = np.random.default_rng([draw, size]).integers(0, gold.size, min(gold.size, PANEL_ITEMS))
                panel.draw(at)
                here, others = np.arange(size), np.arange(size, at.size)
                learn = partial(learner, panel, gold[at])
                predicted = _cross_fit(learn, here, at.size, draw)
                for c in classes:
                    one = corrected_mean(gold[at[here]] == c, predicted[here, c], predicted[others, c], rate=True)
                    results[c].append((one, one.human))
            for c in classes:
                rate = (gold == c).mean()
                summary.add(name, size, str(c), size * min(rate, 1 - rate), judged(results[c], rate))
    summary.print_counts()


def learner(panel: Panel, gold: Any, known: Any) -> Any:
    """Return the posterior of a panel that is trained on known items."""
    return panel.fit(known, gold[known]).posterior


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--draws", type=int, default=1000)
    parser.add_argument("--parts", nargs="*", default=["crowds", "differences", "panels"])
    asked = parser.parse_args()
    warnings.simplefilter("ignore")
    print("| what | case | gold | coverage | of the human labels alone | relative width |\n|---|---|---|---|---|---|")
    for part in asked.parts:
        {"crowds": crowds, "differences": differences, "panels": panels}[part](asked.draws)


if __name__ == "__main__":
    main()
