"""LIA-ML with or without features, in which questions about the same items share layers and annotators' embeddings.

    model = LIAML().fit(questions, X)                   `questions` maps names of questions to tables
    model.add_question("side effect", table)            results for the other questions do not change

For a question that is added later, only the embeddings and biases of its own classes are trained; layers and annotators
do not change. Its classes start from the classes of the same name in other questions, and are shrunk towards these. To
this end, prior/2 · Σ offset² is added to the loss, where the offset is the difference of the embeddings.

The equations are in `dissensus.learning.objectives.lia_ml`; `competence` and `difficulty` are those of LIA for each
question. On the medical relations of its paper, LIA-ML is better than LIA in 2 of 6 comparisons, and worse in 1
(`reproductions/results/platanios2020.md`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, Self

import numpy as np
import torch
from scipy.special import softmax
from torch import Tensor, nn

from dissensus.common.exceptions import UnknownEntry
from dissensus.common.parameters import param
from dissensus.common.types import FloatArray, IntArray, Names, OnStep
from dissensus.features.exceptions import SingleString
from dissensus.learning import inputs as input_data
from dissensus.learning.annotator_features import AnnotatorCodes
from dissensus.learning.batches import Batch, BatchColumns
from dissensus.learning.checkpoint import Trace
from dissensus.learning.classifier import CrowdClassifier
from dissensus.learning.devices import isolated_rng, resolve_device
from dissensus.learning.encoders import Encoder, encoders
from dissensus.learning.exceptions import QuestionsNeeded, RepeatedQuestion, UnknownItem
from dissensus.learning.lia import LIA
from dissensus.learning.network import MAX_CONFUSION_ENTRIES, Network
from dissensus.learning.objectives.lia_ml import LIAMLHead, LIAMLKeywords, LIAMLObjective
from dissensus.learning.run import TrainingRun, copy_component, make_run, make_tie_seed, make_torch_seed
from dissensus.learning.saved_inputs import pack_columns, unpack_columns
from dissensus.learning.storage import fitted_attributes, pack_component, set_attributes, unpack_component
from dissensus.messages import quote_name
from dissensus.table import names as naming
from dissensus.table.annotations import ANONYMOUS_ANNOTATOR, Annotations


class LIAML(LIAMLKeywords, LIA):
    """Model of classes, difficulty and competence for many questions at once.

    Of the weight decays 0, 0.001 and 0.01, 0.001 gives held-out labels of the medical relations the greatest
    likelihood.

    >>> from dissensus.table.simulate import simulate
    >>> tables = {name: simulate(40, 6, 2, seed=1).annotations for name in ("rude", "funny")}
    >>> model = LIAML(steps=1, seed=0).fit({"rude": tables["rude"]}).add_question("funny", tables["funny"])
    >>> {question: proba.shape for question, proba in model.predict_proba().items()}
    {'rude': (40, 2), 'funny': (40, 2)}
    >>> model.predict(questions=["funny"])["funny"].shape
    (40,)
    >>> model.competence("rude").shape, model.confusion("rude", annotators=[0]).shape
    ((40, 6), (40, 1, 2, 2))
    """

    file_name = "lia-ml.safetensors"
    stored_kind = "LIAML"

    hidden: Sequence[int] = param((32, 32, 32, 32), "widths of the layers that all questions share")
    prior: float = param(
        1.0, "strength with which a question's classes are shrunk towards classes of the same name", low=0
    )
    steps: int = param(1000, "number of steps, but at least 20 passes over the items", low=1)
    weight_decay: float = param(1e-3, "weight decay of the layers", low=0)
    dropout: float = param(0.0, "dropout of the layers")
    checkpoint: ClassVar[None] = None  # type: ignore[misc]  # LIAML does not have this keyword of LIA.
    annotator_features_: ClassVar[None] = None  # LIAML does not support features of annotators.

    questions_: list[str]
    classes_: dict[str, Names]
    posterior_: dict[str, FloatArray]  # type: ignore[assignment]  # (I, K) posterior of the last E step
    proba_: dict[str, FloatArray]  # (I, K) P(class | x) by h
    difficulty_: dict[str, FloatArray]  # (I,) P(an average annotator is wrong)
    label_embedding_: dict[str, FloatArray]  # (K, label_size)

    # Learning ---------------------------------------------------------------------------------------------------------

    def fit(  # type: ignore[override]  # several tables instead of one
        self,
        questions: Mapping[str, Annotations],
        X: Any = None,
        *,
        gold: Mapping[str, IntArray] | None = None,
        on_step: OnStep | None = None,
    ) -> Self:
        """Fit the model to the tables of all questions.

        Parameters
        ----------
        questions : mapping from name to Annotations
            Tables of the same items and annotators.
        X : (I, D) features, optional
            One row per item.
        gold : mapping from name to (I,) int, optional
            Gold classes of some questions as codes, and −1 for unknown.
        on_step : callable, optional
            Called after every epoch, as in `CrowdClassifier.fit`.

        Returns
        -------
        LIAML
            The fitted model itself.
        """
        run = self.prepare_run(questions, X, gold=gold)
        return self.store_results(run, run.train(on_step))

    def prepare_run(
        self, questions: Mapping[str, Annotations], X: Any = None, *, gold: Mapping[str, IntArray] | None = None
    ) -> TrainingRun:
        """Return the prepared training of `fit`."""
        self.check_parameters()
        if not isinstance(questions, Mapping):
            raise QuestionsNeeded(location="questions", type_name=type(questions).__name__)
        objective = self._objective(questions, gold)
        one = questions[objective.questions_[0]]
        inputs = input_data.align_rows(one.items if X is None else X, one)
        model = self._classifier(objective, features=X is not None)
        encoder: Encoder = copy_component(model.encoder, encoders, Encoder)
        encoder.fit(input_data.take_rows(inputs, np.flatnonzero(objective.train_mask_)))
        network = Network.initialise(encoder, objective, make_torch_seed(self.seed))
        return self._make_run(model, one, encoder, network, encoder.prepare(inputs))

    def store_results(self, run: TrainingRun, trace: Trace) -> Self:
        """Store a trained network, and compute the results for items and annotators."""
        head, objective = run.network.head, run.objective
        assert isinstance(objective, LIAMLObjective)
        self.encoder_, self._columns = run.encoder, run.data.inputs
        self.items_, self.annotators_ = run.table.items, run.table.annotators
        self.tie_seed_ = make_tie_seed(self.seed)
        self.trace_, self.n_iter_ = np.array([entry["loss"] for entry in trace.epochs]), len(trace.epochs)
        self.embedding_ = head.competence.table.weight.detach().cpu().numpy().copy()
        self.questions_, self.classes_ = [], {}
        self.posterior_, self.proba_, self.difficulty_, self.label_embedding_ = {}, {}, {}, {}
        self._reset_blocks(run.network.encoder)
        self._store_block_results(self._add_block(head, objective))
        return self

    def add_question(
        self, question: str, table: Annotations, *, gold: IntArray | None = None, on_step: OnStep | None = None
    ) -> Self:
        """Add a question about the fitted items, and train only the embeddings and biases of its classes.

        The table's items must be among those of `fit`; unseen annotators are treated as the average annotator.
        """
        self._check_fitted()
        input_data.check_table(table, "add_question")
        if question in self.classes_:
            raise RepeatedQuestion(question=question)
        moved, fitted_gold = self._align_table(table, gold)
        objective = self._objective({question: moved}, None if fitted_gold is None else {question: fitted_gold})
        first = self._blocks[0]
        assert isinstance(first.objective, LIAMLObjective)
        with isolated_rng(make_torch_seed(self.seed)):
            head = objective.extend_head(first.objective, first.head)
        network = Network(nn.Identity(), head, objective)
        model = self._classifier(objective, features=True)
        self._make_run(model, moved, self.encoder_, network, self._encoded).train(on_step)
        self._store_block_results(self._add_block(head, objective))
        return self

    # Answers ----------------------------------------------------------------------------------------------------------

    def predict_proba(  # type: ignore[override]  # LIA returns an array instead of a mapping.
        self, X: Any = None, questions: Sequence[str] | None = None
    ) -> dict[str, FloatArray]:
        """Predict P(class | x) (rows, K) by h alone for each of `questions`; without X, return `posterior_`."""
        asked = self._resolve_questions(questions)
        if X is None:
            return {name: self.posterior_[name] for name in asked}
        self._check_features(self.encoder_)
        return self._predict_questions(self._encode(self.encoder_.prepare(X)), asked)

    def predict(  # type: ignore[override]
        self, X: Any = None, questions: Sequence[str] | None = None
    ) -> dict[str, Names]:
        """Predict the most probable class names (rows,) for each of `questions`, or for all if it is None."""
        answers = self.predict_proba(X, questions)
        return {
            name: self._most_probable_names(proba, self.classes_[name], fitted=X is None)
            for name, proba in answers.items()
        }

    def competence(  # type: ignore[override]  # The question is an additional argument.
        self, question: str, items: Any = None, annotators: Any = None
    ) -> FloatArray:
        """Return P(the annotator is right on the item in this question) (items, annotators).

        Items and annotators are names, and None stands for all. An unseen annotator is treated as the average
        annotator.
        """
        (question,) = self._resolve_questions([question])
        return self._competence(question, *self._match_codes(items, annotators))

    def confusion(  # type: ignore[override]  # The question is an additional argument.
        self, question: str, items: Any = None, annotators: Any = None
    ) -> FloatArray:
        """Return P(label | class) (items, annotators, K, K) [true class, given label] in this question."""
        (question,) = self._resolve_questions([question])
        (codes, whom), K = self._match_codes(items, annotators), self.classes_[question].size
        confusion = np.empty((codes.size, whom[0].size, K, K))
        for at, pairs in self.iterate_confusions(codes, whom, question):
            confusion[at] = pairs
        return confusion

    # Storage ----------------------------------------------------------------------------------------------------------

    def _to_tree(self) -> dict[str, Any]:
        return {
            "parameters": self.get_params(deep=False),
            "encoder": pack_component(self.encoder_, encoders),
            "layers": dict(self._layers.state_dict()),
            "inputs": pack_columns(self._columns),
            "results": {name: value for name, value in vars(self).items() if name.endswith("_") and name != "encoder_"},
            "blocks": [
                {
                    "parameters": block.objective.get_params(deep=False),
                    "learnt": fitted_attributes(block.objective),
                    "weights": dict(block.head.state_dict()),
                }
                for block in self._blocks
            ],
        }

    @classmethod
    def _from_tree(cls, tree: dict[str, Any], device: str) -> Self:
        on, model = resolve_device(device), cls(**{**tree["parameters"], "device": device})
        set_attributes(model, tree["results"])
        model.encoder_, model._columns = unpack_component(tree["encoder"], encoders), unpack_columns(tree["inputs"])
        layers = model.encoder_.module()
        layers.load_state_dict(tree["layers"])
        model._reset_blocks(layers.to(on).eval())
        for stored in tree["blocks"]:
            objective = set_attributes(LIAMLObjective(**stored["parameters"]), stored["learnt"])
            if model._blocks:  # This block was added by `add_question`.
                first = model._blocks[0]
                head = objective.extend_head(first.objective, first.head)
            else:
                head = objective.head(model.encoder_.branch, model.encoder_.width)
            head.load_state_dict(stored["weights"])
            model._add_block(head.to(on).eval(), objective)
        return model

    # Inside -----------------------------------------------------------------------------------------------------------

    def _objective(self, questions: Mapping[str, Annotations], gold: Mapping[str, IntArray] | None) -> LIAMLObjective:
        """Return an objective with the keywords of this model, fitted to the questions."""
        keywords = {name: getattr(self, name) for name in LIAMLObjective.parameter_names()}
        return LIAMLObjective(**keywords).fit(questions, gold, make_torch_seed(self.seed))

    def _classifier(self, objective: LIAMLObjective, *, features: bool) -> CrowdClassifier:
        """Return the classifier that holds the keywords of the training."""
        labels = (
            objective.per_item_ * objective.pair_train_mask_.sum() / objective.pair_train_mask_.shape[1]
        )  # labels per question
        items = int(np.count_nonzero(objective.train_mask_))
        model = self._make_classifier(objective, features=features, items=items, labels=labels)
        return model.set_params(precision="32-true")

    def _make_run(
        self, model: CrowdClassifier, table: Annotations, encoder: Encoder, network: Network, columns: BatchColumns
    ) -> TrainingRun:
        """Return a run that trains all parameters with a gradient; the prior is the weight decay of offsets."""
        run = make_run(model, table, encoder, network, columns, np.flatnonzero(network.objective.train_mask_))
        own = network.head.labels.offset
        for group in run.groups:
            group["params"] = [parameter for parameter in group["params"] if parameter is not own]
        prior = {"params": [own], "lr": self.head_learning_rate, "weight_decay": self.prior / run.train_items.size}
        run.groups.insert(0, prior)
        return run

    def _reset_blocks(self, layers: nn.Module) -> None:
        """Store the shared layers and their output for the fitted items, which is the input of the blocks."""
        self._layers = layers
        self._blocks: list[Network] = []
        self._block_positions: dict[str, tuple[int, int]] = {}  # (number of the block, position in it) of each question
        self._encoded = self._encode(self._columns)

    def _add_block(self, head: LIAMLHead, objective: LIAMLObjective) -> Network:
        """Add and return a block of questions that are trained together."""
        self._block_positions |= {name: (len(self._blocks), q) for q, name in enumerate(objective.questions_)}
        self._blocks.append(Network(nn.Identity(), head, objective).eval())
        return self._blocks[-1]

    def _store_block_results(self, block: Network) -> None:
        """Compute the results for the questions of a block."""
        objective, head = block.objective, block.head
        assert isinstance(objective, LIAMLObjective)
        logs = block.apply_in_batches(block.log_posterior, self._encoded, objective.targets())
        posterior = softmax(logs, axis=1).reshape(self.items_.size, -1, objective.n_classes_)
        labels = head.labels.classes().detach().cpu().numpy()
        for q, name in enumerate(objective.questions_):
            self.questions_.append(name)
            self.classes_[name] = objective.question_classes_[q]
            K = self.classes_[name].size
            self.posterior_[name] = np.ascontiguousarray(posterior[:, q, :K])
            self.label_embedding_[name] = labels[q, :K]
        self.proba_ |= self._predict_questions(self._encoded, objective.questions_)
        average: AnnotatorCodes = (np.array([-1]), None)
        for name in objective.questions_:
            right = self._competence(name, np.arange(self.items_.size), average)
            self.difficulty_[name] = 1 - right[:, 0]

    def _encode(self, columns: BatchColumns) -> BatchColumns:
        """Return the output of the shared layers for inputs, as one column."""
        network = Network(self._layers, nn.Identity(), LIAMLObjective())
        z = network.apply_in_batches(lambda batch: network.encoder(**batch), columns)
        return BatchColumns(input=torch.from_numpy(z).float())

    def _predict_questions(self, encoded: BatchColumns, asked: Sequence[str]) -> dict[str, FloatArray]:
        """Return h (rows, K) for each question."""
        answers, logits = {}, {}
        for number in {self._block_positions[name][0] for name in asked}:
            block = self._blocks[number]
            logits[number] = block.apply_in_batches(block.logits, encoded).reshape(
                len(encoded), -1, block.objective.n_classes_
            )
        for name in asked:
            number, q = self._block_positions[name]
            answers[name] = np.asarray(softmax(logits[number][:, q, : self.classes_[name].size], axis=1))
        return answers

    def _competence(self, question: str, items: IntArray, whom: AnnotatorCodes) -> FloatArray:
        """Return Σ_k q_i(k) Q_ij[k, k] (items, annotators) for codes of items and annotators."""
        right = np.empty((items.size, whom[0].size))
        for at, pairs in self.iterate_confusions(items, whom, question):
            right[at] = np.einsum("ik,ijkk->ij", self.posterior_[question][items[at]], pairs)
        return right

    def iterate_confusions(
        self, items: IntArray, whom: AnnotatorCodes, question: str
    ) -> Iterator[tuple[slice, FloatArray]]:
        """Yield slices of the items, each with Q (rows, annotators, K, K) in a question."""
        (number, q), K = self._block_positions[question], self.classes_[question].size
        block = self._blocks[number]

        def compute_confusions(batch: Batch) -> Tensor:
            assert isinstance(block.objective, LIAMLObjective)
            placed_codes, _ = block.to_device(whom[0])
            return block.objective.question_confusion(block.head, batch["input"], placed_codes, q)[..., :K, :K]

        at_once = max(MAX_CONFUSION_ENTRIES // max(whom[0].size * K**2, 1), 1)
        for start in range(0, items.size, at_once):
            at = slice(start, start + at_once)
            yield at, block.apply_in_batches(compute_confusions, self._encoded, rows=items[at], at_once=at_once)

    def _align_table(self, table: Annotations, gold: IntArray | None) -> tuple[Annotations, IntArray | None]:
        """Return table and gold codes with the fitted items as axis; unseen annotators become the average annotator."""
        items = naming.match_names(table.items, self.items_, "items")
        if (items < 0).any():
            raise UnknownItem(item=quote_name(table.items[items < 0][0]), n_items=self.items_.size)
        codes = naming.match_names(table.annotators, self.annotators_, "annotators")
        codes = np.where(codes < 0, self.annotators_.size, codes)
        fitted_gold = None
        if gold is not None:
            fitted_gold = np.full(self.items_.size, -1, np.int32)
            fitted_gold[items] = gold
        everyone = np.append(self.annotators_.astype(object), ANONYMOUS_ANNOTATOR)
        moved = Annotations.from_codes(
            items[table.item], codes[table.annotator], table.label, self.items_, everyone, table.classes,
            weight=table.weight, proba=table.proba,
        )  # fmt: skip
        return moved, fitted_gold

    def _resolve_questions(self, questions: Sequence[str] | None) -> list[str]:
        self._check_fitted()
        if isinstance(questions, str):
            raise SingleString(argument="questions")
        for name in questions or ():
            if name not in self.classes_:
                raise UnknownEntry(entry_type="question", name=str(name), entries=tuple(self.questions_), command="")
        return self.questions_ if questions is None else list(questions)
