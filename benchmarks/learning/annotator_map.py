"""Figure 2 of Platanios et al. 2020: whether LIA's embeddings of annotators know how these err, on the same two sets.

    python -m benchmarks.learning.annotator_map [--seeds 5]

from the repository's root, with DISSENSUS_DATA naming the data folder. Draws bluebirds (`LIA()`, seed 0) into this
folder and writes the table into README.md. Gold judges; the fit does not see it.

- *neighbour*: share of annotators whose nearest neighbour by embedding is in their cluster of mistakes; *by chance*:
  the share of all others who are.
- *FPR, FNR*: R² of a linear fit of the false positive and negative rate on the first two principal components.
- *competence*: Spearman's correlation of `competence_` and the share of an annotator's labels that are right.
- *difficulty*: the same of `difficulty_` and the entropy of votes, and of `difficulty_` and the share of wrong votes.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks import record
from scipy.spatial.distance import cdist
from scipy.stats import spearmanr

import dissensus as dz
from dissensus.evaluation import entropy

HERE = Path(__file__).parent
SETS = ("bluebirds", "wordsim")
FIGURES = {
    "right": "right", "neighbour": "neighbour", "chance": "by chance", "fpr": "FPR", "fnr": "FNR",
    "competence": "competence", "entropy": "difficulty, entropy", "wrong_votes": "difficulty, wrong votes",
}  # fmt: skip


def run(name: str, seed: int) -> dict[str, Any]:
    """One fit; bluebirds of seed 0 is drawn."""
    import torch

    from dissensus.learning import LIA
    from dissensus.learning.annotator_map import project
    from dissensus.learning.competence import coordinates
    from dissensus.learning.mistakes import mistakes
    from dissensus.report.figures import plot_annotator_embeddings, plot_difficulty

    torch.set_num_threads(1)
    data = dz.load_dataset(name)
    table, truth = data.annotations, np.eye(2)[data.gold]
    model = LIA(seed=seed).fit(table, data.features)
    by_gold, rows = mistakes(table, truth), coordinates(model.models_[0])
    apart = cdist(rows, rows) + np.diag(np.full(len(rows), np.inf))
    same = by_gold.cluster[:, None] == by_gold.cluster
    place = np.column_stack([np.ones(len(rows)), project(rows, how="pca")[0]])
    votes = table.votes() / table.votes().sum(axis=1, keepdims=True)
    if (name, seed) == ("bluebirds", 0):
        plot_annotator_embeddings(model, table, HERE / "bluebirds_annotators.svg")
        plot_difficulty(model, table, HERE / "bluebirds_difficulty.svg", data.gold)
    return {
        "set": name,
        "seed": seed,
        "right": float((model.posterior_.argmax(axis=1) == data.gold).mean()),
        "neighbour": float(same[np.arange(len(rows)), apart.argmin(axis=1)].mean()),
        "chance": float((same.sum() - len(rows)) / (len(rows) * (len(rows) - 1))),
        "fpr": _r2(by_gold.false_positive[:, 1], place),
        "fnr": _r2(by_gold.false_negative[:, 1], place),
        "competence": float(spearmanr(model.competence_[:, 0], 1 - by_gold.error).statistic),
        "entropy": float(spearmanr(model.difficulty_, entropy(votes)).statistic),
        "wrong_votes": float(spearmanr(model.difficulty_, 1 - (votes * truth).sum(axis=1)).statistic),
    }


def _r2(y: np.ndarray, X: np.ndarray) -> float:
    left = y - X @ np.linalg.lstsq(X, y, rcond=None)[0]
    return float(1 - (left**2).sum() / ((y - y.mean()) ** 2).sum())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=5)
    seeds = parser.parse_args().seeds
    made = record.provenance()
    runs = [run(name, seed) for name in SETS for seed in range(seeds)]
    lines = []
    for name in SETS:
        own = [one for one in runs if one["set"] == name]
        cells = [[one[key] for one in own] for key in FIGURES]
        lines.append([name, *(f"{np.mean(cell):.2f} ± {np.std(cell):.2f}" for cell in cells)])
    text = [
        record.sentence(made, {"dissensus": {"dissensus": dz.__version__}}),
        f"`LIA()` with the sets' features, {seeds} seeds, mean ± standard deviation.",
        record.table(["set", *FIGURES.values()], lines),
    ]
    record.save(HERE, "annotator-map", made, {"runs": runs})
    record.splice(HERE / "README.md", "annotator map", "\n\n".join(text))


if __name__ == "__main__":
    main()
