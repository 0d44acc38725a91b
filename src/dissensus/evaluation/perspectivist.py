"""Metrics for predictions of each annotator's labels, as in Learning With Disagreements 2025.

    error rate           e_i = Σ_j [y_ij ≠ ŷ_ij] / A_i                              mean over items
    absolute distance    d_i = Σ_j |x(y_ij) − x(ŷ_ij)| / (A_i · (max x − min x))     mean over items, ordered classes

(Leonardelli et al. 2025, "LeWiDi-2025 at NLPerspectives", the perspectivist task; A_i annotators of item i, x(k) the
position of class k.) Its other task, the distribution of an item's labels, is scored by `manhattan` and `wasserstein`
(`soft.py`). Choices that the task leaves open:

- *Range.* The task's evaluation program defines the range of a scale from −5 to 5 as 10, but divides by the number of
  its points, which is 11. `scale=11` reproduces the program's figures.
- *Several labels* of one annotator for one item are one answer. Each of its n rows has a weight of 1/n, so that every
  (item, annotator) pair counts once; a single predicted class can then match only a part of the answer. (The task
  scores its data set with several labels class by class, with yes or no; to do the same, make one table per class.)
- *Weights* multiply the count of a row; rows of weight 0 are ignored.
- *Probabilistic rows* are scored by the expected error of a label drawn from the row's distribution.
- *Predicted distributions* are replaced by the answer that minimises each measure: the mode for the error rate
  (averaged over tied modes), and the median for the distance. To score other answers, pass codes.

There is one prediction per row of the table (`predict_annotations`), so no array of items × annotators is built.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from dissensus.common.arrays import is_first_of_pair, random_ranks_within_groups
from dissensus.common.parameters import check_argument
from dissensus.common.types import FloatArray
from dissensus.evaluation import exceptions as errors
from dissensus.evaluation._check import check_distributions, check_integers, class_positions
from dissensus.evaluation.hard import find_tied_classes
from dissensus.messages import ParameterName
from dissensus.table.annotations import Annotations

GroupBy = Literal["item", "annotator"]


def error_rate(table: Annotations, predicted: Any, *, by: GroupBy = "item") -> FloatArray:
    """Return, for each item with annotations, the share of annotators whose label was predicted wrongly.

    Parameters
    ----------
    table : Annotations
        Labels of the annotators.
    predicted : (N,) int or (N, K)
        Predicted class of every row of the table, or the probability of each class in the order of `table.classes`.
    by : "item" or "annotator"
        Average over the rows of each item or of each annotator. Values are in the table's order; items or annotators
        without a row are omitted. Use `.mean()` for a score, or pass the values to `bootstrap`.

    >>> table = Annotations.from_arrays(["a", "a", "b"], ["x", "y", "x"], [1, 0, 1])
    >>> error_rate(table, [1, 1, 1])
    array([0.5, 0. ])
    >>> error_rate(table, [1, 1, 1], by="annotator")
    array([0., 1.])
    """
    best = find_tied_classes(_predicted_distributions(table, predicted))
    chance = best / best.sum(axis=1, keepdims=True)  # (N, K) probabilities of a fair draw among tied classes
    return _group_means(table, 1 - (chance * _label_distributions(table)).sum(axis=1), by)


def absolute_distance(
    table: Annotations, predicted: Any, *, positions: Any = None, scale: float | None = None, by: GroupBy = "item"
) -> FloatArray:
    """Return, for each item with annotations, the mean distance of labels and predictions, divided by the scale.

    Parameters
    ----------
    table, predicted, by
        The same as in `error_rate`; classes must be ordered.
    positions : (K,), optional
        Positions of the classes on a line, in any order; by default, 0, 1, …, K − 1.
    scale : float, optional
        Divisor of the distances; by default, the range of the positions.

    >>> table = Annotations.from_arrays(["a", "a", "b"], ["x", "y", "x"], [0, 2, 1])
    >>> absolute_distance(table, [0, 1, 1])
    array([0.25, 0.  ])
    """
    predicted = _predicted_distributions(table, predicted)
    place = class_positions(positions, table.n_classes)
    scale = float(np.ptp(place)) if scale is None else scale
    if not 0 < scale < np.inf:
        raise errors.BadScale(scale=scale)
    order = np.argsort(place, kind="stable")
    reached = np.cumsum(predicted[:, order], axis=1) >= 0.5 - 1e-12  # Sums may be off by rounding.
    reached[:, -1] = True
    median = place[order[reached.argmax(axis=1)]]  # (N,) the lower of two medians
    distance = (_label_distributions(table) * np.abs(place - median[:, None])).sum(axis=1)
    return _group_means(table, distance / scale, by)


def hide_annotators(
    table: Annotations, share: float, seed: int | np.random.SeedSequence
) -> tuple[Annotations, Annotations]:
    """Split the annotations of items with several annotators into given and hidden annotations.

    All annotations of one item by one annotator are in the same part.

    >>> from dissensus.table.simulate import simulate
    >>> given, hidden = hide_annotators(simulate(200, 12, 3, seed=1).annotations, 0.25, seed=0)
    >>> given.n_annotations, hidden.n_annotations
    (800, 200)
    """
    starts = is_first_of_pair(table.item, table.annotator)
    pair, item = np.cumsum(starts) - 1, table.item[starts]
    per_item = np.bincount(item, minlength=table.n_items)
    several = per_item > 1
    if not several.any():
        raise errors.NoHideableAnnotations
    rank = random_ranks_within_groups(item, np.random.default_rng(seed))
    hide = np.clip(np.round(share * per_item), 1, np.maximum(per_item - 1, 0)).astype(np.int64)
    hidden = (rank < hide[item])[pair]
    return table.select(items=several, rows=~hidden), table.select(items=several, rows=hidden)


def _label_distributions(table: Annotations) -> FloatArray:
    """Return the label of each row as a distribution (N, K)."""
    return np.asarray(np.eye(table.n_classes)[table.label] if table.proba is None else table.proba)


def _predicted_distributions(table: Annotations, predicted: Any) -> FloatArray:
    """Return the predictions as checked distributions (N, K), in which a predicted code has a probability of 1."""
    array, K, name = np.asarray(predicted), table.n_classes, ParameterName("predicted")
    if array.ndim not in (1, 2) or len(array) != len(table):
        raise errors.NotRowsOfTable(rows=len(table), shape=array.shape)
    if array.ndim == 2:
        array = check_distributions(array, name)
        if array.shape[1] != K:
            raise errors.NotOnePerClass(name=name, values=array.shape[1], n_classes=K)
        return np.asarray(array)
    codes = check_integers(array, name)
    bad = np.flatnonzero((codes < 0) | (codes >= K))
    if bad.size:
        raise errors.CodeOutOfRange(name=name, row=int(bad[0]), code=int(codes[bad[0]]), n_classes=K)
    return np.eye(K)[codes]


def _group_means(table: Annotations, values: FloatArray, by: GroupBy) -> FloatArray:
    """Return the means of row values (N,) over items or annotators; the n rows of a pair have a weight of 1/n each."""
    check_argument("by", by, GroupBy)
    pair = np.cumsum(is_first_of_pair(table.item, table.annotator)) - 1
    weight = table.row_weights
    rows_of_pair = np.bincount(pair, weight > 0)
    count = weight / np.maximum(rows_of_pair, 1)[pair] if len(table) else weight
    group, n = (table.item, table.n_items) if by == "item" else (table.annotator, table.n_annotators)
    total = np.bincount(group, count, n)
    labelled = total > 0
    if not labelled.any():
        raise errors.NoItems
    return np.asarray(np.bincount(group, count * values, n)[labelled] / total[labelled])
