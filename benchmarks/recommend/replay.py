"""Buying labels again, one batch at a time, from those that were bought once: `recommend` against buying at random.

    python -m benchmarks.recommend.replay [--only rte …] [--seeds 10] [--tables]

from the repository's root, with DISSENSUS_DATA naming the data folder. What is done is kept in
`results/replay.jsonl` and not done again. Every arm refits `dawid-skene` to what it has bought; gold only scores.
Writes `results/`, the curves (`curves.svg`) and the table of README.md.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks import record

import dissensus as dz
from dissensus import recommend as recommend_pairs
from dissensus.aggregation import DawidSkene, MajorityVote
from dissensus.annotations import Annotations
from dissensus.evaluation.hard import hits
from dissensus.exceptions import ConvergenceWarning

HERE = Path(__file__).parent
STORE = HERE / "results" / "replay.jsonl"
BATCH = 50  # labels between two fits where they are recommended
NEAR = 0.005  # of the accuracy of all labels
# set, labels to buy first ("one" of each item at random, or "none"), labels between two fits of random buying, and up
# to how many labels are recommended (None: all)
CASES: list[tuple[str, str, int, int | None]] = [
    ("rte", "one", 50, None),
    ("gimpel_pos", "one", 500, 36_000),
    ("rte", "none", 50, 5_000),
    ("sentiment_polarity", "one", 200, 20_000),
    ("labelme", "one", 50, None),
]
ARMS = ("recommend", "items only", "random", "round robin")
UNSEEN = ("sentiment_polarity", "labelme")  # sets that nothing was chosen on


def replay(
    table: Annotations, gold: Any, arm: str, start: str, seed: int, batch: int, upto: int | None
) -> dict[str, Any]:
    """Labels bought and the accuracy that they gave, after every fit."""
    N, rng = len(table), np.random.default_rng([seed, 0])
    shuffled = np.lexsort((rng.random(N), table.item))  # rows of an item together, in random order
    rank = np.empty(N, np.int64)
    rank[shuffled] = np.arange(N) - table.item_ptr[table.item[shuffled]]
    have = rank == 0 if start == "one" else np.zeros(N, np.bool_)
    random = np.random.default_rng([seed, 1]).permutation(N)
    queue = random if arm == "random" else random[np.argsort(rank[random], kind="stable")]
    queue = queue[~have[queue]]
    if not have.any():  # nothing can be fitted to nothing
        have[queue[:BATCH]] = True
        queue = queue[BATCH:]
    key, model = table.item.astype(np.int64) * table.n_annotators + table.annotator, None
    order = np.argsort(key, kind="stable")
    labels, accuracy, vote = [], [], []
    while True:
        bought = _part(table, have)
        model = DawidSkene(threads=1).fit(bought)
        labels.append(len(bought))
        accuracy.append(round(float(hits(gold, model.posterior_).mean()), 6))
        vote.append(round(float(hits(gold, MajorityVote().fit(bought).posterior_).mean()), 6))
        rest = np.flatnonzero(~have)
        if not rest.size or (arm in ("recommend", "items only") and upto is not None and labels[-1] >= upto):
            return {"labels": labels, "accuracy": accuracy, "vote": vote}
        if arm in ("random", "round robin"):
            have[queue[:batch]], queue = True, queue[batch:]
            continue
        found = recommend_pairs(
            model, bought, budget=BATCH, candidates=(table.item[rest], table.annotator[rest]), threads=1
        )
        pairs = found.items.astype(np.int64) * table.n_annotators + found.annotators
        have[order[np.searchsorted(key[order], pairs)]] = True
        if not len(found):
            return {"labels": labels, "accuracy": accuracy, "vote": vote}


def _part(table: Annotations, have: Any) -> Annotations:
    """The bought rows, with all items and annotators; names are codes."""
    return Annotations.from_codes(
        table.item[have], table.annotator[have], table.label[have], np.arange(table.n_items),
        np.arange(table.n_annotators), table.classes,
    )  # fmt: skip


def _items_only(on: bool) -> None:
    """Take what is not known of annotators out of `recommend`, or put it back."""
    import sys

    inside: Any = sys.modules["dissensus.recommend"]
    if on:
        inside._labels_behind, inside.kept = (
            lambda model, who, given: np.full((who.size, model.classes_.size), 1e9),
            (inside._labels_behind),
        )
    else:
        inside._labels_behind = inside.kept


def done() -> dict[tuple[str, str, str, int], dict[str, Any]]:
    """What was run before."""
    lines = STORE.read_text().splitlines() if STORE.exists() else []
    rows = [json.loads(line) for line in lines]
    return {(row["set"], row["start"], row["arm"], row["seed"]): row for row in rows}


def run(only: list[str] | None, seeds: int) -> None:
    """Run what is missing."""
    before = done()
    STORE.parent.mkdir(exist_ok=True)
    for seed in range(seeds):
        for name, start, batch, upto in CASES:
            if only and name not in only:
                continue
            data = dz.load_dataset(name)
            for arm in ARMS:
                if (name, start, arm, seed) in before or (arm == "items only" and name == "gimpel_pos"):
                    continue
                begin = time.perf_counter()
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore", ConvergenceWarning)
                    _items_only(True) if arm == "items only" else None
                    curve = replay(data.annotations, data.gold, arm, start, seed, batch, upto)
                    _items_only(False) if arm == "items only" else None
                row = {"set": name, "start": start, "arm": arm, "seed": seed} | curve
                row["seconds"] = round(time.perf_counter() - begin, 1)
                with STORE.open("a") as file:
                    file.write(json.dumps(row) + "\n")
                print(name, start, arm, seed, f"{row['seconds']} s", flush=True)


def needed(labels: Any, accuracy: Any, target: float) -> int | None:
    """The number of labels from which a curve does not fall below the target again; None where it ends below."""
    below = np.flatnonzero(accuracy < target)
    if not below.size:
        return int(labels[0])
    return None if below[-1] + 1 == labels.size else int(labels[below[-1] + 1])


def cases(rows: dict[tuple[str, str, str, int], dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Mean curves with their spread, and how many labels they need."""
    for name, start, _, _ in CASES:
        data = dz.load_dataset(name)
        N = len(data.annotations)
        whole = _part(data.annotations, np.ones(N, np.bool_))
        full = float(hits(data.gold, DawidSkene(threads=1).fit(whole).posterior_).mean())
        case: dict[str, Any] = {"set": name, "start": start, "all": N, "full": full, "arms": {}}
        for arm in ARMS:
            own = [row for key, row in rows.items() if key[:3] == (name, start, arm)]
            if not own:
                continue
            labels = np.array(own[0]["labels"])
            curves = {
                what: np.array([np.interp(labels, row["labels"], row[what]) for row in own])
                for what in ("accuracy", "vote")
            }
            mean = curves["accuracy"].mean(axis=0)
            single = [needed(labels, curve, full - NEAR) for curve in curves["accuracy"]]
            keep = np.unique(np.linspace(0, labels.size - 1, 121).round().astype(int))
            case["arms"][arm] = {
                "seeds": len(own),
                "needed": needed(labels, mean, full - NEAR),
                "needed_by_seed": single,
                "labels": labels[keep].tolist(),
                "mean": mean[keep].round(5).tolist(),
                "low": np.quantile(curves["accuracy"], 0.1, axis=0)[keep].round(5).tolist(),
                "high": np.quantile(curves["accuracy"], 0.9, axis=0)[keep].round(5).tolist(),
                "vote": curves["vote"].mean(axis=0)[keep].round(5).tolist(),
                "seconds": round(float(np.mean([row["seconds"] for row in own])), 1),
            }
        if case["arms"]:
            yield case


def write_tables(made: dict[str, Any], found: list[dict[str, Any]]) -> None:
    head = ["set", "bought first", "labels in all", "accuracy of all", *ARMS, "of random", "of round robin"]
    body = []
    for case in found:
        arms = case["arms"]

        def cell(arm: str, arms: Any = arms) -> str:
            if arm not in arms:
                return ""
            most = arms[arm]["labels"][-1]
            return f"{arms[arm]['needed']:,}" if arms[arm]["needed"] is not None else f"> {most:,}"

        def share(arm: str, arms: Any = arms) -> str:
            ours, theirs = (arms.get(one, {}).get("needed") for one in ("recommend", arm))
            return "" if ours is None or theirs is None else f"{100 * ours / theirs:.0f} %"

        what = "one of each item" if case["start"] == "one" else "50 at random"
        name = case["set"] + (" *" if case["set"] in UNSEEN else "")
        body.append([
            name, what, f"{case['all']:,}", f"{100 * case['full']:.2f}", *(cell(arm) for arm in ARMS),
            share("random"), share("round robin"),
        ])  # fmt: skip
    seeds = min(arm["seeds"] for case in found for arm in case["arms"].values())
    text = [
        record.sentence(made, {"dissensus": {"dissensus": dz.__version__, "numpy": np.__version__}}),
        f"Labels needed until the mean curve of {seeds} seeds stays within half a point of the accuracy of all labels:",
        record.table(head, body, left=2),
        "\\* nothing was chosen looking at this set.",
    ]
    record.splice(HERE / "README.md", "tables", "\n\n".join(text))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", metavar="SET", help="run only these sets")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--tables", action="store_true", help="run nothing, write the tables of what was run")
    options = parser.parse_args()
    made = record.provenance()
    if not options.tables:
        run(options.only, options.seeds)
    found = list(cases(done()))
    print("written:", record.save(HERE, "replay", made, {"batch": BATCH, "cases": found}, indent=None).name)
    write_tables(made, found)


if __name__ == "__main__":
    main()
