"""Table 2 (and 3) of Platanios et al. 2020: accuracy at every redundancy, all methods, 50 seeds beside the published.

    python -m benchmarks.learning.platanios [--seeds 50] [--device cuda] [--jobs 14] [--minutes 9] [--features FILE]
    python -m benchmarks.learning.platanios --render

from the repository's root, with DISSENSUS_DATA naming the data folder. Seed s draws at most r annotations of each item
and the first weights. All seeds of a cell are trained as one (`dissensus.learning.seeds`); aggregation methods run
beside in processes. A finished cell is a line in `results/platanios.jsonl`; a run that was killed, or stopped by
`--minutes`, goes on. `--features` names a file that MiniLM's vectors are kept in, for a machine that has no MiniLM.

WordSim has its responses (0 to 10) as probabilistic annotations, as the authors' program has them; `wordsim-votes` has
them cut at 5. Medical sets are scored by the experts' labels and by the gold of the paper (`gold_paper`).
"""

from __future__ import annotations

import argparse
import json
import threading
import time
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks import record
from benchmarks.learning.runs import run_all, stored

import dissensus as dz
from dissensus.base import methods as aggregators
from dissensus.io.atomic import atomic

HERE = Path(__file__).parent
STORE = HERE / "results" / "platanios.jsonl"
WINNERS = HERE / "results" / "running" / "platanios"
VOTES = ("LIA", "LIA-E")  # of the neural methods, what is run on WordSim's votes too
CELLS = {
    "bluebirds": (2, 5, 10, 20, 39),
    "wordsim": (2, 5, 10),
    "rte": (2, 5, 10),
    "medical_causes": (2, 5, 10),
    "medical_treats": (2, 5, 10),
    "wordsim-votes": (2, 5, 10),
}
CLASSICAL = ("majority-vote", "mmce", "snorkel", "metal", "dawid-skene", "hierarchical-dawid-skene")
TWO_STAGE = {"MAJ*": "majority-vote", "MMCE*": "mmce"}
PAPER = {"hidden": (16,) * 4, "dropout": 0.0, "steps": 1000}
"""The paper's network (32 for the medical data); its 10 · 1,000 steps reach no better likelihood (`lia_schedule`)."""
LIA: dict[str, dict[str, Any]] = {
    "LIA": PAPER,
    "LIA()": {"steps": 1000},  # the library's own network, as long as the others
    "LIA-E": PAPER,
    "LIA, no fine-tuning": {**PAPER, "finetune": None},
    "LIA, no difficulty": {**PAPER, "difficulty": False},
    "LIA, marginal from the start": {**PAPER, "rounds": 0},
    "LIA, penalty of the authors": {**PAPER, "penalty": 0.25, "residual_penalty": 0, "difficulty_penalty": 0},
    "LIA, as released": {
        **PAPER, "penalty": 0.25, "residual_penalty": 0, "difficulty_penalty": 0, "finetune": "per-annotation",
        "entropy": 0.01, "truth_counts": "annotations", "truth_in_posterior": False,
    },
}  # fmt: skip
MANY = "LIA-ML"
NEURAL = (*list(LIA)[:3], MANY, *(name + form for name in TWO_STAGE for form in ("", "-E")), *list(LIA)[3:])
FEATURES: Path | None = None


@cache
def load(name: str) -> tuple[Any, dict[str, Any]]:
    """The annotations and, by name, what is taken for gold: the experts' first."""
    if name.startswith("wordsim"):
        data = dz.load_dataset("wordsim")
        table = data.annotations if name.endswith("votes") else responses(data)
        return table, {"gold": data.gold}
    data = dz.load_dataset(name)
    golds = {"gold": data.gold}
    if name.startswith("medical"):
        paper = dz.load_dataset(name, gold="paper")
        assert np.array_equal(paper.annotations.items, data.annotations.items)
        golds["paper"] = paper.gold
    return data.annotations, golds


def responses(data: Any) -> Any:
    """WordSim's answers 0 to 10, as probabilities."""
    import csv
    import gzip
    import os

    path = Path(os.environ["DISSENSUS_DATA"]) / "wordsim" / "responses.csv.gz"
    with gzip.open(path, "rt") as file:
        rows = list(csv.DictReader(file))
    share = np.array([float(row["response"]) / 10 for row in rows])
    return dz.Annotations.from_arrays(
        [row["item"] for row in rows],
        [row["annotator"] for row in rows],
        proba=np.stack([1 - share, share], axis=1),
        classes=data.annotations.classes.tolist(),
        items=data.annotations.items,
    )


@cache
def features(name: str) -> Any:
    """(I, D): VGG, GloVe, or MiniLM's of the sentence (both sentences, their difference and product)."""
    name = name.removesuffix("-votes")
    if FEATURES is not None and FEATURES.exists():
        with np.load(FEATURES) as found:
            if name in found:
                return found[name]
    data = dz.load_dataset(name)
    if data.features is not None:
        return np.asarray(data.features)
    from dissensus.features import embed_pairs, embed_texts

    frame = data.items
    if name == "rte":
        return embed_pairs(frame["text"].to_pylist(), frame["text_pair"].to_pylist())
    return embed_texts(frame["text"].to_pylist())


def keep_features() -> None:
    """Write MiniLM's vectors into the file of --features, where it is not there yet."""
    if FEATURES is not None and not FEATURES.exists():
        texts = ("rte", "medical_causes", "medical_treats")
        np.savez(FEATURES, **{name: features(name) for name in texts})  # type: ignore[arg-type]


def scores(winners: Any, golds: dict[str, Any]) -> dict[str, list[float]]:
    """Gold → accuracy in % of every seed's classes (S, I)."""
    return {
        name: [round(100 * float((row == gold)[gold >= 0].mean()), 3) for row in winners]
        for name, gold in golds.items()
    }


def winners(name: str, redundancy: int, method: str, seeds: int) -> Any:
    """(S, I) classes by an aggregation method; kept in a file, because two-stage training begins with them."""
    kept = WINNERS / f"{name}-{redundancy}-{method}-{seeds}.npy"
    if kept.exists():
        return np.load(kept)
    table, _ = load(name)
    found = []
    for seed in range(seeds):
        drawn = table.subsample(redundancy, seed=seed)
        found.append(codes(aggregators[method](seed=seed).fit(drawn).predict(), table.classes))
    WINNERS.mkdir(parents=True, exist_ok=True)
    with atomic(kept) as file:
        np.save(file, np.array(found, np.int32))
    return np.array(found, np.int32)


def classical(name: str, redundancy: int, method: str, seeds: int) -> dict[str, Any]:
    """One aggregation method, all seeds."""
    began = time.perf_counter()
    found = winners(name, redundancy, method, seeds)
    spent = time.perf_counter() - began
    return {"data": name, "redundancy": redundancy, "method": method, "seeds": seeds, "seconds": round(spent, 2),
            "accuracy": scores(found, load(name)[1])}  # fmt: skip


def codes(names: Any, classes: Any) -> Any:
    """Places in `classes`."""
    order = np.argsort(classes)
    return order[np.searchsorted(classes[order], names)]


def neural(name: str, redundancy: int, method: str, seeds: int, device: str) -> dict[str, Any]:
    """One way of training, all seeds as one."""
    from dissensus.learning.objectives import Hard
    from dissensus.learning.seeds import stacked

    table, golds = load(name)
    base, with_features = method.removesuffix("-E"), not method.endswith("-E")
    began = time.perf_counter()
    tables = [table.subsample(redundancy, seed=seed) for seed in range(seeds)]
    keywords = dict(LIA.get(base, PAPER))
    if name.startswith("medical") and keywords.get("hidden") == PAPER["hidden"]:
        keywords["hidden"] = (32,) * 4
    plain = dz.learning.LIA(device=device, **keywords)
    models = [plain.classifier(tables[0], features=with_features) for _ in tables]
    known = None
    for seed, model in enumerate(models):
        model.seed = seed
    if base in TWO_STAGE:
        known = list(winners(name, redundancy, TWO_STAGE[base], seeds))
        for model in models:
            model.objective = Hard(labels="gold")
    stack = stacked(models, tables, features(name) if with_features else table.items, gold=known)
    stack.train()
    proba = stack.proba()
    posterior = proba if base in TWO_STAGE else stack.posterior()
    spent = time.perf_counter() - began
    return {"data": name, "redundancy": redundancy, "method": method, "seeds": seeds, "seconds": round(spent, 2),
            "steps": models[0].epochs * len(models[0]._trainer(0).batches(stack.runs[0].taught, 0)),
            "device": str(stack.device), "accuracy": scores(posterior.argmax(axis=2), golds),
            "accuracy_h": scores(proba.argmax(axis=2), golds)}  # fmt: skip


def many_questions(redundancy: int, seeds: int, device: str) -> list[dict[str, Any]]:
    """LIA-ML of all 14 relations, of which two have gold."""
    from dissensus.learning import LIAML
    from dissensus.learning.seeds import Stack

    questions = dz.load_dataset("medical_relations").annotations
    began = time.perf_counter()
    runs = []
    for seed in range(seeds):
        less = {name: table.subsample(redundancy, seed) for name, table in questions.items()}  # the same judgements
        runs.append(LIAML(seed=seed, device=device).run(less, features("medical_causes")))
    stack = Stack(runs)
    stack.train()
    objective = runs[0].objective
    shape = (seeds, -1, len(objective.questions_), objective.n_classes_)
    posterior = stack.posterior().reshape(shape)
    spent = time.perf_counter() - began
    found = []
    for relation, name in (("CAUSES", "medical_causes"), ("TREATS", "medical_treats")):
        table, golds = load(name)
        assert np.array_equal(table.items, questions[relation].items)
        mine = posterior[:, :, objective.questions_.index(relation)]
        found.append({"data": name, "redundancy": redundancy, "method": MANY, "seeds": seeds,
                      "seconds": round(spent / 2, 2), "device": str(stack.device),
                      "accuracy": scores(mine.argmax(axis=2), golds)})  # fmt: skip
    return found


# Results --------------------------------------------------------------------------------------------------------------

PUBLISHED = {
    "majority-vote": "MAJ", "mmce": "MMCE", "snorkel": "Snorkel", "metal": "MeTaL", "MAJ*-E": "MAJ*-E", "MAJ*": "MAJ*",
    "MMCE*-E": "MMCE*-E", "MMCE*": "MMCE*", "LIA-E": "LIA-E", "LIA": "LIA", "LIA, no fine-tuning": "LIA, no FT",
    MANY: "LIA-ML",
}  # fmt: skip


def mean_and_error(values: list[float]) -> str:
    error = np.std(values, ddof=1) / len(values) ** 0.5 if len(values) > 1 else np.nan
    return f"{np.mean(values):.1f} ± {error:.1f}"


def render(found: list[dict[str, Any]]) -> str:
    """Markdown: one table per data set, methods down, redundancies across, published in brackets; then verdicts."""
    published = json.loads((HERE / "platanios_published.json").read_text())
    parts = []
    for name, gold in ((name, gold) for name in CELLS for gold in ("gold", "paper")):
        theirs_here = gold == ("paper" if name.startswith("medical") else "gold") and not name.endswith("votes")
        rows = []
        for method in (*CLASSICAL, *NEURAL):
            mine = {f["redundancy"]: f for f in found if f["data"] == name and f["method"] == method}
            if not any(gold in f["accuracy"] for f in mine.values()):
                continue
            theirs = published[name].get(PUBLISHED.get(method, ""), {}) if theirs_here else {}
            row = [method]
            for r in CELLS[name]:
                cell = mean_and_error(mine[r]["accuracy"][gold]) if r in mine else "not run"
                row.append(cell + (f" ({theirs[str(r)]})" if str(r) in theirs else ""))
            rows.append(row)
        if rows:
            what = {"gold": "experts' gold", "paper": "the paper's gold"}[gold]
            title = f"{name}, {what}" if name.startswith("medical") else name
            parts.append(f"**{title}**\n\n" + record.table(["accuracy %", *map(str, CELLS[name])], rows))
    return "\n\n".join([*parts, verdict(found)])


def verdict(found: list[dict[str, Any]]) -> str:
    """Where LIA's forms are below majority vote on the experts' gold, over the same draws, by two standard errors."""
    by = {(f["data"], f["redundancy"], f["method"]): f["accuracy"]["gold"] for f in found}
    rows = []
    for (name, r, method), mine in by.items():
        votes = by.get((name, r, "majority-vote"))
        if method not in ("LIA", "LIA()", "LIA-E", MANY) or votes is None or len(votes) != len(mine):
            continue
        less = np.array(mine) - votes
        error = less.std(ddof=1) / len(less) ** 0.5
        if less.mean() < -2 * error:
            rows.append([f"{name}, {r}", method, f"{less.mean():+.2f} ± {error:.2f}"])
    if not rows:
        return "Nowhere is a form of LIA below majority vote by two standard errors, on the experts' gold."
    return "Below majority vote by more than two standard errors over draws:\n\n" + record.table(
        ["cell", "form", "points"], rows, left=2
    )


def main() -> None:
    global FEATURES
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=50)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--minutes", type=float, default=np.inf)
    parser.add_argument("--data", nargs="*", default=list(CELLS))
    parser.add_argument("--methods", nargs="*", default=[*CLASSICAL, *NEURAL])
    parser.add_argument("--features", type=Path)
    parser.add_argument("--store", type=Path, default=STORE)
    parser.add_argument("--render", action="store_true")
    options = parser.parse_args()
    FEATURES = options.features
    began = time.perf_counter()
    if not options.render:
        made = record.provenance()
        keep_features()
        done = {(f["data"], f["redundancy"], f["method"]) for f in stored(options.store) if "data" in f}
        todo = [
            (name, r, method, options.seeds)
            for method in options.methods for name in options.data for r in CELLS[name]
            if (name, r, method) not in done and (method in CLASSICAL or name != "wordsim-votes" or method in VOTES)
            and (method != MANY or name == "medical_causes")
        ]  # fmt: skip
        plain = [cell for cell in todo if cell[2] in CLASSICAL]
        beside = threading.Thread(target=run_all, args=(classical, plain, options.jobs, options.store))
        beside.start()
        for cell in (cell for cell in todo if cell[2] not in CLASSICAL):
            if (time.perf_counter() - began) / 60 > options.minutes:
                print("out of time; run again to go on")
                break
            if cell[2].startswith(tuple(TWO_STAGE)):
                beside.join()  # they begin with what it finds
            several = cell[2] == MANY
            lines = many_questions(cell[1], cell[3], options.device) if several else [neural(*cell, options.device)]
            for found in lines:
                print(found["data"], found["redundancy"], found["method"], found["seconds"], "s",
                      {k: mean_and_error(v) for k, v in found["accuracy"].items()}, flush=True)  # fmt: skip
                with options.store.open("a") as file:
                    file.write(json.dumps(found) + "\n")
        beside.join()
        made["minutes"] = round((time.perf_counter() - began) / 60, 1)
        made["device"] = device_name(options.device)
        with options.store.open("a") as file:
            file.write(json.dumps({"made": made}) + "\n")
    lines = stored(options.store)
    found, runs = [f for f in lines if "data" in f], [f["made"] for f in lines if "made" in f]
    print(render(found))
    if runs and options.store == STORE:
        record.save(HERE, "platanios", runs[-1], {"runs": runs, "cells": found}, indent=None)
        about = f"{len(runs)} run{'s' * (len(runs) > 1)}, {sum(run['minutes'] for run in runs):.1f} minutes in all, on "
        about += f"{runs[-1]['device']} and {runs[-1]['cores']} cores ({runs[-1]['date']}). "
        about += "Mean ± standard error over seeds; published in brackets."
        record.splice(HERE / "README.md", "platanios", f"{about}\n\n{render(found)}")


def device_name(device: str) -> str:
    """The GPU's, or that there is none."""
    import torch

    return torch.cuda.get_device_name() if device != "cpu" and torch.cuda.is_available() else "no GPU"


if __name__ == "__main__":
    main()
