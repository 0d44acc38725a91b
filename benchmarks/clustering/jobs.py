"""Clusters of jobs_q1..3: the KL of the clustering to the votes, compared with Table 2 of Weerasooriya et al. (2021).

    python -m benchmarks.clustering.jobs [--only jobs_q3] [--quick]

from the repository's root, with DISSENSUS_DATA naming the data folder. The numbers of clusters are chosen on the
development items of the data's own split; what is reported is of the test items, placed in their clusters by all of
their votes (the paper's question: they are then compared with the same votes), and by half of them and compared with
the other half (the honest one). Finished points are kept in `results/running`, so that a run that was killed goes on.
"""

from __future__ import annotations

import argparse
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np

import dissensus as dz
from dissensus.evaluation import hide_annotators, inverse_kl_divergence, kl_divergence
from dissensus.exceptions import ConvergenceWarning
from reproductions import load_paper, record
from reproductions.weerasooriya2021 import METHODS, SETS

FOLDER = Path(__file__).parent
TABLE2 = load_paper("weerasooriya2021").tables["table2"]
COARSE = (3, 5, 8, 12, 16, 20)  # Numbers of clusters for the choice by hidden labels.
RESTARTS = 5  # Starts of the reported fit.


def grids(method: str, quick: bool) -> tuple[Any, Any]:
    """Grids of the numbers of item and annotator clusters."""
    if quick:
        return (3, 8, 16), (3, 8)
    return (range(3, 41), (1,)) if method == "fmm" else (range(3, 21), range(3, 21))


def run(name: str, method: str, quick: bool) -> dict[str, Any]:
    """Search twice with one method on one set, and score what was chosen on the test items."""
    parts = {split: part.annotations for split, part in dz.load_dataset(name).splits.items()}
    train, dev, test = (
        part.select(items=np.diff(part.item_ptr) > 0) for part in (parts[s] for s in ("train", "dev", "test"))
    )
    store = FOLDER / "results" / "running" / f"{name}-{method}.jsonl"
    store.parent.mkdir(parents=True, exist_ok=True)
    K, L = grids(method, quick)
    coarse = (K, L) if quick or method == "fmm" else (COARSE, COARSE)
    result: dict[str, Any] = {"set": name, "method": method}
    for criterion, (ks, ls) in (("kl", (K, L)), ("likelihood", coarse)):
        begin = time.perf_counter()
        found = dz.select_clusters(train, method, K=ks, L=ls, dev=dev, criterion=criterion, store=store)
        result[criterion] = {
            "points": len(found.points),
            "seconds": time.perf_counter() - begin,  # Stored points take no time.
            "seconds_of_fits": sum(point.seconds for point in found.points),
            "converged": sum(point.converged for point in found.points),
            **score(found, train, test),
        }
        print(f"  {name} {method} by {criterion}: {result[criterion]}", flush=True)
    return result


def score(found: Any, train: Any, test: Any) -> dict[str, Any]:
    """Fit the chosen numbers of clusters anew with several starts, and score the test items."""
    model = found.estimator().set_params(restarts=RESTARTS)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(train)
    given, hidden = hide_annotators(test, 0.5, 0)
    expected = model.expected_labels(model.predict_clusters(given)[hidden.item], hidden)
    votes, snapped = test.soft_labels(), model.predict_proba(test)
    train_votes = train.soft_labels()
    return {
        "K": found.best.K,
        "L": found.best.L,
        "dev_kl": found.best.kl,
        "train_kl": float(kl_divergence(train_votes, model.posterior_).mean()),
        "kl": float(kl_divergence(votes, snapped).mean()),
        "inverse_kl": float(inverse_kl_divergence(votes, snapped).mean()),
        "hidden_kl": float(kl_divergence(hidden.soft_labels(), model.predict_proba(given)).mean()),
        "half_votes_kl": float(kl_divergence(hidden.soft_labels(), given.soft_labels("smoothed")).mean()),
        "log_likelihood": float(np.log(expected[np.arange(len(hidden)), hidden.label]).mean()),
    }


def tables(rows: list[dict[str, Any]]) -> list[str]:
    same, honest, times = [], [], []
    for row in rows:
        condition = next(name for name, method in METHODS.items() if method == row["method"])
        told = TABLE2.published[row["set"]][condition]
        paper = f"{told['inverse_kl']:.3f} ({', '.join(str(told[key]) for key in ('K', 'L') if key in told)})"
        kl, likelihood = row["kl"], row["likelihood"]
        head = [row["set"], row["method"]]
        same.append([*head, paper, _with_numbers(kl, "kl"), f"{kl['inverse_kl']:.3f}", f"{kl['train_kl']:.3f}"])
        by_kl = [_with_numbers(kl, "hidden_kl"), f"{kl['log_likelihood']:.3f}"]
        by_likelihood = [_with_numbers(likelihood, "hidden_kl"), f"{likelihood['log_likelihood']:.3f}"]
        honest.append([*head, *by_kl, *by_likelihood, f"{kl['half_votes_kl']:.3f}"])
        times.append([*head, f"{kl['points']}", f"{kl['converged']}", f"{kl['seconds_of_fits']:.0f}"])
    both = ["chosen by KL: KL (K, L)", "log-likelihood", "chosen by hidden labels: KL (K, L)", "log-likelihood"]
    return [
        "Test items placed by all of their votes, compared with the same votes; chosen by KL on the development items.",
        record.markdown_table(
            [
                "set",
                "method",
                "Table 2: KL (K, L)",
                "KL(votes ‖ snapped) (K, L)",
                "KL(snapped ‖ votes)",
                "training items",
            ],
            same,
        ),
        "Test items placed by half of their annotators, compared with the other half.",
        record.markdown_table(["set", "method", *both, "the given half's own votes: KL"], honest),
        "Points of the grid, how many of them converged, and the seconds of their fits added up (two at a time).",
        record.markdown_table(["set", "method", "points", "converged", "seconds"], times),
    ]


def _with_numbers(chosen: dict[str, Any], measure: str) -> str:
    return f"{chosen[measure]:.3f} ({chosen['K']}, {chosen['L']})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", metavar="SET", help="only these sets; the tables stay as they are")
    parser.add_argument("--quick", action="store_true", help="a few points only; the tables stay as they are")
    options = parser.parse_args()
    made = record.provenance(busy=True)
    rows = [run(name, method, options.quick) for name in options.only or SETS for method in METHODS.values()]
    if options.only or options.quick:
        return
    record.publish(FOLDER / "README.md", "jobs", made, {"rows": rows}, tables(rows))


if __name__ == "__main__":
    main()
