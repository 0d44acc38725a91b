"""Difficulty of items and competence of annotators under LIA.

    difficulty_[i] = 1 − Σ_k q_i(k) Q_i·[k, k]         P(an average annotator is wrong on i)
    competence_[j] = mean_i Σ_k q_i(k) Q_ij[k, k]      P(j is right): on all items, the easiest and the hardest quarter

q is the posterior (I, K). The means are over the training items. If there are many items, the means are over a sample,
which is taken at regular steps in the order of difficulty, so that the number of (item, annotator) pairs stays small.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from dissensus.common.types import FloatArray, IntArray
from dissensus.learning.annotator_features import AnnotatorCodes
from dissensus.learning.batches import Batch, BatchColumns
from dissensus.learning.network import MAX_CONFUSION_ENTRIES
from dissensus.learning.objectives.lia import LIAHead, LIAObjective
from dissensus.learning.trainer import PREDICTION_BATCHES

if TYPE_CHECKING:
    from dissensus.learning.classifier import CrowdClassifier

MAX_SAMPLED_ITEMS = 200  # maximum number of items in the sample
MIN_SAMPLED_ITEMS = 12  # minimum number of items in the sample, for tables with many annotators
MAX_SAMPLED_ENTRIES = 2**26  # maximum sampled items × annotators × K × K above the minimum sample
DIFFICULTY_LEVELS = ("all", "easiest", "hardest")
"""Columns of `competence_`: all items of the sample, the easiest quarter and the hardest quarter."""


def map_pairs(
    model: CrowdClassifier,
    columns: BatchColumns,
    whom: AnnotatorCodes,
    compute: Callable[[Tensor, Tensor], Tensor],
    rows: IntArray | None = None,
) -> FloatArray:
    """Apply `compute` to the confusion matrices of all pairs in chunks, and return the results (items, annotators, …).

    `compute` takes Q (B, J, K, K) for B items and J annotators, and the rows (B,) of these items in `columns`.
    """
    objective, network = model.objective_, model.network_.to(model.torch_device())
    assert isinstance(objective, LIAObjective)
    (codes, features), pairs, parts = whom, max(MAX_CONFUSION_ENTRIES // objective.n_classes_**2, 1), []
    places = BatchColumns(at=torch.arange(len(columns)))
    for start in range(0, max(codes.size, 1), pairs):
        chunk = slice(start, start + pairs)
        placed = network.to_device(codes[chunk], None if features is None else features[chunk])

        def compute_batch(batch: Batch, at: Batch, placed: Any = placed) -> Tensor:
            return compute(
                objective.all_pair_confusions(network.head, network.encoder(**batch), *placed), at["at"].cpu()
            )

        at_once = min(max(pairs // max(len(placed[0]), 1), 1), PREDICTION_BATCHES * model.batch_size)
        parts.append(network.apply_in_batches(compute_batch, columns, places, rows=rows, at_once=at_once))
    return np.concatenate(parts, axis=1)


def probability_right(posterior: FloatArray) -> Callable[[Tensor, Tensor], Tensor]:
    """Return a function for `map_pairs` that computes P(right) = Σ_k q_i(k) Q_ij[k, k] (B, J) from the posterior."""
    q = torch.as_tensor(posterior)
    return lambda confusion, at: torch.einsum("ik,ijkk->ij", q[at], confusion.cpu().double())


def difficulty_and_competence(
    model: CrowdClassifier, inputs: BatchColumns
) -> tuple[FloatArray, FloatArray] | tuple[None, None]:
    """Return difficulty (I,) and competence (A, 3) for objective "lia", or (None, None) for other objectives."""
    if not isinstance(model.objective_, LIAObjective):
        return None, None
    right, A = probability_right(model.posterior_), model.annotators_.size
    difficulty = 1 - map_pairs(model, inputs, (np.array([-1]), None), right)[:, 0]
    rows = sample_items(difficulty, np.flatnonzero(model.labelled_), A, model.classes_.size)
    by_item = map_pairs(model, inputs, (np.arange(A), None), right, rows)  # (S, A)
    quarter = max(round(rows.size / 4), 1)
    return difficulty, np.stack(
        [chunk.mean(axis=0) for chunk in (by_item, by_item[:quarter], by_item[-quarter:])], axis=1
    )


def sample_items(difficulty: FloatArray, among: IntArray, n_annotators: int, n_classes: int) -> IntArray:
    """Return the items `among`, or a sample at regular steps of difficulty if they are too many (S,), easiest first."""
    order = among[np.argsort(difficulty[among], kind="stable")]
    size = max(MAX_SAMPLED_ENTRIES // max(n_annotators * n_classes**2, 1), MIN_SAMPLED_ITEMS)
    size = min(size, MAX_SAMPLED_ITEMS, order.size)
    return np.asarray(order[((np.arange(size) + 0.5) * order.size / max(size, 1)).astype(np.int64)])


def annotator_embeddings(model: Any) -> FloatArray:
    """Return the annotators' embeddings e_j (A, E) in a fitted CrowdClassifier with objective "lia"."""
    head = model.network_.head
    assert isinstance(head, LIAHead)
    with torch.no_grad():
        return np.asarray(head.competence.embeddings().cpu().numpy().copy())
