"""Accuracy that gold could reach on the same tables: `python -m benchmarks.trust.bound`.

A combiner of five methods and the votes, taught by most of the gold of the very table and judged on the rest: log
posteriors, as they are and softened as `consensus` does, weighed alike for all classes, and a shift of every class;
ridge regression to a softened Dawid-Skene. No default that sees the labels alone can be expected to be better. The sets
and levels are those of `benchmarks.trust.posterior`, of at most 4,000 items each, one draw.
"""

from __future__ import annotations

import argparse
import warnings
from collections import defaultdict
from typing import Any

import numpy as np
from scipy.optimize import minimize

import dissensus as dz
from benchmarks.trust.posterior import LEVELS, SETS, scores
from dissensus.models.methods.consensus import DESIGN_EFFECT_POWER

METHODS = ("dawid-skene", "hierarchical-dawid-skene", "one-coin", "mace", "item-effect")
MAX_ITEMS, MAX_CELLS, MAX_ROWS = 4_000, 1_000_000, 120_000  # item-effect is skipped above the last two limits.
FOLDS, RIDGE, FLOOR = 5, 3.0, -30.0


def features(table: dz.Annotations, known: Any) -> Any:
    """(n, K, M) log posteriors of the methods and log shares of the votes, as they are and softened."""
    large = table.n_annotators * table.n_classes**2 > MAX_CELLS or len(table) > MAX_ROWS
    names = [name for name in METHODS if not (large and name == "item-effect")]
    posteriors: list[Any] = [dz.methods[name](dependence=None).fit(table).posterior_[known] for name in names]
    votes = np.asarray(table.votes())
    votes = (votes + votes.sum(axis=0) / votes.sum() / 2)[known]
    posteriors.append(votes / votes.sum(axis=1, keepdims=True))
    logs = np.maximum(np.log(np.maximum(np.stack(posteriors, axis=-1), 1e-300)), FLOOR)
    softer = np.diff(table.item_ptr)[known] ** -DESIGN_EFFECT_POWER
    return np.concatenate([logs, logs * softer[:, None, None]], axis=-1)


def train_combiner(x: Any, gold: Any) -> Any:
    """Weights (M,) and shifts (K,) with the least penalised log loss."""
    n, K, M = x.shape
    start = np.zeros(M + K)
    start[M // 2] = 1.0  # Dawid-Skene, softened

    def loss(at: Any) -> tuple[float, Any]:
        logits = x @ at[:M] + at[M:]
        logits -= logits.max(axis=1, keepdims=True)
        q = np.exp(logits)
        total = q.sum(axis=1, keepdims=True)
        value = np.log(total).sum() - logits[np.arange(n), gold].sum() + RIDGE * ((at - start) ** 2).sum() / 2
        off = q / total
        off[np.arange(n), gold] -= 1
        slope = np.concatenate([np.einsum("ikm,ik->m", x, off), off.sum(axis=0)]) + RIDGE * (at - start)
        return float(value), slope

    return minimize(loss, start, jac=True, method="L-BFGS-B").x


def judged(x: Any, gold: Any) -> Any:
    """(n, K) posteriors of items by a combiner that has not seen their gold."""
    fold = np.random.default_rng(0).permutation(gold.size) % FOLDS
    posterior = np.empty(x.shape[:2])
    for one in range(FOLDS):
        at = train_combiner(x[fold != one], gold[fold != one])
        logits = x[fold == one] @ at[: x.shape[2]] + at[x.shape[2] :]
        q = np.exp(logits - logits.max(axis=1, keepdims=True))
        posterior[fold == one] = q / q.sum(axis=1, keepdims=True)
    return posterior


def main() -> None:
    """Print a line for every table, and the mean over sets."""
    argparse.ArgumentParser(description=__doc__).parse_args()
    warnings.simplefilter("ignore")
    by_set: dict[str, list[Any]] = defaultdict(list)
    print("| table | consensus: log loss, accuracy | trained on four fifths of the gold |\n|---|---|---|")
    for name in SETS:
        data: Any = dz.load_dataset(name)
        whole, gold = data.annotations, data.gold
        if whole.n_items > MAX_ITEMS:
            keep = np.isin(np.arange(whole.n_items), np.random.default_rng(0).permutation(whole.n_items)[:MAX_ITEMS])
            whole, gold = whole.select(items=keep), gold[keep]
        for level in LEVELS:
            if level is not None and level >= np.diff(whole.item_ptr).mean() - 0.01:
                continue
            table = whole if level is None else whole.subsample(level, [0, level])
            known = np.flatnonzero((gold >= 0) & (np.diff(table.item_ptr) > 0))
            ours = scores(np.asarray(dz.consensus(table).posterior_)[known], gold[known])[:2]
            best = scores(judged(features(table, known), gold[known]), gold[known])[:2]
            by_set[name].append([ours, best])
            cells = " | ".join(f"{loss:.3f}, {right:.1%}" for loss, right in (ours, best))
            print(f"| {name}, {level or 'all'} | {cells} |", flush=True)
    mean = np.mean([np.mean(rows, axis=0) for rows in by_set.values()], axis=0)
    print("| **mean over sets** | " + " | ".join(f"{loss:.3f}, {right:.1%}" for loss, right in mean) + " |")


if __name__ == "__main__":
    main()
