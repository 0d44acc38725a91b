"""LabelMe: test accuracy of every way to learn from the labels of a crowd.

    python -m benchmarks.learning.labelme        # options: see benchmarks/parts.py

1,000 images with 2,547 labels by 59 annotators teach; 1,188 others with gold are the test. All arms have the same
network (two layers of 128, dropout 0.5, on 512 averaged VGG-16 features), 50 epochs, Adam and batches of 64; `auto` is
`CrowdClassifier()` as it comes. No gold of training images is used, but in the last row. Keywords that are not defaults
were chosen by the accuracy on the 500 development images, with seeds 100 to 103; seeds of the table are others.
"""

from __future__ import annotations

import time
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

import dissensus as dz
from benchmarks.parts import Benchmark, Part, Rows, mean_and_error
from reproductions import record

FOLDER = Path(__file__).parent
MIXUP = 0.4  # Mixup parameter α of reproductions/uor2021.toml.
VOLUME = {"volume": "classes", "volume_weight": 0.3}
OF_ANNOTATORS = {"volume": "annotators", "volume_weight": 0.01}
ARMS: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "majority": ("hard", {}, {}),
    "majority + mixup": ("hard", {}, {"mixup": MIXUP}),
    "Dawid-Skene": ("hard", {"labels": "dawid-skene"}, {}),
    "Dawid-Skene + mixup": ("hard", {"labels": "dawid-skene"}, {"mixup": MIXUP}),
    "soft (votes)": ("soft", {}, {}),
    "soft (Dawid-Skene)": ("soft", {"labels": "dawid-skene"}, {}),
    "soft (CROWDLAB)": ("crowdlab", {}, {}),
    "LIA": ("lia", {}, {}),
    "annotator heads": ("annotator-heads", {}, {}),
    "annotator embeddings": ("annotator-embeddings", {}, {}),
    "crowd layer, softmax": ("crowd-layer", {"link": "softmax"}, {}),
    "crowd layer": ("crowd-layer", {}, {}),
    "crowd layer + mixup": ("crowd-layer", {}, {"mixup": MIXUP}),
    "crowd layer, volume of annotators (GeoCrowdNet W)": ("crowd-layer", OF_ANNOTATORS, {}),
    "crowd layer, volume of classes (GeoCrowdNet F)": ("crowd-layer", VOLUME, {}),
    "crowd layer, volume of classes + mixup": ("crowd-layer", VOLUME, {"mixup": MIXUP}),
    "CoNAL": ("conal", {}, {}),
    "annot-mix": ("annot-mix", {}, {}),
    "auto (the default, 15 networks)": ("auto", {}, {}),
    "gold (no crowd)": ("hard", {"labels": "gold"}, {}),
}
"""Name → objective, its keywords, those of the classifier."""


@cache
def sets() -> Any:
    """Split → its part of the set."""
    return dz.load_dataset("labelme").splits


def network(objective: Any, seed: int, device: str, **keywords: Any) -> Any:
    """Make the network of all arms."""
    from dissensus.learning import CrowdClassifier
    from dissensus.learning.encoders import MLP

    encoder = MLP(hidden=(128, 128), dropout=0.5)
    return CrowdClassifier(encoder=encoder, objective=objective, seed=seed, device=device, **{"epochs": 50} | keywords)


def fit(name: str, own: dict[str, Any], keywords: dict[str, Any], seed: int, device: str) -> Any:
    """Train one arm."""
    from dissensus.learning import CrowdClassifier, crowdlab, out_of_fold
    from dissensus.learning.objectives import objectives

    train = sets()["train"]
    table, X = train.annotations, train.features
    if name == "crowdlab":
        model = network("soft", seed, device, **keywords)
        apart = out_of_fold(model, table, X, seed=seed, on_step=lambda epoch, loss: None)
        y = crowdlab(table, apart.proba).posterior
        return model.fit_distributions(X, y, classes=table.classes, on_step=lambda epoch, loss: None)
    if name == "auto":
        return CrowdClassifier(seed=seed, device=device).fit(table, X, on_step=lambda epoch, loss: None)
    kind: Any = objectives[name]
    gold = train.gold if own.get("labels") == "gold" else None
    model = network(kind(**own), seed, device, **keywords)
    return model.fit(table, X, gold=gold, on_step=lambda epoch, loss: None)


def run(part: Part, device: str) -> dict[str, Any]:
    """Train and score one arm."""
    import torch

    torch.set_num_threads(1)
    began = time.perf_counter()
    name, own, keywords = ARMS[part["arm"]] if "arm" in part else part["how"]
    model = fit(name, own, keywords, part["seed"], device)
    seconds, found = time.perf_counter() - began, {}
    for split in ("dev", "test"):
        gold, proba = sets()[split].gold, model.predict_proba(sets()[split].features)
        found[split] = float((proba.argmax(axis=1) == gold).mean())
        found[f"{split}_log_loss"] = float(-np.log(np.maximum(proba[np.arange(len(gold)), gold], 1e-12)).mean())
    return found | {"seconds": seconds}


def tables(parts: Rows) -> list[str]:
    """Return a line for every model."""
    lines = []
    for arm in ARMS:
        rows = [row for row in parts if row["arm"] == arm]
        cells = [mean_and_error([row[key] for row in rows], 1, 100) for key in ("test", "dev")]
        loss = mean_and_error([row["test_log_loss"] for row in rows], 2)
        lines.append([arm, *cells, loss, f"{np.mean([row['seconds'] for row in rows]):.1f}", str(len(rows))])
    head = ["taught by", "test accuracy %", "development %", "test log loss", "seconds", "seeds"]
    return [record.markdown_table(head, lines)]


def parts(seeds: int) -> list[Part]:
    """Return every model with every seed."""
    return [{"arm": arm, "seed": seed} for arm in ARMS for seed in range(seeds)]


QUICK: list[Part] = [{"arm": arm, "seed": 0} for arm in ("majority", "crowd layer, volume of classes (GeoCrowdNet F)")]
BENCHMARK = Benchmark(FOLDER, "labelme", run, parts, QUICK, tables, seeds=10)


if __name__ == "__main__":
    BENCHMARK.main(__doc__)
