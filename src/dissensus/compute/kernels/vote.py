"""Votes, in which every annotator may have a weight, and who agrees with them, in one walk over the rows; ties.

`Ballot` has the same in NumPy, for short tables, and what the tests hold the kernels to.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dissensus.common.jit import compiled
from dissensus.common.types import BoolArray, FloatArray, IntArray
from dissensus.compute.engines.base import Rows
from dissensus.compute.kernels.optional import entry
from dissensus.compute.readable import with_known


@compiled
def tally(first: Any, end: Any, annotator: IntArray, label: IntArray, weight: Any, skill: FloatArray, v: Any) -> float:
    """The largest of the sums `v` (K,) of weight · skill over rows; where nobody has any skill, all count the same."""
    top = 0.0
    for equal in (False, True):
        v[:] = 0.0
        for row in range(first, end):
            w = 1.0 if equal else skill[np.uintp(annotator[row])]
            v[np.uintp(label[row])] += w * entry(weight, row, 1.0)
        top = v.max()
        if top > 0:
            break
    return float(top)


@compiled
def skilled_vote(
    start: int,
    stop: int,
    item_ptr: IntArray,
    annotator: IntArray,
    label: IntArray,
    weight: Any,
    skill: FloatArray,
    gold: Any,
    alone: bool,
    tie: float,
    hits: FloatArray,
    total: FloatArray,
    sums: FloatArray,
    votes: Any,
) -> int:
    """A vote on items start … stop − 1; adds to `hits` (A,) the labels that agree with its outcome, to `total` all.

    A row counts weight · skill; `sums` (K,) and `votes` (I, K), unless None, get the sums. The outcome is the class
    with the largest sum, or the known one; classes within `tie` of the largest share it. Only items of several
    annotators or of known class tell about anybody, unless those `alone` count too; returns how many told.
    """
    K = sums.size
    judged = 0
    v = np.empty(K)  # sums, then every class's part of the outcome
    for i in range(start, stop):
        first, end = np.uintp(item_ptr[i]), np.uintp(item_ptr[i + 1])  # unsigned: no index need be checked for its sign
        top = tally(first, end, annotator, label, weight, skill, v)
        for k in range(K):
            sums[k] += v[k]
        if votes is not None:
            votes[i] = v
        known = entry(gold, i, -1)
        if first == end and known < 0 and not alone:
            continue
        if not alone and known < 0 and annotator[first] == annotator[end - np.uintp(1)]:  # rows are in order
            continue
        judged += 1
        sharing = 0.0
        for k in range(K):
            v[k] = 1.0 if v[k] >= top * (1 - tie) else 0.0
            sharing += v[k]
        for k in range(K):
            v[k] /= sharing
        if known >= 0:
            v[:] = 0.0
            v[known] = 1.0
        for row in range(first, end):
            w = entry(weight, row, 1.0)
            hits[np.uintp(annotator[row])] += w * v[np.uintp(label[row])]
            total[np.uintp(annotator[row])] += w
    return judged


@compiled
def shares(
    start: int,
    stop: int,
    item_ptr: IntArray,
    annotator: IntArray,
    label: IntArray,
    weight: Any,
    skill: FloatArray,
    prior: FloatArray,
    lean: Any,
    gold: Any,
    tie: float,
    hits: FloatArray,
    posterior: FloatArray,
    item_total: FloatArray,
) -> None:
    """`posterior` (I, K): shares of the votes, each weight · skill; the prior (K,) without votes; known classes.

    Where the largest of the votes is tied, shares are multiplied by `lean` (K,), unless empty, and sum to one again.
    Adds to `hits` (A,) the labels that are right by the posterior; `item_total` (I,) gets the weight of the rows.
    """
    K = prior.size
    v = np.empty(K)
    for i in range(start, stop):
        first, end = np.uintp(item_ptr[i]), np.uintp(item_ptr[i + 1])
        top = tally(first, end, annotator, label, weight, skill, v)
        total = v.sum()
        for k in range(K):
            posterior[i, k] = v[k] / total if total > 0 else prior[k]
        if lean.size > 0:
            if top > 0:
                tied, leaning = 0, 0.0
                for k in range(K):
                    tied += v[k] >= top * (1 - tie)
                    leaning += posterior[i, k] * lean[k]
                if tied > 1:
                    for k in range(K):
                        posterior[i, k] *= lean[k] / leaning
        known = entry(gold, i, -1)
        if known >= 0:
            posterior[i] = 0.0
            posterior[i, known] = 1.0
        item_total[i] = 0.0
        for row in range(first, end):
            w = entry(weight, row, 1.0)
            item_total[i] += w
            hits[np.uintp(annotator[row])] += w * posterior[i, np.uintp(label[row])]


class Ballot:
    """The votes (I, K) of a short table, each weight · skill, and the largest of each item."""

    def __init__(self, rows: Rows, skill: FloatArray, n_classes: int):
        self.rows, self.n_annotators = rows, skill.size
        shape = rows.item_ptr.size - 1, n_classes
        self.item = np.repeat(np.arange(shape[0]), np.diff(rows.item_ptr))
        self.own = self.item * n_classes + rows.label  # place of a row's label in (I, K)
        self.weight = np.ones(self.own.size) if rows.weight is None else rows.weight
        plain, votes = (
            np.bincount(self.own, weight, shape[0] * n_classes).reshape(shape)
            for weight in (self.weight, self.weight * skill[rows.annotator])
        )
        self.total = plain.sum(axis=1)  # (I,) weight of the rows
        self.votes = np.where(votes.max(axis=1, keepdims=True, initial=0) > 0, votes, plain).astype(np.float64)
        self.top = self.votes.max(axis=1, keepdims=True, initial=0)

    def sum_by_annotator(self, of_row: FloatArray) -> FloatArray:
        """(A,) sums of weight · values (N,)."""
        return np.bincount(self.rows.annotator, self.weight * of_row, self.n_annotators).astype(np.float64)

    def skilled_vote(
        self, gold: IntArray | None, alone: bool, tie: float
    ) -> tuple[FloatArray, FloatArray, FloatArray, int]:
        """Hits and total (A,), votes (K,) and items that tell, see `skilled_vote`."""
        outcome = (self.votes >= self.top * (1 - tie)).astype(np.float64)
        outcome = with_known(outcome / outcome.sum(axis=1, keepdims=True), gold)
        tells = several_annotators(self.rows.item_ptr, self.rows.annotator) | alone
        if gold is not None:
            tells |= gold >= 0
        of_row = tells[self.item].astype(np.float64)
        hits, total = (self.sum_by_annotator(part) for part in (of_row * outcome.reshape(-1)[self.own], of_row))
        return hits, total, self.votes.sum(axis=0), int(tells.sum())

    def shares(
        self, prior: FloatArray, lean: FloatArray, gold: IntArray | None, tie: float
    ) -> tuple[FloatArray, FloatArray]:
        """Hits (A,) and the posterior (I, K), see `shares`."""
        total = self.votes.sum(axis=1, keepdims=True)
        posterior = np.where(total > 0, self.votes / np.where(total > 0, total, 1), prior)
        if lean.size:
            tied = ((self.votes >= self.top * (1 - tie)).sum(axis=1) > 1) & (self.top[:, 0] > 0)
            leant = posterior[tied] * lean
            posterior[tied] = leant / leant.sum(axis=1, keepdims=True)
        posterior = with_known(posterior, gold)
        return self.sum_by_annotator(posterior.reshape(-1)[self.own]), posterior


def several_annotators(item_ptr: IntArray, annotator: IntArray) -> BoolArray:
    """(I,) which items have labels of several annotators; their rows are in order."""
    several = np.diff(item_ptr) > 0
    several[several] = annotator[item_ptr[:-1][several]] != annotator[item_ptr[1:][several] - 1]
    return several
