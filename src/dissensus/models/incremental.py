"""New annotations for a fitted model, in time that depends on what is new: EM over the new rows alone.

What a model keeps of the rows before is enough to go on from: the posterior of an item (its rows so far, in place of
the class prior) and the counts of an annotator (its rows so far, as pseudo-counts). Then, over the new rows:

    q_i(c) ∝ (posterior of i before, or π)_c Π_{new rows} P_j(y | c)        counts_j = those before + the new rows'

What is left undone is to revise the old rows' part of the counts by what the new rows say of their items (Neal & Hinton
1998 would revisit them); a test holds the result to a fit of everything.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from dissensus.common.types import BoolArray, FloatArray, IntArray, Names
from dissensus.table import names as naming
from dissensus.table.annotations import Annotations

P = TypeVar("P")
PASSES = 20  # over the new rows, at most
NEAR = 1e-4  # largest change of a posterior that ends them
LEAST = 1e-12  # probability that an item's posterior is taken to leave to a class: a new label may still change it


def settle(
    table: Annotations,
    before: FloatArray,
    gold: IntArray | None,
    params: P,
    log_votes: Callable[[P], FloatArray],
    learn: Callable[[FloatArray], P],
) -> tuple[FloatArray, P]:
    """Posterior (I, K) of a table's items and the parameters, by EM from `params`.

    Parameters
    ----------
    before : (I, K)
        Distribution of each item's class before these rows.
    log_votes : params → (N, K)
        Log probability of each row's label under each class.
    learn : posterior → params
        With what was known before.
    """
    start = np.log(np.maximum(before, LEAST))
    last = before
    for _ in range(PASSES):
        joint = start.copy()
        np.add.at(joint, table.item, log_votes(params))
        posterior = np.exp(joint - joint.max(axis=1, keepdims=True, initial=-np.inf))
        posterior /= posterior.sum(axis=1, keepdims=True)
        if gold is not None:
            posterior[gold >= 0] = np.eye(table.n_classes)[gold[gold >= 0]]
        params = learn(posterior)
        if np.abs(posterior - last).max(initial=0) < NEAR:
            break
        last = posterior
    return posterior, params


def merge(names: Names, more: Names, what: str) -> tuple[Names, IntArray, IntArray]:
    """Sorted names with others merged in: all names, where rows of the others must be put in, codes of `more`."""
    naming.match(more[:1], names[:1], what)  # an error where the kinds differ
    at = np.searchsorted(names, more)
    known = (at < names.size) & (names[np.minimum(at, names.size - 1)] == more) if names.size else at < 0
    new = np.flatnonzero(~known)
    if not new.size:
        return names, new, at
    codes = at + np.cumsum(~known) - ~known  # each new name before it moves it on by one
    return np.insert(names, at[new], more[new]), at[new], codes


def put_in(values: Any, at: IntArray, row: Any) -> Any:
    """`values` with `row` put in before each of the places `at` (as of the old array)."""
    return np.insert(values, at, row, axis=0) if at.size else values


def known_before(size: int, at: IntArray, codes: IntArray) -> BoolArray:
    """(len(codes),) whether a code is of a name that was there before, given where new ones were put in."""
    fresh = np.zeros(size, np.bool_)
    fresh[at + np.arange(at.size)] = True
    return ~fresh[codes]
