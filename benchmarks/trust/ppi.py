"""Do corrected rates hold what their intervals promise: coverage and width over many draws of gold items.

    python -m benchmarks.trust.ppi [--draws 1000] [--parts crowds differences panels]

crowds: every set with gold and class with ten gold items or more; the posterior of `consensus` predicts. Items are
drawn with replacement, so that the set is the population. differences: two systems made of a set's items, with other
rates; paired and not. panels: the posterior that learnt from gold, cross-fitted as `calibrate` does; without
replacement, because a copy of a known item would give it away.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np

import dissensus as dz
from benchmarks.trust.judges import score_table
from benchmarks.trust.posterior import SETS
from dissensus.evaluation.ppi import corrected_difference, corrected_mean
from dissensus.models.gold_weights import Panel, panel_judges
from dissensus.questions.calibrate import _alone, _cross_fitted

SIZES = (50, 100, 300)
MIN_GOLD = 10  # items of a class, in the set
MIN_EXPECTED = 10  # items of a class among those drawn, from which on coverage should be 93 to 97 %
MAX_ITEMS = 3_000  # of a draw
PANEL_ITEMS = 1_000  # of a draw from a panel, which is learnt from again in every draw


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
    """Coverage, that of the human labels alone, and how wide the interval is beside theirs."""
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
        """A line of the table."""
        cells = (f"{100 * result[0]:.1f} %", f"{100 * result[1]:.1f} %", f"{result[2]:.2f}")
        print(f"| {self.what} | {name} | {size} | " + " | ".join(cells) + " |", flush=True)

    def close(self) -> None:
        """Counts of all."""
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
            found: dict[int, list[Any]] = {c: [] for c in classes}
            for _ in range(draws):
                at = rng.integers(0, gold.size, min(gold.size, MAX_ITEMS))
                for c in classes:
                    y, f = gold[at[:size]] == c, posterior[at, c]
                    one = corrected_mean(y, f[:size], f[size:], rate=True)
                    found[c].append((one, one.human))
            for c in classes:
                rate = (gold == c).mean()
                summary.add(name, size, str(c), size * min(rate, 1 - rate), judged(found[c], rate))
    summary.close()


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
                apart.append((corrected_difference(left, right), corrected_difference(_alone(left), _alone(right))))
                both = corrected_mean((y[a] - y[b])[:half], (f[a] - f[b])[:half], (f[a] - f[b])[half:])
                paired.append((both, both.human))
            summary.add(f"{name}, not paired", size, str(c), size, judged(apart, truth))
            summary.add(f"{name}, paired", size, str(c), size, judged(paired, truth))
    summary.close()


def panels(draws: int) -> None:
    """Rates by the posterior that learnt from gold."""
    summary = Summary("panels")
    data: Any = dz.load_dataset("judges_civilcomments")
    sets = [("judges, scores", score_table(), None, data.gold)]
    for name in ("judges_civilcomments", "plank_pos", "bluebirds"):
        some: Any = dz.load_dataset(name)
        sets.append((name, some.annotations, dz.methods["consensus"]().fit(some.annotations).posterior_, some.gold))
    for name, table, free, gold in sets:
        everything = np.flatnonzero((gold >= 0) & (np.diff(table.item_ptr) > 0))
        K = gold.max() + 1
        panel = Panel(table, panel_judges(table), int(K), free)
        for size in SIZES:
            if size > 0.5 * everything.size:
                continue
            c = int(np.bincount(gold[everything]).argmax())
            found = []
            for draw in range(draws):
                order = np.random.default_rng([draw, size]).permutation(everything)[:PANEL_ITEMS]
                known, others = np.sort(order[:size]), order[size:]
                predicted = _cross_fitted(
                    lambda some, p=panel, g=gold: p.learn(some, g[some]).posterior, known, order, draw
                )
                one = corrected_mean(gold[known] == c, predicted[known, c], predicted[others, c], rate=True)
                found.append((one, one.human))
            summary.show(f"{name}, class {c}", size, judged(found, (gold[everything] == c).mean()))


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--draws", type=int, default=1000)
    parser.add_argument("--parts", nargs="*", default=["crowds", "differences", "panels"])
    asked = parser.parse_args()
    warnings.simplefilter("ignore")
    print(
        "| what | case | gold | coverage | of the human labels alone | width beside theirs |\n|---|---|---|---|---|---|"
    )
    for part in asked.parts:
        {"crowds": crowds, "differences": differences, "panels": panels}[part](asked.draws)


if __name__ == "__main__":
    main()
