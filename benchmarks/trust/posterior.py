"""Calibration of a method's probabilities: log loss, confidence minus accuracy, and the settled items.

    python -m benchmarks.trust.posterior [METHOD …]      # default: dawid-skene, hierarchical-dawid-skene, one-coin

Every set with gold at 2, 5, 10 and all labels an item; a set counts once, however many tables it makes, and a number
of labels once, however many draws. Then ρ is
chosen again, without each set in turn, and judged on the set that was left out; ρ chosen by gold on the very table is
what no estimate can beat, nor what gold chooses of ρ, a power of the classes' shares and a share of items left to
chance together. Items whose labels all agree are shown by set: where gold contradicts these, the table cannot know.
"""

from __future__ import annotations

import argparse
import warnings
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import dissensus as dz
from dissensus.models.tempering import DEFAULT_CORRELATION, Tempering
from dissensus.questions.item_status import SETTLED_CONFIDENCE

SETS = (
    "bluebirds", "cifar10h", "gimpel_pos", "judges_civilcomments", "labelme", "medical_causes", "medical_treats",
    "ner_mturk", "plank_pos", "rte", "sentiment_polarity", "wordsim",
)  # fmt: skip
LEVELS = (2, 5, 10, None)  # labels of an item; None: all
SEEDS = 2
RHO = np.geomspace(0.05, 5, 41)
POWERS, LAPSES = np.linspace(0, 1.25, 6), (0.0, 0.01, 0.03, 0.1)
SCORES = ("log loss", "accuracy", "confidence − accuracy", "settled", "right of these")


@dataclass
class Case:
    """A fit, at the items with gold: its posterior as if labels were independent, and the ρ that it took."""

    name: str
    level: int | None
    posterior: Any
    n_labels: Any
    gold: Any
    dependence: float
    damping: Any  # log h of `models.tempering`, or None
    shares: Any = None  # (K,) π, for `best_of_family`
    unanimous: Any = None  # items whose labels, two or more, all agree

    def temper(self, rho: float) -> Any:
        """Return the posterior with another ρ."""
        return Tempering(rho, damping=self.damping).temper(self.posterior, self.n_labels)

    def best_of_family(self) -> Any:
        """Return the posterior with the least log loss by gold over ρ, a power of π and a share of random labels."""
        K, at, logs = self.shares.size, (np.arange(self.gold.size), self.gold), np.log(self.shares)
        tried = []
        for rho in RHO[::2]:
            for power in POWERS:
                known = Tempering(rho, shift=power * logs).temper(self.posterior, self.n_labels)[at]
                tried += [(-np.log((1 - e) * known + e / K + 1e-12).mean(), rho, power, e) for e in LAPSES]
        _, rho, power, lapse = min(tried)
        tempering = Tempering(rho, shift=power * logs)
        return (1 - lapse) * tempering.temper(self.posterior, self.n_labels) + lapse / K


def cases(method: str, levels: Sequence[int | None] = LEVELS) -> Iterator[Case]:
    """One fit for each table."""
    for name in SETS:
        data: Any = dz.load_dataset(name)
        for level in levels:
            if level is not None and level >= np.diff(data.annotations.item_ptr).mean() - 0.01:
                continue
            for seed in range(1 if level is None else SEEDS):
                table = data.annotations if level is None else data.annotations.subsample(level, [seed, level])
                n_labels = np.diff(table.item_ptr)
                known = np.flatnonzero((data.gold >= 0) & (n_labels > 0))
                model = dz.methods[method]().fit(table)
                n_labels, rho = model.item_total_, model.dependence_
                posterior = model.untempered_posterior()[known]
                votes = np.asarray(table.votes())[known]
                agree = (votes.max(axis=1) == votes.sum(axis=1)) & (votes.sum(axis=1) >= 2)
                yield Case(
                    name, level, posterior, n_labels[known], data.gold[known], rho, model.damping_, model.prior_, agree
                )  # fmt: skip


def scores(posterior: Any, gold: Any) -> tuple[float, ...]:
    """Return the scores in the order of `SCORES`."""
    right, confidence = posterior.argmax(axis=1) == gold, posterior.max(axis=1)
    settled = confidence >= SETTLED_CONFIDENCE
    loss = -np.log(np.maximum(posterior[np.arange(gold.size), gold], 1e-12)).mean()
    kept = right[settled].mean() if settled.any() else np.nan
    return float(loss), float(right.mean()), float(confidence.mean() - right.mean()), float(settled.mean()), float(kept)


def by_set(found: list[Case], rho: Any) -> dict[str, Any]:
    """Set → its mean scores with ρ = `rho(case)`, or with the posterior that this is."""
    rows: dict[str, dict[int | None, list[Any]]] = defaultdict(lambda: defaultdict(list))  # set → labels → seeds
    for case in found:
        chosen = rho(case)
        scored = scores(case.temper(chosen) if np.ndim(chosen) == 0 else chosen, case.gold)
        rows[case.name][case.level].append(scored)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # a set without a settled item
        tables = {name: [np.nanmean(seeds, axis=0) for seeds in levels.values()] for name, levels in rows.items()}
        return {name: np.nanmean(values, axis=0) for name, values in tables.items()}


def best_by_gold(case: Case) -> float:
    """ρ with the least log loss on this very table."""
    return float(min(RHO, key=lambda rho: scores(case.temper(rho), case.gold)[0]))


def show(title: str, rows: dict[str, Any]) -> None:
    """Print means over sets, and the largest deviations of single sets."""
    table = np.array(list(rows.values()))
    mean, off = table.mean(axis=0), np.abs(table[:, 2])
    worst = list(rows)[int(off.argmax())]
    kept = table[:, 4][~np.isnan(table[:, 4])]
    print(
        f"| {title} | {mean[0]:.3f} | {mean[1]:.3f} | {mean[2]:+.3f} | {off.max():.3f} ({worst}) | "
        f"{np.count_nonzero(kept >= 0.88)} of {kept.size} |",
        flush=True,
    )


def main() -> None:
    """Measure each method."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("methods", nargs="*", default=["dawid-skene", "hierarchical-dawid-skene", "one-coin"])
    warnings.simplefilter("ignore")
    print("| posterior | log loss | accuracy | confidence − accuracy | furthest off | settled right at least 88 % |")
    print("|---|---|---|---|---|---|")
    for method in parser.parse_args().methods:
        found = list(cases(method))
        show(f"{method}, independent", by_set(found, lambda case: 0.0))
        chosen = by_set(found, lambda case: case.dependence)
        show(f"{method}, auto", chosen)
        show(f"{method}, ρ = {DEFAULT_CORRELATION}", by_set(found, lambda case: DEFAULT_CORRELATION))
        tried = [by_set(found, lambda case, rho=rho: rho) for rho in RHO]
        left_out = {}
        for name in chosen:
            others = [np.mean([one[other][0] for other in one if other != name]) for one in tried]
            left_out[name] = tried[int(np.argmin(others))][name]
        show(f"{method}, ρ of the other sets", left_out)
        show(f"{method}, ρ by gold of the same table", by_set(found, best_by_gold))
        show(f"{method}, ρ, power and chance by gold of the same table", by_set(found, Case.best_of_family))
        for level in LEVELS:
            some = by_set([case for case in found if case.level == level], lambda case: case.dependence)
            show(f"{method}, auto, {level or 'all'} labels ({len(some)} sets)", some)
        for name, row in chosen.items():
            own = [case for case in found if case.name == name]
            agree = np.concatenate([case.unanimous for case in own])
            right = np.concatenate([case.posterior.argmax(axis=1) == case.gold for case in own])[agree].mean()
            scored = f"{row[0]:.3f} | {row[1]:.3f} | {row[2]:+.3f} | {row[3]:.2f} settled | {row[4]:.3f}"
            print(f"| {name} | {scored} | {agree.mean():.2f} unanimous | {right:.3f} |")


if __name__ == "__main__":
    main()
