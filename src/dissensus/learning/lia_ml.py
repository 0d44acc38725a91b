"""LIA-ML with or without features: many questions about the same items share layers and annotators' embeddings.

    model = LIAML().fit(questions, X)                   questions: a mapping from question to table (`Questions`)
    model.add_question("side effect", table)            one more, from few labels: the others stay the same to the bit

A question that is added later learns the embeddings and biases of its own classes only: layers and annotators are those
of the fit. Its classes start as those of the same name in the other questions, and `prior` shrinks them towards these:
it adds prior/2 · Σ own² to minus the log likelihood, where own is the difference of an embedding.

The equations are in `dissensus.learning.objectives.lia_ml`; `competence` and `difficulty` are LIA's, by question. On
the medical relations of its paper it is not better than LIA, question by question: better in 2 of 6 comparisons, worse
in 1 (`reproductions/results/platanios2020.md`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, Self

import numpy as np
import torch
from scipy.special import softmax
from torch import Tensor, nn

from dissensus.common.parameters import param
from dissensus.common.types import FloatArray, IntArray, Names, OnStep
from dissensus.learning import inputs as given
from dissensus.learning.annotator_features import Whom
from dissensus.learning.batches import Batch, Columns
from dissensus.learning.checkpoint import Trace
from dissensus.learning.classifier import CrowdClassifier
from dissensus.learning.devices import own_draws, place
from dissensus.learning.encoders import Encoder, encoders
from dissensus.learning.exceptions import QuestionsNeeded, RepeatedQuestion, SingleName, UnknownItem, UnknownQuestion
from dissensus.learning.lia import LIA
from dissensus.learning.network import CELLS, Network
from dissensus.learning.objectives.lia_ml import LIAMLHead, LIAMLKeywords, LIAMLObjective
from dissensus.learning.run import Run, new_part, ready, tie_seed, torch_seed
from dissensus.learning.saved_inputs import loaded_columns, stored_columns
from dissensus.learning.storage import learnt, loaded_part, stored_part, with_learnt
from dissensus.messages import quote_name
from dissensus.table import names as naming
from dissensus.table.annotations import ANONYMOUS_ANNOTATOR, Annotations


class LIAML(LIAMLKeywords, LIA):
    """Truth, difficulty and competence in many questions at once.

    A weight decay of 0.001 has the best likelihood of held-out labels on the medical relations, of 0, 0.001 and 0.01.

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

    file = "lia-ml.safetensors"
    stored_as = "LIAML"
    fit_call = "fit(questions, X)"

    hidden: Sequence[int] = param((32, 32, 32, 32), "widths of the layers that all questions share")
    prior: float = param(1.0, "how strongly a question's classes are shrunk to those of the same name", low=0)
    steps: int = param(1000, "steps in all, but at least 20 passes over the items", low=1)
    weight_decay: float = param(1e-3, "weight decay of the layers", low=0)
    dropout: float = param(0.0, "dropout of the layers")
    checkpoint: ClassVar[None] = None  # type: ignore[misc]  # no keyword
    annotator_features_: ClassVar[None] = None  # not supported

    questions_: list[str]
    classes_: dict[str, Names]
    posterior_: dict[str, FloatArray]  # type: ignore[assignment]  # (I, K) the E step
    proba_: dict[str, FloatArray]  # (I, K) h
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
        """Learn from the tables of all questions and, if given, features X (I, D), one row per item.

        `gold`: (I,) known classes by question, as codes, −1 where unknown; questions may be left out.
        """
        run = self.run(questions, X, gold=gold)
        return self.take(run, run.train(on_step))

    def run(
        self, questions: Mapping[str, Annotations], X: Any = None, *, gold: Mapping[str, IntArray] | None = None
    ) -> Run:
        """Prepare the training that `fit` does."""
        self.check_parameters()
        if not isinstance(questions, Mapping):
            raise QuestionsNeeded(where="questions", found=type(questions).__name__)
        objective = self._objective(questions, gold)
        one = questions[objective.questions_[0]]
        inputs = given.aligned(one.items if X is None else X, one)
        model = self._classifier(objective, features=X is not None)
        encoder: Encoder = new_part(model.encoder, encoders, Encoder)
        encoder.fit(given.take(inputs, np.flatnonzero(objective.teaches_)))
        network = Network.fresh(encoder, objective, torch_seed(self.seed))
        return self._ready(model, one, encoder, network, encoder.prepare(inputs))

    def take(self, run: Run, trace: Trace) -> Self:
        """Take over a trained network, and compute the results for items and annotators."""
        head, objective = run.network.head, run.objective
        assert isinstance(objective, LIAMLObjective)
        self.encoder_, self._columns = run.encoder, run.lessons.inputs
        self.items_, self.annotators_ = run.table.items, run.table.annotators
        self.tie_seed_ = tie_seed(self.seed)
        self.trace_, self.n_iter_ = np.array([entry["loss"] for entry in trace.epochs]), len(trace.epochs)
        self.embedding_ = head.competence.table.weight.detach().cpu().numpy().copy()
        self.questions_, self.classes_ = [], {}
        self.posterior_, self.proba_, self.difficulty_, self.label_embedding_ = {}, {}, {}, {}
        self._begin_blocks(run.network.encoder)
        self._conclude(self._enter(head, objective))
        return self

    def add_question(
        self, question: str, table: Annotations, *, gold: IntArray | None = None, on_step: OnStep | None = None
    ) -> Self:
        """Learn one more question about the fitted items: the embeddings and biases of its classes, and nothing else.

        The table's items must be among those of `fit`; unseen annotators count as average ones.
        """
        self._check_fitted()
        given.check_table(table, "add_question")
        if question in self.classes_:
            raise RepeatedQuestion(question=question)
        moved, known = self._over_fitted_items(table, gold)
        objective = self._objective({question: moved}, None if known is None else {question: known})
        first = self._blocks[0]
        assert isinstance(first.objective, LIAMLObjective)
        with own_draws(torch_seed(self.seed)):
            head = objective.extend_head(first.objective, first.head)
        network = Network(nn.Identity(), head, objective)
        model = self._classifier(objective, features=True)
        self._ready(model, moved, self.encoder_, network, self._encoded).train(on_step)
        self._conclude(self._enter(head, objective))
        return self

    # Answers ----------------------------------------------------------------------------------------------------------

    def predict_proba(  # type: ignore[override]  # an answer for each question
        self, X: Any = None, questions: Sequence[str] | None = None
    ) -> dict[str, FloatArray]:
        """Question → (rows, K) P(class | x) by h alone; without X, `posterior_`. `questions`: None for all."""
        asked = self._asked(questions)
        if X is None:
            return {name: self.posterior_[name] for name in asked}
        self._check_features(self.encoder_)
        return self._answers(self._encode(self.encoder_.prepare(X)), asked)

    def predict(  # type: ignore[override]
        self, X: Any = None, questions: Sequence[str] | None = None
    ) -> dict[str, Names]:
        """Question → (rows,) the most probable class names."""
        answers = self.predict_proba(X, questions)
        return {name: self._names_of(proba, self.classes_[name], fitted=X is None) for name, proba in answers.items()}

    def competence(  # type: ignore[override]  # in a question
        self, question: str, items: Any = None, annotators: Any = None
    ) -> FloatArray:
        """(items, annotators) P(the annotator is right on the item in this question).

        Give names of fitted items and of annotators, None for all; an unseen annotator is an average one.
        """
        (question,) = self._asked([question])
        return self._competence(question, *self._found(items, annotators))

    def confusion(  # type: ignore[override]  # in a question
        self, question: str, items: Any = None, annotators: Any = None
    ) -> FloatArray:
        """(items, annotators, K, K) [true, given] P(the annotator's label of the item | its class)."""
        (question,) = self._asked([question])
        (codes, whom), K = self._found(items, annotators), self.classes_[question].size
        confusion = np.empty((codes.size, whom[0].size, K, K))
        for at, pairs in self.confusions_of(codes, whom, question):
            confusion[at] = pairs
        return confusion

    # On disk ----------------------------------------------------------------------------------------------------------

    def _tree(self) -> dict[str, Any]:
        return {
            "parameters": self.get_params(deep=False),
            "encoder": stored_part(self.encoder_, encoders),
            "layers": dict(self._layers.state_dict()),
            "inputs": stored_columns(self._columns),
            "results": {name: value for name, value in vars(self).items() if name.endswith("_") and name != "encoder_"},
            "blocks": [
                {
                    "parameters": block.objective.get_params(deep=False),
                    "learnt": learnt(block.objective),
                    "weights": dict(block.head.state_dict()),
                }
                for block in self._blocks
            ],
        }

    @classmethod
    def _from_tree(cls, tree: dict[str, Any], device: str) -> Self:
        on, model = place(device), cls(**{**tree["parameters"], "device": device})
        with_learnt(model, tree["results"])
        model.encoder_, model._columns = loaded_part(tree["encoder"], encoders), loaded_columns(tree["inputs"])
        layers = model.encoder_.module()
        layers.load_state_dict(tree["layers"])
        model._begin_blocks(layers.to(on).eval())
        for stored in tree["blocks"]:
            objective = with_learnt(LIAMLObjective(**stored["parameters"]), stored["learnt"])
            if model._blocks:  # a question that was added later
                first = model._blocks[0]
                head = objective.extend_head(first.objective, first.head)
            else:
                head = objective.head(model.encoder_.branch, model.encoder_.width)
            head.load_state_dict(stored["weights"])
            model._enter(head.to(on).eval(), objective)
        return model

    # Inside -----------------------------------------------------------------------------------------------------------

    def _objective(self, questions: Mapping[str, Annotations], gold: Mapping[str, IntArray] | None) -> LIAMLObjective:
        """Fit an objective with these keywords."""
        keywords = {name: getattr(self, name) for name in LIAMLObjective.parameter_names()}
        return LIAMLObjective(**keywords).fit(questions, gold, torch_seed(self.seed))

    def _classifier(self, objective: LIAMLObjective, *, features: bool) -> CrowdClassifier:
        """Make the classifier with the keywords of the training."""
        labels = objective.per_item_ * objective.taught_.sum() / objective.taught_.shape[1]  # per question
        items = int(np.count_nonzero(objective.teaches_))
        model = self._preset(objective, features=features, items=items, labels=labels)
        return model.set_params(precision="32-true")

    def _ready(
        self, model: CrowdClassifier, table: Annotations, encoder: Encoder, network: Network, columns: Columns
    ) -> Run:
        """Prepare the training of all parameters with a gradient; the head's `own` has the prior."""
        run = ready(model, table, encoder, network, columns, np.flatnonzero(network.objective.teaches_))
        own = network.head.labels.own
        for group in run.groups:
            group["params"] = [parameter for parameter in group["params"] if parameter is not own]
        prior = {"params": [own], "lr": self.head_learning_rate, "weight_decay": self.prior / run.taught.size}
        run.groups.insert(0, prior)
        return run

    def _begin_blocks(self, layers: nn.Module) -> None:
        """Store the shared layers and their output for the fitted items; a block is a network over that output."""
        self._layers = layers
        self._blocks: list[Network] = []
        self._place: dict[str, tuple[int, int]] = {}  # a question's block, and its number there
        self._encoded = self._encode(self._columns)

    def _enter(self, head: LIAMLHead, objective: LIAMLObjective) -> Network:
        """Add a block: questions that are trained together."""
        self._place |= {name: (len(self._blocks), q) for q, name in enumerate(objective.questions_)}
        self._blocks.append(Network(nn.Identity(), head, objective).eval())
        return self._blocks[-1]

    def _conclude(self, block: Network) -> None:
        """Compute the results for the questions of a block."""
        objective, head = block.objective, block.head
        assert isinstance(objective, LIAMLObjective)
        logs = block.ask(block.log_posterior, self._encoded, objective.targets())
        posterior = softmax(logs, axis=1).reshape(self.items_.size, -1, objective.n_classes_)
        labels = head.labels.classes().detach().cpu().numpy()
        for q, name in enumerate(objective.questions_):
            self.questions_.append(name)
            self.classes_[name] = objective.question_classes_[q]
            K = self.classes_[name].size
            self.posterior_[name] = np.ascontiguousarray(posterior[:, q, :K])
            self.label_embedding_[name] = labels[q, :K]
        self.proba_ |= self._answers(self._encoded, objective.questions_)
        average: Whom = (np.array([-1]), None)
        for name in objective.questions_:
            right = self._competence(name, np.arange(self.items_.size), average)
            self.difficulty_[name] = 1 - right[:, 0]

    def _encode(self, columns: Columns) -> Columns:
        """Run the shared layers on inputs; the output is one column."""
        network = Network(self._layers, nn.Identity(), LIAMLObjective())
        z = network.ask(lambda batch: network.encoder(**batch), columns)
        return Columns(input=torch.from_numpy(z).float())

    def _answers(self, encoded: Columns, asked: Sequence[str]) -> dict[str, FloatArray]:
        """Question → (rows, K) h."""
        answers, logits = {}, {}
        for number in {self._place[name][0] for name in asked}:
            block = self._blocks[number]
            logits[number] = block.ask(block.logits, encoded).reshape(len(encoded), -1, block.objective.n_classes_)
        for name in asked:
            number, q = self._place[name]
            answers[name] = np.asarray(softmax(logits[number][:, q, : self.classes_[name].size], axis=1))
        return answers

    def _competence(self, question: str, items: IntArray, whom: Whom) -> FloatArray:
        """(items, annotators) Σ_k q_i(k) Q_ij[k, k] of codes."""
        right = np.empty((items.size, whom[0].size))
        for at, pairs in self.confusions_of(items, whom, question):
            right[at] = np.einsum("ik,ijkk->ij", self.posterior_[question][items[at]], pairs)
        return right

    def confusions_of(self, items: IntArray, whom: Whom, question: str) -> Iterator[tuple[slice, FloatArray]]:
        """Yield (rows of items, Q (rows, annotators, K, K) in a question), some items at a time."""
        (number, q), K = self._place[question], self.classes_[question].size
        block = self._blocks[number]

        def ask(batch: Batch) -> Tensor:
            assert isinstance(block.objective, LIAMLObjective)
            who, _ = block.placed(whom[0])
            return block.objective.question_confusion(block.head, batch["input"], who, q)[..., :K, :K]

        at_once = max(CELLS // max(whom[0].size * K**2, 1), 1)
        for start in range(0, items.size, at_once):
            at = slice(start, start + at_once)
            yield at, block.ask(ask, self._encoded, rows=items[at], at_once=at_once)

    def _over_fitted_items(self, table: Annotations, gold: IntArray | None) -> tuple[Annotations, IntArray | None]:
        """Move a table to the fitted items; unseen annotators become one, the average."""
        items = naming.match_names(table.items, self.items_, "items")
        if (items < 0).any():
            raise UnknownItem(item=quote_name(table.items[items < 0][0]), n_items=self.items_.size)
        codes = naming.match_names(table.annotators, self.annotators_, "annotators")
        codes = np.where(codes < 0, self.annotators_.size, codes)
        known = None
        if gold is not None:
            known = np.full(self.items_.size, -1, np.int32)
            known[items] = gold
        everyone = np.append(self.annotators_.astype(object), ANONYMOUS_ANNOTATOR)
        moved = Annotations.from_codes(
            items[table.item], codes[table.annotator], table.label, self.items_, everyone, table.classes,
            weight=table.weight, proba=table.proba,
        )  # fmt: skip
        return moved, known

    def _asked(self, questions: Sequence[str] | None) -> list[str]:
        self._check_fitted()
        if isinstance(questions, str):
            raise SingleName(argument="questions", name=questions)
        for name in questions or ():
            if name not in self.classes_:
                raise UnknownQuestion(question=str(name), known=tuple(self.questions_))
        return self.questions_ if questions is None else list(questions)
