"""Functions that several kernels share: optional arrays, the posterior of one item, and a hash of an integer."""

import numpy as np

from dissensus.common.jit import lazy_jit


@lazy_jit
def value_or_default(values, at, default):
    """Return `values[at]`, or the default if `values` is None; numba compiles only the branch that is needed."""
    return default if values is None else values[at]


@lazy_jit
def normalise_item(log_joint, gold_class, q):
    """Write the posterior q (K,), given log joint probabilities and the gold class or −1; return the log evidence."""
    K = log_joint.size
    if gold_class >= 0:
        evidence = float(log_joint[gold_class])  # read before writing q, which may be the same array
        for k in range(K):
            q[k] = 1.0 if k == gold_class else 0.0
        return evidence
    top = log_joint[0]
    for k in range(1, K):
        top = max(top, log_joint[k])
    total = 0.0
    for k in range(K):
        q[k] = np.exp(log_joint[k] - top)
        total += q[k]
    for k in range(K):
        q[k] /= total
    return float(top + np.log(total))


@lazy_jit
def scramble_integer(x):
    """Return the value of `table.names.scramble_integers` for one 64-bit integer."""
    x += np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))
