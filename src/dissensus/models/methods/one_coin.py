"""One-coin Dawid-Skene: every annotator has one accuracy; when it is wrong, all wrong labels are as likely.

    z_i ~ Cat(π)        y_ij = z_i with probability p_j, else any other class with (1 − p_j)/(K − 1) each
    p_j ~ Beta(1 + right, 1 + wrong)        π_c ∝ 1 + LEAN · v_c, or ~ Dirichlet(1 + class_count)

E step  as in the family, L_j[c, l] = p_j if c = l, else (1 − p_j)/(K − 1).
M step  p_j = (right + h_j)/(right + wrong + n_j), where h_j = Σ_i q_i(y_ij) of its n_j labels are right.

| symbol | name | shape |
|---|---|---|
| q, π | posterior, prior | (I, K), (K,) |
| v | votes, as shares of all labels | (K,) |
| p, 1 − p | coin | (A, 2); both, because 1 − p of a nearly perfect annotator has lost its digits |

The one-coin model of Zhang et al. 2016, who start from spectral estimates and use no prior. π is not learnt unless
asked for: annotators who miss one class more often than the other have no other way to show in this model than through
π, which then runs off to one class (bluebirds: 96 % of the items, and 58 % right instead of 72 %). It is uniform but
for a hundredth of what the votes say, less than nearly every label does. That much decides where labels cannot: of two
annotators who only have each other to agree with, either may be the better one, and without it a single label that one
of them gave alone would settle all their disagreements (plank_pos).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from dissensus.common.parameters import param
from dissensus.common.types import FloatArray
from dissensus.compute.engines.base import Engine
from dissensus.models.base import methods
from dissensus.models.confusion import (
    COIN,
    MAX_PSEUDO,
    MIN_PSEUDO,
    Classes,
    ConfusionModel,
    Counts,
    OwnCells,
    leaning,
)  # fmt: skip
from dissensus.models.params import SIMPLEX, moved

LEAN = 0.01  # share of π that follows the votes where it is not learnt


@dataclass(frozen=True)
class Coins(Classes):
    """The parameters: π (K,) and the coins (A, 2) [right, wrong]."""

    coin: FloatArray = moved(SIMPLEX, per_annotator=True)

    def cells(self) -> OwnCells:
        """P and (1 − p)/(K − 1)."""
        return OwnCells(self.coin[:, :1], self.coin[:, 1:] / max(self.prior.size - 1, 1))


@methods.register(
    "one-coin", summary="one accuracy per annotator, learnt with the truth by EM", cite="Zhang et al. 2016"
)
class OneCoin(ConfusionModel[Coins]):
    """MAP one-coin Dawid-Skene."""

    right: float = param(4.0, "pseudo-count of right labels", low=MIN_PSEUDO, high=MAX_PSEUDO)
    wrong: float = param(2.0, "pseudo-count of wrong labels", low=MIN_PSEUDO, high=MAX_PSEUDO)
    class_prior: Literal["uniform", "learned"] = param("uniform", "all classes as frequent, or their shares learnt")
    class_count: float = param(1.0, "pseudo-count of every class in a learnt π", low=MIN_PSEUDO, high=MAX_PSEUDO)

    Params, shape = Coins, COIN
    coin_: FloatArray

    def prepare(self, votes: Counts, engine: Engine) -> None:
        """Fix π by the votes, or its pseudo-counts."""
        self.class_pseudo_ = np.full(votes.classes.size, self.class_count)
        self.fixed_prior_ = (
            None if self.class_prior == "learned" else leaning(self.label_totals_.sum(axis=(0, 1)), LEAN)
        )

    def cells(self, params: Coins) -> OwnCells:
        """Those of the coins."""
        return params.cells()

    def maximise(self, labels: FloatArray, totals: FloatArray, params: Any) -> Coins:
        """The M step of the module."""
        hits, total = labels[:, 0, 0], totals.sum(axis=(1, 2))
        counts = np.stack([hits + self.right, np.maximum(total - hits, 0) + self.wrong], axis=1)  # rounding: below 0
        return Coins(params.prior, counts / counts.sum(axis=1, keepdims=True))

    def log_penalty(self, params: Coins) -> float:
        """Beta log densities of all coins, up to a constant."""
        return float((np.log(params.coin) @ [self.right, self.wrong]).sum())

    def labels_behind(self) -> FloatArray:
        """Labels and pseudo-counts."""
        return np.asarray(self.label_totals_.sum(axis=2, keepdims=True) + self.right + self.wrong)

    def describe(self) -> None:
        """The coin of an annotator who was not there."""
        self.population_coin_ = self.population(self._params()).coin  # (1, 2)

    @property
    def accuracy_(self) -> FloatArray:
        """(A,) p, the probability that a label of the annotator is right."""
        return np.asarray(self.coin_[:, 0])
