"""The torch engine, which stores tensors on a GPU or the CPU and uses `kernels.on_torch`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from dissensus.common.types import BoolArray, IntArray
from dissensus.compute.engines import Torch
from dissensus.compute.engines.base import Engine, P, Pass, S, TableSize
from dissensus.compute.engines.local import Threads, range_starts
from dissensus.compute.exceptions import NoDevice
from dissensus.compute.kernels.on_torch import DeviceTable
from dissensus.compute.rows import Rows

DEFAULT_CHUNK_ROWS = {"cuda": 2**25, "cpu": 2**20}


class TorchEngine(Engine):
    """The engine for a table on a torch device."""

    def __init__(self, data: DeviceTable, pool: Threads):
        n_items, n_rows, weighted = data.item_ptr.numel() - 1, data.annotator.numel(), data.weight is not None
        per_annotator = torch.bincount(data.annotator, minlength=data.n_annotators).cpu().numpy()
        gold = None if data.gold is None else data.gold.cpu().numpy()
        super().__init__(
            TableSize(n_items, data.n_annotators, data.n_classes, n_rows, weighted), per_annotator, pool, gold
        )
        self.data = data

    def run(self, pass_: Pass[P, S], params: P, out: Mapping[str, Any] | None = None) -> S:
        """Run one pass over all chunks on the device."""
        return pass_.on_torch(params, self.data, out or {})

    def select_rows(self, keep: BoolArray) -> Rows:
        """Return the rows of the selected items, selected on the device."""
        data, lengths = self.data, self.data.item_ptr.diff()
        chosen = torch.as_tensor(keep, device=lengths.device)
        own = torch.repeat_interleave(chosen, lengths)
        ptr = np.concatenate([[0], lengths[chosen].cumsum(0).cpu().numpy()])
        weight = None if data.weight is None else data.weight[own].cpu().numpy()
        return Rows(ptr, data.annotator[own].cpu().numpy(), data.label[own].cpu().numpy(), weight)

    def has_labels(self) -> BoolArray:
        """Return a mask of the items that have annotations, (I,)."""
        return np.asarray((self.data.item_ptr.diff() > 0).cpu().numpy())


def create_engine(
    rows: Rows, n_annotators: int, n_classes: int, gold: IntArray | None, options: Torch, pool: Threads
) -> TorchEngine:
    """Copy the rows to the device that `options` names, and return the engine."""
    try:
        device = torch.device(options.device or ("cuda" if torch.cuda.is_available() else "cpu"))
        torch.empty(0, device=device)
    except (
        RuntimeError,
        AssertionError,
        NotImplementedError,
    ) as error:  # torch raises one of these errors, depending on the reason
        raise NoDevice(device=options.device) from error

    def to_tensor(array: Any) -> torch.Tensor:
        return torch.tensor(array, device=device)  # copy, because the table's arrays are read-only

    data = DeviceTable(
        to_tensor(rows.item_ptr.astype(np.int64)),
        to_tensor(rows.annotator),
        to_tensor(rows.label),
        None if rows.weight is None else to_tensor(rows.weight),
        None if gold is None else to_tensor(gold.astype(np.int64)),
        n_annotators,
        n_classes,
        range_starts(
            rows.item_ptr, options.part_rows or DEFAULT_CHUNK_ROWS.get(device.type, DEFAULT_CHUNK_ROWS["cpu"])
        ),
    )
    return TorchEngine(data, pool)
