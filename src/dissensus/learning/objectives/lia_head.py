"""The layers of LIA and LIA-ML: classes h and difficulty D of an item, competence C of an annotator, and Q of both.

    h(x_i) the classes        D_i = d(x_i)        C_j = c(j) = V e_j + b        D and C are K × K × L
    Q_ij[k, l] = softmax_l log Σ_m exp(D_i[k, l, m] + C_j[k, l, m])

h and d are layers on the same encoder. c is linear in an embedding of the annotator (`annotator_size`), or has K·K·L
numbers of its own for each (None: the one-hot form, V = 1). e_j is u_j, or u_j + W r_j where features r_j are given.
How they learn, and how Q stands to Eq. 1 of Platanios et al. 2020, is in `lia.py`. LIA-ML has h, d and c over
embeddings of classes and of pairs of classes (`Labels`); its equations are in `lia_ml.py`.
"""

from __future__ import annotations

import copy
import math
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from dissensus.common.types import FloatArray, IntArray
from dissensus.learning.losses import log_softmax
from dissensus.learning.objectives.base import AnnotatorRows, as_tensor
from dissensus.learning.rows import RowEmbedding
from dissensus.models.methods.mmce import expected_effect

SPREAD = 0.1  # standard deviation of an annotator's numbers at the start: all of them are nearly alike
ABSENT = -1e4  # logit of a class that the question does not have: e to it is 0, and 0 times it is 0


class Competence(AnnotatorRows):
    """Annotators, whose labels (A,) are counted → C (…, K, K, L)."""

    share: Tensor
    unknown: Tensor

    def __init__(
        self, labels: Tensor, n_classes: int, latent: int, size: int | None, features: FloatArray | None = None
    ):
        super().__init__()
        self.shape = (n_classes, n_classes, latent)
        first = as_tensor(expected_effect(n_classes), torch.float32)[..., None].expand(self.shape).reshape(-1)
        width = math.prod(self.shape) if size is None else size
        self.table = RowEmbedding(torch.randn(len(labels), width) * SPREAD)
        self.register_buffer("share", torch.where(labels > 0, 1 / labels, 0), persistent=False)
        self.crowd = nn.Parameter(first.clone())  # b
        self.register_buffer("unknown", first.clone(), persistent=False)  # b of an annotator nobody knows
        self.linear: nn.Linear | None = None  # V
        if size is not None:
            self.linear = nn.Linear(size, math.prod(self.shape), bias=False)
        self.describe(features, width)

    def forward(self, annotator: Tensor) -> tuple[Tensor, Tensor]:
        """C (n, K, K, L) of codes (n,), and ½ |V u_j|² / labels of j, (n,)."""
        own = self._made(self.table(annotator))
        pull = own.square().sum(dim=1) / 2 * self.share.index_select(0, annotator)
        if (explained := self.explained(annotator)) is not None:
            own = own + self._made(explained)
        return (own + self.crowd).reshape(-1, *self.shape), pull

    def _made(self, rows: Tensor) -> Tensor:
        made: Tensor = rows if self.linear is None else self.linear(rows)
        return made

    def of(self, rows: Tensor) -> Tensor:
        """(n, K, K, L) C of embeddings (n, E)."""
        return (self._made(rows) + self.crowd).reshape(-1, *self.shape)

    def rows(self) -> Tensor:
        """(A, E) e_j of all annotators."""
        return self.table.weight if self.described is None else self.table.weight + self.described(self.features)

    def pull(self) -> Tensor:
        """½ |b − b of an unknown annotator|²."""
        return (self.crowd - self.unknown).square().sum() / 2

    def effect(self) -> Tensor:
        """½ |V W|²."""
        assert self.described is not None
        effect = self.described.weight if self.linear is None else self.linear.weight @ self.described.weight
        return effect.square().sum() / 2


class LIAHead(nn.Module):
    """h, d and c, and the posterior q of the last E step."""

    q: Tensor
    by_others: Tensor
    prior: Tensor
    difficulty_penalty: Tensor
    per_item: Tensor

    def __init__(
        self,
        truth: nn.Module,
        difficulty: nn.Module | None,
        competence: Competence,
        n_items: int,
        per_item: float,
        prior: Tensor | None = None,
        difficulty_penalty: float = 1.0,
    ):
        super().__init__()
        self.truth, self.difficulty, self.competence = truth, difficulty, competence
        self.register_buffer("q", torch.zeros(n_items, competence.shape[0]))
        K = competence.shape[0]
        self.register_buffer("prior", torch.full((K,), 1 / K) if prior is None else prior)  # π
        self.register_buffer("by_others", torch.zeros(n_items, competence.shape[0]))  # log h of items left out
        self.register_buffer("per_item", torch.tensor(per_item))  # annotations
        self.register_buffer("difficulty_penalty", torch.tensor(float(difficulty_penalty)))  # δ
        self.marginal = False  # True: the rounds are over

    @property
    def main(self) -> nn.Module:
        """The part that predicts."""
        return self.truth

    def forward(self, z: Tensor) -> Tensor:
        """(B, K) logits of the classes."""
        out: Tensor = self.truth(z)
        return out

    def hardness(self, z: Tensor) -> Tensor | None:
        """(B, K, K, L) D of the items."""
        return None if self.difficulty is None else self.difficulty(z).reshape(-1, *self.competence.shape)

    def log_q(self, hard: Tensor | None, able: Tensor, row: Tensor) -> Tensor:
        """(n, K, K) log Q of D (n, K, K, L) of items and of what `competence` says of annotators."""
        return log_confusion(hard, able)

    def get_extra_state(self) -> Tensor:
        """`marginal` for the state dict; it is a plain attribute, because a tensor on a device is slow to read."""
        return torch.tensor(self.marginal)

    def set_extra_state(self, state: Tensor) -> None:
        """From the state dict."""
        self.marginal = bool(state)


def log_confusion(difficulty: Tensor | None, competence: Tensor) -> Tensor:
    """(…, K, K) log Q of D and C (…, K, K, L)."""
    both = competence if difficulty is None else difficulty + competence
    both = both if both.dtype == torch.float64 else both.float()
    return log_softmax(both[..., 0] if both.shape[-1] == 1 else torch.logsumexp(both, dim=-1))


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
        super().__init__(truth, difficulty, competence, 0, per_item, None, difficulty_penalty)
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
