"""Dirichlet distributions over the last axis: expected logarithms, divergences, and their parameters from samples."""

from __future__ import annotations

import numpy as np
from scipy.special import gammaln, polygamma, psi

from dissensus.common.types import FloatArray

MIN_ALPHA = 0.05  # minimum learnt α; ψ(0.05) = −20.5, so that exp(E log Θ) stays above 1e-18
FIXED_POINT_STEPS = 5  # number of fixed-point steps per M step


def expected_log(counts: FloatArray) -> FloatArray:
    """Return the expected logarithm of probabilities with the distribution Dirichlet(counts)."""
    return np.asarray(psi(counts) - psi(counts.sum(axis=-1, keepdims=True)))


def log_normaliser(counts: FloatArray) -> FloatArray:
    """Return log B(counts) = Σ log Γ(counts) − log Γ(Σ counts), the log normaliser of a Dirichlet."""
    return np.asarray(gammaln(counts).sum(axis=-1) - gammaln(counts.sum(axis=-1)))


def kl_divergence(counts: FloatArray, prior: FloatArray, logs: FloatArray) -> float:
    """Return Σ_a KL(Dirichlet(counts_a) ‖ Dirichlet(prior)); `logs` are the `expected_log` of the counts (A, …)."""
    normalisers = log_normaliser(prior).sum() * len(counts) - log_normaliser(counts).sum()
    return float(normalisers + ((counts - prior) * logs).sum())


def mean_log_density(alpha: FloatArray, mean: FloatArray) -> FloatArray:
    """Return the mean log density of samples under Dirichlet(α), from their mean logarithms."""
    return np.asarray(((alpha - 1) * mean).sum(axis=-1) - log_normaliser(alpha))


def update_alpha(mean: FloatArray, alpha: FloatArray) -> FloatArray:
    """Update α of a Dirichlet per row by fixed-point steps, given the mean logarithms of samples (Minka 2000)."""
    best = alpha
    for _ in range(FIXED_POINT_STEPS):
        new = np.maximum(inverse_psi(psi(best.sum(axis=-1, keepdims=True)) + mean), MIN_ALPHA)
        better = mean_log_density(new, mean) > mean_log_density(best, mean)
        best = np.where(better[..., None], new, best)
    return np.asarray(best)


def inverse_psi(value: FloatArray) -> FloatArray:
    """Return the inverse of ψ by Newton's method with Minka's initial value (2000, appendix C)."""
    x = np.where(value >= -2.22, np.exp(value) + 0.5, -1 / np.minimum(value - psi(1.0), -1))
    for _ in range(5):
        x = x - (psi(x) - value) / polygamma(1, x)
    return np.asarray(x)
