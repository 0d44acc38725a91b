"""One pass of minimax conditional entropy, fused: every item's own effect, its posterior, its part of the sums.

A row of annotator a on item i has the label y with probability P_a[k, y] e^τ[k, y] / Z where the class is k,

    P_a[k, :] = softmax(σ_a[k, :])        Z = Σ_l P_a[k, l] e^τ[k, l]

so that the exponentials of an item serve all of its rows. Where an item is hardly of class k, its τ[k, :] stays at zero
(see `FAINT`); Z is 1 then, and a row costs what it costs in Dawid-Skene.

Both effects are climbed by the same step. Σ_r w_r log Σ_l p_rl e^d_l, over rows r, is at most n log Σ_l (m_l/n) e^d_l
with n = Σ_r w_r, m_l = Σ_r w_r p_rl (Jensen), and the two touch at d = 0. So what is raised instead of the expected log
likelihood, c·d − n log Σ_l (m_l/n) e^d_l − ½ penalty |x + d|², lies below it and needs no row again; its Newton
direction has a closed form. With r the largest minus the smallest entry of that direction, log(1 + r)/r of it cannot
be too far, because the third derivative of log Σ exp along any d is at most the range of d times the second: there is
no line search.

`walk_short` is the pass in NumPy, for short tables, and what the tests hold `walk` to.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.sparse import csr_array

from dissensus.common.jit import compiled
from dissensus.common.types import FloatArray, IntArray
from dissensus.compute.engines.base import Rows
from dissensus.compute.kernels.optional import entry
from dissensus.compute.readable import label_matrix, posterior_of

FAINT = 1e-11  # what could raise the objective of an item by no more than about this is not done
MIN_STEP = 1e-7  # a shorter step ends the climb of σ
STEPS = 100  # of a climb at most; three to ten are usual
SETTLED = 1e-8  # change of an item's posterior that ends its rounds


@compiled
def walk(
    start: int,
    stop: int,
    item_ptr: IntArray,
    annotator: IntArray,
    label: IntArray,
    weight: Any,
    confusion: FloatArray,
    log_confusion: FloatArray,
    log_prior: FloatArray,
    penalty: float,
    gold: Any,
    special: int,
    rounds: int,
    fresh: bool,
    before: FloatArray,
    posterior: FloatArray,
    counts: FloatArray,
    expected: FloatArray,
    plain: FloatArray,
) -> float:
    """Walk items start … stop − 1; returns their log evidence minus the penalty of their effects.

    `confusion` P (A, K, K) [annotator, true, given], `log_confusion` its logarithm [annotator, given, true]. An item's
    τ is the best one for its class probabilities `before` (I, K), or, where it is `fresh`, for those at τ = 0; then
    `posterior` (I, K) is the one of this τ, and so on for at most so many `rounds`. Items from number `special` on have
    no τ. Adds the labels seen to `counts` (A, K, K) [annotator, true, given] and those expected to `expected` or, where
    τ is zero, their number to `plain` (A, K).
    """
    K = log_prior.size
    inverse = np.empty((K, np.diff(item_ptr).max()))  # weight / Z of the rows of one item
    tau, power, lively = np.empty((K, K)), np.empty((K, K)), np.empty(K, np.bool_)
    log_votes, votes, q, new = np.empty(K), np.empty(K), np.empty(K), np.empty(K)
    objective = 0.0
    for i in range(start, stop):
        first, end = np.uint64(item_ptr[i]), np.uint64(item_ptr[i + 1])
        known = entry(gold, i, -1)
        total = 0.0
        for k in range(K):
            votes[k], log_votes[k] = 0.0, log_prior[k]
            for y in range(K):
                tau[k, y] = 0.0
        for row in range(first, end):
            a, given, w = np.uint64(annotator[row]), np.uint64(label[row]), entry(weight, row, 1.0)
            total += w
            votes[given] += w
            for k in range(K):
                log_votes[k] += w * log_confusion[a, given, k]
        if fresh:
            _settle(log_votes, known, new)
        else:
            for k in range(K):
                new[k] = before[i, k]
        height = 0.0
        for _ in range(rounds):
            height = 0.0
            for k in range(K):
                q[k], new[k] = new[k], log_votes[k]
                lively[k] = i < special and (q[k] * total) ** 2 > FAINT * penalty
                if lively[k]:
                    _climb(
                        first, end, annotator, weight, confusion, k, q[k], votes, total, penalty, tau[k], power[k],
                        inverse[k],
                    )  # fmt: skip
                    new[k] += _log_inverse(first, end, weight, inverse[k])
                    for y in range(K):
                        new[k] += votes[y] * tau[k, y]
                        height -= 0.5 * penalty * tau[k, y] * tau[k, y]
                else:
                    for y in range(K):
                        tau[k, y] = 0.0
            height += _settle(new, known, new)
            change = 0.0
            for k in range(K):
                change = max(change, abs(new[k] - q[k]))
            if change < SETTLED:
                break
        objective += height
        for k in range(K):
            posterior[i, k] = new[k]
        for row in range(first, end):
            a, given, w = np.uint64(annotator[row]), np.uint64(label[row]), entry(weight, row, 1.0)
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


@compiled
def _climb(
    first: Any,
    end: Any,
    annotator: IntArray,
    weight: Any,
    confusion: FloatArray,
    k: int,
    share: float,
    votes: FloatArray,
    total: float,
    penalty: float,
    tau: FloatArray,
    power: FloatArray,
    inverse: FloatArray,
) -> None:
    """From τ[k, :] (K,) to the best one of an item that is of class k with probability `share`.

    `votes` (K,), in `total`, are its labels. Leaves e^τ in `power` (K,) and weight / Z of its rows in `inverse`.
    """
    K = tau.size
    sums, step = np.empty(K), np.empty(K)
    for _ in range(STEPS):
        for y in range(K):
            power[y] = np.exp(tau[y])
            sums[y] = 0.0
        for row in range(first, end):
            a, w = np.uint64(annotator[row]), entry(weight, row, 1.0)
            z = 0.0
            for y in range(K):
                z += confusion[a, k, y] * power[y]
            w /= z
            inverse[row - first] = w
            for y in range(K):
                sums[y] += confusion[a, k, y] * w
        for y in range(K):
            sums[y] *= share * power[y]
        if _newton(share, votes, sums, penalty, tau, step) ** 2 * (penalty + share * total) < FAINT:
            return
        for y in range(K):
            tau[y] += step[y]


@compiled
def _newton(
    share: float, seen: FloatArray, expected: FloatArray, penalty: float, x: FloatArray, step: FloatArray
) -> float:
    """The step of the module docstring from x, into `step` (K,); returns its longest entry.

    c is `share`·`seen` and m is `expected`, which it spoils.
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


@compiled
def _log_inverse(first: Any, end: Any, weight: Any, inverse: FloatArray) -> float:
    """− Σ weight log Z over the rows of an item, of which `inverse` has weight / Z."""
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


@compiled
def _settle(log_joint: FloatArray, known: int, q: FloatArray) -> float:
    """The posterior of log joint probabilities (K,), all of it on class `known` if that is not −1; log evidence."""
    K = log_joint.size
    if known >= 0:
        evidence = float(log_joint[known])  # before q, which may be the same array
        for k in range(K):
            q[k] = 1.0 if k == known else 0.0
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


@compiled
def effects(
    cell: IntArray,
    item_ptr: IntArray,
    annotator: IntArray,
    label: IntArray,
    weight: Any,
    confusion: FloatArray,
    penalty: float,
    posterior: FloatArray,
    out: Any,
) -> None:
    """τ[k, :] of item i for every `cell` i·K + k (n,), under `posterior` (I, K), into `out` (n, K)."""
    K = posterior.shape[1]
    longest = np.diff(item_ptr).max()
    votes, tau, power, inverse = np.empty(K), np.empty(K), np.empty(K), np.empty(longest)
    for at in range(cell.size):
        i, k = cell[at] // K, cell[at] % K
        first, end = np.uint64(item_ptr[i]), np.uint64(item_ptr[i + 1])
        tau[:] = 0.0
        votes[:] = 0.0
        for row in range(first, end):
            votes[label[row]] += entry(weight, row, 1.0)
        _climb(
            first, end, annotator, weight, confusion, k, posterior[i, k], votes, votes.sum(), penalty, tau, power,
            inverse,
        )  # fmt: skip
        out[at] = tau


def newton_step(seen: FloatArray, expected: FloatArray, penalty: float, x: FloatArray) -> tuple[FloatArray, FloatArray]:
    """The step of the module docstring from x (K, n), and its longest entry (n,); c is `seen`, m is `expected`."""
    inverse = 1 / (expected + penalty)
    step, spare = (seen - expected - penalty * x) * inverse, expected * inverse
    total = spare.sum(axis=0)
    step += (expected * step).sum(axis=0) / (np.where(total > 0, total, 1) * penalty) * spare
    low, high = step.min(axis=0), step.max(axis=0)
    spread = high - low
    damp = np.where(spread > 1e-4, np.log1p(spread) / np.maximum(spread, 1e-4), 1 - spread / 2)
    return step * damp, damp * np.maximum(high, -low)


def maximise(
    effect: FloatArray, seen: FloatArray, expected: FloatArray, penalty: float, centre: FloatArray
) -> FloatArray:
    """σ (A, K, K) [annotator, true, given] of the next pass, from the labels seen and expected at σ = `effect`.

    The penalty is on the distance from `centre` (K, K).
    """
    given_first = [np.moveaxis(values, 2, 0) for values in np.broadcast_arrays(effect, seen, expected, centre)]
    effect, seen, expected, centre = given_first
    total = expected.sum(axis=0)
    moving = total > 0  # (A, K)
    away = np.where(moving, effect - centre, 0.0)
    for _ in range(STEPS):
        if not moving.any():
            break
        now = expected[:, moving] * np.exp((away + centre - effect)[:, moving])
        now *= total[moving] / now.sum(axis=0)
        step, size = newton_step(seen[:, moving], now, penalty, away[:, moving])
        away[:, moving] += step
        moving[moving] = size >= MIN_STEP
    return np.ascontiguousarray(np.moveaxis(centre + away, 0, 2))


class Cells:
    """The rows of cells (n,), item·K + class, and τ (K, n) of each, climbed in NumPy."""

    def __init__(self, cell: IntArray, rows: Rows, confusion: FloatArray):
        K = confusion.shape[1]
        self.cell, (self.item, self.k) = cell, np.divmod(cell, K)
        self.length = np.diff(rows.item_ptr)[self.item]
        self.of_row = np.repeat(np.arange(cell.size), self.length)  # (R,) each row's cell
        first = np.cumsum(self.length) - self.length
        row = np.arange(self.of_row.size) + np.repeat(rows.item_ptr[self.item] - first, self.length)
        self.weight = np.ones(row.size) if rows.weight is None else rows.weight[row]
        self.place = rows.annotator[row].astype(np.int64) * K + self.k[self.of_row]  # of P in (A·K, K)
        self.p = confusion.reshape(-1, K).take(self.place, axis=0)  # (R, K)
        self.z = np.ones(row.size)
        votes = np.bincount(rows.label[row].astype(np.int64) * cell.size + self.of_row, self.weight, K * cell.size)
        self.votes, self.tau = votes.reshape(K, cell.size), np.zeros((K, cell.size))

    def climb(self, share: FloatArray, penalty: float) -> None:
        """From τ to the best one, where an item is of its cell's class with probability `share` (n,); leaves Z."""
        seen, curvature = share * self.votes, penalty + share * self.votes.sum(axis=0)
        at, row = np.arange(self.cell.size), np.arange(self.of_row.size)  # what still moves
        p, weight, of_row = self.p, self.weight, self.of_row
        for _ in range(STEPS):
            tau = self.tau[:, at]
            power = np.exp(tau)
            self.z[row] = z = np.einsum("ry,ry->r", p, np.ascontiguousarray(power.T).take(of_row, axis=0))
            ptr = np.concatenate([[0], np.cumsum(self.length[at])])
            sums = csr_array((weight / z, np.arange(row.size), ptr), (at.size, row.size)) @ p
            step, size = newton_step(seen[:, at], share[at] * power * sums.T, penalty, tau)
            moving = size**2 * curvature[at] >= FAINT
            if not moving.any():
                break
            keep = np.flatnonzero(moving[of_row])
            at, row, p, weight = at[moving], row[keep], p.take(keep, axis=0), weight[keep]
            of_row = np.repeat(np.arange(at.size), self.length[at])
            self.tau[:, at] += step[:, moving]

    def start_from(self, other: Cells) -> None:
        """Begin the climb at the τ of another round, where it has one."""
        _, here, there = np.intersect1d(self.cell, other.cell, assume_unique=True, return_indices=True)
        self.tau[:, here] = other.tau[:, there]

    def log_votes(self) -> FloatArray:
        """(n,) what τ adds to the log joint probability of the item and the class."""
        log_z = np.bincount(self.of_row, self.weight * np.log(self.z), self.cell.size)
        return np.asarray((self.votes * self.tau).sum(axis=0) - log_z)

    def expected(self, q: FloatArray, confusion: FloatArray) -> FloatArray:
        """(A, K, K) labels expected of everyone on items of class probabilities q (I, K)."""
        factor = q.reshape(-1)[self.cell][self.of_row] * self.weight / self.z
        shape = confusion.shape[0] * confusion.shape[1], self.cell.size
        power = csr_array((factor, (self.place, self.of_row)), shape) @ np.exp(self.tau.T)
        return np.asarray(confusion * power.reshape(confusion.shape))


def walk_short(
    rows: Rows,
    confusion: FloatArray,
    log_prior: FloatArray,
    penalty: float,
    gold: IntArray | None,
    special: int,
    rounds: int,
    before: FloatArray | None,
) -> tuple[float, FloatArray, FloatArray, FloatArray]:
    """`walk` over all items: the objective, the posterior (I, K), the labels seen and those expected (A, K, K).

    `before` is None where the items are fresh.
    """
    (A, K), I = confusion.shape[:2], rows.item_ptr.size - 1
    labels = label_matrix(rows, A, K)
    plain = log_prior + labels @ np.log(confusion).transpose(0, 2, 1).reshape(A * K, K)  # log joint where τ is zero
    total = labels.sum(axis=1)[:, None]
    q = posterior_of(plain, gold)[0] if before is None else before
    objective, posterior, without, expected = 0.0, np.empty((I, K)), np.empty((I, K)), np.zeros((A, K, K))
    active, cells = np.ones(I, bool), Cells(np.empty(0, np.int64), rows, confusion)
    for left in reversed(range(rounds)):
        lively = active[:, None] & ((q * total) ** 2 > FAINT * penalty)
        lively[special:] = False
        last, cells = cells, Cells(np.flatnonzero(lively), rows, confusion)
        cells.start_from(last)
        cells.climb(q.reshape(-1)[cells.cell], penalty)
        joint = plain.copy()
        joint.reshape(-1)[cells.cell] += cells.log_votes()
        last_q, (q, height) = q, posterior_of(joint, gold)
        height -= penalty / 2 * np.bincount(cells.item, np.square(cells.tau).sum(axis=0), I)
        done = active & ((np.abs(q - last_q).max(axis=1) < SETTLED) | (left == 0))
        objective += float(height[done].sum())
        posterior[done], without[done] = q[done], np.where(lively, 0, q)[done]
        expected += cells.expected(q * done[:, None], confusion)
        active &= ~done
        if not active.any():
            break
    seen = (labels.T @ posterior).reshape(A, K, K).transpose(0, 2, 1)
    plain_labels = (labels.T @ without).reshape(A, K, K).sum(axis=1)
    return objective, posterior, seen, expected + plain_labels[:, :, None] * confusion
