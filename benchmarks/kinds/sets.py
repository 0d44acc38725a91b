"""Several labels at once: medical_relations as one table of sets compared with fourteen tables of yes and no.

    python -m benchmarks.kinds.sets

By gold, which two of the fourteen relations have: log loss and F1, their mean, at 2, 5 and all labels an item (three
draws). Without gold, for all fourteen: the labels are cut in halves, and the probabilities of one half are held to the
sets that the other half decides on; and how many relations an item has, by the probabilities and by the other half.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np

import dissensus as dz

GOLD = {"CAUSES": "medical_causes", "TREATS": "medical_treats"}
LEVELS = (2, 5, None)
SEEDS = 3
MIN_LABELS = 5  # Labels per item from the other half.


def whole() -> Any:
    """Return the table of sets."""
    questions: Any = dz.load_dataset("medical_relations").annotations
    first = next(iter(questions.values()))
    ticked = np.stack([table.label for table in questions.values()], axis=1) > 0
    row, option = np.nonzero(ticked)
    names = np.array(list(questions), object)
    return dz.Annotations.from_arrays(
        first.items[first.item[row]], first.annotators[first.annotator[row]], names[option], kind="sets"
    )


def gold_of(table: Any) -> dict[int, Any]:
    """Code of an option → (I,) 1, 0, or −1 where unknown."""
    found = {}
    for option, name in GOLD.items():
        data: Any = dz.load_dataset(name)
        known = {str(item): int(code) for item, code in zip(data.annotations.items, data.gold, strict=True)}
        at = table.options.names.tolist().index(option)
        found[at] = np.array([known.get(str(item), -1) for item in table.items])
    return found


def answers(table: Any) -> Iterator[tuple[str, Any, Any]]:
    """Name, (I, L) probabilities and (I, L) decisions of each way."""
    for method in ("dawid-skene", "consensus"):
        found = np.empty((table.n_items, table.options.names.size))
        for c in range(found.shape[1]):
            yes = table.options.selected[:, c].astype(int)[table.label]
            one = dz.Annotations.from_codes(
                table.item, table.annotator, yes, table.items, table.annotators, np.array([0, 1])
            )
            found[:, c] = dz.methods[method]().fit(one).posterior_[:, 1]
        yield f"fourteen tables, {method}", found, found > 0.5
    model = dz.methods["set-tree"]().fit(table)
    yield "one table, set-tree", model.posterior_, model.answer_


def log_loss(p: Any, true: Any) -> float:
    """Mean log loss of probabilities of yes."""
    return float(-np.log(np.maximum(np.where(true, p, 1 - p), 1e-12)).mean())


def main() -> None:
    """Print both tables."""
    warnings.simplefilter("ignore")
    table = whole()
    gold, labelled = gold_of(table), {}
    print("| labels | | log loss | F1 | log loss CAUSES, TREATS | F1 CAUSES, TREATS |\n|---|---|---|---|---|---|")
    for level in LEVELS:
        rows: dict[str, list[Any]] = {}
        for seed in range(SEEDS if level else 1):
            some = table.subsample(level, seed) if level else table
            labelled[level] = np.diff(some.item_ptr) > 0
            for name, p, said in answers(some):
                scores = []
                for c, known in gold.items():
                    there = (known >= 0) & labelled[level]
                    true, chosen = known[there] == 1, said[there, c]
                    f1 = 2 * (true & chosen).sum() / max(true.sum() + chosen.sum(), 1)
                    scores += [log_loss(p[there, c], true), f1]
                rows.setdefault(name, []).append(scores)
        for name, scores in rows.items():
            a, b, c, d = np.mean(scores, axis=0)
            both, each = f"{(a + c) / 2:.3f} | {(b + d) / 2:.3f}", f"{a:.3f}, {c:.3f} | {b:.3f}, {d:.3f}"
            print(f"| {level or 'all'} | {name} | {both} | {each} |")
    half = np.random.default_rng(0).random(len(table)) < 0.5
    one, other = table.select(rows=half), table.select(rows=~half)
    decided = {name: said for name, _, said in answers(other)}
    enough = np.diff(other.item_ptr) >= MIN_LABELS
    print("\n| | log loss on what the other half decides | options of an item | by the other half |\n|---|---|---|---|")
    for name, p, _ in answers(one):
        true = decided[name][enough]
        print(
            f"| {name} | {log_loss(p[enough], true):.3f} | {p[enough].sum(1).mean():.2f} | {true.sum(1).mean():.2f} |"
        )


if __name__ == "__main__":
    main()
