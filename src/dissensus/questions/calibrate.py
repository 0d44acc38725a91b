"""Correct the answers of a panel by a little gold: rates, mean scores, differences of systems, items, judges, a plan.

Gold items must be drawn at random from the items, or with known probabilities; then the corrected rates are valid
whatever the judges do (`evaluation.ppi`). Without probabilities, a test compares the judges' answers on gold items with
the rest. Predictions of a rate are the posterior of its class. For a panel the posterior uses gold
(`models.gold_weights`), cross-fitted: the prediction of a known item comes from a fit without its class, that of the
others from the mean of these fits (Zrnic & Candès 2024). For a crowd of many annotators it is the posterior without
gold, and the posterior of items has ρ and shifts by gold (`models.tempering`), cross-fitted too.

Known scores are predicted by ridge regression on the judges' scores, cross-fitted.
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
from dissensus.evaluation.hard import tied_classes
from dissensus.evaluation.intervals import wilson_interval
from dissensus.evaluation.ppi import (
    MIN_KNOWN,
    CorrectedMean,
    compare_sample_to_rest,
    corrected_difference,
    corrected_mean,
    labels_needed,
    rogan_gladen,
)
from dissensus.messages import Message, ParameterName
from dissensus.models.base import Aggregator, check_gold, item_columns
from dissensus.models.gold_tempering import tempering_from_gold
from dissensus.models.gold_weights import Panel, panel_judges
from dissensus.models.tempering import MIN_GOLD
from dissensus.questions import findings
from dissensus.questions.compare import estimate_columns
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
from dissensus.questions.judge_bias import JudgeBias, judge_biases
from dissensus.questions.panel_review import PanelReview, gold_items, review_panel
from dissensus.table.annotations import Annotations
from dissensus.table.kinds import check_kind

FOLDS = 5
MEAN = "mean score"
MIN_EVENTS = 10  # gold labels of a class below which intervals were found to be rough
MAX_DRAW_P = 0.01  # p-value below which gold is reported as not drawn at random
MAX_SCALE_RATIO = 3.0  # ratio of the ranges of human and judges' scores above which the scales differ
MAX_DRAW_CLASSES = 3  # classes whose shares are tested for the draw
RIDGES = np.geomspace(0.1, 1000, 13)  # penalties of standardised scores

Learn = Callable[[IntArray], Callable[[IntArray], FloatArray]]
"""From known items to a function from items (m,) to their predictions (m, Q)."""


@dataclass(frozen=True)
class Rate:
    """How often a class is true, or the mean score: corrected, and by other means for comparison."""

    name: str
    system: str | None  # None: all items
    items: int
    judge_rate: float  # by the judges alone, without gold; NaN for classes that only gold names
    corrected: CorrectedMean
    rogan_gladen: Estimate | None  # None of a mean score


@dataclass(frozen=True)
class SystemDifference:
    """The rate of one system less that of another."""

    name: str
    systems: tuple[str, str]
    n_pairs: int  # prompts with gold that both answered; 0 if they answered different ones
    corrected: Estimate
    human: Estimate  # by the human labels alone

    @property
    def is_significant(self) -> bool:
        """Return whether the interval excludes 0."""
        return self.corrected.low > 0 or self.corrected.high < 0


@dataclass(frozen=True)
class Recall:
    """How often a judge gives a class that is true."""

    judge: str
    name: str
    items: int
    recall: Estimate


@dataclass(frozen=True, eq=False)
class GoldPlan:
    """How much gold is needed for narrow intervals."""

    width: float  # of the widest interval
    n_gold_needed: int | None  # known items in all; None: all items are not enough
    next_items: tuple[Any, ...] = field(repr=False)  # items to have labelled next, drawn at random

    def __str__(self) -> str:
        return str(self.finding())

    def finding(self) -> Message:
        """Return how many more gold labels are needed."""
        if self.n_gold_needed is None:
            return findings.WidthOutOfReach(width=self.width)
        if not self.next_items:
            return findings.WidthReached(width=self.width)
        return findings.MoreGoldNeeded(width=self.width, more=len(self.next_items), needed=self.n_gold_needed)


@dataclass(frozen=True, eq=False, repr=False)
class CalibrationResult(NotebookTable):
    """The answers of a panel, corrected by gold."""

    rates: tuple[Rate, ...]
    differences: tuple[SystemDifference, ...]
    recalls: tuple[Recall, ...]
    judges: PanelReview | None  # value of the judges; None if the table is no panel
    judge_biases: tuple[JudgeBias, ...]
    n_gold: int  # items with gold
    items: Names
    classes: Names
    posterior_: FloatArray | None  # (I, K), of known items by fits without their gold; None for numeric gold
    log_loss: float | None  # of the posterior, on known items
    accuracy: float | None
    warnings: tuple[Message, ...]  # what was skipped, and what is doubtful
    unlabelled_by_gold: IntArray  # labelled items without gold
    prompts: Any  # (I,) names, or None
    drawn_evenly: bool  # gold items were drawn with the same probability
    seed: int

    @property
    def notes(self) -> tuple[str, ...]:
        """Return what was skipped, and what is doubtful, in words."""
        return tuple(map(str, self.warnings))

    def __repr__(self) -> str:
        return f"Calibrated by {self.n_gold:,} of {self.items.size:,} items: " + "; ".join(
            f"{one.name} {one.corrected}" for one in self.rates if one.system is None
        )

    def __getitem__(self, name: str) -> CorrectedMean:
        return {one.name: one.corrected for one in self.rates if one.system is None}[name]

    def rows(self) -> list[dict[str, Any]]:
        """Return one row per rate, as plain values."""
        return [
            {"rate": one.name, "system": one.system, "items": one.items, "gold": one.corrected.n_gold}
            | estimate_columns("corrected", one.corrected)
            | estimate_columns("human", one.corrected.human)
            | estimate_columns("rogan_gladen", one.rogan_gladen)
            | {"judge_rate": one.judge_rate, "weight": one.corrected.weight, "labels_saved": one.corrected.labels_saved}
            for one in self.rates
        ]

    def to_frame(self) -> Any:
        """Return a frame (pandas if installed, else Arrow) of items with label, confidence and p_<class>."""
        if self.posterior_ is None:
            return columns_to_frame(self.rows())
        return columns_to_frame(item_columns(self.classes, 0, self.items, self.posterior_, None))

    def plan(self, width: float) -> GoldPlan:
        """Return how many more gold labels make every interval this narrow, and on which items.

        With prompts, all answers to a prompt are labelled together, so that differences stay paired.
        """
        check_argument("width", width, float, above=0)
        known, left, prompt = self.n_gold, self.unlabelled_by_gold, self.prompts
        if not self.drawn_evenly:
            raise UnevenDraw()
        needed = known
        for one in self.rates:
            if one.system is None:
                more = labels_needed(one.corrected, known + left.size, width, rate=one.name != MEAN)
                if more is None:
                    return GoldPlan(width, None, ())
                needed = max(needed, more)
        group = np.arange(left.size) if prompt is None else np.unique(prompt[left].astype(str), return_inverse=True)[1]
        place = np.random.default_rng([self.seed, 1]).permutation(group.max(initial=-1) + 1)[group]
        left = left[np.argsort(place, kind="stable")]
        cut = needed - known
        while 0 < cut < left.size and np.sort(place)[cut] == np.sort(place)[cut - 1]:
            cut += 1
        return GoldPlan(width, known + cut, tuple(self.items[np.sort(left[:cut])].tolist()))


CORRECTABLE_KINDS = ("classes", "graded", "numbers")  # of labels


def has_enough_gold(gold: Any) -> bool:
    """Return whether gold (I,), codes or numbers, has enough known items for a correction."""
    return gold_items(gold).size >= 2 * MIN_KNOWN


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
    """Correct a panel by gold.

    Parameters
    ----------
    table : Annotations
        Votes, grades or scores of judges (kind "numbers").
    gold : (I,) int, −1 where unknown; or (I,) float, NaN where unknown
        Known classes of items that were drawn at random. Floats are known scores, for a table of numbers.
    classes : list, optional
        Names of the classes of gold, if the table holds numbers.
    model : Aggregator, optional
        Fitted to the votes without gold; default: the default method.
    probability : (I,), optional
        Probability with which each item was drawn for gold, or numbers proportional to it; used where gold is known.
        Default: equal.
    systems, prompts : (I,), optional
        System and prompt that an item is an answer of: rates of every system and their differences, paired if both
        answered the same prompts.
    columns : name → (I,) or (N,), optional
        Metadata of the items or of each row, such as position or length: their effects on the judges
        (`questions.judge_bias`).
    cost : judge → cost of a call, optional
        Judges are ranked by their value for this cost; default: all cost the same.
    seed : int
        Of folds and draws.

    >>> from dissensus.table.simulate import simulate
    >>> data = simulate(400, 5, 2, redundancy=5, seed=1)
    >>> known = np.where(np.arange(400) % 4 == 0, data.truth, -1)
    >>> found = calibrate(data.annotations, known)
    >>> bool(found["1"].low < data.truth.mean() < found["1"].high), found["1"].known
    (True, 100)
    >>> print(found.plan(0.2))
    The gold labels are enough for intervals 0.2 wide.
    >>> found.to_frame().shape, found.notes
    ((400, 5), ())
    """
    check_kind(table.kind, CORRECTABLE_KINDS, "calibrate")
    numeric = np.asarray(gold).dtype.kind == "f"
    gold, names = _check(table, gold, classes, numeric)
    labelled = np.flatnonzero(np.diff(table.item_ptr))
    known = np.intersect1d(gold_items(gold), labelled)
    if known.size < 2 * MIN_KNOWN:
        raise TooLittleGold(n_gold=known.size, needed=2 * MIN_KNOWN)
    if not numeric and names.size < 2:
        raise OneClassOnly()
    pi = _check_probability(probability, table, known)
    judges = panel_judges(table)
    free: FloatArray | None = None
    if table.kind != "numbers":
        if model is None:
            from dissensus.models.base import methods

            model = methods[DEFAULT_METHOD]().fit(table)
        free = np.asarray(model.posterior_)
    learn = _learner(table, gold, names, judges, model, free, numeric)
    out = _cross_fitted(learn, known, np.arange(table.n_items), seed)
    truth = gold[:, None] if numeric else (gold[:, None] == np.arange(names.size)) * 1.0  # (I, Q)
    predicted = free if judges.size == 0 and free is not None else out
    quantities = [MEAN] if numeric else [str(name) for name in names]
    answer = None if free is None else tied_classes(free) / tied_classes(free).sum(axis=1, keepdims=True)
    judged = answer if answer is not None else np.full((table.n_items, len(quantities)), np.nan)
    if numeric:
        judged = _mean_scores(table)[:, None]
    if table.kind == "graded" and not numeric:
        value = table.values[:, None]
        truth, predicted, judged = (np.hstack([one, one @ value]) for one in (truth, predicted, judged))
        quantities.append(MEAN)
    doubts = [] if pi is not None else _doubts_of_draw(table, known, labelled)
    doubts += _doubts_of_scale(table, gold[known]) if numeric else _doubts_of_counts(names, gold[known])

    def rate(at: int, items: IntArray, system: str | None) -> Rate | None:
        here, others = np.intersect1d(items, known), np.setdiff1d(items, known)
        if here.size < MIN_KNOWN:
            if at == 0:
                doubts.append(
                    findings.TooLittleGoldForSystem(
                        system=str(system), n_gold=here.size, items=items.size, least=MIN_KNOWN
                    )
                )
            return None
        name = quantities[at]
        is_rate = name != MEAN
        found = corrected_mean(
            truth[here, at], predicted[here, at], predicted[others, at], rate=is_rate,
            probability=None if pi is None else pi[here],
        )  # fmt: skip
        by_errors = None
        if is_rate and answer is not None and pi is None:
            by_errors = rogan_gladen(truth[here, at], answer[here, at], answer[others, at])
        return Rate(name, system, items.size, float(judged[items, at].mean()), found, by_errors)

    Q = len(quantities)
    rates = [one for at in range(Q) if (one := rate(at, labelled, None)) is not None]
    differences: list[SystemDifference] = []
    prompt = None if prompts is None else _names(prompts, table.n_items, "prompts")
    if systems is not None:
        of = _names(systems, table.n_items, "systems")
        parts = {str(one): labelled[of[labelled] == one] for one in sorted(set(of[labelled].tolist()))}
        for name, items in parts.items():
            rates += [one for at in range(Q) if (one := rate(at, items, name)) is not None]
        differences = _differences(rates, parts, quantities, known, truth, predicted, prompt, pi)
    posterior = None if numeric else out
    review = None
    if judges.size:
        review = review_panel(table, gold=gold, model=model, posterior=posterior, cost=cost, seed=seed)
    loss = accuracy = None
    if posterior is not None:
        chosen = posterior[known, gold[known]]
        weight = None if pi is None else 1 / pi[known]
        loss = float(np.average(-np.log(np.maximum(chosen, 1e-12)), weights=weight))
        accuracy = float(np.average(posterior[known].argmax(axis=1) == gold[known], weights=weight))
    return CalibrationResult(
        tuple(rates), tuple(differences), _recalls(table, gold, known, names, pi, numeric), review,
        tuple(judge_biases(table, truth, known, columns)) if columns and not numeric else (),
        known.size, table.items, names, posterior, loss, accuracy, tuple(doubts),
        np.setdiff1d(labelled, known), prompt, pi is None, seed,
    )  # fmt: skip


def _check(table: Annotations, gold: Any, classes: Sequence[Any] | None, numeric: bool) -> tuple[Any, Names]:
    """Return checked gold, and the names of its classes."""
    if numeric:
        if table.kind != "numbers":
            raise GoldOfAnotherType()
        gold = np.asarray(fill_masked(gold, np.nan), np.float64)
        if gold.shape != (table.n_items,):
            raise WrongLength(name=ParameterName("gold"), expected=table.n_items, shape=gold.shape)
        return gold, table.classes[:0]
    if table.kind != "numbers":
        found = check_gold(gold, table)
        return np.full(table.n_items, -1) if found is None else found, table.classes
    if classes is None:
        raise GoldClassesUnknown()
    names, gold = np.array(list(classes), object), np.asarray(gold)
    if gold.shape != (table.n_items,) or (gold < -1).any() or (gold >= names.size).any():
        raise GoldCodesOutOfRange(highest=names.size - 1, items=table.n_items)
    return gold, names


def _check_probability(given: Any, table: Annotations, known: IntArray) -> FloatArray | None:
    """Return checked probabilities (I,); only those of known items are used."""
    if given is None:
        return None
    found = np.asarray(fill_masked(given, np.nan), np.float64)
    if found.shape != (table.n_items,):
        raise WrongLength(name=ParameterName("probability"), expected=table.n_items, shape=found.shape)
    bad = known[~(found[known] > 0) | ~np.isfinite(found[known])]
    if bad.size:
        facts = {"item": table.items[bad[0]], "probability": float(found[bad[0]])}
        raise NoDrawProbability(bad=bad.size, n_gold=known.size, **facts)
    return found


def _mean_scores(table: Annotations) -> FloatArray:
    """Return the mean of the judges' mean scores of each item (I,), 0 without labels."""
    share = 1 / np.bincount(table.rating_codes)[table.rating_codes]
    sums = np.bincount(table.item, share * table.values[table.label], table.n_items)
    return np.asarray(sums / np.maximum(np.bincount(table.item, share, table.n_items), 1))


def _doubts_of_draw(table: Annotations, known: IntArray, labelled: IntArray) -> list[Message]:
    """Return a message if judges label gold items differently from the rest, beyond a random draw."""
    count = np.maximum(np.diff(table.item_ptr), 1)
    features: list[tuple[str, Any, FloatArray]]  # kind of feature, label, values (I,)
    if table.kind == "numbers":
        score, mean = table.values[table.label], _mean_scores(table)
        spread = np.sqrt(np.bincount(table.item, (score - mean[table.item]) ** 2, table.n_items) / count)
        features = [("score", None, mean), ("agreement", None, -spread)]
    else:
        shares = dataclasses.replace(table, weight=None, proba=None).votes() / count[:, None]
        common = np.argsort(-shares.sum(axis=0), kind="stable")[: min(MAX_DRAW_CLASSES, table.n_classes - 1)]
        features = [("agreement", None, shares.max(axis=1))]
        features += [("label", table.classes[at], shares[:, at]) for at in common]
    values = np.column_stack([one for _, _, one in features])[labelled]
    p, column, gap = compare_sample_to_rest(values, np.searchsorted(labelled, known))
    if p >= MAX_DRAW_P:
        return []
    feature, label, _ = features[column]
    return [findings.GoldNotRandom(feature=feature, label=label, more=bool(gap > 0), p_value=float(p))]


def _doubts_of_scale(table: Annotations, gold: FloatArray) -> list[Message]:
    """Return a message if human scores are on another scale than those of the judges."""
    scores = table.values[np.unique(table.label)]
    if 1 / MAX_SCALE_RATIO <= float(np.ptp(gold)) / max(float(np.ptp(scores)), 1e-300) <= MAX_SCALE_RATIO:
        return []
    ends = {"low": gold.min(), "high": gold.max(), "judges_low": scores.min(), "judges_high": scores.max()}
    return [findings.DifferentScales(None, **ends)]


def _doubts_of_counts(names: Names, gold: IntArray) -> list[Message]:
    """Return a message about classes with few gold labels."""
    count = np.bincount(gold, minlength=names.size)
    few = {names[at]: int(count[at]) for at in np.flatnonzero(count < MIN_EVENTS)}
    return [findings.FewGoldLabels(labels=few, least=MIN_EVENTS)] if few else []


def _names(given: Sequence[Any], n: int, what: str) -> Any:
    found = np.array([str(one) for one in given], object)
    if found.size != n:
        raise WrongLength(name=ParameterName(what), expected=n, shape=found.shape)
    return found


# Predictions ----------------------------------------------------------------------------------------------------------


def _learner(
    table: Annotations, gold: Any, names: Names, judges: IntArray, model: Aggregator | None, free: Any, numeric: bool
) -> Learn:
    """Return a function that learns from known items: judge weights, a regression, or ρ and shifts for a crowd."""
    panel = Panel(table, judges if judges.size else np.arange(table.n_annotators), max(names.size, 2), free)
    if numeric:
        return lambda known: _regression(panel, known, gold[known])
    if judges.size or model is None:
        return lambda known: panel.fit(known, gold[known]).posterior
    blind, labels = model.untempered_posterior(), np.asarray(model.item_total_)

    def calibrated(known: IntArray) -> Callable[[IntArray], FloatArray]:
        if known.size < MIN_GOLD:
            return lambda items: np.asarray(free[items])
        found = tempering_from_gold(blind[known], labels[known], gold[known])
        return lambda items: found.temper(blind[items], labels[items])

    return calibrated


def _regression(panel: Panel, known: IntArray, y: FloatArray) -> Callable[[IntArray], FloatArray]:
    """Fit a ridge regression of known scores on those of judges, with the least leave-one-out error."""
    from sklearn.linear_model import RidgeCV

    def columns(items: IntArray) -> FloatArray:
        scores = panel.raw_scores(items)
        return np.column_stack([scores.mean(axis=1) * np.sqrt(scores.shape[1]), scores])

    model = RidgeCV(alphas=RIDGES).fit(columns(known), y)
    return lambda items: np.asarray(model.predict(columns(items)))[:, None] if items.size else np.empty((0, 1))


def _cross_fitted(learn: Learn, known: IntArray, items: IntArray, seed: int) -> FloatArray:
    """Return predictions of items (I, Q): of known ones by the fit to other folds, of others by the mean of fits."""
    fold = np.random.default_rng(seed).permutation(known.size) % FOLDS
    others = np.setdiff1d(items, known)
    fits = [learn(known[fold != one]) for one in range(FOLDS)]
    rest = sum(fit(others) / FOLDS for fit in fits)
    found = np.zeros((items.size, np.shape(rest)[1]))
    found[others] = rest
    for one, fit in enumerate(fits):
        found[known[fold == one]] = fit(known[fold == one])
    return found


# Systems, judges, plans -----------------------------------------------------------------------------------------


def _differences(
    rates: list[Rate], parts: dict[str, IntArray], quantities: list[str], known: IntArray, truth: FloatArray,
    predicted: FloatArray, prompt: Any, pi: FloatArray | None,
) -> list[SystemDifference]:  # fmt: skip
    by = {(one.system, one.name): one.corrected for one in rates}
    found = []
    is_known = np.zeros(len(truth), np.bool_)
    is_known[known] = True
    for first, second in combinations(parts, 2):
        pairs = _pairs(parts[first], parts[second], prompt)
        both = is_known[pairs].all(axis=1)
        for at, name in enumerate(quantities):
            if both.sum() >= MIN_KNOWN:
                y, f = (one[pairs[:, 0], at] - one[pairs[:, 1], at] for one in (truth, predicted))
                drawn = None if pi is None else pi[pairs[both]].mean(axis=1)  # equal where prompts were drawn
                one = corrected_mean(y[both], f[both], f[~both], probability=drawn)
                found.append(SystemDifference(name, (first, second), int(both.sum()), one, one.human))
            elif (first, name) in by and (second, name) in by:
                one, other = by[first, name], by[second, name]
                human = corrected_difference(one.human_only, other.human_only)
                found.append(SystemDifference(name, (first, second), 0, corrected_difference(one, other), human))
    return found


def _pairs(first: IntArray, second: IntArray, prompt: Any) -> IntArray:
    """Return pairs of items (P, 2) of two systems that answer the same prompt, the first answers to it."""
    if prompt is None:
        return np.empty((0, 2), np.int64)
    one, other = (dict(zip(prompt[items[::-1]], items[::-1].tolist(), strict=True)) for items in (first, second))
    return np.array([(item, other[name]) for name, item in one.items() if name in other], np.int64).reshape(-1, 2)


def _recalls(
    table: Annotations, gold: Any, known: IntArray, names: Names, pi: FloatArray | None, numeric: bool
) -> tuple[Recall, ...]:
    """Return every judge's recall of every class on known items; of two classes: specificity and sensitivity.

    Labels of a judge on an item count once together.
    """
    from scipy.special import ndtri

    if table.kind == "numbers" or numeric:
        return ()
    A, K = table.n_annotators, table.n_classes
    rows = np.flatnonzero(np.isin(table.item, known))
    _, first, rating = np.unique(table.rating_codes[rows], return_index=True, return_inverse=True)
    right = np.bincount(rating, table.label[rows] == gold[table.item[rows]]) / np.bincount(rating)
    rows = rows[first]
    own = table.annotator[rows].astype(np.int64) * K + gold[table.item[rows]]
    weight = np.ones(rows.size) if pi is None else 1 / pi[table.item[rows]]
    count, total = np.bincount(own, minlength=A * K), np.bincount(own, weight, A * K)
    trials = total**2 / np.maximum(np.bincount(own, weight**2, A * K), 1e-300)
    hits = np.bincount(own, weight * right, A * K)
    z, found = ndtri(0.975), []
    for at in np.flatnonzero(total):
        judge, c = divmod(int(at), K)
        share = hits[at] / total[at]
        low, high = wilson_interval(share, trials[at], z)
        estimate = Estimate(float(share), float(low), float(high))
        found.append(Recall(str(table.annotators[judge]), str(names[c]), int(count[at]), estimate))
    return tuple(found)
