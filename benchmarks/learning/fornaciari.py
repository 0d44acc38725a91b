"""`tagger` and `stemmer`, single-task and multi-task, beside Table 1 of Fornaciari et al. (2021).

    python -m benchmarks.learning.fornaciari [--only pos] [--folds 0 1] [--seeds 0 1] [--device cpu] [--quick]

from the repository's root, with DISSENSUS_DATA naming the data folder. A finished part (task, folds, condition, seed)
is kept in `results/fornaciari.jsonl` and not run again, and a part that was killed goes on from its last checkpoint.
Folds are those of the paper's released code: for tags, five over tokens, stratified by gold; for stems, `fold10` of the
data, with the next fold for development.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from benchmarks import record
from sklearn.model_selection import StratifiedKFold

import dissensus as dz
from dissensus.learning import CrowdClassifier
from dissensus.learning.encoders import Stemmer, Tagger
from dissensus.learning.objectives import Hard, SoftTask

HERE = Path(__file__).parent
STORE = HERE / "results" / "fornaciari.jsonl"
CONDITIONS = {"STL": None, "MTL, KL": "kl", "MTL, inverse KL": "inverse-kl", "MTL, cross entropy": "ce"}
PUBLISHED = {  # Table 1, trained on gold: accuracy, macro-F1
    "pos": {"STL": (85.73, 85.00), "MTL, KL": (86.62, 85.90), "MTL, inverse KL": (86.55, 85.88),
            "MTL, cross entropy": (86.76, 85.98)},
    "stemming": {"STL": (73.59, 57.57), "MTL, KL": (75.63, 55.58), "MTL, inverse KL": (77.09, 58.41),
                 "MTL, cross entropy": (75.26, 55.92)},
}  # fmt: skip
KEYWORDS = {  # the released runs'
    "epochs": 10, "batch_size": 1024, "learning_rate": 1e-3, "monitor": "macro-f1", "precision": "32-true",
}  # fmt: skip
VARIANTS = {
    "pos": {"[F]": lambda: Tagger(vectors="transformer"), "learnt vectors": lambda: Tagger()},
    "stemming": {"[F]": lambda: Stemmer(hidden=None), "hidden layer": lambda: Stemmer()},
}
FOLDS = {"pos": ["0"], "stemming": [*map(str, range(10)), "split"]}


@lru_cache
def load(task: str) -> tuple[Any, list[Any]]:
    """The data set with all its items, and X."""
    data = dz.load_dataset({"pos": "gimpel_pos", "stemming": "stemming"}[task]).whole
    names = {"pos": ("text", "position"), "stemming": ("text", "text_pair")}[task]
    return data, list(zip(*(data.items[name].to_pylist() for name in names), strict=True))


def parts(task: str, data: Any, fold: str, seed: int) -> Iterator[np.ndarray]:
    """Places of the items to train on, to choose the epoch by, to test on."""
    if fold == "split":
        split = np.array(data.items["split"].to_pylist())
        yield from (np.flatnonzero(split == name) for name in ("train", "dev", "test"))
        return
    if task == "stemming":
        number = np.array(data.items["fold10"].to_pylist()).astype(int)
        test, dev = number == int(fold), number == (int(fold) + 1) % 10
        yield from (np.flatnonzero(which) for which in (~test & ~dev, dev, test))
        return
    folds = list(StratifiedKFold(5, shuffle=True, random_state=0).split(data.gold, data.gold))
    rest, test = folds[int(fold)]
    rest = np.random.default_rng(seed).permutation(rest)
    yield from (rest[: -(len(data.gold) // 5)], rest[-(len(data.gold) // 5) :], test)


def run(task: str, variant: str, condition: str, fold: str, seed: int, options: Any, made: Any) -> dict[str, Any]:
    """Train one network and test it."""
    data, X = load(task)
    train, dev, test = parts(task, data, fold, seed)
    if options.quick:
        train, dev, test = train[:1500], dev[:300], test[:300]
    divergence = CONDITIONS[condition]
    objective = Hard(labels="gold") if divergence is None else SoftTask(labels="gold", divergence=divergence)
    chosen = np.zeros(len(X), bool)
    chosen[train] = True
    table = data.annotations.select(items=chosen)
    begin = time.perf_counter()
    with tempfile.TemporaryDirectory() as nowhere:
        running = HERE / "results" / "running" / f"{task}-{variant}-{condition}-{fold}-{seed}"
        model = CrowdClassifier(
            encoder=VARIANTS[task][variant](),
            objective=objective,
            device=options.device,
            seed=seed,
            checkpoint=nowhere if options.quick else running,
            **KEYWORDS | ({"epochs": 1} if options.quick else {}),
        )
        held_out = ([X[i] for i in dev], data.gold[dev])
        model.fit(table, [X[i] for i in np.flatnonzero(chosen)], gold=data.gold[chosen], validation=held_out)
    K = table.n_classes
    found = model.predict_proba([X[i] for i in test]).argmax(axis=1)
    confusion = np.bincount(data.gold[test] * K + found, minlength=K * K).reshape(K, K)
    return {
        "task": task, "variant": variant, "condition": condition, "fold": fold, "seed": seed,
        "confusion": confusion.tolist(), "epoch": model.best_epoch_, "history": model.history_,
        "seconds": time.perf_counter() - begin, "made": made, "torch": torch.__version__,
        "device": torch.cuda.get_device_name() if next(model.network_.parameters()).is_cuda else "cpu",
    }  # fmt: skip


def scores(confusion: np.ndarray) -> tuple[float, float]:
    """Accuracy and macro-F1, in per cent."""
    right = np.diag(confusion)
    return 100 * right.sum() / confusion.sum(), 100 * float(
        np.mean(2 * right / np.maximum(confusion.sum(axis=0) + confusion.sum(axis=1), 1))
    )


def write_tables(done: list[dict[str, Any]]) -> None:
    rows = []
    for task, variants in VARIANTS.items():
        for kind, among in (("folds", lambda fold: fold != "split"), ("split", lambda fold: fold == "split")):
            for variant in variants:
                for condition in CONDITIONS:
                    mine = [
                        part for part in done
                        if (part["task"], part["variant"], part["condition"]) == (task, variant, condition)
                        and among(part["fold"])
                    ]  # fmt: skip
                    if not mine:
                        continue
                    ours = scores(np.sum([part["confusion"] for part in mine], axis=0))
                    paper = PUBLISHED[task][condition]
                    there = kind == "folds"
                    named = (
                        "the data's split" if not there else ", ".join(sorted({part["fold"] for part in mine}, key=int))
                    )
                    rows.append([
                        task, named, variant, condition,
                        f"{len({part['seed'] for part in mine})}",
                        f"{paper[0]:.2f} / {paper[1]:.2f}" if there else "",
                        f"{ours[0]:.2f} / {ours[1]:.2f}",
                        f"{ours[0] - paper[0]:+.1f} / {ours[1] - paper[1]:+.1f}" if there else "",
                        f"{np.mean([part['seconds'] for part in mine]):.0f}",
                    ])  # fmt: skip
    # a store may hold parts of several machines and commits: each says its own, never that of who writes the table
    unknown = {"date": "at an unknown time", "commit": "unknown", "changed_since_commit": False}
    where = {
        (part.get("made", unknown)["commit"], part.get("made", unknown)["changed_since_commit"],
         part.get("torch", "of an unknown version"), part["device"])
        for part in done
    }  # fmt: skip
    text = [
        "; ".join(
            f"commit {commit}{' with changes' if changed else ''}, torch {version}, {device}"
            for commit, changed, version, device in sorted(where)
        )
        + ".",
        "Accuracy / macro-F1 in per cent, of all test items of the folds together; seconds of one run.",
        record.table(
            ["task", "folds", "network", "condition", "seeds", "Table 1", "ours", "difference", "seconds"], rows, left=4
        ),
    ]  # fmt: skip
    record.splice(HERE / "README.md", "fornaciari", "\n\n".join(text))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", choices=list(VARIANTS), default=list(VARIANTS), help="only these tasks")
    parser.add_argument("--conditions", nargs="+", choices=list(CONDITIONS), default=list(CONDITIONS))
    parser.add_argument("--folds", nargs="+", help="these folds (0 …; 'split'), in place of one of tags, all of stems")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    parser.add_argument("--device", default="auto")
    parser.add_argument("--quick", action="store_true", help="a few items, one epoch; nothing is kept")
    options = parser.parse_args()
    made = record.provenance()
    STORE.parent.mkdir(exist_ok=True)
    done = [json.loads(line) for line in STORE.read_text().splitlines()] if STORE.exists() else []
    key = ("task", "variant", "condition", "fold", "seed")
    known = {tuple(part[name] for name in key) for part in done}
    wanted = [
        (task, variant, condition, fold, seed)
        for task in options.only
        for seed in options.seeds
        for fold in options.folds or FOLDS[task]
        for variant in VARIANTS[task]
        for condition in options.conditions
        if options.quick or (task, variant, condition, fold, seed) not in known
    ]
    for part in wanted:
        result = run(*part, options, made)
        acc, f1 = scores(np.array(result["confusion"]))
        print(f"  {part}: {acc:.2f} / {f1:.2f}, epoch {result['epoch']}, {result['seconds']:.0f} s", flush=True)
        if not options.quick:
            with STORE.open("a") as file:
                file.write(json.dumps(result) + "\n")
            done.append(result)
    if done and not options.quick:
        record.save(HERE, "fornaciari", made, {"parts": done}, indent=None)
        write_tables(done)


if __name__ == "__main__":
    main()
