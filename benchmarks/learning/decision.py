"""Who answers what: held-out pairs of item and annotator against unobserved ones, by area under the ROC curve.

    python -m benchmarks.learning.decision        # options: see benchmarks/parts.py

Two ways to hold out: a tenth of the observed pairs, or all pairs of a tenth of the items (known then by features only).
As many unobserved pairs are drawn, from all pairs ("any") or with the items of the held-out ones ("same item"). Where
every item was to have five labels and one is held out, counts say so: "any" then tells how the data were made as well.

- *popularity*: the annotator's answers times the item's, both as far as not held out. *annotator's answers*: those.
- *vectors*: `DecisionFunction` without features. *MiniLM*: with those of the text (the whole tweet; the sentence).
- *MiniLM, careful*: with half of the layer dropped out, and a quarter of the epochs, as new items need it.
- *MiniLM, annotators' columns*: country and channel too (medical).
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.metrics import roc_auc_score

import dissensus as dz
from benchmarks.parts import Benchmark, Part, Rows, mean_and_error
from reproductions import record

FOLDER = Path(__file__).parent
SETS = ("gimpel_pos", "medical_causes")
WAYS = {"pairs": "a tenth of the pairs", "items": "a tenth of the items"}
ARMS = (
    "popularity", "annotator's answers", "vectors", "MiniLM", "MiniLM, careful", "MiniLM, annotators' columns",
)  # fmt: skip
COLUMNS = ["annotator", "country", "channel"]  # not `judgements`, which counts what is held out


def auc(yes: np.ndarray, no: np.ndarray) -> float:
    """P(a held-out pair is above an unobserved one), ties half (Mann and Whitney's U)."""
    return float(roc_auc_score(np.repeat([1, 0], [yes.size, no.size]), np.concatenate([yes, no])))


def run(part: Part, device: str) -> dict[str, Any]:
    """Run one split of one set."""
    from dissensus.features import embed_texts
    from dissensus.learning.decision import DecisionFunction
    from dissensus.learning.encoders import MLP

    way, seed, epochs = part["way"], part["seed"], part.get("epochs", 60)
    data = dz.load_dataset(part["set"])
    table: Any = data.annotations
    A = table.n_annotators
    rng = np.random.default_rng(seed)
    of_row = table.item.astype(np.int64) * A + table.annotator
    keys = np.unique(of_row)
    if way == "pairs":
        yes = keys[rng.random(keys.size) < 0.1]
    else:
        yes = keys[np.isin(keys // A, np.flatnonzero(rng.random(table.n_items) < 0.1))]
    train = table.select(rows=~np.isin(of_row, yes))
    among = np.arange(table.n_items) if way == "pairs" else np.unique(yes // A)
    drawn = rng.choice(among, 2 * yes.size) * A + rng.integers(0, A, 2 * yes.size)
    unobserved = {"any": drawn[~np.isin(drawn, keys)][: yes.size]}
    beside = yes // A * A + rng.integers(0, A, yes.size)
    unobserved["same item"] = beside[~np.isin(beside, keys)]
    by_item, by_annotator = np.diff(train.item_ptr), np.bincount(train.annotator, minlength=A)
    arms: dict[str, Any] = {"annotator's answers": lambda k: by_annotator[k % A]}
    seconds = {}
    X = embed_texts(data.items["text"].to_pylist())
    wanted: dict[str, tuple[Any, Any]] = {"MiniLM": (X, None), "MiniLM, careful": (X, None)}
    if way == "pairs":
        arms["popularity"] = lambda k: by_annotator[k % A] * by_item[k // A]
        wanted["vectors"] = (None, None)
    if data.annotators is not None:
        wanted["MiniLM, annotators' columns"] = (X, data.annotators.select(COLUMNS))
    for arm, (features, frame) in wanted.items():
        began = time.perf_counter()
        how: dict[str, Any] = {"epochs": epochs}
        if arm == "MiniLM, careful":
            how = {"epochs": max(epochs // 4, 1), "encoder": MLP(hidden=(64,), dropout=0.5)}
        model = DecisionFunction(seed=seed, **how).fit(train, features, annotators=frame)
        arms[arm] = lambda k, model=model: model.predict_pairs(table.items[k // A], table.annotators[k % A])
        seconds[arm] = round(time.perf_counter() - began, 1)
    scores = {
        arm: {kind: round(auc(score(yes), score(no)), 4) for kind, no in unobserved.items()}
        for arm, score in arms.items()
    }
    return {"pairs": int(yes.size), "auc": scores, "seconds": seconds}


def tables(rows: Rows) -> list[str]:
    """Return AUC by set, by kind of held-out pairs, and by model."""
    lines = []
    for name in SETS:
        for way, text in WAYS.items():
            own = [row for row in rows if (row["set"], row["way"]) == (name, way)]
            for arm in ARMS:
                values = [row["auc"][arm] for row in own if arm in row["auc"]]
                if values:
                    cells = [mean_and_error([value[kind] for value in values]) for kind in ("any", "same item")]
                    lines.append([name, text, arm, *cells])
    head = ["set", "held out", "", "AUC, any", "AUC, same item"]
    return [f"{len({row['seed'] for row in rows})} seeds, mean ± s.e.", record.markdown_table(head, lines, 3)]


def parts(seeds: int) -> list[Part]:
    """Return every set and way to hold out pairs, seed by seed."""
    return [{"set": name, "way": way, "seed": seed} for seed in range(seeds) for name in SETS for way in WAYS]


QUICK: list[Part] = [{"set": "medical_causes", "way": way, "seed": 0, "epochs": 1} for way in WAYS]
BENCHMARK = Benchmark(FOLDER, "decision", run, parts, QUICK, tables, seeds=3)


if __name__ == "__main__":
    BENCHMARK.main(__doc__)
