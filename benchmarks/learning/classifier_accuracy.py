"""Accuracies of eight classifiers without labels, against the true ones.

    python -m benchmarks.learning.classifier_accuracy        # options: see benchmarks/parts.py

In every split the classifiers of scikit-learn
learn from a few labelled items and say what at most 1,500 others are; those outputs, and nothing else, are what the
estimates are made from (LIA with features has the items' features too). Scored: the mean absolute error of the eight
estimates, their mean error (above 0: too good), and the rank correlation with the true accuracies; of
`classifier_accuracy` also how many of its 95 % intervals hold the true one.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import spearmanr

import dissensus as dz
from benchmarks.learning.new_items import data as features_of
from benchmarks.parts import Benchmark, Part, Rows
from dissensus.models.base import methods
from reproductions import record

HERE = Path(__file__).parent
LABELLED = {"digits": 150, "labelme": 150, "sentiment_polarity": 300, "rte": 300}
MAX_UNLABELLED = 1500  # items of a split
LIA_SEEDS = 3  # splits that LIA is fitted to
OURS = "classifier_accuracy"
LIA_STEPS = 300


def data(name: str) -> tuple[Any, Any]:
    """Load features and classes."""
    if name == "digits":
        from sklearn.datasets import load_digits

        return load_digits(return_X_y=True)  # type: ignore[no-any-return]
    return features_of(name)[1:]


def classifiers(seed: int) -> dict[str, Any]:
    """Make eight classifiers of different strength."""
    from sklearn.ensemble import RandomForestClassifier
    from sklearn.linear_model import LogisticRegression
    from sklearn.naive_bayes import GaussianNB
    from sklearn.neighbors import KNeighborsClassifier
    from sklearn.svm import SVC
    from sklearn.tree import DecisionTreeClassifier

    return {
        "tree of depth 2": DecisionTreeClassifier(max_depth=2, random_state=seed),
        "tree of depth 6": DecisionTreeClassifier(max_depth=6, random_state=seed),
        "naive Bayes": GaussianNB(var_smoothing=1e-3),
        "nearest neighbour": KNeighborsClassifier(1),
        "25 neighbours": KNeighborsClassifier(25),
        "logistic": LogisticRegression(max_iter=300),
        "forest": RandomForestClassifier(50, random_state=seed),
        "support vectors": SVC(random_state=seed),
    }


def outputs(name: str, seed: int) -> tuple[Any, Any, Any]:
    """(I, 8) labels, the items' features and classes."""
    X, y = data(name)
    order = np.random.default_rng(seed).permutation(len(y))[: LABELLED[name] + MAX_UNLABELLED]
    known, rest = order[: LABELLED[name]], order[LABELLED[name] :]
    found = [model.fit(X[known], y[known]).predict(X[rest]) for model in classifiers(seed).values()]
    return np.stack(found, axis=1), X[rest], y[rest]


def by_posterior(table: dz.Annotations, posterior: Any) -> Any:
    """(M,) mean probability of a classifier's own labels."""
    sums = np.bincount(table.annotator, posterior[table.item, table.label], table.n_annotators)
    return sums / np.diff(table.annotator_ptr)


def agreement(labels: Any, n_classes: int) -> Any:
    """(M,) from pairs alone: (K·agreement − 1)/(K − 1) is s_j s_k if errors are independent and alike.

    The agreement rates of Platanios, Blum & Mitchell (2014), solved as the rank-one matrix of Parisi et al. (2014).
    """
    pairs = (labels[:, :, None] == labels[:, None, :]).mean(axis=0)
    beyond = (n_classes * pairs - 1) / (n_classes - 1)
    skill = np.full(len(beyond), 0.7)
    for _ in range(200):
        for j in range(skill.size):
            other = np.arange(skill.size) != j
            skill[j] = np.clip(skill[other] @ beyond[j, other] / (skill[other] @ skill[other]), 0, 1)
    return (1 + (n_classes - 1) * skill) / n_classes


def engines(lia: bool) -> dict[str, Callable[[dz.Annotations, Any, Any], Any]]:
    """Name → (table, labels, features) → (M,) accuracies."""

    def method(name: str) -> Callable[[dz.Annotations, Any, Any], Any]:
        return lambda table, labels, X: by_posterior(table, methods[name]().fit(table).posterior_)

    def network(features: bool, **keywords: Any) -> Callable[[dz.Annotations, Any, Any], Any]:
        def estimate(table: dz.Annotations, labels: Any, X: Any) -> Any:
            from dissensus.learning import LIA

            model = LIA(steps=LIA_STEPS, **keywords).fit(table, X if features else None)
            return by_posterior(table, model.posterior_)

        return estimate

    names = ("majority-vote", "dawid-skene", "hierarchical-dawid-skene", "one-coin", "glad", "mace", "mmce")
    found = {name: method(name) for name in names}
    found["agreement rates"] = lambda table, labels, X: agreement(labels, table.n_classes)
    if lia:
        found["LIA without features"] = network(False)
        found["LIA"] = network(True)
        found["LIA, difficulty=False"] = network(True, difficulty=False)
    return found


def run(part: Part, device: str) -> dict[str, Any]:
    """Run one split; one row per engine."""
    warnings.simplefilter("ignore")  # classifiers that have not converged are weak classifiers
    name, seed = part["data"], part["seed"]
    labels, X, y = outputs(name, seed)
    table = dz.Annotations.from_matrix(labels, classes=int(max(labels.max(), y.max())) + 1)
    right = (labels == y[:, None]).mean(axis=0)
    rows = []
    ours = dz.classifier_accuracy(table)
    estimates = {key: estimate(table, labels, X) for key, estimate in engines(seed < LIA_SEEDS).items()} | {
        OURS: ours.accuracy
    }
    for key, estimate in estimates.items():
        rows.append(
            {
                "data": name, "seed": seed, "engine": key, "error": float(np.abs(estimate - right).mean()),
                "bias": float((estimate - right).mean()), "rank": float(spearmanr(estimate, right)[0]),
                "right": right.round(4).tolist(), "estimate": np.round(estimate, 4).tolist(),
            }
            | ({"held": float(((ours.low <= right) & (right <= ours.high)).mean())} if key == OURS else {})
        )  # fmt: skip
    return {"rows": rows}


def tables(parts: Rows) -> list[str]:
    """A line for every engine, three figures for every set."""
    rows = sorted((row for part in parts for row in part["rows"]), key=lambda row: row["engine"] == OURS)
    lines = []
    most = len({row["seed"] for row in rows})
    for engine in dict.fromkeys(row["engine"] for row in rows):
        splits = len({row["seed"] for row in rows if row["engine"] == engine})
        cells = [engine if splits == most else f"{engine} (first {splits} of the splits)"]
        for name in LABELLED:
            own = [row for row in rows if (row["engine"], row["data"]) == (engine, name)]
            error, bias, rank = (np.array([row[key] for row in own]) for key in ("error", "bias", "rank"))
            cells.append(f"{100 * error.mean():.1f} ({100 * bias.mean():+.1f}), {rank.mean():.2f}")
        lines.append(cells)
    head = ["estimated by"]
    for name in LABELLED:
        right = np.mean([row["right"] for row in rows if row["data"] == name], axis=0)
        head.append(f"{name} ({100 * right.min():.0f} to {100 * right.max():.0f} % right)")
    held = [
        f"{name} {100 * np.mean([row['held'] for row in rows if row['data'] == name and 'held' in row]):.0f} %"
        for name in LABELLED
    ]
    return [
        f"Points off, on average (mean error; + is too good), and rank correlation; {most} splits.",
        record.table(head, lines),
        f"95 % intervals of `{OURS}` that hold the true accuracy: {', '.join(held)}.",
    ]


def parts(seeds: int) -> list[Part]:
    """All splits of every set."""
    return [{"data": name, "seed": seed} for name in LABELLED for seed in range(seeds)]


QUICK: list[Part] = [{"data": name, "seed": LIA_SEEDS} for name in LABELLED]  # without LIA
BENCHMARK = Benchmark(HERE, "classifier-accuracy", run, parts, QUICK, tables, seeds=10)


if __name__ == "__main__":
    BENCHMARK.main(__doc__)
