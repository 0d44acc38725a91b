"""What a model expects of labels: the likelihood of every label of every pair of an item and an annotator."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dissensus.common.types import FloatArray, IntArray
from dissensus.compute.engines import open_in_memory
from dissensus.table.annotations import Annotations

if TYPE_CHECKING:
    from dissensus.models.base import Aggregator

EXPECTED_ROWS = 100_000  # rows whose confusion matrices are looked up at a time


@dataclass(frozen=True, eq=False)
class Likelihoods:
    """The belief (I, K) about a model's items, and `of(items, annotators)`: (items or 1, annotators, K, K).

    Codes are the model's, −1 for an unseen one; [given, true] P(label | class); `same`: the same for all items.
    """

    belief: FloatArray
    matrices: Callable[[IntArray, IntArray], FloatArray]
    same_for_all_items: bool


def likelihoods(model: Aggregator) -> Likelihoods:
    """Return the belief about the items, as of independent labels, and the likelihood of every label of any pair."""
    model._check_fitted()
    K, belief = model.classes_.size, model.untempered_posterior()
    if not model.labels_depend_on_items:
        return Likelihoods(
            belief, lambda _, annotators: put_given_first(model.annotator_confusions(annotators)[None]), True
        )

    def of(items: IntArray, annotators: IntArray) -> FloatArray:
        pairs = np.repeat(items, annotators.size * K), np.tile(np.repeat(annotators, K), items.size)
        given = model._label_probabilities(np.tile(np.eye(K), (items.size * annotators.size, 1)), *pairs)
        return put_given_first(given.reshape(items.size, annotators.size, K, K))

    return Likelihoods(belief, of, False)


def compute_posterior(model: Aggregator, table: Annotations, annotators: IntArray) -> FloatArray:
    """(I, K) posterior of a new table over the same classes; `annotators` (A,) codes, −1 unseen."""
    from dissensus.models.confusion import run_e_step

    with open_in_memory(table, None, model.threads) as engine:  # type: ignore[attr-defined]
        return run_e_step(engine, model.prior_, model.annotator_confusions(annotators))[0]


def label_probabilities(model: Aggregator, posterior: FloatArray, item: IntArray, annotator: IntArray) -> FloatArray:
    """(n, K) P(label | item, annotator) of n pairs; posterior (n, K) of their items, codes (n,), −1 unseen."""
    everyone = model.annotator_confusions(
        np.append(np.arange(model.annotators_.size), -1)
    )  # −1, unseen, takes the last
    expected = np.empty_like(posterior)
    for start in range(0, len(posterior), EXPECTED_ROWS):
        rows = slice(start, start + EXPECTED_ROWS)
        expected[rows] = np.einsum("nc,nck->nk", posterior[rows], everyone[annotator[rows]])
    return expected


def put_given_first(confusion: FloatArray) -> FloatArray:
    """Return […, given, true] of […, true, given]."""
    return np.ascontiguousarray(np.swapaxes(confusion, -1, -2), np.float64)
