"""Classes that are equally frequent unless the labels say otherwise.

Where items have few labels, those whose labels differ go to the class that is more frequent, which makes it more
frequent still. So π lies between even shares and free ones, and leaving the even ones has a price:

    π_c = e/K + (1 − e) s_c        log p(e, s) = Σ_c b_c log s_c − (1 − e) · cost        cost ∝ (K − 1) log I

as Schwarz (1978) has it, who would take half of that. Near even shares e is about cost / χ², at most 1, χ² the
statistic of a test of even shares.

M step  s_c ∝ b_c + n_c (1 − e) s_c / π_c        then e = argmax Σ_c n_c log π_c − (1 − e) · cost, which is concave
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np

from dissensus.common.types import FloatArray
from dissensus.models.params import SHARE, SIMPLEX, Params, moved, normalised

FIRST_EVEN = 0.5  # e where EM begins
HALVINGS = 30  # of the interval that holds e: to 1e-9


@dataclass(frozen=True)
class EvenClasses(Params):
    """The parameters of π: e (1,) and s (K,)."""

    even: FloatArray = moved(SHARE, "1")
    shares: FloatArray = moved(SIMPLEX, "K")

    @property
    def prior(self) -> FloatArray:
        """(K,) π."""
        return np.asarray(self.shares + self.even * (1 / self.shares.size - self.shares))


E = TypeVar("E", bound=EvenClasses)


def uneven_cost(n_classes: int, n_items: float) -> float:
    """(K − 1) log I, of which a method asks its share for leaving even classes."""
    return (n_classes - 1) * float(np.log(max(n_items, 1)))


def best_evenness(counts: FloatArray, shares: FloatArray, cost: float) -> float:
    """The e of the M step, by `counts` (K,) of items and s, none of which is zero."""
    away = 1 / shares.size - shares

    def slope(evenness: float) -> float:
        return float((counts * away / (shares + evenness * away)).sum()) + cost

    low, high = 0.0, 1.0
    if slope(high) >= 0 or slope(low) <= 0:
        return high if slope(high) >= 0 else low
    for _ in range(HALVINGS):  # the slope falls; SciPy's root finder takes longer to import than a fit does
        middle = (low + high) / 2
        low, high = (middle, high) if slope(middle) > 0 else (low, middle)
    return (low + high) / 2


def learn_evenly(params: E, counts: FloatArray, pseudo: FloatArray, cost: float) -> E:
    """The M step from `counts` (K,) of items, with `pseudo` (K,) b."""
    uneven = (1 - params.even) * params.shares / params.prior
    shares = normalised(pseudo + counts * uneven)
    return replace(params, shares=shares, even=np.array([best_evenness(counts, shares, cost)]))
