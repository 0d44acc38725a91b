"""Combine features and annotations into the posterior of the annotated items, and into confusions of annotators.

    q_i(c) ∝ p_c(x_i)^τ Π_{j∈M_i} Θ_j[c, y_ij]

p is the network's prediction, Θ_j the confusion matrix of annotator j, learnt here as in Dawid-Skene (its M step and
pseudo-counts) with p in the place of the classes' shares: EM from q = p, a few passes. The confusions are learnt here
also where the objective models annotators: a crowd layer's matrices serve its loss (on LabelMe, with
`link="normalize"`, they are close to the identity and q far too sure: log loss 2.7 against 1.2 here). Where the network
learnt its items by heart, q is too sure all the same; `out_of_fold` asks networks that have not seen the item.

Where p predicts votes, it is the class seen through the annotators, and Θ would count their errors a second time. The
power τ makes p as sure as the class is: 1 or one of `POWERS`, by which the annotations are most probable. Where p
predicts classes, τ = 1. Votes do not tell doubt about the class from errors of annotators: were all of it doubt, the
answer would be q^(1/τ), of the same class. It is q^(1/√τ), between the two: on LabelMe, where errors are alike, q has
log loss 1.28 and that 0.68 (τ = 1: 0.90); with simulated annotators who err independently it stays near the best.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from scipy.special import softmax

from dissensus.common.types import FloatArray, IntArray
from dissensus.models.confusion import MIN_BEFORE
from dissensus.models.matrices import LearntMatrices, learn_matrices, matrices_by, vote_counts
from dissensus.models.methods.dawid_skene import DawidSkene, crowd_pseudo
from dissensus.table.annotations import Annotations

POWERS = (2, 4, 8, 16)  # that are tried after 1, until the annotations become less probable


def combine(
    table: Annotations, proba: FloatArray, gold: IntArray | None, of_votes: bool = False
) -> tuple[LearntMatrices, int]:
    """The posterior q from the network's `proba` (I, K), of classes or `of_votes`, and the table; and the power τ."""
    pseudo, log_p = _pseudo(table, gold), np.log(np.maximum(proba, MIN_BEFORE))
    learnt, power = learn_matrices(table, proba, pseudo, gold), 1
    for greater in POWERS if of_votes else ():
        other = learn_matrices(table, softmax(greater * log_p, axis=1), pseudo, gold)
        if other.evidence <= learnt.evidence:
            break
        learnt, power = other, greater
    softened = learnt.posterior ** (power**-0.5)
    return replace(learnt, posterior=softened / softened.sum(axis=1, keepdims=True)), power


def annotators_by(table: Annotations, posterior: FloatArray, gold: IntArray | None) -> LearntMatrices:
    """Annotators by a given posterior (I, K): one M step."""
    return matrices_by(table, posterior, _pseudo(table, gold))


def _pseudo(table: Annotations, gold: IntArray | None) -> FloatArray:
    """(K, K) [true, given] those of Dawid-Skene."""
    method = DawidSkene()
    return crowd_pseudo(vote_counts(table, gold).labels, method.crowd_labels, method.smoothing, method.least_labels)
