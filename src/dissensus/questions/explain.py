"""Why the labels of an item disagree: an annotator erred, the item is ambiguous, or groups see it differently.

Each reason predicts the item's labels; one is named only if it predicts them much better than every other.
An annotator j *slips* with probability e_j: then its label comes from its response bias ν_j, whatever the item.
Otherwise it comes from the item. With y_r the label of row r and its annotator j, w_r its weight, π the class shares:

    error        P_i = Σ_c π_c Π_r p_r(1[y_r = c])^w_r        the item has one class; other labels are slips        (1)
    ambiguity    A_i = mean over φ of Π_r p_r(φ(y_r))^w_r     labels are drawn from the item's own distribution φ  (2)
    perspective  G_i = Π_g P_i,g                              each group of annotators has its own class           (3)
    where        p_r(x) = (1 − e_j) x + e_j ν_j(y_r)

φ has two classes c ≠ d, of shares 1 − λ and λ = 0.3, 0.5, 0.7, or one and any other: (1 − λ) 1[k = c] + λ π_k with λ =
0.2, 0.4, 0.6, 0.8. e and ν are fitted by EM under (1), shrunk to the crowd's by 5 labels; row r is left out where it is
predicted. Labels alone do not show what all annotators share: slips of all annotators, or ambiguity of all items. So e
is anchored: the most careful annotators, with a tenth of the labels, slip 5 times of 100, and 1 − e_j is multiplied by
one factor. Careful annotators who contradict each other do not slip.

`evidence` is log P_i − log A_i. `ambiguity` is α A_i / (α A_i + (1 − α) P_i) with the most probable share α of
ambiguous items. A *likely error* has P_i at least 3 times A_i and, with α, 49 times as probable, and a clear class. An
item is *ambiguous* if A_i is at least 20 times P_i, and larger than P_i also with e as fitted; the number of such items
is at most `share_ambiguous`, the α of the larger P_i and the larger A_i. If all annotators err equally at random, the
labels of an item do not tell ambiguity from slips, and no annotator is careful. So unless annotators plainly differ
(the labels are e^A times as probable with own e and ν as with the same for all A of them), the whole table must show
ambiguous items: with them (e as fitted or anchored) all labels must be 20 times as probable as under (1) alone, with e
as fitted, anchored, or the same for all. Else `share_ambiguous` is 0.

*Surprise* is how much less probable an item's labels are than its annotators' slips would make them if its truth were
the most probable class c: P(ℓ < ℓ_i) + P(ℓ = ℓ_i)/2 for ℓ_i = Σ_r w_r log p_r(1[y_r = c]), as standard deviations of a
normal distribution, with e as fitted. It is exact up to the rounding of ℓ to a grid: with five labels ℓ is far from
normal.

*Groups*: `questions.group_effects`, Eq. 4, finds the columns of metadata that matter. An item that a group explains is
a perspective if (3) also predicts it 20 times better than (1) and (2).

A probabilistic row counts as its most probable label. Rows of one annotator and item weigh one together. Rows without
weight do not count; for groups all others count equally.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, get_args

import numpy as np
from scipy.special import erfc, expit, logit, logsumexp, ndtri, softmax

from dissensus.common.arrays import sum_ranges
from dissensus.common.formatting import format_count
from dissensus.common.frames import columns_to_frame
from dissensus.common.notebook import NotebookTable
from dissensus.common.parameters import check_argument
from dissensus.common.types import FloatArray, IntArray, Names
from dissensus.compute.engines.local import Threads, balanced_ranges, thread_count
from dissensus.compute.kernels import disagreement as kernels
from dissensus.models.base import Aggregator, arg_max
from dissensus.models.exceptions import ModelNotFitted
from dissensus.questions.group_effects import ROWS_AT_ONCE, GroupEffect, find_group_effects, read_metadata_groups
from dissensus.table import names as naming
from dissensus.table.annotations import Annotations
from dissensus.table.kinds import CLASS_KINDS, check_kind

Kind = Literal["unlabelled", "agreed", "likely error", "ambiguous", "cannot tell", "group perspective"]
KINDS: tuple[Kind, ...] = get_args(Kind)
MEANINGS: dict[Kind, str] = {
    "agreed": "two annotators or more, and one answer",
    "likely error": "one class is clear, and an annotator erred",
    "ambiguous": "annotators take the item for one class or the other",
    "group perspective": "groups of annotators see the item differently",
    "cannot tell": "too few labels, or labels that fit several reasons",
    "unlabelled": "no annotator has labelled it",
}
"""Kind → its meaning, in the order in which kinds are shown."""

MIN_CONFIDENCE = 0.9  # P(class) below which it is not clear which label is an error
STRONG, POSITIVE = math.log(20), math.log(3)  # log Bayes factors, in the words of Kass & Raftery 1995
ONE_CLASS = 0.98  # P(item is not ambiguous) from which on an annotator erred
PSEUDO = 5.0  # labels by which e and ν are shrunk to the crowd's
CAREFUL_SHARE = 0.1  # share of the labels that the most careful annotators gave
CAREFUL_SLIPS = 0.05  # e of these annotators
MIN_SLIP = 0.005  # smallest e and 1 − e: no label is impossible
TWO_SHARES = (0.3, 0.5, 0.7)  # λ of two classes; 1 − λ is always one of them
OTHER_SHARES = (0.2, 0.4, 0.6, 0.8)  # λ of any other
MAX_ROUNDS = 50  # of EM
SLIP_TOL = 1e-4  # change of the mean slip
ALPHA_ROUNDS = 200  # of EM for α, one number
ALPHA_ITEMS = 10.0  # prior items, half of them ambiguous: a small table cannot show that none are
POINTS_PER_SD = 8.0  # of the grid: per standard deviation of one row's part in ℓ
MAX_POINTS = 4096
MAX_EXACT_LABELS = 100  # labels of an item above which ℓ is treated as normal


@dataclass(frozen=True, eq=False, repr=False)
class Explanation(NotebookTable):
    """Why the labels of every item disagree."""

    items: Names  # (I,)
    kind: IntArray  # (I,) code into KINDS
    label: Names  # (I,) most probable class
    confidence: FloatArray  # (I,) its probability
    disagreement: FloatArray  # (I,) share of pairs of labels that differ; NaN with fewer than two
    expected_disagreement: FloatArray  # (I,) if the truth were `label` and annotators erred as usual
    surprise: FloatArray  # (I,) standard deviations by which the labels are less probable than expected; NaN likewise
    evidence: FloatArray  # (I,) log Bayes factor of one class against ambiguity; NaN likewise
    ambiguity: FloatArray  # (I,) P(the item is ambiguous)
    share_ambiguous: float  # of the items with two labels or more: the smaller one of slips as fitted or anchored
    p_mistake: FloatArray  # (N,) P(row is a mistake), that is, that the item has one class and not this one
    groups: tuple[GroupEffect, ...]  # one per column of metadata, the most significant first
    group_index: IntArray  # (I,) index into `groups` of the group that explains the item, −1 if none

    def __repr__(self) -> str:
        counts = ", ".join(f"{n:,} {kind}" for kind, n in self.counts().items() if n)
        columns = [effect.column for effect in self.groups if effect.significant]
        return f"Explanation of {format_count(self.items.size, 'item')}: {counts}" + (
            f"; groups differ by {', '.join(columns)}" if columns else ""
        )

    def counts(self) -> dict[Kind, int]:
        """Return the number of items of each kind."""
        return dict(zip(KINDS, np.bincount(self.kind, minlength=len(KINDS)).tolist(), strict=True))

    def items_of_kind(self, kind: Kind, *, differing: bool = False) -> list[Any]:
        """Return the items of a kind, optionally only those whose labels differ, the most disagreement first."""
        check_argument("kind", kind, Kind)
        chosen = np.flatnonzero((self.kind == KINDS.index(kind)) & ((self.disagreement > 0) | (not differing)))
        order = np.argsort(-np.nan_to_num(self.disagreement[chosen]), kind="stable")
        return list(self.items[chosen[order]].tolist())

    def to_frame(self) -> Any:
        """Return a frame (pandas if installed, else Arrow) with one row per item."""
        import pyarrow as pa

        measures = ("label", "confidence", "disagreement", "expected_disagreement", "surprise", "evidence", "ambiguity")
        group = [self.groups[g].column if g >= 0 else None for g in self.group_index]
        return columns_to_frame(
            {"item": self.items, "kind": [KINDS[code] for code in self.kind]}
            | {name: getattr(self, name) for name in measures}
            | {"group": pa.array(group, pa.string())}
        )


def explain(
    table: Annotations,
    fitted: Aggregator,
    *,
    annotators: Any = None,
    missing_as_group: bool = False,
    permutations: int = 500,
    seed: int = 0,
    threads: int | None = None,
) -> Explanation:
    """Split disagreement into likely errors, ambiguity and, with metadata, perspectives of groups.

    Parameters
    ----------
    fitted : Aggregator
        Fitted to this table; unknown items are scored.
    annotators : mapping of columns, or frame, optional
        Metadata: a column `annotator` and others. Text defines groups, more than 12 different numbers are cut into
        quarters; a column with one group, or nearly as many groups as annotators, is skipped. Annotators outside the
        table are ignored.
    missing_as_group : bool
        Whether annotators without an entry in a column are a group; otherwise the column ignores them.
    permutations, seed : int
        Permutations of annotators among groups; at least 100 per column, as fewer cannot reach significance.

    >>> from dissensus.models.methods import DawidSkene
    >>> from dissensus.table.datasets import load_dataset
    >>> table = load_dataset("digits-crowd").annotations
    >>> found = explain(table, DawidSkene().fit(table))
    >>> found
    Explanation of 1,797 items: 143 agreed, 73 ambiguous, 1,581 cannot tell
    >>> found.counts()["agreed"], len(found.items_of_kind("ambiguous")), found.to_frame().shape
    (143, 73, (1797, 10))
    """
    check_kind(table.kind, CLASS_KINDS, "explain")
    if not hasattr(fitted, "posterior_"):
        raise ModelNotFitted(method=type(fitted).__name__)
    check_argument("permutations", permutations, int, low=1, must="must be at least 1")
    table = table.with_classes(fitted.classes_)
    known = naming.match_names(table.items, fitted.items_, "items")
    posterior = np.ascontiguousarray(fitted.posterior_[known])
    if (known < 0).any():
        posterior = np.where((known >= 0)[:, None], posterior, fitted.predict_proba(table))
    best = arg_max(posterior, table.items, table.classes, fitted.tie_seed_)
    confidence = posterior.max(axis=1, initial=0)
    rows = dataclasses.replace(table, proba=None).positive_weight_rows.deduplicated
    with Threads(thread_count(threads, len(rows))) as pool:
        n, given = np.diff(rows.item_ptr), rows.votes() > 0
        disagree = given.sum(axis=1) > 1
        best_given = given[np.arange(best.size), best]  # an annotator gave the most probable class
        usual = _learn_slips(rows, posterior)
        careful = usual.anchored()
        one, many = _evidence(careful, pool)
        usual_one, usual_many = _evidence(usual, pool)
        alike = usual.pooled().one_class(rows.item, rows.n_items)
        belief, one = softmax(one, axis=1), logsumexp(one, axis=1)  # (I, K) P(class), if there is one
        usual_one, alike = logsumexp(usual_one, axis=1), logsumexp(alike, axis=1)
        expected, above, below = _surprise(usual, best, pool)
        columns = {} if annotators is None else read_metadata_groups(annotators, table, missing_as_group)
        effects, by_group = find_group_effects(rows, posterior, disagree, columns, permutations, seed, pool)

    several, people, evidence = n >= 2, rows.annotators_per_item >= 2, one - many
    ambiguity = np.zeros(n.size)
    ambiguity[several] = _posterior_of_ambiguity(evidence[several])
    at_least = np.maximum(one, usual_one) - np.maximum(many, usual_many)  # the more favourable to slips
    share = 0.0
    if several.any():
        slips = [logs[several].sum() for logs in (usual_one, alike, one)]
        both = [_with_ambiguity(a[several], b[several]) for a, b in ((one, many), (usual_one, usual_many))]
        if max(both) - max(slips) >= STRONG or slips[0] - slips[1] > np.unique(rows.annotator).size:
            share = _posterior_of_ambiguity(at_least[several]).mean()
    ambiguous = disagree & (evidence <= -STRONG) & (at_least < 0)
    ambiguous &= np.searchsorted(np.sort(evidence), evidence, side="right") - 1 < share * several.sum()
    views = by_group >= 0
    for number, effect in enumerate(effects):
        at = np.flatnonzero(by_group == number)
        by_view = _by_group(careful, at, columns[effect.column][1])
        views[at] = by_view - np.maximum(one, many)[at] >= STRONG
    other = by_group >= 0  # groups may see these items differently, so no other reason is named
    by_group = np.where(views, by_group, -1)
    erred = ~other & (ambiguity <= 1 - ONE_CLASS) & (evidence >= POSITIVE)
    erred &= belief[np.arange(best.size), best] >= MIN_CONFIDENCE
    error = np.where(disagree, erred, ~best_given & (confidence >= MIN_CONFIDENCE))
    kind = np.select(
        [n == 0, views, ~other & ambiguous & people, error, people & ~disagree & best_given],
        [KINDS.index(name) for name in ("unlabelled", "group perspective", "ambiguous", "likely error", "agreed")],
        KINDS.index("cannot tell"),
    )
    least = np.finfo(float).tiny
    surprise = np.where(  # tails as standard deviations of a normal distribution, from the smaller one
        above < 0.5, -ndtri(np.maximum(above, least)), ndtri(np.clip(below, least, 0.5))
    )
    one_class = np.where(views, 0.0, 1 - ambiguity)
    effects = tuple(dataclasses.replace(effect, items=effect.items[views[effect.items]]) for effect in effects)
    truth = np.where(disagree[:, None], belief, posterior)
    right = truth[table.item, table.label]
    if table.proba is not None:
        right = np.einsum("nk,nk->n", table.proba, truth[table.item])
    return Explanation(
        items=table.items,
        kind=kind.astype(np.int8),
        label=table.classes[best],
        confidence=confidence,
        disagreement=np.where(several, _differing(rows), np.nan),
        expected_disagreement=np.where(several, expected, np.nan),
        surprise=np.where(several, surprise, np.nan),
        evidence=np.where(several, evidence, np.nan),
        ambiguity=ambiguity,
        share_ambiguous=float(share),
        p_mistake=one_class[table.item] * np.clip(1 - right, 0, 1),
        groups=effects,
        group_index=by_group,
    )


# The items' labels and the annotators' errors -------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _Slips:
    """Slip rates and response biases of annotators; each row is left out where it is predicted."""

    rows: Annotations
    weight: FloatArray  # (N,)
    mine: FloatArray  # (N,) P(row is a slip), weighted
    by_label: FloatArray  # (A, K) slips, weighted
    crowd: FloatArray  # (K,) ν of the crowd
    prior: FloatArray  # (K,) π
    often: FloatArray  # (N,) e of the row's annotator

    @cached_property
    def bias(self) -> FloatArray:
        """Return ν_j(y_r) of each row (N,)."""
        who, label = self.rows.annotator, self.rows.label
        counts = np.maximum(self.by_label[who, label] - self.mine, 0) + PSEUDO * self.crowd[label]
        return np.asarray(counts / (self.by_label.sum(axis=1)[who] - self.mine + PSEUDO))

    def biases(self, some: slice) -> FloatArray:
        """Return ν of the annotators of some rows (n, K)."""
        counts, mine = self.by_label[self.rows.annotator[some]], self.mine[some]
        counts[np.arange(mine.size), self.rows.label[some]] -= mine
        counts = np.maximum(counts, 0) + PSEUDO * self.crowd
        return np.asarray(counts / counts.sum(axis=1, keepdims=True))

    def log_p(self, share: Any, some: Any = slice(None)) -> FloatArray:
        """Return w log p_r(share) of some rows (n,)."""
        e = self.often[some]
        return np.asarray(self.weight[some] * np.log((1 - e) * share + e * self.bias[some]))

    def anchored(self) -> _Slips:
        """Return slips anchored so that the most careful annotators slip at most `CAREFUL_SLIPS`."""
        order = np.argsort(self.often, kind="stable")
        done = np.cumsum(self.weight[order])
        if not done.size:
            return self
        least = self.often[order[np.searchsorted(done, CAREFUL_SHARE * done[-1])]]
        factor = max((1 - CAREFUL_SLIPS) / (1 - least), 1.0)
        return dataclasses.replace(self, often=_inside(1 - factor * (1 - self.often)))

    def pooled(self) -> _Slips:
        """Return slips with the same rate and bias for all annotators."""
        mean = self.weight @ self.often / max(self.weight.sum(), np.finfo(float).tiny)
        nothing = np.zeros_like(self.mine), np.zeros_like(self.by_label)
        return dataclasses.replace(self, mine=nothing[0], by_label=nothing[1], often=np.full_like(self.often, mean))

    def one_class(self, part: IntArray, n_parts: int, some: Any = slice(None)) -> FloatArray:
        """Return log of the terms of Eq. 1 for parts of the rows (parts, K); row r belongs to part[r]."""
        K, missed = self.prior.size, self.log_p(0.0, some)
        cell = part.astype(np.int64) * K + self.rows.label[some]
        gained = np.bincount(cell, self.log_p(1.0, some) - missed, n_parts * K).reshape(n_parts, K)
        return np.asarray(gained + np.bincount(part, missed, n_parts)[:, None] + np.log(self.prior))


def _inside(share: FloatArray) -> FloatArray:
    return np.asarray(np.clip(share, MIN_SLIP, 1 - MIN_SLIP))


def _learn_slips(rows: Annotations, posterior: FloatArray) -> _Slips:
    """Fit e, ν and π by EM under Eq. 1, from a model's posterior."""
    A, K, who = rows.n_annotators, rows.n_classes, rows.annotator
    weight = rows.row_weights
    labels, cell = np.bincount(who, weight, A), who.astype(np.int64) * K + rows.label
    q, looked, before = posterior, np.ones(len(rows)), np.inf  # looked: P(no slip | it is the class)
    for _ in range(MAX_ROUNDS):
        mine = weight * (1 - q[rows.item, rows.label] * looked)
        by_label = np.bincount(cell, mine, A * K).reshape(A, K).astype(np.float64)
        slips, mean = by_label.sum(axis=1), mine.sum() / max(weight.sum(), np.finfo(float).tiny)
        often = _inside((slips[who] - mine + PSEUDO * mean) / (labels[who] - weight + PSEUDO))
        crowd = (by_label.sum(axis=0) + 1) / (mine.sum() + K)
        found = _Slips(rows, weight, mine, by_label, crowd, (q.sum(axis=0) + 1) / (len(q) + K), often)
        if abs(mean - before) < SLIP_TOL:
            break
        before, looked = mean, (1 - often) / (1 - often + often * found.bias)
        q = softmax(found.one_class(rows.item, rows.n_items), axis=1)
    return found


def _evidence(slips: _Slips, pool: Threads) -> tuple[FloatArray, FloatArray]:
    """Return log of the terms of Eq. 1 (I, K), and log of Eq. 2 (I,)."""
    rows, prior, K = slips.rows, slips.prior, slips.prior.size
    log_prior, log_others = np.log(prior), np.log(np.maximum(1 - prior, 1e-12))

    def of_items(number: int, first: int, last: int) -> FloatArray:
        some, I = slice(rows.item_ptr[first], rows.item_ptr[last]), last - first
        item, label = rows.item[some] - first, rows.label[some]
        cell, missed = item.astype(np.int64) * K + label, slips.log_p(0.0, some)

        def gained(share: Any, over: FloatArray) -> FloatArray:
            return np.asarray(np.bincount(cell, slips.log_p(share, some) - over, I * K).reshape(I, K))

        two, others = [], []
        gain = {share: gained(share, missed) for share in TWO_SHARES}
        for share in TWO_SHARES:
            both = gain[share] + log_prior - log_others + _all_but(gain[round(1 - share, 9)] + log_prior)
            two.append(np.bincount(item, missed, I) + logsumexp(both, axis=1))
        for share in OTHER_SHARES:
            other = slips.log_p(share * prior[label], some)
            top = gained(1 - share + share * prior[label], other) + log_prior
            others.append(np.bincount(item, other, I) + logsumexp(top, axis=1))
        kinds = [logsumexp(found, axis=0) - math.log(len(found)) for found in (two, others)]
        return np.asarray(np.logaddexp(*kinds) - math.log(2))

    cuts = balanced_ranges(rows.item_ptr, max(pool.threads, len(rows) // ROWS_AT_ONCE))
    many = np.concatenate(pool.map(of_items, cuts)) if K > 1 else np.full(rows.n_items, -np.inf)
    return slips.one_class(rows.item, rows.n_items), many


def _all_but(values: FloatArray) -> FloatArray:
    """Return log of the sum of exp over all other columns (I, K), without differences, which would lose small terms."""
    out = np.full(values.shape, -np.inf)
    out[:, 1:] = np.logaddexp.accumulate(values, axis=1)[:, :-1]
    after = np.logaddexp.accumulate(values[:, ::-1], axis=1)[:, ::-1]
    out[:, :-1] = np.logaddexp(out[:, :-1], after[:, 1:])
    return out


def _by_group(slips: _Slips, items: IntArray, group: IntArray) -> FloatArray:
    """Return log of Eq. 3 (items,); annotators without a group form one."""
    rows, place = slips.rows, np.full(slips.rows.n_items, -1)
    place[items] = np.arange(items.size)
    some, n_groups = place[rows.item] >= 0, int(group.max(initial=-1)) + 2
    pair = place[rows.item[some]] * n_groups + group[rows.annotator[some]] + 1
    pairs, part = np.unique(pair, return_inverse=True)
    each = logsumexp(slips.one_class(part, pairs.size, some), axis=1)
    return np.asarray(np.bincount(pairs // n_groups, each, items.size))


def _posterior_of_ambiguity(evidence: FloatArray) -> FloatArray:
    """Return P(ambiguous) of items by their log Bayes factors, with the most probable share of ambiguous ones."""
    alpha, gamma = 0.5, np.zeros(evidence.size)
    for _ in range(ALPHA_ROUNDS if evidence.size else 0):
        gamma = expit(logit(alpha) - evidence)
        alpha = float((gamma.sum() + ALPHA_ITEMS / 2) / (gamma.size + ALPHA_ITEMS))
    return gamma


def _with_ambiguity(one: FloatArray, many: FloatArray) -> float:
    """Return log P(labels of all items) with the most probable share of ambiguous items."""
    alpha = _posterior_of_ambiguity(one - many).mean()
    no, yes = np.log(np.maximum([1 - alpha, alpha], np.finfo(float).tiny))  # either share may be 0
    return float(np.logaddexp(no + one, yes + many).sum())


def _surprise(slips: _Slips, best: IntArray, pool: Threads) -> FloatArray:
    """Return expected share of differing pairs if the class is best[i], P(labels less probable) and P(more) (3, I)."""
    rows = slips.rows

    def of_items(number: int, first: int, last: int) -> FloatArray:
        some, ptr = slice(rows.item_ptr[first], rows.item_ptr[last]), rows.item_ptr[first : last + 1]
        ptr, item, label, w = ptr - ptr[0], rows.item[some], rows.label[some], slips.weight[some]
        row = np.arange(item.size)
        chance = slips.often[some, None] * slips.biases(some)  # (n, K) P(label | class), of all labels
        chance[row, best[item]] += 1 - slips.often[some]
        cost = -w[:, None] * np.log(chance)
        mean = (chance * cost).sum(axis=1)
        spread = np.maximum((chance * cost**2).sum(axis=1) - mean**2, 0)
        columns = (w, w**2, w**2 * (chance**2).sum(axis=1), cost[row, label] - mean, spread, np.ptp(cost, axis=1))
        weight, squares, same_row, excess, variance, reach = sum_ranges(np.stack(columns, axis=1), ptr).T
        alike = (sum_ranges(w[:, None] * chance, ptr) ** 2).sum(axis=1) - same_row
        n, out = np.diff(ptr), np.full((ptr.size - 1, 3), 0.5)
        with np.errstate(divide="ignore", invalid="ignore"):  # items with fewer than two labels
            out[:, 0] = 1 - alike / (weight**2 - squares)
            z = excess / np.sqrt(2 * variance)
            grid = np.maximum(np.sqrt(variance / n) / POINTS_PER_SD, reach / MAX_POINTS)  # small beside a row's part
        varies = (reach >= 1e-9) & (variance >= 1e-18) & (n > 1)  # else every label is as probable as any other
        out[varies, 1], out[varies, 2] = erfc(z[varies]) / 2, erfc(-z[varies]) / 2
        exact = varies & (n <= MAX_EXACT_LABELS)
        step = np.where(exact, grid, np.inf)[item - first]  # others stay at 0
        shift = ((cost - cost.min(axis=1, keepdims=True)) / step[:, None] + 0.5).astype(np.int64)
        out[exact, 1:] = kernels.tail_probabilities(ptr, label, chance, shift, MAX_POINTS + MAX_EXACT_LABELS)[exact]
        return out

    cuts = balanced_ranges(rows.item_ptr, max(pool.threads, len(rows) // ROWS_AT_ONCE))
    return np.concatenate(pool.map(of_items, cuts)).T


def _differing(rows: Annotations) -> FloatArray:
    """Return the weighted share of pairs of labels that differ (I,), 0 without pairs."""
    votes = rows.votes()
    total = votes.sum(axis=1)
    squares = total if rows.weight is None else np.bincount(rows.item, rows.weight**2, rows.n_items)
    pairs = total**2 - squares
    return np.asarray(
        np.divide(total**2 - (votes**2).sum(axis=1), pairs, out=np.zeros_like(total), where=pairs > 1e-12 * total**2)
    )
