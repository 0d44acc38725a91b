"""One-coin Dawid-Skene: every annotator has one accuracy; when it is wrong, all wrong labels are as likely.

    z_i ~ Cat(π)        y_ij = z_i with probability p_j, else any other class with (1 − p_j)/(K − 1) each
    p_j ~ Beta(1 + a, 1 + b)        π_c ∝ 1 + LEAN · v_c, or ~ Dirichlet(1 + class_count)

E step, with the ratio ρ_j = p_j (K − 1)/(1 − p_j) (what all rows of an item have in common cancels):
    q_i(c) ∝ π_c Π_{j: y_ij = c} ρ_j
M step:
    p_j = (a + h_j)/(a + b + n_j)      h_j = Σ_i q_i(y_ij)      π as it was, or ∝ class_count + Σ_i q_i(c)

| symbol | name | shape |
|---|---|---|
| q | posterior | (I, K) |
| π | prior | (K,) |
| v | votes, as shares of all labels | (K,) |
| p, 1 − p | coin | (A, 2) [right, wrong]; both, because 1 − p of a nearly perfect annotator has lost its digits |
| h, n | hits, total | (A,) |
| a, b | right, wrong | pseudo-counts |

The one-coin model of Zhang et al. 2016, who start from spectral estimates and use no prior. π is not learnt unless
asked for: annotators who miss one class more often than the other have no other way to show in this model than through
π, which then runs off to one class (bluebirds: 96 % of the items, and 58 % right instead of 72 %). It is uniform but
for a hundredth of what the votes say, less than nearly every label does. That much decides where labels cannot: of two
annotators who only have each other to agree with, either may be the better one, and without it a single label that one
of them gave alone would settle all their disagreements (plank_pos). Every annotator starts
with `right` and `wrong` labels, a newcomer is thought to be right two times in three, and six labels count as much as
that opinion.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, Self

import numpy as np

from dissensus._types import BoolArray, FloatArray, IntArray, OnStep
from dissensus.aggregation.dawid_skene import LARGEST, SMALLEST, Rows, hard_rows
from dissensus.annotations import Annotations
from dissensus.base import methods
from dissensus.em import Accelerate, EMAggregator
from dissensus.engines.local import Threads, balanced, thread_count
from dissensus.exceptions import BadParameter
from dissensus.kernels import one_coin as kernels
from dissensus.kernels.table import agreement
from dissensus.online import settle

LEAN = 0.01  # how much π follows the votes where it is not learnt


@dataclass(frozen=True)
class Coins:
    """The parameters: π (K,) and the coins (A, 2) [right, wrong]."""

    prior: FloatArray
    coin: FloatArray

    def to_vector(self) -> FloatArray:
        """Square roots: probabilities become points of a sphere."""
        return np.asarray(np.sqrt(np.concatenate([self.prior, self.coin.reshape(-1)])))

    def from_vector(self, vector: FloatArray) -> Self:
        """Squares, normalised again."""
        K = self.prior.size
        squares = np.maximum(vector**2, SMALLEST**2)
        coin = squares[K:].reshape(self.coin.shape)
        return type(self)(squares[:K] / squares[:K].sum(), coin / coin.sum(axis=1, keepdims=True))

    def log_wrong(self) -> FloatArray:
        """(A,) log probability of each single wrong label."""
        return np.asarray(np.log(self.coin[:, 1]) - np.log(max(self.prior.size - 1, 1)))

    def log_ratio(self) -> FloatArray:
        """(A,) log ρ: how much more probable a label is if it is right."""
        return np.asarray(np.log(self.coin[:, 0]) - self.log_wrong())


@methods.register(
    "one-coin", summary="one accuracy per annotator, learnt with the truth by EM", cite="Zhang et al. 2016"
)
class OneCoin(EMAggregator[Coins]):
    """MAP one-coin Dawid-Skene.

    Parameters
    ----------
    right, wrong : float
        Pseudo-counts of right and of wrong labels that every annotator starts with.
    class_prior : "uniform" or "learned"
        Whether all classes are taken to be as frequent (but for `LEAN` of their share of the votes), or their shares π
        are learnt.
    class_count : float
        Pseudo-count of every class where π is learnt.
    max_iter, tol, accelerate, restarts
        Passes over the data at most; stop when a pass gains less than `tol` of the objective; "squarem" or None;
        number of starts (the first is majority vote, the others near it), of which the best objective is kept.
    threads : int, optional
        Threads for the passes; None for all cores.
    seed : int or None
    """

    def __init__(
        self,
        *,
        right: float = 4.0,
        wrong: float = 2.0,
        class_prior: Literal["uniform", "learned"] = "uniform",
        class_count: float = 1.0,
        max_iter: int = 500,
        tol: float = 1e-7,
        accelerate: Accelerate = "squarem",
        restarts: int = 1,
        threads: int | None = None,
        seed: int | None = 0,
    ):
        self.right = right
        self.wrong = wrong
        self.class_prior = class_prior
        self.class_count = class_count
        self.max_iter = max_iter
        self.tol = tol
        self.accelerate = accelerate
        self.restarts = restarts
        self.threads = threads
        self.seed = seed

    @property
    def accuracy_(self) -> FloatArray:
        """(A,) p, the probability that a label of the annotator is right."""
        return np.asarray(self.coin_[:, 0])

    @property
    def confusion_(self) -> FloatArray:
        """(A, K, K) [annotator, true, given], made when asked for: p on the diagonal, (1 − p)/(K − 1) elsewhere."""
        K = self.classes_.size
        right, wrong = self.coin_[:, 0, None, None], self.coin_[:, 1, None, None] / max(K - 1, 1)
        return np.where(np.eye(K, dtype=bool), right if K > 1 else 1.0, wrong)

    def _check_parameters(self) -> None:
        super()._check_parameters()
        for keyword in ("right", "wrong", "class_count"):
            if not SMALLEST <= getattr(self, keyword) <= LARGEST:
                value = getattr(self, keyword)
                raise BadParameter(f"{keyword} must lie from {SMALLEST:g} to {LARGEST:g}, got {value}.")
        if self.class_prior not in ("uniform", "learned"):
            raise BadParameter(f"class_prior must be 'uniform' or 'learned', got {self.class_prior!r}.")

    def _fit(self, table: Annotations, gold: IntArray | None, on_step: OnStep) -> None:
        rows, fixed = hard_rows(table), self.fixed_prior(table)
        with Threads(thread_count(self.threads, rows.annotator.size)) as pool:
            sweep = Sweep(rows, table.n_annotators, table.n_classes, pool, gold)

            def em_pass(params: Coins) -> tuple[float, Coins]:
                evidence = sweep(params)
                better = self._maximise(sweep.hits, sweep.total, sweep.prior_counts, fixed)
                return evidence + self.log_penalty(params), better

            params = self.run(em_pass, table, gold, on_step)
            self.posterior_ = np.empty((table.n_items, table.n_classes))
            evidence = sweep(params, self.posterior_)
        self.trace_ = np.append(self.trace_, evidence + self.log_penalty(params))  # the objective of what is returned
        self.prior_, self.coin_, self.class_counts_ = params.prior, params.coin, sweep.prior_counts
        self.population_coin_ = self._coin(sweep.hits.sum(keepdims=True), sweep.total.sum(keepdims=True))  # (1, 2)
        self._judge(sweep.hits, sweep.total)

    def _score(self, table: Annotations, known: IntArray) -> FloatArray:
        coin = np.concatenate([self.coin_, self.population_coin_])[known]  # −1, unseen, takes the last
        rows = hard_rows(table)
        posterior = np.empty((table.n_items, table.n_classes))
        with Threads(thread_count(self.threads, rows.annotator.size)) as pool:
            Sweep(rows, table.n_annotators, table.n_classes, pool, None)(Coins(self.prior_, coin), posterior)
        return posterior

    def _label_proba(self, posterior: FloatArray, item: IntArray, annotator: IntArray) -> FloatArray:
        coin = np.concatenate([self.coin_, self.population_coin_])[annotator]
        if self.classes_.size == 1:
            return np.ones_like(posterior)
        return np.asarray(posterior * coin[:, :1] + (1 - posterior) * coin[:, 1:] / (self.classes_.size - 1))

    def _confusion_size(self) -> FloatArray:
        return np.asarray(self.total_ + self.right + self.wrong)[:, None, None]

    def _newcomer(self) -> dict[str, Any]:
        return {"coin_": self.population_coin_[0]}

    def _update(
        self, table: Annotations, item: IntArray, annotator: IntArray, old: BoolArray, gold: IntArray | None
    ) -> FloatArray:
        before, hits, total = self.posterior_[item], self.hits_[annotator], self.total_[annotator]

        def learn(posterior: FloatArray) -> Coins:
            new_hits, new_total = self._agreement(table, posterior)
            return Coins(self.prior_, self._coin(hits + new_hits, total + new_total))

        first = Coins(self.prior_, self.coin_[annotator])
        posterior, params = settle(table, before, gold, first, partial(self.log_votes, table), learn)
        self.coin_ = self.coin_.copy()
        self.coin_[annotator] = params.coin
        fixed = self.prior_
        self._recount(posterior, before, old, self.class_count)
        if self.class_prior == "uniform":
            self.prior_ = fixed
        return posterior

    def start(self, table: Annotations, gold: IntArray | None, rng: np.random.Generator | None) -> Coins:
        """One M step from the shares of the votes; a random start draws the shares from Dirichlet(1 + votes)."""
        if rng is None:
            posterior = table.soft_labels()
        else:
            posterior = rng.standard_gamma(table.votes() + 1)
            posterior /= posterior.sum(axis=1, keepdims=True)
        if gold is not None:
            posterior[gold >= 0] = np.eye(table.n_classes)[gold[gold >= 0]]
        return self.m_step(table, posterior)

    def fixed_prior(self, table: Annotations) -> FloatArray | None:
        """(K,) π where it is not learnt."""
        return None if self.class_prior == "learned" else leaning(label_counts(hard_rows(table), table.n_classes), LEAN)

    def _maximise(
        self, hits: FloatArray, total: FloatArray, prior_counts: FloatArray, fixed: FloatArray | None
    ) -> Coins:
        """The M step of the module from its sums; `fixed` is π, None where it is learnt."""
        return Coins(self._learned(prior_counts) if fixed is None else fixed, self._coin(hits, total))

    def _learned(self, prior_counts: FloatArray) -> FloatArray:
        shares = np.maximum(prior_counts, 0) + self.class_count  # an update may leave a rounding error below zero
        return np.asarray(shares / shares.sum())

    def _coin(self, hits: FloatArray, total: FloatArray) -> FloatArray:
        """(A, 2) [right, wrong] from hits and totals (A,)."""
        misses = np.maximum(total - hits, 0)  # a rounding error below zero, of a perfect annotator
        counts = np.stack([hits + self.right, misses + self.wrong], axis=1)
        return np.asarray(counts / counts.sum(axis=1, keepdims=True))

    # The readable form ------------------------------------------------------------------------------------------------

    def m_step(self, table: Annotations, posterior: FloatArray) -> Coins:
        """The M step from a posterior (I, K)."""
        hits, total = agreement(
            table.item_ptr, table.annotator, table.label, table.weight, table.proba, posterior, table.n_annotators
        )
        return self._maximise(hits, total, posterior.sum(axis=0), self.fixed_prior(table))

    def log_votes(self, table: Annotations, params: Coins) -> FloatArray:
        """(N, K) log P(y | class); of a probabilistic row, its mean under the row's distribution."""
        shares = np.eye(table.n_classes)[table.label] if table.proba is None else table.proba
        j = table.annotator
        votes = params.log_wrong()[j, None] + shares * params.log_ratio()[j, None]
        return np.asarray(votes if table.weight is None else votes * table.weight[:, None])

    def log_prior(self, params: Coins) -> FloatArray:
        """(K,) log π."""
        return np.asarray(np.log(params.prior))

    def log_penalty(self, params: Coins) -> float:
        """Beta log densities of all coins and, where it is learnt, the Dirichlet's of π, up to a constant."""
        coins = float((np.log(params.coin) @ [self.right, self.wrong]).sum())
        return coins + (self.class_count * float(np.log(params.prior).sum()) if self.class_prior == "learned" else 0.0)


def label_counts(rows: Rows, n_classes: int) -> FloatArray:
    """(K,) weight of all labels of each class."""
    return np.bincount(rows.label, rows.weight, n_classes).astype(float)


def leaning(votes: FloatArray, by: float) -> FloatArray:
    """(K,) classes that all count the same, but for `by` of their shares of the votes (K,); sums to one."""
    total = votes.sum()
    shares = 1 + by * votes / total if total > 0 else np.ones_like(votes)
    return np.asarray(shares / shares.sum())


class Sweep:
    """One fused pass over the rows, in threads; `hits` (A,) and `prior_counts` (K,) are those of the last pass."""

    def __init__(self, rows: Rows, n_annotators: int, n_classes: int, pool: Threads, gold: IntArray | None):
        self.rows, self.pool, self.gold = rows, pool, gold
        self.items = balanced(rows.item_ptr, pool.threads)
        self.total: FloatArray = np.bincount(rows.annotator, rows.weight, minlength=n_annotators).astype(float)
        self.hits, self.prior_counts = np.zeros(n_annotators), np.zeros(n_classes)

    def __call__(self, params: Coins, posterior: FloatArray | None = None) -> float:
        """Log evidence at `params`; `posterior` (I, K) is filled unless None."""
        rows, threads = self.rows, self.pool.threads
        log_ratio = params.log_ratio()
        safe = kernels.safe_rows(log_ratio)
        cells = np.zeros((threads, log_ratio.size, 2))  # [ratio, hits]
        cells[:, :, 0] = np.exp(log_ratio)
        prior_counts = np.zeros((threads, params.prior.size))

        def work(number: int, start: int, stop: int) -> float:
            evidence = kernels.sweep(
                start, stop, rows.item_ptr, rows.annotator, rows.label, rows.weight,
                log_ratio, cells[number], safe, params.prior, prior_counts[number], self.gold, posterior,
            )  # fmt: skip
            return float(evidence)

        evidence = sum(self.pool.map(work, self.items)) + float(self.total @ params.log_wrong())
        self.hits, self.prior_counts = cells[:, :, 1].sum(axis=0), prior_counts.sum(axis=0)
        return evidence
