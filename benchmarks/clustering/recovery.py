"""Whether the clusters that a table was drawn from are found.

    python -m benchmarks.clustering.recovery [--seeds 10]

from the repository's root. 2,000 items in 5 clusters, 300 annotators in 4, 12 classes, 10 labels per item. Writes
`results/` and a table of README.md.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import softmax
from sklearn.metrics import adjusted_rand_score

import dissensus as dz
from benchmarks.clustering.drawn import draw
from dissensus.clustering import model
from dissensus.clustering.annealing import AnnealingState
from dissensus.clustering.belief_propagation import BeliefMessages
from dissensus.compute.engines.local import Threads
from reproductions import record

FOLDER = Path(__file__).parent
K, L = 5, 4
TRUTH, SAMPLED = "the true parameters", "sampling, started at the truth"
BURN, SWEEPS = 200, 1000
METHODS: dict[str, dict[str, Any]] = {
    "fmm": {"n_clusters": K},
    "pgm-bp": {"item_clusters": K, "annotator_clusters": L},
    "pgm-annealing": {"item_clusters": K, "annotator_clusters": L},
    "pgm-annealing, the paper's schedule": {"item_clusters": K, "annotator_clusters": L, "schedule": "inverse"},
    "pgm-annealing, prior proposals": {
        "item_clusters": K, "annotator_clusters": L, "schedule": "inverse", "proposal": "prior", "sweeps": 1000,
    },
}  # fmt: skip


def by_truth(drawn: Any) -> tuple[Any, Any]:
    """Find clusters by belief propagation with the true parameters."""
    with Threads(1) as pool:
        messages = BeliefMessages(model.LabelGraph(drawn.annotations), drawn.params, 0.0, pool)
        messages.propagate(drawn.params, 100, 1e-8)
    return messages.of_item.argmax(axis=1), messages.of_annotator.argmax(axis=1)


def by_sampling(drawn: Any) -> tuple[Any, Any]:
    """Average cluster probabilities over the posterior: the best that can be done without the true parameters."""
    edges, rng = model.LabelGraph(drawn.annotations), np.random.default_rng(0)
    state = AnnealingState(edges, drawn.params, drawn.item_cluster, drawn.annotator_cluster, model.ClusterPriors())
    of_item, of_annotator = 0.0, 0.0
    for sweep in range(BURN + SWEEPS):
        state.gibbs_step(1.0, rng)
        if sweep >= BURN:
            of_item += softmax(model.cluster_logits(edges, edges.items, state.params, state.annotator), axis=1)
            of_annotator += softmax(model.cluster_logits(edges, edges.annotators, state.params, state.item), axis=1)
    return of_item.argmax(axis=1), of_annotator.argmax(axis=1)


def run_case(concentration: float, seed: int) -> list[dict[str, Any]]:
    drawn = draw(
        2000, 300, 12, item_clusters=K, annotator_clusters=L, redundancy=10, concentration=concentration, seed=seed
    )
    rows = []

    def add(name: str, found: tuple[Any, Any], seconds: float) -> None:
        truth = drawn.item_cluster, drawn.annotator_cluster
        items, annotators = (float(adjusted_rand_score(*pair)) for pair in zip(truth, found, strict=True))
        rows.append({
            "concentration": concentration, "seed": seed, "method": name, "items": items, "annotators": annotators,
            "seconds": seconds,
        })  # fmt: skip

    for name, cluster in ((TRUTH, by_truth), (SAMPLED, by_sampling)):
        begin = time.perf_counter()
        add(name, cluster(drawn), time.perf_counter() - begin)
    for name, keywords in METHODS.items():
        begin = time.perf_counter()
        fitted = dz.clusterings[name.split(",")[0]](**keywords).fit(drawn.annotations)
        add(name, (fitted.item_cluster_, fitted.annotator_cluster_), time.perf_counter() - begin)
    return rows


def tables(rows: list[dict[str, Any]]) -> list[str]:
    text = []
    for concentration in sorted({row["concentration"] for row in rows}):
        some = [row for row in rows if row["concentration"] == concentration]
        truth = {row["seed"]: row for row in some if row["method"] == TRUTH}
        body = []
        for name in dict.fromkeys(row["method"] for row in some):
            mine = [row for row in some if row["method"] == name]
            cells = [name]
            for side in ("items", "annotators"):
                values = [row[side] for row in mine]
                shares = [row[side] / truth[row["seed"]][side] for row in mine]
                cells += [f"{np.mean(values):.3f}", f"{min(values):.3f}", f"{np.mean(shares):.3f}"]
            body.append([*cells, f"{np.mean([row['seconds'] for row in mine]):.2f}"])
        head = ["", "items", "worst", "of truth", "annotators", "worst", "of truth", "seconds"]
        text += [f"Θ ~ Dirichlet({concentration:g}), {len(truth)} seeds", record.markdown_table(head, body)]
    return text


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--seeds", type=int, default=10)
    seeds = options.parse_args().seeds
    made = record.provenance(busy=True)
    rows = []
    for concentration in (0.2, 2.0):
        for seed in range(seeds):
            rows += run_case(concentration, seed)
            print(
                concentration, seed, *(f"{row['items']:.3f}/{row['annotators']:.3f}" for row in rows[-7:]), flush=True
            )
    record.publish(FOLDER / "README.md", "recovery", made, {"rows": rows}, tables(rows))


if __name__ == "__main__":
    main()
