"""Sets of labels that contain the correct label with a given probability, by split conformal prediction.

    t = the largest t with  Σ_i Σ_k P_ik 1[p_k(x_i) ≥ t]  ≥  coverage · (n + 1)        over n held-out items
    set of x = {k: p_k(x) ≥ t}

P_i is the target of a held-out item, which is its one-hot gold label or its vote shares. The set contains the class of
a new item (or with votes, the label of a random annotator) with probability at least `coverage`. This holds for any
model if new items are exchangeable with the held-out items (Vovk et al. 2005; with votes, an item is a group of
labels). Among all sets with this coverage, sets of the most probable classes are the smallest (Sadinle et al. 2019). A
set is empty if the probabilities of all classes are below the threshold.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dissensus.common.parameters import check_argument
from dissensus.common.types import BoolArray, FloatArray, Names
from dissensus.evaluation import Estimate, bootstrap

N_FOLDS = 10  # number of folds of the held-out items for estimating the coverage


@dataclass(frozen=True, eq=False)
class LabelSets:
    """Sets of labels for rows of X, out of K classes.

    >>> classes, sure = np.array(["cat", "dog"]), Estimate(0.9, 0.85, 0.95)
    >>> LabelSets(np.array([[True, False], [True, True]]), classes, 0.4, sure, 100).to_lists()
    [['cat'], ['cat', 'dog']]
    """

    members: BoolArray  # (rows, K)
    classes: Names  # (K,)
    threshold: float  # minimum probability of a class in a set
    covered: Estimate  # share of held-out labels that are in the item's set; its threshold is from other folds
    n_held_out: int

    def to_lists(self) -> list[list[object]]:
        """Return the class names in each set."""
        return [self.classes[row].tolist() for row in self.members]


def make_label_sets(
    proba: FloatArray, classes: Names, held_out: FloatArray, truth: FloatArray, coverage: float
) -> LabelSets:
    """Return label sets for `proba` (rows, K), given probabilities and targets (n, K) of held-out items."""
    check_argument("coverage", coverage, float, above=0, below=1)
    fold, inside = np.arange(len(truth)) % N_FOLDS, np.zeros(len(truth))
    for number in range(N_FOLDS):
        here = fold == number
        limit = find_threshold(held_out[~here], truth[~here], coverage)
        inside[here] = (truth[here] * (held_out[here] >= limit)).sum(axis=1)
    limit = find_threshold(held_out, truth, coverage)
    return LabelSets(proba >= limit, classes, limit, bootstrap(inside), len(truth))


def find_threshold(held_out: FloatArray, truth: FloatArray, coverage: float) -> float:
    """Return the threshold t, or 0 (sets of all classes) if there are too few held-out items for the coverage."""
    order = np.argsort(-held_out, axis=None, kind="stable")
    inside = np.cumsum(truth.ravel()[order])
    at = np.searchsorted(inside, coverage * (len(truth) + 1) - 1e-9)
    return float(held_out.ravel()[order[at]]) if at < order.size else 0.0
