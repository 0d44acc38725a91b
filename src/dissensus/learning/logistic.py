"""Logistic regression on soft labels, and the weights and channels of a pool of models.

    minimise over W (D, K), b (K,)   Σ_i −Σ_k P_ik log softmax(x_i W + b)_k / n  +  λ/2 ‖W‖²

The problem is convex. λ is halved repeatedly from the largest value, and each solution is the initial value for the
next λ, so that the whole path takes little more time than its last point. If features have a standard deviation of 1, a
good λ does not depend on the numbers of items and features.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.optimize import minimize
from scipy.special import log_softmax, softmax

from dissensus.common.types import FloatArray

PENALTIES = tuple(2.0**power for power in range(6, -13, -1))  # values of λ in the order in which they are tried
MAX_ITERATIONS = 200  # maximum number of L-BFGS steps per λ
LOGIT_SCALES = (0.15, 0.25, 0.35, 0.5, 0.7, 1.0)  # candidate scales of the logits of classes
CHANNEL_STEPS = 60  # number of EM steps per scale
MIN_PROBABILITY = 1e-12


def fit_logistic(x: FloatArray, target: FloatArray, penalty: float, start: FloatArray | None = None) -> FloatArray:
    """Return W and b, as rows (D + 1, K) of which the last is b, fitted to features x (n, D) and targets (n, K)."""
    (n, D), K = x.shape, target.shape[1]

    def compute_loss(flat: FloatArray) -> tuple[float, FloatArray]:
        solution = flat.reshape(D + 1, K)
        log_p = log_softmax(compute_logits(x, solution), axis=1)
        error = ((np.exp(log_p) - target) / n).astype(x.dtype)
        slope = np.vstack([x.T @ error + penalty * solution[:D], error.sum(axis=0)])
        loss = -(target * log_p).sum() / n + penalty / 2 * np.square(solution[:D]).sum()
        return float(loss), slope.astype(np.float64).ravel()

    first = np.zeros((D + 1, K)) if start is None else start
    found = minimize(compute_loss, first.ravel(), jac=True, method="L-BFGS-B", options={"maxiter": MAX_ITERATIONS})
    return np.asarray(found.x.reshape(D + 1, K))


def compute_logits(x: FloatArray, solution: FloatArray) -> FloatArray:
    """Return x W + b (n, K), in float64."""
    return np.asarray((x @ solution[:-1].astype(x.dtype)).astype(np.float64) + solution[-1])


def fit_pool_weights(members: FloatArray, target: FloatArray, prior: float) -> FloatArray:
    """Return weights w ≥ 0 (M,) of models with logits (M, n, K) that minimise the cross entropy to `target`.

    The prediction is softmax(Σ_m w_m z_m), and the problem is convex. The sum of the weights is the inverse of a
    temperature. The prior prefers equal weights that sum to one, and has the weight of `prior` items, so that a small
    number of items changes the weights little.
    """
    members = members - members.mean(axis=2, keepdims=True)
    equal = np.full(len(members), 1 / len(members))

    def compute_loss(weights: FloatArray) -> tuple[float, FloatArray]:
        log_p = log_softmax(np.tensordot(weights, members, 1), axis=1)
        slope = np.tensordot(members, np.exp(log_p) - target, axes=([1, 2], [0, 1]))
        away = weights - equal
        return (
            float((prior / 2 * away @ away - (target * log_p).sum()) / len(target)),
            (slope + prior * away) / len(target),
        )

    bounds = [(0, None)] * len(members)
    return np.asarray(minimize(compute_loss, equal, jac=True, method="L-BFGS-B", bounds=bounds).x)


@dataclass(frozen=True, eq=False)
class VoteChannel:
    """Conversion of class logits to a distribution of votes: P(vote | x) = T softmax(scale · logits)."""

    scale: float
    labels: FloatArray  # T (K, K) [given label, true class]

    def __call__(self, logits: FloatArray) -> FloatArray:
        """Return log P(vote) (n, K)."""
        return np.asarray(np.log(np.maximum(softmax(self.scale * logits, axis=1) @ self.labels.T, MIN_PROBABILITY)))


def fit_vote_channel(logits: FloatArray, target: FloatArray) -> VoteChannel:
    """Fit the channel from class logits (n, K) to vote shares (n, K) that minimises the cross entropy.

    T is estimated by EM for each scale. Each class has one pseudo-vote, which is divided equally among all labels.
    """
    K = target.shape[1]
    best, least = VoteChannel(1.0, np.eye(K)), np.inf
    for scale in LOGIT_SCALES:
        p, labels = softmax(scale * logits, axis=1), 0.8 * np.eye(K) + 0.2 / K
        for _ in range(CHANNEL_STEPS):
            ratio = target / np.maximum(p @ labels.T, MIN_PROBABILITY)
            counts = labels * (ratio.T @ p) + 1 / K
            labels = counts / counts.sum(axis=0)
        loss = -(target * np.log(np.maximum(p @ labels.T, MIN_PROBABILITY))).sum()
        if loss < least:
            best, least = VoteChannel(scale, labels), loss
    return best
