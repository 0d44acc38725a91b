"""Share the items that teach among processes: each process has one range of them, all ranges equally many.

A process reads the inputs and targets of its range and puts them on its device. A step sees the same items whatever
the number of processes: each process takes those in its range. So the result is that of one process, but for rounding
and for what is drawn (dropout, mixup) or looks at a whole part (batch normalisation). The price: the shares of a step
have unequal lengths, by about the square root of their mean; a process without a share looks at two of its items and
counts them as nothing. Before an epoch, an objective that asks to see all items gets them from their owners, a part at
a time.

Every process holds the network (also what it has per item, such as LIA's q) and the numbers of the items that teach, 8
bytes each. The first process does the validation.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dissensus.common.types import IntArray
from dissensus.learning.network import Lessons

MAX_MEMORY_SHARE = 0.5  # share of a device's free memory that the data may take


class Shard:
    """The rows that teach in the range of one process, on its device where there is room."""

    def __init__(self, fabric: Any, data: Lessons, rows: IntArray):
        self.fabric, self.device = fabric, fabric.device
        self.rank, self.world = fabric.global_rank, fabric.world_size
        self.rows, self.edges = torch.as_tensor(rows), shares(rows, self.world)
        if self.world > 1:
            data = data.part(*self.edges[self.rank : self.rank + 2].tolist())
        self.resident = self.device.type == "cpu"
        free = torch.cuda.mem_get_info(self.device)[0] if self.device.type == "cuda" else math.inf
        if not self.resident and data.nbytes < MAX_MEMORY_SHARE * free:
            data, self.resident = data.to(self.device), True
        self.data = data

    def own(self, rows: Tensor | None = None) -> Tensor:
        """Places in this shard of these rows, or of all rows that teach; rows of other shards are left out."""
        return between(self.rows if rows is None else rows, self.edges, self.rank)

    def somebody_has_none(self, rows: Tensor) -> bool:
        """True if some process has none of the rows of a step."""
        return self.world > 1 and 0 in torch.bincount(
            torch.bucketize(rows, self.edges[1:], right=True), minlength=self.world
        )

    def batch(self, own: Tensor) -> Any:
        """What the model takes, for places in this shard."""
        batch = self._take(own)
        return batch if self.resident else _moved(batch, self.device)

    def walk(self, at_once: int) -> Iterator[Any]:
        """Batches of all rows that teach, in their order; each comes from the process that has it."""
        for owner in range(self.world):
            for part in torch.split(between(self.rows, self.edges, owner), at_once):
                batch = self._take(part) if owner == self.rank else None
                if self.world > 1:
                    batch = self.fabric.broadcast(_moved(batch, torch.device("cpu")), owner)
                yield _moved(batch, self.device)

    def _take(self, own: Tensor) -> Any:
        return self.data.take(own.to(self.device) if self.resident else own)


def shares(rows: IntArray, world: int) -> Tensor:
    """(world + 1,) where the range of each process begins, and the last ends: as many of these rows in each."""
    order, n = np.sort(rows), len(rows)
    return torch.as_tensor([*(int(order[n * rank // world]) for rank in range(world)), int(order[-1]) + 1])


def between(rows: Tensor, edges: Tensor, rank: int) -> Tensor:
    """The rows in the range of a process, counted from where the range begins; one process keeps all as they are."""
    if len(edges) == 2:
        return rows
    return rows[(rows >= edges[rank]) & (rows < edges[rank + 1])] - edges[rank]


def _moved(value: Any, device: torch.device) -> Any:
    """Tensors of a nested batch on the device."""
    if isinstance(value, Tensor):
        return value.to(device, non_blocking=True)
    if isinstance(value, dict):
        return {key: _moved(item, device) for key, item in value.items()}
    return tuple(_moved(item, device) for item in value) if isinstance(value, tuple) else value
