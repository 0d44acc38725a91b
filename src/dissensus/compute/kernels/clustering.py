"""Belief propagation at the nodes of one side of the graph between items and annotators; see `clustering.model`.

One kernel processes both sides. For a node (an item or an annotator), the factor of an edge is
tables[bag of the edge][cluster of the other side, cluster of the node], so that inner loops access memory in order.
"""

import numpy as np

from dissensus.common.jit import lazy_jit

MIN_PRODUCT = 1e-100  # products below this value are rescaled


@lazy_jit
def propagate_beliefs(start, stop, node_ptr, edge, bag, tables, prior, incoming, outgoing, belief, pair, damping):
    """Run belief propagation at nodes start … stop − 1, whose edges are edge[node_ptr[n]:node_ptr[n+1]].

        m_e(o) = Σ_a F_e[a, o] incoming_e(a)    belief(o) ∝ prior(o) Π_e m_e(o)    outgoing_e(o) ∝ belief(o) / m_e(o)

    Write `belief` (nodes, own), `outgoing` (E, own) and `pair`, where pair_e = Σ outgoing_e m_e up to the factor max F.
    Return Σ log of the beliefs' norms, Σ_e log pair_e, and Σ KL(belief ‖ previous belief), to which the change of
    messages is added if there is damping.
    """
    size, other = prior.size, incoming.shape[1]
    most = 1
    for n in range(start, stop):
        most = max(most, node_ptr[n + 1] - node_ptr[n])
    into = np.empty((most, size))
    product = np.empty(size)
    log_norms, log_pairs, change = 0.0, 0.0, 0.0
    for n in range(start, stop):
        first, end = node_ptr[n], node_ptr[n + 1]
        scale = 0.0
        for o in range(size):
            product[o] = prior[o]
        for at in range(first, end):
            e = edge[at]
            table, m = tables[bag[e]], into[at - first]
            for o in range(size):
                m[o] = 0.0
            for a in range(other):
                x = incoming[e, a]
                for o in range(size):
                    m[o] += table[a, o] * x
            top = 0.0
            for o in range(size):
                product[o] *= m[o]
                top = max(top, product[o])
            if top < MIN_PRODUCT:
                scale += np.log(top)
                for o in range(size):
                    product[o] /= top
        total = 0.0
        for o in range(size):
            total += product[o]
        log_norms += scale + np.log(total)
        for o in range(size):
            b = product[o] / total
            if b > 0:
                change += b * np.log(b / max(belief[n, o], 1e-300))
            belief[n, o] = b
        for at in range(first, end):
            e, m, norm = edge[at], into[at - first], 0.0
            for o in range(size):
                product[o] = belief[n, o] / m[o]
                norm += product[o]
            z = 0.0
            for o in range(size):
                value = product[o] / norm
                if damping > 0:  # messages may change although beliefs do not
                    value = (1 - damping) * value + damping * outgoing[e, o]
                    change += abs(value - outgoing[e, o]) / (end - first)
                outgoing[e, o] = value
                z += value * m[o]
            pair[e] = z
            log_pairs += np.log(z)
    return log_norms, log_pairs, change
