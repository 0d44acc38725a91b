"""Estimate how many labels per item are enough, and whether more labels would change the result.

*Fewer labels.* At most r random labels of each item are kept, and the model is fitted to them. Among the items with
more than r labels, stability is the share that get the same class as with all labels. If gold is given, accuracy is the
share of correct items.

*One more label.* Item i has class c with probability q_i(c). If annotator j labels it next, the label is y with
probability Θ_ij[c, y] for class c. By Bayes' rule,

    P(y | i, j)    = Σ_c q_i(c) Θ_ij[c, y]
    q'_i(c | y, j) = q_i(c) Θ_ij[c, y] / P(y | i, j)
    gain_i         = E_j Σ_y P(y | i, j) max_c q'_i(c | y, j) − max_c q_i(c)      ≥ 0
    flips_i        = E_j Σ_y P(y | i, j) [arg max_c q'_i(c | y, j) ≠ arg max_c q_i(c)]

| symbol | name | shape |
|---|---|---|
| q | class probabilities, computed as if labels were independent | (I, K) |
| Θ | label probabilities of an annotator | (K, K) [true, given], or one matrix per item for some models |
| gain, flips | `NextLabel.gain`, `NextLabel.flips` | (I,) |

E_j is the mean over annotators, weighted by their number of labels. It is computed from 16 annotators, whose labels are
at evenly spaced quantiles if all labels are sorted by the reliability of their annotators. A single average annotator
would not be enough, because a mixture of good and bad annotators is more informative than the mean of their matrices.
On simulated crowds, the mean matrix understated the true increase in accuracy by a fifth to a half.

q is not the tempered posterior (`dissensus.models.tempering`), because the next labels are likely to repeat the
mistakes of the crowd. In a test on six data sets, one label of each item was removed and added again. Between 1 % and
13 % of the labels by Dawid-Skene changed; q predicted 0.2 % to 13 %, and the tempered posterior 10 % to 28 %. Accuracy
increased by −1 to 5 percentage points; q predicted 0 to 6, and the tempered posterior 5 to 11.

Ties are broken by a random draw that depends only on item and class, so it is the same before and after. If T and T'
are the sets of tied classes before and after, the label stays the same with probability |T ∩ T'| / |T ∪ T'|. This also
applies to stability.

Shares of votes are not probabilities of being correct; `dissensus.models.votes` describes the alternative.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
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
from dissensus.evaluation.hard import find_tied_classes, probability_correct
from dissensus.messages import Message
from dissensus.models.base import Aggregator, Likelihoods, check_gold
from dissensus.models.confidence import EffectiveLabels
from dissensus.models.exceptions import EffectiveLabelCount, NoAnnotations
from dissensus.questions import findings
from dissensus.questions.compare import FitCallback, fit_and_time, make_estimate_columns, resolve_method
from dissensus.questions.recommend import ADVICE_BUDGET, Recommendation, recommend
from dissensus.table.annotations import Annotations
from dissensus.table.kinds import CLASS_KINDS, check_kind

LEVEL_STEPS = (1, 1.5, 2, 3, 5, 7)  # levels are these numbers times a power of ten
MAX_LEVEL_SHARE = 0.95  # maximum share of the annotations that a level may keep; levels with more equal the last level
N_ANNOTATOR_QUANTILES = 16  # number of annotators in the expectation; with 64, the gain differed by less than a tenth
MAX_LIKELIHOODS_PER_CHUNK = 2**22  # maximum number of likelihoods in an array; limits memory
# Maximum number of likelihoods if they differ between items; fewer annotators are used to stay below it
MAX_LIKELIHOODS = 2**30
MIN_RELATIVE_PROBABILITY = 1e-7  # classes with a smaller probability relative to the most probable class are skipped
GAIN_TOLERANCE = 1e-12  # smaller gains are treated as rounding errors
STABLE_SHARE = 0.95  # minimum stability for which fewer labels are reported as enough
MIN_ITEMS_FOR_SHARE = 10  # minimum number of items for reporting a share of them
MIN_REHEARSED_ITEMS = 30  # minimum number of items in a rehearsal for testing the model
MAX_CHANGE_RATIO = 2.0  # maximum ratio of observed to expected changes for a model that is not overconfident


@dataclass(frozen=True)
class Level:
    """The results with a limited number of labels per item."""

    labels: int  # maximum number of labels of an item
    annotations: int  # total number of kept annotations
    items: int  # number of items with more labels than this; all items for the last level
    stability: Estimate  # share of these items that get the same class as with all labels
    accuracy: Estimate | None  # share of the gold items that are correct
    confidence: float  # mean probability of the most probable class
    seconds: float  # mean duration of a fit in seconds


@dataclass(frozen=True, eq=False)
class NextLabel:
    """The expected effect of one more label for each item, according to the model."""

    items: Names = field(repr=False)  # (I,)
    gain: FloatArray = field(repr=False)  # (I,) expected increase in the probability that the label is correct
    flips: FloatArray = field(repr=False)  # (I,) probability that the label changes
    expected_right: float  # expected share of the labels that are correct now
    expected_right_after: float  # expected share of the labels that are correct after one more label of every item

    def best(self, n: int) -> list[Any]:
        """Return the n items with the largest gain, in descending order of the gain."""
        check_argument("n", n, int, low=0, must="must be 0 or more")
        return list(self.items[self._gain_order[:n]].tolist())

    @property
    def gain_curve(self) -> FloatArray:
        """Return the share of the total gain (101,) if the best 0, 1, …, 100 % of the items get a label."""
        shares = self._cumulative_shares
        return np.asarray(np.interp(np.linspace(0, self.gain.size, 101), np.arange(shares.size), shares))

    def count_items_with_share(self, share: float) -> int:
        """Return the smallest number of items that together have this share of the total gain."""
        if not self.gain.any():
            return 0
        return int(np.searchsorted(self._cumulative_shares, share * (1 - TIE_TOLERANCE)))

    @property
    def _gain_order(self) -> IntArray:
        return np.argsort(-self.gain, kind="stable")

    @property
    def _cumulative_shares(self) -> FloatArray:
        """Return the share of the total gain of the best 0, 1, … items (I + 1,)."""
        total = np.concatenate([[0.0], np.cumsum(self.gain[self._gain_order])])
        return total / (total[-1] or 1.0)


@dataclass(frozen=True)
class Rehearsal:
    """The expected and the observed effect of one label, which is removed from each item and added again."""

    items: int  # number of items with two or more annotators
    flips: float  # mean probability that the label changes, predicted before the label is added
    changed: Estimate  # share of the labels that changed
    gain: float  # mean expected gain
    accuracy_gain: Estimate | None  # observed increase in accuracy; None without gold

    @property
    def is_overconfident(self) -> bool:
        """Return whether observed changes are significantly more frequent than expected, on enough items."""
        return self.items >= MIN_REHEARSED_ITEMS and self.changed.low > MAX_CHANGE_RATIO * self.flips


@dataclass(frozen=True, eq=False, repr=False)
class Redundancy(NotebookTable):
    """The stability for each number of labels per item, and the effect of one more label."""

    levels: tuple[Level, ...]  # the last level has all labels
    next_label: NextLabel
    rehearsal: Rehearsal | None  # None unless an item has two annotators
    sampled_items: int | None  # number of items used for the levels and the rehearsal; None for all items
    accuracy: Estimate | None  # accuracy of the fit to all annotations on all gold items
    expected_accuracy: float | None  # accuracy that this model expects
    labels_per_item: float  # mean number of labels of items with labels
    n_classes: int
    model: Aggregator = field(repr=False)  # model fitted to all annotations
    advice: Recommendation  # the labels to collect next with a budget of `ADVICE_BUDGET`
    # Effective labels per item; None if labels are treated as independent
    effective_labels: EffectiveLabels | None = None

    def __repr__(self) -> str:
        return f"Redundancy at {format_count(len(self), 'level')}: {self.verdict()}"

    def __iter__(self) -> Iterator[Level]:
        return iter(self.levels)

    def __len__(self) -> int:
        return len(self.levels)

    def verdict(self) -> str:
        """Describe in a few sentences what more labels would change and where to collect them."""
        return " ".join(map(str, self.findings()))

    def findings(self) -> Iterator[Message]:
        """Yield messages about what more labels would change and where to collect them."""
        if self.n_classes == 1:
            yield findings.OneClass()
            return
        if self.rehearsal is None:
            yield findings.NoSecondAnnotator(budget=ADVICE_BUDGET if len(self.advice) else None)
            return
        if (level := self._stable_level()) is not None:
            yield level
        after, rehearsal = self.next_label, self.rehearsal
        tested = rehearsal.items >= MIN_ITEMS_FOR_SHARE
        yield findings.EffectOfNextLabel(
            flips=Share(after.flips.mean()), gain=Share(after.expected_right_after - after.expected_right),
            expected=Share(rehearsal.flips) if tested else None,
            observed=Share(rehearsal.changed.value) if tested else None,
        )  # fmt: skip
        if rehearsal.is_overconfident:
            yield findings.LessStableThanExpected()
        if self.accuracy is not None and self.expected_accuracy is not None:
            value, *ends = (Share(getattr(self.accuracy, name)) for name in ("value", "low", "high"))
            # The interval is NaN without resamples
            low, high = ends if np.isfinite(self.accuracy.low) else (None, None)
            yield findings.AccuracyOnGold(value=value, low=low, high=high, expected=Share(self.expected_accuracy))
        if self.effective_labels is not None:
            facts = {name: getattr(self.effective_labels, name) for name in ("labels", "value", "low", "high")}
            yield EffectiveLabelCount(**facts)
        if self.sampled_items is not None:
            yield findings.MeasuredOnSample(items=self.sampled_items)
        yield self.advice.next_step()

    def _stable_level(self) -> Message | None:
        """Return a message about the first stable level or, if there is none, the last level without all labels."""
        *fewer, all_labels = self.levels
        if not fewer:
            return None
        level = next((level for level in fewer if level.stability.value >= STABLE_SHARE), fewer[-1])
        if level.items < MIN_ITEMS_FOR_SHARE:
            return None
        return findings.StabilityWithFewerLabels(
            labels=Count(level.labels), share=Share(level.stability.value),
                        stable=level.stability.value >= STABLE_SHARE,
            items=None if level.items == all_labels.items else Count(level.items),
            equal_labels=all_labels.labels if self.labels_per_item == all_labels.labels else None,
        )  # fmt: skip

    def rows(self) -> list[dict[str, Any]]:
        """Return one row of plain values per level."""
        return [
            {"labels": level.labels, "annotations": level.annotations, "items": level.items}
            | make_estimate_columns("stability", level.stability)
            | make_estimate_columns("accuracy", level.accuracy)
            | {"confidence": level.confidence, "seconds": level.seconds}
            for level in self
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
    on_fit: FitCallback | None = None,
) -> Redundancy:
    """Measure how the result depends on the number of labels per item, and estimate the effect of one more label.

    Parameters
    ----------
    model : method name, or a model
        The model of which unfitted copies are fitted.
    gold : (I,) int, optional
        Gold classes, −1 where unknown. They are only used to report accuracy.
    levels : list of int, optional
        Maximum number of labels per item at each level. By default 1, 2, 3, 5, 7, 10, 15, 20 … up to all labels.
    seeds : int
        Number of random draws of the labels that are kept at each level.
    limit : int
        Maximum number of annotations. For larger tables, the levels use a random set of items with all their labels.
    resamples, seed : int
        Number of resamples of the bootstrap over items, and seed, which also determines the random labels and items.
    on_fit : callable, optional
        Function that is called before every fit with the method, the number of fits done and the total number of fits.

    Returns
    -------
    Redundancy
        The levels, the effect of the next label and a recommendation.

    >>> from dissensus.table.simulate import simulate
    >>> found = redundancy(simulate(300, 12, 3, redundancy=6, seed=1).annotations, "dawid-skene")
    >>> [level.labels for level in found], len(found.next_label.best(20))
    ([1, 2, 3, 5, 6], 20)
    >>> print(found.verdict().partition(". ")[0], found.to_frame().shape)
    With 5 labels per item, only 94.2 % of the items get the same class as with all 6 (5, 8)
    """
    check_kind(table.kind, CLASS_KINDS, "redundancy")
    gold = check_gold(gold, table)
    for name, value, low in (("seeds", seeds, 1), ("limit", limit, 1), ("seed", seed, 0)):
        check_argument(name, value, int, low=low)
    if table.n_annotations == 0:
        raise NoAnnotations
    sample, sample_gold, sampled = _sample_items(table, gold, limit, seed)
    counts = np.diff(sample.item_ptr)
    steps = _choose_levels(counts, levels)
    # A label by the same annotator does not confirm another one
    rehearsed = np.flatnonzero(sample.annotators_per_item > 1)
    n_fits = 1 + (sample is not table) + (len(steps) + (rehearsed.size > 0)) * seeds
    experiment = _SubsetExperiment(sample, sample_gold, rehearsed, _Fitter(model, n_fits, on_fit))
    model_all, seconds = experiment.fitter.fit(table)
    experiment.reference, seconds = (model_all, seconds) if sample is table else experiment.fitter.fit(sample)
    for draw in range(seeds):
        experiment.draw_labels(steps, seed, draw)

    def estimate(values: FloatArray, statistic: Any = None) -> Any:
        """Return the mean of the values (n,) with its interval, or None without values."""
        return bootstrap(values, statistic, resamples=resamples, seed=seed) if values.size else None

    p_correct = _probability_correct(model_all)
    gain, flips = _compute_next_label_effect(model_all)
    return Redundancy(
        experiment.summarise_levels(seconds, estimate),
        NextLabel(table.items, gain, flips, float(p_correct.mean()), float(p_correct.mean() + gain.mean())),
        experiment.summarise_rehearsals(estimate),
        sample.n_items if sampled else None,
        estimate(_probability_of_gold(gold, model_all.posterior_)),
        None if gold is None else float(p_correct[gold >= 0].mean()),
        len(sample) / sample.n_items,
        table.n_classes,
        model_all,
        recommend(model_all, table, budget=ADVICE_BUDGET),
        model_all.mean_effective_labels(),
    )


# Fewer labels ---------------------------------------------------------------------------------------------------------


class _Fitter:
    """Fits copies of a model, and reports the progress before every fit."""

    def __init__(self, model: str | Aggregator, n_fits: int, on_fit: FitCallback | None):
        self.method, self.unfitted = resolve_method(model)
        self.n_fits, self.on_fit, self.done = n_fits, on_fit, 0

    def fit(self, table: Annotations) -> tuple[Aggregator, float]:
        """Return a fitted copy of the model and the duration of the fit in seconds."""
        if self.on_fit is not None:
            self.on_fit(self.method, self.done, self.n_fits)
        self.done += 1
        return fit_and_time(self.unfitted, table)


class _SubsetExperiment:
    """Fits to subsets of the labels, compared with the fit to all labels."""

    reference: Aggregator  # the fit to all labels of the sample

    def __init__(self, sample: Annotations, gold: IntArray | None, rehearsed: IntArray, fitter: _Fitter):
        self.sample, self.gold, self.fitter = sample, gold, fitter
        self.rehearsed = rehearsed  # items whose labels are removed and added again
        self.counts = np.diff(sample.item_ptr)
        self.results: dict[int, list[tuple[Any, ...]]] = {}  # maps each level to one result per draw
        self.rehearsals: list[tuple[Any, ...]] = []

    def draw_labels(self, steps: list[int], seed: int, draw: int) -> None:
        """Fit the model to random labels at every level, and remove one label per item for the rehearsal."""
        sample = self.sample
        child = int(np.random.SeedSequence([seed, draw]).generate_state(1)[0])
        # the labels with rank < r equal sample.subsample(r, child), so the labels of each level include those of lower
        # ones
        rank = random_ranks_within_groups(sample.item, np.random.default_rng(child))
        for step in steps:
            fitted, seconds = self.fitter.fit(sample.select(rows=rank < step))
            self.results.setdefault(step, []).append(self._compare_with_reference(fitted, seconds))
        if not self.rehearsed.size:
            return
        fewer, _ = self.fitter.fit(sample.select(rows=rank < np.maximum(self.counts - 1, 1)[sample.item]))
        gain, flips = _compute_next_label_effect(fewer)
        some = self.rehearsed
        before, after = fewer.posterior_[some], self.reference.posterior_[some]
        gold = None if self.gold is None else self.gold[some]
        rise = _probability_of_gold(gold, after) - _probability_of_gold(gold, before)
        self.rehearsals.append(
            (flips[some].mean(), gain[some].mean(), 1 - _probability_of_same_class(before, after), rise)
        )

    def _compare_with_reference(self, model: Aggregator, seconds: float) -> tuple[Any, ...]:
        """Return P(same class as with all labels) (I,), P(correct) (gold items,), mean confidence and seconds."""
        same = _probability_of_same_class(model.posterior_, self.reference.posterior_)
        return same, _probability_of_gold(self.gold, model.posterior_), _probability_correct(model).mean(), seconds

    def summarise_levels(self, seconds: float, estimate: Callable[..., Any]) -> tuple[Level, ...]:
        """Return the levels; `seconds` is the duration of the fit to all labels."""
        most = int(self.counts.max())
        self.results[most] = [self._compare_with_reference(self.reference, seconds)]
        levels = []
        for labels, results in self.results.items():
            same, correct, confidence, duration = _mean_results(results)
            is_last = labels == most
            more = self.counts > 0 if is_last else self.counts > labels  # all other items keep all their labels
            kept = int(np.minimum(self.counts, labels).sum())
            stability = Estimate(1.0, 1.0, 1.0) if is_last else estimate(same[more])
            accuracy = estimate(correct)
            levels.append(Level(labels, kept, int(more.sum()), stability, accuracy, float(confidence), float(duration)))
        return tuple(levels)

    def summarise_rehearsals(self, estimate: Callable[..., Any]) -> Rehearsal | None:
        """Return the mean of the rehearsals, or None without rehearsals."""
        if not self.rehearsals:
            return None
        flips, gain, changed, rise = _mean_results(self.rehearsals)
        # Intervals of shares do not apply to a difference
        rise_estimate = estimate(rise, lambda s: s[:, 0] / rise.size)
        return Rehearsal(self.rehearsed.size, float(flips), estimate(changed), float(gain), rise_estimate)


def _sample_items(
    table: Annotations, gold: IntArray | None, limit: int, seed: int
) -> tuple[Annotations, IntArray | None, bool]:
    """Return the items with labels, or random items with `limit` labels in total, and whether any were excluded."""
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


def _choose_levels(counts: IntArray, levels: Sequence[int] | None) -> list[int]:
    """Return the levels that are below the maximum number of labels of an item."""
    if levels is not None:
        for level in levels:
            check_argument("levels", level, int, low=1, must="must be whole numbers, at least 1")
        return [int(level) for level in sorted(set(levels)) if level < counts.max()]
    steps = [int(step * 10**power) for power in range(9) for step in LEVEL_STEPS if power or step != 1.5]
    return [step for step in steps if np.minimum(counts, step).sum() <= MAX_LEVEL_SHARE * counts.sum()]


def _probability_correct(model: Aggregator) -> FloatArray:
    """Return P(label is correct) (I,), using the tempered posterior if there is one."""
    belief = model.posterior_ if model.dependence_ else model.likelihoods().belief
    return np.asarray(belief.max(axis=1))


def _mean_results(results: list[tuple[Any, ...]]) -> list[Any]:
    return [np.mean(values, axis=0) for values in zip(*results, strict=True)]


def _probability_of_gold(gold: IntArray | None, posterior: FloatArray) -> FloatArray:
    """Return the probability that the label is correct (gold items,); empty without gold."""
    return np.empty(0) if gold is None or not (gold >= 0).any() else probability_correct(gold, posterior)


def _probability_of_same_class(first: FloatArray, second: FloatArray) -> FloatArray:
    """Return the probability that two posteriors choose the same class (I,), |T ∩ T'| / |T ∪ T'|."""
    a, b = find_tied_classes(first), find_tied_classes(second)
    return np.asarray((a & b).sum(axis=1) / (a | b).sum(axis=1))


# One more label -------------------------------------------------------------------------------------------------------


def _compute_next_label_effect(model: Aggregator) -> tuple[FloatArray, FloatArray]:
    """Return the gain (I,) and the flips (I,) of one more label by the annotators of the table."""
    expected = model.likelihoods()
    return _compute_annotator_effect(expected, *_choose_annotators(model, expected))


def _compute_annotator_effect(
    expected: Likelihoods, annotators: IntArray, shares: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return the gain (I,) and the flips (I,) if these annotators label next, weighted by `shares`."""
    belief = np.ascontiguousarray(expected.belief, np.float64)
    I, K = belief.shape
    gain, flips = np.zeros(I), np.zeros(I)
    size = max(1, I if expected.same_for_all_items else MAX_LIKELIHOODS_PER_CHUNK // K**2)

    def add_items(_: int, start: int, end: int) -> None:
        for first in range(start, end, size):
            chunk = slice(first, min(first + size, end))
            for annotator, share in zip(annotators, shares, strict=True):
                theta = expected.matrices(np.arange(chunk.start, chunk.stop), np.array([annotator]))[:, 0]
                kernels.add_next_label(
                    belief[chunk], theta, share, TIE_TOLERANCE, MIN_RELATIVE_PROBABILITY, gain[chunk], flips[chunk]
                )

    with Threads(thread_count(None, I)) as pool:
        pool.map(add_items, even_ranges(I, pool.threads))
    gain -= belief.max(axis=1)
    return np.where(gain > GAIN_TOLERANCE, gain, 0), np.minimum(flips, 1)


def _choose_annotators(model: Aggregator, expected: Likelihoods) -> tuple[IntArray, FloatArray]:
    """Return the annotators who may label next, and their shares of the labels.

    If there are many annotators, some of them are chosen at evenly spaced quantiles of the labels.
    """
    I, K = expected.belief.shape
    n = (
        N_ANNOTATOR_QUANTILES
        if expected.same_for_all_items
        else int(np.clip(MAX_LIKELIHOODS // (I * K * K), 1, N_ANNOTATOR_QUANTILES))
    )
    weight = model.total_
    # the order depends on codes only if annotators are equal in all three keys
    order = np.lexsort((model.n_annotations_, weight, model.reliability_))
    order = order[weight[order] > 0]
    if order.size == 0:
        return np.array([-1]), np.ones(1)
    total = np.cumsum(weight[order])
    if order.size <= n:
        return order, weight[order] / total[-1]
    quantile = np.searchsorted(total, (np.arange(n) + 0.5) / n * total[-1])
    return order[quantile], np.full(n, 1 / n)
