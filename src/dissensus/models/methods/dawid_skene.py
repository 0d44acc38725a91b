"""Dawid & Skene (1979): every annotator has a confusion matrix; truth and matrices are learnt together by EM.

    z_i ~ Cat(π)      y_ij | z_i = c ~ Cat(Θ_j[c, :])      Θ_j[c, :] ~ Dirichlet(1 + a[c, :])      π ~ Dirichlet(1 + b)

E step (Eq. 2.5, Dawid & Skene 1979):
    q_i(c) ∝ π_c Π_{j∈M_i} Θ_j[c, y_ij]
M step (Eqs. 2.3 and 2.4, ibid., with pseudo-counts):
    Θ_j[c, l] ∝ a[c, l] + Σ_{i: y_ij = l} q_i(c)        π_c ∝ b_c + Σ_i q_i(c)

| symbol | name | shape |
|---|---|---|
| q | posterior | (I, K) |
| π | prior | (K,) |
| Θ | confusion | (A, K, K) [annotator, given, true] inside, for contiguous reads; `confusion_` has [a, true, given] |
| a | pseudo | (K, K) [given, true] inside |
| v | the shares of the votes | (I, K) |

Without pseudo-counts an annotator with three labels is trusted as one with three hundred, and the posterior is far too
sure of itself. So everyone starts with labels of an ordinary member of this crowd, and a few of every kind:

    a[c, l] = `crowd_labels`·K√K · Σ_{rows with y_ij = l} v_i(c) / N + `smoothing`·(1 where l ≠ c, K − 1 where l = c)

The first part has the shape of the crowd's own confusion, were the shares of the votes the truth; the second keeps rare
mistakes possible and takes everyone to be right half of the time. Of a rare class the votes know little: a row with
fewer than `least_labels` is filled up with those of an annotator of whom nothing is known (`expected_pseudo`). All is
fixed before EM begins.

Where annotators have few labels each, their matrices can explain any labels, and the most probable crowd is one in
which all items are of one class. So π is held near the shares of the votes, the more the more matrices there are:
b_c = `class_count` + `vote_count`·A·mean_i v_i(c).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Literal, Self

import numpy as np

from dissensus.common.types import BoolArray, FloatArray, IntArray, OnStep
from dissensus.compute.engines import EngineChoice, in_memory, place
from dissensus.compute.engines.base import Block, Engine, Pass, Size, Sums, hard_rows
from dissensus.compute.engines.local import Threads, even
from dissensus.compute.kernels import confusion as kernels
from dissensus.exceptions import BadParameter
from dissensus.models.base import methods
from dissensus.models.em import Accelerate, EMAggregator
from dissensus.models.incremental import settle
from dissensus.models.methods.majority_vote import draw_shares, votes_of
from dissensus.table.annotations import Annotations

MAX_SINGLE = 2**22  # labels of one annotator that single precision can count; from 2^24 on it cannot add one
LARGEST = 1e9  # largest pseudo-count
SMALLEST = 1e-9  # smallest pseudo-count: keeps Θ above 1e-18, where products of 16 cannot underflow


@dataclass(frozen=True)
class Confusions:
    """The parameters: π (K,) and Θ (A, K, K) [annotator, given, true]."""

    by_annotator: ClassVar = ("confusion",)
    prior: FloatArray
    confusion: FloatArray

    def to_vector(self) -> FloatArray:
        """Square roots: probabilities become points of a sphere; in logs, tiny ones would drown the rest."""
        return np.asarray(np.sqrt(np.concatenate([self.prior, self.confusion.reshape(-1)])))

    def from_vector(self, vector: FloatArray) -> Self:
        """Squares, normalised again."""
        K = self.prior.size
        squares = np.maximum(vector**2, SMALLEST**2)
        confusion = squares[K:].reshape(self.confusion.shape)
        return type(self)(squares[:K] / squares[:K].sum(), confusion / confusion.sum(axis=1, keepdims=True))


@methods.register(
    "dawid-skene", summary="a confusion matrix per annotator, learnt with the truth by EM", cite="Dawid & Skene 1979"
)
class DawidSkene(EMAggregator[Confusions]):
    """MAP Dawid-Skene.

    Parameters
    ----------
    crowd_labels : float
        Labels as the crowd gives them that every annotator starts with, √K times so many for every class; a class has
        its share of them by the votes.
    smoothing : float
        Pseudo-count of every wrong label; the right one has as many as all wrong ones.
    least_labels : float
        Pseudo-counts that a row has at least.
    class_count, vote_count : float
        Pseudo-counts of the classes' shares: so many of every class, and so many per annotator shared as the votes are.
    max_iter, tol, accelerate, restarts
        Passes over the data at most; stop when a pass gains less than `tol` of the objective; "squarem" or None;
        number of starts (the first is majority vote, the others near it), of which the best objective is kept.
    threads : int, optional
        Threads for the passes; None for all cores.
    engine : "local", "disk", "torch", "spark", or one with options
        Where the passes run, see `dissensus.compute.engines`.
    precision : "float64" or "float32"
        Of the confusion tables inside a pass; single precision halves them. Where an annotator has more than four
        million labels, it is double all the same: single could not count them.
    seed : int or None
    """

    pseudo_: FloatArray  # (K, K) [given, true] a
    class_pseudo_: FloatArray  # (K,) b

    def __init__(
        self,
        *,
        crowd_labels: float = 1.25,
        smoothing: float = 0.15,
        least_labels: float = 2.0,
        class_count: float = 1.0,
        vote_count: float = 0.5,
        max_iter: int = 500,
        tol: float = 1e-7,
        accelerate: Accelerate = "squarem",
        restarts: int = 1,
        threads: int | None = None,
        engine: EngineChoice = "local",
        precision: Literal["float64", "float32"] = "float64",
        seed: int | None = 0,
    ):
        self.crowd_labels = crowd_labels
        self.smoothing = smoothing
        self.least_labels = least_labels
        self.class_count = class_count
        self.vote_count = vote_count
        self.max_iter = max_iter
        self.tol = tol
        self.accelerate = accelerate
        self.restarts = restarts
        self.threads = threads
        self.engine = engine
        self.precision = precision
        self.seed = seed

    def _check_parameters(self) -> None:
        super()._check_parameters()
        keywords = {
            "crowd_labels": 0,
            "smoothing": SMALLEST,
            "least_labels": 0,
            "class_count": SMALLEST,
            "vote_count": 0,
        }
        for keyword, least in keywords.items():
            if not least <= getattr(self, keyword) <= LARGEST:
                raise BadParameter(f"{keyword} must lie from {least:g} to {LARGEST:g}, got {getattr(self, keyword)}.")
        if self.precision not in ("float64", "float32"):
            raise BadParameter(f"precision must be 'float64' or 'float32', got {self.precision!r}.")

    def _fit(self, table: Annotations, gold: IntArray | None, on_step: OnStep) -> None:
        with place(self, table, gold) as engine:
            walk, pool = ConfusionPass(fitting(self.precision, engine)), engine.pool

            def objective(evidence: float, params: Confusions) -> float:
                densities = pool.map(
                    lambda _, start, stop: kernels.log_density(start, stop, params.confusion, self.pseudo_),
                    even(engine.size.n_annotators, pool.threads),
                )
                return evidence + sum(densities) + float(self.class_pseudo_ @ np.log(params.prior))

            def em_pass(params: Confusions) -> tuple[float, Confusions]:
                sums = engine.sweep(walk, params)
                return objective(sums.evidence, params), self._maximise(sums.counts, sums.prior_counts, pool)

            params = self.run(em_pass, partial(self.start, engine), on_step, engine.checkpoint)
            self.posterior_ = engine.per_item("posterior", engine.size.n_classes)
            sums = engine.sweep(walk, params, {"posterior": self.posterior_})
            self.trace_ = np.append(self.trace_, objective(sums.evidence, params))  # of what is returned
        population = sums.counts.sum(axis=0) + self.pseudo_
        self.prior_, self.class_counts_ = params.prior, sums.prior_counts
        self.counts_ = np.ascontiguousarray(sums.counts.transpose(0, 2, 1))  # [annotator, true, given]
        self.confusion_ = np.ascontiguousarray(params.confusion.transpose(0, 2, 1))
        self.population_confusion_ = (population / population.sum(axis=0)).T
        self._judge(np.einsum("akk->a", sums.counts), sums.counts.sum(axis=(1, 2)))

    def _score(self, table: Annotations, known: IntArray) -> FloatArray:
        return score(table, self.prior_, self._confusions(known), self.threads, self.precision)

    def _confusions(self, known: IntArray) -> FloatArray:
        return with_unseen(self.confusion_, self.population_confusion_, known)

    def _confusion_size(self) -> FloatArray:
        return np.asarray((self.counts_ + self.pseudo_.T).sum(axis=2, keepdims=True))

    def _newcomer(self) -> dict[str, Any]:
        return {"counts_": 0.0, "confusion_": self.population_confusion_}

    def _update(
        self, table: Annotations, item: IntArray, annotator: IntArray, old: BoolArray, gold: IntArray | None
    ) -> FloatArray:
        before = self.posterior_[item]
        earlier = self.counts_[annotator].transpose(0, 2, 1)  # [annotator, given, true]

        def learn(posterior: FloatArray) -> Confusions:
            counts = earlier + soft_counts(table, posterior) + self.pseudo_
            return Confusions(self.prior_, counts / counts.sum(axis=1, keepdims=True))

        first = Confusions(self.prior_, self.confusion_[annotator].transpose(0, 2, 1))
        posterior, params = settle(table, before, gold, first, partial(self.log_votes, table), learn)
        new = soft_counts(table, posterior).transpose(0, 2, 1)
        self.counts_, self.confusion_ = self.counts_.copy(), self.confusion_.copy()
        self.counts_[annotator] += new
        self.confusion_[annotator] = params.confusion.transpose(0, 2, 1)
        population = self.counts_.sum(axis=0) + self.pseudo_.T
        self.population_confusion_ = population / population.sum(axis=1, keepdims=True)
        self._recount(posterior, before, old, self.class_pseudo_)
        return posterior

    def start(self, engine: Engine, rng: np.random.Generator | None) -> Confusions:
        """One M step from the votes; a random start draws the shares of the votes from Dirichlet(1 + votes)."""
        votes = engine.once(VotePass())
        self.pseudo_ = crowd_pseudo(votes.counts, self.crowd_labels, self.smoothing, self.least_labels)
        self.class_pseudo_ = class_pseudo(engine, votes.prior_counts, self.class_count, self.vote_count)
        first = votes if rng is None else engine.sweep(VotePass(rng), None)
        return self._maximise(first.counts, first.prior_counts, engine.pool)

    def _maximise(self, counts: FloatArray, prior_counts: FloatArray, pool: Threads) -> Confusions:
        """Eqs. 2.3 and 2.4, Dawid & Skene 1979, with pseudo-counts."""
        confusion, prior = np.empty_like(counts), prior_counts + self.class_pseudo_
        pool.map(
            lambda _, start, stop: kernels.maximise(start, stop, counts, self.pseudo_, confusion),
            even(len(counts), pool.threads),
        )
        return Confusions(prior / prior.sum(), confusion)

    # The readable form ------------------------------------------------------------------------------------------------

    def m_step(self, table: Annotations, posterior: FloatArray) -> Confusions:
        """The M step from a posterior (I, K)."""
        return self._maximise(soft_counts(table, posterior), posterior.sum(axis=0), Threads(1))

    def log_votes(self, table: Annotations, params: Confusions) -> FloatArray:
        """(N, K) log Θ_j[c, y]; of a probabilistic row, its mean under the row's distribution."""
        log_confusion = np.log(params.confusion)  # (A, K, K) [annotator, given, true]
        if table.proba is not None:
            votes = np.einsum("ny,nyk->nk", table.proba, log_confusion[table.annotator])
        else:
            votes = log_confusion[table.annotator, table.label]
        return np.asarray(votes if table.weight is None else votes * table.weight[:, None])

    def log_prior(self, params: Confusions) -> FloatArray:
        """(K,) log π."""
        return np.asarray(np.log(params.prior))

    def log_penalty(self, params: Confusions) -> float:
        """Dirichlet log densities of all rows of Θ and of π, up to a constant."""
        return float((self.pseudo_ * np.log(params.confusion)).sum() + self.class_pseudo_ @ np.log(params.prior))


def soft_counts(table: Annotations, posterior: FloatArray) -> FloatArray:
    """(A, K, K) [annotator, given, true] how often, by the posterior, each annotator gave each label to each class."""
    rows = hard_rows(table)
    return kernels.soft_counts(rows.item_ptr, rows.annotator, rows.label, rows.weight, posterior, table.n_annotators)


def start_counts(
    table: Annotations, gold: IntArray | None, rng: np.random.Generator | None
) -> tuple[FloatArray, FloatArray]:
    """Soft counts of a table in memory, and their sum over items (K,), by `VotePass`."""
    with in_memory(table, gold, 1) as engine:
        sums = engine.sweep(VotePass(rng), None)
    return sums.counts, sums.prior_counts


def crowd_pseudo(counts: FloatArray, crowd_labels: float, smoothing: float, least_labels: float) -> FloatArray:
    """(K, K) [given, true] pseudo-counts a; `counts` (A, K, K) are those of the votes."""
    K = counts.shape[1]
    crowd = counts.sum(axis=0)
    crowd *= crowd_labels * K**1.5 / max(crowd.sum(), SMALLEST)
    crowd += np.where(np.eye(K, dtype=bool), max((K - 1) * smoothing, SMALLEST), smoothing)
    unknown = expected_pseudo(K)
    return np.asarray(crowd + unknown / unknown.sum(axis=0) * np.maximum(least_labels - crowd.sum(axis=0), 0))


def expected_pseudo(n_classes: int, smoothing: float = 0.7, margin: float = 1.0) -> FloatArray:
    """(K, K) pseudo-counts of an annotator of whom nothing is known, nor of its crowd; symmetric.

    The wrong labels of a row share W = smoothing·√K and the right one gets margin + W/2: it is thought to be right
    about half of the time (60 % with 2 classes, 40 % with 100).
    """
    wrong = smoothing * np.sqrt(n_classes)
    each = max(wrong / max(n_classes - 1, 1), SMALLEST)
    return np.asarray(np.where(np.eye(n_classes, dtype=bool), margin + wrong / 2, each))


def class_pseudo(engine: Engine, votes: FloatArray, class_count: float, vote_count: float) -> FloatArray:
    """(K,) pseudo-counts b of the classes' shares: of every class, and of every annotator as the votes (K,) are."""
    crowd = vote_count * np.count_nonzero(engine.per_annotator)
    return np.asarray(class_count + crowd * votes / max(engine.size.n_items, 1))


def with_unseen(confusion: FloatArray, unseen: FloatArray, known: IntArray) -> FloatArray:
    """(A, K, K) matrices of a new table's annotators; `known` (A,) codes into `confusion`, −1 for `unseen`."""
    return np.concatenate([confusion, unseen[None]])[known]  # −1 takes the last


def score(
    table: Annotations, prior: FloatArray, confusion: FloatArray, threads: int | None, precision: str
) -> FloatArray:
    """(I, K) posterior of a table whose annotators have these confusion matrices (A, K, K) [annotator, true, given]."""
    posterior = np.empty((table.n_items, table.n_classes))
    with in_memory(table, None, threads) as engine:
        params = Confusions(prior, np.ascontiguousarray(confusion.transpose(0, 2, 1)))
        engine.sweep(ConfusionPass(fitting(precision, engine)), params, {"posterior": posterior})
    return posterior


def fitting(precision: str, engine: Engine) -> str:
    """The precision asked for, or double where single could not count an annotator's labels."""
    return precision if engine.per_annotator.max(initial=0) < MAX_SINGLE else "float64"


@dataclass(frozen=True)
class Counts(Sums):
    """What a pass adds up: log evidence, classes (K,), labels (A, K, K) [annotator, given, true], by the posterior."""

    by_annotator: ClassVar = ("counts",)
    evidence: float
    prior_counts: FloatArray
    counts: FloatArray


class ConfusionPass(Pass[Confusions, Counts, Any]):
    """One fused pass of a model with a confusion matrix per annotator, see `kernels.confusion`; writes `posterior`."""

    cells: FloatArray = np.empty((0, 0, 0, 2, 0))  # of every worker, kept between passes

    def __init__(self, precision: str = "float64"):
        self.precision = precision

    def open(self, params: Confusions, size: Size, workers: int, pool: Threads) -> list[Any]:
        """Θ and counts side by side, prior, counts of the classes and evidence (1,), for each worker."""
        shape = (workers, size.n_annotators, size.n_classes, 2, size.n_classes)
        if self.cells.shape != shape:
            self.cells = np.empty(shape, self.precision)
        logs = size.weighted or size.n_classes > kernels.MAX_VECTOR
        pool.map(
            lambda _, start, stop: kernels.load(start, stop, params.confusion, self.cells, logs),
            even(size.n_annotators, pool.threads),
        )
        sums = np.zeros((workers, size.n_classes)), np.zeros((workers, 1))
        return [(self.cells[t], params.prior, sums[0][t], sums[1][t], logs) for t in range(workers)]

    def walk(self, block: Block, buffer: Any, out: Mapping[str, Any]) -> None:
        """`kernels.confusion.sweep`, or in logarithms."""
        cells, prior, prior_counts, evidence, logs = buffer
        rows = block.rows
        table = (block.start, block.stop, rows.item_ptr, rows.annotator, rows.label)
        rest = (cells, prior, prior_counts, block.gold, out.get("posterior"))
        if logs:
            evidence[0] += kernels.sweep_logs(*table, rows.weight, *rest)
        else:
            evidence[0] += kernels.sweep(prior.size)(*table, *rest)

    def close(self, buffers: list[Any], pool: Threads) -> Counts:
        """The sums of all workers."""
        _, A, K, _, _ = self.cells.shape
        counts = np.empty((A, K, K))
        pool.map(lambda _, start, stop: kernels.collect(start, stop, self.cells, counts), even(A, pool.threads))
        return Counts(sum(float(b[3][0]) for b in buffers), np.sum([b[2] for b in buffers], axis=0), counts)

    def on_torch(self, params: Confusions, data: Any, out: Mapping[str, Any]) -> Counts:
        """The same in torch."""
        from dissensus.compute.kernels import on_torch

        return Counts(*on_torch.confusion(data, params.confusion, params.prior, out.get("posterior")))


@dataclass(frozen=True)
class VotePass(Pass[None, Counts, Any]):
    """Counts where the posterior of an item is the shares of its votes; with `rng` drawn from Dirichlet(1 + votes)."""

    rng: np.random.Generator | None = None

    @property
    def in_order(self) -> bool:
        """One generator draws item by item."""
        return self.rng is not None

    def open(self, params: None, size: Size, workers: int, pool: Threads) -> list[Any]:
        """Counts of labels and of classes for each worker."""
        A, K = size.n_annotators, size.n_classes
        return [(np.zeros((A, K, K)), np.zeros(K)) for _ in range(workers)]

    def walk(self, block: Block, buffer: Any, out: Mapping[str, Any]) -> None:
        """`kernels.confusion.vote_counts`, or draw and count."""
        rows, (counts, prior_counts) = block.rows, buffer
        table = (rows.item_ptr, rows.annotator, rows.label, rows.weight)
        if self.rng is None:
            kernels.vote_counts(block.start, block.stop, *table, block.gold, counts, prior_counts)
        else:
            posterior = draw_shares(votes_of(rows, prior_counts.size), block.gold, self.rng)
            counts += kernels.soft_counts(*table, posterior, len(counts))
            prior_counts += posterior.sum(axis=0)

    def close(self, buffers: list[Any], pool: Threads) -> Counts:
        """The sums of all workers."""
        return Counts(0.0, sum(b[1] for b in buffers), sum(b[0] for b in buffers))

    def on_torch(self, params: None, data: Any, out: Mapping[str, Any]) -> Counts:
        """The same in torch; draws come from the same generator in the same order."""
        from dissensus.compute.kernels import on_torch

        draw = None if self.rng is None else partial(draw_shares, rng=self.rng)
        return Counts(0.0, *on_torch.soft_counts(data, draw))
