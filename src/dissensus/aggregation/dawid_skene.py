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

from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, Self

import numpy as np

from dissensus._types import BoolArray, FloatArray, IntArray, OnStep
from dissensus.annotations import Annotations
from dissensus.base import methods
from dissensus.em import Accelerate, EMAggregator
from dissensus.engines.local import Threads, balanced, even, thread_count
from dissensus.exceptions import BadParameter
from dissensus.kernels import confusion as kernels
from dissensus.online import settle

MAX_SINGLE = 2**22  # labels of one annotator that single precision can count; from 2^24 on it cannot add one
LARGEST = 1e9  # largest pseudo-count
SMALLEST = 1e-9  # smallest pseudo-count: keeps Θ above 1e-18, where products of 16 cannot underflow


@dataclass(frozen=True)
class Confusions:
    """The parameters: π (K,) and Θ (A, K, K) [annotator, given, true]."""

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
        rows = hard_rows(table)
        threads = thread_count(self.threads, rows.annotator.size)
        with Threads(threads) as pool:
            sweep = Sweep(rows, table.n_annotators, table.n_classes, pool, self.precision, gold)

            def em_pass(params: Confusions) -> tuple[float, Confusions]:
                evidence = sweep(params, self.pseudo_)
                objective = evidence + float(self.class_pseudo_ @ np.log(params.prior))
                prior = sweep.prior_counts + self.class_pseudo_
                return objective, Confusions(prior / prior.sum(), sweep.maximise(self.pseudo_))

            params = self.run(em_pass, table, gold, on_step)
            self.posterior_ = np.empty((table.n_items, table.n_classes))
            evidence = sweep(params, self.pseudo_, self.posterior_)
            final = evidence + float(self.class_pseudo_ @ np.log(params.prior))
            self.trace_ = np.append(self.trace_, final)  # the objective of what is returned
            counts = sweep.counts()
        population = counts.sum(axis=0) + self.pseudo_
        self.prior_, self.class_counts_ = params.prior, sweep.prior_counts
        self.counts_ = np.ascontiguousarray(counts.transpose(0, 2, 1))  # [annotator, true, given]
        self.confusion_ = np.ascontiguousarray(params.confusion.transpose(0, 2, 1))
        self.population_confusion_ = (population / population.sum(axis=0)).T
        self._judge(np.einsum("akk->a", counts), counts.sum(axis=(1, 2)))

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

    def start(self, table: Annotations, gold: IntArray | None, rng: np.random.Generator | None) -> Confusions:
        """One M step from the votes."""
        votes = start_counts(table, gold, None)
        self.pseudo_ = crowd_pseudo(votes[0], self.crowd_labels, self.smoothing, self.least_labels)
        self.class_pseudo_ = class_pseudo(table, votes[1], self.class_count, self.vote_count)
        return self._maximise(*(votes if rng is None else start_counts(table, gold, rng)))

    def _maximise(self, counts: FloatArray, prior_counts: FloatArray) -> Confusions:
        """Eqs. 2.3 and 2.4, Dawid & Skene 1979, with pseudo-counts; changes `counts`."""
        counts += self.pseudo_
        counts /= counts.sum(axis=1, keepdims=True)
        prior = prior_counts + self.class_pseudo_
        return Confusions(prior / prior.sum(), counts)

    # The readable form ------------------------------------------------------------------------------------------------

    def m_step(self, table: Annotations, posterior: FloatArray) -> Confusions:
        """The M step from a posterior (I, K)."""
        return self._maximise(soft_counts(table, posterior), posterior.sum(axis=0))

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


@dataclass(frozen=True)
class Rows:
    """Annotations as the kernels take them: hard labels, perhaps weighted."""

    item_ptr: IntArray
    annotator: IntArray
    label: IntArray
    weight: FloatArray | None


def hard_rows(table: Annotations) -> Rows:
    """The rows of a table; a probabilistic row becomes one row per class, weighted by its probability."""
    if table.proba is None:
        return Rows(table.item_ptr, table.annotator, table.label, table.weight)
    row, label = np.nonzero(table.proba)
    weight = table.proba[row, label] * (1.0 if table.weight is None else table.weight[row])
    ptr = np.concatenate([[0], np.cumsum(np.count_nonzero(table.proba, axis=1))])[table.item_ptr]
    return Rows(ptr, table.annotator[row], label.astype(table.label.dtype), weight)


def soft_counts(table: Annotations, posterior: FloatArray) -> FloatArray:
    """(A, K, K) [annotator, given, true] how often, by the posterior, each annotator gave each label to each class."""
    rows = hard_rows(table)
    return kernels.soft_counts(rows.item_ptr, rows.annotator, rows.label, rows.weight, posterior, table.n_annotators)


def start_counts(
    table: Annotations, gold: IntArray | None, rng: np.random.Generator | None
) -> tuple[FloatArray, FloatArray]:
    """Soft counts, and their sum over items (K,), where the posterior is the shares of the votes.

    A random start (`rng` given) draws the shares from Dirichlet(1 + votes).
    """
    rows = hard_rows(table)
    if rng is None:
        return kernels.vote_counts(
            rows.item_ptr, rows.annotator, rows.label, rows.weight, gold, table.n_annotators, table.n_classes
        )
    posterior = rng.standard_gamma(table.votes() + 1)
    posterior /= posterior.sum(axis=1, keepdims=True)
    if gold is not None:
        posterior[gold >= 0] = np.eye(table.n_classes)[gold[gold >= 0]]
    return soft_counts(table, posterior), posterior.sum(axis=0)


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


def class_pseudo(table: Annotations, votes: FloatArray, class_count: float, vote_count: float) -> FloatArray:
    """(K,) pseudo-counts b of the classes' shares: of every class, and of every annotator as the votes (K,) are."""
    crowd = vote_count * np.count_nonzero(np.diff(table.annotator_ptr))
    return np.asarray(class_count + crowd * votes / max(table.n_items, 1))


def with_unseen(confusion: FloatArray, unseen: FloatArray, known: IntArray) -> FloatArray:
    """(A, K, K) matrices of a new table's annotators; `known` (A,) codes into `confusion`, −1 for `unseen`."""
    return np.concatenate([confusion, unseen[None]])[known]  # −1 takes the last


def score(
    table: Annotations, prior: FloatArray, confusion: FloatArray, threads: int | None, precision: str
) -> FloatArray:
    """(I, K) posterior of a table whose annotators have these confusion matrices (A, K, K) [annotator, true, given]."""
    rows = hard_rows(table)
    posterior = np.empty((table.n_items, table.n_classes))
    with Threads(thread_count(threads, rows.annotator.size)) as pool:
        sweep = Sweep(rows, table.n_annotators, table.n_classes, pool, precision, None)
        params = Confusions(prior, np.ascontiguousarray(confusion.transpose(0, 2, 1)))
        sweep(params, np.zeros((table.n_classes, table.n_classes)), posterior)
    return posterior


class Sweep:
    """One fused pass over the rows, in threads; keeps the buffers between passes."""

    def __init__(
        self, rows: Rows, n_annotators: int, n_classes: int, pool: Threads, precision: str, gold: IntArray | None
    ):
        self.rows, self.pool, self.gold = rows, pool, gold
        self.items = balanced(rows.item_ptr, pool.threads)
        self.annotators = even(n_annotators, pool.threads)
        if precision == "float32" and np.bincount(rows.annotator).max(initial=0) >= MAX_SINGLE:
            precision = "float64"
        self.cells = np.zeros((pool.threads, n_annotators, n_classes, 2, n_classes), precision)
        self.prior_counts = np.zeros(n_classes)
        self.logs = rows.weight is not None or n_classes > kernels.MAX_VECTOR

    def __call__(self, params: Confusions, pseudo: FloatArray, posterior: FloatArray | None = None) -> float:
        """Log evidence plus log prior density of Θ at `params`; leaves the soft counts in the buffers."""
        rows, K = self.rows, params.prior.size
        penalty = self.pool.map(
            lambda _, start, stop: kernels.load(start, stop, params.confusion, pseudo, self.cells, self.logs),
            self.annotators,
        )
        prior_counts = np.zeros((self.pool.threads, K))
        walk = None if self.logs else kernels.sweep(K)

        def work(number: int, start: int, stop: int) -> float:
            table = (start, stop, rows.item_ptr, rows.annotator, rows.label)
            rest = (self.cells[number], params.prior, prior_counts[number], self.gold, posterior)
            if walk is None:
                return kernels.sweep_logs(*table, rows.weight, *rest)
            return float(walk(*table, *rest))

        evidence = self.pool.map(work, self.items)
        self.prior_counts = prior_counts.sum(axis=0)
        return sum(evidence) + sum(penalty)

    def counts(self) -> FloatArray:
        """(A, K, K) [annotator, given, true] soft counts of the last pass."""
        return np.asarray(self.cells[:, :, :, 1].sum(axis=0, dtype=np.float64))

    def maximise(self, pseudo: FloatArray) -> FloatArray:
        """Θ of the next pass from the counts of the last."""
        confusion = np.empty((self.cells.shape[1], *pseudo.shape))
        self.pool.map(
            lambda _, start, stop: kernels.maximise(start, stop, self.cells, pseudo, confusion), self.annotators
        )
        return confusion
