"""Tail probabilities of the disagreement of an item's labels, for `questions.explain`."""

import numpy as np

from dissensus.common.jit import lazy_jit


@lazy_jit
def tail_probabilities(ptr, label, chance, shift, size):
    """Return P(sum > the item's sum) and P(sum < the item's sum), each plus half of P(equal), (I, 2).

    Row r adds shift[r, k] ≥ 0 to the sum with probability chance[r, k], and its observed label is label[r]. The
    distribution of the sum is computed by one convolution per row. No sum may exceed `size`.
    """
    out = np.empty((ptr.size - 1, 2))
    now, then = np.zeros(size + 1), np.zeros(size + 1)
    for i in range(ptr.size - 1):
        now[0] = 1.0
        length, own = 1, 0
        for row in range(ptr[i], ptr[i + 1]):
            widest = 0
            for k in range(chance.shape[1]):
                widest = max(widest, shift[row, k])
            for x in range(length + widest):
                then[x] = 0.0
            for k in range(chance.shape[1]):
                p, by = chance[row, k], shift[row, k]
                for x in range(length):
                    then[x + by] += p * now[x]
            length += widest
            own += shift[row, label[row]]
            now, then = then, now
        out[i, 0] = out[i, 1] = now[own] / 2
        for x in range(length):
            if x != own:
                out[i, 0 if x > own else 1] += now[x]
    return out
