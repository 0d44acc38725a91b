"""KOS (Karger, Oh & Shah 2011): items and annotators send each other messages along annotations until they settle.

With answers a_ij = ±1 (a row of weight w: ±w, of probabilities p: w (p_1 − p_0); rows of the same pair are added up),

    x_{i→j} = Σ_{j'≠j} a_ij' y_{j'→i}          what the others make of item i
    y_{j→i} = Σ_{i'≠i} a_i'j x_{i'→j}          how j fares with the others on its other items; see below

from equal y, so that the first x are majority votes. The label of an item is the sign of

    S_i = Σ_j a_ij w_j          w_j = y over all of j's items

| symbol | name | shape |
|---|---|---|
| a | answer | (E,), E pairs of an item and an annotator |
| x | message | (E,) |
| Y, Q | heard | (A, 2), sums over an annotator's edges of which y is made |
| w | `weight_` | (A,) |
| β | `scale_` | |

In the paper's form sums grow with how much somebody labels, and as an eigenvector they live where the graph is densest.
The paper has regular graphs, where neither matters; real ones are not (rte: 50 % right by sums). So here

    y_{j→i} = (Σ_{i'≠i} a h + m κ)/(Σ_{i'≠i} |a h| + m)          h = x_{i'→j}/(1 + |x_{i'→j}|)

from −1 to 1: of what is agreed on j's other items, how much more j agrees than not; 2 p − 1 for one who is right with
probability p. In x and S it counts by half its log odds, artanh y with |y| up to 0.99, as labels do that are
independent given the class: by y itself two middling labels outvote a nearly perfect one. |h| says how sure the others
are, half where x is 1. m = `crowd_labels` labels of average quality are added, κ² being the agreement of pairs of
labels beyond chance, Σ a_ij a_ij' / Σ |a_ij a_ij'|. An item of known class has h = ±1.

Probabilities: P(class 1 of i) = 1/(1 + exp(−β S_i)). As x_{i→j} is the vote on i without j's label, β is what makes it
predict that label best: P(j agrees with x) = ½ (1 + κ tanh(β |x|/2)), as if all annotators were as good as the average;
two labels at the mean margin are added, one of which agrees.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any

import numpy as np

from dissensus.common.arrays import pair_starts
from dissensus.common.parameters import param
from dissensus.common.types import FloatArray, IntArray, OnStep
from dissensus.compute import chunk as chunks
from dissensus.compute.engines.local import Threads, balanced, even, thread_count
from dissensus.compute.kernels import kos as kernels
from dissensus.models.base import Aggregator, methods
from dissensus.models.confidence import CROWD_LABELS
from dissensus.table.annotations import Annotations

NEWCOMER = 1 / 3  # weight of an annotator who is right two times in three
MIN_CROWD_WEIGHT = 0.01  # of the crowd's weight: on the whole, annotators are right
MIN_WEIGHT = 1e-100  # of weights: nothing
MIN_LOG_ODDS, MAX_LOG_ODDS = 1e-3, 30.0  # log odds at the mean margin, at least and at most


@methods.register(
    "kos",
    summary="messages between items and annotators, for two classes",
    cite="Karger et al. 2011",
    binary=True,
)
class KOS(Aggregator):
    """Message passing for two classes."""

    crowd_labels: float = param(10.0, "labels of average quality added to everyone's own", low=0)
    max_iter: int = param(200, "passes over the data at most", low=1)
    tol: float = param(1e-9, "stop when no weight changes by more", low=0)
    threads: int | None = param(None, "threads for the passes; None for all cores", low=1)

    weight_: Annotated[FloatArray, "A real"]
    population_weight_: Annotated[float, "number"]
    scale_: Annotated[float, "number"]
    population_accuracy_: Annotated[float, "number"]

    @property
    def confusion_(self) -> FloatArray:
        """(A, 2, 2) [annotator, true, given], made when asked for: the reliability on the diagonal."""
        return self.confusions_of(np.arange(self.reliability_.size))

    def _fit(self, table: Annotations, gold: IntArray | None, on_step: OnStep) -> None:
        edges = Edges.of(table, gold)
        with Threads(thread_count(self.threads, edges.annotator.size)) as pool:
            talk = Talk(edges, known_answers(table, gold), pool, self.crowd_labels)
            change, self.n_iter_ = np.inf, 0
            while self.n_iter_ < self.max_iter and change > self.tol:
                change = talk()
                self.n_iter_ += 1
                on_step(self.n_iter_, float("nan"))
            self.weight_, self.population_weight_ = talk.weight, float(np.arctanh(min(talk.crowd, kernels.SURE)))
            self.scale_ = scale(talk)
        self.trace_, self.converged_ = np.empty(0), bool(change <= self.tol)
        if not self.converged_:
            self._warn_unconverged("passes", "a weight", float(change))
        self.prior_ = np.full(table.n_classes, 1 / table.n_classes)
        self.posterior_ = chunks.with_gold(self._posterior_of(table, np.arange(table.n_annotators)), gold)
        hits, total = self._count_agreement(table, self.posterior_)
        self.population_accuracy_ = float(hits.sum() / total.sum()) if total.sum() > 0 else 1 / table.n_classes
        self._set_reliability(hits, total)

    def _posterior_of(self, table: Annotations, known: IntArray) -> FloatArray:
        edges = Edges.of(table, None)
        weight = np.append(self.weight_, self.population_weight_)[known]  # −1, unseen, takes the last
        log_odds = self.scale_ * np.bincount(edges.item, edges.answer * weight[edges.annotator], table.n_items)
        posterior = np.stack([-log_odds, log_odds], axis=1)[:, : table.n_classes] / 2
        posterior = np.exp(posterior - posterior.max(axis=1, keepdims=True, initial=-np.inf))
        return np.asarray(posterior / posterior.sum(axis=1, keepdims=True))

    def confusions_of(self, known: IntArray) -> FloatArray:
        K = self.classes_.size
        right = np.append(self.reliability_, self.population_accuracy_)[known][:, None, None]
        return np.where(np.eye(K, dtype=bool), right if K > 1 else 1.0, 1 - right)

    def confusion_support(self) -> FloatArray:
        return np.asarray(self.total_ + CROWD_LABELS)[:, None, None]


@dataclass(frozen=True)
class Edges:
    """Pairs of an item and an annotator, in the order of items."""

    item_ptr: IntArray  # (I+1,)
    annotator: IntArray  # (E,)
    answer: IntArray | FloatArray  # (E,) −1 for class 0, 1 for class 1, or a signed weight

    @cached_property
    def item(self) -> IntArray:
        """(E,) the item of each."""
        return np.repeat(np.arange(self.item_ptr.size - 1), np.diff(self.item_ptr))

    @classmethod
    def of(cls, table: Annotations, gold: IntArray | None) -> Edges:
        """The edges of a table: rows of the same pair are one. Items of known class have none: they hear nothing."""
        ptr, annotator = table.item_ptr, table.annotator
        answer: IntArray | FloatArray = answers(table)
        if gold is not None:
            keep = np.repeat(gold < 0, np.diff(ptr))
            ptr = np.append(0, np.cumsum(keep))[ptr]
            annotator, answer = annotator[keep], answer[keep]
        first = pair_starts(np.repeat(np.arange(ptr.size - 1), np.diff(ptr)), annotator)
        if not first.all():
            answer = np.bincount(np.cumsum(first) - 1, answer)
            ptr, annotator = np.append(0, np.cumsum(first))[ptr], annotator[first]
        return cls(ptr, annotator, answer)


def answers(table: Annotations) -> IntArray | FloatArray:
    """(N,) what each row says: −1 for class 0, 1 for class 1, times its weight; between them if probabilistic."""
    if table.proba is not None and table.n_classes > 1:
        answer: Any = table.proba[:, 1] - table.proba[:, 0]
    else:
        answer = 2 * table.label.astype(np.int8) - np.int8(1)
    return np.asarray(answer if table.weight is None else answer * table.weight)


def known_answers(table: Annotations, gold: IntArray | None) -> FloatArray:
    """(A, 2) summed over items of known class: answers that are right less those that are wrong, and all of them."""
    out = np.zeros((table.n_annotators, 2))
    if gold is not None:
        truth = np.repeat(np.where(gold >= 0, 2 * gold - 1, 0), np.diff(table.item_ptr))
        answer = answers(table)
        out[:, 0] = np.bincount(table.annotator, answer * truth, table.n_annotators)
        out[:, 1] = np.bincount(table.annotator, np.abs(answer * truth), table.n_annotators)
    return out


class Talk:
    """Messages over one table, pass by pass.

    Of the last pass: `message` (E,) x, and `weight` (A,) w; `crowd` is κ, the share of an average annotator.
    """

    def __init__(self, edges: Edges, known: FloatArray, pool: Threads, crowd_labels: float):
        self.edges, self.known, self.pool = edges, known, pool
        self.items = balanced(edges.item_ptr, pool.threads)
        self.short = edges.answer.size < chunks.MIN_KERNEL_ROWS
        agree, pairs = kernels.pair_agreement(edges.item, edges.answer)
        beyond_chance = (agree + 2 * NEWCOMER**2) / (pairs + 2)  # one pair of newcomers more
        self.crowd = float(np.sqrt(max(beyond_chance, MIN_CROWD_WEIGHT**2)))
        self.options = self.crowd, float(crowd_labels)
        self.message: FloatArray = np.zeros(edges.annotator.size)
        self.heard: FloatArray = np.zeros((len(known), 2))  # Y, Q
        self.odds = kernels.whole_odds(self.heard, *self.options)

    @property
    def weight(self) -> FloatArray:
        """(A,) w."""
        return self.odds[:, 1]

    def __call__(self) -> float:
        """One pass; returns the largest change of a weight."""
        edges, before = self.edges, self.weight
        if self.short:
            self.message, heard = kernels.sweep_short(
                edges.item, edges.annotator, edges.answer, self.message, self.heard, *self.options
            )
        else:
            _, (heard,) = self.pool.sums(
                lambda start, stop, sums: kernels.sweep(
                    start, stop, edges.item_ptr, edges.annotator, edges.answer, self.message, self.heard, self.odds,
                    *self.options, sums,
                ),
                self.items, self.known.shape,
            )  # fmt: skip
        self.heard = heard + self.known  # h of a known class is −1 or 1
        self.odds = kernels.whole_odds(self.heard, *self.options)
        return float(np.abs(self.weight - before).max(initial=0) / max(1.0, np.abs(self.weight).max(initial=0)))


def scale(talk: Talk) -> float:
    """β: log odds of a class per unit of S, such that the messages x predict the labels that they leave out."""
    from scipy.optimize import brentq

    answer, message, kappa, pool = talk.edges.answer, talk.message, talk.crowd, talk.pool
    size = float(np.abs(answer).sum(dtype=np.float64))
    margin = float(np.abs(answer * message).sum() / max(size, MIN_WEIGHT))  # mean of |x|
    if margin < MIN_WEIGHT:
        return 2.0  # a weight of artanh(2 p − 1) has log odds of twice that
    ranges = even(message.size, pool.threads)

    def slope(beta: float) -> float:
        if talk.short:
            return kernels.slope_short(answer, message, beta, kappa)
        return sum(
            pool.map(lambda _, start, stop: float(kernels.slope(start, stop, answer, message, beta, kappa)), ranges)
        )

    def rise(log_odds: float) -> float:  # at the mean margin, in logarithms
        odds = np.exp(log_odds)
        t = np.tanh(odds / 2)
        return float(
            slope(odds / margin) - kappa**2 * t * margin * (1 - t**2) / (1 - kappa**2 * t**2)
        )  # the two labels more

    low, high = np.log(MIN_LOG_ODDS), np.log(MAX_LOG_ODDS)
    if rise(low) <= 0:
        return MIN_LOG_ODDS / margin
    return float(np.exp(high if rise(high) >= 0 else brentq(rise, low, high, xtol=1e-13)) / margin)
