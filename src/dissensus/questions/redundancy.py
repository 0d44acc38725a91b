"""How many labels are enough, and whether more would change anything.

*The curve.* At most r labels of each item are kept, at random, and the model is fitted to them: of the items that have
more, how many get the label of the fit to all (stability); of all, how many are right (accuracy, where gold is known).

*One more label.* Item i is of class c with probability q_i(c); whoever labels it next, annotator j, gives label y to an
item of class c with probability Θ_ij[c, y]. By Bayes' rule

    P(y | i, j)    = Σ_c q_i(c) Θ_ij[c, y]
    q'_i(c | y, j) = q_i(c) Θ_ij[c, y] / P(y | i, j)
    gain_i         = E_j Σ_y P(y | i, j) max_c q'_i(c | y, j) − max_c q_i(c)      ≥ 0
    flips_i        = E_j Σ_y P(y | i, j) [arg max_c q'_i(c | y, j) ≠ arg max_c q_i(c)]

| symbol | name | shape |
|---|---|---|
| q | belief, as if labels were independent | (I, K) |
| Θ | label probabilities of an annotator | (K, K) [true, given], or one for each item where the model has it so |
| gain, flips | `NextLabel.gain`, `NextLabel.flips` | (I,) |

E_j is over the annotators as they labelled the table: at 16 places spread evenly over all labels in the order of their
annotators' reliability. The average annotator does not do: a mixture of good and bad ones is more informative than the
mean of their matrices, which understated the true rise of accuracy by a fifth to a half on simulated crowds.

q is not the tempered posterior (`dissensus.models.tempering`): a crowd that makes the same mistakes goes on making
them. With one label removed from each item of six data sets, 1 % to 13 % of Dawid-Skene's labels changed when it was
added again, where q predicted 0.2 % to 13 %, tempered 10 % to 28 %; accuracy rose by −1 to 5 points, where q predicted
0 to 6, tempered 5 to 11.

Ties are broken by a draw keyed on item and class, the same before and after. With T tied classes before and T' after,
the label stays with probability |T ∩ T'| / |T ∪ T'|, here and in the curve.

Votes are no probabilities of being right; `dissensus.models.votes` has what is used instead.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count as numbers
from typing import Any

import numpy as np

from dissensus.common.arrays import TIE_TOLERANCE, random_ranks_within_groups
from dissensus.common.formatting import Count, Share, format_count
from dissensus.common.notebook import NotebookTable
from dissensus.common.parameters import check_argument
from dissensus.common.types import FloatArray, IntArray, Names
from dissensus.compute.engines.local import Threads, even_ranges, thread_count
from dissensus.compute.kernels import redundancy as kernels
from dissensus.evaluation import Estimate, bootstrap
from dissensus.evaluation.hard import probability_correct, tied_classes
from dissensus.messages import Message
from dissensus.models.base import Aggregator, Likelihoods, check_gold
from dissensus.models.confidence import EffectiveLabels
from dissensus.models.exceptions import EffectiveLabelCount, NoAnnotations
from dissensus.questions import findings
from dissensus.questions.compare import OnFit, estimate_columns, named_model, timed_fit
from dissensus.questions.recommend import ADVICE_BUDGET, Recommendation, recommend
from dissensus.table.annotations import Annotations
from dissensus.table.kinds import CLASS_KINDS, check_kind

STEPS = (1, 1.5, 2, 3, 5, 7)  # levels, times a power of ten
MAX_LEVEL_SHARE = 0.95  # share of the annotations above which a level is the same as all
PLACES = 16  # annotators in the expectation; with 64 the gain differed by less than a tenth
CELLS = 2**22  # numbers in an array of likelihoods at most
MAX_LIKELIHOODS = 2**30  # likelihoods that differ between items; beyond, fewer annotators are used
MIN_RELATIVE = 1e-7  # probability relative to the most probable class below which a class is skipped
ROUNDING = 1e-12  # smaller gains are rounding errors
STABLE = 0.95  # stability that the verdict looks for
MIN_ITEMS = 10  # items below which no share of them is reported
MIN_REHEARSED = 30  # items below which the rehearsal does not test the model
TOO_SURE = 2.0  # ratio of observed to expected changes above which the model is overconfident


@dataclass(frozen=True)
class Level:
    """Results with a given number of labels per item."""

    labels: int  # of an item, at most
    annotations: int  # kept in all
    items: int  # items with more labels; at the last level all
    stability: Estimate  # share of these items that get the label of the fit to all
    accuracy: Estimate | None  # on items with gold
    confidence: float  # mean probability of the most probable class
    seconds: float  # of a fit, on average


@dataclass(frozen=True, eq=False)
class NextLabel:
    """Effect that the model expects of one more label of each item."""

    items: Names = field(repr=False)  # (I,)
    gain: FloatArray = field(repr=False)  # (I,) expected rise of the probability that the label is right
    flips: FloatArray = field(repr=False)  # (I,) probability that the label changes
    expected_right: float  # share of the labels that are right now
    expected_right_after: float  # the same after one more label of every item

    def best(self, n: int) -> list[Any]:
        """Return the n items with the largest gain, the best first."""
        check_argument("n", n, int, low=0, must="must be 0 or more")
        return list(self.items[self._order[:n]].tolist())

    @property
    def curve(self) -> FloatArray:
        """Return the share of all gain if the best 0, 1, … 100 % of the items get a label (101,)."""
        shares = self._shares
        return np.asarray(np.interp(np.linspace(0, self.gain.size, 101), np.arange(shares.size), shares))

    def holding(self, share: float) -> int:
        """Return the smallest number of items that hold this share of the gain."""
        return int(np.searchsorted(self._shares, share * (1 - TIE_TOLERANCE))) if self.gain.any() else 0

    @property
    def _order(self) -> IntArray:
        return np.argsort(-self.gain, kind="stable")

    @property
    def _shares(self) -> FloatArray:
        """Return the share of all gain that the best 0, 1, … items hold (I + 1,)."""
        total = np.concatenate([[0.0], np.cumsum(self.gain[self._order])])
        return total / (total[-1] or 1.0)


@dataclass(frozen=True)
class Rehearsal:
    """Expected against observed effect: one label of each item is removed, then added again."""

    items: int  # with two annotators or more
    flips: float  # mean probability that the label changes, expected before
    changed: Estimate  # share of the labels that changed
    gain: float  # mean expected gain
    risen: Estimate | None  # observed rise of accuracy, with gold

    @property
    def too_sure(self) -> bool:
        """Return whether observed changes significantly exceed expected ones, on `MIN_REHEARSED` items or more."""
        return self.items >= MIN_REHEARSED and self.changed.low > TOO_SURE * self.flips


@dataclass(frozen=True, eq=False, repr=False)
class Redundancy(NotebookTable):
    """Stability by the number of labels per item, and the effect of one more."""

    levels: tuple[Level, ...]  # the last is all labels
    next_label: NextLabel
    rehearsal: Rehearsal | None  # None where no item has two annotators
    sampled_items: int | None  # items of the curve and the rehearsal; None: all
    accuracy: Estimate | None  # of the fit to all annotations, over all items with gold
    expected_accuracy: float | None  # accuracy that this model expects
    labels_per_item: float  # mean over items with labels
    n_classes: int
    model: Aggregator = field(repr=False)  # the fit to all annotations
    advice: Recommendation  # labels to buy next, `ADVICE_BUDGET` at most
    worth: EffectiveLabels | None = None  # effective number of labels per item; None: labels count as independent

    def __repr__(self) -> str:
        return f"Redundancy at {format_count(len(self), 'level')}: {self.verdict()}"

    def __iter__(self) -> Iterator[Level]:
        return iter(self.levels)

    def __len__(self) -> int:
        return len(self.levels)

    def verdict(self) -> str:
        """Return in a few sentences what more labels would change, and where to put them."""
        return " ".join(map(str, self.findings()))

    def findings(self) -> Iterator[Message]:
        """Yield what more labels would change, and where to put them."""
        if self.n_classes == 1:
            yield findings.OneClass()
            return
        if self.rehearsal is None:
            yield findings.NoSecondAnnotator(budget=ADVICE_BUDGET if len(self.advice) else None)
            return
        if (level := self._stable_level()) is not None:
            yield level
        after, rehearsal = self.next_label, self.rehearsal
        tested = rehearsal.items >= MIN_ITEMS
        yield findings.EffectOfNextLabel(
            flips=Share(after.flips.mean()), gain=Share(after.expected_right_after - after.expected_right),
            expected=Share(rehearsal.flips) if tested else None,
            observed=Share(rehearsal.changed.value) if tested else None,
        )  # fmt: skip
        if rehearsal.too_sure:
            yield findings.LessStableThanExpected()
        if self.accuracy is not None and self.expected_accuracy is not None:
            value, *ends = (Share(getattr(self.accuracy, one)) for one in ("value", "low", "high"))
            low, high = ends if np.isfinite(self.accuracy.low) else (None, None)  # without resamples there is none
            yield findings.AccuracyOnGold(value=value, low=low, high=high, expected=Share(self.expected_accuracy))
        if self.worth is not None:
            facts = {name: getattr(self.worth, name) for name in ("labels", "value", "low", "high")}
            yield EffectiveLabelCount(**facts)
        if self.sampled_items is not None:
            yield findings.MeasuredOnSample(items=self.sampled_items)
        yield self.advice.next_step()

    def _stable_level(self) -> Message | None:
        """Return the first stable level, else the last one below all labels."""
        *fewer, all_labels = self.levels
        if not fewer:
            return None
        level = next((one for one in fewer if one.stability.value >= STABLE), fewer[-1])
        if level.items < MIN_ITEMS:
            return None
        return findings.StabilityWithFewerLabels(
            labels=Count(level.labels), share=Share(level.stability.value), stable=level.stability.value >= STABLE,
            items=None if level.items == all_labels.items else Count(level.items),
            equal_labels=all_labels.labels if self.labels_per_item == all_labels.labels else None,
        )  # fmt: skip

    def rows(self) -> list[dict[str, Any]]:
        """Return one row per level, as plain values."""
        return [
            {"labels": one.labels, "annotations": one.annotations, "items": one.items}
            | estimate_columns("stability", one.stability)
            | estimate_columns("accuracy", one.accuracy)
            | {"confidence": one.confidence, "seconds": one.seconds}
            for one in self
        ]


def redundancy(
    table: Annotations,
    model: str | Aggregator,
    *,
    gold: IntArray | None = None,
    levels: Sequence[int] | None = None,
    seeds: int = 3,
    limit: int = 1_000_000,
    resamples: int = 1000,
    seed: int = 0,
    on_fit: OnFit | None = None,
) -> Redundancy:
    """Measure how labels and accuracy depend on the number of labels per item, and what one more would change.

    Parameters
    ----------
    model : method name, or a model
        Fresh copies of it are fitted.
    gold : (I,) int, optional
        Known classes, −1 where unknown: accuracy is reported. No fit sees it.
    levels : list of int, optional
        Labels per item, at most. Default: 1, 2, 3, 5, 7, 10, 15, 20 … as long as at least a twentieth of the labels is
        removed. All labels are always the last level.
    seeds : int
        Draws of the labels that are kept at each level.
    limit : int
        Number of annotations above which the curve uses a random set of items, with all their labels.
    resamples, seed
        Of the bootstrap over items; the seed also draws labels and items.
    on_fit : callable, optional
        Called before every fit with (method, fits done, fits in all).

    >>> from dissensus.table.simulate import simulate
    >>> found = redundancy(simulate(300, 12, 3, redundancy=6, seed=1).annotations, "dawid-skene")
    >>> [level.labels for level in found], len(found.next_label.best(20))
    ([1, 2, 3, 5, 6], 20)
    >>> print(found.verdict().partition(". ")[0], found.to_frame().shape)
    With 5 labels per item, only 94.2 % of the items get the same class as with all 6 (5, 8)
    >>> next(found.findings()).labels
    5
    """
    check_kind(table.kind, CLASS_KINDS, "redundancy")
    gold = check_gold(gold, table)
    for name, value, low in (("seeds", seeds, 1), ("limit", limit, 1), ("seed", seed, 0)):
        check_argument(name, value, int, low=low)
    if table.n_annotations == 0:
        raise NoAnnotations
    method, blank = named_model(model)
    part, part_gold, sampled = _sample(table, gold, limit, seed)
    counts = np.diff(part.item_ptr)
    steps = _levels(counts, levels)
    many = np.flatnonzero(part.annotators_per_item > 1)  # a label by the same person is no check
    total, fits = 1 + (part is not table) + (len(steps) + (many.size > 0)) * seeds, numbers()

    def estimate(values: FloatArray, statistic: Any = None) -> Any:
        """Return the mean of values (n,) with its interval, or None without values."""
        return bootstrap(values, statistic, resamples=resamples, seed=seed) if values.size else None

    def fit(some: Annotations) -> tuple[Aggregator, float]:
        if on_fit is not None:
            on_fit(method, next(fits), total)
        return timed_fit(blank, some)

    model_all, seconds = fit(table)
    whole, seconds = (model_all, seconds) if part is table else fit(part)
    draws: dict[int, list[tuple[Any, ...]]] = {step: [] for step in steps}
    rehearsals = []
    for draw in range(seeds):
        child = int(np.random.SeedSequence([seed, draw]).generate_state(1)[0])
        rank = random_ranks_within_groups(
            part.item, np.random.default_rng(child)
        )  # rank < r is part.subsample(r, child)
        for step in steps:  # the fewer labels are always among the more
            draws[step].append(_drawn(*fit(part.select(rows=rank < step)), whole, part_gold))
        if many.size:
            fewer, _ = fit(part.select(rows=rank < np.maximum(counts - 1, 1)[part.item]))
            expected = fewer.likelihoods()
            gain, flips = _next_label(expected, *_annotators(fewer, expected))
            before, after = fewer.posterior_[many], whole.posterior_[many]
            known = None if part_gold is None else part_gold[many]
            rise = _hits(known, after) - _hits(known, before)
            rehearsals.append((flips[many].mean(), gain[many].mean(), 1 - _same(before, after), rise))
    draws[int(counts.max())] = [_drawn(whole, seconds, whole, part_gold)]

    expected = model_all.likelihoods()
    gain, flips = _next_label(expected, *_annotators(model_all, expected))
    sure = _sure(model_all, expected)
    rehearsal = None
    if many.size:
        expected_flips, expected_gain, changed, risen = _averages(rehearsals)
        rehearsal = Rehearsal(
            many.size,
            float(expected_flips),
            estimate(changed),
            float(expected_gain),
            estimate(risen, lambda s: s[:, 0] / risen.size),  # a difference, no share
        )
    curve = []
    for labels, drawn in draws.items():
        same, right, confidence, seconds = _averages(drawn)
        more = counts > labels if labels < counts.max() else counts > 0  # the rest keep all they have
        kept, n = int(np.minimum(counts, labels).sum()), int(more.sum())
        stability = estimate(same[more]) if labels < counts.max() else Estimate(1.0, 1.0, 1.0)  # the same fit
        accuracy = estimate(right)
        curve.append(Level(labels, kept, n, stability, accuracy, float(confidence), float(seconds)))
    return Redundancy(
        tuple(curve),
        NextLabel(table.items, gain, flips, float(sure.mean()), float(sure.mean() + gain.mean())),
        rehearsal,
        part.n_items if sampled else None,
        estimate(_hits(gold, model_all.posterior_)),
        None if gold is None else float(sure[gold >= 0].mean()),
        len(part) / part.n_items,
        table.n_classes,
        model_all,
        recommend(model_all, table, budget=ADVICE_BUDGET),
        model_all.mean_effective_labels(),
    )


def _sample(
    table: Annotations, gold: IntArray | None, limit: int, seed: int
) -> tuple[Annotations, IntArray | None, bool]:
    """Return the items with labels, or random ones with `limit` labels in all, and whether any were left out."""
    counts = np.diff(table.item_ptr)
    order = np.flatnonzero(counts)
    sampled = len(table) > limit
    if sampled:
        order = np.random.default_rng(np.random.SeedSequence([seed, 0], spawn_key=(1,))).permutation(order)
        order = order[: max(1, int(np.searchsorted(np.cumsum(counts[order]), limit, side="right")))]
    if order.size == table.n_items:
        return table, gold, False
    keep = np.isin(np.arange(table.n_items), order)
    return table.select(items=keep), None if gold is None else gold[keep], sampled


def _levels(counts: IntArray, levels: Sequence[int] | None) -> list[int]:
    """Return the levels to try, below the largest number of labels of an item."""
    if levels is not None:
        for one in levels:
            check_argument("levels", one, int, low=1, must="must be whole numbers, at least 1")
        return [int(one) for one in sorted(set(levels)) if one < counts.max()]
    steps = [int(step * 10**power) for power in range(9) for step in STEPS if power or step != 1.5]
    return [one for one in steps if np.minimum(counts, one).sum() <= MAX_LEVEL_SHARE * counts.sum()]


def _drawn(model: Aggregator, seconds: float, whole: Aggregator, gold: IntArray | None) -> tuple[Any, ...]:
    """Return results of a fit: same label as by all (I,), right (known items,), confidence, seconds."""
    confidence = _sure(model, model.likelihoods()).mean()
    return _same(model.posterior_, whole.posterior_), _hits(gold, model.posterior_), confidence, seconds


def _sure(model: Aggregator, expected: Likelihoods) -> FloatArray:
    """Return P(label is right) (I,), by the tempered posterior if any: shares of votes are no probabilities."""
    return np.asarray((model.posterior_ if model.dependence_ else expected.belief).max(axis=1))


def _averages(draws: list[tuple[Any, ...]]) -> list[Any]:
    return [np.mean(one, axis=0) for one in zip(*draws, strict=True)]


def _hits(gold: IntArray | None, posterior: FloatArray) -> FloatArray:
    """Return the chance that the label is right (known items,); empty without known classes."""
    return np.empty(0) if gold is None or not (gold >= 0).any() else probability_correct(gold, posterior)


def _same(one: FloatArray, other: FloatArray) -> FloatArray:
    """Return the chance that two posteriors choose the same class (I,): |T ∩ T'| / |T ∪ T'| of the tied classes."""
    first, second = tied_classes(one), tied_classes(other)
    return np.asarray((first & second).sum(axis=1) / (first | second).sum(axis=1))


# One more label -------------------------------------------------------------------------------------------------------


def _next_label(expected: Likelihoods, annotator: IntArray, share: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return gain (I,) and flips (I,), if these annotators label next, each with a share of the labels."""
    belief = np.ascontiguousarray(expected.belief, np.float64)
    I, K = belief.shape
    gain, flips = np.zeros(I), np.zeros(I)
    size = max(1, I if expected.same_for_all_items else CELLS // K**2)

    def add(_: int, start: int, end: int) -> None:
        for first in range(start, end, size):
            some = slice(first, min(first + size, end))
            for one, often in zip(annotator, share, strict=True):
                theta = expected.matrices(np.arange(some.start, some.stop), np.array([one]))[:, 0]
                kernels.add_next_label(belief[some], theta, often, TIE_TOLERANCE, MIN_RELATIVE, gain[some], flips[some])

    with Threads(thread_count(None, I)) as pool:
        pool.map(add, even_ranges(I, pool.threads))
    gain -= belief.max(axis=1)
    return np.where(gain > ROUNDING, gain, 0), np.minimum(flips, 1)


def _annotators(model: Aggregator, expected: Likelihoods) -> tuple[IntArray, FloatArray]:
    """Return the annotators who may label next, all or some spread evenly over the labels, and their shares."""
    I, K = expected.belief.shape
    places = PLACES if expected.same_for_all_items else int(np.clip(MAX_LIKELIHOODS // (I * K * K), 1, PLACES))
    weight = model.total_
    # the order does not depend on names or codes, unless annotators are equal in all three
    order = np.lexsort((model.n_annotations_, weight, model.reliability_))
    order = order[weight[order] > 0]
    if order.size == 0:
        return np.array([-1]), np.ones(1)
    total = np.cumsum(weight[order])
    if order.size <= places:
        return order, weight[order] / total[-1]
    at = np.searchsorted(total, (np.arange(places) + 0.5) / places * total[-1])
    return order[at], np.full(places, 1 / places)
