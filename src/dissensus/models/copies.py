"""Find groups of copying annotators, who agree more often than the labels of other annotators can explain.

*Proposal.* Let p be the share of an item's other votes for the label y. Two independent annotators agree on y with a
probability that is calibrated as a function of p on all pairs of the table, so that agreement on items that mislead all
annotators is not evidence of copying. If the second annotator copies at rate ρ, the probability is ρ + (1 − ρ) p. The
log likelihood ratio over the shared items is a mixture over ρ. It uses no fitted model, because a large group of copies
would bias it. A proposal consists of one annotator and all annotators whose log likelihood ratio with it is positive.

*Test.* The proposed group S counts as one vote or is left out, and the model of independent annotators is fitted again.
Skills s_k follow from the agreement of annotators of different groups, E[(K·agree − 1) / (K − 1)] = s_j s_k. The
posterior of every item without S, with the design effect d_i (`models.tempering`), is

    q_i(c) ∝ π_c exp(Σ_k w_k [y_ik = c] / d_i)      w_k = log(a_k (K − 1) / (1 − a_k)), a_k = P(k right)

From it follows the probability that k gives the label of S independently. This probability is raised until the expected
agreement of k and S is at least as high as their skills, or k's preference for one label, explain. (Experts agree
because they are right, and annotators who always answer "no" do not copy.) Annotators who agree much more often are
members. The test is repeated until the members do not change. Accepted groups are collapsed, and the search starts
again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from weakref import WeakKeyDictionary

import numpy as np
from scipy.special import erf, erfinv, expit, logit, logsumexp

from dissensus.common.arrays import is_first_of_pair, make_read_only, pairs_within_ranges
from dissensus.common.types import BoolArray, FloatArray, IntArray
from dissensus.models.tempering import DEFAULT_CORRELATION, design_effect
from dissensus.table.annotations import Annotations

COPYING_RATES = np.array([0.5, 0.8, 0.95])  # copying rates that are mixed in the likelihood ratio
MIN_MEMBER_COPIED_SHARE = 0.5  # minimum share of copied labels for a member
MIN_GROUP_COPIED_SHARE = 0.8  # minimum share of copied labels for a group; experts in a poor crowd reach 0.75
MAX_GROUP_SHARE = 0.45  # maximum share of annotators; a copying majority looks like a correct one
MAX_MEMBER_ERROR = 0.25  # maximum probability that an accepted member does not copy
MAX_GROUP_ERROR = 0.001  # maximum probability that an accepted group does not copy
SKILL_PSEUDO_LABELS = 20  # number of pseudo-labels of average skill that are added for every annotator
MAX_PROPOSALS = 8  # maximum number of proposals per round
MAX_REJECTED_PROPOSALS = 4  # number of consecutive rejected proposals that ends a round
MAX_ROUNDS = 6  # maximum number of rounds of proposals
MAX_SEARCHED_ROWS = 25_000  # maximum number of rows; larger tables are sampled
MAX_PAIRS = 3_000_000  # maximum number of label pairs for proposals; if there are more, items are sampled
MAX_CALIBRATION_PAIRS = 30_000  # maximum number of label pairs for the calibration
AgreementRate = Callable[[FloatArray], FloatArray]
CALIBRATION_BIN_EDGES = expit(np.linspace(-4.5, 4.5, 19))  # bin edges of p for the calibration
MIN_PROBABILITY = 0.01  # minimum distance of a probability from 0 and from 1


@dataclass(frozen=True, eq=False)
class CopyGroups:
    """The groups of copying annotators; arrays have one entry per annotator, which is 0 without a group."""

    groups: tuple[tuple[int, ...], ...]  # codes of the members of each group, largest group first
    unit: IntArray  # (A,) lowest code of the annotator's group; without a group, its own code
    n_shared: IntArray  # (A,) number of labels on items that another member labelled too
    n_agreed: IntArray  # (A,) number of these labels that equal the group's label
    n_expected: FloatArray  # (A,) number of labels that would be equal without copying
    copied_share: FloatArray  # (A,) share of copied labels
    probability: FloatArray  # (A,) P(the annotator copies in its group | labels)


# The groups are cached because `fit` and `diagnose` search the same table.
_cached_groups: WeakKeyDictionary[Annotations, CopyGroups] = WeakKeyDictionary()


def find_copies(table: Annotations) -> CopyGroups:
    """Return the groups of copying annotators; only the first label of an annotator on an item counts."""
    if table not in _cached_groups:
        few = table if table.weight is None or table.weight.all() else table.select(rows=table.weight > 0)
        if len(few) > MAX_SEARCHED_ROWS:
            order = np.random.default_rng(0).permutation(few.n_items)
            items = order[: np.searchsorted(np.cumsum(np.diff(few.item_ptr)[order]), MAX_SEARCHED_ROWS)]
            few = few.select(rows=np.isin(few.item, items))
        _cached_groups[table] = _CopySearch(few).find_groups()
    return _cached_groups[table]


@dataclass(frozen=True, eq=False)
class _GroupAgreement:
    """The agreement of each annotator with one group."""

    evidence: FloatArray  # (A,) log likelihood ratio of copying from the group
    shared: IntArray
    agreed: IntArray
    expected: FloatArray

    @property
    def copied(self) -> FloatArray:
        return (self.agreed - self.expected) / np.maximum(self.shared - self.expected, 1e-9)


class _CopySearch:
    """The search for groups: the rows of the table and the model of independent annotators."""

    def __init__(self, table: Annotations):
        first = is_first_of_pair(table.item, table.annotator)
        self.item, self.annotator, self.label = (
            column[first].astype(np.int64) for column in (table.item, table.annotator, table.label)
        )
        self.A, self.K, self.I = table.n_annotators, table.n_classes, table.n_items
        self.given = np.bincount(self.label * self.A + self.annotator, minlength=self.K * self.A).reshape(-1, self.A)
        self.n = self.given.sum(axis=0)
        self.left, self.right = _sample_row_pairs(np.bincount(self.item, minlength=self.I))
        self.agree = self.label[self.left] == self.label[self.right]
        key, self.pair = np.unique(self.annotator[self.left] * self.A + self.annotator[self.right], return_inverse=True)
        self.first, self.second = key // self.A, key % self.A
        some = np.sort(np.random.default_rng(0).permutation(self.left.size)[:MAX_CALIBRATION_PAIRS])
        self.sample = self.left[some], self.right[some], self.agree[some]
        self.unit = np.arange(self.A)
        self.fitted: IntArray | None = None  # units of the last complete fit

    def find_groups(self) -> CopyGroups:
        """Run the search and return the groups."""
        for _ in range(MAX_ROUNDS if self.first.size and self.K > 1 else 0):
            if not self._run_round():
                break
        shared, agreed = np.zeros(self.A, np.int64), np.zeros(self.A, np.int64)
        expected, copied, probability = np.zeros((3, self.A))
        groups = [np.flatnonzero(self.unit == code) for code in np.flatnonzero(np.bincount(self.unit) > 1)]
        if groups:
            self._fit_independent_model(self.unit)
        for group in groups:
            fit = self._compare_with_group(group)
            shared[group], agreed[group], expected[group] = fit.shared[group], fit.agreed[group], fit.expected[group]
            copied[group] = np.clip(fit.copied[group], 0, 1)
            probability[group] = expit(fit.evidence[group] + logit(self._membership_prior(group)))
        ordered = sorted((tuple(group.tolist()) for group in groups), key=lambda group: (-len(group), group))
        return CopyGroups(
            tuple(ordered), *map(make_read_only, (self.unit, shared, agreed, expected, copied, probability))
        )

    def _run_round(self) -> bool:
        """Propose and test groups; return whether a group was added or has grown."""
        self._fit_independent_model(self.unit)
        near = self._compute_pair_evidence()
        score = np.bincount(self.unit, np.bincount(self.first, near, self.A) + np.bincount(self.second, near, self.A))
        taken, grown, failures = np.zeros(self.A, np.bool_), False, 0
        for seed in np.argsort(-score, kind="stable")[:MAX_PROPOSALS]:
            if score[seed] < 2 or failures == MAX_REJECTED_PROPOSALS:
                break
            own = self.unit == seed
            if (own & taken).any():
                continue
            proposed = own.copy()
            proposed[self.second[(near > 0) & own[self.first]]] = True
            proposed[self.first[(near > 0) & own[self.second]]] = True
            group = self._refine_group(np.flatnonzero(proposed & ~taken))
            if group is None or taken[group].any():
                failures += 1
                continue
            joined = np.unique(self.unit[group])
            grown |= joined.size > 1
            failures = 0 if joined.size > 1 else failures + 1
            self.unit[np.isin(self.unit, joined)] = joined.min()
            taken[group] = True
        return grown

    def _compute_pair_evidence(self) -> FloatArray:
        """Return, for each pair, the part of its log likelihood ratio above 1 nat, (P,); 0 within a group."""
        i, y = self.item[self.left], self.label[self.left]
        votes = self.votes[y, i] - self.unit_votes[y, self.left] - self.unit_votes[y, self.right]
        others = np.maximum(self.voters[i] - 2, 0)
        p = np.clip((np.maximum(votes, 0) + 2 * self.prior[y]) / (others + 2), MIN_PROBABILITY, 1 - MIN_PROBABILITY)
        apart = self.unit[self.first] != self.unit[self.second]
        counted = apart[self.pair] & (others > 0)  # without other labels on the item, agreement is no evidence
        p, agree = _calibrate_agreement(p[counted], self.agree[counted])(p[counted]), self.agree[counted]
        return np.where(
            apart, np.maximum(_compute_copying_evidence(p, agree, self.pair[counted], self.first.size) - 1, 0), 0
        )

    def _refine_group(self, group: IntArray) -> IntArray | None:
        """Fit and test until the members stay the same; return them, or None if the group fails the test."""
        refit = False
        for bar in (1.0, 2.0, *[None] * 6):
            if group.size < 2 or (bar is None and group.size > max(MAX_GROUP_SHARE * (self.n > 0).sum(), 2)):
                return None
            unit = self.unit.copy()
            unit[np.isin(unit, unit[group])] = unit[group].min()
            group = np.flatnonzero(unit == unit[group].min())
            self._fit_independent_model(unit, full=refit)
            fit = self._compare_with_group(group)
            least = (
                bar if bar is not None else max(-logit(self._membership_prior(group)) - np.log(MAX_MEMBER_ERROR), 2.0)
            )
            found = np.flatnonzero((fit.evidence > least) & (fit.copied > MIN_MEMBER_COPIED_SHARE))
            last, group, refit = group, found, True
            if bar is None and np.array_equal(found, last):
                break
        group = np.intersect1d(group, last)  # some members may alternate between iterations
        if group.size < 2:
            return None
        fit = self._compare_with_group(group)
        group = group[(fit.evidence[group] > 2) & (fit.copied[group] > MIN_MEMBER_COPIED_SHARE)]
        evidence = fit.evidence[group].sum() / (2 if group.size == 2 else 1)  # the evidence of a pair is counted twice
        tried = self.first.size if group.size == 2 else self.A**3
        excess, room = ((count - fit.expected)[group].sum() for count in (fit.agreed, fit.shared))
        return group if evidence > np.log(tried / MAX_GROUP_ERROR) and excess > MIN_GROUP_COPIED_SHARE * room else None

    def _membership_prior(self, group: IntArray) -> float:
        """Return the prior probability that an annotator is a member of a group."""
        return float(np.clip((group.size - 1) / self.A, 1 / self.A, 0.5))

    def _fit_independent_model(self, unit: IntArray, full: bool = True) -> None:
        """Fit skills, class shares and votes with one vote per unit and item."""
        if full and self.fitted is not None and np.array_equal(unit, self.fitted):
            return
        K, self.fitted = self.K, unit.copy() if full else None
        _, slot, size = np.unique(self.item * self.A + unit[self.annotator], return_inverse=True, return_counts=True)
        weight = 1 / size[slot]
        self.votes = self._sum_by_label(weight, self.item, self.I)  # (K, I)
        self.unit_votes = self._sum_by_label(weight, slot, size.size)[:, slot]  # (K, N) votes of the row's own unit
        self.voters = self.votes.sum(axis=0)
        self.prior = (self.votes.sum(axis=1) + 1) / (self.votes.sum() + K)
        self._fit_skills(weight, slot)
        log = np.log(self.accuracy * (K - 1) / (1 - self.accuracy))[self.annotator] * weight
        self.log = self._sum_by_label(log, self.item, self.I)
        self.unit_log = self._sum_by_label(log, slot, size.size)[:, slot]
        if full:
            q = self._posterior(self.log[:, self.item] - self.unit_log, self.voters[self.item] - 1)
            start = 0.7 * np.eye(K) + 0.3 / K
            self.confusion = start
            for _ in range(5):
                joint = q * self.confusion[:, self.label]
                joint *= weight / joint.sum(axis=0)
                counts = np.stack([np.bincount(self.label, row, K) for row in joint]) + start / 2
                self.confusion = counts / counts.sum(axis=1, keepdims=True)
        left, right, agree = self.sample
        apart = unit[self.annotator[left]] != unit[self.annotator[right]]
        left, right = left[apart], right[apart]
        i, y = self.item[left], self.label[left]
        votes = self.votes[y, i] - self.unit_votes[y, left] - self.unit_votes[y, right]
        log = self.log[:, i] - self.unit_log[:, left] - self.unit_log[:, right]
        p = self._predict_labels(log, votes, self.voters[i] - 2, self.annotator[right], y)
        self.calibrated = _calibrate_agreement(p, agree[apart])

    def _sum_by_label(self, value: FloatArray, code: IntArray, n: int) -> FloatArray:
        """Return the sums (K, n) of values (N,) by label and code."""
        return np.bincount(self.label * n + code, value, self.K * n).reshape(self.K, n).astype(np.float64, copy=False)

    def _fit_skills(self, weight: FloatArray, slot: IntArray) -> None:
        """Fit the skills s by alternating least squares over all pairs of different units on an item."""
        K, item = self.K, self.item
        shared = np.flatnonzero(weight < 1)  # rows of units with several rows on the item

        def other_sums(value: FloatArray, group: IntArray, own: IntArray) -> FloatArray:
            """Return, for each row, the sum over its group without its unit, (N,); `own` numbers units' groups."""
            unit_sum = value.copy()
            unit_sum[shared] = np.bincount(own, value[shared])[own]
            return np.asarray(np.bincount(group, value)[group] - unit_sum)

        same_item, same_slot = item * K + self.label, np.unique((slot * K + self.label)[shared], return_inverse=True)[1]
        slot = slot[shared]
        agreed = other_sums(weight, same_item, same_slot)
        average = (K * agreed.sum() / max((self.voters[item] - 1).sum(), 1) - 1) / (K - 1)
        mean = np.sqrt(max(average, 0.01))
        skill = np.full(self.A, mean)
        for _ in range(12):
            vote = weight * skill[self.annotator]
            agreed, total = other_sums(vote, same_item, same_slot), other_sums(vote, item, slot)
            square = other_sums(vote * skill[self.annotator], item, slot)
            top = np.bincount(self.annotator, (K * agreed - total) / (K - 1), self.A) + SKILL_PSEUDO_LABELS * mean**3
            bottom = np.bincount(self.annotator, square, self.A) + SKILL_PSEUDO_LABELS * mean**2
            skill = (skill + np.clip(top / bottom, -1, 1)) / 2
        self.skill = skill
        self.accuracy = np.clip((1 + (K - 1) * skill) / K, 0.05, 0.97)
        self.average = max(float((self.accuracy * self.n).sum() / self.n.sum()), 1 / K + 0.05)

    def _posterior(self, log: FloatArray, voters: FloatArray) -> FloatArray:
        """Return the tempered posterior (K, n); it cannot overflow, because at most 1/ρ votes count."""
        log /= design_effect(voters, DEFAULT_CORRELATION)
        q = np.exp(log, out=log)
        q *= self.prior[:, None]
        q /= q.sum(axis=0)
        return q

    def _predict_labels(
        self, log: FloatArray, votes: FloatArray, voters: FloatArray, annotator: IntArray, label: IntArray
    ) -> FloatArray:
        """Return P(annotator gives label), (n,), from the other votes on the item and its posterior."""
        q, chance = self._posterior(log, voters), 1 / self.K
        accuracy = self.accuracy[annotator]
        like_crowd = np.clip((accuracy - chance) / (self.average - chance), 0, 1)
        expert = np.clip((accuracy - self.average) / (1 - self.average), 0, 1)
        certain = q[label, np.arange(label.size)]
        q *= self.confusion[:, label]
        p = like_crowd * q.sum(axis=0) + (1 - like_crowd) * self.prior[label]
        p = (1 - expert) * p + expert * certain
        return np.asarray(
            np.clip((np.maximum(votes, 0) + 2 * p) / (np.maximum(voters, 0) + 2), MIN_PROBABILITY, 1 - MIN_PROBABILITY)
        )

    def _compare_with_group(self, group: IntArray) -> _GroupAgreement:
        """Compare each annotator's labels with the group's, leaving the annotator out."""
        inside = np.zeros(self.A, np.bool_)
        inside[group] = True
        member = inside[self.annotator]
        at = np.flatnonzero(member)
        votes_of_group = np.bincount(self.label[at] * self.I + self.item[at], minlength=self.K * self.I)
        votes_of_group = votes_of_group.reshape(-1, self.I)
        first = at[np.unique(self.item[at], return_index=True)[1]]  # one row of the group per item
        group_votes, group_log = np.zeros((2, self.K, self.I))
        group_votes[:, self.item[first]], group_log[:, self.item[first]] = (
            self.unit_votes[:, first],
            self.unit_log[:, first],
        )
        # Labels can be predicted only from labels of other annotators.
        alone = self.voters[self.item] - 1 - ~member <= 0
        rows = np.flatnonzero((votes_of_group.sum(axis=0)[self.item] > member) & ~alone)
        i, annotator, inner = self.item[rows], self.annotator[rows], member[rows]
        others = votes_of_group[:, i]
        others[self.label[rows], np.arange(rows.size)] -= inner
        label = others.argmax(axis=0)
        votes = self.votes[label, i] - group_votes[label, i] - ~inner * self.unit_votes[label, rows]
        log = self.log[:, i] - group_log[:, i] - ~inner * self.unit_log[:, rows]
        p = self.calibrated(self._predict_labels(log, votes, self.voters[i] - 1 - ~inner, annotator, label))

        shared, agreed = (
            np.bincount(annotator, minlength=self.A),
            np.bincount(annotator, self.label[rows] == label, self.A),
        )
        preference = np.bincount(annotator, self.given[label, annotator] / self.n[annotator], self.A) / np.maximum(
            shared, 1
        )
        mean = np.clip(np.average(self.skill[group], weights=self.n[group]), 0, 0.99)
        members = others.sum(axis=0).mean() if rows.size else 1.0  # mean number of other members per item
        plurality = erf(np.sqrt(members) * erfinv(mean))  # skill of a plurality vote of independent annotators
        by_skill = (1 + (self.K - 1) * np.maximum(self.skill * plurality, 0)) / self.K
        p = _raise_mean(p, annotator, np.minimum(np.maximum(by_skill, preference), 1 - MIN_PROBABILITY))
        evidence = _compute_copying_evidence(p, self.label[rows] == label, annotator, self.A)
        return _GroupAgreement(
            evidence, shared, agreed.astype(np.int64), np.bincount(annotator, p, self.A).astype(np.float64)
        )


def _sample_row_pairs(per_item: IntArray) -> tuple[IntArray, IntArray]:
    """Return the pairs of rows on the same item; items are sampled if there are more than `MAX_PAIRS` pairs."""
    start, pairs = np.cumsum(per_item) - per_item, per_item * (per_item - 1) // 2
    used = np.arange(per_item.size)
    if pairs.sum() > MAX_PAIRS:
        used = np.random.default_rng(0).permutation(per_item.size)
        used = np.sort(used[np.cumsum(pairs[used]) <= MAX_PAIRS])
    return pairs_within_ranges(start[used], per_item[used])


def _calibrate_agreement(p: FloatArray, agree: BoolArray) -> AgreementRate:
    """Return a function that maps p to the observed rate of agreement of pairs."""
    place = np.digitize(p, CALIBRATION_BIN_EDGES)
    n, hits, expected = (np.bincount(place, value, CALIBRATION_BIN_EDGES.size + 1) for value in (None, agree, p))
    if not n.any():
        return lambda p: p
    rate = (hits + 10 * expected / np.maximum(n, 1)) / (n + 10)
    rate = np.clip(np.interp(np.arange(n.size), np.flatnonzero(n), rate[n > 0]), MIN_PROBABILITY, 1 - MIN_PROBABILITY)
    return lambda p: rate[np.digitize(p, CALIBRATION_BIN_EDGES)]


def _compute_copying_evidence(p: FloatArray, hit: BoolArray, code: IntArray, n: int) -> FloatArray:
    """Return the log likelihood ratio, by code (n,), of copying against independent agreement at rate p."""
    sums = [np.bincount(code, np.log(np.where(hit, rate / p, 0) + 1 - rate), n) for rate in COPYING_RATES]
    return np.asarray(logsumexp(sums, axis=0) - np.log(COPYING_RATES.size))


def _raise_mean(p: FloatArray, code: IntArray, least: FloatArray) -> FloatArray:
    """Shift the logits of p of each annotator so that their mean probability is at least `least`."""
    n, x, shift = np.maximum(np.bincount(code, minlength=least.size), 1), logit(p), np.zeros(least.size)
    for _ in range(8):  # Newton steps
        p = expit(x + shift[code])
        slope = np.maximum(np.bincount(code, p * (1 - p), least.size) / n, 0.02)
        shift = np.clip(shift + np.clip((least - np.bincount(code, p, least.size) / n) / slope, -1, 1), 0, 5)
    return np.asarray(np.clip(expit(x + shift[code]), MIN_PROBABILITY, 1 - MIN_PROBABILITY))
