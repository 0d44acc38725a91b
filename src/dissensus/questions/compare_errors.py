"""Compare the errors of two predictions: count the items that both, one or none of two models predict correctly."""

from __future__ import annotations

import numpy as np

from dissensus.common.types import IntArray
from dissensus.evaluation.error_cells import ErrorCells, error_cells
from dissensus.models.base import check_gold
from dissensus.questions.exceptions import NoComparableItem
from dissensus.questions.predictions import AlignedPredictions, Predictions, convert_names_to_text
from dissensus.table.annotations import Annotations


def compare_errors(
    first: Predictions, second: Predictions, table: Annotations, gold: IntArray | None = None
) -> ErrorCells:
    """Count the items of a table for which both, one or none of two predictions are correct.

    The correct class is the gold class or, without gold, the most frequent label. Items without votes, with tied
    predictions or without a unique correct class are skipped. The kurtosis is computed from the softmax of the votes.

    >>> from dissensus.table.simulate import simulate
    >>> data = simulate(90, 9, 3, seed=1)
    >>> votes = Predictions.read(data.annotations.soft_labels(), data.annotations)
    >>> truth = Predictions.read(np.eye(3)[data.truth], data.annotations)
    >>> compare_errors(votes, truth, data.annotations, data.truth).count.tolist()
    [[75, 0], [6, 0]]
    """
    known = convert_names_to_text(table, (first, second))
    choices = [AlignedPredictions.align(prediction_a, known).answer_shares for prediction_a in (first, second)]
    votes = known.votes()
    if gold is None:
        winner = (votes == votes.max(axis=1, keepdims=True)) & (votes > 0)
        truth = np.where(winner.sum(axis=1) == 1, votes.argmax(axis=1), -1)
    else:
        checked = check_gold(gold, table)
        truth = np.full(table.n_items, -1) if checked is None else checked
    chosen = np.flatnonzero(
        (votes.sum(axis=1) > 0) & (truth >= 0) & np.all([choice.max(axis=1) == 1 for choice in choices], axis=0)
    )
    if not chosen.size:
        raise NoComparableItem()
    prediction_a, prediction_b = (choice.argmax(axis=1)[chosen] for choice in choices)
    return error_cells(prediction_a, prediction_b, truth[chosen], known.soft_labels("softmax")[chosen])
