"""The layers of LIA: classes h and difficulty D of an item, competence C of an annotator, and Q of both.

    h(x_i) the classes        D_i = d(x_i)        C_j = c(j) = V e_j + b        D and C are K × K × L
    Q_ij[k, l] = softmax_l log Σ_m exp(D_i[k, l, m] + C_j[k, l, m])

h and d are layers on the same encoder. c is linear in an embedding of the annotator (`annotator_size`), or has K·K·L
numbers of its own for each (None: the one-hot form, V = 1). e_j is u_j, or u_j + W r_j where features r_j are given.
How they learn, and how Q stands to Eq. 1 of Platanios et al. 2020, is in `lia.py`.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from dissensus.common.types import FloatArray
from dissensus.learning.losses import log_softmax
from dissensus.learning.objectives.base import AnnotatorRows, as_tensor
from dissensus.learning.rows import RowEmbedding
from dissensus.models.methods.mmce import expected_effect

SPREAD = 0.1  # standard deviation of an annotator's numbers at the start: all of them are nearly alike


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
        prior: Tensor,
        difficulty_penalty: float,
    ):
        super().__init__()
        self.truth, self.difficulty, self.competence = truth, difficulty, competence
        self.register_buffer("q", torch.zeros(n_items, len(prior)))
        self.register_buffer("prior", prior)  # π
        self.register_buffer("by_others", torch.zeros(n_items, len(prior)))  # log h of items left out
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
