"""CROWDLAB: labels and a classifier's predictions, weighted by their estimated accuracy (Goh et al. 2022).

    q_i ∝ w_M p(x_i) + Σ_{annotations (j, y) of i} w_j P(· | y)        P(k | y) = P if k = y, else (1 − P) / (K − 1)
    w_j = 1 − (1 − A_j) / (1 − A_0)        w_M = (1 − (1 − A_M) / (1 − A_0)) · √(mean number of labels of an item)

- A_j is how often the other annotators of an item agree with j, over pairs of labels.
- A_M is how often the classifier's class is the consensus.
- A_0 is how often the most frequent class is the consensus.
- P is the mean share of an item's labels that equal the consensus.

A_M, A_0 and P are computed over items with at least two labels. Weights are at least `MIN_WEIGHT`. An annotator who
shares no item with another annotator gets the mean A of the others. The first consensus is the majority label, with
ties broken by p. With the weights of this consensus, the class with the largest q is the second consensus, from which
the final weights and q are computed (`consensus_method="best_quality"` of the authors' package cleanlab).

p must be the prediction of a classifier that was not trained on the item's labels, such as
`out_of_fold(model, table, X).proba`. No model is trained here.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dissensus.common.types import FloatArray, IntArray, Names
from dissensus.learning.exceptions import NoItemWithTwoLabels, WeightedLabels, WrongShape
from dissensus.table.annotations import Annotations

MIN_WEIGHT = 1e-6  # minimum weight, and minimum error rate of the most frequent class


@dataclass(frozen=True, eq=False)
class Crowdlab:
    """The consensus of every item, and the weights of annotators and classifier."""

    items: Names
    annotators: Names
    classes: Names
    posterior: FloatArray  # (I, K) q, which is the classifier's p for an item without labels
    label: IntArray  # (I,) consensus, as a code into `classes`
    annotator_weight: FloatArray  # (A,)
    model_weight: float


def crowdlab(table: Annotations, proba: FloatArray) -> Crowdlab:
    """Combine labels with a classifier's out-of-fold predictions.

    Parameters
    ----------
    table : Annotations
        Labels without weights and probabilities.
    proba : (I, K) float
        Out-of-fold predictions of a classifier for the items of the table.

    Returns
    -------
    Crowdlab
        Consensus labels, posterior and weights.

    Examples
    --------
    >>> from dissensus.table.simulate import simulate
    >>> crowd = simulate(80, 8, 2, seed=1)
    >>> found = crowdlab(crowd.annotations, np.eye(2)[crowd.truth] * 0.8 + 0.1)
    >>> found.posterior.shape, found.annotator_weight.shape
    ((80, 2), (8,))
    """
    proba = np.asarray(proba, np.float64)
    if proba.shape != (expected := (table.n_items, table.n_classes)):
        found = str(proba.dtype)
        raise WrongShape(argument="proba", kind="numbers", expected=expected, type_name=found, shape=proba.shape)
    if table.proba is not None or table.weight is not None:
        raise WeightedLabels()
    votes = np.asarray(table.votes(), np.float64)
    if not (votes.sum(axis=1) > 1).any():
        raise NoItemWithTwoLabels()
    consensus = np.where(votes == votes.max(axis=1, keepdims=True), proba, -1.0).argmax(axis=1)
    for _ in range(2):
        posterior, annotator_weight, model_weight = _compute_weights(table, votes, proba, consensus)
        label, consensus = consensus, posterior.argmax(axis=1)
    return Crowdlab(table.items, table.annotators, table.classes, posterior, label, annotator_weight, model_weight)


def _compute_weights(
    table: Annotations, votes: FloatArray, proba: FloatArray, consensus: IntArray
) -> tuple[FloatArray, FloatArray, float]:
    """Compute the posterior (I, K) and the weights of annotators (A,) and classifier for a consensus (I,)."""
    A, K = table.n_annotators, table.n_classes
    n = votes.sum(axis=1)
    several, rows = n > 1, np.arange(len(n))
    agreed = (votes[rows, consensus] / np.maximum(n, 1))[several].mean()  # P
    chosen = consensus[several]
    base = max((chosen != np.bincount(chosen, minlength=K).argmax()).mean(), MIN_WEIGHT)  # 1 − A_0
    others = np.bincount(table.annotator, n[table.item] - 1, A)
    alike = np.bincount(table.annotator, votes[table.item, table.label] - 1, A)
    accuracy = np.where(others > 0, alike / np.where(others > 0, others, 1), np.nan)
    accuracy = np.where(np.isnan(accuracy), np.nanmean(accuracy), accuracy)  # A_j
    weight = np.maximum(1 - (1 - accuracy) / base, MIN_WEIGHT)
    wrong = (proba.argmax(axis=1) != consensus)[several].mean()  # 1 − A_M
    model_weight = float(max(1 - wrong / base, MIN_WEIGHT) * np.sqrt(n[n > 0].mean()))
    code = table.item * np.int64(K) + table.label
    own = np.bincount(code, weight[table.annotator], votes.size).reshape(
        votes.shape
    )  # (I, K) Σ w_j of the labels of each class
    total = own.sum(axis=1, keepdims=True)
    rest = (1 - agreed) / max(K - 1, 1)
    mixed = model_weight * proba + agreed * own + rest * (total - own)
    return mixed / (model_weight + total), weight, model_weight
