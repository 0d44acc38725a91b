"""Annotators of an item hidden from a model that is then judged by what they said."""

from __future__ import annotations

import numpy as np

from dissensus.common.arrays import pair_starts, random_ranks
from dissensus.exceptions import DataError
from dissensus.table.annotations import Annotations


def hide_annotators(
    table: Annotations, share: float, seed: int | np.random.SeedSequence
) -> tuple[Annotations, Annotations]:
    """Split the annotations of items with several annotators into given and hidden ones, annotator by annotator.

    >>> from dissensus.table.simulate import simulate
    >>> given, hidden = hide_annotators(simulate(200, 12, 3, seed=1).annotations, 0.25, seed=0)
    >>> given.n_annotations, hidden.n_annotations
    (800, 200)
    """
    starts = pair_starts(table.item, table.annotator)
    pair, item = np.cumsum(starts) - 1, table.item[starts]
    per_item = np.bincount(item, minlength=table.n_items)
    several = per_item > 1
    if not several.any():
        raise DataError("no item has two annotators; there is nothing to hide.")
    rank = random_ranks(item, np.random.default_rng(seed))
    hide = np.clip(np.round(share * per_item), 1, np.maximum(per_item - 1, 0)).astype(np.int64)
    hidden = (rank < hide[item])[pair]
    return table.select(items=several, rows=~hidden), table.select(items=several, rows=hidden)
