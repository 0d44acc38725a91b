"""Estimate the probability that an annotator is a typical member of the crowd, given the labelled items.

The leave-one-out posterior of item i excludes annotator j and the group of copying annotators to which j belongs; each
group has one vote. The posterior is tempered, because the labels of an item are not independent. With Θ and π of
Dawid-Skene and n other votes,

    q_−j,i(c) ∝ π_c Π_{k ≠ j} Θ_k[c, y_ik]^(1 / (1 + (n − 1) ρ))

Three hypotheses explain the labels y_1, y_2, … of j; each is a proper distribution over all possible labels of j.

- *typical*: P(y | i) = Σ_c q_−j,i(c) Θ[c, y], where Θ[c, ·] ~ Dirichlet(s · m_c). The mean m lies between the matrix M
   of the crowd and random labels (a weaker member) or the identity (an expert). The smaller s is, the more the members
   differ. The shares of the pairs (m, s) in the crowd are estimated.
- *unrelated*: P(y | i) = p[y] for every item, where p is drawn from a mixture of Dirichlet distributions.
- *contrary*: like typical, but the mean probability of the correct label is a tenth.

The evidence for a matrix is Π_n P(y_n | y_1 … y_n−1). It is computed by updating Dirichlet counts with the labels, a
few at a time. The shares of the three hypotheses are estimated with a sceptical prior, and the shares of atypical
annotators are limited. P(typical) is a local false discovery rate: among annotators with P(typical) ≤ α, at most a
share α is expected to be typical, whatever their number.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from scipy.special import gammaln, logsumexp, softmax

from dissensus.common.types import BoolArray, FloatArray, IntArray
from dissensus.compute.rows import expand_rows
from dissensus.models.matrices import MIN_PSEUDO_COUNT
from dissensus.models.methods.dawid_skene import DawidSkene
from dissensus.models.tempering import DEFAULT_CORRELATION, design_effect
from dissensus.table import names as naming
from dissensus.table.annotations import Annotations

SKILL_LEVELS = (
    -0.4,
    -0.2,
    0.0,
    0.4,
    0.8,
)  # skill of members: −1 for random labels, 0 for the mean of the crowd, 1 for no mistakes
TYPICAL_CONCENTRATIONS = (3.0, 12.0, 60.0)  # values of s for typical annotators
CONTRARY_CONCENTRATIONS = (1.5, 6.0)
PRIOR_SHARES = np.array([0.93, 0.05, 0.02])  # prior shares of typical, unrelated and contrary annotators
N_PRIOR_ANNOTATORS = 20  # weight of this prior, as a number of annotators
MAX_ATYPICAL_SHARE = 0.3  # maximum share of unrelated or contrary annotators
N_PSEUDO_ANNOTATORS = 0.05  # number of pseudo-annotators for each pair of skill level and concentration
MAX_EVIDENCE_LABELS = 1000  # maximum number of labels of an annotator that are used as evidence
CHUNK_GROWTH = 1.2  # growth factor of the chunks of labels with which counts are updated
N_SIMULATED_ANNOTATORS = 4000  # number of simulated typical annotators for a p-value
N_ANNOTATORS_PER_MATRIX = 20  # number of simulated annotators per drawn matrix
N_EM_STEPS = 30
N_SHARE_UPDATES = 50  # number of updates of the shares of hypotheses and components


@dataclass(frozen=True, eq=False)
class LeaveOneOutPosterior:
    """Rows of a table, each with a posterior of its item that excludes its annotator."""

    annotator: IntArray  # (N,)
    item: IntArray  # (N,)
    label: IntArray  # (N,)
    weight: FloatArray  # (N,)
    posterior: FloatArray  # (N, K)
    has_no_others: BoolArray  # (N,) True if no other annotator labelled the item
    n_annotators: int


def leave_one_out_posterior(table: Annotations, unit: IntArray, threads: int | None = None) -> LeaveOneOutPosterior:
    """Fit Dawid-Skene, and compute the posteriors that exclude each annotator and its unit of copying annotators.

    `unit` (A,) is the code of each annotator's unit.

    Repeated labels of an annotator on an item count as one label.
    """
    table = table.deduplicated
    rows, A = expand_rows(table), table.n_annotators
    if np.unique(unit).size < A:
        weight = np.ones(len(table)) if table.weight is None else table.weight
        _, _, share = _divide_votes(table.item, unit[table.annotator], weight)
        model = DawidSkene(threads=threads).fit(dataclasses.replace(table, weight=share))
    else:
        model = DawidSkene(threads=threads).fit(table)
    prior, confusion = (np.maximum(values, MIN_PSEUDO_COUNT) for values in (model.prior_, model.confusion_))
    item = np.repeat(np.arange(table.n_items, dtype=np.int64), np.diff(rows.item_ptr))
    annotator, label = rows.annotator.astype(np.int64), rows.label.astype(np.int64)
    weight = np.ones(item.size) if rows.weight is None else rows.weight
    slot_item, slot, share = _divide_votes(item, unit[annotator], weight)
    log = np.log(confusion[annotator, :, label]) * share[:, None]
    item_sum, unit_sum = _sum_by_code(log, item, table.n_items), _sum_by_code(log, slot, slot_item.size)
    n_others = np.bincount(slot_item, minlength=table.n_items)[item] - 1
    power = 1 / design_effect(n_others, DEFAULT_CORRELATION)
    q = softmax(np.log(prior) + power[:, None] * (item_sum[item] - unit_sum[slot]), axis=1)
    return LeaveOneOutPosterior(annotator, item, label, weight, q, n_others == 0, A)


def _divide_votes(item: IntArray, unit: IntArray, weight: FloatArray) -> tuple[IntArray, IntArray, FloatArray]:
    """Divide one vote equally among the rows of a unit on an item.

    Return the item of each pair of unit and item (S,), the pair of each row (N,) and the vote of each row (N,).
    """
    size = np.int64(unit.max(initial=0) + 1)
    pairs, pair = np.unique(item * size + unit, return_inverse=True)
    votes = np.bincount(pair, weight)
    return pairs // size, pair, weight / np.maximum(votes, 1)[pair]


def _sum_by_code(values: FloatArray, code: IntArray, n: int) -> FloatArray:
    """Return the sum (n, K) of the rows of `values` (N, K) with each code."""
    return np.stack([np.bincount(code, column, n) for column in values.T], axis=1)


@dataclass(frozen=True, eq=False)
class SpamTest:
    """The probabilities of the three hypotheses for every annotator."""

    probability: FloatArray  # (A, 3) P(typical), P(unrelated), P(contrary)
    leave_one_out: LeaveOneOutPosterior
    row_order: IntArray  # (n,) rows that are used as evidence, in the order of use
    dirichlet_parameters: FloatArray  # (G, K, K) a matrix for each component of typical members
    component_shares: FloatArray  # (G,)

    def evidence_rows(self, annotator: int) -> IntArray:
        """Return the rows of an annotator that are used as evidence."""
        return np.asarray(self.row_order[self.leave_one_out.annotator[self.row_order] == annotator])

    def p_value(self, annotator: int, label: int | None) -> tuple[float, float]:
        """Compare an annotator with simulated typical annotators; return a statistic and its p-value.

        If `label` is given, the statistic is the number of labels that equal it, and large values are extreme.
        Otherwise, it is the expected number of correct labels under the leave-one-out posterior, and small values are
        extreme.
        """
        rng = np.random.default_rng(annotator)
        rows = self.evidence_rows(annotator)
        q, given = self.leave_one_out.posterior[rows], self.leave_one_out.label[rows]
        component = rng.choice(
            self.component_shares.size, N_SIMULATED_ANNOTATORS // N_ANNOTATORS_PER_MATRIX, p=self.component_shares
        )
        matrices = rng.standard_gamma(self.dirichlet_parameters[component])  # (D, K, K)
        matrices /= np.maximum(matrices.sum(axis=2, keepdims=True), 1e-300)
        if label is not None:
            share = matrices[:, :, label] @ q.T  # (D, n)
            observed = float((given == label).sum())
            hits = (rng.random((N_ANNOTATORS_PER_MATRIX, *share.shape)) < share).sum(axis=-1)
            return observed, float((1 + (hits >= observed).sum()) / (1 + hits.size))
        cumulative = np.cumsum(np.einsum("nc,dcl->ldn", q, matrices, order="C"), axis=0)
        chance = rng.random((N_ANNOTATORS_PER_MATRIX, *cumulative.shape[1:]))
        # (N_ANNOTATORS_PER_MATRIX, D, n) labels
        drawn = np.zeros(chance.shape, naming.smallest_int_type(len(cumulative)))
        for bound in cumulative[:-1]:
            drawn += chance > bound
        index = np.arange(rows.size)
        observed, simulated = float(q[index, given].sum()), q[index, drawn].sum(axis=-1)
        return observed, float((1 + (simulated <= observed + 1e-9).sum()) / (1 + simulated.size))


def detect_spam(others: LeaveOneOutPosterior) -> SpamTest:
    """Compute the probabilities of the three hypotheses for every annotator."""
    A, K = others.n_annotators, others.posterior.shape[1]
    rows, cuts = _order_evidence(others)
    cell = others.annotator[rows] * K + others.label[rows]
    label_counts = np.bincount(cell, others.weight[rows], A * K).reshape(A, K).astype(np.float64)
    active = label_counts.sum(axis=1) > 0
    p_typical: FloatArray = np.ones(A)
    mostly_wrong = np.full((K, K), 0.9 / max(K - 1, 1))
    np.fill_diagonal(mostly_wrong, 0.1)
    for _ in range(2):  # the second pass estimates the matrix of the crowd from typical members only
        crowd, shares = _fit_crowd_matrix(others, rows, p_typical)
        components = np.stack(
            [
                spread * _make_member_matrix(crowd, shares, level)
                for level in SKILL_LEVELS
                for spread in TYPICAL_CONCENTRATIONS
            ]
        )
        typical = np.stack([_compute_log_evidence(others, rows, cuts, pseudo) for pseudo in components], axis=1)
        biases = (np.full(K, 0.2), np.ones(K), np.full(K, 10.0), 40 * shares + 0.1)
        unrelated = _log_mean([_compute_unrelated_log_evidence(label_counts, bias) for bias in biases])
        contrary = _log_mean(
            [_compute_log_evidence(others, rows, cuts, s * mostly_wrong) for s in CONTRARY_CONCENTRATIONS]
        )
        probability, component_shares = _estimate_shares(typical, unrelated, contrary, active)
        p_typical = probability[:, 0]
    return SpamTest(probability, others, rows, components, component_shares)


def _estimate_shares(
    typical: FloatArray, unrelated: FloatArray, contrary: FloatArray, active: BoolArray
) -> tuple[FloatArray, FloatArray]:
    """Estimate the shares of the hypotheses and components from the log evidence.

    `typical` (A, G) has one column per component. Return P(hypothesis) of each annotator (A, 3) and the shares of the
    components (G,).
    """
    shares, prior = np.full(typical.shape[1], 1 / typical.shape[1]), PRIOR_SHARES
    for _ in range(N_SHARE_UPDATES):
        log = np.stack([logsumexp(typical + np.log(shares), axis=1), unrelated, contrary], axis=1)
        probability = softmax(log + np.log(prior), axis=1)
        members = (softmax(typical + np.log(shares), axis=1) * probability[:, :1])[active].sum(axis=0)
        members = members + N_PSEUDO_ANNOTATORS
        shares = members / members.sum()
        prior = probability[active].sum(axis=0) + N_PRIOR_ANNOTATORS * PRIOR_SHARES
        prior = prior / prior.sum()
        suspect = prior[1:].sum()
        if suspect > MAX_ATYPICAL_SHARE:
            prior = np.append(1 - MAX_ATYPICAL_SHARE, prior[1:] * MAX_ATYPICAL_SHARE / suspect)
    return probability, shares


def _order_evidence(others: LeaveOneOutPosterior) -> tuple[IntArray, IntArray]:
    """Return the rows that are used as evidence, starting with the first rows of all annotators, and the chunk ends."""
    rows = np.flatnonzero(~others.has_no_others & (others.weight > 0))
    shuffled = naming.scramble_integers(others.item[rows].astype(np.uint64))
    rows = rows[np.lexsort((shuffled, others.annotator[rows]))]
    size = np.bincount(others.annotator[rows], minlength=others.n_annotators)
    rank = np.arange(rows.size) - np.repeat(np.cumsum(size) - size, size)
    rows, rank = rows[rank < MAX_EVIDENCE_LABELS], rank[rank < MAX_EVIDENCE_LABELS]
    order = np.argsort(rank, kind="stable")
    ends = [0]
    while ends[-1] < rank.max(initial=-1) + 1:
        ends.append(max(ends[-1] + 1, int(ends[-1] * CHUNK_GROWTH)))
    return rows[order], np.searchsorted(rank[order], ends)


def _fit_crowd_matrix(
    others: LeaveOneOutPosterior, rows: IntArray, p_typical: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Fit a confusion matrix (K, K) to all typical members by EM; return it with the shares of their labels (K,)."""
    K, label, q = others.posterior.shape[1], others.label[rows], others.posterior[rows]
    weight = others.weight[rows] * p_typical[others.annotator[rows]]
    start = 0.7 * np.eye(K) + 0.3 / K
    matrix = start
    for _ in range(N_EM_STEPS):
        joint = q * matrix[:, label].T
        joint *= (weight / joint.sum(axis=1))[:, None]
        counts = np.stack([np.bincount(label, joint[:, c], K) for c in range(K)])
        matrix = (counts + 2 * start) / (counts.sum(axis=1, keepdims=True) + 2)
    return matrix, (counts.sum(axis=0) + 1 / K) / (counts.sum() + 1)


def _make_member_matrix(crowd: FloatArray, shares: FloatArray, level: float) -> FloatArray:
    """Return the mean confusion matrix (K, K) of members at a skill level."""
    limit = shares[None, :] if level < 0 else np.eye(len(crowd))
    return np.asarray(0.98 * ((1 - abs(level)) * crowd + abs(level) * limit) + 0.02 / len(crowd))


def _compute_log_evidence(
    others: LeaveOneOutPosterior, rows: IntArray, cuts: IntArray, pseudo: FloatArray
) -> FloatArray:
    """Return log P(labels) of each annotator (A,) if row c of the matrix is drawn from Dirichlet(pseudo[c, :])."""
    A, K = others.n_annotators, len(pseudo)
    counts, totals, evidence = np.tile(pseudo, (A, 1, 1)), np.tile(pseudo.sum(axis=1), (A, 1)), np.zeros(A)
    for start, end in pairwise(cuts.tolist()):
        chunk = rows[start:end]
        a, y, w = others.annotator[chunk], others.label[chunk], others.weight[chunk]
        joint = others.posterior[chunk] * counts[a, :, y] / totals[a]  # (n, K)
        p = joint.sum(axis=1)
        evidence += np.bincount(a, w * np.log(p), A)
        joint *= (w / p)[:, None]
        cell = (a[:, None] * K + np.arange(K)).ravel()
        np.add.at(counts.reshape(-1), cell * K + np.repeat(y, K), joint.ravel())
        np.add.at(totals.reshape(-1), cell, joint.ravel())
    return evidence


def _compute_unrelated_log_evidence(label_counts: FloatArray, pseudo: FloatArray) -> FloatArray:
    """Return log P(labels) of each annotator (A,) if labels are drawn from shares with the prior Dirichlet(pseudo)."""
    total, n = pseudo.sum(), label_counts.sum(axis=1)
    logs = gammaln(pseudo + label_counts) - gammaln(pseudo)
    return np.asarray(gammaln(total) - gammaln(total + n) + logs.sum(axis=1))


def _log_mean(logs: list[FloatArray]) -> FloatArray:
    """Return the log of the mean of exp(logs)."""
    return np.asarray(logsumexp(logs, axis=0) - np.log(len(logs)))
