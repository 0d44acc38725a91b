"""Probability that an annotator is a typical member of its crowd, given the items that it labelled.

The posterior of item i without annotator j and its copying group (which shares one vote) is tempered because labels of
one item are not independent: Θ and π are Dawid-Skene's, n the number of other votes,

    q_−j,i(c) ∝ π_c Π_{k ≠ j} Θ_k[c, y_ik]^(1 / (1 + (n − 1) ρ))

Three hypotheses explain the labels y_1, y_2, … of j; each is a proper distribution over all labels j could have given.

- *typical*: P(y | i) = Σ_c q_−j,i(c) Θ[c, y], rows Θ[c, ·] ~ Dirichlet(s · m_c). The mean m lies between the crowd's
  own matrix M and labels at random (a weaker member) or the identity (an expert); the smaller s, the more members
  differ. The shares of the pairs (m, s) in the crowd are estimated.
- *unrelated*: P(y | i) = p[y], whatever the item is; p ~ a mixture of Dirichlets.
- *contrary*: like typical, but the mean has a tenth on the right label.

The evidence for a matrix is Π_n P(y_n | y_1 … y_n−1): Dirichlet counts are updated as labels come in, a few at a time.
The shares of the three are estimated with a sceptical prior, and limited. By local false discovery rates: among
annotators with P(typical) ≤ α at most a share α is typical, however many there are.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from scipy.special import gammaln, logsumexp, softmax

from dissensus.common.types import BoolArray, FloatArray, IntArray
from dissensus.compute.rows import expand_rows
from dissensus.models.matrices import MIN_PSEUDO
from dissensus.models.methods.dawid_skene import DawidSkene
from dissensus.models.tempering import DEFAULT_CORRELATION, design_effect
from dissensus.table import names as naming
from dissensus.table.annotations import Annotations

LEVELS = (-0.4, -0.2, 0.0, 0.4, 0.8)  # levels of skill: −1 labels at random, 0 like the crowd, 1 without mistakes
SPREADS = (3.0, 12.0, 60.0)  # values of s
CONTRARY_SPREADS = (1.5, 6.0)
PRIOR = np.array([0.93, 0.05, 0.02])  # shares of typical, unrelated, contrary annotators
PRIOR_ANNOTATORS = 20  # weight of this prior, in annotators
MAX_SUSPECT = 0.3  # largest share of unrelated or contrary annotators
KIND_PSEUDO = 0.05  # prior annotators of each level and spread
MAX_LABELS = 1000  # labels of one annotator that count as evidence
GROWTH = 1.2  # growth of the chunks in which labels come in
DRAWS = 4000  # simulated typical annotators behind a p-value


@dataclass(frozen=True, eq=False)
class Others:
    """Rows of a table with the leave-one-out posterior of their items; `alone`: no other labels the item."""

    annotator: IntArray  # (N,)
    item: IntArray  # (N,)
    label: IntArray  # (N,)
    weight: FloatArray  # (N,)
    q: FloatArray  # (N, K)
    alone: BoolArray  # (N,)
    n_annotators: int


def ask_others(table: Annotations, unit: IntArray, threads: int | None = None) -> Others:
    """Fit Dawid-Skene and compute the posterior without each annotator and its unit (A,).

    Repeated labels of an annotator on an item count as one.
    """
    table = table.deduplicated
    rows, A = expand_rows(table), table.n_annotators
    if np.unique(unit).size < A:
        ones = np.ones(len(table)) if table.weight is None else table.weight
        _, _, share = _one_vote(table.item, unit[table.annotator], ones)
        model = DawidSkene(threads=threads).fit(dataclasses.replace(table, weight=share))
    else:
        model = DawidSkene(threads=threads).fit(table)
    prior, confusion = (np.maximum(one, MIN_PSEUDO) for one in (model.prior_, model.confusion_))
    item = np.repeat(np.arange(table.n_items, dtype=np.int64), np.diff(rows.item_ptr))
    annotator, label = rows.annotator.astype(np.int64), rows.label.astype(np.int64)
    weight = np.ones(item.size) if rows.weight is None else rows.weight
    of_slot, slot, share = _one_vote(item, unit[annotator], weight)
    log = np.log(confusion[annotator, :, label]) * share[:, None]
    total, own = _sums(log, item, table.n_items), _sums(log, slot, of_slot.size)
    others = np.bincount(of_slot, minlength=table.n_items)[item] - 1
    power = 1 / design_effect(others, DEFAULT_CORRELATION)
    q = softmax(np.log(prior) + power[:, None] * (total[item] - own[slot]), axis=1)
    return Others(annotator, item, label, weight, q, others == 0, A)


def _one_vote(item: IntArray, unit: IntArray, weight: FloatArray) -> tuple[IntArray, IntArray, FloatArray]:
    """Share one vote among rows of a unit on an item; return the item of each slot (S,), slot and vote of each row."""
    size = np.int64(unit.max(initial=0) + 1)
    slots, slot = np.unique(item * size + unit, return_inverse=True)
    votes = np.bincount(slot, weight)
    return slots // size, slot, weight / np.maximum(votes, 1)[slot]


def _sums(values: FloatArray, of: IntArray, n: int) -> FloatArray:
    """Return sums of values (N, K) by code (n, K)."""
    return np.stack([np.bincount(of, column, n) for column in values.T], axis=1)


@dataclass(frozen=True, eq=False)
class Honesty:
    """Probabilities of the three hypotheses for every annotator."""

    probability: FloatArray  # (A, 3) of typical, unrelated, contrary
    others: Others
    used: IntArray  # (n,) rows that count as evidence, in their order
    kinds: FloatArray  # (G, K, K) Dirichlet parameters of the kinds of typical members
    shares: FloatArray  # (G,) of the kinds

    def chances(self, annotator: int, label: int | None) -> tuple[float, float]:
        """Compare an annotator with typical ones on its items; return statistic and P(a typical one is as extreme).

        The statistic is the number of its labels that are `label` (large values are extreme) or, without one, the
        number of right labels that the others expect (small values are extreme).
        """
        o, rng = self.others, np.random.default_rng(annotator)
        rows = self.used[o.annotator[self.used] == annotator]
        q = o.q[rows]
        kind = rng.choice(self.shares.size, DRAWS // 20, p=self.shares)
        drawn = rng.standard_gamma(self.kinds[kind])  # (D, K, K)
        drawn /= np.maximum(drawn.sum(axis=2, keepdims=True), 1e-300)
        if label is not None:
            share = drawn[:, :, label] @ q.T  # (D, n)
            observed, hits = (
                float((o.label[rows] == label).sum()),
                (rng.random((20, *share.shape)) < share).sum(axis=-1),
            )
            return observed, float((1 + (hits >= observed).sum()) / (1 + hits.size))
        expected = np.cumsum(np.einsum("nc,dcl->ldn", q, drawn, order="C"), axis=0)
        chance = rng.random((20, *expected.shape[1:]))
        given = np.zeros(chance.shape, naming.smallest_int_type(len(expected)))  # (20, D, n)
        for bound in expected[:-1]:
            given += chance > bound
        index = np.arange(rows.size)
        observed, simulated = float(q[index, o.label[rows]].sum()), q[index, given].sum(axis=-1)
        return observed, float((1 + (simulated <= observed + 1e-9).sum()) / (1 + simulated.size))


def judge(others: Others) -> Honesty:
    """Compute the probabilities of the three hypotheses for every annotator."""
    A, K = others.n_annotators, others.q.shape[1]
    used, cuts = _order(others)
    of, label, weight = others.annotator[used], others.label[used], others.weight[used]
    given = np.bincount(of * K + label, weight, A * K).reshape(A, K).astype(np.float64)
    active = given.sum(axis=1) > 0
    typical = np.ones(A)
    wrong = np.full((K, K), 0.9 / max(K - 1, 1))
    np.fill_diagonal(wrong, 0.1)
    for _ in range(2):  # the second time, the crowd's matrix is that of its typical members
        crowd, shares = _crowd(others, used, typical)
        kinds = np.stack([spread * _member(crowd, shares, level) for level in LEVELS for spread in SPREADS])
        of_kinds = np.stack([_evidence(others, used, cuts, kind) for kind in kinds], axis=1)
        biases = (np.full(K, 0.2), np.ones(K), np.full(K, 10.0), 40 * shares + 0.1)
        unrelated = _mean([_unrelated_evidence(given, bias) for bias in biases])
        contrary = _mean([_evidence(others, used, cuts, spread * wrong) for spread in CONTRARY_SPREADS])
        mix, prior = np.full(len(kinds), 1 / len(kinds)), PRIOR
        for _ in range(50):
            log = np.stack([logsumexp(of_kinds + np.log(mix), axis=1), unrelated, contrary], axis=1)
            probability = softmax(log + np.log(prior), axis=1)
            members = (softmax(of_kinds + np.log(mix), axis=1) * probability[:, :1])[active].sum(axis=0) + KIND_PSEUDO
            mix = members / members.sum()
            prior = probability[active].sum(axis=0) + PRIOR_ANNOTATORS * PRIOR
            prior = prior / prior.sum()
            suspect = prior[1:].sum()
            if suspect > MAX_SUSPECT:
                prior = np.append(1 - MAX_SUSPECT, prior[1:] * MAX_SUSPECT / suspect)
        typical = probability[:, 0]
    return Honesty(probability, others, used, kinds, mix)


def _order(others: Others) -> tuple[IntArray, IntArray]:
    """Return the rows that count as evidence, the first ones of each annotator first, and the ends of their chunks."""
    rows = np.flatnonzero(~others.alone & (others.weight > 0))
    shuffled = naming.scramble_integers(others.item[rows].astype(np.uint64))
    rows = rows[np.lexsort((shuffled, others.annotator[rows]))]
    size = np.bincount(others.annotator[rows], minlength=others.n_annotators)
    place = np.arange(rows.size) - np.repeat(np.cumsum(size) - size, size)
    rows, place = rows[place < MAX_LABELS], place[place < MAX_LABELS]
    order = np.argsort(place, kind="stable")
    ends = [0]
    while ends[-1] < place.max(initial=-1) + 1:
        ends.append(max(ends[-1] + 1, int(ends[-1] * GROWTH)))
    return rows[order], np.searchsorted(place[order], ends)


def _crowd(others: Others, used: IntArray, typical: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the matrix of all typical members together (K, K), by EM, and the shares of their labels (K,)."""
    K, label, q = others.q.shape[1], others.label[used], others.q[used]
    weight = others.weight[used] * typical[others.annotator[used]]
    start = 0.7 * np.eye(K) + 0.3 / K
    matrix = start
    for _ in range(30):
        seen = q * matrix[:, label].T
        seen *= (weight / seen.sum(axis=1))[:, None]
        counts = np.stack([np.bincount(label, seen[:, c], K) for c in range(K)])
        matrix = (counts + 2 * start) / (counts.sum(axis=1, keepdims=True) + 2)
    return matrix, (counts.sum(axis=0) + 1 / K) / (counts.sum() + 1)


def _member(crowd: FloatArray, shares: FloatArray, level: float) -> FloatArray:
    """Return the mean matrix of members at a level of skill (K, K)."""
    toward = shares[None, :] if level < 0 else np.eye(len(crowd))
    return np.asarray(0.98 * ((1 - abs(level)) * crowd + abs(level) * toward) + 0.02 / len(crowd))


def _evidence(others: Others, used: IntArray, cuts: IntArray, pseudo: FloatArray) -> FloatArray:
    """Return log P(labels) of each annotator (A,) if rows of the matrix are Dirichlet(pseudo[c, :])."""
    A, K = others.n_annotators, len(pseudo)
    counts, totals, evidence = np.tile(pseudo, (A, 1, 1)), np.tile(pseudo.sum(axis=1), (A, 1)), np.zeros(A)
    for start, end in pairwise(cuts.tolist()):
        rows = used[start:end]
        a, y, w = others.annotator[rows], others.label[rows], others.weight[rows]
        seen = others.q[rows] * counts[a, :, y] / totals[a]  # (n, K)
        p = seen.sum(axis=1)
        evidence += np.bincount(a, w * np.log(p), A)
        seen *= (w / p)[:, None]
        cell = (a[:, None] * K + np.arange(K)).ravel()
        np.add.at(counts.reshape(-1), cell * K + np.repeat(y, K), seen.ravel())
        np.add.at(totals.reshape(-1), cell, seen.ravel())
    return evidence


def _unrelated_evidence(given: FloatArray, pseudo: FloatArray) -> FloatArray:
    """Return log P(labels) of each annotator (A,) if all are drawn from the same shares, Dirichlet(pseudo)."""
    total, n = pseudo.sum(), given.sum(axis=1)
    return np.asarray(gammaln(total) - gammaln(total + n) + (gammaln(pseudo + given) - gammaln(pseudo)).sum(axis=1))


def _mean(logs: list[FloatArray]) -> FloatArray:
    """Return the log of the mean."""
    return np.asarray(logsumexp(logs, axis=0) - np.log(len(logs)))
