"""LIA-ML, which embeds classes for many questions about the same items (Platanios et al. 2020, section 3.4).

A class κ is one value of one question. Its embedding t_κ is the sum of the embedding of the value's name, which all
questions with this value share, and an offset. The offset is initially zero, so that a new question starts like the
others. h depends on the embedding of a class; d and c depend on embeddings of *pairs* of a question's classes (φ). The
numbers of questions and classes are not limited.

    t_κ = common[name of κ] + offset_κ                   φ_κλ = (A t_κ + a) ⊙ (B t_λ + b) / √S
    h_κ(x_i) ∝ exp(⟨h(x_i), t_κ⟩ + b_κ)                                            over the classes κ of one question
    D_i[κ, λ] = ⟨d(x_i), φ_κλ⟩        C_j[κ, λ] = ⟨c(e_j), φ_κλ⟩ + b_κλ             L numbers each
    Q_ij[κ, λ] = softmax_λ log Σ_m exp(D_i[κ, λ, m] + C_j[κ, λ, m])          P(j's label of i is λ | its class is κ)

c is linear in e_j, and bilinear in e_j and the classes. If it were additive, no annotator could be better at one
question than at another. A yes/no question has its own classes "0" and "1". The form with one embedding per question,
from which K × K tensors are computed, is the special case of equal offsets for all classes of a question.

The equations of LIA then hold for every pair of an item and a question (`dissensus.learning.objectives.lia`). A batch
consists of items, each x_i is encoded once, and its pairs are rows. Questions are padded to the largest number of
classes, with logits of −10⁴. The time of a step is therefore proportional to items × questions × (most classes)² and
annotations × (most classes)² × S.

A `CrowdClassifier` trains this objective on one table, which is one question. `learning.lia_ml.LIAML` trains it on many
questions. On the medical relations of its paper, LIA-ML is not better than LIA for each question
(`reproductions/results/platanios2020.md`).

| symbol | name | shape |
|---|---|---|
| t | `ClassEmbeddings.classes()` | (Q, K, T) |
| φ | `ClassEmbeddings.pair_embeddings()` | (Q, K, K, S), S = T |
| q | `LIAMLHead.q` | (I·Q, K) |
"""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping
from typing import Any, ClassVar, Self

import numpy as np
import torch
from torch import Tensor, nn

from dissensus.common.exceptions import UnknownEntry
from dissensus.common.parameters import param
from dissensus.common.types import IntArray
from dissensus.learning.batches import Batch, BatchColumns, RaggedColumn
from dissensus.learning.exceptions import (
    QuestionsDiffer,
    QuestionsNeeded,
)
from dissensus.learning.objectives.base import BatchIterator, Branch, as_tensor, objectives
from dissensus.learning.objectives.lia import CompetenceLayer, LIAHead, LIAKeywords, LIAObjective, log_confusion
from dissensus.learning.rows import RowEmbedding
from dissensus.models.base import check_gold
from dissensus.models.exceptions import NoAnnotations
from dissensus.models.methods.mmce import unknown_annotator_effect
from dissensus.table.annotations import Annotations

SINGLE_QUESTION_NAME = "question"  # name of the question if there is a single table
ABSENT_CLASS_LOGIT = (
    -1e4
)  # logit of a class that the question does not have; its exponential is 0, and its product with 0 too


class ClassEmbeddings(nn.Module):
    """Embeddings and biases of the classes, and of pairs of classes, of Q questions with at most K classes each."""

    name: Tensor

    def __init__(self, name: IntArray, n_names: int, shares: Any, size: int, latent: int):
        """Initialise from `name` (Q, K), the codes of class names (−1 for absent classes), and vote shares (Q, K)."""
        super().__init__()
        Q, K = name.shape
        self.register_buffer("name", as_tensor(name, torch.int64))
        self.common = nn.Parameter(torch.randn(n_names, size) / math.sqrt(size))
        self.true, self.given = nn.Linear(size, size), nn.Linear(size, size)
        with torch.no_grad():  # With this scale both layers preserve the length of a vector.
            self.true.weight.mul_(math.sqrt(size))
            self.given.weight.mul_(math.sqrt(size))
        self.offset = nn.Parameter(torch.zeros(Q, K, size))
        first = np.zeros((Q, K, K))
        for q, k in enumerate((name >= 0).sum(axis=1)):
            first[q, :k, :k] = unknown_annotator_effect(k)
        self.pair_bias = nn.Parameter(as_tensor(first, torch.float32)[..., None].repeat(1, 1, 1, latent))
        self.bias = nn.Parameter(as_tensor(np.log(np.where(name >= 0, shares, 1)), torch.float32))

    def classes(self) -> Tensor:
        """Return the embeddings t (Q, K, T) of the classes."""
        return self.common[self.name.clamp(min=0)] + self.offset

    def pair_embeddings(self) -> Tensor:
        """Return the embeddings φ (Q, K, K, S) [true class, given label] of pairs, which are 0 for absent classes."""
        t, mask = self.classes(), (self.name >= 0)[..., None].to(self.common.dtype)
        products: Tensor = (self.true(t) * mask)[:, :, None] * (self.given(t) * mask)[:, None]
        return products / math.sqrt(t.shape[-1])

    def truth(self, y: Tensor) -> Tensor:
        """Return the logits (B, Q, K) of h from h(x) (B, T)."""
        t = self.classes()
        logits = (y @ t.flatten(0, 1).T).reshape(-1, *t.shape[:2]) + self.bias
        return torch.where(self.name >= 0, logits, ABSENT_CLASS_LOGIT)


class LIAMLHead(LIAHead):
    """Head with the layers h, d and c over class embeddings, and the posterior q of every item and question."""

    def __init__(
        self,
        truth: nn.Module,
        difficulty: nn.Module | None,
        competence: CompetenceLayer,
        n_items: int,
        per_item: float,
        labels: ClassEmbeddings,
        difficulty_penalty: float = 1.0,
    ):
        super().__init__(truth, difficulty, competence, 0, per_item, torch.ones(1), difficulty_penalty)
        self.labels = labels
        Q, K = labels.bias.shape
        self.q = torch.zeros(n_items * Q, K)

    def forward(self, z: Tensor) -> Tensor:
        """Return the logits (B·Q, K) of the classes."""
        return self.labels.truth(self.truth(z)).flatten(0, 1)

    def item_difficulty(self, z: Tensor) -> Tensor | None:
        """Return the difficulty D (B·Q, K, K, L) of the items."""
        if self.difficulty is None:
            return None
        phi = self.labels.pair_embeddings()  # (Q, K, K, S)
        Q, K, _, S = phi.shape
        y: Tensor = self.difficulty(z).reshape(len(z), S, -1).transpose(1, 2)  # (B, L, S)
        return (y @ phi.flatten(0, 2).T).reshape(len(z), -1, Q, K, K).movedim(1, -1).flatten(0, 1)

    def annotator_competence(self, rows: Tensor, question: Tensor) -> Tensor:
        """Return C (n, K, K, L) of annotators in questions, from the output (n, 1, 1, S·L) of `competence`."""
        phi = self.labels.pair_embeddings().index_select(0, question)  # (n, K, K, S)
        K, S = phi.shape[1], phi.shape[3]
        L = self.labels.pair_bias.shape[3]
        able = phi.flatten(1, 2) @ rows.reshape(len(rows), S, L)  # (n, K·K, L)
        return able.reshape(len(rows), K, K, L) + self.labels.pair_bias.index_select(0, question)

    def log_confusion(self, hard: Tensor | None, able: Tensor, question: Tensor) -> Tensor:
        """Return log Q (…, K, K), given D and C (…, K, K, L) of pairs and their questions `question` (…)."""
        mask = (self.labels.name >= 0)[question]  # (…, K)
        return log_confusion(hard, torch.where(mask[..., None, :, None], able, ABSENT_CLASS_LOGIT))

    def log_q(self, hard: Tensor | None, able: Tensor, row: Tensor) -> Tensor:
        """Return log Q (n, K, K) for the (item, question) pairs in rows `row` (n,)."""
        question = row % len(self.labels.name)
        return self.log_confusion(hard, self.annotator_competence(able, question), question)

    def extend(
        self, labels: ClassEmbeddings, codes: list[int | None], n_items: int, per_item: float, totals: Tensor
    ) -> LIAMLHead:
        """Return a head for more questions, in which only the embeddings and biases of their classes are trained.

        `codes` contains the code of every class name of these questions in this head, or None. The new head has one
        more annotator, which is the average of the others, weighted by `totals` (A,).
        """
        able = copy.deepcopy(self.competence)
        rows = able.table.weight
        average = able.rows_or_average(torch.tensor([-1], device=rows.device), totals.to(rows.device))
        able.table = RowEmbedding(torch.cat([rows, average]).detach())
        able.share = torch.cat([able.share, able.share.new_zeros(1)])
        with torch.no_grad():
            for at, code in enumerate(codes):
                if code is not None:
                    labels.common[at] = self.labels.common[code]
        labels.true, labels.given = self.labels.true, self.labels.given
        head = LIAMLHead(self.truth, self.difficulty, able, n_items, per_item, labels, float(self.difficulty_penalty))
        head.requires_grad_(False)
        for parameter in (labels.offset, labels.bias, labels.pair_bias):
            parameter.requires_grad_(True)
        return head


class LIAMLKeywords(LIAKeywords):
    """Keywords of LIA-ML that differ from those of LIA, shared by its objective and its model."""

    label_size: int = param(16, "T, the size of a class's embedding", low=1)
    # These three are keywords of LIA and constants here: LIA-ML takes no features of annotators, makes no
    # leave-one-out estimates, and gives annotators no matrix of their own.
    feature_penalty: ClassVar[float] = 0.0  # type: ignore[misc]
    leave_one_out: ClassVar[bool] = False  # type: ignore[misc]
    crowd_weight: ClassVar[float] = 0.0  # type: ignore[misc]  # annotators have no matrix of their own
    penalty: float = param(0.06, "γ, the penalty on (log Q)²; the authors use 0.25", low=0)
    difficulty_penalty: float = param(1.0, "δ, the penalty on the difficulty of items", low=0)


@objectives.register(
    "lia-ml",
    summary="lia with embeddings of classes, which questions share (`LIAML`)",
    cite="Platanios et al. 2020",
)
class LIAMLObjective(LIAMLKeywords, LIAObjective):
    """LIA for many questions, where `fit` takes one table, or a mapping from questions to tables of the same items.

    The penalty is divided by the mean number of annotations of an item in one question.
    """

    uses_annotator_features = False

    def fit(
        self,
        table: Annotations | Mapping[str, Annotations],
        gold: IntArray | Mapping[str, IntArray] | None,
        seed: int,
    ) -> Self:
        """Count the labels of the tables; `gold` contains codes (I,), by question if there are several questions."""
        if isinstance(table, Annotations):
            table, gold = (
                {SINGLE_QUESTION_NAME: table},
                None if gold is None else {SINGLE_QUESTION_NAME: np.asarray(gold)},
            )
        for name, one in table.items():
            for value, kind in ((name, str), (one, Annotations)):
                if not isinstance(value, kind):
                    raise QuestionsNeeded(location=f"question {name!r}", type_name=type(value).__name__)
        self.questions_ = sorted(table)
        tables = [table[name] for name in self.questions_]
        _check_axes(self.questions_, tables)
        pairs, Q = _pair_table(tables), len(tables)
        votes = pairs.votes().reshape(-1, Q, pairs.n_classes).sum(axis=0)  # (Q, K)
        if not votes.any():
            raise NoAnnotations()
        super().fit(pairs, _pair_gold(gold, self.questions_, tables), seed)
        self.n_items_ = tables[0].n_items
        self.pair_train_mask_ = self.train_mask_.reshape(-1, Q)  # (I, Q)
        self.train_mask_ = np.asarray(self.pair_train_mask_.any(axis=1))
        self.question_classes_ = [table.classes for table in tables]
        self.names_ = sorted({str(name) for classes in self.question_classes_ for name in classes})
        code = {name: at for at, name in enumerate(self.names_)}
        self.class_name_ = np.full(votes.shape, -1)  # (Q, K)
        for q, classes in enumerate(self.question_classes_):
            self.class_name_[q, : classes.size] = [code[str(name)] for name in classes]
        mask = self.class_name_ >= 0
        shares = (votes + 1) / (votes.sum(axis=1) + mask.sum(axis=1))[:, None]
        self.shares_ = np.where(mask, shares, 1.0)  # (Q, K) of the votes
        return self

    def targets(self) -> BatchColumns:
        """Return the targets of LIA by item (I, Q, …), the `question` of each row, and `train_mask` (I, Q)."""
        pairs, Q = super().targets().columns, len(self.questions_)
        rows, question = pairs["annotations"], as_tensor(self._table.item % Q, torch.int64)
        assert isinstance(rows, RaggedColumn)
        tensors = {name: column for name, column in pairs.items() if isinstance(column, Tensor)}
        return BatchColumns(
            annotations=RaggedColumn({**rows.columns, "question": question}, rows.ptr[::Q]),
            train_mask=as_tensor(self.pair_train_mask_, torch.float32),
            **{name: column.reshape(-1, Q, *column.shape[1:]) for name, column in tensors.items()},
        )

    def head(self, branch: Branch, width: int) -> LIAMLHead:
        """Return the layers of classes, difficulty and annotators, and the embeddings, initialised in this order."""
        T, L = self.label_size, self.latent
        truth = nn.Sequential(branch(), nn.Linear(width, T))
        hard = nn.Sequential(branch(), nn.Linear(width, T * L)) if self.difficulty else None
        # The competence has S·L numbers per annotator, as for a single class.
        able = CompetenceLayer(as_tensor(self.label_totals_), 1, T * L, self.annotator_size)
        return LIAMLHead(
            truth, hard, able, self.n_items_, self.per_item_, self._make_embeddings(), self.difficulty_penalty
        )

    def extend_head(self, other: LIAMLObjective, head: LIAMLHead) -> LIAMLHead:
        """Return a head for these questions from the fitted head of other questions (see `LIAMLHead.extend`).

        It has the annotators of that head, and one more, which is their average.
        """
        codes = [other.names_.index(name) if name in other.names_ else None for name in self.names_]
        self.label_totals_ = np.append(other.label_totals_, np.float32(0))  # the average annotator has no labels
        return head.extend(
            self._make_embeddings(), codes, self.n_items_, self.per_item_, as_tensor(other.label_totals_)
        )

    def _make_embeddings(self) -> ClassEmbeddings:
        """Return new embeddings of the classes."""
        return ClassEmbeddings(self.class_name_, len(self.names_), self.shares_, self.label_size, self.latent)

    # The methods of LIA, for pairs ------------------------------------------------------------------------------------

    def begin_epoch(self, head: LIAHead, epoch: int, epochs: int, iterate_batches: BatchIterator) -> None:
        """Run an E step over (item, question) pairs at the start of a round."""
        super().begin_epoch(
            head, epoch, epochs, lambda: ((z, self.flatten_pairs(targets)) for z, targets in iterate_batches())
        )

    def log_posterior(self, head: LIAHead, z: Tensor, targets: Batch) -> Tensor:
        """Return unnormalised log q (B·Q, K) of Eq. 4 of Platanios et al. 2020."""
        return super().log_posterior(head, z, self.flatten_pairs(targets))

    def loss(self, head: LIAHead, z: Tensor, targets: Batch) -> Tensor:
        """Return minus the quantity that training maximises in the current phase."""
        return super().loss(head, z, self.flatten_pairs(targets))

    def flatten_pairs(self, targets: Batch) -> Batch:
        """Flatten targets (B, Q, …) to (B·Q, …) of (item, question) pairs; `row` becomes the annotation's pair."""
        if "question" not in targets:
            return targets
        pairs = {
            name: targets[name].flatten(0, 1) for name in ("item", "votes", "train_mask", "gold") if name in targets
        }
        rest = {name: value for name, value in targets.items() if name != "question"}
        return rest | pairs | {"row": targets["row"] * targets["item"].shape[1] + targets["question"]}

    def _loss_terms(self, head: LIAHead, z: Tensor, targets: Batch) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return the terms of LIA, with log Q scaled to the question's own K and set to 0 for absent classes."""
        assert isinstance(head, LIAMLHead)
        logits, votes, log_q, pulls = super()._loss_terms(head, z, targets)
        mask = (head.labels.name >= 0).to(log_q.dtype)  # (Q, K)
        scale = self.n_classes_ / mask.sum(dim=1)[:, None, None] * mask[:, :, None] * mask[:, None]  # (Q, K, K)
        return logits, votes, log_q * scale.index_select(0, targets["row"] % len(mask)), pulls

    def _target(self, head: LIAHead, targets: Batch) -> Tensor:
        """Return q (B·Q, K) of the last E step, with 0 for pairs without labels, on which h is not trained."""
        return super()._target(head, targets) * targets["train_mask"][:, None]

    def question_confusion(self, head: LIAHead, z: Tensor, annotators: Tensor, question: int) -> Tensor:
        """Return Q (B, J, K, K) of all items and annotators in one question; code −1 is the average annotator."""
        assert isinstance(head, LIAMLHead)
        rows = head.competence.rows_or_average(annotators, self.label_totals(z.device))
        asked = torch.full((len(rows),), question, device=z.device)
        able, hard = (
            head.annotator_competence(head.competence.from_embeddings(rows), asked)[None],
            head.item_difficulty(z),
        )
        if hard is not None:
            hard = hard.reshape(len(z), -1, *hard.shape[1:])[:, question, None]
        log_q = head.log_confusion(hard, able, asked[None])
        return log_q.exp().expand(len(z), -1, -1, -1)

    def all_pair_confusions(
        self, head: LIAHead, z: Tensor, annotators: Tensor, features: Tensor | None = None
    ) -> Tensor:
        """Return Q (B, J, K, K) of all items and annotators in the only question."""
        return self.question_confusion(head, z, annotators, 0)

    def pair_confusions(
        self, head: LIAHead, z: Tensor, row: Tensor, annotators: Tensor, features: Tensor | None = None
    ) -> Tensor:
        """Return Q (n, K, K) of n pairs in the only question; `row` (n,) is the item's row in z."""
        hard = head.item_difficulty(z)
        able = head.competence.from_embeddings(head.competence.rows_or_average(annotators, self.label_totals(z.device)))
        return head.log_q(None if hard is None else hard.index_select(0, row), able, row).exp()


def _pair_table(tables: list[Annotations]) -> Annotations:
    """Return one table in which item i · Q + q is the pair of item i and question q, and class k is class k of q."""
    Q, K = len(tables), max(table.n_classes for table in tables)
    weight = proba = None
    if any(table.weight is not None for table in tables):
        weight = np.concatenate([np.ones(len(t)) if t.weight is None else t.weight for t in tables])
    if any(table.proba is not None for table in tables):
        rows = [np.eye(t.n_classes)[t.label] if t.proba is None else t.proba for t in tables]
        proba = np.concatenate([np.pad(shares, ((0, 0), (0, K - shares.shape[1]))) for shares in rows])
    return Annotations.from_codes(
        np.concatenate([table.item * Q + q for q, table in enumerate(tables)]),
        np.concatenate([table.annotator for table in tables]), np.concatenate([table.label for table in tables]),
        np.arange(tables[0].n_items * Q), tables[0].annotators, np.arange(K), weight=weight, proba=proba,
    )  # fmt: skip


def _check_axes(names: list[str], tables: list[Annotations]) -> None:
    """Raise DataError unless all tables have the same items and annotators."""
    if not tables:
        raise NoAnnotations()
    for name, table in zip(names, tables, strict=True):
        for axis in ("items", "annotators"):
            if not np.array_equal(getattr(table, axis), getattr(tables[0], axis)):
                raise QuestionsDiffer(first_question=names[0], second_question=name, axis=axis)


def _pair_gold(gold: Any, names: list[str], tables: list[Annotations]) -> IntArray | None:
    """Return gold codes (I · Q,) of pairs, with −1 for unknown, or None if no question has gold labels."""
    gold = gold or {}
    for name in gold:
        if name not in names:
            raise UnknownEntry(entry_type="question", name=str(name), entries=tuple(names), command="")
    codes = [check_gold(gold.get(name), table) for name, table in zip(names, tables, strict=True)]
    if all(question_codes is None for question_codes in codes):
        return None
    unknown = np.full(tables[0].n_items, -1, np.int32)
    return np.stack([unknown if question_codes is None else question_codes for question_codes in codes], axis=1).ravel()
