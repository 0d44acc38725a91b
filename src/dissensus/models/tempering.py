"""Tempering: labels of one item are not independent given its class, so their posterior is raised to a power below 1.

    q_i(c) ∝ p_i(c)^(1/d_i) exp(s_c) h_c^(1 − 1/d_i)        d_i = 1 + (n_i − 1) ρ

p_i is the posterior of the item's n_i labels as if they were independent, ρ the intra-item correlation, and d_i Kish's
design effect (1965): n_i labels carry the evidence of n_i / d_i independent ones, at most 1/ρ. A working likelihood
raised to 1/d has the right scale (Pauli et al. 2011). The class shares π are raised with it: the most probable class
stays what it was, while tempering the likelihood alone let the larger classes take 0.4 points of accuracy. ρ = 0
changes nothing.

A class that almost no label names, such as one typing error, would get a little of every item. So h damps rare classes,

    h_c = min(1, π_c K / `RARE`, (π_c / max π)^β)

β is 0 unless the shares of three classes or more still move by over `MAX_SHIFT`, in total variation from those of p, as
where one class is most of the table and many are rare. Then β is such that they move by that much. By the gold of 12
sets the shares of p are off by 0.05 in the mean, at most by 0.14. A ρ that is given, or learnt from gold, damps no
class.

The posterior that EM ends with is tempered, not the one inside EM: on nine sets with gold, at 2, 5 and all labels, the
same ρ inside EM cost Dawid-Skene 2 to 3 points of accuracy, because annotators learnt from tempered posteriors look
alike.

Without gold ρ is one number, `DEFAULT_CORRELATION`, which has the least log loss over 12 sets (`python -m
benchmarks.trust.posterior` also leaves each set out: it is as good there); `consensus` lets it fall with the number of
labels. Other rules, from the agreement of a table's labels with and without chance, or from the spread of its errors,
were worse on sets that they were not made for. With `MIN_GOLD` gold items or more, ρ is the one with the least log loss
on them, drawn to the default by a prior on log ρ.

How ρ and the shifts s follow from gold is in `models.gold_tempering`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from dissensus.common.arrays import row_max
from dissensus.common.parameters import is_number, param
from dissensus.common.types import FloatArray, IntArray
from dissensus.compute.chunk import COIN, POSTERIOR, Chunk
from dissensus.compute.engines.base import Engine, Pass, Sums, TableSize
from dissensus.compute.engines.local import Threads

if TYPE_CHECKING:
    from dissensus.models.base import Aggregator

DEFAULT_CORRELATION = 0.6  # ρ without gold
CORRELATION_INTERVAL = (0.13, 1.0)
"""95 % of ρ without gold: log ρ by gold of 12 sets has mean log 0.44 and SD 0.55, and a further set lies within 0.13
and 1.5 (t, 11 degrees of freedom); beyond 1 two labels would carry less evidence than one."""
MIN_GOLD = 30  # gold items from which on they determine ρ
RARE_SHARE = 0.25  # share of an even share below which a class is damped; 0.5 costs 0.002 of log loss on 12 sets
MAX_SHIFT = 0.1  # largest total variation between class shares before and after tempering
SHIFT_TOL = 0.01  # how close to it is close enough
DAMPING_PASSES = 6  # passes that search for β; three were needed on the set that needs it
MIN_PROBABILITY = 1e-12  # least probability of a gold class: one mistake should not outweigh all else

Shift = FloatArray | None  # (K,), added to a log posterior; None: 0
DependenceChoice = float | Literal["auto"] | None
DEPENDENCE: Any = param(
    "auto", "intra-item correlation ρ of labels: 0 (None) if independent, or 'auto'",
    check=lambda value: value in ("auto", None) or (is_number(value) and value >= 0),
    must="must be 'auto', None, or a number, at least 0",
)  # fmt: skip
"""The parameter of methods that multiply the likelihoods of labels."""


@dataclass(frozen=True, eq=False)
class Tempering:
    """What turns a posterior of independent labels into one of labels that share their items."""

    dependence: float  # ρ
    interval: tuple[float, float] = (0.0, 0.0)  # 95 % of ρ
    shift: Shift = None  # (K,) s
    damping: Shift = None  # (K,) log h
    is_default: bool = False  # neither given nor learnt from gold

    def temper(self, posterior: FloatArray, n_labels: FloatArray) -> FloatArray:
        """(I, K) q from p; 0 stays 0."""
        if not self.dependence:
            return posterior
        power = 1 / design_effect(n_labels, self.dependence)
        return _raise_to_power(posterior, power, self._offset(power))

    def untemper(self, posterior: FloatArray, n_labels: FloatArray) -> FloatArray:
        """(I, K) p from q."""
        if not self.dependence:
            return posterior
        power = design_effect(n_labels, self.dependence)
        offset = self._offset(1 / power)
        back = None if offset is None else -offset * power[:, None]
        # The largest is divided out, so that a number above 0 is left in every row.
        return _raise_to_power(posterior / row_max(posterior)[:, None], power, back)

    def _offset(self, power: FloatArray) -> Shift:
        """(K,) or (I, K) what is added to the log of p^power."""
        if self.damping is None:
            return self.shift
        return (1 - power)[:, None] * self.damping + (0.0 if self.shift is None else self.shift)


def design_effect(n_labels: FloatArray | IntArray, dependence: float) -> FloatArray:
    """(I,) d of items with these numbers of labels."""
    return np.asarray(1 + np.maximum(n_labels - 1.0, 0) * dependence)


def _raise_to_power(posterior: FloatArray, power: FloatArray, offset: Shift) -> FloatArray:
    """(I, K) ∝ posterior^power exp(offset)."""
    with np.errstate(divide="ignore"):
        raised = np.log(posterior)  # four times as fast as a power
    raised *= power[:, None]
    if offset is not None:
        raised += offset
        raised -= raised.max(axis=1, keepdims=True, initial=-np.inf)
    np.exp(raised, out=raised)
    raised *= (1 / np.einsum("ik->i", raised))[:, None]  # both four times as fast as a sum and a quotient by rows
    return np.asarray(raised)


def labels_per_item(item_ptr: IntArray, weight: FloatArray | None) -> FloatArray:
    """(I,) number of labels, summed by their weights."""
    if weight is None:
        return np.diff(item_ptr).astype(np.float64)
    return np.diff(np.concatenate([[0.0], np.cumsum(weight)])[item_ptr])


# Damping of rare classes ----------------------------------------------------------------------------------------------


def log_damping(shares: FloatArray, beta: float) -> Shift:
    """(K,) log h from the class shares (K,) and β; None if no class is damped."""
    logs = np.log(np.maximum(shares, MIN_PROBABILITY))
    damping = np.minimum(np.minimum(logs + np.log(shares.size / RARE_SHARE), beta * (logs - logs.max())), 0)
    return damping if damping.any() else None


def limit_shift(tempering: Tempering, prior: FloatArray, apply: Callable[[Tempering], float]) -> Tempering:
    """Return the tempering with the damping that limits how far class shares move.

    `apply` tempers and returns how far they moved, in total variation; its last call has the tempering returned.
    """
    if not tempering.is_default:
        apply(tempering)
        return tempering
    limited = prior.size > 2 and bool(np.ptp(prior))

    def moved(beta: float) -> float:
        nonlocal tempering
        tempering = replace(tempering, damping=log_damping(prior, beta))
        return apply(tempering)

    low, high = (0.0, moved(0.0)), (1.0, 0.0)  # β and how far shares move; false position
    for _ in range(DAMPING_PASSES if limited and low[1] > MAX_SHIFT else 0):
        beta = low[0] + (high[0] - low[0]) * (low[1] - MAX_SHIFT) / (low[1] - high[1])
        tried = beta, moved(beta)
        if abs(tried[1] - MAX_SHIFT) < SHIFT_TOL:
            break
        low, high = (tried, high) if tried[1] > MAX_SHIFT else (low, tried)
    return tempering


# The last pass of a fit -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class TemperedSums(Sums):
    """The sums of a pass, and those by its tempered posterior."""

    by_annotator: ClassVar = ("untempered", "tempered")
    untempered: Any
    tempered: Any


@dataclass(eq=False)
class TemperedPass(Pass[Any, TemperedSums]):
    """A pass that also tempers the `posterior` it writes, and counts labels by it; writes `item_total` too.

    `count` is a pass over a given posterior, such as `ConfusionPass(POSTERIOR, …)`.
    """

    inner: Any
    count: Any
    tempering: Tempering

    def open(self, params: Any, size: TableSize, workers: int, pool: Threads) -> list[Any]:
        """Create the workers of both passes."""
        passes = self.inner.open(params, size, workers, pool), self.count.open(None, size, workers, pool)
        return list(zip(*passes, strict=True))

    def process(self, chunk: Chunk, worker: Any, out: Mapping[str, Any]) -> None:
        """Run both passes over the chunk."""
        items = slice(chunk.start, chunk.stop)
        self.inner.process(chunk, worker[0], out)
        self._temper(chunk.item_ptr[chunk.start : chunk.stop + 1], chunk.weight, out, items)
        replace(self.count, posterior=out["posterior"]).process(chunk, worker[1], {})

    def _temper(self, item_ptr: Any, weight: Any, out: Mapping[str, Any], items: slice) -> None:
        out["item_total"][items] = total = labels_per_item(item_ptr, weight)
        out["posterior"][items] = self.tempering.temper(out["posterior"][items], total)

    def close(self, workers: list[Any], pool: Threads) -> TemperedSums:
        """Return the sums of both passes."""
        first, second = (list(part) for part in zip(*workers, strict=True))
        return TemperedSums(self.inner.close(first, pool), self.count.close(second, pool))

    def on_torch(self, params: Any, data: Any, out: Mapping[str, Any]) -> TemperedSums:
        """Run both passes in torch."""
        untempered = self.inner.on_torch(params, data, out)
        weight = None if data.weight is None else data.weight.cpu().numpy()
        self._temper(data.item_ptr.cpu().numpy(), weight, out, slice(None))
        return TemperedSums(untempered, replace(self.count, posterior=out["posterior"]).on_torch(None, data, {}))


def run_tempered(
    model: Aggregator, engine: Engine, pass_: Pass[Any, Any], params: Any, totals: FloatArray, **out: Any
) -> Any:
    """Run the last pass of a fit: set the tempered posterior and the annotators' reliability, return the pass's sums.

    The model has its `prior_`. `totals` (A, 1, given) are the weights of all labels.
    """
    from dissensus.models.confusion import ConfusionPass

    model.posterior_ = engine.allocate("posterior", engine.size.n_classes)
    model.item_total_ = engine.allocate("item_total")
    out |= {"posterior": model.posterior_, "item_total": model.item_total_}
    sums: Any = None

    def apply(tempering: Tempering) -> float:
        nonlocal sums
        sums = engine.run(TemperedPass(pass_, ConfusionPass(POSTERIOR, COIN), tempering), params, out)
        before, after = (one / one.sum() for one in (sums.untempered.class_counts, sums.tempered.class_counts))
        return float(np.abs(before - after).sum() / 2)

    model.tempering = limit_shift(model.tempering, model.prior_, apply)
    model._set_reliability(sums.tempered.label_counts.sum(axis=(1, 2)), totals.sum(axis=(1, 2)))
    return sums.untempered
