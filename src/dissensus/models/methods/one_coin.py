"""One-coin Dawid-Skene: one accuracy per annotator, with all wrong labels equally likely.

Use it when annotators have few labels each and mistakes are similar for all classes.

Annotator j is right with probability p_j:

    z_i ~ Cat(π)        y_ij = z_i with probability p_j, else each other class with probability (1 − p_j)/(K − 1)
    p_j ~ Beta(1 + `right_count`, 1 + `wrong_count`)        π_c ∝ 1 + 0.01 v_c, or π ~ Dirichlet(1 + `class_count`)

EM starts from the votes. The E step is that of `dawid-skene` with this likelihood, and

    M step  p_j = (`right_count` + h_j) / (`right_count` + `wrong_count` + n_j)      h_j = Σ_i q_i(y_ij) over j's labels

- `coin_` (A, 2) [right, wrong]: p and 1 − p; `accuracy_` is p
- `prior_` (K,): π, the class shares; v are the shares of the classes among all labels
- n_j and h_j: number of labels of annotator j, and how many of them are right

By default π is not learnt. If annotators miss one class more often than another, only π can explain this in this model,
and a learnt π then moves to one class (bluebirds: 96 % of the items, accuracy 58 % instead of 72 %). The default is
uniform plus a hundredth of the vote shares. That decides only where labels cannot: of two annotators who share items
only with each other, either may be the better one (plank_pos: 96.6 % right instead of 93.7 %).
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from dissensus.models.coins import CoinModel, Coins
from dissensus.models.confusion import FloatArray, methods, param
from dissensus.models.matrices import PSEUDO_COUNT_LIMITS, mix_uniform_and_vote_shares

VOTE_SHARE_WEIGHT = 0.01  # weight of the vote shares, relative to uniform shares, in a fixed π


@methods.register("one-coin", summary="one accuracy per annotator, learnt with the truth", cite="Zhang et al. 2016")
class OneCoin(CoinModel):
    """Estimate class posteriors and one accuracy per annotator by EM."""

    right_count: float = param(4.0, "pseudo-count of right labels of each annotator", **PSEUDO_COUNT_LIMITS)
    wrong_count: float = param(2.0, "pseudo-count of wrong labels of each annotator", **PSEUDO_COUNT_LIMITS)
    class_prior: Literal["uniform", "learned"] = param("uniform", "class shares: equal, or learnt")
    class_count: float = param(1.0, "pseudo-count of every class in a learnt π", **PSEUDO_COUNT_LIMITS)

    def prepare(self, votes: Any, engine: Any) -> None:
        self.class_pseudo_counts_ = np.full(votes.class_counts.size, self.class_count)
        uniform = mix_uniform_and_vote_shares(self.label_totals_.sum(axis=(0, 1)), VOTE_SHARE_WEIGHT)
        self.fixed_prior_ = None if self.class_prior == "learned" else uniform

    def m_step(self, label_counts: FloatArray, label_totals: FloatArray, params: Any) -> Coins:
        hits, total = label_counts[:, 0, 0], label_totals.sum(axis=(1, 2))
        # Rounding errors may make total − hits negative.
        counts = np.stack([hits + self.right_count, np.maximum(total - hits, 0) + self.wrong_count], axis=1)
        return Coins(params.prior, counts / counts.sum(axis=1, keepdims=True))

    def log_prior(self, params: Coins) -> float:
        return float((np.log(params.coin) @ [self.right_count, self.wrong_count]).sum())

    def confusion_support(self) -> FloatArray:
        return np.asarray(self.label_totals_.sum(axis=2, keepdims=True) + self.right_count + self.wrong_count)
