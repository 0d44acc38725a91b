"""Estimate the intra-item correlation ρ and class shifts s from gold; see `models.tempering`.

ρ and s minimise the log loss on gold items. A prior on log ρ shrinks ρ to the default. Gold labels also show which
classes the crowd uses too often; s_c shifts the log posterior of class c. The shifts are a ridge estimate with s_c ~
N(0, σ²), computed from a fit without gold. σ is the value in `SHIFT_SD_GRID`, or zero, that maximises the evidence of
the gold classes (Laplace's approximation), so shifts are 0 unless gold supports them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from dissensus.common.types import FloatArray, IntArray
from dissensus.models.tempering import DEFAULT_CORRELATION, MIN_PROBABILITY, LogOffset, Tempering

LOG_CORRELATION_SD = 1.0  # prior SD of log ρ around its default; for two of three data sets ρ is within a factor of 2.7
CORRELATION_GRID = np.geomspace(0.01, 10, 61)  # grid of ρ
SHIFT_SD_GRID = (0.15, 0.3, 0.5, 0.8)  # grid of σ
MAX_SHIFTED_CLASSES = 200  # maximum number of classes for shifts, whose cost is cubic
MAX_GOLD_ITEMS = 10_000  # maximum number of gold items that are used; they are evenly spaced
MAX_ALTERNATIONS = 2  # maximum number of estimates of shifts and ρ in turn; a third one changes log loss by < 0.001
NEWTON_STEPS = 8  # number of Newton steps per estimate of the shifts


def gold_items_with_labels(gold: IntArray | None, table: Any) -> IntArray:
    """Return the indices of the items with gold and labels."""
    if gold is None:
        return np.empty(0, np.int64)
    usable = gold >= 0
    if hasattr(table, "item_ptr"):  # all items of a remote table have labels
        usable &= np.diff(table.item_ptr) > 0
    return np.flatnonzero(usable)


def tempering_from_gold(
    posterior: FloatArray, n_labels: FloatArray, gold: IntArray, *, shifts: bool = True
) -> Tempering:
    """Return the ρ and the class shifts with the smallest log loss on gold items; `posterior` is not tempered."""
    used = slice(None, None, -(-gold.size // MAX_GOLD_ITEMS))
    posterior, n_labels, gold = posterior[used], n_labels[used], gold[used]
    at_gold = np.arange(gold.size), gold
    shift: LogOffset = None

    def log_probability(rho: float) -> float:
        at_gold_class = Tempering(rho, shift=shift).temper(posterior, n_labels)[at_gold]
        return float(np.log(np.maximum(at_gold_class, MIN_PROBABILITY)).sum())

    best = fit_correlation(log_probability)
    for _ in range(MAX_ALTERNATIONS if shifts else 0):
        shift = fit_class_shifts(Tempering(best.dependence).temper(posterior, n_labels), gold)
        if shift is None:
            break
        best = fit_correlation(log_probability)
    return replace(best, shift=shift)


def fit_correlation(log_probability: Callable[[float], float]) -> Tempering:
    """Return ρ, shrunk to the default, and its interval, given the log probability of gold as a function of ρ."""
    scores = np.array(
        [
            log_probability(rho) - (np.log(rho / DEFAULT_CORRELATION) / LOG_CORRELATION_SD) ** 2 / 2
            for rho in CORRELATION_GRID.tolist()
        ]
    )
    below = np.cumsum(np.exp(scores - scores.max()))
    low, high = np.exp(np.interp([0.025, 0.975], below / below[-1], np.log(CORRELATION_GRID)))
    best = float(CORRELATION_GRID[scores.argmax()])
    return Tempering(best, (min(float(low), best), max(float(high), best)))


def fit_class_shifts(tempered: FloatArray, gold: IntArray) -> LogOffset:
    """Return the class shifts s (K,) for the σ with the largest evidence, or None if this σ is zero."""
    K, at_gold = tempered.shape[1], (np.arange(gold.size), gold)
    if K > MAX_SHIFTED_CLASSES:
        return None
    count, best = np.bincount(gold, minlength=K), None
    most = np.log(np.maximum(tempered[at_gold], MIN_PROBABILITY)).sum()
    for sd in SHIFT_SD_GRID:
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
