"""LIA for features, or for no features at all: the objective `lia` on two layers, with the schedule that suits it.

    model = LIA().fit(table, X)        x_i by an MLP
    model = LIA().fit(table)           LIA-E: a learnt vector per item
    model = LIA().fit(table, X, annotators=frame)      what is known of annotators: an unseen one has a competence too

A `CrowdClassifier` (`models_`, one per seed) does the work; here are the questions that only LIA answers:

    competence[i, j] = Σ_k q_i(k) Q_ij[k, k]        P(j is right on i)
    difficulty_[i] = 1 − competence[i, an average annotator]

The equations are in `dissensus.learning.objectives.lia`. Layers, dropout and steps were chosen by the likelihood of
the annotations of new items (two folds of labelme, rte, sentiment_polarity, medical_causes; no gold): the paper's, four
layers of 16 without dropout and many steps, learn such features by heart.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from dissensus.common.parameters import param
from dissensus.common.progress import waiting
from dissensus.common.types import FloatArray, IntArray, Names, OnStep
from dissensus.exceptions import BadParameter, DataError
from dissensus.learning import inputs as given
from dissensus.learning.annotator_features import Whom
from dissensus.learning.batches import Batch
from dissensus.learning.by_annotation import CELLS, ask_rows
from dissensus.learning.classifier import CrowdClassifier
from dissensus.learning.competence import embedding
from dissensus.learning.devices import DEVICE
from dissensus.learning.encoders import MLP, Encoder, ItemEmbedding
from dissensus.learning.inputs import vectors
from dissensus.learning.objectives.lia import LIAKeywords, LIAObjective
from dissensus.learning.pairs import PairLearner
from dissensus.learning.sklearn_loop import Learner, table_first
from dissensus.learning.trainer import Training
from dissensus.learning.tuning import SPLITS, Tuned, tune
from dissensus.models.base import Likelihoods, arg_max, given_first
from dissensus.table.annotations import Annotations

MIN_EPOCHS = 20  # passes over the items, however few steps are asked for: every round is to see all items
CHOICES: dict[str, tuple[Any, ...]] = {
    "difficulty": (True, False),
    "penalty": (0.0, 0.01, 0.06),
    "residual_penalty": (0.3, 1.0, 3.0),
    "difficulty_penalty": (1.0, 3.0, 10.0),
    "hidden": ((16, 16, 16, 16), (64, 64)),
    "dropout": (0.0, 0.5),
    "entropy": (0.0, 0.1),
    "weight_decay": (0.0, 0.001),
    "annotator_size": (4, 16),
    "latent": (1, 2),
}
"""What `tune=True` tries, in this order."""


class LIALearner(LIAKeywords, PairLearner):
    """Base of LIA and LIA-ML: both set the keywords of a `CrowdClassifier`, and ask about pairs.

    Layers, dropout and weight decay were chosen by the likelihood of held-out annotations, and of those of new items.
    Without dropout, features of hundreds of numbers are learnt by heart, above all where items have few labels.
    """

    hidden: Sequence[int] = param((64, 64), "widths of the layers that h and d share")
    item_size: int = param(16, "size of an item's vector, where there are no features")
    steps: int = param(400, "steps in all, but at least 20 passes over the items", low=1)
    batch: int = param(1024, "annotations (of one question) in a step, about; a step is of whole items", low=1)
    learning_rate: float = param(0.003, "learning rate of the shared layers", low=0)
    head_learning_rate: float = param(0.01, "of the last layers, the annotators and the classes' embeddings", low=0)
    weight_decay: float = param(0.0, "weight decay of the layers", low=0)
    dropout: float = param(0.5, "dropout of the layers")
    device: str = replace(DEVICE, default="cpu")
    seed: int | None = Training.declared()["seed"]  # type: ignore[assignment]

    tie_seed_: int

    def _preset(
        self, keywords: dict[str, Any], objective: LIAObjective, *, features: bool, items: int, labels: float
    ) -> CrowdClassifier:
        """Make the classifier that does the work; the numbers of items and labels decide its epochs and batches."""
        layers = {"hidden": keywords["hidden"], "dropout": keywords["dropout"]}
        encoder = MLP(**layers) if features else ItemEmbedding(size=keywords["item_size"], **layers)
        size = max(round(keywords["batch"] * items / max(labels, 1)), 1)
        epochs = max(math.ceil(keywords["steps"] / math.ceil(items / size)), MIN_EPOCHS)
        same = {name: keywords[name] for name in CrowdClassifier.parameter_names() if name in keywords}
        return CrowdClassifier(
            encoder=encoder, objective=objective, optimizer="amsgrad", epochs=epochs, batch_size=size, **same
        )

    def _confusions(
        self, items: IntArray, whom: Whom, question: str | None = None
    ) -> Iterator[tuple[slice, FloatArray]]:
        """Yield (rows of items, Q (rows, annotators, K, K)), some items at a time."""
        at_once = max(CELLS // max(whom[0].size * self._n_classes(question) ** 2, 1), 1)
        for start in range(0, items.size, at_once):
            at = slice(start, start + at_once)
            yield at, self._confusion_of(items[at], whom, question)

    def _confusion(self, items: Any, annotators: Any, question: str | None = None) -> FloatArray:
        """(items, annotators, K, K) Q of named items and annotators."""
        (codes, whom), K = self._found(items, annotators), self._n_classes(question)
        found = np.empty((codes.size, whom[0].size, K, K))
        for at, pairs in self._confusions(codes, whom, question):
            found[at] = pairs
        return found

    def _competence(
        self, posterior: FloatArray, items: IntArray, whom: Whom, question: str | None = None
    ) -> FloatArray:
        """(items, annotators) Σ_k q_i(k) Q_ij[k, k] of codes."""
        found = np.empty((items.size, whom[0].size))
        for at, pairs in self._confusions(items, whom, question):
            found[at] = np.einsum("ik,ijkk->ij", posterior[items[at]], pairs)
        return found

    def _n_classes(self, question: str | None) -> int:
        raise NotImplementedError

    def _confusion_of(self, items: IntArray, whom: Whom, question: str | None) -> FloatArray:
        raise NotImplementedError

    def _check_features(self, encoder: Encoder) -> None:
        """Raise DataError where new items are asked about, and none can be told from another."""
        if isinstance(encoder, ItemEmbedding):
            name = type(self).__name__
            raise DataError(f"this {name} was fitted without features and knows nothing of new items; fit it with X.")

    def _names_of(self, proba: FloatArray, classes: Names, *, fitted: bool) -> Names:
        """(rows,) the most probable classes; of fitted items, ties are drawn."""
        best = arg_max(proba, self.items_, classes, self.tie_seed_) if fitted else proba.argmax(axis=1)
        return np.asarray(classes[best])


class LIA(Learner, LIALearner):
    """Truth, difficulty and competence.

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
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = model.save(folder)
    ...     np.array_equal(LIA.load(folder).posterior_, model.posterior_)
    True
    """

    file = "lia.safetensors"

    checkpoint: str | Path | None = Training.declared()["checkpoint"]  # type: ignore[assignment]
    n_seeds: int = param(1, "fits with seeds of their own; answers are means over them, `models_` has each", low=1)
    tune: bool = param(
        False, "choose keywords by the likelihood of annotations that are hidden from the fit (`CHOICES`, `tuned_`)"
    )

    classes_: Names
    posterior_: FloatArray  # (I, K) the E step
    posteriors_: FloatArray  # (n_seeds, I, K) of every seed
    proba_: FloatArray  # (I, K) h
    difficulty_: FloatArray  # (I,) P(an average annotator is wrong)
    competence_: FloatArray  # (A, 3) P(right) on all, the easiest and the hardest items
    embedding_: FloatArray  # (A, annotator_size) of the first seed
    confusion_: FloatArray
    reliability_: FloatArray
    n_iter_: int
    converged_: bool
    models_: list[CrowdClassifier]  # one per seed
    tuned_: Tuned | None  # where `tune` was asked for

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

        `X` (I, D) are features, one row per `table.items`; without, a vector is learnt for each item. `gold` (I,) are
        known classes, −1 where unknown. `annotators` is a frame with a column `annotator` and what is known of them,
        numbers or texts.
        """
        table, X, gold = table_first(table, X, gold)
        given.check_table(table)
        self.check_parameters()
        if self.seed is None and self.n_seeds > 1:
            raise BadParameter("n_seeds counts up from seed; give one, not None.")
        X = None if X is None else given.aligned(X, table)
        self.tuned_ = self._tune(table, X, gold, annotators) if self.tune else None
        self._inputs = table.items if X is None else np.array(vectors(X), np.float32)  # ours, whatever becomes of X
        self.models_ = []
        for number in range(self.n_seeds):
            model = self.classifier(table, features=X is not None)
            if self.seed is not None and self.n_seeds > 1:
                folder = None if self.checkpoint is None else Path(self.checkpoint) / str(self.seed + number)
                model.set_params(seed=self.seed + number, checkpoint=folder)
            self.models_.append(model.fit(table, self._inputs, gold=gold, annotators=annotators, on_step=on_step))
        self._gather()
        return self

    def _tune(self, table: Annotations, X: Any, gold: IntArray | None, annotators: Any) -> Tuned:
        start = LIA(**{**self.get_params(deep=False), "tune": False, "n_seeds": 1, "checkpoint": None})
        fits = SPLITS * (1 + sum(value != getattr(self, name) for name in CHOICES for value in CHOICES[name]))
        with waiting("tuning", fits) as step:
            return tune(start, CHOICES, table, X, gold=gold, annotators=annotators, seed=self.seed or 0, on_step=step)

    def classifier(self, table: Annotations, *, features: bool) -> CrowdClassifier:
        """Make the classifier that `fit` trains, not fitted."""
        self.check_parameters()
        tuned = getattr(self, "tuned_", None)
        own = self.get_params(deep=False) | ({} if tuned is None else tuned.keywords)
        objective = LIAObjective(**{name: own[name] for name in LIAObjective.parameter_names()})
        items = max(int(np.count_nonzero(np.diff(table.item_ptr))), 1)
        return self._preset(own, objective, features=features, items=items, labels=table.n_annotations)

    # Answers ----------------------------------------------------------------------------------------------------------

    def predict_proba(self, X: Any = None) -> FloatArray:
        """(rows, K) P(class | x) by h alone; without X, `posterior_` of the fitted items."""
        self._check_fitted()
        if X is None:
            return self.posterior_
        self._check_features(self.models_[0].encoder_)
        return np.asarray(np.mean([model.predict_proba(X) for model in self.models_], axis=0))

    def predict(self, X: Any = None) -> Names:
        """(rows,) the most probable class names."""
        return self._names_of(self.predict_proba(X), self.classes_, fitted=X is None)

    def competence(self, items: Any = None, annotators: Any = None) -> FloatArray:
        """(items, annotators) P(the annotator is right on the item).

        Names of fitted items and of annotators, None for all; one who was not there is taken for an average one, or,
        where `annotators` is a frame with the columns that `fit` had, for one of its features.
        """
        return self._competence(self.posterior_, *self._found(items, annotators))

    def confusion(self, items: Any = None, annotators: Any = None) -> FloatArray:
        """(items, annotators, K, K) [true, given] P(the annotator says this of the item | its class)."""
        return self._confusion(items, annotators)

    def predict_annotations(self, table: Annotations) -> FloatArray:
        """(N, K) Σ_k q_i(k) Q_ij[k, ·] for the rows of a table of fitted items: P(label | item, annotator).

        q is of the labels that were fitted, not of those of `table`: rows that were held out are predicted.
        """
        self._check_fitted()
        table = table.to_classes(self.classes_)
        items, (codes, _) = self._found(table.items, table.annotators)
        annotator = codes[table.annotator]
        columns, found = self.models_[0].encoder_.prepare(self._inputs), np.zeros((len(table), self.classes_.size))
        for model, posterior in zip(self.models_, self.posteriors_, strict=True):

            def ask(
                z: Tensor,
                row: Tensor,
                at: slice,
                model: CrowdClassifier = model,
                q: FloatArray = posterior[items],
            ) -> Tensor:
                codes, _ = model.network_.placed(annotator[at])
                assert isinstance(model.objective_, LIAObjective)
                confusion = model.objective_.row_confusion(model.network_.head, z, row, codes).cpu().double()
                return torch.einsum("nk,nkl->nl", torch.as_tensor(q[table.item[at]]), confusion)

            found += ask_rows(model, columns, table, ask, items)
        return np.asarray(found / found.sum(axis=1, keepdims=True))

    def likelihoods(self) -> Likelihoods:
        """What the model believes of its items, and how probable it thinks every label of any pair."""

        def of(items: IntArray, annotators: IntArray) -> FloatArray:
            return given_first(np.concatenate([pairs for _, pairs in self._confusions(items, (annotators, None))]))

        return Likelihoods(self.posterior_, of, False)

    # Inside -----------------------------------------------------------------------------------------------------------

    def _tree(self) -> dict[str, Any]:
        return {
            "parameters": {**self.get_params(deep=False), "checkpoint": None},
            "models": [model.to_tree() for model in self.models_],
            "inputs": None if isinstance(self.models_[0].encoder_, ItemEmbedding) else self._inputs,
            "tuned": None if self.tuned_ is None else self.tuned_.to_tree(),
        }

    def _restore(self, tree: dict[str, Any], path: Path, on: torch.device) -> None:
        self.models_ = [CrowdClassifier.from_tree(one, path, self.device) for one in tree["models"]]
        self.tuned_ = None if tree["tuned"] is None else Tuned.from_tree(tree["tuned"])
        self._gather()
        self._inputs = self.items_ if tree["inputs"] is None else tree["inputs"]

    def _gather(self) -> None:
        """Set results that all seeds share, and means over seeds of the others."""
        self.posteriors_ = np.stack([model.posterior_ for model in self.models_])
        for name in SAME_FOR_ALL_SEEDS:
            setattr(self, name, getattr(self.models_[0], name))
        for name in AVERAGED:
            setattr(self, name, np.mean([getattr(model, name) for model in self.models_], axis=0))
        self.embedding_ = embedding(self.models_[0])

    def _n_classes(self, question: str | None) -> int:
        return self.classes_.size

    def _confusion_of(self, items: IntArray, whom: Whom, question: str | None) -> FloatArray:
        """(items, annotators, K, K) Q, the mean over seeds."""
        some = self._inputs[items]  # not all of them: `recommend` asks for one item at a time
        rows, found = self.models_[0].encoder_.prepare(some), []
        for model in self.models_:

            def ask(batch: Batch, model: CrowdClassifier = model) -> Tensor:
                assert isinstance(model.objective_, LIAObjective)
                network = model.network_
                return model.objective_.pair_confusion(network.head, network.encoder(**batch), *network.placed(*whom))

            found.append(model.network_.ask(ask, rows, at_once=max(len(some), 1)))
        return np.asarray(np.mean(found, axis=0))


SAME_FOR_ALL_SEEDS = (
    "classes_", "items_", "annotators_", "annotator_features_", "tie_seed_", "n_iter_", "converged_"
)  # fmt: skip
AVERAGED = ("posterior_", "proba_", "confusion_", "reliability_", "trace_", "difficulty_", "competence_")
"""Results that the classifiers of all seeds share, and results that are averaged over seeds."""
