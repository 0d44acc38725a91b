"""LIA-ML for features, or for none: many questions about the same items share layers and annotators' embeddings.

    model = LIAML().fit(questions, X)                   questions: a mapping from question to table (`Questions`)
    model.add_question("side effect", table)            one more, by few labels: the others stay as they are, to the bit

A question that is added later learns the embeddings and biases of its own classes and no more: layers and annotators
are those of the fit. Its classes begin as those of the same name in the other questions, and `prior` draws them there:
it adds prior/2 · Σ own² to minus the log likelihood, own being what an embedding differs by.

The equations are in `dissensus.learning.objectives.lia_ml`; `competence` and `difficulty` are LIA's, by question.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
import torch
from scipy.special import softmax
from torch import Tensor, nn

from dissensus.common.parameters import Parameters, is_number, is_whole
from dissensus.common.progress import waiting
from dissensus.common.types import FloatArray, IntArray, Names, OnStep
from dissensus.exceptions import BadParameter, DataError, NotFitted, UnknownName
from dissensus.learning import inputs as given
from dissensus.learning.annotator_features import find
from dissensus.learning.batches import Columns
from dissensus.learning.by_annotation import CELLS
from dissensus.learning.checkpoint import Trace
from dissensus.learning.devices import place
from dissensus.learning.encoders import MLP, Encoder, ItemEmbedding, encoders
from dissensus.learning.lia import LEAST_EPOCHS
from dissensus.learning.network import Lessons, Network
from dissensus.learning.objectives.lia_ml import LIAMLObjective
from dissensus.learning.objectives.lia_ml_head import LIAMLHead
from dissensus.learning.run import Run
from dissensus.learning.saving import loaded_columns, loaded_part, stored_columns, stored_part
from dissensus.learning.storage import file_in, of_this_version, read_tree, write_tree
from dissensus.learning.trainer import Trainer
from dissensus.models.base import arg_max
from dissensus.table import kernels
from dissensus.table import names as naming
from dissensus.table.annotations import ANONYMOUS, Annotations

AT_ONCE = 4096  # items that are looked at together
FILE, KIND = "lia-ml.safetensors", "LIAML"


@dataclasses.dataclass(frozen=True)
class Block:
    """Questions that were learnt together: what they were taught by, and the head that answers them."""

    objective: LIAMLObjective
    head: LIAMLHead


class LIAML(Parameters):
    """Truth, difficulty and competence in many questions at once.

    Parameters
    ----------
    hidden : sequence of int
        Widths of the layers that all questions share.
    item_size : int
        Of an item's vector, where there are no features.
    label_size : int
        Of the embedding of a class.
    prior : float
        How strongly a question's classes are drawn to those of the same name in the others.
    annotator_size, latent, difficulty, rounds, finetune, tuning, penalty, entropy, truth_counts, truth_in_posterior,
    residual_penalty, difficulty_penalty
        See `LIAObjective`.
    steps : int
        Steps in all, but at least 20 passes over the items.
    batch : int
        Annotations of one question in a step, about; a step is of items, with all their questions.
    learning_rate, head_learning_rate : float
        Of the shared layers; of the last ones, of the annotators and of the classes.
    weight_decay, dropout : float
        Of the layers. 0.001 has the best likelihood of held-out labels on the medical relations, of 0, 0.001 and 0.01.
    device
        As in `CrowdClassifier`.
    seed : int or None
    """

    questions_: list[str]
    classes_: dict[str, Names]
    items_: Names
    annotators_: Names
    posterior_: dict[str, FloatArray]  # (I, K) the E step
    proba_: dict[str, FloatArray]  # (I, K) h
    difficulty_: dict[str, FloatArray]  # (I,) P(an average annotator is wrong)
    embedding_: FloatArray  # (A, annotator_size)
    label_embedding_: dict[str, FloatArray]  # (K, label_size)
    trace_: FloatArray
    n_iter_: int

    def __init__(
        self,
        *,
        hidden: Sequence[int] = (32, 32, 32, 32),
        item_size: int = 16,
        label_size: int = 16,
        prior: float = 1.0,
        annotator_size: int | None = 16,
        latent: int = 1,
        difficulty: bool = True,
        rounds: int = 10,
        finetune: Literal["joint", "per-annotation"] | None = "joint",
        tuning: float = 0.5,
        penalty: float = 0.06,
        entropy: float = 0.0,
        truth_counts: Literal["items", "annotations"] = "items",
        truth_in_posterior: bool = True,
        residual_penalty: float = 1.0,
        difficulty_penalty: float = 1.0,
        steps: int = 1000,
        batch: int = 1024,
        learning_rate: float = 0.003,
        head_learning_rate: float = 0.01,
        weight_decay: float = 1e-3,
        dropout: float = 0.0,
        device: str = "cpu",
        seed: int | None = 0,
    ):
        self.hidden = hidden
        self.item_size = item_size
        self.label_size = label_size
        self.prior = prior
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
        self.difficulty_penalty = difficulty_penalty
        self.steps = steps
        self.batch = batch
        self.learning_rate = learning_rate
        self.head_learning_rate = head_learning_rate
        self.weight_decay = weight_decay
        self.dropout = dropout
        self.device = device
        self.seed = seed

    # Learning ---------------------------------------------------------------------------------------------------------

    def fit(
        self,
        questions: Mapping[str, Annotations],
        X: Any = None,
        *,
        gold: Mapping[str, IntArray] | None = None,
        on_step: OnStep | None = None,
    ) -> Self:
        """Learn from the tables of all questions and, where there are any, features X (I, D), one row per item.

        `gold`: (I,) known classes by question, as codes, −1 where unknown; questions may be left out.
        """
        run = self.run(questions, X, gold=gold)
        with waiting("training", run.trainer.epochs) if on_step is None else nullcontext(on_step) as after_epoch:
            trace = run.trainer.fit(run.network, run.lessons, run.taught, run.groups, on_step=after_epoch)
        return self.take(run, trace)

    def run(
        self, questions: Mapping[str, Annotations], X: Any = None, *, gold: Mapping[str, IntArray] | None = None
    ) -> Run:
        """The training that `fit` does, ready; `seeds.Stack` trains many such as one."""
        self._check()
        if isinstance(questions, Annotations) or not isinstance(questions, Mapping):
            raise DataError(
                f"fit takes a mapping from question to table, got {type(questions).__name__}; for one table take LIA."
            )
        seed = self._seed()
        objective = self._objective().fit(questions, gold, seed)
        one = questions[objective.questions_[0]]
        encoder: Encoder = MLP(hidden=self.hidden, dropout=self.dropout)
        if X is None:
            encoder = ItemEmbedding(size=self.item_size, hidden=self.hidden, dropout=self.dropout)
        inputs = one.items if X is None else X
        if given.rows(inputs) != one.n_items:
            raise DataError(f"X has {given.rows(inputs):,} rows for {one.n_items:,} items; give one for each of them.")
        encoder.fit(given.take(inputs, np.flatnonzero(objective.teaches_)))
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            module, head = encoder.module(), objective.head(encoder.branch, encoder.width)
        return self._run(encoder, module, head, objective, encoder.prepare(inputs), one)

    def take(self, run: Run, trace: Trace) -> Self:
        """Take over what was trained, and say what it says of items and annotators."""
        head, objective = run.network.head, run.objective
        assert isinstance(head, LIAMLHead)
        assert isinstance(objective, LIAMLObjective)
        self.encoder_, self._module, self._columns = run.encoder, run.network.encoder, run.lessons.inputs
        self.items_, self.annotators_ = run.table.items, run.table.annotators
        self.tie_seed_ = int(np.random.SeedSequence(self.seed).generate_state(1, np.uint64)[0])
        self.trace_, self.n_iter_ = np.array([entry["loss"] for entry in trace.epochs]), len(trace.epochs)
        self.embedding_ = head.competence.table.weight.detach().cpu().numpy().copy()
        self.questions_, self.classes_ = [], {}
        self._blocks: list[Block] = []
        self._place: dict[str, tuple[int, int]] = {}  # a question's block, and its place there
        self.posterior_, self.proba_, self.difficulty_, self.label_embedding_ = {}, {}, {}, {}
        self._conclude(Block(objective, head))
        return self

    def add_question(
        self, question: str, table: Annotations, *, gold: IntArray | None = None, on_step: OnStep | None = None
    ) -> Self:
        """Learn one more question about the fitted items: the embeddings and biases of its classes, and nothing else.

        The table's items must be among those of `fit`; annotators who were not there count as average ones.
        """
        self._check_fitted()
        given.check_table(table, "add_question")
        if question in self.classes_:
            raise DataError(f"there is a question {naming.shown(question)} already; give the new one another name.")
        moved, known = self._moved(table, gold)
        seed = self._seed()
        objective = self._objective().fit({question: moved}, None if known is None else {question: known}, seed)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            head = objective.head_beside(self._blocks[0].objective, self._blocks[0].head)
        z = torch.cat([self._encoded(part) for part in torch.split(torch.arange(self.items_.size), AT_ONCE)])
        fixed = Columns(input=z.cpu())  # encoded once: no layer below moves
        run = self._run(self.encoder_, nn.Identity(), head, objective, fixed, moved)
        run.trainer.fit(run.network, run.lessons, run.taught, run.groups, on_step=on_step)
        self._conclude(Block(objective, head))
        return self

    # Answers ----------------------------------------------------------------------------------------------------------

    def predict_proba(self, X: Any = None, questions: Sequence[str] | None = None) -> dict[str, FloatArray]:
        """Question → (rows, K) P(class | x) by h alone; without X, `posterior_` of the fitted items. None: all."""
        asked = self._asked(questions)
        if X is None:
            return {name: self.posterior_[name] for name in asked}
        if isinstance(self.encoder_, ItemEmbedding):
            raise DataError("this LIAML was fitted without features and knows nothing of new items; fit it with X.")
        return self._answers(self.encoder_.prepare(X), asked)

    def predict(self, X: Any = None, questions: Sequence[str] | None = None) -> dict[str, Names]:
        """Question → (rows,) the most probable class names."""
        found = {}
        for name, proba in self.predict_proba(X, questions).items():
            classes = self.classes_[name]
            best = proba.argmax(axis=1) if X is not None else arg_max(proba, self.items_, classes, self.tie_seed_)
            found[name] = np.asarray(classes[best])
        return found

    def competence(self, question: str, items: Any = None, annotators: Any = None) -> FloatArray:
        """(items, annotators) P(the annotator is right on the item in this question).

        Names of fitted items and of annotators, None for all; one who was not there is taken for an average one.
        """
        (question,) = self._asked([question])
        return self._competence(question, given.item_codes(items, self.items_), self._annotator_codes(annotators))

    def confusion(self, question: str, items: Any = None, annotators: Any = None) -> FloatArray:
        """(items, annotators, K, K) [true, given] P(the annotator says this of the item | its class)."""
        (question,) = self._asked([question])
        rows, who = given.item_codes(items, self.items_), self._annotator_codes(annotators)
        K = self.classes_[question].size
        found = np.empty((rows.size, who.size, K, K))
        for at, pairs in self._pairs(question, rows, who):
            found[at] = pairs
        return found

    # On disk ----------------------------------------------------------------------------------------------------------

    def save(self, folder: str | Path) -> Path:
        """Write the fitted model into `folder` (made if need be): one file, safetensors with a JSON header."""
        self._check_fitted()
        tree = {
            "parameters": self.get_params(deep=False),
            "encoder": stored_part(self.encoder_, encoders),
            "layers": dict(self._module.state_dict()),
            "inputs": stored_columns(self._columns),
            "results": {name: value for name, value in vars(self).items() if name.endswith("_") and name != "encoder_"},
            "blocks": [
                {
                    "parameters": block.objective.get_params(deep=False),
                    "learnt": {name: value for name, value in vars(block.objective).items() if name.endswith("_")},
                    "weights": dict(block.head.state_dict()),
                }
                for block in self._blocks
            ],
        }
        return write_tree(Path(folder) / FILE, tree, KIND)

    @classmethod
    def load(cls, folder: str | Path, *, device: str = "cpu") -> LIAML:
        """The model that `save` wrote into `folder`: all its answers are the same, and questions may be added."""
        path = file_in(folder, FILE)
        tree, on = read_tree(path, KIND), place(device)
        with of_this_version(path):
            model = cls(**{**tree["parameters"], "device": device})
            for name, value in tree["results"].items():
                setattr(model, name, value)
            model.encoder_, model._columns = loaded_part(tree["encoder"], encoders), loaded_columns(tree["inputs"])
            model._blocks, model._place = [], {}
            with torch.random.fork_rng(devices=[]):
                model._module = model.encoder_.module()
                for stored in tree["blocks"]:
                    model._enter(model._loaded(stored))
            model._module.load_state_dict(tree["layers"])
        for part in (model._module, *(block.head for block in model._blocks)):
            part.to(on).eval()
        return model

    def _loaded(self, stored: dict[str, Any]) -> Block:
        """A block of a file; those of added questions stand beside the first."""
        objective = LIAMLObjective(**stored["parameters"])
        for name, value in stored["learnt"].items():
            setattr(objective, name, value)
        if self._blocks:
            head = objective.head_beside(self._blocks[0].objective, self._blocks[0].head)
        else:
            head = objective.head(self.encoder_.branch, self.encoder_.width)
        head.load_state_dict(stored["weights"])
        return Block(objective, head)

    # Inside -----------------------------------------------------------------------------------------------------------

    def _seed(self) -> int:
        return int(np.random.SeedSequence(self.seed).generate_state(1, np.uint32)[0])

    def _objective(self) -> LIAMLObjective:
        return LIAMLObjective(**{name: getattr(self, name) for name in LIAMLObjective.parameter_names()})

    def _run(
        self,
        encoder: Encoder,
        module: nn.Module,
        head: LIAMLHead,
        objective: LIAMLObjective,
        inputs: Columns,
        table: Annotations,
    ) -> Run:
        """A training of what has a gradient; the head's `own` has a prior."""
        taught = np.flatnonzero(objective.teaches_)
        answers = objective.per_item_ * objective.taught_.sum() / objective.taught_.shape[1]  # of one question
        size = max(round(self.batch * taught.size / max(answers, 1)), 1)
        epochs = max(math.ceil(self.steps / math.ceil(taught.size / size)), LEAST_EPOCHS)
        own, fast = head.labels.own, self.head_learning_rate
        groups: list[dict[str, Any]] = [{"params": [own], "lr": fast, "weight_decay": self.prior / taught.size}]
        for part, rate in ((module, self.learning_rate), (head, fast)):
            others = [p for p in part.parameters() if p.requires_grad and p is not own]
            for sparse in (False, True):
                found = [p for p in others if getattr(p, "row_sparse", False) is sparse]
                groups += [{"params": found, "lr": fast if sparse else rate}] if found else []
        trainer = Trainer(
            epochs=epochs, batch_size=size, optimizer="amsgrad", weight_decay=self.weight_decay, device=self.device,
            precision="32-true", seed=self._seed(),
        )  # fmt: skip
        network = Network(module, head, objective, mixes=False)
        none = np.zeros(objective.n_items_, np.bool_)
        lessons = Lessons(inputs, objective.targets())
        return Run(table, None, None, encoder, objective, network, lessons, taught, none, groups, trainer, None, "")

    def _conclude(self, block: Block) -> None:
        """Enter what was learnt of these questions."""
        objective, head = block.objective, block.head.eval()
        self._enter(block)
        self._module.eval()
        logs: list[Tensor] = []
        targets = objective.targets()
        with torch.inference_mode():
            for rows in torch.split(torch.arange(self.items_.size), AT_ONCE):
                z = self._encoded(rows)
                batch = {name: value.to(z.device) for name, value in targets.take(rows).items()}
                logs.append(objective.log_posterior(head, z, batch).cpu().double())
        posterior = softmax(torch.cat(logs).numpy(), axis=1).reshape(self.items_.size, -1, objective.n_classes_)
        labels = head.labels.classes().detach().cpu().numpy()
        for q, name in enumerate(objective.questions_):
            self.questions_.append(name)
            self.classes_[name] = objective.classes_[q]
            K = self.classes_[name].size
            self.posterior_[name] = np.ascontiguousarray(posterior[:, q, :K])
            self.label_embedding_[name] = labels[q, :K]
        self.proba_ |= self._answers(self._columns, objective.questions_)
        everything = np.arange(self.items_.size)
        for name in objective.questions_:
            self.difficulty_[name] = 1 - self._competence(name, everything, np.array([-1]))[:, 0]

    def _enter(self, block: Block) -> None:
        """Say where its questions are."""
        self._place |= {name: (len(self._blocks), q) for q, name in enumerate(block.objective.questions_)}
        self._blocks.append(block)

    def _answers(self, columns: Columns, asked: Sequence[str]) -> dict[str, FloatArray]:
        """Question → (rows, K) h; the shared layers are run once, whatever is asked."""
        blocks = sorted({self._place[name][0] for name in asked})
        found: dict[int, list[FloatArray]] = {block: [] for block in blocks}
        with torch.inference_mode():
            for rows in torch.split(torch.arange(len(columns)), AT_ONCE):
                z = self._encoded(rows, columns)
                for block in blocks:
                    head = self._blocks[block].head
                    found[block].append(
                        head(z).reshape(len(rows), -1, head.labels.bias.shape[1]).cpu().double().numpy()
                    )
        answers = {}
        for name in asked:
            block, q = self._place[name]
            logits = np.concatenate(found[block])[:, q, : self.classes_[name].size]
            answers[name] = np.asarray(softmax(logits, axis=1))
        return answers

    def _encoded(self, rows: Tensor, columns: Columns | None = None) -> Tensor:
        """(rows, …) the shared layers' output."""
        device = next(self._module.parameters()).device
        batch = (self._columns if columns is None else columns).take(rows)
        with torch.inference_mode():
            z: Tensor = self._module(**{name: value.to(device) for name, value in batch.items()})
        return z

    def _competence(self, question: str, items: IntArray, annotators: IntArray) -> FloatArray:
        found = np.empty((items.size, annotators.size))
        for at, pairs in self._pairs(question, items, annotators):
            found[at] = np.einsum("ik,ijkk->ij", self.posterior_[question][items[at]], pairs)
        return found

    def _pairs(self, question: str, items: IntArray, annotators: IntArray) -> Iterator[tuple[slice, FloatArray]]:
        """(rows of items, Q (rows, annotators, K, K)), some items at a time."""
        block, q = self._place[question]
        objective, head = self._blocks[block].objective, self._blocks[block].head
        K = self.classes_[question].size
        at_once = max(CELLS // max(annotators.size * objective.n_classes_**2, 1), 1)
        for start in range(0, items.size, at_once):
            at = slice(start, start + at_once)
            z = self._encoded(torch.as_tensor(items[at].astype(np.int64)))
            with torch.inference_mode():
                who = torch.as_tensor(annotators.astype(np.int64)).to(z.device)
                yield at, objective.question_confusion(head, z, who, q)[..., :K, :K].cpu().double().numpy()

    def _moved(self, table: Annotations, gold: IntArray | None) -> tuple[Annotations, IntArray | None]:
        """A new question's table over the fitted items; annotators who were not there are one, the average."""
        items = naming.match(table.items, self.items_, "items")
        if (items < 0).any():
            raise DataError(
                f"item {naming.shown(table.items[items < 0][0])} is none of the {self.items_.size:,} fitted items; fit "
                "again with it."
            )
        codes = naming.match(table.annotators, self.annotators_, "annotators")
        codes = np.where(codes < 0, self.annotators_.size, codes)
        row = items[table.item]
        order = np.argsort(row, kind="stable")
        known = None
        if gold is not None:
            known = np.full(self.items_.size, -1, np.int32)
            known[items] = gold
        everyone = np.append(self.annotators_.astype(object), ANONYMOUS)
        return dataclasses.replace(
            table,
            annotator=codes[table.annotator][order],
            label=table.label[order],
            item_ptr=kernels.offsets(row[order], self.items_.size),
            items=self.items_,
            annotators=everyone,
            weight=None if table.weight is None else table.weight[order],
            proba=None if table.proba is None else table.proba[order],
        ), known

    def _asked(self, questions: Sequence[str] | None) -> list[str]:
        self._check_fitted()
        if isinstance(questions, str):
            raise BadParameter(f"questions must be a list of names, got the text {questions!r}; write [{questions!r}].")
        for name in questions or ():
            if name not in self.classes_:
                raise UnknownName(f"no question {naming.shown(name)}; there are {', '.join(self.questions_)}.")
        return self.questions_ if questions is None else list(questions)

    def _annotator_codes(self, annotators: Any) -> IntArray:
        return find(annotators, self.annotators_, None)[0]

    def _check(self) -> None:
        for name in ("steps", "batch"):
            if not (is_whole(getattr(self, name)) and getattr(self, name) >= 1):
                raise BadParameter(f"{name} must be at least 1, got {getattr(self, name)!r}.")
        for name in ("prior", "learning_rate", "head_learning_rate", "weight_decay"):
            if not (is_number(getattr(self, name)) and getattr(self, name) >= 0):
                raise BadParameter(f"{name} must be 0 or more, got {getattr(self, name)!r}.")

    def _check_fitted(self) -> None:
        if not hasattr(self, "trace_"):
            raise NotFitted("this LIAML is not fitted yet; call fit(questions, X) first.")
