"""LabelMe with 512 VGG features and an MLP: majority, two stages, soft labels and crowd layers, 10 seeds.

    python -m benchmarks.learning.labelme [--seeds 10] [--jobs 2] [--device cpu] [--store FILE] [--quick]
    python -m benchmarks.learning.labelme --render

from the repository's root, with DISSENSUS_DATA naming the data folder. Seed s holds out the s-th tenth of the 1,000
annotated images: accuracy and macro F1 are of the 1,188 test images (which have gold only), cross entropy is of the
held-out annotated images against the shares of their votes. Two ways to stop: after a fixed number of epochs, or by
accuracy on the held-out images, against their votes (then their cross entropy is of images it was stopped by). Finished
runs are kept in `results/labelme.jsonl`, so that a run that was killed goes on.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks import record
from benchmarks.learning.runs import run_all, stored
from scipy import stats

import dissensus as dz
from dissensus.evaluation import cross_entropy, macro_f1

HERE = Path(__file__).parent
EPOCHS = 100  # [U] trained 400; nothing changes after some fifty
PATIENCE = 20
LEAST = 1e-12  # of a probability: one network that is certain and wrong would make the mean infinite
STORE = HERE / "results" / "labelme.jsonl"
REFERENCES = (
    "Published: MLP + crowd layer F1 0.7839, cross entropy 1.7693 (UoR at SemEval-2021, same kind of features). Later "
    "work on stronger features (whole convolutional maps): crowd layer 85.7 %, annot-mix 85.8 % accuracy."
)


def conditions() -> dict[str, Callable[[], dict[str, Any]]]:
    """Name → keywords of the classifier."""
    from dissensus.learning.objectives import CrowdLayerObjective, Hard, Soft

    def crowd(**keywords: Any) -> Callable[[], dict[str, Any]]:
        return lambda: {"objective": CrowdLayerObjective(**keywords)}

    return {
        "majority": lambda: {"objective": Hard()},
        "majority + mixup": lambda: {"objective": Hard(), "mixup": 0.4},
        "majority + SAM": lambda: {"objective": Hard(), "sam": 0.05},
        "Dawid-Skene": lambda: {"objective": Hard(labels="dawid-skene")},
        "Dawid-Skene + mixup": lambda: {"objective": Hard(labels="dawid-skene"), "mixup": 0.4},
        "soft (votes)": lambda: {"objective": Soft()},
        "soft (Dawid-Skene)": lambda: {"objective": Soft(labels="dawid-skene")},
        "crowd layer, matrix, softmax": crowd(),
        "crowd layer, matrix, softmax, start 2": crowd(start=2.0),
        "crowd layer, matrix, softmax, start 4": crowd(start=4.0),
        "crowd layer, matrix, normalize": crowd(link="normalize"),
        "crowd layer, matrix, softmax-twice": crowd(link="softmax-twice"),
        "crowd layer, vector, softmax": crowd(kind="vector"),
        "crowd layer, vector-bias, softmax": crowd(kind="vector-bias"),
        "crowd layer, matrix, softmax + mixup": lambda: {**crowd()(), "mixup": 0.4},
        "crowd layer, matrix, softmax + SAM": lambda: {**crowd()(), "sam": 0.05},
        "gold (no crowd)": lambda: {"objective": Hard(labels="gold")},
    }


def run(name: str, stop: str, seed: int, epochs: int, device: str) -> dict[str, Any]:
    """One training."""
    import torch

    from dissensus.learning import CrowdClassifier

    torch.set_num_threads(1)
    parts = dz.load_dataset("labelme").splits
    train, test = parts["train"], parts["test"]
    held = np.random.default_rng(0).permutation(train.item_names.size) % 10 == seed % 10
    table, votes = train.annotations.select(items=~held), train.annotations.select(items=held)
    X = train.features
    began = time.perf_counter()
    validation = (X[held], votes) if stop == "stopped" else None
    stopping: dict[str, Any] = {"patience": PATIENCE, "monitor": "accuracy"} if validation else {}
    model = CrowdClassifier(
        encoder="mlp",
        epochs=epochs,
        batch_size=32,
        seed=seed,
        device=device,
        precision="32-true",
        **stopping,
        **conditions()[name](),
    ).fit(table, X[~held], gold=train.gold[~held] if name.startswith("gold") else None, validation=validation)
    seconds = time.perf_counter() - began
    best = model.predict_proba(test.features).argmax(axis=1)
    sure = np.maximum(model.predict_proba(X[held]), LEAST)
    return {
        "condition": name, "stop": stop, "seed": seed, "epochs": model.best_epoch_ or model.n_iter_,
        "accuracy": float((best == test.gold).mean()), "f1": macro_f1(test.gold, best),
        "cross_entropy": float(cross_entropy(votes.soft_labels(), sure / sure.sum(axis=1, keepdims=True)).mean()),
        "posterior": float((model.posterior_.argmax(axis=1) == train.gold[~held]).mean()),
        "seconds": seconds,
    }  # fmt: skip


def summary(rows: list[dict[str, Any]], stop: str) -> str:
    """Mean ± s.e. over seeds, and the paired difference to majority."""
    lines = []
    base = {row["seed"]: row["accuracy"] for row in rows if (row["condition"], row["stop"]) == ("majority", stop)}
    for name in conditions():
        own = [row for row in rows if (row["condition"], row["stop"]) == (name, stop)]
        if not own:
            continue

        def cell(key: str, scale: float = 100, digits: int = 2, own: list[dict[str, Any]] = own) -> str:
            values = scale * np.array([row[key] for row in own])
            return f"{values.mean():.{digits}f} ± {values.std(ddof=1) / np.sqrt(values.size):.{digits}f}"

        gain = np.array([row["accuracy"] - base[row["seed"]] for row in own])
        p = stats.ttest_1samp(gain, 0).pvalue if gain.any() else 1.0
        versus = "" if name == "majority" else f"{100 * gain.mean():+.2f} (p = {p:.1g})"
        epochs = f"{np.mean([row['epochs'] for row in own]):.0f}"
        lines.append(
            [name, cell("accuracy"), versus, cell("f1"), cell("cross_entropy", 1, 3), cell("posterior"), epochs]
        )
    head = [
        "trained on",
        "test accuracy %",
        "less majority",
        "macro F1 %",
        "cross entropy to votes",
        "training items %",
        "epochs",
    ]
    return record.table(head, lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--store", type=Path, default=STORE)
    parser.add_argument("--render", action="store_true", help="only write the tables of what is stored")
    parser.add_argument("--quick", action="store_true", help="one seed, five epochs; nothing is stored")
    options = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"
    store = None if options.quick else options.store
    rows = stored(store)
    done = {(row["condition"], row["stop"], row["seed"]) for row in rows}
    seeds = 1 if options.quick else options.seeds
    todo = [
        (name, stop, seed, 5 if options.quick else EPOCHS, options.device)
        for seed in range(seeds)
        for name in conditions()
        for stop in ("fixed", "stopped")
        if (name, stop, seed) not in done and not options.render
    ]
    made = record.provenance()
    rows += run_all(run, todo, options.jobs, store)
    text = [
        record.sentence(made, {"dissensus": {"dissensus": dz.__version__}}),
        f"{EPOCHS} epochs, {seeds} seeds, mean ± s.e.; differences and p by a paired t test over seeds.",
        summary(rows, "fixed"),
        f"Stopped after {PATIENCE} epochs without a better accuracy on the held-out tenth, against its votes (not by "
        "cross entropy: a crowd layer with a softmax needs a p(x) far too sure of itself).",
        summary(rows, "stopped"),
        REFERENCES,
    ]
    if store != STORE:
        print("\n\n".join(text))
        return
    record.save(HERE, "labelme", made, {"runs": rows})
    record.splice(HERE / "README.md", "labelme", "\n\n".join(text))


if __name__ == "__main__":
    main()
