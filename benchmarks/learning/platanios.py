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

HERE = Path(__file__).parent
STORE = HERE / "results" / "platanios.jsonl"
CELLS = {
    "bluebirds": (2, 5, 10, 20, 39),
    "wordsim": (2, 5, 10),
    "wordsim-votes": (2, 5, 10),
    "rte": (2, 5, 10),
    "medical_causes": (2, 5, 10),
    "medical_treats": (2, 5, 10),
}
CLASSICAL = ("majority-vote", "mmce", "snorkel", "metal", "dawid-skene", "hierarchical-dawid-skene")
TWO_STAGE = {"MAJ*": "majority-vote", "MMCE*": "mmce"}
LIA = {
    "LIA": {},
    "LIA, no fine-tuning": {"finetune": None},
    "LIA, per annotation": {"finetune": "per-annotation"},
    "LIA, marginal from the start": {"rounds": 0},
    "LIA, no difficulty": {"difficulty": False},
    "LIA, as released": {
        "finetune": "per-annotation", "entropy": 0.01, "truth_counts": "annotations", "truth_in_posterior": False,
    },
}  # fmt: skip
NEURAL = tuple(name + form for name in (*TWO_STAGE, *LIA) for form in ("", "-E"))
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


def classical(name: str, redundancy: int, method: str, seeds: int) -> dict[str, Any]:
    """One aggregation method, all seeds."""
    table, golds = load(name)
    began = time.perf_counter()
    winners = []
    for seed in range(seeds):
        drawn = table.subsample(redundancy, seed=seed)
        found = aggregators[method](seed=seed).fit(drawn).predict()
        winners.append(codes(found, table.classes))
    spent = time.perf_counter() - began
    return {"data": name, "redundancy": redundancy, "method": method, "seeds": seeds, "seconds": round(spent, 2),
            "accuracy": scores(np.array(winners), golds)}  # fmt: skip


def codes(names: Any, classes: Any) -> Any:
    """Places in `classes`."""
    order = np.argsort(classes)
    return order[np.searchsorted(classes[order], names)]


def neural(name: str, redundancy: int, method: str, seeds: int, device: str, steps: int) -> dict[str, Any]:
    """One way of training, all seeds as one."""
    from dissensus.learning.objectives import Hard
    from dissensus.learning.seeds import stacked

    table, golds = load(name)
    base, with_features = method.removesuffix("-E"), not method.endswith("-E")
    began = time.perf_counter()
    tables = [table.subsample(redundancy, seed=seed) for seed in range(seeds)]
    hidden = (32,) * 4 if name.startswith("medical") else (16,) * 4
    plain = dz.learning.LIA(hidden=hidden, dropout=0.0, steps=steps, device=device, **LIA.get(base, {}))
    models = [plain.classifier(tables[0], features=with_features) for _ in tables]
    known = None
    for seed, model in enumerate(models):
        model.seed = seed
        if base in TWO_STAGE:
            model.objective = Hard(labels="gold")
    if base in TWO_STAGE:
        known = [
            codes(aggregators[TWO_STAGE[base]](seed=seed).fit(drawn).predict(), table.classes).astype(np.int32)
            for seed, drawn in enumerate(tables)
        ]
    stack = stacked(models, tables, features(name) if with_features else table.items, gold=known)
    traces = stack.train()
    proba = stack.proba()
    posterior = proba if base in TWO_STAGE else stack.posterior()
    spent = time.perf_counter() - began
    return {"data": name, "redundancy": redundancy, "method": method, "seeds": seeds, "seconds": round(spent, 2),
            "steps": models[0].epochs * len(models[0]._trainer(0).batches(stack.runs[0].taught, 0)),
            "device": str(stack.device), "loss": round(float(np.mean([t.epochs[-1]["loss"] for t in traces])), 5),
            "accuracy": scores(posterior.argmax(axis=2), golds),
            "accuracy_h": scores(proba.argmax(axis=2), golds)}  # fmt: skip


# Results --------------------------------------------------------------------------------------------------------------

PUBLISHED = {
    "majority-vote": "MAJ", "mmce": "MMCE", "snorkel": "Snorkel", "metal": "MeTaL", "MAJ*-E": "MAJ*-E", "MAJ*": "MAJ*",
    "MMCE*-E": "MMCE*-E", "MMCE*": "MMCE*", "LIA-E": "LIA-E", "LIA": "LIA", "LIA, no fine-tuning": "LIA, no FT",
    "LIA-ML": "LIA-ML",
}  # fmt: skip


def mean_and_error(values: list[float]) -> str:
    error = np.std(values, ddof=1) / len(values) ** 0.5 if len(values) > 1 else np.nan
    return f"{np.mean(values):.1f} ± {error:.1f}"


def render(found: list[dict[str, Any]]) -> str:
    """Markdown: one table per data set, methods down, redundancies across, published in brackets."""
    published = json.loads((HERE / "platanios_published.json").read_text())
    parts = []
    for name, cells in CELLS.items():
        for gold in ("gold", "paper"):
            rows = []
            for method in (*CLASSICAL, *NEURAL, "LIA-ML"):
                mine = {f["redundancy"]: f for f in found if f["data"] == name and f["method"] == method}
                if not any(gold in f["accuracy"] for f in mine.values()):
                    continue
                theirs = {}
                if gold == ("paper" if name.startswith("medical") else "gold") and not name.endswith("votes"):
                    theirs = published[name].get(PUBLISHED.get(method, ""), {})
                row = [method]
                for r in cells:
                    cell = mean_and_error(mine[r]["accuracy"][gold]) if r in mine else "not run"
                    row.append(cell + (f" ({theirs[str(r)]})" if str(r) in theirs else ""))
                rows.append(row)
            if rows:
                what = {"gold": "experts' gold", "paper": "the paper's gold"}[gold]
                title = f"{name}, {what}" if name.startswith("medical") else name
                parts.append(f"**{title}**\n\n" + record.table(["accuracy %", *map(str, cells)], rows))
    return "\n\n".join(parts)


def main() -> None:
    global FEATURES
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=50)
    parser.add_argument("--steps", type=int, default=1000)
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
        done = {(f["data"], f["redundancy"], f["method"]) for f in stored(options.store)}
        todo = [
            (name, r, method, options.seeds)
            for name in options.data for r in CELLS[name] for method in options.methods if (name, r, method) not in done
        ]  # fmt: skip
        plain = [cell for cell in todo if cell[2] in CLASSICAL]
        beside = threading.Thread(target=run_all, args=(classical, plain, options.jobs, options.store))
        beside.start()
        for cell in (cell for cell in todo if cell[2] not in CLASSICAL):
            if (time.perf_counter() - began) / 60 > options.minutes:
                print("out of time; run again to go on")
                break
            found = neural(*cell, options.device, options.steps)
            print(found["data"], found["redundancy"], found["method"], found["seconds"], "s",
                  {k: mean_and_error(v) for k, v in found["accuracy"].items()}, flush=True)  # fmt: skip
            with options.store.open("a") as file:
                file.write(json.dumps(found) + "\n")
        beside.join()
        made["minutes"] = round((time.perf_counter() - began) / 60, 1)
        print(made)
    print(render(stored(options.store)))


if __name__ == "__main__":
    main()
