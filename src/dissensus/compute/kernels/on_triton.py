"""The pass of the confusion family in one Triton kernel for a GPU, without intermediate arrays per row.

A program processes several items in parallel, row by row: it loads K numbers of log L per row, normalises, and adds to
the counts of the rows with atomics, all in double precision. Sums over all items are spread over `SLOTS` copies,
because a million programs that add to one copy would wait for each other. Atomics are relaxed, because no count is read
before the kernel ends. With Triton's default fences a pass takes 0.106 s instead of 0.030 s for a billion rows on an
H200.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

SLOTS = 1024  # number of copies of the sums, to which programs add
MAX_CLASSES = 64  # maximum number of classes that the kernel supports
NUMBERS_PER_PROGRAM = 1024  # number of items × classes that one program processes


@triton.jit
def fused(
    ptr, annotator, label, logs, log_prior, counts, sums, posterior, n_items,
    K: tl.constexpr, WIDTH: tl.constexpr, ITEMS: tl.constexpr, SLOTS: tl.constexpr, KEEP: tl.constexpr,
):  # fmt: skip
    """Add class counts and, in the last column, log evidence to `sums` (SLOTS, WIDTH + 1); WIDTH is a power of two."""
    program = tl.program_id(0)
    item = program.to(tl.int64) * ITEMS + tl.arange(0, ITEMS)
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
        joint += tl.load(logs + at, mask=live[:, None] & real[None, :], other=0.0)
    top = tl.max(joint, axis=1)
    q = tl.exp(joint - top[:, None])
    total = tl.sum(q, axis=1)
    q = tl.where(here[:, None], q / total[:, None], 0.0)
    evidence = tl.sum(tl.where(here, top + tl.log(total), 0.0), axis=0)
    slot = sums + (program % SLOTS) * (WIDTH + 1)
    tl.atomic_add(slot + k, tl.sum(q, axis=0), sem="relaxed")
    tl.atomic_add(slot + WIDTH, evidence, sem="relaxed")
    if KEEP:
        tl.store(posterior + item[:, None] * K + k[None, :], q, mask=here[:, None] & real[None, :])
    for step in range(longest):
        live = first + step < end
        a = tl.load(annotator + first + step, mask=live, other=0).to(tl.int64)
        y = tl.load(label + first + step, mask=live, other=0).to(tl.int64)
        at = ((a * K + y) * K)[:, None] + k[None, :]
        tl.atomic_add(counts + at, q, mask=live[:, None] & real[None, :], sem="relaxed")


def run_confusion_pass(data: Any, logs: torch.Tensor, log_prior: torch.Tensor, keep: bool) -> tuple[torch.Tensor, ...]:
    """Return log evidence, class counts (K,), counts (A·K, K) [annotator and given, true] and the posterior (I, K)."""
    K, n_items = data.n_classes, data.item_ptr.numel() - 1
    width = triton.next_power_of_2(K)
    items = max(1, NUMBERS_PER_PROGRAM // width)
    counts, sums = torch.zeros_like(logs), data.zeros(SLOTS, width + 1)
    posterior = torch.empty((n_items if keep else 0, K), dtype=torch.float64, device=logs.device)
    fused[(triton.cdiv(n_items, items),)](
        data.item_ptr, data.annotator, data.label, logs, log_prior, counts, sums, posterior, n_items,
        K, width, items, SLOTS, keep,
    )  # fmt: skip
    found = sums.sum(dim=0)
    return found[width], found[:K], counts, posterior
