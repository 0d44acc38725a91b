"""New items without annotations: h of LIA against the same network taught by labels that were made first.

    python -m benchmarks.learning.new_items [--seeds 2] [--jobs 1] [--device cpu] [--store FILE] [--quick]
    python -m benchmarks.learning.new_items --render

from the repository's root, with DISSENSUS_DATA naming the data folder. Five folds over the items, another division for
every seed; a network learns from the annotations (or the gold) of four and is asked about the fifth. All have the same
layers, optimiser, rates, steps and batches, those of `LIA()`; only the objective differs. Scored on held-out items:
accuracy and log loss against gold (experts' on the medical sets, which have it for few items), and the mean
log-likelihood of their annotations, each by itself (`predict_annotator_proba`), which asks for no gold. Intervals are
of the corrected resampled t test (Nadeau & Bengio 2003): folds share their training items. Finished runs are kept in
`results/new_items.jsonl`, so that a run that was killed goes on.
"""

from __future__ import annotations

import argparse
import os
import time
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks import record
from benchmarks.learning.runs import run_all, stored
from scipy import stats

import dissensus as dz

HERE = Path(__file__).parent
STORE = HERE / "results" / "new_items.jsonl"
SETS = ("rte", "medical_causes", "medical_treats", "labelme", "sentiment_polarity")
FOLDS = 5
LEAST = 1e-12  # of a probability: one network that is certain and wrong would make the mean infinite
PAPER = {"hidden": (16, 16, 16, 16), "dropout": 0.0, "steps": 1000}
CONDITIONS: dict[str, tuple[Any, ...]] = {
    "majority": ("hard", "majority-vote"),
    "Dawid-Skene, labels": ("hard", "dawid-skene"),
    "Dawid-Skene, posteriors": ("soft", "dawid-skene"),
    "MMCE, posteriors": ("soft", "mmce"),
    "LIA": ("lia", {}),
    "LIA, difficulty=False": ("lia", {"difficulty": False}),
    "LIA, 4 layers of 16": ("lia", PAPER),
    "gold": ("hard", "gold"),
}
OURS = "LIA"


@lru_cache
def data(name: str) -> tuple[dz.Annotations, Any, Any]:
    """Annotations, features and gold."""
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


def run(name: str, condition: str, seed: int, fold: int, device: str, steps: int | None) -> dict[str, Any]:
    """One training."""
    import torch

    from dissensus.learning import LIA, CrowdClassifier
    from dissensus.learning.objectives import Hard, Soft

    torch.set_num_threads(1)
    table, X, gold = data(name)
    held = np.random.default_rng(seed).permutation(table.n_items) % FOLDS == fold
    train = table.select(items=~held)
    kind, what = CONDITIONS[condition]
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
        "data": name, "condition": condition, "seed": seed, "fold": fold,
        "accuracy": float((mine.argmax(axis=1) == truth).mean()),
        "log_loss": float(-np.log(np.maximum(mine[np.arange(truth.size), truth], LEAST)).mean()),
        "annotations": float(np.log(np.maximum(said, LEAST)).mean()), "seconds": seconds,
    }  # fmt: skip


def interval(gain: Any) -> str:
    """Mean and 95 % interval of paired differences over folds and seeds."""
    if gain.size < 2:
        return f"{gain.mean():+.2f}"
    error = np.sqrt((1 / gain.size + 1 / (FOLDS - 1)) * gain.var(ddof=1))
    reach = stats.t.ppf(0.975, gain.size - 1) * error
    return f"{gain.mean():+.2f} ({gain.mean() - reach:+.2f} to {gain.mean() + reach:+.2f})"


def summary(rows: list[dict[str, Any]], name: str) -> str:
    """Means of a set, and what LIA has more."""
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
    return f"**{name}**, {runs} runs:\n\n" + record.table(head, lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--store", type=Path, default=STORE)
    parser.add_argument("--render", action="store_true", help="only write the tables of what is stored")
    parser.add_argument("--quick", action="store_true", help="one fold, few steps; nothing is stored")
    options = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"
    store = None if options.quick else options.store
    rows = stored(store)
    done = {(row["data"], row["condition"], row["seed"], row["fold"]) for row in rows}
    seeds, folds = (1, 1) if options.quick else (options.seeds, FOLDS)
    todo = [
        (name, condition, seed, fold, options.device, 40 if options.quick else None)
        for seed in range(seeds)
        for fold in range(folds)
        for name in SETS
        for condition in CONDITIONS
        if (name, condition, seed, fold) not in done and not options.render
    ]
    made = record.provenance()
    rows += run_all(run, todo, options.jobs, store)
    import torch

    text = [
        record.sentence(made, {"dissensus": {"dissensus": dz.__version__, "torch": torch.__version__}}),
        *(summary(rows, name) for name in SETS if any(row["data"] == name for row in rows)),
    ]
    if store != STORE:
        print("\n\n".join(text))
        return
    record.save(HERE, "new-items", made, {"runs": rows}, indent=None)
    record.splice(HERE / "README.md", "new-items", "\n\n".join(text))


if __name__ == "__main__":
    main()
