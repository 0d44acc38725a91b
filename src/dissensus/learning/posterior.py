"""Combine features and annotations into the posterior of the annotated items, and the confusions of annotators.

    q_i(c) ∝ p_c(x_i)^τ Π_{j∈M_i} Θ_j[c, y_ij]

p is the network's prediction, Θ_j the confusion matrix of annotator j, learnt as in Dawid-Skene (its M step and
pseudo-counts) with p in place of the class shares: EM from q = p, a few passes. The confusions are also learnt here for
objectives that model annotators: a crowd layer's matrices serve its loss (on LabelMe, with `link="normalize"`, they are
close to the identity, and q is overconfident: log loss 2.7 instead of 1.2). If the network has memorised its items, q
is overconfident all the same; `out_of_fold` uses networks that have not seen the item.

If p predicts votes, it includes the annotators' errors, and Θ would count them twice. The power τ sharpens p to the
class: 1 or one of `POWERS`, by the likelihood of the annotations. If p predicts classes, τ = 1. Votes do not separate
doubt about the class from errors of annotators: if all of it were doubt, the posterior would be q^(1/τ), of the same
class. We use q^(1/√τ), between the two: on LabelMe, where annotators make the same errors, its log loss is 0.68 and
that of q 1.28 (τ = 1: 0.90); with simulated annotators who err independently it stays near the best.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from scipy.special import softmax

from dissensus.common.types import FloatArray, IntArray
from dissensus.models.confusion import MIN_BEFORE
from dissensus.models.matrices import FittedMatrices, estimate_matrices, fit_matrices, vote_counts
from dissensus.models.methods.dawid_skene import DawidSkene, crowd_pseudo_counts
from dissensus.table.annotations import Annotations

POWERS = (2, 4, 8, 16)  # candidates after 1, tried until the likelihood of the annotations falls


def combine_posterior(
    table: Annotations, proba: FloatArray, gold: IntArray | None, of_votes: bool = False
) -> tuple[FittedMatrices, int]:
    """Return the posterior q given the network's `proba` (I, K), of classes or `of_votes`, and the power τ."""
    pseudo, log_p = _pseudo_counts(table, gold), np.log(np.maximum(proba, MIN_BEFORE))
    learnt, power = fit_matrices(table, proba, pseudo, gold), 1
    for greater in POWERS if of_votes else ():
        other = fit_matrices(table, softmax(greater * log_p, axis=1), pseudo, gold)
        if other.evidence <= learnt.evidence:
            break
        learnt, power = other, greater
    softened = learnt.posterior ** (power**-0.5)
    return replace(learnt, posterior=softened / softened.sum(axis=1, keepdims=True)), power


def estimate_confusions(table: Annotations, posterior: FloatArray, gold: IntArray | None) -> FittedMatrices:
    """Estimate annotators given a posterior (I, K): one M step."""
    return estimate_matrices(table, posterior, _pseudo_counts(table, gold))


def _pseudo_counts(table: Annotations, gold: IntArray | None) -> FloatArray:
    """Return the pseudo-counts (K, K) [true, given] of Dawid-Skene."""
    method = DawidSkene()
    return crowd_pseudo_counts(
        vote_counts(table, gold).label_counts, method.crowd_labels, method.smoothing, method.least_labels
    )
