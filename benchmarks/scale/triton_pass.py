"""A candidate for the GPU: the whole pass of Dawid-Skene over hard rows in one Triton kernel, to be measured.

A program walks `ITEMS` items side by side, row by row: it fetches K numbers of log Θ for each, normalises, walks the
rows again and adds to the counts with atomics, all in double precision. Nothing is written per row. Sums over all items
go to `SLOTS` places, since a million programs would wait for one.

    python -m benchmarks.scale.torch_pass --kernel triton
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

from dissensus.common.types import FloatArray
from dissensus.compute.kernels.on_torch import Data

ITEMS, SLOTS = 128, 1024


@triton.jit
def fused(  # type: ignore[no-untyped-def]
    ptr, annotator, label, log_theta, log_prior, counts, sums, n_items, slots,
    K: tl.constexpr, WIDTH: tl.constexpr, ITEMS: tl.constexpr,
):  # fmt: skip
    """`sums` (slots, WIDTH + 1): classes and, last, log evidence; WIDTH is the power of two that holds K."""
    program = tl.program_id(0)
    item = program * ITEMS + tl.arange(0, ITEMS)
    here = item < n_items
    first = tl.load(ptr + item, mask=here, other=0)
    end = tl.load(ptr + item + 1, mask=here, other=0)
    longest = tl.max(end - first, axis=0)
    k = tl.arange(0, WIDTH)
    real = k < K
    joint = tl.zeros((ITEMS, WIDTH), tl.float64)
    joint += tl.load(log_prior + k, mask=real, other=-float("inf"))[None, :]
    for step in range(longest):
        live = first + step < end
        a = tl.load(annotator + first + step, mask=live, other=0).to(tl.int64)
        y = tl.load(label + first + step, mask=live, other=0).to(tl.int64)
        at = ((a * K + y) * K)[:, None] + k[None, :]
        joint += tl.load(log_theta + at, mask=live[:, None] & real[None, :], other=0.0)
    top = tl.max(joint, axis=1)
    q = tl.exp(joint - top[:, None])
    total = tl.sum(q, axis=1)
    q = tl.where(here[:, None], q / total[:, None], 0.0)
    evidence = tl.sum(tl.where(here, top + tl.log(total), 0.0), axis=0)
    slot = sums + (program % slots) * (WIDTH + 1)
    tl.atomic_add(slot + k, tl.sum(q, axis=0))
    tl.atomic_add(slot + WIDTH, evidence)
    for step in range(longest):
        live = first + step < end
        a = tl.load(annotator + first + step, mask=live, other=0).to(tl.int64)
        y = tl.load(label + first + step, mask=live, other=0).to(tl.int64)
        at = ((a * K + y) * K)[:, None] + k[None, :]
        tl.atomic_add(counts + at, q, mask=live[:, None] & real[None, :])


def confusion(data: Data, theta: FloatArray, prior: FloatArray, posterior: Any) -> tuple[float, FloatArray, FloatArray]:
    """As `kernels.on_torch.confusion`, for rows without weights, known classes or a posterior to be written."""
    K, n_items = data.n_classes, data.item_ptr.numel() - 1
    width = triton.next_power_of_2(K)
    log_theta, log_prior = data.put(theta).log(), data.put(prior).log()
    counts, sums = torch.zeros_like(log_theta), data.zeros(SLOTS, width + 1)
    fused[(triton.cdiv(n_items, ITEMS),)](
        data.item_ptr, data.annotator, data.label, log_theta, log_prior, counts, sums, n_items, SLOTS, K, width, ITEMS
    )
    found = sums.sum(dim=0).cpu().numpy()
    return float(found[-1]), found[:K], counts.cpu().numpy()
