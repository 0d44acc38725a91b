"""How often each class is the truth, where annotators may name one too often: between all alike and the votes' shares.

    π = e/K + (1 − e) s        s: shares of the votes, e in [0, 1]: how even
    objective: log evidence − (K − 1) log(items) · (1 − e)

What annotators name too often is no class that is too frequent, and few items cannot tell the two apart. So π is on the
line from s to all classes alike, e is learnt with the rest, and the votes must explain the labels better than that by
log(items) nats for every class but one, twice what BIC takes for so many numbers. π that is learnt without such a line
runs off to one class where labels are few.
"""

from __future__ import annotations

import numpy as np
from scipy.optimize import brentq

from dissensus.common.types import FloatArray

FIRST_EVENNESS = 0.5  # where EM begins
TOLERANCE = 1e-6  # of e


def votes_cost(n_items: int, n_classes: int) -> float:
    """What the objective loses where π are the shares of the votes."""
    return (n_classes - 1) * float(np.log(max(n_items, 1)))


def best_evenness(counts: FloatArray, shares: FloatArray, cost: float) -> float:
    """The M step: e with the largest Σ_k counts_k log π_k − cost · (1 − e), which is concave; no share is zero."""
    away = 1 / shares.size - shares

    def slope(evenness: float) -> float:
        return float((counts * away / (shares + evenness * away)).sum()) + cost

    if slope(1.0) >= 0:
        return 1.0
    return 0.0 if slope(0.0) <= 0 else float(brentq(slope, 0.0, 1.0, xtol=TOLERANCE))
