"""KOS: message passing between items and annotators, for two classes.

Use it with two classes and randomly assigned items, if you want a method with guarantees for that case.

The answer a_ij of annotator j on item i is −1 for the first class and 1 for the second. A row of weight w counts as ±w,
a probabilistic row as w (p_1 − p_0), and rows of the same item and annotator are added. Messages go back and forth
along answers:

    x_{i→j} = Σ_{j'≠j} a_ij' f(y_{j'→i})                         vote of the other annotators on item i
    y_{j→i} = (Σ_{i'≠i} a_i'j h_{i'→j} + m κ) / (Σ_{i'≠i} |a_i'j h_{i'→j}| + m)      h = x/(1 + |x|)

y starts equal for all annotators, so the first x are majority votes, and converges to the weighted agreement of j with
the other annotators, between −1 and 1. f(y) = artanh y with |y| up to 0.99 is half its log odds: an annotator who is
right with probability p has y = 2p − 1. m = `crowd_labels` labels of average quality are added to those of every
annotator; κ² = Σ a_ij a_ij' / Σ |a_ij a_ij'| is the agreement of pairs of labels beyond chance. An item with gold has h
= ±1.

The label of item i is the sign of S_i = Σ_j a_ij w_j, where w_j is f(y) over all items of j, and

    P(second class) = 1/(1 + exp(−β S_i))

β is the number with which the votes x predict the labels they exclude best, as if all annotators were average: P(j
agrees with x) = ½ (1 + κ tanh(β |x|/2)). Two labels at the mean margin, one of which agrees, are added.

- `weight_` (A,): w; `population_weight_` is f(κ), for unseen annotators
- `scale_`: β
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any

import numpy as np

from dissensus.common.arrays import is_first_of_pair
from dissensus.common.parameters import param
from dissensus.common.types import FloatArray, IntArray, OnStep
from dissensus.compute import chunk as chunks
from dissensus.compute.engines.local import Threads, balanced_ranges, even_ranges, thread_count
from dissensus.compute.kernels import kos as kernels
from dissensus.models.base import Aggregator, methods
from dissensus.models.confidence import CROWD_LABELS
from dissensus.table.annotations import Annotations

UNSEEN_WEIGHT = 1 / 3  # weight of an annotator who is right two times in three
MIN_CROWD_WEIGHT = 0.01  # least weight of the crowd: annotators are mostly right
MIN_WEIGHT = 1e-100  # smaller weights count as 0
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
        """(A, 2, 2) [annotator, true, given], computed on access, with the reliability on the diagonal."""
        return self.annotator_confusions(np.arange(self.reliability_.size))

    def _fit(self, table: Annotations, gold: IntArray | None, on_step: OnStep) -> None:
        edges = AnswerEdges.from_table(table, gold)
        with Threads(thread_count(self.threads, edges.annotator.size)) as pool:
            messages = MessagePassing(edges, gold_agreement(table, gold), pool, self.crowd_labels)
            change, self.n_iter_ = np.inf, 0
            while self.n_iter_ < self.max_iter and change > self.tol:
                change = messages()
                self.n_iter_ += 1
                on_step(self.n_iter_, float("nan"))
            self.weight_, self.population_weight_ = (
                messages.weight,
                float(np.arctanh(min(messages.crowd, kernels.MAX_SHARE))),
            )
            self.scale_ = fit_scale(messages)
        self.trace_, self.converged_ = np.empty(0), bool(change <= self.tol)
        if not self.converged_:
            self._warn_unconverged("passes", "a weight", float(change))
        self.prior_ = np.full(table.n_classes, 1 / table.n_classes)
        self.posterior_ = chunks.apply_gold(self._compute_posterior(table, np.arange(table.n_annotators)), gold)
        hits, total = self._count_agreement(table, self.posterior_)
        self.population_accuracy_ = float(hits.sum() / total.sum()) if total.sum() > 0 else 1 / table.n_classes
        self._set_reliability(hits, total)

    def _compute_posterior(self, table: Annotations, annotators: IntArray) -> FloatArray:
        edges = AnswerEdges.from_table(table, None)
        weight = np.append(self.weight_, self.population_weight_)[annotators]  # −1, unseen, takes the last
        log_odds = self.scale_ * np.bincount(edges.item, edges.answer * weight[edges.annotator], table.n_items)
        posterior = np.stack([-log_odds, log_odds], axis=1)[:, : table.n_classes] / 2
        posterior = np.exp(posterior - posterior.max(axis=1, keepdims=True, initial=-np.inf))
        return np.asarray(posterior / posterior.sum(axis=1, keepdims=True))

    def annotator_confusions(self, annotators: IntArray) -> FloatArray:
        K = self.classes_.size
        right = np.append(self.reliability_, self.population_accuracy_)[annotators][:, None, None]
        return np.where(np.eye(K, dtype=bool), right if K > 1 else 1.0, 1 - right)

    def confusion_support(self) -> FloatArray:
        return np.asarray(self.total_ + CROWD_LABELS)[:, None, None]


@dataclass(frozen=True)
class AnswerEdges:
    """Pairs of an item and an annotator, in the order of items."""

    item_ptr: IntArray  # (I+1,)
    annotator: IntArray  # (E,)
    answer: IntArray | FloatArray  # (E,) −1 for class 0, 1 for class 1, or a signed weight

    @cached_property
    def item(self) -> IntArray:
        """(E,) the item of each."""
        return np.repeat(np.arange(self.item_ptr.size - 1), np.diff(self.item_ptr))

    @classmethod
    def from_table(cls, table: Annotations, gold: IntArray | None) -> AnswerEdges:
        """Return the edges of a table, one per pair; items of known class have none."""
        ptr, annotator = table.item_ptr, table.annotator
        answer: IntArray | FloatArray = signed_answers(table)
        if gold is not None:
            keep = np.repeat(gold < 0, np.diff(ptr))
            ptr = np.append(0, np.cumsum(keep))[ptr]
            annotator, answer = annotator[keep], answer[keep]
        first = is_first_of_pair(np.repeat(np.arange(ptr.size - 1), np.diff(ptr)), annotator)
        if not first.all():
            answer = np.bincount(np.cumsum(first) - 1, answer)
            ptr, annotator = np.append(0, np.cumsum(first))[ptr], annotator[first]
        return cls(ptr, annotator, answer)


def signed_answers(table: Annotations) -> IntArray | FloatArray:
    """(N,) the answer of each row: −1 for class 0, 1 for class 1, times its weight; between them if probabilistic."""
    if table.proba is not None and table.n_classes > 1:
        answer: Any = table.proba[:, 1] - table.proba[:, 0]
    else:
        answer = 2 * table.label.astype(np.int8) - np.int8(1)
    return np.asarray(answer if table.weight is None else answer * table.weight)


def gold_agreement(table: Annotations, gold: IntArray | None) -> FloatArray:
    """(A, 2) sums over items of known class: right answers less wrong ones, and all answers."""
    out = np.zeros((table.n_annotators, 2))
    if gold is not None:
        truth = np.repeat(np.where(gold >= 0, 2 * gold - 1, 0), np.diff(table.item_ptr))
        answer = signed_answers(table)
        out[:, 0] = np.bincount(table.annotator, answer * truth, table.n_annotators)
        out[:, 1] = np.bincount(table.annotator, np.abs(answer * truth), table.n_annotators)
    return out


class MessagePassing:
    """Messages over one table, pass by pass.

    `message` (E,) is x and `weight` (A,) is w of the last pass; `crowd` is κ, the share of an average annotator.
    """

    def __init__(self, edges: AnswerEdges, known: FloatArray, pool: Threads, crowd_labels: float):
        self.edges, self.known, self.pool = edges, known, pool
        self.items = balanced_ranges(edges.item_ptr, pool.threads)
        self.use_array_form = edges.answer.size < chunks.MIN_KERNEL_ROWS
        agree, pairs = kernels.pair_agreement(edges.item, edges.answer)
        beyond_chance = (agree + 2 * UNSEEN_WEIGHT**2) / (pairs + 2)  # with one pair of unseen annotators added
        self.crowd = float(np.sqrt(max(beyond_chance, MIN_CROWD_WEIGHT**2)))
        self.options = self.crowd, float(crowd_labels)
        self.message: FloatArray = np.zeros(edges.annotator.size)
        self.edge_sums: FloatArray = np.zeros((len(known), 2))  # Y, Q
        self.odds = kernels.annotator_odds(self.edge_sums, *self.options)

    @property
    def weight(self) -> FloatArray:
        """(A,) w."""
        return self.odds[:, 1]

    def __call__(self) -> float:
        """Run one pass and return the largest change of a weight."""
        edges, before = self.edges, self.weight
        if self.use_array_form:
            self.message, edge_sums = kernels.update_messages_numpy(
                edges.item, edges.annotator, edges.answer, self.message, self.edge_sums, *self.options
            )
        else:
            _, (edge_sums,) = self.pool.sum_over_ranges(
                lambda start, stop, sums: kernels.update_messages(
                    start, stop, edges.item_ptr, edges.annotator, edges.answer, self.message, self.edge_sums, self.odds,
                    *self.options, sums,
                ),
                self.items, self.known.shape,
            )  # fmt: skip
        self.edge_sums = edge_sums + self.known  # h of a known class is −1 or 1
        self.odds = kernels.annotator_odds(self.edge_sums, *self.options)
        return float(np.abs(self.weight - before).max(initial=0) / max(1.0, np.abs(self.weight).max(initial=0)))


def fit_scale(messages: MessagePassing) -> float:
    """Return β, log odds of a class per unit of S, such that the messages x predict the excluded labels best."""
    from scipy.optimize import brentq

    answer, message, kappa, pool = messages.edges.answer, messages.message, messages.crowd, messages.pool
    size = float(np.abs(answer).sum(dtype=np.float64))
    margin = float(np.abs(answer * message).sum() / max(size, MIN_WEIGHT))  # mean of |x|
    if margin < MIN_WEIGHT:
        return 2.0  # a weight of artanh(2 p − 1) has log odds of twice that
    ranges = even_ranges(message.size, pool.threads)

    def slope(beta: float) -> float:
        if messages.use_array_form:
            return kernels.likelihood_slope_numpy(answer, message, beta, kappa)
        return sum(
            pool.map(
                lambda _, start, stop: float(kernels.likelihood_slope(start, stop, answer, message, beta, kappa)),
                ranges,
            )
        )

    def rise(log_odds: float) -> float:  # at the mean margin, in logarithms
        odds = np.exp(log_odds)
        t = np.tanh(odds / 2)
        return float(
            slope(odds / margin) - kappa**2 * t * margin * (1 - t**2) / (1 - kappa**2 * t**2)
        )  # with the two added labels

    low, high = np.log(MIN_LOG_ODDS), np.log(MAX_LOG_ODDS)
    if rise(low) <= 0:
        return MIN_LOG_ODDS / margin
    return float(np.exp(high if rise(high) >= 0 else brentq(rise, low, high, xtol=1e-13)) / margin)
