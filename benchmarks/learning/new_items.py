"""New items without annotations: h of LIA against the same network trained on aggregated labels.

    python -m benchmarks.learning.new_items        # options: see benchmarks/parts.py

Five folds over the items, another division for
every seed; a network learns from the annotations (or the gold) of four and is asked about the fifth. All have the same
layers, optimiser, rates, steps and batches, those of `LIA()`; only the objective differs. Scored on held-out items:
accuracy and log loss against gold (experts' on the medical sets, which have it for few items), and the mean
log-likelihood of their annotations, each by itself (`predict_annotator_proba`), which asks for no gold. Intervals are
of the corrected resampled t test (Nadeau & Bengio 2003): folds share their training items.
"""

from __future__ import annotations

import time
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

import dissensus as dz
from benchmarks.parts import Benchmark, Part, Rows
from reproductions import record

FOLDER = Path(__file__).parent
SETS = ("rte", "medical_causes", "medical_treats", "labelme", "sentiment_polarity")
FOLDS = 5
MIN_PROBABILITY = 1e-12  # one network that is certain and wrong would make the mean infinite
PAPER = {"hidden": (16, 16, 16, 16), "dropout": 0.0, "steps": 1000}
CONDITIONS: dict[str, tuple[Any, ...]] = {
    "majority": ("hard", "majority-vote"),
    "Dawid-Skene, labels": ("hard", "dawid-skene"),
    "Dawid-Skene, posteriors": ("soft", "dawid-skene"),
    "MMCE, posteriors": ("soft", "mmce"),
    "LIA": ("lia", {}),
    "LIA, entropy=0.1": ("lia", {"entropy": 0.1}),
    "LIA, difficulty=False": ("lia", {"difficulty": False}),
    "LIA, 4 layers of 16": ("lia", PAPER),
    "gold": ("hard", "gold"),
}
OURS = "LIA"


@lru_cache
def data(name: str) -> tuple[dz.Annotations, Any, Any]:
    """Load annotations, features and gold."""
    from dissensus.features import embed_pairs, embed_texts

    found = dz.load_dataset(name)
    if name == "labelme":
        X = found.features
    elif name == "rte":
        X = embed_pairs(found.items["text"].to_pylist(), found.items["text_pair"].to_pylist())
    else:
        columns = ("text",) if name == "sentiment_polarity" else ("text", "term1", "term2")
        X = np.concatenate([embed_texts([str(text) for text in found.items[c].to_pylist()]) for c in columns], axis=1)
    return found.annotations, X, found.gold


def run(part: Part, device: str) -> dict[str, Any]:
    """Train and score once."""
    from dissensus.learning import LIA, CrowdClassifier
    from dissensus.learning.objectives import Hard, Soft

    seed, steps = part["seed"], part.get("steps")
    table, X, gold = data(part["data"])
    held = np.random.default_rng(seed).permutation(table.n_items) % FOLDS == part["fold"]
    train = table.select(items=~held)
    kind, what = CONDITIONS[part["condition"]]
    keywords = {**(what if kind == "lia" else {}), **({} if steps is None else {"steps": steps})}
    model = LIA(seed=seed, device=device, **keywords).classifier(train, features=True)
    if kind != "lia":
        objective = Hard(labels=what) if kind == "hard" else Soft(labels=what)
        model = CrowdClassifier(**{**model.get_params(deep=False), "objective": objective})
    began = time.perf_counter()
    model.fit(train, X[~held], gold=gold[~held] if what == "gold" else None, on_step=lambda epoch, loss: None)
    seconds = time.perf_counter() - began
    proba, known = model.predict_proba(X[held]), gold[held] >= 0
    truth, mine = gold[held][known], proba[known]
    rest = table.select(items=held)
    said = model.predict_annotator_proba(X[held], table.annotators)[rest.item, rest.annotator, rest.label]
    return {
        "accuracy": float((mine.argmax(axis=1) == truth).mean()),
        "log_loss": float(-np.log(np.maximum(mine[np.arange(truth.size), truth], MIN_PROBABILITY)).mean()),
        "annotations": float(np.log(np.maximum(said, MIN_PROBABILITY)).mean()), "seconds": seconds,
    }  # fmt: skip


def interval(gain: Any) -> str:
    """Mean and 95 % interval of paired differences over folds and seeds."""
    if gain.size < 2:
        return f"{gain.mean():+.2f}"
    error = np.sqrt((1 / gain.size + 1 / (FOLDS - 1)) * gain.var(ddof=1))
    reach = stats.t.ppf(0.975, gain.size - 1) * error
    return f"{gain.mean():+.2f} ({gain.mean() - reach:+.2f} to {gain.mean() + reach:+.2f})"


def summary(rows: Rows, name: str) -> str:
    """Table of means of a set, and of LIA's lead."""
    of = {(row["condition"], row["seed"], row["fold"]): row for row in rows if row["data"] == name}
    lines = []
    for condition in CONDITIONS:
        own = [key for key in of if key[0] == condition]
        if not own:
            continue
        mean = {
            key: np.mean([of[one][key] for one in own]) for key in ("accuracy", "log_loss", "annotations", "seconds")
        }
        both = [key for key in own if (OURS, *key[1:]) in of]
        cells = ["", ""]
        if condition != OURS and both:
            for place, (key, scale) in enumerate((("accuracy", 100), ("log_loss", 1))):
                gain = np.array([of[(OURS, *one[1:])][key] - of[one][key] for one in both])
                cells[place] = interval(scale * gain)
        lines.append(
            [
                condition, f"{100 * mean['accuracy']:.2f}", cells[0], f"{mean['log_loss']:.3f}", cells[1],
                f"{mean['annotations']:.3f}", f"{mean['seconds']:.1f}",
            ]
        )  # fmt: skip
    head = ["taught by", "accuracy %", "LIA less this", "log loss", "LIA less this", "of annotations", "seconds"]
    runs = len({key[1:] for key in of})
    return f"**{name}**, {runs} runs:\n\n" + record.markdown_table(head, lines)


def tables(rows: Rows) -> list[str]:
    """One table for every set."""
    return [summary(rows, name) for name in SETS if any(row["data"] == name for row in rows)]


def parts(seeds: int, folds: int = FOLDS) -> list[Part]:
    """Return every set and condition, fold by fold."""
    return [
        {"data": name, "condition": condition, "seed": seed, "fold": fold}
        for seed in range(seeds)
        for fold in range(folds)
        for name in SETS
        for condition in CONDITIONS
    ]


QUICK: list[Part] = [part | {"steps": 40} for part in parts(1, 1)]
BENCHMARK = Benchmark(FOLDER, "new-items", run, parts, QUICK, tables, seeds=2)


if __name__ == "__main__":
    BENCHMARK.main(__doc__)
