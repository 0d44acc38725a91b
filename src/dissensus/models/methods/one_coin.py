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

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Literal, Self

import numpy as np

from dissensus.common.types import BoolArray, FloatArray, IntArray, OnStep
from dissensus.compute.engines import EngineChoice, in_memory, place
from dissensus.compute.engines.base import Block, Engine, Pass, Rows, Size, Sums, hard_rows
from dissensus.compute.engines.local import Threads
from dissensus.compute.kernels import one_coin as kernels
from dissensus.exceptions import BadParameter
from dissensus.models.base import methods
from dissensus.models.em import Accelerate, EMAggregator
from dissensus.models.incremental import settle
from dissensus.models.methods.dawid_skene import LARGEST, SMALLEST
from dissensus.models.methods.majority_vote import AgreementPass
from dissensus.table.annotations import Annotations
from dissensus.table.kernels import agreement

LEAN = 0.01  # how much π follows the votes where it is not learnt


@dataclass(frozen=True)
class Coins:
    """The parameters: π (K,) and the coins (A, 2) [right, wrong]."""

    by_annotator: ClassVar = ("coin",)
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
    engine : "local", "disk", "torch", "spark", or one with options
        Where the passes run, see `dissensus.compute.engines`.
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
        engine: EngineChoice = "local",
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
        self.engine = engine
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
        with place(self, table, gold) as engine:
            labels = engine.once(AgreementPass()).total
            fixed, walk, total = self._fixed_prior(labels.sum(axis=0)), CoinPass(), labels.sum(axis=1)

            def objective(evidence: float, params: Coins) -> float:
                return evidence + float(total @ params.log_wrong()) + self.log_penalty(params)

            def em_pass(params: Coins) -> tuple[float, Coins]:
                sums = engine.sweep(walk, params)
                return objective(sums.evidence, params), self._maximise(sums.hits, total, sums.prior_counts, fixed)

            params = self.run(em_pass, partial(self.start, engine), on_step, engine.checkpoint)
            self.posterior_ = engine.per_item("posterior", engine.size.n_classes)
            sums = engine.sweep(walk, params, {"posterior": self.posterior_})
        self.trace_ = np.append(self.trace_, objective(sums.evidence, params))  # of what is returned
        self.prior_, self.coin_, self.class_counts_ = params.prior, params.coin, sums.prior_counts
        self.population_coin_ = self._coin(sums.hits.sum(keepdims=True), total.sum(keepdims=True))  # (1, 2)
        self._judge(sums.hits, total)

    def _score(self, table: Annotations, known: IntArray) -> FloatArray:
        coin = np.concatenate([self.coin_, self.population_coin_])[known]  # −1, unseen, takes the last
        return score(table, Coins(self.prior_, coin), self.threads)

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

    def start(self, engine: Engine, rng: np.random.Generator | None) -> Coins:
        """One M step from the shares of the votes; a random start draws the shares from Dirichlet(1 + votes)."""
        votes = engine.once(AgreementPass())
        first = votes if rng is None else engine.sweep(AgreementPass(rng=rng), None)
        fixed, classes = self._fixed_prior(votes.total.sum(axis=0)), first.classes.sum(axis=0)
        return self._maximise(first.hits.sum(axis=1), first.total.sum(axis=1), classes, fixed)

    def _fixed_prior(self, labels: FloatArray) -> FloatArray | None:
        """(K,) π where it is not learnt; `labels` (K,) the weight of all labels of each class."""
        return None if self.class_prior == "learned" else leaning(labels, LEAN)

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
        return self._maximise(
            hits, total, posterior.sum(axis=0), self._fixed_prior(label_counts(hard_rows(table), table.n_classes))
        )

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


def score(table: Annotations, params: Coins, threads: int | None) -> FloatArray:
    """(I, K) posterior of a table whose annotators have these coins."""
    posterior = np.empty((table.n_items, table.n_classes))
    with in_memory(table, None, threads) as engine:
        engine.sweep(CoinPass(), params, {"posterior": posterior})
    return posterior


@dataclass(frozen=True)
class CoinSums(Sums):
    """Log evidence less the common factor Σ_j n_j log wrong_j, classes (K,) and hits (A,)."""

    by_annotator: ClassVar = ("hits",)
    evidence: float
    prior_counts: FloatArray
    hits: FloatArray


class CoinPass(Pass[Coins, CoinSums, Any]):
    """One fused pass, see `kernels.one_coin`; may write `posterior`."""

    def open(self, params: Coins, size: Size, workers: int, pool: Threads) -> list[Any]:
        """Ratios and hits (A, 2), classes (K,) and evidence (1,), for each worker."""
        log_ratio = params.log_ratio()
        safe = kernels.safe_rows(log_ratio)
        cells = np.zeros((workers, log_ratio.size, 2))
        cells[:, :, 0] = np.exp(log_ratio)
        sums = np.zeros((workers, size.n_classes)), np.zeros((workers, 1))
        return [(log_ratio, cells[t], safe, params.prior, sums[0][t], sums[1][t]) for t in range(workers)]

    def walk(self, block: Block, buffer: Any, out: Mapping[str, Any]) -> None:
        """`kernels.one_coin.sweep`."""
        rows, (log_ratio, cells, safe, prior, prior_counts, evidence) = block.rows, buffer
        evidence[0] += kernels.sweep(
            block.start, block.stop, rows.item_ptr, rows.annotator, rows.label, rows.weight,
            log_ratio, cells, safe, prior, prior_counts, block.gold, out.get("posterior"),
        )  # fmt: skip

    def close(self, buffers: list[Any], pool: Threads) -> CoinSums:
        """The sums of all workers."""
        return CoinSums(
            sum(float(b[5][0]) for b in buffers), sum(b[4] for b in buffers), sum(b[1][:, 1] for b in buffers)
        )

    def on_torch(self, params: Coins, data: Any, out: Mapping[str, Any]) -> CoinSums:
        """The same in torch."""
        from dissensus.compute.kernels import on_torch

        ratio = np.repeat(params.log_ratio()[:, None], params.prior.size, axis=1)
        evidence, classes, hits = on_torch.own_class(data, ratio, params.prior, out.get("posterior"))
        return CoinSums(evidence, classes, hits.sum(axis=1))
