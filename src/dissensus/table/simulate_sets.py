"""Draw tables of sets of options whose truth is known: options that go together, and annotators of several kinds."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dissensus.common.types import BoolArray, Names
from dissensus.table.annotations import Annotations
from dissensus.table.kinds import set_name

TICKS = {
    "good": (0.85, 0.03),
    "sparing": (0.4, 0.01),
    "eager": (0.9, 0.3),
    "spammer": (0.2, 0.2),
    "adversary": (0.1, 0.6),
}
"""Kind of annotator → how often a true option is ticked, and another one."""


class SimulatedSets(NamedTuple):
    """A table and what it was drawn from."""

    annotations: Annotations
    truth: BoolArray  # (I, L)
    options: Names  # (L,)
    kinds: Names  # (A,) keys of `TICKS`


def simulate_sets(
    n_items: int,
    n_annotators: int,
    n_options: int,
    *,
    redundancy: int = 5,
    kinds: dict[str, int] | None = None,
    seed: int = 0,
) -> SimulatedSets:
    """Draw sets; `kinds`: how many annotators of which kind, all others are good.

    An option is true on one item of five; from the second on it follows the one before it where that is true (80 %).
    """
    rng = np.random.default_rng(seed)
    truth = np.zeros((n_items, n_options), np.bool_)
    for c in range(n_options):
        after = truth[:, c - 1] & (rng.random(n_items) < 0.8) if c else False
        truth[:, c] = after | (rng.random(n_items) < (0.2 if c == 0 else 0.05))
    special = [kind for kind, count in (kinds or {}).items() for _ in range(count)]
    of_annotator = np.array([*special, *["good"] * (n_annotators - len(special))], object)
    item = np.repeat(np.arange(n_items), redundancy)
    annotator = np.argsort(rng.random((n_items, n_annotators)), axis=1)[:, :redundancy].reshape(-1)
    hit, false_tick = np.array([TICKS[kind] for kind in of_annotator])[annotator].T
    chance = np.where(truth[item], hit[:, None], false_tick[:, None])
    ticked = rng.random(chance.shape) < chance
    width = len(str(n_options - 1))
    options = np.array([f"o{c:0{width}}" for c in range(n_options)], object)
    sets, label = np.unique(ticked, axis=0, return_inverse=True)
    names = np.array([set_name(options[one]) for one in sets], object)
    table = Annotations.from_arrays(
        item, annotator, names[label.reshape(-1)], kind="sets", items=np.arange(n_items),
        annotators=np.arange(n_annotators),
    )  # fmt: skip
    return SimulatedSets(table, truth, options, of_annotator)
