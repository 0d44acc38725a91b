"""Tables that the tests of several methods share."""

import numpy as np

from dissensus import Annotations
from dissensus.compute.engines.local import LocalEngine, Threads
from dissensus.compute.rows import expand_rows
from dissensus.table.simulate import Simulation, simulate_kind, simulate_sets, simulate_spans, simulate_texts

KINDS = {
    "hard": {},
    "weighted": {"weight": lambda rng, n: rng.uniform(0, 3, n)},
    "probabilistic": {"proba": lambda rng, n: rng.dirichlet(np.ones(4), n)},
    "both": {"weight": lambda rng, n: rng.uniform(0, 3, n), "proba": lambda rng, n: rng.dirichlet(np.ones(4), n)},
}
"""Kinds of rows, as keywords of `random_table` with its four classes."""

# 11 items by 6 annotators, no tie at any step, one item that the skills turn round; with it go figures of crowd-kit
SHEET = ["ccccbc", "cc-a-b", "c-bccc", "ccbccc", "ccbc-b", "ccaaab", "bcbaab", "bbccab", "-aaaaa", "bbabba", "-babcb"]


def drawn(kind: str) -> Annotations:
    """A small table of any kind of labels but classes."""
    own = {
        "sets": lambda: simulate_sets(31, 9, 4, redundancy=3),
        "spans": lambda: simulate_spans(20, 6, 2),
        "objects": lambda: simulate_texts(31, 9, redundancy=3),
    }
    return own.get(kind, lambda: simulate_kind(kind, 31, 9, redundancy=3))().annotations


def random_table(
    seed: int, n_items: int = 23, n_annotators: int = 7, n_classes: int = 4, n: int = 131, silent: int = 0, **extra
) -> Annotations:
    """Items of very unequal length, some empty, repeated pairs: sizes all different; `silent` more annotators."""
    rng = np.random.default_rng(seed)
    item = rng.integers(0, n_items, n) * rng.integers(0, 2, n)  # item 0 gets about half of all rows
    return Annotations.from_arrays(
        item, rng.integers(0, n_annotators, n), None if "proba" in extra else rng.integers(0, n_classes, n),
        classes=n_classes, items=np.arange(n_items), annotators=np.arange(n_annotators + silent),
        **{k: v(rng, n) for k, v in extra.items()},
    )  # fmt: skip


def sheet_table() -> Annotations:
    cells = [(i, a, given) for i, row in enumerate(SHEET) for a, given in enumerate(row) if given != "-"]
    return Annotations.from_arrays(*zip(*cells, strict=True))


def two_who_differ(*labels: str, agreed: str = "bbba") -> Annotations:
    """Two annotators; on 300 items each they agree on what `agreed` says, on 300 they say "a" and "b", in either way.

    `labels` are what the first one says about further items, alone.
    """
    pairs = [2 * letter for letter in agreed] + ["ab", "ba"]
    said = "".join(pair for pair in pairs for _ in range(300))
    item, annotator = np.divmod(np.arange(len(said) + 2 * len(labels)), 2)
    own = [*range(len(said)), *range(len(said), item.size, 2)]
    return Annotations.from_arrays(item[own], annotator[own], [*said, *labels])


def some_gold(table: Annotations) -> np.ndarray:
    """Every third item is known to be of class 2."""
    return np.where(np.arange(table.n_items) % 3 == 0, 2, -1).astype(np.int32)


def judged(table: Annotations, row: int, gold=None) -> bool:
    """Whether a row can agree with anybody: with another annotator of its item, or with a known class."""
    i = table.item[row]
    return bool(len(set(table.annotator[table.item == i].tolist())) > 1 or (gold is not None and gold[i] >= 0))


def shares_of(table: Annotations, row: int) -> np.ndarray:
    """(K,) what a row says, times its weight."""
    shares = np.eye(table.n_classes)[table.label[row]] if table.proba is None else table.proba[row]
    return shares * (1.0 if table.weight is None else table.weight[row])


def with_extremes(sim: Simulation, labels: int = 60) -> Annotations:
    """The simulated table and two annotators more, on the same items: 1000 is always right, 1001 never."""
    table, K = sim.annotations, sim.annotations.n_classes
    items = np.arange(table.n_items)[:: max(1, table.n_items // labels)]
    ones = np.ones(items.size, int)
    return Annotations.from_arrays(
        np.concatenate([table.item, items, items]),
        np.concatenate([table.annotators[table.annotator], 1000 * ones, 1001 * ones]),
        np.concatenate([table.label, sim.truth[items], (sim.truth[items] + 1) % K]),
        classes=K,
    )


def placed(table: Annotations, gold=None, threads: int = 1) -> LocalEngine:
    """The table on the local engine with just so many threads, however few its rows."""
    return LocalEngine(expand_rows(table), table.n_annotators, table.n_classes, Threads(threads), gold)
