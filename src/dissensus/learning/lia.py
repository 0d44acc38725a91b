"""LIA for features, or for no features at all: the objective `lia` on layers of 16, with the schedule that suits it.

    model = LIA().fit(table, X)        x_i by an MLP
    model = LIA().fit(table)           LIA-E: a learnt vector per item
    model = LIA().fit(table, X, annotators=frame)      what is known of annotators: an unseen one has a competence too

A `CrowdClassifier` (`model_`) does the work; here are the questions that only LIA answers:

    competence[i, j] = Σ_k q_i(k) Q_ij[k, k]        P(j is right on i)
    difficulty_[i] = 1 − competence[i, an average annotator]

The equations are in `dissensus.learning.objectives.lia`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
import torch

from dissensus._types import FloatArray, IntArray, Names, OnStep
from dissensus.annotations import Annotations
from dissensus.base import arg_max
from dissensus.exceptions import BadParameter, DataError, NotFitted
from dissensus.learning import inputs as given
from dissensus.learning.annotator_features import Whom, find
from dissensus.learning.classifier import CrowdClassifier
from dissensus.learning.encoders import MLP, Encoder, ItemEmbedding
from dissensus.learning.objectives import LIAObjective
from dissensus.learning.objectives.lia import LIAHead
from dissensus.parameters import Parameters, is_whole

LEAST_EPOCHS = 20  # however many steps that makes: every round is to see all items
PAIRS = 2**20  # of an item and an annotator that are looked at together


class LIA(Parameters):
    """Truth, difficulty and competence.

    Parameters
    ----------
    hidden : sequence of int
        Widths of the layers that h and d share.
    item_size : int
        Of an item's vector, where there are no features.
    annotator_size, latent, difficulty, rounds, finetune, tuning, penalty, entropy, truth_counts, truth_in_posterior,
    residual_penalty, feature_penalty
        See `LIAObjective`.
    steps : int
        Steps in all, but at least 20 passes over the items.
    batch : int
        Annotations in a step, about.
    learning_rate, head_learning_rate : float
        Of the shared layers; of the last ones and of the annotators.
    weight_decay, dropout : float
        Of the layers.
    device, checkpoint
        As in `CrowdClassifier`.
    seed : int or None
    """

    classes_: Names
    items_: Names
    annotators_: Names
    posterior_: FloatArray  # (I, K) the E step
    proba_: FloatArray  # (I, K) h
    difficulty_: FloatArray  # (I,) P(an average annotator is wrong)
    embedding_: FloatArray  # (A, annotator_size)
    confusion_: FloatArray
    reliability_: FloatArray
    trace_: FloatArray
    n_iter_: int
    converged_: bool
    model_: CrowdClassifier

    def __init__(
        self,
        *,
        hidden: Sequence[int] = (16, 16, 16, 16),
        item_size: int = 16,
        annotator_size: int | None = 16,
        latent: int = 1,
        difficulty: bool = True,
        rounds: int = 10,
        finetune: Literal["joint", "per-annotation"] | None = "joint",
        tuning: float = 0.5,
        penalty: float = 0.25,
        entropy: float = 0.0,
        truth_counts: Literal["items", "annotations"] = "items",
        truth_in_posterior: bool = True,
        residual_penalty: float = 1.0,
        feature_penalty: float = 3.0,
        steps: int = 1000,
        batch: int = 1024,
        learning_rate: float = 0.003,
        head_learning_rate: float = 0.01,
        weight_decay: float = 0.0,
        dropout: float = 0.0,
        device: str = "cpu",
        checkpoint: str | Path | None = None,
        seed: int | None = 0,
    ):
        self.hidden = hidden
        self.item_size = item_size
        self.annotator_size = annotator_size
        self.latent = latent
        self.difficulty = difficulty
        self.rounds = rounds
        self.finetune: Literal["joint", "per-annotation"] | None = finetune
        self.tuning = tuning
        self.penalty = penalty
        self.entropy = entropy
        self.truth_counts: Literal["items", "annotations"] = truth_counts
        self.truth_in_posterior = truth_in_posterior
        self.residual_penalty = residual_penalty
        self.feature_penalty = feature_penalty
        self.steps = steps
        self.batch = batch
        self.learning_rate = learning_rate
        self.head_learning_rate = head_learning_rate
        self.weight_decay = weight_decay
        self.dropout = dropout
        self.device = device
        self.checkpoint = checkpoint
        self.seed = seed

    def fit(
        self,
        table: Annotations,
        X: Any = None,
        *,
        gold: IntArray | None = None,
        annotators: Any = None,
        on_step: OnStep | None = None,
    ) -> Self:
        """Learn from annotations and, where there are any, features.

        X (I, D) has one row per `table.items`; `annotators` is a frame with a column `annotator` and what is known of
        them, numbers or texts.
        """
        self.model_ = self.classifier(table, features=X is not None)
        self._inputs = table.items if X is None else X
        self.model_.fit(table, self._inputs, gold=gold, annotators=annotators, on_step=on_step)
        for name in RESULTS:
            setattr(self, name, getattr(self.model_, name))
        head = self.model_.network_.head
        assert isinstance(head, LIAHead)
        self.embedding_ = head.competence.rows().detach().cpu().numpy().copy()
        self.difficulty_ = 1 - self._competence(np.arange(self.items_.size), (np.array([-1]), None))[:, 0]
        return self

    def classifier(self, table: Annotations, *, features: bool) -> CrowdClassifier:
        """The classifier that `fit` trains, not fitted."""
        for name in ("steps", "batch"):
            if not (is_whole(getattr(self, name)) and getattr(self, name) >= 1):
                raise BadParameter(f"{name} must be at least 1, got {getattr(self, name)!r}.")
        objective = LIAObjective(**{name: getattr(self, name) for name in LIAObjective.parameter_names()})
        encoder: Encoder = MLP(hidden=self.hidden, dropout=self.dropout)
        if not features:
            encoder = ItemEmbedding(size=self.item_size, hidden=self.hidden, dropout=self.dropout)
        items = max(int(np.count_nonzero(np.diff(table.item_ptr))), 1)
        size = max(round(self.batch * items / max(table.n_annotations, 1)), 1)
        epochs = max(math.ceil(self.steps / math.ceil(items / size)), LEAST_EPOCHS)
        return CrowdClassifier(
            encoder=encoder, objective=objective, optimizer="amsgrad", learning_rate=self.learning_rate,
            head_learning_rate=self.head_learning_rate, weight_decay=self.weight_decay, epochs=epochs, batch_size=size,
            device=self.device, checkpoint=self.checkpoint, seed=self.seed,
        )  # fmt: skip

    # Answers ----------------------------------------------------------------------------------------------------------

    def predict_proba(self, X: Any = None) -> FloatArray:
        """(rows, K) P(class | x) by h alone; without X, `posterior_` of the fitted items."""
        self._check_fitted()
        if X is None:
            return self.posterior_
        if isinstance(self.model_.encoder_, ItemEmbedding):
            raise DataError("this LIA was fitted without features and knows nothing of new items; fit it with X.")
        return self.model_.predict_proba(X)

    def predict(self, X: Any = None) -> Names:
        """(rows,) the most probable class names."""
        proba = self.predict_proba(X)
        if X is None:
            best = arg_max(proba, self.items_, self.classes_, self.model_.tie_seed_)
            return np.asarray(self.classes_[best])
        return np.asarray(self.classes_[proba.argmax(axis=1)])

    def competence(self, items: Any = None, annotators: Any = None) -> FloatArray:
        """(items, annotators) P(the annotator is right on the item).

        Names of fitted items and of annotators, None for all; one who was not there is taken for an average one, or,
        where `annotators` is a frame with the columns that `fit` had, for one of its features.
        """
        self._check_fitted()
        return self._competence(given.item_codes(items, self.items_), self._whom(annotators))

    def confusion(self, items: Any = None, annotators: Any = None) -> FloatArray:
        """(items, annotators, K, K) [true, given] P(the annotator says this of the item | its class)."""
        self._check_fitted()
        items, whom = given.item_codes(items, self.items_), self._whom(annotators)
        K = self.classes_.size
        found = np.empty((items.size, whom[0].size, K, K))
        for at, pairs in self._pairs(items, whom):
            found[at] = pairs
        return found

    # Inside -----------------------------------------------------------------------------------------------------------

    def _competence(self, items: IntArray, whom: Whom) -> FloatArray:
        found = np.empty((items.size, whom[0].size))
        for at, pairs in self._pairs(items, whom):
            found[at] = np.einsum("ik,ijkk->ij", self.posterior_[items[at]], pairs)
        return found

    def _pairs(self, items: IntArray, whom: Whom) -> Any:
        """(rows of items, Q (rows, annotators, K, K)), some items at a time."""
        model = self.model_
        columns = model.encoder_.prepare(self._inputs)
        network, objective = model.network_.to(model._device).eval(), model.objective_
        at_once = max(PAIRS // max(whom[0].size, 1), 1)
        who = model._placed(*whom)
        for start in range(0, items.size, at_once):
            at = slice(start, start + at_once)
            with torch.inference_mode():
                batch = columns.take(torch.as_tensor(items[at].astype(np.int64)))
                z = network.encoder(**{name: value.to(model._device) for name, value in batch.items()})
                yield at, objective.pair_confusion(network.head, z, *who).cpu().double().numpy()

    def _whom(self, annotators: Any) -> Whom:
        if annotators is None:
            return np.arange(self.annotators_.size), None
        return find(annotators, self.annotators_, self.model_.annotator_features_)

    def _check_fitted(self) -> None:
        if not hasattr(self, "difficulty_"):
            raise NotFitted("this LIA is not fitted yet; call fit(table, X) first.")


RESULTS = (
    "classes_", "items_", "annotators_", "posterior_", "proba_", "confusion_", "reliability_", "trace_", "n_iter_",
    "converged_",
)  # fmt: skip
"""What is the classifier's own."""
