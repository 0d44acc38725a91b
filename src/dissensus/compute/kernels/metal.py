"""Kernels of MeTaL: moments of label co-occurrences, and gradient descent of the confusion matrices.

Computing moments for all pairs of annotators on an item takes time proportional to the square of its labels. The pairs
are not needed. For annotator j, while Θ of the other annotators is fixed, only these sums are used:

    B_j[c, y] = Σ_{rows of j with y} w φ_i Σ_{k≠j on i} v_ik(c)          v_ik(c) = Σ_{rows of k on i} w Θ_k[c, y]
    S_j       = Σ_{items of j} φ_i W_ij Σ_{k≠j on i} W_ik G_k            W_ik = Σ_{rows of k on i} w

`add_moments` includes k = j, because it adds an item's sums over all annotators to each of its rows. The excess does
not depend on other annotators and is computed from counts, `count_repeats`:

    Q_j[y, y'] = Σ_{items of j} φ_i (Σ_{rows of j on i with y} w) (Σ_{rows of j on i with y'} w)

This also removes the agreement of an annotator's repeated labels on an item. G = √P Θ Θᵀ √P, so that
⟨G_j, G_k⟩ = ‖Θ_jᵀ P Θ_k‖². G is symmetric, so only its upper triangle of T = K(K+1)/2 numbers is stored. The entries
off the diagonal are multiplied by √2, so that ⟨G_j, G_k⟩ is the dot product of two triangles.

`compute_moments` computes the same moments by sparse products; it is used for short tables and as the reference of
`add_moments` in tests.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dissensus.common.arrays import is_first_of_pair, pairs_within_ranges
from dissensus.common.jit import lazy_jit
from dissensus.common.types import FloatArray
from dissensus.compute.chunk import Chunk
from dissensus.compute.kernels.items import value_or_default
from dissensus.compute.rows import Rows

MIN_ITEM_WEIGHT = 1e-290  # minimum total weight of an item's labels, so that its reciprocal is finite


@lazy_jit
def add_moments(start, stop, rows, gold, confusion, gram, met, grams_met):
    """Add B to `met` (A, K, K) [annotator, given, true] and S to `grams_met` (A, T), both including k = j.

    `confusion` is Θ (A, K, K) [annotator, given, true], `gram` is G (A, T), and `rows` are `Rows.arrays`. `gold` (I,)
    may be None. Gold items are skipped, because their class is better evidence than the agreement of their labels.
    """
    item_ptr, annotator, label, weight = rows
    K, T = confusion.shape[2], gram.shape[1]
    votes, grams = np.empty(K), np.empty(T)
    for i in range(start, stop):
        # With unsigned indices, numba does not check signs.
        first, end = np.uintp(item_ptr[i]), np.uintp(item_ptr[i + 1])
        if value_or_default(gold, i, -1) >= 0:
            continue
        votes[:] = 0.0
        grams[:] = 0.0
        total = 0.0
        for row in range(first, end):
            j, y, w = np.uintp(annotator[row]), np.uintp(label[row]), value_or_default(weight, row, 1.0)
            total += w
            for k in range(K):
                votes[k] += w * confusion[j, y, k]
            for t in range(T):
                grams[t] += w * gram[j, t]
        if total <= MIN_ITEM_WEIGHT:
            continue
        factor = 1.0 / total  # φ
        for row in range(first, end):
            j, y, w = np.uintp(annotator[row]), np.uintp(label[row]), factor * value_or_default(weight, row, 1.0)
            for k in range(K):
                met[j, y, k] += w * votes[k]
            for t in range(T):
                grams_met[j, t] += w * grams[t]


def compute_moments(
    labels: Any, factor: FloatArray, confusion: FloatArray, gram: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return the moments for sparse `labels` (I, A·K) of `build_label_matrix` and φ (I,), zero for skipped items."""
    A, K = confusion.shape[:2]
    both = np.concatenate([confusion.reshape(A * K, K), np.repeat(gram, K, axis=0)], axis=1)
    met = labels.T @ (factor[:, None] * (labels @ both))
    return met[:, :K].reshape(A, K, K), met[:, K:].reshape(A, K, -1).sum(axis=1)


def count_repeats(rows: Rows, factor: FloatArray, n_annotators: int, n_classes: int) -> FloatArray:
    """Return Q (A, K, K), given φ (I,); rows of one annotator on one item must be consecutive."""
    K, annotator, label = n_classes, rows.annotator, rows.label
    chunk = Chunk(rows.arrays, None, n_annotators, K)
    share = chunk.apply_weights(np.sqrt(factor)[chunk.item])
    out = chunk.scatter_sum(chunk.annotator_label * K + label, share * share, n_annotators * K * K)
    starts = np.flatnonzero(is_first_of_pair(chunk.item, annotator))
    length = np.diff(starts, append=annotator.size)
    one, other = pairs_within_ranges(starts[length > 1], length[length > 1])
    for left, right in ((one, other), (other, one)):
        out += chunk.scatter_sum(chunk.annotator_label[left] * K + label[right], share[left] * share[right], out.size)
    return np.asarray(out.reshape(n_annotators, K, K))


def descend_on_simplex(confusion: FloatArray, pull: FloatArray, curvature: FloatArray, steps: int) -> FloatArray:
    """Minimise tr(Θᵀ H Θ) − 2⟨R, Θ⟩ with rows of Θ on the simplex, and return Θ.

    Run `steps` steps of projected gradient descent with Nesterov momentum. `pull` R and `confusion` Θ have the shape
    (A, K, K) [annotator, given, true], and `curvature` H (A, K, K) is symmetric with a positive diagonal. Each class
    has its own step length 1/L_c with L_c = √H_cc Σ_d |H_cd|/√H_dd. So diag(L) − H is positive semi-definite
    (diagonally dominant after scaling), and rare classes, whose H is small, converge as fast as the others.
    """
    # The transposed arrays have the axes [true, given, annotator].
    x, target, H = (np.ascontiguousarray(values.T) for values in (confusion, pull, curvature))
    root = np.sqrt(np.einsum("cca->ca", H))
    length = 1 / (root * (np.abs(H) / root).sum(axis=1))
    z, momentum = x, 1.0
    for _ in range(steps):
        before, x = x, project_to_simplex(z + length[:, None] * (target - np.einsum("cda,dya->cya", H, z)))
        after = (1 + np.sqrt(1 + 4 * momentum**2)) / 2
        z, momentum = x + (momentum - 1) / after * (x - before), after
    return np.ascontiguousarray(x.T)


def project_to_simplex(x: FloatArray) -> FloatArray:
    """Project x (n, K, m) to the simplex along the middle axis (Michelot 1986).

    Subtract the same amount from all entries so that they sum to one, and set negative entries to zero. Repeat this
    with the other entries until none is negative.
    """
    inside, above = np.ones(x.shape, bool), np.array(0)
    while True:
        n = inside.sum(axis=1, keepdims=True)
        shift = (np.where(inside, x, 0).sum(axis=1, keepdims=True) - 1) / n
        if (n == above).all():
            return np.asarray(np.maximum(x - shift, 0))
        inside, above = x > shift, n
