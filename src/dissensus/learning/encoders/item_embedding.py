"""Encoder of items without features, with one trained vector per item and shared layers over the vectors.

The gradient of a step contains only the vectors of its items. An item that was not in `fit` gets the mean vector.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor, nn

from dissensus.common.parameters import param
from dissensus.common.types import Names
from dissensus.learning.batches import BatchColumns
from dissensus.learning.encoders.base import Encoder, encoders, size_param
from dissensus.learning.encoders.mlp import MLPModule
from dissensus.learning.rows import RowEmbedding
from dissensus.table import names as naming


@encoders.register("item-embedding", summary="a trained vector per item, for items without features", cite="")
class ItemEmbedding(Encoder):
    """Encoder that maps names of items to trained vectors."""

    input_kind = "names of items"

    size: int = param(16, "length of an item's vector", low=1)
    hidden: Sequence[int] = size_param(
        (16, 16, 16, 16),
        "widths of the layers over the vector; an empty list means no layers",
        "must be widths of layers",
        least=0,
    )
    dropout: float = param(0.0, "share of values set to zero after each layer while training", low=0, below=1)

    names_: Names

    def fit(self, X: Any) -> Self:
        super().fit(X)
        self.names_ = np.unique(_read_names(X))
        return self

    def prepare(self, X: Any) -> BatchColumns:
        """Return one column, `code`, which is −1 for a name that was not in `fit`."""
        return BatchColumns(code=torch.as_tensor(naming.match_names(_read_names(X), self.names_, "X").astype(np.int64)))

    def module(self) -> nn.Module:
        return ItemEmbeddingModule(self.names_.size, self.size, self.hidden, self.dropout)

    @property
    def width(self) -> int:
        return self.hidden[-1] if self.hidden else self.size


class ItemEmbeddingModule(nn.Module):
    """Vectors of items and the layers over them, which map codes (B,) to (B, hidden[-1])."""

    def __init__(self, n_items: int, size: int, hidden: Sequence[int], dropout: float):
        super().__init__()
        self.vectors = RowEmbedding(torch.randn(n_items, size))
        self.layers = MLPModule(size, hidden, dropout)

    def forward(self, code: Tensor) -> Any:
        """Return the output of the last layer; a code of −1 gets the mean vector."""
        vectors = self.vectors(code.clamp(min=0))
        if not self.training:
            vectors = torch.where(code[:, None] >= 0, vectors, self.vectors.weight.mean(dim=0))
        return self.layers(vectors)


def _read_names(X: Any) -> Names:
    return naming.to_names(naming.to_column(X, "X"))
