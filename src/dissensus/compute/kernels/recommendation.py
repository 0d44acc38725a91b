"""Find, for each item, the annotator whose label has the largest expected information gain per cost."""

import numpy as np

from dissensus.common.jit import lazy_jit
from dissensus.compute.kernels.items import scramble_integer


@lazy_jit
def best_pairs(
    ptr, outcomes, theta, spread, price, free, listed_ptr, listed, taken_ptr, taken, item_key, key, least, grain
):
    """Return gain, ratio, annotator and random draw, each (n,), of the best pair of each item.

    The ratio is the gain per price, rounded to multiples of `grain`. `outcomes` (B, K) are the joint probabilities of
    classes and possible pending answers; rows ptr[i]:ptr[i + 1] are those of item i. `theta` (n or 1, J, K, K) is
    P(label | class) [given, true], and `spread` (n or 1, J, K) the entropy of a label given the class. The candidates
    are the annotators `listed` for the item (all annotators if `listed_ptr` is None) who are `free` and not `taken`.
    Without candidates, the annotator is −1. Classes that are less probable than `least` times the most probable one are
    skipped. Ties of the ratio are broken by a draw keyed on both names.
    """
    K, J, n = outcomes.shape[1], price.size, ptr.size - 1
    gain, ratio, who, draw = np.zeros(n), np.full(n, -np.inf), np.full(n, -1, np.int64), np.zeros(n, np.uint64)
    of_item, support = np.full(J, -1, np.int64), np.empty(K, np.intp)
    belief = np.empty(K)
    for i in range(n):
        for at in range(taken_ptr[i], taken_ptr[i + 1]):
            of_item[taken[at]] = i
        belief[:] = 0
        before = 0.0  # Σ_b w_b log w_b over the possible pending answers
        for b in range(ptr[i], ptr[i + 1]):
            weight = 0.0
            for k in range(K):
                belief[k] += outcomes[b, k]
                weight += outcomes[b, k]
            before += weight * np.log(weight)
        top, size = belief.max(), 0
        for k in range(K):
            if belief[k] > least * top:
                support[size] = k
                size += 1
        t = i if theta.shape[0] > 1 else 0
        first, last = (0, J) if listed_ptr is None else (listed_ptr[i], listed_ptr[i + 1])
        for at in range(first, last):
            j = at if listed_ptr is None else listed[at]
            if not free[j] or of_item[j] == i:
                continue
            information = before
            for b in range(ptr[i], ptr[i + 1]):
                for y in range(K):
                    p = 0.0
                    for s in range(size):
                        p += outcomes[b, support[s]] * theta[t, j, y, support[s]]
                    if p > 0:
                        information -= p * np.log(p)
            for s in range(size):
                information -= belief[support[s]] * spread[t, j, support[s]]
            value = np.floor(information / price[j] / grain + 0.5)
            if value < ratio[i]:
                continue
            x = scramble_integer(item_key[i] ^ key[j])
            if value > ratio[i] or x > draw[i]:
                gain[i], ratio[i], who[i], draw[i] = information, value, j, x
    return gain, ratio, who, draw
