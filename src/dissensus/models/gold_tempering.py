"""The intra-item correlation ρ and class shifts s with the least log loss on gold items; see `models.tempering`.

ρ is drawn to the default by a prior on log ρ. Gold also shows which classes the crowd names too often: s_c, a shift of
every class, 0 without gold. It is a ridge estimate, s_c ~ N(0, σ²), by a fit that has not seen the gold; σ is that of
`SHIFT_SDS`, or none, under which the gold classes are most probable (Laplace's approximation of the evidence), so
shifts that gold does not support are 0.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from dissensus.common.types import FloatArray, IntArray
from dissensus.models.tempering import DEFAULT_CORRELATION, MIN_PROBABILITY, Shift, Tempering

PRIOR_SD = 1.0  # SD of log ρ around the default: the ρ that gold chooses is within a factor of 2.7 on two sets of three
CORRELATIONS = np.geomspace(0.01, 10, 61)  # ρ that gold chooses from
SHIFT_SDS = (0.15, 0.3, 0.5, 0.8)  # σ of the class shifts that gold chooses from
MAX_SHIFTED_CLASSES = 200  # with more classes there are no shifts, whose cost is cubic in them
MAX_GOLD = 10_000  # gold items that are used, spread evenly
MAX_ROUNDS = 2  # rounds of shifts given ρ, then ρ given shifts; a third changed log loss by less than 0.001
NEWTON_STEPS = 8  # Newton steps for the shifts


def gold_items_with_labels(gold: IntArray | None, table: Any) -> IntArray:
    """Return the numbers of the items that have gold and labels: they may determine ρ."""
    if gold is None:
        return np.empty(0, np.int64)
    known = gold >= 0
    if hasattr(table, "item_ptr"):  # in a remote table, all items have labels
        known &= np.diff(table.item_ptr) > 0
    return np.flatnonzero(known)


def tempering_from_gold(
    posterior: FloatArray, n_labels: FloatArray, gold: IntArray, *, shifts: bool = True
) -> Tempering:
    """Return ρ and shifts with the least log loss on gold items; `posterior` (I, K) is that of independent labels."""
    used = slice(None, None, -(-gold.size // MAX_GOLD))
    posterior, n_labels, gold = posterior[used], n_labels[used], gold[used]
    at_gold = np.arange(gold.size), gold
    shift: Shift = None

    def log_probability(rho: float) -> float:
        known = Tempering(rho, shift=shift).temper(posterior, n_labels)[at_gold]
        return float(np.log(np.maximum(known, MIN_PROBABILITY)).sum())

    best = fit_correlation(log_probability)
    for _ in range(MAX_ROUNDS if shifts else 0):
        shift = fit_class_shifts(Tempering(best.dependence).temper(posterior, n_labels), gold)
        if shift is None:
            break
        best = fit_correlation(log_probability)
    return replace(best, shift=shift)


def fit_correlation(log_probability: Callable[[float], float]) -> Tempering:
    """Return ρ and its interval from the log probability of gold at each ρ, drawn to the default."""
    scores = np.array(
        [
            log_probability(rho) - (np.log(rho / DEFAULT_CORRELATION) / PRIOR_SD) ** 2 / 2
            for rho in CORRELATIONS.tolist()
        ]
    )
    below = np.cumsum(np.exp(scores - scores.max()))
    low, high = np.exp(np.interp([0.025, 0.975], below / below[-1], np.log(CORRELATIONS)))
    best = float(CORRELATIONS[scores.argmax()])
    return Tempering(best, (min(float(low), best), max(float(high), best)))


def fit_class_shifts(tempered: FloatArray, gold: IntArray) -> Shift:
    """(K,) s by Newton's method for every σ; None if 0 has the greatest evidence."""
    K, at_gold = tempered.shape[1], (np.arange(gold.size), gold)
    if K > MAX_SHIFTED_CLASSES:
        return None
    count, best = np.bincount(gold, minlength=K), None
    most = np.log(np.maximum(tempered[at_gold], MIN_PROBABILITY)).sum()
    for sd in SHIFT_SDS:
        shift = np.zeros(K)
        for _ in range(NEWTON_STEPS):
            q = tempered * np.exp(shift)
            q /= q.sum(axis=1, keepdims=True)
            curvature = np.eye(K) + sd**2 * (np.diag(q.sum(axis=0)) - q.T @ q)
            shift = shift + np.clip(np.linalg.solve(curvature, sd**2 * (count - q.sum(axis=0)) - shift), -1, 1)
        evidence = np.log(np.maximum(q[at_gold], MIN_PROBABILITY)).sum() - (shift @ shift) / (2 * sd**2)
        evidence -= np.linalg.slogdet(curvature)[1] / 2
        if evidence > most:
            most, best = evidence, shift
    return best
