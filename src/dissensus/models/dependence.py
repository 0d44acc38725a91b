"""What the labels of one item are worth together: they share the item, so they are not independent given its class.

    q_i(c) ∝ p_i(c)^(1/d_i) exp(s_c) h_c^(1 − 1/d_i)        d_i = 1 + (n_i − 1) ρ

p_i is the posterior of the item's n_i labels as if they were independent, d_i Kish's design effect (1965): n_i labels
are worth n_i / d_i independent ones, at most 1/ρ. A working likelihood raised to 1/d has the right scale (Pauli et al.
2011). The classes' shares π are raised with it: the most probable class stays what it was, where tempering the
likelihood alone let the larger classes take 0.4 points of accuracy. ρ = 0 leaves the posterior as it is.

But a class that next to nobody means, or one typing error, would get a little of every item. So h holds rare classes,

    h_c = min(1, π_c K / `RARE`, (π_c / max π)^β)

β is 0 unless the shares of three classes or more then still move by over `MAX_MOVED`, in total variation from those of
p, as where one class is most of the table and many are rare. Then β is such that they move by so much. By the gold of
12 sets the shares of p are off by 0.05 in the mean, at most by 0.14. ρ that is given, or learnt from gold, holds none.

It is applied to the posterior that EM ends with, not inside EM: on nine sets with gold, at 2, 5 and all labels, the
same ρ inside EM cost Dawid-Skene 2 to 3 points of accuracy, because annotators learnt from soft posteriors look alike.

Without gold ρ is one number, DEFAULT, with the least log loss over 12 sets (`python -m benchmarks.trust.posterior` also
leaves each set out: it is as good there); `consensus` lets it fall with the number of labels. Other rules that know the
table, from the agreement of its labels, with and without chance, or from the spread of its errors, were worse on sets
that they were not made for: what a crowd gets wrong together its own table hardly shows. Gold does: with `MIN_GOLD`
known items or more, ρ is that with the least log loss on them, drawn to DEFAULT by a prior on log ρ.

Gold also says which classes the crowd names too often: s_c, a shift of every class, 0 without gold. It is a ridge
estimate, s_c ~ N(0, σ²), by a fit that has not seen the gold; σ is that of `SHIFT_SDS`, or none, under which the
known classes are most probable (Laplace's approximation of the evidence), so shifts that gold does not speak for are 0.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import numpy as np

from dissensus.common.arrays import row_max
from dissensus.common.parameters import is_number, param
from dissensus.common.types import FloatArray, IntArray
from dissensus.compute.engines.base import Block, Pass, Size, Sums
from dissensus.compute.engines.local import Threads
from dissensus.evaluation import Estimate

DEFAULT = 0.6  # ρ
MIN_GOLD = 30  # known items from which on they say what ρ is
RARE = 0.25  # of an even share, below which a class is held; 0.5 costs 0.002 of log loss on 12 sets
MAX_MOVED = 0.1
MOVED_TOL = 0.01  # how near to it is near enough
HOLD_PASSES = 6  # that look for β; three were needed on the set that needs it
RANGE = (0.13, 1.0)
"""95 % of ρ without gold: log ρ by gold of 12 sets has mean log 0.44 and SD 0.55, and a further set lies within 0.13
and 1.5 (t, 11 degrees of freedom); beyond 1 two labels would be worth less than one."""
PRIOR_SD = 1.0  # of log ρ around DEFAULT: the ρ that gold chooses lies within a factor of 2.7 on two sets of three
CANDIDATES = np.geomspace(0.01, 10, 61)  # ρ that gold chooses from
SHIFT_SDS = (0.15, 0.3, 0.5, 0.8)  # σ of the classes' shifts that gold chooses from
MAX_SHIFTED = 200  # classes; with more there are no shifts, whose cost is cubic in them
MAX_GOLD = 10_000  # known items that are looked at, spread evenly
ROUNDS = 2  # of shifts given ρ, then ρ given shifts; a third changed nothing beyond 0.001 of log loss
NEWTON_STEPS = 8
MIN_PROBABILITY = 1e-12  # of a known class: one mistake should not outweigh all else

Shift = FloatArray | None  # (K,), added to a log posterior; None: 0
DependenceChoice = float | Literal["auto"] | None
DEPENDENCE: Any = param(
    "auto", "what labels of one item share: ρ from 0 (None), all are independent, or 'auto'",
    check=lambda value: value in ("auto", None) or (is_number(value) and value >= 0),
    must="must be 'auto', None, or a number, at least 0",
)  # fmt: skip
"""The keyword of methods that multiply the likelihoods of labels."""


def design_effect(n_labels: FloatArray | IntArray, dependence: float) -> FloatArray:
    """(I,) d of items with so many labels."""
    return np.asarray(1 + np.maximum(n_labels - 1.0, 0) * dependence)


def soften(
    posterior: FloatArray, n_labels: FloatArray, dependence: float, shift: Shift = None, held: Shift = None
) -> FloatArray:
    """(I, K) the posterior of labels that depend on each other, from that of independent ones; 0 stays 0.

    `shift` (K,) is s, `held` (K,) is log h.
    """
    power = 1 / design_effect(n_labels, dependence)
    return _powered(posterior, power, _added(power, shift, held)) if dependence else posterior


def sharpen(
    posterior: FloatArray, n_labels: FloatArray, dependence: float, shift: Shift = None, held: Shift = None
) -> FloatArray:
    """(I, K) back to the posterior of independent labels."""
    power = design_effect(n_labels, dependence)
    added = _added(1 / power, shift, held)
    back = None if added is None else -added * power[:, None]
    if not dependence:
        return posterior
    # the largest is divided out, so that some number is left of every row
    return _powered(posterior / row_max(posterior)[:, None], power, back)


def _added(power: FloatArray, shift: Shift, held: Shift) -> Shift:
    """(K,) or (I, K) what is added to the log of p^power."""
    if held is None:
        return shift
    return (1 - power)[:, None] * held + (0.0 if shift is None else shift)


def _powered(posterior: FloatArray, power: FloatArray, shift: Shift) -> FloatArray:
    """(I, K) ∝ q^power exp(shift)."""
    with np.errstate(divide="ignore"):
        raised = np.log(posterior)  # four times as fast as a power
    raised *= power[:, None]
    if shift is not None:
        raised += shift
        raised -= raised.max(axis=1, keepdims=True, initial=-np.inf)
    np.exp(raised, out=raised)
    raised *= (1 / np.einsum("ik->i", raised))[:, None]  # both four times as fast as a sum and a quotient by rows
    return np.asarray(raised)


@dataclass(frozen=True, eq=False)
class Calibration:
    """What makes a posterior of independent labels one of labels that share their items."""

    dependence: float  # ρ
    interval: tuple[float, float]  # 95 % of ρ
    shift: FloatArray | None = None  # (K,) of the log posterior; None: 0
    assumed: bool = False  # neither given nor learnt from gold


@dataclass(frozen=True)
class CountedLabels(Estimate):
    """As how many labels confidence counts those of an item, on average; the interval is that of ρ.

    Not what a panel's judges are worth: that is by the correlation of their errors (`questions.panel`).
    """

    labels: float = np.nan  # of an item, on average

    def __str__(self) -> str:
        sure = "" if self.low == self.high else f" ({self.low:.1f} to {self.high:.1f})"
        counted = f"Confidence counts the {self.labels:.1f} labels of an item as {self.value:.1f}"
        return f"{counted}{sure}: they share the item."


def known_with_labels(gold: IntArray | None, table: Any) -> IntArray:
    """Numbers of the items whose class is known and that have labels: they may say what ρ is."""
    if gold is None:
        return np.empty(0, np.int64)
    known = gold >= 0
    if hasattr(table, "item_ptr"):  # of a table elsewhere, all items have labels
        known &= np.diff(table.item_ptr) > 0
    return np.flatnonzero(known)


def from_gold(posterior: FloatArray, n_labels: FloatArray, gold: IntArray, *, shifts: bool = True) -> Calibration:
    """ρ and shifts with the least log loss on items of known class; `posterior` (I, K) of labels as if independent."""
    some = slice(None, None, -(-gold.size // MAX_GOLD))
    posterior, n_labels, gold = posterior[some], n_labels[some], gold[some]
    at = np.arange(gold.size), gold
    shift: FloatArray | None = None

    def fit(rho: float) -> float:
        known = soften(posterior, n_labels, rho, shift)[at]
        return float(np.log(np.maximum(known, MIN_PROBABILITY)).sum())

    found = most_probable(fit)
    for _ in range(ROUNDS if shifts else 0):
        shift = _shifts(soften(posterior, n_labels, found.dependence), gold)
        if shift is None:
            break
        found = most_probable(fit)
    return replace(found, shift=shift)


def most_probable(fit: Callable[[float], float]) -> Calibration:
    """ρ with which known answers, of log probability `fit(ρ)`, are most probable, drawn to the default; 95 % of it."""
    scores = np.array([fit(rho) - (np.log(rho / DEFAULT) / PRIOR_SD) ** 2 / 2 for rho in CANDIDATES.tolist()])
    below = np.cumsum(np.exp(scores - scores.max()))
    low, high = np.exp(np.interp([0.025, 0.975], below / below[-1], np.log(CANDIDATES)))
    chosen = float(CANDIDATES[scores.argmax()])
    return Calibration(chosen, (min(float(low), chosen), max(float(high), chosen)))


def _shifts(soft: FloatArray, gold: IntArray) -> FloatArray | None:
    """(K,) s of the module, by Newton's steps for every σ; None where 0 has the greatest evidence."""
    K, at = soft.shape[1], (np.arange(gold.size), gold)
    if K > MAX_SHIFTED:
        return None
    count, best = np.bincount(gold, minlength=K), None
    most = np.log(np.maximum(soft[at], MIN_PROBABILITY)).sum()
    for sd in SHIFT_SDS:
        shift = np.zeros(K)
        for _ in range(NEWTON_STEPS):
            q = soft * np.exp(shift)
            q /= q.sum(axis=1, keepdims=True)
            curvature = np.eye(K) + sd**2 * (np.diag(q.sum(axis=0)) - q.T @ q)
            shift = shift + np.clip(np.linalg.solve(curvature, sd**2 * (count - q.sum(axis=0)) - shift), -1, 1)
        evidence = np.log(np.maximum(q[at], MIN_PROBABILITY)).sum() - (shift @ shift) / (2 * sd**2)
        evidence -= np.linalg.slogdet(curvature)[1] / 2
        if evidence > most:
            most, best = evidence, shift
    return best


def log_held(shares: FloatArray, beta: float) -> Shift:
    """(K,) log h, by the classes' shares (K,) and β; None where no class is held."""
    logs = np.log(np.maximum(shares, MIN_PROBABILITY))
    held = np.minimum(np.minimum(logs + np.log(shares.size / RARE), beta * (logs - logs.max())), 0)
    return held if held.any() else None


def hold(moved: Callable[[float], float]) -> None:
    """Look for β: `moved(β)` softens by it and says how far the classes' shares have moved; the last try stays."""
    low, high = (0.0, moved(0.0)), (1.0, 0.0)  # β, moved; false position
    for _ in range(HOLD_PASSES if low[1] > MAX_MOVED else 0):
        beta = low[0] + (high[0] - low[0]) * (low[1] - MAX_MOVED) / (low[1] - high[1])
        one = beta, moved(beta)
        if abs(one[1] - MAX_MOVED) < MOVED_TOL:
            break
        low, high = (one, high) if one[1] > MAX_MOVED else (low, one)


def labels_per_item(item_ptr: IntArray, weight: FloatArray | None) -> FloatArray:
    """(I,) how many labels, summed by their weights."""
    if weight is None:
        return np.diff(item_ptr).astype(np.float64)
    return np.diff(np.concatenate([[0.0], np.cumsum(weight)])[item_ptr])


@dataclass(frozen=True)
class Softened(Sums):
    """Sums of a pass, and those that its softened posterior makes."""

    by_annotator: ClassVar = ("independent", "counts")
    independent: Any
    counts: Any


@dataclass(eq=False)
class SoftenedPass(Pass[Any, Softened]):
    """A pass that writes `posterior` and `item_total`: softened, and the labels counted by what comes out.

    `count` is a pass over a given posterior, such as `ConfusionPass(GIVEN, …)`.
    """

    walked: Any
    count: Any
    dependence: float
    shift: FloatArray | None = None
    held: FloatArray | None = None

    def open(self, params: Any, size: Size, workers: int, pool: Threads) -> list[Any]:
        """Buffers of both passes for each worker."""
        first, second = self.walked.open(params, size, workers, pool), self.count.open(None, size, workers, pool)
        return list(zip(first, second, strict=True))

    def walk(self, block: Block, buffer: Any, out: Mapping[str, Any]) -> None:
        """Both passes over the block."""
        some = slice(block.start, block.stop)
        self.walked.walk(block, buffer[0], out)
        ptr = block.rows.item_ptr[block.start : block.stop + 1]
        out["item_total"][some] = total = labels_per_item(ptr, block.rows.weight)
        out["posterior"][some] = soften(out["posterior"][some], total, self.dependence, self.shift, self.held)
        replace(self.count, given=out["posterior"]).walk(block, buffer[1], {})

    def close(self, buffers: list[Any], pool: Threads) -> Softened:
        """The sums of both."""
        first, second = (list(part) for part in zip(*buffers, strict=True))
        return Softened(self.walked.close(first, pool), self.count.close(second, pool))

    def on_torch(self, params: Any, data: Any, out: Mapping[str, Any]) -> Softened:
        """The same in torch."""
        independent = self.walked.on_torch(params, data, out)
        weight = None if data.weight is None else data.weight.cpu().numpy()
        out["item_total"][:] = total = labels_per_item(data.item_ptr.cpu().numpy(), weight)
        out["posterior"][:] = soften(out["posterior"], total, self.dependence, self.shift, self.held)
        return Softened(independent, replace(self.count, given=out["posterior"]).on_torch(None, data, {}))
