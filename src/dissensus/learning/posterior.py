"""Combine features and annotations into the posterior of the annotated items, and into confusions of annotators.

    q_i(c) ∝ p_c(x_i) Π_{j∈M_i} Θ_j[c, y_ij]

p is the network's prediction, Θ_j the confusion matrix of annotator j, learnt here as in Dawid-Skene (its M step and
pseudo-counts) with p in the place of the classes' shares: EM from q = p, a few passes. The confusions are learnt here
also where the objective models annotators: a crowd layer's matrices serve its loss (on LabelMe, with
`link="normalize"`, they are close to the identity and q far too sure: log loss 2.7 against 1.2 here). Where the network
learnt its items by heart, q is too sure all the same; `out_of_fold` asks networks that have not seen the item.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import logsumexp

from dissensus.common.types import FloatArray, IntArray
from dissensus.models.methods.dawid_skene import Confusions, DawidSkene, crowd_pseudo, soft_counts, start_counts
from dissensus.table.annotations import Annotations

MAX_PASSES = 50
TOLERANCE = 1e-6  # largest change of a probability that ends the passes
MIN_PROBABILITY = 1e-12  # before a logarithm is taken


@dataclass(frozen=True)
class Combined:
    """The posterior, and the annotators it rests on."""

    posterior: FloatArray  # (I, K)
    confusion: FloatArray  # (A, K, K) [annotator, true, given]
    population: FloatArray  # (K, K) [true, given] of an annotator who was not there


def combine(table: Annotations, proba: FloatArray, gold: IntArray | None) -> Combined:
    """The posterior q from the network's `proba` (I, K) and the table."""
    method, pseudo = DawidSkene(), _pseudo(table, gold)
    log_p = np.log(np.maximum(proba, MIN_PROBABILITY))

    def expect(given_true: FloatArray) -> FloatArray:
        votes = method.log_votes(table, Confusions(np.empty(0), np.maximum(given_true, MIN_PROBABILITY)))  # (N, K)
        summed = np.stack([np.bincount(table.item, votes[:, c], table.n_items) for c in range(table.n_classes)], axis=1)
        log_q = log_p + summed
        q = np.exp(log_q - logsumexp(log_q, axis=1, keepdims=True))
        if gold is not None:
            q[gold >= 0] = np.eye(table.n_classes)[gold[gold >= 0]]
        return np.asarray(q)

    q = proba
    for _ in range(MAX_PASSES):
        before, theta = q, _maximise(table, q, pseudo)
        q = expect(theta)
        if np.abs(q - before).max(initial=0) < TOLERANCE:
            break
    return _combined(table, q, theta, pseudo)


def annotators_by(table: Annotations, posterior: FloatArray, gold: IntArray | None) -> Combined:
    """Annotators by a given posterior (I, K): one M step."""
    pseudo = _pseudo(table, gold)
    return _combined(table, posterior, _maximise(table, posterior, pseudo), pseudo)


def _pseudo(table: Annotations, gold: IntArray | None) -> FloatArray:
    """(K, K) [given, true] those of Dawid-Skene."""
    method, counts = DawidSkene(), start_counts(table, gold, None)[0]
    return crowd_pseudo(counts, method.crowd_labels, method.smoothing, method.least_labels)


def _maximise(table: Annotations, q: FloatArray, pseudo: FloatArray) -> FloatArray:
    """(A, K, K) [annotator, given, true]."""
    theta = soft_counts(table, q) + pseudo
    return np.asarray(theta / theta.sum(axis=1, keepdims=True))


def _combined(table: Annotations, q: FloatArray, theta: FloatArray, pseudo: FloatArray) -> Combined:
    everyone = soft_counts(table, q).sum(axis=0) + pseudo
    population = (everyone / everyone.sum(axis=0)).T
    return Combined(q, np.ascontiguousarray(theta.transpose(0, 2, 1)), population)
