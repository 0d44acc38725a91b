"""Votes, in which every annotator may have a weight, and who agrees with them, in one walk over the rows; ties."""

from __future__ import annotations

from typing import Any

import numpy as np

from dissensus.common.jit import compiled
from dissensus.common.types import FloatArray, IntArray


@compiled
def tally(first: Any, end: Any, annotator: IntArray, label: IntArray, weight: Any, skill: FloatArray, v: Any) -> float:
    """The largest of the sums `v` (K,) of weight · skill over rows; where nobody has any skill, all count the same."""
    top = 0.0
    for equal in (False, True):
        v[:] = 0.0
        for row in range(first, end):
            w = 1.0 if equal else skill[np.uintp(annotator[row])]
            if weight is not None:
                w *= weight[row]
            v[np.uintp(label[row])] += w
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
        known = -1
        if gold is not None:
            known = gold[i]
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
            w = 1.0
            if weight is not None:
                w = weight[row]
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
        if gold is not None:
            if gold[i] >= 0:
                posterior[i] = 0.0
                posterior[i, gold[i]] = 1.0
        item_total[i] = 0.0
        for row in range(first, end):
            w = 1.0
            if weight is not None:
                w = weight[row]
            item_total[i] += w
            hits[np.uintp(annotator[row])] += w * posterior[i, np.uintp(label[row])]
