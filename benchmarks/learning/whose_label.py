"""What this annotator would say of a new item: heads and embeddings per annotator against twenty lines of scikit-learn.

    python -m benchmarks.learning.whose_label        # options: see benchmarks/parts.py

MiniLM vectors of texts; five folds over items, others for every seed, whole items held out. Scored are the held-out
labels of annotators who gave training labels: the share that is not the most probable label, and the log loss, means
over labels; `by annotator` is the mean of annotators' error rates.

- *logistic regression on x*, and *on [x, one-hot annotator]*: scikit-learn's, C = 1, one row per training label.
- *crowd layer*, *annotator heads*, *annotator embeddings*: a last layer on the same vectors, Adam along a cosine, 30
  epochs, learning rates of 0.03. Rates and penalties were chosen on three folds of seed 0; the table has other seeds.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

import dissensus as dz
from benchmarks.parts import Benchmark, Part, Rows, mean_and_error
from reproductions import record
from reproductions.prepared import prepared

FOLDER = Path(__file__).parent
SETS = ("popquorn_offensiveness", "jobs_q3")
FOLDS = 5
BASELINE = "logistic regression on [x, one-hot annotator]"
OURS: dict[str, tuple[str, dict[str, Any]]] = {
    "crowd layer": ("crowd-layer", {}),
    "annotator heads, each their own (Davani et al.)": ("annotator-heads", {"shared": False}),
    "annotator heads": ("annotator-heads", {}),
    "annotator embeddings, weighted (Deng et al.)": ("annotator-embeddings", {"weighted": True}),
    "annotator embeddings": ("annotator-embeddings", {}),
}


@cache
def data(name: str) -> tuple[Any, Any]:
    """Load annotations and vectors."""
    from dissensus.features import embed_texts

    found = dz.load_dataset(name)
    texts = [str(text) for text in found.items["text"].to_pylist()]
    return found.annotations, prepared(f"{name}-minilm", lambda: embed_texts(texts))


def regression(train: Any, X: Any, test: Any, X_test: Any, one_hot: bool) -> Any:
    """P (N, K) of test labels by scikit-learn."""
    from scipy import sparse
    from sklearn.linear_model import LogisticRegression

    def rows(table: Any, vectors: Any) -> Any:
        whose = sparse.csr_array(
            (np.ones(len(table)), (np.arange(len(table)), table.annotator)), (len(table), table.n_annotators)
        )
        return sparse.hstack([vectors[table.item], whose]).tocsr() if one_hot else vectors[table.item]

    model = LogisticRegression(C=1.0, max_iter=300, tol=1e-3).fit(rows(train, X), train.label)
    proba = np.zeros((len(test), train.n_classes))
    proba[:, model.classes_] = model.predict_proba(rows(test, X_test))
    return proba


def learnt(train: Any, X: Any, test: Any, X_test: Any, arm: str, seed: int, device: str) -> Any:
    """P (N, K) of test labels by one of ours."""
    from dissensus.learning import CrowdClassifier
    from dissensus.learning.encoders import Identity
    from dissensus.learning.objectives import objectives

    name, own = OURS[arm]
    kind: Any = objectives[name]
    model = CrowdClassifier(
        encoder=Identity(scale=False), objective=kind(**own), epochs=30, learning_rate=0.03, head_learning_rate=0.03,
        schedule="cosine", device=device, seed=seed,
    )  # fmt: skip
    return model.fit(train, X, on_step=lambda epoch, loss: None).predict_annotations(test, X_test)


def run(part: Part, device: str) -> dict[str, Any]:
    """Train and score every arm on one fold."""
    import torch

    from dissensus.evaluation import error_rate

    torch.set_num_threads(1)
    warnings.simplefilter("ignore")  # scikit-learn's 300 steps
    seed, (table, X) = part["seed"], data(part["data"])
    held = np.random.default_rng(seed).permutation(table.n_items) % FOLDS == part["fold"]
    train, test = table.select(items=~held), table.select(items=held)
    known = np.bincount(train.annotator, minlength=train.n_annotators) > 0
    test = test.select(rows=known[test.annotator])
    ask = (train, X[~held], test, X[held])
    arms: dict[str, Callable[[], Any]] = {
        "logistic regression on x": lambda: regression(*ask, one_hot=False),
        BASELINE: lambda: regression(*ask, one_hot=True),
    } | {arm: (lambda arm=arm: learnt(*ask, arm, seed, device)) for arm in OURS}
    found = {}
    for arm, predict in arms.items():
        began = time.perf_counter()
        proba = predict()
        own = np.maximum(proba[np.arange(len(test)), test.label], 1e-12)
        found[arm] = {
            "error": float((proba.argmax(axis=1) != test.label).mean()),
            "by_annotator": float(error_rate(test, proba, by="annotator").mean()),
            "log_loss": float(-np.log(own).mean()), "seconds": time.perf_counter() - began,
        }  # fmt: skip
    return {"arms": found}


def tables(parts: Rows) -> list[str]:
    """Return a table for every set; differences are paired over folds."""
    text = []
    for name in SETS:
        rows = [row["arms"] for row in parts if row["data"] == name]
        if not rows:
            continue
        lines = []
        for arm in rows[0]:
            error, by, loss, seconds = (
                np.array([row[arm][key] for row in rows]) for key in ("error", "by_annotator", "log_loss", "seconds")
            )
            less = 100 * (error - np.array([row[BASELINE]["error"] for row in rows]))
            cells = [mean_and_error(error, 2, 100), "" if arm == BASELINE else mean_and_error(less, 2)]
            lines.append([arm, *cells, mean_and_error(by, 2, 100), mean_and_error(loss), f"{seconds.mean():.1f}"])
        head = ["", "labels wrong %", "less the regression with annotators", "by annotator %", "log loss", "seconds"]
        text += [
            f"**{name}**, {len(rows)} folds, means ± standard error over them:",
            record.markdown_table(head, lines),
        ]
    return text


def parts(seeds: int) -> list[Part]:
    """Return all folds of both sets."""
    return [
        {"data": name, "seed": s, "fold": fold} for name in SETS for s in range(1, seeds + 1) for fold in range(FOLDS)
    ]


QUICK: list[Part] = [{"data": "popquorn_offensiveness", "seed": 0, "fold": 0}]
BENCHMARK = Benchmark(FOLDER, "whose-label", run, parts, QUICK, tables, seeds=3)


if __name__ == "__main__":
    BENCHMARK.main(__doc__)
