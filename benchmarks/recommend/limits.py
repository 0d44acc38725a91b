"""What the default limits of `recommend` cost: labels bought again with them, without them, and at random.

    python -m benchmarks.recommend.limits        # options: see benchmarks/parts.py

Two random labels of each item come first. Then 500 labels are bought four times, of those that there are, and
`consensus` is fitted again after each 500. Gold only scores.
"""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np

import dissensus as dz
from benchmarks.parts import Benchmark, Part, Rows, mean_and_error
from dissensus import recommend
from dissensus.evaluation import log_loss
from dissensus.evaluation.hard import probability_correct
from dissensus.exceptions import ConvergenceWarning
from dissensus.models.base import Aggregator
from dissensus.models.methods import Consensus
from dissensus.table.annotations import Annotations
from reproductions import record

FOLDER = Path(__file__).parent
SETS = ("rte", "sentiment_polarity", "digits-crowd")
INITIAL_LABELS = 2  # labels of each item that come first
BUDGET = 500  # labels of a purchase
PURCHASES = 4
NO_LIMITS: dict[str, Any] = {"capacity": None, "per_item": None, "settled": None}
ARMS: dict[str, dict[str, Any] | None] = {
    "limits": {},
    "no limits": NO_LIMITS,
    "people only": {"per_item": None, "settled": None},
    "items only": {"capacity": None},
    "random": None,
}


def run(part: Part, device: str) -> dict[str, Any]:
    """Run all purchases of one strategy; return the scores before and after each, and the expected scores."""
    data = dz.load_dataset(part["set"])
    table, gold, rng = data.annotations, data.gold, np.random.default_rng(part["seed"])
    shuffled = np.lexsort((rng.random(len(table)), table.item))
    have = np.zeros(len(table), np.bool_)
    have[shuffled[np.arange(len(table)) - table.item_ptr[table.item[shuffled]] < INITIAL_LABELS]] = True
    order = rng.permutation(len(table))  # The order in which random labels are collected.
    keywords = ARMS[part["arm"]]
    if keywords is not None:
        keywords = keywords | part.get("keywords", {})
    key = table.item.astype(np.int64) * table.n_annotators + table.annotator
    model = fit(table, have)
    results: dict[str, Any] = {"scores": [score(model, gold)], "purchases": []}
    for _ in range(PURCHASES):
        if keywords is None:
            new = order[~have[order]][:BUDGET]
            bought: dict[str, Any] = {}
        else:
            rest = ~have
            chosen = recommend(
                model, part_of(table, have), budget=BUDGET, candidates=(table.item[rest], table.annotator[rest]),
                threads=1, **keywords,
            )  # fmt: skip
            pairs = chosen.items.astype(np.int64) * table.n_annotators + chosen.annotators
            new = np.flatnonzero(np.isin(key, pairs))
            bought = {"expected": chosen.expected_changes}
        have[new] = True
        before, model = model, fit(table, have)
        asked = np.unique(table.item[new])
        results["purchases"].append(bought | {
            "labels": int(new.size),
            "changed": int((before.predict()[asked] != model.predict()[asked]).sum()),
            "busiest": int(np.bincount(table.annotator[new]).max(initial=0)),
            "most_on_an_item": int(np.bincount(table.item[have]).max()),
        })  # fmt: skip
        results["scores"].append(score(model, gold))
    return results


def part_of(table: Annotations, have: Any) -> Annotations:
    """Return the collected rows, with all items and annotators; names are codes."""
    codes = table.item[have], table.annotator[have], table.label[have]
    return Annotations.from_codes(*codes, np.arange(table.n_items), np.arange(table.n_annotators), table.classes)


def fit(table: Annotations, have: Any) -> Aggregator:
    """Fit the default method to the collected rows."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return Consensus(threads=1).fit(part_of(table, have))


def score(model: Aggregator, gold: Any) -> dict[str, float]:
    """Accuracy and log loss over the items with gold."""
    known = gold >= 0
    posterior = model.posterior_[known]
    return {
        "accuracy": float(probability_correct(gold[known], posterior).mean()),
        "log_loss": float(log_loss(gold[known], posterior)),
    }


def tables(rows: Rows) -> list[str]:
    """Scores after the first and the last purchase, who was asked most, and whether expectations came true."""
    head = ["set", "arm", "seeds", "labels bought", "accuracy before", "after one", "after all", "log loss after all",
            "busiest person, labels of 500", "most labels of an item", "changes expected",
            "changed"]  # fmt: skip
    body = []
    for name in SETS:
        for arm in ARMS:
            own = [row for row in rows if (row["set"], row["arm"]) == (name, arm)]
            if not own:
                continue
            first, last = ([[s["accuracy"] for s in row["scores"]][at] for row in own] for at in (1, -1))
            bought = [one for row in own for one in row["purchases"]]

            def mean(what: str, digits: int = 0, bought: Any = bought) -> str:
                values = [one[what] for one in bought if what in one]
                return f"{np.mean(values):,.{digits}f}" if values else ""

            body.append([
                name, arm, str(len(own)),
                f"{np.mean([sum(one['labels'] for one in row['purchases']) for row in own]):,.0f}",
                f"{100 * np.mean([row['scores'][0]['accuracy'] for row in own]):.2f}",
                mean_and_error(first, 2, 100), mean_and_error(last, 2, 100),
                f"{np.mean([row['scores'][-1]['log_loss'] for row in own]):.3f}", mean("busiest"),
                f"{np.mean([row['purchases'][-1]['most_on_an_item'] for row in own]):.1f}",
                mean("expected"), mean("changed"),
            ])  # fmt: skip
    return [record.markdown_table(head, body, 2)]


def parts(seeds: int) -> list[Part]:
    """Return all strategies on all sets, seed by seed."""
    return [{"set": name, "arm": arm, "seed": seed} for seed in range(seeds) for name in SETS for arm in ARMS]


BENCHMARK = Benchmark(FOLDER, "limits", run, parts, parts(1)[:3], tables, seeds=10)


if __name__ == "__main__":
    BENCHMARK.main(__doc__)
