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
| t | `Labels.classes()` (`lia_head.py`) | (Q, K, T) |
| φ | `Labels.pairs()` | (Q, K, K, S), S = T |
| q | `LIAMLHead.q` | (I·Q, K) |
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Self

import numpy as np
import torch
from torch import Tensor, nn

from dissensus.common.parameters import param
from dissensus.common.types import IntArray
from dissensus.exceptions import DataError
from dissensus.learning.batches import Bag, Batch, Columns
from dissensus.learning.objectives.base import Branch, as_tensor
from dissensus.learning.objectives.lia import LIAKeywords, LIAObjective
from dissensus.learning.objectives.lia_head import Competence, Labels, LIAHead, LIAMLHead
from dissensus.models.base import check_gold
from dissensus.table import names as naming
from dissensus.table.annotations import Annotations


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

    Not in the registry: `CrowdClassifier` has one table; `dissensus.learning.LIAML` trains this.
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

    def _by_posterior(self, targets: Batch) -> Batch:
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
