"""The likelihood of every label for any pair of an item and an annotator, under a fitted model."""

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

MAX_CHUNK_ROWS = 100_000  # maximum number of rows whose confusion matrices are in memory; limits memory


@dataclass(frozen=True, eq=False)
class Likelihoods:
    """The belief about the classes of a model's items, and the likelihood of further labels.

    `matrices(items, annotators)` takes codes of the model, −1 if unseen, and returns P(label | class) in an array
    (n_items, n_annotators, K, K) [given, true]. The first axis has length 1 if `same_for_all_items` is True.
    """

    belief: FloatArray  # (I, K)
    matrices: Callable[[IntArray, IntArray], FloatArray]
    same_for_all_items: bool


def likelihoods(model: Aggregator) -> Likelihoods:
    """Return the belief about the items that independent labels would give, and the likelihood of further labels."""
    model._check_fitted()
    K, belief = model.classes_.size, model.untempered_posterior()
    if not model.labels_depend_on_items:
        return Likelihoods(
            belief, lambda _, annotators: put_given_label_first(model.annotator_confusions(annotators)[None]), True
        )

    def matrices(items: IntArray, annotators: IntArray) -> FloatArray:
        pairs = np.repeat(items, annotators.size * K), np.tile(np.repeat(annotators, K), items.size)
        given = model._label_probabilities(np.tile(np.eye(K), (items.size * annotators.size, 1)), *pairs)
        return put_given_label_first(given.reshape(items.size, annotators.size, K, K))

    return Likelihoods(belief, matrices, False)


def compute_posterior(model: Aggregator, table: Annotations, annotators: IntArray) -> FloatArray:
    """Return the posterior (I, K) of a new table; `annotators` (A,) are codes of the model, −1 if unseen."""
    from dissensus.models.confusion import run_e_step

    with open_in_memory(table, None, model.threads) as engine:  # type: ignore[attr-defined]
        return run_e_step(engine, model.prior_, model.annotator_confusions(annotators))[0]


def label_probabilities(model: Aggregator, posterior: FloatArray, item: IntArray, annotator: IntArray) -> FloatArray:
    """Return P(label | item, annotator), (n, K), for pairs given by codes (n,), −1 if unseen, and posteriors (n, K)."""
    # The last entry, which code −1 selects, is the population.
    everyone = model.annotator_confusions(np.append(np.arange(model.annotators_.size), -1))
    expected = np.empty_like(posterior)
    for start in range(0, len(posterior), MAX_CHUNK_ROWS):
        rows = slice(start, start + MAX_CHUNK_ROWS)
        expected[rows] = np.einsum("nc,nck->nk", posterior[rows], everyone[annotator[rows]])
    return expected


def put_given_label_first(confusion: FloatArray) -> FloatArray:
    """Return confusion matrices […, true, given] as […, given, true]."""
    return np.ascontiguousarray(np.swapaxes(confusion, -1, -2), np.float64)
