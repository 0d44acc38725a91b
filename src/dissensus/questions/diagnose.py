"""Annotators to look at, with reasons: spammers, adversaries, copiers, and those of whom too little is known.

Everything is judged by the others: the posterior of an item without the annotator's own labels on it, nor those of its
*friends*, with whom it agrees much more than either does with most. (A model may take a clique for the truth, and then
find nothing odd about it.) Confusion matrices Θ and class shares π are those of `dawid-skene`, in which friends on an
item share one vote: w_ik is one over their number.

    q_−j,i(c) ∝ π_c Π_{k no friend of j} Θ_k[c, y_ik]^w_ik

*Information* of j: mean over its labels of log P(y | q_−j,i, its other labels) − log P(y | its other labels), in nats.
What the others know of the item helps to predict the label of whoever looks at it; it does not help with a spammer's,
whose labels are independent of the class. Both are predicted without the label itself, so noise gains nothing. Nothing
can be gained either on items that are all of one class: nobody is called a spammer for those. Where
items are so hard that the others are no help, an honest annotator has little information too, but is still believed
more than chance would have it:

*Belief* of the others in j's labels, mean q_−j,i(y_ij), against Σ_l (j's share of l) (mean q_−j(l)), what it would be
if j's labels were dealt out at random. An adversary is informative and yet believed less than that.

*Copiers*: j and k agree on n_jk items. Given the class they should agree Σ_i Σ_c q_−jk,i(c) Σ_l Θ_j[c, l] Θ_k[c, l]
times. The excess in standard deviations (as they spread over all pairs: items that are hard for everybody make all
pairs agree a little more) says whether chance could do it; ρ_jk = excess / (n_jk − expected), the share of the labels
that are copied, says how much. A group of m annotators who copy at rate ρ is worth m / (1 + (m − 1) ρ) (Kish 1965).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
from scipy.sparse import coo_array, csr_array, eye_array
from scipy.special import entr, ndtri, softmax, stdtrit

from dissensus.common.arrays import pair_starts, ranges, sums_of_ranges
from dissensus.common.frames import as_frame
from dissensus.common.parameters import check_argument
from dissensus.common.types import FloatArray, IntArray, Names
from dissensus.compute.engines.base import Rows, hard_rows
from dissensus.compute.engines.local import balanced, even
from dissensus.evaluation.ratings import Ratings, label_pairs
from dissensus.exceptions import DataError
from dissensus.models.confusion import MIN_PSEUDO, expected_pseudo
from dissensus.models.methods.dawid_skene import DawidSkene
from dissensus.table import names as naming
from dissensus.table.annotations import Annotations

Flag = Literal["spammer", "adversary", "copier", "too few labels", "unclear"]
UNKNOWN: tuple[Flag, ...] = ("too few labels", "unclear")  # flags of those who may be as good as any

LEVEL = 0.95  # of the intervals
MIN_LABELS = 10  # with fewer nothing is said of an annotator
SPAMMER_SHARE = 0.1  # of a typical annotator's information: whoever has less may be a spammer
MIN_INFORMATION = 0.01  # the same as a share of log K, for crowds in which hardly anybody knows anything
ALIKE = 0.5  # of the entropy of all items' classes: below it, even an expert's labels would carry little
BELIEVED = 3.0  # standard errors above chance at which the others' belief in somebody's labels is no accident
MIN_SHARED_ITEMS = 10  # that two annotators must have in common to be compared
SUSPECT = 3.0  # standard deviations above what two usually agree at which they are suspected to be friends
MIN_COPIED = 0.2  # share of the labels; two people may well agree a little more than others do
BY_CHANCE = 0.05  # chance that any honest pair of all is called copiers
ROWS_AT_ONCE = 2**16
PAIRS_AT_ONCE = 2**18  # pairs of labels of the same item


@dataclass(frozen=True, eq=False)
class Copiers:
    """Pairs who agree far beyond what the model expects, the surest first; one entry per pair in every array."""

    first: Names  # (P,) annotator
    second: Names  # (P,) annotator
    shared: IntArray  # (P,) items that both have labelled
    agreed: IntArray  # (P,) on which they agree
    expected: FloatArray  # (P,) on which they should
    deviations: FloatArray  # (P,) of the excess
    copied: FloatArray  # (P,) ρ, the share of the labels that are copied

    def __len__(self) -> int:
        return int(self.first.size)


@dataclass(frozen=True, eq=False, repr=False)
class Diagnosis:
    """Flags, reasons and measures of every annotator of a table."""

    annotators: Names  # (A,)
    labels: FloatArray  # (A,) how many it gave to items that others have labelled too, by weight
    information: FloatArray  # (A,) nats per label; NaN without labels
    information_low: FloatArray  # (A,) 95 % interval
    information_high: FloatArray  # (A,)
    belief: FloatArray  # (A,) of the others in its labels
    by_chance: FloatArray  # (A,) what that would be if they were dealt out at random
    flags: tuple[tuple[Flag, ...], ...]  # (A,)
    reasons: tuple[str, ...]  # (A,) a sentence for each flag, or nothing
    copiers: Copiers
    groups: tuple[tuple[Any, ...], ...]  # annotators who copy from each other, the largest group first
    effective_annotators: float  # how many independent ones they are worth
    active_annotators: int  # those with labels

    def __repr__(self) -> str:
        counts = ", ".join(f"{len(self.flagged(flag))} {flag}" for flag in get_args(Flag))
        return (
            f"Diagnosis of {self.active_annotators:,} annotators, worth {self.effective_annotators:.1f} independent "
            f"ones: {counts}"
        )

    def flagged(self, flag: Flag) -> list[Any]:
        """The annotators with this flag."""
        check_argument("flag", flag, Flag)
        return [name for name, flags in zip(self.annotators.tolist(), self.flags, strict=True) if flag in flags]

    def to_frame(self) -> Any:
        """One row per annotator; a pandas frame where pandas is installed, else an Arrow table."""
        measures = ("labels", "information", "information_low", "information_high", "belief", "by_chance")
        said = {"flags": [", ".join(flags) for flags in self.flags], "reasons": list(self.reasons)}
        return as_frame({"annotator": self.annotators} | {name: getattr(self, name) for name in measures} | said)


def diagnose(table: Annotations, *, threads: int | None = None) -> Diagnosis:
    """Flag annotators: spammers, adversaries, copiers, and those of whom too little is known to tell.

    >>> from dissensus.table.datasets import load_dataset
    >>> found = diagnose(load_dataset("digits-crowd").annotations)
    >>> found.flagged("adversary"), len(found.flagged("spammer")), [len(group) for group in found.groups]
    (['a20'], 5, [5])
    """
    if table.n_annotations == 0:
        raise DataError("the table has no annotations; there is nobody to judge.")
    A, K = table.n_annotators, table.n_classes
    pairs = _pairs(hard_rows(table), A, K)
    others = _fit(table, _find_friends(pairs, A, K), threads)
    counts, beliefs = others.counts()
    given = counts.sum(axis=2)  # (A, K) own labels
    everybody = (given.sum(axis=0) + 1 / K) / (given.sum() + 1)
    labels = beliefs[:, 0]
    information, information_error = _mean(others.gains(counts, expected_pseudo(K), given + everybody))
    belief, belief_error = _mean(beliefs)
    seen = counts.sum(axis=1)  # (A, K) of which classes its items are, as the others see them
    with np.errstate(invalid="ignore", divide="ignore"):
        by_chance = (given * seen).sum(axis=1) / labels**2
        against = (counts * (1 - np.eye(K))).max(axis=1).sum(axis=1) / labels  # right if each class had another name
    copiers, links = _copiers(table.annotators, pairs, *others.agreements(pairs))
    active = table.annotator_ptr[1:] > table.annotator_ptr[:-1]
    groups, effective = _groups(A, links, active)

    bar = _spammer_threshold(information, labels, K)
    alike = _entropy(seen) < ALIKE * _entropy(seen.sum(axis=0))
    low, high = _interval(information, information_error, labels)
    believed = belief - BELIEVED * belief_error > by_chance
    doubtful = _interval(belief, belief_error, labels)[1] < np.maximum(by_chance, against / 2)
    grouped = {code: group for group in groups for code in group}
    flags: list[tuple[Flag, ...]] = []
    reasons = []
    for code in range(A):
        found: dict[str, str] = {}
        n = f"{labels[code]:.0f} label" + "s" * (round(labels[code]) != 1)
        if labels[code] < MIN_LABELS:
            found["too few labels"] = f"{n} on items that others have labelled too: too few to tell"
        elif high[code] < bar and not believed[code] and not alike[code]:
            found["spammer"] = (
                f"its {n} do not depend on the item: the others believe {100 * belief[code]:.0f} % of them, and would "
                f"believe {100 * by_chance[code]:.0f} % if they were dealt out at random"
            )
        elif high[code] < bar and not believed[code]:
            found["unclear"] = f"its items are so alike that its {n} do not tell it from somebody who says one thing"
        elif low[code] <= bar and not believed[code]:
            found["unclear"] = f"its {n} still do not tell it from somebody who labels without looking"
        elif doubtful[code]:
            found["adversary"] = (
                f"its labels depend on the class ({information[code]:.2f} nats each), but the others believe "
                f"{100 * belief[code]:.0f} % of them; at random it would be {100 * by_chance[code]:.0f} %"
            )
        if code in grouped:
            best = max((link for link in links if code in link[:2]), key=lambda link: link[2])
            other = table.annotators[best[1] if best[0] == code else best[0]]
            found["copier"] = (
                f"agrees with {naming.shown(other)} far more than two who label by themselves would (about "
                f"{100 * best[2]:.0f} % of the labels are copied, in a group of {len(grouped[code])})"
            )
        flags.append(tuple(found))  # type: ignore[arg-type]
        reasons.append("; ".join(found.values()))
    return Diagnosis(
        table.annotators,
        labels,
        information,
        low,
        high,
        belief,
        by_chance,
        tuple(flags),
        tuple(reasons),
        copiers,
        tuple(tuple(table.annotators[list(group)].tolist()) for group in groups),
        effective,
        int(active.sum()),
    )


def _interval(mean: FloatArray, error: FloatArray, labels: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Bounds (A,), (A,) of means over `labels` labels: Student's interval."""
    reach = stdtrit(np.maximum(labels - 1, 1), (1 + LEVEL) / 2) * error
    return mean - reach, mean + reach


def _mean(sums: FloatArray) -> tuple[FloatArray, FloatArray]:
    """(A,) means and standard errors from sums (A, 3) of weight, value and square."""
    n = sums[:, 0]
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = sums[:, 1] / n
        variance = np.maximum(sums[:, 2] / n - mean**2, 0) * n / np.maximum(n - 1, 1e-9)
        return mean, np.where(n > 1, np.sqrt(variance / n), np.inf)


def _spammer_threshold(information: FloatArray, labels: FloatArray, n_classes: int) -> float:
    """Information below which somebody may be a spammer: a share of the typical annotator's, weighed by labels."""
    known = np.flatnonzero(labels > 0)
    if not known.size:
        return 0.0
    order = known[np.argsort(information[known], kind="stable")]
    middle = order[np.searchsorted(np.cumsum(labels[order]), labels[order].sum() / 2)]
    return max(SPAMMER_SHARE * float(information[middle]), MIN_INFORMATION * float(np.log(n_classes)))


def _entropy(counts: FloatArray) -> FloatArray:
    """(…,) entropy in nats of the shares along the last axis; 0 without counts."""
    shares = counts / np.maximum(counts.sum(axis=-1, keepdims=True), 1e-300)
    return np.asarray(entr(shares).sum(axis=-1))


# Who agrees with whom ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _Pairs:
    """Pairs of annotators who share enough items, sorted; of several labels of a pair the first counts."""

    first: IntArray  # (P,)
    second: IntArray  # (P,)
    shared: FloatArray  # (P,) items that both have labelled
    agreed: FloatArray  # (P,) on which they agree


def _pairs(rows: Rows, A: int, K: int) -> _Pairs:
    item = np.repeat(np.arange(rows.item_ptr.size - 1), np.diff(rows.item_ptr))
    once = np.flatnonzero(pair_starts(item, rows.annotator))
    ratings = Ratings(item[once], rows.annotator[once], np.arange(once.size), rows.label[once], np.ones(once.size))
    parts = [
        (found.first, found.second, found.shared, found.sums(found.mine == found.theirs))
        for found in label_pairs(ratings, A, K, MIN_SHARED_ITEMS)
    ]
    return _Pairs(*map(np.concatenate, zip(*parts, strict=True)))


def _find_friends(pairs: _Pairs, A: int, K: int) -> Any:
    """(A, A) sparse: 1 for an annotator and its friends, who agree with it much more than either does with most.

    These are suspects, to be left out when the others are asked. If everybody had one accuracy, C = (K·agreement − 1) /
    (K − 1) of a pair would be s_j s_k. A median over partners does not mind a few copiers, which a fitted model may
    take for the truth.
    """
    agreement, k = pairs.agreed / pairs.shared, max(K, 2)
    of, partner = np.concatenate([pairs.first, pairs.second]), np.concatenate([pairs.second, pairs.first])
    beyond = np.tile((k * agreement - 1) / (k - 1), 2)
    skill = np.sqrt(np.maximum(_medians(beyond, of, A), 0.01))
    for _ in range(10):
        useful = np.abs(skill[partner]) > 0.2
        new = _medians(beyond[useful] / skill[partner[useful]], of[useful], A)
        skill = np.where(np.isnan(new), skill, (skill + np.clip(new, -1, 1)) / 2)
    chance = np.clip((1 + (k - 1) * skill[pairs.first] * skill[pairs.second]) / k, 0.02, 0.98)
    excess = agreement - chance
    close = np.tile((excess > SUSPECT * np.sqrt(chance * (1 - chance) / pairs.shared)) & (excess > 0.05), 2)
    row, column = (np.concatenate([np.arange(A), one[close]]) for one in (of, partner))
    return csr_array((np.ones(row.size), (row, column)), shape=(A, A))


def _medians(values: FloatArray, of: IntArray, n: int) -> FloatArray:
    """(n,) median of the values of each code in `of`; NaN where there are none."""
    from scipy.ndimage import median  # takes a tenth of a second to import

    result, some = np.full(n, np.nan), np.unique(of)
    if some.size:
        result[some] = median(values, of, some)
    return result


# What the others say of an item -------------------------------------------------------------------------------------


def _fit(table: Annotations, circles: Any, threads: int | None) -> _Others:
    """Dawid-Skene in which friends on an item share one vote."""
    rows, votes = hard_rows(table), table
    if circles.nnz > table.n_annotators:
        there = np.empty(len(table))  # annotators of the item who are the row's own or friends of it
        for first, last in _ranges(table.item_ptr):
            some = slice(table.item_ptr[first], table.item_ptr[last])
            item, annotator = table.item[some], table.annotator[some]
            there[some] = _rows_of_friends(item, annotator, circles) @ pair_starts(item, annotator)
        votes = dataclasses.replace(table, weight=1 / there if table.weight is None else table.weight / there)
    model = DawidSkene(threads=threads).fit(votes)
    prior, confusion = (np.maximum(one, MIN_PSEUDO) for one in (model.prior_, model.confusion_))
    return _Others(rows, hard_rows(votes).weight, circles, prior, confusion)


def _ranges(item_ptr: IntArray) -> list[tuple[int, int]]:
    """Ranges of items with not too many rows."""
    return balanced(item_ptr, 1 + int(item_ptr[-1]) // ROWS_AT_ONCE)


def _rows_of_friends(item: IntArray, annotator: IntArray, circles: Any) -> Any:
    """(N, N) sparse: 1 where two rows are of the same item, by the same annotator or by friends."""
    N, A = item.size, circles.shape[0]
    if circles.nnz == A and pair_starts(item, annotator).all():
        return eye_array(N, format="csr")
    key = item.astype(np.int64) * A + annotator  # rises with the rows
    size = np.diff(circles.indptr)[annotator]
    row = np.repeat(np.arange(N), size)
    wanted = item[row].astype(np.int64) * A + circles.indices[ranges(circles.indptr[annotator], size)]
    start, stop = np.searchsorted(key, wanted), np.searchsorted(key, wanted, side="right")
    found = ranges(start, stop - start)
    return csr_array((np.ones(found.size), (np.repeat(row, stop - start), found)), shape=(N, N))


class _Block:
    """All rows of a range of items; codes of items and rows start at 0."""

    def __init__(self, others: _Others, first: int, last: int):
        rows = others.rows
        some = slice(rows.item_ptr[first], rows.item_ptr[last])
        self.annotator, self.label = rows.annotator[some], rows.label[some].astype(np.int64)
        n = self.annotator.size
        self.weight = np.ones(n) if rows.weight is None else rows.weight[some]
        per_item = np.diff(rows.item_ptr[first : last + 1])
        self.item = np.repeat(np.arange(per_item.size), per_item)
        self.stop = np.cumsum(per_item)[self.item]  # (n,) where the rows of the same item end
        self.company = _rows_of_friends(self.item, self.annotator, others.circles)
        self.alone = self.company.sum(axis=1) == per_item[self.item]  # (n,) nobody else has labelled the item
        self.logs = np.log(others.confusion[self.annotator, :, self.label])  # (n, K)
        if others.votes is not None:
            self.logs = self.logs * others.votes[some][:, None]
        total = sums_of_ranges(self.logs, rows.item_ptr[first : last + 1] - some.start)
        self.own = self.company @ self.logs  # (n, K) of the annotator and its friends
        self.without = np.log(others.prior) + total[self.item] - self.own

    def pairs(self) -> Iterator[tuple[IntArray, IntArray]]:
        """Walk pairs of rows of one item by different annotators, of each annotator the first row; some at a time."""
        once = np.flatnonzero(pair_starts(self.item, self.annotator))
        later = np.searchsorted(once, self.stop[once]) - np.arange(once.size) - 1
        parts = max(1, int(later.sum()) // PAIRS_AT_ONCE)
        for start, stop in balanced(np.concatenate([[0], np.cumsum(later)]), parts):
            left, size = np.arange(start, stop), later[start:stop]
            yield once[np.repeat(left, size)], once[ranges(left + 1, size)]


@dataclass(frozen=True, eq=False)
class _Others:
    """The posterior of an item without an annotator, or two, and their friends."""

    rows: Rows
    votes: FloatArray | None  # (N,) how much rows count in what they say of an item; `rows.weight` is their own
    circles: Any  # (A, A)
    prior: FloatArray  # (K,) π
    confusion: FloatArray  # (A, K, K) [annotator, true, given] Θ

    def blocks(self) -> Iterator[_Block]:
        """Walk all items, a range at a time."""
        for first, last in _ranges(self.rows.item_ptr):
            yield _Block(self, first, last)

    def counts(self) -> tuple[FloatArray, FloatArray]:
        """(A, K, K) [annotator, given, true] by the others, and (A, 3) sums of weight, belief in labels, its square."""
        A, K, _ = self.confusion.shape
        counts, beliefs = np.zeros((A * K, K)), np.zeros((A, 3))
        for block in self.blocks():
            q = softmax(block.without, axis=1)
            weight = np.where(block.alone, 0.0, block.weight)
            cell = block.annotator * np.int64(K) + block.label
            counts += np.stack([np.bincount(cell, weight * q[:, c], A * K) for c in range(K)], axis=1)
            beliefs += _moments(block.annotator, weight, q[np.arange(len(q)), block.label], A)
        return counts.reshape(A, K, K), beliefs

    def gains(self, counts: FloatArray, pseudo: FloatArray, own: FloatArray) -> FloatArray:
        """(A, 3) sums of weight, gain, its square; own (A, K) is how often each annotator gives each label.

        The gain is log P(label | the others, the annotator's other rows) − log P(label | the annotator's other rows).
        """
        total, sums = (counts + pseudo).sum(axis=1), np.zeros((len(own), 3))
        for block in self.blocks():
            counted = np.flatnonzero(~block.alone & (block.weight > 0))
            a, y, w = block.annotator[counted], block.label[counted], block.weight[counted]
            q = softmax(block.without[counted], axis=1)
            mine = w[:, None] * q
            left = np.maximum(counts[a, y] - mine, 0) + pseudo[y]
            expected = (q * left / np.maximum(total[a] - mine, 1e-300)).sum(axis=1)
            alone = (own[a, y] - w) / (own.sum(axis=1)[a] - w)
            sums += _moments(a, w, np.log(expected) - np.log(alone), len(own))
        return sums

    def agreements(self, pairs: _Pairs) -> tuple[FloatArray, FloatArray]:
        """(P,) on how many items each pair should agree, and its variance."""
        A, P = len(self.confusion), pairs.first.size
        known = pairs.first * A + pairs.second  # rises
        alike = np.empty((P, self.prior.size))  # Σ_l Θ_j[c, l] Θ_k[c, l]
        for first, last in even(P, 1 + P // PAIRS_AT_ONCE):
            mine, theirs = (self.confusion[one[first:last]] for one in (pairs.first, pairs.second))
            alike[first:last] = np.einsum("pcy,pcy->pc", mine, theirs)
        expected, variance = np.zeros(P), np.zeros(P)
        for block in self.blocks() if P else ():
            for left, right in block.pairs():
                key = block.annotator[left].astype(np.int64) * A + block.annotator[right]
                at = np.minimum(np.searchsorted(known, key), P - 1)
                there = known[at] == key
                left, right, at = left[there], right[there], at[there]
                log = block.without[left] - block.own[right]
                if self.circles.nnz > A:  # what both circles have in common was taken away twice
                    log += block.company[left].multiply(block.company[right]) @ block.logs
                p = (softmax(log, axis=1) * alike[at]).sum(axis=1)
                expected += np.bincount(at, p, P)
                variance += np.bincount(at, p * (1 - p), P)
        return expected, variance


def _moments(of: IntArray, weight: FloatArray, value: FloatArray, n: int) -> FloatArray:
    """(n, 3) sums of weight, value and its square."""
    return np.stack([np.bincount(of, weight * value**power, n) for power in range(3)], axis=1)


def _copiers(
    annotators: Names, pairs: _Pairs, expected: FloatArray, variance: FloatArray
) -> tuple[Copiers, list[tuple[int, int, float]]]:
    """Find the pairs whose agreement chance does not explain; also return them as (code, code, copied)."""
    shared, agreed, P = pairs.shared, pairs.agreed, pairs.shared.size
    deviations = (agreed - expected) / np.sqrt(np.maximum(variance, 1e-9))
    if P:  # honest pairs are most of all: their spread is what chance does here
        middle = float(np.median(deviations))
        spread = max(1.0, float(np.median(np.abs(deviations - middle))) / 0.6745)
        deviations = (deviations - max(middle, 0.0)) / spread
    copied = (agreed - expected) / np.maximum(shared - expected, 1e-9)
    enough = -float(ndtri(BY_CHANCE / max(P, 1)))
    found = np.flatnonzero((deviations > enough) & (copied > MIN_COPIED))
    found = found[np.argsort(-deviations[found], kind="stable")]
    first, second, copied = pairs.first[found], pairs.second[found], np.minimum(copied[found], 1.0)
    counts = shared[found].astype(np.int64), agreed[found].astype(np.int64)
    copiers = Copiers(annotators[first], annotators[second], *counts, expected[found], deviations[found], copied)
    return copiers, list(zip(first.tolist(), second.tolist(), copied.tolist(), strict=True))


def _groups(n_annotators: int, links: list[tuple[int, int, float]], active: Any) -> tuple[list[tuple[int, ...]], float]:
    """Join annotators by links to groups; also return how many independent annotators all are worth."""
    from scipy.sparse.csgraph import connected_components  # takes a tenth of a second to import

    ends = np.array([link[:2] for link in links], np.int64).reshape(-1, 2)
    graph = coo_array((np.ones(len(links)), (ends[:, 0], ends[:, 1])), shape=(n_annotators, n_annotators))
    _, member = connected_components(graph, directed=False)
    groups = [tuple(np.flatnonzero(member == number).tolist()) for number in np.unique(member[ends[:, 0]])]
    groups.sort(key=lambda group: (-len(group), group))
    effective = float(active.sum())
    for group in groups:
        rates = [rate for one, _, rate in links if one in group]
        size = len(group)
        effective += size / (1 + (size - 1) * float(np.mean(rates))) - size
    return groups, effective
