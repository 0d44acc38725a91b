"""The first thing that a user tries, against twenty lines of scikit-learn.

    python -m benchmarks.learning.defaults        # options: see benchmarks/parts.py

A random 70 % of the items teach, the rest are predicted. Scored: cross entropy of the prediction to the shares of their
votes. *Twenty lines* is `by_hand` below: scikit-learn's logistic regression with C = 1 on the vote shares, over the
vectors as they are (frozen MiniLM of texts). `CrowdClassifier()` gets the same vectors, `dissensus train` the texts
where there are any, through the function that the command calls. Differences are paired: the mean over the splits in
which an item was predicted, then a bootstrap over items.
"""

from __future__ import annotations

import time
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

import dissensus as dz
from benchmarks.parts import Benchmark, Part, Rows
from dissensus.evaluation import cross_entropy, paired_bootstrap
from reproductions import record

FOLDER = Path(__file__).parent
SETS = (
    "popquorn_offensiveness", "jobs_q1", "jobs_q2", "jobs_q3", "sentiment_polarity", "movie_reviews", "labelme",
    "digits-crowd",
)  # fmt: skip
TRAIN_SHARE = 0.7  # share of the items
MIN_PROBABILITY = 1e-12
HAND, CLASSIFIER, TRAIN = "twenty lines", "CrowdClassifier()", "dissensus train"


@lru_cache
def data(name: str) -> tuple[dz.Annotations, Any, Any]:
    """Load annotations, vectors and what `dissensus train` would be given."""
    from dissensus.features import embed_texts

    found = dz.load_dataset(name)
    if found.features is not None:
        return found.annotations, np.asarray(found.features, np.float32), found.features
    texts = [str(text) for text in found.items["text"].to_pylist()]
    return found.annotations, embed_texts(texts), texts


def by_hand(X: Any, shares: Any, X_new: Any) -> Any:
    """Logistic regression on soft labels as a user would write it: an item is as many rows as it has labels."""
    from sklearn.linear_model import LogisticRegression

    n, K = shares.shape
    weight = shares.ravel()
    rows, labels, voted = np.repeat(np.arange(n), K), np.tile(np.arange(K), n), weight > 0
    model = LogisticRegression(C=1.0, max_iter=1000)
    model.fit(X[rows[voted]], labels[voted], sample_weight=weight[voted])
    proba = np.zeros((len(X_new), K))
    proba[:, model.classes_] = model.predict_proba(X_new)
    return proba


def run(part: Part, device: str) -> dict[str, Any]:
    """Fit and score all on one split."""
    from dissensus.cli.train import new_classifier
    from dissensus.learning import CrowdClassifier
    from dissensus.learning.inputs import take_rows

    table, X, raw = data(part["data"])
    rng = np.random.default_rng(part["seed"])
    keep = np.ones(table.n_items, bool) if "items" not in part else np.arange(table.n_items) < part["items"]
    order = rng.permutation(np.flatnonzero(keep & (np.diff(table.item_ptr) > 0)))
    taught, new = np.split(order, [round(TRAIN_SHARE * order.size)])
    taught, new = np.sort(taught), np.sort(new)
    shares = table.soft_labels()
    part_of = table.select(items=np.isin(np.arange(table.n_items), taught))
    kind = "texts" if isinstance(raw, list) else "features"

    def ours(model: Any, inputs: Any) -> Any:
        fitted = model.set_params(device=device).fit(
            part_of, take_rows(inputs, taught), on_step=lambda step, loss: None
        )
        notes.append(fitted.note_)
        return fitted.predict_proba(take_rows(inputs, new))

    notes: list[str] = []
    models = {
        "mean of votes": lambda: np.tile(shares[taught].mean(axis=0), (new.size, 1)),
        HAND: lambda: by_hand(X[taught], shares[taught], X[new]),
        CLASSIFIER: lambda: ours(CrowdClassifier(seed=part["seed"]), X),
        TRAIN: lambda: ours(new_classifier(kind, None, "auto", [f"seed={part['seed']}"]), raw),
    }
    scores, seconds = {}, {}
    for name, model in models.items():
        began = time.process_time()
        proba = np.maximum(model(), MIN_PROBABILITY)
        seconds[name] = time.process_time() - began
        scores[name] = np.round(cross_entropy(shares[new], proba), 6).tolist()
    return {"new": new.tolist(), "scores": scores, "seconds": seconds, "notes": notes}


def summary(rows: Rows) -> dict[str, Any]:
    """Means by set and model, and our differences from the twenty lines with their intervals."""
    results: dict[str, Any] = {}
    for name in SETS:
        own = [row for row in rows if row["data"] == name]
        if not own:
            continue
        n = 1 + max(max(row["new"]) for row in own)
        times = sum(np.bincount(row["new"], minlength=n) for row in own)
        tested = times > 0
        by_item = {
            model: (sum(np.bincount(row["new"], row["scores"][model], n) for row in own)[tested] / times[tested])
            for model in own[0]["scores"]
        }
        entry: dict[str, Any] = {"splits": len(own), "items": int(tested.sum()), "note": own[0]["notes"][0]}
        for model, values in by_item.items():
            gain = paired_bootstrap(values, by_item[HAND], seed=0).mean
            entry[model] = {
                "cross_entropy": float(np.mean([np.mean(row["scores"][model]) for row in own])),
                "difference": [gain.value, gain.low, gain.high],
                "seconds": float(np.mean([row["seconds"][model] for row in own])),
            }
        results[name] = entry
    return {"sets": results}


def tables(found: dict[str, Any]) -> list[str]:
    """Return a line for every set."""
    lines, better, worse = [], 0, 0
    for name, entry in found["sets"].items():
        cells = [name, *(f"{entry[model]['cross_entropy']:.4f}" for model in ("mean of votes", HAND))]
        for model in (CLASSIFIER, TRAIN):
            value, low, high = entry[model]["difference"]
            cells.append(f"{entry[model]['cross_entropy']:.4f} ({value:+.4f}, {low:+.4f} to {high:+.4f})")
        better += entry[CLASSIFIER]["difference"][2] < 0
        worse += entry[CLASSIFIER]["difference"][1] > 0
        lines.append([*cells, f"{entry[CLASSIFIER]['seconds']:.0f}"])
    head = ["set", "mean of votes", HAND, f"{CLASSIFIER} (less {HAND}, 95 %)", f"{TRAIN} (the same)", "CPU seconds"]
    splits = max(entry["splits"] for entry in found["sets"].values())
    return [
        f"Cross entropy to the votes of new items, {splits} splits. `CrowdClassifier()` is better on {better} of "
        f"{len(lines)} sets, worse on {worse}.",
        record.markdown_table(head, lines),
    ]


def parts(seeds: int) -> list[Part]:
    """Return all splits of every set."""
    return [{"data": name, "seed": seed} for seed in range(seeds) for name in SETS]


QUICK: list[Part] = [{"data": name, "seed": 0, "items": 150} for name in ("digits-crowd", "labelme")]
BENCHMARK = Benchmark(FOLDER, "defaults", run, parts, QUICK, tables, seeds=5, summary=summary)


if __name__ == "__main__":
    BENCHMARK.main(__doc__)
