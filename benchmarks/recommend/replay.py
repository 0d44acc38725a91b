"""Buying labels again, one batch at a time, from those that were bought once: `recommend` against buying at random.

    python -m benchmarks.recommend.replay        # options: see benchmarks/parts.py

All arms refit the same method to what they have bought; gold only scores. No limits: these are in
`limits.py`. Also draws the curves (`curves.svg`).
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import numpy as np

import dissensus as dz
from benchmarks.parts import Benchmark, Part, Rows
from benchmarks.recommend.limits import NO_LIMITS
from dissensus import recommend
from dissensus.evaluation.hard import probability_correct
from dissensus.exceptions import ConvergenceWarning
from dissensus.models.methods import DawidSkene, HierarchicalDawidSkene, MajorityVote
from dissensus.questions import recommend as recommendation
from dissensus.table.annotations import Annotations
from reproductions import record

FOLDER = Path(__file__).parent
BATCH = 50  # labels between two fits where they are recommended
NEAR_ACCURACY = 0.005  # Tolerance relative to the accuracy with all labels.
METHODS: dict[str, Any] = {
    "dawid-skene": lambda: DawidSkene(threads=1),
    "hierarchical-dawid-skene": lambda: HierarchicalDawidSkene(threads=1, tol=1e-5),
}


class Case(NamedTuple):
    """A set, the method that is refitted, and how often."""

    set: str
    method: str
    start: str = "one"  # label of each item, at random, or "none"
    random_batch: int = 50  # labels between two fits of random buying
    upto: int | None = None  # labels that are recommended at most; None: all
    whole: int = BATCH  # labels between two fits to all that was bought; in between `partial_fit`


CASES = [
    Case("rte", "dawid-skene"),
    Case("gimpel_pos", "hierarchical-dawid-skene", upto=34_000, random_batch=1_000, whole=250),
    Case("sentiment_polarity", "dawid-skene", upto=15_000, random_batch=200),
    Case("labelme", "dawid-skene"),
    Case("rte", "hierarchical-dawid-skene", upto=5_000, random_batch=100),
    Case("rte", "dawid-skene", "none", upto=5_000),
    Case("gimpel_pos", "dawid-skene", upto=36_000, random_batch=500),
]
ASKING = ("recommend", "items only")  # the second without what is not known of annotators
ARMS = (*ASKING, "random", "round robin")
UNSEEN = ("sentiment_polarity", "labelme")  # sets that nothing was chosen on


def replay(table: Annotations, gold: Any, case: Case, arm: str, seed: int) -> dict[str, Any]:
    """Buy labels batch by batch; return their number and the accuracy after every fit."""
    N, rng = len(table), np.random.default_rng([seed, 0])
    shuffled = np.lexsort((rng.random(N), table.item))  # rows of an item together, in random order
    rank = np.empty(N, np.int64)
    rank[shuffled] = np.arange(N) - table.item_ptr[table.item[shuffled]]
    have = rank == 0 if case.start == "one" else np.zeros(N, np.bool_)
    random = np.random.default_rng([seed, 1]).permutation(N)
    queue = random if arm == "random" else random[np.argsort(rank[random], kind="stable")]
    queue = queue[~have[queue]]
    if not have.any():  # nothing can be fitted to nothing
        have[queue[:BATCH]] = True
        queue = queue[BATCH:]
    key = table.item.astype(np.int64) * table.n_annotators + table.annotator
    order = np.argsort(key, kind="stable")
    labels, accuracy, vote = [], [], []
    model, fitted, new = METHODS[case.method](), -case.whole, np.empty(0, np.int64)
    while True:
        bought = _part(table, have)
        if len(bought) - fitted >= case.whole:
            model, fitted = METHODS[case.method]().fit(bought), len(bought)
        else:
            rows = table.item[new], table.annotator[new], table.classes[table.label[new]]
            model.partial_fit(Annotations.from_arrays(*rows, classes=table.classes))
        labels.append(len(bought))
        accuracy.append(round(float(probability_correct(gold, model.posterior_).mean()), 6))
        vote.append(round(float(probability_correct(gold, MajorityVote().fit(bought).posterior_).mean()), 6))
        rest = np.flatnonzero(~have)
        if not rest.size or (arm in ASKING and case.upto is not None and labels[-1] >= case.upto):
            break
        if arm in ASKING:
            candidates = table.item[rest], table.annotator[rest]
            found = recommend(model, bought, budget=BATCH, candidates=candidates, threads=1, **NO_LIMITS)
            pairs = found.items.astype(np.int64) * table.n_annotators + found.annotators
            new = order[np.searchsorted(key[order], pairs)]
        else:
            new, queue = queue[: case.random_batch], queue[case.random_batch :]
        if not new.size:
            break
        have[new] = True
    return {"labels": labels, "accuracy": accuracy, "vote": vote}


def _part(table: Annotations, have: Any) -> Annotations:
    """Table of the bought rows, with all items and annotators; names are codes."""
    return Annotations.from_codes(
        table.item[have], table.annotator[have], table.label[have], np.arange(table.n_items),
        np.arange(table.n_annotators), table.classes,
    )  # fmt: skip


Key = tuple[str, str, str, str, int]


def key_of(row: Part) -> Key:
    """Set, method, start, arm and seed of a part."""
    return row["set"], row["method"], row["start"], row["arm"], row["seed"]


def run(part: Part, device: str) -> dict[str, Any]:
    """One curve. The arm "items only" takes annotators for known."""
    name, method, start, arm, seed = key_of(part)
    case = next(case for case in CASES if case[:3] == (name, method, start))
    case = case._replace(upto=part.get("upto", case.upto))
    data, begin, patch = dz.load_dataset(name), time.perf_counter(), nullcontext()
    if arm == "items only":
        patch = mock.patch.object(
            recommendation,
            "_count_evidence",
            lambda model, annotator, given: np.full((annotator.size, model.classes_.size), 1e9),
        )
    with warnings.catch_warnings(), patch:
        warnings.simplefilter("ignore", ConvergenceWarning)
        curve = replay(data.annotations, data.gold, case, arm, seed)
    return curve | {"seconds": round(time.perf_counter() - begin, 1)}


def needed(labels: Any, accuracy: Any, target: float) -> int | None:
    """Return the number of labels from which a curve stays at the target, or None if it ends below."""
    below = np.flatnonzero(accuracy < target)
    if not below.size:
        return int(labels[0])
    return None if below[-1] + 1 == labels.size else int(labels[below[-1] + 1])


def cases(rows: dict[Key, dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Mean curves with their spread, and how many labels they need."""
    for name, method, start, *_ in CASES:
        data = dz.load_dataset(name)
        N = len(data.annotations)
        whole = _part(data.annotations, np.ones(N, np.bool_))
        full = float(probability_correct(data.gold, METHODS[method]().fit(whole).posterior_).mean())
        case: dict[str, Any] = {"set": name, "method": method, "start": start, "all": N, "full": full, "arms": {}}
        both = [key[4] for key in rows if key[:4] == (name, method, start, "recommend")]  # seeds of all arms
        both = [seed for seed in both if (name, method, start, "round robin", seed) in rows]
        for arm in ARMS:
            keys = [(name, method, start, arm, seed) for seed in both]
            own = [rows[key] for key in keys if key in rows]
            if not own:
                continue
            labels = np.array(own[0]["labels"])
            curves = {
                what: np.array([np.interp(labels, row["labels"], row[what]) for row in own])
                for what in ("accuracy", "vote")
            }
            mean = curves["accuracy"].mean(axis=0)
            single = [needed(labels, curve, full - NEAR_ACCURACY) for curve in curves["accuracy"]]
            keep = np.unique(np.linspace(0, labels.size - 1, 81).round().astype(int))
            case["arms"][arm] = {
                "seeds": len(own),
                "needed": needed(labels, mean, full - NEAR_ACCURACY),
                "needed_by_seed": single,
                "labels": labels[keep].tolist(),
                "mean": mean[keep].round(5).tolist(),
                "low": np.quantile(curves["accuracy"], 0.1, axis=0)[keep].round(5).tolist(),
                "high": np.quantile(curves["accuracy"], 0.9, axis=0)[keep].round(5).tolist(),
                "vote": curves["vote"].mean(axis=0)[keep].round(5).tolist(),
                "seconds": round(float(np.mean([row["seconds"] for row in own])), 1),
            }
        if case["arms"].keys() >= {"recommend", "random", "round robin"}:
            yield case


def tables(summary: dict[str, Any]) -> list[str]:
    """Labels needed, by case and arm."""
    head = [
        "set",
        "refitted",
        "bought first",
        "seeds",
        "labels in all",
        "accuracy of all",
        *ARMS,
        "of random",
        "of round robin",
    ]
    body = []
    for case in summary["cases"]:
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
            name, case["method"], what, str(arms["recommend"]["seeds"]), f"{case['all']:,}",
            f"{100 * case['full']:.2f}", *(cell(arm) for arm in ARMS), share("random"), share("round robin"),
        ])  # fmt: skip
    return [
        "Labels needed until the mean curve stays within half a point of the accuracy of all labels:",
        record.markdown_table(head, body, 3),
        "\\* nothing was chosen looking at this set.",
    ]


def draw(found: list[dict[str, Any]], path: Path) -> None:
    """Draw the curves: mean over seeds, and a band with 80 % of them."""
    import altair as alt
    import vl_convert

    panels = []
    for case in found:
        if case["start"] != "one":
            continue
        rows = [
            {"arm": arm, "labels": labels, "mean": 100 * mean, "low": 100 * low, "high": 100 * high}
            for arm, one in case["arms"].items()
            if arm != "items only"
            for labels, mean, low, high in zip(one["labels"], one["mean"], one["low"], one["high"], strict=True)
        ]
        top = 100 * max(case["full"], *(row["high"] / 100 for row in rows))
        scale = alt.Scale(domain=[top - 14, top + 0.5], clamp=True, zero=False)
        base = alt.Chart(alt.Data(values=rows)).encode(
            x=alt.X("labels:Q", title="labels bought", axis=alt.Axis(tickCount=4, labelOverlap=True)),
            color=alt.Color("arm:N", title=None, scale=alt.Scale(domain=["recommend", "random", "round robin"])),
        )
        band = base.mark_area(opacity=0.2).encode(
            y=alt.Y("low:Q", scale=scale, title="accuracy, per cent"), y2="high:Q"
        )
        line = base.mark_line(strokeWidth=2).encode(y=alt.Y("mean:Q", scale=scale))
        near = alt.Chart(alt.Data(values=[{"y": 100 * (case["full"] - NEAR_ACCURACY)}])).mark_rule(strokeDash=[4, 3])
        title = f"{case['set']}, {case['method']}"
        panels.append(
            (band + line + near.encode(y=alt.Y("y:Q", scale=scale))).properties(width=300, height=220, title=title)
        )
    path.write_text(vl_convert.vegalite_to_svg(alt.concat(*panels, columns=2).to_dict()))


def summary(rows: Rows) -> dict[str, Any]:
    """Summarise all cases."""
    return {"batch": BATCH, "cases": list(cases({key_of(row): row for row in rows}))}


def parts(seeds: int) -> list[Part]:
    """Return all strategies on all cases, seed by seed; "items only" on one set."""
    return [
        {"set": case.set, "method": case.method, "start": case.start, "arm": arm, "seed": seed}
        for seed in range(seeds)
        for case in CASES
        for arm in ARMS
        if arm != "items only" or case.set == "rte"
    ]


QUICK: list[Part] = [part | {"upto": 900} for part in parts(1) if part["method"] == "dawid-skene"][:4]
BENCHMARK = Benchmark(FOLDER, "replay", run, parts, QUICK, tables, seeds=10, summary=summary)


if __name__ == "__main__":
    BENCHMARK.main(__doc__)
    draw(record.read_store(record.store_path(FOLDER, "replay"))["replay"]["cases"], FOLDER / "curves.svg")
