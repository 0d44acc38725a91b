"""Correct the answers of a panel with a few gold labels.

The corrected results are rates of classes, mean scores, differences between systems, labels of items, and qualities of
judges. Gold items must be drawn at random from the items, uniformly or with given probabilities; then the corrected
rates are valid for judges of any quality (`evaluation.ppi`). If no probabilities are given, a test compares the judges'
answers on gold items with those on the other items.

The posterior of a class predicts its rate. For a panel, the posterior uses gold (`models.gold_weights`) and is
cross-fitted: a gold item is predicted by a fit without its gold class, and every other item by the mean of these fits
(Zrnic & Candès 2024). For a crowd of many annotators, the rates are predicted by the posterior without gold, and the
posterior of the items uses ρ and class shifts that are estimated from gold by cross-fitting (`models.tempering`).

Gold scores are predicted by ridge regression on the judges' scores, cross-fitted.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any

import numpy as np

from dissensus.common.arrays import fill_masked
from dissensus.common.frames import columns_to_frame
from dissensus.common.notebook import NotebookTable
from dissensus.common.parameters import check_argument
from dissensus.common.registry import DEFAULT_METHOD
from dissensus.common.types import FloatArray, IntArray, Names
from dissensus.evaluation import Estimate
from dissensus.evaluation.hard import find_tied_classes
from dissensus.evaluation.intervals import wilson_interval
from dissensus.evaluation.ppi import (
    MIN_GOLD_FOR_VARIANCE,
    CorrectedMean,
    compare_sample_to_rest,
    corrected_difference,
    corrected_mean,
    labels_needed,
    rogan_gladen,
)
from dissensus.messages import Message, ParameterName
from dissensus.models.base import Aggregator, check_gold, item_columns, methods
from dissensus.models.gold_tempering import tempering_from_gold
from dissensus.models.gold_weights import Panel, panel_judges
from dissensus.models.tempering import MIN_GOLD_ITEMS
from dissensus.questions import findings
from dissensus.questions.compare import make_estimate_columns
from dissensus.questions.exceptions import (
    GoldClassesUnknown,
    GoldCodesOutOfRange,
    GoldOfAnotherType,
    NoDrawProbability,
    OneClassOnly,
    TooLittleGold,
    UnevenDraw,
    WrongLength,
)
from dissensus.questions.judge_bias import JudgeBias, estimate_judge_biases
from dissensus.questions.panel_review import PanelReview, find_gold_items, review_panel
from dissensus.table.annotations import Annotations
from dissensus.table.kinds import check_kind

N_FOLDS = 5
MEAN_SCORE_NAME = "mean score"
MIN_GOLD_PER_CLASS = 10  # minimum number of gold labels of a class; with fewer, its interval is approximate
MAX_BIASED_DRAW_P_VALUE = 0.01  # maximum p-value at which gold is reported as not drawn at random
MAX_SCALE_RATIO = 3.0  # maximum ratio of the ranges of human and judges' scores for the same scale
MAX_TESTED_CLASSES = 3  # maximum number of classes whose shares are compared to test the random draw
MIN_PROBABILITY = 1e-12  # lower bound of probabilities in the log loss
RIDGE_PENALTIES = np.geomspace(0.1, 1000, 13)  # penalties that are tried, for standardised scores
CORRECTABLE_LABEL_TYPES = ("classes", "graded", "numbers")  # label types

Learner = Callable[[IntArray], Callable[[IntArray], FloatArray]]
"""Learns from gold items, and returns a function that predicts the quantities (m, Q) of items (m,)."""


@dataclass(frozen=True)
class Rate:
    """The corrected frequency of a class or mean score, with other estimates for comparison."""

    name: str
    system: str | None  # None for all items
    items: int
    judge_rate: float  # rate according to the judges alone; NaN for classes that only gold has
    corrected: CorrectedMean
    rogan_gladen: Estimate | None  # None for a mean score


@dataclass(frozen=True)
class SystemDifference:
    """The rate of one system minus that of another."""

    name: str
    systems: tuple[str, str]
    n_pairs: int  # number of prompts with gold that both systems answered; 0 if they answered different prompts
    corrected: Estimate
    human: Estimate  # difference according to human labels alone

    @property
    def is_significant(self) -> bool:
        """Return whether the interval excludes 0."""
        return self.corrected.low > 0 or self.corrected.high < 0


@dataclass(frozen=True)
class Recall:
    """The recall of a judge for a class: the share of the items of this class that the judge recognises."""

    judge: str
    name: str
    items: int
    recall: Estimate


@dataclass(frozen=True, eq=False)
class GoldPlan:
    """The number of gold labels needed for intervals of the requested width."""

    width: float  # width of the widest interval
    n_gold_needed: int | None  # total number of gold items; None if even all items are not enough
    next_items: tuple[Any, ...] = field(repr=False)  # items to label next, drawn at random

    def __str__(self) -> str:
        return str(self.finding())

    def finding(self) -> Message:
        """Return how many more gold labels are needed."""
        if self.n_gold_needed is None:
            return findings.WidthOutOfReach(width=self.width)
        if not self.next_items:
            return findings.WidthReached(width=self.width)
        return findings.MoreGoldNeeded(width=self.width, n_more=len(self.next_items), needed=self.n_gold_needed)


@dataclass(frozen=True, eq=False, repr=False)
class CalibrationResult(NotebookTable):
    """The answers of a panel, corrected with gold."""

    rates: tuple[Rate, ...]
    differences: tuple[SystemDifference, ...]
    recalls: tuple[Recall, ...]
    judges: PanelReview | None  # review of the judges; None if the table is not a panel
    judge_biases: tuple[JudgeBias, ...]
    n_gold: int  # number of items with gold
    items: Names
    classes: Names
    posterior_: FloatArray | None  # (I, K); for gold items, from fits without their gold; None for numeric gold
    log_loss: float | None  # log loss of the posterior on gold items
    accuracy: float | None
    warnings: tuple[Message, ...]  # messages about skipped parts and doubtful inputs
    items_without_gold: IntArray  # codes of labelled items
    prompts: Any  # (I,) names of the prompts, or None
    drawn_evenly: bool  # True if gold items were drawn with equal probability
    seed: int

    @property
    def notes(self) -> tuple[str, ...]:
        """Return the warnings as sentences."""
        return tuple(map(str, self.warnings))

    def __repr__(self) -> str:
        return f"Calibrated by {self.n_gold:,} of {self.items.size:,} items: " + "; ".join(
            f"{rate.name} {rate.corrected}" for rate in self.rates if rate.system is None
        )

    def __getitem__(self, name: str) -> CorrectedMean:
        return {rate.name: rate.corrected for rate in self.rates if rate.system is None}[name]

    def rows(self) -> list[dict[str, Any]]:
        """Return one row per rate, as plain values."""
        return [
            {"rate": rate.name, "system": rate.system, "items": rate.items, "gold": rate.corrected.n_gold}
            | make_estimate_columns("corrected", rate.corrected)
            | make_estimate_columns("human", rate.corrected.human)
            | make_estimate_columns("rogan_gladen", rate.rogan_gladen)
            | {"judge_rate": rate.judge_rate, "weight": rate.corrected.weight}
            | {"labels_saved": rate.corrected.labels_saved}
            for rate in self.rates
        ]

    def to_frame(self) -> Any:
        """Return a frame (pandas if installed, else Arrow) of items with label, confidence and p_<class>."""
        if self.posterior_ is None:
            return columns_to_frame(self.rows())
        return columns_to_frame(item_columns(self.classes, 0, self.items, self.posterior_, None))

    def plan(self, width: float) -> GoldPlan:
        """Return how many more gold labels are needed for intervals of this width, and on which items.

        If there are prompts, all answers to a prompt are labelled together to keep differences paired.
        """
        check_argument("width", width, float, above=0)
        if not self.drawn_evenly:
            raise UnevenDraw()
        remaining, prompt = self.items_without_gold, self.prompts
        needed = self.n_gold
        for rate in self.rates:
            if rate.system is None:
                n = labels_needed(
                    rate.corrected, self.n_gold + remaining.size, width, rate=rate.name != MEAN_SCORE_NAME
                )
                if n is None:
                    return GoldPlan(width, None, ())
                needed = max(needed, n)
        group = np.arange(remaining.size)
        if prompt is not None:
            group = np.unique(prompt[remaining].astype(str), return_inverse=True)[1]
        rank = np.random.default_rng([self.seed, 1]).permutation(group.max(initial=-1) + 1)[group]
        remaining, rank = remaining[np.argsort(rank, kind="stable")], np.sort(rank)
        n_next = needed - self.n_gold
        while (
            0 < n_next < remaining.size and rank[n_next] == rank[n_next - 1]
        ):  # include all answers to the last prompt
            n_next += 1
        return GoldPlan(width, self.n_gold + n_next, tuple(self.items[np.sort(remaining[:n_next])].tolist()))


def has_enough_gold(gold: Any) -> bool:
    """Return whether there are enough gold items for a correction; `gold` (I,) holds codes or numbers."""
    return find_gold_items(gold).size >= 2 * MIN_GOLD_FOR_VARIANCE


def calibrate(
    table: Annotations,
    gold: Any,
    *,
    classes: Sequence[Any] | None = None,
    model: Aggregator | None = None,
    probability: Any = None,
    systems: Sequence[Any] | None = None,
    prompts: Sequence[Any] | None = None,
    columns: Mapping[str, Sequence[Any]] | None = None,
    cost: Mapping[Any, float] | None = None,
    seed: int = 0,
) -> CalibrationResult:
    """Correct the answers of a panel with gold.

    Parameters
    ----------
    table : Annotations
        Votes, grades or scores of judges.
    gold : (I,) int, −1 where unknown; or (I,) float, NaN where unknown
        Gold classes of items that were drawn at random. For a table of numbers, gold scores as floats.
    classes : list, optional
        Names of the gold classes if the table contains numbers.
    model : Aggregator, optional
        A model fitted to the votes without gold; by default the default method.
    probability : (I,), optional
        Probability with which each gold item was drawn, or numbers proportional to it. By default, all are equal.
    systems, prompts : (I,), optional
        System and prompt of each item, to estimate the rates of systems and their differences (paired by prompts).
    columns : name → (I,) or (N,), optional
        Metadata of items or rows, such as length or position, whose effects on judges are estimated.
    cost : judge → cost of a call, optional
        Costs with which the value of judges is compared. By default, all judges cost the same.
    seed : int
        Seed of the folds and random draws.

    Returns
    -------
    CalibrationResult
        The corrected rates and differences, the recalls of the judges, the panel review and the posterior.

    >>> from dissensus.table.simulate import simulate
    >>> data = simulate(400, 5, 2, redundancy=5, seed=1)
    >>> gold = np.where(np.arange(400) % 4 == 0, data.truth, -1)
    >>> found = calibrate(data.annotations, gold)
    >>> bool(found["1"].low < data.truth.mean() < found["1"].high), found["1"].n_gold
    (True, 100)
    >>> print(found.plan(0.2))
    The gold labels are enough for intervals 0.2 wide.
    >>> found.to_frame().shape, found.notes
    ((400, 5), ())
    """
    check_kind(table.kind, CORRECTABLE_LABEL_TYPES, "calibrate")
    numeric = np.asarray(gold).dtype.kind == "f"
    gold, names = _check_gold(table, gold, classes, numeric)
    labelled = np.flatnonzero(np.diff(table.item_ptr))
    known = np.intersect1d(find_gold_items(gold), labelled)
    if known.size < 2 * MIN_GOLD_FOR_VARIANCE:
        raise TooLittleGold(n_gold=known.size, needed=2 * MIN_GOLD_FOR_VARIANCE)
    pi, judges = _check_probability(probability, table, known), panel_judges(table)
    system, prompt = _check_names(systems, table.n_items, "systems"), _check_names(prompts, table.n_items, "prompts")
    model = methods[DEFAULT_METHOD]().fit(table) if table.kind != "numbers" and model is None else model
    blind = None if table.kind == "numbers" or model is None else np.asarray(model.posterior_)
    learn = _choose_learner(table, gold, names, judges, model, blind, numeric)
    cross_fitted = _cross_fit(learn, known, table.n_items, seed)
    predicted = blind if judges.size == 0 and blind is not None else cross_fitted
    quantities = _make_quantities(table, gold, names, known, pi, predicted, blind, numeric)
    rates, differences, skipped = _estimate_all_rates(quantities, labelled, system, prompt)
    warnings = [] if pi is not None else _check_random_draw(table, known, labelled)
    warnings += _check_scale(table, gold[known]) if numeric else _check_class_counts(names, gold[known])
    posterior = None if numeric else cross_fitted
    inputs: dict[str, Any] = {"gold": gold, "model": model, "posterior": posterior, "cost": cost, "seed": seed}
    review = review_panel(table, **inputs) if judges.size else None
    loss, accuracy = (None, None) if posterior is None else _score_posterior(posterior[known], gold[known], pi, known)
    return CalibrationResult(
        rates, differences, _estimate_recalls(table, gold, known, names, pi, numeric), review,
        tuple(estimate_judge_biases(table, quantities.truth, known, columns)) if columns and not numeric else (),
        known.size, table.items, names, posterior, loss, accuracy, (*warnings, *skipped),
        np.setdiff1d(labelled, known), prompt, pi is None, seed,
    )  # fmt: skip


# Checks ---------------------------------------------------------------------------------------------------------------


def _check_gold(table: Annotations, gold: Any, classes: Sequence[Any] | None, numeric: bool) -> tuple[Any, Names]:
    """Check gold and return it with the names of its classes."""
    if numeric:
        if table.kind != "numbers":
            raise GoldOfAnotherType()
        gold = np.asarray(fill_masked(gold, np.nan), np.float64)
        if gold.shape != (table.n_items,):
            raise WrongLength(name=ParameterName("gold"), expected=table.n_items, shape=gold.shape)
        return gold, table.classes[:0]
    if table.kind != "numbers":
        codes = check_gold(gold, table)
        names, gold = table.classes, np.full(table.n_items, -1) if codes is None else codes
    elif classes is None:
        raise GoldClassesUnknown()
    else:
        names, gold = np.array(list(classes), object), np.asarray(gold)
        if gold.shape != (table.n_items,) or (gold < -1).any() or (gold >= names.size).any():
            raise GoldCodesOutOfRange(highest=names.size - 1, items=table.n_items)
    if names.size < 2:
        raise OneClassOnly()
    return gold, names


def _check_probability(probability: Any, table: Annotations, known: IntArray) -> FloatArray | None:
    """Check the draw probabilities and return them (I,); only those of gold items are used."""
    if probability is None:
        return None
    pi = np.asarray(fill_masked(probability, np.nan), np.float64)
    if pi.shape != (table.n_items,):
        raise WrongLength(name=ParameterName("probability"), expected=table.n_items, shape=pi.shape)
    bad = known[~(pi[known] > 0) | ~np.isfinite(pi[known])]
    if bad.size:
        facts = {"item": table.items[bad[0]], "probability": float(pi[bad[0]])}
        raise NoDrawProbability(n_bad=bad.size, n_gold=known.size, **facts)
    return pi


def _check_names(values: Sequence[Any] | None, n: int, parameter: str) -> Any:
    """Return the values of n items as text, or None if there are no values."""
    if values is None:
        return None
    names = np.array([str(value) for value in values], object)
    if names.size != n:
        raise WrongLength(name=ParameterName(parameter), expected=n, shape=names.shape)
    return names


def _check_random_draw(table: Annotations, known: IntArray, labelled: IntArray) -> list[Message]:
    """Return a warning if the judges' labels on gold items differ from the others more than in a random draw."""
    count = np.maximum(np.diff(table.item_ptr), 1)
    features: list[tuple[str, Any, FloatArray]]  # name of the feature, label, values (I,)
    if table.kind == "numbers":
        score, mean = table.values[table.label], _mean_scores(table)
        spread = np.sqrt(np.bincount(table.item, (score - mean[table.item]) ** 2, table.n_items) / count)
        features = [("score", None, mean), ("agreement", None, -spread)]
    else:
        shares = dataclasses.replace(table, weight=None, proba=None).votes() / count[:, None]
        common = np.argsort(-shares.sum(axis=0), kind="stable")[: min(MAX_TESTED_CLASSES, table.n_classes - 1)]
        features = [("agreement", None, shares.max(axis=1))]
        features += [("label", table.classes[c], shares[:, c]) for c in common]
    values = np.column_stack([feature[2] for feature in features])[labelled]
    p, column, gap = compare_sample_to_rest(values, np.searchsorted(labelled, known))
    if p >= MAX_BIASED_DRAW_P_VALUE:
        return []
    feature, label, _ = features[column]
    return [findings.GoldNotRandom(feature=feature, label=label, is_more=bool(gap > 0), p_value=float(p))]


def _check_scale(table: Annotations, gold: FloatArray) -> list[Message]:
    """Return a warning if the scales of human scores and judges' scores differ."""
    scores = table.values[np.unique(table.label)]
    if 1 / MAX_SCALE_RATIO <= float(np.ptp(gold)) / max(float(np.ptp(scores)), 1e-300) <= MAX_SCALE_RATIO:
        return []
    ends = {"low": gold.min(), "high": gold.max(), "judges_low": scores.min(), "judges_high": scores.max()}
    return [findings.DifferentScales(None, **ends)]


def _check_class_counts(names: Names, gold: IntArray) -> list[Message]:
    """Return a warning about classes with few gold labels."""
    count = np.bincount(gold, minlength=names.size)
    few = {names[c]: int(count[c]) for c in np.flatnonzero(count < MIN_GOLD_PER_CLASS)}
    return [findings.FewGoldLabels(labels=few, min_labels=MIN_GOLD_PER_CLASS)] if few else []


# Predictions ----------------------------------------------------------------------------------------------------------


def _choose_learner(
    table: Annotations, gold: Any, names: Names, judges: IntArray, model: Aggregator | None, blind: Any, numeric: bool
) -> Learner:
    """Return a function that learns from gold items: judge weights, a regression, or ρ and class shifts of a crowd."""
    panel = Panel(table, judges if judges.size else np.arange(table.n_annotators), max(names.size, 2), blind)
    if numeric:
        return lambda known: _fit_regression(panel, known, gold[known])
    if judges.size or model is None:
        return lambda known: panel.fit(known, gold[known]).posterior
    untempered, labels = model.untempered_posterior(), np.asarray(model.item_total_)

    def temper_with_gold(known: IntArray) -> Callable[[IntArray], FloatArray]:
        if known.size < MIN_GOLD_ITEMS:
            return lambda items: np.asarray(blind[items])
        tempering = tempering_from_gold(untempered[known], labels[known], gold[known])
        return lambda items: tempering.temper(untempered[items], labels[items])

    return temper_with_gold


def _fit_regression(panel: Panel, known: IntArray, y: FloatArray) -> Callable[[IntArray], FloatArray]:
    """Fit a ridge regression of gold scores on judges' scores; the penalty has the smallest leave-one-out error."""
    from sklearn.linear_model import RidgeCV

    def features(items: IntArray) -> FloatArray:
        scores = panel.raw_scores(items)
        return np.column_stack([scores.mean(axis=1) * np.sqrt(scores.shape[1]), scores])

    model = RidgeCV(alphas=RIDGE_PENALTIES).fit(features(known), y)
    return lambda items: np.asarray(model.predict(features(items)))[:, None] if items.size else np.empty((0, 1))


def _cross_fit(learn: Learner, known: IntArray, n_items: int, seed: int) -> FloatArray:
    """Return cross-fitted predictions (I, Q).

    A gold item is predicted by the fit to the other folds, and every other item by the mean of all fits.
    """
    fold = np.random.default_rng(seed).permutation(known.size) % N_FOLDS
    others = np.setdiff1d(np.arange(n_items), known)
    fits = [learn(known[fold != number]) for number in range(N_FOLDS)]
    mean = sum(fit(others) / N_FOLDS for fit in fits)
    predictions = np.zeros((n_items, np.shape(mean)[1]))
    predictions[others] = mean
    for number, fit in enumerate(fits):
        predictions[known[fold == number]] = fit(known[fold == number])
    return predictions


def _mean_scores(table: Annotations) -> FloatArray:
    """Return the mean over judges of their mean score of each item (I,), or 0 for items without labels."""
    share = 1 / np.bincount(table.rating_codes)[table.rating_codes]
    sums = np.bincount(table.item, share * table.values[table.label], table.n_items)
    return np.asarray(sums / np.maximum(np.bincount(table.item, share, table.n_items), 1))


def _score_posterior(
    posterior: FloatArray, gold: IntArray, pi: FloatArray | None, known: IntArray
) -> tuple[float, float]:
    """Return log loss and accuracy of the posterior (n, K) of gold items, weighted by inverse draw probabilities."""
    weight = None if pi is None else 1 / pi[known]
    p_gold = posterior[np.arange(gold.size), gold]
    loss = np.average(-np.log(np.maximum(p_gold, MIN_PROBABILITY)), weights=weight)
    return float(loss), float(np.average(posterior.argmax(axis=1) == gold, weights=weight))


# Rates, systems, judges -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _CorrectedQuantities:
    """The truth and the predictions of the quantities whose means are corrected: one per class, and the score."""

    names: list[str]  # (Q,)
    truth: FloatArray  # (I, Q); only rows of gold items are valid
    predicted: FloatArray  # (I, Q)
    judge_values: FloatArray  # (I, Q) values according to the judges alone
    answers: FloatArray | None  # (I, K) the judges' answers, used for estimates from sensitivity and specificity
    gold_items: IntArray  # gold items
    pi: FloatArray | None  # (I,) draw probabilities; None if all are equal

    def check_system(self, items: IntArray, system: str) -> list[Message]:
        """Return a warning if a system has too few gold items."""
        n_gold = np.intersect1d(items, self.gold_items).size
        if n_gold >= MIN_GOLD_FOR_VARIANCE:
            return []
        facts: dict[str, Any] = {"n_gold": n_gold, "items": items.size, "min_gold": MIN_GOLD_FOR_VARIANCE}
        return [findings.TooLittleGoldForSystem(system=system, **facts)]

    def estimate_rates(self, items: IntArray, system: str | None) -> list[Rate]:
        """Return the rate of every quantity among some items, or [] with too little gold."""
        here, others = np.intersect1d(items, self.gold_items), np.setdiff1d(items, self.gold_items)
        if here.size < MIN_GOLD_FOR_VARIANCE:
            return []
        probability = None if self.pi is None else self.pi[here]
        rates = []
        for q, name in enumerate(self.names):
            is_rate = name != MEAN_SCORE_NAME
            truth = self.truth[here, q]
            corrected = corrected_mean(
                truth, self.predicted[here, q], self.predicted[others, q], rate=is_rate, probability=probability
            )
            by_errors = None
            if is_rate and self.answers is not None and self.pi is None:
                by_errors = rogan_gladen(truth, self.answers[here, q], self.answers[others, q])
            judge_rate = float(self.judge_values[items, q].mean())
            rates.append(Rate(name, system, items.size, judge_rate, corrected, by_errors))
        return rates


def _make_quantities(
    table: Annotations, gold: Any, names: Names, known: IntArray, pi: FloatArray | None, predicted: FloatArray,
    blind: FloatArray | None, numeric: bool,
) -> _CorrectedQuantities:  # fmt: skip
    """Return the quantities to correct: one per class, and the score if labels are scores or grades."""
    quantities = [MEAN_SCORE_NAME] if numeric else [str(name) for name in names]
    truth = gold[:, None] if numeric else (gold[:, None] == np.arange(names.size)) * 1.0
    answers = None if blind is None else find_tied_classes(blind) / find_tied_classes(blind).sum(axis=1, keepdims=True)
    judge_values = answers if answers is not None else np.full((table.n_items, len(quantities)), np.nan)
    if numeric:
        judge_values = _mean_scores(table)[:, None]
    if table.kind == "graded" and not numeric:
        grade = table.values[:, None]
        truth, predicted, judge_values = (np.hstack([p, p @ grade]) for p in (truth, predicted, judge_values))
        quantities.append(MEAN_SCORE_NAME)
    return _CorrectedQuantities(quantities, truth, predicted, judge_values, answers, known, pi)


def _estimate_all_rates(
    quantities: _CorrectedQuantities, labelled: IntArray, system: Any, prompt: Any
) -> tuple[tuple[Rate, ...], tuple[SystemDifference, ...], list[Message]]:
    """Return the rates of all items and of every system, their differences, and warnings about skipped systems."""
    rates = quantities.estimate_rates(labelled, None)
    if system is None:
        return tuple(rates), (), []
    skipped: list[Message] = []
    by_system = {str(name): labelled[system[labelled] == name] for name in sorted(set(system[labelled].tolist()))}
    for name, items in by_system.items():
        skipped += quantities.check_system(items, name)
        rates += quantities.estimate_rates(items, name)
    return tuple(rates), tuple(_compare_systems(rates, by_system, quantities, prompt)), skipped


def _compare_systems(
    rates: list[Rate], by_system: dict[str, IntArray], quantities: _CorrectedQuantities, prompt: Any
) -> list[SystemDifference]:
    """Return the differences in rates between all pairs of systems, paired by prompts if enough have gold."""
    estimates = {(rate.system, rate.name): rate.corrected for rate in rates}
    differences = []
    pi, has_gold = quantities.pi, np.zeros(len(quantities.truth), np.bool_)
    has_gold[quantities.gold_items] = True
    for first, second in combinations(by_system, 2):
        pairs = _match_prompts(by_system[first], by_system[second], prompt)
        both = has_gold[pairs].all(axis=1)
        for q, name in enumerate(quantities.names):
            if both.sum() >= MIN_GOLD_FOR_VARIANCE:
                y, f = (x[pairs[:, 0], q] - x[pairs[:, 1], q] for x in (quantities.truth, quantities.predicted))
                # The probabilities are equal if whole prompts were drawn
                drawn = None if pi is None else pi[pairs[both]].mean(axis=1)
                paired = corrected_mean(y[both], f[both], f[~both], probability=drawn)
                differences.append(SystemDifference(name, (first, second), int(both.sum()), paired, paired.human))
            elif (first, name) in estimates and (second, name) in estimates:
                a, b = estimates[first, name], estimates[second, name]
                human = corrected_difference(a.human_only, b.human_only)
                differences.append(SystemDifference(name, (first, second), 0, corrected_difference(a, b), human))
    return differences


def _match_prompts(first: IntArray, second: IntArray, prompt: Any) -> IntArray:
    """Return pairs of items (P, 2) in which two systems answer the same prompt; repeated answers are ignored."""
    if prompt is None:
        return np.empty((0, 2), np.int64)
    by_prompt, other = (dict(zip(prompt[items[::-1]], items[::-1].tolist(), strict=True)) for items in (first, second))
    pairs = [(item, other[name]) for name, item in by_prompt.items() if name in other]
    return np.array(pairs, np.int64).reshape(-1, 2)


def _estimate_recalls(
    table: Annotations, gold: Any, known: IntArray, names: Names, pi: FloatArray | None, numeric: bool
) -> tuple[Recall, ...]:
    """Return every judge's recall of every class on gold items (for two classes, specificity and sensitivity).

    Repeated labels of a judge on an item count as one.
    """
    from scipy.special import ndtri

    if table.kind == "numbers" or numeric:
        return ()
    A, K = table.n_annotators, table.n_classes
    rows = np.flatnonzero(np.isin(table.item, known))
    _, first, rating = np.unique(table.rating_codes[rows], return_index=True, return_inverse=True)
    share_right = np.bincount(rating, table.label[rows] == gold[table.item[rows]]) / np.bincount(rating)
    rows = rows[first]
    cell = table.annotator[rows].astype(np.int64) * K + gold[table.item[rows]]
    weight = np.ones(rows.size) if pi is None else 1 / pi[table.item[rows]]
    count, total = np.bincount(cell, minlength=A * K), np.bincount(cell, weight, A * K)
    trials = total**2 / np.maximum(np.bincount(cell, weight**2, A * K), 1e-300)
    hits = np.bincount(cell, weight * share_right, A * K)
    z, recalls = ndtri(0.975), []
    for code in np.flatnonzero(total):
        judge, c = divmod(int(code), K)
        share = hits[code] / total[code]
        low, high = wilson_interval(share, trials[code], z)
        estimate = Estimate(float(share), float(low), float(high))
        recalls.append(Recall(str(table.annotators[judge]), str(names[c]), int(count[code]), estimate))
    return tuple(recalls)
