"""Loops of MeTaL: which labels met which on the items, and a step of every annotator towards what they say.

Summed over all pairs of annotators who share an item, moments cost the square of an item's labels. Nothing needs the
pairs themselves. For annotator j, with everybody else's Θ as it is, what counts is

    B_j[c, y] = Σ_{rows of j with y} w φ_i Σ_{k≠j on i} v_ik(c)          v_ik(c) = Σ_{rows of k on i} w Θ_k[c, y]
    S_j       = Σ_{items of j} φ_i W_ij Σ_{k≠j on i} W_ik G_k            W_ik = Σ_{rows of k on i} w

`meet` takes k = j along: an item's sums over everybody, handed back to each of its rows. What that is too much does not
depend on the others and comes from counts that are made once, `repeats`:

    Q_j[y, y'] = Σ_{items of j} φ_i (Σ_{rows of j on i with y} w) (Σ_{rows of j on i with y'} w)

which also keeps the labels that an annotator repeats on an item from agreeing with each other. G = √P Θ Θᵀ √P, so that
⟨G_j, G_k⟩ = ‖Θ_jᵀ P Θ_k‖²; it is symmetric, and its upper triangle is kept, T = K(K+1)/2 numbers, off the diagonal
times √2: ⟨G_j, G_k⟩ is the plain dot product of two triangles.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dissensus.common.jit import compiled
from dissensus.common.types import FloatArray, IntArray

MIN_ITEM_WEIGHT = 1e-290  # weight of an item's labels that counts: one over it is still a number


@compiled
def triangles(start: int, stop: int, confusion: FloatArray, scale: FloatArray, gram: FloatArray) -> None:
    """Write G = D Θ Θᵀ D, D = diag(`scale`), of annotators start … stop − 1 to `gram` (A, T)."""
    K = confusion.shape[2]
    for a in range(start, stop):
        t = 0
        for c in range(K):
            for d in range(c, K):
                product = 0.0
                for y in range(K):
                    product += confusion[a, y, c] * confusion[a, y, d]
                gram[a, t] = product * scale[c] * scale[d] * (1.0 if c == d else np.sqrt(2.0))
                t += 1


@compiled
def meet(
    start: int,
    stop: int,
    item_ptr: IntArray,
    annotator: IntArray,
    label: IntArray,
    weight: Any,
    gold: Any,
    confusion: FloatArray,
    gram: FloatArray,
    met: FloatArray,
    grams_met: FloatArray,
) -> None:
    """Add B to `met` (A, K, K) [annotator, given, true] and S to `grams_met` (A, T), each with k = j, of some items.

    `confusion` Θ (A, K, K) [annotator, given, true], `gram` (A, T); `weight` (N,) and `gold` (I,) may be None. Items of
    known class are passed over: what their labels say of each other is less than what the class says of them.
    """
    K, T = confusion.shape[2], gram.shape[1]
    votes, grams = np.empty(K), np.empty(T)
    for i in range(start, stop):
        first, end = np.uintp(item_ptr[i]), np.uintp(item_ptr[i + 1])  # unsigned: no index need be checked for its sign
        if gold is not None:
            if gold[i] >= 0:
                continue
        votes[:] = 0.0
        grams[:] = 0.0
        total = 0.0
        for row in range(first, end):
            j, y = np.uintp(annotator[row]), np.uintp(label[row])
            w = 1.0
            if weight is not None:
                w = weight[row]
            total += w
            for k in range(K):
                votes[k] += w * confusion[j, y, k]
            for t in range(T):
                grams[t] += w * gram[j, t]
        if total <= MIN_ITEM_WEIGHT:
            continue
        for row in range(first, end):
            j, y = np.uintp(annotator[row]), np.uintp(label[row])
            w = 1.0 / total  # φ
            if weight is not None:
                w *= weight[row]
            for k in range(K):
                met[j, y, k] += w * votes[k]
            for t in range(T):
                grams_met[j, t] += w * grams[t]


@compiled
def repeats(
    item_ptr: IntArray, annotator: IntArray, label: IntArray, weight: Any, gold: Any, n_annotators: int, n_classes: int
) -> FloatArray:
    """(A, K, K) Q. The rows of one annotator on one item stand together."""
    out = np.zeros((n_annotators, n_classes, n_classes))
    given = np.zeros(n_classes)
    for i in range(item_ptr.size - 1):
        first, end = item_ptr[i], item_ptr[i + 1]
        if gold is not None:
            if gold[i] >= 0:
                continue
        total = float(end - first)
        if weight is not None:
            total = weight[first:end].sum()
        if total <= MIN_ITEM_WEIGHT:
            continue
        row = first
        while row < end:
            j, begin = annotator[row], row
            while row < end and annotator[row] == j:
                w = 1.0
                if weight is not None:
                    w = weight[row]
                given[label[row]] += w
                row += 1
            if row - begin == 1:
                y = label[begin]
                out[j, y, y] += given[y] * given[y] / total
                given[y] = 0.0
            else:
                for y in range(n_classes):
                    for z in range(n_classes):
                        out[j, y, z] += given[y] * given[z] / total
                given[:] = 0.0
    return out


@compiled
def improve(
    start: int,
    stop: int,
    confusion: FloatArray,
    pull: FloatArray,
    curvature: FloatArray,
    steps: int,
    better: FloatArray,
) -> None:
    """Descend tr(Θᵀ H Θ) − 2⟨R, Θ⟩ from Θ, rows kept on the simplex, for annotators start … stop − 1.

    `steps` of projected gradient with Nesterov's momentum. `pull` R and `confusion` Θ are (A, K, K) [annotator, given,
    true], `curvature` H (A, K, K) is symmetric with a positive diagonal. Every class has a step length of its own,
    1/L_c with L_c = √H_cc Σ_d |H_cd|/√H_dd: diag(L) − H is positive semi-definite (diagonally dominant once scaled),
    and a rare class, whose H is small, moves as fast as the others.
    """
    K = confusion.shape[1]
    x, z, old, target = np.empty((K, K)), np.empty((K, K)), np.empty((K, K)), np.empty((K, K))  # [true, given] here
    length = np.empty(K)
    for a in range(start, stop):
        H = curvature[a]
        for c in range(K):
            bound = 0.0
            for d in range(K):
                bound += abs(H[c, d]) / np.sqrt(H[d, d])
            length[c] = 1.0 / (bound * np.sqrt(H[c, c]))
            for y in range(K):
                x[c, y] = z[c, y] = confusion[a, y, c]
                target[c, y] = pull[a, y, c]
        momentum = 1.0
        for _ in range(steps):
            old[:] = x
            for c in range(K):
                for y in range(K):
                    x[c, y] = target[c, y]
                for d in range(K):
                    h = H[c, d]
                    for y in range(K):
                        x[c, y] -= h * z[d, y]
                for y in range(K):
                    x[c, y] = z[c, y] + length[c] * x[c, y]
                project(x[c])
            after = (1.0 + np.sqrt(1.0 + 4.0 * momentum * momentum)) / 2.0
            ahead = (momentum - 1.0) / after
            momentum = after
            for c in range(K):
                for y in range(K):
                    z[c, y] = x[c, y] + ahead * (x[c, y] - old[c, y])
        for c in range(K):
            for y in range(K):
                better[a, y, c] = x[c, y]


@compiled
def project(x: FloatArray) -> None:
    """Move x (K,) to the nearest point whose entries are 0 or more and sum to one.

    All entries fall by the same amount until they sum to one; those that it takes below zero leave, which leaves more
    to fall for the others, until none leaves (Michelot 1986).
    """
    K = x.size
    shift, above = -np.inf, 0
    while True:
        total, n = 0.0, 0
        for k in range(K):
            if x[k] > shift:
                total += x[k]
                n += 1
        shift = (total - 1.0) / n
        if n == above:
            break
        above = n
    for k in range(K):
        x[k] = max(x[k] - shift, 0.0)
