"""KOS: message passing between items and annotators, for two classes.

Use it with two classes and randomly assigned items, if you want a method with theoretical guarantees for this case.

The answer a_ij of annotator j on item i is −1 for the first class and 1 for the second. A row of weight w counts as ±w,
a probabilistic row as w (p_1 − p_0), and rows of the same item and annotator are added. Items and annotators exchange
messages along the answers:

    x_{i→j} = Σ_{j'≠j} a_ij' f(y_{j'→i})                         vote of the other annotators on item i
    y_{j→i} = (Σ_{i'≠i} a_i'j h_{i'→j} + m κ) / (Σ_{i'≠i} |a_i'j h_{i'→j}| + m)      h = x/(1 + |x|)

The first y are equal, so the first x are majority votes. y converges to the weighted agreement of annotator j with the
others, from −1 to 1; an annotator who is right with probability p has y = 2p − 1. The function f(y) = artanh y is half
the log odds of p, where |y| is at most 0.99. Labels of average quality, m = `crowd_labels` of them, are added to those
of every annotator. Their quality is κ, where κ² = Σ a_ij a_ij' / Σ |a_ij a_ij'| is the agreement of pairs of labels
beyond chance. An item with gold has h = ±1.

The label of item i is the sign of S_i = Σ_j a_ij w_j, where w_j is f(y) over all items of j, and

    P(second class) = 1/(1 + exp(−β S_i))

The vote x_{i→j} does not include the label of j. β is the number with which the votes x best predict the labels that
they do not include, if all annotators are average: P(j agrees with x) = ½ (1 + κ tanh(β |x|/2)). Two labels at the mean
margin, one of which agrees, are added.

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
from dissensus.models.confidence import CROWD_PSEUDO_LABELS
from dissensus.table.annotations import Annotations

UNSEEN_QUALITY = 1 / 3  # y of an annotator who is right with probability 2/3
MIN_CROWD_QUALITY = 0.01  # lower limit of κ, because annotators are mostly right
MIN_SUM = 1e-100  # sums below this value count as 0
MIN_LOG_ODDS, MAX_LOG_ODDS = 1e-3, 30.0  # limits of the log odds at the mean margin


@methods.register(
    "kos", summary="messages between items and annotators, for two classes", cite="Karger et al. 2011", binary=True
)
class KOS(Aggregator):
    """Aggregate labels of two classes by message passing."""

    crowd_labels: float = param(
        10.0, "number of labels of average quality that are added to those of each annotator", low=0
    )
    max_iter: int = param(200, "maximum number of passes over the data", low=1)
    tol: float = param(1e-9, "stop when no weight changes by more than this", low=0)
    threads: int | None = param(None, "threads for the passes; None for all cores", low=1)

    weight_: Annotated[FloatArray, "A real"]
    population_weight_: Annotated[float, "number"]
    scale_: Annotated[float, "number"]
    population_accuracy_: Annotated[float, "number"]

    @property
    def confusion_(self) -> FloatArray:
        """The confusion matrices (A, 2, 2), which have the reliability on the diagonal, computed on access."""
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
                float(np.arctanh(min(messages.crowd, kernels.MAX_AGREEMENT))),
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
        weight = np.append(self.weight_, self.population_weight_)[annotators]  # −1 is an unseen annotator
        log_odds = self.scale_ * np.bincount(edges.item, edges.answer * weight[edges.annotator], table.n_items)
        posterior = np.stack([-log_odds, log_odds], axis=1)[:, : table.n_classes] / 2
        posterior = np.exp(posterior - posterior.max(axis=1, keepdims=True, initial=-np.inf))
        return np.asarray(posterior / posterior.sum(axis=1, keepdims=True))

    def annotator_confusions(self, annotators: IntArray) -> FloatArray:
        K = self.classes_.size
        right = np.append(self.reliability_, self.population_accuracy_)[annotators][:, None, None]
        return np.where(np.eye(K, dtype=bool), right if K > 1 else 1.0, 1 - right)

    def confusion_support(self) -> FloatArray:
        return np.asarray(self.total_ + CROWD_PSEUDO_LABELS)[:, None, None]


@dataclass(frozen=True)
class AnswerEdges:
    """The edges of a graph: pairs of an item and an annotator with their answer, in the order of items."""

    item_ptr: IntArray  # (I+1,) first edge of each item
    annotator: IntArray  # (E,) annotator of each edge
    answer: IntArray | FloatArray  # (E,) −1 for class 0 and 1 for class 1, times the weight

    @cached_property
    def item(self) -> IntArray:
        """The item of each edge, (E,)."""
        return np.repeat(np.arange(self.item_ptr.size - 1), np.diff(self.item_ptr))

    @classmethod
    def from_table(cls, table: Annotations, gold: IntArray | None) -> AnswerEdges:
        """Return the edges of a table, one per pair of item and annotator; items with gold have no edges."""
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
    """Return the answer of each row (N,), weight · (P(class 1) − P(class 0)), which is ±weight for a plain label."""
    if table.proba is not None and table.n_classes > 1:
        answer: Any = table.proba[:, 1] - table.proba[:, 0]
    else:
        answer = 2 * table.label.astype(np.int8) - np.int8(1)
    return np.asarray(answer if table.weight is None else answer * table.weight)


def gold_agreement(table: Annotations, gold: IntArray | None) -> FloatArray:
    """Return sums over items with gold (A, 2): the right minus the wrong answers, and all answers."""
    out = np.zeros((table.n_annotators, 2))
    if gold is not None:
        truth = np.repeat(np.where(gold >= 0, 2 * gold - 1, 0), np.diff(table.item_ptr))
        answer = signed_answers(table)
        out[:, 0] = np.bincount(table.annotator, answer * truth, table.n_annotators)
        out[:, 1] = np.bincount(table.annotator, np.abs(answer * truth), table.n_annotators)
    return out


class MessagePassing:
    """Pass messages over one table.

    After each pass `message` (E,) is x and `weight` (A,) is w; `crowd` is κ.
    """

    def __init__(self, edges: AnswerEdges, gold_sums: FloatArray, pool: Threads, crowd_labels: float):
        self.edges, self.gold_sums, self.pool = edges, gold_sums, pool
        self.items = balanced_ranges(edges.item_ptr, pool.threads)
        self.use_array_form = edges.answer.size < chunks.MIN_KERNEL_ROWS
        agree, pairs = kernels.pair_agreement(edges.item, edges.answer)
        beyond_chance = (agree + 2 * UNSEEN_QUALITY**2) / (pairs + 2)  # labels of two unseen annotators are added
        self.crowd = float(np.sqrt(max(beyond_chance, MIN_CROWD_QUALITY**2)))
        self.options = self.crowd, float(crowd_labels)
        self.message: FloatArray = np.zeros(edges.annotator.size)
        self.edge_sums: FloatArray = np.zeros((len(gold_sums), 2))  # Y and Q, from which y follows
        self.odds = kernels.annotator_odds(self.edge_sums, *self.options)

    @property
    def weight(self) -> FloatArray:
        """The weights w of the annotators, (A,)."""
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
                self.items, self.gold_sums.shape,
            )  # fmt: skip
        self.edge_sums = edge_sums + self.gold_sums  # h of an item with gold is −1 or 1
        self.odds = kernels.annotator_odds(self.edge_sums, *self.options)
        return float(np.abs(self.weight - before).max(initial=0) / max(1.0, np.abs(self.weight).max(initial=0)))


def fit_scale(messages: MessagePassing) -> float:
    """Return β, the scale of S as log odds, with which each message x best predicts the label that it leaves out."""
    from scipy.optimize import brentq

    answer, message, kappa, pool = messages.edges.answer, messages.message, messages.crowd, messages.pool
    size = float(np.abs(answer).sum(dtype=np.float64))
    margin = float(np.abs(answer * message).sum() / max(size, MIN_SUM))  # mean of |x|
    if margin < MIN_SUM:
        return 2.0  # the weight artanh(2p − 1) is half the log odds
    ranges = even_ranges(message.size, pool.threads)

    def log_likelihood_slope(beta: float) -> float:
        """Return the derivative of the log likelihood of the excluded labels with respect to β."""
        if messages.use_array_form:
            return kernels.likelihood_slope_numpy(answer, message, beta, kappa)
        return sum(
            pool.map(
                lambda _, start, stop: float(kernels.likelihood_slope(start, stop, answer, message, beta, kappa)),
                ranges,
            )
        )

    def penalised_slope(log_odds: float) -> float:
        """Return the slope of the log likelihood, including the two added labels, for log odds given as logarithm."""
        odds = np.exp(log_odds)
        t = np.tanh(odds / 2)
        return float(log_likelihood_slope(odds / margin) - kappa**2 * t * margin * (1 - t**2) / (1 - kappa**2 * t**2))

    low, high = np.log(MIN_LOG_ODDS), np.log(MAX_LOG_ODDS)
    if penalised_slope(low) <= 0:
        return MIN_LOG_ODDS / margin
    return float(
        np.exp(high if penalised_slope(high) >= 0 else brentq(penalised_slope, low, high, xtol=1e-13)) / margin
    )
