"""A vote in which every annotator has a weight, and who agreed with its outcome, in one walk over the rows; ties."""

from __future__ import annotations

from typing import Any

import numpy as np

from dissensus._types import BoolArray, FloatArray, IntArray
from dissensus.kernels.jit import compiled


@compiled
def skilled_vote(
    item_ptr: IntArray,
    annotator: IntArray,
    label: IntArray,
    weight: Any,
    skill: FloatArray,
    gold: Any,
    judged: BoolArray,
    n_classes: int,
    tie: float,
    votes: Any,
) -> FloatArray:
    """(A,) weight of each annotator's labels that agree with the outcome; `votes` (I, K) gets the sums, unless None.

    A row counts weight · skill. The outcome is the class with the largest sum, or the known one; classes within `tie`
    of the largest share it. Where nobody on an item has any skill, all count the same. Items that are not `judged` (I,)
    count for nobody's agreement.
    """
    hits = np.zeros(skill.size)
    v = np.empty(n_classes)  # sums, then every class's part of the outcome
    for i in range(item_ptr.size - 1):
        first, end = np.uintp(item_ptr[i]), np.uintp(item_ptr[i + 1])  # unsigned: no index need be checked for its sign
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
        if votes is not None:
            votes[i] = v
        sharing = 0.0
        for k in range(n_classes):
            v[k] = 1.0 if v[k] >= top * (1 - tie) else 0.0
            sharing += v[k]
        for k in range(n_classes):
            v[k] /= sharing
        if not judged[i]:
            continue
        if gold is not None:
            if gold[i] >= 0:
                v[:] = 0.0
                v[gold[i]] = 1.0
        for row in range(first, end):
            w = 1.0
            if weight is not None:
                w = weight[row]
            hits[np.uintp(annotator[row])] += w * v[np.uintp(label[row])]
    return hits


@compiled
def lean_on_ties(votes: FloatArray, lean: FloatArray, tie: float, shares: FloatArray) -> None:
    """`shares` (I, K) times `lean` (K,), summing to one again, where the largest of the votes (I, K) is tied."""
    for i in range(len(votes)):
        top = votes[i].max()
        if top <= 0:
            continue
        best, total = 0, 0.0
        for k in range(lean.size):
            best += votes[i, k] >= top * (1 - tie)
            total += shares[i, k] * lean[k]
        if best > 1:
            for k in range(lean.size):
                shares[i, k] *= lean[k] / total
