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
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np

from dissensus.common.types import FloatArray, IntArray, Names
from dissensus.compute.engines.base import Rows, hard_rows
from dissensus.compute.engines.local import Threads, balanced, thread_count
from dissensus.compute.kernels import diagnostics as kernels
from dissensus.exceptions import BadParameter, DataError
from dissensus.models.methods.dawid_skene import SMALLEST, DawidSkene, expected_pseudo
from dissensus.table import kernels as table_kernels
from dissensus.table import names as naming
from dissensus.table.annotations import Annotations

Flag = Literal["spammer", "adversary", "copier", "too few labels", "unclear"]
UNKNOWN: tuple[Flag, ...] = ("too few labels", "unclear")  # flags of those who may be as good as any

Friends = tuple[IntArray, IntArray]
"""(A+1,) and (F,): the friends of annotator a are friends[1][friends[0][a] : friends[0][a + 1]], sorted."""

LEVEL = 0.95  # of the intervals
FEW = 10  # labels below which nothing is said of an annotator
NEXT_TO_NOTHING = 0.1  # of a typical annotator's information: what less is, is a spammer's
LEAST_INFORMATION = 0.01  # the same as a share of log K, for crowds in which hardly anybody knows anything
ALIKE = 0.5  # of the entropy of all items' classes: below it, even an expert's labels would carry little
BELIEVED = 3.0  # standard errors above chance at which the others' belief in somebody's labels is no accident
SHARED = 10  # items that two annotators must share to be compared
SUSPECT = 3.0  # standard deviations above what two usually agree at which they are suspected to be friends
LEAST_COPIED = 0.2  # share of the labels; two people may well agree a little more than others do
BY_CHANCE = 0.05  # chance that any honest pair of all is called copiers


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
    """What is to be said of every annotator of a table."""

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
        if flag not in get_args(Flag):
            raise BadParameter(f"there is no flag {flag!r}; there are {', '.join(map(repr, get_args(Flag)))}.")
        return [name for name, flags in zip(self.annotators.tolist(), self.flags, strict=True) if flag in flags]

    def to_frame(self) -> Any:
        """One row per annotator; a pandas frame where pandas is installed, else an Arrow table."""
        import pyarrow as pa

        columns = {
            "annotator": self.annotators,
            "labels": self.labels,
            "information": self.information,
            "information_low": self.information_low,
            "information_high": self.information_high,
            "belief": self.belief,
            "by_chance": self.by_chance,
            "flags": [", ".join(flags) for flags in self.flags],
            "reasons": list(self.reasons),
        }
        frame = pa.table(columns)
        try:
            return frame.to_pandas()
        except ImportError:
            return frame


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
    rows = hard_rows(table)
    pairs = _Pairs(rows, A, threads)
    friends = _friends(*pairs.sums(K), A, K)
    model, votes = _fit(table, rows, friends, threads)
    pseudo = expected_pseudo(K)
    confusion = np.maximum(model.confusion_, SMALLEST)  # (A, K, K) [annotator, true, given]
    log_prior = np.log(np.maximum(model.prior_, SMALLEST))
    logs = np.ascontiguousarray(np.log(confusion).transpose(0, 2, 1))  # [annotator, given, true]
    walk = (rows.item_ptr, rows.annotator, rows.label, rows.weight, votes, log_prior, logs, *friends)

    by_others, beliefs, gains = np.zeros((A, K, K)), np.zeros((A, 3)), np.zeros((A, 3))
    kernels.others(*walk, by_others, None, None, beliefs)
    given = by_others.sum(axis=2)  # (A, K) own labels
    everybody = (given.sum(axis=0) + 1 / K) / (given.sum() + 1)
    kernels.others(*walk, by_others, pseudo, given + everybody, gains)
    labels = beliefs[:, 0]
    information, information_error = _mean(gains)
    belief, belief_error = _mean(beliefs)
    with np.errstate(invalid="ignore", divide="ignore"):
        by_chance = (given * by_others.sum(axis=1)).sum(axis=1) / labels**2
        against = (by_others * (1 - np.eye(K))).max(axis=1).sum(axis=1) / labels  # right if each class had another name
    copiers, links = _copiers(table.annotators, *pairs.sums(K, friends, votes, log_prior, logs, confusion))
    active = table.annotator_ptr[1:] > table.annotator_ptr[:-1]
    groups, effective = _groups(A, links, active)

    bar = _bar(information, labels, K)
    seen = by_others.sum(axis=1)  # (A, K) of which classes its items are, as the others see them
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
        if labels[code] < FEW:
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
    """(A,) and (A,) Student's interval of means of so many labels."""
    from scipy.special import stdtrit

    reach = stdtrit(np.maximum(labels - 1, 1), (1 + LEVEL) / 2) * error
    return mean - reach, mean + reach


def _mean(sums: FloatArray) -> tuple[FloatArray, FloatArray]:
    """(A,) means and standard errors from sums (A, 3) of weight, value and square."""
    n = sums[:, 0]
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = sums[:, 1] / n
        variance = np.maximum(sums[:, 2] / n - mean**2, 0) * n / np.maximum(n - 1, 1e-9)
        return mean, np.where(n > 1, np.sqrt(variance / n), np.inf)


def _bar(information: FloatArray, labels: FloatArray, n_classes: int) -> float:
    """Information that is next to nothing here: a share of the typical annotator's, weighed by labels."""
    known = np.flatnonzero(labels > 0)
    if not known.size:
        return 0.0
    order = known[np.argsort(information[known], kind="stable")]
    middle = order[np.searchsorted(np.cumsum(labels[order]), labels[order].sum() / 2)]
    return max(NEXT_TO_NOTHING * float(information[middle]), LEAST_INFORMATION * float(np.log(n_classes)))


def _entropy(counts: FloatArray) -> FloatArray:
    """(…,) nats of the shares along the last axis; 0 without counts."""
    shares = counts / np.maximum(counts.sum(axis=-1, keepdims=True), 1e-300)
    return np.asarray(-(shares * np.log(np.maximum(shares, 1e-300))).sum(axis=-1))


class _Pairs:
    """Walks over the pairs of annotators who share enough items."""

    def __init__(self, rows: Rows, n_annotators: int, threads: int | None):
        self.rows, self.threads = rows, thread_count(threads, rows.annotator.size)
        self.item = np.repeat(np.arange(rows.item_ptr.size - 1, dtype=np.int32), np.diff(rows.item_ptr))
        self.ptr = table_kernels.offsets(rows.annotator, n_annotators)
        self.by_annotator = table_kernels.group(rows.annotator, self.ptr)

    def sums(
        self,
        n_classes: int,
        friends: Friends | None = None,
        votes: FloatArray | None = None,
        log_prior: FloatArray | None = None,
        logs: FloatArray | None = None,
        confusion: FloatArray | None = None,
    ) -> tuple[IntArray, FloatArray]:
        """Pairs (P, 2) and their sums (P, 4), see the kernel; without a confusion only shared items and agreements."""
        rows = self.rows
        friend_ptr, who = friends or (np.zeros(self.ptr.size, np.int64), np.empty(0, np.int64))
        log_prior = np.zeros(n_classes) if log_prior is None else log_prior
        logs = np.zeros((1, 1, 1)) if logs is None else logs
        with Threads(self.threads) as pool:
            parts = pool.map(
                lambda _, first, stop: kernels.pair_agreement(
                    first, stop, rows.item_ptr, self.item, rows.annotator, rows.label, votes, self.ptr,
                    self.by_annotator, log_prior, logs, confusion, friend_ptr, who, SHARED,
                ),
                balanced(self.ptr, pool.threads),
            )  # fmt: skip
        return np.concatenate([part[0] for part in parts]), np.concatenate([part[1] for part in parts])


def _friends(pairs: IntArray, sums: FloatArray, n_annotators: int, n_classes: int) -> Friends:
    """Who agrees with whom much more than either does with most: suspects, to be left out when the others are asked.

    If everybody had one accuracy, C = (K·agreement − 1)/(K − 1) of a pair would be s_j s_k. A median over partners
    does not mind a few copiers, which a fitted model may take for the truth.
    """
    shared, agreed = sums[:, 0], sums[:, 1]
    k = max(n_classes, 2)
    of = np.concatenate([pairs[:, 0], pairs[:, 1]])
    partner = np.concatenate([pairs[:, 1], pairs[:, 0]])
    beyond = np.tile((k * agreed / np.maximum(shared, 1) - 1) / (k - 1), 2)
    skill = np.sqrt(np.maximum(_medians(beyond, of, n_annotators), 0.01))
    for _ in range(10):
        useful = np.abs(skill[partner]) > 0.2
        new = _medians(beyond[useful] / skill[partner[useful]], of[useful], n_annotators)
        skill = np.where(np.isnan(new), skill, (skill + np.clip(new, -1, 1)) / 2)
    product = skill[pairs[:, 0]] * skill[pairs[:, 1]]
    chance = np.clip((1 + (k - 1) * product) / k, 0.02, 0.98)
    excess = agreed / np.maximum(shared, 1) - chance
    close = pairs[(excess > SUSPECT * np.sqrt(chance * (1 - chance) / np.maximum(shared, 1))) & (excess > 0.05)]
    both = np.concatenate([close, close[:, ::-1]])
    both = both[np.lexsort((both[:, 1], both[:, 0]))]
    return table_kernels.offsets(both[:, 0], n_annotators), np.ascontiguousarray(both[:, 1])


def _medians(values: FloatArray, of: IntArray, n: int) -> FloatArray:
    """(n,) the median of the values of each; NaN where there are none."""
    order = np.lexsort((values, of))
    ptr = table_kernels.offsets(of, n)
    size = np.diff(ptr)
    some = size > 0
    result = np.full(n, np.nan)
    low, high = ptr[:-1] + (size - 1) // 2, ptr[:-1] + size // 2
    result[some] = (values[order[low[some]]] + values[order[high[some]]]) / 2
    return result


def _fit(table: Annotations, rows: Rows, friends: Friends, threads: int | None) -> tuple[DawidSkene, FloatArray | None]:
    """Dawid-Skene in which friends on an item share one vote; the votes of the rows, None where all are one."""
    if friends[1].size == 0:
        return DawidSkene(threads=threads).fit(table), rows.weight
    share = kernels.shares_of_friends(table.item_ptr, table.annotator, *friends)
    fair = dataclasses.replace(table, weight=share if table.weight is None else share * table.weight)
    return DawidSkene(threads=threads).fit(fair), hard_rows(fair).weight


def _copiers(annotators: Names, pairs: IntArray, sums: FloatArray) -> tuple[Copiers, list[tuple[int, int, float]]]:
    """The pairs that chance does not explain, and the same as (code, code, copied)."""
    from scipy.special import ndtri

    shared, agreed, expected, variance = sums.T
    deviations = (agreed - expected) / np.sqrt(np.maximum(variance, 1e-9))
    if len(pairs):  # honest pairs are most of all: their spread is what chance does here
        middle = float(np.median(deviations))
        spread = max(1.0, float(np.median(np.abs(deviations - middle))) / 0.6745)
        deviations = (deviations - max(middle, 0.0)) / spread
    copied = (agreed - expected) / np.maximum(shared - expected, 1e-9)
    enough = -float(ndtri(BY_CHANCE / max(len(pairs), 1)))
    found = np.flatnonzero((deviations > enough) & (copied > LEAST_COPIED))
    found = found[np.argsort(-deviations[found], kind="stable")]
    links = [(int(pairs[p, 0]), int(pairs[p, 1]), float(min(copied[p], 1.0))) for p in found]
    return (
        Copiers(
            annotators[pairs[found, 0]],
            annotators[pairs[found, 1]],
            shared[found].astype(np.int64),
            agreed[found].astype(np.int64),
            expected[found],
            deviations[found],
            np.minimum(copied[found], 1.0),
        ),
        links,
    )


def _groups(n_annotators: int, links: list[tuple[int, int, float]], active: Any) -> tuple[list[tuple[int, ...]], float]:
    """Annotators joined by links, and how many independent annotators all are worth."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

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
