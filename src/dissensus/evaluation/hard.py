"""Predicted classes against known ones. Codes in, numbers out; items whose gold is −1 are unknown and left out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy.sparse import csr_array, hstack

from dissensus.common.arrays import TIE
from dissensus.common.types import FloatArray, IntArray
from dissensus.evaluation._check import integers, known_codes, known_rows
from dissensus.exceptions import DataError


def confusion_matrix(gold: Any, predicted: Any, n_classes: int | None = None) -> IntArray:
    """(K, K) how many items of each gold class (row) were predicted as each class (column), by codes (I,).

    K is `n_classes`; left out, one more than the largest code.

    >>> confusion_matrix([0, 1, 1, -1], [0, 1, 0, 1])
    array([[1, 0],
           [1, 1]])
    """
    gold, predicted, K = known_codes(gold, predicted, n_classes)
    return np.bincount(gold * K + predicted, minlength=K * K).reshape(K, K)


def accuracy(gold: Any, predicted: Any) -> float:
    """Share of the items with known gold whose prediction is right.

    >>> accuracy([0, 1, 2, -1], [0, 1, 1, 0])
    0.6666666666666666
    """
    gold, predicted, _ = known_codes(gold, predicted)
    return float((gold == predicted).mean())


def expected_accuracy(gold: Any, posterior: Any, *, tie: float = TIE) -> float:
    """Accuracy that breaking ties by a fair draw has on average.

    An item whose gold is among t equally probable best classes counts 1/t. Taking the lowest class instead favours it:
    majority vote on a set with an even number of votes per item can look points better or worse than it is. The
    posterior (I, K) may be shares of votes; classes within the share `tie` of the largest are tied with it.

    >>> expected_accuracy([0, 1], [[0.8, 0.2], [0.5, 0.5]])
    0.75
    """
    return float(hits(gold, posterior, tie).mean())


def hits(gold: Any, posterior: Any, tie: float = TIE) -> FloatArray:
    """(known items,) the chance that the best class is right when ties are drawn fairly."""
    gold, posterior = known_rows(gold, posterior, "posterior")
    best = tied(posterior, tie)
    return np.asarray(best[np.arange(gold.size), gold] / best.sum(axis=1))


def tied(posterior: FloatArray, tie: float = TIE) -> Any:
    """(I, K) bool: the classes that share the largest probability."""
    return posterior >= posterior.max(axis=1, keepdims=True) * (1 - tie)


def balanced_accuracy(gold: Any, predicted: Any) -> float:
    """Mean over the gold classes of the share of each that is found (recall).

    >>> balanced_accuracy([0, 0, 0, 1], [0, 0, 0, 0])
    0.5
    """
    counts = confusion_matrix(gold, predicted)
    return float((counts.diagonal() / np.maximum(counts.sum(axis=1), 1)).sum() / counts.any(axis=1).sum())


def macro_f1(gold: Any, predicted: Any, *, classes: Sequence[int] | None = None) -> float:
    """Mean over classes of F1 = 2 TP / (2 TP + FP + FN).

    The classes are those that occur in gold or prediction, or the codes given in `classes`; one that is given and never
    occurs counts 0, as in scikit-learn.

    >>> round(macro_f1([0, 1, 2, 2], [0, 1, 2, 1]), 3)
    0.778
    """
    twice_found, of = _f1_parts(gold, predicted, classes)
    return float((twice_found / np.maximum(of, 1)).mean())


def micro_f1(gold: Any, predicted: Any, *, classes: Sequence[int] | None = None) -> float:
    """F1 of the summed counts. Over all classes it equals accuracy; leave one out (as "none") with `classes`.

    >>> round(micro_f1([0, 1, 2, 2], [0, 1, 2, 1], classes=[1, 2]), 3)
    0.667
    """
    twice_found, of = _f1_parts(gold, predicted, classes).sum(axis=1)
    return float(twice_found / max(of, 1))


def hard_scores(gold: Any, predicted: Any) -> dict[str, float]:
    """All of the above that need no posterior, by name.

    >>> hard_scores([0, 0, 0, 1], [0, 0, 1, 1])["balanced_accuracy"]
    0.8333333333333333
    """
    return {one.__name__: one(gold, predicted) for one in (accuracy, balanced_accuracy, macro_f1, micro_f1)}


def outcomes(gold: IntArray, chosen: FloatArray) -> Any:
    """(n, 3 K) sparse: which class was found, which was right and which was chosen, by codes (n,) and choices (n, K).

    A choice among t tied classes has 1/t for each of them. `mean_recall` and `mean_f1` are functions of the sums.
    """
    n, K = chosen.shape
    right = csr_array((np.ones(n), (np.arange(n), gold)), shape=(n, K))
    return hstack([right * chosen, right, csr_array(chosen)], format="csr")


def mean_recall(sums: FloatArray) -> FloatArray:
    """(B,) mean over the gold classes of the share that is found, from sums (B, 3 K) of `outcomes`."""
    found, right, _ = np.split(sums, 3, axis=1)
    return _mean_ratio(found, right)


def mean_f1(sums: FloatArray) -> FloatArray:
    """(B,) mean of F1 over the classes that occur, from sums (B, 3 K) of `outcomes`."""
    found, right, chosen = np.split(sums, 3, axis=1)
    return _mean_ratio(2 * found, right + chosen)


def _mean_ratio(part: FloatArray, of: FloatArray) -> FloatArray:
    there = of > 0
    shares = np.where(there, part / np.where(there, of, 1), 0)
    return np.asarray(shares.sum(axis=1) / there.sum(axis=1))


def _f1_parts(gold: Any, predicted: Any, classes: Sequence[int] | None) -> IntArray:
    """(2, K) 2 TP and 2 TP + FP + FN of the classes given, else of those that occur."""
    counts = confusion_matrix(gold, predicted)
    parts = np.stack([2 * counts.diagonal(), counts.sum(axis=0) + counts.sum(axis=1)])
    if classes is None:
        return parts[:, parts[1] > 0]
    chosen = integers(classes, "classes")
    if chosen.size == 0 or chosen.min() < 0 or np.unique(chosen).size < chosen.size:
        raise DataError(f"classes must be different class codes, at least one; got {list(classes)}.")
    return np.pad(parts, [(0, 0), (0, int(chosen.max()) + 1)])[:, chosen]
