"""Gimpel-POS: MiniLM fine-tuned, and the tagger, on majority labels, soft labels and with crowd layers.

    python -m benchmarks.learning.gimpel [--seeds 3] [--jobs 4] [--minilm FOLDER] [--store FILE] [--quick]
    python -m benchmarks.learning.gimpel --render

Le-Wi-Di's split: tweets 0-599 teach, 800-999 are the test. Accuracy and macro F1 over all test tokens with gold; cross
entropy against the votes of those that were annotated. `[CLS] tweet [SEP] token [SEP]` for MiniLM, as UoR at
SemEval-2021 have it: after one epoch (theirs), and after enough. Finished runs are kept in the store, so that a run
that was killed goes on; a GPU is used where there is one.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks import record
from benchmarks.learning.runs import run_all, stored
from scipy import stats

import dissensus as dz
from dissensus.evaluation import cross_entropy, macro_f1

HERE = Path(__file__).parent
STORE = HERE / "results" / "gimpel.jsonl"
EPOCHS = {"transformer": (1, 8), "tagger": (1, 12)}
PUBLISHED = (
    "Published (UoR at SemEval-2021, BERT, one epoch): macro F1 0.1254 and cross entropy 2.3318, with a crowd layer "
    "and on majority labels alike."
)


def conditions() -> dict[str, Any]:
    """Name → objective."""
    from dissensus.learning.objectives import CrowdLayerObjective, Hard, Soft, SoftTask

    return {
        "majority": Hard(),
        "Dawid-Skene": Hard(labels="dawid-skene"),
        "soft (votes)": Soft(),
        "soft-task (majority)": SoftTask(),
        "crowd layer, softmax": CrowdLayerObjective(),
        "crowd layer, softmax, start 2": CrowdLayerObjective(start=2.0),
        "crowd layer, softmax, start 4": CrowdLayerObjective(start=4.0),
        "crowd layer, normalize": CrowdLayerObjective(link="normalize"),
        "gold (no crowd)": Hard(labels="gold"),
    }


def run(encoder: str, name: str, seed: int, epochs: int, minilm: str | None, small: int | None) -> dict[str, Any]:
    """One training."""
    from dissensus.learning import CrowdClassifier
    from dissensus.learning.encoders import Tagger, Transformer

    parts = dz.load_dataset("gimpel_pos").splits
    train, test = parts["train"], parts["test"]
    if small:
        train, test = (part.only(np.arange(part.item_names.size) < small) for part in (train, test))

    def inputs(part: Any) -> list[Any]:
        text, other = part.items["text"].to_pylist(), "token" if encoder == "transformer" else "position"
        second = part.items[other].to_pylist()
        return list(zip(text, second if other == "token" else map(int, second), strict=True))

    made = Transformer(minilm, max_length=96) if encoder == "transformer" else Tagger()
    how = {"batch_size": 32, "warmup": 0.1, "schedule": "linear"} if encoder == "transformer" else {"batch_size": 64}
    began = time.perf_counter()
    model = CrowdClassifier(encoder=made, objective=conditions()[name], epochs=epochs, seed=seed, **how).fit(
        train.annotations, inputs(train), gold=train.gold if name.startswith("gold") else None
    )
    seconds = time.perf_counter() - began
    proba = model.predict_proba(inputs(test))
    voted = np.diff(test.annotations.item_ptr) > 0
    return {
        "encoder": encoder, "condition": name, "seed": seed, "epochs": epochs,
        "accuracy": float((proba.argmax(axis=1) == test.gold)[test.gold >= 0].mean()),
        "f1": macro_f1(test.gold, proba.argmax(axis=1)),
        "cross_entropy": float(cross_entropy(test.annotations.soft_labels()[voted], proba[voted]).mean()),
        "posterior": float((model.posterior_.argmax(axis=1) == train.gold)[train.gold >= 0].mean()),
        "seconds": seconds, "device": str(model._device),
    }  # fmt: skip


def summary(rows: list[dict[str, Any]], encoder: str, epochs: int) -> str:
    """Mean ± s.e. over seeds."""
    lines = []
    base = {
        r["seed"]: r["accuracy"]
        for r in rows
        if (r["encoder"], r["condition"], r["epochs"]) == (encoder, "majority", epochs)
    }
    for name in conditions():
        own = [r for r in rows if (r["encoder"], r["condition"], r["epochs"]) == (encoder, name, epochs)]
        if not own:
            continue

        def cell(key: str, scale: float = 100, digits: int = 2, own: list[dict[str, Any]] = own) -> str:
            values = scale * np.array([row[key] for row in own])
            error = f" ± {values.std(ddof=1) / np.sqrt(values.size):.{digits}f}" if values.size > 1 else ""
            return f"{values.mean():.{digits}f}{error}"

        gain = np.array([row["accuracy"] - base[row["seed"]] for row in own if row["seed"] in base])
        p = stats.ttest_1samp(gain, 0).pvalue if gain.size > 1 and gain.any() else float("nan")
        versus = "" if name == "majority" else f"{100 * gain.mean():+.2f}" + (f" (p = {p:.2g})" if p == p else "")
        lines.append([name, cell("accuracy"), versus, cell("f1"), cell("cross_entropy", 1, 3), cell("seconds", 1, 0)])
    return record.table(
        [
            "trained on",
            "test accuracy %",
            "less majority, same seeds",
            "macro F1 %",
            "cross entropy to votes",
            "seconds",
        ],
        lines,
    )


def render(rows: list[dict[str, Any]]) -> str:
    """The tables of all that is stored."""
    text = []
    for encoder, lengths in EPOCHS.items():
        for epochs in lengths:
            seeds = len({row["seed"] for row in rows if (row["encoder"], row["epochs"]) == (encoder, epochs)})
            if seeds:
                text += [
                    f"**{encoder}**, {epochs} epoch{'s' * (epochs > 1)}, at most {seeds} seed{'s' * (seeds > 1)}:",
                    summary(rows, encoder, epochs),
                ]
    return "\n\n".join([*text, PUBLISHED])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=4, help="trainings at a time, on one device")
    parser.add_argument("--encoders", nargs="+", default=list(EPOCHS))
    parser.add_argument("--minilm", help="the folder of a Hugging Face model, in place of the bundled one")
    parser.add_argument("--store", type=Path, default=STORE)
    parser.add_argument("--quick", action="store_true", help="300 tokens, one seed; nothing is stored")
    parser.add_argument("--render", action="store_true", help="only write the tables of what is stored")
    options = parser.parse_args()
    store = None if options.quick else options.store
    rows = stored(store)
    done = {(r["encoder"], r["condition"], r["seed"], r["epochs"]) for r in rows}
    todo = [
        (encoder, name, seed, epochs, options.minilm, 300 if options.quick else None)
        for seed in range(1 if options.quick else options.seeds)
        for encoder in options.encoders
        for epochs in (EPOCHS[encoder][:1] if options.quick else reversed(EPOCHS[encoder]))
        for name in conditions()
        if (encoder, name, seed, epochs) not in done and not options.render
    ]
    made = record.provenance()
    rows += run_all(run, todo, options.jobs, store)
    text = render(rows)
    print(text)
    if store == STORE:
        if todo:  # a table made later, elsewhere, says nothing about where its runs were made
            record.save(HERE, "gimpel", made, {"runs": rows})
        record.splice(HERE / "README.md", "gimpel", text)


if __name__ == "__main__":
    main()
