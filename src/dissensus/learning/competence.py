"""How hard items are and how able annotators are, by a network that models pairs of them (LIA).

    difficulty_[i] = 1 − Σ_k q_i(k) Q_i·[k, k]         P(an average annotator is wrong on i)
    competence_[j] = mean_i Σ_k q_i(k) Q_ij[k, k]      P(j is right): on all items, the easiest and the hardest quarter

q is the posterior (I, K). The means are over the items that teach or, where these are many, over a sample that stands
evenly in their order of difficulty: all of items × annotators is never looked at.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from dissensus.common.types import FloatArray, IntArray
from dissensus.learning.batches import Batch, Columns
from dissensus.learning.objectives.lia import LIAHead, LIAObjective

if TYPE_CHECKING:
    from dissensus.learning.classifier import CrowdClassifier

MAX_SAMPLED_ITEMS = 200
MIN_SAMPLED_ITEMS = 12  # however many annotators there are
MAX_NUMBERS = 2**26  # items of the sample × annotators × K × K, while the sample is not too small
NUMBERS_AT_ONCE = 2**22
WHERE = ("all", "easiest", "hardest")
"""Columns of `competence_`; the last two are quarters of the sample."""


def difficulty_and_competence(
    model: CrowdClassifier, inputs: Columns
) -> tuple[FloatArray, FloatArray] | tuple[None, None]:
    """Compute difficulty (I,) and competence (A, 3) of a classifier with objective "lia"; None, None for others."""
    objective, head, encoder = model.objective_, model.network_.head, model.network_.encoder
    if not (isinstance(objective, LIAObjective) and isinstance(head, LIAHead)):
        return None, None

    def average(batch: Batch) -> Tensor:
        someone = torch.tensor([-1], device=next(iter(batch.values())).device)
        return objective.pair_confusion(head, encoder(**batch), someone)[:, 0].diagonal(dim1=-2, dim2=-1)

    def hardness(batch: Batch) -> Tensor:
        hard = head.hardness(encoder(**batch))
        assert hard is not None
        return hard.flatten(1)

    difficulty = 1 - (model.posterior_ * model._ask(average, inputs)).sum(axis=1)
    among = np.flatnonzero(model.teaches_)
    rows = sample(difficulty, among, objective.labels_given_.size, objective.n_classes_)
    hard = None
    if objective.difficulty:
        found = model._ask(hardness, inputs, rows=rows)  # (S, K · K · L)
        hard = torch.as_tensor(found.astype(np.float32)).reshape(-1, *head.competence.shape).to(model.network_.device)

    def right(annotators: IntArray) -> FloatArray:
        with torch.inference_mode():
            codes, _ = model.network_.placed(annotators)
            confusion = objective.confusion_by(head, hard, codes)  # (S, annotators, K, K)
            return np.asarray(confusion.diagonal(dim1=-2, dim2=-1).cpu().double().numpy())

    return difficulty, competence(model.posterior_[rows], objective.labels_given_.size, right)


def sample(difficulty: FloatArray, among: IntArray, n_annotators: int, n_classes: int) -> IntArray:
    """Return items (S,), the easiest first: all of `among`, or some that stand evenly in their order of difficulty."""
    order = among[np.argsort(difficulty[among], kind="stable")]
    size = sample_size(order.size, n_annotators, n_classes)
    return np.asarray(order[((np.arange(size) + 0.5) * order.size / max(size, 1)).astype(np.int64)])


def sample_size(n_items: int, n_annotators: int, n_classes: int) -> int:
    """Say how many of the items that teach are in the sample."""
    return min(max(MAX_NUMBERS // max(n_annotators * n_classes**2, 1), MIN_SAMPLED_ITEMS), MAX_SAMPLED_ITEMS, n_items)


def competence(posterior: FloatArray, n_annotators: int, right: Callable[[IntArray], FloatArray]) -> FloatArray:
    """Compute competence (A, 3), columns as in WHERE, from a sample of items, the easiest first; posterior (S, K).

    `right(annotators)` is P(right | class) as (S, annotators, K), or (1, annotators, K) where items do not matter.
    """
    S, K = posterior.shape
    quarter = max(round(S / 4), 1)
    means = np.zeros((3, S))
    means[0], means[1, :quarter], means[2, S - quarter :] = 1 / S, 1 / quarter, 1 / quarter
    weights = means[:, :, None] * posterior  # (3, S, K)
    found = np.empty((n_annotators, 3))
    at_once = max(NUMBERS_AT_ONCE // max(S * K * K, 1), 1)
    for start in range(0, n_annotators, at_once):
        some = np.arange(start, min(start + at_once, n_annotators))
        answer = right(some)
        own = weights.sum(axis=1, keepdims=True) if len(answer) < S else weights
        found[some] = np.einsum("wsk,sjk->jw", own, answer)
    return found


def embedding(model: Any) -> FloatArray:
    """Return e_j (A, E) of a fitted CrowdClassifier with objective "lia"."""
    head = model.network_.head
    assert isinstance(head, LIAHead)
    with torch.no_grad():
        return np.asarray(head.competence.rows().cpu().numpy().copy())
