"""A relation that is added later, by few labels, and many questions at once: LIA-ML on the medical relations.

    python -m benchmarks.learning.open_labels        # options: see benchmarks/parts.py

14 yes/no relations between two terms of 3,231
sentences, about 15 judgements each. Features: MiniLM of the sentence and of either term, each by itself.

*Added*: LIA-ML learns the 13 other relations from all sentences; the one left out is then added by the labels of 25 to
200 sentences. *Alone*: LIA learns it from these sentences by itself, with the same layers. Both are asked, by their h,
about the sentences whose labels of this relation neither has seen (the layers of the first have seen their labels of
the other relations): against the majority of all their judgements and, for CAUSES and TREATS, the experts' gold.

*Redundancy*: labelled sentences right, by majority vote, LIA and LIA-ML of all 14, at 2, 5 and 10 judgements each;
posteriors against the experts' gold and against the paper's (which has "both say no" as yes, see the data's README).
"""

from __future__ import annotations

import time
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.metrics import roc_auc_score

import dissensus as dz
from benchmarks.parts import Benchmark, Part, Rows, mean_and_error
from dissensus.models.base import arg_max
from reproductions import record

FOLDER = Path(__file__).parent
LEFT_OUT = ("CAUSES", "TREATS", "SYMPTOM", "PART_OF")
SENTENCES = (25, 50, 100, 200)
REDUNDANCY = (2, 5, 10)
GOLDS = {"CAUSES": "medical_causes", "TREATS": "medical_treats"}
LAYER_SIZES = (32, 32, 32, 32)  # Sizes in Platanios et al. 2020 for these data.
MIN_PROBABILITY = 1e-6  # one that is certain and wrong would decide a mean


@cache
def data() -> tuple[dz.Questions, Any, dict[tuple[str, str], Any]]:
    """Load the relations, features (I, D), and gold codes (I,) by (relation, whose)."""
    from dissensus.features import embed_texts

    questions = dz.load_dataset("medical_relations").annotations
    assert isinstance(questions, dz.Questions)
    golds = {
        (name, whose or "experts"): dz.load_dataset(folder, gold=whose).gold
        for name, folder in GOLDS.items()
        for whose in (None, "paper")
    }
    frame = dz.load_dataset("medical_causes").items  # This set has the same sentences.
    X = np.concatenate([embed_texts(frame[c].to_pylist()) for c in ("text", "term1", "term2")], axis=1)
    return questions, X, golds


def scores(yes: Any, truth: Any) -> dict[str, float]:
    """Score P(yes) against 0/1; truth −1 is left out."""
    p, t = np.clip(yes[truth >= 0], MIN_PROBABILITY, 1 - MIN_PROBABILITY), truth[truth >= 0]
    return {
        "accuracy": float(((p > 0.5) == t).mean()),
        "log_loss": float(-np.log(np.where(t == 1, p, 1 - p)).mean()),
        "auc": float(roc_auc_score(t, p)) if 0 < t.sum() < t.size else float("nan"),
    }


def added(relation: str, seed: int, **few: Any) -> dict[str, Any]:
    """Leave out a relation, and add it with labels of more and more sentences."""
    from dissensus.learning import LIA
    from dissensus.learning.lia_ml import LIAML

    questions, X, golds = data()
    whole = questions[relation]
    began = time.perf_counter()
    model = LIAML(hidden=LAYER_SIZES, seed=seed, **few).fit({k: v for k, v in questions.items() if k != relation}, X)
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
        alone = LIA(hidden=LAYER_SIZES, seed=seed, **few).fit(table, X[seen])
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
    return {"seconds": seconds, "found": found}


def redundancy(at: int, seed: int, **few: Any) -> dict[str, Any]:
    """Fit majority vote, LIA and LIA-ML to `at` judgements per item."""
    from dissensus.learning import LIA
    from dissensus.learning.lia_ml import LIAML

    questions, X, golds = data()
    less = {name: table.subsample(at, seed) for name, table in questions.items()}  # the same judgements in all
    began = time.perf_counter()
    many = LIAML(hidden=LAYER_SIZES, seed=seed, **few).fit(less, X).posterior_
    seconds = time.perf_counter() - began
    found = []
    for name in GOLDS:
        table = less[name]
        for method, q in (
            ("majority", table.soft_labels()),
            ("LIA", LIA(hidden=LAYER_SIZES, seed=seed, **few).fit(table, X).posterior_),
            ("LIA-ML", many[name]),
        ):
            best = arg_max(q, table.items, table.classes, seed)
            for whose in ("experts", "paper"):
                gold = golds[name, whose]
                right = float((best == gold)[gold >= 0].mean())
                found.append({"relation": name, "method": method, "against": whose, "accuracy": right})
    return {"seconds": seconds, "found": found}


def added_table(rows: Rows) -> str:
    """Table by relation, truth and number of sentences."""
    every = [entry | {"relation": row["what"]} for row in rows if row["kind"] == "added" for entry in row["found"]]
    lines = []
    for relation, whose, n in [(r, w, n) for r in LEFT_OUT for w in ("experts", "crowd") for n in SENTENCES]:
        own = [e for e in every if (e["relation"], e["against"], e["sentences"]) == (relation, whose, n)]
        if own:
            line = [relation, whose, str(n)]
            for key, scale, digits in (("auc", 1, 3), ("log_loss", 1, 3), ("accuracy", 100, 1)):
                methods = ("added", "alone") if key == "auc" else ("added", "alone", "share")
                line += [mean_and_error([e[key] for e in own if e["method"] == m], digits, scale) for m in methods]
            lines.append(line)
    head = [
        "relation", "against", "sentences", "AUC added", "alone", "log loss added", "alone", "share", "% right added",
        "alone", "share",
    ]  # fmt: skip
    return record.markdown_table(head, lines, 2)


def redundancy_table(rows: Rows) -> str:
    """Table by relation, gold and redundancy."""
    every = [entry | {"at": row["what"]} for row in rows if row["kind"] == "redundancy" for entry in row["found"]]
    lines = []
    for relation, whose, at in [(r, w, at) for r in GOLDS for w in ("experts", "paper") for at in REDUNDANCY]:
        own = [e for e in every if (e["relation"], e["against"], e["at"]) == (relation, whose, at)]
        if own:
            cells = [[e["accuracy"] for e in own if e["method"] == m] for m in ("majority", "LIA", "LIA-ML")]
            lines.append([relation, whose, str(at), *(mean_and_error(values, 1, 100) for values in cells)])
    return record.markdown_table(["relation", "gold", "judgements", "majority %", "LIA %", "LIA-ML %"], lines, 2)


def tables(rows: Rows) -> list[str]:
    """Both tables, with a sentence each."""
    seeds = len({row["seed"] for row in rows})
    return [
        f"A relation added later; seeds: at most {seeds}; mean ± s.e. `share`: of the few labels' majorities.",
        added_table(rows),
        "Labelled sentences right, by the posterior:",
        redundancy_table(rows),
    ]


KINDS = {"added": added, "redundancy": redundancy}


def run(part: Part, device: str) -> dict[str, Any]:
    """Run one relation, or one number of judgements."""
    few = {"steps": part["steps"]} if "steps" in part else {}
    return KINDS[part["kind"]](part["what"], part["seed"], **few)


def parts(seeds: int) -> list[Part]:
    """Relations and numbers of judgements, seed by seed."""
    return [
        {"kind": kind, "what": what, "seed": seed}
        for seed in range(seeds)
        for kind, all_of in (("added", LEFT_OUT), ("redundancy", REDUNDANCY))
        for what in all_of
    ]


QUICK: list[Part] = [
    {"kind": "added", "what": LEFT_OUT[0], "seed": 0, "steps": 20},
    {"kind": "redundancy", "what": REDUNDANCY[0], "seed": 0, "steps": 20},
]
BENCHMARK = Benchmark(FOLDER, "open-labels", run, parts, QUICK, tables, seeds=3)


if __name__ == "__main__":
    BENCHMARK.main(__doc__)
