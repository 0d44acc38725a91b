"""Posteriors of annotators in communities, computed from their expected label counts.

For annotator a with counts n (K, K) and community m with concentrations α_m, γ_m = n + α_m:

    log odds_m = log h_m + Σ_c log B(γ_m[c, :]) − log B(α_m[c, :])      ρ = softmax(log odds)
    E log Θ = Σ_m ρ_m (ψ(γ_m) − ψ(Σ_l γ_m))

B is the normaliser of a Dirichlet. The readable form is `models.methods.community_bcc.readable_annotator_posteriors`.
"""

import numpy as np

from dissensus.common.jit import lazy_jit

MIN_SERIES_ARGUMENT = 8.0  # minimum x at which the asymptotic series are exact to 1e-13


@lazy_jit
def log_gamma_and_psi(x):
    """Return log Γ(x) and its derivative ψ(x) for x > 0, with one shared logarithm."""
    product, slope = 1.0, 0.0  # product = x (x + 1) … (x + n − 1), so that Γ(x) = Γ(x + n) / product
    while x < MIN_SERIES_ARGUMENT:
        slope = slope * x + product
        product *= x
        x += 1.0
    log_x, r = np.log(x), 1.0 / x
    s = r * r
    series = r * (1 / 12 - s * (1 / 360 - s * (1 / 1260 - s * (1 / 1680 - s * (1 / 1188 - s * 691 / 360360)))))
    tail = s * (1 / 12 - s * (1 / 120 - s * (1 / 252 - s * (1 / 240 - s * (1 / 132 - s * (691 / 32760 - s / 12))))))
    log_gamma, psi = (x - 0.5) * log_x - x + 0.9189385332046727 + series, log_x - 0.5 * r - tail
    if slope == 0.0:  # x was above MIN_SERIES_ARGUMENT
        return log_gamma, psi
    return log_gamma - np.log(product), psi - slope / product


@lazy_jit
def update_posteriors(start, stop, counts, population, log_share, membership, confusion, sums, wholes):
    """Process annotators start … stop − 1, by their `counts` (A, K, K) [annotator, true, given].

    `population` α has the shape (M, K, K) [community, true, given], and `log_share` (M,) is log h. Write ρ to
    `membership` (A, M) and exp(E log Θ) to `confusion` (A, K, K). Add Σ_a ρ_am E log Θ under γ_m to `sums` (M, K, K)
    and Σ_a ρ_am ψ(Σ_l γ_m) to `wholes` (M, K). Return Σ_a log Σ_m odds and Σ_a n · E log Θ.
    """
    M, K = population.shape[0], population.shape[1]
    base = np.empty(M)  # log h − Σ log B(α)
    for m in range(M):
        base[m] = log_share[m]
        for k in range(K):
            whole = 0.0
            for y in range(K):
                whole += population[m, k, y]
                base[m] -= log_gamma_and_psi(population[m, k, y])[0]
            base[m] += log_gamma_and_psi(whole)[0]
    odds, logs, whole_psi, mean = np.empty(M), np.empty((M, K, K)), np.empty((M, K)), np.empty((K, K))
    evidence, spent = 0.0, 0.0
    for a in range(start, stop):
        top = -np.inf
        for m in range(M):
            odds[m] = base[m]
            for k in range(K):
                whole = 0.0
                for y in range(K):
                    gamma = counts[a, k, y] + population[m, k, y]
                    whole += gamma
                    log_gamma, logs[m, k, y] = log_gamma_and_psi(gamma)
                    odds[m] += log_gamma
                log_gamma, psi = log_gamma_and_psi(whole)
                odds[m] -= log_gamma
                whole_psi[m, k] = psi
                for y in range(K):
                    logs[m, k, y] -= psi
            top = max(top, odds[m])
        total = 0.0
        for m in range(M):
            odds[m] = np.exp(odds[m] - top)
            total += odds[m]
        evidence += top + np.log(total)
        for k in range(K):
            for y in range(K):
                mean[k, y] = 0.0
        for m in range(M):
            rho = odds[m] / total
            membership[a, m] = rho
            for k in range(K):
                wholes[m, k] += rho * whole_psi[m, k]
                for y in range(K):
                    mean[k, y] += rho * logs[m, k, y]
                    sums[m, k, y] += rho * logs[m, k, y]
        for k in range(K):
            for y in range(K):
                spent += counts[a, k, y] * mean[k, y]
                confusion[a, k, y] = np.exp(mean[k, y])
    return evidence, spent
