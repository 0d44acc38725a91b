"""Comparisons: held-out log loss of ten folds (with ties) for ours and other libraries, and the time for a million.

    python -m benchmarks.kinds.pairs [--evalica PYTHON] [--crowd-kit PYTHON] [--million]

PYTHON is the interpreter of an environment that has the library. Others know neither ties nor how annotators differ; so
that only scores are compared, each gets a scale, a tie parameter and a position effect, fitted on the training folds.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import minimize

from dissensus import Annotations, methods, read
from dissensus.table.datasets.folder import find_data_folder

FOLDS = 10
OURS: dict[str, dict[str, Any]] = {"all": {}, "annotators alike": {"annotators": False}}


def log_loss_of_scores(scores: dict[str, float], train: Any, test: Any) -> Any:
    """Return (n,) log losses of the test rows, from a peer's log scores with a scale, ties and a position effect."""

    def logits(table: Any, theta: Any) -> Any:
        things, left, right = table.alternatives
        s = np.array([scores.get(str(name), np.nan) for name in things])
        s = np.where(np.isnan(s), np.nanmedian(s), s)
        half = (theta[0] * (s[left] - s[right])[table.item] + theta[1]) / 2
        z = np.stack([half, -half, np.full(half.size, theta[2])], axis=1)
        return z - np.log(np.exp(z).sum(axis=1, keepdims=True))

    def loss(theta: Any) -> float:
        return -float(logits(train, theta)[np.arange(len(train)), train.label].mean())

    spread = np.std(list(scores.values())) or 1.0
    found = minimize(loss, [1 / spread, 0.0, 0.0], method="Nelder-Mead", options={"maxiter": 2000, "xatol": 1e-4})
    return -logits(test, found.x)[np.arange(len(test)), test.label]


def peer(python: str, name: str, trains: list[Any]) -> list[dict[str, float]]:
    """Scores of every fold by a peer, in its own environment; logarithms where they are strengths."""
    folds = []
    for table in trains:
        things, left, right = table.alternatives
        columns = {"left": things[left][table.item], "right": things[right][table.item]}
        columns |= {"winner": table.classes[table.label], "annotator": table.annotators[table.annotator]}
        folds.append({key: [str(one) for one in values] for key, values in columns.items()})
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "folds.json"
        path.write_text(json.dumps(folds))
        script = Path(__file__).with_name("peer_scores.py")
        said = subprocess.run([python, str(script), name, str(path)], check=True, capture_output=True, text=True).stdout
    strengths = name != "evalica-elo"
    return [{k: float(np.log(max(v, 1e-12))) if strengths else v for k, v in one.items()} for one in json.loads(said)]


def million() -> None:
    """Time a fit of a million comparisons of 1,000 alternatives by 1,000 annotators, a tenth of them random."""
    rng = np.random.default_rng(0)
    n, things, judges = 10**6, 1000, 1000
    scores, left, judge = rng.normal(size=things), rng.integers(things, size=n), rng.integers(judges, size=n)
    right = (left + 1 + rng.integers(things - 1, size=n)) % things
    half = (np.where(judge % 10 == 0, 0, scores[left] - scores[right]) + 0.2) / 2
    odds = np.cumsum(np.exp([half, -half, np.full(n, -0.3)]), axis=0)
    outcome = (rng.random(n) * odds[-1] > odds).sum(axis=0)
    names = np.array([f"t{k:04d}" for k in range(things)], object)
    table = Annotations.from_pairs(
        names[left], names[right], np.array(["left", "right", "tie"], object)[outcome], judge
    )
    for _ in range(3):
        wall, cpu = time.perf_counter(), time.process_time()
        model = methods["bradley-terry"]().fit(table)
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        ends, truth = model.score_interval_, scores - scores.mean()
        inside = ((ends[:, 0] <= truth) & (truth <= ends[:, 1])).mean()
        print(f"million: {wall:.2f} s, {cpu:.2f} s of processor, {model.n_iter_} rounds, {100 * inside:.1f} % inside")


def main() -> None:
    """Print one line per method and way of folding."""
    asked = argparse.ArgumentParser(description=__doc__)
    for name in ("evalica", "crowd-kit"):
        asked.add_argument(f"--{name}", metavar="PYTHON")
    asked.add_argument("--million", action="store_true")
    given = asked.parse_args()
    if given.million:
        million()
        return
    table = read(str(Path(find_data_folder()) / "pairs_llmfao" / "annotations.csv.gz"))
    rng = np.random.default_rng(0)
    peers = [
        ("evalica-bradley-terry", given.evalica),
        ("evalica-newman", given.evalica),
        ("evalica-elo", given.evalica),
    ]
    peers.append(("crowd-kit-noisy-bradley-terry", given.crowd_kit))
    for by in ("answers", "comparisons"):
        fold = rng.integers(FOLDS, size=len(table) if by == "answers" else table.n_items)
        fold = fold if by == "answers" else fold[table.item]
        parts = [(table.select(rows=fold != k), table.select(rows=fold == k)) for k in range(FOLDS)]
        for what, keywords in OURS.items():
            loss = []
            for train, test in parts:
                p = methods["bradley-terry"](**keywords).fit(train).predict_annotations(test)
                loss.append(-np.log(p[np.arange(len(test)), test.label]))
            print(f"held-out {by:12} ours, {what:30} {np.concatenate(loss).mean():.4f}")
        for name, python in peers:
            if python:
                found = peer(python, name, [train for train, _ in parts])
                loss = [log_loss_of_scores(one, *part) for one, part in zip(found, parts, strict=True)]
                print(f"held-out {by:12} {name:36} {np.concatenate(loss).mean():.4f}")


if __name__ == "__main__":
    main()
