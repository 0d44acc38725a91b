"""Items without features: a vector is learnt for each, and layers over it are shared.

A step's gradient holds only the vectors of its items. An item that was not there at `fit` has the mean vector, which
says nothing about it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor, nn

from dissensus.common.types import Names
from dissensus.exceptions import BadParameter
from dissensus.learning.batches import Columns
from dissensus.learning.encoders.base import Encoder, encoders
from dissensus.learning.encoders.mlp import MLPModule
from dissensus.learning.rows import RowEmbedding
from dissensus.table import names as naming


@encoders.register("item-embedding", summary="a learnt vector per item: for items without features", cite="")
class ItemEmbedding(Encoder):
    """Names of items → vectors.

    Parameters
    ----------
    size : int
        Of an item's vector.
    hidden : sequence of int
        Widths of the layers over it; none: the vector itself.
    dropout : float
        Share of values set to zero after each layer while training.
    """

    takes = "names of items"

    names_: Names

    def __init__(self, *, size: int = 16, hidden: Sequence[int] = (16, 16, 16, 16), dropout: float = 0.0):
        self.size, self.hidden, self.dropout = size, hidden, dropout

    def fit(self, X: Any) -> Self:
        """The names."""
        sizes = np.ndim(self.hidden) == 1 and min([self.size, *self.hidden]) >= 1
        if not sizes or not 0 <= self.dropout < 1:
            raise BadParameter(
                "item-embedding: size and hidden must be at least 1 and dropout below 1, got "
                f"{self.size}, {self.hidden} and {self.dropout}."
            )
        self.names_ = np.unique(_names(X))
        return self

    def prepare(self, X: Any) -> Columns:
        """One column, `code`; −1 for a name that was not there at `fit`."""
        return Columns(code=torch.as_tensor(naming.match(_names(X), self.names_, "X").astype(np.int64)))

    def module(self) -> nn.Module:
        """`ItemEmbeddingModule`."""
        return ItemEmbeddingModule(self.names_.size, self.size, self.hidden, self.dropout)

    @property
    def width(self) -> int:
        """Of the last layer."""
        return self.hidden[-1] if self.hidden else self.size


class ItemEmbeddingModule(nn.Module):
    """Codes (B,) → (B, hidden[-1])."""

    def __init__(self, n_items: int, size: int, hidden: Sequence[int], dropout: float):
        super().__init__()
        self.vectors = RowEmbedding(torch.randn(n_items, size))
        self.layers = MLPModule(size, hidden, dropout)

    def forward(self, code: Tensor) -> Tensor:
        """The last layer's values."""
        vectors = self.vectors(code.clamp(min=0))
        if not self.training:
            vectors = torch.where(code[:, None] >= 0, vectors, self.vectors.weight.mean(dim=0))
        out: Tensor = self.layers(vectors)
        return out


def _names(X: Any) -> Names:
    return naming.to_names(naming.to_column(X, "X"))
