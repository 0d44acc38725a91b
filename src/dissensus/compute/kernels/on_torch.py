"""The passes over annotations in torch, for a GPU: the twins of the numba kernels, with the same sums.

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
from typing import Any

import numpy as np
import torch

from dissensus.common.arrays import TIE
from dissensus.common.types import FloatArray, IntArray
from dissensus.compute.kernels.glad import MAX_STEPS, MIN_STEP
from dissensus.compute.readable import COIN, FULL, LIKELIHOOD, ONES

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

    def parts(self) -> Iterator[Part]:
        """The table in parts, from the first item to the last."""
        for start, stop in zip(self.cuts[:-1], self.cuts[1:], strict=True):
            yield Part(self, start, stop)

    def zeros(self, *shape: int) -> torch.Tensor:
        """Sums, in double precision."""
        return torch.zeros(shape, dtype=torch.float64, device=self.annotator.device)

    def put(self, values: Any) -> torch.Tensor:
        """An array on the device."""
        return torch.as_tensor(np.ascontiguousarray(values), device=self.annotator.device)


class Part:
    """Items start … stop − 1 and their rows."""

    def __init__(self, data: Data, start: int, stop: int):
        self.data, self.start, self.stop = data, start, stop
        ptr = data.item_ptr[start : stop + 1]
        rows = slice(int(ptr[0]), int(ptr[-1]))
        self.ptr = ptr - ptr[0]
        self.lengths = self.ptr.diff()
        self.annotator, self.label = data.annotator[rows], data.label[rows]
        small = max(data.n_annotators, self.n) * data.n_classes < 2**31  # half the bytes to write and read
        self.codes = torch.int32 if small else torch.int64
        self.cell = self.annotator.to(self.codes) * data.n_classes + self.label  # of (annotator, label)
        self.weight = None if data.weight is None else data.weight[rows]
        self.gold = None if data.gold is None else data.gold[start:stop]

    @property
    def n(self) -> int:
        """Items."""
        return self.stop - self.start

    def item(self) -> torch.Tensor:
        """(rows,) the item of each row, counted from the first here."""
        items = torch.arange(self.n, device=self.ptr.device, dtype=self.codes)
        return torch.repeat_interleave(items, self.lengths, output_size=self.cell.numel())

    def of_label(self, item: torch.Tensor) -> torch.Tensor:
        """(rows,) where an (items, K) array has the entry of a row's item and label."""
        return item * self.data.n_classes + self.label

    def weighed(self, values: torch.Tensor) -> torch.Tensor:
        """Values (rows,) or (rows, K), times the weights of the rows."""
        if self.weight is None:
            return values
        return values * (self.weight if values.ndim == 1 else self.weight[:, None])

    def ones(self) -> torch.Tensor:
        """(rows,) the weight of each row."""
        return torch.ones_like(self.cell, dtype=torch.float64) if self.weight is None else self.weight

    def by_item(self, values: torch.Tensor) -> torch.Tensor:
        """(items, K) sums of values (rows, K)."""
        return torch.segment_reduce(values, "sum", offsets=self.ptr, axis=0, initial=0.0)

    def votes(self, values: torch.Tensor, item: torch.Tensor) -> torch.Tensor:
        """(items, K) sums of values (rows,), each to the entry of its own label."""
        out = self.data.zeros(self.n * self.data.n_classes)
        return out.index_add_(0, self.of_label(item), values).view(self.n, -1)

    def known(self, q: torch.Tensor, with_gold: bool = True) -> torch.Tensor:
        """The posterior (items, K) with the known classes in it."""
        if self.gold is None or not with_gold:
            return q
        sure = torch.nn.functional.one_hot(self.gold.clamp(min=0), q.shape[1]).to(q.dtype)
        return torch.where((self.gold >= 0)[:, None], sure, q)

    def posterior(self, joint: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Q (items, K) and the summed log evidence, of log joint probabilities (items, K)."""
        if self.gold is not None:
            others = torch.arange(joint.shape[1], device=joint.device) != self.gold[:, None]
            joint = joint.masked_fill((self.gold >= 0)[:, None] & others, -torch.inf)
        evidence = torch.logsumexp(joint, dim=1, keepdim=True)
        return torch.exp(joint - evidence), evidence.sum()

    def write(self, out: Any, values: torch.Tensor) -> None:
        """Put values of these items into an array over all items; None: nowhere."""
        if out is not None:
            out[self.start : self.stop] = values.cpu().numpy()


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
    K = data.n_classes
    evidence, classes = data.zeros(), data.zeros(K)
    cells = data.n_annotators * (1 if shape == COIN else K)
    counts = data.zeros(cells, K) if shape == FULL else data.zeros(cells)
    if table is not None and prior is not None:
        logs = data.put(table).swapaxes(1, 2).log().contiguous().view(counts.shape)
        log_prior = data.put(prior).log()
        if shape == FULL and len(prior) == 1 and (fused := _fused(data)) is not None:
            evidence, classes, counts, q = fused(data, logs, log_prior, posterior is not None)
            if posterior is not None:
                posterior[:] = q.cpu().numpy()
            return float(evidence), classes.cpu().numpy(), _labels(counts, data, K)
    for part in data.parts():
        item, cell = part.item(), part.annotator if shape == COIN else part.cell
        if source == LIKELIHOOD:
            rows = part.weighed(logs[cell])
            votes = part.by_item(rows) if shape == FULL else part.votes(rows, item)
            q, found = part.posterior((log_prior[part.start : part.stop] if len(log_prior) > 1 else log_prior) + votes)
            evidence += found
        elif source == ONES:
            q = torch.ones_like(data.zeros(part.n, K))
        elif given is not None:
            q = part.known(data.put(given[part.start : part.stop]), with_gold)
        else:
            q = _vote_shares(part, item, draw, with_gold)
        classes += q.sum(dim=0)
        counts.index_add_(0, cell, part.weighed(q[item] if shape == FULL else q.view(-1)[part.of_label(item)]))
        part.write(posterior, q)
    return float(evidence), classes.cpu().numpy(), _labels(counts, data, K if shape == FULL else 1)


def _labels(counts: torch.Tensor, data: Data, n_true: int) -> FloatArray:
    """(A, true, given) of counts [annotator and given, true]."""
    return counts.view(data.n_annotators, -1, n_true).swapaxes(1, 2).contiguous().cpu().numpy()


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
    A, K, skills = data.n_annotators, data.n_classes, data.put(skill)
    hits, total, sums = data.zeros(A), data.zeros(A), data.zeros(K)
    for part in data.parts():
        item = part.item()
        votes = part.votes(part.weighed(skills[part.annotator]), item)
        votes = torch.where(votes.amax(dim=1, keepdim=True) > 0, votes, part.votes(part.ones(), item))
        tied = (votes >= votes.amax(dim=1, keepdim=True) * (1 - TIE)).double()
        sums += votes.sum(dim=0)
        if prior is None:
            outcome = tied / tied.sum(dim=1, keepdim=True)
        else:
            whole = votes.sum(dim=1, keepdim=True)
            outcome = torch.where(whole > 0, votes / torch.where(whole > 0, whole, 1), data.put(prior))
            if lean is not None:
                leant = outcome * data.put(lean)
                leans = (tied.sum(dim=1, keepdim=True) > 1) & (whole > 0)
                outcome = torch.where(leans, leant / leant.sum(dim=1, keepdim=True), outcome)
        outcome = part.known(outcome)
        tells = torch.ones(part.n, dtype=torch.bool, device=item.device)
        if not alone:
            first, last = part.ptr[:-1].clamp(max=max(item.numel() - 1, 0)), (part.ptr[1:] - 1).clamp(min=0)
            tells = (part.lengths > 0) & (part.annotator[first] != part.annotator[last])  # rows are in order
            if part.gold is not None:
                tells |= part.gold >= 0
        right = outcome.view(-1)[part.of_label(item)]
        hits.index_add_(0, part.annotator, part.weighed(right * tells[item]))
        total.index_add_(0, part.annotator, part.ones() * tells[item])
        part.write(out.get("posterior"), outcome)
        part.write(out.get("item_total"), part.by_item(part.ones()[:, None])[:, 0])
    return hits.cpu().numpy(), total.cpu().numpy(), sums.cpu().numpy()


def glad(
    data: Data, ability: FloatArray, easiness: FloatArray, prior: FloatArray, precision: float, out: Mapping[str, Any]
) -> tuple[float, FloatArray, FloatArray, FloatArray, FloatArray]:
    """`kernels.glad.walk`: log evidence, classes (K,), pull, curvature and hits (A,); writes `easiness`."""
    K, A, posterior = data.n_classes, data.n_annotators, out.get("posterior")
    alpha, log_prior, log_wrong = data.put(ability), data.put(prior).log(), float(np.log(max(K - 1, 1)))
    evidence, classes, pull, curvature, hits = (data.zeros(*shape) for shape in ((), (K,), (A,), (A,), (A,)))
    for part in data.parts():
        item, own = part.item(), alpha[part.annotator]
        b = data.put(easiness[part.start : part.stop])
        x = own * b.exp()[item]
        size = x.abs()
        e = torch.exp(-size)
        near = 0.25 - size**2 / 48
        bend = torch.where(size > 1e-4, (1 - e) / ((1 + e) * 2 * size.clamp(min=1e-4)), near)
        evidence -= part.weighed(x.clamp(min=0) + log_wrong + torch.log1p(e)).sum()
        q, found = part.posterior(log_prior + part.votes(part.weighed(x + log_wrong), item))
        evidence += found
        classes += q.sum(dim=0)
        right = q.view(-1)[part.of_label(item)]
        each = torch.stack([part.weighed((right - 0.5) * own), part.weighed(bend * own**2)], dim=1)
        slope, square = part.by_item(each).unbind(dim=1)
        b = _climb(slope, square, precision, b)
        beta = b.exp()[item]
        pull.index_add_(0, part.annotator, part.weighed((right - 0.5) * beta))
        curvature.index_add_(0, part.annotator, part.weighed(bend * beta**2))
        part.write(out["easiness"], b)
        if posterior is not None:
            hits.index_add_(0, part.annotator, part.weighed(right))
            part.write(posterior, q)
    on_host = [sums.cpu().numpy() for sums in (classes, pull, curvature, hits)]
    return float(evidence), on_host[0], on_host[1], on_host[2], on_host[3]


def _vote_shares(part: Part, item: torch.Tensor, draw: Draw | None, with_gold: bool) -> torch.Tensor:
    """(items, K) the shares of the votes, even where there are none; or what is drawn; known classes."""
    votes = part.votes(part.ones(), item)
    gold = part.gold if with_gold else None
    if draw is not None:
        drawn = draw(votes.cpu().numpy(), None if gold is None else gold.cpu().numpy())
        return part.data.put(drawn)
    total = votes.sum(dim=1, keepdim=True)
    q = torch.where(total > 0, votes / torch.where(total > 0, total, 1), 1 / part.data.n_classes)
    return part.known(q, with_gold)


def _climb(slope: torch.Tensor, square: torch.Tensor, precision: float, b: torch.Tensor) -> torch.Tensor:
    """`kernels.glad.climb` for all items at once: each goes on until its own climb ends."""

    def height(at: torch.Tensor) -> torch.Tensor:
        beta = at.exp()
        return (slope - 0.5 * square * beta) * beta - 0.5 * precision * at * at

    top, on = height(b), torch.ones_like(b, dtype=torch.bool)
    for _ in range(MAX_STEPS):
        beta = b.exp()
        gradient = (slope - square * beta) * beta - precision * b
        hessian = (slope - 2 * square * beta) * beta - precision
        step = torch.where(gradient > 0, 1.0, -1.0).to(b.dtype)
        newton = (-gradient / torch.where(hessian < 0, hessian, -1.0)).clamp(-1, 1)
        step = torch.where(hessian < 0, newton, step)
        trying = on & (step.abs() > MIN_STEP)
        moved = torch.zeros_like(on)
        while bool(trying.any()):
            tried = b + step
            found = height(tried)
            better = trying & (found >= top)
            b, top = torch.where(better, tried, b), torch.where(better, found, top)
            moved |= better
            step = step * 0.5
            trying = trying & ~better & (step.abs() > MIN_STEP)
        on = moved
        if not bool(on.any()):
            break
    return b
