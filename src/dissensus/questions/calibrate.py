"""Correct what a panel says by a little gold: rates, mean scores, differences of systems, items, judges, what to buy.

Gold items must be drawn at random from the items, or with known probabilities; then the corrected rates are valid
whatever the judges do (`evaluation.ppi`). Where no probabilities are given, a test says whether the judges answer gold
items otherwise than the rest. Predictions of a rate are the posterior of its class. For a panel it has learnt from gold
(`models.gold_weights`), cross-fitted: what is predicted of a known item comes from a fit that has not seen its class,
of the others from the mean of these fits (Zrnic & Candès 2024). For a crowd of many annotators it is the posterior
without gold, and what is said of items has ρ and shifts by gold (`models.tempering`), cross-fitted too.

Numbers that are known by gold as numbers are predicted by ridge regression on the judges' scores, cross-fitted.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any

import numpy as np

from dissensus.common.arrays import unmasked
from dissensus.common.frames import as_frame
from dissensus.common.notebook import Shown
from dissensus.common.parameters import check_argument
from dissensus.common.registry import DEFAULT_METHOD
from dissensus.common.types import FloatArray, IntArray, Names
from dissensus.evaluation import Estimate
from dissensus.evaluation.hard import tied
from dissensus.evaluation.intervals import score_interval
from dissensus.evaluation.ppi import (
    MIN_KNOWN,
    CorrectedMean,
    chosen_differently,
    corrected_difference,
    corrected_mean,
    labels_needed,
    rogan_gladen,
)
from dissensus.exceptions import BadParameter, DataError
from dissensus.models.base import Aggregator, check_gold, item_columns
from dissensus.models.gold_tempering import tempering_from_gold
from dissensus.models.gold_weights import Panel, panel_judges
from dissensus.models.tempering import MIN_GOLD
from dissensus.questions.compare import flat
from dissensus.questions.effects import Effect, item_effects
from dissensus.questions.panel import PanelReview, known_items, review_panel
from dissensus.table.annotations import Annotations
from dissensus.table.kinds import check_kind
from dissensus.table.names import shown

FOLDS = 5
MEAN = "mean score"
MIN_EVENTS = 10  # gold labels of a class, below which intervals were seen to be rough
MAX_DRAW_P = 0.01  # p value below which gold is said not to be drawn at random
MAX_SCALE_RATIO = 3.0  # of the ranges of human and judges' scores, from which on they are other scales
MAX_DRAW_CLASSES = 3  # classes whose shares are looked at for that
RIDGES = np.geomspace(0.1, 1000, 13)  # penalties of standardised scores that are tried

Learn = Callable[[IntArray], Callable[[IntArray], FloatArray]]
"""From known items to a function from items (m,) to what is predicted of them (m, Q)."""


@dataclass(frozen=True)
class Rate:
    """How often a class is true, or the mean score: corrected, and by other means beside it."""

    name: str
    system: str | None  # None: all items
    items: int
    judged: float  # by the judges alone, without gold; NaN of classes that only gold names
    corrected: CorrectedMean
    rogan_gladen: Estimate | None  # None of a mean score


@dataclass(frozen=True)
class SystemDifference:
    """The rate of one system less that of another."""

    name: str
    systems: tuple[str, str]
    pairs: int  # prompts that both answered and whose gold is known; 0 where they are different ones
    corrected: Estimate
    human: Estimate  # by the human labels alone

    @property
    def different(self) -> bool:
        """True if the interval excludes 0."""
        return self.corrected.low > 0 or self.corrected.high < 0


@dataclass(frozen=True)
class Recall:
    """How often a judge says so where a class is true."""

    judge: str
    name: str
    items: int
    recall: Estimate


@dataclass(frozen=True, eq=False)
class Plan:
    """What more gold would give."""

    width: float  # of the widest interval that is wanted
    needed: int | None  # known items in all; None: all items would not do
    more: tuple[Any, ...] = field(repr=False)  # items to have labelled next, drawn at random

    def __str__(self) -> str:
        if self.needed is None:
            return f"No number of gold labels makes an interval {self.width:g} wide with these items; add items."
        if not self.more:
            return f"The gold labels are enough for intervals {self.width:g} wide."
        some = f"{len(self.more):,} more gold labels, {self.needed:,} in all"
        return f"Intervals {self.width:g} wide take {some}; have these labelled, they are drawn at random."


@dataclass(frozen=True, eq=False, repr=False)
class Calibrated(Shown):
    """A panel's answers, corrected by gold."""

    rates: tuple[Rate, ...]
    differences: tuple[SystemDifference, ...]
    recalls: tuple[Recall, ...]
    judges: PanelReview | None  # what they are worth; None where the table is no panel
    effects: tuple[Effect, ...]
    known: int  # items with gold
    items: Names
    classes: Names
    posterior_: FloatArray | None  # (I, K), of known items by fits that have not seen them; None of numeric gold
    log_loss: float | None  # of it, on known items
    accuracy: float | None
    notes: tuple[str, ...]
    left: IntArray  # labelled items without gold
    prompts: Any  # (I,) names, or None
    evenly: bool  # gold items were drawn with the same probability
    seed: int

    def __repr__(self) -> str:
        return f"Calibrated by {self.known:,} of {self.items.size:,} items: " + "; ".join(
            f"{one.name} {one.corrected}" for one in self.rates if one.system is None
        )

    def __getitem__(self, name: str) -> CorrectedMean:
        return {one.name: one.corrected for one in self.rates if one.system is None}[name]

    def rows(self) -> list[dict[str, Any]]:
        """One row per rate, as plain values."""
        return [
            {"rate": one.name, "system": one.system, "items": one.items, "gold": one.corrected.known}
            | flat("corrected", one.corrected)
            | flat("human", one.corrected.human)
            | flat("rogan_gladen", one.rogan_gladen)
            | {"judged": one.judged, "weight": one.corrected.weight, "labels_saved": one.corrected.saved}
            for one in self.rates
        ]

    def to_frame(self) -> Any:
        """Items with label, confidence and p_<class>; a pandas frame where pandas is installed, else an Arrow table."""
        if self.posterior_ is None:
            return as_frame(self.rows())
        return as_frame(item_columns(self.classes, 0, self.items, self.posterior_, None))

    def plan(self, width: float) -> Plan:
        """How many more gold labels make every interval as narrow as this, and of which items.

        Of prompts it names all answers, so that differences stay paired.
        """
        check_argument("width", width, float, above=0)
        known, left, prompt = self.known, self.left, self.prompts
        if not self.evenly:
            raise BadParameter("width plans gold that is drawn evenly, and each item had its own probability here.")
        needed = known
        for one in self.rates:
            if one.system is None:
                more = labels_needed(one.corrected, known + left.size, width, rate=one.name != MEAN)
                if more is None:
                    return Plan(width, None, ())
                needed = max(needed, more)
        group = np.arange(left.size) if prompt is None else np.unique(prompt[left].astype(str), return_inverse=True)[1]
        place = np.random.default_rng([self.seed, 1]).permutation(group.max(initial=-1) + 1)[group]
        left = left[np.argsort(place, kind="stable")]
        cut = needed - known
        while 0 < cut < left.size and np.sort(place)[cut] == np.sort(place)[cut - 1]:
            cut += 1
        return Plan(width, known + cut, tuple(self.items[np.sort(left[:cut])].tolist()))


KINDS_CORRECTED = ("classes", "graded", "numbers")  # of labels


def enough(gold: Any) -> bool:
    """True where gold (I,), codes or numbers, knows enough items to correct by."""
    return known_items(gold).size >= 2 * MIN_KNOWN


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
) -> Calibrated:
    """Correct a panel by gold.

    Parameters
    ----------
    table : Annotations
        Votes, grades or scores of judges (kind "numbers").
    gold : (I,) int, −1 where unknown; or (I,) float, NaN where unknown
        Known classes of items that were drawn at random. Floats are known scores, of a table of numbers.
    classes : list, optional
        Names of the classes of gold, where the table holds numbers.
    model : Aggregator, optional
        Fitted to the votes without gold; left out, one is.
    probability : (I,), optional
        With which each item was drawn for gold, or numbers proportional to it; used where gold is known. Left out, all
        with the same.
    systems, prompts : (I,), optional
        Which system an item is an answer of, and to which prompt: rates of every system and their differences, paired
        where both answered the same prompts.
    columns : name → (I,) or (N,), optional
        What else is known of the items, or of each row, such as position or length: effects on what judges say
        (`questions.effects`).
    cost : judge → price of a call, optional
        Judges are bought by what they add for their price; left out, all cost the same.
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
    >>> found.to_frame().shape
    (400, 5)
    """
    check_kind(table.kind, KINDS_CORRECTED, "calibrate")
    numeric = np.asarray(gold).dtype.kind == "f"
    gold, names = _check(table, gold, classes, numeric)
    labelled = np.flatnonzero(np.diff(table.item_ptr))
    known = np.intersect1d(known_items(gold), labelled)
    if known.size < 2 * MIN_KNOWN:
        raise DataError(f"labelled items with gold: {known.size}; have {2 * MIN_KNOWN} or more, drawn at random.")
    if not numeric and names.size < 2:
        raise DataError("there is only one class; its rate is 1, and no label can change anything.")
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
    said = None if free is None else tied(free) / tied(free).sum(axis=1, keepdims=True)
    judged = said if said is not None else np.full((table.n_items, len(quantities)), np.nan)
    if numeric:
        judged = _mean_scores(table)[:, None]
    if table.kind == "graded" and not numeric:
        value = table.values[:, None]
        truth, predicted, judged = (np.hstack([one, one @ value]) for one in (truth, predicted, judged))
        quantities.append(MEAN)
    notes = [] if pi is not None else _draw_notes(table, known, labelled)
    notes += _scale_notes(table, gold[known]) if numeric else _few_notes(names, gold[known])

    def rate(at: int, items: IntArray, system: str | None) -> Rate | None:
        here, others = np.intersect1d(items, known), np.setdiff1d(items, known)
        if here.size < MIN_KNOWN:
            if at == 0:
                notes.append(f"{system}: {here.size} of {items.size:,} items have gold; {MIN_KNOWN} are the least.")
            return None
        name = quantities[at]
        is_rate = name != MEAN
        found = corrected_mean(
            truth[here, at], predicted[here, at], predicted[others, at], rate=is_rate,
            probability=None if pi is None else pi[here],
        )  # fmt: skip
        beside = None
        if is_rate and said is not None and pi is None:
            beside = rogan_gladen(truth[here, at], said[here, at], said[others, at])
        return Rate(name, system, items.size, float(judged[items, at].mean()), found, beside)

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
    return Calibrated(
        tuple(rates), tuple(differences), _recalls(table, gold, known, names, pi, numeric), review,
        tuple(item_effects(table, truth, known, columns)) if columns and not numeric else (),
        known.size, table.items, names, posterior, loss, accuracy, tuple(notes),
        np.setdiff1d(labelled, known), prompt, pi is None, seed,
    )  # fmt: skip


def _check(table: Annotations, gold: Any, classes: Sequence[Any] | None, numeric: bool) -> tuple[Any, Names]:
    """Gold as it is used, and the names of its classes."""
    if numeric:
        if table.kind != "numbers":
            raise DataError("gold holds numbers and the table classes; give gold as codes: table.gold_codes(…).")
        gold = np.asarray(unmasked(gold, np.nan), np.float64)
        if gold.shape != (table.n_items,):
            raise DataError(f"gold must hold one number per item, {table.n_items:,} in all, got shape {gold.shape}.")
        return gold, table.classes[:0]
    if table.kind != "numbers":
        found = check_gold(gold, table)
        return np.full(table.n_items, -1) if found is None else found, table.classes
    if classes is None:
        raise DataError("the table holds numbers and gold codes of classes; name these: classes=[…].")
    names, gold = np.array(list(classes), object), np.asarray(gold)
    if gold.shape != (table.n_items,) or (gold < -1).any() or (gold >= names.size).any():
        raise DataError(f"gold must hold a code from −1 to {names.size - 1} for each of {table.n_items:,} items.")
    return gold, names


def _check_probability(given: Any, table: Annotations, known: IntArray) -> FloatArray | None:
    """(I,) as it is used; only that of known items is looked at."""
    if given is None:
        return None
    found = np.asarray(unmasked(given, np.nan), np.float64)
    if found.shape != (table.n_items,):
        raise DataError(f"probability must hold one number per item, {table.n_items:,} in all, got {found.shape}.")
    bad = known[~(found[known] > 0) | ~np.isfinite(found[known])]
    if bad.size:
        raise DataError(
            f"{bad.size:,} of {known.size:,} gold items have no probability above 0; the first is "
            f"{shown(table.items[bad[0]])}: {found[bad[0]]:g}."
        )
    return found


def _mean_scores(table: Annotations) -> FloatArray:
    """(I,) mean of the judges' mean scores of each item, 0 without any."""
    share = 1 / np.bincount(table.rating)[table.rating]
    sums = np.bincount(table.item, share * table.values[table.label], table.n_items)
    return np.asarray(sums / np.maximum(np.bincount(table.item, share, table.n_items), 1))


def _draw_notes(table: Annotations, known: IntArray, labelled: IntArray) -> list[str]:
    """A sentence where judges answer gold items otherwise than the rest, by more than a random draw would explain."""
    count = np.maximum(np.diff(table.item_ptr), 1)
    looks: list[tuple[FloatArray, str, str]]  # what is compared, and what is said where gold has less or more of it
    if table.kind == "numbers":
        score, mean = table.values[table.label], _mean_scores(table)
        spread = np.sqrt(np.bincount(table.item, (score - mean[table.item]) ** 2, table.n_items) / count)
        looks = [
            (mean, "judges score gold items lower", "judges score gold items higher"),
            (spread, "judges agree more on gold items", "judges agree less on gold items"),
        ]
    else:
        shares = dataclasses.replace(table, weight=None, proba=None).votes() / count[:, None]
        common = np.argsort(-shares.sum(axis=0), kind="stable")[: min(MAX_DRAW_CLASSES, table.n_classes - 1)]
        looks = [(shares.max(axis=1), "judges agree less on gold items", "judges agree more on gold items")]
        for at in common:
            words = f"judges call gold items {shown(table.classes[at])}"
            looks.append((shares[:, at], f"{words} less often", f"{words} more often"))
    features = np.column_stack([one for one, _, _ in looks])[labelled]
    p, column, gap = chosen_differently(features, np.searchsorted(labelled, known))
    if p >= MAX_DRAW_P:
        return []
    return [
        f"{looks[column][1 + (gap > 0)]} than others (p = {p:.1g}), as if gold was not drawn at random; then no "
        "interval here holds: draw it at random, or give the probability with which each item was drawn."
    ]


def _scale_notes(table: Annotations, gold: FloatArray) -> list[str]:
    """A sentence where human scores are on another scale than those of the judges."""
    said = table.values[np.unique(table.label)]
    if 1 / MAX_SCALE_RATIO <= float(np.ptp(gold)) / max(float(np.ptp(said)), 1e-300) <= MAX_SCALE_RATIO:
        return []
    scales = f"{gold.min():g} to {gold.max():g}, those of the judges {said.min():g} to {said.max():g}"
    return [f"human scores go from {scales}: corrected means are on the human scale."]


def _few_notes(names: Names, gold: IntArray) -> list[str]:
    """A sentence about classes with too few gold labels."""
    count = np.bincount(gold, minlength=names.size)
    few = [f"{shown(names[at])} {count[at]}" for at in np.flatnonzero(count < MIN_EVENTS)]
    if not few:
        return []
    named = f"{', '.join(few[:3])} and {len(few) - 3:,} more" if len(few) > 3 else ", ".join(few)
    return [f"few gold labels of {named}: intervals of classes with fewer than {MIN_EVENTS} are rough."]


def _names(given: Sequence[Any], n: int, what: str) -> Any:
    found = np.array([str(one) for one in given], object)
    if found.size != n:
        raise DataError(f"{what} names {found.size:,} items, and the table has {n:,}; give one for each.")
    return found


# Predictions ----------------------------------------------------------------------------------------------------------


def _learner(
    table: Annotations, gold: Any, names: Names, judges: IntArray, model: Aggregator | None, free: Any, numeric: bool
) -> Learn:
    """What learns from known items: weights of judges, a regression of scores, or ρ and shifts for a crowd."""
    everybody = judges if judges.size else np.arange(table.n_annotators)
    panel = Panel(table, everybody, max(names.size, 2), free)
    if numeric:
        return lambda known: _regression(panel, known, gold[known])
    if judges.size or model is None:
        return lambda known: panel.learn(known, gold[known]).posterior
    blind, labels = model.untempered_posterior(), np.asarray(model.item_total_)

    def calibrated(known: IntArray) -> Callable[[IntArray], FloatArray]:
        if known.size < MIN_GOLD:
            return lambda items: np.asarray(free[items])
        found = tempering_from_gold(blind[known], labels[known], gold[known])
        return lambda items: found.temper(blind[items], labels[items])

    return calibrated


def _regression(panel: Panel, known: IntArray, y: FloatArray) -> Callable[[IntArray], FloatArray]:
    """Ridge regression of known scores on those of judges; the penalty has the least leave-one-out error."""
    from sklearn.linear_model import RidgeCV

    def columns(items: IntArray) -> FloatArray:
        scores = panel.raw_scores(items)
        return np.column_stack([scores.mean(axis=1) * np.sqrt(scores.shape[1]), scores])

    model = RidgeCV(alphas=RIDGES).fit(columns(known), y)
    return lambda items: np.asarray(model.predict(columns(items)))[:, None] if items.size else np.empty((0, 1))


def _cross_fitted(learn: Learn, known: IntArray, items: IntArray, seed: int) -> FloatArray:
    """(I, Q) predictions of items: of known ones by the fit to other folds, of others by the mean of these fits."""
    fold = np.random.default_rng(seed).permutation(known.size) % FOLDS
    others = np.setdiff1d(items, known)
    fits = [learn(known[fold != one]) for one in range(FOLDS)]
    rest = sum(fit(others) / FOLDS for fit in fits)
    found = np.zeros((items.size, np.shape(rest)[1]))
    found[others] = rest
    for one, fit in enumerate(fits):
        found[known[fold == one]] = fit(known[fold == one])
    return found


# Systems, judges, what to buy -----------------------------------------------------------------------------------------


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
                human = corrected_difference(one.alone, other.alone)
                found.append(SystemDifference(name, (first, second), 0, corrected_difference(one, other), human))
    return found


def _pairs(first: IntArray, second: IntArray, prompt: Any) -> IntArray:
    """(P, 2) items of two systems that answer the same prompt; of several to one prompt, the first."""
    if prompt is None:
        return np.empty((0, 2), np.int64)
    one, other = (dict(zip(prompt[items[::-1]], items[::-1].tolist(), strict=True)) for items in (first, second))
    return np.array([(item, other[name]) for name, item in one.items() if name in other], np.int64).reshape(-1, 2)


def _recalls(
    table: Annotations, gold: Any, known: IntArray, names: Names, pi: FloatArray | None, numeric: bool
) -> tuple[Recall, ...]:
    """Every judge's recall of every class, on items of known class; of two classes: specificity and sensitivity.

    What a judge says of an item, however often, counts once.
    """
    from scipy.special import ndtri

    if table.kind == "numbers" or numeric:
        return ()
    A, K = table.n_annotators, table.n_classes
    rows = np.flatnonzero(np.isin(table.item, known))
    _, first, rating = np.unique(table.rating[rows], return_index=True, return_inverse=True)
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
        low, high = score_interval(share, trials[at], z)
        estimate = Estimate(float(share), float(low), float(high))
        found.append(Recall(str(table.annotators[judge]), str(names[c]), int(count[at]), estimate))
    return tuple(found)
