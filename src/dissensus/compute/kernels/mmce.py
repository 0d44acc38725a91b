"""The pass of minimax conditional entropy, computed in one loop: item effects, posteriors, and sums for the M step.

If the class is k, annotator a labels item i as y with probability P_a[k, y] e^τ[k, y] / Z,

    P_a[k, :] = softmax(σ_a[k, :])        Z = Σ_l P_a[k, l] e^τ[k, l]

so the exponentials e^τ of an item are used for all of its rows. If class k is improbable for an item, its τ[k, :] stays
zero (see `MIN_OBJECTIVE_GAIN`). Z is then 1, and a row costs as much as in Dawid-Skene.

Both effects are optimised by the same step. By Jensen's inequality, Σ_r w_r log Σ_l p_rl e^d_l over rows r is at most
n log Σ_l (m_l/n) e^d_l with n = Σ_r w_r and m_l = Σ_r w_r p_rl, with equality at d = 0. Therefore
c·d − n log Σ_l (m_l/n) e^d_l − ½ penalty |x + d|² is a lower bound of the objective that can be evaluated without the
rows, and its Newton direction has a closed form. If r is the range of the entries of that direction, a step of length
log(1 + r)/r cannot overshoot, because the third derivative of log Σ exp along d is at most the range of d times the
second. So no line search is needed.

There is no array form for short tables, because NumPy took four times as long. For tables with more than about 8,000
rows, that is longer than numba takes to load.
"""

import numpy as np

from dissensus.common.jit import lazy_jit
from dissensus.compute.kernels.items import normalise_item, value_or_default

MIN_OBJECTIVE_GAIN = 1e-11  # items whose objective can improve by less than this are skipped
MIN_NEWTON_STEP = 1e-7  # minimum length of a step; a shorter one ends the optimisation of σ
MAX_NEWTON_STEPS = 100  # maximum number of steps; usually three to ten are needed
POSTERIOR_TOL = 1e-8  # minimum change of an item's posterior; a smaller one ends its rounds


@lazy_jit
def process_items(
    start, stop, rows, confusion, log_confusion, log_prior, penalty, gold, special, rounds, fresh, before, posterior,
    counts, expected, plain,
):  # fmt: skip
    """Process items start … stop − 1 and return their log evidence minus the penalty of their effects.

    `confusion` is P (A, K, K) [annotator, true, given], and `log_confusion` its logarithm [annotator, given, true]. The
    first τ of an item is optimised for its class probabilities `before` (I, K), or for those at τ = 0 if `fresh`; its
    `posterior` (I, K) follows from τ, and both are updated for at most `rounds` rounds. Items `special`, `special` + 1,
    … have no τ. Add observed labels to `counts` (A, K, K) [annotator, true, given] and expected labels to `expected`.
    For items whose τ is zero, add only the number of labels to `plain` (A, K).
    """
    item_ptr, annotator, label, weight = rows
    K = log_prior.size
    inverse = np.empty((K, np.diff(item_ptr).max()))  # weight / Z of each row of an item
    tau, power, lively = np.empty((K, K)), np.empty((K, K)), np.empty(K, np.bool_)
    log_votes, votes, q, new = np.empty(K), np.empty(K), np.empty(K), np.empty(K)
    objective = 0.0
    for i in range(start, stop):
        first, end = np.uint64(item_ptr[i]), np.uint64(item_ptr[i + 1])
        known = value_or_default(gold, i, -1)
        total = 0.0
        for k in range(K):
            votes[k], log_votes[k] = 0.0, log_prior[k]
            for y in range(K):
                tau[k, y] = 0.0
        for row in range(first, end):
            a, given, w = np.uint64(annotator[row]), np.uint64(label[row]), value_or_default(weight, row, 1.0)
            total += w
            votes[given] += w
            for k in range(K):
                log_votes[k] += w * log_confusion[a, given, k]
        if fresh:
            normalise_item(log_votes, known, new)
        else:
            for k in range(K):
                new[k] = before[i, k]
        height = 0.0
        for _ in range(rounds):
            height = 0.0
            for k in range(K):
                q[k], new[k] = new[k], log_votes[k]
                lively[k] = i < special and (q[k] * total) ** 2 > MIN_OBJECTIVE_GAIN * penalty
                if lively[k]:
                    _maximise_item_effect(
                        first, end, annotator, weight, confusion, k, q[k], votes, total, penalty, tau[k], power[k],
                        inverse[k],
                    )  # fmt: skip
                    new[k] += _sum_log_inverse(first, end, weight, inverse[k])
                    for y in range(K):
                        new[k] += votes[y] * tau[k, y]
                        height -= 0.5 * penalty * tau[k, y] * tau[k, y]
                else:
                    for y in range(K):
                        tau[k, y] = 0.0
            height += normalise_item(new, known, new)
            change = 0.0
            for k in range(K):
                change = max(change, abs(new[k] - q[k]))
            if change < POSTERIOR_TOL:
                break
        objective += height
        for k in range(K):
            posterior[i, k] = new[k]
        for row in range(first, end):
            a, given, w = np.uint64(annotator[row]), np.uint64(label[row]), value_or_default(weight, row, 1.0)
            for k in range(K):
                counts[a, k, given] += w * new[k]
                if not lively[k]:
                    plain[a, k] += w * new[k]
        for k in range(K):
            if lively[k]:
                for row in range(first, end):
                    a, factor = np.uint64(annotator[row]), new[k] * inverse[k, row - first]
                    for y in range(K):
                        expected[a, k, y] += confusion[a, k, y] * power[k, y] * factor
    return objective


@lazy_jit
def _maximise_item_effect(
    first, end, annotator, weight, confusion, k, share, votes, total, penalty, tau, power, inverse
):
    """Optimise τ[k, :] (K,) of an item that has class k with probability `share`.

    `votes` (K,) are the item's labels and `total` their sum. Write e^τ to `power` (K,), and weight / Z of each row to
    `inverse`.
    """
    K = tau.size
    sums, step = np.empty(K), np.empty(K)
    for _ in range(MAX_NEWTON_STEPS):
        for y in range(K):
            power[y] = np.exp(tau[y])
            sums[y] = 0.0
        for row in range(first, end):
            a, w = np.uint64(annotator[row]), value_or_default(weight, row, 1.0)
            z = 0.0
            for y in range(K):
                z += confusion[a, k, y] * power[y]
            w /= z
            inverse[row - first] = w
            for y in range(K):
                sums[y] += confusion[a, k, y] * w
        for y in range(K):
            sums[y] *= share * power[y]
        if _newton_step(share, votes, sums, penalty, tau, step) ** 2 * (penalty + share * total) < MIN_OBJECTIVE_GAIN:
            return
        for y in range(K):
            tau[y] += step[y]


@lazy_jit
def _newton_step(share, seen, expected, penalty, x, step):
    """Write the Newton step from x to `step` (K,), see the module; return the largest absolute entry.

    c is `share`·`seen`, and m is `expected`, which is overwritten.
    """
    K = x.size
    along, spare = 0.0, 0.0
    for y in range(K):
        m = expected[y]
        inverse = 1.0 / (m + penalty)
        step[y] = (share * seen[y] - m - penalty * x[y]) * inverse
        along += m * step[y]
        expected[y] = m * inverse
        spare += expected[y]
    if spare > 0.0:
        along /= spare * penalty
    low, high = np.inf, -np.inf
    for y in range(K):
        step[y] += along * expected[y]
        if step[y] < low:
            low = step[y]
        if step[y] > high:
            high = step[y]
    spread = high - low
    damp = np.log1p(spread) / spread if spread > 1e-4 else 1.0 - 0.5 * spread
    for y in range(K):
        step[y] *= damp
    return damp * max(high, -low)


@lazy_jit
def _sum_log_inverse(first, end, weight, inverse):
    """Return −Σ weight log Z over the rows of an item, given weight / Z in `inverse`."""
    total, product = 0.0, 1.0
    for row in range(end - first):
        if weight is not None:
            w = weight[first + row]
            if w > 0.0:
                total += w * np.log(inverse[row] / w)
        else:  # one logarithm for many rows
            product *= inverse[row]
            if not 1e-150 < product < 1e150:
                total += np.log(product)
                product = 1.0
    return float(total + np.log(product))


@lazy_jit
def compute_effects(cell, rows, confusion, penalty, posterior, out):
    """Write τ[k, :] for each `cell` i·K + k (n,) under the posterior (I, K) to `out` (n, K)."""
    item_ptr, annotator, label, weight = rows
    K = posterior.shape[1]
    longest = np.diff(item_ptr).max()
    votes, tau, power, inverse = np.empty(K), np.empty(K), np.empty(K), np.empty(longest)
    for at in range(cell.size):
        i, k = cell[at] // K, cell[at] % K
        first, end = np.uint64(item_ptr[i]), np.uint64(item_ptr[i + 1])
        tau[:] = 0.0
        votes[:] = 0.0
        for row in range(first, end):
            votes[label[row]] += value_or_default(weight, row, 1.0)
        _maximise_item_effect(
            first, end, annotator, weight, confusion, k, posterior[i, k], votes, votes.sum(), penalty, tau, power,
            inverse,
        )  # fmt: skip
        out[at] = tau


@lazy_jit
def m_step(effect, seen, expected, penalty, centre):
    """Return the next σ (A, K, K) [annotator, true, given] from observed and expected labels at `effect`.

    The penalty applies to the distance from `centre` (K, K).
    """
    A, K = effect.shape[:2]
    found, away, now, step = np.empty_like(effect), np.empty(K), np.empty(K), np.empty(K)
    for a in range(A):
        for k in range(K):
            total = expected[a, k].sum()
            if total <= 0.0:
                found[a, k] = centre[k]
                continue
            away[:] = effect[a, k] - centre[k]
            for _ in range(MAX_NEWTON_STEPS):
                now[:] = expected[a, k] * np.exp(away + centre[k] - effect[a, k])
                now *= total / now.sum()
                size = _newton_step(1.0, seen[a, k], now, penalty, away, step)
                away += step
                if size < MIN_NEWTON_STEP:
                    break
            found[a, k] = centre[k] + away
    return found
