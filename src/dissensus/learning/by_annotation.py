"""Ask a trained network about the rows of a table.

Items are encoded once and only the rows that are there are asked for: time and memory are those of the rows, never of
items × annotators.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from dissensus.common.types import FloatArray, IntArray
from dissensus.learning.batches import Bag, Batch, Columns
from dissensus.learning.objectives.base import as_tensor
from dissensus.learning.trainer import BATCHES_AT_ONCE
from dissensus.table.annotations import Annotations

if TYPE_CHECKING:
    from dissensus.learning.classifier import CrowdClassifier

CELLS = 2**22  # of confusion matrices that are looked at together: rows × K × K

Ask = Callable[[Tensor, Tensor, IntArray], Tensor]
"""The encoder's output of some items (B, …), the place among them of each of n rows (n,), and which rows of the table
these are (n,) → (n, K)."""


def ask_rows(model: CrowdClassifier, columns: Columns, table: Annotations, ask: Ask) -> FloatArray:
    """Ask about all rows (N, K), some at a time, and make their answers distributions; item i is row i of `columns`."""
    network, K = model.network_.to(model.place()), model.objective_.n_classes_
    items, rows = np.flatnonzero(np.diff(table.item_ptr)), torch.arange(len(table))
    if not items.size:
        return np.empty((0, K))

    def some(inputs: Batch, asked: Batch) -> Tensor:
        z, at = network.encoder(**inputs), asked["at"].cpu().numpy()
        parts = torch.split(torch.arange(len(at)), max(CELLS // K**2, 1))  # an item may have more rows than that
        return torch.cat([ask(z, asked["row"][part.to(z.device)], at[part.numpy()]).cpu() for part in parts])

    bag = Columns(rows=Bag({"at": rows}, as_tensor(table.item_ptr, torch.int64)))
    found = network.ask(some, columns, bag, rows=items, at_once=BATCHES_AT_ONCE * model.batch_size)
    return np.asarray(found / found.sum(axis=1, keepdims=True))
