"""Tempering: raise posteriors to a power below 1, because labels of an item are not independent given its class.

    q_i(c) ∝ p_i(c)^(1/d_i) exp(s_c) h_c^(1 − 1/d_i)        d_i = 1 + (n_i − 1) ρ

p_i is the posterior that item i would have if its n_i labels were independent, ρ is the intra-item correlation, and d_i
is the design effect of Kish (1965): n_i labels carry the evidence of n_i / d_i independent labels, at most 1/ρ. A
working likelihood raised to 1/d has the right scale (Pauli et al. 2011). The class shares π are raised to the same
power, so the most probable class does not change; tempering the likelihood alone would favour the larger classes and
cost 0.4 points of accuracy. With ρ = 0 the posterior does not change.

A class that almost no label names, such as a typing error, would get a small share of every item. So h damps rare
classes:

    h_c = min(1, π_c K / `RARE_CLASS_FRACTION`, (π_c / max π)^β)

β is 0 unless tempering changes the shares of three or more classes by more than `MAX_SHARE_CHANGE` in total variation,
as in tables with one large class and many rare ones. In this case β is chosen so that the change equals
`MAX_SHARE_CHANGE`. On 12 data sets with gold the shares of p are wrong by 0.05 on average and by 0.14 at most. No class
is damped if ρ is set by the user or estimated from gold.

The final posterior is tempered, not the posterior inside EM. On nine data sets with gold, at 2, 5 and all labels per
item, tempering inside EM reduced the accuracy of Dawid-Skene by 2 to 3 points, because annotators whose parameters are
estimated from tempered posteriors look similar.

Without gold, ρ is the constant `DEFAULT_CORRELATION`, which has the smallest log loss over 12 data sets. It is as good
for a data set that was not used to choose it (`python -m benchmarks.trust.posterior`). In `consensus`, ρ decreases with
the number of labels per item. Rules that depend on the agreement or on the spread of errors in a table were worse on
held-out data sets. With at least `MIN_GOLD_ITEMS` gold items, ρ minimises their log loss, and a prior on log ρ shrinks
it to the default. `models.gold_tempering` estimates ρ and the shifts s from gold.
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

DEFAULT_CORRELATION = 0.6  # ρ if it is neither set nor estimated from gold
CORRELATION_INTERVAL = (0.13, 1.0)
"""95 % interval of ρ without gold. On 12 data sets with gold, log ρ has the mean log 0.44 and the SD 0.55, so a further
data set lies between 0.13 and 1.5 (t, 11 degrees of freedom). Above 1, two labels would carry less evidence than
one."""
MIN_GOLD_ITEMS = 30  # minimum number of gold items from which ρ is estimated
RARE_CLASS_FRACTION = 0.25  # classes are damped if their share is a smaller fraction of 1/K
MAX_SHARE_CHANGE = 0.1  # maximum total variation between class shares before and after tempering
SHARE_CHANGE_TOL = 0.01  # tolerance for the total variation
DAMPING_PASSES = 6  # maximum number of passes in the search for β
MIN_PROBABILITY = 1e-12  # lower limit of P(gold class), so that one error cannot dominate log loss

LogOffset = FloatArray | None  # (K,) offset of a log posterior; None means 0
DependenceChoice = float | Literal["auto"] | None
DEPENDENCE: Any = param(
    "auto", "intra-item correlation ρ of labels; 0 or None for independent labels",
    check=lambda value: value in ("auto", None) or (is_number(value) and value >= 0),
    must="must be 'auto', None, or a number, at least 0",
)  # fmt: skip
"""The keyword `dependence` of methods that multiply the likelihoods of labels."""


@dataclass(frozen=True, eq=False)
class Tempering:
    """The transformation of the posterior for independent labels into the posterior for correlated labels."""

    dependence: float  # ρ
    interval: tuple[float, float] = (0.0, 0.0)  # 95 % interval of ρ
    shift: LogOffset = None  # (K,) class shifts s
    damping: LogOffset = None  # (K,) log h of rare classes
    is_default: bool = False  # True if ρ is neither set by the user nor estimated from gold

    def temper(self, posterior: FloatArray, n_labels: FloatArray) -> FloatArray:
        """Return the tempered posterior q (I, K), given p (I, K); probabilities of 0 do not change."""
        if not self.dependence:
            return posterior
        power = 1 / design_effect(n_labels, self.dependence)
        return _raise_to_power(posterior, power, self._offset(power))

    def untemper(self, posterior: FloatArray, n_labels: FloatArray) -> FloatArray:
        """Return the untempered posterior p (I, K), given q (I, K)."""
        if not self.dependence:
            return posterior
        power = design_effect(n_labels, self.dependence)
        offset = self._offset(1 / power)
        back = None if offset is None else -offset * power[:, None]
        # Dividing by the largest probability keeps each row from underflowing to zeros.
        return _raise_to_power(posterior / row_max(posterior)[:, None], power, back)

    def _offset(self, power: FloatArray) -> LogOffset:
        """Return the offset that is added to log p^power, (K,) or (I, K), or None."""
        if self.damping is None:
            return self.shift
        return (1 - power)[:, None] * self.damping + (0.0 if self.shift is None else self.shift)


def design_effect(n_labels: FloatArray | IntArray, dependence: float) -> FloatArray:
    """Return the design effect d of items with `n_labels` labels, (I,)."""
    return np.asarray(1 + np.maximum(n_labels - 1.0, 0) * dependence)


def _raise_to_power(posterior: FloatArray, power: FloatArray, offset: LogOffset) -> FloatArray:
    """Return posterior^power exp(offset), normalised, (I, K)."""
    with np.errstate(divide="ignore"):
        raised = np.log(posterior)  # four times as fast as `np.power`
    raised *= power[:, None]
    if offset is not None:
        raised += offset
        raised -= raised.max(axis=1, keepdims=True, initial=-np.inf)
    np.exp(raised, out=raised)
    raised *= (1 / np.einsum("ik->i", raised))[:, None]  # four times as fast as a sum and a division per row
    return np.asarray(raised)


def labels_per_item(item_ptr: IntArray, weight: FloatArray | None) -> FloatArray:
    """Return the weight of the labels of each item, (I,)."""
    if weight is None:
        return np.diff(item_ptr).astype(np.float64)
    return np.diff(np.concatenate([[0.0], np.cumsum(weight)])[item_ptr])


# Damping of rare classes ----------------------------------------------------------------------------------------------


def log_damping(shares: FloatArray, beta: float) -> LogOffset:
    """Return log h (K,) from the class shares (K,) and β, or None if no class is damped."""
    logs = np.log(np.maximum(shares, MIN_PROBABILITY))
    damping = np.minimum(np.minimum(logs + np.log(shares.size / RARE_CLASS_FRACTION), beta * (logs - logs.max())), 0)
    return damping if damping.any() else None


def limit_share_change(tempering: Tempering, prior: FloatArray, apply: Callable[[Tempering], float]) -> Tempering:
    """Return the tempering with the damping that limits the change of class shares.

    `apply` tempers the posterior and returns the change of class shares in total variation. Its last call is with the
    tempering that is returned.
    """
    if not tempering.is_default:
        apply(tempering)
        return tempering
    limited = prior.size > 2 and bool(np.ptp(prior))

    def apply_beta(beta: float) -> float:
        nonlocal tempering
        tempering = replace(tempering, damping=log_damping(prior, beta))
        return apply(tempering)

    low, high = (0.0, apply_beta(0.0)), (1.0, 0.0)  # pairs of β and the change, for the false-position method
    for _ in range(DAMPING_PASSES if limited and low[1] > MAX_SHARE_CHANGE else 0):
        beta = low[0] + (high[0] - low[0]) * (low[1] - MAX_SHARE_CHANGE) / (low[1] - high[1])
        tried = beta, apply_beta(beta)
        if abs(tried[1] - MAX_SHARE_CHANGE) < SHARE_CHANGE_TOL:
            break
        low, high = (tried, high) if tried[1] > MAX_SHARE_CHANGE else (low, tried)
    return tempering


# The last pass of a fit -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class TemperedSums(Sums):
    """The sums of a pass under its posterior and under its tempered posterior."""

    by_annotator: ClassVar = ("untempered", "tempered")
    untempered: Any
    tempered: Any


@dataclass(eq=False)
class TemperedPass(Pass[Any, TemperedSums]):
    """A pass that tempers the output `posterior` of another pass, counts labels under it and writes `item_total`.

    `count` is a pass that counts labels under a given posterior, such as `ConfusionPass(POSTERIOR, …)`.
    """

    inner: Any
    count: Any
    tempering: Tempering

    def create_workers(self, params: Any, size: TableSize, workers: int, pool: Threads) -> list[Any]:
        """Create the workers of both passes."""
        passes = (
            self.inner.create_workers(params, size, workers, pool),
            self.count.create_workers(None, size, workers, pool),
        )
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

    def sum_workers(self, workers: list[Any], pool: Threads) -> TemperedSums:
        """Return the sums of both passes."""
        first, second = (list(part) for part in zip(*workers, strict=True))
        return TemperedSums(self.inner.sum_workers(first, pool), self.count.sum_workers(second, pool))

    def on_torch(self, params: Any, data: Any, out: Mapping[str, Any]) -> TemperedSums:
        """Run both passes in torch."""
        untempered = self.inner.on_torch(params, data, out)
        weight = None if data.weight is None else data.weight.cpu().numpy()
        self._temper(data.item_ptr.cpu().numpy(), weight, out, slice(None))
        return TemperedSums(untempered, replace(self.count, posterior=out["posterior"]).on_torch(None, data, {}))


def run_tempered(
    model: Aggregator, engine: Engine, pass_: Pass[Any, Any], params: Any, totals: FloatArray, **out: Any
) -> Any:
    """Run the last pass of a fit; set the tempered posterior and the reliability, and return the untempered sums.

    The model must have its `prior_`. `totals` (A, 1, given) is the weight of each annotator's labels.
    """
    from dissensus.models.confusion import ConfusionPass

    model.posterior_ = engine.allocate("posterior", engine.size.n_classes)
    model.item_total_ = engine.allocate("item_total")
    out |= {"posterior": model.posterior_, "item_total": model.item_total_}
    sums: Any = None

    def apply(tempering: Tempering) -> float:
        nonlocal sums
        sums = engine.run(TemperedPass(pass_, ConfusionPass(POSTERIOR, COIN), tempering), params, out)
        before, after = (counts / counts.sum() for counts in (sums.untempered.class_counts, sums.tempered.class_counts))
        return float(np.abs(before - after).sum() / 2)

    model.tempering = limit_share_change(model.tempering, model.prior_, apply)
    model._set_reliability(sums.tempered.label_counts.sum(axis=(1, 2)), totals.sum(axis=(1, 2)))
    return sums.untempered
