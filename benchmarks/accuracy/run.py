"""Methods × data sets: accuracy, log loss, Brier score, seconds; ours and our peers' in one run.

    python -m benchmarks.accuracy.run [--only rte labelme …]

from the repository's root, with DISSENSUS_DATA naming the data folder. Writes `results/` and, where all sets were run,
the tables of README.md.
"""

from __future__ import annotations

import argparse
import math
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks import peers, record

import dissensus as dz
from dissensus.datasets import load_dataset

HERE = Path(__file__).parent
CLIP = 1e-15  # least probability in a log loss, the same for every library
TIE = 1e-9  # probabilities this close to the largest are tied with it


@dataclass(frozen=True)
class Method:
    """One column of the tables."""

    title: str
    library: str  # of peers.PEERS
    method: str
    params: dict[str, Any] = field(default_factory=dict)
    repeats: int = 3  # the median time is kept


METHODS = [
    *(Method(name, "dissensus", name) for name in dz.methods if not dz.methods.entry(name).facts.get("needs_features")),
    Method("crowd-kit MajorityVote", "crowd-kit", "majority-vote"),
    Method("crowd-kit DawidSkene", "crowd-kit", "dawid-skene"),
    Method("the same, tol=1e-9", "crowd-kit", "dawid-skene", {"n_iter": 10_000, "tol": 1e-9}, repeats=1),
]

SETS: list[tuple[str, str | None]] = [  # folder, and which of its golds: None for gold.csv.gz, the experts' own
    ("rte", None),
    ("bluebirds", None),
    ("sentiment_polarity", None),
    ("gimpel_pos", None),
    ("labelme", None),
    ("wordsim", None),
    ("medical_causes", None),
    ("medical_causes", "test_partition"),
    ("medical_treats", None),
    ("medical_treats", "test_partition"),
    ("cifar10h", None),
    ("ner_mturk", None),
    ("plank_pos", None),
]


def accuracy(posterior: np.ndarray, gold: np.ndarray) -> float:
    """Share of items whose most probable class is the gold one; one of n tied classes counts 1/n."""
    tied = posterior >= posterior.max(axis=1, keepdims=True) * (1 - TIE)
    return float((tied[np.arange(gold.size), gold] / tied.sum(axis=1)).mean())


def log_loss(posterior: np.ndarray, gold: np.ndarray) -> float:
    """Mean of −log P(gold), P no smaller than CLIP."""
    return float(-np.log(np.maximum(posterior[np.arange(gold.size), gold], CLIP)).mean())


def brier(posterior: np.ndarray, gold: np.ndarray) -> float:
    """Mean over items of Σ_c (P(c) − [c is gold])²."""
    return float(((posterior - np.eye(posterior.shape[1])[gold]) ** 2).sum(axis=1).mean())


@dataclass(frozen=True)
class Figure:
    """One table."""

    key: str
    title: str
    show: Callable[[float], str]
    sign: int  # +1: more is better


SCORES = {"accuracy": accuracy, "log_loss": log_loss, "brier": brier}
FIGURES = [
    Figure("accuracy", "Accuracy (%)", lambda x: f"{100 * x:.2f}", +1),
    Figure("log_loss", "Log loss", lambda x: f"{x:.3f}", -1),
    Figure("brier", "Brier score", lambda x: f"{x:.3f}", -1),
    Figure("seconds", "Milliseconds to fit", lambda x: f"{1e3 * x:.1f}", -1),
    Figure("iterations", "Iterations", lambda x: f"{x:.0f}", 0),
]


def run_set(name: str, which: str | None, versions: dict[str, Any]) -> dict[str, Any]:
    """Every method on one set."""
    data = load_dataset(name, gold=which)
    table = data.annotations
    # sorted by annotator, then label: some of the peers' methods number names as they come
    order = np.lexsort((table.item, table.label, table.annotator))
    scored = np.flatnonzero((data.gold >= 0) & (np.diff(table.item_ptr) > 0))
    gold = data.gold[scored]
    results = {}
    with tempfile.TemporaryDirectory(prefix="dissensus-set-") as folder:
        on_disk = peers.Data.write(
            Path(folder), table.item[order], table.annotator[order], table.label[order], table.n_items, table.n_classes
        )
        for method in METHODS:
            fits = [{"method": method.method, "params": method.params}] * method.repeats
            report, posteriors = peers.run(method.library, on_disk, fits, threads=record.provenance()["cores"])
            versions[method.library] = report["versions"]
            posterior = posteriors[0][scored]
            last = report["fits"][0]
            results[method.title] = {
                **{key: score(posterior, gold) for key, score in SCORES.items()},
                "seconds": float(np.median([fit["seconds"] for fit in report["fits"]])),
                "iterations": last["iterations"],
                "stopped_by_a_fall": (last["last_rise"] or 0) < 0,
            }
    return {
        "set": name,
        "gold": which,
        "items": table.n_items,
        "annotators": table.n_annotators,
        "annotations": table.n_annotations,
        "classes": table.n_classes,
        "scored": int(scored.size),
        "methods": results,
    }


def cells(row: dict[str, Any], figure: Figure) -> list[str]:
    """The figures of one set, compared as they are shown: the best in bold, ▼ and ▽ where ours lose (see README.md)."""
    shown = [figure.show(row["methods"][method.title][figure.key]) for method in METHODS]
    values = [figure.sign * float(text) for text in shown]  # more is better
    majority = max(value for value, method in zip(values, METHODS, strict=True) if method.method == "majority-vote")
    out = []
    for method, text, value in zip(METHODS, shown, values, strict=True):
        peers_of_it = [
            other
            for other, peer in zip(values, METHODS, strict=True)
            if peer.library != "dissensus" and peer.method == method.method
        ]
        cell = f"**{text}**" if figure.sign and value == max(values) else text
        if method.library == "dissensus" and value < max(peers_of_it, default=-math.inf):
            cell += " ▼"
        if method.library == "dissensus" and figure.key in SCORES and value < majority:
            cell += " ▽"
        if figure.key == "iterations" and row["methods"][method.title]["stopped_by_a_fall"]:
            cell += " ↓"
        out.append(cell)
    return out


def write_tables(readme: Path, made: dict[str, Any], versions: dict[str, Any], rows: list[dict[str, Any]]) -> None:
    titles = [row["set"] + (f" (gold: {row['gold']})" if row["gold"] else "") for row in rows]
    text = [record.sentence(made, versions)]
    for figure in FIGURES:
        head = [figure.title, *(method.title for method in METHODS)]
        body = [[title, *cells(row, figure)] for title, row in zip(titles, rows, strict=True)]
        text.append(record.table(head, body))
    head = ["Set", "items", "annotators", "annotations", "classes", "items scored"]
    columns = ("items", "annotators", "annotations", "classes", "scored")
    body = [[t, *(f"{row[c]:,}" for c in columns)] for t, row in zip(titles, rows, strict=True)]
    text.append(record.table(head, body))
    record.splice(readme, "tables", "\n\n".join(text))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", metavar="SET", help="only these sets; the tables stay as they are")
    only = parser.parse_args().only
    for library in {method.library for method in METHODS}:
        peers.environment(library)
    made, versions, rows = record.provenance(), {}, []
    for name, which in SETS:
        if only and name not in only:
            continue
        row = run_set(name, which, versions)
        rows.append(row)
        print(f"{name} {which or ''}".strip(), flush=True)
        for title, result in row["methods"].items():
            print(
                f"  {title:25} accuracy {result['accuracy']:.4f}  log loss {result['log_loss']:.4f}  "
                f"Brier {result['brier']:.4f}  {result['seconds']:.3f} s  {result['iterations']} iterations"
                + (", stopped by a fall" if result["stopped_by_a_fall"] else ""),
                flush=True,
            )
    if not only:
        print("written:", record.save(HERE, "accuracy", made, {"versions": versions, "clip": CLIP, "sets": rows}).name)
        write_tables(HERE / "README.md", made, versions, rows)


if __name__ == "__main__":
    main()
