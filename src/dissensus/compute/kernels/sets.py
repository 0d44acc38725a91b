"""Passes over labels that are sets of options: what rows say of every option, and the tree that joins the options.

A tree has a row per option in `order`, parents first; `parent` is −1 for its root. `chance` (L, 2) is P(an option is
true | its parent is not, is); of the root both are alike.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dissensus.common.jit import compiled
from dissensus.common.types import BoolArray, FloatArray, IntArray
from dissensus.compute.kernels.optional import entry


@compiled
def evidence(
    item_ptr: IntArray,
    annotator: IntArray,
    label: IntArray,
    weight: Any,
    ticked: BoolArray,
    tick: FloatArray,
    blank: FloatArray,
    out: FloatArray,
) -> None:
    """Add to `out` (I, L) the log odds of every option by the labels of an item.

    `tick` and `blank` (A, L): log P(…| the option is true) − log P(…| it is not), of a tick and of none.
    """
    L = out.shape[1]
    for i in range(out.shape[0]):
        for row in range(item_ptr[i], item_ptr[i + 1]):
            a, y, w = annotator[row], label[row], entry(weight, row, 1.0)
            for c in range(L):
                out[i, c] += w * (tick[a, c] if ticked[y, c] else blank[a, c])


@compiled
def counts(
    item_ptr: IntArray,
    annotator: IntArray,
    label: IntArray,
    weight: Any,
    ticked: BoolArray,
    posterior: FloatArray,
    true: FloatArray,
    hits: FloatArray,
) -> None:
    """Add what annotators met: to `true` (A, L) the weight of true options, to `hits` that of those they ticked."""
    L = posterior.shape[1]
    for i in range(posterior.shape[0]):
        for row in range(item_ptr[i], item_ptr[i + 1]):
            a, y, w = annotator[row], label[row], entry(weight, row, 1.0)
            for c in range(L):
                part = w * posterior[i, c]
                true[a, c] += part
                if ticked[y, c]:
                    hits[a, c] += part


@compiled
def _either(out: float, into: float) -> float:
    """log(e^out + e^into)."""
    most = max(out, into)
    return float(most + np.log1p(np.exp(min(out, into) - most)))


@compiled
def marginals(
    odds: FloatArray,
    order: IntArray,
    parent: IntArray,
    chance: FloatArray,
    posterior: FloatArray,
    joint: FloatArray,
    log_total: FloatArray,
) -> None:
    """Write P(option | labels) to `posterior` (I, L), from the log odds (I, L) of `evidence`: two walks over the tree.

    Adds P(option is true, its parent is not / is) over all items to `joint` (L, 2), and writes to `log_total` (I,) the
    log of the sum over all sets.
    """
    n_items, L = odds.shape
    log_in, log_out = np.log(chance), np.log1p(-chance)
    up = np.empty(L)
    for i in range(n_items):
        for c in range(L):
            up[c] = odds[i, c]
        total = 0.0
        for k in range(L - 1, 0, -1):
            c = order[k]
            absent = _either(log_out[c, 0], log_in[c, 0] + up[c])
            there = _either(log_out[c, 1], log_in[c, 1] + up[c])
            total += absent
            up[parent[c]] += there - absent
        root = order[0]
        out, into = log_out[root, 0], log_in[root, 0] + up[root]
        log_total[i] = total + _either(out, into)
        posterior[i, root] = 1 / (1 + np.exp(out - into))
        joint[root, 0] += posterior[i, root]
        for k in range(1, L):
            c = order[k]
            above = posterior[i, parent[c]]
            absent = (1 - above) / (1 + np.exp(log_out[c, 0] - log_in[c, 0] - up[c]))
            there = above / (1 + np.exp(log_out[c, 1] - log_in[c, 1] - up[c]))
            posterior[i, c] = absent + there
            joint[c, 0] += absent
            joint[c, 1] += there
