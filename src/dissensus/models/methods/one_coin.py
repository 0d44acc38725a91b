"""One-coin Dawid-Skene: every annotator has one accuracy; all wrong labels are equally likely.

    z_i ~ Cat(π)        y_ij = z_i with probability p_j, else any other class with (1 − p_j)/(K − 1) each
    p_j ~ Beta(1 + right, 1 + wrong)        π_c ∝ 1 + LEAN · v_c, or ~ Dirichlet(1 + class_count)

M step  p_j = (right + h_j)/(right + wrong + n_j), where h_j = Σ_i q_i(y_ij) of its n_j labels are right.

| symbol | name | shape |
|---|---|---|
| v | votes, as shares of all labels | (K,) |
| p, 1 − p | coin | (A, 2) |

The one-coin model of Zhang et al. 2016, who start from spectral estimates and use no prior. By default π is not learnt:
annotators who miss one class more often than another can only be explained by π in this model, which then degenerates
to one class (bluebirds: 96 % of the items, and an accuracy of 58 % instead of 72 %). It is uniform, plus a hundredth of
the shares of the votes, which outweighs almost no label. It decides only where labels cannot: of two annotators who
share items only with each other, either may be the better one (plank_pos).
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from dissensus.models.coins import CoinModel, Coins
from dissensus.models.confusion import FloatArray, methods, param
from dissensus.models.matrices import PSEUDO, leaning

LEAN = 0.01  # share of π that follows the votes if it is not learnt


@methods.register("one-coin", summary="one accuracy per annotator, learnt with the truth", cite="Zhang et al. 2016")
class OneCoin(CoinModel):
    """MAP one-coin Dawid-Skene."""

    right: float = param(4.0, "pseudo-count of right labels", **PSEUDO)
    wrong: float = param(2.0, "pseudo-count of wrong labels", **PSEUDO)
    class_prior: Literal["uniform", "learned"] = param("uniform", "uniform class shares, or learnt ones")
    class_count: float = param(1.0, "pseudo-count of every class in a learnt π", **PSEUDO)

    def prepare(self, votes: Any, engine: Any) -> None:
        self.class_pseudo_ = np.full(votes.classes.size, self.class_count)
        uniform = leaning(self.label_totals_.sum(axis=(0, 1)), LEAN)
        self.fixed_prior_ = None if self.class_prior == "learned" else uniform

    def m_step(self, labels: FloatArray, totals: FloatArray, params: Any) -> Coins:
        hits, total = labels[:, 0, 0], totals.sum(axis=(1, 2))
        counts = np.stack([hits + self.right, np.maximum(total - hits, 0) + self.wrong], axis=1)  # rounding: below 0
        return Coins(params.prior, counts / counts.sum(axis=1, keepdims=True))

    def log_prior(self, params: Coins) -> float:
        return float((np.log(params.coin) @ [self.right, self.wrong]).sum())

    def confusion_support(self) -> FloatArray:
        return np.asarray(self.label_totals_.sum(axis=2, keepdims=True) + self.right + self.wrong)
