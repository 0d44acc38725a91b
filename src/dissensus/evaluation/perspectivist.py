"""What a model says of single annotators, against what they said: Learning With Disagreements 2025.

    error rate           e_i = Σ_j [y_ij ≠ ŷ_ij] / A_i                              mean over items
    absolute distance    d_i = Σ_j |x(y_ij) − x(ŷ_ij)| / (A_i · (max x − min x))     mean over items, ordered classes

(Leonardelli et al. 2025, "LeWiDi-2025 at NLPerspectives", the perspectivist task; A_i annotators of item i, x(k) the
place of class k.) Its other task, the distribution of an item's labels, is judged by `manhattan` and `wasserstein`
(`soft.py`). What the task leaves open:

- *Range.* The task's evaluation program speaks of the range of the scale (10 for −5…5) and divides by the number of its
  points (11): `scale=11` gives those figures.
- *Several labels* of one annotator for one item are one answer: each of its rows counts its share, so that a pair
  counts once. One predicted class then misses a part of such an answer. (The task's set with several labels is scored
  class by class, yes or no: make a table per class for that.)
- *Weights* multiply what a row counts; rows of weight 0 count nothing.
- A *probabilistic row* is compared by the expected error of a label drawn from it.
- A *predicted distribution* is taken at its mode for the error rate, where ties count as a fair draw would, and at its
  median for the distance: the answer that each measure is least for. Hand over codes for any other.

Nothing here is items × annotators: predictions come one per row of the table (`predict_annotations`).
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from dissensus.common.arrays import pair_starts, random_ranks
from dissensus.common.parameters import check_argument
from dissensus.common.types import FloatArray
from dissensus.evaluation._check import distributions, integers, positions_of
from dissensus.evaluation.hard import tied
from dissensus.exceptions import BadParameter, DataError
from dissensus.table.annotations import Annotations

By = Literal["item", "annotator"]


def error_rate(table: Annotations, predicted: Any, *, by: By = "item") -> FloatArray:
    """(items with annotations,) the share of an item's annotators whose label was predicted wrongly.

    Parameters
    ----------
    table : Annotations
        What was said.
    predicted : (N,) int or (N, K)
        For every row of the table the class that its annotator was expected to give, or the probability of each, in the
        order of `table.classes`.
    by : "item" or "annotator"
        Whose mean it is: one value per item, or per annotator, in the table's order; who has no row is left out. Take
        `.mean()`, or hand the values to `bootstrap`.

    >>> table = Annotations.from_arrays(["a", "a", "b"], ["x", "y", "x"], [1, 0, 1])
    >>> error_rate(table, [1, 1, 1])
    array([0.5, 0. ])
    >>> error_rate(table, [1, 1, 1], by="annotator")
    array([0., 1.])
    """
    best = tied(_predicted(table, predicted))
    chance = best / best.sum(axis=1, keepdims=True)  # (N, K) of a fair draw among the best
    return _means(table, 1 - (chance * _given(table)).sum(axis=1), by)


def absolute_distance(
    table: Annotations, predicted: Any, *, positions: Any = None, scale: float | None = None, by: By = "item"
) -> FloatArray:
    """(items with annotations,) how far an item's annotators are from what was predicted, as a share of the scale.

    Parameters
    ----------
    table, predicted, by
        As for `error_rate`; classes have an order.
    positions : (K,), optional
        Their places on a line, in any order; left out, 0, 1, …, K − 1.
    scale : float, optional
        What distances are divided by; None: the range of the places.

    >>> table = Annotations.from_arrays(["a", "a", "b"], ["x", "y", "x"], [0, 2, 1])
    >>> absolute_distance(table, [0, 1, 1])
    array([0.25, 0.  ])
    """
    predicted = _predicted(table, predicted)
    place = positions_of(positions, table.n_classes)
    scale = float(np.ptp(place)) if scale is None else scale
    if not 0 < scale < np.inf:
        raise BadParameter(f"scale must be above 0, got {scale}; with one class, or one place, there is no distance.")
    order = np.argsort(place, kind="stable")
    reached = np.cumsum(predicted[:, order], axis=1) >= 0.5 - 1e-12  # rounding
    reached[:, -1] = True
    at = place[order[reached.argmax(axis=1)]]  # (N,) the median; of two the lower
    far = (_given(table) * np.abs(place - at[:, None])).sum(axis=1)
    return _means(table, far / scale, by)


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


def _given(table: Annotations) -> FloatArray:
    """(N, K) the label of each row as a distribution."""
    return np.asarray(np.eye(table.n_classes)[table.label] if table.proba is None else table.proba)


def _predicted(table: Annotations, predicted: Any) -> FloatArray:
    """(N, K) checked distributions; a code is one that is sure."""
    found, K = np.asarray(predicted), table.n_classes
    if found.ndim not in (1, 2) or len(found) != len(table):
        raise DataError(
            f"predicted must have one row for each row of the table, {len(table):,} in all; got shape {found.shape}."
        )
    if found.ndim == 2:
        found = distributions(found, "predicted")
        if found.shape[1] != K:
            raise DataError(f"predicted has {found.shape[1]} columns for {K} classes.")
        return np.asarray(found)
    codes = integers(found, "predicted")
    bad = np.flatnonzero((codes < 0) | (codes >= K))
    if bad.size:
        raise DataError(
            f"predicted: row {bad[0]} has code {codes[bad[0]]}; codes of {K} classes run from 0 to {K - 1}."
        )
    return np.eye(K)[codes]


def _means(table: Annotations, values: FloatArray, by: By) -> FloatArray:
    """Means of rows (N,) over items or annotators; the rows of a pair share its count."""
    check_argument("by", by, By)
    pair = np.cumsum(pair_starts(table.item, table.annotator)) - 1
    weight = table.row_weights
    own = np.bincount(pair, weight > 0)
    count = weight / np.maximum(own, 1)[pair] if len(table) else weight
    of, n = (table.item, table.n_items) if by == "item" else (table.annotator, table.n_annotators)
    total = np.bincount(of, count, n)
    there = total > 0
    if not there.any():
        raise DataError("the table has no annotations; there is nothing to compare with.")
    return np.asarray(np.bincount(of, count * values, n)[there] / total[there])
