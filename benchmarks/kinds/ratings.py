"""Numbers and grades against gold: mean absolute error, coverage of 95 % intervals, and judges' scores as AUC.

    python -m benchmarks.kinds.ratings [--shared 10 30 100] [--judges]

wordsim's gold (0 to 4) is brought to the scale of the ratings (0 to 10).
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np

from dissensus import methods, read
from dissensus.table.datasets.folder import find_data_folder
from dissensus.table.io import read_gold_columns

SETS = {  # name → file of ratings, file of gold, its column, what to multiply it by
    "affect_emotions": ("annotations.csv.gz", "gold.csv.gz", "value", 1.0),
    "affect_valence": ("annotations.csv.gz", "gold.csv.gz", "value", 1.0),
    "wordsim": ("responses.csv.gz", "items.csv.gz", "gold_score", 2.5),
}


def load(name: str, kind: str) -> tuple[Any, Any]:
    """Return the ratings of a set, and (I,) their gold values."""
    ratings, gold, column, times = SETS[name]
    folder = Path(find_data_folder()) / name
    table = read(str(folder / ratings), kind=kind)
    return table, times * table.gold_values(*read_gold_columns(folder / gold, "item", column))


def baselines(table: Any) -> dict[str, Any]:
    """(I,) mean and median of the ratings of each item."""
    x = table.values[table.label]
    rows = [x[table.item_ptr[i] : table.item_ptr[i + 1]] for i in range(table.n_items)]
    return {"mean": np.array([one.mean() for one in rows]), "median": np.array([np.median(one) for one in rows])}


def judges() -> dict[str, float]:
    """AUC of judges' scores of civilcomments: their mean, the model of numbers, and the default of classes."""
    from sklearn.metrics import roc_auc_score

    folder = Path(find_data_folder()) / "judges_civilcomments"
    table = read(str(folder / "annotations.csv.gz"), label="score", kind="numbers")
    gold = table.gold_values(*read_gold_columns(folder / "gold.csv.gz", "item", "label"))
    found = {"mean score": baselines(table)["mean"], "gaussian": methods["gaussian"]().fit(table).values_}
    classes = read(str(folder / "annotations.csv.gz"), label="label")
    for name in ("consensus", "dawid-skene", "hierarchical-dawid-skene", "glad", "item-effect"):
        found[f"{name}, of classes"] = methods[name]().fit(classes).posterior_[:, 1]
    return {name: float(roc_auc_score(gold, value)) for name, value in found.items()}


def main() -> None:
    """Print one line per set and method."""
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("--shared", type=float, nargs="*", default=[100.0])
    asked.add_argument("--judges", action="store_true", help="also the AUC of judges' scores, a minute")
    given = asked.parse_args()
    for name in SETS:
        table, gold = load(name, "numbers")
        for what, value in baselines(table).items():
            print(f"{name:16} {what:24} MAE {np.abs(value - gold).mean():7.3f}")
        for shared in given.shared:
            model = methods["gaussian"](crowd_labels=shared).fit(table)
            inside = (gold >= model.interval_[:, 0]) & (gold <= model.interval_[:, 1])
            width = np.diff(model.interval_).mean()
            said = f"MAE {np.abs(model.values_ - gold).mean():7.3f}, {100 * inside.mean():.1f} % inside"
            print(f"{name:16} gaussian crowd_labels={shared:<8g} {said}, mean width {width:.1f}")
    table, gold = load("wordsim", "graded")
    model = methods["graded-response"]().fit(table)
    ends = model.predict_interval().astype(float)
    inside = (gold >= ends[:, 0]) & (gold <= ends[:, 1])
    said = f"MAE of means {np.abs(model.values_ - gold).mean():.3f}, of medians "
    print(
        f"wordsim graded-response {said}{np.abs(model.predict().astype(float) - gold).mean():.3f}, {inside.mean():.3f}"
    )
    if given.judges:
        for name, auc in judges().items():
            print(f"judges_civilcomments {name:32} AUC {auc:.4f}")


if __name__ == "__main__":
    main()
