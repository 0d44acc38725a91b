"""The passes over annotations in torch, for a GPU: the array forms of `compute.readable`, over tensors.

Rows are sorted by item, so what an item's rows say is added up over a segment, and what goes to annotators is scattered
with `index_add_`. A pass walks as many rows at a time as leave room for what is made of them: a few numbers per row and
class. Everything but the codes is in double precision: annotators have up to millions of labels, and engines must agree
to 1e-6 after hundreds of passes; a GPU waits for memory here, not for arithmetic.

Arguments and results are NumPy arrays; `Data` holds what stays on the device. Codes are as small as the table has them
(int32 annotators, int8 labels): 5 bytes per row and 8 per item are all that a pass must read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch

from dissensus.common.types import FloatArray, IntArray
from dissensus.compute import readable
from dissensus.compute.kernels.glad import walk_on
from dissensus.compute.kernels.vote import vote_on
from dissensus.compute.readable import FULL

Draw = Callable[[FloatArray, IntArray | None], FloatArray]
"""Votes (i, K) and known classes (i,) of some items → a posterior for them."""


@dataclass(frozen=True)
class Data:
    """A table on a device."""

    item_ptr: torch.Tensor  # (I+1,) int64
    annotator: torch.Tensor  # (N,) int32
    label: torch.Tensor  # (N,) the smallest integers
    weight: torch.Tensor | None  # (N,) float64
    gold: torch.Tensor | None  # (I,) int64, −1 where unknown
    n_annotators: int
    n_classes: int
    cuts: list[int]  # (parts+1,) items that a part begins with

    def parts(self, with_gold: bool = True) -> Iterator[Part]:
        """The table in parts, from the first item to the last."""
        for start, stop in zip(self.cuts[:-1], self.cuts[1:], strict=True):
            yield Part(self, start, stop, with_gold)

    def zeros(self, *shape: int) -> torch.Tensor:
        """Sums, in double precision."""
        return torch.zeros(shape, dtype=torch.float64, device=self.annotator.device)

    def put(self, values: Any) -> Any:
        """An array on the device; None stays None."""
        if values is None:
            return None
        return torch.as_tensor(np.ascontiguousarray(values), device=self.annotator.device)


class Part(readable.Part):
    """Items start … stop − 1 and their rows."""

    def __init__(self, data: Data, start: int, stop: int, with_gold: bool):
        self.data, self.items = data, slice(start, stop)
        ptr = data.item_ptr[start : stop + 1]
        rows = slice(int(ptr[0]), int(ptr[-1]))
        weight = None if data.weight is None else data.weight[rows]
        gold = None if data.gold is None or not with_gold else data.gold[self.items]
        size = data.n_annotators, data.n_classes
        super().__init__(ptr - ptr[0], data.annotator[rows], data.label[rows], weight, gold, *size)
        small = max(data.n_annotators, self.n_items) * data.n_classes < 2**31  # half the bytes to write and read
        self.codes = torch.int32 if small else torch.int64

    @cached_property
    def item(self) -> torch.Tensor:
        """(rows,) in codes of as few bytes as will do."""
        items = torch.arange(self.n_items, device=self.ptr.device, dtype=self.codes)
        return torch.repeat_interleave(items, self.lengths, output_size=self.label.numel())

    @cached_property
    def cell(self) -> Any:
        """(rows,) the same."""
        return self.annotator.to(self.codes) * self.n_classes + self.label

    def zeros(self, *shape: int) -> torch.Tensor:
        """On the device."""
        return self.data.zeros(*shape)

    def ones(self) -> torch.Tensor:
        """(rows,) on the device."""
        return torch.ones_like(self.label, dtype=torch.float64) if self.weight is None else self.weight

    def by_item(self, values: torch.Tensor) -> torch.Tensor:
        """(items, K) sums over segments."""
        return torch.segment_reduce(values, "sum", offsets=self.ptr, axis=0, initial=0.0)

    def add(self, at: torch.Tensor, values: torch.Tensor, size: int) -> torch.Tensor:
        """Scatter the values (rows, …)."""
        return self.zeros(size, *values.shape[1:]).index_add_(0, at, values)


def over_parts(
    data: Data, walk: Callable[[Part], tuple[Any, ...]], out: Mapping[str, Any], *written: str, with_gold: bool = True
) -> tuple[Any, ...]:
    """The sums of `walk` over all parts, as NumPy has them; the last of what it returns are `written` per item."""
    sums: Any = None
    for part in data.parts(with_gold):
        found = walk(part)
        for name, values in zip(written, found[len(found) - len(written) :], strict=True):
            if out.get(name) is not None:
                out[name][part.items] = values.cpu().numpy()
        found = found[: len(found) - len(written)]
        sums = found if sums is None else tuple(one + other for one, other in zip(sums, found, strict=True))
    return tuple(float(one) if np.ndim(one) == 0 else one.cpu().numpy() for one in sums)


def confusion(
    data: Data,
    source: int,
    shape: int,
    table: FloatArray | None,
    prior: FloatArray | None,
    given: FloatArray | None,
    draw: Draw | None,
    posterior: Any,
    with_gold: bool,
) -> tuple[float, FloatArray, FloatArray]:
    """`kernels.confusion.sweep`: log evidence, classes (K,), counts (A, true, given); the same sources and shapes.

    The only E step in torch. `table` (A, true, given) and `prior` (1, K) or (I, K) are None but for LIKELIHOOD.
    """
    cells, priors = data.put(table), data.put(prior)
    if table is not None and shape == FULL and len(priors) == 1 and (fused := _fused(data)) is not None:
        logs = cells.swapaxes(1, 2).log().contiguous().view(-1, data.n_classes)
        evidence, classes, counts, q = fused(data, logs, priors.log(), posterior is not None)
        if posterior is not None:
            posterior[:] = q.cpu().numpy()
        labels = counts.view(data.n_annotators, -1, data.n_classes).swapaxes(1, 2).contiguous()
        return float(evidence), classes.cpu().numpy(), labels.cpu().numpy()

    def walk(part: Part) -> tuple[Any, ...]:
        own = None if given is None else data.put(given[part.items])
        if draw is not None:
            gold = None if part.gold is None else part.gold.cpu().numpy()
            own = data.put(draw(part.votes(part.ones()).cpu().numpy(), gold))
        before = priors if priors is None or len(priors) == 1 else priors[part.items]
        return readable.confusion_pass(part, source, shape, cells, before, own)

    return over_parts(data, walk, {"posterior": posterior}, "posterior", with_gold=with_gold)


def _fused(data: Data) -> Callable[..., tuple[torch.Tensor, ...]] | None:
    """The pass as one kernel, where there is a GPU and Triton, for rows without weights and known classes."""
    if not data.annotator.is_cuda or data.weight is not None or data.gold is not None:
        return None
    try:
        from dissensus.compute.kernels import on_triton
    except ModuleNotFoundError:
        return None
    return on_triton.confusion if data.n_classes <= on_triton.MAX_CLASSES else None


def vote(
    data: Data,
    skill: FloatArray,
    alone: bool,
    prior: FloatArray | None,
    lean: FloatArray | None,
    out: Mapping[str, Any],
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """`kernels.vote.vote`: hits and total (A,), votes (K,); may write `posterior`, `item_total`."""
    skills, priors, leans = data.put(skill), data.put(prior), data.put(lean)

    def walk(part: Part) -> tuple[Any, ...]:
        total = part.by_item(part.ones()[:, None])[:, 0] if "item_total" in out else None
        return *vote_on(part, skills, alone, priors, leans), total

    return over_parts(data, walk, out, "posterior", "item_total")


def glad(
    data: Data, ability: FloatArray, easiness: FloatArray, prior: FloatArray, precision: float, out: Mapping[str, Any]
) -> tuple[float, FloatArray, FloatArray, FloatArray]:
    """`kernels.glad.walk`: log evidence, classes (K,), pull and curvature (A,); writes `easiness`."""
    alpha, log_prior = data.put(ability), data.put(prior).log()

    def walk(part: Part) -> tuple[Any, ...]:
        return walk_on(part, alpha, data.put(easiness[part.items]), log_prior, precision)

    return over_parts(data, walk, out, "posterior", "easiness")
