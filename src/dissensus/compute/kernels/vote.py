"""Votes, weighted by the annotators' skills, and the annotators' agreement with the outcome.

`vote_arrays` is the array form, for NumPy and torch, and the reference of `vote_items`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dissensus.common.arrays import TIE_TOLERANCE
from dissensus.common.jit import lazy_jit
from dissensus.common.types import FloatArray
from dissensus.compute.chunk import Chunk, apply_gold, array_library
from dissensus.compute.kernels.items import value_or_default
from dissensus.compute.rows import Rows


@lazy_jit
def sum_votes(first, end, annotator, label, weight, skill, v):
    """Write Σ weight · skill by label to `v` (K,), and return the largest sum; if all skills are 0, use 1."""
    top = 0.0
    for equal in (False, True):
        v[:] = 0.0
        for row in range(first, end):
            w = 1.0 if equal else skill[np.uintp(annotator[row])]
            v[np.uintp(label[row])] += w * value_or_default(weight, row, 1.0)
        top = v.max()
        if top > 0:
            break
    return float(top)


@lazy_jit
def vote_items(start, stop, rows, skill, gold, alone, prior, lean, hits, total, sums, posterior, item_total):
    """Vote on items start … stop − 1; add the weight of agreeing labels to `hits` (A,), of all to `total` (A,).

    The vote of a row is weight · skill, and the votes are added to `sums` (K,). The outcome is the gold class, or the
    class with the largest sum; classes within `TIE_TOLERANCE` of the largest sum have equal parts of the outcome. Only
    gold items and items with several annotators count for `hits` and `total`, unless `alone` is set.

    If `posterior` (I, K) is not empty, the outcome of all items is written to it: the vote shares, or the prior (K,)
    without votes. In case of ties the shares are multiplied by `lean` (K,), unless it is empty, and normalised. If
    `posterior` is not empty, all items count for the sums, and the weight of each item's rows is written to
    `item_total` (I,).
    """
    item_ptr, annotator, label, weight = rows
    K = sums.size
    keep = posterior.shape[0] > 0
    v = np.empty(K)  # sums by class, later each class's part of the outcome
    for i in range(start, stop):
        # With unsigned indices, numba does not check signs.
        first, end = np.uintp(item_ptr[i]), np.uintp(item_ptr[i + 1])
        top = sum_votes(first, end, annotator, label, weight, skill, v)
        for k in range(K):
            sums[k] += v[k]
        known = value_or_default(gold, i, -1)
        if keep:
            whole, tied = v.sum(), 0
            for k in range(K):
                tied += v[k] >= top * (1 - TIE_TOLERANCE)
                v[k] = v[k] / whole if whole > 0 else prior[k]
            if lean.size > 0 and top > 0 and tied > 1:
                leaning = 0.0
                for k in range(K):
                    leaning += v[k] * lean[k]
                for k in range(K):
                    v[k] *= lean[k] / leaning
        else:
            if known < 0 and not alone:
                if first == end or annotator[first] == annotator[end - np.uintp(1)]:  # rows are sorted by annotator
                    continue
            sharing = 0.0
            for k in range(K):
                v[k] = 1.0 if v[k] >= top * (1 - TIE_TOLERANCE) else 0.0
                sharing += v[k]
            for k in range(K):
                v[k] /= sharing
        if known >= 0:
            v[:] = 0.0
            v[known] = 1.0
        own = 0.0
        for row in range(first, end):
            w = value_or_default(weight, row, 1.0)
            own += w
            hits[np.uintp(annotator[row])] += w * v[np.uintp(label[row])]
            total[np.uintp(annotator[row])] += w
        if keep:
            posterior[i] = v
            item_total[i] = own


def vote_arrays(chunk: Chunk, skill: Any, alone: bool, prior: Any, lean: Any) -> tuple[Any, Any, Any, Any]:
    """Run `vote_items` in whole-array operations; return hits (A,), total (A,), votes (K,) and outcome (I, K)."""
    votes = _weighted_votes(chunk, skill)
    most = _mark_largest(votes)
    outcome = most / most.sum(1)[:, None] if prior is None else vote_posterior(votes, prior, lean)
    outcome = apply_gold(outcome, chunk.gold)
    tells = has_several_annotators(chunk.item_ptr, chunk.annotator) | alone
    if chunk.gold is not None:
        tells |= chunk.gold >= 0
    counted = chunk.row_weights() * tells[chunk.item]
    hits, total = (
        chunk.scatter_sum(chunk.annotator, each, chunk.n_annotators)
        for each in (counted * outcome.reshape(-1)[chunk.item_label], counted)
    )
    return hits, total, votes.sum(0), outcome


def sum_skilled_votes(rows: Rows, skill: FloatArray, n_classes: int) -> Any:
    """Return Σ weight · skill by item and label, (I, K); if all skills of an item's annotators are 0, use 1."""
    return _weighted_votes(Chunk(rows.arrays, None, skill.size, n_classes), skill)


def _weighted_votes(chunk: Chunk, skill: Any) -> Any:
    votes, xp = chunk.votes(chunk.apply_weights(skill[chunk.annotator])), array_library(skill)
    return xp.where(xp.amax(votes, 1)[:, None] > 0, votes, chunk.votes(chunk.row_weights()))


def _mark_largest(votes: Any) -> Any:
    """Return 1.0 for the classes with the most votes and 0.0 for the others, (I, K)."""
    return votes * 0.0 + (votes >= array_library(votes).amax(votes, 1)[:, None] * (1 - TIE_TOLERANCE))


def vote_posterior(votes: Any, prior: Any, lean: Any) -> Any:
    """Return the vote shares (I, K) of votes (I, K), with ties broken as in `vote_items`."""
    total, xp = votes.sum(1)[:, None], array_library(votes)
    found = xp.where(total > 0, votes / xp.where(total > 0, total, 1.0), prior)
    if lean is not None:
        leans = (_mark_largest(votes).sum(1) > 1) & (total[:, 0] > 0)
        leant = found[leans] * lean
        found[leans] = leant / leant.sum(1)[:, None]
    return found


def has_several_annotators(item_ptr: Any, annotator: Any) -> Any:
    """Return a mask of the items with labels of several annotators, (I,); rows must be sorted."""
    busy = item_ptr[1:] > item_ptr[:-1]
    several = busy & True
    several[busy] = annotator[item_ptr[:-1][busy]] != annotator[item_ptr[1:][busy] - 1]
    return several
