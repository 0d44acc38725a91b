"""LIA-ML (Platanios et al. 2020, Section 3.4): many questions about the same items, or open label sets, by embeddings.

A class κ is a value that one question may have; its embedding t_κ is that of the value's name, which all questions with
this value share, plus one of its own that starts at zero: a question nothing is known of is like the others. h, d and
c take embeddings, d and c those of *pairs* of a question's classes (φ), so any number of questions and classes will do:

    t_κ = common[name of κ] + own_κ                      φ_κλ = (A t_κ + a) ⊙ (B t_λ + b) / √S
    h_κ(x_i) ∝ exp(⟨h(x_i), t_κ⟩ + b_κ)                                            over the classes κ of one question
    D_i[κ, λ] = ⟨d(x_i), φ_κλ⟩        C_j[κ, λ] = ⟨c(e_j), φ_κλ⟩ + b_κλ             L numbers each
    Q_ij[κ, λ] = softmax_λ log Σ_m exp(D_i[κ, λ, m] + C_j[κ, λ, m])                 P(j says λ of i | its class is κ)

c is linear in e_j, but bilinear in e_j and the classes: were it additive, no annotator could be better at one question
than at another. A yes/no question has two classes, its own "0" and "1"; one embedding per question, and K × K tensors
of it, is this form with the same `own` in all classes of a question.

The equations of LIA then hold for every pair of an item and a question (`dissensus.learning.objectives.lia`): a batch
is of items, x_i is encoded once, and its pairs are rows. A question with fewer classes than the widest is padded (its
other logits are −10⁴), so that a step costs items × questions × (most classes)² and annotations × (most classes)² × S.

| symbol | name | shape |
|---|---|---|
| t | `Labels.classes()` | (Q, K, T) |
| φ | `Labels.pairs()` | (Q, K, K, S), S = T |
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

from dissensus.common.parameters import param
from dissensus.common.types import IntArray
from dissensus.exceptions import DataError
from dissensus.learning.batches import Bag, Batch, Columns
from dissensus.learning.objectives.base import Branch, Walk, as_tensor
from dissensus.learning.objectives.lia import Competence, LIAHead, LIAKeywords, LIAObjective, log_confusion
from dissensus.learning.rows import RowEmbedding
from dissensus.models.base import check_gold
from dissensus.models.methods.mmce import expected_effect
from dissensus.table import names as naming
from dissensus.table.annotations import Annotations

ABSENT = -1e4  # logit of a class that the question does not have: e to it is 0, and 0 times it is 0


class Labels(nn.Module):
    """The classes of Q questions, K at most: embeddings of classes and of pairs, and their biases."""

    name: Tensor

    def __init__(self, name: IntArray, n_names: int, shares: Any, size: int, latent: int):
        """`name` (Q, K): codes of the classes' names, −1 where a question has fewer; `shares` (Q, K) of the votes."""
        super().__init__()
        Q, K = name.shape
        self.register_buffer("name", as_tensor(name, torch.int64))
        self.common = nn.Parameter(torch.randn(n_names, size) / math.sqrt(size))
        self.true, self.given = nn.Linear(size, size), nn.Linear(size, size)
        with torch.no_grad():  # of a vector of length 1, as long a one
            self.true.weight.mul_(math.sqrt(size))
            self.given.weight.mul_(math.sqrt(size))
        self.own = nn.Parameter(torch.zeros(Q, K, size))
        first = np.zeros((Q, K, K))
        for q, k in enumerate((name >= 0).sum(axis=1)):
            first[q, :k, :k] = expected_effect(k)
        self.pair_bias = nn.Parameter(as_tensor(first, torch.float32)[..., None].repeat(1, 1, 1, latent))
        self.bias = nn.Parameter(as_tensor(np.log(np.where(name >= 0, shares, 1)), torch.float32))

    def classes(self) -> Tensor:
        """(Q, K, T) t."""
        return self.common[self.name.clamp(min=0)] + self.own

    def pairs(self) -> Tensor:
        """(Q, K, K, S) φ [true, given]; 0 where a question has no such class."""
        t, there = self.classes(), (self.name >= 0)[..., None].to(self.common.dtype)
        both: Tensor = (self.true(t) * there)[:, :, None] * (self.given(t) * there)[:, None]
        return both / math.sqrt(t.shape[-1])

    def truth(self, y: Tensor) -> Tensor:
        """(B, Q, K) logits of h by h(x) (B, T)."""
        t = self.classes()
        logits = (y @ t.flatten(0, 1).T).reshape(-1, *t.shape[:2]) + self.bias
        return torch.where(self.name >= 0, logits, ABSENT)


class LIAMLHead(LIAHead):
    """h, d and c over the embeddings of classes, and the posterior q of every item and question."""

    def __init__(
        self,
        truth: nn.Module,
        difficulty: nn.Module | None,
        competence: Competence,
        n_items: int,
        per_item: float,
        labels: Labels,
        difficulty_penalty: float = 1.0,
    ):
        super().__init__(truth, difficulty, competence, 0, per_item, torch.ones(1), difficulty_penalty)
        self.labels = labels
        Q, K = labels.bias.shape
        self.q = torch.zeros(n_items * Q, K)

    def forward(self, z: Tensor) -> Tensor:
        """(B·Q, K) logits of the classes."""
        return self.labels.truth(self.truth(z)).flatten(0, 1)

    def hardness(self, z: Tensor) -> Tensor | None:
        """(B·Q, K, K, L) D of the items."""
        if self.difficulty is None:
            return None
        phi = self.labels.pairs()  # (Q, K, K, S)
        Q, K, _, S = phi.shape
        y: Tensor = self.difficulty(z).reshape(len(z), S, -1).transpose(1, 2)  # (B, L, S)
        return (y @ phi.flatten(0, 2).T).reshape(len(z), -1, Q, K, K).movedim(1, -1).flatten(0, 1)

    def able(self, rows: Tensor, question: Tensor) -> Tensor:
        """(n, K, K, L) C of annotators in questions, by `competence(codes)[0]` or its `of` (n, 1, 1, S·L)."""
        phi = self.labels.pairs().index_select(0, question)  # (n, K, K, S)
        K, S = phi.shape[1], phi.shape[3]
        found = phi.flatten(1, 2) @ rows.reshape(len(rows), S, -1)  # (n, K·K, L)
        return found.reshape(len(rows), K, K, -1) + self.labels.pair_bias.index_select(0, question)

    def log_confusion(self, hard: Tensor | None, able: Tensor, question: Tensor) -> Tensor:
        """(…, K, K) log Q of D and C (…, K, K, L), where `question` (…) says whose classes they are."""
        there = (self.labels.name >= 0)[question]  # (…, K)
        return log_confusion(hard, torch.where(there[..., None, :, None], able, ABSENT))

    def log_q(self, hard: Tensor | None, able: Tensor, row: Tensor) -> Tensor:
        """(n, K, K) log Q of pairs of an item and a question in rows `row` (n,)."""
        question = row % len(self.labels.name)
        return self.log_confusion(hard, self.able(able, question), question)

    def beside(
        self, labels: Labels, known: list[int | None], n_items: int, per_item: float, totals: Tensor
    ) -> LIAMLHead:
        """Make a head for more questions, in which only the embeddings and biases of their classes may move.

        `known`: the code here of every class name there. One row more of annotators is the average, by `totals` (A,).
        """
        able = copy.deepcopy(self.competence)
        rows = able.table.weight
        average = able.rows_of(torch.tensor([-1], device=rows.device), totals.to(rows.device))
        able.table = RowEmbedding(torch.cat([rows, average]).detach())
        able.share = torch.cat([able.share, able.share.new_zeros(1)])
        with torch.no_grad():
            for at, code in enumerate(known):
                if code is not None:
                    labels.common[at] = self.labels.common[code]
        labels.true, labels.given = self.labels.true, self.labels.given
        head = LIAMLHead(self.truth, self.difficulty, able, n_items, per_item, labels, float(self.difficulty_penalty))
        head.requires_grad_(False)
        for parameter in (labels.own, labels.bias, labels.pair_bias):
            parameter.requires_grad_(True)
        return head


class LIAMLKeywords(LIAKeywords):
    """Those of LIA that LIA-ML has otherwise, shared by its objective and its learner."""

    label_size: int = param(16, "T, the size of a class's embedding", low=1)
    feature_penalty: ClassVar[float] = 0.0  # type: ignore[misc]  # no keyword: it takes no features of annotators
    left_out: ClassVar[bool] = False  # type: ignore[misc]
    known: ClassVar[float] = 0.0  # type: ignore[misc]  # its annotators have no matrix of their own
    penalty: float = param(0.06, "γ, on (log Q)²; the authors' is 0.25", low=0)
    difficulty_penalty: float = param(1.0, "δ, on the difficulty of items", low=0)


class LIAMLObjective(LIAMLKeywords, LIAObjective):
    """LIA of many questions: `fit` takes a mapping from question to table, all of the same items and annotators.

    Not in the registry: `CrowdClassifier` has one table; `reproductions.lia_ml.LIAML` trains this.
    The penalty is per annotations of an item in one question.
    """

    def fit(  # type: ignore[override]  # several tables in the place of one
        self, questions: Mapping[str, Annotations], gold: Mapping[str, IntArray] | None, seed: int
    ) -> Self:
        """Count labels; the votes are the first posterior. `gold`: (I,) codes by question, of some of them."""
        for name, table in questions.items():
            if not isinstance(name, str):
                raise DataError(f"lia-ml: question {name!r} is no text; give questions names that are texts.")
            if not isinstance(table, Annotations):
                raise DataError(
                    f"question {naming.shown(name)}: a table of annotations is needed, got {type(table).__name__}."
                )
        self.questions_ = sorted(questions)
        tables = [questions[name] for name in self.questions_]
        _check_alike(self.questions_, tables)
        pairs, Q = _pair_table(tables), len(tables)
        votes = pairs.votes().reshape(-1, Q, pairs.n_classes).sum(axis=0)  # (Q, K)
        if not votes.any():
            raise DataError("lia-ml learns from annotations, and there are none in any question.")
        super().fit(pairs, _golds(gold, self.questions_, tables), seed)
        self.n_items_ = tables[0].n_items
        self.taught_ = self.teaches_.reshape(-1, Q)  # (I, Q)
        self.teaches_ = np.asarray(self.taught_.any(axis=1))
        self.classes_ = [table.classes for table in tables]
        self.names_ = sorted({str(name) for classes in self.classes_ for name in classes})
        code = {name: at for at, name in enumerate(self.names_)}
        self.class_name_ = np.full(votes.shape, -1)  # (Q, K)
        for q, classes in enumerate(self.classes_):
            self.class_name_[q, : classes.size] = [code[str(name)] for name in classes]
        there = self.class_name_ >= 0
        shares = (votes + 1) / (votes.sum(axis=1) + there.sum(axis=1))[:, None]
        self.shares_ = np.where(there, shares, 1.0)  # (Q, K) of the votes
        return self

    def targets(self) -> Columns:
        """Those of LIA by item, (I, Q, …) each; the rows also have their `question`; `taught` (I, Q)."""
        pairs, Q = super().targets().columns, len(self.questions_)
        rows, question = pairs["annotations"], as_tensor(self._table.item % Q, torch.int64)
        assert isinstance(rows, Bag)
        tensors = {name: column for name, column in pairs.items() if isinstance(column, Tensor)}
        return Columns(
            annotations=Bag({**rows.columns, "question": question}, rows.ptr[::Q]),
            taught=as_tensor(self.taught_, torch.float32),
            **{name: column.reshape(-1, Q, *column.shape[1:]) for name, column in tensors.items()},
        )

    def head(self, branch: Branch, width: int) -> LIAMLHead:
        """The classes first, then difficulty, then the annotators, then the embeddings."""
        T, L = self.label_size, self.latent
        truth = nn.Sequential(branch(), nn.Linear(width, T))
        hard = nn.Sequential(branch(), nn.Linear(width, T * L)) if self.difficulty else None
        able = Competence(as_tensor(self.labels_given_), 1, T * L, self.annotator_size)  # as of one class: S·L numbers
        return LIAMLHead(truth, hard, able, self.n_items_, self.per_item_, self._labels(), self.difficulty_penalty)

    def head_beside(self, other: LIAMLObjective, head: LIAMLHead) -> LIAMLHead:
        """Make a head for these questions beside the fitted head of others: see `LIAMLHead.beside`.

        Annotators are the others' and one more, the average.
        """
        known = [other.names_.index(name) if name in other.names_ else None for name in self.names_]
        self.labels_given_ = np.append(other.labels_given_, np.float32(0))  # an average is one of the others'
        return head.beside(self._labels(), known, self.n_items_, self.per_item_, as_tensor(other.labels_given_))

    def _labels(self) -> Labels:
        """Make fresh embeddings of the classes."""
        return Labels(self.class_name_, len(self.names_), self.shares_, self.label_size, self.latent)

    # As LIA, of pairs -------------------------------------------------------------------------------------------------

    def begin_epoch(self, head: LIAHead, epoch: int, epochs: int, walk: Walk) -> None:
        """Do an E step of pairs where a round begins."""
        super().begin_epoch(head, epoch, epochs, lambda: ((z, self.by_pair(targets)) for z, targets in walk()))

    def log_posterior(self, head: LIAHead, z: Tensor, targets: Batch) -> Tensor:
        """(B·Q, K) Eq. 4, not normalised."""
        return super().log_posterior(head, z, self.by_pair(targets))

    def loss(self, head: LIAHead, z: Tensor, targets: Batch) -> Tensor:
        """Minus the objective that is raised."""
        return super().loss(head, z, self.by_pair(targets))

    def by_pair(self, targets: Batch) -> Batch:
        """Flatten targets (B, Q, …) of items and questions to (B·Q, …) of pairs; `row` is an annotation's pair."""
        if "question" not in targets:
            return targets
        pairs = {name: targets[name].flatten(0, 1) for name in ("item", "votes", "taught", "gold") if name in targets}
        rest = {name: value for name, value in targets.items() if name != "question"}
        return rest | pairs | {"row": targets["row"] * targets["item"].shape[1] + targets["question"]}

    def _parts(self, head: LIAHead, z: Tensor, targets: Batch) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """As LIA's, but log Q is scaled for the penalty: 0 where there is no class, and 2/K with the question's K."""
        assert isinstance(head, LIAMLHead)
        logits, votes, log_q, pulls = super()._parts(head, z, targets)
        there = (head.labels.name >= 0).to(log_q.dtype)  # (Q, K)
        scale = self.n_classes_ / there.sum(dim=1)[:, None, None] * there[:, :, None] * there[:, None]  # (Q, K, K)
        return logits, votes, log_q * scale.index_select(0, targets["row"] % len(there)), pulls

    def _target(self, head: LIAHead, targets: Batch) -> Tensor:
        """(B·Q, K) q of the last E step; 0 where nobody answered, so that h does not learn its own guess."""
        return super()._target(head, targets) * targets["taught"][:, None]

    def question_confusion(self, head: LIAHead, z: Tensor, annotators: Tensor, question: int) -> Tensor:
        """(B, J, K, K) Q of all items with all annotators in one question; −1 is the average annotator."""
        assert isinstance(head, LIAMLHead)
        rows = head.competence.rows_of(annotators, self.totals(z.device))
        asked = torch.full((len(rows),), question, device=z.device)
        able, hard = head.able(head.competence.of(rows), asked)[None], head.hardness(z)
        if hard is not None:
            hard = hard.reshape(len(z), -1, *hard.shape[1:])[:, question, None]
        log_q = head.log_confusion(hard, able, asked[None])
        return log_q.exp().expand(len(z), -1, -1, -1)


def _pair_table(tables: list[Annotations]) -> Annotations:
    """Make one table whose items are pairs, item · Q + question; a question's class k is class k."""
    Q, K = len(tables), max(table.n_classes for table in tables)
    weight = proba = None
    if any(table.weight is not None for table in tables):
        weight = np.concatenate([np.ones(len(t)) if t.weight is None else t.weight for t in tables])
    if any(table.proba is not None for table in tables):
        said = [np.eye(t.n_classes)[t.label] if t.proba is None else t.proba for t in tables]
        proba = np.concatenate([np.pad(shares, ((0, 0), (0, K - shares.shape[1]))) for shares in said])
    return Annotations.from_codes(
        np.concatenate([table.item * Q + q for q, table in enumerate(tables)]),
        np.concatenate([table.annotator for table in tables]), np.concatenate([table.label for table in tables]),
        np.arange(tables[0].n_items * Q), tables[0].annotators, np.arange(K), weight=weight, proba=proba,
    )  # fmt: skip


def _check_alike(names: list[str], tables: list[Annotations]) -> None:
    if not tables:
        raise DataError("lia-ml: no question is given; give a mapping from question to table.")
    for name, table in zip(names, tables, strict=True):
        for what in ("items", "annotators"):
            own, first = getattr(table, what), getattr(tables[0], what)
            if not np.array_equal(own, first):
                raise DataError(
                    f"questions {naming.shown(names[0])} and {naming.shown(name)} are of other {what} ({first.size:,} "
                    f"and {own.size:,}); make all tables over the same ones, as `Questions.from_arrays` does."
                )


def _golds(gold: Mapping[str, IntArray] | None, names: list[str], tables: list[Annotations]) -> IntArray | None:
    """(I · Q,) codes of pairs, −1 unknown; None where nothing is known."""
    gold = gold or {}
    for name in gold:
        if name not in names:
            raise DataError(f"gold: there is no question {naming.shown(name)}; there are {', '.join(names)}.")
    known = [check_gold(gold.get(name), table) for name, table in zip(names, tables, strict=True)]
    if all(codes is None for codes in known):
        return None
    none = np.full(tables[0].n_items, -1, np.int32)
    return np.stack([none if codes is None else codes for codes in known], axis=1).ravel()
