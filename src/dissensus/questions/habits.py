"""Annotators who answer unlike the others, where labels are no classes: numbers, comparisons, sets, spans, texts.

A *trait* of annotator j is a number t_j with a standard error e_j, measured on the items that others have labelled too.
Typical annotators differ: the traits of the crowd are N(m, τ²), and of annotators unlike the crowd

    relation      N(0, e²): answers that do not depend on the item      N(−m, τ² + e²): answers that go against it
    other traits  Cauchy, with the middle m and 5 √(τ² + e²)

The shares of these, m and τ² are learnt by EM, from the median and the median distance to it, with a sceptical prior on
the shares. P-values are of z_j = (t_j − m) / √(τ² + e_j²), by Student's t; its degrees of freedom are the number of
annotators like the crowd, less one. With Benjamini & Hochberg (1995) over all annotators and traits, at most a share
`LEVEL` of the flagged annotators is like the crowd; P(like the crowd) ≤ `LEVEL` has the same error rate.

| kind | trait | of |
|---|---|---|
| numbers, graded | shift | normal scores of the labels, less the mean of the others' on the item |
| | relation | correlation with that mean, as Fisher's z |
| pairs | position, ties, relation | h, κ and γ of Bradley & Terry's model, with all else as the crowd's |
| sets, spans | marks | options or spans marked, less the mean of the others' on the item or document |
| sets, spans, objects | relation | likeness (Jaccard, 1 − distance) to others' labels of the item, less of others |

Relation is one-sided: annotators who follow the others less. Such answers are `unrelated` or `contrary`, whichever is
more probable, where P(like the crowd) ≤ `LEVEL`; else, by the test, `apart`. An annotator with the same label on all of
n ≥ 20 items is `unrelated` where g^n ≤ `LEVEL` / A (Bonferroni), g the largest share of one label among annotators who
give several.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
from scipy.special import gammaln, ndtri, stdtr

from dissensus.common import formatting
from dissensus.common.frames import columns_to_frame
from dissensus.common.notebook import NotebookTable
from dissensus.common.parameters import check_argument
from dissensus.common.types import FloatArray, IntArray, Names
from dissensus.evaluation.distances import pair_distances
from dissensus.messages import Message
from dissensus.models.exceptions import NoAnnotations
from dissensus.questions.findings import (
    LowCorrelation,
    LowSimilarity,
    MarksUnlikeOthers,
    Reason,
    SameNumber,
    ShiftedNumbers,
    UnusualChoices,
)
from dissensus.table.annotations import Annotations

Flag = Literal[
    "unrelated", "contrary", "copies", "apart", "higher", "lower", "left", "right", "more_ties", "fewer_ties", "more",
    "fewer",
]  # fmt: skip
FLAG_WORDS: dict[Flag, str] = {
    "unrelated": "unrelated to the items",
    "contrary": "contrary to the others",
    "copies": "same as another's",
    "apart": "further from the others than most",
    "higher": "higher than the others'",
    "lower": "lower than the others'",
    "left": "for what stands left",
    "right": "for what stands right",
    "more_ties": "ties more often than others",
    "fewer_ties": "ties less often than others",
    "more": "more than the others mark",
    "fewer": "fewer than the others mark",
}
"""Flag → words for the answers of an annotator with this flag."""

LEVEL = 0.01  # share of the flagged annotators who may be like the crowd
MIN_LABELS = 10  # on items that others labelled too; annotators with fewer are not flagged
MIN_CROWD = 4  # annotators with `MIN_LABELS` labels, below which nobody can be unlike the crowd
WIDE = 5.0  # scale of traits of annotators unlike the crowd, in scales of the crowd
SHARES = {True: (0.93, 0.05, 0.02), False: (0.95, 0.05)}
"""One-sided trait or not → prior shares of the crowd, and of annotators unlike it."""
SHARE_ANNOTATORS = 20  # weight of this prior, in annotators
MAX_UNLIKE = 0.3  # largest share of annotators unlike the crowd
EM_PASSES = 100
NEWTON_STEPS = 8  # from the crowd's γ to an annotator's
MAX_FOLLOWING = 5.0  # limit of γ, which is infinite for an annotator without errors
PARTNERS = 8  # other labels of the item that a label is compared with, at most
STRANGERS = 4  # labels of other items that a label is compared with
MIN_SAME = 20  # equal labels from which on equality alone is tested
DOUBTFUL = 0.05  # p-value of a relation above which equal labels everywhere are not flagged
SAME_LABEL = 0.9  # share of one label from which on the reason names it
MIN_SPREAD = 1e-9


Fact = tuple[type[Reason], dict[str, Any]]
"""A class of reasons and its facts, without the chance."""


class Trait(NamedTuple):
    """One number per annotator."""

    name: Literal["relation", "shift", "position", "ties", "marks"]
    value: FloatArray  # (A,)
    error: FloatArray  # (A,)
    side: int  # −1: only low values are unusual; 0: both
    fact: Callable[[int], Fact]  # annotator → what was seen
    always: FloatArray | None = None  # (A,) probability that a typical annotator gives equal labels only; 1 if several


@dataclass(frozen=True, eq=False, repr=False)
class Flagged(NotebookTable):
    """Flags and reasons of every annotator of a table."""

    words: ClassVar[dict[Flag, str]] = FLAG_WORDS  # of the flags that there may be
    annotators: Names  # (A,)
    labels: Any  # (A,) weight of the labels on items that others labelled too
    said: tuple[dict[Flag, Message], ...]  # (A,) flag → the reason
    active_annotators: int  # annotators with labels
    too_few_labels: int  # active annotators with fewer than `MIN_LABELS` labels that can be tested

    @property
    def flags(self) -> tuple[tuple[Flag, ...], ...]:
        """Return the flags of each annotator (A,)."""
        return tuple(tuple(one) for one in self.said)

    @property
    def reasons(self) -> tuple[str, ...]:
        """Return one sentence per annotator (A,), "" without flags."""
        return tuple("; ".join(map(str, one.values())) for one in self.said)

    def flagged(self, flag: Flag) -> list[Any]:
        """Return the annotators with this flag."""
        check_argument("flag", flag, Literal[tuple(self.words)])
        return [name for name, said in zip(self.annotators.tolist(), self.said, strict=True) if flag in said]

    def _measures(self) -> dict[str, Any]:
        """Return name → measure (A,) that the flags rest on."""
        raise NotImplementedError

    def to_frame(self) -> Any:
        """Return a frame (pandas if installed, else Arrow) with one row per annotator.

        Its columns are annotator, flag ("" if none), evidence (the reasons of the flags) and the measures.
        """
        said = {"flag": [", ".join(flags) for flags in self.flags], "evidence": list(self.reasons)}
        return columns_to_frame({"annotator": self.annotators} | said | self._measures())


@dataclass(frozen=True, eq=False, repr=False)
class Habits(Flagged):
    """Flags, reasons and traits of every annotator of a table, and the items whose labels differ most.

    >>> from dissensus import diagnose, simulate
    >>> found = diagnose(simulate.simulate_kind("numbers", 60, 8, seed=1).annotations)
    >>> isinstance(found, Habits), sum(map(len, found.flags)), len(found.reasons), int(found.most_contested(1)[0][0])
    (True, 0, 8, 29)
    >>> found.flagged("higher"), found.to_frame().shape
    ([], (8, 8))
    """

    traits: dict[str, FloatArray]  # name → (A,)
    p_values: dict[str, FloatArray]  # name → (A,) P(a typical annotator is as extreme); NaN with too few labels
    items: Names  # (I,)
    disagreement: FloatArray  # (I,) distance between the labels of an item; NaN with fewer than two
    groups: ClassVar[tuple[Any, ...]] = ()
    unsettled: ClassVar[str] = ""

    def __repr__(self) -> str:
        n = sum(map(bool, self.said))
        who = formatting.format_count(self.active_annotators, "annotator")
        return f"Habits of {who}: {n:,} {'answers' if n == 1 else 'answer'} unlike the others"

    def most_contested(self, n: int) -> list[tuple[Any, float]]:
        """Return the n items whose labels differ most, with the distance between their labels."""
        order = np.argsort(-np.nan_to_num(self.disagreement, nan=-1.0), kind="stable")[:n]
        found = [(self.items[i], float(self.disagreement[i])) for i in order.tolist()]
        return [(item, apart) for item, apart in found if apart > 0]

    def _measures(self) -> dict[str, Any]:
        """Return the number of labels, the traits and their p-values."""
        found = {"labels": self.labels}
        for name, value in self.traits.items():
            found |= {name: value, f"{name}_p": self.p_values[name]}
        return found


def find_habits(table: Annotations) -> Habits:
    """Flag annotators who answer unlike the others.

    >>> from dissensus.table.simulate import simulate_kind
    >>> drawn = simulate_kind("numbers", 300, 20, redundancy=8, seed=1)
    >>> found = find_habits(drawn.annotations)
    >>> sorted(found.flagged("unrelated")) == sorted(np.flatnonzero(drawn.kind == "spammer").tolist())
    True
    """
    if table.n_annotations == 0:
        raise NoAnnotations
    labels, traits, disagreement = FINDERS[table.kind](table)
    enough = labels >= MIN_LABELS
    crowds = [Crowd.of(one, enough) for one in traits]
    tested = discoveries(np.stack([one.p for one in crowds], axis=1), LEVEL)  # (A, traits)
    found: list[dict[Flag, Message]] = []
    for code in range(table.n_annotators):
        reasons: dict[Flag, Message] = {}
        for trait, crowd, unlike in zip(traits, crowds, tested[code], strict=True):
            if (flag := _flag(trait, crowd, code, bool(unlike))) is not None:
                reason, facts = trait.fact(code)
                reasons[flag] = reason(chance=float(crowd.p[code]), **facts)
        found.append(reasons)
    active = np.diff(table.annotator_ptr) > 0
    return Habits(
        table.annotators, labels, tuple(found), int(active.sum()), int((active & ~enough).sum()),
        {one.name: one.value for one in traits},
        {one.name: crowd.p for one, crowd in zip(traits, crowds, strict=True)}, *disagreement,
    )  # fmt: skip


class Crowd(NamedTuple):
    """What is usual of a trait, and how far each annotator is from it."""

    middle: float
    p: FloatArray  # (A,) P(a typical annotator is as far out); NaN without enough labels
    probability: FloatArray  # (A, 2 or 3) of being like the crowd, and of each way to be unlike it

    @classmethod
    def of(cls, trait: Trait, enough: Any) -> Crowd:
        """Fit the mixture of the module's docstring by EM."""
        one_sided = trait.side != 0
        p, everyone = np.full(trait.value.size, np.nan), np.zeros((trait.value.size, len(SHARES[one_sided])))
        everyone[:, 0] = 1
        at = np.flatnonzero(enough & np.isfinite(trait.value) & np.isfinite(trait.error))
        if at.size < MIN_CROWD:
            return cls(float("nan"), p, everyone)
        value, error = trait.value[at], np.maximum(trait.error[at], MIN_SPREAD)
        middle = float(np.median(value))
        spread = (float(np.median(np.abs(value - middle))) / float(ndtri(0.75))) ** 2
        spread, prior = max(spread - float(np.median(error**2)), 0.0), np.array(SHARES[one_sided])
        shares, freedom = prior, max(1.0, 0.4 * (at.size - 1))
        for _ in range(EM_PASSES):
            wide = spread + error**2
            z = (value - middle) / np.sqrt(wide)
            densities = [_student(z, freedom) / np.sqrt(wide)]
            if one_sided:
                against = (value + abs(middle)) / np.sqrt(wide)
                unrelated = np.exp(-((value / error) ** 2) / 2) / np.sqrt(2 * np.pi) / error
                densities += [unrelated, _student(against, freedom) / np.sqrt(wide)]
            else:
                densities.append(_student(z / WIDE, 1.0) / (WIDE * np.sqrt(wide)))
            joint = np.maximum(np.stack(densities, axis=1) * shares, 1e-300)
            q = joint / joint.sum(axis=1, keepdims=True)
            shares = q.sum(axis=0) + SHARE_ANNOTATORS * prior
            shares = shares / shares.sum()
            if (unlike := shares[1:].sum()) > MAX_UNLIKE:
                shares = np.append(1 - MAX_UNLIKE, shares[1:] * MAX_UNLIKE / unlike)
            weight = q[:, 0] / wide
            middle = float(weight @ value / weight.sum())
            spread = max(float(q[:, 0] @ ((value - middle) ** 2 - error**2) / q[:, 0].sum()), 0.0)
            freedom = max(1.0, float(q[:, 0].sum()) - 1)
        p[at] = stdtr(freedom, z) if one_sided else 2 * stdtr(freedom, -np.abs(z))
        everyone[at] = q
        return cls(middle, p, everyone)


def _student(z: FloatArray, freedom: float) -> FloatArray:
    scale = np.exp(gammaln((freedom + 1) / 2) - gammaln(freedom / 2)) / np.sqrt(freedom * np.pi)
    return np.asarray(scale * (1 + z**2 / freedom) ** (-(freedom + 1) / 2))


def discoveries(p: FloatArray, level: float) -> Any:
    """Return where Benjamini & Hochberg's procedure rejects at a false discovery rate; NaN is no test."""
    flat = np.sort(p[~np.isnan(p)])
    under = np.flatnonzero(flat <= level * np.arange(1, flat.size + 1) / max(flat.size, 1))
    return p <= flat[under[-1]] if under.size else np.zeros(p.shape, np.bool_)


def _flag(trait: Trait, crowd: Crowd, code: int, tested: bool) -> Flag | None:
    """Return the flag of an annotator by one trait, if any."""
    if trait.name == "relation":
        like, unrelated, contrary = crowd.probability[code]
        if like <= LEVEL and crowd.p[code] <= LEVEL:
            return "unrelated" if unrelated >= contrary else "contrary"
        same = trait.always is not None and trait.always[code] * trait.always.size <= LEVEL
        if same and crowd.p[code] <= DOUBTFUL:
            return "unrelated"
        return "apart" if tested else None
    two: dict[str, tuple[Flag, Flag]] = {
        "shift": ("higher", "lower"), "position": ("left", "right"), "ties": ("more_ties", "fewer_ties"),
        "marks": ("more", "fewer"),
    }  # fmt: skip
    return two[trait.name][int(trait.value[code] < crowd.middle)] if tested else None


def _means(values: FloatArray, of: IntArray, n: int) -> tuple[FloatArray, FloatArray]:
    """Return the mean of values by code (n,), and its standard error (n,)."""
    count = np.bincount(of, minlength=n)
    with np.errstate(divide="ignore", invalid="ignore"):
        mean = np.bincount(of, values, n) / count
        spread = np.bincount(of, (values - mean[of]) ** 2, n) / (count - 1)
        return mean, np.sqrt(spread / count)


def _leave_one_out_mean(table: Annotations, values: FloatArray) -> tuple[FloatArray, Any]:
    """Return the mean of the other annotators' values on the item (N,), and whether there are any (N,)."""
    pair = table.item.astype(np.int64) * table.n_annotators + table.annotator
    _, own = np.unique(pair, return_inverse=True)
    n = np.bincount(table.item, minlength=table.n_items)[table.item] - np.bincount(own)[own]
    total = np.bincount(table.item, values, table.n_items)[table.item] - np.bincount(own, values)[own]
    return np.divide(total, n, out=np.zeros(len(table)), where=n > 0), n > 0


Found = tuple[IntArray, list[Trait], tuple[Names, FloatArray]]


def _ratings(table: Annotations) -> Found:
    A, raw = table.n_annotators, table.values[table.label]
    _, place, count = np.unique(raw, return_inverse=True, return_counts=True)
    upper = np.cumsum(count)
    x = ndtri((upper - count / 2) / len(table))[place]  # normal scores
    others, met = _leave_one_out_mean(table, x)
    raw_others, _ = _leave_one_out_mean(table, raw)
    who, x, others, y = table.annotator[met], x[met], others[met], raw[met]
    labels = np.bincount(who, minlength=A)
    shift, error = _means(x - others, who, A)
    off, _ = _means(y - raw_others[met], who, A)
    (own, _), (their, _) = _means(x, who, A), _means(others, who, A)
    with np.errstate(divide="ignore", invalid="ignore"):
        both = np.bincount(who, (x - own[who]) * (others - their[who]), A)
        apart = np.bincount(who, (x - own[who]) ** 2, A) * np.bincount(who, (others - their[who]) ** 2, A)
        r = np.divide(both, np.sqrt(apart), out=np.zeros(A), where=apart > 0)
    z, z_error = np.arctanh(np.clip(r, -0.999, 0.999)), 1 / np.sqrt(np.maximum(labels - 3, 1))
    crowd = np.median(r[labels >= MIN_LABELS]) if (labels >= MIN_LABELS).any() else np.nan

    most = np.zeros(A, np.int64)  # count of each annotator's most frequent label
    said, times = np.unique(who.astype(np.int64) * (place.max() + 1) + place[met], return_counts=True)
    np.maximum.at(most, said // (place.max() + 1), times)
    several = (labels >= MIN_LABELS) & (most < labels)
    usual = float(((most + 1) / (labels + 2))[several].max()) if several.any() else 1.0
    always = np.where((labels >= MIN_SAME) & (most == labels), usual**labels, 1.0)

    def relation(code: int) -> Fact:
        values, times = np.unique(y[who == code], return_counts=True)
        n = int(labels[code])
        if times.max() >= SAME_LABEL * n:
            return SameNumber, {"value": float(values[times.argmax()]), "times": int(times.max()), "n": n}
        return LowCorrelation, {"r": float(r[code]), "usual": float(crowd), "n": n}

    def distance(code: int) -> Fact:
        return ShiftedNumbers, {"shift": float(off[code]), "n": int(labels[code])}

    spread = _means(raw, table.item, table.n_items)[1] * np.sqrt(np.bincount(table.item, minlength=table.n_items))
    traits = [Trait("relation", z, z_error, -1, relation, always), Trait("shift", shift, error, 0, distance)]
    return labels, traits, (table.items, spread)


def _pairs(table: Annotations) -> Found:
    from dissensus.models.methods.bradley_terry import BradleyTerry, expected_outcomes, score_derivatives

    model, A = BradleyTerry().fit(table), table.n_annotators
    games, who = model.comparisons_of(table), table.annotator
    own = np.tile(model.crowd_answering_, (A, 1))
    d = model.scores_[games.left] - model.scores_[games.right]

    def step(score: FloatArray, information: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return one Newton step away from the crowd (A,), and its standard error (A,)."""
        sums = np.maximum(np.bincount(who, information, A), MIN_SPREAD)
        return np.bincount(who, score, A) / sums, 1 / np.sqrt(sums)

    usual = expected_outcomes(games, model.scores_, own, total=False)
    for _ in range(NEWTON_STEPS):
        slope, curve = score_derivatives(games, expected_outcomes(games, model.scores_, own, total=False))
        move, follows_error = step(slope * d, curve * d**2)
        own[:, 0] += np.clip(move, -1, 1)
    follows = np.clip(own[:, 0], -MAX_FOLLOWING, MAX_FOLLOWING)
    p = expected_outcomes(games, model.scores_, own, total=False)
    slope, curve = score_derivatives(games, p)
    chosen = {
        "left": (table.label == 0, (usual.decided + usual.difference) / 2),
        "right": (table.label == 1, (usual.decided - usual.difference) / 2),
        "tie": (table.label == 2, usual.tie),
        "better": (
            (table.label < 2) & ((table.label == 0) == (d > 0)),
            usual.decided / 2 + np.abs(usual.difference) / 2,
        ),
    }
    counts = {name: [np.bincount(who, one, A) for one in both] for name, both in chosen.items()}

    def choices(code: int, choice: str) -> Fact:
        times, expected = (float(one[code]) for one in counts[choice])
        return UnusualChoices, {"choice": choice, "times": times, "expected": expected, "n": int(n[code])}

    n = np.bincount(who, minlength=A)
    position, position_error = step(slope, curve)
    traits = [
        Trait("relation", follows, follows_error, -1, lambda code: choices(code, "better")),
        Trait(
            "position",
            position,
            position_error,
            0,
            lambda code: choices(code, "left" if position[code] > 0 else "right"),
        ),
    ]
    if 0 < games.tied.sum() < games.weight.sum():
        ties = step(games.tied - games.weight * p.tie, games.weight * p.tie * (1 - p.tie))
        traits.append(Trait("ties", *ties, 0, lambda code: choices(code, "tie")))
    votes = table.votes()
    total = votes.sum(axis=1)
    split = np.where(total > 1, 1 - votes.max(axis=1, initial=0) / np.maximum(total, 1), np.nan)
    return n, traits, (table.items, split)


def _similarity(
    item: IntArray, who: IntArray, alike: Callable[[IntArray, IntArray], FloatArray]
) -> tuple[FloatArray, FloatArray]:
    """Return the mean similarity of rows to others' rows of the item (NaN without any), and to rows of other items."""
    rng, N = np.random.default_rng(0), item.size
    order = np.lexsort((rng.random(N), item))
    size = np.bincount(item)[item[order]]
    start = np.searchsorted(item[order], item[order])
    place = np.arange(N) - start

    def mean(pairs: Iterable[tuple[IntArray, IntArray, Any]]) -> FloatArray:
        """Return the mean similarity (N,) over the good pairs of rows by two annotators."""
        total, times = np.zeros(N), np.zeros(N)
        for row, other, good in pairs:
            good = good & (who[row] != who[other])
            total += np.bincount(row[good], alike(row[good], other[good]), N)
            times += np.bincount(row[good], minlength=N)
        return np.asarray(np.divide(total, times, out=np.full(N, np.nan), where=times > 0))

    shifts = range(1, PARTNERS + 1)  # to the next rows of the item
    near = mean((order, order[start + (place + shift) % size], shift < size) for shift in shifts)
    strangers = (rng.permutation(N) for _ in range(STRANGERS))
    far = mean((np.arange(N), other, item != item[other]) for other in strangers)
    return near, np.nan_to_num(far, nan=float(np.nanmean(far)) if (~np.isnan(far)).any() else 0.0)


def _related(item: IntArray, who: IntArray, A: int, items: Names, alike: Any, marks: Any, words: str) -> Found:
    """Return traits of labels with a similarity; `marks` (N,) counts what a row marks, or is None."""
    near, chance = _similarity(item, who, alike)
    met = ~np.isnan(near)
    labels = np.bincount(who[met], minlength=A)
    relation, error = _means((near - chance)[met], who[met], A)
    mean, _ = _means(near[met], who[met], A)
    usual = np.median(mean[labels >= MIN_LABELS]) if (labels >= MIN_LABELS).any() else np.nan

    def similarity(code: int) -> Fact:
        facts = {"what": words, "similarity": float(mean[code]), "usual": float(usual), "n": int(labels[code])}
        return LowSimilarity, facts

    traits = [Trait("relation", relation, error, -1, similarity)]
    if marks is not None:
        n = np.bincount(item)[item] - 1
        others = np.divide(np.bincount(item, marks)[item] - marks, n, out=np.zeros(item.size), where=n > 0)
        more, more_error = _means((marks - others)[met], who[met], A)
        own, _ = _means(marks[met], who[met], A)

        def marked(code: int) -> Fact:
            facts = {"what": words, "own": float(own[code]), "usual": float(own[code] - more[code])}
            return MarksUnlikeOthers, facts | {"n": int(labels[code])}

        traits.append(Trait("marks", more, more_error, 0, marked))
    away = 1 - _means(near[met], item[met], items.size)[0]
    return labels, traits, (items, away)


def _sets(table: Annotations) -> Found:
    ticked = table.options.selected.astype(np.float64)

    def alike(row: IntArray, other: IntArray) -> FloatArray:
        return _jaccard(ticked[table.label[row]], ticked[table.label[other]])

    marks = ticked.sum(axis=1)[table.label]
    return _related(table.item, table.annotator, table.n_annotators, table.items, alike, marks, "sets")


def _jaccard(one: Any, other: Any) -> FloatArray:
    both = (one * other).sum(axis=1)
    either = one.sum(axis=1) + other.sum(axis=1) - both
    return np.asarray(np.divide(both, either, out=np.ones(both.shape), where=either > 0))


def _objects(table: Annotations) -> Found:
    from dissensus.models.methods.closest import Closest

    distance = Closest().distance

    def alike(row: IntArray, other: IntArray) -> FloatArray:
        return 1 - pair_distances(table.classes, table.label[row], table.label[other], distance)

    return _related(table.item, table.annotator, table.n_annotators, table.items, alike, None, "answers")


def _spans(table: Annotations) -> Found:
    """Compare annotators by documents: one row per document and annotator, with the places that it marks."""
    from scipy.sparse import csr_array

    A, where = table.n_annotators, table.sequences
    readings, reading = np.unique(where.document[table.item] * np.int64(A) + table.annotator, return_inverse=True)
    tags = [str(name) for name in table.classes]
    bio = any(name[:2] in ("B-", "I-") for name in tags)  # else tags such as parts of speech: all are marks
    kinds = [name[2:] if name[:2] in ("B-", "I-") else "" for name in tags] if bio else tags
    types, kind = np.unique(kinds, return_inverse=True)
    inside = np.array([name != "" for name in kinds])[table.label]
    size = (where.end - where.start)[table.item].astype(np.float64)
    feature = table.item.astype(np.int64) * types.size + kind[table.label]
    shape = (readings.size, table.n_items * types.size)
    ones, sizes = (
        csr_array((weight[inside], (reading[inside], feature[inside])), shape=shape)
        for weight in (np.ones(len(table)), size)
    )

    def alike(row: IntArray, other: IntArray) -> FloatArray:
        both = np.asarray(sizes[row].multiply(ones[other]).sum(axis=1)).reshape(-1)
        either = np.asarray(sizes[row].sum(axis=1) + sizes[other].sum(axis=1)).reshape(-1) - both
        return np.asarray(np.divide(both, either, out=np.ones(both.shape), where=either > 0))

    begins = np.array([name[:2] == "B-" for name in tags])[table.label]
    marks = np.bincount(reading, begins, readings.size) if bio else None
    document, who = readings // A, readings % A
    return _related(document, who, A, where.documents, alike, marks, "documents")


FINDERS: dict[str, Callable[[Annotations], Found]] = {
    "numbers": _ratings, "graded": _ratings, "pairs": _pairs, "sets": _sets, "objects": _objects, "spans": _spans,
}  # fmt: skip
