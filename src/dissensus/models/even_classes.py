"""Classes that are equally frequent unless the labels say otherwise.

Where items have few labels, those whose labels differ go to the class that is more frequent, which makes it more
frequent still. So π lies between even shares and free ones, and leaving the even ones has a price:

    π_c = e u_c + (1 − e) s_c      log p(e, s) = Σ_c b_c log s_c − (1 − e) · cost      cost ∝ (Σ_c w_c − 1) log I

as Schwarz (1978) has it, who would take half of that. Near even shares e is about cost / χ², at most 1, χ² the
statistic of a test of even shares. Even are the classes that annotators do name: u_c ∝ w_c = min(1, K v_c / `RARE`), v
the shares of the votes and of one item more that is every class alike. A class that next to nobody names (a typing
error, or one that was declared and not used) is no sign of reluctance.

M step  s_c ∝ b_c + n_c (1 − e) s_c / π_c        then e = argmax Σ_c n_c log π_c − (1 − e) · cost, which is concave
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np

from dissensus.common.types import FloatArray
from dissensus.models.dependence import RARE
from dissensus.models.params import SHARE, SIMPLEX, Params, moved, normalised

FIRST_EVEN = 0.5  # e where EM begins
HALVINGS = 30  # of the interval that holds e: to 1e-9


@dataclass(frozen=True)
class EvenClasses(Params):
    """The parameters of π: e (1,), s (K,), and u (K,), which is fixed."""

    even: FloatArray = moved(SHARE, "1")
    shares: FloatArray = moved(SIMPLEX, "K")
    level: FloatArray = moved(axes="K")

    @property
    def prior(self) -> FloatArray:
        """(K,) π."""
        return np.asarray(self.shares + self.even * (self.level - self.shares))


E = TypeVar("E", bound=EvenClasses)


def even_weights(classes: FloatArray) -> FloatArray:
    """(K,) w, by items of each class (K,) as voted."""
    K = classes.size
    return np.asarray(np.minimum((K * classes + 1) / (classes.sum() + 1) / RARE, 1))


def uneven_cost(weights: FloatArray, n_items: float) -> float:
    """(Σ w − 1) log I, of which a method asks its share for leaving even classes; `weights` (K,) are w."""
    return (float(weights.sum()) - 1) * float(np.log(max(n_items, 1)))


def best_evenness(params: EvenClasses, counts: FloatArray, cost: float) -> float:
    """The e of the M step, by `counts` (K,) of items; no s is zero."""
    shares, away = params.shares, params.level - params.shares

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
    params = replace(params, shares=normalised(pseudo + counts * uneven))
    return replace(params, even=np.array([best_evenness(params, counts, cost)]))
