"""LIA with or without features: the objective `lia` on two layers, with a schedule of its own.

    model = LIA().fit(table, X)        x_i by an MLP
    model = LIA().fit(table)           LIA-E: a learnt vector per item
    model = LIA().fit(table, X, annotators=frame)      features of annotators: also for unknown annotators

A `CrowdClassifier` (`classifier_`) does the work; only LIA also estimates

    competence[i, j] = Σ_k q_i(k) Q_ij[k, k]        P(j is right on i)
    difficulty_[i] = 1 − competence[i, an average annotator]

The equations are in `dissensus.learning.objectives.lia`. Layers, dropout and steps were chosen by the likelihood of
the annotations of new items (two folds of labelme, rte, sentiment_polarity, medical_causes; no gold): the paper's four
layers of 16, without dropout and with many steps, memorise such features.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import torch
from torch import Tensor

from dissensus.common.parameters import param
from dissensus.common.types import FloatArray, IntArray, Names, OnStep
from dissensus.learning import inputs as input_data
from dissensus.learning.annotator_features import AnnotatorCodes, match_annotators
from dissensus.learning.classifier import CrowdClassifier
from dissensus.learning.competence import annotator_embeddings, map_pairs, probability_right
from dissensus.learning.devices import DEVICE_PARAM
from dissensus.learning.encoders import Encoder
from dissensus.learning.encoders.item_embedding import ItemEmbedding
from dissensus.learning.encoders.mlp import MLP
from dissensus.learning.exceptions import NoFeatures
from dissensus.learning.inputs import to_vectors
from dissensus.learning.objectives.lia import LIAKeywords, LIAObjective
from dissensus.learning.sklearn_loop import Learner, order_arguments
from dissensus.learning.storage import set_attributes
from dissensus.learning.trainer import TrainingKeywords
from dissensus.models.base import Likelihoods, arg_max, put_given_first
from dissensus.table.annotations import Annotations

MIN_EPOCHS = 20  # passes over the items, also with few steps: every round needs all items


class LIA(Learner, LIAKeywords):
    """Model of truth, difficulty and competence.

    >>> from dissensus.table.simulate import simulate
    >>> crowd = simulate(80, 8, 2, seed=1)
    >>> table, X = crowd.annotations, np.eye(2)[crowd.truth]
    >>> model = LIA(steps=1, seed=0).fit(table, X)
    >>> model.predict().shape, model.predict_proba(X).shape, model.predict_annotations(table).shape
    ((80,), (80, 2), (400, 2))
    >>> model.competence().shape, model.confusion(annotators=[0]).shape
    ((80, 8), (80, 1, 2, 2))
    >>> type(model.classifier(table, features=True)).__name__
    'CrowdClassifier'
    """

    file_name: ClassVar[str] = "lia.safetensors"
    stored_kind: ClassVar[str] = "LIA"

    hidden: Sequence[int] = param((64, 64), "widths of the layers that h and d share")
    item_size: int = param(16, "size of an item's vector, where there are no features")
    steps: int = param(400, "steps in all, but at least 20 passes over the items", low=1)
    batch: int = param(1024, "annotations in a step, about; a step is of whole items", low=1)
    learning_rate: float = param(0.003, "learning rate of the shared layers", low=0)
    head_learning_rate: float = param(0.01, "of the last layers and the annotators", low=0)
    weight_decay: float = param(0.0, "weight decay of the layers", low=0)
    dropout: float = param(0.5, "dropout of the layers")
    device: str = replace(DEVICE_PARAM, default="cpu")
    seed: int | None = TrainingKeywords.declared()["seed"]  # type: ignore[assignment]
    checkpoint: str | Path | None = TrainingKeywords.declared()["checkpoint"]  # type: ignore[assignment]

    embedding_: FloatArray  # (A, annotator_size)
    posterior_: FloatArray  # (I, K) of the last E step
    classifier_: CrowdClassifier  # its results, such as `difficulty_` and `proba_` (h), are attributes of LIA as well

    def fit(
        self,
        table: Annotations,
        X: Any = None,
        *,
        gold: IntArray | None = None,
        annotators: Any = None,
        on_step: OnStep | None = None,
    ) -> Self:
        """Learn from annotations.

        `X` (I, D) are features, one row per `table.items`; without them, a vector is learnt for each item. `gold` (I,)
        are known classes, −1 if unknown. `annotators` is a frame with a column `annotator` and columns of features,
        numbers or texts.
        """
        table, X, gold = order_arguments(table, X, gold)
        input_data.check_table(table)
        X = None if X is None else input_data.align_rows(X, table)
        model = self.classifier(table, features=X is not None)
        self._inputs = table.items if X is None else np.array(to_vectors(X), np.float32)  # a copy, in case X changes
        self.classifier_ = model.fit(table, self._inputs, gold=gold, annotators=annotators, on_step=on_step)
        if X is not None:
            set_attributes(self.classifier_.encoder_, {"columns_": input_data.column_names(X)})
        self.embedding_ = annotator_embeddings(model)
        return self

    def classifier(self, table: Annotations, *, features: bool) -> CrowdClassifier:
        """Return the classifier that `fit` trains, not fitted."""
        self.check_parameters()
        objective = LIAObjective(**{name: getattr(self, name) for name in LIAObjective.parameter_names()})
        items = max(int(np.count_nonzero(np.diff(table.item_ptr))), 1)
        return self._make_classifier(objective, features=features, items=items, labels=table.n_annotations)

    def _make_classifier(
        self, objective: LIAObjective, *, features: bool, items: int, labels: float
    ) -> CrowdClassifier:
        """Return the classifier; the numbers of items and labels determine its epochs and batches."""
        layers: dict[str, Any] = {"hidden": self.hidden, "dropout": self.dropout}
        encoder = MLP(**layers) if features else ItemEmbedding(size=self.item_size, **layers)
        size = max(round(self.batch * items / max(labels, 1)), 1)
        epochs = max(math.ceil(self.steps / math.ceil(items / size)), MIN_EPOCHS)
        own = self.get_params(deep=False)
        same = {name: own[name] for name in CrowdClassifier.parameter_names() if name in own}
        return CrowdClassifier(
            encoder=encoder, objective=objective, optimizer="amsgrad", epochs=epochs, batch_size=size, **same
        )

    def __getattr__(self, name: str) -> Any:
        """Look a result up among those of the classifier."""
        if name.endswith("_") and not name.startswith("_") and "classifier_" in vars(self):
            return getattr(self.classifier_, name)
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    # Answers ----------------------------------------------------------------------------------------------------------

    def predict_proba(self, X: Any = None) -> FloatArray:
        """Return P(class | x) (rows, K) by h alone; without X, `posterior_` of the fitted items."""
        self._check_fitted()
        if X is None:
            return self.posterior_
        self._check_features(self.classifier_.encoder_)
        return self.classifier_.predict_proba(X)

    def predict(self, X: Any = None) -> Names:
        """Return the most probable class names (rows,)."""
        return self._most_probable_names(self.predict_proba(X), self.classes_, fitted=X is None)

    def competence(self, items: Any = None, annotators: Any = None) -> FloatArray:
        """(items, annotators) P(the annotator is right on the item).

        Names of fitted items and of annotators, None for all; an unknown annotator is treated as an average one, or,
        if `annotators` is a frame with the columns that `fit` had, as one with these features.
        """
        codes, whom = self._match_codes(items, annotators)
        return self._map_pairs(codes, whom, probability_right(self.posterior_[codes]))

    def confusion(self, items: Any = None, annotators: Any = None) -> FloatArray:
        """(items, annotators, K, K) [true, given] P(label of the annotator | class of the item)."""
        return self._map_pairs(*self._match_codes(items, annotators))

    def predict_annotations(self, table: Annotations) -> FloatArray:
        """(N, K) Σ_k q_i(k) Q_ij[k, ·] for the rows of a table of fitted items: P(label | item, annotator).

        q comes from the fitted labels, not from those of `table`: held-out rows are predicted.
        """
        self._check_fitted()
        table, model = table.with_classes(self.classes_), self.classifier_
        items, (codes, _) = self._match_codes(table.items, table.annotators)
        q = self.posterior_[items]

        def ask(z: Tensor, row: Tensor, at: IntArray) -> Tensor:
            assert isinstance(model.objective_, LIAObjective)
            who, _ = model.network_.to_device(codes[table.annotator[at]])
            confusion = model.objective_.pair_confusions(model.network_.head, z, row, who).cpu().double()
            return torch.einsum("nk,nkl->nl", torch.as_tensor(q[table.item[at]]), confusion)

        return model._predict_rows(model.encoder_.prepare(self._inputs[items]), table, ask)

    def likelihoods(self) -> Likelihoods:
        """Return the posterior of the items, and the likelihood of every label of any pair."""

        def of(items: IntArray, annotators: IntArray) -> FloatArray:
            return put_given_first(self._map_pairs(items, (annotators, None)))

        return Likelihoods(self.posterior_, of, False)

    # Storage ----------------------------------------------------------------------------------------------------------

    def _to_tree(self) -> dict[str, Any]:
        return {
            "parameters": {**self.get_params(deep=False), "checkpoint": None},
            "classifier": self.classifier_._to_tree(),
            "inputs": None if isinstance(self.classifier_.encoder_, ItemEmbedding) else self._inputs,
        }

    @classmethod
    def _from_tree(cls, tree: dict[str, Any], device: str) -> Self:
        model = cls(**{**tree["parameters"], "device": device})
        model.classifier_ = CrowdClassifier._from_tree(tree["classifier"], device)
        model.embedding_ = annotator_embeddings(model.classifier_)
        model._inputs = model.items_ if tree["inputs"] is None else tree["inputs"]
        return model

    # Inside -----------------------------------------------------------------------------------------------------------

    def _map_pairs(
        self, items: IntArray, whom: AnnotatorCodes, ask: Callable[[Tensor, Tensor], Tensor] = lambda Q, at: Q
    ) -> FloatArray:
        """Apply `ask` to pairs of fitted items and annotators; by default, return the confusion matrix of each pair."""
        some = self.classifier_.encoder_.prepare(self._inputs[items])  # only these: `recommend` asks for one at a time
        return map_pairs(self.classifier_, some, whom, ask)

    def _match_codes(self, items: Any, annotators: Any) -> tuple[IntArray, AnnotatorCodes]:
        """Return codes of items, and codes of annotators with features if they come in a frame; None stands for all."""
        self._check_fitted()
        return input_data.match_items(items, self.items_), match_annotators(
            annotators, self.annotators_, self.annotator_features_
        )

    def _check_features(self, encoder: Encoder) -> None:
        """Raise NoFeatures if new items cannot be told apart, because the model was fitted without features."""
        if isinstance(encoder, ItemEmbedding):
            raise NoFeatures(model=type(self).__name__)

    def _most_probable_names(self, proba: FloatArray, classes: Names, *, fitted: bool) -> Names:
        """Return the most probable classes (rows,); ties of fitted items are broken at random."""
        best = arg_max(proba, self.items_, classes, self.tie_seed_) if fitted else proba.argmax(axis=1)
        return np.asarray(classes[best])
