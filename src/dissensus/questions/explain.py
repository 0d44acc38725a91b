"""Why the labels of an item disagree: somebody erred, the item is ambiguous, or groups see it differently.

*Ambiguous* items have two classes: everybody who looks takes such an item for one or the other. A fitted model knows no
such items, and takes what happens on them for errors of the annotators; so their errors are counted anew, by its
posterior q_i(c), without the items that are ambiguous and without the item in question. With Θ_r[c, l] = P(label l |
class c) of the annotator of row r, w_r its weight, π the shares of the classes, α that of ambiguous items:

    n_jcl = Σ_r w_r q_i(c) (1 − γ_i)              over annotator j's rows with label l                              (1)
    Θ_j[c, l] = (n_jcl + s Θ̄_j[c, l]) / (n_jc + s)                                                                  (2)
    P_i = Σ_c π_c Π_r Θ_r[c, y_r]^w_r                                                                               (3)
    P′_i = Σ_c Σ_d≠c π_c π_d / (1 − π_c) mean_λ Π_r ((1 − λ) Θ_r[c, y_r] + λ Θ_r[d, y_r])^w_r                       (4)
    γ_i = α P′_i / (α P′_i + (1 − α) P_i),  α = mean γ_i                                                            (5)

Θ̄_j is right as often as j is on all classes together and wrong as the crowd is; a share ε of all labels are slips,
which fall anywhere: Θ is (1 − ε) Θ + ε / K. (1) to (5) are gone through until α settles, from γ_i = the share of pairs
of labels that differ. Those of the highest γ are called ambiguous, as many as keep the mean of 1 − γ, the expected
share of false discoveries, at 5 %.

*Surprise* is how much less probable an item's labels are than its annotators' errors would make them if its truth were
the most probable class c: P(ℓ < ℓ_i) + P(ℓ = ℓ_i)/2 for ℓ_i = Σ_r w_r log Θ_r[c, y_r], as standard deviations of a
normal distribution. It is exact but for the rounding of ℓ to a grid: with five labels ℓ is far from normal.

*Group perspective*. For an item with n labels, n_g of them by group g, n_gk of class k, and T = n − Σ_k n_k²/n:

    B_i = Σ_g Σ_k n_g (n_gk/n_g − n_k/n)² − T (groups there − 1)/(n − 1)                                            (6)

the between-group sum of squares less what it is on average if the labels are dealt out among the item's annotators.
Σ_i B_i is compared with what it is when the people are dealt out anew among the groups (the labels of one person move
together); `effect` is Σ_i B_i as a share of the most it could be. Where a column of metadata matters (Holm 1979), items
are judged by how many standard deviations B_i lies above its own mean over those permutations. How many items lie as
far above by chance is counted in permutations too, which gives the false discovery rate (Tusher et al. 2001).

What the labels show is told by what they are as if independent, as in (3): q, and whether an item is undecided. The
softened posterior (`dissensus.models.dependence`), from which no crowd of two classes is ever sure, is behind what is
said of truth: `confidence` and `suspect`.

A probabilistic row counts as the label that it finds most probable. Rows without weight do not count; for groups all
others count alike.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, TypeVar, get_args

import numpy as np
from scipy.sparse import csr_array
from scipy.special import erfc, expit, logit, ndtri

from dissensus.common.arrays import ranges, sums_of_ranges
from dissensus.common.frames import as_frame
from dissensus.common.parameters import check_argument
from dissensus.common.types import BoolArray, FloatArray, IntArray, Names, OnStep
from dissensus.compute.engines.local import Threads, balanced, thread_count
from dissensus.compute.kernels import disagreement as kernels
from dissensus.evaluation.significance import holm
from dissensus.exceptions import DataError
from dissensus.models.base import CROWD_LABELS, Aggregator, arg_max, reliability
from dissensus.models.confusion import soft_counts
from dissensus.models.dependence import labels_per_item, sharpen
from dissensus.table import names as naming
from dissensus.table.annotations import Annotations
from dissensus.table.find_columns import column_names, guess_column, no_column, to_arrow

T = TypeVar("T")
Kind = Literal["unlabelled", "agreed", "likely error", "ambiguous", "undecided", "group perspective"]
KINDS: tuple[Kind, ...] = get_args(Kind)

SURE = 0.9  # P(the item has one class, and it is this) below which another label would tell
FALSE_DISCOVERIES = 0.05  # share of the items called ambiguous, or a group's perspective, that are not
PSEUDO = 10.0  # s, labels; with fewer, annotators of whom little is known make items ambiguous that are not
SLIP = 0.01  # ε: one slip of an expert is no wonder
SHARES = np.array([0.3, 0.5, 0.7])  # λ
MAX_ROUNDS = 100  # of (1) to (5); an α that still creeps is near enough
ALPHA_TOL = 1e-4  # change of α
POINTS_PER_SD = 8.0  # of the grid: per standard deviation of one row's part in ℓ
MAX_POINTS = 4096
MAX_EXACT_LABELS = 100  # of an item, above which ℓ is taken as normal
SIGNIFICANT = 0.01  # p-value of a column of metadata, after Holm
MAX_DISTINCT_NUMBERS = 12  # above which a column is cut into quantiles
QUANTILES = 4
BATCH = 50  # permutations at a time
BATCHES = 4  # of them, by which the items that a group explains are told from chance
MAX_BEATEN = 20  # permutations that beat what was found, after which no more are needed (Besag & Clifford 1991)
STEPS_PER_SD = 100.0  # at which items above their mean are counted
MAX_SD = 100  # standard deviations that are counted apart
ROWS_AT_ONCE = 2**14  # so that temporaries stay in the processor's cache


@dataclass(frozen=True, eq=False)
class GroupEffect:
    """How much groups of annotators, by one column of their metadata, differ in what they say of the same items."""

    column: str
    groups: tuple[str, ...]
    labels: IntArray  # (G,) rows on items whose labels disagree
    reliability: FloatArray  # (G,) share of those that are right by the posterior: bad work may look like a view
    effect: float  # share of the disagreement that lies between groups, beyond chance: 0 none, 1 all
    p_value: float  # corrected for the number of columns
    significant: bool
    items: IntArray  # codes of the items that it explains, the strongest first


@dataclass(frozen=True, eq=False, repr=False)
class Explanation:
    """Why the labels of every item disagree."""

    items: Names  # (I,)
    kind: IntArray  # (I,) code into KINDS
    label: Names  # (I,) most probable class
    confidence: FloatArray  # (I,) its probability
    disagreement: FloatArray  # (I,) share of pairs of labels that differ; NaN with fewer than two
    expected: FloatArray  # (I,) what it would be if the truth were `label` and annotators erred as usual; NaN likewise
    surprise: FloatArray  # (I,) standard deviations by which the labels are less probable than that; NaN likewise
    ambiguity: FloatArray  # (I,) P(the item has two classes)
    share_ambiguous: float  # of the items with two labels or more; more than can be named, where labels are few
    suspect: FloatArray  # (N,) P(row is a mistake): that the item has one class, and not this one
    groups: tuple[GroupEffect, ...]  # one per column of metadata, the surest first
    by_group: IntArray  # (I,) which of `groups` explains the item, −1 none

    def __repr__(self) -> str:
        counts = ", ".join(f"{count:,} {kind}" for kind, count in self.counts().items() if count)
        columns = [effect.column for effect in self.groups if effect.significant]
        return f"Explanation of {self.items.size:,} items: {counts}" + (
            f"; groups differ by {', '.join(columns)}" if columns else ""
        )

    def counts(self) -> dict[Kind, int]:
        """How many items are of each kind."""
        return dict(zip(KINDS, np.bincount(self.kind, minlength=len(KINDS)).tolist(), strict=True))

    def of_kind(self, kind: Kind) -> list[Any]:
        """The items of a kind, those whose labels disagree most first."""
        check_argument("kind", kind, Kind)
        chosen = np.flatnonzero(self.kind == KINDS.index(kind))
        order = np.argsort(-np.nan_to_num(self.disagreement[chosen]), kind="stable")
        return list(self.items[chosen[order]].tolist())

    def to_frame(self) -> Any:
        """One row per item; a pandas frame where pandas is installed, else an Arrow table."""
        import pyarrow as pa

        measures = ("label", "confidence", "disagreement", "expected", "surprise", "ambiguity")
        group = [self.groups[g].column if g >= 0 else None for g in self.by_group]
        return as_frame(
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
    on_step: OnStep | None = None,
) -> Explanation:
    """Split the disagreement about items into likely errors, ambiguity and, with metadata, perspectives of groups.

    Parameters
    ----------
    fitted : Aggregator
        Fitted to this table; items that it does not know are scored.
    annotators : mapping of columns, or frame, optional
        What is known of the annotators: a column `annotator` and others. Text is taken as groups, more than 12
        different numbers as quarters; a column in which all are alike, or most differ, is left out. Annotators who are
        not in the table do not matter.
    missing_as_group : bool
        Whether those without an entry in a column are a group of their own; otherwise it leaves them out.
    permutations, seed : int
        Of the people among groups; at least 100 are made for every column, as fewer could not tell it from chance.
    on_step : callable, optional
        Called while groups are compared with (permutations done, p-value so far).

    >>> from dissensus.models.methods import DawidSkene
    >>> from dissensus.table.datasets import load_dataset
    >>> table = load_dataset("digits-crowd").annotations
    >>> explain(table, DawidSkene().fit(table))
    Explanation of 1,797 items: 143 agreed, 1,311 likely error, 343 undecided
    """
    fitted._check_fitted()
    check_argument("permutations", permutations, int, low=1, must="must be at least 1")
    table = table.to_classes(fitted.classes_)
    posterior, seen = _posteriors(table, fitted)
    best = arg_max(posterior, table.items, table.classes, fitted.tie_seed_)
    confidence = posterior.max(axis=1, initial=0)
    rows = dataclasses.replace(table, proba=None)
    rows = rows if rows.weight is None else rows.select(rows=rows.weight > 0)
    with Threads(thread_count(threads, len(rows))) as pool:
        n, named = np.diff(rows.item_ptr), rows.votes() > 0
        disagree = named.sum(axis=1) > 1
        as_said = named[np.arange(best.size), best]  # somebody named the most probable class
        ambiguity, (expected, above, below) = _ambiguity(rows, seen, best, fitted.prior_, pool)
        ambiguous = np.zeros(n.size, np.bool_)
        ambiguous[disagree] = _discoveries(ambiguity[disagree])
        columns = {} if annotators is None else _metadata_groups(annotators, table, missing_as_group)
        on_step = on_step or (lambda done, p: None)
        effects, by_group = _perspectives(rows, posterior, disagree, columns, permutations, seed, pool, on_step)

    one_class = 1 - ambiguity
    unsure = seen.max(axis=1, initial=0) * np.where(disagree, one_class, 1.0) < SURE
    kind = np.select(
        [n == 0, by_group >= 0, ambiguous, unsure, disagree | ~as_said],
        [KINDS.index(name) for name in ("unlabelled", "group perspective", "ambiguous", "undecided", "likely error")],
        KINDS.index("agreed"),
    )
    right = posterior[table.item, table.label]
    if table.proba is not None:
        right = np.einsum("nk,nk->n", table.proba, posterior[table.item])
    one_class[by_group >= 0] = 0.0
    return Explanation(
        items=table.items,
        kind=kind.astype(np.int8),
        label=table.classes[best],
        confidence=confidence,
        disagreement=np.where(n >= 2, _differing(rows), np.nan),
        expected=expected,
        surprise=_deviations(above, below),
        ambiguity=ambiguity,
        share_ambiguous=_mean(ambiguity[n >= 2]),
        suspect=one_class[table.item] * np.clip(1 - right, 0, 1),
        groups=effects,
        by_group=by_group,
    )


# The items' labels and the annotators' errors -------------------------------------------------------------------------


def _posteriors(table: Annotations, fitted: Aggregator) -> tuple[FloatArray, FloatArray]:
    """(I, K) posterior as fitted, and as if labels were independent; items that the model does not know are scored."""
    known = naming.match(table.items, fitted.items_, "items")
    posterior, there = np.ascontiguousarray(fitted.posterior_[known]), known >= 0
    if not there.all():
        posterior = np.where(there[:, None], posterior, fitted.predict_proba(table))
    if not fitted.dependence_:
        return posterior, posterior
    labels = fitted.item_total_[known]
    if not there.all():
        scored = fitted._weigh(table, naming.match(table.annotators, fitted.annotators_, "annotators"))
        labels = np.where(there, labels, labels_per_item(scored.item_ptr, scored.weight))
    return posterior, sharpen(posterior, labels, fitted.dependence_)


def _errors(rows: Annotations, own: FloatArray) -> FloatArray:
    """n_jcl + s Θ̄_j[c, l] (A, K, K) [annotator, true, given], if items weigh own (I, K)."""
    K, wrong = own.shape[1], 1 - np.eye(own.shape[1])
    counts = soft_counts(rows, own)  # Eq. 1
    right, total = np.einsum("akk->a", counts), counts.sum(axis=(1, 2))
    skill = np.nan_to_num(reliability(right, total), nan=1.0)[:, None, None]
    crowd = counts.sum(axis=0) * wrong
    crowd += wrong * (CROWD_LABELS + crowd.sum() / 10) / max(1, K * (K - 1))  # no error is impossible
    crowd /= np.maximum(crowd.sum(axis=1, keepdims=True), np.finfo(float).tiny)
    return np.asarray(counts + PSEUDO * (skill * np.eye(K) + (1 - skill) * crowd))  # Eq. 2


def _ambiguity(
    rows: Annotations, posterior: FloatArray, best: IntArray, prior: FloatArray, pool: Threads
) -> tuple[FloatArray, FloatArray]:
    """γ (I,); and (3, I): the share of pairs expected to differ, P(labels less probable), P(more)."""
    cuts = balanced(rows.item_ptr, max(pool.threads, len(rows) // ROWS_AT_ONCE))
    named = rows.votes() > 0
    named[np.arange(best.size), best] = True  # classes that nobody named, but for the most probable, cannot be true
    parts, several = [_Part(rows, named, *bounds) for bounds in cuts], np.diff(rows.item_ptr) >= 2
    gamma = np.where(several, _differing(rows), 0.0)
    alpha = _mean(gamma[several])
    for _ in range(MAX_ROUNDS):
        own = posterior * (1 - gamma)[:, None]
        counts = _errors(rows, own)
        odds = _over_parts(pool, parts, partial(_Part.odds, counts=counts, own=own, prior=np.maximum(prior, 1e-12)))
        before, odds = alpha, odds + logit(np.clip(alpha, 1e-9, 1 - 1e-9))
        gamma = np.where(several, expit(odds), 0.0)  # Eq. 5
        alpha = _mean(gamma[several])
        if abs(alpha - before) < ALPHA_TOL:
            break
    found = _over_parts(pool, parts, partial(_Part.surprise, counts=counts, own=own, best=best))
    return gamma, np.where(several[:, None], found, np.nan).T


def _over_parts(pool: Threads, parts: list[_Part], work: Callable[[_Part], FloatArray]) -> FloatArray:
    """Call `work` with every part, in threads; join the results in order."""
    return np.concatenate(pool.map(lambda number, start, end: work(parts[number]), [(0, 0)] * len(parts)))


class _Part:
    """Items first … last − 1 with their rows, and the classes (`named`) that explain labels of each item."""

    def __init__(self, rows: Annotations, named: BoolArray, first: int, last: int):
        self.first, some = first, slice(rows.item_ptr[first], rows.item_ptr[last])
        self.ptr = rows.item_ptr[first : last + 1] - rows.item_ptr[first]
        self.item, self.annotator, self.label = rows.item[some], rows.annotator[some], rows.label[some]
        self.weight = None if rows.weight is None else rows.weight[some]
        self.w = np.ones(self.item.size) if self.weight is None else self.weight
        item, self.named = np.nonzero(named[first:last])
        self.named_ptr = np.searchsorted(item, np.arange(last - first + 1))
        # an entry for each row and named class of its item
        often = np.diff(self.named_ptr)[self.item - first]
        self.row = np.repeat(np.arange(self.item.size), often)
        self.place = ranges(self.named_ptr[self.item - first], often)  # in `named`

    def odds(self, counts: FloatArray, own: FloatArray, prior: FloatArray) -> FloatArray:
        """(items,) log P′ / P of Eq. 3 and 4; P(label | class) comes from counts without the row itself."""
        row, c = self.row, self.named[self.place]
        mine = self.w[row] * own[self.item[row], c]
        chance = np.maximum(counts[self.annotator[row], c, self.label[row]] - mine, 0)
        chance = _slip(chance / (counts.sum(axis=2)[self.annotator[row], c] - mine), counts.shape[1])
        one = np.log(prior)[self.named] + np.bincount(self.place, self.w[row] * np.log(chance), self.named.size)
        two = kernels.two_classes(self.ptr, self.weight, chance, self.named_ptr, self.named, prior, SHARES)
        return np.asarray(two - np.logaddexp.reduceat(one, self.named_ptr[:-1]))

    def surprise(self, counts: FloatArray, own: FloatArray, best: IntArray) -> FloatArray:
        """(items, 3) share of pairs expected to differ if the class were best[i], P(labels less probable), P(more)."""
        row, w, c = np.arange(self.item.size), self.w, best[self.item]
        mine, chance = w * own[self.item, c], counts[self.annotator, c]  # (n, K) P(label | class), of all labels
        total = chance.sum(axis=1) - mine
        chance[row, self.label] = np.maximum(chance[row, self.label] - mine, 0)
        chance = _slip(chance / total[:, None], chance.shape[1])
        cost = -w[:, None] * np.log(chance)
        mean = (chance * cost).sum(axis=1)
        spread = np.maximum((chance * cost**2).sum(axis=1) - mean**2, 0)
        columns = (w, w**2, w**2 * (chance**2).sum(axis=1), cost[row, self.label] - mean, spread, np.ptp(cost, axis=1))
        sums = sums_of_ranges(np.stack(columns, axis=1), self.ptr)
        weight, squares, same_row, excess, variance, reach = sums.T
        alike = (sums_of_ranges(w[:, None] * chance, self.ptr) ** 2).sum(axis=1) - same_row
        n, out = np.diff(self.ptr), np.full((self.ptr.size - 1, 3), 0.5)
        with np.errstate(divide="ignore", invalid="ignore"):  # items with fewer than two labels
            out[:, 0] = 1 - alike / (weight**2 - squares)
            z = excess / np.sqrt(2 * variance)
            grid = np.maximum(np.sqrt(variance / n) / POINTS_PER_SD, reach / MAX_POINTS)  # small beside a row's part
        varies = (reach >= 1e-9) & (variance >= 1e-18) & (n > 1)  # else every label is as probable as any other
        out[varies, 1], out[varies, 2] = erfc(z[varies]) / 2, erfc(-z[varies]) / 2
        exact = varies & (n <= MAX_EXACT_LABELS)
        step = np.where(exact, grid, np.inf)[self.item - self.first]  # others stay at 0
        shift = ((cost - cost.min(axis=1, keepdims=True)) / step[:, None] + 0.5).astype(np.int64)
        found = kernels.tails(self.ptr, self.label, chance, shift, MAX_POINTS + MAX_EXACT_LABELS)
        out[exact, 1:] = found[exact]
        return out


def _mean(values: FloatArray) -> float:
    return float(values.mean()) if values.size else 0.0


def _slip(chance: FloatArray, n_classes: int) -> FloatArray:
    """Mix probabilities of labels with a uniform share of slips."""
    return np.asarray((1 - SLIP) * chance + SLIP / n_classes)


def _differing(rows: Annotations) -> FloatArray:
    """(I,) share of pairs of labels that differ, by weight; 0 without pairs."""
    votes = rows.votes()
    total = votes.sum(axis=1)
    squares = total if rows.weight is None else np.bincount(rows.item, rows.weight**2, rows.n_items)
    pairs = total**2 - squares
    return np.asarray(
        np.divide(total**2 - (votes**2).sum(axis=1), pairs, out=np.zeros_like(total), where=pairs > 1e-12 * total**2)
    )


def _deviations(above: FloatArray, below: FloatArray) -> FloatArray:
    """Convert tail probabilities to standard deviations of a normal distribution, from the smaller tail."""
    least = np.finfo(float).tiny
    return np.asarray(np.where(above < 0.5, -ndtri(np.maximum(above, least)), ndtri(np.clip(below, least, 0.5))))


def _discoveries(probability: FloatArray) -> BoolArray:
    """True for the most probable ones: as many as keep the expected share of false discoveries low."""
    order = np.sort(probability)[::-1]
    last = _how_many(np.cumsum(1 - order))
    return np.asarray(probability >= (order[last - 1] if last else np.inf))


def _how_many(expected_false: FloatArray) -> int:
    """The most discoveries, in order, of which few enough are false; `expected_false` of the first 1, 2, …."""
    good = np.flatnonzero(expected_false <= FALSE_DISCOVERIES * np.arange(1, expected_false.size + 1))
    return int(good[-1]) + 1 if good.size else 0


# Groups of annotators -------------------------------------------------------------------------------------------------


def _metadata_groups(
    metadata: Any, table: Annotations, missing_as_group: bool
) -> dict[str, tuple[tuple[str, ...], IntArray]]:
    """Read metadata: column → names of its groups, and the group of each annotator of the table (A,), −1 unknown."""
    by_column = isinstance(metadata, Mapping)
    there = list(metadata) if by_column else column_names(metadata)
    key = guess_column("annotator", there)
    if key is None:
        raise no_column("annotator", there)
    data = metadata if by_column else to_arrow(metadata, there)
    columns = {name: naming.to_column(data[name], name) for name in there}
    for name, column in columns.items():
        if len(column) != len(columns[key]):
            raise DataError(f"annotators: '{name}' has {len(column):,} rows, '{key}' has {len(columns[key]):,}.")
    people, code = naming.encode(columns.pop(key), key)
    if people.size < code.size:
        twice = people[np.flatnonzero(np.bincount(code) > 1)[0]]
        raise DataError(f"annotators: {naming.shown(twice)} is there twice; one row per annotator is needed.")
    at = naming.match(table.annotators, people, "annotators")
    known = at >= 0
    if not known.any():
        raise DataError(
            f"annotators: none of the {people.size:,} (such as {naming.shown(people[0])}) is in the table, which has "
            f"{naming.shown(table.annotators[0])} and others."
        )
    row = np.argsort(code)[at[known]]
    found = {}
    for name, column in columns.items():
        everybody = np.full(table.n_annotators, -1, np.int32)
        groups, everybody[known] = _sort_into_groups(column, row)
        if missing_as_group and (everybody < 0).any():
            everybody[everybody < 0] = len(groups)
            groups = (*groups, "(missing)")
        if 1 < len(groups) <= np.count_nonzero(everybody >= 0) / 2:
            found[str(name)] = groups, everybody
    return found


def _sort_into_groups(column: Any, rows: IntArray) -> tuple[tuple[str, ...], IntArray]:
    """Sort these rows of a column into groups; return the names of the groups and the group of each row, −1 missing."""
    missing = naming.missing_rows(column)[rows]
    values: Any = naming.to_names(column)[rows]
    group = np.full(rows.size, -1, np.int32)
    present = values[~missing]
    try:
        numbers = None if present.dtype.kind == "b" else np.array([float(value) for value in present])
    except ValueError:
        numbers = None
    if numbers is None or not np.isfinite(numbers).all():
        distinct, group[~missing] = np.unique(present, return_inverse=True)
        return tuple(map(str, distinct.tolist())), group
    distinct, place = np.unique(numbers, return_inverse=True)
    names, part = [f"{value:g}" for value in distinct], np.arange(distinct.size)
    if distinct.size > MAX_DISTINCT_NUMBERS:
        edges = np.unique(np.quantile(numbers, np.arange(1, QUANTILES) / QUANTILES, method="inverted_cdf"))
        part = np.unique(np.searchsorted(edges, distinct), return_inverse=True)[1]  # a value on an edge belongs below
        names = [f"{distinct[part == p][0]:g} … {distinct[part == p][-1]:g}" for p in range(part.max() + 1)]
    group[~missing] = part[place]
    return tuple(names), group


class _Column:
    """The rows that can tell whether groups differ: of items whose labels disagree, by people with a group."""

    def __init__(self, rows: Annotations, posterior: FloatArray, disagree: BoolArray, group: IntArray, n_groups: int):
        keep = (group[rows.annotator] >= 0) & disagree[rows.item]
        named = np.unique(rows.item[keep] * np.int64(rows.n_classes) + rows.label[keep])
        keep &= (np.bincount(named // rows.n_classes, minlength=rows.n_items) > 1)[rows.item]  # still differing labels
        people, annotator = np.unique(rows.annotator[keep], return_inverse=True)
        self.item, place = np.unique(rows.item[keep], return_inverse=True)  # (J,) code of each
        self.group, self.n_groups = group[people], n_groups  # (people,)
        self.of_row = self.group[annotator]  # (M,)
        self.right = posterior[rows.item[keep], rows.label[keep]]  # (M,) probability that the label is right
        cells, cell = np.unique(place * rows.n_classes + rows.label[keep], return_inverse=True)  # item and label
        self.counts = csr_array((np.ones(cell.size), (cell, annotator)), shape=(cells.size, people.size))
        self.ptr = np.searchsorted(cells, np.arange(self.item.size + 1) * rows.n_classes)  # cells of each item
        self.n = np.bincount(place, minlength=self.item.size)  # (J,)
        self.within = self.n - sums_of_ranges(self.counts.sum(axis=1) ** 2, self.ptr) / self.n  # T of Eq. 6

    def between(self, groups: IntArray, start: int, end: int) -> tuple[FloatArray, FloatArray]:
        """(P, items) Eq. 6 of items start … end − 1 under P ways to deal out groups (P, people); and its most."""
        P, G = len(groups), self.n_groups
        dealt = (groups.T[:, :, None] == np.arange(G)).reshape(-1, P * G).astype(np.float64)
        count = self.counts[self.ptr[start] : self.ptr[end]] @ dealt
        ptr = self.ptr[start : end + 1] - self.ptr[start]
        size, squares = sums_of_ranges(count, ptr), sums_of_ranges(count**2, ptr)
        explained = (squares / np.maximum(size, 1)).reshape(-1, P, G).sum(axis=2).T
        there = (size > 0).reshape(-1, P, G).sum(axis=2).T
        n, within = self.n[start:end], self.within[start:end]
        by_chance = (there - 1) / (n - 1) * within
        found = (explained - (n - within) - by_chance, within - by_chance)
        return tuple(np.where(there > 1, one, 0.0) for one in found)  # type: ignore[return-value]

    def in_parts(self, pool: Threads, work: Callable[[slice, FloatArray], T], groups: IntArray) -> list[T]:
        """What `work` makes of Eq. 6 under P ways to deal out groups, some items (a slice) at a time."""
        parts = balanced(self.ptr, max(pool.threads, self.of_row.size // ROWS_AT_ONCE))
        return pool.map(lambda _, start, end: work(slice(start, end), self.between(groups, start, end)[0]), parts)

    def permuted(self, number: int, seed: int) -> IntArray:
        """(BATCH, people) groups, dealt out anew among the people; the same for the same batch number."""
        rng = np.random.default_rng([seed, number])
        return rng.permuted(np.tile(self.group, (BATCH, 1)), axis=1)


@dataclass(frozen=True, eq=False)
class _Test:
    """Result of the permutation test of a column."""

    column: _Column
    p_value: float
    effect: float
    z: FloatArray  # (J,) standard deviations of each item above its own mean over permutations
    mean: FloatArray  # (J,)
    sd: FloatArray  # (J,)


def _test(column: _Column, permutations: int, seed: int, pool: Threads, on_step: OnStep) -> _Test:
    (found,), (most_of_items,) = column.between(column.group[None], 0, column.item.size)
    total, most = found.sum(), most_of_items.sum()
    least = total - 1e-9 * max(1.0, most)  # the same sum in another order counts as the same
    moments = np.zeros((2, column.item.size))
    done = beaten = 0

    def add(part: slice, found: FloatArray) -> FloatArray:
        moments[:, part] += found.sum(axis=0), (found**2).sum(axis=0)
        return np.asarray(found.sum(axis=1))

    while done < permutations and beaten < MAX_BEATEN:
        groups = column.permuted(done // BATCH, seed)[: permutations - done]
        beaten += int((np.sum(column.in_parts(pool, add, groups), axis=0) >= least).sum())
        done += len(groups)
        on_step(done, (1 + beaten) / (1 + done))
    mean, squares = moments / done
    variance = squares - mean**2
    sd = np.sqrt(np.where(variance > 1e-9, variance, 0))
    z = np.divide(found - mean, sd, out=np.zeros_like(mean), where=sd > 0)
    return _Test(column, (1 + beaten) / (1 + done), float(total / most) if most > 0 else 0.0, z, mean, sd)


def _explained_items(test: _Test, seed: int, pool: Threads) -> IntArray:
    """Find the items (places in the column's) so far above their mean that few are there by chance; best first."""
    column, steps = test.column, round(STEPS_PER_SD * MAX_SD)
    spread = np.where(test.sd > 0, test.sd, np.inf)

    def count(part: slice, found: FloatArray) -> IntArray:
        z = (found - test.mean[part]) / spread[part]
        return np.bincount(_step(z[z > 0], steps), minlength=steps)

    batches = (column.in_parts(pool, count, column.permuted(batch, seed)) for batch in range(BATCHES))
    histogram = np.sum([np.sum(one, axis=0) for one in batches], axis=0)
    by_chance = histogram[::-1].cumsum()[::-1] / (BATCHES * BATCH)  # items that lie so far above, or more
    order = np.argsort(-test.z, kind="stable")
    above = order[test.z[order] > 0]
    return above[: _how_many(by_chance[_step(test.z[above], steps)])]


def _step(z: FloatArray, steps: int) -> IntArray:
    return np.asarray(np.minimum(z * STEPS_PER_SD, steps - 1).astype(np.int64))


def _perspectives(
    rows: Annotations,
    posterior: FloatArray,
    disagree: BoolArray,
    columns: dict[str, tuple[tuple[str, ...], IntArray]],
    permutations: int,
    seed: int,
    pool: Threads,
    on_step: OnStep,
) -> tuple[tuple[GroupEffect, ...], IntArray]:
    """Test every column; return the effects, the surest first, and which of them explains each item (I,), −1 none."""
    permutations = max(permutations, math.ceil(len(columns) / SIGNIFICANT))
    tests = {
        name: _test(_Column(rows, posterior, disagree, group, len(groups)), permutations, seed, pool, on_step)
        for name, (groups, group) in columns.items()
    }
    p_values = holm({name: test.p_value for name, test in tests.items()})
    effects: list[GroupEffect] = []
    by_group, best = np.full(rows.n_items, -1, np.int32), np.zeros(rows.n_items)
    for name in sorted(tests, key=lambda name: (p_values[name], -tests[name].effect)):
        test, items = tests[name], np.empty(0, np.int64)
        column = test.column
        if p_values[name] <= SIGNIFICANT:
            at = _explained_items(test, seed, pool)
            items = column.item[at]
            better = test.z[at] > best[items]
            by_group[items[better]], best[items[better]] = len(effects), test.z[at][better]
        groups = columns[name][0]
        labels = np.bincount(column.of_row, minlength=len(groups))
        with np.errstate(invalid="ignore"):
            right = np.bincount(column.of_row, column.right, len(groups)) / labels  # NaN in a group without labels
        effects.append(
            GroupEffect(
                column=name,
                groups=groups,
                labels=labels,
                reliability=right,
                effect=test.effect,
                p_value=p_values[name],
                significant=p_values[name] <= SIGNIFICANT,
                items=items,
            )
        )
    return tuple(effects), by_group
