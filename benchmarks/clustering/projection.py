"""Whether projecting a classifier's predictions onto clusters brings them nearer to the truth (Fig. 1 of the paper).

    python -m benchmarks.clustering.projection [--seeds 5]

from the repository's root. Tables drawn with 4 item and 2 annotator clusters and features of the item's cluster,
more or less; KL of the true label distributions of 200 test items to what is predicted. Writes `results/` and a table
of README.md.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.linear_model import LogisticRegression

from benchmarks.clustering.drawn import draw
from dissensus.clustering import PGMBP, DistributionClassifier, Projector, model, snap
from dissensus.evaluation import kl_divergence
from reproductions import record
from reproductions.printed_clusters import PrintedProjector

FOLDER = Path(__file__).parent
ITEMS, TRAIN = 600, 400
READINGS = [(reading, how) for reading in ("printed", "population") for how in ("hard", "soft")]


def run_case(seed: int) -> dict[str, float]:
    drawn = draw(ITEMS, 50, 5, item_clusters=4, annotator_clusters=2, redundancy=10, concentration=0.3, seed=seed)
    X = np.eye(4)[drawn.item_cluster] + np.random.default_rng(0).normal(0, 0.5, (ITEMS, 4))
    train = np.arange(ITEMS) < TRAIN
    table = drawn.annotations.select(items=train)
    truth = model.population_labels(drawn.params)[drawn.item_cluster[~train]]
    fitted = PGMBP(item_clusters=4, annotator_clusters=2).fit(table)
    scores: dict[str, float] = {}

    def add(name: str, predicted: Any) -> None:
        scores[name] = float(kl_divergence(truth, predicted).mean())

    add("no features: the mean of all votes", np.tile(table.soft_labels().mean(axis=0), (ITEMS - TRAIN, 1)))
    for name, labels in (("votes", table.soft_labels()), ("snapped", snap(fitted))):
        raw = DistributionClassifier(LogisticRegression()).fit(X[train], labels).transform(X[~train])
        add(f"trained on {name}, raw", raw)
        for reading, how in READINGS:
            kind = PrintedProjector if reading == "printed" else Projector
            projected = kind(fitted, how=how).fit_transform(raw)
            add(f"trained on {name}, projected, {reading}, {how}", projected)
    return scores


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--seeds", type=int, default=5)
    made = record.provenance(busy=True)
    cases = [run_case(seed) for seed in range(options.parse_args().seeds)]
    rows = [[name, f"{np.mean([case[name] for case in cases]):.3f}"] for name in cases[0]]
    table = record.markdown_table(["", "KL to the truth"], rows)
    record.publish(FOLDER / "README.md", "projection", made, {"cases": cases}, [table])


if __name__ == "__main__":
    main()
