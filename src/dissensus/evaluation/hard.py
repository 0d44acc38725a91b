"""Metrics of predicted class codes against gold class codes; items without a gold label (−1) are excluded.

scikit-learn's metrics give the same values; importing them takes 0.7 s of processor time, and they
are two to five times slower on a million items. Tests compare ours with them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy.sparse import csr_array, hstack

from dissensus.common.arrays import TIE_TOLERANCE
from dissensus.common.types import FloatArray, IntArray
from dissensus.evaluation._check import check_integers, select_codes_with_gold, select_rows_with_gold
from dissensus.evaluation.exceptions import BadClassCodes


def confusion_matrix(gold: Any, predicted: Any, n_classes: int | None = None) -> IntArray:
    """Return the numbers of items (K, K) by gold class (row) and predicted class (column).

    K is `n_classes`, by default the largest code plus one.

    >>> confusion_matrix([0, 1, 1, -1], [0, 1, 0, 1])
    array([[1, 0],
           [1, 1]])
    """
    gold, predicted, K = select_codes_with_gold(gold, predicted, n_classes)
    return np.bincount(gold * K + predicted, minlength=K * K).reshape(K, K)


def accuracy(gold: Any, predicted: Any) -> float:
    """Return the share of correct predictions among the items with a gold label.

    >>> accuracy([0, 1, 2, -1], [0, 1, 1, 0])
    0.6666666666666666
    """
    gold, predicted, _ = select_codes_with_gold(gold, predicted)
    return float((gold == predicted).mean())


def expected_accuracy(gold: Any, posterior: Any, *, tie: float = TIE_TOLERANCE) -> float:
    """Return the mean accuracy if ties are broken by a fair draw.

    An item whose gold class is among t equally probable best classes counts 1/t. Always taking the lowest class instead
    makes majority vote on an even number of votes per item look percentage points better or worse than it is. The
    posterior (I, K) may be shares of votes; classes within the share `tie` of the largest are tied with it.

    >>> expected_accuracy([0, 1], [[0.8, 0.2], [0.5, 0.5]])
    0.75
    """
    return float(probability_correct(gold, posterior, tie).mean())


def probability_correct(gold: Any, posterior: Any, tie: float = TIE_TOLERANCE) -> FloatArray:
    """Return, for each item with a gold label, the probability that a fair draw among the best classes is right."""
    gold, posterior = select_rows_with_gold(gold, posterior, "posterior")
    best = find_tied_classes(posterior, tie)
    return np.asarray(best[np.arange(gold.size), gold] / best.sum(axis=1))


def find_tied_classes(posterior: FloatArray, tie: float = TIE_TOLERANCE) -> Any:
    """Return a mask (I, K) of the classes that share the largest probability of their item."""
    return posterior >= posterior.max(axis=1, keepdims=True) * (1 - tie)


def balanced_accuracy(gold: Any, predicted: Any) -> float:
    """Return the mean recall over the gold classes.

    >>> balanced_accuracy([0, 0, 0, 1], [0, 0, 0, 0])
    0.5
    """
    counts = confusion_matrix(gold, predicted)
    return float((counts.diagonal() / np.maximum(counts.sum(axis=1), 1)).sum() / counts.any(axis=1).sum())


def macro_f1(gold: Any, predicted: Any, *, classes: Sequence[int] | None = None) -> float:
    """Return the mean over classes of F1 = 2 TP / (2 TP + FP + FN).

    The mean is over the codes in `classes`, by default over all classes that occur in gold labels or predictions. A
    class in `classes` that never occurs has an F1 of 0, as in scikit-learn.

    >>> round(macro_f1([0, 1, 2, 2], [0, 1, 2, 1]), 3)
    0.778
    """
    twice_correct, total = _f1_numerator_and_denominator(gold, predicted, classes)
    return float((twice_correct / np.maximum(total, 1)).mean())


def micro_f1(gold: Any, predicted: Any, *, classes: Sequence[int] | None = None) -> float:
    """Return F1 of the counts summed over `classes`; over all classes it would equal accuracy.

    >>> round(micro_f1([0, 1, 2, 2], [0, 1, 2, 1], classes=[1, 2]), 3)
    0.667
    """
    twice_correct, total = _f1_numerator_and_denominator(gold, predicted, classes).sum(axis=1)
    return float(twice_correct / max(total, 1))


def hard_scores(gold: Any, predicted: Any) -> dict[str, float]:
    """Return name → value of accuracy, balanced accuracy, macro F1 and micro F1.

    >>> hard_scores([0, 0, 0, 1], [0, 0, 1, 1])["balanced_accuracy"]
    0.8333333333333333
    """
    return {one.__name__: one(gold, predicted) for one in (accuracy, balanced_accuracy, macro_f1, micro_f1)}


def count_class_outcomes(gold: IntArray, chosen: FloatArray) -> Any:
    """Return a sparse array (n, 3 K) with the correct, gold and chosen class of each item.

    `gold` (n,) holds codes, and `chosen` (n, K) the choices: 1/t for each of t tied classes. `mean_recall` and
    `mean_f1` are functions of the column sums.
    """
    n, K = chosen.shape
    right = csr_array((np.ones(n), (np.arange(n), gold)), shape=(n, K))
    return hstack([right * chosen, right, csr_array(chosen)], format="csr")


def mean_recall(sums: FloatArray) -> FloatArray:
    """Return the mean recall (B,) over the gold classes, computed from sums (B, 3 K) of `count_class_outcomes`."""
    correct, gold, _ = np.split(sums, 3, axis=1)
    return _mean_of_ratios(correct, gold)


def mean_f1(sums: FloatArray) -> FloatArray:
    """Return the mean F1 (B,) over the classes that occur, computed from sums (B, 3 K) of `count_class_outcomes`."""
    correct, gold, chosen = np.split(sums, 3, axis=1)
    return _mean_of_ratios(2 * correct, gold + chosen)


def _mean_of_ratios(parts: FloatArray, totals: FloatArray) -> FloatArray:
    occurs = totals > 0
    shares = np.where(occurs, parts / np.where(occurs, totals, 1), 0)
    return np.asarray(shares.sum(axis=1) / occurs.sum(axis=1))


def _f1_numerator_and_denominator(gold: Any, predicted: Any, classes: Sequence[int] | None) -> IntArray:
    """Return 2 TP and 2 TP + FP + FN (2, K) of `classes`, by default of the classes that occur."""
    counts = confusion_matrix(gold, predicted)
    parts = np.stack([2 * counts.diagonal(), counts.sum(axis=0) + counts.sum(axis=1)])
    if classes is None:
        return parts[:, parts[1] > 0]
    chosen = check_integers(classes, "classes")
    if chosen.size == 0 or chosen.min() < 0 or np.unique(chosen).size < chosen.size:
        raise BadClassCodes(codes=tuple(chosen.tolist()))
    return np.pad(parts, [(0, 0), (0, int(chosen.max()) + 1)])[:, chosen]
