"""Groups of annotators who copy: they agree on labels, wrong ones too, that nobody outside leads us to expect.

*Proposal.* Two annotators agree on an item's label y with probability p, the share of the item's other votes for y
(calibrated on all pairs of this table, so that items that mislead everybody explain their own agreement). If the second
copies at rate ρ it is ρ + (1 − ρ) p. The log likelihood ratio over the items that two share, a mixture over ρ, needs
no model that a large block of copies might have captured. An annotator and all who fit it is a proposal.

*Test.* The proposed group S counts as one vote, or not at all, and the rest is fitted again: skills s_k from the
agreement of all who are not in the same group, E[(K·agree − 1) / (K − 1)] = s_j s_k, and the posterior of every item
without S, d_i being its design effect (`models.tempering`),

    q_i(c) ∝ π_c exp(Σ_k w_k [y_ik = c] / d_i)      w_k = log(a_k (K − 1) / (1 − a_k)), a_k = P(k right)

from which follows how probable it is that k says by itself what S says. It is raised until k and S agree as often as
their skills would make them, or k's habit of giving one label: experts agree because all are right, and those who
always say "no" copy nobody. Whoever agrees much more is a member; this is repeated until the group stays as it is.
Accepted groups are collapsed, and the search starts again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from weakref import WeakKeyDictionary

import numpy as np
from scipy.special import erf, erfinv, expit, logit, logsumexp

from dissensus.common.arrays import pair_starts, pairs_of_ranges, read_only
from dissensus.common.types import BoolArray, FloatArray, IntArray
from dissensus.models.tempering import DEFAULT_CORRELATION, design_effect
from dissensus.table.annotations import Annotations

RATES = np.array([0.5, 0.8, 0.95])  # shares of copied labels that the alternative mixes
MIN_COPIED = 0.5  # share of a member's labels
MIN_GROUP_COPIED = 0.8  # of all labels of a group; experts in a poor crowd come to 0.75
MAX_GROUP = 0.45  # share of the annotators: nothing tells a majority that copies from one that is right
MEMBER_ERROR = 0.25  # bound on the chance that somebody who meets the bar is no member; 19 of 13,340 others met it
GROUP_ERROR = 0.001  # chance that a group is none
SKILL_LABELS = 20  # of average skill that everybody starts with
MAX_PROPOSALS = 8  # in a round
MAX_FAILURES = 4  # proposals in a row that are no group, before a round ends
MAX_ROUNDS = 6
MAX_ROWS = 25_000  # labels that are looked at; of a larger table some items
MAX_PAIRS = 3_000_000  # pairs of labels that proposals are made from; beyond it some items are left out
MAX_CALIBRATION_PAIRS = 30_000
Tempering = Callable[[FloatArray], FloatArray]
EDGES = expit(np.linspace(-4.5, 4.5, 19))  # of the bins of p
TINY = 0.01


@dataclass(frozen=True, eq=False)
class Copies:
    """Who copies; arrays have one entry per annotator, 0 for those in no group."""

    groups: tuple[tuple[int, ...], ...]  # the largest first
    unit: IntArray  # (A,) the lowest code of the own group, the own code without one
    shared: IntArray  # (A,) labels on items that others of the group have labelled too
    agreed: IntArray  # (A,) of those, how many are the group's label
    expected: FloatArray  # (A,) how many would be without copying
    copied: FloatArray  # (A,) share of the labels that are copied
    probability: FloatArray  # (A,) P(copies with its group | labels)


_found: WeakKeyDictionary[Annotations, Copies] = WeakKeyDictionary()  # a fit and a diagnosis ask for the same


def find_copies(table: Annotations) -> Copies:
    """Find the groups of a table; of several labels of one annotator for an item the first counts."""
    if table not in _found:
        few = table if table.weight is None or table.weight.all() else table.select(rows=table.weight > 0)
        if len(few) > MAX_ROWS:
            order = np.random.default_rng(0).permutation(few.n_items)
            items = order[: np.searchsorted(np.cumsum(np.diff(few.item_ptr)[order]), MAX_ROWS)]
            few = few.select(rows=np.isin(few.item, items))
        _found[table] = _Search(few).run()
    return _found[table]


@dataclass(frozen=True, eq=False)
class _Fit:
    """Agreement of everybody with one group."""

    evidence: FloatArray  # (A,) nats for copying it
    shared: IntArray
    agreed: IntArray
    expected: FloatArray

    @property
    def copied(self) -> FloatArray:
        return (self.agreed - self.expected) / np.maximum(self.shared - self.expected, 1e-9)


class _Search:
    """Rows of the table, and the model of those who do not copy."""

    def __init__(self, table: Annotations):
        once = pair_starts(table.item, table.annotator)
        self.item, self.annotator, self.label = (
            column[once].astype(np.int64) for column in (table.item, table.annotator, table.label)
        )
        self.A, self.K, self.I = table.n_annotators, table.n_classes, table.n_items
        self.given = np.bincount(self.label * self.A + self.annotator, minlength=self.K * self.A).reshape(-1, self.A)
        self.n = self.given.sum(axis=0)
        self.left, self.right = _pairs(np.bincount(self.item, minlength=self.I))
        self.agree = self.label[self.left] == self.label[self.right]
        key, self.pair = np.unique(self.annotator[self.left] * self.A + self.annotator[self.right], return_inverse=True)
        self.first, self.second = key // self.A, key % self.A
        some = np.sort(np.random.default_rng(0).permutation(self.left.size)[:MAX_CALIBRATION_PAIRS])
        self.sample = self.left[some], self.right[some], self.agree[some]
        self.unit = np.arange(self.A)
        self.fitted: IntArray | None = None  # units of the last full model

    def run(self) -> Copies:
        """See the module."""
        for _ in range(MAX_ROUNDS if self.first.size and self.K > 1 else 0):
            if not self._round():
                break
        shared, agreed = np.zeros(self.A, np.int64), np.zeros(self.A, np.int64)
        expected, copied, probability = np.zeros((3, self.A))
        groups = [np.flatnonzero(self.unit == one) for one in np.flatnonzero(np.bincount(self.unit) > 1)]
        if groups:
            self._model(self.unit)
        for group in groups:
            fit = self._against(group)
            shared[group], agreed[group], expected[group] = fit.shared[group], fit.agreed[group], fit.expected[group]
            copied[group] = np.clip(fit.copied[group], 0, 1)
            probability[group] = expit(fit.evidence[group] + logit(self._share(group)))
        ordered = sorted((tuple(group.tolist()) for group in groups), key=lambda group: (-len(group), group))
        return Copies(tuple(ordered), *map(read_only, (self.unit, shared, agreed, expected, copied, probability)))

    def _round(self) -> bool:
        """Propose groups and accept those that pass the test; True where one is new or has grown."""
        self._model(self.unit)
        near = self._near()
        score = np.bincount(self.unit, np.bincount(self.first, near, self.A) + np.bincount(self.second, near, self.A))
        taken, grown, failures = np.zeros(self.A, np.bool_), False, 0
        for seed in np.argsort(-score, kind="stable")[:MAX_PROPOSALS]:
            if score[seed] < 2 or failures == MAX_FAILURES:
                break
            own = self.unit == seed
            if (own & taken).any():
                continue
            proposed = own.copy()
            proposed[self.second[(near > 0) & own[self.first]]] = True
            proposed[self.first[(near > 0) & own[self.second]]] = True
            group = self._grow(np.flatnonzero(proposed & ~taken))
            if group is None or taken[group].any():
                failures += 1
                continue
            joined = np.unique(self.unit[group])
            grown |= joined.size > 1
            failures = 0 if joined.size > 1 else failures + 1
            self.unit[np.isin(self.unit, joined)] = joined.min()
            taken[group] = True
        return grown

    def _near(self) -> FloatArray:
        """(P,) nats by which copying explains each pair better than chance, above one; 0 within a group."""
        i, y = self.item[self.left], self.label[self.left]
        votes = self.votes[y, i] - self.unit_votes[y, self.left] - self.unit_votes[y, self.right]
        others = np.maximum(self.voters[i] - 2, 0)
        p = np.clip((np.maximum(votes, 0) + 2 * self.prior[y]) / (others + 2), TINY, 1 - TINY)
        apart = self.unit[self.first] != self.unit[self.second]
        counted = apart[self.pair] & (others > 0)  # where nobody else has labelled an item, two may well agree
        p, agree = _calibration(p[counted], self.agree[counted])(p[counted]), self.agree[counted]
        return np.where(apart, np.maximum(_evidence(p, agree, self.pair[counted], self.first.size) - 1, 0), 0)

    def _grow(self, group: IntArray) -> IntArray | None:
        """Repeat test and fit until the members stay the same; None where the group does not pass."""
        refit = False
        for bar in (1.0, 2.0, *[None] * 6):
            if group.size < 2 or (bar is None and group.size > max(MAX_GROUP * (self.n > 0).sum(), 2)):
                return None
            unit = self.unit.copy()
            unit[np.isin(unit, unit[group])] = unit[group].min()
            group = np.flatnonzero(unit == unit[group].min())
            self._model(unit, full=refit)
            fit = self._against(group)
            least = bar if bar is not None else max(-logit(self._share(group)) - np.log(MEMBER_ERROR), 2.0)
            found = np.flatnonzero((fit.evidence > least) & (fit.copied > MIN_COPIED))
            last, group, refit = group, found, True
            if bar is None and np.array_equal(found, last):
                break
        group = np.intersect1d(group, last)  # a few may come and go
        if group.size < 2:
            return None
        fit = self._against(group)
        group = group[(fit.evidence[group] > 2) & (fit.copied[group] > MIN_COPIED)]
        evidence = fit.evidence[group].sum() / (2 if group.size == 2 else 1)  # of two, both sides are one
        tried = self.first.size if group.size == 2 else self.A**3
        excess, room = ((one - fit.expected)[group].sum() for one in (fit.agreed, fit.shared))
        return group if evidence > np.log(tried / GROUP_ERROR) and excess > MIN_GROUP_COPIED * room else None

    def _share(self, group: IntArray) -> float:
        """Prior probability that somebody copies with a group."""
        return float(np.clip((group.size - 1) / self.A, 1 / self.A, 0.5))

    def _model(self, unit: IntArray, full: bool = True) -> None:
        """Skills, class shares and votes where each unit has one vote on an item."""
        if full and self.fitted is not None and np.array_equal(unit, self.fitted):
            return
        K, self.fitted = self.K, unit.copy() if full else None
        _, slot, size = np.unique(self.item * self.A + unit[self.annotator], return_inverse=True, return_counts=True)
        weight = 1 / size[slot]
        self.votes = self._by_label(weight, self.item, self.I)  # (K, I)
        self.unit_votes = self._by_label(weight, slot, size.size)[:, slot]  # (K, N) of the row's own unit
        self.voters = self.votes.sum(axis=0)
        self.prior = (self.votes.sum(axis=1) + 1) / (self.votes.sum() + K)
        self._fit_skills(weight, slot)
        log = np.log(self.accuracy * (K - 1) / (1 - self.accuracy))[self.annotator] * weight
        self.log = self._by_label(log, self.item, self.I)
        self.unit_log = self._by_label(log, slot, size.size)[:, slot]
        if full:
            q = self._posterior(self.log[:, self.item] - self.unit_log, self.voters[self.item] - 1)
            start = 0.7 * np.eye(K) + 0.3 / K
            self.confusion = start
            for _ in range(5):
                seen = q * self.confusion[:, self.label]
                seen *= weight / seen.sum(axis=0)
                counts = np.stack([np.bincount(self.label, one, K) for one in seen]) + start / 2
                self.confusion = counts / counts.sum(axis=1, keepdims=True)
        left, right, agree = self.sample
        apart = unit[self.annotator[left]] != unit[self.annotator[right]]
        left, right = left[apart], right[apart]
        i, y = self.item[left], self.label[left]
        votes = self.votes[y, i] - self.unit_votes[y, left] - self.unit_votes[y, right]
        log = self.log[:, i] - self.unit_log[:, left] - self.unit_log[:, right]
        p = self._predicted(log, votes, self.voters[i] - 2, self.annotator[right], y)
        self.calibrated = _calibration(p, agree[apart])

    def _by_label(self, value: FloatArray, of: IntArray, n: int) -> FloatArray:
        """(K, n) sums of values (N,) by label and code."""
        return np.bincount(self.label * n + of, value, self.K * n).reshape(self.K, n).astype(np.float64, copy=False)

    def _fit_skills(self, weight: FloatArray, slot: IntArray) -> None:
        """Skills s by alternating least squares over all pairs of different units on an item."""
        K, item = self.K, self.item
        shared = np.flatnonzero(weight < 1)  # rows that are not all of their unit's vote

        def of_others(value: FloatArray, on: IntArray, own: IntArray) -> FloatArray:
            """(N,) sums of the values with the same code in `on`, less those of the row's unit, the same in `own`."""
            mine = value.copy()
            mine[shared] = np.bincount(own, value[shared])[own]
            return np.asarray(np.bincount(on, value)[on] - mine)

        same_item, same_slot = item * K + self.label, np.unique((slot * K + self.label)[shared], return_inverse=True)[1]
        slot = slot[shared]
        agreed = of_others(weight, same_item, same_slot)
        average = (K * agreed.sum() / max((self.voters[item] - 1).sum(), 1) - 1) / (K - 1)
        mean = np.sqrt(max(average, 0.01))
        skill = np.full(self.A, mean)
        for _ in range(12):
            mine = weight * skill[self.annotator]
            agreed, everybody = of_others(mine, same_item, same_slot), of_others(mine, item, slot)
            square = of_others(mine * skill[self.annotator], item, slot)
            top = np.bincount(self.annotator, (K * agreed - everybody) / (K - 1), self.A) + SKILL_LABELS * mean**3
            bottom = np.bincount(self.annotator, square, self.A) + SKILL_LABELS * mean**2
            skill = (skill + np.clip(top / bottom, -1, 1)) / 2
        self.skill = skill
        self.accuracy = np.clip((1 + (K - 1) * skill) / K, 0.05, 0.97)
        self.average = max(float((self.accuracy * self.n).sum() / self.n.sum()), 1 / K + 0.05)

    def _posterior(self, log: FloatArray, voters: FloatArray) -> FloatArray:
        """(K, n); log is a mean of at most 1/ρ votes of bounded accuracy, so nothing overflows."""
        log /= design_effect(voters, DEFAULT_CORRELATION)
        q = np.exp(log, out=log)
        q *= self.prior[:, None]
        q /= q.sum(axis=0)
        return q

    def _predicted(
        self, log: FloatArray, votes: FloatArray, voters: FloatArray, annotator: IntArray, label: IntArray
    ) -> FloatArray:
        """(n,) P(annotator gives label), by what others say of the item: their votes for it, and what all mean."""
        q, chance = self._posterior(log, voters), 1 / self.K
        accuracy = self.accuracy[annotator]
        like_crowd = np.clip((accuracy - chance) / (self.average - chance), 0, 1)
        expert = np.clip((accuracy - self.average) / (1 - self.average), 0, 1)
        certain = q[label, np.arange(label.size)]
        q *= self.confusion[:, label]
        p = like_crowd * q.sum(axis=0) + (1 - like_crowd) * self.prior[label]
        p = (1 - expert) * p + expert * certain
        return np.asarray(np.clip((np.maximum(votes, 0) + 2 * p) / (np.maximum(voters, 0) + 2), TINY, 1 - TINY))

    def _against(self, group: IntArray) -> _Fit:
        """Hold everybody's labels to those of a group that is one unit; members leave themselves out."""
        inside = np.zeros(self.A, np.bool_)
        inside[group] = True
        member = inside[self.annotator]
        at = np.flatnonzero(member)
        said = np.bincount(self.label[at] * self.I + self.item[at], minlength=self.K * self.I).reshape(-1, self.I)
        first = at[np.unique(self.item[at], return_index=True)[1]]  # a row of the group on each of its items
        group_votes, group_log = np.zeros((2, self.K, self.I))
        group_votes[:, self.item[first]], group_log[:, self.item[first]] = (
            self.unit_votes[:, first],
            self.unit_log[:, first],
        )
        alone = self.voters[self.item] - 1 - ~member <= 0  # nobody outside says what would be expected
        rows = np.flatnonzero((said.sum(axis=0)[self.item] > member) & ~alone)
        i, who, inner = self.item[rows], self.annotator[rows], member[rows]
        theirs = said[:, i]
        theirs[self.label[rows], np.arange(rows.size)] -= inner
        label = theirs.argmax(axis=0)
        votes = self.votes[label, i] - group_votes[label, i] - ~inner * self.unit_votes[label, rows]
        log = self.log[:, i] - group_log[:, i] - ~inner * self.unit_log[:, rows]
        p = self.calibrated(self._predicted(log, votes, self.voters[i] - 1 - ~inner, who, label))

        shared, agreed = np.bincount(who, minlength=self.A), np.bincount(who, self.label[rows] == label, self.A)
        habit = np.bincount(who, self.given[label, who] / self.n[who], self.A) / np.maximum(shared, 1)
        mean = np.clip(np.average(self.skill[group], weights=self.n[group]), 0, 0.99)
        members = theirs.sum(axis=0).mean() if rows.size else 1.0  # who say it, on average
        plurality = erf(np.sqrt(members) * erfinv(mean))  # the skill of so many by themselves
        by_skill = (1 + (self.K - 1) * np.maximum(self.skill * plurality, 0)) / self.K
        p = _raised(p, who, np.minimum(np.maximum(by_skill, habit), 1 - TINY))
        evidence = _evidence(p, self.label[rows] == label, who, self.A)
        return _Fit(evidence, shared, agreed.astype(np.int64), np.bincount(who, p, self.A).astype(np.float64))


def _pairs(per_item: IntArray) -> tuple[IntArray, IntArray]:
    """Pairs of rows of the same item, of all items or of as many as there is room for."""
    start, pairs = np.cumsum(per_item) - per_item, per_item * (per_item - 1) // 2
    used = np.arange(per_item.size)
    if pairs.sum() > MAX_PAIRS:
        used = np.random.default_rng(0).permutation(per_item.size)
        used = np.sort(used[np.cumsum(pairs[used]) <= MAX_PAIRS])
    return pairs_of_ranges(start[used], per_item[used])


def _calibration(p: FloatArray, agree: BoolArray) -> Tempering:
    """How often pairs with about this p do agree, as a function of p."""
    place = np.digitize(p, EDGES)
    n, hits, expected = (np.bincount(place, value, EDGES.size + 1) for value in (None, agree, p))
    if not n.any():
        return lambda p: p
    rate = (hits + 10 * expected / np.maximum(n, 1)) / (n + 10)
    rate = np.clip(np.interp(np.arange(n.size), np.flatnonzero(n), rate[n > 0]), TINY, 1 - TINY)
    return lambda p: rate[np.digitize(p, EDGES)]


def _evidence(p: FloatArray, hit: BoolArray, of: IntArray, n: int) -> FloatArray:
    """(n,) log likelihood ratio of copying at some rate against chance p."""
    sums = [np.bincount(of, np.log(np.where(hit, rate / p, 0) + 1 - rate), n) for rate in RATES]
    return np.asarray(logsumexp(sums, axis=0) - np.log(RATES.size))


def _raised(p: FloatArray, of: IntArray, least: FloatArray) -> FloatArray:
    """Add a constant to everybody's logit p where their mean is below `least`, so that it is not."""
    n, x, shift = np.maximum(np.bincount(of, minlength=least.size), 1), logit(p), np.zeros(least.size)
    for _ in range(8):  # Newton's steps
        p = expit(x + shift[of])
        slope = np.maximum(np.bincount(of, p * (1 - p), least.size) / n, 0.02)
        shift = np.clip(shift + np.clip((least - np.bincount(of, p, least.size) / n) / slope, -1, 1), 0, 5)
    return np.asarray(np.clip(expit(x + shift[of]), TINY, 1 - TINY))
