"""LIA with or without features, which trains objective `lia` with two hidden layers and its own schedule.

    model = LIA().fit(table, X)                        an MLP over the features of items
    model = LIA().fit(table)                           LIA-E, with a trained vector per item
    model = LIA().fit(table, X, annotators=frame)      features of annotators, which also describe unknown ones

LIA trains a `CrowdClassifier` (`classifier_`), and also estimates

    competence[i, j] = Σ_k q_i(k) Q_ij[k, k]        P(j is right on i)
    difficulty_[i] = 1 − competence[i, average annotator]

The equations are in `dissensus.learning.objectives.lia`. The defaults of layers, dropout and steps maximise the
likelihood of annotations of new items (two folds of labelme, rte, sentiment_polarity and medical_causes, without gold).
The paper's network has four layers of 16 units, no dropout and many steps, and memorises such features.
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
from dissensus.models.base import Likelihoods, arg_max, put_given_label_first
from dissensus.table.annotations import Annotations

MIN_EPOCHS = 20  # minimum number of passes over the items, because every round of EM needs all items


class LIA(Learner, LIAKeywords):
    """Model of the classes, the difficulty of items and the competence of annotators.

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
    item_size: int = param(16, "length of an item's vector if there are no features")
    steps: int = param(400, "number of steps, but at least 20 passes over the items", low=1)
    batch: int = param(
        1024, "approximate number of annotations per step; a step has all annotations of its items", low=1
    )
    learning_rate: float = param(0.003, "learning rate of the shared layers", low=0)
    head_learning_rate: float = param(0.01, "learning rate of the last layers and of annotators", low=0)
    weight_decay: float = param(0.0, "weight decay of the layers", low=0)
    dropout: float = param(0.5, "dropout of the layers")
    device: str = replace(DEVICE_PARAM, default="cpu")
    seed: int | None = TrainingKeywords.declared()["seed"]  # type: ignore[assignment]
    checkpoint: str | Path | None = TrainingKeywords.declared()["checkpoint"]  # type: ignore[assignment]

    embedding_: FloatArray  # (A, annotator_size)
    posterior_: FloatArray  # (I, K) posterior of the last E step
    classifier_: CrowdClassifier  # Its results, such as `difficulty_` and `proba_` (h), are also attributes of LIA.

    def fit(
        self,
        table: Annotations,
        X: Any = None,
        *,
        gold: IntArray | None = None,
        annotators: Any = None,
        on_step: OnStep | None = None,
    ) -> Self:
        """Fit the model to annotations.

        Parameters
        ----------
        table : Annotations
            The annotations to train on.
        X : (I, D) features, optional
            One row per item, in the order of `table.items`. Without features, a vector is trained for each item.
        gold : (I,) int, optional
            Gold classes as codes into `table.classes`, and −1 for unknown.
        annotators : frame, optional
            A column `annotator`, and columns of features, which are numbers or texts.
        on_step : callable, optional
            Called after every epoch, as in `CrowdClassifier.fit`.

        Returns
        -------
        LIA
            The fitted model itself.
        """
        table, X, gold = order_arguments(table, X, gold)
        input_data.check_table(table)
        X = None if X is None else input_data.align_rows(X, table)
        model = self.classifier(table, features=X is not None)
        self._inputs = table.items if X is None else np.array(to_vectors(X), np.float32)  # X may change later.
        self.classifier_ = model.fit(table, self._inputs, gold=gold, annotators=annotators, on_step=on_step)
        if X is not None:
            set_attributes(self.classifier_.encoder_, {"columns_": input_data.column_names(X)})
        self.embedding_ = annotator_embeddings(model)
        return self

    def classifier(self, table: Annotations, *, features: bool) -> CrowdClassifier:
        """Return the unfitted classifier that `fit` trains."""
        self.check_parameters()
        objective = LIAObjective(**{name: getattr(self, name) for name in LIAObjective.parameter_names()})
        items = max(int(np.count_nonzero(np.diff(table.item_ptr))), 1)
        return self._make_classifier(objective, features=features, items=items, labels=table.n_annotations)

    def _make_classifier(
        self, objective: LIAObjective, *, features: bool, items: int, labels: float
    ) -> CrowdClassifier:
        """Return the classifier, with epochs and batch size computed from the numbers of items and labels."""
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
        """Return a result of the classifier."""
        if name.endswith("_") and not name.startswith("_") and "classifier_" in vars(self):
            return getattr(self.classifier_, name)
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    # Answers ----------------------------------------------------------------------------------------------------------

    def predict_proba(self, X: Any = None) -> FloatArray:
        """Predict P(class | x) (rows, K) by h alone; without X, return `posterior_` of the fitted items."""
        self._check_fitted()
        if X is None:
            return self.posterior_
        self._check_features(self.classifier_.encoder_)
        return self.classifier_.predict_proba(X)

    def predict(self, X: Any = None) -> Names:
        """Return the most probable class names (rows,)."""
        return self._most_probable_names(self.predict_proba(X), self.classes_, fitted=X is None)

    def competence(self, items: Any = None, annotators: Any = None) -> FloatArray:
        """Return P(the annotator is right on the item) (items, annotators).

        Parameters
        ----------
        items : names, optional
            Fitted items; None stands for all.
        annotators : names or frame, optional
            Annotators; None stands for all. An unknown name is treated as the average annotator. A frame with the
            columns of `fit` describes annotators by their features.
        """
        codes, whom = self._match_codes(items, annotators)
        return self._map_pairs(codes, whom, probability_right(self.posterior_[codes]))

    def confusion(self, items: Any = None, annotators: Any = None) -> FloatArray:
        """Return P(label | class) (items, annotators, K, K) [true class, given label] of all pairs."""
        return self._map_pairs(*self._match_codes(items, annotators))

    def predict_annotations(self, table: Annotations) -> FloatArray:
        """Predict P(label | item, annotator) (N, K) for the rows of a table of fitted items.

        The prediction is Σ_k q_i(k) Q_ij[k, ·], where q is the posterior given the labels of the fit. The labels of
        `table` are not used.
        """
        self._check_fitted()
        table, model = table.with_classes(self.classes_), self.classifier_
        items, (codes, _) = self._match_codes(table.items, table.annotators)
        q = self.posterior_[items]

        def predict_labels(z: Tensor, row: Tensor, at: IntArray) -> Tensor:
            assert isinstance(model.objective_, LIAObjective)
            placed_codes, _ = model.network_.to_device(codes[table.annotator[at]])
            confusion = model.objective_.pair_confusions(model.network_.head, z, row, placed_codes).cpu().double()
            return torch.einsum("nk,nkl->nl", torch.as_tensor(q[table.item[at]]), confusion)

        return model._predict_rows(model.encoder_.prepare(self._inputs[items]), table, predict_labels)

    def likelihoods(self) -> Likelihoods:
        """Return the posterior of the items, and the likelihood of every label for pairs of items and annotators."""

        def label_likelihood(items: IntArray, annotators: IntArray) -> FloatArray:
            return put_given_label_first(self._map_pairs(items, (annotators, None)))

        return Likelihoods(self.posterior_, label_likelihood, False)

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
        self, items: IntArray, whom: AnnotatorCodes, compute: Callable[[Tensor, Tensor], Tensor] = lambda Q, at: Q
    ) -> FloatArray:
        """Apply `compute` to pairs of fitted items and annotators; by default, return each pair's confusion matrix."""
        chunk = self.classifier_.encoder_.prepare(self._inputs[items])  # `recommend` passes one item at a time.
        return map_pairs(self.classifier_, chunk, whom, compute)

    def _match_codes(self, items: Any, annotators: Any) -> tuple[IntArray, AnnotatorCodes]:
        """Return codes of items, and codes of annotators with their features from a frame; None stands for all."""
        self._check_fitted()
        return input_data.match_items(items, self.items_), match_annotators(
            annotators, self.annotators_, self.annotator_features_
        )

    def _check_features(self, encoder: Encoder) -> None:
        """Raise NoFeatures if the model was fitted without features, because it cannot predict new items."""
        if isinstance(encoder, ItemEmbedding):
            raise NoFeatures(model=type(self).__name__)

    def _most_probable_names(self, proba: FloatArray, classes: Names, *, fitted: bool) -> Names:
        """Return the most probable class names (rows,); ties are broken at random for fitted items."""
        best = arg_max(proba, self.items_, classes, self.tie_seed_) if fitted else proba.argmax(axis=1)
        return np.asarray(classes[best])
