"""Accuracy of the default on tables that its constants were not fitted to: `python -m benchmarks.trust.others`.

*Grades made classes*: `affect_emotions` and `affect_valence`, ten labels an item, cut where the names say; gold is cut
alike. *Classifiers as judges*: trees and naive Bayes on a few columns and 60 rows each, of scikit-learn's own data.
*A matter of degree* (simulated): raters have bars of their own for what is unsafe, and some say "unsure" now and then,
which gold never does; 350 items, by 20 or 123 raters. *Independent* (simulated): annotators err as Dawid-Skene has it,
and share nothing, which no real set shows. Log loss, accuracy, confidence less accuracy.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np

import dissensus as dz
from benchmarks.kinds import ratings
from benchmarks.trust.posterior import scores
from dissensus.table.simulate import simulate

METHODS = ("consensus", "dawid-skene", "hierarchical-dawid-skene", "item-effect", "majority-vote")
CUTS = {
    "affect_emotions": ((0.5,), (20,), (50,), (10, 50)),
    "affect_valence": ((0,), (-20, 20), (-50, 0, 50)),
}  # fmt: skip
PANELS = ((15, None), (60, 10), (123, None))  # classifiers, labels of an item (None: all)
TRAIN_ROWS = 60  # Rows that a classifier is trained on.
RATERS, ITEMS = (20, 123), 350


def grades() -> Iterator[tuple[str, dz.Annotations, Any]]:
    """Grades as classes."""
    for name, cuts in CUTS.items():
        table, graded = ratings.load(name, "numbers")
        for cut in cuts:
            label, gold = np.digitize(table.values, cut)[table.label], np.digitize(graded, cut)
            cells = " and ".join(str(one) for one in cut)
            yield f"{name}, cut at {cells}", dz.Annotations.from_arrays(table.item, table.annotator, label), gold


def classifiers() -> Iterator[tuple[str, dz.Annotations, Any]]:
    """Panels of weak classifiers, each of other columns."""
    from sklearn import datasets
    from sklearn.naive_bayes import GaussianNB
    from sklearn.tree import DecisionTreeClassifier

    for name in ("breast_cancer", "wine", "digits"):
        X, y = getattr(datasets, f"load_{name}")(return_X_y=True)
        for judges, labels in PANELS:
            rng = np.random.default_rng(judges)
            taught = rng.random(y.size) < 0.5
            said = np.empty((np.count_nonzero(~taught), judges), np.int64)
            for judge in range(judges):
                columns = rng.choice(X.shape[1], max(2, X.shape[1] // 12), replace=False)
                rows = rng.choice(np.flatnonzero(taught), TRAIN_ROWS)
                model: Any = GaussianNB()
                if judge % 3 != 1:
                    model = DecisionTreeClassifier(max_depth=3 if judge % 3 == 0 else None, random_state=judge)
                said[:, judge] = model.fit(X[rows][:, columns], y[rows]).predict(X[~taught][:, columns])
            item, judge = np.nonzero(rng.random(said.shape) < (1 if labels is None else labels / judges))
            table = dz.Annotations.from_arrays(item, judge, said[item, judge])
            yield f"{name}, {judges} classifiers, {labels or 'all'} labels", table, y[~taught][table.items]


def degrees() -> Iterator[tuple[str, dz.Annotations, Any]]:
    """Raters with bars of their own."""
    for slope in (1.0, 2.0):
        for bar in (0.0, 0.7):
            for raters in RATERS:
                rng = np.random.default_rng(raters)
                unsafe = rng.standard_normal(ITEMS)
                gold = (unsafe + 0.7 * rng.standard_normal(ITEMS) > 0).astype(int)
                steep = slope * np.exp(0.4 * rng.standard_normal(raters))
                says = 1 / (1 + np.exp(-steep * (unsafe[:, None] - bar - rng.standard_normal(raters))))
                label = np.where(rng.random(says.shape) < rng.beta(1, 12, raters), 2, rng.random(says.shape) < says)
                yield f"degrees, slope {slope}, bar {bar}, {raters} raters", dz.Annotations.from_matrix(label), gold


def independent() -> Iterator[tuple[str, dz.Annotations, Any]]:
    """Crowds that Dawid-Skene describes."""
    for K in (2, 4, 10):
        for labels in (3, 5, 10):
            made = simulate(1000, 60, K, redundancy=labels, seed=K * labels)
            yield f"independent, {K} classes, {labels} labels", made.annotations, made.truth


def main() -> None:
    """Print a line for every table, and a mean for every kind."""
    warnings.simplefilter("ignore")
    print(f"| table | {' | '.join(METHODS)} |")
    print("|---|" + "---|" * len(METHODS))
    for kind in (grades, classifiers, degrees, independent):
        rows = []
        for name, table, gold in kind():
            rows.append([scores(np.asarray(dz.methods[one]().fit(table).posterior_), gold)[:3] for one in METHODS])
            show(name, np.array(rows[-1]))
        show(f"**{kind.__name__}, mean**", np.mean(rows, axis=0))


def show(name: str, found: Any) -> None:
    """Print log loss, accuracy and confidence minus accuracy of every method."""
    cells = " | ".join(f"{loss:.3f}, {100 * right:.1f} %, {100 * off:+.1f}" for loss, right, off in found)
    print(f"| {name} | {cells} |", flush=True)


if __name__ == "__main__":
    main()
