"""The passes over annotations in torch, for a GPU: the array forms of the passes, over tensors.

Rows are sorted by item, so sums by item are sums over segments, and sums by annotator are scattered with `index_add_`.
A pass processes as many rows at a time as leave room for intermediate arrays: a few numbers per row and class.
Everything but the codes is in double precision: annotators have up to millions of labels, and engines must agree to
1e-6 after hundreds of passes; memory limits the speed on a GPU, not arithmetic.

Parameters and sums are NumPy arrays; `Data` stays on the device. Codes have the types of the table (int32 annotators,
int8 labels): a pass reads only 5 bytes per row and 8 per item.
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
    """A table on a device."""

    item_ptr: torch.Tensor  # (I+1,) int64
    annotator: torch.Tensor  # (N,) int32
    label: torch.Tensor  # (N,) the smallest integers
    weight: torch.Tensor | None  # (N,) float64
    gold: torch.Tensor | None  # (I,) int64, −1 where unknown
    n_annotators: int
    n_classes: int
    chunk_starts: list[int]  # (parts+1,) items that a part begins with

    def sum_chunks(
        self, array_form: Callable[[Chunk], tuple[Any, ...]], outputs: tuple[str, ...], out: Mapping[str, Any]
    ) -> list[Any]:
        """Return the sums of `array_form` over all chunks in NumPy; write its last values, per item, to `out`."""
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
        """Return sums in double precision."""
        return torch.zeros(shape, dtype=torch.float64, device=self.annotator.device)

    def to_device(self, values: Any) -> Any:
        """Copy an array to the device; None stays None."""
        if values is None:
            return None
        return torch.as_tensor(np.ascontiguousarray(values), device=self.annotator.device)


class TorchChunk(Chunk):
    """Items start … stop − 1 of the data and their rows, as tensors."""

    def __init__(self, data: DeviceTable, start: int, stop: int):
        ptr = data.item_ptr[start : stop + 1]
        rows = slice(int(ptr[0]), int(ptr[-1]))
        weight, gold = None if data.weight is None else data.weight[rows], data.gold
        arrays = ptr - ptr[0], data.annotator[rows], data.label[rows], weight
        super().__init__(arrays, None if gold is None else gold[start:stop], data.n_annotators, data.n_classes, start)
        self.data = data
        small = max(data.n_annotators, self.n_items) * data.n_classes < 2**31  # half the bytes to write and read
        self.codes = torch.int32 if small else torch.int64

    @cached_property
    def item(self) -> torch.Tensor:
        """(rows,) the item of each row, in codes of as few bytes as possible."""
        items = torch.arange(self.n_items, device=self.item_ptr.device, dtype=self.codes)
        return torch.repeat_interleave(items, self.rows_per_item, output_size=self.label.numel())

    @cached_property
    def annotator_label(self) -> Any:
        """(rows,) annotator·K + label, in codes of as few bytes as possible."""
        return self.annotator.to(self.codes) * self.n_classes + self.label

    def to_backend(self, values: Any) -> Any:
        """Copy a NumPy array to the device; None stays None."""
        return self.data.to_device(values)

    def to_numpy(self, values: Any) -> Any:
        """Copy a tensor to NumPy; None stays None."""
        return None if values is None else values.cpu().numpy()

    def zeros(self, *shape: int) -> torch.Tensor:
        """Return zeros on the device."""
        return self.data.zeros(*shape)

    def row_weights(self) -> torch.Tensor:
        """(rows,) the weight of each row."""
        return torch.ones_like(self.label, dtype=torch.float64) if self.weight is None else self.weight

    def sum_by_item(self, values: torch.Tensor) -> torch.Tensor:
        """(items, K) sums over segments."""
        return torch.segment_reduce(values, "sum", offsets=self.item_ptr, axis=0, initial=0.0)

    def scatter_sum(self, place: torch.Tensor, values: torch.Tensor, size: int) -> torch.Tensor:
        """Add the values (rows, …) at their places."""
        return self.zeros(size, *values.shape[1:]).index_add_(0, place, values)


def run_fused_pass(
    data: DeviceTable, table: FloatArray, prior: FloatArray, out: Mapping[str, Any]
) -> tuple[Any, ...] | None:
    """The pass with L (A, K, K) and π (1, K) as one kernel: log evidence, classes (K,), counts (A, true, given).

    None where there is no GPU or no Triton, and for rows with weights or known classes.
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
    evidence, classes, counts, q = on_triton.confusion(data, logs, data.to_device(prior).log(), "posterior" in out)
    if "posterior" in out:
        out["posterior"][:] = q.cpu().numpy()
    labels = counts.view(data.n_annotators, -1, data.n_classes).swapaxes(1, 2).contiguous()
    return float(evidence), classes.cpu().numpy(), labels.cpu().numpy()
