"""What the labels of one item are worth together: they share the item, so they are not independent given its class.

    q_i(c) ∝ p_i(c)^(1/d_i)        d_i = 1 + (n_i − 1) ρ

p_i is the posterior of the item's n_i labels as if they were independent, d_i Kish's design effect (1965): n_i labels
are worth n_i / d_i independent ones, at most 1/ρ. A working likelihood raised to 1/d has the right scale (Pauli et al.
2011). The classes' shares are raised with it: the most probable class stays what it was, where tempering the likelihood
alone let the larger classes take 0.4 points of accuracy. ρ = 0 leaves the posterior as it is.

It is applied to the posterior that EM ends with, not inside EM: on nine sets with gold, at 2, 5 and all labels, the
same ρ inside EM cost Dawid-Skene 2 to 3 points of accuracy, because annotators learnt from soft posteriors look alike.

Without gold ρ is one number, DEFAULT, with the least log loss over 12 sets (`python -m benchmarks.trust.posterior` also
leaves each set out: it is as good there). Rules that know the table, from the agreement of its labels, with and
without chance, or from the spread of its errors, were worse on sets that they were not made for: what a crowd gets
wrong together its own table does not show. Gold does: with `MIN_GOLD` known items or more, ρ is that with the least log
loss on them, drawn to DEFAULT by a prior on log ρ.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from dissensus.common.arrays import row_max
from dissensus.common.parameters import is_number, param
from dissensus.common.types import FloatArray, IntArray
from dissensus.compute.engines.base import Block, Pass, Size, Sums
from dissensus.compute.engines.local import Threads

DEFAULT = 0.6  # ρ
MIN_GOLD = 30  # known items from which on they say what ρ is
PRIOR_SD = 1.0  # of log ρ around DEFAULT: the ρ that gold chooses lies within a factor of 2.7 on two sets of three
CANDIDATES = np.geomspace(0.01, 10, 61)  # ρ that gold chooses from

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


def soften(posterior: FloatArray, n_labels: FloatArray, dependence: float) -> FloatArray:
    """(I, K) the posterior of labels that depend on each other, from that of independent ones; 0 stays 0."""
    return _powered(posterior, 1 / design_effect(n_labels, dependence)) if dependence else posterior


def sharpen(posterior: FloatArray, n_labels: FloatArray, dependence: float) -> FloatArray:
    """(I, K) back to the posterior of independent labels."""
    return _powered(posterior, design_effect(n_labels, dependence)) if dependence else posterior


def _powered(posterior: FloatArray, power: FloatArray) -> FloatArray:
    """(I, K) ∝ q^power; the largest is divided out first, so that some number is left of every row."""
    raised = posterior / row_max(posterior)[:, None]
    with np.errstate(divide="ignore"):
        np.log(raised, out=raised)  # four times as fast as a power
    raised *= power[:, None]
    np.exp(raised, out=raised)
    raised /= np.einsum("ik->i", raised)[:, None]  # four times as fast as a sum over a short axis
    return np.asarray(raised)


def from_gold(posterior: FloatArray, n_labels: FloatArray, gold: IntArray) -> float:
    """ρ with the least log loss on items of known class; `posterior` (I, K) of labels as if independent."""
    at = np.arange(gold.size), gold

    def score(dependence: float) -> float:
        known = soften(posterior, n_labels, dependence)[at]
        away = np.log(dependence / DEFAULT) / PRIOR_SD
        return float(np.log(np.maximum(known, 1e-12)).sum() - away**2 / 2)

    return float(max(CANDIDATES, key=score))


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
class SoftenedPass(Pass[Any, Softened, Any]):
    """A pass that writes `posterior` and `item_total`: softened, and the labels counted by what comes out.

    `count` is a pass over a given posterior, such as `ConfusionPass(GIVEN, …)`.
    """

    walked: Any
    count: Any
    dependence: float

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
        out["posterior"][some] = soften(out["posterior"][some], total, self.dependence)
        self.count.walk(block, buffer[1], {}, given=out["posterior"])

    def close(self, buffers: list[Any], pool: Threads) -> Softened:
        """The sums of both."""
        first, second = (list(part) for part in zip(*buffers, strict=True))
        return Softened(self.walked.close(first, pool), self.count.close(second, pool))

    def on_torch(self, params: Any, data: Any, out: Mapping[str, Any]) -> Softened:
        """The same in torch."""
        independent = self.walked.on_torch(params, data, out)
        weight = None if data.weight is None else data.weight.cpu().numpy()
        out["item_total"][:] = total = labels_per_item(data.item_ptr.cpu().numpy(), weight)
        out["posterior"][:] = soften(out["posterior"], total, self.dependence)
        return Softened(independent, self.count.on_torch(None, data, {}, given=out["posterior"]))
