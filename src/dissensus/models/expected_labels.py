"""What a fitted model expects annotators to say: the class of each item, and labels given the class.

*Votes.* The share of the votes is no probability of being right. A vote is right to take the class with the most votes
if all annotators are equally good and err in any direction alike, and that model is asked instead:
q_i(c) ∝ exp(λ v_i(c)) with votes v and λ = log p (K − 1) / (1 − p), where p, how often a vote is right, is found by EM;
where votes weigh by skill, an annotator's λ does too.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeGuard

import numpy as np

from dissensus.common.types import FloatArray, IntArray
from dissensus.compute.kernels import redundancy as kernels
from dissensus.exceptions import BadParameter
from dissensus.models.base import Aggregator
from dissensus.models.methods.majority_vote import MajorityVote
from dissensus.models.methods.one_coin import OneCoin
from dissensus.models.methods.wawa import Wawa

VOTES_TOL, VOTES_STEPS = 1e-5, 500


@dataclass(frozen=True, eq=False)
class Answers:
    """The belief (I, K) about the model's items, and `of(items, annotators)`: (items or 1, annotators, K, K).

    Codes are the model's, −1 for one it has not seen; [given, true] P(label | class); `same`: for all items.
    """

    belief: FloatArray
    of: Callable[[IntArray, IntArray], FloatArray]
    same: bool


def answers(model: Any) -> Answers:
    """The belief and the likelihood of a fitted aggregator, `LIA` or `CrowdClassifier`."""
    if not isinstance(model, Aggregator):
        return _of_learner(model)
    model._check_fitted()
    if is_vote(model):
        return _of_votes(model)
    if type(model)._label_proba is Aggregator._label_proba:
        return Answers(model.posterior_, lambda _, annotators: _given(model._confusions(annotators)[None]), True)
    same, K = type(model)._label_proba is OneCoin._label_proba, model.classes_.size

    def of(items: IntArray, annotators: IntArray) -> FloatArray:
        items = np.array([-1]) if same else items
        pairs = np.repeat(items, annotators.size * K), np.tile(np.repeat(annotators, K), items.size)
        given = model._label_proba(np.tile(np.eye(K), (items.size * annotators.size, 1)), *pairs)
        return _given(given.reshape(items.size, annotators.size, K, K))

    return Answers(model.posterior_, of, same)


def is_vote(model: Any) -> TypeGuard[MajorityVote]:
    """Whether the posterior is a share of votes."""
    return isinstance(model, MajorityVote) and model.classes_.size > 1


def _given(confusion: FloatArray) -> FloatArray:
    """[…, true, given] → […, given, true]."""
    return np.ascontiguousarray(np.swapaxes(confusion, -1, -2), np.float64)


def _of_learner(model: Any) -> Answers:
    """Of `LIA`, whose annotators differ from item to item, or of `CrowdClassifier`; torch may not be installed."""
    if hasattr(model, "_check_fitted"):
        model._check_fitted()
    if not isinstance(getattr(model, "posterior_", None), np.ndarray):
        raise BadParameter(f"a fitted aggregator, LIA or CrowdClassifier is needed, got {type(model).__name__}.")
    if hasattr(model, "_pairs"):

        def of(items: IntArray, annotators: IntArray) -> FloatArray:
            return _given(np.concatenate([confusion for _, confusion in model._pairs(items, (annotators, None))]))

        return Answers(model.posterior_, of, False)
    everyone = np.concatenate([model.confusion_, model.population_confusion_[None]])
    return Answers(model.posterior_, lambda _, annotators: _given(everyone[annotators][None]), True)


def _of_votes(model: MajorityVote) -> Answers:
    """The model under which the vote is right: see the module."""
    votes, K = model.posterior_ * model.item_total_[:, None], model.classes_.size
    total, right = float(votes.sum()), 0.8
    for _ in range(VOTES_STEPS):
        scale = np.log(right * (K - 1) / (1 - right))
        before, right = right, max((kernels.votes_right(votes, scale) + 1) / (total + 2), 1 / K + 1e-3)
        if abs(right - before) < VOTES_TOL:
            break
    belief = np.exp(scale * (votes - votes.max(axis=1, keepdims=True)))
    belief /= belief.sum(axis=1, keepdims=True)
    empty = model.item_total_ == 0
    belief[empty] = model.posterior_[empty]

    def of(_: IntArray, annotators: IntArray) -> FloatArray:
        weight = np.ones(annotators.size)
        if isinstance(model, Wawa) and model.population_skill_ > 0:
            weight = np.append(model.skill_, model.population_skill_)[annotators] / model.population_skill_
        each = np.exp(-scale * weight)  # a wrong label to a right one
        coin = 1 / (1 + (K - 1) * each)
        return np.asarray(np.where(np.eye(K, dtype=bool), coin[:, None, None], (coin * each)[:, None, None])[None])

    return Answers(belief, of, True)
