"""Whether the method that predicts hidden annotations best is also the one that is most often right.

    python -m benchmarks.choice.run [--only rte labelme …]

from the repository's root, with DISSENSUS_DATA naming the data folder. `dissensus.compare` chooses among all methods
without gold; then gold says how many points its choice is behind the best of them. Writes `results/` and, where all
sets were run, the tables of README.md.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import numpy as np

import dissensus as dz
from benchmarks.accuracy.run import SETS
from reproductions import record

FOLDER = Path(__file__).parent
REDUNDANCY = (3, 5, 10, 0)  # 0: all there is
ALWAYS = ("majority-vote", "dawid-skene", "hierarchical-dawid-skene")  # Fixed methods that the choice is compared with.
NEAR_POINTS = 1.0


def run_case(name: str, gold: str | None, redundancy: int) -> dict[str, Any] | None:
    """Run all methods on one table; None if it has no more than `redundancy` annotations per item."""
    data = dz.load_dataset(name, gold=gold)
    table, known = data.annotations, data.gold
    per_item = table.n_annotations / max(int((np.diff(table.item_ptr) > 0).sum()), 1)
    if redundancy:
        if per_item <= redundancy + 0.5:
            return None
        table = table.subsample(redundancy, seed=0)
    known = np.where(np.diff(table.item_ptr) > 0, known, -1)
    begin = time.perf_counter()
    found = dz.compare(table, "all", gold=known, limit=table.n_annotations)
    accuracy = {one.method: 100 * one.accuracy.value for one in found if one.accuracy is not None}
    best = max(accuracy.values())
    vote = next(one for one in found if one.method == "majority-vote")
    return {
        "set": name,
        "gold": gold,
        "redundancy": redundancy or round(per_item, 1),
        "full": not redundancy,
        "scored": int((known >= 0).sum()),
        "chosen": found.best,
        "tied": found.tied,
        "vote_is_as_good": found.simplest_suffices,
        "behind": best - accuracy[found.best],
        "best": [method for method, value in accuracy.items() if value > best - 1e-9],
        "always": {method: best - accuracy[method] for method in ALWAYS},
        "advice": best - accuracy["majority-vote" if found.simplest_suffices else found.best],
        "average": best - float(np.mean(list(accuracy.values()))),
        "vote_behind": vote.behind.value,
        "accuracy": accuracy,
        "log_likelihood": {one.method: one.score.value for one in found},
        "seconds": time.perf_counter() - begin,
    }


def tables(cases: list[dict[str, Any]]) -> list[str]:
    head = ["set", "labels per item", "chosen without gold", "its accuracy", "best by gold", "behind", "vote as good?"]
    body = []
    for case in cases:
        tied = len(case["tied"]) - 1
        best = ", ".join(case["best"][:2]) + (f" and {len(case['best']) - 2} more" if len(case["best"]) > 2 else "")
        behind = f"{case['behind']:.2f}"
        body.append([
            case["set"] + (f" ({case['gold']})" if case["gold"] else ""),
            f"{case['redundancy']}" + (" (all)" if case["full"] else ""),
            case["chosen"] + (f" (≈ {tied} more)" if tied else ""),
            f"{case['accuracy'][case['chosen']]:.2f}",
            f"{best}: {max(case['accuracy'].values()):.2f}",
            f"**{behind}**" if case["behind"] > NEAR_POINTS else behind,
            "yes" if case["vote_is_as_good"] else "",
        ])  # fmt: skip
    rules = [("the choice without gold", [case["behind"] for case in cases])]
    rules += [("majority vote if it is reported to be as good, else the choice", [case["advice"] for case in cases])]
    rules += [(f"always {method}", [case["always"][method] for case in cases]) for method in ALWAYS]
    rules += [("a method at random", [case["average"] for case in cases])]
    summary = [
        [
            rule,
            f"{sum(b <= NEAR_POINTS for b in behind)} of {len(behind)}",
            f"{np.mean(behind):.2f}",
            f"{max(behind):.2f}",
        ]
        for rule, behind in rules
    ]
    full = [case for case in cases if case["full"]]
    near = sum(case["behind"] <= NEAR_POINTS for case in full)
    return [
        f"On the {len(full)} whole sets the choice is within one point of the best method by gold on {near}.",
        record.markdown_table(["rule", "within one point", "points behind, mean", "largest"], summary),
        record.markdown_table(head, body),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", metavar="SET", help="only these sets; the tables stay as they are")
    only = parser.parse_args().only
    made, cases = record.provenance(busy=True), []
    for name, golds in SETS.items():
        for redundancy in REDUNDANCY:
            if only and name not in only:
                continue
            case = run_case(name, golds[-1], redundancy)
            if case is not None:
                cases.append(case)
                print(
                    f"{name} at {case['redundancy']}: {case['chosen']}, {case['behind']:.2f} behind {case['best']}; "
                    f"tied {case['tied'][1:]}; {case['seconds']:.0f} s",
                    flush=True,
                )
    if not only:
        record.publish(FOLDER / "README.md", "choice", made, {"cases": cases}, tables(cases))


if __name__ == "__main__":
    main()
