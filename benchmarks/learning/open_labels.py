"""A relation that is added later, by few labels, and many questions at once: LIA-ML on the medical relations.

    python -m benchmarks.learning.open_labels [--seeds 3] [--jobs 1] [--store FILE] [--quick]
    python -m benchmarks.learning.open_labels --render

from the repository's root, with DISSENSUS_DATA naming the data folder. 14 yes/no relations between two terms of 3,231
sentences, about 15 judgements each. Features: MiniLM of the sentence and of either term, each by itself.

*Added*: LIA-ML learns the 13 other relations from all sentences; the one left out is then added by the labels of 25 to
200 sentences. *Alone*: LIA learns it from these sentences by itself, with the same layers. Both are asked, by their h,
about the sentences whose labels of this relation neither has seen (the layers of the first have seen their labels of
the other relations): against the majority of all their judgements and, for CAUSES and TREATS, the experts' gold.

*Redundancy*: labelled sentences right, by majority vote, LIA and LIA-ML of all 14, at 2, 5 and 10 judgements each;
posteriors against the experts' gold and against the paper's (which has "both say no" as yes, see the data's README).
Finished runs are kept in `results/open_labels.jsonl`, so that a run that was killed goes on.
"""

from __future__ import annotations

import argparse
import os
import time
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks import record
from benchmarks.learning.runs import run_all, stored
from sklearn.metrics import roc_auc_score

import dissensus as dz
from dissensus.models.base import arg_max

HERE = Path(__file__).parent
STORE = HERE / "results" / "open_labels.jsonl"
LEFT_OUT = ("CAUSES", "TREATS", "SYMPTOM", "PART_OF")
SENTENCES = (25, 50, 100, 200)
REDUNDANCY = (2, 5, 10)
GOLDS = {"CAUSES": "medical_causes", "TREATS": "medical_treats"}
HIDDEN = (32, 32, 32, 32)  # [P] for these data
LEAST = 1e-6  # of a probability: one that is certain and wrong would decide a mean


@cache
def data() -> tuple[dz.Questions, Any, dict[tuple[str, str], Any]]:
    """The relations, features (I, D), and gold codes (I,) by (relation, whose)."""
    from dissensus.features import embed_texts

    questions = dz.load_dataset("medical_relations").annotations
    assert isinstance(questions, dz.Questions)
    golds = {
        (name, whose or "experts"): dz.load_dataset(folder, gold=whose).gold
        for name, folder in GOLDS.items()
        for whose in (None, "paper")
    }
    frame = dz.load_dataset("medical_causes").items  # of the same sentences
    X = np.concatenate([embed_texts(frame[c].to_pylist()) for c in ("text", "term1", "term2")], axis=1)
    return questions, X, golds


def scores(yes: Any, truth: Any) -> dict[str, float]:
    """Of P(yes) against 0/1; truth −1 is left out."""
    p, t = np.clip(yes[truth >= 0], LEAST, 1 - LEAST), truth[truth >= 0]
    return {
        "accuracy": float(((p > 0.5) == t).mean()),
        "log_loss": float(-np.log(np.where(t == 1, p, 1 - p)).mean()),
        "auc": float(roc_auc_score(t, p)) if 0 < t.sum() < t.size else float("nan"),
    }


def added(relation: str, seed: int, quick: bool) -> dict[str, Any]:
    """A relation left out and added, with labels of more and more sentences."""
    import torch

    from dissensus.learning import LIA, LIAML

    torch.set_num_threads(1)
    questions, X, golds = data()
    few: dict[str, Any] = {"steps": 20} if quick else {}
    whole = questions[relation]
    began = time.perf_counter()
    model = LIAML(hidden=HIDDEN, seed=seed, **few).fit({k: v for k, v in questions.items() if k != relation}, X)
    seconds = time.perf_counter() - began
    order = np.random.default_rng(seed).permutation(whole.n_items)
    votes = whole.soft_labels()[:, 1]
    crowd = np.where(votes == 0.5, -1, votes > 0.5).astype(int)
    truths = {"crowd": crowd} | ({"experts": golds[relation, "experts"]} if relation in GOLDS else {})
    found = []
    for n in SENTENCES:
        seen = np.isin(np.arange(whole.n_items), order[:n])
        table, name = whole.select(items=seen), f"{relation} by {n}"
        began = time.perf_counter()
        model.add_question(name, table)
        between = time.perf_counter()
        alone = LIA(hidden=HIDDEN, seed=seed, **few).fit(table, X[seen])
        times = {"added": between - began, "alone": time.perf_counter() - between}
        yes = {
            "added": model.proba_[name][:, 1],
            "alone": alone.predict_proba(X)[:, 1],
            "share": np.full(whole.n_items, ((votes[seen] > 0.5).sum() + 1) / (n + 2)),
        }
        found += [
            {"sentences": n, "method": method, "against": whose, "seconds": times.get(method, 0.0)}
            | scores(yes[method][~seen], truth[~seen])
            for method in yes
            for whose, truth in truths.items()
        ]
    return {"kind": "added", "what": relation, "seed": seed, "seconds": seconds, "found": found}


def redundancy(at: int, seed: int, quick: bool) -> dict[str, Any]:
    """Majority vote, LIA and LIA-ML at so many judgements."""
    import torch

    from dissensus.learning import LIA, LIAML

    torch.set_num_threads(1)
    questions, X, golds = data()
    few: dict[str, Any] = {"steps": 20} if quick else {}
    less = {name: table.subsample(at, seed) for name, table in questions.items()}  # the same judgements in all
    began = time.perf_counter()
    many = LIAML(hidden=HIDDEN, seed=seed, **few).fit(less, X).posterior_
    seconds = time.perf_counter() - began
    found = []
    for name in GOLDS:
        table = less[name]
        for method, q in (
            ("majority", table.soft_labels()),
            ("LIA", LIA(hidden=HIDDEN, seed=seed, **few).fit(table, X).posterior_),
            ("LIA-ML", many[name]),
        ):
            best = arg_max(q, table.items, table.classes, seed)
            for whose in ("experts", "paper"):
                gold = golds[name, whose]
                right = float((best == gold)[gold >= 0].mean())
                found.append({"relation": name, "method": method, "against": whose, "accuracy": right})
    return {"kind": "redundancy", "what": at, "seed": seed, "seconds": seconds, "found": found}


def run(kind: str, what: Any, seed: int, quick: bool) -> dict[str, Any]:
    """One of the two."""
    return added(what, seed, quick) if kind == "added" else redundancy(what, seed, quick)


def cell(values: list[float], scale: float, digits: int) -> str:
    """Mean ± s.e."""
    found = scale * np.array(values)
    spread = "" if found.size < 2 else f" ± {found.std(ddof=1) / np.sqrt(found.size):.{digits}f}"
    return f"{found.mean():.{digits}f}{spread}"


def added_table(rows: list[dict[str, Any]]) -> str:
    """By relation, truth and number of sentences."""
    every = [entry | {"relation": row["what"]} for row in rows if row["kind"] == "added" for entry in row["found"]]
    lines = []
    for relation, whose, n in [(r, w, n) for r in LEFT_OUT for w in ("experts", "crowd") for n in SENTENCES]:
        own = [e for e in every if (e["relation"], e["against"], e["sentences"]) == (relation, whose, n)]
        if own:
            line = [relation, whose, str(n)]
            for key, scale, digits in (("auc", 1, 3), ("log_loss", 1, 3), ("accuracy", 100, 1)):
                methods = ("added", "alone") if key == "auc" else ("added", "alone", "share")
                line += [cell([e[key] for e in own if e["method"] == m], scale, digits) for m in methods]
            lines.append(line)
    head = [
        "relation", "against", "sentences", "AUC added", "alone", "log loss added", "alone", "share", "% right added",
        "alone", "share",
    ]  # fmt: skip
    return record.table(head, lines, left=2)


def redundancy_table(rows: list[dict[str, Any]]) -> str:
    """By relation, gold and redundancy."""
    every = [entry | {"at": row["what"]} for row in rows if row["kind"] == "redundancy" for entry in row["found"]]
    lines = []
    for relation, whose, at in [(r, w, at) for r in GOLDS for w in ("experts", "paper") for at in REDUNDANCY]:
        own = [e for e in every if (e["relation"], e["against"], e["at"]) == (relation, whose, at)]
        if own:
            cells = [[e["accuracy"] for e in own if e["method"] == m] for m in ("majority", "LIA", "LIA-ML")]
            lines.append([relation, whose, str(at), *(cell(values, 100, 1) for values in cells)])
    return record.table(["relation", "gold", "judgements", "majority %", "LIA %", "LIA-ML %"], lines, left=2)


def main() -> None:
    """Run what is missing and write the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--store", type=Path, default=STORE)
    parser.add_argument("--render", action="store_true", help="only write the tables of what is stored")
    parser.add_argument("--quick", action="store_true", help="one seed, twenty epochs; nothing is stored")
    options = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"
    store = None if options.quick else options.store
    rows = stored(store)
    done = {(row["kind"], row["what"], row["seed"]) for row in rows}
    wanted = [
        (kind, what, seed)
        for seed in range(1 if options.quick else options.seeds)
        for kind, all_of in (("added", LEFT_OUT), ("redundancy", REDUNDANCY))
        for what in (all_of[:1] if options.quick else all_of)
    ]
    todo = [] if options.render else [(*key, options.quick) for key in wanted if key not in done]
    made = record.provenance()
    rows += run_all(run, todo, options.jobs, store)
    seeds = len({row["seed"] for row in rows})
    text = [
        record.sentence(made, {"dissensus": {"dissensus": dz.__version__}}),
        f"A relation added later; seeds: at most {seeds}; mean ± s.e. `share`: of the few labels' majorities.",
        added_table(rows),
        "Labelled sentences right, by the posterior:",
        redundancy_table(rows),
    ]
    if store != STORE:
        print("\n\n".join(text))
        return
    record.save(HERE, "open_labels", made, {"runs": rows})
    record.splice(HERE / "README.md", "open_labels", "\n\n".join(text))


if __name__ == "__main__":
    main()
