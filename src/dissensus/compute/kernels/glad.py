"""The EM pass of GLAD, computed in one loop: posteriors, easiness of items, and sums for the ability of annotators.

A row of annotator j on item i has the logit x = α_j β_i, β_i = exp(b_i), and for its label y

    log P(y | z = y) − log P(y | z ≠ y) = x + log(K − 1)        log P(y | z ≠ y) = −log(1 + eˣ) − log(K − 1)

so the posterior needs neither exponential nor logarithm per row, and only the entry of the row's own label changes.
Instead of the expected log likelihood Σ w (q[y] x − log(1 + eˣ)), the M step maximises a lower bound, the parabola in
x that touches it at the old x (Jaakkola & Jordan 2000):

    Σ w ((q[y] − ½) x − ½ c x²) + constant,        c = tanh(x_old / 2) / (2 x_old)

Given α, the bound and the prior of b_i are a function of one number, B β − ½ A β² − ½ τ b², which is maximised without
another pass over the rows. Given β, the bound is a parabola in α_j with two coefficients, which are sums over the rows
of annotator j. A pass computes one exponential per row. `process_arrays` is the array form, for NumPy and torch, and
the reference of `process_items`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dissensus.common.jit import lazy_jit
from dissensus.compute.chunk import Chunk, array_library, normalise_log_joint
from dissensus.compute.kernels.items import normalise_item, value_or_default

MAX_NEWTON_STEPS = 8  # maximum number of Newton steps; usually two or three are needed
MIN_NEWTON_STEP = 1e-6  # minimum length of a Newton step; a shorter one ends the maximisation


@lazy_jit
def process_items(
    start, stop, rows, ability, easiness, log_prior, precision, gold, next_easiness, pull, curvature, prior_counts,
    posterior,
):  # fmt: skip
    """Process items start … stop − 1 and return their log evidence.

    `ability` is α (A,), `easiness` is b (I,), and `precision` is the precision τ of b's prior. Write the b of the next
    pass to `next_easiness` (I,). Add the sums that determine the next α to `pull` and `curvature` (A,): the next α is
    pull / curvature after the terms of the prior have been added. `weight` (N,) and `gold` (I,) may be None, and
    `posterior` (I, K) empty.
    """
    item_ptr, annotator, label, weight = rows
    K = log_prior.size
    log_wrong = np.log(max(K - 1, 1))
    longest = 0
    for i in range(start, stop):
        longest = max(longest, item_ptr[i + 1] - item_ptr[i])
    bend = np.empty(longest)  # c of each row of an item
    q = np.empty(K)
    evidence, product = 0.0, 1.0
    for i in range(start, stop):
        first, end = item_ptr[i], item_ptr[i + 1]
        beta = np.exp(easiness[i])
        for k in range(K):
            q[k] = log_prior[k]
        for row in range(first, end):
            w = value_or_default(weight, row, 1.0)
            x = ability[annotator[row]] * beta
            size = abs(x)
            e = np.exp(-size)
            q[label[row]] += w * (x + log_wrong)
            evidence -= w * (max(x, 0.0) + log_wrong)  # log P(y | z ≠ y); the next lines add the remaining terms
            if weight is not None:
                evidence -= w * np.log1p(e)
            else:  # so that many rows need only one logarithm
                product *= 1.0 + e
                if product > 1e200:
                    evidence -= np.log(product)
                    product = 1.0
            bend[row - first] = (1.0 - e) / ((1.0 + e) * 2.0 * size) if size > 1e-4 else 0.25 - size * size / 48.0
        evidence += normalise_item(q, value_or_default(gold, i, -1), q)
        for k in range(K):
            prior_counts[k] += q[k]
        if posterior.shape[0] > 0:
            for k in range(K):
                posterior[i, k] = q[k]
        slope, square = 0.0, 0.0  # B and A
        for row in range(first, end):
            w, alpha = value_or_default(weight, row, 1.0), ability[annotator[row]]
            slope += w * (q[label[row]] - 0.5) * alpha
            square += w * bend[row - first] * alpha * alpha
        b = _maximise_easiness(slope, square, precision, easiness[i])
        next_easiness[i] = b
        beta = np.exp(b)
        for row in range(first, end):
            w = value_or_default(weight, row, 1.0)
            pull[annotator[row]] += w * (q[label[row]] - 0.5) * beta
            curvature[annotator[row]] += w * bend[row - first] * beta * beta
    return float(evidence - np.log(product))


@lazy_jit
def _maximise_easiness(slope, square, precision, b):
    """Increase B eᵇ − ½ A e²ᵇ − ½ τ b² by damped Newton steps from b, and return the new b."""
    beta = np.exp(b)
    height = (slope - 0.5 * square * beta) * beta - 0.5 * precision * b * b
    for _ in range(MAX_NEWTON_STEPS):
        gradient = (slope - square * beta) * beta - precision * b
        hessian = (slope - 2.0 * square * beta) * beta - precision
        step = 1.0 if gradient > 0.0 else -1.0
        if hessian < 0.0:
            step = max(-1.0, min(1.0, -gradient / hessian))
        while abs(step) > MIN_NEWTON_STEP:
            tried = b + step
            tried_beta = np.exp(tried)
            tried_height = (slope - 0.5 * square * tried_beta) * tried_beta - 0.5 * precision * tried * tried
            if tried_height >= height:
                b, beta, height = tried, tried_beta, tried_height
                break
            step *= 0.5
        else:
            break
    return b


def maximise_easiness(slope: Any, square: Any, precision: float, b: Any) -> Any:
    """Run `_maximise_easiness` for each entry of arrays; each entry stops separately."""
    xp = array_library(b)

    def height(at: Any) -> Any:
        beta = xp.exp(at)
        return (slope - 0.5 * square * beta) * beta - 0.5 * precision * at * at

    top, on = height(b), b < np.inf  # True for all entries
    for _ in range(MAX_NEWTON_STEPS):
        beta = xp.exp(b)
        gradient = (slope - square * beta) * beta - precision * b
        hessian = (slope - 2 * square * beta) * beta - precision
        newton = (-gradient / xp.where(hessian < 0, hessian, -1.0)).clip(-1, 1)
        step = xp.where(hessian < 0, newton, xp.where(gradient > 0, 1.0, -1.0))
        trying, on = on & (abs(step) > MIN_NEWTON_STEP), on & False
        while trying.any():
            tried = b + step
            found = height(tried)
            better = trying & (found >= top)
            b, top, on = xp.where(better, tried, b), xp.where(better, found, top), on | better
            step = step / 2
            trying = trying & ~better & (abs(step) > MIN_NEWTON_STEP)
        if not on.any():
            break
    return b


def process_arrays(
    chunk: Chunk, ability: Any, easiness: Any, log_prior: Any, precision: float, fixed: Any = None
) -> tuple[Any, Any, Any, Any, Any, Any]:
    """Process a chunk in whole-array operations; see `process_items`.

    Return the log evidence, class counts (K,), pull and curvature (A,), the posterior (I, K) and the next b (I,).
    `log_prior` is (K,) or (I, K). Items with the mask `fixed` (I,) keep their b.
    """
    xp, item, log_wrong = array_library(ability), chunk.item, float(np.log(max(chunk.n_classes - 1, 1)))
    alpha = ability[chunk.annotator]
    x = alpha * xp.exp(easiness)[item]
    size = abs(x)
    e = xp.exp(-size)
    bend = xp.where(size > 1e-4, (1 - e) / ((1 + e) * 2 * size.clip(1e-4)), 0.25 - size**2 / 48)
    q, evidence = normalise_log_joint(log_prior + chunk.votes(chunk.apply_weights(x + log_wrong)), chunk.gold)
    right = q.reshape(-1)[chunk.item_label]
    pull, bend = chunk.apply_weights(right - 0.5), chunk.apply_weights(bend)
    slope, square = chunk.sum_by_item(xp.stack([pull * alpha, bend * alpha**2], 1)).T  # B and A
    b = maximise_easiness(slope, square, precision, easiness)
    if fixed is not None:
        b = xp.where(fixed, easiness, b)
    beta = xp.exp(b)[item]
    sums = (chunk.scatter_sum(chunk.annotator, each, chunk.n_annotators) for each in (pull * beta, bend * beta**2))
    wrong = chunk.apply_weights(x.clip(0) + log_wrong + xp.log1p(e))  # −log P(y | z ≠ y)
    return evidence.sum() - wrong.sum(), q.sum(0), *sums, q, b
