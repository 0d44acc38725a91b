"""Votes, in which every annotator may have a weight, and who agrees with them, in one walk over the rows; ties.

`vote_short` is the walk in NumPy, for short tables, and what the tests hold `vote` to.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dissensus.common.arrays import TIE
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
def vote(
    start: int,
    stop: int,
    item_ptr: IntArray,
    annotator: IntArray,
    label: IntArray,
    weight: Any,
    skill: FloatArray,
    gold: Any,
    alone: bool,
    prior: FloatArray,
    lean: FloatArray,
    hits: FloatArray,
    total: FloatArray,
    sums: FloatArray,
    posterior: FloatArray,
    item_total: FloatArray,
) -> None:
    """A vote on items start … stop − 1; adds to `hits` (A,) the labels that agree with its outcome, to `total` all.

    A row counts weight · skill; `sums` (K,) gets the votes. The outcome is the class with the largest sum, or the known
    one; classes within `TIE` of the largest share it. Only items of several annotators or of known class tell about
    anybody, unless those `alone` count too.

    Where `posterior` (I, K) is not empty it gets, and is, the outcome of all items: the shares of the votes, the prior
    (K,) without votes; where the largest are tied, shares are multiplied by `lean` (K,), unless empty, and sum to one
    again. All items tell then, and `item_total` (I,) gets the weight of the rows.
    """
    K = sums.size
    keep = posterior.shape[0] > 0
    v = np.empty(K)  # sums, then every class's part of the outcome
    for i in range(start, stop):
        first, end = np.uintp(item_ptr[i]), np.uintp(item_ptr[i + 1])  # unsigned: no index need be checked for its sign
        top = tally(first, end, annotator, label, weight, skill, v)
        for k in range(K):
            sums[k] += v[k]
        known = entry(gold, i, -1)
        if keep:
            whole, tied = v.sum(), 0
            for k in range(K):
                tied += v[k] >= top * (1 - TIE)
                v[k] = v[k] / whole if whole > 0 else prior[k]
            if lean.size > 0 and top > 0 and tied > 1:
                leaning = 0.0
                for k in range(K):
                    leaning += v[k] * lean[k]
                for k in range(K):
                    v[k] *= lean[k] / leaning
        else:
            if known < 0 and not alone:
                if first == end or annotator[first] == annotator[end - np.uintp(1)]:  # rows are in order
                    continue
            sharing = 0.0
            for k in range(K):
                v[k] = 1.0 if v[k] >= top * (1 - TIE) else 0.0
                sharing += v[k]
            for k in range(K):
                v[k] /= sharing
        if known >= 0:
            v[:] = 0.0
            v[known] = 1.0
        own = 0.0
        for row in range(first, end):
            w = entry(weight, row, 1.0)
            own += w
            hits[np.uintp(annotator[row])] += w * v[np.uintp(label[row])]
            total[np.uintp(annotator[row])] += w
        if keep:
            posterior[i] = v
            item_total[i] = own


def vote_short(
    rows: Rows,
    skill: FloatArray,
    n_classes: int,
    gold: IntArray | None,
    alone: bool,
    prior: FloatArray | None,
    lean: FloatArray | None,
) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
    """`vote` in NumPy: hits and total (A,), votes (K,), and (I, K) the outcome."""
    item = np.repeat(np.arange(rows.n_items), np.diff(rows.item_ptr))
    weight = np.ones(item.size) if rows.weight is None else rows.weight
    votes = skilled_votes(rows, skill, n_classes)
    most = tied(votes)
    outcome = most / most.sum(axis=1, keepdims=True) if prior is None else shares(votes, prior, lean)
    outcome = with_known(outcome, gold)
    tells = several_annotators(rows.item_ptr, rows.annotator) | alone
    if gold is not None:
        tells |= gold >= 0
    weight = weight * tells[item]
    hits, total = (
        np.bincount(rows.annotator, part, skill.size).astype(np.float64)
        for part in (weight * outcome[item, rows.label], weight)
    )
    return hits, total, votes.sum(axis=0), outcome


def skilled_votes(rows: Rows, skill: FloatArray, n_classes: int) -> FloatArray:
    """(I, K) sums of weight · skill (A,) of the labels of each item; where nobody has any skill, all count the same."""
    shape = rows.n_items, n_classes
    own = np.repeat(np.arange(shape[0]) * n_classes, np.diff(rows.item_ptr)) + rows.label
    weight = np.ones(own.size) if rows.weight is None else rows.weight
    plain, votes = (
        np.bincount(own, part, shape[0] * n_classes).reshape(shape) for part in (weight, weight * skill[rows.annotator])
    )
    return np.where(votes.max(axis=1, keepdims=True, initial=0) > 0, votes, plain).astype(np.float64)


def tied(votes: FloatArray) -> BoolArray:
    """(I, K) the classes with the most votes (I, K)."""
    return np.asarray(votes >= votes.max(axis=1, keepdims=True, initial=0) * (1 - TIE))


def shares(votes: FloatArray, prior: FloatArray, lean: FloatArray | None) -> FloatArray:
    """(I, K) shares of votes (I, K), see `vote`."""
    total = votes.sum(axis=1, keepdims=True)
    found = np.where(total > 0, votes / np.where(total > 0, total, 1), prior)
    if lean is not None:
        leans = (tied(votes).sum(axis=1) > 1) & (total[:, 0] > 0)
        leant = found[leans] * lean
        found[leans] = leant / leant.sum(axis=1, keepdims=True)
    return found


def several_annotators(item_ptr: IntArray, annotator: IntArray) -> BoolArray:
    """(I,) which items have labels of several annotators; their rows are in order."""
    several = np.diff(item_ptr) > 0
    several[several] = annotator[item_ptr[:-1][several]] != annotator[item_ptr[1:][several] - 1]
    return several
