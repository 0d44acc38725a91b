"""Expected effect of one further label on the class posterior of every item."""

import numpy as np

from dissensus.common.jit import lazy_jit


@lazy_jit
def add_next_label(belief, theta, share, tie, least, gain, flips):
    """Add `share` times the effect of one further label to `gain` (n,) and `flips` (n,).

    The gain is Σ_y max_c q(c) Θ[c, y]. `belief` (n, K) is q, and `theta` (n or 1, K, K) is Θ [given, true], one matrix
    per item or one for all items. Classes that are less probable than `least` times the most probable one are skipped,
    because most items have few relevant classes.
    """
    n, K = belief.shape
    support, joint, was = np.empty(K, np.intp), np.empty(K), np.empty(K, np.bool_)
    for i in range(n):
        top, size, before = 0.0, 0, 0
        for c in range(K):
            top = max(top, belief[i, c])
        for c in range(K):
            if belief[i, c] > top * least:
                support[size] = c
                was[size] = belief[i, c] >= top * (1 - tie)
                before += was[size]
                size += 1
        if size == 1:  # another label cannot change the class
            gain[i] += share * top
            continue
        matrix = theta[i if theta.shape[0] > 1 else 0]
        right, changed = 0.0, 0.0
        for y in range(K):
            total, best = 0.0, 0.0
            for s in range(size):
                joint[s] = belief[i, support[s]] * matrix[y, support[s]]
                total += joint[s]
                best = max(best, joint[s])
            right += best
            if total > 0:
                after, both = 0, 0
                for s in range(size):
                    if joint[s] >= best * (1 - tie):
                        after += 1
                        both += was[s]
                changed += total * (1 - both / (before + after - both))
        gain[i] += share * right
        flips[i] += share * changed
