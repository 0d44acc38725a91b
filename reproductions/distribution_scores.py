"""Score how well a model predicts the label distributions of items whose labels it has not seen.

All scores are means over items, compared with the vote shares of each item. `leaked` marks scores of a protocol that
has read these votes (`leak_test_labels`, see `unknown_annotators`): such scores do not measure prediction.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from dissensus.common.types import FloatArray
from dissensus.evaluation.soft import SMOOTHING_EPSILON, inverse_kl_divergence, jensen_shannon, kl_divergence, manhattan
from dissensus.exceptions import BadParameter, DataError
from dissensus.learning import inputs as input_data
from dissensus.learning.objectives.labels import vote_weight
from dissensus.learning.size_search import winner_agreement
from dissensus.learning.unknown_annotators import leaking_proba
from dissensus.table.annotations import Annotations


@dataclass(frozen=True)
class DistributionScores:
    """Means over items of how predicted distributions differ from votes."""

    kl: float  # KL(votes ‖ predicted)
    inverse_kl: float  # KL(predicted ‖ votes smoothed by ε)
    jensen_shannon: float
    manhattan: float
    accuracy: float  # most probable class against the most frequent label; of ties the chance
    n_items: int
    leaked: bool = False  # The prediction has read the votes, so that the scores do not measure prediction.

    def __str__(self) -> str:
        mark = "LEAKED, the labels that are predicted were read: " if self.leaked else ""
        return f"{mark}KL {self.kl:.3f}, accuracy {self.accuracy:.3f}, Manhattan {self.manhattan:.3f}"


def compare_distributions(
    y: FloatArray, h: FloatArray, *, epsilon: float = SMOOTHING_EPSILON, leaked: bool = False
) -> DistributionScores:
    """Score predictions h (I, K) against votes y (I, K)."""
    return DistributionScores(
        kl=float(kl_divergence(y, h).mean()),
        inverse_kl=float(inverse_kl_divergence(y, h, epsilon=epsilon).mean()),
        jensen_shannon=float(jensen_shannon(y, h).mean()),
        manhattan=float(manhattan(y, h).mean()),
        accuracy=float(winner_agreement(y, h).mean()),
        n_items=len(y),
        leaked=leaked,
    )


def distribution_scores(
    model: Any,
    X: Any,
    table: Annotations,
    *,
    leak_test_labels: bool = False,
    epsilon: float = SMOOTHING_EPSILON,
    **inference: Any,
) -> DistributionScores:
    """Score `model.predict_proba(X)`, one row per `table.items`, against the votes of the items that have any.

    `leak_test_labels` is the paper's protocol for LDL-NM: z_A is found for every item from the very votes that it is
    judged by (Algorithm 4, with the keywords of `infer_annotators`). The result is marked, as
    it does not measure prediction.
    """
    table = table.with_classes(model.classes_)
    voted = np.flatnonzero(vote_weight(table) > 0)
    if not voted.size:
        raise DataError("no item of the table has labels; there is nothing to compare with.")
    X = input_data.align_rows(X, table)
    if inference and not leak_test_labels:
        raise BadParameter(f"{', '.join(sorted(inference))}: only for leak_test_labels=True.")
    y, X = table.soft_labels()[voted], input_data.take_rows(X, voted)
    h = leaking_proba(model, X, y, **inference) if leak_test_labels else model.predict_proba(X)
    return compare_distributions(y, h, epsilon=epsilon, leaked=leak_test_labels)
