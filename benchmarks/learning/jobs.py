"""jobs_q1..3: what predicts the distribution of an item's labels from its text, beside Table 3 of Weerasooriya et al.

    python -m benchmarks.learning.jobs [--seeds 10] [--jobs 2] [--device cpu] [--features FILE.npz] [--epochs 300]
    python -m benchmarks.learning.jobs --choose --seeds 1      # the settings below, on the development items
    python -m benchmarks.learning.jobs --render

from the repository's root, with DISSENSUS_DATA naming the data folder. The data's own split (1,000 / 500 / 500 tweets):
fitted to the training items, stopped and chosen on the development items, reported of the test items. Seed s is that of
the clustering and of the network. Numbers of clusters are those that `benchmarks/clustering` found on the development
items (by KL, the paper's way). A finished run is a line in `results/jobs.jsonl`; a benchmark that was killed goes on.
`--features` names a file that MiniLM's vectors of the tweets are kept in, and beside it those of their words, for a
machine that has no MiniLM.

Predictions are by the text alone, except where a condition is LEAKING: those look at the test items' own votes, which
are then what they are compared with. They are here because they may explain the paper's accuracies near 0.9.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks import record
from benchmarks.learning.runs import run_all, stored

import dissensus as dz
from dissensus.clustering import Distributions, Projector, snap
from dissensus.evaluation import split_half
from dissensus.evaluation.soft import EPSILON
from dissensus.exceptions import ConvergenceWarning

HERE = Path(__file__).parent
STORE = HERE / "results" / "jobs.jsonl"
FEATURES = HERE / "results" / "running" / "jobs.npz"
CLUSTERS = HERE.parent / "clustering" / "results" / "2026-11-15-jobs.json"
SETS = ("jobs_q1", "jobs_q2", "jobs_q3")
METHODS = {"FMM": "fmm", "PGM-SA": "pgm-annealing", "PGM-BP": "pgm-bp"}
RESTARTS = 5
EPOCHS, PATIENCE = 300, 10  # at most; the epoch with the least cross entropy to the development votes is kept
CHOICES: dict[str, dict[str, tuple[Any, ...]]] = {
    "CNN": {"words": (True, False), "learning_rate": (1e-3, 3e-3), "dropout": (0.2, 0.5)},
    "linear": {"scale": (True, False), "learning_rate": (1e-3, 1e-2), "weight_decay": (0.0, 1e-3, 1e-2)},
}
CHOSEN: dict[str, dict[str, Any]] = {
    "CNN": {"words": True, "learning_rate": 1e-3, "dropout": 0.2},
    "linear": {"scale": False, "learning_rate": 1e-3, "weight_decay": 0.0},
}
"""By `--choose`: the least mean KL to the development votes over the three sets, seed 0, trained on the votes.

0.447 and 0.381 (CNN without MiniLM's words 0.484; linear on scaled vectors 0.456 at best). Pipelines have the same.
"""
PUBLISHED = {  # Table 3: KL, accuracy
    "jobs_q1": {"PD": (1.092, 0.494), "FMM": (0.460, 0.892), "PGM-SA": (0.652, 0.730), "PGM-BP": (0.538, 0.727),
                "LDL-NM": (0.408, 0.915)},
    "jobs_q2": {"PD": (1.088, 0.475), "FMM": (0.514, 0.873), "PGM-SA": (0.884, 0.579), "PGM-BP": (0.624, 0.663),
                "LDL-NM": (0.501, 0.910)},
    "jobs_q3": {"PD": (1.462, 0.284), "FMM": (0.888, 0.880), "PGM-SA": (1.201, 0.290), "PGM-BP": (0.951, 0.250),
                "LDL-NM": (0.864, 0.923)},
}  # fmt: skip
MEASURES = ("kl", "inverse_kl", "accuracy", "manhattan")


@dataclass(frozen=True)
class Part:
    """Items of a split."""

    table: Any
    X: Any  # (I, 384) MiniLM
    texts: list[str]

    @property
    def votes(self) -> Any:
        """(I, K) shares."""
        return self.table.soft_labels()


@dataclass(frozen=True)
class Setting:
    """What a condition is told besides the data."""

    data: str
    seed: int
    device: str
    epochs: int
    words: str  # file of word vectors


Predict = Callable[[Part], dict[str, Any]]
"""Items → (I, K) distributions by the names of their variants; "raw" is what the network says."""
Fit = Callable[[Part, Part, Setting], Predict]
"""Training items, development items (for stopping), setting → predictions of any items."""


# Conditions -----------------------------------------------------------------------------------------------------------


def network(kind: str, setting: Setting, **keywords: Any) -> Any:
    """The text CNN, or a linear layer, not fitted."""
    from dissensus.learning import CrowdClassifier
    from dissensus.learning.encoders import Identity, TextCNN

    own = CHOSEN[kind] | keywords
    if kind == "CNN":
        encoder: Any = TextCNN(vectors=setting.words if own["words"] else None, dropout=own["dropout"])
    else:
        encoder = Identity(scale=own["scale"])
    return CrowdClassifier(
        encoder=encoder, objective="soft", learning_rate=own["learning_rate"], weight_decay=own.get("weight_decay", 0),
        epochs=setting.epochs, patience=PATIENCE, head_learning_rate=own["learning_rate"], device=setting.device,
        precision="32-true", seed=setting.seed,
    )  # fmt: skip


def seen(kind: str, part: Part) -> Any:
    """What that network reads."""
    return part.texts if kind == "CNN" else part.X


def on_votes(kind: str, train: Part, dev: Part, setting: Setting, **keywords: Any) -> Predict:
    """Trained on the votes with KL: PD, where it is the CNN."""
    model = network(kind, setting, **keywords)
    model.fit(train.table, seen(kind, train), validation=(seen(kind, dev), dev.table), on_step=lambda *step: None)
    return lambda part: {"raw": model.predict_proba(seen(kind, part))}


def clustering(name: str, train: Part, setting: Setting) -> Any:
    """Fitted to the training items, with the numbers of clusters chosen before."""
    rows = json.loads(CLUSTERS.read_text())["rows"]
    chosen = next(row["kl"] for row in rows if (row["set"], row["method"]) == (setting.data, METHODS[name]))
    sizes = {"item_clusters": chosen["K"], "annotator_clusters": chosen["L"]}
    if name == "FMM":
        sizes = {"n_clusters": chosen["K"]}
    model = dz.clusterings[METHODS[name]](**sizes, restarts=RESTARTS, threads=1, seed=setting.seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return model.fit(train.table)


def snapped(name: str, kind: str, train: Part, dev: Part, setting: Setting) -> Predict:
    """Clusters → network → project."""
    from sklearn.pipeline import Pipeline

    model = clustering(name, train, setting)
    pipeline = Pipeline([("learn", Distributions(network(kind, setting))), ("project", Projector(model))])
    watched = (seen(kind, dev), dev.votes)
    pipeline.fit(seen(kind, train), snap(model), learn__validation=watched, learn__on_step=lambda *step: None)

    def predict(part: Part) -> dict[str, Any]:
        raw = pipeline["learn"].transform(seen(kind, part))
        ways = {f"projected, {how}": Projector(model, how=how).fit_transform(raw) for how in ("hard", "soft")}
        return {"raw": raw} | ways

    return predict


def mean_votes(train: Part, dev: Part, setting: Setting) -> Predict:
    """The same for every item."""
    mean = train.votes.mean(axis=0)
    return lambda part: {"raw": np.tile(mean, (len(part.texts), 1))}


def by_own_votes(name: str, train: Part, dev: Part, setting: Setting) -> Predict:
    """Items are placed in clusters by their own votes, and snapped; nothing is read of their texts."""
    model = clustering(name, train, setting)
    return lambda part: {"raw": model.predict_proba(part.table)}


def ldl_nm(which: str, leaks: bool, train: Part, dev: Part, setting: Setting) -> Predict:
    """LDL-NM of the size that `ldl_nm.py search` chose, with its epochs, or of those after 200, as in the paper."""
    from dissensus.learning import ldl_nm as model_of
    from dissensus.learning.objectives import LDLNMObjective
    from dissensus.learning.unknown_annotators import leaking_proba

    best = json.loads(max((HERE / "results").glob("*-ldl_nm-search.json")).read_text())["found"][setting.data][which]
    objective = LDLNMObjective(item_size=best["item_size"], annotator_size=best["annotator_size"])
    model = model_of(objective=objective, epochs=best["epochs"], seed=100 + setting.seed, device=setting.device)
    model.fit(train.table, train.X, on_step=lambda *step: None)
    return lambda part: {"raw": leaking_proba(model, part.X, part.votes) if leaks else model.predict_proba(part.X)}


CONDITIONS: dict[str, Fit] = {
    "mean of all training votes": mean_votes,
    "PD: CNN on votes": partial(on_votes, "CNN"),
    **{f"{name} → CNN": partial(snapped, name, "CNN") for name in METHODS},
    "MiniLM, linear, on votes": partial(on_votes, "linear"),
    **{f"{name} → MiniLM, linear": partial(snapped, name, "linear") for name in METHODS},
    "LDL-NM": partial(ldl_nm, "best", False),
    "LDL-NM, 200 epochs": partial(ldl_nm, "last", False),
    **{f"{name} by the test items' own votes": partial(by_own_votes, name) for name in METHODS},
    "LDL-NM, Algorithm 4 by the test items' own votes": partial(ldl_nm, "best", True),
    "LDL-NM, 200 epochs, Algorithm 4 by the test items' own votes": partial(ldl_nm, "last", True),
}
LEAKING = {name for name in CONDITIONS if "own votes" in name}
PAPER = {"PD: CNN on votes": "PD"}
PAPER |= {name: "LDL-NM" for name in CONDITIONS if name.startswith("LDL-NM")}
PAPER |= {f"{name}{how}": name for name in METHODS for how in (" → CNN", " by the test items' own votes")}
"""Condition → column of Table 3 that it stands beside."""


# Runs -----------------------------------------------------------------------------------------------------------------


@cache
def parts(data: str, features: Path) -> dict[str, Part]:
    """Split → its items."""
    whole = dz.load_dataset(data)
    with np.load(features) as kept:
        place = {name: n for n, name in enumerate(kept["items"].tolist())}
        X = kept["X"]
    return {
        split: Part(part.annotations, X[[place[i] for i in part.annotations.items]], part.items["text"].to_pylist())
        for split, part in whole.splits.items()
    }


def keep_features(features: Path) -> None:
    """MiniLM's vectors of the tweets, the same in the three sets, and of their words, as 100 numbers each (PCA)."""
    if features.exists() and words_of(features).exists():
        return
    from dissensus.features import embed_texts
    from dissensus.learning.encoders.text_cnn import WORD
    from dissensus.learning.encoders.words import from_transformer, vocabulary

    data = dz.load_dataset(SETS[0])
    texts = data.items["text"].to_pylist()
    features.parent.mkdir(parents=True, exist_ok=True)
    np.savez(features, items=data.annotations.items.astype(str), X=embed_texts(texts))
    words = vocabulary(WORD.findall(text.lower()) for text in texts)
    vectors, _ = from_transformer(words, 0)
    _, _, axes = np.linalg.svd(vectors - vectors.mean(axis=0), full_matrices=False)
    few = (vectors - vectors.mean(axis=0)) @ axes[:100].T
    few /= few.std()
    lines = [" ".join([word, *(f"{x:.5f}" for x in row)]) for word, row in zip(words, few.tolist(), strict=True)]
    words_of(features).write_text("\n".join(lines) + "\n", encoding="utf-8")


def words_of(features: Path) -> Path:
    return features.with_suffix(".words.txt")


def scores(part: Part, h: Any) -> dict[str, float]:
    """Means over items; of ties the chance to agree."""
    from dissensus.learning.distribution_scores import compare_distributions

    return {measure: getattr(compare_distributions(part.votes, h), measure) for measure in MEASURES}


def run(data: str, condition: str, seed: int, device: str, epochs: int, features: Path) -> dict[str, Any]:
    """One cell, one seed."""
    import torch

    torch.set_num_threads(1)
    split = parts(data, features)
    began = time.perf_counter()
    setting = Setting(data, seed, device, epochs, str(words_of(features)))
    predict = CONDITIONS[condition](split["train"], split["dev"], setting)
    found = {where: {k: scores(split[where], h) for k, h in predict(split[where]).items()} for where in ("dev", "test")}
    return {"data": data, "condition": condition, "seed": seed, "leaks_test_labels": condition in LEAKING,
            "seconds": round(time.perf_counter() - began, 2), "epochs": epochs, **found}  # fmt: skip


def try_settings(data: str, kind: str, keywords: dict[str, Any], seed: int, features: Path) -> dict[str, Any]:
    """KL to the development votes of a network trained on votes."""
    import torch

    torch.set_num_threads(1)
    split = parts(data, features)
    setting = Setting(data, seed, "cpu", EPOCHS, str(words_of(features)))
    h = on_votes(kind, split["train"], split["dev"], setting, **keywords)(split["dev"])["raw"]
    return {"data": data, "kind": kind, **keywords, "seed": seed, "kl": scores(split["dev"], h)["kl"]}


def choose(seeds: int, jobs: int, features: Path) -> None:
    """Print the mean of KL over sets and seeds for all settings, the best last."""
    todo = [
        (data, kind, dict(zip(grid, values, strict=True)), seed, features)
        for kind, grid in CHOICES.items() for values in itertools.product(*grid.values())
        for data in SETS for seed in range(seeds)
    ]  # fmt: skip
    by: dict[str, list[float]] = {}
    for line in run_all(try_settings, todo, jobs, None):
        by.setdefault(str({k: v for k, v in line.items() if k not in ("data", "seed", "kl")}), []).append(line["kl"])
    for what, values in sorted(by.items(), key=lambda pair: -float(np.mean(pair[1]))):
        print(f"{np.mean(values):.4f} ({len(values)} runs)  {what}")


# Results --------------------------------------------------------------------------------------------------------------


def shown(values: list[float]) -> str:
    error = f" ± {np.std(values, ddof=1) / len(values) ** 0.5:.3f}" if len(values) > 1 else ""
    return f"{np.mean(values):.3f}{error}"


def variants(lines: list[dict[str, Any]]) -> list[str]:
    """What is shown of a condition: raw, and of two ways to project the one with the lower KL on development items."""
    names = list(lines[0]["test"])
    ways = [name for name in names if name.startswith("projected")]
    best = sorted(ways, key=lambda way: np.mean([line["dev"][way]["kl"] for line in lines]))[:1]
    return [name for name in names if name not in ways] + best


def render(found: list[dict[str, Any]], halves: dict[str, Any]) -> str:
    """Markdown: one table per set."""
    tables = []
    for data in SETS:
        rows = []
        for condition in CONDITIONS:
            lines = [f for f in found if (f["data"], f["condition"]) == (data, condition)]
            for variant in variants(lines) if lines else []:
                values = [shown([line["test"][variant][m] for line in lines]) for m in MEASURES]
                told = PUBLISHED[data].get(PAPER.get(condition, ""))
                theirs = told is not None and (variant != "raw" or "→" not in condition)  # theirs are projected
                beside = f"{told[0]:.3f} / {told[1]:.3f}" if theirs else ""
                label = condition if variant == "raw" else f"{condition}, {variant}"
                rows.append([f"*{label}: leaks*" if condition in LEAKING else label, *values, beside])
        half = halves[data]
        values = [f"{half['mean'][m]:.3f}" for m in ("kl_divergence", "inverse_kl_divergence", "accuracy", "manhattan")]
        rows.append(["one half of the annotators, against the other", *values, ""])
        for name in sorted(set(PUBLISHED[data]) - set(PAPER.values())):  # what no condition here stands beside
            told = PUBLISHED[data][name]
            rows.append([f"{name}, published", "", "", "", "", f"{told[0]:.3f} / {told[1]:.3f}"])
        head = [data, "KL(y‖h)", f"KL(h‖y), ε = {EPSILON:g}", "accuracy", "Manhattan", "Table 3: KL / accuracy"]
        tables.append(record.table(head, rows))
    return "\n\n".join(tables)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--epochs", type=int, default=EPOCHS)
    parser.add_argument("--data", nargs="*", default=list(SETS))
    parser.add_argument("--conditions", nargs="*", default=list(CONDITIONS))
    parser.add_argument("--features", type=Path, default=FEATURES)
    parser.add_argument("--store", type=Path, default=STORE)
    parser.add_argument("--choose", action="store_true")
    parser.add_argument("--render", action="store_true")
    options = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # of the processes; they are as many as --jobs says
    keep_features(options.features)
    if options.choose:
        choose(options.seeds, options.jobs, options.features)
        return
    made = record.provenance()
    if not options.render:
        done = {(f["data"], f["condition"], f["seed"]) for f in stored(options.store) if "data" in f}
        todo = [
            (data, condition, seed, options.device, options.epochs, options.features)
            for seed in range(options.seeds) for condition in options.conditions for data in options.data
            if (data, condition, seed) not in done
        ]  # fmt: skip
        began = time.perf_counter()
        run_all(run, todo, options.jobs, options.store)
        made |= {"minutes": round((time.perf_counter() - began) / 60, 1), "jobs": options.jobs, "runs": len(todo)}
        with options.store.open("a") as file:
            file.write(json.dumps({"made": made}) + "\n")
    lines = stored(options.store)
    found, runs = [f for f in lines if "data" in f], [f["made"] for f in lines if "made" in f]
    halves = {}
    for data in SETS:
        half = split_half(dz.load_dataset(data).splits["test"].annotations)
        halves[data] = {"mean": half.mean, "spread": half.spread, "draws": half.draws}
    text = render(found, halves)
    print(text)
    if options.store == STORE and runs:
        record.save(HERE, "jobs", runs[-1], {"runs": runs, "chosen": CHOSEN, "halves": halves, "cells": found}, None)
        seeds = len({f["seed"] for f in found})
        about = f"{record.sentence(runs[-1], {'dissensus': {'dissensus': dz.__version__}})}\n\n"
        about += f"{seeds} seed{'s, mean ± s.e. over them' * (seeds > 1)}; 500 test items. "
        about += "Published: Table 3, Weerasooriya et al. 2021, beside what we project as they do."
        record.splice(HERE / "README.md", "jobs", f"{about}\n\n{text}")


if __name__ == "__main__":
    main()
