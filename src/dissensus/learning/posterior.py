"""Combine features and annotations into the posterior of the annotated items, and into confusions of annotators.

    q_i(c) ∝ p_c(x_i) Π_{j∈M_i} Θ_j[c, y_ij]

p is the network's prediction, Θ_j the confusion matrix of annotator j, learnt here as in Dawid-Skene (its M step and
pseudo-counts) with p in the place of the classes' shares: EM from q = p, a few passes. The confusions are learnt here
also where the objective models annotators: a crowd layer's matrices serve its loss (on LabelMe, with
`link="normalize"`, they are close to the identity and q far too sure: log loss 2.7 against 1.2 here). Where the network
learnt its items by heart, q is too sure all the same; `out_of_fold` asks networks that have not seen the item.
"""

from __future__ import annotations

from dissensus.common.types import FloatArray, IntArray
from dissensus.models.matrices import LearntMatrices, learn_matrices, matrices_by, vote_counts
from dissensus.models.methods.dawid_skene import DawidSkene, crowd_pseudo
from dissensus.table.annotations import Annotations


def combine(table: Annotations, proba: FloatArray, gold: IntArray | None) -> LearntMatrices:
    """The posterior q from the network's `proba` (I, K) and the table."""
    return learn_matrices(table, proba, _pseudo(table, gold), gold)


def annotators_by(table: Annotations, posterior: FloatArray, gold: IntArray | None) -> LearntMatrices:
    """Annotators by a given posterior (I, K): one M step."""
    return matrices_by(table, posterior, _pseudo(table, gold))


def _pseudo(table: Annotations, gold: IntArray | None) -> FloatArray:
    """(K, K) [true, given] those of Dawid-Skene."""
    method = DawidSkene()
    return crowd_pseudo(vote_counts(table, gold).labels, method.crowd_labels, method.smoothing, method.least_labels)
