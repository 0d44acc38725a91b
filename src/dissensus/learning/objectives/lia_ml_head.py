"""The head of LIA-ML: embeddings of classes and of pairs of classes, and h, d and c over them.

The equations are in `dissensus.learning.objectives.lia_ml`.
"""

from __future__ import annotations

import copy
import math
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from dissensus.common.types import IntArray
from dissensus.learning.objectives.base import as_tensor
from dissensus.learning.objectives.lia_head import Competence, LIAHead, log_confusion
from dissensus.learning.rows import RowEmbedding
from dissensus.models.methods.mmce import expected_effect

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
    ):
        super().__init__(truth, difficulty, competence, 0, per_item)
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
        head = LIAMLHead(self.truth, self.difficulty, able, n_items, per_item, labels)
        head.requires_grad_(False)
        for parameter in (labels.own, labels.bias, labels.pair_bias):
            parameter.requires_grad_(True)
        return head
