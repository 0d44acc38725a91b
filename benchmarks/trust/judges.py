"""A real panel, 24 language models on 4,997 comments: results without gold, and with a little.

    python -m benchmarks.trust.judges [--draws 100]

Log loss, accuracy and mean confidence on items that were not drawn, beside the best single judge chosen by the same
gold; by votes and by scores from 0 to 9. Then the same learning on other panels with gold, beside ρ and shifts by gold.
"""

from __future__ import annotations

import argparse
import warnings
from pathlib import Path
from typing import Any

import numpy as np

import dissensus as dz
from benchmarks.trust.posterior import scores
from dissensus.models.gold_tempering import tempering_from_gold
from dissensus.models.gold_weights import Panel, panel_judges
from dissensus.questions.panel_review import review_panel
from dissensus.table.datasets.folder import find_data_folder
from dissensus.table.io import read_frame

NAME = "judges_civilcomments"
MAX_LOG_LOSS = {50: 0.53, 100: 0.51, 200: 0.49}  # Largest log loss, by number of gold labels.
OTHER_SETS = ("bluebirds", "plank_pos")  # sets where few annotators label everything


def score_table() -> Any:
    """Return the scores of the judges as a table of numbers."""
    frame = read_frame(Path(find_data_folder() or ".") / NAME / "annotations.csv.gz")
    columns = (frame[name].to_pylist() for name in ("item", "annotator", "score"))
    item, annotator, score = columns
    return dz.Annotations.from_arrays(item, annotator, [float(one) for one in score], kind="numbers")


def best_single(table: Any, gold: Any, known: Any, rest: Any) -> float:
    """Accuracy of the judge that is best on known items."""
    right, where = table.label == gold[table.item], np.isin(table.item, known)
    total = np.bincount(table.annotator[where], minlength=table.n_annotators)
    hits = np.bincount(table.annotator[where], right[where], table.n_annotators)
    best = int((hits / np.maximum(total, 1)).argmax())
    return float(right[np.isin(table.item, rest) & (table.annotator == best)].mean())


def learnt(panel: Panel, votes: Any, gold: Any, size: int, draws: int) -> Any:
    """Means of log loss, accuracy, confidence, and accuracy of the single judge."""
    items, found = np.flatnonzero(gold >= 0), []
    for draw in range(draws):
        order = np.random.default_rng([draw, size]).permutation(items)
        known, rest = order[:size], order[size:]
        loss, right, over, *_ = scores(panel.fit(known, gold[known]).posterior(rest), gold[rest])
        found.append((loss, right, right + over, best_single(votes, gold, known, rest)))
    return np.mean(found, axis=0)


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--draws", type=int, default=100)
    draws = parser.parse_args().draws
    warnings.simplefilter("ignore")
    data: Any = dz.load_dataset(NAME)
    votes, gold = data.annotations, data.gold
    model = dz.methods["consensus"]().fit(votes)
    loss, right, over, *_ = scores(model.posterior_, gold)
    print(f"without gold: log loss {loss:.3f} (0.62), accuracy {100 * right:.1f} %, confidence {100 * over:+.1f}")
    print(f"without gold: {review_panel(votes, model=model)}")
    print(f"by all gold: {review_panel(votes, model=model, gold=gold)}")
    numbers = score_table()
    panels = {
        "votes": Panel(votes, panel_judges(votes), 2, model.posterior_),
        "scores": Panel(numbers, panel_judges(numbers), 2),
    }
    print("| what judges say | gold | log loss | asked for | accuracy | best single judge | confidence |")
    print("|---|---|---|---|---|---|---|")
    for what, panel in panels.items():
        for size in (*MAX_LOG_LOSS, 1000):
            loss, right, sure, single = learnt(panel, votes, gold, size, draws if size in MAX_LOG_LOSS else 5)
            asked = MAX_LOG_LOSS.get(size, "–")
            print(
                f"| {what} | {size} | {loss:.3f} | {asked} | {100 * right:.1f} % | {100 * single:.1f} % | "
                f"{100 * sure:.1f} % |",
                flush=True,
            )
    print("\n| set | gold | log loss: without gold | ρ and shifts by gold | weights by gold |\n|---|---|---|---|---|")
    for name in (NAME, *OTHER_SETS):
        dataset: Any = dz.load_dataset(name)
        model = dz.methods["consensus"]().fit(dataset.annotations)
        items = np.flatnonzero((dataset.gold >= 0) & (np.diff(dataset.annotations.item_ptr) > 0))
        panel = Panel(
            dataset.annotations, panel_judges(dataset.annotations), dataset.annotations.n_classes, model.posterior_
        )
        blind, total = model.untempered_posterior(), model.item_total_
        for size in (30, 50, 100, 200):
            if size > 0.6 * items.size:
                continue
            found = []
            for draw in range(min(draws, 20)):
                order = np.random.default_rng([draw, size]).permutation(items)
                known, rest = order[:size], order[size:]
                one = tempering_from_gold(blind[known], total[known], dataset.gold[known])
                by_shifts = one.temper(blind[rest], total[rest])
                by_weights = panel.fit(known, dataset.gold[known]).posterior(rest)
                tried = (model.posterior_[rest], by_shifts, by_weights)
                found.append([scores(q, dataset.gold[rest])[0] for q in tried])
            free, shifted, weighted = np.mean(found, axis=0)
            print(f"| {name} | {size} | {free:.3f} | {shifted:.3f} | {weighted:.3f} |", flush=True)


if __name__ == "__main__":
    main()
