"""Passes over annotations in torch, for a GPU: the array forms of passes, applied to tensors.

Rows are sorted by item, so sums by item are sums over segments; sums by annotator use `index_add_`. Chunks are small
enough to leave memory for intermediate arrays of a few numbers per row and class. All numbers except codes are in
double precision, because annotators have up to millions of labels and engines must agree to 1e-6 after hundreds of
passes. The speed on a GPU is limited by memory bandwidth, not by arithmetic.

Parameters and sums are NumPy arrays, and a `DeviceTable` stays on the device. Codes have the types of the table (int32
annotators, int8 labels), so a pass reads only 5 bytes per row and 8 per item.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch

from dissensus.common.types import FloatArray
from dissensus.compute.chunk import Chunk


@dataclass(frozen=True)
class DeviceTable:
    """A table on a torch device."""

    item_ptr: torch.Tensor  # (I+1,) int64
    annotator: torch.Tensor  # (N,) int32
    label: torch.Tensor  # (N,) in the smallest integer type
    weight: torch.Tensor | None  # (N,) float64
    gold: torch.Tensor | None  # (I,) int64, −1 where unknown
    n_annotators: int
    n_classes: int
    chunk_starts: list[int]  # first item of each chunk, followed by the number of items

    def sum_chunks(
        self, array_form: Callable[[Chunk], tuple[Any, ...]], outputs: tuple[str, ...], out: Mapping[str, Any]
    ) -> list[Any]:
        """Run `array_form` over all chunks; return the sums as NumPy arrays, and write its outputs to `out`."""
        sums: Any = None
        for start, stop in zip(self.chunk_starts[:-1], self.chunk_starts[1:], strict=True):
            found = array_form(TorchChunk(self, start, stop))
            for name, values in zip(outputs, found[-len(outputs) :], strict=True):
                if name in out:
                    out[name][start:stop] = values.cpu().numpy()
            found = found[: -len(outputs)]
            sums = found if sums is None else tuple(one + other for one, other in zip(sums, found, strict=True))
        return [float(one) if np.ndim(one) == 0 else one.cpu().numpy() for one in sums]

    def zeros(self, *shape: int) -> torch.Tensor:
        """Return zeros on the device in double precision."""
        return torch.zeros(shape, dtype=torch.float64, device=self.annotator.device)

    def to_device(self, values: Any) -> Any:
        """Copy an array, or None, to the device."""
        if values is None:
            return None
        return torch.as_tensor(np.ascontiguousarray(values), device=self.annotator.device)


class TorchChunk(Chunk):
    """Items start … stop − 1 of a table on a device, and their rows, as tensors."""

    def __init__(self, data: DeviceTable, start: int, stop: int):
        ptr = data.item_ptr[start : stop + 1]
        rows = slice(int(ptr[0]), int(ptr[-1]))
        weight, gold = None if data.weight is None else data.weight[rows], data.gold
        arrays = ptr - ptr[0], data.annotator[rows], data.label[rows], weight
        super().__init__(arrays, None if gold is None else gold[start:stop], data.n_annotators, data.n_classes, start)
        self.data = data
        small = max(data.n_annotators, self.n_items) * data.n_classes < 2**31  # int32 halves the memory traffic
        self.codes = torch.int32 if small else torch.int64

    @cached_property
    def item(self) -> torch.Tensor:
        """The item of each row, in the smallest integer type, (rows,)."""
        items = torch.arange(self.n_items, device=self.item_ptr.device, dtype=self.codes)
        return torch.repeat_interleave(items, self.rows_per_item, output_size=self.label.numel())

    @cached_property
    def annotator_label(self) -> Any:
        """The index annotator·K + label of each row, in the smallest integer type, (rows,)."""
        return self.annotator.to(self.codes) * self.n_classes + self.label

    def to_backend(self, values: Any) -> Any:
        """Copy a NumPy array, or None, to the device."""
        return self.data.to_device(values)

    def to_numpy(self, values: Any) -> Any:
        """Copy a tensor, or None, to NumPy."""
        return None if values is None else values.cpu().numpy()

    def zeros(self, *shape: int) -> torch.Tensor:
        """Return zeros on the device."""
        return self.data.zeros(*shape)

    def row_weights(self) -> torch.Tensor:
        """Return the weight of each row, (rows,)."""
        return torch.ones_like(self.label, dtype=torch.float64) if self.weight is None else self.weight

    def sum_by_item(self, values: torch.Tensor) -> torch.Tensor:
        """Return the sums of values (rows, K) by item, (items, K)."""
        return torch.segment_reduce(values, "sum", offsets=self.item_ptr, axis=0, initial=0.0)

    def scatter_sum(self, place: torch.Tensor, values: torch.Tensor, size: int) -> torch.Tensor:
        """Return the sums of values (rows, …) by index `place` (rows,), with `size` entries."""
        return self.zeros(size, *values.shape[1:]).index_add_(0, place, values)


def run_fused_pass(
    data: DeviceTable, table: FloatArray, prior: FloatArray, out: Mapping[str, Any]
) -> tuple[Any, ...] | None:
    """Run the pass of the confusion family, with L (A, K, K) and π (1, K), as one kernel.

    Return the log evidence, class counts (K,) and label counts (A, true, given), or None if there is no GPU or no
    Triton, or if rows have weights or gold.
    """
    if not data.annotator.is_cuda or data.weight is not None or data.gold is not None or len(prior) > 1:
        return None
    try:
        from dissensus.compute.kernels import on_triton
    except ModuleNotFoundError:
        return None
    if data.n_classes > on_triton.MAX_CLASSES:
        return None
    logs = data.to_device(table).swapaxes(1, 2).log().contiguous().view(-1, data.n_classes)
    evidence, classes, counts, q = on_triton.run_confusion_pass(
        data, logs, data.to_device(prior).log(), "posterior" in out
    )
    if "posterior" in out:
        out["posterior"][:] = q.cpu().numpy()
    labels = counts.view(data.n_annotators, -1, data.n_classes).swapaxes(1, 2).contiguous()
    return float(evidence), classes.cpu().numpy(), labels.cpu().numpy()
