"""Messages, counts and logits of the joint model of item and annotator clusters, over edges.

An edge is one (item, annotator) pair, with all labels of that pair: its *bag*. Edges with the same bag share a factor
F[k, l] = Π_{labels p of the bag} Θ[k, l, p]^weight, held up to a constant: F / max F, and log max F beside it.
`bags` is (ptr, label, weight): bag b has the labels label[ptr[b]:ptr[b+1]].

One kernel serves both sides of the graph. Of a node (item or annotator) with `size` clusters, a factor is
table[other side's cluster, own cluster], so that the inner loops run over memory in order.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dissensus.common.jit import compiled
from dissensus.common.types import FloatArray, IntArray

FLOOR = -200.0  # log F − log max F of one edge goes no lower: the product of a few cannot underflow
TINY = 1e-100  # a product below it is scaled up


@compiled
def fill(
    bag: int, ptr: IntArray, label: IntArray, weight: FloatArray, log_theta: FloatArray, table: FloatArray
) -> float:
    """Put F / max F of one bag into `table`, from log Θ (P, other, own); returns log max F."""
    table[:, :] = 0.0
    for at in range(ptr[bag], ptr[bag + 1]):
        p, w = label[at], weight[at]
        for a in range(table.shape[0]):
            for b in range(table.shape[1]):
                table[a, b] += w * log_theta[p, a, b]
    top: float = table.max()
    for a in range(table.shape[0]):
        for b in range(table.shape[1]):
            table[a, b] = np.exp(max(table[a, b] - top, FLOOR))
    return top


@compiled
def fill_all(
    ptr: IntArray, label: IntArray, weight: FloatArray, log_theta: FloatArray, tables: FloatArray, tops: FloatArray
) -> None:
    """`fill` for every bag: tables (B, other, own), tops (B,)."""
    for bag in range(ptr.size - 1):
        tops[bag] = fill(bag, ptr, label, weight, log_theta, tables[bag])


@compiled
def sweep(
    start: int,
    stop: int,
    node_ptr: IntArray,
    edge: IntArray,
    bag: IntArray,
    ptr: IntArray,
    label: IntArray,
    weight: FloatArray,
    log_theta: FloatArray,
    tables: FloatArray,
    prior: FloatArray,
    incoming: FloatArray,
    outgoing: FloatArray,
    belief: FloatArray,
    pair: FloatArray,
    damping: float,
) -> tuple[float, float, float]:
    """Belief propagation at nodes start … stop − 1, whose edges are edge[node_ptr[n]:node_ptr[n+1]].

        m_e(o) = Σ_a F_e[a, o] incoming_e(a)    belief(o) ∝ prior(o) Π_e m_e(o)    outgoing_e(o) ∝ belief(o) / m_e(o)

    Writes belief (nodes, own), outgoing (E, own) and pair_e = Σ outgoing_e m_e, up to max F; returns Σ log of the
    beliefs' norms, Σ_e log pair_e and Σ KL(belief ‖ belief before), with damping also how far
    messages moved. Where `tables` is empty, factors are made anew.
    """
    size, other = prior.size, incoming.shape[1]
    most = 1
    for n in range(start, stop):
        most = max(most, node_ptr[n + 1] - node_ptr[n])
    into = np.empty((most, size))
    product, made = np.empty(size), np.empty((other, size))
    log_norms, log_pairs, change = 0.0, 0.0, 0.0
    for n in range(start, stop):
        first, end = node_ptr[n], node_ptr[n + 1]
        scale = 0.0
        for o in range(size):
            product[o] = prior[o]
        for at in range(first, end):
            e = edge[at]
            if tables.shape[0] > 0:
                table = tables[bag[e]]
            else:
                fill(bag[e], ptr, label, weight, log_theta, made)
                table = made
            m = into[at - first]
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
            if top < TINY:
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
                if damping > 0:  # messages may still move where beliefs do not
                    value = (1 - damping) * value + damping * outgoing[e, o]
                    change += abs(value - outgoing[e, o]) / (end - first)
                outgoing[e, o] = value
                z += value * m[o]
            pair[e] = z
            log_pairs += np.log(z)
    return log_norms, log_pairs, change


@compiled
def pair_counts(
    start: int,
    stop: int,
    bag: IntArray,
    ptr: IntArray,
    label: IntArray,
    weight: FloatArray,
    log_theta: FloatArray,
    tables: FloatArray,
    to_item: FloatArray,
    to_annotator: FloatArray,
    pair: FloatArray,
    counts: FloatArray,
) -> None:
    """Add b_e(k, l) = ν_e(k) F_e[k, l] μ_e(l) / norm of edges start … stop − 1 to counts (P, K, L), once per label.

    `to_annotator` is ν (E, K), `to_item` μ (E, L), `tables` (B, K, L).
    """
    K, L = counts.shape[1:]
    made, belief = np.empty((K, L)), np.empty((K, L))
    for e in range(start, stop):
        if tables.shape[0] > 0:
            table = tables[bag[e]]
        else:
            fill(bag[e], ptr, label, weight, log_theta, made)
            table = made
        first, end = ptr[bag[e]], ptr[bag[e] + 1]
        if end == first + 1:
            cell, share = counts[label[first]], weight[first] / pair[e]
            for k in range(K):
                x = to_annotator[e, k] * share
                for l in range(L):
                    cell[k, l] += x * table[k, l] * to_item[e, l]
        else:
            for k in range(K):
                x = to_annotator[e, k] / pair[e]
                for l in range(L):
                    belief[k, l] = x * table[k, l] * to_item[e, l]
            for at in range(first, end):
                cell, w = counts[label[at]], weight[at]
                for k in range(K):
                    for l in range(L):
                        cell[k, l] += w * belief[k, l]


@compiled
def product_counts(
    start: int,
    stop: int,
    item: IntArray,
    annotator: IntArray,
    bag: IntArray,
    ptr: IntArray,
    label: IntArray,
    weight: FloatArray,
    of_item: FloatArray,
    of_annotator: FloatArray,
    counts: FloatArray,
) -> None:
    """Add w_i(k) z_j(l) of edges start … stop − 1 to counts (P, K, L), once per label."""
    K, L = counts.shape[1:]
    for e in range(start, stop):
        i, j = item[e], annotator[e]
        for at in range(ptr[bag[e]], ptr[bag[e] + 1]):
            cell = counts[label[at]]
            for k in range(K):
                x = of_item[i, k] * weight[at]
                for l in range(L):
                    cell[k, l] += x * of_annotator[j, l]


@compiled
def hard_counts(
    item: IntArray,
    annotator: IntArray,
    bag: IntArray,
    ptr: IntArray,
    label: IntArray,
    weight: FloatArray,
    of_item: IntArray,
    of_annotator: IntArray,
    counts: FloatArray,
) -> None:
    """Add the labels of every edge to counts (K, L, P) of its item's and its annotator's cluster."""
    for e in range(bag.size):
        cell = counts[of_item[item[e]], of_annotator[annotator[e]]]
        for at in range(ptr[bag[e]], ptr[bag[e] + 1]):
            cell[label[at]] += weight[at]


@compiled
def logits(
    start: int,
    stop: int,
    node_ptr: IntArray,
    edge: IntArray,
    bag: IntArray,
    ptr: IntArray,
    label: IntArray,
    weight: FloatArray,
    log_theta: FloatArray,
    log_prior: FloatArray,
    other: IntArray,
    cluster: IntArray,
    out: FloatArray,
) -> None:
    """out[n, o] = log prior(o) + Σ_e log F_e[cluster of the other end, o] for nodes start … stop − 1.

    `other` (E,) is the node at the other end, `cluster` the cluster of each such node; `log_theta` (P, other, own).
    """
    size = log_prior.size
    for n in range(start, stop):
        row = out[n]
        for o in range(size):
            row[o] = log_prior[o]
        for at in range(node_ptr[n], node_ptr[n + 1]):
            e = edge[at]
            c = cluster[other[e]]
            for within in range(ptr[bag[e]], ptr[bag[e] + 1]):
                w = weight[within]
                logs = log_theta[label[within], c]
                for o in range(size):
                    row[o] += w * logs[o]


@compiled
def pick(start: int, stop: int, logs: FloatArray, coldness: float, uniform: FloatArray, chosen: Any) -> None:
    """Draw chosen[n] with probability ∝ exp(coldness · logs[n]), by one uniform number each; arg max where infinite."""
    size = logs.shape[1]
    share = np.empty(size)
    for n in range(start, stop):
        best = 0
        for o in range(1, size):
            if logs[n, o] > logs[n, best]:
                best = o
        if np.isinf(coldness):
            chosen[n] = best
            continue
        total = 0.0
        for o in range(size):
            total += np.exp(coldness * (logs[n, o] - logs[n, best]))
            share[o] = total
        limit, o = uniform[n] * total, 0
        while o < size - 1 and share[o] <= limit:
            o += 1
        chosen[n] = o
